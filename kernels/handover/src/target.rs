//! The node that a shard goes to.

use savanna_epoch::{LogId, OwnerEpoch};

use crate::record::{Change, Handover, Record, ToSource, ToTarget, Why};

/// What happens to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetInput {
    /// The source said something.
    Heard(ToTarget),
    /// The storage is open.
    Opened,
    /// A round was taken.
    Applied(u32),
    /// The state is durable in this node's log.
    Durable,
    /// The shard is served, and its storage was taken over.
    Saved,
    /// The engine cannot go on with the move.
    Failed,
    /// The record as it was read or watched.
    Read(Record),
}

/// What is to be done. Each may be asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetAction {
    /// Open the storage, to read only.
    Open,
    /// Take a round.
    Apply(u32),
    /// Make everything durable in this node's log.
    Persist,
    /// Serve under this epoch, and take the storage over.
    Serve(OwnerEpoch),
    /// Throw away what came.
    Discard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Following,
    Persisting,
    Prepared,
    Serving,
    Saved,
    Discarded,
}

/// The target's side of one move.
#[derive(Clone, Debug)]
pub struct Target {
    handover: Handover,
    /// This node's log.
    log: LogId,
    phase: Phase,
    /// Rounds that were taken.
    rounds: u32,
}

impl Target {
    /// Begins to follow a shard.
    #[must_use]
    pub fn new(handover: Handover, log: LogId) -> (Self, Vec<TargetAction>) {
        (Self { handover, log, phase: Phase::Opening, rounds: 0 }, vec![TargetAction::Open])
    }

    /// After a restart, a move whose state is durable here. It serves if the record says so.
    #[must_use]
    pub fn recovered(handover: Handover, log: LogId, rounds: u32) -> Self {
        Self { handover, log, phase: Phase::Prepared, rounds }
    }

    /// Whether there is nothing more to decide.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Saved | Phase::Discarded)
    }

    /// Takes an input: what to do, and what to tell the source.
    pub fn step(&mut self, input: TargetInput) -> (Vec<TargetAction>, Option<ToSource>) {
        match input {
            TargetInput::Heard(message) => self.heard(message),
            TargetInput::Opened if self.phase == Phase::Opening => {
                self.phase = Phase::Following;
                (Vec::new(), Some(ToSource::Opened))
            }
            TargetInput::Applied(round) if self.phase == Phase::Following && round == self.rounds => {
                self.rounds += 1;
                (Vec::new(), Some(ToSource::Synced(round)))
            }
            TargetInput::Durable if self.phase == Phase::Persisting => {
                self.phase = Phase::Prepared;
                (Vec::new(), Some(ToSource::Ready(self.log.clone())))
            }
            TargetInput::Saved if self.phase == Phase::Serving => {
                self.phase = Phase::Saved;
                (Vec::new(), Some(ToSource::Saved))
            }
            TargetInput::Failed if matches!(self.phase, Phase::Opening | Phase::Following | Phase::Persisting) => {
                (self.discard(), Some(ToSource::Refuse(Why::Failed)))
            }
            TargetInput::Read(record) => (self.read(&record), None),
            _ => Default::default(),
        }
    }

    fn heard(&mut self, message: ToTarget) -> (Vec<TargetAction>, Option<ToSource>) {
        match (message, self.phase) {
            (ToTarget::Commit, Phase::Prepared) => (self.serve(), None),
            (ToTarget::Commit, Phase::Saved) => (Vec::new(), Some(ToSource::Saved)),
            (ToTarget::Abort, Phase::Serving | Phase::Saved) => Default::default(),
            (ToTarget::Abort, _) => (self.discard(), Some(ToSource::Discarded)),
            (_, Phase::Discarded) => (Vec::new(), Some(ToSource::Refuse(Why::UnknownMove))),
            (ToTarget::Begin, Phase::Following) => (Vec::new(), Some(ToSource::Opened)),
            (ToTarget::Round(round), Phase::Following) if round < self.rounds => {
                (Vec::new(), Some(ToSource::Synced(round)))
            }
            (ToTarget::Round(round), Phase::Following) if round == self.rounds => {
                (vec![TargetAction::Apply(round)], None)
            }
            (ToTarget::Prepare(rounds), Phase::Following) if rounds == self.rounds => {
                self.phase = Phase::Persisting;
                (vec![TargetAction::Persist], None)
            }
            (ToTarget::Prepare(_), Phase::Prepared) => (Vec::new(), Some(ToSource::Ready(self.log.clone()))),
            _ => Default::default(),
        }
    }

    /// The record decides, whoever changed it.
    fn read(&mut self, record: &Record) -> Vec<TargetAction> {
        let mine = *record == self.handover.record(&Change::Commit(self.log.clone()));
        match self.phase {
            Phase::Prepared if mine => self.serve(),
            Phase::Serving | Phase::Saved | Phase::Discarded => Vec::new(),
            // The source's: it is not at this move yet, or still.
            _ if record.is_before(&self.handover) => Vec::new(),
            // Somebody else's; or this node's by another log, which has to be taken over.
            _ => self.discard(),
        }
    }

    fn serve(&mut self) -> Vec<TargetAction> {
        self.phase = Phase::Serving;
        vec![TargetAction::Serve(self.handover.next_epoch())]
    }

    fn discard(&mut self) -> Vec<TargetAction> {
        if std::mem::replace(&mut self.phase, Phase::Discarded) == Phase::Discarded {
            return Vec::new();
        }
        vec![TargetAction::Discard]
    }
}

impl Record {
    /// Whether the move is not decided as far as this says.
    fn is_before(&self, handover: &Handover) -> bool {
        match self {
            Self::Serving { owner, epoch, .. } => *owner == handover.from && *epoch <= handover.epoch,
            Self::Moving { from, epoch, .. } => *from == handover.from && *epoch <= handover.epoch,
        }
    }
}
