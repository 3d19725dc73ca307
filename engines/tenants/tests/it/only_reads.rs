//! Sessions that may read and do nothing else.

use crate::desk::{Desk, Seen, done};

#[test]
fn a_session_that_only_reads_writes_and_locks_nothing_whatever_it_sets() {
    let mut desk = Desk::new();
    let (owner, reader) = (desk.client(), desk.client());
    desk.setup(owner, &["CREATE TABLE t (id int PRIMARY KEY)", "CREATE SEQUENCE s", "INSERT INTO t VALUES (1)"]);
    desk.tenant.only_reads(reader);
    let write = "INSERT INTO t VALUES (2)";
    for statement in [
        write,
        "DELETE FROM t",
        "CREATE TABLE u (id int)",
        "DROP TABLE t",
        "TRUNCATE t",
        "SELECT nextval('s')",
        "WITH gone AS (DELETE FROM t RETURNING id) SELECT * FROM gone",
    ] {
        assert_eq!(desk.run(reader, statement), Seen::Failed("25006"), "{statement}");
    }
    for statement in ["LOCK TABLE t", "SELECT id FROM t FOR UPDATE"] {
        desk.run(reader, "BEGIN");
        assert_eq!(desk.run(reader, statement), Seen::Failed("42501"), "{statement}");
        desk.run(reader, "ROLLBACK");
    }
    for lifts in [
        "BEGIN READ WRITE",
        "SET default_transaction_read_only = off",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    ] {
        assert!(!matches!(desk.run(reader, lifts), Seen::Failed(_)), "{lifts}");
        assert_eq!(desk.run(reader, write), Seen::Failed("25006"), "{lifts}");
        desk.run(reader, "ROLLBACK");
    }
    desk.run(reader, "BEGIN");
    assert_eq!(desk.run(reader, "SET TRANSACTION READ WRITE"), Seen::Failed("42501"));
    desk.run(reader, "ROLLBACK");
    assert_eq!(desk.run(owner, write), done("INSERT 0 1"));
}
