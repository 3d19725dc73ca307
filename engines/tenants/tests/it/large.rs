//! Transactions that write more than a record of the log is to have: their writes are in parts beside the segments.

use std::{collections::BTreeSet, sync::Arc};

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, memory::InMemory, path::Path};
use proptest::prelude::*;
use savanna_epoch::OwnerEpoch;
use savanna_journal::Lsn;
use savanna_tenants::Status;
use savanna_tenants_sql::interrupt::Reason;
use savanna_tenants_store::{
    database::{Replaying, Step},
    flush::Flush,
    large::Limits,
    storage::{Home, Storage},
};
use savanna_tenants_values::{error::SqlError, memory::Pool};

use crate::desk::{Desk, Seen, done, rows};

/// Every transaction that writes does so in parts.
const ALWAYS: Limits = Limits { parts_from: 0, most: 4 << 20 };
const FILL: &str = "INSERT INTO t SELECT g, g * 7 % 100 FROM generate_series(1, 500) g";
const SUM: &str = "SELECT count(*), sum(id), sum(n) FROM t";

/// A tenant in a store that a test looks into.
struct Kept {
    store: Arc<InMemory>,
    desk: Desk,
}

impl Kept {
    fn new() -> Self {
        let store = Arc::new(InMemory::new());
        let desk = Self::owned(&store, 1, &[]);
        Self { store, desk }
    }

    fn owned(store: &Arc<InMemory>, epoch: u64, records: &[Vec<u8>]) -> Desk {
        let storage = Storage::new(Arc::clone(store) as _, Path::default(), 1 << 20);
        Desk::of((storage, OwnerEpoch(epoch)), 1, records).in_parts(ALWAYS)
    }

    /// The next owner, who finds these records.
    fn next(&self, epoch: u64, records: &[Vec<u8>]) -> Self {
        Self { store: Arc::clone(&self.store), desk: Self::owned(&self.store, epoch, records) }
    }

    /// The paths of the parts in the store.
    fn parts(&self) -> BTreeSet<Path> {
        let parts = self.store.list(Some(&Path::from("tenants/00000000000000000001/parts")));
        let parts = self.desk.storage().runtime.block_on(parts.try_collect::<Vec<_>>()).expect("memory");
        parts.into_iter().map(|part| part.location).collect()
    }

    fn remove_litter(&self) {
        let stored = self.desk.storage();
        stored.runtime.block_on(stored.home.remove_litter()).expect("memory");
        assert!(stored.home.litter().is_empty());
    }

    fn remove_old_parts(&mut self) {
        let needed = self.desk.tenant.database().needed_parts().map(str::to_owned).collect();
        let stored = self.desk.storage();
        stored.runtime.block_on(stored.home.remove_old_parts(&needed)).expect("memory");
    }

    fn records(&self) -> Vec<Vec<u8>> {
        self.desk.paper.records().0
    }
}

#[test]
fn a_large_transaction_is_one_small_record_and_comes_back() {
    let mut kept = Kept::new();
    let client = kept.desk.client();
    kept.desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX ON t (n)", FILL]);
    kept.desk.setup(client, &["UPDATE t SET n = n + 1 WHERE id % 2 = 0", "DELETE FROM t WHERE id > 400"]);
    let expected = kept.desk.query(client, SUM);
    let records = kept.records();
    assert!(records.iter().all(|record| record.len() < 300), "none has rows");
    let mut next = kept.next(2, &records);
    let client = next.desk.client();
    assert_eq!(next.desk.query(client, SUM), expected);
    assert_eq!(next.desk.query(client, "SELECT count(*) FROM t WHERE n BETWEEN 10 AND 20"), {
        let client = kept.desk.client();
        kept.desk.query(client, "SELECT count(*) FROM t WHERE n BETWEEN 10 AND 20")
    });
    // What it does comes behind that.
    next.desk.setup(client, &["INSERT INTO t VALUES (1000, 1)"]);
    let all = [records, next.records()].concat();
    let mut third = next.next(3, &all);
    let client = third.desk.client();
    assert_eq!(third.desk.query(client, "SELECT count(*), max(id) FROM t"), ["401|1000"]);
}

#[test]
fn parts_go_when_the_segments_have_their_commits() {
    let mut kept = Kept::new();
    let client = kept.desk.client();
    kept.desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", FILL]);
    let expected = kept.desk.query(client, SUM);
    let before = kept.parts();
    assert!(before.len() >= 2 && kept.desk.storage().home.litter().is_empty(), "{before:?}");
    kept.desk.paper.flush();
    kept.desk.flush();
    assert!(!kept.desk.storage().home.litter().is_empty());
    kept.remove_litter();
    assert_eq!(kept.parts(), BTreeSet::new());
    // The log has the records still.
    let records = kept.records();
    let mut next = kept.next(2, &records);
    let client = next.desk.client();
    assert_eq!(next.desk.query(client, SUM), expected);
}

#[test]
fn an_old_snapshot_sees_what_it_has_seen_and_keeps_the_parts() {
    let mut kept = Kept::new();
    let [client, other] = [kept.desk.client(), kept.desk.client()];
    kept.desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", FILL]);
    kept.desk.paper.flush();
    kept.desk.flush();
    kept.remove_litter();
    kept.desk.setup(other, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    let seen = kept.desk.query(other, SUM);
    kept.desk.setup(client, &["DELETE FROM t WHERE id <= 250"]);
    kept.desk.paper.flush();
    kept.desk.flush();
    assert_eq!(kept.desk.query(other, SUM), seen);
    assert_eq!(kept.parts().len(), 1, "the storage may not have it yet");
    assert!(kept.desk.storage().home.litter().is_empty());
    kept.desk.setup(other, &["COMMIT"]);
    kept.desk.flush();
    kept.remove_litter();
    assert_eq!(kept.parts(), BTreeSet::new());
    assert_eq!(kept.desk.query(other, "SELECT count(*) FROM t"), ["250"]);
}

/// Ends a transaction whose writes are in parts, and those are litter.
#[track_caller]
fn leaves_nothing(mut kept: Kept, end: impl FnOnce(&mut Desk)) {
    let before = kept.parts();
    end(&mut kept.desk);
    assert!(kept.parts().len() > before.len(), "they were written");
    kept.remove_litter();
    assert_eq!(kept.parts(), before);
    let client = kept.desk.client();
    assert_eq!(kept.desk.query(client, "SELECT count(*) FROM t"), ["0"]);
}

fn with_a_table() -> Kept {
    let mut kept = Kept::new();
    let client = kept.desk.client();
    kept.desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)"]);
    kept
}

#[test]
fn a_transaction_that_does_not_commit_leaves_no_part() {
    // Its client goes while they are written.
    leaves_nothing(with_a_table(), |desk| {
        let client = desk.client();
        desk.setup(client, &["BEGIN", FILL]);
        assert!(matches!(desk.tenant.run(client, "COMMIT"), Ok(Step::Wait)));
        let writes = desk.tenant.wants_parts();
        let parts = desk.write_parts(writes[0]).expect("a session that waits");
        desk.tenant.close_session(client);
        desk.tenant.written(writes[0], Ok(parts));
    });
    // It goes when they are there.
    leaves_nothing(with_a_table(), |desk| {
        let client = desk.client();
        desk.setup(client, &["BEGIN", FILL]);
        assert!(matches!(desk.tenant.run(client, "COMMIT"), Ok(Step::Wait)));
        assert!(desk.fetch());
        assert!(matches!(desk.tenant.run(client, "COMMIT"), Ok(Step::Wait)) && desk.tenant.gives_way(client));
        desk.tenant.close_session(client);
    });
    // It is cancelled.
    leaves_nothing(with_a_table(), |desk| {
        let client = desk.client();
        desk.setup(client, &["BEGIN", FILL]);
        assert!(matches!(desk.tenant.run(client, "COMMIT"), Ok(Step::Wait)));
        let writes = desk.tenant.wants_parts();
        let parts = desk.write_parts(writes[0]).expect("a session that waits");
        desk.tenant.interrupt(client, Reason::Cancelled);
        assert!(desk.tenant.woken().contains(&client));
        assert_eq!(desk.run(client, "COMMIT"), Seen::Failed("57014"));
        desk.tenant.written(writes[0], Ok(parts));
        desk.setup(client, &["ROLLBACK"]);
    });
    // A statement by itself is cancelled while its writes are written down.
    leaves_nothing(with_a_table(), |desk| {
        let client = desk.client();
        assert!(matches!(desk.tenant.run(client, FILL), Ok(Step::Done(_))));
        assert!(matches!(desk.tenant.finish(client), Ok(Step::Wait)));
        let writes = desk.tenant.wants_parts();
        let parts = desk.write_parts(writes[0]).expect("a session that waits");
        desk.tenant.interrupt(client, Reason::Cancelled);
        assert_eq!(desk.tenant.finish(client).unwrap_err().state, "57014");
        desk.tenant.written(writes[0], Ok(parts));
    });
}

#[test]
fn a_transaction_that_conflicts_when_its_parts_are_there_leaves_none() {
    let mut kept = with_a_table();
    let [one, two] = [kept.desk.client(), kept.desk.client()];
    let desk = &mut kept.desk;
    desk.setup(one, &["BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM t", FILL]);
    assert!(matches!(desk.tenant.run(one, "COMMIT"), Ok(Step::Wait)));
    assert!(desk.fetch());
    desk.setup(two, &["INSERT INTO t VALUES (1000, 1)"]);
    assert_eq!(desk.run(one, "COMMIT"), Seen::Failed("40001"));
    assert!(!desk.storage().home.litter().is_empty());
    desk.paper.flush();
    desk.flush();
    kept.remove_litter();
    assert_eq!(kept.parts(), BTreeSet::new());
    assert_eq!(kept.desk.query(two, "SELECT id FROM t"), ["1000"]);
}

#[test]
fn others_are_served_while_parts_are_written_and_see_all_or_nothing() {
    let mut kept = with_a_table();
    let [one, two] = [kept.desk.client(), kept.desk.client()];
    let desk = &mut kept.desk;
    desk.setup(one, &["BEGIN", FILL]);
    assert!(matches!(desk.tenant.run(one, "COMMIT"), Ok(Step::Wait)));
    assert!(!desk.tenant.waits_for_lock(one), "lock_timeout does not end it");
    let writes = desk.tenant.wants_parts();
    assert_eq!(desk.query(two, SUM), ["0||"]);
    desk.setup(two, &["INSERT INTO t VALUES (1000, 1)"]);
    assert_eq!(desk.run(two, "INSERT INTO t VALUES (1, 1)"), Seen::Waits);
    let parts = desk.write_parts(writes[0]);
    desk.tenant.written(writes[0], parts);
    assert_eq!(desk.run(one, "COMMIT"), done("COMMIT"));
    assert_eq!(desk.run(two, "INSERT INTO t VALUES (1, 1)"), Seen::Failed("23505"));
    assert_eq!(desk.run(two, "SELECT count(*), max(id) FROM t"), rows(&["501|1000"]));
}

#[test]
fn what_a_savepoint_took_back_is_in_no_part() {
    let mut kept = with_a_table();
    let client = kept.desk.client();
    kept.desk.setup(client, &["BEGIN", "INSERT INTO t VALUES (1, 1)", "SAVEPOINT s"]);
    assert_eq!(kept.desk.run(client, FILL), Seen::Failed("23505"));
    kept.desk.setup(
        client,
        &["ROLLBACK TO s", "INSERT INTO t VALUES (2, 2), (3, 3)", "ROLLBACK TO s", "UPDATE t SET n = 7"],
    );
    kept.desk.setup(client, &["COMMIT", "CREATE TEMP TABLE w (id int)", "INSERT INTO w VALUES (1)"]);
    let records = kept.records();
    let mut next = kept.next(2, &records);
    let client = next.desk.client();
    assert_eq!(next.desk.query(client, "SELECT * FROM t"), ["1|7"]);
}

#[test]
fn the_next_owner_removes_what_nobody_needs_and_nothing_else() {
    let mut kept = with_a_table();
    let client = kept.desk.client();
    kept.desk.setup(client, &["INSERT INTO t VALUES (1, 1)"]);
    let (needed, records) = (kept.parts(), kept.records());
    // It ends before its record is in the log.
    kept.desk.setup(client, &["INSERT INTO t VALUES (2, 2)"]);
    assert_eq!(kept.parts().len(), needed.len() + 1);
    let mut next = kept.next(2, &records);
    let client = next.desk.client();
    next.desk.setup(client, &["INSERT INTO t VALUES (3, 3)"]);
    let later = next.parts();
    next.remove_old_parts();
    let left: BTreeSet<_> = later.difference(&next.parts()).cloned().collect();
    assert_eq!(left.len(), 1, "that of a transaction which did not commit");
    assert!(needed.is_subset(&next.parts()) && left.is_disjoint(&needed));
    // A former owner that does not know yet that it was replaced removes nothing of its successor.
    let all = next.parts();
    kept.remove_old_parts();
    assert_eq!(next.parts(), all);
    let all = [records, next.records()].concat();
    let mut third = next.next(3, &all);
    let client = third.desk.client();
    assert_eq!(third.desk.query(client, "SELECT id FROM t ORDER BY id"), ["1", "3"]);
}

#[test]
fn parts_that_are_not_as_they_were_committed_are_missed() {
    let mut kept = with_a_table();
    let client = kept.desk.client();
    kept.desk.setup(client, &[FILL]);
    let (records, stored) = (kept.records(), kept.desk.storage());
    let wake = |records: &[Vec<u8>]| {
        let mut rows = Replaying::over(stored.home.store());
        let mut tail = (1..).map(Lsn).zip(records);
        tail.try_for_each(|(lsn, record)| stored.runtime.block_on(stored.home.redo(&mut rows, lsn, record)))
    };
    assert_eq!(wake(&records), Ok(()));
    // One key more than there are.
    let mut shorter = records.clone();
    shorter.last_mut().expect("a record")[20] += 1;
    let error = wake(&shorter).expect_err("a key is missing");
    assert!(error.message.contains("keys in the parts of commit"), "{error}");
    assert!(wake(&records[1..]).is_err(), "the commit before is missing");
    let place = kept.parts().into_iter().next_back().expect("a part");
    let content = stored.runtime.block_on(async { kept.store.get(&place).await?.bytes().await }).expect("memory");
    for cut in [0, 7, content.len() - 1] {
        let less = PutPayload::from(content.slice(..cut));
        stored.runtime.block_on(kept.store.put(&place, less)).expect("memory");
        assert!(wake(&records).is_err(), "{cut} bytes");
    }
    stored.runtime.block_on(kept.store.delete(&place)).expect("memory");
    assert!(wake(&records).is_err());
    stored.runtime.block_on(kept.store.put(&place, PutPayload::from(content))).expect("memory");
    assert_eq!(wake(&records), Ok(()));
}

#[test]
fn a_transaction_writes_no_more_than_it_may() {
    let mut kept = with_a_table();
    let client = kept.desk.client();
    let many = "INSERT INTO t SELECT g, g FROM generate_series(1, 200000) g";
    assert_eq!(kept.desk.run(client, many), Seen::Failed("54000"));
    kept.desk.setup(client, &["BEGIN"]);
    let part = |from: u32| format!("INSERT INTO t SELECT g, g FROM generate_series({from}, {}) g", from + 19_999);
    kept.desk.setup(client, &[&part(1), &part(100_001)]);
    let seen = (3..9).map(|at| kept.desk.run(client, &part(at * 100_000))).find(|seen| matches!(seen, Seen::Failed(_)));
    assert_eq!(seen, Some(Seen::Failed("54000")));
    kept.desk.setup(client, &["ROLLBACK"]);
    assert_eq!(kept.desk.query(client, "SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn what_a_large_transaction_writes_takes_memory_that_all_share() {
    let pool = Pool::new(8 << 20);
    let mut desk = Desk::stored(1 << 20).in_parts(Limits { parts_from: 16 << 20, most: 1 << 30 });
    desk.tenant = desk.tenant.sharing(Arc::clone(&pool));
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, s text)", "BEGIN"]);
    let insert = |id: u32| format!("INSERT INTO t VALUES ({id}, repeat('x', 1000000))");
    let mut seen = Vec::new();
    for id in 0..80 {
        seen.push(desk.run(client, &insert(id)));
        desk.tenant.told(client);
        if id == 40 {
            assert_eq!(pool.taken(), 0, "any transaction may have so much");
        }
    }
    let failed = seen.iter().position(|seen| *seen == Seen::Failed("53200"));
    assert!(failed.is_some_and(|at| (50..65).contains(&at)), "{failed:?}");
    assert_eq!(pool.taken(), 0, "its rows are gone before its client has rolled back");
    desk.setup(client, &["ROLLBACK", "BEGIN"]);
    for id in 0..49 {
        desk.setup(client, &[&insert(id)]);
        desk.tenant.told(client);
    }
    // What goes back to a savepoint gives it back, however often.
    desk.setup(client, &["SAVEPOINT s"]);
    for _ in 0..10 {
        desk.setup(client, &[&insert(50), &insert(51), &insert(52)]);
        desk.tenant.told(client);
        assert!(pool.taken() > 0);
        desk.setup(client, &["ROLLBACK TO s"]);
        desk.tenant.told(client);
        assert_eq!(pool.taken(), 0);
    }
}

#[test]
fn what_fits_into_a_record_is_committed_though_the_storage_does_not_take_it() {
    let mut kept = with_a_table();
    let client = kept.desk.client();
    kept.desk.setup(client, &["BEGIN", FILL]);
    assert!(matches!(kept.desk.tenant.run(client, "COMMIT"), Ok(Step::Wait)));
    let writes = kept.desk.tenant.wants_parts();
    kept.desk.tenant.written(writes[0], Err(SqlError::new("58030", "the store does not answer")));
    assert_eq!(kept.desk.run(client, "COMMIT"), done("COMMIT"));
    let records = kept.records();
    assert!(records.last().is_some_and(|record| record.len() > 5_000), "it has the rows");
    let mut next = kept.next(2, &records);
    let client = next.desk.client();
    assert_eq!(next.desk.query(client, "SELECT count(*) FROM t"), ["500"]);
}

#[test]
fn a_flush_of_much_makes_several_segments_with_the_same_commits() {
    let storage = Storage::new(Arc::new(InMemory::new()), Path::default(), 1 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let home = runtime.block_on(Home::open(&storage, 1, OwnerEpoch(1))).expect("memory");
    let mut desk = Desk::over(Box::new((*home.store()).in_segments_of(2_000)), &[]);
    assert_eq!(desk.tenant.database().load(), Ok(None));
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX ON t (n)", FILL]);
    desk.paper.flush();
    loop {
        match desk.tenant.database().flush(7).expect("a log that takes records") {
            Flush::Sealed => runtime.block_on(home.save()).expect("memory"),
            Flush::Clean | Flush::Done => break,
            _ => {}
        }
    }
    let segments = home.live().len();
    assert!(segments > 5, "{segments}");
    // Who comes next reads them, and writes over them.
    let (mut plain, mut next) = (Desk::new(), Desk::of((storage, OwnerEpoch(2)), 1, &[]));
    let clients = (plain.client(), next.client());
    plain.setup(clients.0, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX ON t (n)", FILL]);
    for text in ["SELECT 1", "DELETE FROM t WHERE id % 3 = 0", "UPDATE t SET n = n + 1 WHERE id % 2 = 0"] {
        plain.setup(clients.0, &[text]);
        next.setup(clients.1, &[text]);
        for query in ["SELECT * FROM t ORDER BY id DESC", "SELECT id FROM t WHERE n BETWEEN 10 AND 50 ORDER BY id"] {
            assert_eq!(next.query(clients.1, query), plain.query(clients.0, query), "{text}");
        }
        next.paper.flush();
        next.flush();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn parts_flushes_and_new_owners_change_no_answer(
        statements in prop::collection::vec((0..8_u8, 0..8_i32, 0..8_i32, 0..6_u8), 1..60),
    ) {
        let (mut plain, mut kept, mut epoch) = (Desk::new(), Kept::new(), 1);
        let tables = ["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX ON t (n)"];
        let mut clients = (plain.client(), kept.desk.client());
        plain.setup(clients.0, &tables);
        kept.desk.setup(clients.1, &tables);
        let mut records = Vec::new();
        for (kind, a, b, then) in statements {
            let text = match kind {
                0 | 1 => format!("INSERT INTO t VALUES ({a}, {b}) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n"),
                2 => format!("DELETE FROM t WHERE id = {a}"),
                3 => format!("UPDATE t SET n = {b} WHERE n >= {a}"),
                4 => format!("SELECT * FROM t WHERE n = {b} ORDER BY id"),
                5 => "BEGIN".to_owned(),
                6 => if a < 4 { "COMMIT" } else { "ROLLBACK" }.to_owned(),
                _ => format!("SELECT * FROM t WHERE id > {a} ORDER BY id DESC LIMIT {b}"),
            };
            let answers = (plain.run(clients.0, &text), kept.desk.run(clients.1, &text));
            prop_assert_eq!(&answers.0, &answers.1, "{}", text);
            match then {
                0 => {
                    kept.desk.paper.flush();
                    kept.desk.flush();
                    kept.remove_litter();
                }
                1 if kept.desk.tenant.status(clients.1) == Status::Idle => {
                    records.extend(kept.records());
                    epoch += 1;
                    kept = kept.next(epoch, &records);
                    kept.remove_old_parts();
                    clients.1 = kept.desk.client();
                }
                _ => {}
            }
        }
    }
}
