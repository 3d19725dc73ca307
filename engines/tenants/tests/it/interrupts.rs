//! Statements that another thread ends while they run.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use savanna_tenants_sql::interrupt::Reason;

use crate::desk::{Desk, Seen, done};

/// Runs a statement that would never end by itself, while another thread interrupts whatever runs.
fn interrupted(desk: &mut Desk, text: &str) -> Seen {
    let client = desk.client();
    let interrupts = desk.tenant.interrupts(client);
    let over = Arc::new(AtomicBool::new(false));
    let other = {
        let over = Arc::clone(&over);
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                interrupts.interrupt(Reason::Cancelled);
                std::thread::yield_now();
            }
        })
    };
    let seen = desk.run(client, text);
    over.store(true, Ordering::Relaxed);
    other.join().expect("it only interrupts");
    seen
}

#[test]
fn a_statement_that_runs_is_ended_wherever_it_is() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series FROM generate_series(1, 100)"],
    );
    let many = "generate_series(1, 1000000000)";
    for text in [
        format!("SELECT count(*) FROM {many}"),
        "SELECT count(*) FROM t a, t b, t c, t d, t e, t f, t g".to_owned(),
        "SELECT count(*) FROM t FULL JOIN (SELECT 1 AS id FROM t a, t b, t c, t d, t e, t f) u ON u.id = t.id"
            .to_owned(),
        format!("SELECT (SELECT count(*) FROM {many} s WHERE s.s > t.id) FROM t"),
        "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a FROM n) SELECT count(*) FROM n".to_owned(),
        format!("SELECT 1 FROM {many} EXCEPT ALL SELECT 1 FROM {many}"),
        format!("INSERT INTO t SELECT 1000 FROM {many} ON CONFLICT DO NOTHING"),
        format!("UPDATE t SET id = id FROM {many}"),
        format!("DELETE FROM t USING {many} s WHERE s.s > 1000000000"),
    ] {
        assert_eq!(interrupted(&mut desk, &text), Seen::Failed("57014"), "{text}");
    }
    assert_eq!(desk.query(client, "SELECT count(*), max(id) FROM t"), ["100|100"], "none of them did a half");
}

#[test]
fn a_statement_that_was_ended_fails_its_transaction_and_nothing_else() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
    desk.setup(b, &["BEGIN", "SELECT * FROM t FOR UPDATE"]);
    desk.setup(a, &["BEGIN"]);
    assert_eq!(desk.run(a, "DELETE FROM t"), Seen::Waits);
    assert!(desk.tenant.waits_for_lock(a) && !desk.tenant.waits_for_lock(b));
    desk.tenant.interrupt(b, Reason::Cancelled);
    desk.tenant.interrupt(a, Reason::LockTimeout);
    assert_eq!(desk.tenant.woken(), [a], "the other one runs no statement");
    assert_eq!(desk.run(a, "DELETE FROM t"), Seen::Failed("55P03"));
    assert_eq!(desk.run(a, "SELECT 1"), Seen::Failed("25P02"));
    desk.setup(a, &["ROLLBACK"]);
    assert_eq!(desk.run(b, "COMMIT"), done("COMMIT"));
    assert_eq!(desk.run(a, "DELETE FROM t"), done("DELETE 1"));
}
