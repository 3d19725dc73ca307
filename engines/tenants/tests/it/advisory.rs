//! Advisory locks.

use savanna_tenants::tenant::Notice;
use savanna_tenants_sql::interrupt::Reason;

use crate::desk::{Desk, Seen, rows};

#[test]
fn advisory_locks_are_waited_for_tried_shared_and_given_back() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["BEGIN", "SELECT pg_advisory_xact_lock(7)", "SAVEPOINT s", "SELECT pg_advisory_xact_lock(1, 2)"]);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_xact_lock(7), pg_try_advisory_xact_lock(8)"), rows(&["f|t"]));
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_xact_lock(1, 2), pg_try_advisory_xact_lock(2, 1)"), rows(&["f|t"]));
    desk.setup(a, &["ROLLBACK TO s"]);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_xact_lock(1, 2)"), rows(&["t"]), "rolled back behind it");
    assert_eq!(desk.run(b, "SELECT pg_advisory_xact_lock_shared(7)"), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.tenant.woken(), [b]);
    assert_eq!(desk.run(b, "SELECT pg_advisory_xact_lock_shared(7)"), rows(&[""]));
    desk.setup(a, &["BEGIN", "SELECT pg_advisory_xact_lock_shared(7)"]);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_xact_lock_shared(7), pg_try_advisory_xact_lock(7)"), rows(&["t|f"]));
    desk.tenant.close_session(a);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_xact_lock(7), pg_advisory_xact_lock(NULL)"), rows(&["t|"]));
}

#[test]
fn advisory_locks_are_among_those_that_wait_in_circles() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
    desk.setup(a, &["BEGIN", "SELECT pg_advisory_xact_lock(1)"]);
    desk.setup(b, &["BEGIN", "SELECT * FROM t FOR UPDATE"]);
    assert_eq!(desk.run(a, "DELETE FROM t"), Seen::Waits);
    assert_eq!(desk.run(b, "SELECT pg_advisory_xact_lock(1)"), Seen::Failed("40P01"));
}

#[test]
fn advisory_locks_are_refused_where_none_can_be_taken() {
    let mut desk = Desk::new();
    let client = desk.client();
    for text in [
        "CREATE TABLE t (a int CHECK (pg_advisory_unlock(a)))",
        "CREATE TABLE t (a int CHECK (pg_try_advisory_xact_lock(a)))",
        "CREATE TABLE t (a text DEFAULT pg_advisory_xact_lock(1))",
    ] {
        assert_eq!(desk.run(client, text), Seen::Failed("0A000"), "{text}");
    }
}

#[test]
fn a_session_keeps_its_locks_over_transactions_and_as_often_as_it_took_them() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(
        a,
        &["BEGIN", "SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(1)", "ROLLBACK"],
    );
    let tries = "SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_lock_shared(2)";
    assert_eq!(desk.run(b, tries), rows(&["f|f|t"]));
    assert_eq!(desk.run(a, "SELECT pg_advisory_unlock(1)"), rows(&["t"]));
    assert_eq!(desk.run(b, tries), rows(&["f|f|t"]), "it was taken twice");
    assert_eq!(desk.run(b, "SELECT pg_advisory_lock(1)"), Seen::Waits);
    desk.setup(a, &["BEGIN", "SELECT pg_advisory_unlock(1)"]);
    assert_eq!(desk.tenant.woken(), [b], "not only when the transaction ends");
    assert_eq!(desk.run(b, "SELECT pg_advisory_lock(1)"), rows(&[""]));
    assert_eq!(desk.run(a, "SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2)"), rows(&["f|t"]));
    let warning = "you don't own a lock of type ExclusiveLock";
    assert_eq!(desk.tenant.notices(a), [Notice::warning("01000", warning)]);
    desk.tenant.close_session(b);
    assert_eq!(desk.run(a, "SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)"), rows(&["t|t"]));
}

#[test]
fn what_was_locked_for_itself_and_with_others_is_unlocked_apart() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["SELECT pg_advisory_lock_shared(1), pg_advisory_lock(1)"]);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_lock_shared(1)"), rows(&["f"]));
    desk.setup(a, &["SELECT pg_advisory_unlock(1)"]);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_lock_shared(1)"), rows(&["t"]));
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_lock(1)"), rows(&["f"]));
    desk.setup(a, &["SELECT pg_advisory_unlock_all()"]);
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_lock(1)"), rows(&["t"]));
}

#[test]
fn a_session_is_never_in_its_own_way() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["SELECT pg_advisory_lock(1)"]);
    desk.setup(a, &["BEGIN", "SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(2), pg_advisory_lock(2)"]);
    desk.setup(a, &["SELECT pg_advisory_unlock_all()"]);
    let tries = "SELECT pg_try_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)";
    assert_eq!(desk.run(b, tries), rows(&["f|f"]), "the transaction has them still");
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, tries), rows(&["t|t"]));
}

#[test]
fn a_statement_that_ran_twice_has_taken_its_locks_once() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["SELECT pg_advisory_lock(2)"]);
    let both = "SELECT pg_advisory_lock(1), pg_advisory_lock(2)";
    assert_eq!(desk.run(b, both), Seen::Waits);
    assert_eq!(desk.run(a, "SELECT pg_try_advisory_lock(1)"), rows(&["f"]));
    desk.setup(a, &["SELECT pg_advisory_unlock(2)"]);
    assert_eq!(desk.tenant.woken(), [b]);
    assert_eq!(desk.run(b, both), rows(&["|"]));
    desk.setup(b, &["SELECT pg_advisory_unlock(1), pg_advisory_unlock(2)"]);
    assert_eq!(desk.run(a, "SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)"), rows(&["t|t"]));
}

#[test]
fn what_a_failed_statement_took_is_kept_and_what_it_waited_for_is_not() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    assert_eq!(desk.run(a, "SELECT pg_advisory_lock(1), 1 / (random() * 0)::int"), Seen::Failed("22012"));
    assert_eq!(desk.run(b, "SELECT pg_advisory_lock(2), pg_advisory_lock(1)"), Seen::Waits);
    desk.tenant.interrupt(b, Reason::Cancelled);
    assert_eq!(desk.run(b, "SELECT pg_advisory_lock(2), pg_advisory_lock(1)"), Seen::Failed("57014"));
    assert_eq!(desk.run(a, "SELECT pg_try_advisory_lock(2)"), rows(&["f"]), "as in PostgreSQL");
    assert_eq!(desk.run(a, "SELECT pg_advisory_unlock(1)"), rows(&["t"]));
    assert_eq!(desk.run(a, "SELECT pg_advisory_unlock(1)"), rows(&["f"]));
    assert_eq!(desk.run(b, "SELECT pg_try_advisory_lock(1)"), rows(&["t"]));
}

#[test]
fn locks_of_sessions_are_among_those_that_wait_in_circles() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "SELECT pg_advisory_lock(1)"]);
    desk.setup(b, &["BEGIN", "DELETE FROM t"]);
    assert_eq!(desk.run(b, "SELECT pg_advisory_lock(1)"), Seen::Waits);
    assert_eq!(desk.run(a, "DELETE FROM t"), Seen::Failed("40P01"));
    desk.setup(a, &["DISCARD ALL"]);
    assert_eq!(desk.tenant.woken(), [b]);
    assert_eq!(desk.run(b, "SELECT pg_advisory_lock(1)"), rows(&[""]));
}
