//! The store in a directory after a power cut: what was acknowledged is there, because the operating system was asked to
//! flush it.

use std::fs::{self, File};
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use savanna_manifest::{LocalStore, Manifest, Options, OwnerEpoch, UnixMillis};
use savanna_power_cut::Power;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

async fn open(machine: &tempfile::TempDir, epoch: u64) -> Manifest {
    let store = Arc::new(LocalStore::open(&machine.path().join("node/store")).unwrap());
    Manifest::open(store, &Path::from("shards/1"), OwnerEpoch(epoch), Options::default(), NOW).await.unwrap()
}

#[tokio::test]
async fn every_commit_outlives_a_power_cut() {
    let machine = tempfile::tempdir().unwrap();
    let power = Power::of(machine.path()).unwrap();
    for epoch in 1..=2 {
        let owner = open(&machine, epoch).await;
        for round in 0..3 {
            let object = owner.put_object(format!("{epoch}.{round}").into()).await.unwrap();
            let told = owner.commit(NOW, |draft| drop(draft.insert("a", object.clone()))).await.unwrap();

            let left = tempfile::tempdir().unwrap();
            power.cut(left.path()).unwrap();
            let next = open(&left, 9).await;
            assert_eq!(next.current().entries, told.entries, "commit {epoch}.{round}");
            assert_eq!(next.read(&next.current().entries["a"]).await.unwrap(), format!("{epoch}.{round}"));
        }
    }
}

#[tokio::test]
async fn a_name_that_a_listing_has_shown_outlives_a_power_cut() {
    let machine = tempfile::tempdir().unwrap();
    let store = LocalStore::open(machine.path()).unwrap();
    store.put(&Path::from("versions/1"), "one".into()).await.unwrap();
    let power = Power::of(machine.path()).unwrap();
    // Another process is about to flush the directory.
    let name = machine.path().join("versions/2");
    fs::write(&name, "two").unwrap();
    File::open(&name).unwrap().sync_all().unwrap();

    let listed: Vec<_> = store.list(Some(&Path::from("versions"))).try_collect().await.unwrap();
    assert_eq!(listed.len(), 2);
    let left = tempfile::tempdir().unwrap();
    power.cut(left.path()).unwrap();
    assert_eq!(fs::read(left.path().join("versions/2")).unwrap(), b"two");
}
