//! What the log may have of virtual nodes that are not this node's: of moves that came here or left before it was known how they ended. It is void
//! once the records say that they are somebody else's, and not before.
//!
//! When such a virtual node is taken in out of another node's log, what is thrown away would be what was taken in: one excludes the other.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use savanna_epoch::LogId;
use savanna_keys_host::MoveError;
use savanna_ownership::{ClusterView, Revision, ShardRecord, Tenure};

use super::comes_to;
use crate::cluster::virtual_nodes::shard;

/// The virtual nodes of which something may be left over.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Held from the look at the records until what is void is thrown away: nobody begins to take it in meanwhile.
    deciding: tokio::sync::Mutex<()>,
    /// With the versions of the records that announced what was on its way here before the service began. Nothing until that is known.
    nodes: Mutex<Option<BTreeMap<u16, Revision>>>,
}

impl Leftovers {
    /// The service begins: what was on its way here, and as of which versions of the records.
    pub(super) fn are(&self, undecided: BTreeMap<u16, Revision>) {
        *self.nodes.lock() = Some(undecided);
    }

    /// A virtual node was lost to somebody else: its keys are in the log still.
    pub(super) fn note_lost(&self, node: u16) {
        if let Some(nodes) = self.nodes.lock().as_mut() {
            nodes.entry(node).or_insert(Revision::NONE);
        }
    }

    /// Whether an attempt may be of before the service began, so that all of its keys may be in the log: what is heard of it late is not to throw them
    /// away.
    pub(super) fn may_be_of(&self, node: u16, attempt: u64) -> bool {
        let nodes = self.nodes.lock();
        nodes.as_ref().is_none_or(|nodes| nodes.get(&node).is_some_and(|announced| attempt < announced.0))
    }

    /// These are about to be taken in, from nothing: nobody else throws away what is left over of them.
    pub(super) async fn are_taken_in(&self, taken: &[u16]) {
        let _deciding = self.deciding.lock().await;
        if let Some(nodes) = self.nodes.lock().as_mut() {
            nodes.retain(|node, _| !taken.contains(node));
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
        let known: Vec<u16> = self.nodes.lock().iter().flatten().map(|(node, _)| *node).collect();
        for node in known {
            let Some(record) = view.shard(&shard(node)) else { continue };
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
            if let Some(nodes) = self.nodes.lock().as_mut() {
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
    // Whoever has it reads it there.
    let are_read = || record.history.as_ref().is_some_and(|history| history.log == *log);
    if record.owner() == Some(myself) {
        Becomes::Served
    } else if comes_to(record, myself) || are_read() {
        Becomes::Undecided
    } else {
        Becomes::Void
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;

    use futures::FutureExt as _;
    use savanna_epoch::{NodeEpoch, NodeId, OwnerEpoch};
    use savanna_ownership::core::Request;
    use savanna_ownership::{Exclusive, History, MonoTime, Transition};
    use tokio::sync::oneshot;

    use super::*;
    use crate::cluster::grants::tests::{ALL, Cluster};

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

    /// A view in which another node has virtual node 7.
    fn view() -> ClusterView {
        let mut cluster = Cluster::new();
        let record = ShardRecord::serving(cluster.join("n1", ALL), OwnerEpoch(1));
        let has = Transition { shard: shard(7), expected: Revision::NONE, record, by: None };
        cluster.0.step(&Request::Apply(has.into()), MonoTime(0)).reply.unwrap();
        cluster.view()
    }

    fn known(leftovers: &Leftovers) -> Vec<u16> {
        leftovers.nodes.lock().iter().flatten().map(|(node, _)| *node).collect()
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
        assert_eq!(becomes(&served("n2", "n1")), Becomes::Served, "it is taken in from nothing");
        assert_eq!(becomes(&served("n1", "n2")), Becomes::Undecided, "its keys are to be read out of this log");
    }

    #[test]
    fn what_came_before_the_service_began_is_not_thrown_away_by_what_is_heard_late() {
        let leftovers = Leftovers::default();
        assert!(leftovers.may_be_of(7, 100), "the records were not read yet");
        leftovers.are(BTreeMap::from([(7, Revision(8))]));
        assert!(leftovers.may_be_of(7, 7), "it was announced at version 8");
        assert!(!leftovers.may_be_of(7, 9), "it was announced behind that");
        assert!(!leftovers.may_be_of(6, 7), "nothing has come of it");
        leftovers.note_lost(6);
        assert!(!leftovers.may_be_of(6, 7), "what was lost did not come");
    }

    #[tokio::test]
    async fn what_is_being_taken_in_is_not_thrown_away_and_what_is_thrown_away_is_not_taken_in_meanwhile() {
        let (view, mine) = (view(), (&tenure("n2"), &log("n2")));
        let leftovers = Leftovers::default();
        leftovers.are(BTreeMap::from([(7, Revision(1))]));
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
        let mut taking = pin!(leftovers.are_taken_in(&[7]));
        let is_taken = taking.as_mut().now_or_never().is_some();
        assert!(!is_taken, "its keys would be thrown away with what is left over");
        go_on.send(()).unwrap();
        throwing.await;
        taking.await;
        assert_eq!(*cleared.borrow(), [7]);
        // A look at a view of before is too late.
        leftovers.are(BTreeMap::from([(7, Revision(1)), (8, Revision(1))]));
        leftovers.are_taken_in(&[7]).await;
        assert_eq!(known(&leftovers), [8]);
        leftovers.throw_away(&view, mine, clear).await;
        assert_eq!(*cleared.borrow(), [7]);
        assert_eq!(known(&leftovers), [8], "of which no record says anything");
    }

    #[tokio::test]
    async fn what_cannot_be_thrown_away_is_tried_again() {
        let leftovers = Leftovers::default();
        leftovers.are(BTreeMap::new());
        leftovers.note_lost(7);
        let (view, mine) = (view(), (&tenure("n2"), &log("n2")));
        leftovers.throw_away(&view, mine, async |_| Err(MoveError::Silent)).await;
        assert_eq!(known(&leftovers), [7]);
        leftovers.throw_away(&view, mine, async |_| Ok(())).await;
        assert!(known(&leftovers).is_empty());
    }
}
