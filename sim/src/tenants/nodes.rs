//! Several nodes, each with a log of its own, over one store and one coordinator: nodes die, stand still past their leases or not and go on, and
//! come back; controllers end the logs of those that are gone and grant their tenants to others, who take them over. Any node may be a
//! controller; they end in the middle of what they do, and decide by what they knew. The coordinator ends, forgets what was not durable, and is
//! replaced; calls to it are lost, doubled, late, or answered late; nodes are cut off from it. From one seed.

mod checks;
mod failover;
pub mod moves;
mod running;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_control::Intent;
use savanna_epoch::{LogId, NodeEpoch, NodeId};
use savanna_journal::{Disk, Lsn, sim::SimDisk};
use savanna_ownership::{
    ClusterView, Coordinator, CoordinatorError, Incarnation, LeaseTerms, NodeSpec, Tenure, lease::HolderInput,
    logs::LogPlace,
};
use savanna_tenants_host::policy::MemoryPressure;
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::shards::{Member, are_kept};
use tokio::runtime::Runtime;

use self::{
    moves::OfProcess,
    running::{Lease, Running},
};
use super::{
    coordinator::{self, Asked, Fate, Trouble},
    office::{self, Office},
    owner::{self, Told},
    process::{Process, Seat},
    store::FailingStore,
};
use crate::clock::SimClock;
use crate::fence_blind::FenceBlindDisk;

/// Where the records of tenants' names begin.
const NAMES: &str = "tenant-names/";
const NODES: usize = 3;
/// As many tenants as there may be.
const TENANTS: usize = 8;
/// How long a lease lasts, and by how much its holder stops earlier.
const LEASE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(500));
/// In a step so many milliseconds pass at most.
const STEP_MILLIS: u64 = 150;
/// And in a round so many, when nothing fails any more.
const ROUND_MILLIS: u64 = 250;
/// So often everything is done that the controller and the nodes have to do, before it is expected to be done.
const ROUNDS: usize = 25;

/// What may be done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// What is ended and read of a log is a copy: its owner goes on.
    EndsCopies,
    /// The journal does not see that it was fenced, or ended.
    FenceIgnored,
    /// The log is not asked whether it has what is told.
    TellsAtOnce,
    /// Logs are cut where no tenant that is awake needs them, though those do who sleep: also who has just arrived.
    CutsForAwake,
    /// A log is deleted as soon as its tenants are granted to others.
    DeletesAtOnce,
    /// A tenant is served by whom it was granted to before its record says that its commits are in that one's log.
    ServesBeforeHistory,
    /// The log of a node that lives is ended before the records say that its tenants are another's.
    EndsBeforeRecord,
    /// Somebody is told of what the log has, whether or not the lease covers the instant.
    LeaseIgnored,
    /// Who says that tenants have arrived does not say that no later process of its tenure may have begun.
    ExpectsNothing,
    /// The coordinator says what is not durable.
    CoordinatorForgets,
    /// A coordinator that was replaced is not fenced.
    CoordinatorNotFenced,
}

impl Variant {
    /// What a process does wrong.
    const fn of_process(self) -> owner::Variant {
        match self {
            Self::TellsAtOnce => owner::Variant::TellsAtOnce,
            Self::CutsForAwake => owner::Variant::CutsForAwake,
            _ => owner::Variant::Sound,
        }
    }

    fn of_office(self) -> office::Flaws {
        office::Flaws {
            tells_at_once: self == Self::CoordinatorForgets,
            fence_ignored: self == Self::CoordinatorNotFenced,
        }
    }

    fn of_asked(self) -> coordinator::Flaws {
        coordinator::Flaws {
            is_hasty: self == Self::ServesBeforeHistory,
            expects_nothing: self == Self::ExpectsNothing,
        }
    }
}

/// What runs have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Tenants that were made.
    pub made: u32,
    /// Tenants that were removed.
    pub removed: u32,
    /// Commits that somebody was told of.
    pub commits: u32,
    /// Times that somebody read a tenant.
    pub reads: u32,
    /// Nodes that died.
    pub killed: u32,
    /// Nodes that stood still until their leases were over.
    pub paused: u32,
    /// Commits that such a node tried when it went on.
    pub tried_late: u32,
    /// Nodes that came back.
    pub returned: u32,
    /// Hosts that ended, and began again within the tenure of their nodes.
    pub restarted: u32,
    /// Changes that were made when their processes had ended.
    pub late: u32,
    /// Commits that were under way when a node stood still, and of which somebody was told when it went on.
    pub told_late: u32,
    /// Nodes that died while tenants arrived at them.
    pub died_adopting: u32,
    /// So many times in a row at most, over all runs, the adoption of a tenant ended that way.
    pub died_in_a_row: u32,
    /// Tenants that arrived at another node.
    pub adopted: u32,
    /// Logs that were deleted.
    pub deleted: u32,
    /// Things that a controller did not do any more, because it was gone or knew too little.
    pub overtaken: u32,
    /// Cuts of logs.
    pub cuts: u32,
    /// Changes of the coordinator's records that something happened to.
    pub unanswered: u32,
    /// Calls to the coordinator that were under way while other things happened, in the middle of adoptions.
    pub slow: u32,
    /// Answers that were held back because the lease did not cover the instant, though the log had it.
    pub held_back: u32,
    /// Nodes that went on within their leases.
    pub woken: u32,
    /// Nodes that heard that their tenures were over.
    pub left: u32,
    /// Nodes that were cut off from the coordinator.
    pub cut_off: u32,
    /// Coordinators that ended, or stood still, and were followed by another.
    pub moved: u32,
    /// Of these, those that ended in the middle of a change.
    pub ended_writing: u32,
    /// Adoptions that ended half copied, as their machines lost power.
    pub half_copied: u32,
    /// Crashes at each step of a failover, F1 to F7.
    pub crashes: [u32; 7],
}

/// A node's process that stands still.
struct Paused {
    running: Running,
    /// A commit that was not told yet: of whom, its number and its place in the log.
    under_way: Option<(String, u64, Lsn)>,
}

/// A node.
struct Node {
    name: NodeId,
    incarnation: u64,
    running: Option<Running>,
    /// Earlier processes that may go on.
    paused: Vec<Paused>,
    /// What it has decided as the controller, and not done yet.
    decided: VecDeque<Intent>,
    /// Whether its machine is to lose its power, or has lost it.
    is_losing_power: bool,
    /// What its host asked with before it began again.
    before: Option<Arc<Asked>>,
}

struct World {
    runtime: Arc<Runtime>,
    clock: Arc<SimClock>,
    store: Arc<FailingStore>,
    office: Arc<Office>,
    /// The node with the coordinator, and those that do not reach each other.
    home: usize,
    cuts: BTreeSet<[usize; 2]>,
    /// By place.
    disks: BTreeMap<String, Arc<SimDisk>>,
    /// The epochs under which logs were opened, by place.
    epochs: BTreeMap<String, NodeEpoch>,
    /// What processes asked the coordinator with: some of it may be on its way.
    asked: Vec<Arc<Asked>>,
    /// Logs that were ended, and where.
    ended: BTreeMap<String, Lsn>,
    nodes: Vec<Node>,
    told: BTreeMap<String, Told>,
    /// Commits of each tenant that a node did not find which took it over: nobody may be told of them.
    gone: BTreeMap<String, BTreeSet<u64>>,
    /// The node that has served each tenant last, and its tenure's place.
    served: BTreeMap<String, (usize, String)>,
    /// How often in a row a tenant's adoption has ended with its node.
    died: BTreeMap<TenantId, u32>,
    names: u32,
    /// Processes that have begun.
    processes: u64,
    dice: ChaCha8Rng,
    variant: Variant,
    happened: Happened,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = Arc::new(runtime.expect("a runtime"));
        let clock = Arc::<SimClock>::default();
        let office = runtime.block_on(Office::open(Arc::clone(&clock), LEASE.0, variant.of_office(), seed));
        let node = |number| Node {
            name: NodeId::new(format!("n{number}")),
            incarnation: 0,
            running: None,
            paused: Vec::new(),
            decided: VecDeque::new(),
            is_losing_power: false,
            before: None,
        };
        let mut world = Self {
            runtime,
            clock,
            store: Arc::new(FailingStore::default()),
            office,
            home: 0,
            cuts: BTreeSet::new(),
            disks: BTreeMap::new(),
            epochs: BTreeMap::new(),
            asked: Vec::new(),
            ended: BTreeMap::new(),
            nodes: (1..=NODES).map(node).collect(),
            told: BTreeMap::new(),
            gone: BTreeMap::new(),
            served: BTreeMap::new(),
            died: BTreeMap::new(),
            names: 0,
            processes: 0,
            dice: ChaCha8Rng::seed_from_u64(seed),
            variant,
            happened,
        };
        (0..NODES).for_each(|node| world.start(node));
        world
    }

    /// All records as they are.
    fn view(&self) -> ClusterView {
        loop {
            // One that ends is followed by another.
            if let Ok(snapshot) = self.runtime.block_on(self.office.snapshot()) {
                return ClusterView::new(snapshot);
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.pass_time();
        let node = self.dice.random_range(0..NODES);
        match self.dice.random_range(0..1_000) {
            0..55 => self.make(node),
            55..65 => self.remove()?,
            65..420 => self.commit(node)?,
            420..460 => self.read(node)?,
            460..475 => self.restart(node),
            475..522 => self.flush(node),
            522..547 => self.maintain(node),
            547..577 => self.cut(node),
            577..592 => self.clean_up(node),
            592..612 => self.arrive(),
            612..622 => self.store.fail_after(self.dice.random_range(0..4), self.dice.random()),
            622..650 => self.store.heal(),
            650..663 => self.trouble(node),
            663..676 => self.kill(node),
            676..698 => self.pause(node),
            698..706 => self.cut_off(),
            706..722 => self.mend(),
            722..726 => self.move_coordinator(),
            726..770 => self.start(node),
            770..875 => self.control(node)?,
            875..942 => self.follow(node)?,
            _ => self.paused_goes_on(node)?,
        }
        self.office.check()
    }

    /// Some time passes, in which nodes renew their leases.
    fn pass_time(&mut self) {
        self.clock.advance(Duration::from_millis(self.dice.random_range(1..=STEP_MILLIS)));
        for number in 0..NODES {
            self.renew(number, true);
            // Who hears nothing any more comes to its end.
            let hears = self.nodes[number].running.as_ref().is_none_or(|running| !running.process.asked.has_ended());
            if !hears && self.dice.random_ratio(1, 10) {
                self.fall(number);
            }
        }
        self.runtime.block_on(self.office.end_leases());
    }

    /// A node renews its lease if that is due; the request or its answer may be lost. One that hears that its tenure is over, leaves.
    fn renew(&mut self, number: usize, may_be_lost: bool) {
        let [is_lost, is_answered] = [1, 11].map(|chance| self.dice.random_ratio(chance, 12));
        let (is_lost, is_answered) = (is_lost && may_be_lost, is_answered || !may_be_lost);
        let is_cut = self.is_cut(number);
        let Some(running) = &mut self.nodes[number].running else { return };
        let Some(renewal) = running.lease.step(HolderInput::Tick) else { return };
        if is_cut || is_lost || running.process.asked.has_ended() {
            return;
        }
        match self.runtime.block_on(self.office.heartbeat(&running.tenure)) {
            Ok(ttl) if is_answered => _ = running.lease.step(HolderInput::Renewed(renewal, ttl)),
            Err(CoordinatorError::TenureOver { .. }) => {
                running.lease.step(HolderInput::Ended);
                self.happened.left += 1;
                self.nodes[number].running = None;
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn is_cut(&self, number: usize) -> bool {
        let mut link = [number, self.home];
        link.sort_unstable();
        self.cuts.contains(&link)
    }

    /// Two nodes do not reach each other any more.
    fn cut_off(&mut self) {
        let mut link = [self.dice.random_range(0..NODES), self.dice.random_range(0..NODES)];
        link.sort_unstable();
        if link[0] != link[1] {
            self.happened.cut_off += u32::from(link.contains(&self.home) && self.cuts.insert(link));
        }
    }

    /// Two nodes reach each other again.
    fn mend(&mut self) {
        self.cuts.pop_first();
    }

    /// The coordinator ends, or is going to in the middle of a change, or stands still; another one takes over, perhaps elsewhere.
    fn move_coordinator(&mut self) {
        self.happened.moved += 1;
        let is_expected =
            |node: &Node| node.running.is_none() && self.view().nodes().any(|lives| lives.tenure.node == node.name);
        // The lease of somebody who is gone is about to end.
        self.happened.crashes[0] += u32::from(self.nodes.iter().any(is_expected));
        self.home = self.dice.random_range(0..NODES);
        match self.dice.random_range(0..3) {
            0 => self.runtime.block_on(self.office.end()),
            1 => {
                self.runtime.block_on(self.office.replace());
                if self.dice.random() {
                    self.runtime.block_on(self.office.ask_former());
                }
            }
            _ => self.office.ends_after(self.dice.random_range(0..8)),
        }
    }

    /// The process of a node that begins, if the name is free and the coordinator is reached.
    fn start(&mut self, number: usize) {
        if self.nodes[number].running.is_some() || self.is_cut(number) {
            return;
        }
        self.store.heal();
        let node = &mut self.nodes[number];
        node.incarnation += 1;
        let spec = NodeSpec {
            name: node.name.clone(),
            incarnation: Incarnation(node.incarnation),
            address: "here".to_owned(),
            labels: BTreeMap::new(),
        };
        let terms = LeaseTerms::new(LEASE.0, LEASE.1).expect("a margin below");
        let lease = Lease::new(&self.clock, terms, self.variant);
        // An earlier process may have the lease yet.
        let Ok(granted) = self.runtime.block_on(self.office.register(&spec)) else { return };
        self.happened.returned += u32::from(granted.tenure.epoch > NodeEpoch(1));
        self.open(number, granted.tenure, lease);
    }

    /// The host of a node ends by itself, and begins again.
    fn restart(&mut self, number: usize) {
        if self.is_cut(number) {
            return;
        }
        if self.nodes[number].is_losing_power {
            return self.kill(number);
        }
        if let Some(mut running) = self.nodes[number].running.take() {
            self.happened.restarted += 1;
            let former = std::mem::take(&mut running.moves).of_former();
            self.store.heal();
            self.hang_up(&running);
            self.nodes[number].before = Some(Arc::clone(&running.process.asked));
            let (tenure, lease) = running.end();
            self.open(number, tenure, lease);
            if let Some(running) = &mut self.nodes[number].running {
                running.moves = former;
            }
        }
    }

    /// What a process waits for that ends now is lost, or arrives later.
    fn hang_up(&mut self, running: &Running) {
        let fate = if self.dice.random_ratio(3, 4) { Fate::Late } else { Fate::Lost };
        running.process.asked.become_of(fate);
    }

    /// Changes that are on their way arrive.
    fn arrive(&mut self) {
        for batch in self.asked.iter().flat_map(|asked| asked.late()).collect::<Vec<_>>() {
            let at_former = self.dice.random_ratio(1, 4);
            self.happened.late += u32::from(self.runtime.block_on(self.office.arrive(&batch, at_former)));
        }
    }

    /// A node opens the log of its tenure. One whose tenure is over leaves.
    fn open(&mut self, number: usize, tenure: Tenure, lease: Lease) {
        if !self.view().lives(&tenure) {
            self.happened.left += 1;
            return;
        }
        let asked = Asked::new(Arc::clone(&self.office) as _, self.variant.of_asked());
        self.asked.push(Arc::clone(&asked));
        let view = self.view();
        let (member, place) = self.runtime.block_on(async {
            let (coordinator, tenure) = (Arc::clone(&asked) as _, tenure.clone());
            if are_kept(&view).expect("records") {
                let place_of = |log: &LogId| LogPlace::Folder(log.to_string());
                Member::begin(coordinator, tenure, place_of).await.expect("its own log")
            } else {
                let place = LogPlace::Folder("first".to_owned());
                (Member::join(coordinator, tenure, place.clone()).await.expect("its own log"), place)
            }
        });
        let LogPlace::Folder(place) = place else { panic!("it is a folder") };
        let epoch = self.epoch_above(&place, tenure.epoch);
        self.epochs.insert(place.clone(), epoch);
        let node = &mut self.nodes[number];
        let disk = self.disks.entry(place.clone()).or_insert_with(|| SimDisk::new(node.incarnation));
        let disk: Arc<dyn Disk> = match self.variant {
            Variant::FenceIgnored => Arc::new(FenceBlindDisk::new(Arc::clone(disk))),
            _ => Arc::clone(disk) as _,
        };
        let log = member.log.clone();
        let seat = Seat { asked, member, epoch };
        let process = Process::open(&self.runtime, disk, &self.store, seat, self.variant.of_process());
        self.processes += 1;
        let (number, moves) = (self.processes, OfProcess::default());
        node.running = Some(Running { process, tenure, log, place, lease, adopting: None, number, moves });
    }

    /// An epoch above all under which a log was opened, at least this one.
    fn epoch_above(&self, place: &str, least: NodeEpoch) -> NodeEpoch {
        self.epochs.get(place).map_or(least, |opened| least.max(opened.next()))
    }

    /// The machine of a node loses its power.
    fn kill(&mut self, number: usize) {
        if self.nodes[number].running.as_ref().is_some_and(|running| running.adopting.is_some()) {
            self.note_died(number);
        }
        let Some(running) = self.nodes[number].running.take() else { return };
        self.hang_up(&running);
        self.nodes[number].paused.clear();
        self.nodes[number].decided.clear();
        self.nodes[number].is_losing_power = false;
        self.nodes[number].before = None;
        let disk = self.disks[&running.place].copy(self.dice.random());
        disk.crash();
        self.disks.insert(running.place.clone(), disk);
        self.happened.killed += 1;
    }

    /// A node dies, or its host ends and begins again.
    fn fall(&mut self, number: usize) {
        match self.dice.random() {
            true => self.kill(number),
            false => self.restart(number),
        }
    }

    /// A node stands still, perhaps between a commit and its answer.
    fn pause(&mut self, number: usize) {
        let name = self.any_name();
        let node = &mut self.nodes[number];
        let Some(mut running) = node.running.take() else { return };
        let under_way = name.filter(|name| running.serves(name)).and_then(|name| {
            let told = self.told.get_mut(&name)?;
            told.tried += 1;
            let lsn = running.process.commit(&name, told.tried)?;
            Some((name, told.tried, lsn))
        });
        node.paused.push(Paused { running, under_way });
        self.happened.paused += 1;
    }

    /// A node that stood still goes on: with what was under way first.
    fn paused_goes_on(&mut self, number: usize) -> Result<(), String> {
        let name = self.any_name();
        let is_cut = self.is_cut(number);
        let is_free = self.nodes[number].running.is_none();
        let Some(mut paused) = self.nodes[number].paused.pop() else { return Ok(()) };
        if let Some((name, commit, lsn)) = paused.under_way.take() {
            let (is_durable, is_told) = (paused.running.process.is_durable(lsn), paused.running.may_tell(lsn));
            self.happened.held_back += u32::from(is_durable && !is_told);
            if is_told && self.told.contains_key(&name) {
                self.happened.told_late += 1;
                self.tell(&name, commit, (&paused.running.tenure, &paused.running.log))?;
            }
            self.nodes[number].paused.push(paused);
            return Ok(());
        }
        let Running { process, place, .. } = &mut paused.running;
        match (self.dice.random_range(0..8), name) {
            (0..=3, Some(name)) => {
                let Some(told) = self.told.get_mut(&name) else { return Ok(()) };
                if process.names().contains(&name) && process.awake(&name).is_some() {
                    told.tried += 1;
                    self.happened.tried_late += 1;
                    let (commit, place) = (told.tried, place.clone());
                    if let Some(lsn) = process.commit(&name, commit) {
                        if process.is_durable(lsn)
                            && self.ended.contains_key(&place)
                            && self.variant != Variant::TellsAtOnce
                        {
                            return Err(format!("the log {place} has ended, and takes commit {commit} of {name}"));
                        }
                        if paused.running.may_tell(lsn) {
                            self.tell(&name, commit, (&paused.running.tenure, &paused.running.log))?;
                        }
                    }
                }
            }
            (4, Some(name)) => {
                let steps = self.dice.random_range(1..8);
                process.flush(&name, steps);
            }
            (5, _) => _ = process.cut(),
            (6, _) if !is_cut => _ = process.clean_up(),
            // Its lease may last yet.
            (7, _) if !is_cut && is_free => {
                match self.runtime.block_on(self.office.heartbeat(&paused.running.tenure)) {
                    Ok(_) => {
                        self.happened.woken += 1;
                        self.nodes[number].running = Some(paused.running);
                    }
                    Err(CoordinatorError::TenureOver { .. }) => self.happened.left += 1,
                    Err(_) => self.nodes[number].paused.push(paused),
                }
                return Ok(());
            }
            _ => {}
        }
        self.nodes[number].paused.push(paused);
        Ok(())
    }

    fn any_name(&mut self) -> Option<String> {
        let at = self.dice.random_range(0..TENANTS);
        self.told.keys().nth(at % self.told.len().max(1)).cloned()
    }

    /// The nodes that serve a tenant.
    fn servers(&self, name: &str) -> Vec<usize> {
        let serves = |node: &Node| node.running.as_ref().is_some_and(|running| running.serves(name));
        (0..NODES).filter(|number| serves(&self.nodes[*number])).collect()
    }

    /// The one node that serves a tenant, if one does.
    fn server(&mut self, name: &str) -> Result<Option<&mut Running>, String> {
        match self.servers(name)[..] {
            [] => Ok(None),
            [one] => Ok(self.nodes[one].running.as_mut()),
            ref more => Err(format!("{name} is served by several nodes at once: {more:?}")),
        }
    }

    fn make(&mut self, number: usize) {
        if self.told.len() >= TENANTS || self.is_cut(number) {
            return;
        }
        let Some(Running { process, .. }) = &self.nodes[number].running else { return };
        self.names += 1;
        let name = format!("t{}", self.names);
        // Of what was not answered nobody knows whether it happened.
        if process.create(&name).is_ok() {
            self.happened.made += 1;
            self.told.insert(name, Told::default());
        }
    }

    fn remove(&mut self) -> Result<(), String> {
        let Some(name) = self.any_name() else { return Ok(()) };
        let [number] = self.servers(&name)[..] else { return Ok(()) };
        if self.is_cut(number) {
            return Ok(());
        }
        let Some(running) = self.server(&name)? else { return Ok(()) };
        let Some(removed) = running.process.remove(&name) else { return Ok(()) };
        self.told.remove(&name);
        self.served.remove(&name);
        self.gone.remove(&name);
        self.happened.removed += u32::from(removed.is_ok());
        Ok(())
    }

    /// A tenant, and a node that has it, whether or not it may tell anybody.
    fn any_served(&mut self, first: usize) -> Option<(String, usize)> {
        let name = self.any_name()?;
        let has = |number: &usize| self.nodes[*number].running.as_ref().is_some_and(|running| running.has(&name));
        let number = (0..NODES).map(|next| (first + next) % NODES).find(has)?;
        Some((name, number))
    }

    fn commit(&mut self, first: usize) -> Result<(), String> {
        let Some((name, number)) = self.any_served(first) else { return Ok(()) };
        self.look_what_is_gone(&name, number)?;
        let (Some(told), Some(running)) = (self.told.get_mut(&name), &mut self.nodes[number].running) else {
            return Ok(());
        };
        let Some(lsn) = running.process.commit(&name, told.tried + 1) else { return Ok(()) };
        told.tried += 1;
        let commit = told.tried;
        let (is_durable, is_told) = (running.process.is_durable(lsn), running.may_tell(lsn));
        self.happened.held_back += u32::from(is_durable && !is_told);
        if is_told {
            let by = (running.tenure.clone(), running.log.clone());
            self.tell(&name, commit, (&by.0, &by.1))?;
            self.happened.commits += 1;
        }
        Ok(())
    }

    /// Somebody is told of a commit.
    fn tell(&mut self, name: &str, commit: u64, by: (&Tenure, &LogId)) -> Result<(), String> {
        self.check_told(name, by)?;
        if let Some(told) = self.told.get_mut(name) {
            told.certain = told.certain.max(commit);
        }
        if self.gone.get(name).is_some_and(|gone| gone.contains(&commit)) {
            return Err(format!("somebody is told of commit {commit} of {name}, and its new node does not have it"));
        }
        Ok(())
    }

    /// Somebody reads what was committed last.
    fn read(&mut self, first: usize) -> Result<(), String> {
        self.store.heal();
        let Some((name, number)) = self.any_served(first) else { return Ok(()) };
        let (Some(told), Some(running)) = (self.told.get(&name).copied(), &mut self.nodes[number].running) else {
            return Ok(());
        };
        if running.process.waken(&name).is_none() {
            return Ok(());
        }
        let found = running.process.last_commit(&name)?;
        let appended = running.process.owner.lock().journal().appended();
        if !running.may_tell(appended) {
            return Ok(());
        }
        let by = (running.tenure.clone(), running.log.clone());
        self.check_told(&name, (&by.0, &by.1))?;
        if found < told.certain {
            return Err(format!("{name} is read as of commit {found}, and {} was told", told.certain));
        }
        self.told.insert(name, Told { certain: found, ..told });
        self.happened.reads += 1;
        Ok(())
    }

    /// What a node has of a tenant that it serves for the first time.
    fn look_what_is_gone(&mut self, name: &str, number: usize) -> Result<(), String> {
        let Some(running) = self.nodes[number].running.as_mut().filter(|running| running.serves(name)) else {
            return Ok(());
        };
        let by = (number, running.place.clone());
        if self.served.get(name) == Some(&by) {
            return Ok(());
        }
        // It wakes when the store works again.
        if running.process.waken(name).is_none() {
            return Ok(());
        }
        let (found, told) = (running.process.last_commit(name)?, self.told[name]);
        if found < told.certain {
            return Err(format!("{name} is taken over after commit {found}, expected {told:?}"));
        }
        self.gone.entry(name.to_owned()).or_default().extend(found + 1..=told.tried);
        self.served.insert(name.to_owned(), by);
        Ok(())
    }

    fn flush(&mut self, number: usize) {
        let (name, steps) = (self.any_name(), self.dice.random_range(1..12));
        if let (Some(name), Some(running)) = (name, &mut self.nodes[number].running) {
            running.process.flush(&name, steps);
        }
    }

    fn maintain(&mut self, number: usize) {
        let (name, bytes) = (self.any_name(), self.dice.random_range(0..3_000));
        let idle_for = self.dice.random_ratio(2, 3).then_some(Duration::MAX);
        if let (Some(name), Some(running)) = (name, &mut self.nodes[number].running) {
            running.process.maintain(&name, idle_for, MemoryPressure::of(bytes, 1_000, TENANTS));
        }
    }

    fn cut(&mut self, number: usize) {
        if let Some(running) = &mut self.nodes[number].running {
            self.happened.cuts += u32::from(running.process.cut());
            running.process.end_wakings();
        }
    }

    fn clean_up(&mut self, number: usize) {
        if !self.is_cut(number) {
            _ = self.nodes[number].running.as_ref().is_some_and(|running| running.process.clean_up());
        }
    }

    /// Something happens to a change of the records, soon.
    fn trouble(&mut self, number: usize) {
        let changes = self.dice.random_range(0..4);
        self.trouble_after(number, changes);
    }

    fn trouble_after(&mut self, number: usize, changes: u32) {
        let is_made = self.dice.random();
        let trouble = match self.dice.random_range(0..4) {
            0 => Trouble::Lost { is_made },
            1 => Trouble::Ends { is_made },
            2 => Trouble::Late,
            _ => Trouble::Doubled,
        };
        if let Some(running) = &self.nodes[number].running {
            self.happened.unanswered += 1;
            running.process.asked.trouble_after(changes, trouble);
        }
    }

    /// Nothing fails any more, and everybody does what is to be done: then everything that was told is there, once.
    fn settle(&mut self) -> Result<(), String> {
        self.store.heal();
        self.cuts.clear();
        self.runtime.block_on(self.office.end());
        self.arrive();
        for number in 0..NODES {
            // Whoever hears of nothing any more, or stood still, is started anew. The others go on.
            if self.nodes[number].running.as_ref().is_some_and(|running| running.process.asked.has_ended()) {
                self.kill(number);
            }
            self.nodes[number].paused.clear();
            self.nodes[number].running.iter().for_each(|running| running.process.asked.trouble_is_over());
        }
        self.died.clear();
        for round in 0..ROUNDS {
            self.clock.advance(Duration::from_millis(ROUND_MILLIS));
            for number in 0..NODES {
                self.renew(number, false);
                self.start(number);
                self.nodes[number].decided.clear();
                self.follow_quietly(number)?;
            }
            self.runtime.block_on(self.office.end_leases());
            self.control_quietly(round % NODES)?;
        }
        self.happened.ended_writing += self.office.ended();
        self.office.check()?;
        self.check_end()
    }
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, variant, happened);
    for _ in 0..600 {
        world.step()?;
    }
    world.settle()?;
    Ok(world.happened)
}
