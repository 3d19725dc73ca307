//! Savepoints: what they undo, which locks they give back, and what they leave.

use savanna_transaction::{ConflictKind, Fault, RowLock, Transactions};

use crate::session::Answer;
use crate::table::*;

fn writes() -> Vec<Line> {
    vec![
        (0, set(1, 11), changed(1)),
        (0, savepoint(), DONE),
        (0, set(1, 12), changed(1)),
        (0, insert(3, 30), changed(1)),
        (0, savepoint(), DONE),
        (0, delete(2), changed(1)),
        (0, scan(), rows(&[(1, 12), (3, 30)])),
        (0, roll_back_to(1), DONE),
        (0, scan(), rows(&[(1, 12), (2, 20), (3, 30)])),
        (0, roll_back_to(0), DONE),
        (0, scan(), rows(&[(1, 11), (2, 20)])),
        (0, commit(), DONE),
        (1, scan(), rows(&[(1, 11), (2, 20)])),
    ]
}

#[test]
fn rolling_back_to_a_savepoint_undoes_what_was_written_since() {
    for level in [RC, SI, SER] {
        expect("writes", &[level], writes());
        play(Transactions::broken(Fault::SavepointsKeepWrites), &[level], writes()).expect_err("nothing is undone");
    }
}

fn locks() -> Vec<Line> {
    vec![
        (0, add(1, 1), changed(1)),
        (0, savepoint(), DONE),
        (0, add(2, 1), changed(1)),
        (1, add(2, 5), WAITS),
        (0, roll_back_to(0), DONE),
        (1, then(), changed(1)),
        (1, try_lock(1, RowLock::KeyShare), value(10)),
        (1, try_lock(1, RowLock::Share), Answer::Busy),
        (1, commit(), DONE),
        (0, read(2), value(25)),
    ]
}

#[test]
fn rolling_back_to_a_savepoint_gives_locks_back_that_were_taken_since() {
    expect("locks", &[RC], locks());
    play(Transactions::broken(Fault::SavepointsKeepLocks), &[RC], locks()).expect_err("session 1 still waits");
}

fn strengthened() -> Vec<Line> {
    vec![
        (0, lock(1, RowLock::Share), value(10)),
        (0, savepoint(), DONE),
        (0, add(1, 1), changed(1)),
        (1, try_lock(1, RowLock::Share), Answer::Busy),
        (0, roll_back_to(0), DONE),
        (1, try_lock(1, RowLock::Share), value(10)),
        (2, try_lock(1, RowLock::Update), Answer::Busy),
        (1, commit(), DONE),
        (2, try_lock(1, RowLock::Update), Answer::Busy),
        (0, commit(), DONE),
        (2, try_lock(1, RowLock::Update), value(10)),
    ]
}

#[test]
fn a_lock_that_was_only_strengthened_becomes_what_it_was() {
    expect("strengthened", &[RC], strengthened());
    play(Transactions::broken(Fault::SavepointsDropEarlierLocks), &[RC], strengthened()).expect_err("it is gone");
}

#[test]
fn what_was_read_before_a_rollback_is_still_validated() {
    expect(
        "reads stay",
        &[SER],
        vec![
            (0, savepoint(), DONE),
            (0, read(1), value(10)),
            (0, roll_back_to(0), DONE),
            (1, set(1, 11), changed(1)),
            (1, commit(), DONE),
            (0, set(2, 21), changed(1)),
            (0, commit(), conflict(ConflictKind::Read)),
        ],
    );
}

#[test]
fn a_deadlock_can_be_survived_by_rolling_back_to_a_savepoint() {
    expect(
        "deadlock",
        &[RC],
        vec![
            (0, add(1, 1), changed(1)),
            (1, savepoint(), DONE),
            (1, add(2, 1), changed(1)),
            (0, add(2, 1), WAITS),
            (1, add(1, 1), DEADLOCK),
            (1, roll_back_to(0), DONE),
            (0, then(), changed(1)),
            (0, commit(), DONE),
            (1, add(1, 1), changed(1)),
            (1, commit(), DONE),
            (0, scan(), rows(&[(1, 12), (2, 21)])),
        ],
    );
}
