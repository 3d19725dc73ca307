//! Statements that sleep.

use std::time::Duration;

use savanna_tenants_sql::interrupt::Reason;

use crate::desk::{Desk, Seen, rows};

#[test]
fn a_statement_sleeps_as_often_as_it_says_while_others_go_on() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"]);
    let text = "SELECT pg_sleep(id) FROM t";
    for seconds in [1, 2] {
        assert_eq!(desk.run(a, text), Seen::Waits);
        assert_eq!(desk.tenant.sleeps(a), Some(Duration::from_secs(seconds)));
        assert!(!desk.tenant.waits_for_lock(a), "it has no use for lock_timeout");
        desk.setup(b, &["UPDATE t SET id = id"]);
        desk.tenant.has_slept(a);
    }
    assert_eq!(desk.run(a, text), rows(&["", ""]));
    assert_eq!(desk.run(a, "SELECT pg_sleep_for('1 min')"), Seen::Waits, "the next statement has not slept yet");
    assert_eq!(desk.tenant.sleeps(a), Some(Duration::from_secs(60)));
}

#[test]
fn a_function_in_from_sleeps_once() {
    let mut desk = Desk::new();
    let client = desk.client();
    assert_eq!(desk.run(client, "SELECT 1 FROM pg_sleep(0.01)"), Seen::Waits);
    desk.tenant.has_slept(client);
    assert_eq!(desk.run(client, "SELECT 1 FROM pg_sleep(0.01)"), rows(&["1"]));
}

#[test]
fn whoever_wakes_too_early_sleeps_on() {
    let mut desk = Desk::new();
    let client = desk.client();
    let text = "SELECT pg_sleep(1), pg_sleep(0), pg_sleep(-1), pg_sleep(NULL)";
    assert_eq!(desk.run(client, text), Seen::Waits);
    assert_eq!(desk.run(client, text), Seen::Waits);
    desk.tenant.has_slept(client);
    desk.tenant.has_slept(client);
    assert_eq!(desk.run(client, text), rows(&["|||"]));
}

#[test]
fn a_sleeping_statement_is_ended_and_its_transaction_fails() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (note text)", "BEGIN"]);
    let text = "INSERT INTO t VALUES (pg_sleep(9))";
    assert_eq!(desk.run(client, text), Seen::Waits);
    desk.tenant.interrupt(client, Reason::Cancelled);
    assert_eq!(desk.tenant.woken(), [client]);
    assert_eq!(desk.run(client, text), Seen::Failed("57014"));
    assert_eq!(desk.tenant.sleeps(client), None);
    desk.setup(client, &["ROLLBACK"]);
    assert_eq!(desk.run(client, "SELECT count(*) FROM t"), rows(&["0"]));
}

#[test]
fn sleep_is_refused_where_it_would_be_computed_at_any_time() {
    let mut desk = Desk::new();
    let client = desk.client();
    for text in ["CREATE TABLE t (a text DEFAULT pg_sleep(1))", "CREATE TABLE t (a int CHECK (pg_sleep(a) IS NULL))"] {
        assert_eq!(desk.run(client, text), Seen::Failed("0A000"), "{text}");
    }
}
