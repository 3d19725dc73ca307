//! Virtual nodes of keys that change their node while they are used. [`savanna_handover`] decides, this carries it out.
//!
//! ```text
//!  the node that has it                                 the node that gets it
//!  keys/move.1   its keys, then what is changed
//!                ────────── keys/move_part.1 ────────►  collects it apart from its own keys
//!                ────────── keys/move_say.1: Round .. ►
//!                nobody begins anything; the rest
//!                ────────── keys/move_say.1: Prepare ─►  all of it into its log, durable
//!                compare-and-set of the record
//!                those who wait are sent on
//!                ────────── keys/move_say.1: Commit ──►  serves
//! ```
//!
//! Whether the record says so or the other node: what is in the log is served, and what has come of a move that did not happen is void.

mod coming;
mod leaving;
mod leftovers;
mod planning;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use savanna_control::drained::{expectation, is_drained};
use savanna_control::moving::Proposals;
use savanna_epoch::{LogId, NodeId, OwnerEpoch};
use savanna_handover::{Handover, Limits, MoveId, Source, Technique, ToSource, ToTarget};
use savanna_keys_host::Hearer;
use savanna_ownership::{
    ClusterView, CoordinatorError, Exclusive, Ownership, Revision, RootExpectation, ShardRecord, Tenure, Transition,
    Versioned,
};
use savanna_rpc::{Delivery, Method, MethodTable, call};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use self::coming::Coming;
use self::leaving::{Leaving, blocking};
use self::leftovers::Leftovers;
pub(super) use self::planning::Planner;
use super::Joined;
use super::view::View;
use super::virtual_nodes::{PREFIX, is_host, node_of, shard};

/// How long a move may take that is asked for.
const START_TIME: Duration = Duration::from_secs(120);
/// How long the other node has for one message.
const SAY_TIME: Duration = Duration::from_secs(2);
/// Times of the decisions, in milliseconds: nobody is served between the freeze and the decision.
const LIMITS: Limits = Limits { silence: 2_000, drain: 1_000, rounds: 10 };
/// Between two looks at the records that have not changed: not everything may have been possible.
const AGAIN: Duration = Duration::from_secs(1);
/// So many virtual nodes leave a node at once.
const LEAVING_MAX: usize = 16;

/// The epochs under which virtual nodes are served here, or were last.
pub(super) type Taken = BTreeMap<u16, OwnerEpoch>;

/// A move that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) node: u16,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Milliseconds since 1970.
    pub(crate) began: u64,
    pub(crate) took: Duration,
    /// How long nobody was served.
    pub(crate) window: Duration,
    pub(crate) rounds: u32,
    /// Bytes that went to the other node.
    pub(crate) bytes: u64,
    /// Why it stayed, if it did.
    pub(crate) stayed: Option<String>,
}

/// Why a move was not begun, or nobody knows what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NotMoved {
    /// It is not there.
    Absent(String),
    /// It cannot go there, or not now.
    Refused(String),
    /// Its node does not say.
    Unknown(String),
}

/// Moves a virtual node of the node that is asked to another one; the answer comes when that has ended.
struct Start;

impl Method for Start {
    const NAME: &'static str = "keys/move.1";
    const IDEMPOTENT: bool = false;
    type Request = (u16, NodeId);
    type Reply = Result<Report, NotMoved>;
}

/// What the node says that has a virtual node, and what the other one answers.
struct Say;

impl Method for Say {
    const NAME: &'static str = "keys/move_say.1";
    const IDEMPOTENT: bool = true;
    /// The virtual node and its move; the version that its record had before, and how many parts were sent; what is said.
    type Request = (u16, Handover, (u64, u32), ToTarget);
    type Reply = Option<ToSource>;
}

/// A part of what goes with a virtual node, by its number. Whether it was taken.
struct SendPart;

impl Method for SendPart {
    const NAME: &'static str = "keys/move_part.1";
    const IDEMPOTENT: bool = true;
    type Request = (MoveId, u32, Vec<u8>);
    type Reply = bool;
}

/// The moves of virtual nodes of a node, as long as it has a share of the keys.
pub(crate) struct KeyMoves {
    joined: Arc<Joined>,
    hearer: Hearer,
    /// The node's own log.
    log: LogId,
    /// Whether any is to begin, as far as this node goes.
    may_move: bool,
    taken: watch::Sender<Taken>,
    leaving: Mutex<BTreeSet<u16>>,
    coming: Mutex<VecDeque<Arc<Coming>>>,
    /// Bytes of what has come and is not in the log.
    staged: Arc<AtomicUsize>,
    leftovers: Leftovers,
    /// What is carried out; nothing when the service has ended.
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl std::fmt::Debug for KeyMoves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyMoves").field("leaving", &*self.leaving.lock()).finish_non_exhaustive()
    }
}

impl KeyMoves {
    pub(crate) fn new(joined: Arc<Joined>, hearer: Hearer, log: LogId, may_move: bool) -> Arc<Self> {
        let (taken, leaving, coming) = (watch::Sender::default(), Mutex::default(), Mutex::default());
        let (staged, leftovers, tasks) = (Arc::default(), Leftovers::default(), Mutex::new(Some(JoinSet::new())));
        Arc::new(Self { joined, hearer, log, may_move, taken, leaving, coming, staged, leftovers, tasks })
    }

    /// Whether any move is to begin here.
    pub(super) const fn may_move(&self) -> bool {
        self.may_move
    }

    /// Does something that goes on though nobody waits for it any more, as long as the service does.
    async fn carried_out<T: Send + 'static>(&self, act: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        {
            let mut tasks = self.tasks.lock();
            let tasks = tasks.as_mut()?;
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move { drop(done.send(act.await)) });
        }
        outcome.await.ok()
    }

    /// Nothing is carried out any more when this is dropped: the service has ended.
    pub(super) fn ending(self: &Arc<Self>) -> EndsMoves {
        EndsMoves(Arc::clone(self))
    }

    /// The epochs under which virtual nodes are served here.
    pub(super) const fn taken(&self) -> &watch::Sender<Taken> {
        &self.taken
    }

    /// What other nodes ask, beside what they ask of keys.
    pub(crate) fn methods(self: &Arc<Self>, table: MethodTable) -> MethodTable {
        let [start, say, part] = [0; 3].map(|_| Arc::clone(self));
        table
            .method(PhantomData::<Start>, move |_, (node, to)| {
                let moves = Arc::clone(&start);
                async move { Ok(moves.start(node, to).await) }
            })
            .method(PhantomData::<Say>, move |_, (node, handover, attempt, said)| {
                let moves = Arc::clone(&say);
                async move { Ok(moves.hear(node, handover, attempt, said).await) }
            })
            .method(PhantomData::<SendPart>, move |_, (id, number, bytes)| {
                let moves = Arc::clone(&part);
                async move { Ok(moves.take_part(id, number, bytes).await) }
            })
    }

    /// Moves a virtual node of this node to another one. It goes on if nobody waits for it.
    async fn start(self: &Arc<Self>, node: u16, to: NodeId) -> Result<Report, NotMoved> {
        let refused = |message: &str| NotMoved::Refused(message.to_owned());
        if !self.may_move {
            return Err(refused("keys do not move: `keys.moves` is false at their node, as it is by default"));
        }
        {
            let mut leaving = self.leaving.lock();
            if leaving.contains(&node) {
                return Err(refused("the virtual node moves already"));
            }
            if leaving.len() >= LEAVING_MAX {
                return Err(refused(
                    "as many virtual nodes as may leave the node already: try again when one of them has",
                ));
            }
            leaving.insert(node);
        }
        let moves = Arc::clone(self);
        let moving = self.carried_out(async move {
            let _leaves = Leaves { moves: &moves, node };
            moves.run(node, to).await
        });
        moving.await.unwrap_or_else(|| Err(NotMoved::Unknown("the service of keys has ended meanwhile".to_owned())))
    }

    async fn run(&self, node: u16, to: NodeId) -> Result<Report, NotMoved> {
        let (shard, mine) = (shard(node), self.joined.tenure.clone());
        let record = self.joined.coordinator.shard(&shard).await;
        let record = record.map_err(|error| NotMoved::Refused(error.to_string()))?;
        let is_served = |record: &ShardRecord| self.taken.borrow().get(&node) == Some(&record.epoch);
        let held = record.filter(|record| record.value.owner() == Some(&mine) && is_served(&record.value));
        let Some(record) = held else {
            return Err(NotMoved::Absent(format!("{shard} is not on node {}", mine.node)));
        };
        let Versioned { version, value } = self.settled(node, record).await?;
        let log = value.history.as_ref().map(|history| history.log.clone());
        let Some(log) = log.filter(|log| *log == self.log) else {
            return Err(NotMoved::Refused(format!("the keys of {shard} are not in the log of node {} yet", mine.node)));
        };
        let (target, expects) = self.target(&to)?;
        let (from, epoch) = (mine.node.clone(), value.epoch);
        let handover = Handover { id: MoveId(rand::random()), from, to, epoch, log };
        let (source, actions) = Source::new(handover.clone(), Technique::Albatross, LIMITS, version.0, 0);
        let proposals = Proposals { shard, tenures: (mine, target), before: value, expects };
        Leaving::new(self, node, proposals, handover, version.0).carry_out(source, actions.into()).await
    }

    /// The record of a virtual node of this node that nobody moves, though it may say so, as whoever did it has ended.
    async fn settled(&self, node: u16, record: Versioned<ShardRecord>) -> Result<Versioned<ShardRecord>, NotMoved> {
        let Some(stays) = stays(node, &record) else { return Ok(record) };
        let version = self.joined.coordinator.transition(&stays).await;
        let version = version.map_err(|error| NotMoved::Refused(error.to_string()))?;
        Ok(Versioned { version, value: stays.record })
    }

    /// The service begins, perhaps anew in this tenure: gives up what a former one may have begun to move, throws away what no record says is here, and
    /// gives the revision as of which that is so. Nobody is served before.
    pub(super) async fn begin_anew(&self) -> Result<Revision, String> {
        let said = |error: CoordinatorError| error.to_string();
        loop {
            let view = ClusterView::new(self.joined.coordinator.snapshot().await.map_err(said)?);
            let mut are_settled = true;
            for (shard, record) in view.shards(PREFIX) {
                let is_own = record.value.owner() == Some(&self.joined.tenure);
                let Some(stays) = node_of(shard).filter(|_| is_own).and_then(|node| stays(node, record)) else {
                    continue;
                };
                are_settled = false;
                match self.joined.coordinator.transition(&stays).await {
                    // Whoever was before has decided meanwhile: it is read again.
                    Ok(_) | Err(CoordinatorError::Conflict { .. }) => {}
                    Err(error) => return Err(said(error)),
                }
            }
            if are_settled {
                // Whoever was replaced has nothing to say in its log any more.
                if !self.joined.guard.serving() {
                    return Err("expected a lease that is held, found one that has ended".to_owned());
                }
                let clear = |void: BTreeSet<u16>| {
                    let hearer = self.hearer.clone();
                    blocking(move || hearer.clear(void, false))
                };
                let begun = self.leftovers.begin(&view, (&self.joined.tenure, &self.log), clear).await;
                return begun.map(|()| view.revision()).map_err(|error| error.to_string());
            }
        }
    }

    /// What the log has of virtual nodes that were lost, or on their way here when the service began, is void if they are somebody else's.
    async fn throw_leftovers_away(&self, view: &ClusterView) {
        if !self.joined.guard.serving() {
            return;
        }
        let clear = |node: u16| {
            let hearer = self.hearer.clone();
            blocking(move || hearer.clear([node], false))
        };
        self.leftovers.throw_away(view, (&self.joined.tenure, &self.log), clear).await;
    }

    /// Serves virtual nodes that are here, as their records say, if their keys are. Gives those, and why others are not.
    pub(super) async fn serve_here(&self, nodes: Vec<(u16, OwnerEpoch)>) -> (Vec<(u16, OwnerEpoch)>, String) {
        if nodes.is_empty() {
            return Default::default();
        }
        let hearer = self.hearer.clone();
        let served = blocking(move || {
            let (mut served, mut failed) = (Vec::new(), String::new());
            for (node, epoch) in nodes {
                match hearer.serve(node, None, epoch) {
                    Ok(()) => served.push((node, epoch)),
                    Err(error) => failed = format!("virtual node {node}: {error}"),
                }
            }
            Ok((served, failed))
        });
        served.await.unwrap_or_else(|error| (Vec::new(), error.to_string()))
    }

    /// Hears what the records say, also while keys of a node that is gone are taken in.
    pub(super) async fn hear_views(self: Arc<Self>, mut view: View) {
        loop {
            let now = view.now();
            tokio::join!(self.settle(&now), self.hear_records(&now));
            // What was not possible is tried again.
            if let Ok(false) = tokio::time::timeout(AGAIN, view.changed()).await {
                return;
            }
        }
    }

    /// Says of virtual nodes that nobody moves, though their records say so, that they stay.
    async fn settle(&self, view: &ClusterView) {
        for (shard, record) in view.shards(PREFIX) {
            let Some(node) = node_of(shard) else { continue };
            if record.value.owner() != Some(&self.joined.tenure) || self.leaving.lock().contains(&node) {
                continue;
            }
            if let Some(stays) = stays(node, record) {
                // Another view says what came of it.
                if let Err(error) = self.joined.coordinator.transition(&stays).await {
                    tracing::debug!(%shard, %error, "a virtual node may be on its way still, as its record says");
                }
            }
        }
    }

    /// The tenure that is to have a virtual node, and what has to be so still when that is announced.
    fn target(&self, to: &NodeId) -> Result<(Tenure, RootExpectation), NotMoved> {
        let view = self.joined.view.now();
        if *to == self.joined.tenure.node {
            return Err(NotMoved::Refused(format!("the virtual node is on node {to} already")));
        }
        let Some(node) = view.nodes().find(|node| node.tenure.node == *to) else {
            let known: Vec<_> = view.nodes().map(|node| node.tenure.node.0.clone()).collect();
            return Err(NotMoved::Refused(format!("expected one of the nodes {}, came {to}", known.join(", "))));
        };
        if !is_host(&view, &node.tenure) {
            return Err(NotMoved::Refused(format!("node {to} serves no keys")));
        }
        if is_drained(&view, &node.tenure) {
            return Err(NotMoved::Refused(format!(
                "node {to} is drained: `savanna drain {to} --undo`, or choose another one"
            )));
        }
        Ok((node.tenure.clone(), expectation(&view, to)))
    }
}

/// That a virtual node stays whose record says that it is on its way.
fn stays(node: u16, record: &Versioned<ShardRecord>) -> Option<Transition> {
    let Ownership::Exclusive(Exclusive::Moving { from, .. }) = &record.value.ownership else { return None };
    let value = ShardRecord::serving(from.clone(), record.value.epoch).with_history(record.value.history.clone());
    Some(Transition { shard: shard(node), expected: record.version, record: value, by: Some(from.clone()) })
}

/// Whether a virtual node is on its way to somebody.
fn comes_to(record: &ShardRecord, tenure: &Tenure) -> bool {
    matches!(&record.ownership, Ownership::Exclusive(Exclusive::Moving { to, .. }) if to == tenure)
}

/// Ends what is carried out when it is dropped.
pub(super) struct EndsMoves(Arc<KeyMoves>);

impl Drop for EndsMoves {
    fn drop(&mut self) {
        self.0.tasks.lock().take();
    }
}

/// A virtual node that is on its way as long as this is kept.
struct Leaves<'a> {
    moves: &'a KeyMoves,
    node: u16,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.moves.leaving.lock().remove(&self.node);
    }
}

/// Milliseconds since 1970, so long ago.
fn unix_millis(ago: Duration) -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_1970.saturating_sub(ago).as_millis() as u64
}

impl Joined {
    /// Moves a virtual node to another node, wherever it is.
    pub(crate) async fn move_keys(&self, node: u16, to: &NodeId) -> Result<Report, NotMoved> {
        let view = self.view.now();
        let owner = view.shard(&shard(node)).and_then(|record| record.value.owner().cloned());
        let Some(owner) = owner else {
            return Err(NotMoved::Absent(format!(
                "no node has {}: the keys of this cluster are not spread",
                shard(node)
            )));
        };
        if !self.config.keys_moves {
            let mine = &self.tenure.node;
            return Err(NotMoved::Refused(format!(
                "keys do not move: `keys.moves` is false at node {mine}, as it is by default"
            )));
        }
        let began = Instant::now();
        let asked = call::<Start>(&*self.transport(), &owner.node, &(node, to.clone()), START_TIME).await;
        asked.unwrap_or_else(|error| match error.delivery() {
            Delivery::NotStarted => {
                Err(NotMoved::Refused(format!("nothing was begun at node {}: {error}", owner.node)))
            }
            _ => {
                let after = began.elapsed();
                Err(NotMoved::Unknown(format!("what came of the move is not known after {after:?}: {error}")))
            }
        })
    }
}
