//! Every construct that streams have, as text of its plan.

use savanna_streams_model::graph::Operator;
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
    has(&text, &["pushed down: event_type = 1", "filter: bid.price = 7", "project: 1 AS event_type", "columns: auction.dateTime, bid.price"]);
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
    has(&text, &["windows as columns: HOP 3 s every 1 s", "filter: k > 3", "filter: window_end < ", "project: k, value2 AS w, window_start"]);
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
        let text = world.explain(&format!("SELECT a.k, a.n FROM {side} a {kind} {side} b ON a.window_end = b.window_end AND a.n < b.n"));
        has(&text, &["input 0: stage 1", "Join"]);
        assert!(!text.contains("input 1"), "equal inputs are one stage: {text}");
    }
    world.plan(&format!("SELECT a.k FROM {side} a, {side} b WHERE a.window_start = b.window_start AND a.k = b.n"));
    world.plan(&format!("SELECT a.k FROM {side} a WHERE a.window_end IN (SELECT window_end FROM {side} b WHERE b.n > 5)"));
    world.plan(&format!("SELECT * FROM {side} a JOIN {side} b USING (window_start, window_end)"));
    world.plan(&format!("SELECT DISTINCT window_end, n FROM (SELECT * FROM {side} UNION ALL SELECT * FROM {side}) u"));
}

#[test]
fn late_rows_go_to_a_side_table_by_column_name() {
    let world = World::new();
    world.run(
        "CREATE TABLE late (ts TIMESTAMP(3), k BIGINT) WITH ('connector' = 'file');
         CREATE TABLE careful (k BIGINT, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
         WITH ('connector' = 'file', 'late-data' = 'side:late')",
    );
    let text = world.explain("SELECT window_end, sum(v) AS s FROM TUMBLE(careful, ts, INTERVAL '1' SECOND) GROUP BY window_end");
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
