//! Every construct that streams have, as text of its plan.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::Int64Type;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use savanna_streams_functions::functions;
use savanna_streams_model::graph::Operator;
use savanna_streams_model::plan::{Leaf, leaves};
use savanna_streams_sql::{Statement, parse};

use crate::support::World;

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn filters_and_projections_pile_up_into_one_chain() {
    let text = World::new().explain(
        "WITH cheap AS (SELECT id, price * 2 AS double FROM plain WHERE price < 10)
         SELECT d + 1 AS e FROM (SELECT double AS d FROM cheap WHERE id > 5) AS x WHERE d <> 3",
    );
    has(&text, &["columns: id, price", "filter: ", "project: price * 2"]);
    assert_eq!(text.matches("  project:").count(), 1, "{text}");
    assert_eq!(text.matches("  filter:").count(), 1, "{text}");
    assert!(!text.contains("watermark"), "{text}");
}

#[test]
fn a_condition_that_is_not_pushed_down_stays() {
    let text = World::new().explain("SELECT event_type FROM datagen WHERE event_type = 1 AND bid.price = 7");
    has(
        &text,
        &[
            "pushed down: event_type = 1",
            "filter: bid.price = 7",
            "project: 1 AS event_type",
            "columns: auction.dateTime, bid.price",
        ],
    );
}

#[test]
fn contradicting_conditions_keep_one_of_them() {
    let text = World::new().explain("SELECT bid.price FROM datagen WHERE event_type = 1 AND event_type = 2");
    has(&text, &["pushed down: event_type = ", "filter: false"]);
}

#[test]
fn without_a_condition_the_watermark_reads_all_three_times() {
    let text = World::new().explain("SELECT event_type FROM datagen");
    has(&text, &["columns: event_type, person.dateTime, auction.dateTime, bid.dateTime", "watermark: CASE WHEN"]);
}

#[test]
fn a_single_windowed_aggregate_needs_no_plan_over_windows() {
    let text = World::new().explain(
        "SELECT k + 1 AS k1, upper(s) AS u, sum(v) AS total, count(DISTINCT s) FILTER (WHERE v > 0) AS d, window_end
         FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         WHERE v IS NOT NULL AND window_start > TIMESTAMP '2020-01-01 00:00:00'
         GROUP BY k + 1, upper(s), window_start, window_end
         HAVING sum(v) > 10",
    );
    has(
        &text,
        &[
            "filter: v IS NOT NULL",
            "window: TUMBLE 1 min, panes of 1 min",
            "count(DISTINCT s) FILTER (WHERE",
            "> 10",
            "window_start > ",
        ],
    );
    assert!(!text.contains("plan over each closed window"), "{text}");
}

#[test]
fn a_window_alone_may_be_the_group() {
    let graph = World::new().plan(
        "SELECT window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_end",
    );
    let Operator::Scan(scan) = &graph.stages[0].operator else { panic!("a scan comes first") };
    let schema = scan.source.schema();
    assert_eq!(schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["ts"]);
    assert_eq!(graph.stages.len(), 3);
}

#[test]
fn windows_without_aggregate_become_columns() {
    let text = World::new().explain(
        "SELECT k, v * 2 AS w, window_start FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND))
         WHERE k > 3 AND window_end < TIMESTAMP '2030-01-01 00:00:00'",
    );
    has(
        &text,
        &[
            "windows as columns: HOP 3 s every 1 s",
            "filter: k > 3",
            "filter: window_end < ",
            "project: k, value2 AS w, window_start",
        ],
    );
}

#[test]
fn cumulating_windows_share_panes_of_one_step() {
    let world = World::new();
    let text = world.explain(
        "SELECT window_start, window_end, count(*) AS n
         FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '1' DAY, INTERVAL '25' HOUR))
         GROUP BY window_start, window_end",
    );
    has(&text, &["window: CUMULATE 1 d in steps of 10 min, offset 1 h, panes of 10 min"]);
    let named = "SELECT k, window_end FROM CUMULATE(DATA => TABLE events, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '2' SECOND, SIZE => INTERVAL '6' SECOND)";
    has(&world.explain(named), &["windows as columns: CUMULATE 6 s in steps of 2 s"]);
    let error = world.error(&named.replace("'6'", "'7'")).to_string();
    assert!(error.contains("CUMULATE needs a size that is a multiple of its step"), "{error}");
}

#[test]
fn sessions_are_cut_by_key() {
    let world = World::new();
    let of = |data: &str| {
        format!(
            "SELECT k, window_start, window_end, sum(v) AS total FROM TABLE(SESSION({data}, INTERVAL '90' SECOND))
             WHERE window_end > TIMESTAMP '2020-01-01 00:00:00' GROUP BY window_start, window_end, k"
        )
    };
    let lines = ["window: SESSION with a gap of 90 s", "partial aggregate: sum(v) by k", "filter: window_end >"];
    for data in [
        "TABLE events PARTITION BY k, DESCRIPTOR(ts)",
        "DATA => TABLE events PARTITION BY (k), TIMECOL => DESCRIPTOR(ts)",
        "(SELECT * FROM events) PARTITION BY k, DESCRIPTOR(ts)",
    ] {
        has(&world.explain(&of(data)), &lines);
    }
    let filtered = world.explain(&of("(SELECT * FROM events WHERE v > 7) PARTITION BY k, DESCRIPTOR(ts)"));
    has(&filtered, &["filter: v > 7", lines[0]]);
    let both = "SELECT DISTINCT k, s, window_end FROM SESSION(events PARTITION BY (k, s), ts, INTERVAL '1' SECOND)";
    has(&world.explain(both), &["partial aggregate: distinct keys by k, s"]);
}

#[test]
fn select_distinct_over_a_window_is_an_aggregate() {
    let text = World::new().explain(
        "SELECT DISTINCT window_start, window_end, k FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
    );
    has(&text, &["partial aggregate: distinct keys by k"]);
}

#[test]
fn union_all_of_streams_goes_to_one_sink() {
    let text = World::new().explain("SELECT id AS x FROM plain UNION ALL SELECT k FROM events WHERE k > 1");
    has(&text, &["from: stage 0, 1", "output: x BIGINT"]);
}

#[test]
fn an_aggregate_of_windows_runs_per_window() {
    let text = World::new().explain(
        "SELECT window_end, max(n) AS most FROM
           (SELECT k, window_start, window_end, count(*) AS n
            FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end)
         GROUP BY window_start, window_end",
    );
    has(&text, &["plan over each closed window", "AggregateExec", "max("]);
}

#[test]
fn all_joins_of_windows_work() {
    let world = World::new();
    let side = "(SELECT k, window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end)";
    for kind in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"] {
        let text = world.explain(&format!(
            "SELECT a.k, a.n FROM {side} a {kind} {side} b ON a.window_end = b.window_end AND a.n < b.n"
        ));
        has(&text, &["input 0: stage 1", "Join"]);
        assert!(!text.contains("input 1"), "equal inputs are one stage: {text}");
    }
    world.plan(&format!("SELECT a.k FROM {side} a, {side} b WHERE a.window_start = b.window_start AND a.k = b.n"));
    world.plan(&format!(
        "SELECT a.k FROM {side} a WHERE a.window_end IN (SELECT window_end FROM {side} b WHERE b.n > 5)"
    ));
    world.plan(&format!("SELECT * FROM {side} a JOIN {side} b USING (window_start, window_end)"));
    world.plan(&format!("SELECT DISTINCT window_end, n FROM (SELECT * FROM {side} UNION ALL SELECT * FROM {side}) u"));
}

#[test]
fn a_plan_over_one_window_neither_groups_nor_joins_by_it() {
    let world = World::new();
    let counts = |windows: &str| {
        format!(
            "WITH c AS (SELECT k, window_start AS s, window_end AS e, count(*) AS n FROM TABLE({windows}) GROUP BY k, window_start, window_end)"
        )
    };
    let most = "SELECT c.k, c.n FROM c JOIN (SELECT s, e, max(n) AS most FROM c GROUP BY s, e) m";
    let hop = counts("HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND)");
    let text = world.explain(&format!("{hop} {most} ON c.s = m.s AND c.e = m.e AND c.n >= m.most"));
    has(
        &text,
        &[
            "input 0: stage 1 (k, count(*), window_end)",
            "NestedLoopJoinExec: join_type=Inner, filter=n >= most, projection=[k, n]\n      ProjectionExec: expr=[value2 as most]",
            "gby=[], aggr=[max(c.n) as value2, count(1) as rows]",
        ],
    );
    let equal = world.explain(&format!("{hop} {most} ON c.s = m.s AND c.e = m.e AND c.n = m.most"));
    has(&equal, &["HashJoinExec: mode=CollectLeft, join_type=Inner, on=[(most, n)]", "gby=[]"]);
    let left = most.replace("JOIN", "LEFT JOIN");
    let left = world.explain(&format!("{hop} {left} ON c.s = m.s AND c.e = m.e AND c.n >= m.most"));
    has(&left, &["join_type=Left, on=[(s, s), (e, e)]"]);

    let by_both = "SELECT s, e, max(n) AS most FROM c GROUP BY s, e";
    has(&world.explain(&format!("{hop} {by_both}")), &["gby=[], "]);
    for several_starts in [
        "SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND)",
    ] {
        let several_starts = counts(several_starts);
        let text = world.explain(&format!("{several_starts} {by_both}"));
        assert!(!text.contains("gby=[],"), "{text}");
        has(&world.explain(&format!("{several_starts} SELECT e, max(n) AS most FROM c GROUP BY e")), &["gby=[], "]);
    }
}

#[test]
fn windows_take_views_ctes_and_queries() {
    let world = World::new();
    let count = "SELECT window_end, count(*) AS n FROM";
    world.run("CREATE VIEW some AS SELECT k, ts AS at FROM events WHERE k > 1");
    let view = world.plan(&format!("{count} TUMBLE(some, at, INTERVAL '1' SECOND) AS w GROUP BY w.window_end"));
    let cte = world.plan(&format!("WITH c AS (SELECT * FROM some) {count} TABLE(TUMBLE(TABLE c, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_end"));
    let query = world.plan(&format!(
        "{count} TUMBLE((SELECT ts FROM events WHERE k > 1), ts, INTERVAL '1' SECOND) GROUP BY window_end"
    ));
    assert_eq!(view, cte);
    assert_eq!(view, query);
}

#[test]
fn a_union_below_an_aggregate_feeds_one_stage() {
    let graph = World::new().plan(
        "SELECT kind, window_end, count(*) AS n, max(id) FROM TABLE(TUMBLE(
             (SELECT dateTime AS at, 'bid' AS kind, auction AS id FROM bid UNION ALL SELECT dateTime, 'person', id FROM person),
             DESCRIPTOR(at), INTERVAL '10' SECOND))
         GROUP BY kind, window_start, window_end",
    );
    let Operator::Aggregate(aggregate) = &graph.stages[2].operator else { panic!("one aggregate of both") };
    assert_eq!(aggregate.inputs.len(), 2);
    assert_eq!(graph.stages.len(), 4);
}

#[test]
fn a_window_stands_on_the_time_of_another() {
    let world = World::new();
    let inner = "SELECT k, window_start AS s, window_end AS e, window_time AS at, count(*) AS n
                 FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_start, window_end, window_time";
    let outer = |time: &str| {
        format!(
            "WITH i AS ({inner}) SELECT window_end, sum(n) FROM TABLE(HOP(TABLE i, DESCRIPTOR({time}), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
             GROUP BY window_start, window_end"
        )
    };
    for time in ["at", "e"] {
        let text = world.explain(&outer(time));
        has(
            &text,
            &[
                "exchange: stage 1, by key group of k",
                "partial aggregate: sum(n) by window alone",
                "exchange: stage 2, to",
            ],
        );
        assert_eq!(text.matches("merge state").count(), 2, "{text}");
    }
    let error = world.error(&outer("s")).to_string();
    assert!(error.contains("must use their window_time") && error.contains("line 2"), "{error}");
    let again = format!("SELECT * FROM (SELECT * FROM ({inner}) x JOIN ({inner}) y ON x.s = y.s AND x.e = y.e) z");
    world.plan(&again);
}

#[test]
fn plans_over_windows_are_cut_by_the_columns_that_they_keep_apart() {
    let world = World::new();
    let windowed =
        |table: &str, time: &str| format!("TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '1' SECOND))");
    let (left, right) = (windowed("events", "ts"), windowed("bid", "dateTime"));
    let on = "l.window_start = r.window_start AND l.window_end = r.window_end";
    let cut = |sql: &str| {
        let text = world.explain(sql);
        let cuts =
            text.lines().filter(|line| line.contains("exchange: stage 2,") || line.contains("exchange: stage 1,"));
        cuts.map(|line| line.split(", ").skip(1).collect::<Vec<_>>().join(", ")).collect::<Vec<_>>()
    };
    let keyed = cut(&format!("SELECT l.s, r.price FROM {left} l JOIN {right} r ON l.k = r.auction AND {on}"));
    assert_eq!(keyed, ["by key group of k", "by key group of auction"]);
    let single = cut(&format!("SELECT l.s, r.price FROM {left} l JOIN {right} r ON l.k > r.auction AND {on}"));
    assert_eq!(single, ["to its only member", "to its only member"]);
    let exists = cut(&format!(
        "SELECT l.s FROM {left} l WHERE NOT EXISTS (SELECT 1 FROM {right} r WHERE l.k = r.auction AND {on})"
    ));
    assert_eq!(exists, keyed);
    let not_in = cut(&format!("SELECT l.s FROM {left} l WHERE k NOT IN (SELECT auction FROM {right} r WHERE {on})"));
    assert_eq!(not_in, single, "a NULL anywhere decides about all rows");
    let top = |keys: &str| {
        format!(
            "SELECT * FROM (SELECT k, v, window_end, ROW_NUMBER() OVER (PARTITION BY window_start, window_end{keys} ORDER BY v DESC) AS n FROM {left}) WHERE n <= 3"
        )
    };
    assert_eq!(cut(&top(", k")), ["by key group of k", "to its only member"]);
    assert_eq!(cut(&top("")), ["to its only member", "to its only member"]);
    let grouped =
        format!("SELECT l.k, l.window_end AS e FROM {left} l LEFT JOIN {right} r ON l.k = r.auction AND {on}");
    assert_eq!(cut(&format!("SELECT k, count(*) FROM ({grouped}) GROUP BY k, e")), keyed);
    assert_eq!(cut(&format!("SELECT e, count(*) FROM ({grouped}) GROUP BY e")), single);
}

#[test]
fn only_what_a_plan_over_windows_reads_is_sent() {
    let text = World::new().explain(
        "SELECT auction, price FROM (
             SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, auction ORDER BY price DESC) AS n
             FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))) WHERE n = 1",
    );
    has(
        &text,
        &[
            "columns: bid.auction, bid.dateTime, bid.price\n",
            "input 0: stage 0 (auction, price, window_start, window_end)",
        ],
    );
}

#[test]
fn rankings_keep_their_first_rows_where_rows_are_read() {
    let world = World::new();
    let ranked = |function: &str, rows: &str, condition: &str| {
        world.explain(&format!(
            "SELECT auction, price FROM (
                 SELECT auction, price, {function}() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS n
                 FROM {rows}) WHERE {condition}"
        ))
    };
    let rows = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))";
    let keeps = |last: u64| format!("keeps: rows with PLACE() <= {last} in each window\n");
    for (condition, last) in [("n <= 3", 3), ("n < 3 AND price > 7", 2), ("5 >= n", 5), ("n BETWEEN 2 AND 4", 4)] {
        for function in ["ROW_NUMBER", "RANK", "DENSE_RANK"] {
            has(&ranked(function, rows, condition), &[&keeps(last)]);
        }
    }
    let counted = "(SELECT auction, count(*) AS price, window_start, window_end FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end)";
    has(&ranked("RANK", counted, "n = 1"), &[&keeps(1)]);
    for condition in ["n > 3", "n <= 3 OR price > 7", "n <> 2", "n < 2.5"] {
        let text = ranked("ROW_NUMBER", rows, condition);
        assert!(!text.contains("keeps:"), "{text}");
    }
}

#[test]
fn group_windows_are_the_table_functions() {
    let world = World::new();
    let old = world.plan("SELECT k, count(*) AS n, TUMBLE_END(ts, INTERVAL '1' SECOND) AS e FROM events GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)");
    let new = world.plan("SELECT k, count(*) AS n, window_end AS e FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_start, window_end");
    assert_eq!(old, new);
    let old = world.plan("SELECT e.k, SESSION_START(e.ts, INTERVAL '1' SECOND) AS s FROM events e WHERE v > 1 GROUP BY e.k, SESSION(e.ts, INTERVAL '1' SECOND)");
    let new = world.plan("SELECT k, window_start AS s FROM SESSION((SELECT * FROM events WHERE v > 1) PARTITION BY k, ts, INTERVAL '1' SECOND) GROUP BY k, window_start, window_end");
    assert_eq!(old, new);
    let error = world
        .error("SELECT TUMBLE_END(ts, INTERVAL '2' SECOND) FROM events GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)")
        .to_string();
    assert!(error.contains("TUMBLE_END must have the arguments of TUMBLE in GROUP BY"), "{error}");
}

#[test]
fn branches_of_a_union_do_not_share_their_stages() {
    let world = World::new();
    let most = "SELECT window_end AS e, max(n) AS m FROM
         (SELECT k, window_end, count(*) AS n FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_end) GROUP BY window_end";
    let text = world.explain(&format!("{most} UNION ALL {most} UNION ALL SELECT window_end, count(*) FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY window_end"));
    has(&text, &["from: stage 2, 5, 7"]);
}

#[test]
fn decimal_literals_beside_doubles_are_doubles() {
    let text = World::new().explain(
        "SELECT v * 0.5 AS half, k * 0.5 AS exact FROM events
         WHERE v > 0.25 AND v + -1.5 BETWEEN 0.5 AND 1.5 AND v IN (2.5, 3.5)",
    );
    has(&text, &["output: half DOUBLE, exact DECIMAL("]);
    assert!(!text.contains("CAST(v"), "{text}");
}

#[test]
fn columns_without_a_name_are_called_by_their_text() {
    let text = World::new().explain("SELECT k + 1, upper(s), CAST(k AS VARCHAR), k FROM events");
    has(&text, &["output: k + 1 BIGINT, upper(s) VARCHAR, CAST(k AS VARCHAR) VARCHAR, k BIGINT"]);
}

#[test]
fn a_column_twice_gets_two_names() {
    let text = World::new().explain("SELECT id, id, price + 1, price + 1 FROM plain");
    has(&text, &["output: id BIGINT, id_2 BIGINT"]);
}

#[test]
fn the_plan_over_a_window_joins_its_rows() {
    let graph = World::new().plan(
        "SELECT a.k, a.n FROM
           (SELECT k, window_end AS e, count(*) AS n FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_end) a
         JOIN
           (SELECT max(n) AS m, e FROM
              (SELECT k, window_end AS e, count(*) AS n FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_end) GROUP BY e) b
         ON a.e = b.e AND a.n >= b.m",
    );
    let Operator::Window(window) = &graph.stages[2].operator else { panic!("a plan over windows") };
    assert_eq!(window.inputs.len(), 1);
    let plan = window.plan.decode(&functions()).unwrap();
    for (counts, expected) in [(vec![3, 7, 7], vec![11, 12]), (vec![9, 1, 1], vec![10])] {
        let end = || Arc::new(TimestampMillisecondArray::from(vec![1_000; 3])) as ArrayRef;
        let columns =
            vec![Arc::new(Int64Array::from(vec![10, 11, 12])) as ArrayRef, Arc::new(Int64Array::from(counts)), end()];
        let rows = RecordBatch::try_new(Arc::clone(&window.inputs[0].schema), columns).unwrap();
        let plan = reset_plan_states(Arc::clone(&plan)).unwrap();
        for leaf in leaves(&plan) {
            leaf.downcast_ref::<Leaf>().unwrap().fill(vec![rows.clone()]);
        }
        let result = futures::executor::block_on(collect(plan, functions())).unwrap();
        let mut keys: Vec<i64> =
            result.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        keys.sort_unstable();
        assert_eq!(keys, expected);
    }
}

#[test]
fn late_rows_go_to_a_side_table_by_column_name() {
    let world = World::new();
    world.run(
        "CREATE TABLE late (ts TIMESTAMP(3), k BIGINT) WITH ('connector' = 'file');
         CREATE TABLE careful (k BIGINT, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
         WITH ('connector' = 'file', 'late-data' = 'side:late')",
    );
    let text = world
        .explain("SELECT window_end, sum(v) AS s FROM TUMBLE(careful, ts, INTERVAL '1' SECOND) GROUP BY window_end");
    has(&text, &["late rows: to table late", "columns: k, v, ts"]);
}

#[test]
fn insert_casts_and_fills_by_name() {
    let world = World::new();
    world.run("CREATE TABLE out (a INT, b DOUBLE, c VARCHAR, d TIMESTAMP(6)) WITH ('connector' = 'blackhole')");
    let text = world.explain("INSERT INTO out (c, a) SELECT id, id FROM plain");
    has(&text, &["output: a INT, b DOUBLE, c VARCHAR, d TIMESTAMP(6)", "NULL AS b"]);
    world.plan("INSERT INTO out SELECT id, price, ok, at FROM plain");
}

#[test]
fn fields_of_rows_work_in_conditions_and_through_views() {
    let world = World::new();
    world.run("CREATE VIEW rich (id, worth) AS SELECT auction.id, auction.reserve FROM datagen WHERE event_type = 1 AND auction.reserve > 100");
    let text = world.explain("SELECT worth FROM rich WHERE id < 10");
    has(&text, &["columns: auction.dateTime, auction.id, auction.reserve", "pushed down: event_type = 1"]);
}

#[test]
fn back_ticks_and_double_quotes_name_columns() {
    let text = World::new().explain("SELECT `id`, \"name\" AS `a b` FROM `plain`");
    has(&text, &["output: id BIGINT, a b VARCHAR"]);
}

#[test]
fn a_query_without_tables_is_a_constant() {
    let world = World::new();
    let constant = |sql: &str| match parse(sql).unwrap() {
        Statement::Query(query) => world.planner().constant(&query).unwrap(),
        other => panic!("{other:?}"),
    };
    let one = constant("SELECT 1 AS one, 'x' || 'y' AS xy").unwrap();
    assert_eq!(one.num_rows(), 1);
    assert_eq!(one.schema().field(1).name(), "xy");
    assert!(constant("SELECT id FROM plain").is_none());
}

#[test]
fn the_code_of_a_query_does_not_change_between_plans() {
    let sql = "SELECT k, count(*) AS n FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_end";
    assert_eq!(World::new().plan(sql).code(), World::new().plan(sql).code());
}

#[test]
fn passwords_are_no_part_of_the_code_of_a_query_and_other_options_are() {
    let graph = World::new().plan("SELECT id FROM plain");
    let code = |option: &str, value: &str| {
        let mut graph = graph.clone();
        let Operator::Scan(scan) = &mut graph.stages[0].operator else { panic!("{graph:?}") };
        scan.source.table.options.insert(option.into(), value.into());
        graph.code()
    };
    assert_eq!(code("password", "secret"), code("password", "other"));
    assert_eq!(code("url", "redis://ann:secret@h"), code("url", "redis://ann:other@h"));
    assert_ne!(code("url", "redis://ann:secret@h"), code("url", "redis://ann:secret@other"));
    assert_ne!(code("topic", "a"), code("topic", "b"));
}
