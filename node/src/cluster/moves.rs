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

mod costs;
mod points;
mod warming;

use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use savanna_control::drained::{expectation, is_drained};
use savanna_control::moving::{Proposals, Proposed, seen};
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_handover::{
    Action, Answer, Attempt, Change, Ending, Handover, Hearing, Input, Limits, MoveId, Obstacle, PartLimits, Parts,
    Source, Target, TargetAction, TargetInput, Technique, ToSource, ToTarget, hearing,
};
use savanna_ownership::{Exclusive, Ownership, Revision, RootExpectation, ShardRecord, Tenure, Transition, Versioned};
use savanna_pgwire_tenants::Back;
use savanna_rpc::{Method, MethodTable, Service, call};
use savanna_tenants_host::{Moved, SqlError, TenantId, Tenants, error::state, shards};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

pub(crate) use self::costs::{Costs, OfWay, Totals, WINDOWS_UPTO};
use self::costs::{Feel, Told, Watch};
use self::points::reached;
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
/// How long the other node is told what was decided.
const DECIDED_TIME: Duration = Duration::from_secs(5);
/// How long another node has to say what moved.
const LIST_TIME: Duration = Duration::from_secs(2);
/// Between two looks at what did not come.
const TICK: Duration = Duration::from_millis(20);
/// Bytes of a message with a part of what goes along, and the parts at most.
const PART_BYTES: usize = 4 << 20;
/// So many of them are on their way at once.
const PARTS_UNDER_WAY: usize = 4;
/// What goes along is 64 MiB at most, and a little for its form.
const PART_LIMITS: PartLimits = PartLimits { part_bytes: PART_BYTES, count: 32, bytes: 72 << 20 };
/// How long what came of a move is kept that does not end: longer than one takes.
const COMING_TIME: Duration = Duration::from_secs(180);
/// So many moves leave a node at once.
const LEAVING_MAX: usize = 2;
/// So many moves are remembered, of those that left and of those that came.
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
}

impl Way {
    /// As it is asked for.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StopAndCopy => "stop-and-copy",
            Self::FlushAndMove => "flush-and-move",
            Self::Albatross => "albatross",
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
    /// With the attempt's place among those that moved the tenant, the version that its record had before, and how many parts go along.
    type Request = (TenantId, Handover, (u64, u32), ToTarget);
    type Reply = Option<ToSource>;
}

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
    const NAME: &'static str = "moves/list.2";
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
    left: Mutex<VecDeque<Report>>,
    totals: Mutex<Totals>,
    coming: Mutex<VecDeque<Arc<Coming>>>,
}

/// A tenant that comes to this node, or was to.
struct Coming {
    id: MoveId,
    tenant: TenantId,
    attempt: u64,
    target: tokio::sync::Mutex<Target>,
    /// What came of what goes along.
    parts: Mutex<Parts>,
    began: Instant,
}

impl Coming {
    const fn attempt(&self) -> Attempt<TenantId> {
        Attempt { id: self.id, shard: self.tenant, place: self.attempt }
    }

    /// What goes along, if all of it has come: so many parts.
    fn moved(&self, count: u32) -> Result<Moved, SqlError> {
        let all = self.parts.lock().all(count);
        let all = all.map_err(|came| SqlError::internal(format_args!("expected {count} parts, came {came}")))?;
        all.map_or_else(|| Ok(Moved::default()), |all| Moved::decode(&all))
    }

    /// What has come is needed no more, nor what comes late.
    fn forget_parts(&self) {
        self.parts.lock().forget();
    }
}

impl std::fmt::Debug for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moves").field("leaving", &*self.leaving.lock()).finish_non_exhaustive()
    }
}

impl Moves {
    pub(crate) fn new(joined: Arc<Joined>, tenants: Tenants, back: Arc<Back>) -> Arc<Self> {
        let (leaving, left, totals, coming) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { joined, tenants, back, leaving, left, totals, coming })
    }

    /// All moves that left the node since its service began.
    pub(crate) fn totals(&self) -> Totals {
        self.totals.lock().clone()
    }

    /// What other nodes ask: `moves/..`.
    pub(crate) fn service(self: &Arc<Self>) -> Arc<dyn Service> {
        let [start, say, part, blocks, list, watch, feel] = [0; 7].map(|_| Arc::clone(self));
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
            if leaving.len() >= LEAVING_MAX {
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
            remember(&mut moves.left.lock(), report.clone());
            Ok::<_, NotBegun>(report)
        });
        moving.await.unwrap_or_else(|error| Err(refused(&error.to_string())))
    }

    async fn run(&self, tenant: TenantId, to: NodeId, way: Way) -> Result<Ended, NotBegun> {
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
        let (target, expects) = self.target(&to)?;
        let handover =
            Handover { id: MoveId(rand::random()), from: mine.node.clone(), to: to.clone(), epoch: value.epoch, log };
        let technique = match way {
            Way::StopAndCopy => Technique::StopAndCopy,
            Way::FlushAndMove => Technique::FlushAndMove,
            Way::Albatross => Technique::Albatross,
        };
        let attempt = version.0;
        let began = Instant::now();
        let (source, actions) = Source::new(handover.clone(), technique, Limits::default(), version.0, 0);
        let mut leaving = Leaving {
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
        let ending = leaving.carry_out(source, actions.into()).await?;
        leaving.close_window(Instant::now());
        let window = leaving.window.map_or(Duration::ZERO, |(began, ended)| ended.duration_since(began));
        if ending == Ending::Moved {
            reached("source: saved");
            self.back.handed_over(tenant).await;
        }
        let stayed = (ending != Ending::Moved).then(|| std::mem::take(&mut leaving.why));
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let took = began.elapsed();
        let costs = std::mem::take(&mut leaving.costs);
        let report = Report {
            tenant,
            from: leaving.handover.from.clone(),
            to,
            way,
            began: since_1970.saturating_sub(took).as_millis() as u64,
            took,
            window,
            stayed,
            costs,
        };
        match &report.stayed {
            None => {
                tracing::info!(shard = %leaving.proposals.shard, to = %report.to, ?took, ?window, "a database has moved")
            }
            Some(why) => {
                tracing::warn!(shard = %leaving.proposals.shard, to = %report.to, why, "a database did not move")
            }
        }
        Ok(Ended { id: leaving.handover.id, report, waits: leaving.waits.take() })
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

    /// A tenant comes here: takes what its node says, and answers.
    async fn hear(
        &self,
        tenant: TenantId,
        handover: Handover,
        (attempt, parts): (u64, u32),
        said: ToTarget,
    ) -> Option<ToSource> {
        if let Some(refuses) = said.answer_of_a_drained_node()
            && is_drained(&self.joined.view.now(), self.joined.tenure())
        {
            return Some(refuses);
        }
        self.back.expect_sessions();
        let heard = Attempt { id: handover.id, shard: tenant, place: attempt };
        let (hears, known) = {
            let coming = self.coming.lock();
            let hears = hearing(coming.iter().map(|coming| coming.attempt()), &heard, said);
            (hears, coming.iter().find(|coming| coming.id == handover.id).map(Arc::clone))
        };
        let (coming, mut actions) = match (hears, known) {
            (Hearing::Known, Some(coming)) => (coming, VecDeque::new()),
            (Hearing::Begins | Hearing::Known, _) => {
                let (target, actions) = Target::new(handover.clone(), self.tenants.log_id());
                let (target, parts) = (tokio::sync::Mutex::new(target), Mutex::new(Parts::new(PART_LIMITS)));
                let coming =
                    Arc::new(Coming { id: handover.id, tenant, attempt, target, parts, began: Instant::now() });
                let mut known = self.coming.lock();
                // Whoever has begun so long ago has ended without a word.
                let is_over = |other: &&Arc<Coming>| {
                    other.began.elapsed() > COMING_TIME || other.tenant == tenant && other.attempt < attempt
                };
                known.iter().filter(is_over).for_each(|other| other.forget_parts());
                remember(&mut known, Arc::clone(&coming));
                (coming, VecDeque::from(actions))
            }
            (Hearing::Nobody(answer), known) => {
                known.iter().for_each(|coming| coming.forget_parts());
                return Some(answer);
            }
            (Hearing::AskRecord, _) => {
                return self.serves(tenant, handover.next_epoch()).await.then_some(ToSource::Saved);
            }
        };
        let mut target = coming.target.lock().await;
        let (more, mut answer) = target.step(TargetInput::Heard(said));
        actions.extend(more);
        while let Some(action) = actions.pop_front() {
            let input = match action {
                TargetAction::Open => {
                    reached("target: begun");
                    Some(TargetInput::Opened)
                }
                TargetAction::Apply(round) => {
                    reached(&format!("target: round {round}"));
                    Some(TargetInput::Applied(round))
                }
                TargetAction::Persist => match self.persist(&coming, handover.next_epoch(), parts).await {
                    Ok(()) => {
                        reached("target: durable");
                        Some(TargetInput::Durable)
                    }
                    Err(error) => {
                        tracing::warn!(tenant, %error, "a database that was to come here does not");
                        Some(TargetInput::Failed)
                    }
                },
                TargetAction::Serve(epoch) => {
                    reached("target: decided");
                    let serves = self.serves(tenant, epoch).await;
                    reached("target: serves");
                    serves.then_some(TargetInput::Saved)
                }
                TargetAction::Discard => {
                    coming.forget_parts();
                    self.tenants.give_up_warm(tenant, attempt);
                    self.tenants.expect_no_more(tenant, attempt);
                    None
                }
            };
            if let Some(input) = input {
                let (more, said) = target.step(input);
                actions.extend(more);
                answer = said.or(answer);
            }
        }
        answer
    }

    /// Takes a part of what goes along with a tenant. Whether the move is known.
    fn take_part(&self, id: MoveId, (number, count): (u32, u32), bytes: Vec<u8>) -> bool {
        let coming = self.coming.lock().iter().find(|coming| coming.id == id).map(Arc::clone);
        let Some(coming) = coming else { return false };
        if !coming.parts.lock().take((number, count), bytes) {
            return false;
        }
        reached("target: part");
        true
    }

    /// Makes what goes along with a tenant durable, as far as it was committed.
    async fn persist(&self, coming: &Coming, epoch: OwnerEpoch, parts: u32) -> Result<(), SqlError> {
        let moved = coming.moved(parts)?;
        reached("target: prepared");
        self.tenants.expect(coming.tenant, (epoch, coming.attempt), moved).await?;
        coming.forget_parts();
        Ok(())
    }

    /// Waits until a tenant is served here under an epoch, or a later one, which it is when the records that say so have come.
    async fn serves(&self, tenant: TenantId, epoch: OwnerEpoch) -> bool {
        let served = async {
            while self.tenants.epoch(tenant).is_none_or(|has| has < epoch) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SERVE_TIME, served).await.is_ok()
    }
}

/// A tenant that is on its way as long as this is kept.
struct Leaves<'a> {
    moves: &'a Moves,
    tenant: TenantId,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.moves.leaving.lock().remove(&self.tenant);
    }
}

/// Keeps the last of them.
fn remember<T>(kept: &mut VecDeque<T>, next: T) {
    if kept.len() == REMEMBERED {
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

/// A tenant that leaves this node.
struct Leaving<'a> {
    moves: &'a Moves,
    tenant: TenantId,
    proposals: Proposals,
    handover: Handover,
    began: Instant,
    frozen: Option<Instant>,
    /// From when until when nobody was served, when that is over.
    window: Option<(Instant, Instant)>,
    /// Whether all nodes note what clients feel of it.
    is_watched: bool,
    /// What the nodes say how long clients waited, when the window is over.
    waits: Option<JoinHandle<Told>>,
    costs: Costs,
    warming: Warming,
    drain: Option<JoinHandle<Result<Moved, SqlError>>>,
    is_drained: bool,
    way: Way,
    /// The attempt's place among those that moved the tenant.
    attempt: u64,
    /// What goes along and was not taken yet, with the parts' numbers, and how many there are.
    parts: VecDeque<(u32, Vec<u8>)>,
    parts_count: u32,
    /// Of the record, as it was last seen.
    version: Revision,
    /// Why it does not go.
    why: String,
    /// What was decided, and when.
    decided: Option<(Instant, Ending)>,
}

impl Leaving<'_> {
    async fn carry_out(&mut self, mut source: Source, mut actions: VecDeque<Action>) -> Result<Ending, NotBegun> {
        loop {
            while let Some(action) = actions.pop_front() {
                if let Some(input) = self.act(action).await? {
                    actions.extend(source.step(self.now(), input));
                }
            }
            if let Some(ending) = source.ending() {
                return Ok(ending);
            }
            // The records have it: the other node finds that there, or is gone.
            if let Some((since, ending)) = self.decided
                && since.elapsed() > DECIDED_TIME
            {
                // Whether the other node serves is not known.
                self.close_window(since);
                return Ok(ending);
            }
            tokio::time::sleep(TICK).await;
            actions.extend(source.step(self.now(), Input::Tick));
        }
    }

    /// Somebody is served again, since a moment. What clients have waited is asked for at once, as nodes do not keep it for long.
    fn close_window(&mut self, ended: Instant) {
        if let Some(frozen) = self.frozen.take() {
            let window = (frozen, ended);
            self.window = Some(window);
            self.waits = Some(tokio::spawn(self.moves.felt(self.handover.id, Some(window))));
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    async fn act(&mut self, action: Action) -> Result<Option<Input>, NotBegun> {
        let tenants = &self.moves.tenants;
        Ok(match action {
            Action::Propose(version, change) => self.propose(version, change).await?,
            Action::Read => self.read().await,
            Action::Send(said) => self.send(said).await,
            // The storage keeps what its last manifest has, and nobody writes another one.
            Action::Pin | Action::Unpin => None,
            Action::Round(round) if self.is_drained => Some(Input::Round(round, 0)),
            Action::Round(round) if self.way == Way::Albatross => {
                if round == 0 {
                    self.note_storage().await;
                }
                match tenants.save_some(self.tenant).await {
                    Ok(()) => Some(Input::Round(round, self.warm().await)),
                    Err(error) => Some(self.failed(&error)),
                }
            }
            Action::Round(round) => match tenants.save(self.tenant).await {
                Ok(()) => Some(Input::Round(round, 0)),
                Err(error) => Some(self.failed(&error)),
            },
            Action::Freeze => self.freeze().await,
            Action::Drain => self.drain().await,
            Action::Export => {
                reached("source: exported");
                Some(Input::Exported)
            }
            Action::Resume => {
                self.close_window(Instant::now());
                tenants.resume(self.tenant, self.handover.id.0);
                tenants.note_version(self.tenant, self.version);
                None
            }
            Action::Release => {
                self.moves.back.expect_sessions();
                tenants.release(self.tenant, self.handover.id.0);
                reached("source: released");
                None
            }
            Action::Stop => {
                self.close_window(Instant::now());
                self.why = "it was dropped, or another node has it".to_owned();
                tenants.release(self.tenant, self.handover.id.0);
                None
            }
        })
    }

    fn failed(&mut self, error: &SqlError) -> Input {
        self.why = error.to_string();
        Input::Failed
    }

    async fn propose(&mut self, version: u64, change: Change) -> Result<Option<Input>, NotBegun> {
        if let Change::Commit(_) = change {
            reached("source: ready");
        }
        let batch = self.proposals.batch(version, &change);
        let proposed = self.moves.joined.coordinator.apply(&batch).await;
        let answer = match self.proposals.proposed(&change, &proposed) {
            Proposed::Answered(Answer::Won(version)) => {
                match change {
                    Change::Announce => reached("source: announced"),
                    Change::Commit(_) => reached("source: decided"),
                    Change::GiveUp => reached("source: given up"),
                }
                self.version = Revision(version);
                self.moves.tenants.note_version(self.tenant, self.version);
                Answer::Won(version)
            }
            Proposed::Answered(answer) => answer,
            Proposed::TargetChanged => {
                let to = &self.handover.to;
                return Err(NotBegun::Refused(format!(
                    "node {to} was drained a moment ago, or is not any more: try again"
                )));
            }
            Proposed::NeverAnnounced(why) => return Err(NotBegun::Refused(why)),
            Proposed::Refused(why) => {
                self.why = why;
                Answer::Unknown
            }
        };
        Ok(Some(Input::Proposed(change, answer)))
    }

    async fn read(&mut self) -> Option<Input> {
        let read = self.moves.joined.coordinator.shard(&self.proposals.shard).await.ok()??;
        self.version = read.version;
        if read.value.owner() == Some(&self.proposals.tenures.0) {
            self.moves.tenants.note_version(self.tenant, read.version);
        }
        Some(Input::Read(read.version.0, seen(&read.value)))
    }

    async fn send(&mut self, said: ToTarget) -> Option<Input> {
        match said {
            ToTarget::Commit => drop(self.decided.get_or_insert_with(|| (Instant::now(), Ending::Moved))),
            ToTarget::Abort => drop(self.decided.get_or_insert_with(|| (Instant::now(), Ending::Stayed))),
            ToTarget::Begin if !std::mem::replace(&mut self.is_watched, true) => {
                self.moves.watch(self.handover.id, self.tenant)
            }
            ToTarget::Begin | ToTarget::Prepare(_) => {}
            ToTarget::Round(round) => reached(&format!("source: round {round}")),
        }
        if let ToTarget::Prepare(_) = said {
            if !self.send_parts().await {
                return None;
            }
            reached("source: sent");
        }
        let request = (self.tenant, self.handover.clone(), (self.attempt, self.parts_count), said);
        let transport = self.moves.joined.transport();
        match call::<Say>(&*transport, &self.handover.to, &request, SAY_TIME).await {
            Ok(heard) => {
                match &heard {
                    Some(ToSource::Refuse(why)) => {
                        self.why = format!("node {} does not take it: {why}", self.handover.to);
                    }
                    Some(ToSource::Synced(round)) => self.costs.rounds = round + 1,
                    Some(ToSource::Saved) => self.close_window(Instant::now()),
                    _ => {}
                }
                heard.map(Input::Heard)
            }
            Err(error) => {
                self.why = error.to_string();
                None
            }
        }
    }

    /// Sends what goes along and was not taken yet; each answer is the credit for one more part. Nothing more goes to a node that has not answered. Whether all of it is there.
    async fn send_parts(&mut self) -> bool {
        let transport = self.moves.joined.transport();
        let (id, count, to) = (self.handover.id, self.parts_count, &self.handover.to);
        let is_silent = AtomicBool::new(false);
        let mut sent = stream::iter(std::mem::take(&mut self.parts))
            .map(|(number, bytes)| {
                let (transport, is_silent, request) = (&transport, &is_silent, (id, number, count, bytes));
                async move {
                    if is_silent.load(Ordering::Relaxed) {
                        return (None, (number, request.3));
                    }
                    let answer = call::<SendPart>(&**transport, to, &request, SAY_TIME).await;
                    is_silent.fetch_or(answer.is_err(), Ordering::Relaxed);
                    (Some(answer), (number, request.3))
                }
            })
            .buffered(PARTS_UNDER_WAY);
        let mut left = VecDeque::new();
        while let Some((outcome, part)) = sent.next().await {
            match outcome {
                Some(Ok(true)) => {}
                // The next message is refused, and says so.
                Some(Ok(false)) => return true,
                Some(Err(error)) => {
                    self.why = error.to_string();
                    left.push_back(part);
                }
                None => left.push_back(part),
            }
        }
        drop(sent);
        self.parts = left;
        self.parts.is_empty()
    }

    async fn freeze(&mut self) -> Option<Input> {
        self.moves.back.expect_sessions();
        match self.moves.tenants.freeze(self.tenant, self.handover.id.0, self.way == Way::Albatross).await {
            Ok(()) => {
                self.frozen.get_or_insert_with(Instant::now);
                reached("source: frozen");
                Some(Input::Frozen)
            }
            // It is waking up, or has commits that it has not done again, which it does when it wakes.
            Err(error) if error.state == "55006" => {
                self.why = error.to_string();
                self.moves.tenants.save_some(self.tenant).await.err().map(|error| self.failed(&error))
            }
            Err(error) => Some(self.failed(&error)),
        }
    }

    /// Cuts what goes along into parts.
    fn take_along(&mut self, moved: &Moved) -> Result<(), SqlError> {
        if *moved == Moved::default() {
            return Ok(());
        }
        self.costs.tail_bytes = moved.tail.iter().map(|commit| commit.len() as u64).sum();
        self.costs.image_bytes = moved.image.as_ref().map_or(0, |image| image.len() as u64);
        let bytes = moved.encode()?;
        self.parts = (0..).zip(bytes.chunks(PART_BYTES).map(<[u8]>::to_vec)).collect();
        self.parts_count = self.parts.len() as u32;
        Ok(())
    }

    async fn drain(&mut self) -> Option<Input> {
        let (tenants, tenant, attempt) = (self.moves.tenants.clone(), self.tenant, self.handover.id.0);
        let drain = self.drain.get_or_insert_with(|| tokio::spawn(async move { tenants.drain(tenant, attempt).await }));
        match tokio::time::timeout(TICK, drain).await {
            Err(_) => Some(Input::InTheWay(vec![Obstacle::Statement])),
            Ok(Ok(Ok(moved))) => match self.take_along(&moved) {
                Ok(()) => {
                    self.is_drained = true;
                    Some(Input::InTheWay(Vec::new()))
                }
                Err(error) => Some(self.failed(&error)),
            },
            Ok(Ok(Err(error))) => Some(self.failed(&error)),
            Ok(Err(error)) => {
                self.why = error.to_string();
                Some(Input::Failed)
            }
        }
    }
}
