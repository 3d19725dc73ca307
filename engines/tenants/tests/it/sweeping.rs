//! What is removed in the background is passed over once, however many steps that takes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use savanna_tenants_segments::PageId;
use savanna_tenants_store::{MemoryStore, Reading, Rows, Store};
use savanna_tenants_values::error::Result;
use savanna_transaction::{Csn, Direction, KeyRange};

use crate::desk::Desk;

/// A storage that counts the keys that are read one after the other.
#[derive(Debug)]
struct Counting {
    store: MemoryStore,
    steps: Arc<AtomicUsize>,
}

struct CountedRows<'a> {
    rows: Box<dyn Rows + 'a>,
    steps: &'a AtomicUsize,
}

impl Rows for CountedRows<'_> {
    fn step(&mut self) -> Result<bool> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.rows.step()
    }

    fn key(&self) -> &[u8] {
        self.rows.key()
    }

    fn value(&self) -> &[u8] {
        self.rows.value()
    }

    fn passed(&self) -> usize {
        self.rows.passed()
    }
}

impl Store for Counting {
    fn flushed(&self) -> Csn {
        self.store.flushed()
    }

    fn get(&self, key: &[u8], reading: &mut Reading) -> Result<Option<Bytes>> {
        self.store.get(key, reading)
    }

    fn scan<'a>(&'a self, range: &KeyRange, direction: Direction, reading: &'a mut Reading) -> Box<dyn Rows + 'a> {
        Box::new(CountedRows { rows: self.store.scan(range, direction, reading), steps: &self.steps })
    }

    fn apply(&mut self, csn: Csn, writes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
        self.store.apply(csn, writes);
    }

    fn seal(&mut self, csn: Csn) -> bool {
        self.store.seal(csn)
    }

    fn page_of(&self, key: &[u8]) -> Option<PageId> {
        self.store.page_of(key)
    }

    fn may_change_structure(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> bool {
        self.store.may_change_structure(keys)
    }
}

/// Keys that are read while so many rows of a dropped table are removed, ten at a time.
fn passed(rows: usize) -> usize {
    let steps = Arc::new(AtomicUsize::new(0));
    let mut desk = Desk::over(Box::new(Counting { store: MemoryStore::default(), steps: Arc::clone(&steps) }), &[]);
    assert_eq!(desk.tenant.database().load(), Ok(None), "memory has all blocks");
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)"]);
    desk.setup(client, &[&format!("INSERT INTO t SELECT g FROM generate_series(1, {rows}) g")]);
    desk.paper.flush();
    desk.flush();
    desk.setup(client, &["DROP TABLE t"]);
    steps.store(0, Ordering::Relaxed);
    assert!(desk.sweep(10) >= rows / 10);
    steps.load(Ordering::Relaxed)
}

#[test]
fn what_is_removed_is_passed_over_once() {
    let (few, many) = (passed(200), passed(800));
    assert!(few >= 200, "{few}");
    assert!(many <= 5 * few, "four times the rows: {few} keys, then {many}");
}
