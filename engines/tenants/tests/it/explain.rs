//! What EXPLAIN shows.

use crate::desk::{Desk, Seen, rows};

fn desk() -> (Desk, savanna_tenants_store::database::SessionId) {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n int, s text)",
            "CREATE INDEX t_n ON t (n)",
            "CREATE TABLE u (id int PRIMARY KEY, t_id int)",
            "INSERT INTO t SELECT g, g % 10, 's' || g FROM generate_series(1, 100) g",
            "INSERT INTO u SELECT g, 2 * g FROM generate_series(1, 10) g",
        ],
    );
    (desk, client)
}

#[test]
fn rows_are_found_by_the_expressions_of_an_index() {
    let (mut desk, client) = desk();
    desk.setup(client, &["CREATE UNIQUE INDEX t_lower ON t (lower(s))", "CREATE INDEX t_sum ON t ((n + id) DESC)"]);
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        "EXPLAIN SELECT * FROM t x WHERE lower(x.s) = 's7'",
        &["Index Scan using t_lower on t x", "  Index Cond: (lower(s) = 's7'::text)"],
    );
    shows(
        "EXPLAIN SELECT * FROM u, t WHERE t.n + t.id = u.id",
        &[
            "Nested Loop",
            "  ->  Seq Scan on u",
            "  ->  Index Scan using t_sum on t",
            "        Index Cond: ((t.n + t.id) = u.id)",
        ],
    );
    shows(
        "EXPLAIN SELECT * FROM t WHERE n + id > 50 ORDER BY n + id",
        &["Index Scan Backward using t_sum on t", "  Index Cond: ((n + id) > 50)", "  Filter: ((n + id) > 50)"],
    );
    shows("EXPLAIN SELECT * FROM t WHERE id + n > 50", &["Seq Scan on t", "  Filter: ((id + n) > 50)"]);
}

#[test]
fn the_steps_of_a_plan_have_postgresqls_form() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows("EXPLAIN SELECT * FROM t AS x", &["Seq Scan on t x"]);
    shows(
        "EXPLAIN (COSTS off) SELECT * FROM t WHERE id = 7 AND s LIKE 's%'",
        &["Index Scan using t_pkey on t", "  Index Cond: (id = 7)", "  Filter: (s ~~ 's%'::text)"],
    );
    shows(
        "EXPLAIN SELECT n, count(*) FROM t GROUP BY n HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 3",
        &[
            "Limit",
            "  ->  Sort",
            "        Sort Key: count(*) DESC",
            "        ->  HashAggregate",
            "              Group Key: n",
            "              Filter: (count(*) > 1)",
            "              ->  Seq Scan on t",
        ],
    );
    shows(
        "EXPLAIN SELECT * FROM t ORDER BY id DESC LIMIT 1",
        &["Limit", "  ->  Index Scan Backward using t_pkey on t"],
    );
    shows(
        "EXPLAIN SELECT * FROM u LEFT JOIN t ON t.s = 'x' AND t.n = u.t_id WHERE t.id IS NULL",
        &[
            "Nested Loop Left Join",
            "  Filter: (t.id IS NULL)",
            "  ->  Seq Scan on u",
            "  ->  Index Scan using t_n on t",
            "        Index Cond: (t.n = u.t_id)",
            "        Filter: (t.s = 'x'::text)",
        ],
    );
    shows(
        "EXPLAIN DELETE FROM t WHERE EXISTS (SELECT 1 FROM u)",
        &[
            "Delete on t",
            "  ->  Result",
            "        One-Time Filter: EXISTS(InitPlan 1)",
            "        ->  Seq Scan on t",
            "        InitPlan 1",
            "          ->  Seq Scan on u",
        ],
    );
    shows(
        "EXPLAIN INSERT INTO t VALUES (1) ON CONFLICT (id) DO NOTHING",
        &["Insert on t", "  Conflict Resolution: NOTHING", "  Conflict Arbiter Indexes: t_pkey", "  ->  Result"],
    );
    let json = "[\n  {\n    \"Plan\": {\n      \"Node Type\": \"Seq Scan\",\n      \"Relation Name\": \"u\",\n      \"Alias\": \"u\"\n    }\n  }\n]";
    shows("EXPLAIN (FORMAT json) SELECT * FROM u", &[json]);
}

#[test]
fn analyze_runs_the_statement_and_counts_rows() {
    let (mut desk, client) = desk();
    let text = "EXPLAIN (ANALYZE) SELECT t.n FROM u JOIN t ON t.n = u.id WHERE u.t_id > 14 LIMIT 15";
    let expected = rows(&[
        "Limit (actual rows=15 loops=1)",
        "  ->  Nested Loop (actual rows=15 loops=1)",
        "        ->  Seq Scan on u (actual rows=2 loops=1)",
        "              Filter: (u.t_id > 14)",
        "              Rows Removed by Filter: 7",
        "        ->  Index Only Scan using t_n on t (actual rows=8 loops=2)",
        "              Index Cond: (t.n = u.id)",
    ]);
    assert_eq!(desk.run(client, text), expected);
    desk.setup(
        client,
        &[
            "EXPLAIN ANALYZE DELETE FROM t WHERE id > 50",
            "EXPLAIN (SELECT 1)",
            "EXPLAIN ((SELECT 1) UNION (SELECT 2))",
            "EXPLAIN DELETE FROM t",
        ],
    );
    assert_eq!(desk.query(client, "SELECT count(*) FROM t"), ["50"]);
    desk.setup(client, &["BEGIN READ ONLY", "EXPLAIN DELETE FROM t"]);
    assert_eq!(desk.run(client, "EXPLAIN ANALYZE DELETE FROM t"), Seen::Failed("25006"));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let (mut desk, client) = desk();
    for (text, state) in [
        ("EXPLAIN (FORMAT xml) SELECT 1", "0A000"),
        ("EXPLAIN (BUFFERS maybe) SELECT 1", "22023"),
        ("EXPLAIN (ANALYZE maybe) SELECT 1", "22023"),
        ("EXPLAIN (SPEED) SELECT 1", "42601"),
        ("EXPLAIN CREATE TABLE v (a int)", "42601"),
    ] {
        assert_eq!(desk.run(client, text), Seen::Failed(state), "{text}");
    }
}

#[test]
fn a_partial_index_serves_what_implies_its_predicate() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE p (id int PRIMARY KEY, a int, n int, done boolean)",
            "CREATE INDEX open ON p (a) WHERE NOT done AND n > 10",
        ],
    );
    let mut uses = |condition: &str| {
        let plan = desk.query(client, &format!("EXPLAIN (COSTS OFF) SELECT * FROM p WHERE {condition}"));
        plan.iter().any(|line| line.contains("open"))
    };
    for condition in ["a = 1 AND NOT done AND n > 10", "n = 11 AND a > 2 AND NOT done", "n >= 12 AND NOT done"] {
        assert!(uses(condition), "{condition}");
    }
    for condition in ["a = 1", "a = 1 AND NOT done", "a = 1 AND done AND n > 10", "a = 1 AND NOT done AND n >= 10"] {
        assert!(!uses(condition), "{condition}");
    }
}
