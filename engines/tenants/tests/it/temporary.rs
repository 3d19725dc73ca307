//! Temporary tables are one session's own, and nowhere but in memory. `tests/tenants/definitions` compares them with PostgreSQL.

use crate::desk::{Desk, Seen, rows};

#[test]
fn temporary_tables_are_in_no_log_and_no_store() {
    let mut desk = Desk::stored(1 << 20);
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)"]);
    let before = desk.paper.records().0;
    let texts = [
        "CREATE TEMP TABLE t (id serial PRIMARY KEY, s text)",
        "CREATE INDEX ON t (s)",
        "INSERT INTO t (s) SELECT 'row ' || n FROM generate_series(1, 100) n",
        "UPDATE t SET s = s || '!' WHERE id > 50",
        "DELETE FROM t WHERE id < 10",
        "ALTER TABLE t ADD COLUMN more int DEFAULT 3",
        "CREATE TEMP VIEW v AS SELECT count(*) FROM t",
        "TRUNCATE t",
        "INSERT INTO t (s) VALUES ('last')",
    ];
    desk.setup(client, &texts);
    assert_eq!(desk.paper.records().0, before, "nothing was logged");
    desk.paper.flush();
    desk.flush();
    assert_eq!(desk.query(client, "SELECT id, s, more FROM t"), ["101|last|3"]);
    assert_eq!(desk.query(client, "SELECT * FROM v"), ["1"]);
    let mut again = Desk::after(&before);
    let client = again.client();
    assert_eq!(again.query(client, "SELECT * FROM t"), ["1"]);
    assert_eq!(again.run(client, "SELECT * FROM v"), Seen::Failed("42P01"));
}

#[test]
fn sessions_do_not_see_each_others_temporary_tables() {
    let mut desk = Desk::new();
    let (a, b, c) = (desk.client(), desk.client(), desk.client());
    for (client, text) in [(a, "'a'"), (b, "'b'")] {
        desk.setup(client, &["CREATE TEMP TABLE t (s text, n serial)", &format!("INSERT INTO t VALUES ({text})")]);
    }
    assert_eq!(desk.query(a, "SELECT * FROM t"), ["a|1"]);
    assert_eq!(desk.query(b, "SELECT * FROM t"), ["b|1"]);
    assert_eq!(desk.run(c, "SELECT * FROM t"), Seen::Failed("42P01"));
    assert_eq!(desk.query(c, "SELECT count(*) FROM pg_class WHERE relname LIKE 't%'"), ["0"]);
    desk.setup(c, &["CREATE TABLE t (s text)"]);
    assert_eq!(desk.query(a, "SELECT * FROM t"), ["a|1"], "what is temporary comes first");
    desk.tenant.close_session(a);
    let d = desk.client();
    assert_eq!(desk.query(d, "SELECT count(*) FROM t"), ["0"]);
    assert_eq!(desk.run(b, "SELECT s FROM t"), rows(&["b"]));
}

#[test]
fn a_transaction_that_ends_badly_leaves_temporary_rows_as_they_were() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE p (id int PRIMARY KEY)", "INSERT INTO p VALUES (1)", "CREATE TEMP TABLE t (id int)"]);
    desk.setup(a, &["INSERT INTO t VALUES (1)", "BEGIN ISOLATION LEVEL REPEATABLE READ", "UPDATE p SET id = 2"]);
    desk.setup(a, &["INSERT INTO t VALUES (2)", "CREATE TEMP TABLE u (id int)"]);
    desk.setup(b, &["UPDATE p SET id = 3"]);
    assert_eq!(desk.run(a, "COMMIT"), Seen::Failed("40001"));
    assert_eq!(desk.query(a, "SELECT * FROM t"), ["1"]);
    assert_eq!(desk.run(a, "SELECT * FROM u"), Seen::Failed("42P01"));
    assert_eq!(desk.run(a, "INSERT INTO t SELECT 3 UNION ALL SELECT 1 / (id - 1) FROM t"), Seen::Failed("22012"));
    assert_eq!(desk.query(a, "SELECT * FROM t"), ["1"]);
}
