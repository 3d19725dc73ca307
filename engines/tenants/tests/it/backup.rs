//! A tenant at one commit stays as it is, is written into an archive, and comes back from it as a tenant of its own.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use savanna_epoch::OwnerEpoch;
use savanna_tenants_store::storage::{Archive, StorageError};

use crate::desk::{Desk, Stored};

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

/// Goes on with life; each flush makes a segment, so that older ones are merged into others.
fn live_on(desk: &mut Desk) {
    let client = desk.client();
    for id in 0..6 {
        let delete = format!("DELETE FROM t WHERE id % 7 = {id}");
        desk.setup(client, &[&delete, "INSERT INTO t VALUES (1000, '') ON CONFLICT DO NOTHING"]);
        desk.paper.flush();
        desk.flush();
    }
}

fn bytes(stored: &Stored, archive: Archive) -> Vec<u8> {
    let pieces: Vec<Bytes> = stored.runtime.block_on(archive.stream().try_collect()).expect("memory");
    pieces.concat()
}

/// An archive as a client sends it: in pieces that have nothing to do with its parts.
fn restore(stored: &Stored, tenant: u64, archive: &[u8]) -> Result<u64, StorageError> {
    let pieces: Vec<io::Result<Bytes>> = archive.chunks(1_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let restored = stored.storage.restore(tenant, futures::stream::iter(pieces).boxed());
    stored.runtime.block_on(restored).map(|csn| csn.0)
}

#[test]
fn a_snapshot_stays_as_it_is_however_the_tenant_goes_on() {
    let mut desk = lived();
    let stored = desk.storage();
    let snapshot = stored.runtime.block_on(stored.storage.snapshot(1, KEEP)).expect("it was flushed");
    let before: Vec<_> = snapshot.blocks().collect();
    assert!(before.len() > 2 && before.is_sorted_by_key(|block| block.first_key.clone()), "{before:?}");
    live_on(&mut desk);
    assert_eq!(snapshot.blocks().collect::<Vec<_>>(), before);
    desk.storage().runtime.block_on(snapshot.release()).expect("memory");
}

#[test]
fn a_backup_is_the_tenant_as_it_was_though_it_goes_on_meanwhile() {
    let mut desk = lived();
    let stored = desk.storage();
    let archive = stored.runtime.block_on(stored.storage.archive(1)).expect("memory");
    let (csn, length) = (archive.csn(), archive.bytes());
    live_on(&mut desk);
    let stored = desk.storage();
    let archive = bytes(stored, archive);
    assert_eq!(archive.len() as u64, length);

    assert_eq!(restore(stored, 2, &archive).expect("it is whole"), csn.0);
    assert!(matches!(restore(stored, 2, &archive), Err(StorageError::Occupied(_))));
    let mut copy = Desk::of((Arc::clone(&stored.storage), OwnerEpoch(1)), 2, &[]);
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
fn what_was_cut_short_or_damaged_is_not_taken_for_a_backup() {
    let desk = lived();
    let stored = desk.storage();
    let archive = stored.runtime.block_on(stored.storage.archive(1)).expect("memory");
    let archive = bytes(stored, archive);
    let is_refused = |archive: &[u8], tenant: u64| {
        let refused = restore(stored, tenant, archive);
        assert!(matches!(refused, Err(StorageError::Archive(_))), "{refused:?}");
        let snapshot = stored.runtime.block_on(stored.storage.snapshot(tenant, KEEP));
        assert!(!matches!(&snapshot, Ok(snapshot) if snapshot.blocks().count() > 0), "nothing of it counts");
    };
    for (at, length) in (0..archive.len()).step_by(997).chain([archive.len() - 1]).enumerate() {
        is_refused(&archive[..length], 100 + at as u64);
    }
    for at in (0..archive.len()).step_by(499).chain(0..60) {
        let mut damaged = archive.clone();
        damaged[at] ^= 0x10;
        is_refused(&damaged, 10_000 + at as u64);
    }
    is_refused(&[&archive[..], b"more"].concat(), 99);
    // It does: the whole one is taken.
    restore(stored, 98, &archive).expect("it is whole");
}

#[test]
fn a_sender_that_stops_leaves_nothing_that_counts() {
    let desk = lived();
    let stored = desk.storage();
    let archive = stored.runtime.block_on(stored.storage.archive(1)).expect("memory");
    let archive = Bytes::from(bytes(stored, archive));
    let pieces = [Ok(archive.slice(..archive.len() / 2)), Err(io::Error::other("the line is cut"))];
    let restored = stored.runtime.block_on(stored.storage.restore(2, futures::stream::iter(pieces).boxed()));
    assert!(matches!(restored, Err(StorageError::Sender(_))), "{restored:?}");
}

#[test]
fn a_tenant_that_was_never_flushed_has_no_snapshot_and_an_empty_backup() {
    let desk = Desk::stored(1 << 20);
    let stored = desk.storage();
    let snapshot = stored.runtime.block_on(stored.storage.snapshot(1, KEEP));
    assert!(matches!(snapshot, Err(StorageError::Manifest(_))), "{snapshot:?}");
    let archive = stored.runtime.block_on(stored.storage.archive(1)).expect("memory");
    let archive = bytes(stored, archive);
    assert_eq!(restore(stored, 2, &archive).expect("it is whole"), 0);
}
