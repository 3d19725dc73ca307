//! What a manifest does, over memory, a local directory and S3.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use savanna_manifest::{
    LocalStore, Manifest, ManifestError, Options, OwnerEpoch, Reader, RetryPolicy, UnixMillis, Version, WriterId,
};

use crate::layer::{Overwriting, store_of};
use crate::s3_server;

const START: UnixMillis = UnixMillis(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// A store and a prefix that no other test uses.
struct Place {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    fn new(store: Arc<dyn ObjectStore>, directory: Option<tempfile::TempDir>) -> Self {
        Self { store, prefix: Path::from(format!("suite/{}", WriterId::random())), _directory: directory }
    }

    async fn open(&self, epoch: u64) -> Result<Manifest, ManifestError> {
        Manifest::open(Arc::clone(&self.store), &self.prefix, OwnerEpoch(epoch), Options::default(), START).await
    }

    fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.store), &self.prefix, RetryPolicy::default(), WriterId::random())
    }

    async fn names(&self, folder: &str) -> BTreeSet<String> {
        let folder = self.prefix.clone().join(folder);
        let found: Vec<_> = self.store.list(Some(&folder)).try_collect().await.unwrap();
        found.into_iter().map(|meta| meta.location.filename().unwrap().to_owned()).collect()
    }

    async fn only_version(&self) -> Path {
        let names = self.names("manifest").await;
        self.prefix.clone().join("manifest").join(names.last().unwrap().as_str())
    }
}

/// Writes an object and makes `name` refer to it.
async fn publish(manifest: &Manifest, name: &str, content: &str) -> Result<Version, ManifestError> {
    let object = manifest.put_object(content.to_owned().into()).await?;
    let committed = manifest.commit(START, |draft| drop(draft.insert(name, object.clone()))).await?;
    Ok(committed.version)
}

macro_rules! over_all_stores {
    ($($behaviour:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(super::Place::new(std::sync::Arc::new(super::InMemory::new()), None)).await;
            })*
        }
        mod local {
            $(#[tokio::test]
            async fn $behaviour() {
                let directory = tempfile::tempdir().unwrap();
                let store = super::LocalStore::open(directory.path()).unwrap();
                super::$behaviour(super::Place::new(std::sync::Arc::new(store), Some(directory))).await;
            })*
        }
        mod s3 {
            $(#[tokio::test]
            async fn $behaviour() {
                if let Some(store) = super::s3_server::connect().await {
                    super::$behaviour(super::Place::new(store, None)).await;
                }
            })*
        }
    };
}

over_all_stores! {
    a_commit_is_seen_by_readers_and_by_the_next_owner
    an_owner_is_fenced_by_a_newer_one
    the_later_of_two_handles_of_one_epoch_is_the_owner
    an_older_epoch_cannot_open
    of_many_racing_owners_the_highest_epoch_commits
    a_switch_from_another_version_conflicts
    a_pinned_version_outlives_collections
    a_held_snapshot_outlives_collections
    leftovers_of_a_dead_owner_are_collected
    a_reader_without_a_manifest_is_told_so
    a_corrupt_object_is_named
    a_corrupt_version_stops_everything_that_would_trust_it
}

async fn a_commit_is_seen_by_readers_and_by_the_next_owner(place: Place) {
    let owner = place.open(1).await.unwrap();
    publish(&owner, "a", "one").await.unwrap();
    publish(&owner, "b", "two").await.unwrap();
    let version = owner.commit(START, |draft| drop(draft.remove("a"))).await.unwrap().version;

    let reader = place.reader();
    let seen = reader.current().await.unwrap();
    assert_eq!(seen.version, version);
    assert_eq!(seen.entries.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(reader.read(&seen.entries["b"]).await.unwrap(), "two");

    let next = place.open(2).await.unwrap().current();
    assert_eq!((next.version, &next.entries), (version.next(), &seen.entries));
}

async fn an_owner_is_fenced_by_a_newer_one(place: Place) {
    let old = place.open(1).await.unwrap();
    publish(&old, "a", "one").await.unwrap();
    let new = place.open(2).await.unwrap();
    for _ in 0..2 {
        let refused = publish(&old, "a", "stale").await.unwrap_err();
        assert!(
            matches!(refused, ManifestError::Fenced { ours: OwnerEpoch(1), theirs: OwnerEpoch(2), .. }),
            "{refused}"
        );
    }
    assert!(matches!(old.collect_garbage(START).await, Err(ManifestError::Fenced { .. })));
    assert_eq!(new.read(&new.current().entries["a"]).await.unwrap(), "one");
    publish(&new, "a", "two").await.unwrap();
}

async fn the_later_of_two_handles_of_one_epoch_is_the_owner(place: Place) {
    let first = place.open(1).await.unwrap();
    let second = place.open(1).await.unwrap();
    assert!(matches!(publish(&first, "a", "one").await, Err(ManifestError::Fenced { .. })));
    publish(&second, "a", "two").await.unwrap();
}

async fn an_older_epoch_cannot_open(place: Place) {
    place.open(2).await.unwrap();
    let refused = place.open(1).await.unwrap_err();
    assert!(matches!(refused, ManifestError::Fenced { ours: OwnerEpoch(1), theirs: OwnerEpoch(2), .. }), "{refused}");
}

async fn of_many_racing_owners_the_highest_epoch_commits(place: Place) {
    let opened = futures::future::join_all((1..=6).map(|epoch| place.open(epoch))).await;
    let commits = opened
        .into_iter()
        .zip(1_u64..)
        .map(|(owner, epoch)| async move { publish(&owner?, "winner", &epoch.to_string()).await });
    let published = futures::future::join_all(commits).await;
    for refused in &published[..5] {
        assert!(matches!(refused, Err(ManifestError::Fenced { .. })), "{refused:?}");
    }
    assert!(published[5].is_ok(), "{published:?}");
    let reader = place.reader();
    let seen = reader.current().await.unwrap();
    assert_eq!(reader.read(&seen.entries["winner"]).await.unwrap(), "6");
}

async fn a_switch_from_another_version_conflicts(place: Place) {
    let owner = place.open(1).await.unwrap();
    let version = owner.current().version;
    owner.switch(version, START, |_| ()).await.unwrap();
    let refused = owner.switch(version, START, |_| ()).await.unwrap_err();
    assert!(matches!(refused, ManifestError::Conflict { expected: Version(1), current: Version(2) }), "{refused}");
}

async fn a_pinned_version_outlives_collections(place: Place) {
    let owner = place.open(1).await.unwrap();
    publish(&owner, "a", "one").await.unwrap();
    let pin = place.reader().pin(START, DAY).await.unwrap();
    publish(&owner, "a", "two").await.unwrap();
    let later = START.after(DAY / 2);
    owner.collect_garbage(later).await.unwrap();
    let object = &pin.snapshot().entries["a"];
    assert_eq!(pin.read(object, later).await.unwrap(), "one");

    pin.renew(later, DAY).await.unwrap();
    let later = START.after(DAY + DAY / 4);
    owner.collect_garbage(later).await.unwrap();
    assert_eq!(pin.read(object, later).await.unwrap(), "one");

    let end = START.after(DAY * 3);
    assert!(matches!(pin.read(object, end).await, Err(ManifestError::PinExpired { .. })));
    pin.release().await.unwrap();
    owner.collect_garbage(end).await.unwrap();
    assert_eq!(place.names("manifest").await.len(), 1);
    assert_eq!(place.names("objects").await.len(), 1);
    assert_eq!(place.names("pins").await.len(), 0);
    assert_eq!(owner.read(&owner.current().entries["a"]).await.unwrap(), "two");
}

async fn a_held_snapshot_outlives_collections(place: Place) {
    let owner = place.open(1).await.unwrap();
    publish(&owner, "a", "one").await.unwrap();
    let held = owner.current();
    publish(&owner, "a", "two").await.unwrap();
    let later = START.after(DAY);
    owner.collect_garbage(later).await.unwrap();
    assert_eq!(owner.read(&held.entries["a"]).await.unwrap(), "one");
    let object = held.entries["a"].clone();
    drop(held);
    owner.collect_garbage(later).await.unwrap();
    assert!(matches!(owner.read(&object).await, Err(ManifestError::ObjectMissing { .. })));
}

async fn leftovers_of_a_dead_owner_are_collected(place: Place) {
    let dead = place.open(1).await.unwrap();
    publish(&dead, "a", "one").await.unwrap();
    dead.put_object("never committed".into()).await.unwrap();
    drop(dead);
    let owner = place.open(2).await.unwrap();
    let pending = owner.put_object("committed soon".into()).await.unwrap();
    let abandoned = owner.put_object("given up".into()).await.unwrap();
    owner.abandon(&abandoned);
    let collected = owner.collect_garbage(START.after(DAY)).await.unwrap();
    assert_eq!((collected.versions, collected.objects), (2, 2));
    owner.commit(START, |draft| drop(draft.insert("b", pending.clone()))).await.unwrap();
    for object in owner.current().entries.values() {
        owner.read(object).await.unwrap();
    }
}

async fn a_reader_without_a_manifest_is_told_so(place: Place) {
    assert!(matches!(place.reader().current().await, Err(ManifestError::NoManifest { .. })));
}

async fn a_corrupt_object_is_named(place: Place) {
    let owner = place.open(1).await.unwrap();
    publish(&owner, "a", "one").await.unwrap();
    let object = owner.current().entries["a"].clone();
    let path = Path::from(format!("{}/{}", place.prefix, object.path));
    for damage in ["onf", "on", ""] {
        place.store.put(&path, damage.into()).await.unwrap();
        let refused = owner.read(&object).await.unwrap_err();
        assert!(
            matches!(refused, ManifestError::Corrupt { .. }) && refused.to_string().contains(&object.path),
            "{refused}"
        );
    }
    place.store.delete(&path).await.unwrap();
    let refused = owner.read(&object).await.unwrap_err();
    assert!(
        matches!(refused, ManifestError::ObjectMissing { .. }) && refused.to_string().contains(&object.path),
        "{refused}"
    );
}

async fn a_corrupt_version_stops_everything_that_would_trust_it(place: Place) {
    let owner = place.open(1).await.unwrap();
    place.store.put(&place.only_version().await, "nonsense".into()).await.unwrap();
    assert!(matches!(place.open(2).await, Err(ManifestError::Corrupt { .. })));
    assert!(matches!(place.reader().current().await, Err(ManifestError::Corrupt { .. })));
    assert!(matches!(owner.collect_garbage(START.after(DAY)).await, Err(ManifestError::Corrupt { .. })));
}

#[tokio::test]
async fn a_store_that_overwrites_instead_of_creating_is_refused() {
    let place = Place::new(store_of(Overwriting(Arc::new(InMemory::new()))), None);
    let refused = place.open(1).await.unwrap_err();
    assert!(matches!(refused, ManifestError::StoreIgnoresCreate { .. }), "{refused}");
}
