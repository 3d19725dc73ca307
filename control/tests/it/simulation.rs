//! A simulated cluster: the product's coordinator core and this crate's decisions, with nodes that write, adopt, pause and die, and controllers
//! that die between any two of their intents and look at old views. Nodes say what their shards do; what they say is lost now and then, or old.
//!
//! Adoptions go some lines at a time, and the answer to their proposals may be lost, or the proposal come late.
//!
//! Checked after every action: no shard has two servers at once; whoever serves a shard has every commit that was ever acknowledged, and none twice; a
//! log that a history names is there; a log that a living node holds is not sealed; none is deleted that was not. At the end, when nothing
//! fails any more and one node stays away for good, every shard is served but those whose commits are on the disk of that node, and no
//! log is left that nobody needs. Broken variants show that each check bites.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_control::load::{Done, Gauge, Reports};
use savanna_control::{Intent, step_in_batches};
use savanna_epoch::{LogId, NodeEpoch, NodeId, OwnerEpoch, ShardId};
use savanna_ownership::core::{CoordinatorCore, Reply, Request};
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState, NewLog};
use savanna_ownership::{
    Batch, ClusterView, Exclusive, History, Incarnation, MonoTime, NodeSpec, Ownership, Revision, ShardRecord, Tenure,
    Transition, Versioned,
};

const TTL: Duration = Duration::from_secs(1);
const MARGIN: Duration = Duration::from_millis(200);
/// Between two actions.
const TICK: Duration = Duration::from_millis(10);
const NODES: usize = 4;
const CONTROLLERS: usize = 2;
const SHARDS: usize = 6;
/// Few enough that one log's shards need several batches.
const GRANTS_PER_BATCH: usize = 2;
/// Actions with troubles, and then without.
const TROUBLED: usize = 4_000;
const QUIET: usize = 2_500;

/// What is broken in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    /// The controller ends a log before its record says so.
    SealsLogFirst,
    /// The controller deletes a log when its shards have new owners.
    DeletesWhatIsNeeded,
    /// A new owner serves without what the old one's log has.
    AdoptsNothing,
    /// A new owner that does not know what became of its proposal begins its adoption again.
    AdoptsAgain,
    /// Who reads a log begins before its owner said that it owns the shard.
    ReadsFromTheBegin,
    /// A node serves on when its lease is over.
    ServesOn,
    /// Nobody gets the shards of nodes that are gone.
    GrantsNothing,
    /// Nothing is deleted.
    DeletesNothing,
    /// What no shard needs is deleted as it is.
    DeletesWhatIsOpen,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Violation {
    TwoServers(ShardId),
    CommitLost(ShardId, u64),
    OutOfReach(LogId),
    CommitTwice(ShardId, u64),
    OpenLogDeleted(LogId),
    LogGone(LogId),
    HeldLogSealed(LogId),
    NotServed(ShardId),
    LogLeft(LogId),
}

/// How often things happened.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    acknowledged: u64,
    adoptions: u64,
    /// Owners that learned later that their proposal had been done.
    late_answers: u64,
    moves: u64,
    retired: u64,
    private: u64,
    restarts: u64,
    abandoned_adoptions: u64,
    coordinator_restarts: u64,
    /// Controllers that died right after a decision, or an intent, by its kind.
    crashes_after: BTreeMap<&'static str, u64>,
    /// Decisions for which every node that lives had said what it does.
    by_load: u64,
    /// Intents that were refused because of an old view or another controller.
    refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Owned(ShardId, OwnerEpoch),
    Commit(ShardId, u64),
}

/// A log itself.
#[derive(Clone, Debug)]
struct Log {
    /// Only who opened it under this epoch appends.
    epoch: NodeEpoch,
    is_sealed: bool,
    lines: Vec<Line>,
}

impl Log {
    /// The commits of a shard behind the last line that says that it is owned under an epoch.
    fn commits(&self, shard: &ShardId, epoch: OwnerEpoch, from_begin: bool) -> Result<BTreeSet<u64>, Violation> {
        let owned = self.lines.iter().rposition(|line| *line == Line::Owned(shard.clone(), epoch));
        let mut commits = BTreeSet::new();
        let Some(from) = owned else { return Ok(commits) };
        for line in &self.lines[if from_begin { 0 } else { from }..] {
            if let Line::Commit(of, commit) = line
                && of == shard
                && !commits.insert(*commit)
            {
                return Err(Violation::CommitTwice(shard.clone(), *commit));
            }
        }
        Ok(commits)
    }
}

/// A shard that is about to be served: what is still to be written, what to propose then, and what it will have.
///
/// Once it was proposed it is proposed as it is until it is known what became of it: as long as the record has not changed, a proposal may be
/// on its way, and a new line that says that the shard is owned would stand in front of nothing when it arrives.
struct Adoption {
    lines: VecDeque<Line>,
    transition: Transition,
    commits: BTreeSet<u64>,
}

#[derive(Default)]
struct Node {
    is_up: bool,
    paused_until: MonoTime,
    tenure: Option<Tenure>,
    serves_until: MonoTime,
    /// The log whose record it holds, and whether it has opened it.
    log: Option<(LogId, bool)>,
    adoption: Option<Adoption>,
    served: BTreeMap<ShardId, BTreeSet<u64>>,
    gauge: Gauge,
    /// What its shards have done, and until when.
    done: BTreeMap<ShardId, Done>,
    done_until: MonoTime,
}

#[derive(Default)]
struct Controller {
    view: Option<ClusterView>,
    intents: VecDeque<Intent>,
    reports: Reports,
}

struct World {
    rng: ChaCha8Rng,
    sabotage: Sabotage,
    now: MonoTime,
    began: Instant,
    core: CoordinatorCore,
    logs: BTreeMap<LogId, Log>,
    nodes: Vec<Node>,
    controllers: Vec<Controller>,
    acknowledged: BTreeMap<ShardId, BTreeSet<u64>>,
    /// Proposals that nobody waits for any more.
    on_the_way: Vec<Transition>,
    next: u64,
    has_trouble: bool,
    /// Nothing new is begun, so that what was begun comes to its end.
    is_settling: bool,
    counts: Counts,
}

impl World {
    fn new(seed: u64, sabotage: Sabotage) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            sabotage,
            now: MonoTime(0),
            began: Instant::now(),
            core: CoordinatorCore::new(TTL),
            logs: BTreeMap::new(),
            nodes: (0..NODES).map(|_| Node { is_up: true, ..Node::default() }).collect(),
            controllers: (0..CONTROLLERS).map(|_| Controller::default()).collect(),
            acknowledged: BTreeMap::new(),
            on_the_way: Vec::new(),
            next: 0,
            has_trouble: true,
            is_settling: false,
            counts: Counts::default(),
        }
    }

    fn run(mut self) -> Result<Counts, Violation> {
        for action in 0..TROUBLED + QUIET {
            self.has_trouble = action < TROUBLED;
            self.is_settling = action >= TROUBLED + QUIET / 2;
            if action == TROUBLED {
                self.nodes[NODES - 1] = Node::default();
            }
            self.now = self.now.after(TICK);
            if self.has_trouble && self.rng.random_bool(0.001) {
                self.restart_coordinator();
            }
            self.core.step(&Request::Tick, self.now);
            if !self.on_the_way.is_empty() && self.rng.random_bool(0.1) {
                let arrives = self.on_the_way.swap_remove(self.rng.random_range(0..self.on_the_way.len()));
                self.apply(arrives);
            }
            match self.rng.random_range(0..NODES + CONTROLLERS) {
                node if node < NODES => self.node(node)?,
                controller => self.controller(controller - NODES)?,
            }
            self.check_servers()?;
            self.check_held_logs()?;
        }
        self.check_end()?;
        Ok(self.counts)
    }

    /// It forgets how long leases last, and gives each a whole one again.
    fn restart_coordinator(&mut self) {
        self.counts.coordinator_restarts += 1;
        self.core = CoordinatorCore::from_image(TTL, self.core.image().clone());
        self.core.restart_leases(self.now);
    }

    fn view(&self) -> ClusterView {
        ClusterView::new(self.core.snapshot())
    }

    fn apply(&mut self, batch: impl Into<Batch>) -> bool {
        self.core.step(&Request::Apply(batch.into()), self.now).reply.is_ok()
    }

    fn is_serving(&self, node: usize) -> bool {
        let Node { is_up, serves_until, .. } = self.nodes[node];
        is_up && (self.now < serves_until || self.sabotage == Sabotage::ServesOn)
    }

    fn name(node: usize) -> NodeId {
        NodeId::new(format!("n{node}"))
    }

    // ---- nodes

    fn node(&mut self, node: usize) -> Result<(), Violation> {
        if self.has_trouble {
            self.trouble(node);
        } else {
            self.nodes[node].is_up |= node + 1 < NODES;
        }
        if !self.nodes[node].is_up || self.now < self.nodes[node].paused_until {
            return Ok(());
        }
        // What was on its way to the disk when it was paused.
        if let Some(shard) = self.nodes[node].served.keys().next().cloned()
            && self.rng.random_bool(0.1)
        {
            self.next += 1;
            self.append(node, Line::Commit(shard, self.next));
        }
        let Some(tenure) = self.renew(node) else { return Ok(()) };
        match self.nodes[node].log.clone() {
            None => self.claim_log(node, &tenure),
            Some((log, false)) => self.open_log(node, &tenure, log)?,
            Some((log, true)) => self.work(node, &tenure, &log)?,
        }
        self.tell_load(node, &tenure);
        Ok(())
    }

    fn instant(&self) -> Instant {
        self.began + Duration::from_nanos(self.now.0)
    }

    /// Says to each controller what its shards do: each as much as its number says.
    fn tell_load(&mut self, node: usize, tenure: &Tenure) {
        if !self.rng.random_bool(0.1) {
            return;
        }
        let (now, instant, has_trouble) = (self.now, self.instant(), self.has_trouble);
        let Node { served, gauge, done, done_until, .. } = &mut self.nodes[node];
        let micros = now.since(*done_until).as_micros() as u64;
        *done_until = now;
        done.retain(|shard, _| served.contains_key(shard));
        for shard in served.keys() {
            let busy = shard.0.bytes().last().map_or(0, |number| u64::from(number % 4));
            done.entry(shard.clone()).or_default().cpu_micros += micros * busy / 4;
        }
        let report = gauge.step(instant, 0, done.clone());
        for controller in &mut self.controllers {
            if !has_trouble || self.rng.random_bool(0.5) {
                controller.reports.take(tenure, report.clone(), instant);
            }
        }
    }

    fn trouble(&mut self, node: usize) {
        let is_up = self.nodes[node].is_up;
        if is_up && self.rng.random_bool(0.005) {
            self.counts.abandoned_adoptions += u64::from(self.nodes[node].adoption.is_some());
            self.nodes[node] = Node::default();
        } else if !is_up && self.rng.random_bool(0.05) {
            self.nodes[node].is_up = true;
        } else if self.rng.random_bool(0.005) {
            self.nodes[node].paused_until = self.now.after(Duration::from_millis(self.rng.random_range(1..3000)));
        }
    }

    /// Registers, or renews its lease. None if it holds none.
    fn renew(&mut self, node: usize) -> Option<Tenure> {
        let request = match &self.nodes[node].tenure {
            Some(tenure) => Request::Heartbeat(tenure.clone()),
            None => {
                self.next += 1;
                Request::Register(NodeSpec {
                    name: Self::name(node),
                    incarnation: Incarnation(self.next),
                    address: String::new(),
                    labels: BTreeMap::new(),
                })
            }
        };
        let until = self.now.after(TTL - MARGIN);
        match self.core.step(&request, self.now).reply {
            Ok(Reply::Granted(grant)) => self.nodes[node].tenure = Some(grant.tenure),
            Ok(_) => {}
            Err(_) => {
                // Its tenure is over, with all that it had; or another process has the name yet.
                self.nodes[node] = Node { is_up: true, ..Node::default() };
                return None;
            }
        }
        self.nodes[node].serves_until = until;
        self.nodes[node].tenure.clone()
    }

    /// Takes over the record of its former log, or begins another.
    fn claim_log(&mut self, node: usize, tenure: &Tenure) {
        let view = self.view();
        let all = logs::all(&view).expect("logs write their records");
        let former = all.keys().find_map(|log| Some((log, logs::take_over(&view, log, tenure.clone()).ok()?)));
        let (log, change) = match former {
            Some((log, change)) if self.rng.random() => (log.clone(), change),
            _ => {
                let allocate = Request::Allocate { name: NewLog::sequence(&tenure.node), count: 1 };
                let Ok(Reply::Ids(numbers)) = self.core.step(&allocate, self.now).reply else { return };
                let new = NewLog::numbered(&tenure.node, "tenants", &numbers).expect("a name");
                let log = new.id().clone();
                let is_private = self.rng.random_bool(0.2);
                let of = if is_private { LogPlace::Private as fn(String) -> LogPlace } else { LogPlace::Folder };
                let place = of(log.to_string());
                let change = logs::begin(&view, new, place, tenure.clone());
                (log, change.expect("it lives"))
            }
        };
        if self.apply(change) {
            self.counts.restarts += u64::from(self.logs.contains_key(&log));
            self.nodes[node].log = Some((log, false));
        }
    }

    /// Opens the log itself, which fences whoever had it before.
    fn open_log(&mut self, node: usize, tenure: &Tenure, log: LogId) -> Result<(), Violation> {
        let opened = self.logs.entry(log.clone()).or_insert_with(|| Log {
            epoch: tenure.epoch,
            is_sealed: false,
            lines: Vec::new(),
        });
        if opened.is_sealed {
            return Err(Violation::HeldLogSealed(log));
        }
        opened.epoch = tenure.epoch;
        self.nodes[node].log = Some((log, true));
        Ok(())
    }

    /// Appends if nobody has taken the log over, and it goes on.
    fn append(&mut self, node: usize, line: Line) -> bool {
        let Node { tenure: Some(tenure), log: Some((log, true)), .. } = &self.nodes[node] else { return false };
        match self.logs.get_mut(log) {
            Some(log) if log.epoch == tenure.epoch && !log.is_sealed => {
                log.lines.push(line);
                true
            }
            _ => false,
        }
    }

    fn work(&mut self, node: usize, tenure: &Tenure, log: &LogId) -> Result<(), Violation> {
        if let Some(adoption) = self.nodes[node].adoption.take() {
            return self.go_on_adopting(node, tenure, adoption);
        }
        match self.rng.random_range(0..10) {
            0 if !self.is_settling => self.change_owners(tenure, node),
            1..=4 => self.commit(node),
            _ => return self.adopt(node, tenure, log),
        }
        Ok(())
    }

    fn go_on_adopting(&mut self, node: usize, tenure: &Tenure, mut adoption: Adoption) -> Result<(), Violation> {
        if !adoption.lines.is_empty() {
            let count = if self.has_trouble { self.rng.random_range(1..=8) } else { usize::MAX };
            let some: Vec<Line> = adoption.lines.drain(..count.min(adoption.lines.len())).collect();
            if some.into_iter().all(|line| self.append(node, line)) {
                self.nodes[node].adoption = Some(adoption);
            }
            return Ok(());
        }
        let Adoption { transition, commits, .. } = &adoption;
        let fate = if self.has_trouble { self.rng.random_range(0..6) } else { 5 };
        match fate {
            0 => {
                self.apply(transition.clone());
            }
            1 => self.on_the_way.push(transition.clone()),
            2 => {}
            _ => {
                self.apply(transition.clone());
                let known = self.core.shard(&transition.shard).expect("it was granted").clone();
                if known.value == transition.record {
                    let (shard, commits) = (transition.shard.clone(), commits.clone());
                    self.counts.adoptions += 1;
                    // It was done by a proposal whose answer never came, and others' changes have left it as it is.
                    self.counts.late_answers += u64::from(known.version != self.core.revision());
                    return self.serve(node, shard, commits);
                }
                // At another version no proposal of it can be done any more.
                if known.version == transition.expected && known.value.owner() == Some(tenure) {
                    self.nodes[node].adoption = Some(adoption);
                }
                return Ok(());
            }
        }
        if self.sabotage != Sabotage::AdoptsAgain {
            self.nodes[node].adoption = Some(adoption);
        }
        Ok(())
    }

    /// Ends a move: what the source has goes into the target's log, and the record says so. Interrupted anywhere, the source goes on.
    fn finish_move(&mut self, node: usize, shard: &ShardId, known: &Versioned<ShardRecord>, to: &Tenure) {
        let Some(target) = self.nodes.iter().position(|other| other.is_up && other.tenure.as_ref() == Some(to)) else {
            return;
        };
        let Some((log, true)) = self.nodes[target].log.clone() else { return };
        let Some(commits) = self.nodes[node].served.remove(shard) else { return };
        let epoch = known.value.epoch.next();
        let lines = commits.iter().map(|commit| Line::Commit(shard.clone(), *commit));
        let lines: Vec<Line> = std::iter::once(Line::Owned(shard.clone(), epoch)).chain(lines).collect();
        for line in lines {
            if (self.has_trouble && self.rng.random_bool(0.05)) || !self.append(target, line) {
                return;
            }
        }
        let record = ShardRecord::serving(to.clone(), epoch).with_history(Some(History { log, epoch }));
        let by = self.nodes[node].tenure.clone();
        let is_done = self.apply(Transition { shard: shard.clone(), expected: known.version, record, by });
        self.counts.moves += u64::from(is_done);
    }

    /// Ends the shard, which nobody needs any more, with all that it had.
    fn retire(&mut self, node: usize, shard: &ShardId, known: &Versioned<ShardRecord>) {
        let by = self.nodes[node].tenure.clone();
        let record = ShardRecord::retired(known.value.epoch);
        self.nodes[node].served.remove(shard);
        if self.apply(Transition { shard: shard.clone(), expected: known.version, record, by }) {
            self.counts.retired += 1;
            self.acknowledged.remove(shard);
        }
    }

    /// Begins a shard, or a move, or ends or gives one up.
    fn change_owners(&mut self, tenure: &Tenure, node: usize) {
        let shard = ShardId::new(format!("tenants/{}", self.rng.random_range(0..SHARDS)));
        let known = self.core.shard(&shard).cloned();
        let expected = known.as_ref().map_or(Revision::NONE, |record| record.version);
        let others: Vec<Tenure> =
            self.view().nodes().map(|node| node.tenure.clone()).filter(|other| other != tenure).collect();
        if let Some(known) = &known
            && known.value.owner() == Some(tenure)
            && self.nodes[node].served.contains_key(&shard)
        {
            match &known.value.ownership {
                Ownership::Exclusive(Exclusive::Moving { to, .. }) if self.rng.random() => {
                    return self.finish_move(node, &shard, known, to);
                }
                _ if self.rng.random_bool(0.05) => return self.retire(node, &shard, known),
                _ => {}
            }
        }
        let record = match known.map(|record| record.value) {
            None => ShardRecord::serving(tenure.clone(), OwnerEpoch(1)),
            Some(ShardRecord { ownership: Ownership::Retired, epoch, .. }) => {
                ShardRecord::serving(tenure.clone(), epoch.next())
            }
            Some(record) => {
                let state = match (&record.ownership, others.choose(&mut self.rng)) {
                    (Ownership::Exclusive(Exclusive::Serving { owner }), Some(to)) if owner == tenure => {
                        Exclusive::Moving { from: owner.clone(), to: to.clone() }
                    }
                    (Ownership::Exclusive(Exclusive::Moving { from, .. }), _) if from == tenure => {
                        Exclusive::Serving { owner: from.clone() }
                    }
                    _ => return,
                };
                ShardRecord { ownership: Ownership::Exclusive(state), ..record }
            }
        };
        let by = self.nodes[node].tenure.clone();
        self.apply(Transition { shard, expected, record, by });
    }

    /// Commits to a shard that it serves, and tells if the log took it while the lease lasts.
    fn commit(&mut self, node: usize) {
        let shards: Vec<ShardId> = self.nodes[node].served.keys().cloned().collect();
        let Some(shard) = shards.choose(&mut self.rng).cloned() else { return };
        self.next += 1;
        let commit = self.next;
        if self.append(node, Line::Commit(shard.clone(), commit)) && self.is_serving(node) {
            self.counts.acknowledged += 1;
            self.acknowledged.entry(shard.clone()).or_default().insert(commit);
            self.nodes[node].served.entry(shard).or_default().insert(commit);
        }
    }

    /// Takes over a shard that it owns and does not serve: what its log has goes into the node's own.
    fn adopt(&mut self, node: usize, tenure: &Tenure, own: &LogId) -> Result<(), Violation> {
        let snapshot = self.core.snapshot();
        let served = &self.nodes[node].served;
        let is_mine = |record: &ShardRecord| record.owner() == Some(tenure);
        let granted: Vec<_> = snapshot
            .shards
            .into_iter()
            .filter(|(shard, record)| is_mine(&record.value) && !served.contains_key(shard))
            .collect();
        let Some((shard, record)) = granted.choose(&mut self.rng).cloned() else { return Ok(()) };
        let mut commits = BTreeSet::new();
        if let Some(History { log, epoch }) = &record.value.history {
            let Some(LogRecord { place, state, .. }) = self.log_record(log) else {
                return Err(Violation::LogGone(log.clone()));
            };
            let is_private = matches!(place, LogPlace::Private(_));
            let Some(source) = self.logs.get_mut(log) else { return Err(Violation::LogGone(log.clone())) };
            if log != own {
                match (is_private, state) {
                    (true, _) if log.node != tenure.node => return Err(Violation::OutOfReach(log.clone())),
                    // It fences the process that the node was before.
                    (true, _) => {
                        source.epoch = tenure.epoch;
                        self.counts.private += 1;
                    }
                    (false, LogState::Open) => return Ok(()),
                    // Whoever reads a log of another ends it, which repeats.
                    (false, LogState::Sealed) => source.is_sealed = true,
                }
            }
            commits = source.commits(&shard, *epoch, self.sabotage == Sabotage::ReadsFromTheBegin)?;
            if log == own {
                return self.serve(node, shard, commits);
            }
        }
        if self.sabotage == Sabotage::AdoptsNothing {
            commits.clear();
        }
        let epoch = record.value.epoch;
        let lines = commits.iter().map(|commit| Line::Commit(shard.clone(), *commit));
        let lines = std::iter::once(Line::Owned(shard.clone(), epoch)).chain(lines).collect();
        let adopted = record.value.with_history(Some(History { log: own.clone(), epoch }));
        let transition = Transition { shard, expected: record.version, record: adopted, by: Some(tenure.clone()) };
        self.nodes[node].adoption = Some(Adoption { lines, transition, commits });
        Ok(())
    }

    fn serve(&mut self, node: usize, shard: ShardId, commits: BTreeSet<u64>) -> Result<(), Violation> {
        let acknowledged = self.acknowledged.get(&shard).cloned().unwrap_or_default();
        if let Some(lost) = acknowledged.difference(&commits).next() {
            return Err(Violation::CommitLost(shard, *lost));
        }
        self.nodes[node].served.insert(shard, commits);
        Ok(())
    }

    fn log_record(&self, log: &LogId) -> Option<LogRecord> {
        logs::get(&self.view(), log).expect("logs write their records").map(|(_, record)| record)
    }

    // ---- controllers

    fn controller(&mut self, at: usize) -> Result<(), Violation> {
        let Some(intent) = self.controllers[at].intents.pop_front() else {
            let is_old = self.has_trouble && self.rng.random_bool(0.3);
            let kept = self.controllers[at].view.take().filter(|_| is_old);
            let view = kept.unwrap_or_else(|| self.view());
            let now = self.instant();
            let loads = self.controllers[at].reports.loads(&view, now);
            let decision = step_in_batches(&view, &loads, GRANTS_PER_BATCH);
            let has_grants = decision.intents.iter().any(|intent| matches!(intent, Intent::Grant { .. }));
            let are_known = view.nodes().all(|node| loads.nodes.contains_key(&node.tenure.node));
            self.counts.by_load += u64::from(has_grants && are_known && !loads.shards.is_empty());
            let controller = &mut self.controllers[at];
            (controller.view, controller.intents) = (Some(view), decision.intents.into());
            let has_decided = !self.controllers[at].intents.is_empty();
            if has_decided {
                self.maybe_crash(at, "step");
            }
            return Ok(());
        };
        if self.sabotage == Sabotage::DeletesWhatIsNeeded
            && let Intent::Grant { log: Some(log), .. } = &intent
        {
            self.logs.remove(log);
        }
        if self.carry_out(&intent)? {
            self.maybe_crash(at, kind(&intent));
        } else {
            self.counts.refused += 1;
            self.controllers[at].intents.retain(|other| other.log() != intent.log());
        }
        Ok(())
    }

    fn maybe_crash(&mut self, at: usize, after: &'static str) {
        if self.has_trouble && self.rng.random_bool(0.1) {
            *self.counts.crashes_after.entry(after).or_default() += 1;
            self.controllers[at] = Controller::default();
        }
    }

    /// Whether it was done.
    fn carry_out(&mut self, intent: &Intent) -> Result<bool, Violation> {
        match intent {
            Intent::SealRecord { log, change } => {
                if self.sabotage == Sabotage::SealsLogFirst {
                    self.logs.entry(log.clone()).and_modify(|log| log.is_sealed = true);
                }
                Ok(self.apply(change.clone()))
            }
            Intent::SealLog { is_needed: false, .. } if self.sabotage == Sabotage::DeletesWhatIsOpen => Ok(true),
            Intent::SealLog { log, is_needed, place, epoch } => {
                assert!(!matches!(place, LogPlace::Private(_)), "{log} is out of reach");
                // Another controller may have deleted it, when its shards had been taken over.
                let Some(found) = self.logs.get_mut(log) else { return Ok(!is_needed) };
                assert!(found.epoch < *epoch, "{log} is sealed under {epoch}, which does not fence {}", found.epoch);
                found.is_sealed = true;
                Ok(true)
            }
            Intent::Grant { .. } if self.sabotage == Sabotage::GrantsNothing => Ok(false),
            Intent::Grant { batch, .. } => Ok(self.apply(batch.clone())),
            Intent::DeleteLog { .. } if self.sabotage == Sabotage::DeletesNothing => Ok(false),
            Intent::DeleteLog { log, .. } => {
                let snapshot = self.core.snapshot();
                let mut histories = snapshot.shards.iter().filter_map(|(_, record)| record.value.history.as_ref());
                if histories.any(|history| history.log == *log) {
                    return Err(Violation::LogGone(log.clone()));
                }
                match self.logs.remove(log) {
                    Some(deleted) if !deleted.is_sealed => Err(Violation::OpenLogDeleted(log.clone())),
                    _ => Ok(true),
                }
            }
            Intent::ForgetLog { log, change } => {
                let is_private =
                    self.log_record(log).is_some_and(|record| matches!(record.place, LogPlace::Private(_)));
                let is_done = self.apply(change.clone());
                if is_done && is_private {
                    // The node itself removes what is on its disk.
                    self.logs.remove(log);
                }
                Ok(is_done)
            }
        }
    }

    // ---- what has to hold

    fn check_servers(&self) -> Result<(), Violation> {
        let mut servers = BTreeSet::new();
        for node in (0..NODES).filter(|node| self.is_serving(*node)) {
            for shard in self.nodes[node].served.keys() {
                if !servers.insert(shard) {
                    return Err(Violation::TwoServers(shard.clone()));
                }
            }
        }
        Ok(())
    }

    fn check_held_logs(&self) -> Result<(), Violation> {
        for (log, _) in self.logs.iter().filter(|(_, log)| log.is_sealed) {
            let Some(root) = self.core.root(&logs::key(log)) else { continue };
            let record: LogRecord = serde_json::from_slice(&root.value.0).expect("logs write their records");
            let lives = self.core.node(&record.holder.node).is_some_and(|node| node.tenure == record.holder);
            if record.state == LogState::Open && lives {
                return Err(Violation::HeldLogSealed(log.clone()));
            }
        }
        Ok(())
    }

    /// Whether a log is on the disk of the node that stays away.
    fn is_away(log: &LogId, record: &LogRecord) -> bool {
        log.node == Self::name(NODES - 1) && matches!(record.place, LogPlace::Private(_))
    }

    fn check_end(&self) -> Result<(), Violation> {
        let view = self.view();
        let all = logs::all(&view).expect("logs write their records");
        for (shard, record) in view.shards("").filter(|(_, record)| record.value.owner().is_some()) {
            let history = record.value.history.as_ref();
            if history.is_some_and(|history| all.get(&history.log).is_some_and(|log| Self::is_away(&history.log, log)))
            {
                continue;
            }
            let is_served = (0..NODES).any(|node| self.is_serving(node) && self.nodes[node].served.contains_key(shard));
            if !is_served {
                return Err(Violation::NotServed(shard.clone()));
            }
        }
        let left = |(log, record): &(&LogId, &LogRecord)| {
            let is_needed = Self::is_away(log, record) && logs::shards_in(&view, log).next().is_some();
            !is_needed && (record.state == LogState::Sealed || !view.lives(&record.holder))
        };
        if let Some((log, _)) = all.iter().find(left) {
            return Err(Violation::LogLeft(log.clone()));
        }
        match self.logs.keys().find(|log| !all.contains_key(*log)) {
            Some(log) => Err(Violation::LogLeft(log.clone())),
            None => Ok(()),
        }
    }
}

fn kind(intent: &Intent) -> &'static str {
    match intent {
        Intent::SealRecord { .. } => "SealRecord",
        Intent::SealLog { .. } => "SealLog",
        Intent::Grant { .. } => "Grant",
        Intent::DeleteLog { .. } => "DeleteLog",
        Intent::ForgetLog { .. } => "ForgetLog",
    }
}

/// Seeds that the sound variant must survive; `SAVANNA_SIM_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

fn run(seed: u64, sabotage: Sabotage) -> Result<Counts, Violation> {
    World::new(seed, sabotage).run()
}

#[test]
fn no_seed_loses_a_commit_or_leaves_a_shard_or_a_log_behind() {
    let mut total = Counts::default();
    for seed in 0..seeds() {
        let counts = run(seed, Sabotage::None).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        total.acknowledged += counts.acknowledged;
        total.adoptions += counts.adoptions;
        total.late_answers += counts.late_answers;
        total.moves += counts.moves;
        total.retired += counts.retired;
        total.private += counts.private;
        total.restarts += counts.restarts;
        total.abandoned_adoptions += counts.abandoned_adoptions;
        total.coordinator_restarts += counts.coordinator_restarts;
        total.refused += counts.refused;
        total.by_load += counts.by_load;
        for (kind, count) in counts.crashes_after {
            *total.crashes_after.entry(kind).or_default() += count;
        }
    }
    // What never happened was not tested.
    println!("{total:?}");
    assert_eq!(total.crashes_after.len(), 6, "{total:?}");
    let others = [
        total.acknowledged,
        total.adoptions,
        total.late_answers,
        total.moves,
        total.retired,
        total.private,
        total.restarts,
        total.abandoned_adoptions,
        total.coordinator_restarts,
        total.refused,
        total.by_load,
    ];
    assert!(others.iter().all(|count| *count > 0), "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(7, Sabotage::None), run(7, Sabotage::None));
}

fn assert_caught(sabotage: Sabotage, expected: fn(&Violation) -> bool) {
    let mut others = Vec::new();
    let mut found = (0..100).filter_map(|seed| run(seed, sabotage).err());
    let is_caught = found.any(|violation| {
        expected(&violation) || {
            others.push(violation);
            false
        }
    });
    assert!(is_caught, "{sabotage:?} was not caught; found instead: {others:?}");
}

#[test]
fn a_log_that_is_ended_before_its_record_says_so_is_noticed() {
    assert_caught(Sabotage::SealsLogFirst, |violation| matches!(violation, Violation::HeldLogSealed(_)));
}

#[test]
fn a_log_that_is_deleted_too_early_is_noticed() {
    assert_caught(Sabotage::DeletesWhatIsNeeded, |violation| matches!(violation, Violation::LogGone(_)));
}

#[test]
fn an_owner_that_serves_without_the_past_is_noticed() {
    assert_caught(Sabotage::AdoptsNothing, |violation| matches!(violation, Violation::CommitLost(..)));
}

#[test]
fn an_owner_that_adopts_again_while_its_proposal_is_on_the_way_is_noticed() {
    assert_caught(Sabotage::AdoptsAgain, |violation| matches!(violation, Violation::CommitLost(..)));
}

#[test]
fn commits_that_are_read_twice_are_noticed() {
    assert_caught(Sabotage::ReadsFromTheBegin, |violation| matches!(violation, Violation::CommitTwice(..)));
}

#[test]
fn a_node_that_serves_without_a_lease_is_noticed() {
    assert_caught(Sabotage::ServesOn, |violation| matches!(violation, Violation::TwoServers(_)));
}

#[test]
fn shards_that_nobody_gets_are_noticed() {
    assert_caught(Sabotage::GrantsNothing, |violation| matches!(violation, Violation::NotServed(_)));
}

#[test]
fn logs_that_are_never_deleted_are_noticed() {
    assert_caught(Sabotage::DeletesNothing, |violation| matches!(violation, Violation::LogLeft(_)));
}

#[test]
fn a_log_that_is_deleted_and_was_not_ended_is_noticed() {
    assert_caught(Sabotage::DeletesWhatIsOpen, |violation| matches!(violation, Violation::OpenLogDeleted(_)));
}
