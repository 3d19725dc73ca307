//! What the log may have of virtual nodes that are not this node's: of moves that came here or left before it was known how they ended. It is void
//! once the records say that they are somebody else's, and not before.
//!
//! When such a virtual node is taken in out of another node's log, what is thrown away would be what was taken in: one excludes the other.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use savanna_epoch::{LogId, OwnerEpoch};
use savanna_keys::cluster::table::VIRTUAL_NODES;
use savanna_keys_host::MoveError;
use savanna_ownership::{ClusterView, Revision, ShardRecord, Tenure};

use super::comes_to;
use crate::cluster::virtual_nodes::{PREFIX, node_of, shard};

/// The virtual nodes of which something may be left over.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Held from the look at the records until what is void is thrown away: nobody begins to take it in meanwhile.
    deciding: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Nothing until the records are read.
    nodes: Option<BTreeMap<u16, Left>>,
    /// Under which epochs virtual nodes were taken in: what was lost before is no more left over.
    taken_in: BTreeMap<u16, OwnerEpoch>,
}

/// What may be left over of a virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// The version of the record that announced it, if it was on its way here before the service began.
    announced: Revision,
    /// Records of earlier epochs say nothing of what becomes of it.
    since: OwnerEpoch,
}

impl Leftovers {
    /// The service begins, as of a view: keeps in mind what is not decided, once `clear` has thrown away what is void.
    ///
    /// # Errors
    /// Those of `clear`.
    pub(super) async fn begin<F: Future<Output = Result<(), MoveError>>>(
        &self,
        view: &ClusterView,
        (myself, log): (&Tenure, &LogId),
        clear: impl Fn(BTreeSet<u16>) -> F,
    ) -> Result<(), MoveError> {
        let (mut void, mut nodes) = ((0..VIRTUAL_NODES).collect::<BTreeSet<_>>(), BTreeMap::new());
        for (shard, record) in view.shards(PREFIX) {
            let Some(node) = node_of(shard) else { continue };
            let what = becomes(&record.value, myself, log);
            if what != Becomes::Void {
                void.remove(&node);
            }
            if what == Becomes::Undecided {
                nodes.insert(node, Left { announced: record.version, since: record.value.epoch });
            }
        }
        clear(void).await?;
        self.known.lock().nodes = Some(nodes);
        Ok(())
    }

    /// A virtual node was lost to somebody else who has it since an epoch, at the latest: its keys are in the log still.
    pub(super) fn note_lost(&self, node: u16, since: OwnerEpoch) {
        let mut known = self.known.lock();
        let is_taken_in = known.taken_in.get(&node).is_some_and(|taken_in| *taken_in >= since);
        if let Some(nodes) = known.nodes.as_mut().filter(|_| !is_taken_in) {
            nodes.entry(node).or_insert(Left { announced: Revision::NONE, since });
        }
    }

    /// Whether an attempt may be of before the service began, so that all of its keys may be in the log: what is heard of it late is not to throw them
    /// away.
    pub(super) fn may_be_of(&self, node: u16, attempt: u64) -> bool {
        let known = self.known.lock();
        known.nodes.as_ref().is_none_or(|nodes| nodes.get(&node).is_some_and(|left| attempt < left.announced.0))
    }

    /// These are about to be taken in, from nothing, as a view says: nobody else throws away what is left over of them.
    pub(super) async fn are_taken_in(&self, view: &ClusterView, taken: &[u16]) {
        let _deciding = self.deciding.lock().await;
        let mut known = self.known.lock();
        for node in taken {
            if let Some(nodes) = &mut known.nodes {
                nodes.remove(node);
            }
            if let Some(record) = view.shard(&shard(*node)) {
                known.taken_in.insert(*node, record.value.epoch);
            }
        }
    }

    /// Throws away, by `clear`, what is void, as the records say. What cannot be thrown away is tried again with the next look.
    pub(super) async fn throw_away<F: Future<Output = Result<(), MoveError>>>(
        &self,
        view: &ClusterView,
        (myself, log): (&Tenure, &LogId),
        clear: impl Fn(u16) -> F,
    ) {
        let _deciding = self.deciding.lock().await;
        let known: Vec<_> = self.known.lock().nodes.iter().flatten().map(|(node, left)| (*node, *left)).collect();
        for (node, left) in known {
            let record = view.shard(&shard(node)).filter(|record| record.value.epoch >= left.since);
            let Some(record) = record else { continue };
            match becomes(&record.value, myself, log) {
                Becomes::Undecided => continue,
                Becomes::Void => {
                    if let Err(error) = clear(node).await {
                        tracing::warn!(node, %error, "what is left over of a virtual node of keys is in the log; it is tried again");
                        continue;
                    }
                }
                Becomes::Served => {}
            }
            if let Some(nodes) = &mut self.known.lock().nodes {
                nodes.remove(&node);
            }
        }
    }
}

/// What becomes of the keys that this node's log has of a virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    Undecided,
    Void,
    Served,
}

fn becomes(record: &ShardRecord, myself: &Tenure, log: &LogId) -> Becomes {
    let are_in_it = record.history.as_ref().is_some_and(|history| history.log == *log);
    match are_in_it {
        true if record.owner() == Some(myself) => Becomes::Served,
        // Whoever has it reads it there.
        true => Becomes::Undecided,
        false if comes_to(record, myself) => Becomes::Undecided,
        false => Becomes::Void,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;

    use futures::FutureExt as _;
    use savanna_epoch::{NodeEpoch, NodeId};
    use savanna_ownership::{Exclusive, History, Snapshot, Versioned};
    use tokio::sync::oneshot;

    use super::*;

    fn tenure(node: &str) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(1) }
    }

    fn log(node: &str) -> LogId {
        LogId::new(NodeId::new(node), 1, "keys").unwrap()
    }

    fn served(owner: &str, log_of: &str) -> ShardRecord {
        let history = History { log: log(log_of), epoch: OwnerEpoch(4) };
        ShardRecord::serving(tenure(owner), OwnerEpoch(4)).with_history(Some(history))
    }

    fn view_of(records: &[(u16, ShardRecord)]) -> ClusterView {
        let shown = |(node, value): &(u16, ShardRecord)| {
            (shard(*node), Versioned { version: Revision(8), value: value.clone() })
        };
        let (revision, nodes, roots) = (Revision(8), Vec::new(), Vec::new());
        ClusterView::new(Snapshot { revision, nodes, shards: records.iter().map(shown).collect(), roots })
    }

    /// A view in which another node has virtual node 7.
    fn view() -> ClusterView {
        view_of(&[(7, served("n1", "n1"))])
    }

    fn known(leftovers: &Leftovers) -> Vec<u16> {
        leftovers.known.lock().nodes.iter().flatten().map(|(node, _)| *node).collect()
    }

    /// Of these something was on its way when the service began.
    fn of(nodes: &[u16]) -> Leftovers {
        let leftovers = Leftovers::default();
        let left = |node: &u16| (*node, Left { announced: Revision(8), since: OwnerEpoch(4) });
        leftovers.known.lock().nodes = Some(nodes.iter().map(left).collect());
        leftovers
    }

    #[test]
    fn what_is_left_over_is_void_when_somebody_else_has_it_and_reads_it_elsewhere() {
        let becomes = |record: &ShardRecord| becomes(record, &tenure("n2"), &log("n2"));
        let moving = |from: &str, to: &str| {
            let moving = Exclusive::Moving { from: tenure(from), to: tenure(to) };
            ShardRecord::exclusive(OwnerEpoch(4), moving).with_history(served(from, from).history)
        };
        assert_eq!(becomes(&moving("n1", "n2")), Becomes::Undecided);
        assert_eq!(becomes(&moving("n1", "n3")), Becomes::Void);
        assert_eq!(becomes(&served("n1", "n1")), Becomes::Void);
        assert_eq!(becomes(&served("n2", "n2")), Becomes::Served);
        assert_eq!(becomes(&served("n2", "n1")), Becomes::Void, "it is taken in from nothing");
        assert_eq!(becomes(&served("n1", "n2")), Becomes::Undecided, "its keys are to be read out of this log");
    }

    #[tokio::test]
    async fn a_service_that_begins_throws_nothing_away_that_somebody_else_is_to_read_out_of_its_log() {
        let view = view_of(&[(7, served("n1", "n2")), (8, served("n2", "n2")), (9, served("n1", "n1"))]);
        let (leftovers, cleared) = (Leftovers::default(), RefCell::new(BTreeSet::new()));
        let clear = |void: BTreeSet<u16>| {
            *cleared.borrow_mut() = void;
            async { Ok(()) }
        };
        leftovers.begin(&view, (&tenure("n2"), &log("n2")), clear).await.unwrap();
        let kept: Vec<u16> = (0..VIRTUAL_NODES).filter(|node| !cleared.borrow().contains(node)).collect();
        assert_eq!(kept, [7, 8]);
        assert_eq!(known(&leftovers), [7], "it is void when its keys are in another log");
    }

    #[test]
    fn what_came_before_the_service_began_is_not_thrown_away_by_what_is_heard_late() {
        assert!(Leftovers::default().may_be_of(7, 100), "the records were not read yet");
        let leftovers = of(&[7]);
        assert!(leftovers.may_be_of(7, 7), "it was announced at version 8");
        assert!(!leftovers.may_be_of(7, 9), "it was announced behind that");
        assert!(!leftovers.may_be_of(6, 7), "nothing has come of it");
        leftovers.note_lost(6, OwnerEpoch(5));
        assert!(!leftovers.may_be_of(6, 7), "what was lost did not come");
    }

    #[tokio::test]
    async fn what_is_being_taken_in_is_not_thrown_away_and_what_is_thrown_away_is_not_taken_in_meanwhile() {
        let (view, mine) = (view(), (&tenure("n2"), &log("n2")));
        let leftovers = of(&[7]);
        let (go_on, goes_on) = oneshot::channel();
        let (cleared, goes_on) = (RefCell::new(Vec::new()), RefCell::new(Some(goes_on)));
        let clear = |node: u16| {
            let (goes_on, cleared) = (goes_on.borrow_mut().take(), &cleared);
            async move {
                if let Some(goes_on) = goes_on {
                    goes_on.await.unwrap();
                }
                cleared.borrow_mut().push(node);
                Ok(())
            }
        };
        let mut throwing = pin!(leftovers.throw_away(&view, mine, clear));
        assert!(throwing.as_mut().now_or_never().is_none());
        let mut taking = pin!(leftovers.are_taken_in(&view, &[7]));
        let is_taken = taking.as_mut().now_or_never().is_some();
        assert!(!is_taken, "its keys would be thrown away with what is left over");
        go_on.send(()).unwrap();
        throwing.await;
        taking.await;
        assert_eq!(*cleared.borrow(), [7]);
        // A look at a view of before is too late, and so is what was lost before.
        let leftovers = of(&[7, 8]);
        leftovers.are_taken_in(&view, &[7]).await;
        leftovers.note_lost(7, OwnerEpoch(4));
        assert_eq!(known(&leftovers), [8]);
        leftovers.throw_away(&view, mine, clear).await;
        assert_eq!(*cleared.borrow(), [7]);
        assert_eq!(known(&leftovers), [8], "of which no record says anything");
    }

    #[tokio::test]
    async fn what_cannot_be_thrown_away_is_tried_again() {
        let leftovers = of(&[]);
        leftovers.note_lost(7, OwnerEpoch(4));
        leftovers.note_lost(6, OwnerEpoch(4));
        let (view, mine) = (view(), (&tenure("n2"), &log("n2")));
        leftovers.throw_away(&view, mine, async |_| Err(MoveError::Silent)).await;
        assert_eq!(known(&leftovers), [6, 7]);
        leftovers.throw_away(&view, mine, async |_| Ok(())).await;
        assert_eq!(known(&leftovers), [6], "of which no record says anything");
        // A view of before it was lost shows nothing of who has it.
        leftovers.note_lost(7, OwnerEpoch(5));
        leftovers.throw_away(&view, mine, async |_| panic!("it may be read there")).await;
        assert_eq!(known(&leftovers), [6, 7]);
    }
}
