//! What memory has all of is read there as if the storage were asked, too: two databases have the same history, and one asks the storage always.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use proptest::prelude::*;
use savanna_journal::{JournalError, Lsn};
use savanna_tenants_segments::{BlockCache, Segment, open_tail};
use savanna_tenants_values::error::Result;
use savanna_transaction::{Change, Direction, Isolation, KeyRange, TxnId};

use super::super::{Below, Database, Replaying, Step};
use crate::{SegmentStore, Segments, flush::Flush, log::Log, segments};

/// Transactions that live at once.
const SLOTS: usize = 3;

/// A log, and how many of its records are durable.
#[derive(Clone, Debug, Default)]
struct Paper(Arc<Mutex<(Vec<Vec<u8>>, u64)>>);

impl Log for Paper {
    fn append(&mut self, record: &[u8]) -> std::result::Result<Lsn, JournalError> {
        let mut paper = self.0.lock().unwrap();
        paper.0.push(record.to_vec());
        Ok(Lsn(paper.0.len() as u64))
    }

    fn durable(&self) -> Lsn {
        Lsn(self.0.lock().unwrap().1)
    }
}

/// A database over segments that are saved when a test says so.
struct Tenant {
    database: Database,
    paper: Paper,
    cache: Arc<BlockCache>,
    segments: Arc<Segments>,
    saved: u64,
    asks_always: bool,
    slots: [Option<TxnId>; SLOTS],
}

impl Tenant {
    fn new(asks_always: bool, cache_bytes: usize) -> Self {
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let segments = Arc::new(Segments::new(1, Arc::clone(&cache), Vec::new()));
        let paper = Paper::default();
        let database = open(&segments, &paper, asks_always);
        Self { database, paper, cache, segments, saved: 0, asks_always, slots: [None; SLOTS] }
    }

    /// The process ends, and another one opens the tenant.
    fn reopen(&mut self) {
        self.make_durable();
        self.segments = Arc::new(Segments::new(1, Arc::clone(&self.cache), self.segments.live().to_vec()));
        self.database = open(&self.segments, &self.paper, self.asks_always);
        self.slots = [None; SLOTS];
    }

    fn make_durable(&mut self) {
        let mut paper = self.paper.0.lock().unwrap();
        paper.1 = paper.0.len() as u64;
    }

    /// Takes so many steps of a flush.
    fn flush(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.database.flush(3).unwrap() {
                Flush::More => {}
                Flush::Sealed => self.save(),
                Flush::Clean | Flush::Done | Flush::Wait(_) => return,
            }
        }
    }

    fn save(&mut self) {
        let sealed = self.segments.sealed().unwrap();
        let saved = sealed.segments.iter().map(|bytes| {
            self.saved += 1;
            let segment = opened(self.saved, bytes);
            let blocks = 0..segment.blocks();
            let range = segment.range(blocks.clone());
            let cut = segment.cut(blocks.clone(), &bytes.slice(range.start as usize..range.end as usize)).unwrap();
            let blocks: Vec<_> = blocks.map(|block| segment.page(block)).zip(cut.into_iter().map(Arc::new)).collect();
            self.segments.keep(&blocks);
            segment
        });
        let saved = saved.collect();
        self.segments.publish(segments::Change::Saved(saved));
    }

    /// Does what happens, and says what came of it, and up to where the log has to be durable before anybody hears of it.
    fn does(&mut self, event: &Event) -> (String, Lsn) {
        match event {
            Event::Begin(slot, isolation) => {
                if let Some(before) = self.slots[*slot].replace(self.database.begin(*isolation)) {
                    self.database.abort(before);
                }
            }
            Event::Write(slot, key, value) => {
                if let Some(txn) = self.slots[*slot] {
                    self.database.statement(txn).unwrap();
                    let value = value.map(|value| vec![value; 40].into());
                    self.database.write(txn, key, value, Change::Existence).unwrap();
                }
            }
            Event::Get(slot, key) => {
                if let Some(txn) = self.slots[*slot] {
                    self.database.statement(txn).unwrap();
                    let found = self.database.get(txn, key).unwrap().map(|value| value[0]);
                    return (format!("{found:?}"), self.database.reply_after(txn).unwrap());
                }
            }
            Event::Scan(slot, range, direction, most) => {
                if let Some(txn) = self.slots[*slot] {
                    self.database.statement(txn).unwrap();
                    let rows = scan(&mut self.database, txn, range, (*direction, *most)).unwrap();
                    return (format!("{rows:?}"), self.database.reply_after(txn).unwrap());
                }
            }
            Event::Commit(slot) => {
                if let Some(txn) = self.slots[*slot].take() {
                    self.database.statement(txn).unwrap();
                    let committed = self.database.commit(txn);
                    assert_ne!(committed, Ok(Step::Wait), "nobody has locks");
                    return (format!("{committed:?}"), Lsn::NONE);
                }
            }
            Event::Durable => self.make_durable(),
            Event::Flush(steps) => self.flush(*steps),
            Event::Evict(from, keys) => {
                return (format!("{:?}", self.database.evict(from.clone(), *keys)), Lsn::NONE);
            }
            Event::Reopen => self.reopen(),
        }
        (String::new(), Lsn::NONE)
    }
}

fn open(segments: &Arc<Segments>, paper: &Paper, asks_always: bool) -> Database {
    let store = SegmentStore::new(Arc::clone(segments)).in_segments_of(300);
    let mut replaying = Replaying::over(Box::new(store));
    for (lsn, record) in (1..).map(Lsn).zip(&paper.0.lock().unwrap().0) {
        replaying.redo(lsn, record).unwrap();
    }
    let mut database = replaying.serve(Box::new(paper.clone())).unwrap();
    if asks_always {
        database.below = Below::everywhere();
    }
    database
}

fn opened(number: u64, bytes: &Bytes) -> Segment {
    open_tail(number, bytes.len() as u64, bytes).unwrap().unwrap()
}

/// The first rows of a range, by their keys and the first bytes of their values.
fn scan(
    database: &mut Database,
    txn: TxnId,
    range: &KeyRange,
    (direction, most): (Direction, usize),
) -> Result<Vec<(Vec<u8>, u8)>> {
    let mut rows = Vec::new();
    database.scan(txn, range, direction, &mut |key, value| {
        rows.push((key.to_vec(), value[0]));
        Ok(if rows.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(rows)
}

#[derive(Clone, Debug)]
enum Event {
    Begin(usize, Isolation),
    Write(usize, Vec<u8>, Option<u8>),
    Get(usize, Vec<u8>),
    Scan(usize, KeyRange, Direction, usize),
    Commit(usize),
    Durable,
    Flush(usize),
    Evict(Vec<u8>, usize),
    Reopen,
}

fn key_of(table: u8, row: u8) -> Vec<u8> {
    vec![0, 1, 0, table, row]
}

fn key(rows: u8) -> impl Strategy<Value = Vec<u8>> {
    (0_u8..3, 0..rows).prop_map(|(table, row)| key_of(table, row))
}

/// What happens to three tables of so many rows.
fn event(rows: u8) -> impl Strategy<Value = Event> {
    let direction = prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)];
    let range = (key(rows), prop::option::weighted(0.9, key(rows))).prop_map(|(start, end)| KeyRange { start, end });
    let isolation = prop_oneof![Just(Isolation::Snapshot), Just(Isolation::Serializable)];
    let value = prop::option::weighted(0.7, any::<u8>());
    prop_oneof![
        4 => (0..SLOTS, isolation).prop_map(|(slot, isolation)| Event::Begin(slot, isolation)),
        12 => (0..SLOTS, key(rows), value).prop_map(|(slot, key, value)| Event::Write(slot, key, value)),
        6 => (0..SLOTS, key(rows)).prop_map(|(slot, key)| Event::Get(slot, key)),
        12 => (0..SLOTS, range, direction, prop_oneof![1_usize..4, Just(usize::MAX)])
            .prop_map(|(slot, range, direction, most)| Event::Scan(slot, range, direction, most)),
        6 => (0..SLOTS).prop_map(Event::Commit),
        3 => Just(Event::Durable),
        6 => (1_usize..20).prop_map(Event::Flush),
        3 => (key(rows), 1_usize..6).prop_map(|(from, keys)| Event::Evict(from, keys)),
        1 => Just(Event::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_read_does_not_depend_on_whether_the_storage_is_asked(events in prop::collection::vec(event(8), 1..150)) {
        let (mut tenant, mut always) = (Tenant::new(false, 1 << 20), Tenant::new(true, 1 << 20));
        for (at, event) in events.iter().enumerate() {
            prop_assert_eq!(tenant.does(event).0, always.does(event).0, "{}: {:?}", at, event);
        }
    }

    // Of so few rows too few can go for a scan to remember that they have, which may make a later one wait for more than it has read.
    #[test]
    fn what_is_waited_for_does_not_either(events in prop::collection::vec(event(2), 1..150)) {
        let (mut tenant, mut always) = (Tenant::new(false, 1 << 20), Tenant::new(true, 1 << 20));
        for (at, event) in events.iter().enumerate() {
            prop_assert_eq!(tenant.does(event), always.does(event), "{}: {:?}", at, event);
        }
    }
}

#[test]
fn the_storage_is_asked_where_memory_lacks_rows() {
    // Whoever asks the storage waits for a block, as none of them is kept.
    let mut tenant = Tenant::new(false, 0);
    let writer = tenant.database.begin(Isolation::Snapshot);
    tenant.database.statement(writer).unwrap();
    for row in 0..100 {
        tenant.database.write(writer, &key_of(0, row), Some(vec![row; 40].into()), Change::Existence).unwrap();
    }
    assert!(matches!(tenant.database.commit(writer), Ok(Step::Done(_))));
    tenant.make_durable();
    tenant.flush(1_000);
    assert!(tenant.database.is_clean() && tenant.segments.live().len() > 3);
    // How many rows there are, if the storage is not asked, and whether it is asked for the first of them.
    let read = |tenant: &mut Tenant, rows: std::ops::Range<u8>| {
        let reader = tenant.database.begin(Isolation::Snapshot);
        tenant.database.statement(reader).unwrap();
        let range = KeyRange { start: key_of(0, rows.start), end: Some(key_of(0, rows.end)) };
        let first = tenant.database.get(reader, &range.start).is_err();
        let read = scan(&mut tenant.database, reader, &range, (Direction::Descending, usize::MAX));
        tenant.database.abort(reader);
        assert_eq!(tenant.database.reading().wanted().is_some(), first || read.is_err(), "{read:?}");
        (read.ok().map(|read| read.len()), first)
    };
    assert_eq!(read(&mut tenant, 0..100), (Some(100), false), "all of them are in memory");
    assert_eq!(read(&mut tenant, 100..101), (Some(0), false), "what is not there is not in the storage");
    assert_eq!(tenant.database.evict(key_of(0, 40), 10), Some(key_of(0, 50)));
    assert_eq!((read(&mut tenant, 0..40), read(&mut tenant, 50..100)), ((Some(40), false), (Some(50), false)));
    assert_eq!((read(&mut tenant, 39..41), read(&mut tenant, 49..51)), ((None, false), (None, true)));
    assert_eq!(tenant.database.evict(key_of(0, 40), 5), Some(key_of(0, 55)));
    assert_eq!((read(&mut tenant, 54..60), read(&mut tenant, 55..60)), ((None, true), (Some(5), false)));
    // Somebody else has written something down.
    let live = tenant.segments.live().to_vec();
    tenant.segments.publish(segments::Change::Reopened(live));
    assert_eq!(read(&mut tenant, 0..10), (None, false));
    tenant.reopen();
    assert_eq!(read(&mut tenant, 0..10), (None, true));
}
