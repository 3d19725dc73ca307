//! Advisory locks.

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
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_advisory_unlock_all()",
        "CREATE TABLE t (a int CHECK (pg_try_advisory_xact_lock(a)))",
        "CREATE TABLE t (a text DEFAULT pg_advisory_xact_lock(1))",
    ] {
        assert_eq!(desk.run(client, text), Seen::Failed("0A000"), "{text}");
    }
}
