//! Views show what a statement saw, whatever is written later.

use savanna_transaction::{
    Change, Direction, Fault, Isolation, KeyRange, RowLock, TransactionError, Transactions, TxnId, View, Wait,
};

type Database = Transactions<i64>;

fn begin(database: &mut Database, isolation: Isolation) -> TxnId {
    let txn = database.begin(isolation);
    database.statement(txn).expect("it was begun");
    txn
}

fn write(database: &mut Database, txn: TxnId, key: u8, value: Option<i64>) {
    database.lock(txn, &[key], RowLock::Update, Wait::Queue).expect("free");
    database.write(txn, &[key], value, Change::Existence).expect("locked");
}

fn commit(database: &mut Database, writes: &[(u8, Option<i64>)]) {
    let txn = begin(database, Isolation::ReadCommitted);
    for (key, value) in writes {
        write(database, txn, *key, *value);
    }
    let savanna_transaction::Commit::Committed(committed) = database.commit(txn).expect("alone") else {
        panic!("it wrote")
    };
    database.install(committed);
}

/// What is seen: by key, and by scans both ways, which must agree.
fn sees(database: &mut Database, txn: TxnId) -> Vec<(u8, i64)> {
    let by_key: Vec<(u8, i64)> =
        (0..10).filter_map(|key| Some((key, *database.get(txn, &[key]).expect("it lives").value()?))).collect();
    for direction in [Direction::Ascending, Direction::Descending] {
        let scan = database.scan(txn, &KeyRange::ALL, direction).expect("it lives");
        let mut rows: Vec<(u8, i64)> = scan.filter_map(|(key, seen)| Some((key[0], *seen.value()?))).collect();
        rows.sort_unstable();
        assert_eq!(rows, by_key);
    }
    by_key
}

fn viewed(database: &mut Database, txn: TxnId, view: View) -> Vec<(u8, i64)> {
    database.statement_in(txn, view).expect("it is kept");
    let seen = sees(database, txn);
    database.end_statement(txn).expect("it lives");
    seen
}

/// What a view shows before and after others and its own transaction wrote.
fn before_and_after(mut database: Database, isolation: Isolation) -> [Vec<(u8, i64)>; 2] {
    commit(&mut database, &[(1, Some(10)), (2, Some(20)), (3, Some(30))]);
    let txn = begin(&mut database, isolation);
    write(&mut database, txn, 1, Some(11));
    write(&mut database, txn, 4, Some(40));
    database.statement(txn).expect("it lives");
    let view = database.keep_view(txn).expect("it has a snapshot");
    database.end_statement(txn).expect("it lives");
    let before = viewed(&mut database, txn, view);
    commit(&mut database, &[(3, None), (5, Some(50))]);
    for _ in 0..2 {
        database.statement(txn).expect("it lives");
        write(&mut database, txn, 1, Some(12));
        write(&mut database, txn, 2, None);
        write(&mut database, txn, 4, None);
        write(&mut database, txn, 6, Some(60));
        database.savepoint(txn).expect("it lives");
    }
    let after = viewed(&mut database, txn, view);
    let now = database.statement(txn).map(|_| sees(&mut database, txn)).expect("it lives");
    assert_ne!(now, after, "a statement of now sees more");
    [before, after]
}

#[test]
fn a_view_shows_what_its_statement_saw() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let [before, after] = before_and_after(Database::default(), isolation);
        assert_eq!(before, [(1, 11), (2, 20), (3, 30), (4, 40)], "{isolation:?}");
        assert_eq!(before, after, "{isolation:?}");
    }
}

#[test]
fn a_view_that_showed_later_writes_would_be_noticed() {
    let found = std::panic::catch_unwind(|| {
        let [before, after] =
            before_and_after(Transactions::broken(Fault::ViewsShowLaterWrites), Isolation::ReadCommitted);
        before == after
    });
    assert!(!found.unwrap_or(false));
}

#[test]
fn a_view_holds_its_snapshot_until_it_is_given_up() {
    let mut database = Database::default();
    commit(&mut database, &[(1, Some(1))]);
    let txn = begin(&mut database, Isolation::ReadCommitted);
    let views = [(); 2].map(|()| database.keep_view(txn).expect("it has a snapshot"));
    database.end_statement(txn).expect("it lives");
    let held = database.horizon();
    commit(&mut database, &[(1, Some(2))]);
    assert_eq!(database.horizon(), held);
    database.drop_view(txn, views[0]);
    assert_eq!(database.horizon(), held, "the other one");
    database.drop_view(txn, views[1]);
    assert!(database.horizon() > held);
    assert_eq!(database.statement_in(txn, views[1]), Err(TransactionError::NoSnapshot(txn)));
    database.statement(txn).expect("it lives");
    database.keep_view(txn).expect("it has a snapshot");
    let held = database.horizon();
    commit(&mut database, &[(1, Some(3))]);
    database.abort(txn);
    assert!(database.horizon() > held, "nothing outlives its transaction");
}
