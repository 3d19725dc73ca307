//! Nodes that may run the coordinator of a cluster over one directory: processes die and stand still, the network is cut, the disk stands still, and
//! the coordinator's log breaks. From one seed.
//!
//! | what decides | of the product | simulated around it |
//! |---|---|---|
//! | when a node claims the directory, and when it leaves the coordinator | `savanna_control::candidacy` | pings, which are answered, refused or lost |
//! | on which side of a cut it is | `savanna_control::reach` | pulses on the disk |
//! | who has the directory | `savanna_ownership::data_dir::Candidate`, `renewal`, `LeaseHolder` | the lease's file |
//!
//! What asks these in turn is the simulation's own, and does it in the order of `node/src/cluster/candidate.rs`, with the same times.
//!
//! Checked are, at each instant: at most one node acts as coordinator. At the end of what happens: one does, within [`SETTLED`], and all reach it. While
//! nothing else happens for longer than [`SETTLED`]: a coordinator that only misses one other node stays, and so does one with at least half of the
//! nodes on its side of a cut; else the part with at least half has it, and if there is none, nobody has.

use std::{
    fmt::Write as _,
    time::{Duration, Instant, SystemTime},
};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use savanna_control::{
    candidacy::{Doubt, Found, Health, Next, PAUSE, PERIOD, PERIOD_IN_DOUBT, PING_TIME, Silence},
    reach::{PULSE_PERIOD, Pulse, REACH_PERIOD, REACH_TIME, Reach, Sides},
};
use savanna_epoch::{NodeEpoch, NodeId};
use savanna_ownership::{
    CoordinatorError, Incarnation, MonoTime,
    data_dir::{Candidate, CandidateAction, LeaseFile, LossCause, Process, renewal},
    lease::{HolderAction, HolderInput, LeaseHolder, LeaseTerms},
};

/// Milliseconds of a run.
type Ms = u64;

/// Nothing happens in between.
const TICK: Ms = 10;
/// By then it is settled who runs the coordinator, from the last that happened on.
pub const SETTLED: Ms = 8_000;
/// And stays so: whoever has doubts has found out that there is nothing.
const STEADY: Ms = 5_000;
/// How long faults begin, and how long there are none at the end.
const FAULTS: Ms = 60_000;
const QUIET: Ms = 10_000;
/// How long a coordinator reads its log.
const OPENING: Ms = 80;

/// What may be done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// A holder that misses to answer once is claimed of, whatever it shows.
    ClaimsAtOnce,
    /// Nobody leaves the coordinator because it is cut off.
    StaysCutOff,
    /// Nobody asks on which side of a cut it is before it takes the directory.
    TakesBeyondCuts,
    /// The same, and who has claimed the directory takes it at once.
    WaitsForNobody,
    /// A holder does not look whether somebody has claimed the directory.
    SeesNoClaims,
}

/// What runs have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Nodes that began to run the coordinator.
    pub began: u32,
    /// Of these, how many had claimed it of one that might live.
    pub claimed: u32,
    /// Nodes that left it, as they were on the smaller side of a cut.
    pub left_cut_off: u32,
    /// Nodes that left it, as it answered nobody.
    pub left_ill: u32,
    /// Nodes that stood still for longer than a lease while they ran it.
    pub stood_still: u32,
    /// Cuts through a network after which another part had it, or nobody.
    pub cuts_moved: u32,
    /// Those through which it stayed where it was, on the larger side.
    pub cuts_stayed: u32,
    /// Of these, how many left as many nodes on the other side.
    pub halves: u32,
    /// Cuts into parts of which none had half of the nodes.
    pub without_majority: u32,
    /// Links between a coordinator and another node that were cut for long.
    pub links_cut: u32,
    /// The longest time, of all runs, from the last fault until it was settled.
    pub longest: Ms,
}

/// Where the coordinator is, on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    node: usize,
    epoch: NodeEpoch,
    beat: Ms,
}

#[derive(Clone, Debug, Default)]
struct SharedDisk {
    lease: Option<LeaseFile>,
    seat: Option<Seat>,
    pulses: Vec<Option<Ms>>,
}

/// What a candidate does.
#[derive(Debug)]
enum Doing {
    /// Looks when it is time.
    Looks,
    /// Waits for the coordinator's answer.
    Pings { answered: bool },
    /// Waits for those of nodes that it may not reach.
    Reaches { found: Vec<(Pulse, bool)> },
    /// Has claimed the directory.
    Claims(Candidate),
    /// Has the directory.
    Holds(Box<Hold>),
}

/// A node that has the directory.
#[derive(Debug)]
struct Hold {
    epoch: NodeEpoch,
    lease: LeaseHolder,
    /// When its coordinator has read its log.
    open_at: Ms,
    /// Whether it was said where the coordinator is.
    is_said: bool,
    health: Health,
    looks_at: Ms,
    reaches_at: Ms,
    reaching: Option<Vec<(Pulse, bool)>>,
}

/// A node's process.
#[derive(Debug)]
struct Node {
    process: Process,
    is_running: bool,
    still_until: Ms,
    disk_still_until: Ms,
    /// Whether the log of its coordinator fails.
    is_ill: bool,
    wakes_at: Ms,
    beats_at: Ms,
    doing: Doing,
    doubt: Doubt,
    reach: Reach,
}

/// Something that happens, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// The network falls into parts: the part of each node.
    Parts(Vec<usize>),
    /// A node hears the others and is not heard, or the other way round.
    OneWay {
        node: usize,
        is_heard: bool,
    },
    /// Two nodes do not reach each other: the coordinator's, and another.
    Link(usize, usize),
    Kill(usize),
    Still(usize),
    DiskStill(Option<usize>),
    Ill,
}

struct World {
    began: Instant,
    now: Ms,
    terms: LeaseTerms,
    nodes: Vec<Node>,
    disk: SharedDisk,
    /// Until when each node does not hear another.
    deaf_until: Vec<Vec<Ms>>,
    processes: u32,
    dice: ChaCha8Rng,
    variant: Variant,
    happened: Happened,
    trace: String,
}

/// What comes of a request, and after how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Answer,
    Refusal,
    Nothing,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let count = dice.random_range(3..=5);
        let mut world = Self {
            began: Instant::now(),
            now: 1,
            terms: LeaseTerms::default(),
            nodes: Vec::new(),
            disk: SharedDisk { pulses: vec![None; count], ..SharedDisk::default() },
            deaf_until: vec![vec![0; count]; count],
            processes: 0,
            dice,
            variant,
            happened,
            trace: String::new(),
        };
        world.nodes = (0..count).map(|_| world.process()).collect();
        world
    }

    /// A process that begins.
    fn process(&mut self) -> Node {
        self.processes += 1;
        let ttl = self.terms.ttl();
        Node {
            process: Process { incarnation: Incarnation(self.processes.into()), pid: self.processes, birth: None },
            is_running: true,
            still_until: 0,
            disk_still_until: 0,
            is_ill: false,
            wakes_at: self.now + self.dice.random_range(0..200),
            beats_at: self.now,
            doing: Doing::Looks,
            doubt: Doubt::new(ttl),
            reach: Reach::default(),
        }
    }

    fn mono(&self) -> MonoTime {
        MonoTime(self.now * 1_000_000)
    }

    fn instant(&self) -> Instant {
        self.began + Duration::from_millis(self.now)
    }

    fn ttl(&self) -> Ms {
        ms(self.terms.ttl())
    }

    fn say(&mut self, text: &str) {
        let now = self.now;
        let _ = writeln!(self.trace, "{now:6} {text}");
    }

    /// Whether a node does anything at all.
    fn goes_on(&self, node: usize) -> bool {
        self.nodes[node].is_running && self.nodes[node].still_until <= self.now
    }

    fn has_disk(&self, node: usize) -> bool {
        self.nodes[node].disk_still_until <= self.now
    }

    fn hears(&self, node: usize, other: usize) -> bool {
        node == other || self.deaf_until[node][other] <= self.now
    }

    /// Whether a node runs the coordinator, and would tell others something now.
    fn acts(&self, node: usize) -> bool {
        let Node { doing: Doing::Holds(hold), is_ill, .. } = &self.nodes[node] else { return false };
        self.goes_on(node) && hold.open_at <= self.now && !is_ill && hold.lease.serving(self.mono())
    }

    fn acting(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.acts(*node)).collect()
    }

    /// What comes of a request to another node, or to the coordinator there.
    fn ask(&self, from: usize, to: usize, coordinator: bool) -> Came {
        if !self.hears(to, from) || !self.hears(from, to) || self.nodes[to].still_until > self.now {
            return Came::Nothing;
        }
        match self.nodes[to].is_running && (!coordinator || self.acts(to) && self.has_disk(to)) {
            true => Came::Answer,
            false if coordinator && !self.has_disk(to) => Came::Nothing,
            false => Came::Refusal,
        }
    }

    fn time_of(&mut self, came: Came, patience: Ms) -> Ms {
        match came {
            Came::Nothing => patience,
            Came::Answer | Came::Refusal => self.dice.random_range(TICK..=3 * TICK),
        }
    }

    fn tick(&mut self) {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.shuffle(&mut self.dice);
        for node in order {
            if !self.goes_on(node) {
                continue;
            }
            // Each waits for the disk by itself.
            if self.nodes[node].beats_at <= self.now && self.has_disk(node) {
                self.disk.pulses[node] = Some(self.now);
                self.nodes[node].beats_at = self.now + ms(PULSE_PERIOD);
            }
            if matches!(self.nodes[node].doing, Doing::Holds(_)) {
                self.hold(node);
            } else if self.nodes[node].wakes_at <= self.now && self.has_disk(node) {
                self.turn(node);
            }
        }
        self.now += TICK;
    }

    /// A candidate that has no part in it yet goes on.
    fn turn(&mut self, node: usize) {
        match std::mem::replace(&mut self.nodes[node].doing, Doing::Looks) {
            Doing::Looks => match self.disk.seat {
                Some(seat) => {
                    let came = self.ask(node, seat.node, true);
                    let wait = self.time_of(came, ms(PING_TIME));
                    self.wait(node, wait, Doing::Pings { answered: came == Came::Answer });
                }
                None => self.wait(node, 0, Doing::Pings { answered: false }),
            },
            Doing::Pings { answered: true } => {
                let now = self.instant();
                self.nodes[node].doubt.step(Found::Answer, now);
                self.nodes[node].reach.forget();
                self.wait(node, ms(PERIOD), Doing::Looks);
            }
            Doing::Pings { answered: false } => {
                let (found, wait) = self.look_around(node);
                self.wait(node, wait, Doing::Reaches { found });
            }
            Doing::Reaches { found } => {
                let now = self.instant();
                let sides = self.nodes[node].reach.step(&found, now);
                if sides.may_be_smaller() && self.variant != Variant::TakesBeyondCuts {
                    return self.wait(node, ms(PERIOD_IN_DOUBT), Doing::Looks);
                }
                self.take_if_free(node);
            }
            Doing::Claims(candidate) => self.claim(node, candidate),
            Doing::Holds(_) => unreachable!("it has the directory"),
        }
    }

    fn wait(&mut self, node: usize, time: Ms, doing: Doing) {
        self.nodes[node].wakes_at = self.now + time;
        self.nodes[node].doing = doing;
    }

    /// Asks those that show that they work, and how long that takes.
    fn look_around(&mut self, node: usize) -> (Vec<(Pulse, bool)>, Ms) {
        let now = self.instant();
        let (mut found, mut longest) = (Vec::new(), 0);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let Some(at) = self.disk.pulses[other] else { continue };
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
            let pulse = Pulse { node: NodeId::new(format!("n{other}")), address: ([127, 0, 0, 1], 1).into(), at };
            let came = match self.nodes[node].reach.asks(&pulse, now) {
                true => self.ask(node, other, false),
                false => Came::Refusal,
            };
            longest = longest.max(self.time_of(came, ms(REACH_TIME)));
            found.push((pulse, came == Came::Answer));
        }
        (found, longest)
    }

    fn is_known_dead(&self, process: &Process) -> bool {
        !self.nodes.iter().any(|node| node.is_running && node.process == *process)
    }

    fn take_if_free(&mut self, node: usize) {
        let (me, file, now) = (self.nodes[node].process, self.disk.lease, self.mono());
        let is_dead = file.and_then(|file| file.holder).is_some_and(|holder| self.is_known_dead(&holder));
        let action = Candidate::new(me, self.terms.ttl(), NodeEpoch::NONE).step(file.as_ref(), is_dead, now);
        if let CandidateAction::Take(taken) = action {
            return self.take(node, taken, false);
        }
        let held = file.expect("one that is there is not free");
        let is_other = |claimant: &Process| claimant.incarnation != me.incarnation && !self.is_known_dead(claimant);
        let silence = Silence {
            said: self.disk.seat.is_some_and(|seat| seat.epoch == held.epoch),
            claimant: held.claim.filter(is_other).map(|claimant| claimant.incarnation),
            pulse: self.disk.seat.map(|seat| SystemTime::UNIX_EPOCH + Duration::from_millis(seat.beat)),
        };
        let now = self.instant();
        let next = match self.variant {
            Variant::ClaimsAtOnce | Variant::WaitsForNobody if silence.said => Next::Claim,
            _ => self.nodes[node].doubt.step(Found::Silence(silence), now),
        };
        match next {
            Next::Look => self.wait(node, ms(PERIOD_IN_DOUBT), Doing::Looks),
            Next::Claim => self.claim(node, Candidate::new(me, self.terms.ttl(), NodeEpoch::NONE)),
        }
    }

    /// Waits until the lease of the holder has run out.
    fn claim(&mut self, node: usize, mut candidate: Candidate) {
        let (file, now) = (self.disk.lease, self.mono());
        let is_dead = file.and_then(|file| file.holder).is_some_and(|holder| self.is_known_dead(&holder));
        match candidate.step(file.as_ref(), is_dead, now) {
            CandidateAction::Take(taken) => self.take(node, taken, true),
            CandidateAction::Claim(claim) => {
                self.say(&format!("n{node} claims the directory of {:?}", claim.holder.map(|holder| holder.pid)));
                self.disk.lease = Some(claim);
                candidate.claimed(claim.epoch, now);
                if self.variant == Variant::WaitsForNobody {
                    let taken =
                        LeaseFile { epoch: claim.epoch.next(), holder: Some(self.nodes[node].process), claim: None };
                    return self.take(node, taken, true);
                }
                self.wait(node, TICK, Doing::Claims(candidate));
            }
            CandidateAction::Wait(time) => {
                let wait = ms(time).min(self.ttl() / 20).max(TICK);
                self.wait(node, wait, Doing::Claims(candidate));
            }
            CandidateAction::GiveUp { .. } => self.wait(node, ms(PAUSE), Doing::Looks),
        }
    }

    fn take(&mut self, node: usize, taken: LeaseFile, was_claimed: bool) {
        self.say(&format!("n{node} has the directory under {:?}", taken.epoch));
        self.disk.lease = Some(taken);
        self.happened.began += 1;
        self.happened.claimed += u32::from(was_claimed);
        let hold = Hold {
            epoch: taken.epoch,
            lease: LeaseHolder::new(self.terms, self.mono()),
            open_at: self.now + OPENING,
            is_said: false,
            health: Health::new(self.terms.ttl()),
            looks_at: self.now + OPENING + ms(PERIOD),
            reaches_at: self.now + OPENING,
            reaching: None,
        };
        self.nodes[node].is_ill = false;
        self.nodes[node].doing = Doing::Holds(Box::new(hold));
    }

    /// A node that has the directory goes on.
    fn hold(&mut self, node: usize) {
        let Doing::Holds(mut hold) = std::mem::replace(&mut self.nodes[node].doing, Doing::Looks) else { return };
        if !self.keeps(node, &mut hold) {
            return self.leave(node, &hold, ms(PERIOD_IN_DOUBT));
        }
        if hold.open_at <= self.now && self.has_disk(node) {
            if !hold.is_said {
                hold.is_said = true;
                self.disk.seat = Some(Seat { node, epoch: hold.epoch, beat: self.now });
            }
            if self.is_cut_off(node, &mut hold) && self.variant != Variant::StaysCutOff {
                self.say(&format!("n{node} is cut off, and leaves the coordinator"));
                self.happened.left_cut_off += 1;
                return self.leave(node, &hold, ms(PERIOD_IN_DOUBT));
            }
            if hold.looks_at <= self.now {
                hold.looks_at = self.now + ms(PERIOD);
                if self.is_over(node, &mut hold) {
                    self.say(&format!("n{node} answers nobody, and leaves the coordinator"));
                    self.happened.left_ill += 1;
                    return self.leave(node, &hold, ms(PAUSE));
                }
            }
        }
        self.nodes[node].doing = Doing::Holds(hold);
    }

    /// Renews the lease. Whether it is not over, nor about to be.
    fn keeps(&mut self, node: usize, hold: &mut Hold) -> bool {
        let now = self.mono();
        if hold.lease.wake_at().is_none_or(|at| at > now) {
            return true;
        }
        let mut inputs = vec![HolderInput::Tick];
        while let Some(input) = inputs.pop() {
            for action in hold.lease.step(input, now) {
                match action {
                    // A file that cannot be read says nothing.
                    HolderAction::Renew(id) if self.has_disk(node) => {
                        let file = self.disk.lease;
                        inputs.push(match renewal(file.as_ref(), self.nodes[node].process, hold.epoch) {
                            Err(LossCause::Claimed { .. }) if self.variant != Variant::SeesNoClaims => {
                                HolderInput::Claimed
                            }
                            Ok(()) | Err(LossCause::Claimed { .. }) => HolderInput::Renewed(id, self.terms.ttl()),
                            Err(_) => HolderInput::Ended,
                        });
                    }
                    HolderAction::Drain { .. } | HolderAction::Stop(_) => return false,
                    HolderAction::Renew(_) | HolderAction::Suspend | HolderAction::Resume => {}
                }
            }
        }
        true
    }

    fn is_cut_off(&mut self, node: usize, hold: &mut Hold) -> bool {
        if hold.reaches_at > self.now {
            return false;
        }
        let now = self.instant();
        match hold.reaching.take() {
            None => {
                let (found, wait) = self.look_around(node);
                (hold.reaching, hold.reaches_at) = (Some(found), self.now + wait);
                false
            }
            Some(found) => {
                hold.reaches_at = self.now + ms(REACH_PERIOD);
                let sides: Sides = self.nodes[node].reach.step(&found, now);
                sides.is_smaller()
            }
        }
    }

    fn is_over(&mut self, node: usize, hold: &mut Hold) -> bool {
        let answer = match (self.nodes[node].is_ill, hold.lease.serving(self.mono())) {
            (true, _) => Err(CoordinatorError::Stopped { reason: "its disk failed".to_owned() }),
            (false, false) => Err(CoordinatorError::Unavailable { reason: "its lease is over".to_owned() }),
            (false, true) => Ok(()),
        };
        if answer.is_ok() {
            self.disk.seat = Some(Seat { node, epoch: hold.epoch, beat: self.now });
        }
        hold.health.is_over(&answer, self.instant())
    }

    /// Gives the directory up.
    fn leave(&mut self, node: usize, hold: &Hold, pause: Ms) {
        self.say(&format!("n{node} runs the coordinator no more"));
        let me = Some(self.nodes[node].process);
        if let Some(file) = self.disk.lease.as_mut().filter(|file| file.epoch == hold.epoch && file.holder == me) {
            (file.holder, file.claim) = (None, None);
        }
        self.nodes[node].is_ill = false;
        self.wait(node, pause, Doing::Looks);
    }

    fn cut(&mut self, from: usize, to: usize, until: Ms) {
        self.deaf_until[to][from] = self.deaf_until[to][from].max(until);
    }

    fn begin(&mut self, fault: &Fault, until: Ms) {
        self.say(&format!("{fault:?} until {until}"));
        let all = 0..self.nodes.len();
        match *fault {
            Fault::Parts(ref parts) => {
                for (a, b) in all.clone().flat_map(|a| all.clone().map(move |b| (a, b))) {
                    if parts[a] != parts[b] {
                        self.cut(a, b, until);
                    }
                }
            }
            Fault::OneWay { node, is_heard } => {
                for other in all.filter(|other| *other != node) {
                    if is_heard { self.cut(other, node, until) } else { self.cut(node, other, until) }
                }
            }
            Fault::Link(a, b) => {
                self.cut(a, b, until);
                self.cut(b, a, until);
            }
            Fault::Kill(node) => self.nodes[node].is_running = false,
            Fault::Still(node) => {
                let is_long = until - self.now > self.ttl() && self.acts(node);
                self.happened.stood_still += u32::from(is_long);
                self.nodes[node].still_until = until;
            }
            Fault::DiskStill(node) => {
                for each in all.filter(|each| node.is_none_or(|node| node == *each)) {
                    self.nodes[each].disk_still_until = until;
                }
            }
            Fault::Ill => self.acting().into_iter().for_each(|node| self.nodes[node].is_ill = true),
        }
    }

    /// What a fault took comes back.
    fn end(&mut self, fault: &Fault) {
        if let Fault::Kill(node) = *fault {
            self.nodes[node] = self.process();
        }
    }

    /// A cut into so many parts, each with a node.
    fn cut_into(&mut self, parts: usize) -> Fault {
        loop {
            let of: Vec<usize> = (0..self.nodes.len()).map(|_| self.dice.random_range(0..parts)).collect();
            if (0..parts).all(|part| of.contains(&part)) {
                return Fault::Parts(of);
            }
        }
    }

    fn any_fault(&mut self) -> Fault {
        let count = self.nodes.len();
        let node = self.dice.random_range(0..count);
        let runs = self.acting().first().copied().unwrap_or(node);
        // What is most worth looking at happens to the node with the coordinator.
        let node = if self.dice.random_ratio(1, 2) { runs } else { node };
        match self.dice.random_range(0..10) {
            0 | 1 => self.cut_into(2),
            2 => self.cut_into(3),
            3 => Fault::OneWay { node, is_heard: self.dice.random() },
            4 => Fault::Link(runs, (runs + self.dice.random_range(1..count)) % count),
            5 => Fault::Kill(node),
            6 | 7 => Fault::Still(node),
            8 => Fault::DiskStill(self.dice.random_ratio(1, 2).then_some(node)),
            _ => Fault::Ill,
        }
    }

    fn run_until(&mut self, end: Ms) -> Result<(), String> {
        while self.now < end {
            self.tick();
            if let [first, second, ..] = self.acting()[..] {
                return Err(format!("n{first} and n{second} both act as coordinator"));
            }
        }
        Ok(())
    }

    /// Whether one node acts, all reach it and know of it, and nobody waits for it to stop: who has claimed the directory of one that stood still
    /// claims it of the next one, too, if that was faster.
    fn is_settled(&self) -> bool {
        let [one] = self.acting()[..] else { return false };
        let claims = |node: &Node| matches!(node.doing, Doing::Claims(_));
        !self.nodes.iter().any(claims)
            && self.disk.seat.is_some_and(|seat| seat.node == one)
            && (0..self.nodes.len()).all(|node| self.ask(node, one, true) == Came::Answer)
    }

    /// Waits until it is settled and stays so for a while; how long it took.
    fn settles(&mut self) -> Result<Ms, String> {
        let began = self.now;
        let mut since = None;
        loop {
            since = since.filter(|_| self.is_settled()).or_else(|| self.is_settled().then_some(self.now));
            match since {
                Some(since) if self.now >= since + STEADY => return Ok(since - began),
                None if self.now > began + SETTLED => {
                    return Err(format!(
                        "it is not settled who runs the coordinator {SETTLED} ms after the last fault"
                    ));
                }
                _ => self.run_until(self.now + TICK)?,
            }
        }
    }

    /// A fault alone, of which more is expected than of several.
    fn alone(&mut self) -> Result<(), String> {
        self.settles()?;
        let [runs] = self.acting()[..] else { return Err("it has just been settled who acts".to_owned()) };
        let count = self.nodes.len();
        let fault = match self.dice.random_range(0..6) {
            0 | 1 => Fault::Link(runs, (runs + self.dice.random_range(1..count)) % count),
            2 => self.cut_into(3),
            _ => self.cut_into(2),
        };
        let (until, began) = (self.now + SETTLED + 2_000, self.happened.began);
        self.begin(&fault, until);
        self.run_until(until)?;
        let acting = self.acting();
        // Whoever has it again has had it taken away.
        let stayed = acting == [runs] && self.happened.began == began;
        let Fault::Parts(parts) = fault else {
            self.happened.links_cut += 1;
            return stayed.then_some(()).ok_or_else(|| {
                format!(
                    "n{runs} missed one node, and {acting:?} have the coordinator, {} anew",
                    self.happened.began - began
                )
            });
        };
        let has_half = |part: usize| 2 * parts.iter().filter(|of| **of == part).count() >= count;
        let halves: Vec<usize> = (0..count).filter(|part| has_half(*part)).collect();
        let (is_right, seen) = match halves[..] {
            _ if has_half(parts[runs]) => (stayed, &mut self.happened.cuts_stayed),
            [] => (acting.is_empty() && self.happened.began == began, &mut self.happened.without_majority),
            [half, ..] => (matches!(acting[..], [one] if parts[one] == half), &mut self.happened.cuts_moved),
        };
        *seen += 1;
        self.happened.halves += u32::from(halves.len() == 2);
        is_right.then_some(()).ok_or_else(|| {
            format!(
                "n{runs} had the coordinator; of parts {parts:?}, those with it are {acting:?}, {} anew",
                self.happened.began - began
            )
        })
    }

    fn run(&mut self) -> Result<(), String> {
        self.settles()?;
        self.alone()?;
        let mut under_way: Vec<(Ms, Fault)> = Vec::new();
        let from = self.now;
        while self.now < from + FAULTS {
            if under_way.len() < 2 && self.dice.random_ratio(1, 3) {
                let fault = self.any_fault();
                let until = self.now + self.dice.random_range(100..8_000);
                self.begin(&fault, until);
                under_way.push((until, fault));
            }
            let next = self.now + self.dice.random_range(50..2_000);
            self.run_until(next)?;
            let (over, goes_on) = under_way.into_iter().partition(|(until, _)| *until <= next);
            under_way = goes_on;
            let over: Vec<(Ms, Fault)> = over;
            over.iter().for_each(|(_, fault)| self.end(fault));
        }
        let last = under_way.iter().map(|(until, _)| *until).max().unwrap_or(self.now);
        self.run_until(last)?;
        under_way.iter().for_each(|(_, fault)| self.end(fault));
        let took = self.settles()?;
        self.happened.longest = self.happened.longest.max(took);
        let [runs] = self.acting()[..] else { return Err("it has just been settled who acts".to_owned()) };
        self.run_until(self.now + QUIET)?;
        match self.acting()[..] {
            [one] if one == runs => Ok(()),
            ref others => Err(format!("n{runs} had the coordinator, and without any fault {others:?} have it")),
        }
    }
}

const fn ms(time: Duration) -> Ms {
    time.as_millis() as Ms
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words, and the last that happened.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, variant, happened);
    world.run().map_err(|error| {
        let lines: Vec<&str> = world.trace.lines().collect();
        format!("at {}: {error}\n{}", world.now, lines[lines.len().saturating_sub(40)..].join("\n"))
    })?;
    Ok(world.happened)
}
