//! Numbers, publication and durability, step by step: commits overtake each other on the way, and nobody can tell.

use savanna_transaction::{
    Change, Committed, Conflict, ConflictKind, Csn, Direction, Event, Fault, Isolation, KeyRange, Lock, Prepared,
    RowLock, Seen, Transactions, TxnId, Validation, Wait,
};

use Isolation::{ReadCommitted, Serializable, Snapshot};

fn begin(database: &mut Transactions<u32>, isolation: Isolation) -> TxnId {
    let txn = database.begin(isolation);
    database.statement(txn).expect("it was begun");
    txn
}

/// A numbered commit that writes a key without having read it.
fn writer(database: &mut Transactions<u32>, key: &[u8], value: u32) -> Validation<u32> {
    let txn = begin(database, Serializable);
    database.write(txn, key, Some(value), Change::Existence).expect("it runs");
    numbered(database, txn)
}

fn numbered(database: &mut Transactions<u32>, txn: TxnId) -> Validation<u32> {
    match database.prepare(txn) {
        Ok(Prepared::Numbered(validation)) => validation,
        other => panic!("expected a number, came {other:?}"),
    }
}

fn decided(database: &mut Transactions<u32>, validation: Validation<u32>) -> Committed<u32> {
    database.decide(validation.check()).expect("nothing is in its way")
}

/// What a transaction that begins now sees.
fn seen(database: &mut Transactions<u32>, key: &[u8]) -> Option<u32> {
    let txn = begin(database, Snapshot);
    let value = database.get(txn, key).expect("it runs").value().copied();
    database.abort(txn);
    value
}

/// Two commits, of which the second is installed and durable first. Says whether anybody could tell.
fn overtaking(database: &mut Transactions<u32>) -> Result<(), &'static str> {
    let first = writer(database, b"a", 1);
    let second = writer(database, b"b", 2);
    let (first_csn, second_csn) = (first.csn(), second.csn());
    assert!(first_csn < second_csn);
    let second = decided(database, second);
    let first = decided(database, first);
    database.install(second);
    if database.published() >= second_csn || seen(database, b"b").is_some() {
        return Err("the second is seen without the first");
    }
    database.durable(second_csn).expect("it was numbered");
    if database.told() >= second_csn {
        return Err("the second is told without the first");
    }
    database.install(first);
    assert_eq!((seen(database, b"a"), seen(database, b"b")), (Some(1), Some(2)));
    if database.told() >= first_csn {
        return Err("the first is told before it is durable");
    }
    assert_eq!(database.durable(first_csn), Ok(second_csn));
    Ok(())
}

#[test]
fn a_commit_is_seen_and_told_after_all_before_it() {
    assert_eq!(overtaking(&mut Transactions::default()), Ok(()));
    overtaking(&mut Transactions::broken(Fault::PublishedOutOfOrder)).expect_err("seen too early");
    overtaking(&mut Transactions::broken(Fault::ToldBeforeDurable)).expect_err("told too early");
}

#[test]
fn a_commit_that_is_given_up_holds_up_nobody() {
    let mut database = Transactions::default();
    let refused = writer(&mut database, b"a", 1);
    let second = writer(&mut database, b"b", 2);
    let csn = second.csn();
    let second = decided(&mut database, second);
    database.install(second);
    database.durable(csn).expect("it was numbered");
    assert_eq!(database.told(), Csn::NONE);
    let refused = decided(&mut database, refused);
    database.withdraw(refused);
    assert_eq!((database.told(), seen(&mut database, b"a"), seen(&mut database, b"b")), (csn, None, Some(2)));
}

#[test]
fn commits_that_validate_at_once_are_validated_against_each_other() {
    for (fault, caught) in [(None, true), (Some(Fault::UndecidedAreNotValidated), false)] {
        let mut database = fault.map_or_else(Transactions::default, Transactions::broken);
        let skewed: Vec<Validation<u32>> = [(b"a", b"b"), (b"b", b"a")]
            .map(|(read, write)| {
                let txn = begin(&mut database, Serializable);
                assert_eq!(database.get(txn, read), Ok(Seen::Below));
                (txn, write)
            })
            .map(|(txn, write)| {
                database.write(txn, write, Some(1), Change::Existence).expect("it runs");
                numbered(&mut database, txn)
            })
            .into();
        let csn = skewed[0].csn();
        // On two threads, and the later one is decided first.
        let threads = skewed.into_iter().map(|validation| std::thread::spawn(move || validation.check()));
        let outcomes: Vec<Option<Conflict>> = threads
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .map(|thread| thread.join().expect("a check does not panic"))
            .map(|checked| database.decide(checked).map(|committed| database.install(committed)).err())
            .collect();
        let conflict = Conflict { kind: ConflictKind::Read, with: csn };
        assert_eq!(outcomes, [caught.then_some(conflict), None], "{fault:?}: the first always gets through");
    }
}

#[test]
fn locks_last_until_what_was_written_can_be_seen() {
    let mut database = Transactions::default();
    let before = writer(&mut database, b"other", 9);
    let after = writer(&mut database, b"row", 1);
    let after = decided(&mut database, after);
    let reader = begin(&mut database, ReadCommitted);
    assert_eq!(database.lock(reader, b"row", RowLock::NoKeyUpdate, Wait::Queue), Ok(Lock::Waiting));
    database.install(after);
    assert_eq!(database.events().count(), 0, "installed, but behind one that is not");
    let before = decided(&mut database, before);
    database.install(before);
    assert_eq!(database.events().collect::<Vec<_>>(), [Event::Granted(reader)]);
    let granted = database.lock(reader, b"row", RowLock::NoKeyUpdate, Wait::Queue);
    assert_eq!(granted, Ok(Lock::Granted { changed: true }));
    assert_eq!(database.latest(reader, b"row"), Ok(Seen::Here(&1)));
}

#[test]
fn a_reply_waits_for_what_it_read_and_for_nothing_else() {
    let mut database = Transactions::default();
    let commit = |database: &mut Transactions<u32>, key: &[u8]| {
        let validation = writer(database, key, 1);
        let csn = validation.csn();
        let committed = decided(database, validation);
        database.install(committed);
        csn
    };
    let durable = commit(&mut database, b"durable");
    database.durable(durable).expect("it was numbered");
    let fresh = commit(&mut database, b"fresh");
    let reader = begin(&mut database, Snapshot);
    assert_eq!(database.get(reader, b"durable"), Ok(Seen::Here(&1)));
    assert_eq!(database.get(reader, b"absent"), Ok(Seen::Below));
    assert_eq!(database.reply_after(reader), Ok(Csn::NONE));
    let scanned = database.scan(reader, &KeyRange::prefix(b"f"), Direction::Ascending).expect("it runs").count();
    assert_eq!((scanned, database.reply_after(reader)), (1, Ok(fresh)));
    assert!(matches!(database.prepare(reader), Ok(Prepared::ReadOnly(after)) if after == fresh));
}

#[test]
fn a_range_is_read_from_both_ends_with_own_writes_over_it() {
    let mut database: Transactions<u32> = Transactions::default();
    for (key, value) in [(b"a", 1), (b"c", 3), (b"d", 4)] {
        let validation = writer(&mut database, key, value);
        let committed = decided(&mut database, validation);
        database.install(committed);
    }
    let txn = begin(&mut database, Snapshot);
    for (key, value) in [(b"b", Some(20)), (b"c", None), (b"d", Some(40))] {
        database.write(txn, key, value, Change::Existence).expect("it runs");
    }
    let mut read = |direction| {
        let scan = database.scan(txn, &KeyRange::ALL, direction).expect("it runs");
        scan.map(|(key, seen)| (key[0] as char, seen.value().copied())).collect::<Vec<_>>()
    };
    let ascending = vec![('a', Some(1)), ('b', Some(20)), ('c', None), ('d', Some(40))];
    assert_eq!(read(Direction::Ascending), ascending);
    assert_eq!(read(Direction::Descending), ascending.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn what_no_snapshot_needs_is_removed_and_what_was_flushed_is_read_from_below() {
    let mut database: Transactions<u32> = Transactions::default();
    let write = |database: &mut Transactions<u32>, value| {
        let validation = writer(database, b"row", value);
        let csn = validation.csn();
        let committed = decided(database, validation);
        database.install(committed);
        database.durable(csn).expect("it was numbered");
    };
    write(&mut database, 0);
    let old = begin(&mut database, Snapshot);
    for value in 1..=1000 {
        write(&mut database, value);
    }
    assert!(database.counts().versions < 10, "{:?}", database.counts());
    assert_eq!(database.get(old, b"row"), Ok(Seen::Here(&0)));
    let frozen = database.freeze();
    assert_eq!((frozen, database.evict(Csn(1001), &KeyRange::ALL, 10)), (Csn(1), None));
    assert_eq!(database.counts().keys, 1, "the old one would find something newer below");
    database.thaw(frozen);
    assert!(database.counts().recent_commits >= 1000, "the old one may still be validated");
    database.abort(old);
    let at = database.freeze();
    let flushed: Vec<_> = database.at(at, &KeyRange::ALL).map(|(key, seen, csn)| (key.to_vec(), seen, csn)).collect();
    assert_eq!(flushed, [(b"row".to_vec(), Seen::Here(&1000), Csn(1001))]);
    database.thaw(at);
    database.evict(at, &KeyRange::ALL, 10);
    let counts = database.counts();
    assert_eq!((counts.keys, counts.versions, counts.locked_rows, counts.transactions), (0, 0, 0, 0));
    write(&mut database, 1001);
    assert_eq!(database.counts().recent_commits, 0, "nobody is left to be validated against them");
}

#[test]
fn numbers_go_on_behind_what_was_replayed() {
    let mut database: Transactions<u32> = Transactions::recovered(Csn(10));
    for csn in [9, 12, 11, 12] {
        database.replay(Csn(csn), b"row", Some(csn as u32));
    }
    assert_eq!(seen(&mut database, b"row"), Some(12));
    assert_eq!(writer(&mut database, b"row", 13).csn(), Csn(13));
}
