//! A tenant at one commit stays as it is, is copied, and comes back from the copy as a tenant of its own.

use std::{sync::Arc, time::Duration};

use object_store::{memory::InMemory, path::Path};
use savanna_tenants::storage::StorageError;

use crate::desk::Desk;

const KEEP: Duration = Duration::from_secs(60);

fn lived() -> Desk {
    let mut desk = Desk::stored(1 << 20);
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, b text)", "CREATE INDEX ON t (b)"]);
    for id in 0..200 {
        desk.setup(client, &[&format!("INSERT INTO t VALUES ({id}, repeat('x', {id}))")]);
    }
    desk.paper.flush();
    desk.flush();
    desk
}

#[test]
fn a_copy_is_the_tenant_as_it_was_however_it_goes_on() {
    let mut desk = lived();
    let snapshot = {
        let stored = desk.storage();
        stored.runtime.block_on(stored.storage.snapshot(1, KEEP)).expect("it was flushed")
    };
    let client = desk.client();
    for id in 0..6 {
        // Each flush makes a segment, so that those of the snapshot are merged into others.
        desk.setup(
            client,
            &[&format!("DELETE FROM t WHERE id % 7 = {id}"), "INSERT INTO t VALUES (1000, '') ON CONFLICT DO NOTHING"],
        );
        desk.paper.flush();
        desk.flush();
    }
    let blocks: Vec<_> = snapshot.blocks().collect();
    assert!(blocks.len() > 2 && blocks.is_sorted_by_key(|block| block.first_key.clone()), "{blocks:?}");

    let elsewhere = Arc::new(InMemory::new());
    let stored = desk.storage();
    stored.runtime.block_on(snapshot.copy_to(Arc::clone(&elsewhere) as _, &Path::from("backup"))).expect("memory");
    let again = stored.runtime.block_on(snapshot.copy_to(Arc::clone(&elsewhere) as _, &Path::from("backup")));
    assert!(matches!(again, Err(StorageError::Occupied(_))), "{again:?}");
    let csn = snapshot.csn();
    stored.runtime.block_on(snapshot.release()).expect("memory");

    let restored = stored.runtime.block_on(stored.storage.restore(2, elsewhere, &Path::from("backup")));
    assert_eq!(restored.expect("the copy is whole"), csn);
    let mut copy = Desk::of(Arc::clone(&stored.storage), 2, &[]);
    let client = copy.client();
    assert_eq!(copy.query(client, "SELECT count(*), sum(id), sum(length(b)) FROM t"), ["200|19900|19900"]);
    assert_eq!(copy.query(client, "SELECT id FROM t WHERE b = repeat('x', 77)"), ["77"]);
    // It goes on by itself.
    copy.setup(client, &["INSERT INTO t VALUES (200, '')", "CREATE TABLE u (id int)"]);
    copy.paper.flush();
    copy.flush();
    assert_eq!(copy.query(client, "SELECT count(*) FROM t"), ["201"]);
    let client = desk.client();
    assert_eq!(desk.query(client, "SELECT count(*) FROM t WHERE id < 200 AND id % 7 < 6"), ["0"]);
}

#[test]
fn there_is_no_snapshot_of_what_was_never_flushed() {
    let desk = Desk::stored(1 << 20);
    let stored = desk.storage();
    let snapshot = stored.runtime.block_on(stored.storage.snapshot(1, KEEP));
    assert!(matches!(snapshot, Err(StorageError::Manifest(_))), "{snapshot:?}");
}
