//! Which state means the same in another text.

use savanna_streams_api::ids::StageId;
use savanna_streams_functions::functions;
use savanna_streams_sql::{Changes, Wanted};

use crate::support::World;

/// What becomes of the state of one text in another one.
fn between(world: &World, before: &str, now: &str) -> Changes {
    Changes::between(&world.plan(before), &world.plan(now), &functions())
}

const COUNTS: &str = "SELECT k, count(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE v > 1 \
     GROUP BY k, window_start, window_end";
const JOIN: &str =
    "SELECT a.k, b.v FROM events a JOIN events b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts";
const FIRST: &str = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v) AS place \
     FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) WHERE place <= 3";
const NONE: &str = "SELECT l.k, l.v FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) l WHERE NOT EXISTS (SELECT 1 FROM \
     TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) r WHERE r.k = l.k AND r.window_start = l.window_start \
     AND r.window_end = l.window_end AND r.v > 2.0 * l.v)";
const STACKED: &str = "SELECT max(n) AS most FROM TABLE(TUMBLE((SELECT k, window_time AS at, count(*) AS n \
     FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end, window_time), DESCRIPTOR(at), \
     INTERVAL '1' MINUTE)) GROUP BY window_start, window_end";

#[test]
fn what_follows_the_last_state_may_change() {
    let world = World::new();
    for (before, from, to) in [
        (COUNTS, "count(*) AS n", "count(*) * 2 AS n"),
        (COUNTS, "SELECT k, count(*) AS n", "SELECT window_end, k + 1 AS k1, 7 AS seven, count(*) AS n"),
        (COUNTS, "GROUP BY k, window_start, window_end", "GROUP BY k, window_start, window_end HAVING count(*) > 3"),
        (JOIN, "a.k, b.v", "a.k + 1 AS k, b.v"),
        (FIRST, "SELECT k, v FROM", "SELECT k, v, place FROM"),
        (FIRST, "ORDER BY v)", "ORDER BY v DESC)"),
        // What is computed of the rows of a window is no state, either.
        (NONE, "2.0 * l.v", "3.0 * l.v"),
        (STACKED, "max(n) AS most", "max(n) - 1 AS most"),
        ("SELECT k FROM events WHERE v > 1", "v > 1", "v > 2 OR s = 'a'"),
    ] {
        let now = before.replace(from, to);
        assert_ne!(now, before);
        // The first rows that are kept depend on their order.
        let keeps = !now.contains("ORDER BY v DESC");
        let changes = between(&world, before, &now);
        assert_eq!((changes.keep_all(), changes.obstacles()), (keeps, [].as_slice()), "{now}\n{changes}");
    }
}

#[test]
fn what_leads_to_a_state_may_not_change() {
    let world = World::new();
    for (before, from, to, named) in [
        (COUNTS, "v > 1", "v > 2", "now: filter: v"),
        (COUNTS, "count(*) AS n", "count(*) AS n, max(v) AS m", "max(v)"),
        (COUNTS, "SELECT k, count(*)", "SELECT k, count(*) FILTER (WHERE v > 5)", "FILTER"),
        (COUNTS, "GROUP BY k,", "GROUP BY k, s,", "by k, s"),
        (COUNTS, "'1' MINUTE", "'2' MINUTE", "now: window: TUMBLE 2 min"),
        (COUNTS, "TABLE events", "(SELECT k + 1 AS k, v, ts FROM events)", "k + 1"),
        (JOIN, "'1' SECOND", "'2' SECOND", "now: bounds: "),
        (JOIN, " JOIN ", " LEFT JOIN ", "now: stage 2: left join"),
        (JOIN, "b.ts - ", "b.ts + INTERVAL '1' SECOND - ", "now: bounds: "),
        (FIRST, "TABLE events", "(SELECT k, v + 1 AS v, ts FROM events)", "now: project: "),
        (STACKED, "count(*) AS n", "count(*) + 1 AS n", "now: project: "),
    ] {
        let now = before.replace(from, to);
        assert_ne!(now, before);
        let changes = between(&world, before, &now);
        assert!(!changes.keep_all(), "{now}\n{changes}");
        let text = changes.to_string();
        let mut lines = text.lines().filter(|line| line.starts_with("  now: "));
        assert!(lines.any(|line| line.contains(named)), "{now}\n{changes}");
    }
    // Of two states, the first stays what it was.
    let changes = between(&world, STACKED, &STACKED.replace("max(n)", "min(n)")).to_string();
    let line = |stage: &str| changes.lines().find(|line| line.starts_with(stage)).unwrap().to_owned();
    assert!(line("stage 1 ").ends_with("keeps its state"), "{changes}");
    assert!(line("stage 2 ").ends_with("would mean something else"), "{changes}");
    // Texts whose plans look the same differ still.
    let text = "SELECT s, count(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE concat(s, 'a, b') = s \
         GROUP BY s, window_start, window_end";
    assert!(!between(&world, text, &text.replace("'a, b'", "'a', 'b'")).keep_all());
    // A state that is not there any more is not dropped in silence.
    let changes = between(&world, COUNTS, "SELECT k, k FROM events");
    assert!(!changes.keep_all() && changes.to_string().contains("is not there any more"), "{changes}");
}

#[test]
fn a_state_is_added_to_only_where_nothing_but_filters_differ_on_the_way_to_it() {
    let world = World::new();
    let windows = |what: &str, of: &str, key: &str| {
        format!(
            "SELECT {key} AS key, {what} AS n FROM TABLE(TUMBLE(({of}), DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY {key}, window_start, window_end"
        )
    };
    let all = "SELECT * FROM events WHERE v > 1";
    for (before, from, to, is_added_to) in [
        (COUNTS.to_owned(), "v > 1", "v > 2", true),
        (STACKED.replace("TABLE events", "(SELECT k, ts FROM events WHERE v > 1)"), "v > 1", "v > 2", true),
        (windows("sum(v * 2)", all, "k"), "v > 1", "v < 0", true),
        (windows("sum(v * 2)", all, "k"), "v * 2", "v * 3", false),
        (windows("max(v + k)", all, "k"), "v + k", "v - k", false),
        (windows("count(*) FILTER (WHERE v > 5)", all, "k"), "v > 5", "v < 5", false),
        (windows("count(*)", all, "k % 2"), "k % 2", "k % 3", false),
        (windows("count(*)", "SELECT k AS a, ts FROM events", "a"), "k AS a", "k + 1 AS a", false),
        (windows("sum(b)", "SELECT k, k AS b, ts FROM events", "k"), "k AS b", "k * 2 AS b", false),
        (JOIN.replace("FROM events a", "FROM (SELECT k % 2 AS k, ts FROM events) a"), "k % 2", "k % 3", false),
    ] {
        let now = before.replace(from, to);
        assert_ne!(now, before);
        let changes = between(&world, &before, &now);
        assert!(!changes.keep_all(), "{now}\n{changes}");
        assert_eq!(changes.emptied().is_empty(), is_added_to, "{before}\n{now}\n{changes}");
    }
}

/// Which former aggregate each of those is that a stage has now, if it keeps any, and what is said of it.
fn kept(changes: &Changes, stage: u16) -> (Option<Vec<Option<usize>>>, String) {
    let kept = changes.aggregates().get(&StageId(stage)).map(|kept| kept.of.clone());
    let told = changes.told(Wanted::FromNow).to_string();
    let line = told.lines().find(|line| line.starts_with(&format!("stage {stage} "))).unwrap();
    (kept, line.split_once("): ").unwrap().1.to_owned())
}

/// Aggregates of the rows of a table, by key.
fn aggregates(what: &str, of: &str) -> String {
    format!(
        "SELECT k, {what} FROM TABLE(TUMBLE(({of}), DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end"
    )
}

#[test]
fn aggregates_that_there_were_keep_their_state_beside_others() {
    let world = World::new();
    let all = "SELECT * FROM events WHERE v > 1";
    for (before, now, of, told) in [
        (
            "count(*)",
            "count(*), max(v)",
            vec![Some(0), None],
            "keeps the state of count(1); max(v): begins empty, also in windows that are open",
        ),
        // Another column is read before those that there were.
        (
            "sum(v)",
            "max(k), sum(v), count(s)",
            vec![None, Some(0), None],
            "keeps the state of sum(v); max(k), count(s): begins empty, also in windows that are open",
        ),
        ("count(*), max(v)", "max(v)", vec![Some(1)], "keeps the state of max(v); the state of count(1) is dropped"),
        ("count(*)", "k", vec![], "keeps its keys; the state of count(1) is dropped"),
        (
            "sum(v), max(v)",
            "max(v), min(v)",
            vec![Some(1), None],
            "keeps the state of max(v); min(v): begins empty, also in windows that are open; the state of sum(v) is dropped",
        ),
        (
            "count(*) FILTER (WHERE v > 5), sum(v)",
            "count(*) FILTER (WHERE v > 6), sum(v)",
            vec![None, Some(1)],
            "keeps the state of sum(v); ",
        ),
        ("count(DISTINCT v), sum(v)", "count(v), sum(v)", vec![None, Some(1)], "keeps the state of sum(v); "),
        ("sum(v * 2), max(v)", "sum(v * 3), max(v)", vec![None, Some(1)], "keeps the state of max(v); "),
    ] {
        let changes = between(&world, &aggregates(before, all), &aggregates(now, all));
        let (kept, line) = kept(&changes, 1);
        assert_eq!(kept, Some(of), "{now}\n{changes}");
        assert!(line.starts_with(told), "{now}: {line}");
        // Nothing is dropped, and nothing lacks rows, that nobody has asked for.
        assert!(!changes.keep_all() && changes.emptied().is_empty() && changes.obstacles().is_empty(), "{changes}");
        assert!(changes.told(Wanted::FromReplay).to_string().contains("its state is computed anew"), "{changes}");
    }
    // Rows that come by another filter are added.
    let changes = between(
        &world,
        &aggregates("count(*)", all),
        &aggregates("sum(v), count(*)", "SELECT * FROM events WHERE v < 1"),
    );
    let (of, line) = kept(&changes, 1);
    assert_eq!(of, Some(vec![None, Some(0)]));
    assert!(line.starts_with("keeps the state of count(1), that the former text has made, and adds the rows of the new one; sum(v): begins"), "{line}");
    let none = |before: &str, now: &str| {
        let changes = between(&world, before, now);
        assert!(
            !changes.keep_all() && kept(&changes, 1).0.is_none() && changes.emptied().len() == 1,
            "{now}\n{changes}"
        );
    };
    let count = aggregates("count(*)", all);
    none(&count, &aggregates("sum(v)", all));
    none(&count, &aggregates("count(*), sum(v)", all).replace("'1' MINUTE", "'2' MINUTE"));
    none(&count, &aggregates("count(*), sum(v)", "SELECT k + 1 AS k, v, ts FROM events WHERE v > 1"));
    none(&count, &aggregates("count(*), sum(v)", all).replace("BY k,", "BY k, s,"));
}

#[test]
fn aggregates_in_another_order_or_under_other_names_mean_the_same() {
    let world = World::new();
    let all = "SELECT * FROM events WHERE v > 1";
    for (before, now, of) in [
        (aggregates("sum(v), max(v)", all), aggregates("max(v), sum(v)", all), vec![Some(1), Some(0)]),
        (
            aggregates("sum(v)", all),
            aggregates("sum(w)", "SELECT k, v AS w, ts FROM events WHERE v > 1"),
            vec![Some(0)],
        ),
        (
            aggregates("sum(v), max(v)", all)
                .replace("TUMBLE((", "SESSION((")
                .replace("), DESCRIPTOR", ") PARTITION BY k, DESCRIPTOR"),
            aggregates("max(v), sum(v)", all)
                .replace("TUMBLE((", "SESSION((")
                .replace("), DESCRIPTOR", ") PARTITION BY k, DESCRIPTOR"),
            vec![Some(1), Some(0)],
        ),
    ] {
        let changes = between(&world, &before, &now);
        assert!(changes.keep_all() && changes.obstacles().is_empty(), "{now}\n{changes}");
        assert_eq!(kept(&changes, 1), (Some(of), "keeps its state".to_owned()), "{changes}");
    }
    // A field of a row that is read is one, whichever others are read.
    let bids = |what: &str| {
        format!(
            "SELECT auction, {what} FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE)) GROUP BY auction, window_start, window_end"
        )
    };
    let changes = between(&world, &bids("max(price)"), &bids("min(bidder), max(price)"));
    assert_eq!(kept(&changes, 1).0, Some(vec![None, Some(0)]), "{changes}");
    assert!(between(&world, &bids("max(price)"), &bids("max(price)")).aggregates().is_empty());
}

#[test]
fn aggregates_are_followed_through_unions_windows_and_look_ups() {
    let world = World::new();
    // Each input of a union has its own expression.
    let union = |what: &str, right: &str| {
        aggregates(
            what,
            &format!("SELECT k, v, ts FROM events UNION ALL SELECT k, {right} AS v, ts FROM events WHERE v < 1"),
        )
    };
    let changes = between(&world, &union("sum(v), max(k)", "v"), &union("sum(v), max(k), min(v)", "v"));
    assert_eq!(kept(&changes, 2).0, Some(vec![Some(0), Some(1), None]), "{changes}");
    let changes = between(&world, &union("sum(v), max(k)", "v"), &union("sum(v), max(k), min(v)", "-v"));
    assert_eq!(kept(&changes, 2).0, Some(vec![None, Some(1), None]), "{changes}");
    // Windows over windows: what is added below is added above.
    let more = STACKED
        .replace("count(*) AS n", "min(v) AS least, count(*) AS n")
        .replace("max(n) AS most", "min(least) AS least, max(n) AS most");
    let changes = between(&world, STACKED, &more);
    assert_eq!(
        (kept(&changes, 1).0, kept(&changes, 2).0),
        (Some(vec![None, Some(0)]), Some(vec![None, Some(0)])),
        "{changes}"
    );
    // Of another aggregate below, the one above is another.
    let other = more.replace("count(*) AS n", "max(k) AS n");
    let changes = between(&world, STACKED, &other);
    assert_eq!(kept(&changes, 2).0, None, "{changes}");
    // A stage below that is no aggregate is the same, or nothing is known of what leaves it.
    let joined = |what: &str, bound: &str| {
        aggregates(
            what,
            &format!(
                "SELECT a.k, a.ts, b.v FROM events a JOIN events b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '{bound}' SECOND AND b.ts"
            ),
        )
    };
    let changes = between(&world, &joined("max(v)", "1"), &joined("count(*), max(v)", "1"));
    assert_eq!(kept(&changes, 3).0, Some(vec![None, Some(0)]), "{changes}");
    let changes = between(&world, &joined("max(v)", "1"), &joined("count(*), max(v)", "2"));
    assert_eq!(kept(&changes, 3).0, None, "{changes}");
    let looked_up = |what: &str, by: &str| {
        format!(
            "SELECT id, {what} FROM TABLE(TUMBLE((SELECT e.ts, e.v, p.id FROM (SELECT *, PROCTIME() AS at FROM events) e \
             JOIN plain FOR SYSTEM_TIME AS OF e.at AS p ON {by} = p.id), DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY id, window_start, window_end"
        )
    };
    let changes = between(&world, &looked_up("count(*)", "e.k"), &looked_up("count(*), max(v)", "e.k"));
    assert_eq!(kept(&changes, 1).0, Some(vec![Some(0), None]), "{changes}");
    let changes = between(&world, &looked_up("count(*)", "e.k"), &looked_up("count(*), max(v)", "e.k + 1"));
    assert_eq!(kept(&changes, 1).0, None, "{changes}");
}

#[test]
fn tables_are_read_in_the_order_and_at_the_places_of_the_records() {
    let world = World::new();
    let obstacle = |before: &str, now: &str| between(&world, before, now).obstacles().join("; ");
    let union = "SELECT k FROM events UNION ALL SELECT id FROM plain";
    let error = obstacle(union, "SELECT id FROM plain UNION ALL SELECT k FROM events");
    assert!(error.contains("expected events, plain, got plain, events"), "{error}");
    assert!(obstacle(union, "SELECT k FROM events").contains("expected events, plain, got events"));
    let before = world.plan(COUNTS);
    let declared = |columns: &str, delay: &str, options: &str| {
        let world = World::new();
        world.run(&format!(
            "CREATE TABLE events ({columns}, WATERMARK FOR ts AS ts{delay}) WITH ('connector' = 'file'{options})"
        ));
        let changes = Changes::between(&before, &world.plan(COUNTS), &functions());
        (changes.keep_all(), changes.obstacles().join("; "))
    };
    const COLUMNS: &str = "k BIGINT NOT NULL, s VARCHAR, v DOUBLE, ts TIMESTAMP(3)";
    let more = format!("{COLUMNS}, more VARCHAR");
    assert_eq!(declared(COLUMNS, "", ""), (true, String::new()));
    assert_eq!(declared(&more, "", ", 'properties.client.id' = 'x'"), (true, String::new()));
    for (columns, delay, options, named) in [
        (COLUMNS, " - INTERVAL '1' SECOND", "", "(watermark)"),
        (COLUMNS, "", ", 'path' = '/b'", "(option 'path')"),
        (
            "k BIGINT NOT NULL, s VARCHAR, v DOUBLE, a TIMESTAMP(3), ts AS a",
            "",
            "",
            "(columns, the column of its watermark)",
        ),
        // A column is read at its place.
        ("k BIGINT NOT NULL, s VARCHAR, more DOUBLE, v DOUBLE, ts TIMESTAMP(3)", "", "", "(columns)"),
        ("v DOUBLE, s VARCHAR, k BIGINT NOT NULL, ts TIMESTAMP(3)", "", "", "(columns)"),
    ] {
        let (_, error) = declared(columns, delay, options);
        assert!(error.contains("table events is another one") && error.contains(named), "{named}: {error}");
    }
    // What is read is of another type.
    let world = World::new();
    let counts = world.plan(&COUNTS.replace("v > 1", "v > 1.0"));
    world.run("CREATE TABLE events (k BIGINT, s VARCHAR, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file')");
    assert!(!Changes::between(&counts, &world.plan(&COUNTS.replace("v > 1", "v > 1.0")), &functions()).keep_all());
}

#[test]
fn tables_of_look_ups_stay_as_they_were_read() {
    let world = World::new();
    let look_up = "SELECT e.k, p.id FROM (SELECT *, PROCTIME() AS at FROM events) e JOIN plain FOR SYSTEM_TIME AS OF e.at AS p ON e.k = p.id";
    let counts = "SELECT id, count(*) AS n FROM TABLE(TUMBLE((SELECT e.ts, p.id FROM (SELECT *, PROCTIME() AS at FROM events) e \
         JOIN plain FOR SYSTEM_TIME AS OF e.at AS p ON e.k = p.id), DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY id, window_start, window_end";
    for (text, from, to) in [(look_up, "e.k, p.id", "p.id + 1 AS id1"), (counts, "count(*) AS n", "count(*) + 1 AS n")]
    {
        let changes = between(&world, text, &text.replace(from, to));
        assert_eq!((changes.keep_all(), changes.obstacles()), (true, [].as_slice()), "{changes}");
    }
    let none = "SELECT k FROM events";
    for (before, now) in [(look_up, none), (none, look_up)] {
        let changes = between(&world, before, now);
        let [obstacle] = changes.obstacles() else { panic!("{changes}") };
        assert!(obstacle.contains("plain (id)") && obstacle.contains("none"), "{obstacle}");
    }
}

/// `plain`, which is asked by key, with more options.
fn asked(world: &World, options: &str) {
    let columns = "id BIGINT, name VARCHAR, price DECIMAL(10, 2), ok BOOLEAN, at TIMESTAMP(3)";
    world.run(&format!("CREATE TABLE plain ({columns}) WITH ('connector' = 'file'{options})"));
}

#[test]
fn of_a_table_that_is_asked_by_key_what_is_kept_in_memory_may_change_and_nothing_else() {
    let world = World::new();
    let look_up = "SELECT e.k, p.name FROM (SELECT *, PROCTIME() AS at FROM events) e JOIN plain FOR SYSTEM_TIME AS OF e.at AS p ON p.id = e.k";
    asked(&world, ", 'lookup.cache' = 'partial'");
    let explained = world.explain(look_up);
    assert!(
        explained.contains("look-up: table plain, asked by key (id), answers of 10000 rows are kept for 60s"),
        "{explained}"
    );
    let before = world.plan(look_up);
    asked(
        &world,
        ", 'lookup.cache' = 'partial', 'lookup.cache.max-rows' = '7', 'lookup.cache.ttl' = '1s', 'lookup.retry.timeout' = '1min'",
    );
    let changes = Changes::between(&before, &world.plan(look_up), &functions());
    assert_eq!((changes.keep_all(), changes.obstacles()), (true, [].as_slice()), "{changes}");
    // What was answered is kept by key.
    let others = [
        ("", look_up.to_owned()),
        (", 'lookup.cache' = 'none'", look_up.to_owned()),
        (", 'lookup.cache' = 'partial'", look_up.replace("p.id = e.k", "p.id = e.k AND p.name = e.s")),
        (", 'lookup.cache' = 'partial'", look_up.replace("p.name", "p.ok")),
    ];
    for (options, now) in others {
        asked(&world, options);
        let changes = Changes::between(&before, &world.plan(&now), &functions());
        let [obstacle] = changes.obstacles() else { panic!("{options} {now}: {changes}") };
        assert!(obstacle.contains("the tables in which it looks rows up"), "{obstacle}");
    }
}

#[test]
fn a_table_that_is_asked_by_key_is_asked_for_columns() {
    let world = World::new();
    asked(&world, ", 'lookup.cache' = 'none'");
    let look_up = |on: &str| {
        format!(
            "SELECT e.k, p.price FROM (SELECT *, PROCTIME() AS at FROM events) e LEFT JOIN plain FOR SYSTEM_TIME AS OF e.at AS p ON {on}"
        )
    };
    let explained = world.explain(&look_up("upper(e.s) = p.name AND e.k + 1 = p.id AND p.price > 3"));
    assert!(explained.contains("asked by key (name, id), no answers are kept"), "{explained}");
    let error = world.error(&look_up("e.k = p.id + 1")).to_string();
    assert!(
        error.contains("table plain is asked by key ('lookup.cache'), so that its columns must be compared"),
        "{error}"
    );
}
