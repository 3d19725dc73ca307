//! What a store says of the blocks that its keys are in.

use std::collections::BTreeSet;

use savanna_tenants_store::{MemoryStore, Reading, Store, Want};
use savanna_transaction::{Direction, KeyRange};

use crate::desk::Desk;

/// A table of some dozens of blocks, none of them in memory.
fn cold() -> Desk {
    let mut desk = Desk::stored(0);
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, s text)"]);
    desk.setup(client, &["INSERT INTO t SELECT g, repeat('x', 2000) FROM generate_series(1, 200) g"]);
    desk.paper.flush();
    desk.flush();
    desk
}

/// All keys of a store.
fn keys(desk: &Desk, store: &dyn Store) -> Vec<Vec<u8>> {
    let mut reading = Reading::default();
    loop {
        let mut keys = Vec::new();
        let mut rows = store.scan(&KeyRange { start: Vec::new(), end: None }, Direction::Ascending, &mut reading);
        while matches!(rows.step(), Ok(true)) {
            keys.push(rows.key().to_vec());
        }
        drop(rows);
        let Some(want) = reading.wanted() else { return keys };
        let blocks = desk.storage().runtime.block_on(desk.storage().home.fetch(&want)).expect("what was written");
        reading.arrived(&blocks).expect("a few");
    }
}

#[test]
fn the_page_of_a_key_is_the_block_that_is_waited_for_to_read_it() {
    let desk = cold();
    let store = desk.storage().home.store();
    let keys = keys(&desk, &*store);
    let mut pages = BTreeSet::new();
    for key in &keys {
        let page = store.page_of(key).expect("a block");
        let mut reading = Reading::default();
        assert!(store.get(key, &mut reading).is_err(), "it is not in memory");
        assert_eq!(reading.wanted(), Some(Want { segment: page.segment, blocks: page.block..page.block + 1 }));
        pages.insert(page);
    }
    assert!(keys.len() > 200 && pages.len() > 40, "{} keys in {} pages", keys.len(), pages.len());
    assert_eq!(MemoryStore::default().page_of(&keys[0]), None, "it has no blocks");
}

#[test]
fn no_write_changes_blocks_that_are_there() {
    let mut desk = cold();
    let mut store = desk.storage().home.store();
    let before = keys(&desk, &*store);
    assert!(!store.may_change_structure(&mut before.iter().map(Vec::as_slice)));
    let pages: Vec<_> = before.iter().map(|key| store.page_of(key)).collect();
    let client = desk.client();
    desk.setup(client, &["UPDATE t SET s = repeat('y', 4000)"]);
    store.apply(store.flushed(), &mut before.iter().map(|key| (key.as_slice(), None)));
    assert_eq!(before.iter().map(|key| store.page_of(key)).collect::<Vec<_>>(), pages);
}
