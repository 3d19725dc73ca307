//! The answering side.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use savanna_rpc::{Method, MethodTable, RpcError, Service};
use tokio::time::Instant;

use super::method::{
    Allocate, Apply, Claim, Deregister, Follow, Heartbeat, Part, ReadAll, ReadRoot, ReadShard, Register, Since,
    SnapshotPart,
};
use crate::coordinator::{Coordinator, Snapshot};
use crate::error::CoordinatorError;
use crate::event::Change;
use crate::record::{NodeRecord, RECORD_BYTES, Revision};

/// With so many changes, or so many bytes of records, an answer leaves; the rest is asked for next. No batch and no record is half as long as a
/// frame, so that with one more it still fits.
const CHANGES_MAX: usize = 1024;
const ANSWER_BYTES: usize = 4 << 20;
/// So many snapshots, of as many revisions, are kept that are not asked for to their end.
const SNAPSHOTS_KEPT: usize = 8;
/// Who asks for no part of one in this time has gone away.
const SNAPSHOT_IDLE: Duration = Duration::from_secs(10);
/// The longest wait for a change. Less than what connections take for silence.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Answers for `coordinator` whoever reaches this node.
pub fn service(coordinator: &Arc<dyn Coordinator>) -> Arc<dyn Service> {
    Arc::new(methods(coordinator))
}

pub(super) fn methods(coordinator: &Arc<dyn Coordinator>) -> MethodTable {
    let mut methods = MethodTable::new();
    macro_rules! answer {
        ($($method:ident($request:pat) => |$coordinator:ident| $answer:expr;)*) => {$(
            let kept = Arc::clone(coordinator);
            methods = methods.method(PhantomData::<$method>, move |_, $request: <$method as Method>::Request| {
                let $coordinator = Arc::clone(&kept);
                async move { Ok::<_, RpcError>($answer.await) }
            });
        )*};
    }
    answer! {
        Register(spec) => |coordinator| coordinator.register(&spec);
        Claim(spec) => |coordinator| coordinator.claim(&spec);
        Heartbeat(tenure) => |coordinator| coordinator.heartbeat(&tenure);
        Deregister(tenure) => |coordinator| coordinator.deregister(&tenure);
        ReadShard(shard) => |coordinator| coordinator.shard(&shard);
        Apply(batch) => |coordinator| coordinator.apply(&batch);
        Allocate(ids) => |coordinator| coordinator.allocate(&ids.name, ids.count);
        ReadRoot(key) => |coordinator| coordinator.root(&key);
        Follow(since) => |coordinator| changes(&*coordinator, &since);
    }
    let snapshots = Arc::new(Snapshots::of(coordinator));
    methods.method(PhantomData::<ReadAll>, move |_, part: Part| {
        let snapshots = Arc::clone(&snapshots);
        async move { Ok::<_, RpcError>(snapshots.part(&part).await) }
    })
}

/// Snapshots of which somebody has the first part. All who ask at one revision share one; nobody's is dropped for another who comes.
struct Snapshots {
    coordinator: Arc<dyn Coordinator>,
    kept: Mutex<BTreeMap<Revision, Kept>>,
}

struct Kept {
    snapshot: Arc<Snapshot>,
    /// How many have not asked for its last part.
    readers: usize,
    asked_at: Instant,
}

impl Snapshots {
    fn of(coordinator: &Arc<dyn Coordinator>) -> Self {
        Self { coordinator: Arc::clone(coordinator), kept: Mutex::default() }
    }

    async fn part(&self, part: &Part) -> Result<SnapshotPart, CoordinatorError> {
        match part.of {
            None => self.first(part.behind).await,
            Some(revision) => self.next(revision, part.behind),
        }
    }

    async fn first(&self, behind: usize) -> Result<SnapshotPart, CoordinatorError> {
        Self::expect_room(&mut self.kept.lock())?;
        let snapshot = self.coordinator.snapshot().await?;
        let part = part_of(&snapshot, behind);
        if part.has_more {
            let mut kept = self.kept.lock();
            if !kept.contains_key(&snapshot.revision) {
                Self::expect_room(&mut kept)?;
            }
            let asked_at = Instant::now();
            let kept = kept.entry(snapshot.revision).or_insert_with(|| Kept {
                snapshot: Arc::new(snapshot),
                readers: 0,
                asked_at,
            });
            kept.readers += 1;
            kept.asked_at = asked_at;
        }
        Ok(part)
    }

    fn next(&self, revision: Revision, behind: usize) -> Result<SnapshotPart, CoordinatorError> {
        let snapshot = {
            let mut kept = self.kept.lock();
            let oldest = kept.keys().next().copied().unwrap_or(Revision::NONE);
            let found = kept.get_mut(&revision).ok_or(CoordinatorError::Compacted { since: revision, oldest })?;
            found.asked_at = Instant::now();
            Arc::clone(&found.snapshot)
        };
        let part = part_of(&snapshot, behind);
        if !part.has_more {
            self.leave(revision);
        }
        Ok(part)
    }

    /// One who read it has all of it.
    fn leave(&self, revision: Revision) {
        let mut kept = self.kept.lock();
        if let Some(found) = kept.get_mut(&revision) {
            found.readers -= 1;
            if found.readers == 0 {
                kept.remove(&revision);
            }
        }
    }

    /// Refuses another snapshot while as many are read as are kept.
    fn expect_room(kept: &mut BTreeMap<Revision, Kept>) -> Result<(), CoordinatorError> {
        kept.retain(|_, kept| kept.asked_at.elapsed() < SNAPSHOT_IDLE);
        if kept.len() < SNAPSHOTS_KEPT {
            return Ok(());
        }
        let reason = format!("{SNAPSHOTS_KEPT} snapshots are being read, and no more are kept; ask again later");
        Err(CoordinatorError::Unavailable { reason })
    }
}

/// The records behind the first so many, as long as they fit an answer.
fn part_of(snapshot: &Snapshot, behind: usize) -> SnapshotPart {
    let total = snapshot.nodes.len() + snapshot.shards.len() + snapshot.roots.len();
    let (mut skip, mut room) = (behind, ANSWER_BYTES);
    let records = Snapshot {
        revision: snapshot.revision,
        nodes: some_of(&snapshot.nodes, &mut skip, &mut room, NodeRecord::bytes),
        shards: some_of(&snapshot.shards, &mut skip, &mut room, |(shard, record)| shard.0.len() + record.value.bytes()),
        roots: some_of(&snapshot.roots, &mut skip, &mut room, |(key, root)| key.len() + root.value.0.len()),
    };
    let sent = behind + records.nodes.len() + records.shards.len() + records.roots.len();
    SnapshotPart { records, has_more: sent < total }
}

/// The records of a list behind the first so many, while there is room.
fn some_of<T: Clone>(list: &[T], skip: &mut usize, room: &mut usize, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let skipped = list.len().min(*skip);
    *skip -= skipped;
    let has_room = |record: &&T| {
        let had_room = *room > 0;
        *room = room.saturating_sub(RECORD_BYTES + bytes(record));
        had_room
    };
    list[skipped..].iter().take_while(has_room).cloned().collect()
}

/// The changes that there are, or the first that comes; none if none comes in time.
async fn changes(coordinator: &dyn Coordinator, since: &Since) -> Result<Vec<Change>, CoordinatorError> {
    let mut stream = coordinator.watch(since.since).await?;
    let mut changes = Vec::new();
    let mut bytes = 0;
    let mut next = tokio::time::timeout(since.wait.min(WAIT_MAX), stream.next()).await.ok().flatten();
    while let Some(change) = next {
        let change = match change {
            Ok(change) => change,
            // What came before it is true; the error comes again.
            Err(_) if !changes.is_empty() => break,
            Err(error) => return Err(error),
        };
        bytes += change.bytes();
        changes.push(change);
        if changes.len() == CHANGES_MAX || bytes > ANSWER_BYTES {
            break;
        }
        next = stream.next().now_or_never().flatten();
    }
    Ok(changes)
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::core::CoordinatorCore;
    use crate::embedded::{EmbeddedCoordinator, Log, LogError, LogPosition};
    use crate::event::RootValue;
    use crate::time::BootClock;

    struct Durable;

    #[async_trait]
    impl Log for Durable {
        fn append(&self, _payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
            Ok(LogPosition(1))
        }

        async fn wait_durable(&self, _position: LogPosition) -> Result<(), LogError> {
            Ok(())
        }
    }

    /// Snapshots of a coordinator with more than an answer takes.
    async fn snapshots() -> Snapshots {
        let core = CoordinatorCore::new(Duration::from_secs(3600));
        let embedded = EmbeddedCoordinator::start(core, Arc::new(Durable), Arc::new(BootClock), None);
        let coordinator: Arc<dyn Coordinator> = Arc::new(embedded);
        for number in 0..6 {
            let value = RootValue(vec![0; 1 << 20]);
            coordinator.put_root(&format!("r/{number}"), Revision::NONE, value).await.unwrap();
        }
        Snapshots::of(&coordinator)
    }

    async fn change(snapshots: &Snapshots) {
        let version = snapshots.coordinator.root("x").await.unwrap().map_or(Revision::NONE, |root| root.version);
        snapshots.coordinator.put_root("x", version, RootValue::default()).await.unwrap();
    }

    async fn first(snapshots: &Snapshots) -> Result<SnapshotPart, CoordinatorError> {
        snapshots.part(&Part { of: None, behind: 0 }).await
    }

    async fn rest(snapshots: &Snapshots, first: &SnapshotPart) -> Result<SnapshotPart, CoordinatorError> {
        let behind = first.records.roots.len();
        snapshots.part(&Part { of: Some(first.records.revision), behind }).await
    }

    #[tokio::test]
    async fn many_share_one_snapshot_and_nobody_loses_his_to_another() {
        let snapshots = snapshots().await;
        let mut firsts = Vec::new();
        for _ in 0..20 {
            firsts.push(first(&snapshots).await.unwrap());
        }
        assert_eq!(snapshots.kept.lock().len(), 1, "they are of one revision");
        for _ in 1..SNAPSHOTS_KEPT {
            change(&snapshots).await;
            firsts.push(first(&snapshots).await.unwrap());
        }
        change(&snapshots).await;
        let refused = first(&snapshots).await;
        assert!(matches!(refused, Err(CoordinatorError::Unavailable { .. })), "{refused:?}");
        for first in &firsts {
            let rest = rest(&snapshots, first).await.unwrap();
            assert!(!rest.has_more && rest.records.revision == first.records.revision);
        }
        assert!(snapshots.kept.lock().is_empty());
        first(&snapshots).await.unwrap();
    }

    #[tokio::test]
    async fn a_snapshot_that_nobody_asks_for_any_more_makes_room() {
        let snapshots = snapshots().await;
        let mut left = Vec::new();
        for _ in 0..SNAPSHOTS_KEPT {
            left.push(first(&snapshots).await.unwrap());
            change(&snapshots).await;
        }
        assert!(first(&snapshots).await.is_err());
        tokio::time::pause();
        tokio::time::advance(SNAPSHOT_IDLE).await;
        first(&snapshots).await.unwrap();
        let gone = rest(&snapshots, &left[0]).await;
        assert!(matches!(gone, Err(CoordinatorError::Compacted { .. })), "{gone:?}");
    }
}
