//! Several nodes, each with a log of its own, over one store and one coordinator: nodes die, stand still past their lease and go on, and come
//! back; the controller ends the logs of those that are gone and grants their tenants to others, who take them over. Controllers end in the
//! middle of what they do and decide by what they knew; answers of the coordinator are lost. From one seed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_control::{Intent, Loads};
use savanna_epoch::{LogId, NodeEpoch, NodeId};
use savanna_journal::{Disk, JournalError, Lsn, Options, seal, sim::SimDisk};
use savanna_ownership::{
    BootClock, ClusterView, Coordinator, Incarnation, NodeSpec, Tenure,
    embedded::EmbeddedCoordinator,
    logs::{self, LogPlace, LogState},
};
use savanna_tenants_host::policy::MemoryPressure;
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    owner::{adopt, adopt_new, awaited},
    shards::{Member, are_kept},
};
use tokio::runtime::Runtime;

use super::{
    coordinator::{Asked, Trouble},
    owner::{self, Told},
    process::{Process, Seat},
    store::FailingStore,
};
use crate::fence_blind::FenceBlindDisk;

/// Where the records of tenants' names begin.
const NAMES: &str = "tenant-names/";
const NODES: usize = 3;
/// As many tenants as there may be.
const TENANTS: usize = 8;
/// Leases end when the simulation says so.
const LEASE: Duration = Duration::from_secs(1 << 30);
/// So often everything is done that the controller and the nodes have to do, before it is expected to be done.
const ROUNDS: usize = 60;

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
}

/// A node's process that stands still, or has lost its lease and does not know it.
struct Paused {
    process: Process,
    place: String,
    /// A commit that was not told yet: of whom, its number and its place in the log.
    under_way: Option<(String, u64, Lsn)>,
}

/// A node.
struct Node {
    name: NodeId,
    incarnation: u64,
    /// Where its log is.
    place: String,
    /// Whether its name is held, as far as the coordinator knows.
    tenure: Option<Tenure>,
    process: Option<Process>,
    /// Earlier processes that may go on.
    paused: Vec<Paused>,
}

struct World {
    runtime: Arc<Runtime>,
    store: Arc<FailingStore>,
    coordinator: Arc<EmbeddedCoordinator>,
    /// By place.
    disks: BTreeMap<String, Arc<SimDisk>>,
    /// The epochs under which logs were opened, by place.
    epochs: BTreeMap<String, NodeEpoch>,
    /// What processes asked the coordinator with: some of it may be on its way.
    asked: Vec<Arc<Asked>>,
    /// Logs that were ended.
    ended: BTreeSet<String>,
    nodes: Vec<Node>,
    /// What a controller has decided and not done yet.
    decided: VecDeque<Intent>,
    told: BTreeMap<String, Told>,
    /// Commits of each tenant that a node did not find which took it over: nobody may be told of them.
    gone: BTreeMap<String, BTreeSet<u64>>,
    /// The node that has served each tenant last, and its tenure's place.
    served: BTreeMap<String, (usize, String)>,
    /// How often in a row a tenant's adoption has ended with its node.
    died: BTreeMap<TenantId, u32>,
    names: u32,
    dice: ChaCha8Rng,
    variant: Variant,
    happened: Happened,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = Arc::new(runtime.expect("a runtime"));
        let coordinator = {
            let _inside = runtime.enter();
            Arc::new(EmbeddedCoordinator::volatile(LEASE, Arc::new(BootClock)))
        };
        let node = |number| Node {
            name: NodeId::new(format!("n{number}")),
            incarnation: 0,
            place: String::new(),
            tenure: None,
            process: None,
            paused: Vec::new(),
        };
        let mut world = Self {
            runtime,
            store: Arc::new(FailingStore::default()),
            coordinator,
            disks: BTreeMap::new(),
            epochs: BTreeMap::new(),
            asked: Vec::new(),
            ended: BTreeSet::new(),
            nodes: (1..=NODES).map(node).collect(),
            decided: VecDeque::new(),
            told: BTreeMap::new(),
            gone: BTreeMap::new(),
            served: BTreeMap::new(),
            died: BTreeMap::new(),
            names: 0,
            dice: ChaCha8Rng::seed_from_u64(seed),
            variant,
            happened,
        };
        (0..NODES).for_each(|node| world.start(node));
        world
    }

    fn view(&self) -> ClusterView {
        ClusterView::new(self.runtime.block_on(self.coordinator.snapshot()).expect("it works"))
    }

    fn step(&mut self) -> Result<(), String> {
        let node = self.dice.random_range(0..NODES);
        match self.dice.random_range(0..1_000) {
            0..60 => self.make(node),
            60..70 => self.remove(),
            70..410 => return self.commit(),
            410..420 => self.restart(node),
            420..500 => self.flush(node),
            500..530 => self.maintain(node),
            530..560 => self.cut(node),
            560..580 => _ = self.nodes[node].process.as_ref().is_some_and(Process::clean_up),
            580..590 => self.arrive(),
            590..600 => self.store.fail_after(self.dice.random_range(0..4), self.dice.random()),
            600..630 => self.store.heal(),
            630..645 => self.trouble(node),
            645..665 => self.kill(node),
            665..680 => self.pause(node),
            680..730 => self.end_lease(node),
            730..760 => self.start(node),
            760..880 => self.control()?,
            880..940 => self.follow(node),
            _ => return self.paused_goes_on(node),
        }
        Ok(())
    }

    /// The process of a node that begins, if the name is free.
    fn start(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.process.is_some() || node.tenure.is_some() {
            return;
        }
        self.store.heal();
        node.incarnation += 1;
        let spec = NodeSpec {
            name: node.name.clone(),
            incarnation: Incarnation(node.incarnation),
            address: "here".to_owned(),
            labels: BTreeMap::new(),
        };
        let tenure = self.runtime.block_on(self.coordinator.register(&spec)).expect("the name is free").tenure;
        self.happened.returned += u32::from(self.nodes[number].incarnation > 1);
        self.nodes[number].tenure = Some(tenure.clone());
        self.open(number, tenure);
    }

    /// The host of a node ends by itself, and begins again.
    fn restart(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if let (Some(tenure), Some(_)) = (node.tenure.clone(), node.process.take()) {
            self.happened.restarted += 1;
            self.store.heal();
            self.open(number, tenure);
        }
    }

    /// A change that was on its way when its process ended arrives.
    fn arrive(&mut self) {
        for asked in &self.asked {
            self.happened.late += u32::from(self.runtime.block_on(asked.arrive()));
        }
    }

    /// A node opens the log of its tenure.
    fn open(&mut self, number: usize, tenure: Tenure) {
        let is_hasty = self.variant == Variant::ServesBeforeHistory;
        let asked = Asked::new(Arc::clone(&self.coordinator) as _, is_hasty);
        self.asked.push(Arc::clone(&asked));
        let (view, epoch) = (self.view(), tenure.epoch);
        let (member, place) = self.runtime.block_on(async {
            let coordinator = Arc::clone(&asked) as _;
            if are_kept(&view).expect("records") {
                let place_of = |log: &LogId| LogPlace::Folder(log.to_string());
                Member::begin(coordinator, tenure, place_of).await.expect("its own log")
            } else {
                let place = LogPlace::Folder("first".to_owned());
                (Member::join(coordinator, tenure, place.clone()).await.expect("its own log"), place)
            }
        });
        let LogPlace::Folder(place) = place else { panic!("it is a folder") };
        let epoch = self.epoch_above(&place, epoch);
        self.epochs.insert(place.clone(), epoch);
        let node = &mut self.nodes[number];
        node.place = place;
        let disk = self.disks.entry(node.place.clone()).or_insert_with(|| SimDisk::new(node.incarnation));
        let disk: Arc<dyn Disk> = match self.variant {
            Variant::FenceIgnored => Arc::new(FenceBlindDisk::new(Arc::clone(disk))),
            _ => Arc::clone(disk) as _,
        };
        let seat = Seat { asked, member, epoch };
        node.process = Some(Process::open(&self.runtime, disk, &self.store, seat, self.variant.of_process()));
    }

    /// An epoch above all under which a log was opened, at least this one.
    fn epoch_above(&self, place: &str, least: NodeEpoch) -> NodeEpoch {
        self.epochs.get(place).map_or(least, |opened| least.max(opened.next()))
    }

    /// The machine of a node loses its power.
    fn kill(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.process.take().is_none() {
            return;
        }
        node.paused.clear();
        let disk = self.disks[&node.place].copy(self.dice.random());
        disk.crash();
        self.disks.insert(node.place.clone(), disk);
        self.happened.killed += 1;
    }

    /// A node stands still, perhaps between a commit and its answer.
    fn pause(&mut self, number: usize) {
        let name = self.any_name();
        let node = &mut self.nodes[number];
        let Some(mut process) = node.process.take() else { return };
        let has = name.filter(|name| process.names().contains(name));
        let under_way = has.and_then(|name| {
            let told = self.told.get_mut(&name)?;
            told.tried += 1;
            let lsn = process.commit(&name, told.tried)?;
            Some((name, told.tried, lsn))
        });
        node.paused.push(Paused { process, place: node.place.clone(), under_way });
        self.happened.paused += 1;
    }

    /// The lease of a node runs out that does not renew it.
    fn end_lease(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.process.is_none()
            && let Some(tenure) = node.tenure.take()
        {
            self.runtime.block_on(self.coordinator.deregister(&tenure)).expect("it works");
        }
    }

    /// A node that stood still goes on. What it commits may come to be before its log ends; nobody is told.
    fn paused_goes_on(&mut self, number: usize) -> Result<(), String> {
        let name = self.any_name();
        let Some(Paused { process, place, under_way }) = self.nodes[number].paused.last_mut() else { return Ok(()) };
        if let Some((name, commit, lsn)) = under_way.take() {
            if process.is_durable(lsn)
                && let Some(told) = self.told.get_mut(&name)
            {
                self.happened.told_late += 1;
                told.certain = told.certain.max(commit);
                if self.gone.get(&name).is_some_and(|gone| gone.contains(&commit)) {
                    return Err(format!(
                        "somebody is told of commit {commit} of {name}, and its new node does not have it"
                    ));
                }
            }
            return Ok(());
        }
        match self.dice.random_range(0..5) {
            0 | 1 => {
                let Some((name, told)) = name.and_then(|name| Some((name.clone(), self.told.get_mut(&name)?))) else {
                    return Ok(());
                };
                if !process.names().contains(&name) || process.awake(&name).is_none() {
                    return Ok(());
                }
                told.tried += 1;
                self.happened.tried_late += 1;
                let is_told = process.commit(&name, told.tried).is_some_and(|lsn| process.is_durable(lsn));
                if is_told && self.ended.contains(place) {
                    return Err(format!("the log {place} has ended, and takes a commit of {name}"));
                }
            }
            2 => {
                let steps = self.dice.random_range(1..8);
                name.into_iter().for_each(|name| process.flush(&name, steps));
            }
            3 => _ = process.clean_up(),
            _ => _ = process.cut(),
        }
        Ok(())
    }

    fn any_name(&mut self) -> Option<String> {
        let at = self.dice.random_range(0..TENANTS);
        self.told.keys().nth(at % self.told.len().max(1)).cloned()
    }

    /// The living nodes that serve a tenant.
    fn servers(&self, name: &str) -> Vec<usize> {
        let serves =
            |node: &Node| node.process.as_ref().is_some_and(|process| process.names().iter().any(|n| n == name));
        (0..NODES).filter(|number| serves(&self.nodes[*number])).collect()
    }

    /// The process of the one node that serves a tenant, if one does.
    fn server(&mut self, name: &str) -> Result<Option<&mut Process>, String> {
        match self.servers(name)[..] {
            [] => Ok(None),
            [one] => Ok(self.nodes[one].process.as_mut()),
            ref more => Err(format!("{name} is served by {more:?}")),
        }
    }

    fn make(&mut self, number: usize) {
        if self.told.len() >= TENANTS {
            return;
        }
        let Some(process) = &self.nodes[number].process else { return };
        self.names += 1;
        let name = format!("t{}", self.names);
        // Of what was not answered nobody knows whether it happened.
        if process.create(&name).is_ok() {
            self.happened.made += 1;
            self.told.insert(name, Told::default());
        }
    }

    fn remove(&mut self) {
        let Some(name) = self.any_name() else { return };
        let Ok(Some(process)) = self.server(&name) else { return };
        let Some(removed) = process.remove(&name) else { return };
        self.told.remove(&name);
        self.served.remove(&name);
        self.gone.remove(&name);
        self.happened.removed += u32::from(removed.is_ok());
    }

    fn commit(&mut self) -> Result<(), String> {
        let Some(name) = self.any_name() else { return Ok(()) };
        let number = self.told[&name].tried + 1;
        self.look_what_is_gone(&name)?;
        let Some(process) = self.server(&name)? else { return Ok(()) };
        let Some(lsn) = process.commit(&name, number) else { return Ok(()) };
        let is_told = process.is_durable(lsn);
        let told = self.told.get_mut(&name).expect("it is there");
        told.tried = number;
        if is_told {
            told.certain = number;
            self.happened.commits += 1;
        }
        Ok(())
    }

    /// What a node has of a tenant that it serves for the first time.
    fn look_what_is_gone(&mut self, name: &str) -> Result<(), String> {
        let [number] = self.servers(name)[..] else { return Ok(()) };
        let by = (number, self.nodes[number].place.clone());
        if self.served.get(name) == Some(&by) {
            return Ok(());
        }
        let told = self.told[name];
        let Some(process) = self.nodes[number].process.as_mut() else { return Ok(()) };
        // It wakes when the store works again.
        if process.waken(name).is_none() {
            return Ok(());
        }
        let found = process.last_commit(name)?;
        if found < told.certain {
            return Err(format!("{name} is taken over after commit {found}, expected {told:?}"));
        }
        self.gone.entry(name.to_owned()).or_default().extend(found + 1..=told.tried);
        self.served.insert(name.to_owned(), by);
        Ok(())
    }

    fn flush(&mut self, number: usize) {
        let (name, steps) = (self.any_name(), self.dice.random_range(1..12));
        if let (Some(name), Some(process)) = (name, &mut self.nodes[number].process) {
            process.flush(&name, steps);
        }
    }

    fn maintain(&mut self, number: usize) {
        let (name, bytes) = (self.any_name(), self.dice.random_range(0..3_000));
        let idle_for = self.dice.random_ratio(2, 3).then_some(Duration::MAX);
        if let (Some(name), Some(process)) = (name, &mut self.nodes[number].process) {
            process.maintain(&name, idle_for, MemoryPressure::of(bytes, 1_000, TENANTS));
        }
    }

    fn cut(&mut self, number: usize) {
        if let Some(process) = &mut self.nodes[number].process {
            self.happened.cuts += u32::from(process.cut());
            process.end_wakings();
        }
    }

    /// Something happens to a change of the records, soon.
    fn trouble(&mut self, number: usize) {
        let changes = self.dice.random_range(0..4);
        self.trouble_after(number, changes);
    }

    fn trouble_after(&mut self, number: usize, changes: u32) {
        let is_made = self.dice.random();
        let trouble = match self.dice.random_range(0..3) {
            0 => Trouble::Lost { is_made },
            1 => Trouble::Ends { is_made },
            _ => Trouble::Late,
        };
        if let Some(process) = &self.nodes[number].process {
            self.happened.unanswered += 1;
            process.asked.trouble_after(changes, trouble);
        }
    }

    /// A controller does what it, or one before it, has decided by what it knew; or decides anew.
    fn control(&mut self) -> Result<(), String> {
        if self.variant == Variant::EndsBeforeRecord {
            self.end_a_living_log();
        }
        if self.decided.is_empty() || self.dice.random_ratio(1, 10) {
            self.happened.overtaken += u32::try_from(self.decided.len()).expect("a few");
            self.decided = savanna_control::step(&self.view(), &Loads::default()).intents.into();
        }
        let some = self.dice.random_range(1..6);
        for _ in 0..some {
            let Some(intent) = self.decided.pop_front() else { return Ok(()) };
            if !self.perform(&intent)? {
                // What follows of the same log builds on it.
                self.happened.overtaken += 1;
                self.decided.retain(|later| later.log() != intent.log());
            }
        }
        Ok(())
    }

    /// The log of a node that lives is ended, though no record says so.
    fn end_a_living_log(&mut self) {
        let number = self.dice.random_range(0..NODES);
        if self.nodes[number].process.is_some() && self.dice.random_ratio(1, 20) {
            let place = self.nodes[number].place.clone();
            let epoch = self.epoch_above(&place, NodeEpoch::NONE);
            seal(&Options::disk(Arc::clone(&self.disks[&place]) as _), epoch).expect("a log");
        }
    }

    /// Whether it is done.
    fn perform(&mut self, intent: &Intent) -> Result<bool, String> {
        let proposed = match intent {
            Intent::SealRecord { change, .. } | Intent::ForgetLog { change, .. } => change.clone().into(),
            Intent::Grant { log, batch } => {
                if let (Variant::DeletesAtOnce, Some(log)) = (self.variant, log) {
                    let place = logs::get(&self.view(), log).ok().flatten().map(|(_, record)| record.place);
                    place.iter().for_each(|place| self.delete(place));
                }
                batch.clone()
            }
            Intent::SealLog { place, epoch, is_needed, .. } => {
                let (place, disk) = self.log_to_end(place);
                return match seal(&Options::disk(disk), self.epoch_above(&place, *epoch)) {
                    Ok(_) => {
                        self.ended.insert(place);
                        Ok(true)
                    }
                    Err(JournalError::NoLog { .. }) if !is_needed => Ok(true),
                    Err(error) => Err(format!("the log {place} cannot be ended: {error}")),
                };
            }
            Intent::DeleteLog { place, .. } => {
                self.delete(place);
                self.happened.deleted += 1;
                return Ok(true);
            }
        };
        // Refused is what was decided by an old view.
        Ok(self.runtime.block_on(self.coordinator.apply(&proposed)).is_ok())
    }

    fn delete(&mut self, place: &LogPlace) {
        if let LogPlace::Folder(place) = place {
            self.disks.insert(place.clone(), SimDisk::new(0));
        }
    }

    /// The disk of a log that is to be ended and read.
    fn log_to_end(&mut self, place: &LogPlace) -> (String, Arc<dyn Disk>) {
        let LogPlace::Folder(place) = place else { panic!("logs of tenants are in folders, came {place:?}") };
        let disk = self.disks.entry(place.clone()).or_insert_with(|| SimDisk::new(0));
        let disk = match self.variant {
            Variant::EndsCopies => disk.copy(1),
            _ => Arc::clone(disk),
        };
        (place.clone(), disk)
    }

    /// A node takes over what it was granted.
    fn follow(&mut self, number: usize) {
        let view = self.view();
        let Some(process) = &self.nodes[number].process else { return };
        let (owner, storage) = (Arc::clone(&process.owner), Arc::clone(&process.storage));
        let (logs, has_new) = awaited(&owner, &view);
        if has_new {
            let adopted = self.runtime.block_on(adopt_new(&owner));
            self.adopted(number, adopted);
        }
        for log in logs {
            let Ok(Some((_, record))) = logs::get(&view, &log) else { continue };
            if record.state == LogState::Sealed {
                let (place, disk) = self.log_to_end(&record.place);
                let epoch = self.epoch_above(&place, record.seal_epoch());
                let Ok(sealed) = seal(&Options::disk(disk), epoch) else { continue };
                // Where one adoption has ended, the next ones may, too.
                let died = self.arriving(number).into_iter().any(|tenant| (1..4).contains(&self.died_of(tenant)));
                if died && self.dice.random_ratio(3, 4) {
                    self.trouble_after(number, 0);
                }
                let adopted = self.runtime.block_on(adopt(&owner, &storage, &log, &sealed));
                self.adopted(number, adopted);
            }
        }
    }

    /// The tenants that were granted to a node, and that it does not have yet.
    fn arriving(&self, number: usize) -> Vec<TenantId> {
        let Node { tenure: Some(tenure), process: Some(process), .. } = &self.nodes[number] else { return Vec::new() };
        let (view, owner) = (self.view(), process.owner.lock());
        let granted = view.shards("tenants/").filter(|(_, record)| record.value.owner() == Some(tenure));
        let granted = granted.filter_map(|(shard, _)| shard.0.strip_prefix("tenants/")?.parse().ok());
        granted.filter(|tenant| owner.name(*tenant).is_none()).collect()
    }

    fn died_of(&self, tenant: TenantId) -> u32 {
        self.died.get(&tenant).copied().unwrap_or_default()
    }

    fn adopted(&mut self, number: usize, adopted: savanna_tenants_values::error::Result<Vec<TenantId>>) {
        match adopted {
            Ok(arrived) => {
                self.happened.adopted += u32::try_from(arrived.len()).expect("a few");
                self.died.retain(|tenant, _| !arrived.contains(tenant));
            }
            Err(_) => {
                self.happened.died_adopting += 1;
                for tenant in self.arriving(number) {
                    let died = self.died_of(tenant) + 1;
                    self.died.insert(tenant, died);
                    self.happened.died_in_a_row = self.happened.died_in_a_row.max(died);
                }
                match self.dice.random() {
                    true => self.kill(number),
                    false => self.restart(number),
                }
            }
        }
    }

    /// Nothing fails any more, and everybody does what is to be done: then everything that was told is there, once.
    fn settle(&mut self) -> Result<(), String> {
        self.store.heal();
        self.arrive();
        self.died.clear();
        for number in 0..NODES {
            // Whoever hears of nothing any more, or stood still, is started anew. The others go on.
            if self.nodes[number].process.as_ref().is_some_and(|process| process.asked.has_ended()) {
                self.kill(number);
            }
            self.nodes[number].paused.clear();
            self.end_lease(number);
            self.start(number);
            self.nodes[number].process.iter().for_each(|process| process.asked.trouble_is_over());
        }
        for _ in 0..ROUNDS {
            self.decided.clear();
            self.control()?;
            (0..NODES).for_each(|number| self.follow(number));
        }
        self.decided.clear();
        let decision = savanna_control::step(&self.view(), &Loads::default());
        if !decision.intents.is_empty() || !decision.stuck.is_empty() {
            return Err(format!("after {ROUNDS} rounds there is still to do: {decision:?}"));
        }
        let open = logs::all(&self.view()).expect("records").len();
        if open != NODES {
            return Err(format!("expected a log for each of {NODES} nodes, found {open}"));
        }
        // Also those of which nobody was told.
        for (key, _) in self.view().roots(NAMES) {
            let name = key[NAMES.len()..].to_owned();
            if self.server(&name)?.is_none() {
                return Err(format!("{name} has a name, and nobody serves it"));
            }
        }
        for (name, told) in self.told.clone() {
            let Some(process) = self.server(&name)? else { return Err(format!("nobody serves {name}")) };
            let found = process.last_commit(&name)?;
            if !(told.certain..=told.tried).contains(&found) {
                return Err(format!("{name} is after commit {found}, expected {told:?}"));
            }
            if !process.commit(&name, told.tried + 1).is_some_and(|lsn| process.is_durable(lsn)) {
                return Err(format!("the node that serves {name} takes no commit"));
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
    let mut world = World::new(seed, variant, happened);
    for _ in 0..600 {
        world.step()?;
    }
    world.settle()?;
    Ok(world.happened)
}
