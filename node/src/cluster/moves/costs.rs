//! What moves cost: what the node counts that a database leaves, and what clients have felt at the nodes that they are connected to.
//!
//! ```text
//!  the node that has it                              every node
//!  moves/watch.2  when the move begins        ──►    notes how long its clients wait for their answers
//!  moves/felt.2   when somebody is served     ──►    says of which that was while nobody was served, by how long ago that was: no clock is compared with another's
//!  moves/felt.2   when it has ended           ──►    says what else its clients have felt, and watches no more
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use savanna_epoch::NodeId;
use savanna_handover::MoveId;
use savanna_pgwire_tenants::Felt;
use savanna_rpc::{Method, call};
use savanna_tenants_host::{TenantId, shards};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::{Moves, Report, Way};

/// How long a node has to say what its clients have felt.
const FELT_TIME: Duration = Duration::from_secs(2);

/// What a move has cost, beside its window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// Rounds that the other node has taken.
    pub(crate) rounds: u32,
    /// Bytes of commits that went along, as the storage may not have them yet.
    pub(crate) tail_bytes: u64,
    /// Bytes of what was open that went along.
    pub(crate) image_bytes: u64,
    /// Bytes of blocks that the other node has read into its cache before it had the database.
    pub(crate) block_bytes: u64,
    /// What clients have felt.
    pub(crate) noticed: Noticed,
}

/// What clients have felt of a move, wherever they are connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noticed {
    /// Statements that were under way while nobody was served.
    pub(crate) waited: u64,
    /// How long half of them waited for their answers at most, since nobody was served or they were asked.
    pub(crate) wait_p50: Duration,
    /// How long one of them waited.
    pub(crate) wait_max: Duration,
    /// Clients that were hung up on meanwhile.
    pub(crate) failed: u64,
    /// Requests of nodes for their clients that were sent again.
    pub(crate) resent: u64,
    /// Nodes that have not said what their clients have felt.
    pub(crate) silent: u32,
}

/// What each node that was asked has said, if it has.
pub(super) type Told = Vec<(NodeId, Option<Felt>)>;

impl Noticed {
    fn of(told: Told) -> Self {
        let mut noticed = Self::default();
        let mut waits = Vec::new();
        let mut silent = BTreeSet::new();
        for (node, felt) in told {
            let Some(felt) = felt else {
                silent.insert(node);
                continue;
            };
            waits.extend(felt.waits);
            noticed.failed += felt.failed;
            noticed.resent += felt.resent;
        }
        noticed.silent = silent.len() as u32;
        waits.sort_unstable();
        noticed.waited = waits.len() as u64;
        noticed.wait_p50 = waits.get(waits.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        noticed.wait_max = waits.last().copied().unwrap_or_default();
        noticed
    }
}

/// A database begins to move: what its clients feel is noted.
pub(super) struct Watch;

impl Method for Watch {
    const NAME: &'static str = "moves/watch.2";
    const IDEMPOTENT: bool = true;
    type Request = (MoveId, TenantId);
    type Reply = ();
}

/// What have the clients of a node felt of a move? How long they waited, if it is asked for a time in which nobody was served; otherwise what else they have felt,
/// which ends what was begun by [`Watch`].
pub(super) struct Feel;

impl Method for Feel {
    const NAME: &'static str = "moves/felt.2";
    const IDEMPOTENT: bool = false;
    /// How long ago nobody was served any more, and somebody was again.
    type Request = (MoveId, Option<(Duration, Duration)>);
    type Reply = Felt;
}

impl Moves {
    /// The nodes that clients of databases are connected to.
    fn fronts(&self) -> Vec<NodeId> {
        let view = self.joined.view.now();
        let serves = view.nodes().filter(|node| shards::is_ready(&view, &node.tenure));
        serves.map(|node| node.tenure.node.clone()).collect()
    }

    /// Has all nodes note what their clients feel of a move, without waiting for them.
    pub(super) fn watch(&self, id: MoveId, tenant: TenantId) {
        let transport = self.joined.transport();
        for node in self.fronts() {
            let transport = Arc::clone(&transport);
            tokio::spawn(async move {
                if let Err(error) = call::<Watch>(&*transport, &node, &(id, tenant), FELT_TIME).await {
                    tracing::debug!(%node, %error, "a node does not note what its clients feel of a move");
                }
            });
        }
    }

    /// What all nodes have noted of a move: of the `window` in which nobody was served, or else.
    pub(super) fn felt(
        &self,
        id: MoveId,
        window: Option<(Instant, Instant)>,
    ) -> impl Future<Output = Told> + Send + use<> {
        let (nodes, transport) = (self.fronts(), self.joined.transport());
        let asked = nodes.into_iter().map(move |node| {
            let transport = Arc::clone(&transport);
            async move {
                let window = window.map(|(began, ended)| (began.elapsed(), ended.elapsed()));
                let felt = call::<Feel>(&*transport, &node, &(id, window), FELT_TIME).await.ok();
                (node, felt)
            }
        });
        futures::future::join_all(asked)
    }

    /// What clients have noticed of a move that has ended, if what they waited was asked for.
    pub(super) async fn noticed(&self, id: MoveId, waits: Option<JoinHandle<Told>>) -> Noticed {
        let mut told = match waits {
            Some(waits) => waits.await.unwrap_or_default(),
            None => Told::new(),
        };
        told.extend(self.felt(id, None).await);
        Noticed::of(told)
    }
}

/// The upper ends of windows that are counted together.
pub(crate) const WINDOWS_UPTO: [Duration; 9] = [
    millis(3),
    millis(10),
    millis(30),
    millis(100),
    millis(300),
    millis(1_000),
    millis(3_000),
    millis(10_000),
    millis(30_000),
];

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// All moves that left a node since its service began, by technique.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(BTreeMap<Way, OfWay>);

/// All moves by one technique.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfWay {
    pub(crate) moved: u64,
    pub(crate) stayed: u64,
    /// How often a window was as long as one of [`WINDOWS_UPTO`] at most, and not as one before; and longer than all of them.
    pub(crate) windows: [u64; WINDOWS_UPTO.len() + 1],
    pub(crate) windows_sum: Duration,
    pub(crate) tail_bytes: u64,
    pub(crate) image_bytes: u64,
    pub(crate) block_bytes: u64,
    pub(crate) waited: u64,
    pub(crate) failed: u64,
    pub(crate) resent: u64,
}

impl Totals {
    /// Counts a move.
    pub(super) fn add(&mut self, report: &Report) {
        let Report { way, window, stayed, costs, .. } = report;
        let of = self.0.entry(*way).or_default();
        *(if stayed.is_none() { &mut of.moved } else { &mut of.stayed }) += 1;
        // One that was given up before nobody was served has none.
        if !window.is_zero() {
            of.windows[WINDOWS_UPTO.partition_point(|upto| upto < window)] += 1;
            of.windows_sum += *window;
        }
        of.tail_bytes += costs.tail_bytes;
        of.image_bytes += costs.image_bytes;
        of.block_bytes += costs.block_bytes;
        of.waited += costs.noticed.waited;
        of.failed += costs.noticed.failed;
        of.resent += costs.noticed.resent;
    }

    /// Each technique.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Way, OfWay)> {
        [Way::StopAndCopy, Way::FlushAndMove, Way::Albatross, Way::Asleep]
            .into_iter()
            .map(|way| (way, self.0.get(&way).cloned().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_felt_is_that_of_all_nodes_and_those_that_say_nothing_are_counted() {
        let millis = |waits: &[u64]| waits.iter().copied().map(Duration::from_millis).collect();
        let (n1, n2, n3) = (NodeId::new("n1"), NodeId::new("n2"), NodeId::new("n3"));
        let waited = |waits: &[u64]| Some(Felt { waits: millis(waits), ..Felt::default() });
        let felt = |failed, resent| Some(Felt { failed, resent, ..Felt::default() });
        let told = vec![
            (n1.clone(), waited(&[9, 1, 5])),
            (n2.clone(), None),
            (n3.clone(), waited(&[7])),
            (n1.clone(), felt(1, 2)),
            (n2, None),
            (n3, felt(0, 3)),
        ];
        let (wait_p50, wait_max) = (Duration::from_millis(5), Duration::from_millis(9));
        let noticed = Noticed { waited: 4, wait_p50, wait_max, failed: 1, resent: 5, silent: 1 };
        assert_eq!(Noticed::of(told), noticed);
        assert_eq!(Noticed::of(vec![(n1, felt(0, 0))]), Noticed::default());
    }

    #[test]
    fn moves_are_counted_by_technique_and_windows_by_their_length() {
        let mut totals = Totals::default();
        let report = |way, window, stayed: Option<&str>| Report {
            tenant: 7,
            from: NodeId::new("n1"),
            to: NodeId::new("n2"),
            way,
            began: 0,
            took: Duration::from_secs(1),
            window: Duration::from_millis(window),
            stayed: stayed.map(str::to_owned),
            costs: Costs { tail_bytes: 10, ..Costs::default() },
        };
        totals.add(&report(Way::Albatross, 3, None));
        totals.add(&report(Way::Albatross, 4, None));
        totals.add(&report(Way::Albatross, 99_000, Some("busy")));
        totals.add(&report(Way::FlushAndMove, 0, Some("refused")));
        let each: BTreeMap<_, _> = totals.each().collect();
        let albatross = &each[&Way::Albatross];
        assert_eq!((albatross.moved, albatross.stayed, albatross.tail_bytes), (2, 1, 30));
        assert_eq!(albatross.windows, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(each[&Way::FlushAndMove].windows, [0; 10], "it was served all the time");
        assert_eq!(each[&Way::StopAndCopy].moved, 0);
    }
}
