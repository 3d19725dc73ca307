//! The answering side.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use savanna_rpc::{Method, MethodTable, RpcError, Service};

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
/// So many snapshots are kept that are not asked for to their end.
const SNAPSHOTS_KEPT: usize = 8;
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

/// Snapshots of which somebody has the first part.
struct Snapshots {
    coordinator: Arc<dyn Coordinator>,
    /// The oldest first, one for each who asks.
    kept: Mutex<VecDeque<Arc<Snapshot>>>,
}

impl Snapshots {
    fn of(coordinator: &Arc<dyn Coordinator>) -> Self {
        Self { coordinator: Arc::clone(coordinator), kept: Mutex::default() }
    }

    async fn part(&self, part: &Part) -> Result<SnapshotPart, CoordinatorError> {
        let snapshot = match part.of {
            None => Arc::new(self.coordinator.snapshot().await?),
            Some(revision) => self.take(revision)?,
        };
        let part = part_of(&snapshot, part.behind);
        if part.has_more {
            self.keep(snapshot);
        }
        Ok(part)
    }

    fn keep(&self, snapshot: Arc<Snapshot>) {
        let mut kept = self.kept.lock();
        kept.push_back(snapshot);
        if kept.len() > SNAPSHOTS_KEPT {
            kept.pop_front();
        }
    }

    fn take(&self, revision: Revision) -> Result<Arc<Snapshot>, CoordinatorError> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|snapshot| snapshot.revision == revision);
        let oldest = kept.front().map_or(Revision::NONE, |snapshot| snapshot.revision);
        at.and_then(|at| kept.remove(at)).ok_or(CoordinatorError::Compacted { since: revision, oldest })
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
