//! Two nodes, a coordinator and a network from one seed: messages are lost, doubled and late, answers of the coordinator too, and either
//! node ends at any step. At each step somebody looks whether more than one serves, and whether what was acknowledged is there.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{LogId, NodeId, OwnerEpoch};
use savanna_handover::{
    Action, Answer, Change, Ending, Handover, Input, Limits, MoveId, Obstacle, Record, Source, Target, TargetAction,
    TargetInput, Technique, ToSource, ToTarget, Why,
};

const TECHNIQUES: [Technique; 3] = [Technique::StopAndCopy, Technique::FlushAndMove, Technique::Albatross];

pub(crate) fn handover() -> Handover {
    Handover { id: MoveId(1), from: NodeId::new("s"), to: NodeId::new("t"), epoch: OwnerEpoch(4), log: log("s") }
}

pub(crate) fn log(node: &str) -> LogId {
    LogId::new(NodeId::new(node), 1, "tenants").expect("a log")
}

/// What is on its way. A payload is how many commits it brings the target to.
#[derive(Clone, Debug)]
enum Mail {
    ToTarget(ToTarget, usize),
    ToSource(ToSource),
    Propose(u64, Change),
    Proposed(Change, Answer),
    /// A read of the source that is answered with what the record is then.
    Ask,
    Told(u64, Record),
}

/// The engine of the source: commits by number, in memory and admitted, or durable and acknowledged.
#[derive(Default)]
struct Leaving {
    admits: bool,
    admitted: usize,
    durable: usize,
    pinned: bool,
    released: bool,
    /// Up to which commit a round goes, by round; the last is that of the export.
    rounds: Vec<usize>,
    exported: usize,
}

/// The target: what it follows in memory, what is durable, and whether it serves.
#[derive(Default)]
struct Arriving {
    core: Option<Target>,
    follows: Option<usize>,
    incoming: usize,
    durable: Option<(usize, u32)>,
    rounds: u32,
    serves: bool,
}

struct World {
    rng: ChaCha8Rng,
    now: u64,
    version: u64,
    record: Record,
    reachable: bool,
    mail: Vec<Mail>,
    source: Option<Source>,
    leaving: Leaving,
    arriving: Arriving,
    /// Commits that clients were told of.
    told: usize,
    inputs: Vec<Input>,
    target_inputs: Vec<TargetInput>,
    crashes: bool,
}

/// How a run ended, of what is to happen now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    Moved,
    Stayed,
    SourceDied,
    TargetDiedAfter,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let technique = TECHNIQUES[rng.random_range(0..3)];
        let handover = handover();
        let record = handover.record(&Change::GiveUp);
        let limits = Limits { silence: 60, drain: 60, rounds: 4 };
        let (source, actions) = Source::new(handover, technique, limits, 7, 0);
        let leaving = Leaving { admits: true, ..Leaving::default() };
        let crashes = rng.random_bool(0.6);
        let mut world = Self {
            rng,
            now: 0,
            version: 7,
            record,
            reachable: true,
            mail: Vec::new(),
            source: Some(source),
            leaving,
            arriving: Arriving::default(),
            told: 0,
            inputs: Vec::new(),
            target_inputs: Vec::new(),
            crashes,
        };
        world.act(actions);
        world
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Propose(version, change) => self.post(Mail::Propose(version, change)),
                Action::Read => self.post(Mail::Ask),
                Action::Send(message) => {
                    let payload = match message {
                        ToTarget::Round(round) => self.leaving.rounds[round as usize],
                        ToTarget::Prepare(_) => self.leaving.exported,
                        _ => 0,
                    };
                    self.post(Mail::ToTarget(message, payload));
                }
                Action::Pin => self.leaving.pinned = true,
                Action::Unpin => self.leaving.pinned = false,
                Action::Round(round) => {
                    if self.leaving.rounds.len() == round as usize {
                        self.leaving.rounds.push(self.leaving.durable);
                    }
                    self.inputs.push(Input::Round(round, self.rng.random_range(0..100)));
                }
                Action::Freeze => {
                    self.leaving.admits = false;
                    self.inputs.push(Input::Frozen);
                }
                Action::Drain => {
                    let in_the_way = self.leaving.admitted > self.leaving.durable;
                    self.inputs.push(Input::InTheWay(in_the_way.then_some(Obstacle::Commit).into_iter().collect()));
                }
                Action::Export => {
                    self.leaving.exported = self.leaving.durable;
                    self.inputs.push(Input::Exported);
                }
                Action::Resume => self.leaving.admits = true,
                Action::Release | Action::Stop => {
                    self.leaving.admits = false;
                    self.leaving.released = true;
                }
            }
        }
    }

    fn act_target(&mut self, actions: Vec<TargetAction>) {
        for action in actions {
            match action {
                TargetAction::Open => {
                    self.arriving.follows = Some(0);
                    self.target_inputs.push(TargetInput::Opened);
                }
                TargetAction::Apply(round) => {
                    self.arriving.follows = Some(self.arriving.incoming);
                    self.arriving.rounds = round + 1;
                    self.target_inputs.push(TargetInput::Applied(round));
                }
                TargetAction::Persist => {
                    self.arriving.durable = Some((self.arriving.incoming, self.arriving.rounds));
                    self.target_inputs.push(TargetInput::Durable);
                }
                TargetAction::Serve(epoch) => {
                    assert_eq!(epoch, OwnerEpoch(5));
                    let has = self.arriving.durable.map(|(commits, _)| commits);
                    assert_eq!(has, Some(self.told), "an acknowledged commit is not at the new owner");
                    self.arriving.serves = true;
                    self.target_inputs.push(TargetInput::Saved);
                }
                TargetAction::Discard => {
                    self.arriving.follows = None;
                    self.arriving.durable = None;
                }
            }
        }
    }

    /// Posts a letter: lost, once, or twice.
    fn post(&mut self, mail: Mail) {
        match self.rng.random_range(0..10) {
            0 => {}
            1 => self.mail.extend([mail.clone(), mail]),
            _ => self.mail.push(mail),
        }
    }

    fn step(&mut self) {
        self.now += 1;
        match self.rng.random_range(0..20) {
            0..=1 => self.inputs.push(Input::Tick),
            2..=3 if self.leaving.admits && self.source.is_some() => self.leaving.admitted += 1,
            4..=6 if self.source.is_some() && self.leaving.durable < self.leaving.admitted => {
                assert!(!self.leaving.released, "released with a commit on its way");
                self.leaving.durable += 1;
                self.told = self.leaving.durable;
            }
            7 => self.reachable = self.rng.random_bool(0.7),
            8 if self.crashes && self.rng.random_bool(0.05) => self.source_dies(),
            9 if self.crashes && self.rng.random_bool(0.1) => self.target_restarts(),
            10 if self.rng.random_bool(0.02) => self.target_inputs.push(TargetInput::Failed),
            11 if self.rng.random_bool(0.1) => self.target_inputs.push(TargetInput::Read(self.record.clone())),
            _ if !self.mail.is_empty() => {
                let place = self.rng.random_range(0..self.mail.len());
                let mail = self.mail.swap_remove(place);
                self.deliver(mail);
            }
            _ => {}
        }
        self.settle();
        self.look();
    }

    /// Gives both cores what their engines said, in any order of the two.
    fn settle(&mut self) {
        while !self.inputs.is_empty() || !self.target_inputs.is_empty() {
            for input in std::mem::take(&mut self.inputs) {
                let now = self.now;
                let actions = self.source.as_mut().map(|source| source.step(now, input)).unwrap_or_default();
                self.act(actions);
            }
            for input in std::mem::take(&mut self.target_inputs) {
                let Some(core) = self.arriving.core.as_mut() else { continue };
                let (actions, reply) = core.step(input);
                self.act_target(actions);
                if let Some(reply) = reply {
                    self.post(Mail::ToSource(reply));
                }
            }
        }
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::ToTarget(ToTarget::Begin, _) if self.arriving.core.is_none() => {
                let (core, actions) = Target::new(handover(), log("t"));
                self.arriving.core = Some(core);
                self.act_target(actions);
            }
            Mail::ToTarget(_, _) if self.arriving.core.is_none() => {
                self.post(Mail::ToSource(ToSource::Refuse(Why::UnknownMove)));
            }
            Mail::ToTarget(message, payload) => {
                if matches!(message, ToTarget::Round(_) | ToTarget::Prepare(_)) {
                    self.arriving.incoming = payload;
                }
                self.target_inputs.push(TargetInput::Heard(message));
            }
            Mail::ToSource(message) => self.inputs.push(Input::Heard(message)),
            Mail::Proposed(change, _) if !self.reachable => self.inputs.push(Input::Proposed(change, Answer::Unknown)),
            Mail::Propose(version, change) if !self.reachable => {
                // Nobody answers now, and it may be done yet.
                self.mail.push(Mail::Propose(version, change.clone()));
                self.inputs.push(Input::Proposed(change, Answer::Unknown));
            }
            Mail::Propose(version, change) => {
                let done = version == self.version;
                if done {
                    self.version += 1;
                    self.record = handover().record(&change);
                }
                let answer = if done { Answer::Won(self.version) } else { Answer::Lost };
                self.post(Mail::Proposed(change.clone(), answer));
                if self.rng.random_bool(0.1) {
                    self.inputs.push(Input::Proposed(change, Answer::Unknown));
                }
            }
            Mail::Proposed(change, answer) => self.inputs.push(Input::Proposed(change, answer)),
            Mail::Ask if self.reachable => {
                let told = Mail::Told(self.version, self.record.clone());
                self.post(told);
            }
            Mail::Ask => {}
            Mail::Told(version, record) => self.inputs.push(Input::Read(version, record)),
        }
    }

    /// The source dies or its lease ends, and its shard is granted, from the log that it leaves.
    fn source_dies(&mut self) {
        let Some(mut source) = self.source.take() else { return };
        if self.rng.random_bool(0.5) {
            // It lives and has lost its lease: it has to stop by itself.
            let actions = source.step(self.now, Input::LeaseEnded);
            if source.ending() == Some(Ending::Lost) {
                assert!(actions.contains(&Action::Stop), "it serves without a lease");
            }
            self.act(actions);
        }
        self.leaving.admits = false;
        self.leaving.pinned = false;
        let at_source = matches!(&self.record, Record::Serving { owner, .. } | Record::Moving { from: owner, .. }
            if *owner == handover().from);
        if at_source {
            assert_eq!(self.leaving.durable, self.told, "the log has what was acknowledged");
            self.version += 1;
            self.record = Record::Serving { owner: handover().to, epoch: OwnerEpoch(5), log: log("s") };
        }
    }

    /// The target comes back with what is durable.
    fn target_restarts(&mut self) {
        self.arriving.follows = None;
        self.arriving.serves = false;
        self.arriving.core = None;
        if let Some((_, rounds)) = self.arriving.durable {
            self.arriving.core = Some(Target::recovered(handover(), log("t"), rounds));
            self.target_inputs.push(TargetInput::Read(self.record.clone()));
        }
    }

    fn look(&self) {
        let owner = match &self.record {
            Record::Serving { owner, .. } | Record::Moving { from: owner, .. } => owner,
        };
        if self.source.is_some() && self.leaving.admits {
            assert_eq!(*owner, handover().from, "the source serves what it does not own");
            assert!(!self.arriving.serves, "both serve");
        }
        if self.arriving.serves {
            let mine = handover().record(&Change::Commit(log("t")));
            assert_eq!(self.record, mine, "the target serves what it does not own by this log");
        }
    }

    /// Everything is reachable from now on, and what is lost is sent again.
    fn quiesce(&mut self) {
        self.crashes = false;
        self.reachable = true;
        for _ in 0..20_000 {
            self.reachable = true;
            self.step();
            self.target_inputs.push(TargetInput::Read(self.record.clone()));
            self.settle();
            self.look();
            let source_is_over = self.source.as_ref().is_none_or(|source| source.ending().is_some());
            if source_is_over && self.arriving.core.as_ref().is_none_or(Target::is_over) {
                break;
            }
        }
    }

    fn end(mut self) -> Ended {
        self.quiesce();
        let follows = self.arriving.core.as_ref().is_some_and(|core| !core.is_over());
        assert!(!follows, "the target waits for ever: {:?}", self.record);
        assert!(!self.leaving.pinned, "a pin is forgotten");
        let Some(source) = &self.source else {
            return if self.arriving.serves { Ended::TargetDiedAfter } else { Ended::SourceDied };
        };
        match source.ending() {
            Some(Ending::Moved) => {
                assert!(self.arriving.serves, "nobody serves");
                Ended::Moved
            }
            Some(Ending::Stayed) => {
                assert!(self.leaving.admits, "the source does not serve again");
                assert!(self.arriving.durable.is_none(), "the target keeps what was given up");
                Ended::Stayed
            }
            other => panic!("the move does not end: {other:?}, {source:?}, {:?}", self.record),
        }
    }
}

#[test]
fn a_move_ends_with_one_owner_and_everything_that_was_acknowledged() {
    let seeds = std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_000);
    let mut ended = std::collections::BTreeMap::new();
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            let steps = world.rng.random_range(0..600);
            for _ in 0..steps {
                world.step();
            }
            world.end()
        });
        *ended.entry(outcome.unwrap_or_else(|_| panic!("seed {seed}"))).or_insert(0) += 1;
    }
    assert_eq!(ended.len(), 4, "only {ended:?}");
}
