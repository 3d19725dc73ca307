//! A transaction that is certain to fail is told so before its commit, and nobody else is.

use savanna_transaction::{Change, Commit, ConflictKind, Isolation, Savepoint, Transactions, TxnId};

type Database = Transactions<i64>;

fn begin(database: &mut Database, isolation: Isolation) -> TxnId {
    let txn = database.begin(isolation);
    database.statement(txn).expect("it was begun");
    txn
}

fn write(database: &mut Database, txn: TxnId, key: u8) {
    database.write(txn, &[key], Some(1), Change::Content).expect("it lives");
}

fn read(database: &mut Database, txn: TxnId, key: u8) {
    database.get(txn, &[key]).expect("it lives");
}

/// Somebody else writes a key.
fn meanwhile(database: &mut Database, key: u8) {
    let txn = begin(database, Isolation::Serializable);
    write(database, txn, key);
    let Ok(Commit::Committed(committed)) = database.commit(txn) else { panic!("nobody is in its way") };
    database.install(committed);
}

fn is_overtaken(database: &mut Database, txn: TxnId, first: Option<Savepoint>) -> bool {
    let overtaken = database.overtaken(txn, first).expect("it lives");
    overtaken.is_some_and(|conflict| conflict.kind == ConflictKind::Read)
}

#[test]
fn who_has_written_hears_of_a_change_of_what_it_read() {
    let mut database = Database::default();
    let txn = begin(&mut database, Isolation::Serializable);
    read(&mut database, txn, 1);
    write(&mut database, txn, 2);
    meanwhile(&mut database, 3);
    assert!(!is_overtaken(&mut database, txn, None), "it did not read that");
    meanwhile(&mut database, 1);
    assert!(is_overtaken(&mut database, txn, None));
    database.commit(txn).expect_err("it read what was changed");
}

#[test]
fn what_it_reads_when_it_was_changed_already_is_found_with_the_next_commit() {
    let mut database = Database::default();
    let txn = begin(&mut database, Isolation::Serializable);
    write(&mut database, txn, 2);
    meanwhile(&mut database, 1);
    assert!(!is_overtaken(&mut database, txn, None));
    read(&mut database, txn, 1);
    meanwhile(&mut database, 3);
    assert!(is_overtaken(&mut database, txn, None));
}

#[test]
fn who_could_still_commit_hears_nothing() {
    let mut database = Database::default();
    let txns = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
    let [_, written, reader] = txns.map(|isolation| begin(&mut database, isolation));
    read(&mut database, written, 1);
    write(&mut database, written, 2);
    read(&mut database, reader, 1);
    meanwhile(&mut database, 1);
    assert!(!is_overtaken(&mut database, reader, None), "it only read");
    assert!(!is_overtaken(&mut database, written, None), "its reads are not validated");
    let first = database.savepoint(reader).expect("it lives");
    write(&mut database, reader, 3);
    assert!(!is_overtaken(&mut database, reader, Some(first)), "it can take its writes back");
    database.roll_back_to(reader, first).expect("it is there");
    assert!(matches!(database.commit(reader), Ok(Commit::ReadOnly(_))));
}
