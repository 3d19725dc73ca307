//! The queries of the public benchmark, as they are written there.

use crate::support::World;

const Q5: &str = include_str!("../../../../../cli/nexmark/q5.sql");
const Q7: &str = include_str!("../../../../../cli/nexmark/q7.sql");

/// How a query of the benchmark runs: the last statement of its text.
fn explain(text: &str) -> String {
    let world = World::new();
    let (tables, query) = text.trim_end().trim_end_matches(';').rsplit_once(';').unwrap();
    world.run(tables);
    world.explain(query.trim_start())
}

#[test]
fn q0_reads_only_the_fields_of_a_bid() {
    let world = World::new();
    world.run("CREATE TABLE nexmark_q0 (auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3), extra VARCHAR) WITH ('connector' = 'blackhole')");
    let text = world.explain("INSERT INTO nexmark_q0 SELECT auction, bidder, price, dateTime, extra FROM bid");
    assert_eq!(
        text,
        "stage 0: scan datagen ('nexmark'), one instance per partition; no state
  columns: bid.auction, bid.bidder, bid.dateTime, bid.extra, bid.price
  pushed down: event_type = 2
  watermark: bid.dateTime - 4 s
  project: bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.dateTime AS dateTime, bid.extra AS extra
  exchange: stage 1, to its only member
stage 1: sink nexmark_q0 ('blackhole'); no state
  from: stage 0
output: auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3), extra VARCHAR
"
    );
}

#[test]
fn q1_computes_in_decimals() {
    let world = World::new();
    world.run("CREATE TABLE nexmark_q1 (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), dateTime TIMESTAMP(3), extra VARCHAR) WITH ('connector' = 'blackhole')");
    let text = world
        .explain("INSERT INTO nexmark_q1 SELECT auction, bidder, 0.908 * price as price, dateTime, extra FROM bid");
    assert!(text.contains("output: auction BIGINT, bidder BIGINT, price DECIMAL(23, 3)"), "{text}");
    assert!(text.contains("0.908"), "{text}");
}

#[test]
fn q2_filters_where_the_rows_are() {
    let world = World::new();
    world.run("CREATE TABLE nexmark_q2 (auction BIGINT, price BIGINT) WITH ('connector' = 'blackhole')");
    let text = world.explain("INSERT INTO nexmark_q2 SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0");
    assert!(text.contains("filter: bid.auction % 123 = 0"), "{text}");
    assert!(text.contains("columns: bid.auction, bid.dateTime, bid.price"), "{text}");
}

#[test]
fn q5_counts_once_for_both_sides_of_its_join() {
    let text = explain(Q5);
    let head = "stage 0: scan datagen ('nexmark'), one instance per partition; no state
  columns: bid.auction, bid.dateTime
  pushed down: event_type = 2
  watermark: bid.dateTime - 4 s
  late rows: dropped and counted
  project: bid.dateTime AS dateTime, bid.auction AS auction
  window: HOP 10 s every 2 s, panes of 2 s
  partial aggregate: count(1) by auction
  exchange: stage 1, by key group of auction
stage 1: merge panes, close windows; merge state
  window: HOP 10 s every 2 s, panes of 2 s
  aggregate: count(1) by auction
  project: auction, count(*), window_end
  exchange: stage 2, to its only member
stage 2: plan over each closed window; sequence state
  input 0: stage 1 (auction, count(*), window_end)
    NestedLoopJoinExec: join_type=Inner, filter=num >= maxn, projection=[auction, num]
      ProjectionExec: expr=[value2 as maxn]
";
    assert!(text.starts_with(head), "{text}");
    let tail = "stage 3: sink nexmark_q5 ('blackhole'); no state
  from: stage 2
output: auction BIGINT, num BIGINT
";
    assert!(text.ends_with(tail), "{text}");
    assert!(text.contains("gby=[], aggr=[max(CountBids.num)"), "one row, since a window is one group: {text}");
}

#[test]
fn q5_reads_the_same_with_the_short_and_the_named_form() {
    let world = World::new();
    let graph = |from: &str| {
        world.plan(&format!(
            "SELECT auction, count(*) AS n, window_end FROM {from} GROUP BY auction, window_start, window_end"
        ))
    };
    let long = graph("TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))");
    assert_eq!(graph("HOP(bid, dateTime, INTERVAL '2' SECOND, INTERVAL '10' SECOND)"), long);
    assert_eq!(
        graph(
            "TABLE(HOP(DATA => TABLE bid, TIMECOL => DESCRIPTOR(dateTime), SIZE => INTERVAL '10' SECOND, SLIDE => INTERVAL '2' SECOND))"
        ),
        long
    );
    assert_eq!(
        graph(
            "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND, INTERVAL '4' SECOND))"
        ),
        long
    );
    let moved = graph(
        "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND, INTERVAL '1' SECOND))",
    );
    assert_ne!(moved, long);
}

#[test]
fn q8_joins_two_windowed_streams() {
    let world = World::new();
    let text = world.explain(
        "SELECT P.id, P.name, P.starttime
         FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
               FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
               GROUP BY id, name, window_start, window_end) P
         JOIN (SELECT seller, window_start AS starttime, window_end AS endtime
               FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
               GROUP BY seller, window_start, window_end) A
         ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime",
    );
    assert!(text.contains("pushed down: event_type = 0") && text.contains("pushed down: event_type = 1"), "{text}");
    assert!(text.contains("input 1: stage 3 (seller, window_end)"), "{text}");
    assert!(text.contains("partial aggregate: distinct keys by id, name"), "{text}");
}

#[test]
fn q7_joins_bids_with_the_window_that_they_are_the_highest_of() {
    let text = explain(Q7);
    for line in [
        "inner join within bounds of time; sequence state",
        "keys: price = maxprice",
        "bounds: dateTime - dateTime_2 from -10 s to 0 s",
        "exchange: stage 3, by key group",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert!(!text.contains("condition:"), "the bounds say it all:\n{text}");
}

#[test]
fn q12_takes_the_clock_for_time() {
    let world = World::new();
    world.run("CREATE VIEW B AS SELECT *, PROCTIME() as p_time FROM bid");
    let text = world.explain(
        "SELECT bidder, count(*) as bid_count, window_start AS starttime, window_end AS endtime
         FROM TABLE(TUMBLE(TABLE B, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
         GROUP BY bidder, window_start, window_end",
    );
    assert!(text.contains("watermark: processing time"), "{text}");
    assert!(!text.contains("columns: bid.bidder, PROCTIME()"), "no connector knows the column:\n{text}");
}

#[test]
fn q13_looks_bids_up() {
    let world = World::new();
    world
        .run("CREATE TABLE side_input (key BIGINT, value VARCHAR) WITH ('connector' = 'nexmark', 'events.num' = '10')");
    let text = world.explain(
        "SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
         FROM (SELECT *, PROCTIME() as p_time FROM bid) B
         JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S
         ON mod(B.auction, 10000) = S.key",
    );
    assert!(text.contains("look-up: table side_input, read once"), "{text}");
}
