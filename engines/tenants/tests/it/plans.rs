//! Rules by which plans become shorter: what they make of a query, and that its answer stays the same.

use savanna_tenants_store::database::SessionId;

use crate::desk::{Desk, Seen, rows};

/// Tables with indexes, and the same rows without any.
fn desk() -> (Desk, SessionId) {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n int, m int NOT NULL, s text)",
            "CREATE TABLE u (id int PRIMARY KEY, t_id int, n int)",
            "CREATE INDEX t_n ON t (n)",
            "CREATE INDEX t_m ON t (m DESC, n)",
            "CREATE UNIQUE INDEX t_s ON t (s)",
            "CREATE INDEX u_t ON u (t_id)",
            "INSERT INTO t SELECT g, nullif(g * 7 % 23, 0), g % 5, nullif('s' || g * 13 % 101, 's13') FROM generate_series(1, 100) g",
            "INSERT INTO u SELECT g, nullif(g * 3 % 50, 0), g % 7 FROM generate_series(1, 60) g",
            "DELETE FROM t WHERE id % 10 = 0",
            "CREATE TABLE plain_t (id int, n int, m int, s text)",
            "INSERT INTO plain_t SELECT * FROM t",
            "CREATE TABLE plain_u (id int, t_id int, n int)",
            "INSERT INTO plain_u SELECT * FROM u",
        ],
    );
    (desk, client)
}

/// A choice that is the same whenever the test runs.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

#[test]
fn the_first_rows_of_an_order_are_read_by_an_index() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    let limit = |scan: &'static str| ["Limit", scan];
    shows("EXPLAIN SELECT * FROM t ORDER BY n LIMIT 3", &limit("  ->  Index Scan using t_n on t"));
    shows(
        "EXPLAIN SELECT * FROM t ORDER BY n DESC, id DESC LIMIT 3",
        &limit("  ->  Index Scan Backward using t_n on t"),
    );
    shows("EXPLAIN SELECT * FROM t ORDER BY m DESC, n, id LIMIT 3", &limit("  ->  Index Scan using t_m on t"));
    shows("EXPLAIN SELECT * FROM t ORDER BY n, id, m LIMIT 3", &limit("  ->  Index Scan using t_n on t"));
    shows("EXPLAIN SELECT * FROM t ORDER BY id, s LIMIT 3", &limit("  ->  Seq Scan on t"));
    shows(
        "EXPLAIN SELECT * FROM t WHERE s LIKE 's%' ORDER BY n LIMIT 3",
        &["Limit", "  ->  Index Scan using t_n on t", "        Filter: (s ~~ 's%'::text)"],
    );
    shows(
        "EXPLAIN SELECT t.n, u.id FROM t JOIN u ON u.t_id = t.id ORDER BY t.n LIMIT 3",
        &[
            "Limit",
            "  ->  Nested Loop",
            "        ->  Index Only Scan using t_n on t",
            "        ->  Index Only Scan using u_t on u",
            "              Index Cond: (u.t_id = t.id)",
        ],
    );
    shows("EXPLAIN SELECT * FROM t WHERE m = 3 ORDER BY m, n", &["Index Scan using t_m on t", "  Index Cond: (m = 3)"]);
    for text in [
        // NULL is the largest in an index.
        "SELECT * FROM t ORDER BY n NULLS FIRST LIMIT 3",
        "SELECT * FROM t ORDER BY n DESC NULLS LAST LIMIT 3",
        "SELECT * FROM t ORDER BY m, n LIMIT 3",
        "SELECT * FROM t ORDER BY n, id DESC LIMIT 3",
        "SELECT * FROM t ORDER BY n",
        "SELECT * FROM t ORDER BY n OFFSET 3",
        "SELECT * FROM t ORDER BY n LIMIT 10001",
        "SELECT t.n, u.id FROM t JOIN u ON u.t_id = t.id ORDER BY t.n, t.id, u.id LIMIT 3",
    ] {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        assert!(plan.iter().any(|line| line.contains("Sort Key")), "{text}: {plan:?}");
    }
}

#[test]
fn a_partial_index_has_no_order_of_all_rows() {
    let (mut desk, client) = desk();
    desk.setup(client, &["DROP INDEX t_n", "CREATE INDEX some ON t (n) WHERE m = 1"]);
    let plan = desk.query(client, "EXPLAIN SELECT * FROM t ORDER BY n LIMIT 3");
    assert!(plan.iter().any(|line| line.contains("Seq Scan")), "{plan:?}");
    assert_eq!(desk.query(client, "SELECT max(n) FROM t"), desk.query(client, "SELECT max(n) FROM plain_t"));
}

#[test]
fn the_smallest_and_the_largest_are_at_the_ends_of_an_index() {
    let (mut desk, client) = desk();
    assert_eq!(
        desk.run(client, "EXPLAIN SELECT 7 FROM t WHERE s <> 'x' HAVING max(n) > 0"),
        rows(&[
            "Result",
            "  One-Time Filter: ((InitPlan 1) > 0)",
            "  ->  Result",
            "  InitPlan 1",
            "    ->  Limit",
            "          ->  Index Scan Backward using t_n on t",
            "                Index Cond: (n IS NOT NULL)",
            "                Filter: ((s <> 'x'::text) AND (n IS NOT NULL))",
        ])
    );
    assert_eq!(
        desk.run(client, "EXPLAIN SELECT max(n) FROM t"),
        rows(&[
            "Result",
            "  InitPlan 1",
            "    ->  Limit",
            "          ->  Index Only Scan Backward using t_n on t",
            "                Index Cond: (n IS NOT NULL)",
            "                Filter: (n IS NOT NULL)",
        ])
    );
    for (text, by_index) in [
        ("SELECT min(id), max(id) FROM t", true),
        ("SELECT min(n) FROM t WHERE m = 2", true),
        ("SELECT max(s) FROM t WHERE n IS NULL", true),
        ("SELECT u.id, (SELECT max(n) FROM t WHERE t.m = u.n) FROM u", true),
        ("SELECT max(m), max(n) FROM t WHERE m = 2", true),
        ("SELECT max(n) FROM t WHERE n > 9", true),
        ("SELECT max(n) FROM t WHERE n < NULL", true),
        ("SELECT max(n), count(*) FROM t", false),
        ("SELECT max(n) FILTER (WHERE m = 1) FROM t", false),
        ("SELECT max(n) FROM t GROUP BY m", false),
        ("SELECT max(n + 1) FROM t", false),
        ("SELECT max(t.n) FROM t, u", false),
        ("SELECT max(n) FROM t WHERE random() < 2", false),
        ("SELECT max(n) FROM u", false),
    ] {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        assert_eq!(plan.iter().any(|line| line.contains("Limit")), by_index, "{text}: {plan:?}");
        let same = text.replace("FROM t", "FROM plain_t t").replace("FROM u", "FROM plain_u u");
        let sorted = |mut rows: Vec<String>| {
            rows.sort();
            rows
        };
        assert_eq!(sorted(desk.query(client, text)), sorted(desk.query(client, &same)), "{text}");
    }
    desk.setup(client, &["UPDATE t SET n = NULL"]);
    assert_eq!(desk.query(client, "SELECT min(n), max(n), min(m) FROM t"), ["||0"]);
    desk.setup(client, &["DELETE FROM t"]);
    assert_eq!(desk.query(client, "SELECT min(n), max(id) FROM t"), ["|"]);
}

#[test]
fn conditions_are_asked_before_rows_are_grouped_numbered_or_united() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        "EXPLAIN SELECT * FROM (SELECT t_id, count(*) AS c FROM u GROUP BY t_id) q WHERE t_id = 6 AND c > 0",
        &[
            "Subquery Scan on q",
            "  Filter: (c > 0)",
            "  ->  HashAggregate",
            "        Group Key: t_id",
            "        ->  Index Only Scan using u_t on u",
            "              Index Cond: (t_id = 6)",
        ],
    );
    shows(
        "EXPLAIN SELECT t_id, count(*) FROM u GROUP BY t_id HAVING t_id = 6 AND count(*) > 0",
        &[
            "HashAggregate",
            "  Group Key: t_id",
            "  Filter: (count(*) > 0)",
            "  ->  Index Only Scan using u_t on u",
            "        Index Cond: (t_id = 6)",
        ],
    );
    shows(
        "EXPLAIN SELECT * FROM (SELECT id, n FROM t UNION ALL SELECT id, n FROM u) q WHERE id = 6",
        &[
            "Subquery Scan on q",
            "  ->  Append",
            "        ->  Index Scan using t_pkey on t",
            "              Index Cond: (id = 6)",
            "        ->  Index Scan using u_pkey on u",
            "              Index Cond: (id = 6)",
        ],
    );
    let mut is_found = |text: &str, found: bool| {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        assert_eq!(plan.iter().any(|line| line.contains("Index Cond")), found, "{text}: {plan:?}");
    };
    for (inner, condition) in [
        ("SELECT t_id, row_number() OVER (PARTITION BY t_id ORDER BY id) FROM u", "t_id = 6"),
        ("SELECT DISTINCT t_id, n FROM u", "t_id = 6"),
        ("SELECT DISTINCT ON (t_id) t_id, n FROM u", "t_id = 6"),
        ("SELECT t_id FROM u EXCEPT SELECT n FROM u", "t_id = 6"),
        ("SELECT * FROM (SELECT t_id, max(n) AS n FROM u GROUP BY t_id) q WHERE n > 0", "t_id = 6"),
        ("SELECT m, n, count(*) FROM t GROUP BY m, n", "m = 1 AND n BETWEEN 2 AND 3"),
    ] {
        is_found(&format!("SELECT * FROM ({inner}) q WHERE {condition}"), true);
        is_found(&format!("SELECT * FROM ({inner} OFFSET 0) q WHERE {condition}"), false);
    }
    for (inner, condition) in [
        ("SELECT t_id, row_number() OVER (ORDER BY id) FROM u", "t_id = 6"),
        ("SELECT DISTINCT ON (n) t_id, n FROM u", "t_id = 6"),
        ("SELECT t_id FROM u LIMIT 3", "t_id = 6"),
        ("SELECT sum(t_id) AS t_id FROM u", "t_id = 6"),
        ("SELECT t_id, count(*) FROM u GROUP BY GROUPING SETS ((t_id), ())", "t_id = 6"),
        ("SELECT t_id, unnest(ARRAY[1, 2]) AS n FROM u", "t_id = 6"),
    ] {
        is_found(&format!("SELECT * FROM ({inner}) q WHERE {condition}"), false);
    }
}

#[test]
fn a_left_join_whose_right_side_must_be_there_is_an_inner_join() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        "EXPLAIN SELECT * FROM u LEFT JOIN t ON t.id = u.t_id WHERE t.n = 3",
        &[
            "Nested Loop",
            "  ->  Index Scan using t_n on t",
            "        Index Cond: (t.n = 3)",
            "  ->  Index Scan using u_t on u",
            "        Index Cond: (u.t_id = t.id)",
        ],
    );
    for condition in ["t.n = 3 OR t.id IS NULL", "coalesce(t.n, 3) = 3", "u.n = 3"] {
        let plan =
            desk.query(client, &format!("EXPLAIN SELECT * FROM u LEFT JOIN t ON t.id = u.t_id WHERE {condition}"));
        assert!(plan[0].contains("Left Join"), "{condition}: {plan:?}");
    }
}

#[test]
fn few_rows_lead_to_those_that_an_index_finds() {
    let (mut desk, client) = desk();
    let mut begins = |text: &str, with: &str| {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        let first = plan.iter().find(|line| line.contains("Scan")).expect("a scan");
        assert!(first.contains(with), "{text}: {plan:?}");
    };
    begins("SELECT * FROM t JOIN (VALUES (1), (2)) v (id) ON v.id = t.id", "Values Scan");
    begins("SELECT * FROM t JOIN unnest(ARRAY[1, 2]) v (id) ON v.id = t.id", "Function Scan");
    begins("SELECT * FROM t JOIN (VALUES (1), (2)) v (id) ON v.id = t.n + t.m", "Seq Scan on t");
    begins("SELECT * FROM u JOIN t ON t.n = u.n WHERE t.n + t.m = 7", "Seq Scan on t");
    begins("SELECT * FROM u, LATERAL (VALUES (u.t_id)) v (x) WHERE v.x = 6", "Index Scan using u_t on u");
    let long = (0..1_500).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let plan = desk.query(client, &format!("EXPLAIN SELECT * FROM t WHERE id IN ({long})"));
    assert!(plan[0].contains("Index Scan using t_pkey") && plan[1].contains("id = ANY (ARRAY[0, 1,"), "{plan:?}");
    assert_eq!(
        desk.query(client, &format!("SELECT count(*), sum(id) FROM t WHERE id IN ({long}) AND n IN ({long})")),
        desk.query(client, "SELECT count(*), sum(id) FROM plain_t WHERE n IS NOT NULL")
    );
}

#[test]
fn a_query_of_with_that_is_named_once_is_planned_where_it_is_named() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        "EXPLAIN WITH q (k, n) AS (SELECT t_id, max(n) FROM u GROUP BY t_id) SELECT * FROM q AS w WHERE k = 6",
        &[
            "Subquery Scan on w",
            "  ->  HashAggregate",
            "        Group Key: t_id",
            "        ->  Index Scan using u_t on u",
            "              Index Cond: (t_id = 6)",
        ],
    );
    shows(
        "EXPLAIN WITH a AS (SELECT * FROM t), b AS (SELECT * FROM a) SELECT n FROM b WHERE id = 7",
        &["Index Scan using t_pkey on t", "  Index Cond: (id = 7)"],
    );
    desk.setup(client, &["CREATE SEQUENCE s"]);
    let mut is_kept = |text: &str, kept: bool| {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        assert_eq!(plan.iter().any(|line| line.contains("CTE Scan")), kept, "{text}: {plan:?}");
    };
    for text in [
        "WITH q AS NOT MATERIALIZED (SELECT * FROM t) SELECT * FROM q a JOIN q b ON a.id = b.n",
        "WITH t AS (SELECT * FROM t) SELECT * FROM t WHERE id = 1",
        "WITH RECURSIVE q AS (SELECT * FROM t) SELECT * FROM q",
        "INSERT INTO u WITH q AS (SELECT id, n, m FROM t WHERE id > 500) SELECT * FROM q",
        "SELECT * FROM (WITH q AS (SELECT * FROM t) SELECT * FROM q) x",
    ] {
        is_kept(text, false);
    }
    for text in [
        "WITH q AS MATERIALIZED (SELECT * FROM t) SELECT * FROM q",
        "WITH q AS (SELECT * FROM t) SELECT * FROM q a JOIN q b ON a.id = b.n",
        "WITH q AS (SELECT id, random() FROM t) SELECT * FROM q",
        "WITH q AS NOT MATERIALIZED (SELECT nextval('s') AS n) SELECT * FROM q a, q b",
        "WITH q AS (SELECT * FROM (SELECT random() AS r) x) SELECT * FROM q",
        "WITH q AS (SELECT * FROM t WHERE n = (SELECT random()::int)) SELECT * FROM q",
        "WITH q AS (SELECT * FROM t FOR UPDATE) SELECT * FROM q",
        "WITH q AS (SELECT * FROM t) SELECT * FROM q FOR UPDATE",
        "WITH q AS (SELECT * FROM t) SELECT * FROM u WHERE u.n = (SELECT max(q.n) FROM q WHERE q.id = u.id)",
        "WITH RECURSIVE q AS (SELECT max(n) AS n FROM t), r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r JOIN q ON a < q.n) SELECT * FROM r",
    ] {
        is_kept(text, true);
    }
    // What is computed once has one value, also where who names it is computed twice.
    let text =
        "WITH a AS (SELECT random() AS r), b AS NOT MATERIALIZED (SELECT r FROM a) SELECT x.r = y.r FROM b x, b y";
    assert_eq!(desk.query(client, text), ["t"]);
    let text = "WITH w AS (INSERT INTO u VALUES (900, 1, 1) RETURNING id), q AS (SELECT id FROM w) SELECT * FROM q";
    assert_eq!(desk.query(client, text), ["900"]);
}

#[test]
fn what_is_said_of_a_column_is_said_of_those_that_have_to_be_equal() {
    let (mut desk, client) = desk();
    let grouped = "(SELECT t_id, count(*) AS c FROM u GROUP BY t_id) q";
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        &format!("EXPLAIN SELECT t.s, q.c FROM t JOIN {grouped} ON q.t_id = t.id WHERE t.id BETWEEN 5 AND 8"),
        &[
            "Hash Join",
            "  Hash Cond: (t.id = q.t_id)",
            "  ->  Index Scan using t_pkey on t",
            "        Index Cond: ((t.id >= 5) AND (t.id <= 8))",
            "        Filter: ((t.id >= 5) AND (t.id <= 8))",
            "  ->  Hash",
            "        ->  Subquery Scan on q",
            "              ->  HashAggregate",
            "                    Group Key: u.t_id",
            "                    ->  Index Only Scan using u_t on u",
            "                          Index Cond: ((u.t_id >= 5) AND (u.t_id <= 8))",
            "                          Filter: ((u.t_id >= 5) AND (u.t_id <= 8))",
        ],
    );
    let mut is_found = |condition: &str, found: bool| {
        let text = format!("EXPLAIN SELECT t.s, q.c FROM t JOIN {grouped} ON {condition}");
        let plan = desk.query(client, &text);
        assert_eq!(plan.iter().any(|line| line.contains("using u_t")), found, "{text}: {plan:?}");
    };
    for condition in ["q.t_id = t.n AND 7 > t.n", "t.n = q.t_id AND t.n IN (1, 2, 3)", "t.n = q.t_id AND t.n = $1"] {
        is_found(&condition.replace("$1", "2 + 3"), true);
    }
    for condition in
        ["q.c = t.n AND t.n < 7", "q.t_id > t.n AND t.n > 7", "q.t_id = t.n AND t.n > t.m", "q.t_id = t.n OR t.n = 7"]
    {
        is_found(condition, false);
    }
}

#[test]
fn the_rows_of_a_query_are_looked_up_if_they_are_few() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        "EXPLAIN SELECT * FROM u WHERE t_id IN (SELECT id FROM t WHERE n = 3)",
        &[
            "Index Scan using u_t on u",
            "  Index Cond: (t_id = ANY (ARRAY(InitPlan 1)))",
            "  InitPlan 1",
            "    ->  Index Only Scan using t_n on t",
            "          Index Cond: (t.n = 3)",
        ],
    );
    for text in [
        "SELECT * FROM u WHERE t_id NOT IN (SELECT id FROM t WHERE n = 3)",
        "SELECT * FROM u WHERE t_id IN (SELECT id FROM t WHERE n = u.n)",
        "SELECT * FROM u WHERE t_id + 1 IN (SELECT id FROM t WHERE n = 3)",
        "SELECT * FROM u WHERE t_id IN (SELECT id FROM t) OR n = 1",
    ] {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        assert!(plan[0].contains("Seq Scan on u"), "{text}: {plan:?}");
    }
    for values in [
        "SELECT g FROM generate_series(1, 1000) g",
        "SELECT g FROM generate_series(1, 1001) g",
        "SELECT * FROM (VALUES (3), (NULL), (3)) v (x)",
    ] {
        let text = |table: &str| format!("SELECT count(*), sum(id) FROM {table} u WHERE t_id IN ({values}) AND n > 1");
        assert_eq!(desk.query(client, &text("u")), desk.query(client, &text("plain_u")), "{values}");
    }
    // Two aggregates ask it of the same query, each in its way.
    let text = "SELECT min(id), max(n) FROM t WHERE m IN (SELECT n FROM u WHERE id < 3)";
    assert_eq!(desk.query(client, text), desk.query(client, &text.replace("FROM t", "FROM plain_t")));
}

#[test]
fn exists_is_answered_for_all_rows_if_it_is_asked_often() {
    let (mut desk, client) = desk();
    assert_eq!(
        desk.run(client, "EXPLAIN SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.n > 3)"),
        rows(&[
            "Seq Scan on t",
            "  Filter: (NOT (EXISTS(SubPlan 1) or hashed SubPlan 1))",
            "  hashed SubPlan 1",
            "    ->  Seq Scan on u",
            "          Filter: (u.n > 3)",
            "  SubPlan 1",
            "    ->  Index Scan using u_t on u",
            "          Index Cond: (u.t_id = id)",
            "          Filter: (u.n > 3)",
        ])
    );
    let has_both = |desk: &mut Desk, condition: &str| {
        let plan = desk.query(client, &format!("EXPLAIN SELECT * FROM t WHERE EXISTS ({condition})"));
        plan.iter().any(|line| line.contains("hashed"))
    };
    for condition in [
        "SELECT 1 FROM u WHERE u.t_id = t.id",
        "SELECT 1 FROM u WHERE t.m + 1 = u.n AND u.t_id = t.id",
        "SELECT 1 FROM u JOIN t x ON x.id = u.n WHERE u.t_id = t.id",
        "SELECT * FROM (SELECT * FROM u) x WHERE x.t_id = t.id",
    ] {
        assert!(has_both(&mut desk, condition), "{condition}");
    }
    for condition in [
        "SELECT 1 FROM u WHERE u.t_id > t.id",
        "SELECT 1 FROM u WHERE u.t_id = t.id OR u.n = 1",
        "SELECT 1 FROM u WHERE u.t_id = t.id AND u.n < t.m",
        "SELECT 1 FROM u WHERE u.t_id = t.id + u.n",
        "SELECT 1 FROM u WHERE u.t_id = t.id AND random() < 2",
        "SELECT 1 FROM u WHERE u.t_id = t.id LIMIT 0",
        "SELECT 1 FROM u WHERE u.t_id = t.id OFFSET 1",
        "SELECT max(n) FROM u WHERE u.t_id = t.id",
        "SELECT 1 FROM u, LATERAL (SELECT t.m AS k OFFSET 0) x WHERE u.t_id = t.id",
        "SELECT 1 FROM u LEFT JOIN t x ON x.id = t.m WHERE u.t_id = t.id",
        "SELECT 1 FROM u WHERE u.t_id = t.id AND (SELECT max(x.n) FROM t x WHERE x.id = t.m) > 0",
        "SELECT 1 FROM u WHERE t.id = 7",
    ] {
        assert!(!has_both(&mut desk, condition), "{condition}");
    }
    // More rows than it asks for one by one, of a table that is larger than what it reads first.
    desk.setup(
        client,
        &[
            "CREATE TABLE large (id int PRIMARY KEY, k int)",
            "INSERT INTO large SELECT g, nullif(g * 7 % 5000, 0) FROM generate_series(1, 5000) g",
            "CREATE INDEX large_k ON large (k)",
        ],
    );
    // A query within is asked for one row where its rows are looked up for all.
    let within = " AND x.id IN (SELECT g FROM generate_series(1, 50) g)";
    for condition in ["", " AND x.id % 3 = 0", " AND x.id < 0", within] {
        for not in ["", "NOT "] {
            let text = |fence: &str| {
                format!(
                    "SELECT count(*), sum(id) FROM large l WHERE {not}EXISTS (SELECT 1 FROM large x WHERE x.k = l.k{condition}{fence})"
                )
            };
            assert_eq!(desk.query(client, &text("")), desk.query(client, &text(" OFFSET 0")), "{}", text(""));
        }
    }
}

#[test]
fn rows_that_an_index_sorts_by_the_first_keys_are_sorted_on_the_way() {
    let (mut desk, client) = desk();
    let mut shows = |text: &str, lines: &[&str]| assert_eq!(desk.run(client, text), rows(lines), "{text}");
    shows(
        "EXPLAIN SELECT * FROM t ORDER BY n DESC, id LIMIT 3",
        &[
            "Limit",
            "  ->  Incremental Sort",
            "        Sort Key: n DESC, id",
            "        Presorted Key: n DESC",
            "        ->  Index Scan Backward using t_n on t",
        ],
    );
    shows(
        "EXPLAIN SELECT * FROM t WHERE n > 3 ORDER BY n, s LIMIT 3",
        &[
            "Limit",
            "  ->  Incremental Sort",
            "        Sort Key: n, s",
            "        Presorted Key: n",
            "        ->  Index Scan using t_n on t",
            "              Index Cond: (n > 3)",
            "              Filter: (n > 3)",
        ],
    );
    for text in [
        "SELECT * FROM t ORDER BY n DESC, id",
        "SELECT * FROM t ORDER BY n DESC, id LIMIT 3 FOR UPDATE",
        "SELECT * FROM t ORDER BY n NULLS FIRST, id LIMIT 3",
        "SELECT DISTINCT ON (n) * FROM t ORDER BY n, id DESC LIMIT 3",
        "SELECT n, count(*) FROM t GROUP BY n ORDER BY n, 2 LIMIT 3",
    ] {
        let plan = desk.query(client, &format!("EXPLAIN {text}"));
        assert!(!plan.iter().any(|line| line.contains("Incremental")), "{text}: {plan:?}");
    }
    // Also where very many rows are equal by the first key, at first or later.
    desk.setup(
        client,
        &[
            "CREATE TABLE large (id int PRIMARY KEY, few int, s int)",
            "INSERT INTO large SELECT g, CASE WHEN g < 4000 THEN 1 WHEN g < 4007 THEN 2 END, g * 7919 % 5003 FROM generate_series(1, 5000) g",
            "CREATE TABLE plain_large (id int, few int, s int)",
            "INSERT INTO plain_large SELECT * FROM large",
            "CREATE INDEX large_few ON large (few)",
        ],
    );
    for order in ["few, s", "few DESC, s DESC", "few DESC, s", "few, id DESC"] {
        for limit in ["LIMIT 3", "LIMIT 20", "LIMIT 20 OFFSET 4500", "LIMIT 0", "LIMIT 10000"] {
            let text = |table: &str| format!("SELECT few, id FROM {table} ORDER BY {order} {limit}");
            assert_eq!(
                desk.query(client, &text("large")),
                desk.query(client, &text("plain_large")),
                "{}",
                text("large")
            );
        }
    }
    let plan = desk.query(client, "EXPLAIN ANALYZE SELECT * FROM t ORDER BY n, s LIMIT 3");
    assert!(plan.iter().any(|line| line.contains("Index Scan") && !line.contains("rows=90")), "{plan:?}");
}

#[test]
fn frames_that_move_on_have_the_aggregates_of_their_rows() {
    let (mut desk, client) = desk();
    desk.setup(
        client,
        &[
            "CREATE TABLE w (id int PRIMARY KEY, p int, i int, b bigint, x numeric, f double precision)",
            "INSERT INTO w SELECT g, g % 3, nullif(g * 7 % 23, 0), g * 1000000007::bigint, \
             CASE g % 5 WHEN 0 THEN 1.50 WHEN 1 THEN g WHEN 2 THEN 0.125 WHEN 3 THEN NULL ELSE 'NaN' END, g / 7.0 FROM generate_series(1, 60) g",
            "UPDATE w SET x = 2.5 WHERE x = 'NaN' AND id > 20",
        ],
    );
    let aggregates = [
        "count(*)",
        "count(i)",
        "sum(i)",
        "avg(i)",
        "sum(b)",
        "sum(x)",
        "avg(x)",
        "sum(f)",
        "min(i)",
        "max(x)",
        "array_agg(i)",
    ];
    let frames = [
        "ROWS 3 PRECEDING",
        "ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING",
        "ROWS BETWEEN 3 FOLLOWING AND 5 FOLLOWING",
        "ROWS BETWEEN 5 PRECEDING AND 3 PRECEDING",
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
        "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW",
    ];
    for aggregate in aggregates {
        for frame in frames {
            // What may have another value the next time is never taken out again.
            let text = |filter: &str| {
                format!(
                    "SELECT id, {aggregate} FILTER (WHERE id <> 31{filter}) OVER (PARTITION BY p ORDER BY id / 2 DESC {frame}) FROM w ORDER BY id"
                )
            };
            let (slides, anew) = (desk.query(client, &text("")), desk.query(client, &text(" AND random() < 2")));
            assert_eq!(slides, anew, "{}", text(""));
        }
    }
}

#[test]
fn an_array_is_searched_as_it_is_gone_through() {
    let (mut desk, client) = desk();
    let many = (0..30).map(|at| (at * 7 % 40).to_string()).collect::<Vec<_>>().join(",");
    for array in [format!("'{{{many}}}'::int[]"), format!("'{{{many},NULL}}'::int[]"), "'{1,2}'::int[]".to_owned()] {
        for condition in [
            "n = ANY (A)",
            "NOT n = ANY (A)",
            "n <> ALL (A)",
            "(n = ANY (A)) IS NULL",
            "n < ANY (A)",
            "n <> ANY (A)",
            "n = ALL (A)",
        ] {
            let text = |array: &str| {
                format!(
                    "SELECT count(*), sum(id) FROM plain_t WHERE {}",
                    condition.replace("(A)", &format!("({array})"))
                )
            };
            // An array that each row makes is another one each time.
            let (once, each) = (text(&array), text(&format!("{array} || (ARRAY[id])[2:1]")));
            assert_eq!(desk.query(client, &once), desk.query(client, &each), "{once}");
        }
    }
}

/// A query over `t` and `u`, and the same without what rules need: over tables without indexes, with a fence around queries in FROM, with
/// conditions that say nothing about NULL.
fn pair(dice: &mut Dice) -> (String, String) {
    let column = dice.pick(&["id", "n", "m", "s"]);
    let way = dice.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
    let number = dice.below(25).to_string();
    let condition = match dice.below(6) {
        0 => format!("n = {number}"),
        1 => format!("id > {number}"),
        2 => format!("n IN (1, 2, 3, 5, 8, 13, 21, 34, NULL, {number})"),
        3 => format!("n NOT IN (1, 2, 3, 5, 8, 13, 21, 34, 55, {number})"),
        4 => "n IS NULL".to_owned(),
        _ => format!("m = {}", dice.below(6)),
    };
    let text = match dice.below(10) {
        6 => format!("WITH q AS (SELECT n, m, count(*) AS id FROM t GROUP BY n, m) SELECT * FROM q WHERE {condition}"),
        7 => format!(
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.{} AND u.n <> {number} /**/)",
            dice.pick(&["id", "n", "m"])
        ),
        8 => format!("SELECT id FROM t WHERE {column} IS NOT NULL AND n IN (SELECT t_id FROM u WHERE n < {number})"),
        9 => format!(
            "SELECT t.id, q.c FROM t JOIN (SELECT t_id, count(*) AS c FROM u GROUP BY t_id ) q ON q.t_id = t.n WHERE t.{condition}"
        ),
        0 => format!("SELECT {column}, id FROM t ORDER BY {column}{way}, id LIMIT {number}"),
        1 => format!("SELECT id FROM t WHERE {condition} ORDER BY {column}{way}, id DESC LIMIT {number} OFFSET 2"),
        2 => format!("SELECT min({column}), max({column}), max(n) FROM t WHERE {condition}"),
        3 => {
            let inner = dice.pick(&[
                "SELECT n, m, count(*) AS id FROM t GROUP BY n, m",
                "SELECT n, m, row_number() OVER (PARTITION BY n, m ORDER BY id) AS id FROM t",
                "SELECT n, m, row_number() OVER (PARTITION BY n ORDER BY id) AS id FROM t",
                "SELECT DISTINCT n, m, 7 AS id FROM t",
                "SELECT n, m, id FROM t UNION ALL SELECT n, t_id, id FROM u",
                "SELECT n, m, 1 AS id FROM t UNION SELECT n, t_id, 1 FROM u",
                "SELECT n, m, 1 AS id FROM t EXCEPT SELECT n, t_id, 1 FROM u",
                "SELECT n, m, 1 AS id FROM t INTERSECT ALL SELECT n, t_id, 1 FROM u",
                "SELECT n, m, id FROM t LEFT JOIN (SELECT t_id, count(*) FROM u GROUP BY t_id) c ON c.t_id = t.id",
            ]);
            format!("SELECT * FROM ({inner} ) q WHERE {condition}")
        }
        4 => format!("SELECT t.id, u.id FROM u LEFT JOIN t ON t.id = u.t_id WHERE (t.{condition}) ORDER BY u.id"),
        _ => format!(
            "SELECT t.id FROM t JOIN (VALUES ({number}), (3), (NULL)) v (x) ON v.x = t.{}",
            dice.pick(&["id", "n"])
        ),
    };
    let fenced = text
        .replace(" ) q", " OFFSET 0) q")
        .replace("/**/", "OFFSET 0")
        .replace("q AS (", "q AS MATERIALIZED (")
        .replace("WHERE (t.", "WHERE ((t.")
        .replace(") ORDER BY u.id", ") IS TRUE) ORDER BY u.id");
    let plain = fenced
        .replace("FROM t", "FROM plain_t t")
        .replace("FROM u", "FROM plain_u u")
        .replace("JOIN t ", "JOIN plain_t t ");
    (text, plain)
}

#[test]
fn answers_are_the_same_without_the_rules() {
    let (mut desk, client) = desk();
    let mut dice = Dice(1);
    for round in 0..600 {
        // Also over rows that were written in the transaction, and taken back.
        match round % 60 {
            0 => desk.setup(client, &["BEGIN"]),
            20 => {
                for table in ["t", "plain_t"] {
                    desk.setup(
                        client,
                        &[
                            &format!(
                                "INSERT INTO {table} VALUES (200, 3, 1, NULL), (201, NULL, 4, 'new'), (202, 22, 0, '')"
                            ),
                            &format!("UPDATE {table} SET n = 30 - n WHERE id % 4 = 1"),
                            &format!("DELETE FROM {table} WHERE n = 2 OR id = 200"),
                        ],
                    );
                }
            }
            40 => desk.setup(client, &["ROLLBACK"]),
            50 => desk.setup(client, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]),
            59 => desk.setup(client, &["COMMIT"]),
            _ => {}
        }
        let (text, plain) = pair(&mut dice);
        let mut answers = [&text, &plain].map(|text| match desk.run(client, text) {
            Seen::Rows(rows) => rows,
            other => panic!("{text}: {other:?}"),
        });
        if !text.contains("LIMIT") {
            answers.iter_mut().for_each(|rows| rows.sort());
        }
        assert_eq!(answers[0], answers[1], "{text}\n{plain}");
    }
}

#[test]
fn rows_are_not_read_for_what_an_index_has() {
    let (mut desk, client) = desk();
    let mut shows =
        |text: &str, line: &str| assert_eq!(desk.query(client, &format!("EXPLAIN {text}"))[0], line, "{text}");
    shows("SELECT n, id FROM t WHERE n > 3", "Index Only Scan using t_n on t");
    shows("SELECT n FROM t WHERE m = 3 AND n > 3 ORDER BY m, n", "Index Only Scan using t_m on t");
    shows("SELECT n, s FROM t WHERE n > 3", "Index Scan using t_n on t");
    shows("SELECT n FROM t WHERE n > 3 AND m = m", "Index Scan using t_n on t");
    // Whose rows are locked has to have their keys.
    shows("SELECT n FROM t WHERE n > 3 FOR UPDATE", "LockRows");
    let locked = desk.query(client, "EXPLAIN SELECT n FROM t WHERE n > 3 FOR UPDATE");
    assert_eq!(locked[1], "  ->  Index Scan using t_n on t", "{locked:?}");
}

#[test]
fn values_in_an_index_are_those_of_rows_or_are_not_read_there() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE plain (id int, truth bool, small smallint, big bigint, real float8, number numeric, word text, short varchar(9), \
             fixed char(4), day date, clock time, instant timestamp, zoned timestamptz, number_of uuid, raw bytea, length interval)",
            "INSERT INTO plain SELECT g, nullif(g % 3, 0) = 1, nullif(g % 7 - 3, 2), nullif((g - 9) * 4000000000, 0), nullif(g - 5, 0) / -4.0, \
             nullif(g % 5, 0) * 1.0, nullif(repeat(chr(64 + g), g % 4), 'D'), nullif('v' || g % 6, 'v5'), nullif('c' || g % 6, 'c5'), \
             nullif('1999-12-25'::date + g, '2000-01-01'), nullif('10:00'::time + g * '1 s'::interval, '10:00:04'), \
             nullif('1999-12-31 23:59:50'::timestamp + g * '1 s'::interval, '2000-01-01'), '1999-12-31 23:59:50+01'::timestamptz + g * '1 s'::interval, \
             nullif(lpad(g::text, 32, 'a')::uuid, 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaa7'), decode(repeat('00ff0100', g % 3), 'hex'), \
             nullif(g % 4, 0) * '1 day'::interval FROM generate_series(1, 30) g",
            "CREATE TABLE k (LIKE plain)",
            "ALTER TABLE k ADD PRIMARY KEY (id)",
            "INSERT INTO k SELECT * FROM plain",
        ],
    );
    for (column, is_there) in [
        ("truth", true),
        ("small", true),
        ("big", true),
        ("real", false),
        ("number", false),
        ("word", true),
        ("short", true),
        ("fixed", false),
        ("day", true),
        ("clock", true),
        ("instant", true),
        ("zoned", true),
        ("number_of", true),
        ("raw", true),
        ("length", false),
    ] {
        for order in ["", " DESC"] {
            desk.setup(client, &[&format!("CREATE INDEX one ON k (small, {column}{order})")]);
            let ask = |table| format!("SELECT id, {column} FROM {table} WHERE small = 1 OR small = -3 ORDER BY id");
            let plan = desk.query(client, &format!("EXPLAIN {}", ask("k"))).join("\n");
            assert!(plan.contains("using one on k"), "{column}{order}: {plan}");
            assert_eq!(plan.contains("Index Only Scan"), is_there, "{column}{order}: {plan}");
            assert_eq!(desk.query(client, &ask("k")), desk.query(client, &ask("plain")), "{column}{order}");
            desk.setup(client, &["DROP INDEX one"]);
        }
    }
}

#[test]
fn entries_of_a_unique_index_have_the_key_of_their_row_also_without_a_value() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE k (a int, b text, c int, n int, PRIMARY KEY (a, b))",
            "INSERT INTO k SELECT g % 6, 'b' || g, nullif(g % 4, 3) + 4 * (g / 4), nullif(g, 5) FROM generate_series(1, 40) g",
            "CREATE TABLE plain (a int, b text, c int, n int)",
            "INSERT INTO plain SELECT * FROM k",
            "CREATE UNIQUE INDEX k_c ON k (c)",
            "CREATE UNIQUE INDEX k_cn ON k (n DESC, c)",
        ],
    );
    // Those without a value come at the end of the order.
    for (select, rest, index) in [
        ("b, c", "WHERE c > 7 ORDER BY c", "k_c"),
        ("b", "ORDER BY c LIMIT 100", "k_c"),
        ("a, b, c", "ORDER BY c LIMIT 100", "k_c"),
        ("a, c", "ORDER BY c DESC LIMIT 100", "k_c"),
        ("a, c, n", "WHERE n > 3 AND n < 39 ORDER BY n", "k_cn"),
        ("b, n", "ORDER BY n DESC LIMIT 100", "k_cn"),
    ] {
        let text = |table| format!("SELECT {select} FROM {table} {rest}");
        let plan = desk.query(client, &format!("EXPLAIN {}", text("k"))).join("\n");
        let (mut seen, mut expected) = (desk.query(client, &text("k")), desk.query(client, &text("plain")));
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected, "{}: {plan}", text("k"));
        let is_there = plan.contains("Index Only Scan") && plan.contains(&format!("using {index} on k"));
        assert!(!seen.is_empty() && is_there, "{rest}: {plan}");
    }
}

#[test]
fn an_index_may_have_a_column_twice() {
    let (mut desk, client) = desk();
    desk.setup(client, &["CREATE INDEX twice ON u (n, n DESC)"]);
    assert_eq!(desk.query(client, "EXPLAIN SELECT n FROM u WHERE n = 3")[0], "Index Only Scan using twice on u");
    // It says no more of the row for that.
    desk.setup(client, &["CREATE INDEX both ON u (n, t_id)"]);
    let plan = desk.query(client, "EXPLAIN SELECT * FROM u WHERE n = 3 AND t_id > 5");
    assert_eq!(plan[0], "Index Only Scan using both on u");
    assert_eq!(
        desk.query(client, "SELECT n FROM u WHERE n = 3"),
        desk.query(client, "SELECT n FROM plain_u WHERE n = 3")
    );
}
