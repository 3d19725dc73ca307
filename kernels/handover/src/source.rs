//! The node that a shard leaves.

use savanna_epoch::LogId;

use crate::record::{Answer, Change, Handover, Record, ToSource, ToTarget};

/// How a shard is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// Stop, write everything down, go.
    StopAndCopy,
    /// Write down while it serves, stop, write down the rest, go. Open transactions end.
    FlushAndMove,
    /// Bring the target's cache and log up to date while it serves; stop, and take open transactions along.
    Albatross,
}

/// Times in milliseconds, and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a phase waits for the other node before the move is given up.
    pub silence: u64,
    /// How long whatever is in the way of a drain may take.
    pub drain: u64,
    /// Rounds at most.
    pub rounds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { silence: 5_000, drain: 30_000, rounds: 10 }
    }
}

/// What must be over before the state is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A statement is not at a point where it has changed nothing.
    Statement,
    /// A statement runs aside and will come back.
    Aside,
    /// A commit has a number, and is not published and durable.
    Commit,
    /// An index is being built.
    IndexBuild,
    /// The storage is being flushed.
    Flush,
}

/// What happens to the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What became of a proposed change.
    Proposed(Change, Answer),
    /// The record as it was read.
    Read(u64, Record),
    /// The target said something.
    Heard(ToSource),
    /// The engine has a round ready; it carries so many bytes that the round before did not.
    Round(u32, u64),
    /// Nobody begins anything any more.
    Frozen,
    /// What is in the way.
    InTheWay(Vec<Obstacle>),
    /// The state is written down.
    Exported,
    /// The engine cannot go on with the move.
    Failed,
    /// This node's lease is over.
    LeaseEnded,
    /// Time went by.
    Tick,
}

/// What is to be done. Each may be asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Change the record if it has this version still.
    Propose(u64, Change),
    /// Read the record.
    Read,
    /// Send a message.
    Send(ToTarget),
    /// Keep the objects that the storage has now.
    Pin,
    /// They are needed no more.
    Unpin,
    /// Work out a round, or say again that it is there.
    Round(u32),
    /// Let nobody begin anything, and interrupt who waits.
    Freeze,
    /// Say what is in the way.
    Drain,
    /// Write the state down.
    Export,
    /// Serve again.
    Resume,
    /// Send everybody to the target, and forget the shard.
    Release,
    /// Stop at once, without a word to anybody.
    Stop,
}

/// How a move ended for the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The target has the shard.
    Moved,
    /// The source has it still.
    Stayed,
    /// This node lost it.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Announcing,
    Opening,
    /// A round on its way, and the bytes of the one before.
    Copying {
        round: u32,
        before: Option<u64>,
        now: Option<u64>,
    },
    Freezing,
    Draining,
    Exporting,
    /// The last round, when nobody writes any more.
    Finishing(u32),
    Preparing,
    Deciding(LogId),
    /// The commit was proposed and may have been done. Nothing is served.
    Undecided(LogId),
    /// The target was not told to serve and never will be; the record is to say so.
    GivingUp,
    Released,
    GivenUp,
    Ended(Ending),
}

/// The source's side of one move.
#[derive(Clone, Debug)]
pub struct Source {
    handover: Handover,
    technique: Technique,
    limits: Limits,
    phase: Phase,
    /// Of the record, as this side knows it.
    version: u64,
    /// Rounds that the target has.
    rounds: u32,
    frozen: bool,
    /// Since when the phase waits.
    since: u64,
}

impl Source {
    /// Begins to move a shard, whose record has this version, at `now`.
    #[must_use]
    pub fn new(
        handover: Handover,
        technique: Technique,
        limits: Limits,
        version: u64,
        now: u64,
    ) -> (Self, Vec<Action>) {
        let phase = Phase::Announcing;
        let source = Self { handover, technique, limits, phase, version, rounds: 0, frozen: false, since: now };
        (source, vec![Action::Pin, Action::Propose(version, Change::Announce)])
    }

    /// How it ended, once it did.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        match self.phase {
            Phase::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// Takes an input.
    pub fn step(&mut self, now: u64, input: Input) -> Vec<Action> {
        if let Phase::Ended(_) = self.phase {
            return Vec::new();
        }
        match input {
            Input::LeaseEnded => self.end(Ending::Lost, vec![Action::Stop, Action::Unpin]),
            Input::Proposed(change, answer) => self.proposed(now, &change, answer),
            Input::Read(version, record) => self.read(now, version, &record),
            Input::Heard(message) => self.heard(now, message),
            Input::Round(round, bytes) => self.round(now, round, bytes),
            Input::Frozen if self.phase == Phase::Freezing => self.enter(now, Phase::Draining),
            Input::InTheWay(obstacles) if self.phase == Phase::Draining && obstacles.is_empty() => self.drained(now),
            Input::Exported if self.phase == Phase::Exporting => self.enter(now, Phase::Preparing),
            Input::Failed if self.may_give_up() => self.give_up(now),
            Input::Tick => self.tick(now),
            Input::Frozen | Input::InTheWay(_) | Input::Exported | Input::Failed => Vec::new(),
        }
    }

    /// Goes into a phase and asks for what it needs.
    fn enter(&mut self, now: u64, phase: Phase) -> Vec<Action> {
        self.phase = phase;
        self.since = now;
        self.again()
    }

    /// What the phase asks for, the first time and whenever nothing came.
    fn again(&self) -> Vec<Action> {
        let action = match &self.phase {
            Phase::Announcing => Action::Propose(self.version, Change::Announce),
            Phase::Opening => Action::Send(ToTarget::Begin),
            Phase::Copying { round, now: Some(_), .. } => Action::Send(ToTarget::Round(*round)),
            Phase::Copying { round, .. } | Phase::Finishing(round) => Action::Round(*round),
            Phase::Freezing => Action::Freeze,
            Phase::Draining => Action::Drain,
            Phase::Exporting => Action::Export,
            Phase::Preparing => Action::Send(ToTarget::Prepare(self.rounds)),
            Phase::Deciding(log) => Action::Propose(self.version, Change::Commit(log.clone())),
            // At the version of the commit: of the two one is done.
            Phase::Undecided(_) | Phase::GivingUp => Action::Propose(self.version, Change::GiveUp),
            Phase::Released => Action::Send(ToTarget::Commit),
            Phase::GivenUp => Action::Send(ToTarget::Abort),
            Phase::Ended(_) => return Vec::new(),
        };
        vec![action]
    }

    fn proposed(&mut self, now: u64, change: &Change, answer: Answer) -> Vec<Action> {
        match (change, answer, &self.phase) {
            (Change::Announce, Answer::Won(version), Phase::Announcing) => {
                self.version = version;
                self.enter(now, Phase::Opening)
            }
            (Change::Commit(_), Answer::Won(_), Phase::Deciding(_) | Phase::Undecided(_)) => self.release(now),
            (Change::Commit(_), Answer::Unknown, Phase::Deciding(log)) => {
                let log = log.clone();
                self.enter(now, Phase::Undecided(log))
            }
            (Change::GiveUp, Answer::Won(_), Phase::Undecided(_) | Phase::GivingUp) => self.given_up(now),
            // Somebody else changed it, or this side did and did not hear of it.
            (_, Answer::Lost, Phase::Announcing | Phase::Deciding(_) | Phase::Undecided(_) | Phase::GivingUp) => {
                vec![Action::Read]
            }
            _ => Vec::new(),
        }
    }

    fn read(&mut self, now: u64, version: u64, record: &Record) -> Vec<Action> {
        // At the same version a change may be on its way yet.
        if version <= self.version || matches!(self.phase, Phase::Released | Phase::GivenUp) {
            return Vec::new();
        }
        let stays = *record == self.handover.record(&Change::GiveUp);
        let moves = *record == self.handover.record(&Change::Announce);
        match (&self.phase, record) {
            (Phase::Announcing, _) if moves => {
                self.version = version;
                self.enter(now, Phase::Opening)
            }
            (_, _) if stays => self.given_up(now),
            (Phase::Deciding(log) | Phase::Undecided(log), _)
                if *record == self.handover.record(&Change::Commit(log.clone())) =>
            {
                self.release(now)
            }
            // Also if it moves as this side has announced, at a later version: that is the next attempt, of a process that gave this one up.
            _ => self.end(Ending::Lost, vec![Action::Stop, Action::Unpin]),
        }
    }

    fn heard(&mut self, now: u64, message: ToSource) -> Vec<Action> {
        match (message, &self.phase) {
            (ToSource::Opened, Phase::Opening) if self.technique == Technique::StopAndCopy => self.freeze(now),
            (ToSource::Opened, Phase::Opening) => self.enter(now, Phase::Copying { round: 0, before: None, now: None }),
            (ToSource::Synced(round), Phase::Copying { round: sent, before, now: Some(bytes) }) if round == *sent => {
                let (before, bytes) = (*before, *bytes);
                self.synced(now, round, before, bytes)
            }
            (ToSource::Synced(round), Phase::Finishing(sent)) if round == *sent => {
                self.rounds = round + 1;
                self.enter(now, Phase::Exporting)
            }
            (ToSource::Ready(log), Phase::Preparing) => self.enter(now, Phase::Deciding(log)),
            (ToSource::Refuse(_), _) if self.may_give_up() => self.give_up(now),
            (ToSource::Saved, Phase::Released) => self.end(Ending::Moved, vec![Action::Unpin]),
            // A target that knows nothing of the move has nothing to throw away.
            (ToSource::Discarded | ToSource::Refuse(_), Phase::GivenUp) => self.end(Ending::Stayed, Vec::new()),
            _ => Vec::new(),
        }
    }

    fn round(&mut self, at: u64, ready: u32, bytes: u64) -> Vec<Action> {
        match &mut self.phase {
            Phase::Copying { round, now, .. } if *round == ready => {
                // However long it took to work out, the other node has its time from here on.
                if now.replace(bytes).is_none() {
                    self.since = at;
                }
            }
            Phase::Finishing(round) if *round == ready => {}
            _ => return Vec::new(),
        }
        vec![Action::Send(ToTarget::Round(ready))]
    }

    /// The target has a round: another one, or it is time to stop.
    fn synced(&mut self, now: u64, round: u32, before: Option<u64>, bytes: u64) -> Vec<Action> {
        self.rounds = round + 1;
        let converged = before.is_some_and(|before| before.abs_diff(bytes) <= before / 10);
        if self.technique == Technique::FlushAndMove || converged || self.rounds >= self.limits.rounds {
            return self.freeze(now);
        }
        self.enter(now, Phase::Copying { round: self.rounds, before: Some(bytes), now: None })
    }

    fn freeze(&mut self, now: u64) -> Vec<Action> {
        self.frozen = true;
        self.enter(now, Phase::Freezing)
    }

    fn drained(&mut self, now: u64) -> Vec<Action> {
        let next = match self.technique {
            Technique::Albatross => Phase::Exporting,
            Technique::StopAndCopy | Technique::FlushAndMove => Phase::Finishing(self.rounds),
        };
        self.enter(now, next)
    }

    fn tick(&mut self, now: u64) -> Vec<Action> {
        let limit = if self.phase == Phase::Draining { self.limits.drain } else { self.limits.silence };
        if now.saturating_sub(self.since) > limit && self.may_give_up() {
            return self.give_up(now);
        }
        let mut actions = self.again();
        if matches!(self.phase, Phase::Announcing | Phase::Undecided(_) | Phase::GivingUp | Phase::Deciding(_)) {
            actions.push(Action::Read);
        }
        actions
    }

    /// Whether the commit was not proposed yet, so that this side decides alone.
    fn may_give_up(&self) -> bool {
        matches!(
            self.phase,
            Phase::Opening
                | Phase::Copying { .. }
                | Phase::Freezing
                | Phase::Draining
                | Phase::Exporting
                | Phase::Finishing(_)
                | Phase::Preparing
        )
    }

    /// The commit was never proposed: the shard is served at once, whatever the coordinator does.
    fn give_up(&mut self, now: u64) -> Vec<Action> {
        let mut actions = self.resume();
        actions.extend(self.enter(now, Phase::GivingUp));
        actions
    }

    fn given_up(&mut self, now: u64) -> Vec<Action> {
        let mut actions = self.resume();
        actions.push(Action::Unpin);
        actions.extend(self.enter(now, Phase::GivenUp));
        actions
    }

    fn resume(&mut self) -> Vec<Action> {
        if std::mem::take(&mut self.frozen) { vec![Action::Resume] } else { Vec::new() }
    }

    fn release(&mut self, now: u64) -> Vec<Action> {
        let mut actions = vec![Action::Release];
        actions.extend(self.enter(now, Phase::Released));
        actions
    }

    fn end(&mut self, ending: Ending, actions: Vec<Action>) -> Vec<Action> {
        self.phase = Phase::Ended(ending);
        actions
    }
}
