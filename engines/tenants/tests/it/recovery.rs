//! A tenant comes back from its log as it was, wherever the log ends.

use std::sync::Arc;

use object_store::path::Path;
use savanna_epoch::OwnerEpoch;
use savanna_journal::Lsn;
use savanna_tenants_store::{
    MemoryStore, Store,
    database::{ReplayError, Replaying, Step, Swept},
    flush::Flush,
    storage::Storage,
};

use crate::desk::{Desk, Paper, Seen};

const DUMP: [&str; 2] = ["SELECT * FROM t ORDER BY id", "SELECT * FROM u ORDER BY a, b"];

/// What is to be seen of a tenant.
type Dump = Vec<Vec<String>>;

fn dump(desk: &mut Desk) -> Dump {
    let client = desk.client();
    DUMP.iter().map(|text| desk.query(client, text)).collect()
}

/// A tenant with tables, indexes and rows, and what was to be seen after each of its commits.
fn lived() -> (Desk, Vec<(usize, Dump)>) {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int UNIQUE)", "CREATE TABLE u (a int, b text)"]);
    let mut seen = Vec::new();
    for at in 0..30 {
        let texts = match at % 5 {
            0 | 1 => vec![format!("INSERT INTO t VALUES ({at}, {})", at * 2)],
            2 => vec![
                "BEGIN".to_owned(),
                "UPDATE t SET n = -n".to_owned(),
                format!("INSERT INTO u VALUES ({at})"),
                "COMMIT".to_owned(),
            ],
            3 => vec![format!("DELETE FROM t WHERE id = {}", at - 3), format!("INSERT INTO u VALUES ({at}, 'x')")],
            _ => vec![format!("ALTER TABLE u ADD COLUMN c{at} int DEFAULT {at}")],
        };
        for text in texts {
            desk.setup(client, &[&text]);
        }
        seen.push((desk.paper.records().0.len(), dump(&mut desk)));
    }
    (desk, seen)
}

#[test]
fn a_tenant_comes_back_as_it_was_after_any_commit() {
    let (desk, seen) = lived();
    let (records, _) = desk.paper.records();
    for (length, expected) in seen {
        assert_eq!(dump(&mut Desk::after(&records[..length])), expected, "after {length} records");
    }
}

/// What comes of a log with these records.
fn replay(store: Box<dyn Store>, records: &[Vec<u8>]) -> Result<(), ReplayError> {
    let mut replaying = Replaying::over(store);
    for (at, record) in records.iter().enumerate() {
        replaying.redo(Lsn(at as u64 + 1), record)?;
    }
    replaying.serve(Box::new(Paper::default())).map(drop)
}

#[test]
fn a_commit_that_is_missing_in_the_log_is_missed() {
    let (desk, _) = lived();
    let (records, _) = desk.paper.records();
    for missing in 0..records.len() - 1 {
        let rest = [&records[..missing], &records[missing + 1..]].concat();
        let replayed = replay(Box::new(MemoryStore::default()), &rest);
        assert!(matches!(replayed, Err(ReplayError::Missing { .. })), "without {missing}: {replayed:?}");
    }
}

#[test]
fn a_log_that_ends_before_what_the_storage_has_is_missed() {
    let mut desk = Desk::stored(1 << 20);
    let client = desk.client();
    desk.setup(
        client,
        &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"],
    );
    desk.paper.flush();
    desk.flush();
    let (records, _) = desk.paper.records();
    let replay = |records: &[Vec<u8>]| replay(desk.storage().home.store(), records);
    assert_eq!(replay(&records), Ok(()));
    assert_eq!(replay(&[]), Ok(()), "all of it is in the storage");
    let behind = replay(&records[..records.len() - 1]);
    assert!(matches!(behind, Err(ReplayError::LogBehind { .. })), "{behind:?}");
}

#[test]
fn a_log_that_is_redone_twice_is_redone_once() {
    let (desk, seen) = lived();
    let (records, _) = desk.paper.records();
    let twice = [&records[..], &records[records.len() / 2..], &records[..]].concat();
    assert_eq!(Some(dump(&mut Desk::after(&twice))), seen.last().map(|(_, dump)| dump.clone()));
}

#[test]
fn a_tenant_goes_on_where_it_ended() {
    let (desk, _) = lived();
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    // New numbers of rows and tables are new, and old constraints hold.
    again.setup(client, &["INSERT INTO u (a) VALUES (1000)", "CREATE TABLE w (id int PRIMARY KEY)"]);
    again.setup(client, &["INSERT INTO w VALUES (1)", "ALTER TABLE w ADD COLUMN x int"]);
    assert_eq!(again.query(client, "SELECT count(*) FROM u"), ["13"]);
    assert_eq!(again.query(client, "SELECT * FROM w"), ["1|"]);
    let (more, _) = again.paper.records();
    let mut third = Desk::after(&[records, more].concat());
    let client = third.client();
    assert_eq!(third.query(client, "SELECT count(*) FROM u"), ["13"]);
    assert_eq!(third.query(client, "SELECT * FROM w"), ["1|"]);
}

#[test]
fn a_number_of_a_sequence_is_not_given_again() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id serial PRIMARY KEY)"]);
    assert_eq!(desk.query(client, "INSERT INTO t DEFAULT VALUES RETURNING id"), ["1"]);
    let mut again = Desk::after(&desk.paper.records().0);
    let client = again.client();
    assert_eq!(again.query(client, "INSERT INTO t DEFAULT VALUES RETURNING id"), ["33"], "32 were reserved");
}

#[test]
fn a_number_with_keys_that_are_still_to_be_removed_is_not_given_again() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "DROP TABLE t"]);
    let mut again = Desk::after(&desk.paper.records().0);
    let client = again.client();
    again.setup(client, &["CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (2)"]);
    again.sweep(10);
    assert_eq!(again.query(client, "SELECT id FROM u"), ["2"]);
}

#[test]
fn what_no_table_has_any_more_is_removed() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX ON t (n)"]);
    for id in 0..50 {
        desk.setup(client, &[&format!("INSERT INTO t VALUES ({id}, {id})")]);
    }
    desk.setup(client, &["TRUNCATE t", "INSERT INTO t VALUES (1, 1)"]);
    desk.paper.flush();
    assert!(desk.sweep(20) >= 4, "100 keys in steps of 20");
    desk.paper.flush();
    desk.flush();
    assert_eq!(desk.query(client, "SELECT * FROM t"), ["1|1"]);
    assert_eq!(keys(&mut desk), 6, "a row, its entry, a table, and three names");
}

#[test]
fn what_is_given_up_while_something_else_is_removed_goes_as_well() {
    let mut desk = Desk::new();
    let client = desk.client();
    let empty = keys(&mut desk);
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)"]);
    for table in ["t", "u"] {
        desk.setup(client, &[&format!("INSERT INTO {table} SELECT * FROM generate_series(1, 100)")]);
    }
    desk.setup(client, &["DROP TABLE u"]);
    assert_eq!(desk.tenant.database().sweep(30), Ok(Swept::More));
    desk.setup(client, &["DROP TABLE t"]);
    assert!(desk.sweep(30) >= 5, "170 keys in steps of 30");
    assert_eq!(keys(&mut desk), empty);
}

#[test]
fn what_a_former_owner_wrote_down_late_is_taken_over() {
    let objects: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let storage = |epoch| (Storage::new(Arc::clone(&objects), Path::default(), 1 << 20), OwnerEpoch(epoch));
    let mut former = Desk::of(storage(1), 1, &[]);
    let client = former.client();
    former.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1), (2, 2)"]);
    former.paper.flush();
    former.flush();
    former.setup(client, &["UPDATE t SET n = 10 WHERE id = 1", "DELETE FROM t WHERE id = 2"]);
    former.paper.flush();
    let mut owner = Desk::of(storage(2), 1, &former.paper.records().0);
    former.flush();
    let client = owner.client();
    owner.setup(client, &["INSERT INTO t VALUES (3, 3)"]);
    owner.paper.flush();
    owner.flush();
    assert_eq!(owner.query(client, "SELECT id, n FROM t ORDER BY id"), ["1|10", "3|3"]);
    let mut again = Desk::of(storage(3), 1, &[]);
    let client = again.client();
    assert_eq!(again.query(client, "SELECT id, n FROM t ORDER BY id"), ["1|10", "3|3"]);
}

/// Flushes what is durable; whether the storage takes it.
fn is_taken(desk: &mut Desk) -> bool {
    desk.paper.flush();
    loop {
        match desk.tenant.database().flush(100).expect("a log that takes records") {
            Flush::Clean | Flush::Done => return true,
            Flush::Sealed if desk.storage().runtime.block_on(desk.storage().home.save()).is_err() => return false,
            _ => {}
        }
    }
}

#[test]
fn a_former_owner_writes_nothing_once_the_next_one_has_taken_over() {
    // With an epoch that nobody is above, as if the manifest let everybody through, it does harm.
    for (epoch, expected) in [(1, ["1|1", "2|2"].as_slice()), (9, &["1|1", "2|0", "3|3"])] {
        let objects: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        let storage = |epoch| (Storage::new(Arc::clone(&objects), Path::default(), 1 << 20), OwnerEpoch(epoch));
        let mut former = Desk::of(storage(epoch), 1, &[]);
        let stale = former.client();
        former.setup(stale, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)"]);
        let mut owner = Desk::of(storage(2), 1, &former.paper.records().0);
        let client = owner.client();
        owner.setup(client, &["INSERT INTO t VALUES (2, 2)"]);
        assert!(is_taken(&mut owner));
        former.setup(stale, &["INSERT INTO t VALUES (2, 0)", "INSERT INTO t VALUES (3, 3)"]);
        assert_eq!(is_taken(&mut former), epoch == 9);
        let mut again = Desk::of(storage(10), 1, &[]);
        let client = again.client();
        assert_eq!(again.query(client, "SELECT id, n FROM t ORDER BY id"), expected, "{epoch}");
    }
}

#[test]
fn numbers_that_a_former_owner_gave_up_do_not_count_as_flushed() {
    let objects: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let storage = |epoch| (Storage::new(Arc::clone(&objects), Path::default(), 1 << 20), OwnerEpoch(epoch));
    let mut former = Desk::of(storage(1), 1, &[]);
    let (a, b) = (former.client(), former.client());
    former.setup(a, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)"]);
    former.setup(a, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "UPDATE t SET n = 2"]);
    former.setup(b, &["UPDATE t SET n = 3"]);
    // Its number is that of the next owner's first commit.
    assert_eq!(former.run(a, "COMMIT"), Seen::Failed("40001"));
    former.paper.flush();
    let mut records = former.paper.records().0;
    let mut owner = Desk::of(storage(2), 1, &records);
    let client = owner.client();
    owner.setup(client, &["INSERT INTO t VALUES (4, 4)"]);
    owner.paper.flush();
    former.flush();
    records.extend(owner.paper.records().0);
    let mut again = Desk::of(storage(3), 1, &records);
    let client = again.client();
    assert_eq!(again.query(client, "SELECT id, n FROM t ORDER BY id"), ["1|3", "4|4"]);
}

/// How many keys there are.
fn keys(desk: &mut Desk) -> usize {
    desk.paper.flush();
    let reader = desk.tenant.database().begin(savanna_transaction::Isolation::Snapshot);
    desk.tenant.database().statement(reader).expect("it lives");
    let mut keys = 0;
    let all = savanna_transaction::KeyRange::ALL;
    let visit = &mut |_: &[u8], _: &[u8]| {
        keys += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    };
    desk.tenant.database().scan(reader, &all, savanna_transaction::Direction::Ascending, visit).expect("it lives");
    assert_eq!(desk.tenant.database().commit(reader), Ok(Step::Done(Lsn::NONE)));
    keys
}
