//! Waiting: queues are fair, circles are found, and each rule is missed when it is switched off.

use savanna_transaction::{
    ConflictKind, Event, Fault, Isolation, Lock, RowLock, TransactionError, Transactions, TxnId, Wait,
};

use crate::session::Answer;
use crate::table::*;

use RowLock::{KeyShare, NoKeyUpdate, Share, Update};

#[test]
fn select_for_update_waits_and_sees_what_was_committed() {
    let lines = || {
        vec![
            (0, lock(1, Update), value(10)),
            (1, lock(1, Update), WAITS),
            (0, set(1, 11), changed(1)),
            (0, commit(), DONE),
            (1, then(), value(11)),
            (1, add(1, 1), changed(1)),
            (1, commit(), DONE),
            (0, read(1), value(12)),
        ]
    };
    expect("for update", &[RC], lines());
}

#[test]
fn select_for_update_of_a_row_that_changed_fails_above_read_committed() {
    for level in [SI, SER] {
        expect(
            "for update",
            &[RC, level],
            vec![
                (1, read(2), value(20)),
                (0, set(1, 11), changed(1)),
                (1, lock(1, Update), WAITS),
                (0, commit(), DONE),
                (1, then(), conflict(ConflictKind::Write)),
                (1, abort(), DONE),
            ],
        );
    }
}

#[test]
fn a_lock_at_serializable_keeps_a_hot_row_from_being_taken_away() {
    expect(
        "lock, then write",
        &[SER],
        vec![
            (0, lock(1, Update), value(10)),
            (1, add(1, 1), changed(1)),
            (1, commit(), WAITS),
            (0, add(1, 5), changed(1)),
            (0, commit(), DONE),
            (1, then(), conflict(ConflictKind::Read)),
            (0, read(1), value(15)),
        ],
    );
}

#[test]
fn nowait_and_skip_locked_do_not_wait() {
    expect(
        "nowait",
        &[RC],
        vec![
            (0, lock(1, Share), value(10)),
            (1, try_lock(1, Share), value(10)),
            (1, try_lock(1, Update), Answer::Busy),
            (1, try_lock(2, Update), value(20)),
            (0, try_lock(2, KeyShare), Answer::Busy),
            (1, commit(), DONE),
            (0, try_lock(2, KeyShare), value(20)),
        ],
    );
}

#[test]
fn readers_of_keys_and_writers_of_content_do_not_wait_for_each_other() {
    expect(
        "key share",
        &[RC],
        vec![
            (0, lock(1, KeyShare), value(10)),
            (1, lock(1, NoKeyUpdate), value(10)),
            (2, lock(1, KeyShare), value(10)),
            (3, lock(1, Update), WAITS),
            (0, commit(), DONE),
            (1, commit(), DONE),
            (2, commit(), DONE),
            (3, then(), value(10)),
        ],
    );
}

fn fair() -> Vec<Line> {
    vec![
        (0, lock(1, Share), value(10)),
        (1, lock(1, Update), WAITS),
        (2, lock(1, Share), WAITS),
        (0, commit(), DONE),
        (1, then(), value(10)),
        (1, set(1, 11), changed(1)),
        (1, commit(), DONE),
        (2, then(), value(11)),
    ]
}

#[test]
fn who_comes_later_does_not_overtake() {
    expect("fair", &[RC], fair());
    play(Transactions::broken(Fault::NewcomersOvertake), &[RC], fair()).expect_err("session 2 overtakes");
}

fn circle_of_two() -> Vec<Line> {
    vec![
        (0, add(1, 1), changed(1)),
        (1, add(2, 1), changed(1)),
        (0, add(2, 1), WAITS),
        (1, add(1, 1), DEADLOCK),
        (1, abort(), DONE),
        (0, then(), changed(1)),
        (0, commit(), DONE),
        (1, scan(), rows(&[(1, 11), (2, 21)])),
    ]
}

#[test]
fn a_circle_ends_with_its_youngest() {
    expect("circle", &[RC], circle_of_two());
    play(Transactions::broken(Fault::DeadlocksAreNotFound), &[RC], circle_of_two()).expect_err("both wait for ever");
    // The younger waits first: it is told though it asked nothing.
    expect(
        "circle, the other way round",
        &[RC],
        vec![
            (0, add(1, 1), changed(1)),
            (1, add(2, 1), changed(1)),
            (1, add(1, 1), WAITS),
            (0, add(2, 1), WAITS),
            (1, then(), DEADLOCK),
            (1, abort(), DONE),
            (0, then(), changed(1)),
        ],
    );
}

#[test]
fn a_commit_that_waits_can_be_part_of_a_circle() {
    expect(
        "circle through a commit",
        &[RC, SER],
        vec![
            (0, add(2, 1), changed(1)),
            (1, lock(1, Update), value(10)),
            (1, add(2, 5), changed(1)),
            (1, commit(), WAITS),
            (0, add(1, 1), WAITS),
            (1, then(), DEADLOCK),
            (1, abort(), DONE),
            (0, then(), changed(1)),
        ],
    );
}

#[test]
fn a_circle_of_many_is_found_wherever_it_closes() {
    for last in 0..5_u64 {
        let mut database: Transactions<i64> = Transactions::default();
        let txns: Vec<TxnId> = (0..5).map(|_| begin(&mut database)).collect();
        for (txn, key) in txns.iter().zip(0_u8..) {
            assert_eq!(database.lock(*txn, &[key], Update, Wait::Queue), Ok(Lock::Granted { changed: false }));
        }
        let order = (0..5_u64).map(|i| (last + 1 + i) % 5);
        let mut deadlocks = Vec::new();
        for i in order {
            match database.lock(txns[i as usize], &[((i + 1) % 5) as u8], Update, Wait::Queue) {
                Ok(Lock::Waiting) => {}
                Err(TransactionError::Deadlock(victim)) => deadlocks.push(victim),
                other => panic!("{other:?}"),
            }
        }
        deadlocks.extend(database.events().filter_map(|event| match event {
            Event::Deadlocked(victim) => Some(victim),
            Event::Granted(_) => None,
        }));
        assert_eq!(deadlocks, [txns[4]], "closed by {last}");
        database.abort(txns[4]);
        assert_eq!(database.events().collect::<Vec<_>>(), [Event::Granted(txns[3])]);
    }
}

#[test]
fn a_wait_can_be_cancelled_and_its_place_is_free() {
    let mut database: Transactions<i64> = Transactions::default();
    let [first, second, third] = [(); 3].map(|()| begin(&mut database));
    database.lock(first, b"row", Share, Wait::Queue).expect("free");
    assert_eq!(database.lock(second, b"row", Update, Wait::Queue), Ok(Lock::Waiting));
    assert_eq!(database.lock(third, b"row", Share, Wait::Queue), Ok(Lock::Waiting));
    assert_eq!(database.get(second, b"row"), Err(TransactionError::Waiting(second)));
    database.cancel_wait(second).expect("it lives");
    assert_eq!(database.events().collect::<Vec<_>>(), [Event::Granted(third)]);
    assert!(database.get(second, b"row").is_ok());
    for txn in [first, second, third] {
        database.abort(txn);
    }
    assert_eq!(database.counts().locked_rows, 0);
}

#[test]
fn what_is_asked_of_a_transaction_that_cannot_do_it_is_refused_and_changes_nothing() {
    let mut database: Transactions<i64> = Transactions::default();
    let gone = TxnId(77);
    assert_eq!(database.get(gone, b"row"), Err(TransactionError::Unknown(gone)));
    assert_eq!(database.commit(gone).err(), Some(TransactionError::Unknown(gone)));
    database.abort(gone);
    let txn = database.begin(Isolation::ReadCommitted);
    assert_eq!(database.get(txn, b"row"), Err(TransactionError::NoSnapshot(txn)));
    let change = savanna_transaction::Change::Existence;
    assert_eq!(database.write(txn, b"row", Some(1), change), Err(TransactionError::NotLocked(txn)));
    database.statement(txn).expect("it lives");
    database.lock(txn, b"row", NoKeyUpdate, Wait::Queue).expect("free");
    assert_eq!(database.write(txn, b"row", Some(1), change), Err(TransactionError::NotLocked(txn)), "too weak");
    let csn = savanna_transaction::Csn(5);
    assert_eq!(database.durable(csn), Err(TransactionError::UnknownCsn(csn)));
}

fn begin(database: &mut Transactions<i64>) -> TxnId {
    let txn = database.begin(Isolation::ReadCommitted);
    database.statement(txn).expect("it was begun");
    txn
}
