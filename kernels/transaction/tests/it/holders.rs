//! Locks that outlive transactions: they keep others out, never the holder's own transaction, and wait in circles with the rest.

use savanna_transaction::{
    Event, Fault, HolderId, Isolation, Lock, RowLock, TransactionError, Transactions, TxnId, Wait,
};

use RowLock::{Share, Update};

type Database = Transactions<i64>;

const GRANTED: Result<Lock, TransactionError> = Ok(Lock::Granted { changed: false });

fn begin(database: &mut Database) -> TxnId {
    let txn = database.begin(Isolation::ReadCommitted);
    database.statement(txn).expect("it was begun");
    txn
}

/// A transaction for a holder.
fn begin_for(database: &mut Database, holder: HolderId) -> TxnId {
    let txn = begin(database);
    database.run_for(txn, holder).expect("it was begun");
    txn
}

/// A holder that has a key, whose transaction is over.
fn holds(database: &mut Database, key: &[u8], mode: RowLock) -> HolderId {
    let holder = database.add_holder();
    let txn = begin_for(database, holder);
    assert_eq!(database.lock_for_holder(txn, key, mode, Wait::Queue), GRANTED);
    database.settle(holder, [(key, Some(mode))].into_iter());
    database.abort(txn);
    holder
}

fn events(database: &mut Database) -> Vec<Event> {
    database.events().collect()
}

#[test]
fn a_lock_is_held_over_transactions_until_it_is_given_back() {
    let mut database = Database::default();
    let holder = holds(&mut database, b"a", Update);
    let other = begin(&mut database);
    assert_eq!(database.lock(other, b"a", Share, Wait::Never), Ok(Lock::Busy));
    assert_eq!(database.lock(other, b"a", Share, Wait::Queue), Ok(Lock::Waiting));
    database.settle(holder, [(&b"a"[..], None)].into_iter());
    assert_eq!(events(&mut database), [Event::Granted(other)]);
    database.abort(other);
    assert_eq!(database.counts().locked_rows, 0);
}

#[test]
fn a_holder_that_is_gone_has_nothing() {
    let mut database = Database::default();
    let holder = holds(&mut database, b"a", Update);
    let other = begin(&mut database);
    assert_eq!(database.lock(other, b"a", Update, Wait::Queue), Ok(Lock::Waiting));
    database.remove_holder(holder);
    assert_eq!(events(&mut database), [Event::Granted(other)]);
}

#[test]
fn a_holder_that_is_gone_has_nothing_of_what_was_not_settled_either() {
    let mut database = Database::default();
    let holder = database.add_holder();
    let txn = begin_for(&mut database, holder);
    assert_eq!(database.lock_for_holder(txn, b"a", Update, Wait::Queue), GRANTED);
    database.abort(txn);
    let other = begin(&mut database);
    assert_eq!(database.lock(other, b"a", Update, Wait::Queue), Ok(Lock::Waiting));
    database.remove_holder(holder);
    assert_eq!(events(&mut database), [Event::Granted(other)]);
}

fn both_ways(mut database: Database) -> bool {
    let holder = holds(&mut database, b"a", Update);
    let txn = begin_for(&mut database, holder);
    let over = database.lock(txn, b"a", Update, Wait::Never) == GRANTED;
    let under = database.lock(txn, b"b", Update, Wait::Never) == GRANTED
        && database.lock_for_holder(txn, b"b", Update, Wait::Never) == GRANTED;
    over && under
}

#[test]
fn a_holder_and_its_transaction_are_never_in_each_others_way() {
    assert!(both_ways(Database::default()));
    assert!(!both_ways(Transactions::broken(Fault::HoldersAreStrangers)));
}

#[test]
fn a_transaction_overtakes_those_who_wait_for_its_holder() {
    let mut database = Database::default();
    let holder = holds(&mut database, b"a", Share);
    let writer = begin(&mut database);
    assert_eq!(database.lock(writer, b"a", Update, Wait::Queue), Ok(Lock::Waiting));
    let txn = begin_for(&mut database, holder);
    assert_eq!(database.lock(txn, b"a", Share, Wait::Queue), GRANTED);
    assert_eq!(database.lock(txn, b"a", Update, Wait::Queue), GRANTED);
    database.abort(txn);
    assert_eq!(events(&mut database), [], "the holder has it still");
}

/// A transaction waits for a holder whose transaction waits for it.
fn circle(mut database: Database) -> (Result<Lock, TransactionError>, TxnId) {
    let holder = holds(&mut database, b"a", Update);
    let first = begin(&mut database);
    assert_eq!(database.lock(first, b"b", Update, Wait::Queue), GRANTED);
    assert_eq!(database.lock(first, b"a", Update, Wait::Queue), Ok(Lock::Waiting));
    let second = begin_for(&mut database, holder);
    (database.lock(second, b"b", Update, Wait::Queue), second)
}

#[test]
fn circles_through_holders_are_found() {
    let (answer, second) = circle(Database::default());
    assert_eq!(answer, Err(TransactionError::Deadlock(second)));
    let (answer, _) = circle(Transactions::broken(Fault::HoldersAreStrangers));
    assert_eq!(answer, Ok(Lock::Waiting));
}

#[test]
fn a_circle_is_found_where_a_holder_waits() {
    let mut database = Database::default();
    let (one, two) = (holds(&mut database, b"a", Update), holds(&mut database, b"b", Update));
    let (first, second) = (begin_for(&mut database, one), begin_for(&mut database, two));
    assert_eq!(database.lock_for_holder(second, b"a", Update, Wait::Queue), Ok(Lock::Waiting));
    assert_eq!(database.lock_for_holder(first, b"b", Update, Wait::Queue), Ok(Lock::Waiting));
    assert_eq!(events(&mut database), [Event::Deadlocked(second)], "the younger");
    database.abort(second);
    database.remove_holder(two);
    assert_eq!(events(&mut database), [Event::Granted(first)]);
    assert_eq!(database.lock_for_holder(first, b"b", Update, Wait::Queue), GRANTED);
}

#[test]
fn what_a_statement_took_and_does_not_keep_is_given_back() {
    let mut database = Database::default();
    let holder = holds(&mut database, b"a", Share);
    let txn = begin_for(&mut database, holder);
    assert_eq!(database.lock_for_holder(txn, b"a", Update, Wait::Queue), GRANTED);
    assert_eq!(database.lock_for_holder(txn, b"b", Update, Wait::Queue), GRANTED);
    database.settle(holder, std::iter::empty());
    let other = begin(&mut database);
    assert_eq!(database.lock(other, b"a", Share, Wait::Never), GRANTED, "as strong as before");
    assert_eq!(database.lock(other, b"b", Update, Wait::Never), GRANTED);
}

#[test]
fn a_wait_of_a_holder_ends_with_its_transaction() {
    let mut database = Database::default();
    let keeper = holds(&mut database, b"a", Update);
    let holder = database.add_holder();
    let txn = begin_for(&mut database, holder);
    assert_eq!(database.lock_for_holder(txn, b"a", Update, Wait::Queue), Ok(Lock::Waiting));
    database.abort(txn);
    database.settle(holder, std::iter::empty());
    database.remove_holder(keeper);
    assert_eq!(events(&mut database), []);
    assert_eq!(database.counts().locked_rows, 0);
}

#[test]
fn who_runs_for_nobody_takes_nothing_for_a_holder() {
    let mut database = Database::default();
    let txn = begin(&mut database);
    let refused = database.lock_for_holder(txn, b"a", Update, Wait::Queue);
    assert_eq!(refused, Err(TransactionError::Unknown(txn)));
}
