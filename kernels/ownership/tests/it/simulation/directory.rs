//! A simulated data directory: the product's [`Candidate`] and [`LeaseHolder`] over one lease file, with processes that are
//! paused, killed and started again at any moment, a disk that takes its time, and a file that is damaged.
//!
//! Checked after every event: no two processes may serve at one true instant, no epoch is given twice, and nobody loses
//! the directory whom nobody contested it; at the end, with all pauses over, one process serves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeEpoch;
use savanna_ownership::data_dir::{Candidate, CandidateAction, LeaseFile, LossCause, Process, renewal};
use savanna_ownership::lease::{HolderAction, HolderInput, RenewalId};
use savanna_ownership::{Incarnation, LeaseHolder, LeaseTerms, MonoTime};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// Trouble ends here, and the run a while later.
const HEALED: u64 = 60 * SECOND;
const END: u64 = 90 * SECOND;
const PLACES: usize = 3;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    /// The claimant counts its wait from before its claim was written.
    WaitFromLook,
    /// A renewal is granted without a look at the file.
    RenewUnread,
    /// A process that does not move is taken for dead.
    PausedIsDead,
    /// A holder that was late gives up, though nobody claimed.
    LateIsLost,
    /// A damaged file is taken for one that nobody holds.
    DamagedIsFree,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Violation {
    TwoServe { at: u64, first: NodeEpoch, second: NodeEpoch },
    EpochTwice { at: u64, epoch: NodeEpoch },
    LostUncontested { at: u64, epoch: NodeEpoch },
    NobodyServes,
}

/// What happened; what never happened was not tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    taken: u64,
    taken_from_dead: u64,
    claimed: u64,
    given_up: u64,
    late_and_renewed: u64,
    drained: u64,
    lost: u64,
    damaged: u64,
}

#[derive(Clone, Debug)]
enum Event {
    Step,
    /// The lease file is replaced, as the candidate decided when it looked.
    Replace {
        action: CandidateAction,
        looked_at: u64,
    },
    Look(RenewalId),
    Told(RenewalId, Option<LeaseFile>),
    Trouble,
    Start,
}

enum State {
    Candidate(Candidate),
    Holder { lease: LeaseHolder, epoch: NodeEpoch, contested: bool, late: bool },
    Gone,
}

struct Place {
    me: Process,
    /// Events of an earlier process at this place are void.
    life: u64,
    state: State,
    paused_until: u64,
}

/// When, in which order, at which place, of which life, what.
struct Scheduled(u64, u64, usize, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

struct World {
    rng: ChaCha8Rng,
    sabotage: Sabotage,
    at: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    places: Vec<Place>,
    file: Option<LeaseFile>,
    is_damaged: bool,
    /// Who has the lock on the file.
    locked_by: Option<usize>,
    newest: NodeEpoch,
    pids: u32,
    counts: Counts,
}

fn terms() -> LeaseTerms {
    LeaseTerms::new(Duration::from_secs(3), Duration::from_millis(500)).unwrap()
}

impl World {
    fn new(seed: u64, sabotage: Sabotage) -> Self {
        let nobody = Process { incarnation: Incarnation(0), pid: 0, birth: None };
        let place = |_| Place { me: nobody, life: 0, state: State::Gone, paused_until: 0 };
        let mut world = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            sabotage,
            at: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            places: (0..PLACES).map(place).collect(),
            file: None,
            is_damaged: false,
            locked_by: None,
            newest: NodeEpoch::NONE,
            pids: 0,
            counts: Counts::default(),
        };
        for place in 0..PLACES {
            let within = if place == 0 { SECOND } else { 30 * SECOND };
            world.schedule_within(within, place, Event::Start);
            world.schedule_within(10 * SECOND, place, Event::Trouble);
        }
        world
    }

    fn schedule(&mut self, at: u64, place: usize, event: Event) {
        self.sequence += 1;
        let life = self.places[place].life;
        self.queue.push(Reverse(Scheduled(at, self.sequence, place, life, event)));
    }

    fn schedule_within(&mut self, span: u64, place: usize, event: Event) {
        let delay = self.rng.random_range(1..=span);
        self.schedule(self.at + delay, place, event);
    }

    fn run(mut self) -> Result<Counts, Violation> {
        while let Some(Reverse(Scheduled(at, _, place, life, event))) = self.queue.pop() {
            if at > END {
                break;
            }
            self.at = at;
            self.take(place, life, event)?;
            self.check()?;
        }
        self.at = END;
        let serving = self.places.iter().filter(|place| place.serving(END)).count();
        if serving == 1 { Ok(self.counts) } else { Err(Violation::NobodyServes) }
    }

    fn check(&self) -> Result<(), Violation> {
        let mut serving = self.places.iter().filter(|place| place.serving(self.at)).filter_map(Place::epoch);
        match (serving.next(), serving.next()) {
            (Some(first), Some(second)) => Err(Violation::TwoServe { at: self.at, first, second }),
            _ => Ok(()),
        }
    }

    fn take(&mut self, place: usize, life: u64, event: Event) -> Result<(), Violation> {
        match event {
            Event::Trouble => {
                self.trouble(place);
                return Ok(());
            }
            Event::Start => {
                // When all is well again, one is enough.
                let is_wanted = self.at < HEALED || self.places.iter().all(Place::is_gone);
                if is_wanted && self.places[place].is_gone() {
                    self.start(place);
                }
                return Ok(());
            }
            _ if life != self.places[place].life => return Ok(()),
            _ => {}
        }
        // Whoever is paused does everything when it awakes.
        let awake = self.places[place].paused_until;
        if awake > self.at {
            self.schedule(awake, place, event);
            return Ok(());
        }
        match event {
            Event::Step => self.step(place),
            Event::Replace { action, looked_at } => self.replace(place, action, looked_at),
            Event::Look(id) => {
                // A file that cannot be read renews nothing this time.
                if !self.is_damaged {
                    self.schedule_within(50 * MILLISECOND, place, Event::Told(id, self.file));
                } else if !self.places[place].serving(self.at) {
                    self.counts.lost += 1;
                    self.end(place);
                }
                Ok(())
            }
            Event::Told(id, file) => self.told(place, id, file),
            Event::Trouble | Event::Start => Ok(()),
        }
    }

    fn start(&mut self, place: usize) {
        self.pids += 1;
        let me = Process { incarnation: Incarnation(u64::from(self.pids)), pid: self.pids, birth: None };
        let candidate = Candidate::new(me, terms().ttl(), NodeEpoch::NONE);
        let life = self.places[place].life + 1;
        self.places[place] = Place { me, life, state: State::Candidate(candidate), paused_until: 0 };
        self.schedule_within(10 * MILLISECOND, place, Event::Step);
    }

    /// The process ends; another may come.
    fn end(&mut self, place: usize) {
        self.places[place].state = State::Gone;
        self.places[place].life += 1;
        if self.locked_by == Some(place) {
            self.locked_by = None;
        }
        self.schedule_within(10 * SECOND, place, Event::Start);
    }

    fn trouble(&mut self, place: usize) {
        if self.at > HEALED {
            return;
        }
        match self.rng.random_range(0..10) {
            0..6 => self.places[place].paused_until = self.at + self.rng.random_range(1..=8 * SECOND),
            6..9 => {
                if !self.places[place].is_gone() {
                    self.end(place);
                }
            }
            _ => {
                if self.locked_by.is_none() && self.file.is_some() {
                    self.counts.damaged += 1;
                    self.is_damaged = true;
                    self.contest();
                }
            }
        }
        self.schedule_within(10 * SECOND, place, Event::Trouble);
    }

    /// Somebody or something stands against whoever holds the directory.
    fn contest(&mut self) {
        for place in &mut self.places {
            if let State::Holder { contested, .. } = &mut place.state {
                *contested = true;
            }
        }
    }

    fn is_known_dead(&self, process: Process) -> bool {
        let place = self.places.iter().find(|place| place.me == process && !place.is_gone());
        let is_still = |place: &Place| place.paused_until > self.at && self.sabotage == Sabotage::PausedIsDead;
        process.pid != 0 && place.is_none_or(is_still)
    }

    fn step(&mut self, place: usize) -> Result<(), Violation> {
        let now = MonoTime(self.at);
        match &mut self.places[place].state {
            State::Gone => Ok(()),
            State::Holder { lease, .. } => {
                let actions = lease.step(HolderInput::Tick, now);
                if let Some(wake_at) = lease.wake_at() {
                    self.schedule(wake_at.0.max(self.at + 1), place, Event::Step);
                }
                self.act(place, actions)
            }
            State::Candidate(candidate) => {
                if self.locked_by.is_some() {
                    self.schedule_within(10 * MILLISECOND, place, Event::Step);
                    return Ok(());
                }
                candidate.raise_floor(self.newest);
                let stand_in = match self.sabotage {
                    Sabotage::DamagedIsFree => None,
                    _ => Some(candidate.stand_in()),
                };
                let file = if self.is_damaged { stand_in } else { self.file };
                let candidate = candidate.clone();
                let is_dead = file.and_then(|file| file.holder).is_some_and(|holder| self.is_known_dead(holder));
                match candidate.step(file.as_ref(), is_dead, now) {
                    CandidateAction::Wait(time) => {
                        let soon = time.min(terms().ttl() / 20).as_nanos() as u64;
                        self.schedule_within(soon.max(MILLISECOND), place, Event::Step);
                    }
                    CandidateAction::GiveUp { .. } => {
                        self.counts.given_up += 1;
                        self.end(place);
                    }
                    action => {
                        self.counts.taken_from_dead += u64::from(is_dead);
                        self.locked_by = Some(place);
                        let replace = Event::Replace { action, looked_at: self.at };
                        let span = if self.rng.random_bool(0.2) { 4 * SECOND } else { 20 * MILLISECOND };
                        self.schedule_within(span, place, replace);
                    }
                }
                Ok(())
            }
        }
    }

    fn replace(&mut self, place: usize, action: CandidateAction, looked_at: u64) -> Result<(), Violation> {
        self.locked_by = None;
        self.is_damaged = false;
        self.contest();
        match action {
            CandidateAction::Claim(claim) => {
                self.counts.claimed += 1;
                self.file = Some(claim);
                let since = if self.sabotage == Sabotage::WaitFromLook { looked_at } else { self.at };
                if let State::Candidate(candidate) = &mut self.places[place].state {
                    candidate.claimed(claim.epoch, MonoTime(since));
                }
            }
            CandidateAction::Take(taken) => {
                self.counts.taken += 1;
                self.file = Some(taken);
                let epoch = taken.epoch;
                if epoch <= self.newest {
                    return Err(Violation::EpochTwice { at: self.at, epoch });
                }
                self.newest = epoch;
                let lease = LeaseHolder::new(terms(), MonoTime(looked_at));
                self.places[place].state = State::Holder { lease, epoch, contested: false, late: false };
            }
            CandidateAction::Wait(_) | CandidateAction::GiveUp { .. } => unreachable!("nothing is written then"),
        }
        self.schedule_within(MILLISECOND, place, Event::Step);
        Ok(())
    }

    fn told(&mut self, place: usize, id: RenewalId, file: Option<LeaseFile>) -> Result<(), Violation> {
        let me = self.places[place].me;
        let State::Holder { lease, epoch, .. } = &mut self.places[place].state else { return Ok(()) };
        let input = match renewal(file.as_ref(), me, *epoch) {
            _ if self.sabotage == Sabotage::RenewUnread => HolderInput::Renewed(id, terms().ttl()),
            Ok(()) => HolderInput::Renewed(id, terms().ttl()),
            Err(LossCause::Claimed { .. }) => HolderInput::Claimed,
            Err(_) => HolderInput::Ended,
        };
        let actions = lease.step(input, MonoTime(self.at));
        self.act(place, actions)
    }

    fn act(&mut self, place: usize, actions: Vec<HolderAction>) -> Result<(), Violation> {
        let gives_up_when_late = self.sabotage == Sabotage::LateIsLost;
        for action in actions {
            let State::Holder { epoch, contested, late, .. } = &mut self.places[place].state else { break };
            match action {
                HolderAction::Renew(id) => self.schedule_within(5 * MILLISECOND, place, Event::Look(id)),
                HolderAction::Suspend if !gives_up_when_late => *late = true,
                HolderAction::Resume => {
                    self.counts.late_and_renewed += u64::from(*late);
                    *late = false;
                }
                HolderAction::Drain { .. } => self.counts.drained += 1,
                HolderAction::Suspend | HolderAction::Stop(_) => {
                    self.counts.lost += 1;
                    if !*contested {
                        return Err(Violation::LostUncontested { at: self.at, epoch: *epoch });
                    }
                    self.end(place);
                }
            }
        }
        Ok(())
    }
}

impl Place {
    fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    fn serving(&self, at: u64) -> bool {
        matches!(&self.state, State::Holder { lease, .. } if lease.serving(MonoTime(at)))
    }

    fn epoch(&self) -> Option<NodeEpoch> {
        match &self.state {
            State::Holder { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }
}

#[test]
fn one_process_at_a_time_serves_a_directory_and_a_stall_costs_nobody_the_lease() {
    let mut total = Counts::default();
    for seed in 0..super::seeds() {
        let counts = World::new(seed, Sabotage::None).run();
        let counts = counts.unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        total.taken += counts.taken;
        total.taken_from_dead += counts.taken_from_dead;
        total.claimed += counts.claimed;
        total.given_up += counts.given_up;
        total.late_and_renewed += counts.late_and_renewed;
        total.drained += counts.drained;
        total.lost += counts.lost;
        total.damaged += counts.damaged;
    }
    let Counts { taken, taken_from_dead, claimed, given_up, late_and_renewed, drained, lost, damaged } = total;
    let seen = [taken, taken_from_dead, claimed, given_up, late_and_renewed, drained, lost, damaged];
    assert!(!seen.contains(&0), "some kind of event never happened: {total:?}");
}

fn assert_caught(sabotage: Sabotage, expected: fn(&Violation) -> bool) {
    let caught = (0..super::SEEDS_TO_CATCH).filter_map(|seed| World::new(seed, sabotage).run().err());
    let found: Vec<Violation> = caught.collect();
    assert!(found.iter().any(expected), "{sabotage:?} was not caught; found instead: {found:?}");
}

#[test]
fn a_wait_counted_from_before_the_claim_lets_two_processes_serve() {
    assert_caught(Sabotage::WaitFromLook, |found| matches!(found, Violation::TwoServe { .. }));
}

#[test]
fn a_renewal_without_a_look_lets_two_processes_serve() {
    assert_caught(Sabotage::RenewUnread, |found| matches!(found, Violation::TwoServe { .. }));
}

#[test]
fn a_paused_process_that_is_taken_for_dead_serves_beside_its_heir() {
    assert_caught(Sabotage::PausedIsDead, |found| matches!(found, Violation::TwoServe { .. }));
}

#[test]
fn a_holder_that_gives_up_because_it_was_late_is_noticed() {
    assert_caught(Sabotage::LateIsLost, |found| matches!(found, Violation::LostUncontested { .. }));
}

#[test]
fn a_damaged_file_that_is_taken_for_a_free_one_lets_two_processes_serve() {
    assert_caught(Sabotage::DamagedIsFree, |found| matches!(found, Violation::TwoServe { .. }));
}
