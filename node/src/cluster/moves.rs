//! Databases that change their node while both nodes live. [`savanna_handover`] decides, this carries it out.
//!
//! ```text
//!  the node that has it                                the node that gets it
//!  moves/start.2  freeze, drain, write down
//!                 ────────── moves/say.3: Begin ..  ──►  nothing, until the end of its log says that it is to have it
//!                 ────────── moves/blocks.1         ──►  reads what is in the cache here  (`warming`)
//!                 ────────── moves/part.1           ──►  what is open, and what was committed since that began
//!                 compare-and-set of the record          takes it in, as anything else that the records say
//! ```
//!
//! The storage is common, so that what travels is what is not in there: open transactions with their locks, and what was committed since the snapshots of these.

mod asleep;
mod coming;
mod costs;
mod leaving;
pub(super) mod points;
mod warming;

use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_control::drained::{expectation, is_drained};
use savanna_control::moving::Proposals;
use savanna_epoch::NodeId;
use savanna_handover::{Action, Handover, Limits, MoveId, PartLimits, Source, Technique, ToSource, ToTarget};
use savanna_ownership::{Exclusive, Ownership, RootExpectation, ShardRecord, Tenure, Transition, Versioned};
use savanna_pgwire_tenants::Back;
use savanna_rpc::{Method, MethodTable, Service, call};
use savanna_tenants_host::{SqlError, TenantId, Tenants, error::state, shards};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

pub(crate) use self::asleep::TOGETHER;
use self::asleep::{SayAll, StartAsleep};
use self::coming::Coming;
pub(crate) use self::costs::{Costs, OfWay, Totals, WINDOWS_UPTO};
use self::costs::{Feel, Told, Watch};
use self::leaving::Leaving;
use self::warming::{ReadBlocks, Warming};
use super::Joined;

/// What other nodes ask by.
pub(crate) const SERVICE: &str = "moves";
/// How long the other node has for one message, and how long what it has to do for it may take.
const SAY_TIME: Duration = Duration::from_secs(4);
const SERVE_TIME: Duration = Duration::from_secs(3);
/// The SQLSTATE of a move of which nobody has said in time what came of it.
pub(super) const UNKNOWN_END: &str = "57P03";
/// How long a move may take that is asked for.
const START_TIME: Duration = Duration::from_secs(120);
/// How long another node has to say what moved.
const LIST_TIME: Duration = Duration::from_secs(2);
/// Bytes of a message with a part of what goes along.
const PART_BYTES: usize = 4 << 20;
/// What goes along is 64 MiB at most, and a little for its form.
const PART_LIMITS: PartLimits = PartLimits { part_bytes: PART_BYTES, count: 32, bytes: 72 << 20 };
/// So many moves leave a node at once, beside those of databases that sleep.
const LEAVING_MAX: usize = 2;
/// So many moves are remembered that left.
const REMEMBERED: usize = 100;

/// How a database is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Nobody is served while all of it is written down.
    StopAndCopy,
    /// It is written down first, and the rest while nobody is served.
    FlushAndMove,
    /// The same, and what is open goes along.
    Albatross,
    /// With others at once: it sleeps, so that nothing is to be written down, and nobody is there.
    Asleep,
}

impl Way {
    /// As it is asked for.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StopAndCopy => "stop-and-copy",
            Self::FlushAndMove => "flush-and-move",
            Self::Albatross => "albatross",
            Self::Asleep => "asleep",
        }
    }
}

/// A move that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) tenant: TenantId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) way: Way,
    /// Milliseconds since 1970.
    pub(crate) began: u64,
    pub(crate) took: Duration,
    /// How long nobody was served: until the other node said that it serves, or the database stayed. If the other node is silent, until it was decided.
    pub(crate) window: Duration,
    /// Why it stayed, if it did.
    pub(crate) stayed: Option<String>,
    pub(crate) costs: Costs,
}

/// Why a move was not begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NotBegun {
    /// There is no such database on the node.
    Absent(String),
    /// It cannot go there, or not now.
    Refused(String),
}

/// Moves a tenant of the node that is asked to another one; the answer comes when that has ended.
struct Start;

impl Method for Start {
    const NAME: &'static str = "moves/start.2";
    const IDEMPOTENT: bool = false;
    type Request = (TenantId, NodeId, Way);
    type Reply = Result<Report, NotBegun>;
}

/// What the node says that has a tenant, and what the other one answers.
struct Say;

impl Method for Say {
    const NAME: &'static str = "moves/say.3";
    const IDEMPOTENT: bool = true;
    type Request = Words;
    type Reply = Option<ToSource>;
}

/// The tenant and its move; the attempt's place among those that moved the tenant, the version that its record had before, and how many parts go along; what is said.
type Words = (TenantId, Handover, (u64, u32), ToTarget);

/// A part of what goes along with a tenant. Whether the move is known.
struct SendPart;

impl Method for SendPart {
    const NAME: &'static str = "moves/part.1";
    const IDEMPOTENT: bool = true;
    /// The move; which of how many parts it is, and its bytes.
    type Request = (MoveId, u32, u32, Vec<u8>);
    type Reply = bool;
}

/// The moves that left a node, oldest first.
struct List;

impl Method for List {
    const NAME: &'static str = "moves/list.3";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Vec<Report>;
}

/// The moves of a node, as long as it serves tenants.
pub(crate) struct Moves {
    joined: Arc<Joined>,
    tenants: Tenants,
    back: Arc<Back>,
    leaving: Mutex<BTreeSet<TenantId>>,
    /// Those of them that sleep and leave with others.
    leaving_asleep: Mutex<BTreeSet<TenantId>>,
    left: Mutex<VecDeque<Report>>,
    totals: Mutex<Totals>,
    coming: Mutex<VecDeque<Arc<Coming>>>,
}

impl std::fmt::Debug for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moves").field("leaving", &*self.leaving.lock()).finish_non_exhaustive()
    }
}

impl Moves {
    pub(crate) fn new(joined: Arc<Joined>, tenants: Tenants, back: Arc<Back>) -> Arc<Self> {
        let (leaving, leaving_asleep, left) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (totals, coming) = (Mutex::default(), Mutex::default());
        Arc::new(Self { joined, tenants, back, leaving, leaving_asleep, left, totals, coming })
    }

    /// All moves that left the node since its service began.
    pub(crate) fn totals(&self) -> Totals {
        self.totals.lock().clone()
    }

    /// What other nodes ask: `moves/..`.
    pub(crate) fn service(self: &Arc<Self>) -> Arc<dyn Service> {
        let [start, say, part, blocks, list, watch, feel, asleep, say_all] = [0; 9].map(|_| Arc::clone(self));
        Arc::new(
            MethodTable::new()
                .method(PhantomData::<Start>, move |_, (tenant, to, way)| {
                    let moves = Arc::clone(&start);
                    async move { Ok(moves.start(tenant, to, way).await) }
                })
                .method(PhantomData::<Say>, move |_, (tenant, handover, attempt, said)| {
                    let moves = Arc::clone(&say);
                    async move { Ok(moves.hear(tenant, handover, attempt, said).await) }
                })
                .method(PhantomData::<StartAsleep>, move |_, (tenants, to)| {
                    let moves = Arc::clone(&asleep);
                    async move { Ok(moves.start_asleep(tenants, to).await) }
                })
                .method(PhantomData::<SayAll>, move |_, words| {
                    let moves = Arc::clone(&say_all);
                    async move { Ok(moves.hear_all(words).await) }
                })
                .method(PhantomData::<SendPart>, move |_, (id, number, count, bytes)| {
                    let known = part.take_part(id, (number, count), bytes);
                    async move { Ok(known) }
                })
                .method(PhantomData::<ReadBlocks>, move |_, (id, wanted)| {
                    let moves = Arc::clone(&blocks);
                    async move { Ok(moves.read_blocks(id, wanted).await) }
                })
                .method(PhantomData::<Watch>, move |_, (id, tenant)| {
                    watch.joined.front().watch(id.0, tenant);
                    async { Ok(()) }
                })
                .method(PhantomData::<Feel>, move |_, (id, window)| {
                    let moves = Arc::clone(&feel);
                    async move { Ok(moves.joined.front().felt(id.0, window).await) }
                })
                .method(PhantomData::<List>, move |_, ()| {
                    let listed = list.left.lock().iter().cloned().collect();
                    async { Ok(listed) }
                }),
        )
    }

    /// Moves a tenant to another node, wherever it is.
    ///
    /// # Errors
    /// 3D000 if there is none, 55000 if it cannot go there, 57P03 if its node does not say what came of it.
    pub(crate) async fn ask(&self, tenant: TenantId, to: &NodeId, way: Way) -> Result<Report, SqlError> {
        let view = self.joined.view.now();
        let record = view.shard(&shards::shard(tenant)).and_then(|record| record.value.owner().cloned());
        let owner = record.ok_or_else(|| SqlError::new(state::INVALID_CATALOG_NAME, "no node has the database"))?;
        let request = (tenant, to.clone(), way);
        let asked = call::<Start>(&*self.joined.transport(), &owner.node, &request, START_TIME).await;
        let begun = asked.map_err(|error| {
            let message = format!("what came of the move is not known: {error}");
            SqlError::new(UNKNOWN_END, message)
                .hint("`savanna shards` says where the database is, `savanna moves` what became of it.")
        })?;
        begun.map_err(|error| match error {
            NotBegun::Absent(message) => SqlError::new(state::INVALID_CATALOG_NAME, message),
            NotBegun::Refused(message) => SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message),
        })
    }

    /// The moves of all nodes that answer, oldest first.
    pub(crate) async fn list(&self) -> Vec<Report> {
        let (view, transport) = (self.joined.view.now(), self.joined.transport());
        let asked = view.nodes().map(|node| {
            let (transport, node) = (Arc::clone(&transport), node.tenure.node.clone());
            async move { call::<List>(&*transport, &node, &(), LIST_TIME).await.unwrap_or_default() }
        });
        let mut all: Vec<_> = futures::future::join_all(asked).await.into_iter().flatten().collect();
        all.sort_by_key(|report| report.began);
        all
    }

    /// Moves a tenant of this node to another one. It goes on if nobody waits for it.
    async fn start(self: &Arc<Self>, tenant: TenantId, to: NodeId, way: Way) -> Result<Report, NotBegun> {
        let refused = |message: &str| NotBegun::Refused(message.to_owned());
        {
            let mut leaving = self.leaving.lock();
            if leaving.contains(&tenant) {
                return Err(refused("the database moves already"));
            }
            if leaving.len() >= LEAVING_MAX + self.leaving_asleep.lock().len() {
                return Err(refused("two databases leave the node already: try again when one of them has"));
            }
            leaving.insert(tenant);
        }
        let moves = Arc::clone(self);
        let moving = tokio::spawn(async move {
            let ended = {
                let _leaves = Leaves { moves: &moves, tenant };
                moves.run(tenant, to, way).await
            };
            let Ended { id, mut report, waits } = ended?;
            report.costs.noticed = moves.noticed(id, waits).await;
            moves.totals.lock().add(&report);
            remember(&mut moves.left.lock(), report.clone(), REMEMBERED);
            Ok::<_, NotBegun>(report)
        });
        moving.await.unwrap_or_else(|error| Err(refused(&error.to_string())))
    }

    async fn run(&self, tenant: TenantId, to: NodeId, way: Way) -> Result<Ended, NotBegun> {
        let (mut leaving, source, actions) = self.begin(tenant, &to, way).await?;
        let ending = leaving.carry_out(source, actions.into()).await?;
        Ok(leaving.ended(ending).await)
    }

    /// What a move of a tenant of this node begins with. Nothing is done before the first of the actions.
    async fn begin(
        &self,
        tenant: TenantId,
        to: &NodeId,
        way: Way,
    ) -> Result<(Leaving<'_>, Source, Vec<Action>), NotBegun> {
        let (shard, mine) = (shards::shard(tenant), self.joined.tenure().clone());
        let record = self.joined.coordinator.shard(&shard).await;
        let record = record.map_err(|error| NotBegun::Refused(error.to_string()))?;
        let held = record.filter(|record| record.value.owner() == Some(&mine) && self.tenants.has(tenant));
        let Some(record) = held else {
            return Err(NotBegun::Absent(format!("{shard} is not on node {}", mine.node)));
        };
        let Versioned { version, value } = self.settled(tenant, record).await?;
        let log = value.history.as_ref().map(|history| history.log.clone());
        let (Ownership::Exclusive(Exclusive::Serving { .. }), Some(log)) = (&value.ownership, log) else {
            return Err(NotBegun::Refused(format!("{shard} is on its way to another node already")));
        };
        let (target, expects) = self.target(to)?;
        let handover =
            Handover { id: MoveId(rand::random()), from: mine.node.clone(), to: to.clone(), epoch: value.epoch, log };
        let technique = match way {
            // Nothing is to be written down of what sleeps.
            Way::StopAndCopy | Way::Asleep => Technique::StopAndCopy,
            Way::FlushAndMove => Technique::FlushAndMove,
            Way::Albatross => Technique::Albatross,
        };
        let attempt = version.0;
        let began = Instant::now();
        let (source, actions) = Source::new(handover.clone(), technique, Limits::default(), version.0, 0);
        let leaving = Leaving {
            moves: self,
            tenant,
            proposals: Proposals { shard, tenures: (mine, target), before: value, expects },
            handover,
            began,
            frozen: None,
            window: None,
            is_watched: false,
            waits: None,
            costs: Costs::default(),
            warming: Warming::new(),
            drain: None,
            is_drained: false,
            way,
            attempt,
            parts: VecDeque::new(),
            parts_count: 0,
            version,
            why: String::new(),
            decided: None,
        };
        Ok((leaving, source, actions))
    }

    /// The record of a tenant of this node that nobody moves, though it may say so, as whoever did it has ended.
    async fn settled(
        &self,
        tenant: TenantId,
        record: Versioned<ShardRecord>,
    ) -> Result<Versioned<ShardRecord>, NotBegun> {
        let Ownership::Exclusive(Exclusive::Moving { from, .. }) = &record.value.ownership else { return Ok(record) };
        let by = Some(from.clone());
        let value = ShardRecord::serving(from.clone(), record.value.epoch).with_history(record.value.history.clone());
        let (shard, expected) = (shards::shard(tenant), record.version);
        let stays = Transition { shard, expected, record: value.clone(), by };
        match self.joined.coordinator.transition(&stays).await {
            Ok(version) => {
                self.tenants.note_version(tenant, version);
                self.tenants.thaw(tenant);
                Ok(Versioned { version, value })
            }
            Err(error) => Err(NotBegun::Refused(error.to_string())),
        }
    }

    /// The tenure that is to have a tenant, and what has to be so still when that is announced: whoever drains it later sees in the records that the tenant is on its way.
    fn target(&self, to: &NodeId) -> Result<(Tenure, RootExpectation), NotBegun> {
        let view = self.joined.view.now();
        if *to == self.joined.tenure().node {
            return Err(NotBegun::Refused(format!("the database is on node {to} already")));
        }
        let Some(node) = view.nodes().find(|node| node.tenure.node == *to) else {
            let known: Vec<_> = view.nodes().map(|node| node.tenure.node.0.clone()).collect();
            return Err(NotBegun::Refused(format!("expected one of the nodes {}, came {to}", known.join(", "))));
        };
        if !shards::is_ready(&view, &node.tenure) {
            return Err(NotBegun::Refused(format!("node {to} serves no databases")));
        }
        if is_drained(&view, &node.tenure) {
            return Err(NotBegun::Refused(format!(
                "node {to} is drained: `savanna drain {to} --undo`, or choose another one"
            )));
        }
        Ok((node.tenure.clone(), expectation(&view, to)))
    }
}

/// A tenant that is on its way as long as this is kept.
struct Leaves<'a> {
    moves: &'a Moves,
    tenant: TenantId,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut leaving = self.moves.leaving.lock();
        leaving.remove(&self.tenant);
        self.moves.leaving_asleep.lock().remove(&self.tenant);
    }
}

/// Keeps the last of them.
fn remember<T>(kept: &mut VecDeque<T>, next: T, max: usize) {
    if kept.len() == max {
        kept.pop_front();
    }
    kept.push_back(next);
}

/// A move that has ended; what clients have noticed is not known yet.
struct Ended {
    id: MoveId,
    report: Report,
    /// How long they waited, if there was something to wait for.
    waits: Option<JoinHandle<Told>>,
}
