//! The embedded coordinator on a simulated disk that loses power at every operation in turn.

use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::{NodeEpoch, OwnerEpoch, ShardId};
use savanna_journal::Options;
use savanna_journal::sim::{Fault, SimDisk};
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::{
    BootClock, Coordinator, CoordinatorError, Revision, RootValue, ShardRecord, Snapshot, Transition,
};

use crate::suite::spec;

async fn open(disk: &Arc<SimDisk>, epoch: u64) -> Option<EmbeddedCoordinator> {
    // A lease outlives the test: what it is about is the journal.
    let options = EmbeddedOptions { ttl: Duration::from_secs(3600), clock: Arc::new(BootClock), guard: None };
    let journal = Options::disk(Arc::clone(disk) as Arc<_>).segment_bytes(8 << 10);
    EmbeddedCoordinator::open(journal, NodeEpoch(epoch), options).await.ok()
}

/// What the coordinator acknowledged.
#[derive(Clone, Debug, Default)]
struct Told {
    ids_below: u64,
    root: Option<(Revision, u32)>,
    shard_epoch: OwnerEpoch,
    revision: Revision,
}

/// Works until something fails.
async fn work(coordinator: &EmbeddedCoordinator, life: u64, told: &mut Told) -> Result<(), CoordinatorError> {
    let tenure = coordinator.register(&spec(&format!("n{life}"), life)).await?.tenure;
    for round in 0..6_u32 {
        let ids = coordinator.allocate("x", 10).await?;
        assert!(ids.start >= told.ids_below, "ids {ids:?} after those below {} were told", told.ids_below);
        told.ids_below = ids.end;

        let expected = coordinator.root("r").await?.map_or(Revision::NONE, |root| root.version);
        let version = coordinator.put_root("r", expected, RootValue(round.to_le_bytes().to_vec())).await?;
        told.root = Some((version, round));

        let shard = ShardId::new("s");
        let read = coordinator.shard(&shard).await?;
        let epoch = read.as_ref().map_or(OwnerEpoch::NONE, |read| read.value.epoch);
        assert!(epoch >= told.shard_epoch, "shard epoch {epoch} after {} was told", told.shard_epoch);
        let expected = read.as_ref().map_or(Revision::NONE, |read| read.version);
        let owner = read.and_then(|read| read.value.owner().cloned());
        let (record, by) = match owner {
            None => (ShardRecord::serving(tenure.clone(), epoch.next()), tenure.clone()),
            Some(owner) => (ShardRecord::retired(epoch), owner),
        };
        coordinator.transition(&Transition { shard, expected, record: record.clone(), by: Some(by) }).await?;
        told.shard_epoch = record.epoch;
        told.revision = coordinator.snapshot().await?.revision;
    }
    Ok(())
}

/// What was told and is not there.
fn missing(told: &Told, found: &Snapshot) -> Option<String> {
    let root = found.roots.iter().find(|(key, _)| key == "r").map(|(_, root)| root);
    if let Some((version, _)) = told.root
        && root.is_none_or(|root| root.version < version)
    {
        return Some(format!("root at {version}, found {root:?}"));
    }
    if let Some((version, round)) = told.root
        && let Some(root) = root.filter(|root| root.version == version)
        && root.value.0 != round.to_le_bytes()
    {
        return Some(format!("root value of round {round}, found {root:?}"));
    }
    let epoch = found.shards.first().map_or(OwnerEpoch::NONE, |(_, record)| record.value.epoch);
    if epoch < told.shard_epoch || found.revision < told.revision {
        return Some(format!("{told:?}, found epoch {epoch}, revision {}", found.revision));
    }
    None
}

const DOES_NOT_OPEN: &str = "a journal that opens";

/// Runs the work with one power cut at the `nth` disk operation, reopens, and returns what is missing, and whether the
/// cut came at all.
async fn cut_at(nth: u64, lying: bool) -> (Option<String>, bool) {
    let disk = SimDisk::new(nth);
    disk.set_lying_syncs(lying);
    let mut told = Told::default();
    disk.fail(nth, Fault::PowerCut);
    let mut cut = true;
    if let Some(coordinator) = open(&disk, 1).await {
        cut = work(&coordinator, 1, &mut told).await.is_err();
    }
    disk.crash();
    disk.set_lying_syncs(false);
    let Some(coordinator) = open(&disk, 2).await else {
        return (Some(DOES_NOT_OPEN.to_owned()), cut);
    };
    let found = coordinator.snapshot().await.unwrap();
    if let Some(missing) = missing(&told, &found) {
        return (Some(missing), cut);
    }
    let ids = coordinator.allocate("x", 1).await.unwrap();
    if ids.start < told.ids_below {
        return (Some(format!("ids below {}, handed out {ids:?} again", told.ids_below)), cut);
    }
    work(&coordinator, 2, &mut told).await.unwrap();
    (None, cut)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_a_power_cut_at_every_disk_operation() {
    let mut points = 0;
    for nth in 1.. {
        let (missing, cut) = cut_at(nth, false).await;
        assert_eq!(missing, None, "power cut at disk operation {nth}");
        if !cut {
            break;
        }
        points += 1;
    }
    println!("{points} points");
    assert!(points > 20, "only {points} disk operations were tried");
}

/// So many entries that an opening writes an image and cuts the log.
async fn long_history() -> Arc<SimDisk> {
    let disk = SimDisk::new(0);
    let coordinator = open(&disk, 1).await.expect("opened");
    for _ in 0..256 {
        futures::future::try_join_all((0..16).map(|_| coordinator.allocate("x", 1))).await.expect("allocated");
    }
    disk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_survives_a_power_cut_while_an_image_replaces_it() {
    let long = long_history().await;
    let mut images = 0;
    for nth in 1.. {
        let disk = long.copy(nth);
        disk.fail(nth, Fault::PowerCut);
        // The image waits for company, so that nothing but the coordinator's own care puts it before the cut.
        let journal = Options::disk(Arc::clone(&disk) as Arc<_>).linger(Duration::from_millis(20));
        let options = EmbeddedOptions { ttl: Duration::from_secs(3600), clock: Arc::new(BootClock), guard: None };
        drop(EmbeddedCoordinator::open(journal, NodeEpoch(2), options).await);
        let was_cut = disk.operations() >= nth;
        images += u32::from(disk.files().iter().any(|(name, _)| name.starts_with("segment-00000000000000000002")));
        disk.crash();
        let coordinator = open(&disk, 3).await.unwrap_or_else(|| panic!("power cut at disk operation {nth}"));
        assert_eq!(coordinator.allocate("x", 1).await.unwrap().start, 4097, "power cut at disk operation {nth}");
        if !was_cut {
            break;
        }
    }
    assert!(images > 3, "the power was never cut behind the first segment of the new owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_lies_about_syncs_is_noticed() {
    for nth in 1..200 {
        if let (Some(missing), _) = cut_at(nth, true).await
            && missing != DOES_NOT_OPEN
        {
            println!("noticed at disk operation {nth}: {missing}");
            return;
        }
    }
    panic!("no power cut lost anything that was told, although nothing was synced");
}
