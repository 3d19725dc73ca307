//! Tenants move between nodes that die, stand still and come back, while clients have transactions open in them: both decision cores of a move, with the owners, logs,
//! storages and databases of the product below them, over a network that loses, doubles and reorders. Beside the moves happens all that happens to nodes: failovers by
//! the product's controllers, coordinators that end, changes that are answered by nobody and arrive later. From one seed.
//!
//! What a node drives is what the product's node drives: the proposals and what is made of their answers ([`savanna_control::moving`]), what is heard of a move and what goes
//! along in parts ([`savanna_handover`]), the tenants that leave ([`Slots`](savanna_tenants_host::slots::Slots)). The sessions are the simulation's own: what one leaves is
//! its transaction, which it claims again by a ticket.

mod clients;
#[path = "../../../../kernels/transaction/tests/it/history.rs"]
mod history;
mod points;
mod source;
mod target;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use rand::Rng;
use savanna_handover::{Input, ToSource};
use savanna_ownership::{Clock, ClusterView, Coordinator, CoordinatorError, Exclusive, MonoTime, Ownership};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::shards;

pub use self::points::{ENDS, POINTS};
use self::{clients::Client, history::Observed, source::Leaving, target::Coming};
use super::{NODES, Paused, Running, World};

/// Tenants at most.
const TENANTS: usize = 3;
const CLIENTS: usize = 6;
const STEPS: usize = 600;
/// In each step so many clients go on, and so many letters come.
const CLIENTS_IN_A_STEP: usize = 3;
const LETTERS_IN_A_STEP: usize = 2;
/// Of so many runs in one no node dies, so that tenants come far.
const CALM_ONE_IN: u64 = 4;
/// What a run without such faults does not do.
const FAULTS: [std::ops::Range<u32>; 3] = [720..723, 760..774, 794..796];
/// In so many rounds everything is over when nothing fails any more.
const ROUNDS: usize = 400;
/// And in a round so many milliseconds pass.
const ROUND_MILLIS: u64 = 50;

/// What may be done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// What goes along is written down before everybody is out.
    ExportsBeforeDrain,
    /// A commit that was not durable when the tenant was frozen is left behind.
    CommitLeftBehind,
    /// Commits that the storage may not have yet are left behind.
    TailLeftBehind,
    /// The source's log is ended before the records say that the tenant is the target's.
    FencedBeforeCommit,
    /// Sessions leave before they have answered, and answer behind that.
    AnswersAfterRelease,
    /// A source that does not know whether the target has the tenant serves it.
    ServesUndecided,
    /// A target says that it has everything as soon as it is told of it.
    ReadyAtOnce,
    /// It is not asked whether all parts have come.
    PartsUncounted,
    /// What a target has read ahead is kept, whatever becomes of the tenant.
    ReadAheadIsKept,
    /// What sessions have left is nobody's who stay away.
    UnclaimedIsKept,
}

/// What runs have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Moves that began.
    pub begun: u32,
    /// Those that ended with the tenant at the target, and at the source.
    pub moved: u32,
    /// The tenant stayed.
    pub stayed: u32,
    /// The source lost the tenant otherwise.
    pub lost: u32,
    /// So often a tenant moved at most, in one run.
    pub hops: u32,
    /// Runs in which a tenant moved five times.
    pub far: u32,
    /// Transactions that went along, and were claimed at the target.
    pub followed: u32,
    /// And at the source, as the tenant stayed.
    pub returned: u32,
    /// What was open ended with its process.
    pub ended: u32,
    /// Transactions that nobody claimed for long.
    pub unclaimed: u32,
    /// Statements that waited for a lock and were taken back.
    pub taken_back: u32,
    /// Moves with commits that the storage may not have yet.
    pub tails: u32,
    /// Moves by which something open went along.
    pub images: u32,
    /// Commits that clients were told of.
    pub commits: u32,
    /// Of transactions that had moved.
    pub commits_moved: u32,
    /// Transactions that were rolled back, for whatever reason.
    pub aborted: u32,
    /// Commits of which nobody was told what became of them.
    pub unknown: u32,
    /// Answers that were held back, as the lease did not cover the instant.
    pub held_back: u32,
    /// Proposals of moves that nobody answered, though they were made.
    pub unanswered: u32,
    /// Those that arrived later, when their move had gone on.
    pub late: u32,
    /// Of these, those that decided.
    pub decided_late: u32,
    /// Nodes that lost their power while they wrote down what goes along.
    pub half_written: u32,
    /// Blocks that targets have read ahead, in bytes.
    pub read_ahead: u64,
    /// How often each point of a move was reached.
    pub points: [u32; POINTS.len()],
    /// Ends of each kind at each point.
    pub ends: [[u32; POINTS.len()]; ENDS.len()],
    /// What happens to nodes without moves, too.
    pub nodes: super::Happened,
}

/// A process: of which node, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    node: usize,
    process: u64,
}

/// The moves of a process.
#[derive(Default)]
pub(super) struct OfProcess {
    leaving: BTreeMap<TenantId, Leaving>,
    /// Those of hosts that have ended: whoever drives them goes on, and finds that.
    former: Vec<Leaving>,
    coming: Vec<Coming>,
    /// The records as it has seen them some time ago.
    view: Option<ClusterView>,
}

impl OfProcess {
    /// What the next host of the node goes on with, when this one has ended.
    pub(super) fn of_former(self) -> Self {
        let former = self.former.into_iter().chain(self.leaving.into_values().map(Leaving::of_former)).collect();
        Self { former, ..Self::default() }
    }

    /// All that leave, by their moves.
    fn all(&self) -> Vec<u64> {
        self.leaving.values().chain(&self.former).map(Leaving::id).collect()
    }

    fn take(&mut self, id: u64) -> Option<Leaving> {
        if let Some(place) = self.former.iter().position(|leaving| leaving.id() == id) {
            return Some(self.former.swap_remove(place));
        }
        self.leaving.extract_if(.., |_, leaving| leaving.id() == id).next().map(|(_, leaving)| leaving)
    }
}

/// Something that is on its way between nodes.
#[derive(Clone, Debug)]
enum Letter {
    /// To whichever process the node has.
    Request { from: At, to: usize, what: Request },
    /// To the process that asked, of its move.
    Answer { to: At, id: u64, what: Answer },
}

#[derive(Clone, Debug)]
enum Request {
    Say(target::Said),
    Part { id: u64, number: u32, count: u32, bytes: Vec<u8> },
}

#[derive(Clone, Debug)]
enum Answer {
    Says(ToSource),
    Took { number: u32, is_known: bool },
}

struct Moves {
    world: World,
    variant: Variant,
    clients: Vec<Client>,
    letters: Vec<Letter>,
    /// What clients saw, by tenant.
    history: BTreeMap<String, Vec<Observed>>,
    /// Counts what clients say and hear.
    now: u64,
    elements: u32,
    /// How often each tenant has moved.
    hops: BTreeMap<TenantId, u32>,
    moves: u64,
    /// Whether no node dies.
    is_calm: bool,
    /// Whether nothing fails, and nothing ends at a point.
    is_quiet: bool,
    happened: Happened,
}

impl Moves {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let world = World::new(seed, super::Variant::Sound, happened.nodes);
        let clients = (0..CLIENTS).map(|_| Client::default()).collect();
        let happened = Happened { nodes: super::Happened::default(), ..happened };
        let mut moves = Self {
            world,
            variant,
            clients,
            letters: Vec::new(),
            history: BTreeMap::new(),
            now: 0,
            elements: 0,
            hops: BTreeMap::new(),
            moves: 0,
            is_calm: seed.is_multiple_of(CALM_ONE_IN),
            is_quiet: false,
            happened,
        };
        (0..TENANTS).for_each(|node| moves.world.make(node % NODES));
        moves
    }

    fn roll(&mut self, below: u32) -> u32 {
        self.world.dice.random_range(0..below)
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.roll(one_in) == 0
    }

    /// A process that has not ended, nor stands still.
    fn process(&mut self, at: At) -> Option<&mut Running> {
        self.world.nodes[at.node].running.as_mut().filter(|running| running.number == at.process)
    }

    /// The process of a node.
    fn at(&self, node: usize) -> Option<At> {
        self.world.nodes[node].running.as_ref().map(|running| At { node, process: running.number })
    }

    /// Whether a process stands still.
    fn stands_still(&self, at: At) -> bool {
        self.world.nodes[at.node].paused.iter().any(|paused| paused.running.number == at.process)
    }

    fn time(&self) -> MonoTime {
        self.world.clock.now()
    }

    fn passed_since(&self, then: MonoTime) -> Duration {
        Duration::from_nanos(self.time().0 - then.0)
    }

    fn is_linked(&self, a: usize, b: usize) -> bool {
        !self.world.cuts.contains(&[a.min(b), a.max(b)])
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        if self.chance(2) {
            self.world.pass_time();
        }
        self.tick_some();
        for _ in 0..CLIENTS_IN_A_STEP {
            self.client_goes_on()?;
        }
        for _ in 0..LETTERS_IN_A_STEP {
            self.deliver_any();
        }
        let node = self.roll(NODES as u32) as usize;
        let what = self.roll(1_000);
        let is_fault = FAULTS.iter().any(|faults| faults.contains(&what));
        match if is_fault && self.is_calm { 0 } else { what } {
            0..60 => self.begin_move(),
            60..320 => self.follow(node)?,
            320..420 => self.wake_moved(node),
            420..620 => self.control_mostly(node)?,
            620..650 => self.world.flush(node),
            650..665 => self.world.maintain(node),
            665..680 => self.world.cut(node),
            680..687 => self.world.clean_up(node),
            687..720 => self.world.arrive(),
            720..723 => {
                let (changes, is_done) = (self.roll(4), self.chance(2));
                self.world.store.fail_after(changes, is_done);
            }
            723..760 => self.world.store.heal(),
            760..763 => self.world.trouble(node),
            763..765 => self.world.kill(node),
            765..767 => self.world.restart(node),
            767..771 => self.pause(node),
            771..774 => self.world.cut_off(),
            774..794 => self.world.mend(),
            794..796 => self.world.move_coordinator(),
            796..840 => self.world.start(node),
            840..845 => self.forget_unclaimed(node),
            _ => self.paused_goes_on(node)?,
        }
        self.look_who_serves();
        self.check_serving()?;
        self.world.office.check()
    }

    /// A node that stood still goes on, perhaps past its lease.
    fn paused_goes_on(&mut self, node: usize) -> Result<(), String> {
        let Some(Paused { running, .. }) = self.world.nodes[node].paused.pop() else { return Ok(()) };
        if self.world.nodes[node].running.is_none() && !self.world.is_cut(node) && self.chance(3) {
            match self.world.runtime.block_on(self.world.office.heartbeat(&running.tenure)) {
                Ok(_) => {
                    self.happened.nodes.woken += 1;
                    self.world.nodes[node].running = Some(running);
                }
                Err(CoordinatorError::TenureOver { .. }) => {}
                Err(_) => self.world.nodes[node].paused.push(Paused { running, under_way: None }),
            }
            return Ok(());
        }
        let next = self.world.nodes[node].running.replace(running);
        let was_quiet = std::mem::replace(&mut self.is_quiet, true);
        let done = match self.roll(4) {
            0..=1 => {
                self.tick_any(node);
                Ok(())
            }
            2 => self.client_goes_on_at(node),
            _ => {
                self.world.flush(node);
                Ok(())
            }
        };
        self.is_quiet = was_quiet;
        let running = std::mem::replace(&mut self.world.nodes[node].running, next);
        self.world.nodes[node].paused.extend(running.map(|running| Paused { running, under_way: None }));
        done
    }

    fn pause(&mut self, node: usize) {
        if let Some(running) = self.world.nodes[node].running.take() {
            self.world.nodes[node].paused.push(Paused { running, under_way: None });
            self.happened.nodes.paused += 1;
        }
    }

    /// A node takes in what the records say that it is to have. It may look at what they said some time ago first.
    fn follow(&mut self, node: usize) -> Result<(), String> {
        let view = self.world.view();
        let is_late = self.chance(4);
        let keeps = self.variant == Variant::ReadAheadIsKept;
        let is_cut = self.world.is_cut(node);
        if let Some(running) = self.world.nodes[node].running.as_mut().filter(|_| !is_cut) {
            let old = running.moves.view.replace(view.clone());
            let seen = if is_late { old.unwrap_or(view) } else { view };
            let (owner, storage) = (&running.process.owner, &running.process.storage);
            if !keeps {
                savanna_tenants_store::owner::forget_warm(owner, storage, &seen);
            }
            drop(savanna_tenants_store::owner::awaited(owner, &seen));
        }
        if is_cut {
            return Ok(());
        }
        if self.is_quiet || self.is_calm || !self.chance(6) {
            self.world.follow_quietly(node)
        } else {
            self.world.follow(node)
        }
    }

    /// Tenants that have moved to a node wake there, though nobody has come for them.
    fn wake_moved(&mut self, node: usize) {
        if let Some(running) = &mut self.world.nodes[node].running {
            running.process.end_wakings();
        }
    }

    /// A letter is lost, or comes once, or twice.
    fn post(&mut self, letter: Letter) {
        match self.roll(if self.is_quiet { 1 } else { 12 }) {
            1 => {}
            2 => self.letters.extend([letter.clone(), letter]),
            _ => self.letters.push(letter),
        }
    }

    fn deliver_any(&mut self) {
        if self.letters.is_empty() {
            return;
        }
        let place = self.roll(self.letters.len() as u32) as usize;
        let letter = self.letters.swap_remove(place);
        self.deliver(letter);
    }

    fn deliver(&mut self, letter: Letter) {
        match letter {
            Letter::Request { from, to, what } if self.is_linked(from.node, to) => {
                let Some(at) = self.at(to) else { return };
                match what {
                    Request::Say(said) => self.hear(at, from, said),
                    Request::Part { id, number, count, bytes } => {
                        let is_known = self.take_part(at, id, (number, count), bytes);
                        if self.process(at).is_some() {
                            self.post(Letter::Answer { to: from, id, what: Answer::Took { number, is_known } });
                        }
                    }
                }
            }
            Letter::Answer { to, id, what } => {
                if self.stands_still(to) {
                    return self.letters.push(Letter::Answer { to, id, what });
                }
                if let Some(leaving) = self.take_leaving(to, id) {
                    self.heard(to, leaving, what);
                }
            }
            Letter::Request { .. } => {}
        }
    }

    /// A controller does what is to be done, and mostly does not end meanwhile.
    fn control_mostly(&mut self, node: usize) -> Result<(), String> {
        let is_there = self.world.nodes[node].running.is_some() && !self.world.is_cut(node);
        if is_there && (self.is_calm || !self.chance(4)) {
            self.world.control_quietly(node)
        } else {
            self.world.control(node)
        }
    }

    /// Time passes for some of the tenants that leave a node.
    fn tick_some(&mut self) {
        for node in 0..NODES {
            if self.chance(2) {
                self.tick_any(node);
            }
        }
    }

    /// Time passes for a tenant that leaves a node.
    fn tick_any(&mut self, node: usize) {
        let Some(running) = &self.world.nodes[node].running else { return };
        let moves = running.moves.all();
        let Some(at) = self.at(node) else { return };
        if !moves.is_empty() {
            let id = moves[self.roll(moves.len() as u32) as usize];
            self.tick(at, id);
        }
    }

    fn tick(&mut self, at: At, id: u64) {
        if let Some(leaving) = self.take_leaving(at, id) {
            self.drive(at, leaving, VecDeque::new(), Some(Input::Tick));
        }
    }

    fn take_leaving(&mut self, at: At, id: u64) -> Option<Leaving> {
        self.process(at)?.moves.take(id)
    }

    /// A move that has not ended is its process's again; if that was a host which has ended, the next one's.
    fn put_leaving(&mut self, at: At, leaving: Leaving) {
        if let Some(running) = self.process(at) {
            match leaving.is_former() {
                true => running.moves.former.push(leaving),
                false => drop(running.moves.leaving.insert(leaving.tenant(), leaving)),
            }
        }
    }

    /// Whoever would let somebody in to a tenant owns it, as the records are at this instant; so it is one at most.
    fn check_serving(&self) -> Result<(), String> {
        let view = self.world.view();
        for running in self.world.nodes.iter().filter_map(|node| node.running.as_ref()) {
            let tenants: Vec<(String, TenantId)> = {
                let owner = running.process.owner.lock();
                owner.tenants().map(|(name, tenant)| (name.to_owned(), tenant)).collect()
            };
            for (name, tenant) in tenants.iter().filter(|(name, _)| running.serves(name)) {
                let record = view.shard(&shards::shard(*tenant)).map(|record| &record.value);
                let owns = record.is_some_and(|record| record.owner() == Some(&running.tenure));
                if !owns || !view.lives(&running.tenure) {
                    return Err(format!("{} serves {name}, and has no right to it: {record:?}", running.tenure));
                }
            }
        }
        Ok(())
    }

    /// Nothing fails any more: all moves end, clients end their transactions, and nothing is left behind.
    fn settle(&mut self) -> Result<(), String> {
        self.is_quiet = true;
        self.world.store.heal();
        self.world.cuts.clear();
        self.world.runtime.block_on(self.world.office.end());
        self.world.arrive();
        for node in 0..NODES {
            if self.world.nodes[node].running.as_ref().is_some_and(|running| running.process.asked.has_ended()) {
                self.world.kill(node);
            }
            self.world.nodes[node].paused.clear();
            self.world.nodes[node].running.iter().for_each(|running| running.process.asked.trouble_is_over());
        }
        for round in 0..ROUNDS {
            self.now += 1;
            self.world.clock.advance(Duration::from_millis(ROUND_MILLIS));
            for node in 0..NODES {
                self.world.renew(node, false);
                self.world.start(node);
                self.world.nodes[node].decided.clear();
                self.follow(node)?;
                self.wake_moved(node);
                if let Some(at) = self.at(node) {
                    let moves = self.process(at).map(|running| running.moves.all()).unwrap_or_default();
                    moves.into_iter().for_each(|id| self.tick(at, id));
                }
            }
            std::mem::take(&mut self.letters).into_iter().for_each(|letter| self.deliver(letter));
            self.look_who_serves();
            self.clients_end()?;
            self.world.runtime.block_on(self.world.office.end_leases());
            self.world.control_quietly(round % NODES)?;
            self.check_serving()?;
            if self.is_over() && round > 3 {
                break;
            }
        }
        self.check_over()?;
        self.check_histories()?;
        let tenants: Vec<u32> = self.hops.values().copied().collect();
        self.happened.hops = self.happened.hops.max(tenants.iter().copied().max().unwrap_or(0));
        self.happened.far += u32::from(tenants.iter().any(|hops| *hops >= 5));
        let ours = std::mem::take(&mut self.happened.nodes);
        self.world.happened.woken += ours.woken;
        self.world.happened.paused += ours.paused;
        self.world.settle()?;
        self.happened.nodes = self.world.happened;
        Ok(())
    }

    fn is_over(&self) -> bool {
        let moves = self.world.nodes.iter().filter_map(|node| node.running.as_ref()).map(|running| &running.moves);
        let (are_over, has_letters) = (moves.into_iter().all(|moves| moves.all().is_empty()), !self.letters.is_empty());
        let is_served = |name: &String| self.world.servers(name).len() == 1;
        are_over && !has_letters && self.clients.iter().all(Client::is_idle) && self.world.told.keys().all(is_served)
    }

    /// All moves have ended, and nothing is left of them at any node.
    fn check_over(&mut self) -> Result<(), String> {
        for (shard, record) in self.world.view().shards("tenants/") {
            if let Ownership::Exclusive(Exclusive::Moving { .. }) = &record.value.ownership {
                return Err(format!("{shard} is on its way, and nobody moves it: {:?}", record.value));
            }
        }
        if let Some(client) = self.clients.iter().find(|client| !client.is_idle()) {
            return Err(format!("a client waits for ever: {client:?}"));
        }
        for running in self.world.nodes.iter_mut().filter_map(|node| node.running.as_mut()) {
            let tenure = running.tenure.clone();
            if let Some(leaving) = running.moves.leaving.values().chain(&running.moves.former).next() {
                return Err(format!("a move does not end: {leaving:?}"));
            }
            // Of a tenant that is here it is taken over when that wakes.
            let mut ahead = running.process.storage.expected_warm();
            ahead.retain(|(tenant, _)| !running.process.owner.lock().has(*tenant));
            if !ahead.is_empty() {
                return Err(format!("{tenure} keeps what it has read ahead of {ahead:?}"));
            }
            let expecting = running.process.owner.lock().expecting();
            if !expecting.is_empty() {
                return Err(format!("{tenure} keeps what was brought of {expecting:?}, and they do not come"));
            }
            let tenants: Vec<_> = running
                .process
                .slots
                .all_awake()
                .map(|(tenant, awake)| (tenant, awake.is_used(), awake.left.len()))
                .collect();
            if let Some((tenant, ..)) = tenants.iter().find(|(_, is_used, left)| *is_used || *left > 0) {
                return Err(format!("{tenure} has a transaction of tenant {tenant} that is nobody's"));
            }
        }
        Ok(())
    }
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut moves = Moves::new(seed, variant, happened);
    for _ in 0..STEPS {
        moves.step()?;
    }
    moves.settle()?;
    Ok(moves.happened)
}
