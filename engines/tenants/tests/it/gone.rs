//! Scans that begin where rows have gone, as those of a queue do.

use savanna_journal::Lsn;
use savanna_tenants_store::{database::SessionId, fault::Fault};

use crate::desk::Desk;

const FIRST: &str = "SELECT id FROM queue ORDER BY id LIMIT 1";
const LAST: &str = "SELECT id FROM queue ORDER BY id DESC LIMIT 1";

/// A queue of 100 rows, and two clients.
fn queue(mut desk: Desk) -> (Desk, SessionId, SessionId) {
    let (a, b) = (desk.client(), desk.client());
    desk.setup(
        a,
        &["CREATE TABLE queue (id int PRIMARY KEY)", "INSERT INTO queue SELECT n FROM generate_series(1, 100) AS n"],
    );
    (desk, a, b)
}

/// What is first and last while rows go and come.
fn served(desk: &mut Desk, client: SessionId) -> Vec<String> {
    let mut met = Vec::new();
    let mut look = |desk: &mut Desk| met.extend([desk.query(client, FIRST), desk.query(client, LAST)].concat());
    desk.setup(client, &["DELETE FROM queue WHERE id <= 30 OR id > 70"]);
    look(desk);
    desk.setup(client, &["DELETE FROM queue WHERE id IN (31, 70)"]);
    look(desk);
    desk.setup(client, &["INSERT INTO queue VALUES (7), (77)"]);
    look(desk);
    desk.setup(client, &["DELETE FROM queue WHERE id IN (7, 77)"]);
    look(desk);
    met
}

const SERVED: [&str; 8] = ["31", "70", "32", "69", "7", "77", "32", "69"];

#[test]
fn the_first_and_the_last_of_a_queue_are_found_where_others_went() {
    let (mut desk, a, _) = queue(Desk::new());
    assert_eq!(served(&mut desk, a), SERVED);
    let (mut desk, a, _) = queue(Desk::stored(1 << 20));
    desk.paper.flush();
    desk.flush();
    assert_eq!(served(&mut desk, a), SERVED);
}

#[test]
fn it_is_noticed_if_what_comes_to_a_gap_is_missed() {
    let (mut desk, a, _) = queue(Desk::new());
    desk.tenant.database().break_rule(Fault::GapsAreNotFilled);
    assert_ne!(served(&mut desk, a), SERVED);
}

#[test]
fn everybody_sees_the_gaps_of_his_own_snapshot() {
    let (mut desk, a, b) = queue(Desk::new());
    desk.setup(a, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM queue LIMIT 1"]);
    desk.setup(b, &["DELETE FROM queue WHERE id <= 30"]);
    assert_eq!(desk.query(b, FIRST), ["31"]);
    assert_eq!(desk.query(b, FIRST), ["31"]);
    assert_eq!(desk.query(a, FIRST), ["1"], "an older snapshot");
    desk.setup(b, &["INSERT INTO queue VALUES (3)"]);
    assert_eq!(desk.query(a, FIRST), ["1"]);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.query(a, FIRST), ["3"]);

    desk.setup(a, &["BEGIN", "DELETE FROM queue WHERE id < 70"]);
    assert_eq!(desk.query(a, FIRST), ["70"]);
    assert_eq!(desk.query(b, FIRST), ["3"], "what only its own transaction sees as gone");
    desk.setup(a, &["INSERT INTO queue VALUES (5)"]);
    assert_eq!(desk.query(a, FIRST), ["5"]);
    desk.setup(a, &["ROLLBACK"]);
    assert_eq!(desk.query(a, FIRST), ["3"]);
}

#[test]
fn who_is_told_of_a_gap_waits_for_what_made_it() {
    let (mut desk, a, b) = queue(Desk::new());
    desk.paper.flush();
    desk.setup(a, &["DELETE FROM queue WHERE id <= 30"]);
    let deleted = desk.tenant.reply_after(a);
    assert!(deleted > Lsn::NONE);
    for _ in 0..2 {
        assert_eq!(desk.query(b, FIRST), ["31"]);
        assert_eq!(desk.tenant.reply_after(b), deleted);
    }
    desk.paper.flush();
    assert_eq!(desk.query(b, FIRST), ["31"]);
    assert_eq!(desk.tenant.reply_after(b), Lsn::NONE);
}

#[test]
fn the_first_row_is_locked_and_the_others_are_not_read() {
    let (mut desk, a, b) = queue(Desk::new());
    desk.setup(a, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    assert_eq!(desk.query(a, &format!("{FIRST} FOR UPDATE")), ["1"]);
    desk.setup(a, &["DELETE FROM queue WHERE id = 1"]);
    desk.setup(b, &["BEGIN ISOLATION LEVEL SERIALIZABLE", "INSERT INTO queue VALUES (101)", "COMMIT"]);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.query(a, FIRST), ["2"]);
}
