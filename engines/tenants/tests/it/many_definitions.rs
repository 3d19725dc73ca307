//! Transactions that define much: what is kept of the catalog from statement to statement is what a new look at it would show.

use crate::desk::{Desk, Seen};

#[test]
fn a_transaction_sees_what_it_has_defined_and_taken_back() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE before (a int)", "BEGIN", "CREATE TABLE t (a int)", "SAVEPOINT s"]);
    desk.setup(client, &["ALTER TABLE t ADD COLUMN b int", "CREATE TABLE u (a int)", "DROP TABLE before"]);
    desk.setup(client, &["INSERT INTO t (a, b) VALUES (1, 2)", "INSERT INTO u VALUES (1)"]);
    assert_eq!(desk.run(client, "SELECT * FROM before"), Seen::Failed("42P01"));
    desk.setup(client, &["ROLLBACK TO s"]);
    assert_eq!(desk.query(client, "SELECT count(*) FROM before"), ["0"]);
    assert_eq!(desk.query(client, "SELECT count(*) FROM t"), ["0"]);
    desk.setup(client, &["SAVEPOINT r"]);
    assert_eq!(desk.run(client, "SELECT b FROM t"), Seen::Failed("42703"));
    desk.setup(client, &["ROLLBACK TO r"]);
    assert_eq!(desk.run(client, "SELECT * FROM u"), Seen::Failed("42P01"));
    desk.setup(client, &["ROLLBACK TO r", "CREATE TABLE u (b text)", "INSERT INTO u VALUES ('x')"]);
    assert_eq!(desk.query(client, "SELECT b FROM u"), ["x"]);
    desk.setup(client, &["COMMIT"]);
    assert_eq!(desk.query(client, "SELECT b FROM u"), ["x"]);
}

#[test]
fn a_transaction_sees_what_others_defined_beside_it() {
    let mut desk = Desk::new();
    let (client, other) = (desk.client(), desk.client());
    desk.setup(client, &["BEGIN", "CREATE TABLE t (a int)"]);
    desk.setup(other, &["CREATE TABLE o (a int)", "INSERT INTO o VALUES (7)"]);
    assert_eq!(desk.query(client, "SELECT a FROM o"), ["7"]);
    assert_eq!(desk.run(other, "SELECT * FROM t"), Seen::Failed("42P01"));
    desk.setup(other, &["DROP TABLE o"]);
    assert_eq!(desk.run(client, "SELECT a FROM o"), Seen::Failed("42P01"));
    desk.setup(client, &["ROLLBACK"]);
    assert_eq!(desk.run(client, "SELECT * FROM t"), Seen::Failed("42P01"));
}
