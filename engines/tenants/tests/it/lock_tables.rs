//! `LOCK TABLE`.

use savanna_tenants_store::fault::Fault;

use crate::desk::{Desk, Seen, done};

fn desk() -> Desk {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)"]);
    desk
}

#[test]
fn a_locked_table_is_not_written_at_any_level_until_the_transaction_ends() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let mut desk = desk();
        let (a, b) = (desk.client(), desk.client());
        desk.setup(a, &["BEGIN", "LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE"]);
        assert_eq!(desk.run(b, &format!("BEGIN ISOLATION LEVEL {level}")), done("BEGIN"));
        let written = desk.run(b, "INSERT INTO t VALUES (1)");
        let waits = match level {
            "READ COMMITTED" => written,
            _ => desk.run(b, "COMMIT"),
        };
        assert_eq!(waits, Seen::Waits, "{level}");
        desk.setup(a, &["COMMIT"]);
        assert_eq!(desk.tenant.woken(), [b], "{level}");
    }
}

#[test]
fn it_is_noticed_if_nothing_is_locked() {
    let mut desk = desk();
    let (a, b) = (desk.client(), desk.client());
    desk.tenant.database().break_rule(Fault::TablesAreNotLocked);
    desk.setup(a, &["BEGIN", "LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE"]);
    assert_ne!(desk.run(b, "INSERT INTO t VALUES (1)"), Seen::Waits);
}

#[test]
fn tables_that_are_locked_in_a_circle_are_found() {
    let mut desk = desk();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["BEGIN", "LOCK TABLE t"]);
    desk.setup(b, &["BEGIN", "INSERT INTO u VALUES (1)"]);
    assert_eq!(desk.run(a, "LOCK TABLE u IN SHARE MODE"), Seen::Waits);
    assert_eq!(desk.run(b, "INSERT INTO t VALUES (1)"), Seen::Failed("40P01"));
}

#[test]
fn nowait_fails_and_what_was_locked_before_a_savepoint_stays() {
    let mut desk = desk();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["BEGIN", "LOCK TABLE t IN EXCLUSIVE MODE", "SAVEPOINT s", "LOCK TABLE u", "ROLLBACK TO s"]);
    desk.setup(b, &["BEGIN", "LOCK TABLE u NOWAIT"]);
    assert_eq!(desk.run(b, "LOCK TABLE t IN ROW SHARE MODE NOWAIT"), Seen::Failed("55P03"));
}
