//! The node that a tenant leaves: what its side of a move asks for is done, as the product's node does it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use savanna_control::{
    drained,
    moving::{Proposals, Proposed, seen},
};
use savanna_epoch::NodeId;
use savanna_handover::{
    Action, Answer as Proposal, Change, Ending, Handover, Input, Limits, MoveId, Obstacle, Source, Technique, ToSource,
    ToTarget,
};
use savanna_ownership::{
    Coordinator, CoordinatorError, Exclusive, MonoTime, Ownership, Revision, ShardRecord, Transition, Versioned,
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    owner::Moved,
    shards,
    storage::{BlockRounds, Since},
};
use savanna_tenants_values::error::Result as Done;

use super::{Answer, At, Letter, Moves, NODES, Request, Variant, points::Point, target::Said};
use crate::tenants::image::Image;

/// How long the other node is told what was decided.
const DECIDED_TIME: Duration = Duration::from_secs(5);
/// So many moves leave a node at once.
const LEAVING_MAX: usize = 2;
/// Bytes of commits that go along rather than through the storage, in every other move.
const TAIL_BYTES_MAX: u64 = 1 << 20;
const TECHNIQUES: [Technique; 4] =
    [Technique::Albatross, Technique::Albatross, Technique::FlushAndMove, Technique::StopAndCopy];

/// A tenant that leaves a node.
#[derive(Debug)]
pub(super) struct Leaving {
    name: String,
    tenant: TenantId,
    source: Source,
    proposals: Proposals,
    handover: Handover,
    technique: Technique,
    /// The version of the record before, by which attempts are ordered.
    attempt: u64,
    to: usize,
    began: MonoTime,
    /// Of the record, as it was last seen.
    version: Revision,
    rounds: BlockRounds,
    since: Since,
    /// Whether the other node is told of no blocks any more.
    is_warm: bool,
    /// What goes along and was not taken yet, by the numbers of parts, and how many there are.
    parts: BTreeMap<u32, Vec<u8>>,
    parts_count: u32,
    is_drained: bool,
    /// What a node has written down that does not wait until everybody is out.
    early: Option<Moved>,
    /// Whether a commit was not durable when the tenant was frozen.
    has_undurable: bool,
    decided: Option<MonoTime>,
    /// Whether its host has ended, so that nobody does anything with the tenant for it any more.
    is_former: bool,
}

impl Leaving {
    pub(super) fn of_former(self) -> Self {
        Self { is_former: true, ..self }
    }

    pub(super) const fn is_former(&self) -> bool {
        self.is_former
    }

    pub(super) const fn id(&self) -> u64 {
        self.handover.id.0
    }

    pub(super) const fn tenant(&self) -> TenantId {
        self.tenant
    }

    fn takes_along(&self) -> bool {
        self.technique == Technique::Albatross
    }
}

impl Moves {
    /// Somebody asks a node to move one of its tenants.
    pub(super) fn begin_move(&mut self) {
        let Some(name) = self.world.any_name() else { return };
        let [node, ..] = self.world.servers(&name)[..] else { return };
        let Some(at) = self.at(node) else { return };
        let to = (node + 1 + self.roll(NODES as u32 - 1) as usize) % NODES;
        let technique = TECHNIQUES[self.roll(TECHNIQUES.len() as u32) as usize];
        if let Some((leaving, actions)) = self.try_to_begin(at, name, to, technique) {
            self.happened.begun += 1;
            self.drive(at, leaving, actions.into(), None);
        }
    }

    fn try_to_begin(
        &mut self,
        at: At,
        name: String,
        to: usize,
        technique: Technique,
    ) -> Option<(Leaving, Vec<Action>)> {
        if self.world.is_cut(at.node) {
            return None;
        }
        let view = self.world.view();
        let began = self.time();
        let id = self.moves + 1;
        let runtime = Arc::clone(&self.world.runtime);
        let running = self.process(at)?;
        let tenant = running.process.owner.lock().tenant(&name)?;
        if running.moves.leaving.len() >= LEAVING_MAX || running.moves.leaving.contains_key(&tenant) {
            return None;
        }
        let (shard, mine) = (shards::shard(tenant), running.tenure.clone());
        let record = runtime.block_on(running.process.asked.shard(&shard)).ok()??;
        let record = Some(record).filter(|record| record.value.owner() == Some(&mine))?;
        let Versioned { version, value } = self.settled(at, tenant, record)?;
        let log = value.history.as_ref().map(|history| history.log.clone())?;
        let Ownership::Exclusive(Exclusive::Serving { .. }) = &value.ownership else { return None };
        let target = view.nodes().find(|node| node.tenure.node == NodeId::new(format!("n{}", to + 1)))?.tenure.clone();
        let expects = drained::expectation(&view, &target.node);
        let (from, next) = (mine.node.clone(), target.node.clone());
        let handover = Handover { id: MoveId(id), from, to: next, epoch: value.epoch, log };
        let (source, actions) = Source::new(handover.clone(), technique, Limits::default(), version.0, 0);
        self.moves = id;
        let leaving = Leaving {
            name,
            tenant,
            source,
            proposals: Proposals { shard, tenures: (mine, target), before: value, expects },
            handover,
            technique,
            attempt: version.0,
            to,
            began,
            version,
            rounds: BlockRounds::default(),
            since: Since::default(),
            is_warm: false,
            parts: BTreeMap::new(),
            parts_count: 0,
            is_drained: false,
            early: None,
            has_undurable: false,
            decided: None,
            is_former: false,
        };
        Some((leaving, actions))
    }

    /// The record of a tenant of a node that nobody moves, though it may say so, as whoever did it has ended.
    fn settled(&mut self, at: At, tenant: TenantId, record: Versioned<ShardRecord>) -> Option<Versioned<ShardRecord>> {
        let Ownership::Exclusive(Exclusive::Moving { from, .. }) = &record.value.ownership else { return Some(record) };
        let by = Some(from.clone());
        let value = ShardRecord::serving(from.clone(), record.value.epoch).with_history(record.value.history.clone());
        let (shard, expected) = (shards::shard(tenant), record.version);
        let stays = Transition { shard, expected, record: value.clone(), by };
        let runtime = Arc::clone(&self.world.runtime);
        let running = self.process(at)?;
        let version = runtime.block_on(running.process.asked.apply(&stays.into())).ok()?;
        running.process.owner.lock().stay(tenant, version);
        if running.process.slots.attempt(tenant).is_some() {
            running.process.slots.stays(tenant);
        }
        Some(Versioned { version, value })
    }

    /// The side of a move that is at a process takes an input, and does all that comes of it.
    pub(super) fn drive(&mut self, at: At, mut leaving: Leaving, mut actions: VecDeque<Action>, input: Option<Input>) {
        let now = |moves: &Self, leaving: &Leaving| {
            u64::try_from(moves.passed_since(leaving.began).as_millis()).expect("a few minutes")
        };
        if let Some(input) = input {
            let time = now(self, &leaving);
            actions.extend(leaving.source.step(time, input));
        }
        while let Some(action) = actions.pop_front() {
            let Ok(input) = self.act(at, &mut leaving, action) else { return };
            if self.process(at).is_none() {
                return;
            }
            if let Some(input) = input {
                let time = now(self, &leaving);
                actions.extend(leaving.source.step(time, input));
            }
        }
        let is_told = leaving.decided.is_some_and(|since| self.passed_since(since) > DECIDED_TIME);
        match leaving.source.ending() {
            Some(Ending::Lost) => self.happened.lost += 1,
            Some(Ending::Stayed) => self.happened.stayed += 1,
            Some(Ending::Moved) => {}
            None if is_told => {}
            None => self.put_leaving(at, leaving),
        }
    }

    /// The other side has answered.
    pub(super) fn heard(&mut self, at: At, mut leaving: Leaving, answer: Answer) {
        match answer {
            Answer::Took { number, is_known: true } => {
                leaving.parts.remove(&number);
                self.put_leaving(at, leaving);
            }
            // The next message is refused, and says so.
            Answer::Took { is_known: false, .. } => {
                leaving.parts.clear();
                self.put_leaving(at, leaving);
            }
            Answer::Says(said) => {
                if said == ToSource::Saved && !self.reached(at, Point::Saved) {
                    return;
                }
                if matches!(said, ToSource::Ready(_)) && !self.reached(at, Point::Ready) {
                    return;
                }
                self.drive(at, leaving, VecDeque::new(), Some(Input::Heard(said)));
            }
        }
    }

    /// Does what a side of a move asks for; what came of it, or that there is no move.
    fn act(&mut self, at: At, leaving: &mut Leaving, action: Action) -> Result<Option<Input>, ()> {
        Ok(match action {
            Action::Propose(version, change) => return self.propose(at, leaving, version, change),
            Action::Read => self.read_record(at, leaving),
            Action::Send(said) => {
                self.send(at, leaving, said);
                None
            }
            // The storage keeps what its last manifest has, and nobody writes another one.
            Action::Pin | Action::Unpin => None,
            Action::Round(round) if leaving.is_drained => Some(Input::Round(round, 0)),
            Action::Round(_) | Action::Freeze | Action::Drain if leaving.is_former => Some(Input::Failed),
            Action::Resume | Action::Release | Action::Stop if leaving.is_former => None,
            Action::Round(round) => self.round(at, leaving, round),
            Action::Freeze => self.freeze(at, leaving),
            Action::Drain => self.drain(at, leaving),
            Action::Export => self.reached(at, Point::Exported).then_some(Input::Exported),
            Action::Resume => {
                self.resume(at, leaving);
                None
            }
            Action::Release => {
                self.release(at, leaving);
                *self.hops.entry(leaving.tenant).or_default() += 1;
                self.happened.moved += 1;
                self.reached(at, Point::Released);
                None
            }
            Action::Stop => {
                self.release(at, leaving);
                None
            }
        })
    }

    fn release(&mut self, at: At, leaving: &Leaving) {
        let Some(running) = self.process(at) else { return };
        running.process.release(leaving.tenant, leaving.handover.id.0);
    }

    fn resume(&mut self, at: At, leaving: &Leaving) {
        let (tenant, version) = (leaving.tenant, leaving.version);
        let Some(running) = self.process(at) else { return };
        if running.process.slots.is_moving(tenant, leaving.handover.id.0) {
            running.process.slots.stays(tenant);
        }
        running.process.owner.lock().stay(tenant, version);
    }

    /// Proposes a change. The request or its answer may be lost, or arrive when the move has gone on.
    fn propose(&mut self, at: At, leaving: &mut Leaving, version: u64, change: Change) -> Result<Option<Input>, ()> {
        let batch = leaving.proposals.batch(version, &change);
        let fate = match self.roll(12) {
            _ if self.is_quiet && !self.stands_still_now(at) => 4,
            _ if self.world.is_cut(at.node) => 0,
            fate => fate,
        };
        let runtime = Arc::clone(&self.world.runtime);
        let Some(running) = self.process(at) else { return Err(()) };
        let asked = Arc::clone(&running.process.asked);
        let unanswered = || CoordinatorError::Unavailable { reason: "the simulation lost it".to_owned() };
        let answer = match fate {
            0 => Err(unanswered()),
            1 => {
                let made = runtime.block_on(asked.apply(&batch));
                self.happened.unanswered += u32::from(made.is_ok());
                Err(unanswered())
            }
            2 => {
                self.happened.late += 1;
                self.happened.decided_late += u32::from(matches!(change, Change::Commit(_)));
                asked.arrives_late(batch);
                Err(unanswered())
            }
            _ => runtime.block_on(asked.apply(&batch)),
        };
        // Who hears of nothing any more is answered by nobody.
        let answer = answer.map_err(|error| match error {
            CoordinatorError::Stopped { .. } => unanswered(),
            error => error,
        });
        let answer = match leaving.proposals.proposed(&change, &answer) {
            Proposed::Answered(Proposal::Won(won)) => {
                leaving.version = Revision(won);
                self.note_version(at, leaving);
                let point = match change {
                    Change::Announce => Point::Announced,
                    Change::Commit(_) => Point::Decided,
                    Change::GiveUp => Point::GivenUp,
                };
                if !self.reached(at, point) {
                    return Err(());
                }
                Proposal::Won(won)
            }
            Proposed::Answered(answer) => answer,
            Proposed::Refused(_) => Proposal::Unknown,
            Proposed::TargetChanged | Proposed::NeverAnnounced(_) => return Err(()),
        };
        if answer == Proposal::Unknown
            && matches!(change, Change::Commit(_))
            && self.variant == Variant::ServesUndecided
        {
            self.resume(at, leaving);
        }
        Ok(Some(Input::Proposed(change, answer)))
    }

    /// Whether a process goes on that has stood still: what it asks may come late although nothing else fails.
    fn stands_still_now(&self, at: At) -> bool {
        !self.world.nodes[at.node].running.as_ref().is_some_and(|running| running.lease.may_tell())
    }

    fn note_version(&mut self, at: At, leaving: &Leaving) {
        if let Some(running) = self.process(at).filter(|_| !leaving.is_former) {
            running.process.owner.lock().stay(leaving.tenant, leaving.version);
        }
    }

    fn read_record(&mut self, at: At, leaving: &mut Leaving) -> Option<Input> {
        if self.world.is_cut(at.node) || !self.is_quiet && self.chance(8) {
            return None;
        }
        let runtime = Arc::clone(&self.world.runtime);
        let running = self.process(at)?;
        let read = runtime.block_on(running.process.asked.shard(&leaving.proposals.shard)).ok()??;
        leaving.version = read.version;
        if read.value.owner() == Some(&leaving.proposals.tenures.0) && !leaving.is_former {
            running.process.owner.lock().stay(leaving.tenant, read.version);
        }
        Some(Input::Read(read.version.0, seen(&read.value)))
    }

    fn send(&mut self, at: At, leaving: &mut Leaving, said: ToTarget) {
        let now = self.time();
        match said {
            ToTarget::Commit | ToTarget::Abort => _ = leaving.decided.get_or_insert(now),
            ToTarget::Round(_) if !self.reached(at, Point::SourceRound) => return,
            ToTarget::Begin | ToTarget::Prepare(_) | ToTarget::Round(_) => {}
        }
        if let ToTarget::Prepare(_) = said {
            if !leaving.parts.is_empty() {
                for (number, bytes) in leaving.parts.clone() {
                    let (id, count) = (leaving.id(), leaving.parts_count);
                    let what = Request::Part { id, number, count, bytes };
                    self.post(Letter::Request { from: at, to: leaving.to, what });
                }
                if self.variant != Variant::PartsUncounted {
                    return;
                }
            }
            if !self.reached(at, Point::Sent) {
                return;
            }
        }
        let said = Said {
            tenant: leaving.tenant,
            handover: leaving.handover.clone(),
            attempt: leaving.attempt,
            parts: leaving.parts_count,
            said,
        };
        self.post(Letter::Request { from: at, to: leaving.to, what: Request::Say(said) });
    }

    /// While the tenant is served: what the storage may have is written down, and the other node reads what is in the cache.
    fn round(&mut self, at: At, leaving: &mut Leaving, round: u32) -> Option<Input> {
        if round == 0 && leaving.takes_along() {
            let cached =
                self.process(at)?.process.inside(leaving.tenant).map(|awake| awake.home.cached(Since::default()));
            leaving.since = cached.unwrap_or_default().since();
        }
        if !self.save(at, &leaving.name, !leaving.takes_along()) {
            // Sooner or later it is too late.
            return (!self.is_quiet && self.chance(4)).then_some(Input::Failed);
        }
        let bytes = if leaving.takes_along() { self.warm(at, leaving) } else { 0 };
        Some(Input::Round(round, bytes))
    }

    /// Whether the storage has all that was committed by now, or what of it no open snapshot holds up.
    fn save(&mut self, at: At, name: &str, all: bool) -> bool {
        let runtime = Arc::clone(&self.world.runtime);
        let Some(running) = self.process(at) else { return false };
        let journal = Arc::clone(running.process.owner.lock().journal());
        let Some(awake) = running.process.waken(name) else { return false };
        if awake.is_flushing() {
            awake.flush_on(&runtime);
            return false;
        }
        let database = &awake.database;
        let upto = if all { database.published() } else { database.may_be_stored() };
        awake.write_down(&runtime, |lsn| runtime.block_on(journal.wait_durable(lsn)).is_ok());
        awake.database.flushed() >= upto
            || if all { awake.database.is_clean() } else { awake.database.is_written_down() }
    }

    /// Has the other node read the blocks that are in the cache here. The bytes that it has read.
    fn warm(&mut self, at: At, leaving: &mut Leaving) -> u64 {
        let Some(running) = self.process(at) else { return 0 };
        let Some(awake) = running.process.inside(leaving.tenant) else { return 0 };
        let wanted = leaving.rounds.next(&awake.home.cached(leaving.since));
        let mut bytes = 0;
        for wanted in wanted {
            if leaving.is_warm || !self.is_linked(at.node, leaving.to) {
                leaving.is_warm = true;
                break;
            }
            match self.read_ahead(leaving.to, leaving.id(), &wanted) {
                Some(warmed) => {
                    bytes += warmed.bytes;
                    leaving.is_warm = !warmed.has_room;
                }
                None => leaving.is_warm = true,
            }
        }
        self.happened.read_ahead += bytes;
        bytes
    }

    fn freeze(&mut self, at: At, leaving: &mut Leaving) -> Option<Input> {
        let (tenant, attempt) = (leaving.tenant, leaving.id());
        let frozen = {
            let process = &mut self.process(at)?.process;
            let owner = Arc::clone(&process.owner);
            let owner = owner.lock();
            process.slots.begin_moving(tenant, attempt, &owner).map(drop)
        };
        match frozen {
            Ok(()) => {
                let awake = self.process(at)?.process.inside(tenant);
                leaving.has_undurable =
                    awake.is_some_and(|awake| awake.database.last_logged() > savanna_journal::Lsn::NONE);
                if self.variant == Variant::ExportsBeforeDrain {
                    leaving.early = self.export_early(at, leaving);
                }
                self.reached(at, Point::Frozen).then_some(Input::Frozen)
            }
            // It is waking up, or has commits that it has not done again, which it does when it wakes.
            Err(error) if error.state == "55006" => {
                let is_saved = self.save(at, &leaving.name, false);
                (!is_saved && !self.is_quiet && self.chance(4)).then_some(Input::Failed)
            }
            Err(_) => Some(Input::Failed),
        }
    }

    fn drain(&mut self, at: At, leaving: &mut Leaving) -> Option<Input> {
        let (tenant, attempt) = (leaving.tenant, leaving.id());
        if !self.process(at)?.process.slots.is_moving(tenant, attempt) {
            return Some(Input::Failed);
        }
        if self.process(at)?.process.inside(tenant).is_none() {
            // Who sleeps has everything in the storage.
            leaving.is_drained = true;
            return Some(Input::InTheWay(Vec::new()));
        }
        if !self.sessions_leave(at, (&leaving.name, tenant), (attempt, leaving.takes_along())) {
            return Some(Input::InTheWay(vec![Obstacle::Statement]));
        }
        let runtime = Arc::clone(&self.world.runtime);
        let tail_max = if leaving.takes_along() && self.chance(2) { TAIL_BYTES_MAX } else { 0 };
        let running = self.process(at)?;
        let journal = Arc::clone(running.process.owner.lock().journal());
        let awake = running.process.inside(tenant)?;
        if awake.is_flushing() {
            awake.flush_on(&runtime);
            return Some(Input::InTheWay(vec![Obstacle::Flush]));
        }
        let becomes_durable = |lsn| runtime.block_on(journal.wait_durable(lsn)).is_ok();
        let is_written = awake.database.is_written_down()
            || tail_max > 0 && awake.database.fits_tail(tail_max)
            || awake.write_down(&runtime, becomes_durable);
        if !is_written || !becomes_durable(awake.database.last_logged()) {
            return Some(Input::Failed);
        }
        let Ok(moved) = moved(awake) else { return Some(Input::Failed) };
        self.take_along(leaving, moved);
        leaving.is_drained = true;
        Some(Input::InTheWay(Vec::new()))
    }

    /// Cuts what goes along into parts.
    fn take_along(&mut self, leaving: &mut Leaving, moved: Moved) {
        let mut moved = leaving.early.take().unwrap_or(moved);
        match self.variant {
            Variant::CommitLeftBehind if leaving.has_undurable => _ = moved.tail.pop(),
            Variant::TailLeftBehind => moved.tail.clear(),
            _ => {}
        }
        if moved == Moved::default() {
            return;
        }
        self.happened.tails += u32::from(!moved.tail.is_empty());
        self.happened.images += u32::from(moved.image.is_some());
        let bytes = moved.encode().expect("numbers and bytes");
        let part = bytes.len() / (1 + self.roll(5) as usize) + 1;
        leaving.parts = (0..).zip(bytes.chunks(part).map(<[u8]>::to_vec)).collect();
        leaving.parts_count = u32::try_from(leaving.parts.len()).expect("a few");
    }

    /// What goes along by a node that does not wait until everybody is out.
    fn export_early(&mut self, at: At, leaving: &Leaving) -> Option<Moved> {
        let open = self.open_in(at, &leaving.name);
        let awake = self.process(at)?.process.inside(leaving.tenant)?;
        let left = awake.left.clone();
        awake.left.extend(open.into_iter().map(|(client, txn)| ((leaving.handover.id.0, client), txn)));
        let early = moved(awake);
        awake.left = left;
        early.ok()
    }
}

/// What of a tenant goes along beside what its storage has.
fn moved(awake: &mut crate::tenants::awake::Awake) -> Done<Moved> {
    let image = Image::of(awake)?;
    Ok(Moved { tail: awake.database.tail(), image })
}
