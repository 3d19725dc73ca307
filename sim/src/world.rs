//! One run: builds the cluster, lets the faults happen, and has the history judged.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_journal::{
    Disk, Options,
    sim::{SimDisk, SteppedJournal},
};
use savanna_ownership::LeaseTerms;
use savanna_rpc::{
    RpcError, decode_value,
    sim::{ClockSkew, SimNet},
};

use crate::{
    actor::{Actor, Client, Coordinator, Owner, OwnerConfig, log_epoch},
    checker::{self, Violation},
    fence_blind::FenceBlindDisk,
    history::{Event, History, Outcome, Told},
    protocol::{RegisterRequest, WRITE, coordinator},
    scenario::{Fault, Happening, Scenario, Variant},
};

/// A process that ended itself is started again after this.
const RESTART_AFTER: Duration = Duration::from_millis(150);
/// Time for operations under way at the end.
const GRACE: Duration = Duration::from_millis(1_000);

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// The hash of everything that happened.
    pub trace_hash: u64,
    /// How many events happened.
    pub events: u64,
    /// Operations that were answered, certainly not done, and of unknown fate.
    pub operations: (u64, u64, u64),
    /// How often a shard's log was taken over and read back, and how often a process ended itself.
    pub recoveries_and_exits: (u64, u64),
    /// Guarantees that did not hold; empty if all is well.
    pub violations: Vec<Violation>,
    /// The last events in words, if asked for.
    pub trace: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, not_done, unknown) = self.operations;
        let (recoveries, exits) = self.recoveries_and_exits;
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "scenario {} seed {}: {} events, trace {:016x}, operations: {answered} answered, {not_done} not done, {unknown} unknown, {recoveries} recoveries, {exits} exits",
            self.scenario, self.seed, self.events, self.trace_hash
        )?;
        for violation in &self.violations {
            write!(f, "\n  violated {violation}")?;
        }
        if self.violations.is_empty() {
            return Ok(());
        }
        write!(
            f,
            "\n  reproduce: cargo run -p savanna-sim -- --scenario {} --seed {} --trace",
            self.scenario, self.seed
        )
    }
}

/// Runs a scenario with a seed. `trace_lines_max` events are kept in words.
#[must_use]
pub fn run(scenario: &'static Scenario, seed: u64, variant: Variant, trace_lines_max: usize) -> Report {
    let mut world = World::new(scenario, seed, variant, trace_lines_max);
    world.run_to_the_end();
    world.report()
}

/// Runs a scenario with `seeds` seeds from `first` on, on all processors; the failed runs come back in the order of
/// their seeds, with the events of all runs together.
#[must_use]
pub fn sweep(scenario: &'static Scenario, first: u64, seeds: u64, variant: Variant) -> (Vec<Report>, u64) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, events) = (AtomicU64::new(first), AtomicU64::new(0));
    let mut failed: Vec<Report> = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + seeds {
                    return failed;
                }
                let report = run(scenario, seed, variant, 0);
                events.fetch_add(report.events, Ordering::Relaxed);
                if !report.violations.is_empty() {
                    failed.push(report);
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    });
    failed.sort_by_key(|report| report.seed);
    (failed, events.into_inner())
}

/// Something the world does to the cluster.
enum Deed {
    Begin(Fault),
    StartOwner(usize),
    Resume(usize),
    Reconnect(usize),
    StartCoordinator,
    CalmNetwork,
    RoomOnDisk(usize),
    HealAll,
    StopClients,
}

struct World {
    scenario: &'static Scenario,
    seed: u64,
    variant: Variant,
    net: SimNet<Actor>,
    rng: ChaCha8Rng,
    coordinator_disk: Arc<SimDisk>,
    disks: Vec<Arc<SimDisk>>,
    agenda: BTreeMap<(Duration, u64), Deed>,
    deeds: u64,
    /// Machines that are to stop before they have flushed: whether only what was read counts, and how long they are down.
    stops_before_flush: Vec<(bool, u64)>,
    history: History,
}

fn owner(place: usize) -> NodeId {
    NodeId::new(format!("owner-{place}"))
}

fn client(number: usize) -> NodeId {
    NodeId::new(format!("client-{number}"))
}

impl World {
    fn new(scenario: &'static Scenario, seed: u64, variant: Variant, trace_lines_max: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut net = SimNet::new(rng.random(), scenario.network, trace_lines_max);
        let drift = i32::try_from(scenario.drift_ppm).unwrap_or(i32::MAX);
        for node in (0..scenario.owners).map(owner).chain([coordinator()]) {
            let ahead = Duration::from_millis(rng.random_range(0..10_000));
            net.set_skew(
                node,
                ClockSkew {
                    ahead,
                    // The extremes: what lies between them is easier.
                    drift_ppm: if rng.random() { drift } else { -drift },
                },
            );
        }
        let mut world = Self {
            scenario,
            seed,
            variant,
            net,
            coordinator_disk: SimDisk::new(rng.random()),
            disks: (0..scenario.shards).map(|_| SimDisk::new(rng.random())).collect(),
            rng,
            agenda: BTreeMap::new(),
            deeds: 0,
            stops_before_flush: Vec::new(),
            history: History::new(),
        };
        world.start_coordinator();
        for place in 0..scenario.owners {
            world.start_owner(place);
        }
        for number in 0..scenario.clients {
            let actor = Client::new(number, scenario, seed);
            world.net.start(client(number), Actor::Client(Box::new(actor)));
        }
        world.plan();
        world
    }

    fn plan(&mut self) {
        for Happening { fault, times, window_ms: (from, until) } in self.scenario.happenings {
            for _ in 0..*times {
                let at = Duration::from_micros(self.rng.random_range(from * 1000..until * 1000));
                self.at(at, Deed::Begin(*fault));
            }
        }
        self.at(Scenario::HEALED, Deed::HealAll);
        self.at(Scenario::END, Deed::StopClients);
    }

    fn at(&mut self, at: Duration, deed: Deed) {
        self.deeds += 1;
        self.agenda.insert((at, self.deeds), deed);
    }

    fn after_ms(&mut self, ms: u64, deed: Deed) {
        self.at(self.net.now() + Duration::from_millis(ms), deed);
    }

    fn run_to_the_end(&mut self) {
        let end = Scenario::END + GRACE;
        loop {
            let deed_at = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let event_at = self.net.next_event_at();
            match (deed_at, event_at) {
                (Some(deed), event) if event.is_none_or(|event| deed <= event) => {
                    self.net.advance_to(deed);
                    if let Some((_, deed)) = self.agenda.pop_first() {
                        self.perform(&deed);
                    }
                }
                (_, Some(event)) if event <= end => {
                    for (node, told) in self.net.step().unwrap_or_default() {
                        self.take(&node, told);
                    }
                    self.stop_before_flush();
                }
                _ => break,
            }
        }
        self.recover_all();
    }

    fn take(&mut self, node: &NodeId, told: Told) {
        self.net.note(format_args!("{node} tells {told:?}"));
        let exits = matches!(told, Told::Exits(_));
        self.record(node.clone(), told);
        if exits && self.net.crash(node).is_some() {
            let start = match (0..self.scenario.owners).find(|place| owner(*place) == *node) {
                Some(place) => Deed::StartOwner(place),
                None => Deed::StartCoordinator,
            };
            self.at(self.net.now() + RESTART_AFTER, start);
        }
    }

    fn record(&mut self, node: NodeId, what: Told) {
        let incarnation = self.net.incarnation(&node);
        self.history.push(Event { at: self.net.now(), node, incarnation, what });
    }

    fn perform(&mut self, deed: &Deed) {
        match deed {
            Deed::Begin(fault) => self.begin(*fault),
            Deed::StartOwner(place) => self.start_owner(*place),
            Deed::Resume(place) => self.net.resume(&owner(*place)),
            Deed::Reconnect(place) => self.net.reconnect(&owner(*place), &coordinator()),
            Deed::StartCoordinator => self.start_coordinator(),
            Deed::CalmNetwork => self.net.set_faults(self.scenario.network),
            Deed::RoomOnDisk(shard) => self.disks[*shard].set_capacity(u64::MAX),
            Deed::HealAll => self.heal_all(),
            Deed::StopClients => {
                for number in 0..self.scenario.clients {
                    self.net.with_node(&client(number), |actor, _| {
                        if let Actor::Client(client) = actor {
                            client.stop();
                        }
                        ((), Vec::new())
                    });
                }
            }
        }
    }

    fn begin(&mut self, fault: Fault) {
        let place = self.rng.random_range(0..self.scenario.owners);
        let shard = self.rng.random_range(0..self.scenario.shards);
        self.net.note(format_args!("fault: {fault:?}, owner {place}, shard {shard}"));
        match fault {
            Fault::KillOwner { down_ms } => {
                if self.net.is_up(&owner(place)) {
                    self.kill_owner(place);
                    self.after_ms(down_ms, Deed::StartOwner(place));
                }
            }
            Fault::KillOwnerBeforeFlush { is_read, down_ms } => self.stops_before_flush.push((is_read, down_ms)),
            Fault::PauseOwner { pause_ms } => {
                self.net.pause(&owner(place));
                self.after_ms(pause_ms, Deed::Resume(place));
            }
            Fault::CutFromCoordinator { cut_ms } => {
                self.net.partition(&owner(place), &coordinator());
                self.after_ms(cut_ms, Deed::Reconnect(place));
            }
            Fault::KillCoordinator { down_ms } => {
                if self.net.crash(&coordinator()).is_some() {
                    self.coordinator_disk.crash();
                    self.after_ms(down_ms, Deed::StartCoordinator);
                }
            }
            Fault::Network { faults, for_ms } => {
                self.net.set_faults(faults);
                self.after_ms(for_ms, Deed::CalmNetwork);
            }
            Fault::DiskFull { for_ms } => {
                let used: usize = self.disks[shard].files().iter().map(|(_, bytes)| bytes).sum();
                let left = self.rng.random_range(0..500);
                self.disks[shard].set_capacity(used as u64 + left);
                self.after_ms(for_ms, Deed::RoomOnDisk(shard));
            }
            Fault::MoveShard => self.move_shard(shard),
        }
    }

    /// Stops a machine that has something to flush, if one is to stop there. By chance a little later, so that it comes at
    /// each point between append and flush.
    fn stop_before_flush(&mut self) {
        let Some((is_read, down_ms)) = self.stops_before_flush.last().copied() else {
            return;
        };
        let waits = |place: &usize| match self.net.node(&owner(*place)) {
            Some(Actor::Owner(owner)) if is_read => owner.has_unflushed_read(),
            Some(Actor::Owner(owner)) => owner.has_unflushed(),
            _ => false,
        };
        let Some(place) = (0..self.scenario.owners).find(waits) else {
            return;
        };
        if self.rng.random_bool(0.3) {
            self.stops_before_flush.pop();
            self.net.note(format_args!("owner {place} stops before it has flushed"));
            self.kill_owner(place);
            self.after_ms(down_ms, Deed::StartOwner(place));
        }
    }

    fn heal_all(&mut self) {
        self.stops_before_flush.clear();
        self.net.heal();
        self.net.set_faults(self.scenario.network);
        for place in 0..self.scenario.owners {
            self.net.resume(&owner(place));
        }
        for disk in &self.disks {
            disk.set_capacity(u64::MAX);
        }
    }

    fn start_coordinator(&mut self) {
        if self.net.is_up(&coordinator()) {
            return;
        }
        let incarnation = self.net.incarnation(&coordinator()) + 1;
        match Coordinator::recover(Arc::clone(&self.coordinator_disk), Scenario::TTL, incarnation, self.seed) {
            Ok(actor) => self.net.start(coordinator(), Actor::Coordinator(Box::new(actor))),
            // The coordinator's log is numbered after those of the shards.
            Err(error) => {
                let told = Told::Unreadable { shard: self.scenario.shards, reason: error.to_string() };
                self.record(coordinator(), told);
            }
        }
    }

    fn start_owner(&mut self, place: usize) {
        let node = owner(place);
        if self.net.is_up(&node) {
            return;
        }
        let margin = if self.variant.no_margin { Duration::ZERO } else { Scenario::MARGIN };
        let disks = self.disks.iter().map(|disk| -> Arc<dyn Disk> {
            if self.variant.fence_ignored {
                Arc::new(FenceBlindDisk::new(Arc::clone(disk)))
            } else {
                Arc::clone(disk) as _
            }
        });
        let config = OwnerConfig {
            node: node.clone(),
            place,
            owners: self.scenario.owners,
            terms: LeaseTerms::new(Scenario::TTL, margin).expect("the margin is below the ttl"),
            gate_writes: !self.variant.no_gate,
            gate_reads: !self.variant.no_gate && !self.variant.reads_ungated,
            disks: disks.collect(),
            seed: self.seed,
        };
        let incarnation = self.net.incarnation(&node) + 1;
        self.net.start(node, Actor::Owner(Box::new(Owner::new(config, incarnation))));
    }

    /// The machine goes down: disks that only it uses lose what was not synced.
    fn kill_owner(&mut self, place: usize) {
        let Some(Actor::Owner(killed)) = self.net.crash(&owner(place)) else {
            return;
        };
        for shard in killed.open_shards() {
            let others = (0..self.scenario.owners).filter_map(|other| self.net.node(&owner(other)));
            let shared = others
                .into_iter()
                .any(|actor| matches!(actor, Actor::Owner(other) if other.open_shards().any(|open| open == shard)));
            if !shared {
                self.disks[shard].crash();
            }
        }
    }

    fn move_shard(&mut self, shard: usize) {
        let owners: Vec<usize> = (0..self.scenario.owners).collect();
        for from in 0..self.scenario.owners {
            let others: Vec<usize> = owners.iter().copied().filter(|place| *place != from).collect();
            let Some(to) = others.choose(&mut self.rng).map(|place| owner(*place)) else {
                return;
            };
            let moved = self.net.with_node(&owner(from), |actor, now| match actor {
                Actor::Owner(owner) => owner.hand_over(shard, &to, now),
                _ => (false, Vec::new()),
            });
            if matches!(moved, Some((true, _))) {
                return;
            }
        }
    }

    /// After the end every machine goes down, and each log is read back by an owner of the highest epoch.
    fn recover_all(&mut self) {
        for place in 0..self.scenario.owners {
            self.net.resume(&owner(place));
            self.kill_owner(place);
        }
        for shard in 0..self.scenario.shards {
            let epoch = OwnerEpoch(u64::MAX / 2);
            let mut values = Vec::new();
            let options = Options::disk(Arc::clone(&self.disks[shard]) as _);
            let opened = SteppedJournal::<()>::open(&options, log_epoch(epoch), &mut |record| {
                let request: RegisterRequest = decode_value(WRITE, &record.payload)?;
                values.push(request.value);
                Ok::<(), RpcError>(())
            });
            let told = match opened {
                Ok(_) => Told::Recovered { shard, epoch, values },
                Err(error) => Told::Unreadable { shard, reason: error.to_string() },
            };
            self.record(NodeId::new("world"), told);
        }
    }

    fn report(self) -> Report {
        let mut operations = (0, 0, 0);
        let mut recoveries_and_exits = (0, 0);
        for event in &self.history {
            match &event.what {
                Told::Returned { outcome: Outcome::Ok(_), .. } => operations.0 += 1,
                Told::Returned { outcome: Outcome::NotDone(_), .. } => operations.1 += 1,
                Told::Returned { outcome: Outcome::Unknown(_), .. } => operations.2 += 1,
                Told::Recovered { .. } => recoveries_and_exits.0 += 1,
                Told::Exits(_) => recoveries_and_exits.1 += 1,
                _ => {}
            }
        }
        let trace = self.net.trace();
        Report {
            scenario: self.scenario.name,
            seed: self.seed,
            trace_hash: trace.hash(),
            events: trace.events(),
            operations,
            recoveries_and_exits,
            violations: checker::check(&self.history, self.scenario.shards),
            trace: trace.lines().map(str::to_owned).collect(),
        }
    }
}
