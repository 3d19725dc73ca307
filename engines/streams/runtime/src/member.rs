//! A member of a function group: collects payload sets, applies epochs in order, keeps what it sent until it counts.
//!
//! Pure: what comes out depends on what went in and on nothing else. The operator inside only computes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, MemberId, StageId};
use savanna_streams_model::payload::Payload;

use crate::arena::{Arena, CollectedInput, InputKey, Inserted};
use crate::error::broken;
use crate::snapshot::{FormerAggregates, State};

/// A payload and who gets it.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The receiver.
    pub to: MemberId,
    /// What it gets.
    pub payload: Payload,
}

/// What was sent for epochs that are not known to be committed, to be sent again if an input comes again.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    epochs: BTreeMap<Epoch, Vec<Outgoing>>,
    bytes: usize,
}

impl Retained {
    pub(crate) fn keep(&mut self, epoch: Epoch, sent: Vec<Outgoing>) {
        self.bytes += bytes_of(&sent);
        self.epochs.insert(epoch, sent);
    }

    /// Drops what was sent up to a committed epoch.
    pub(crate) fn forget(&mut self, committed: Epoch) {
        while let Some(first) = self.epochs.first_entry()
            && *first.key() <= committed
        {
            self.bytes -= bytes_of(&first.remove());
        }
    }

    pub(crate) fn of(&self, epoch: Epoch) -> &[Outgoing] {
        self.epochs.get(&epoch).map_or(&[], Vec::as_slice)
    }

    /// What was sent for an epoch; none if that is not known any more.
    pub(crate) fn known(&self, epoch: Epoch) -> Option<&[Outgoing]> {
        self.epochs.get(&epoch).map(Vec::as_slice)
    }

    /// Memory of the payloads, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn bytes_of(sent: &[Outgoing]) -> usize {
    sent.iter().map(|outgoing| outgoing.payload.body.bytes()).sum()
}

/// What a member computes with a complete epoch.
pub trait StageOperator: Send {
    /// Computes an epoch and cuts its output into payloads, empty ones included. Epochs come in order, each once.
    ///
    /// # Errors
    /// A value cannot be computed, or the outside world failed: the query ends.
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>>;

    /// Memory of its state, in bytes.
    fn bytes(&self) -> usize;

    /// The query is over: every epoch that will ever be applied has been.
    ///
    /// # Errors
    /// The outside world failed.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// What its state is, in words: where these differ, a state does not fit. Nothing if it has none.
    fn signature(&self) -> String {
        String::new()
    }

    /// The stage that sends the rows which are in its state under a name, if it is one of its own.
    fn sender(&self, rows: &str) -> Option<StageId> {
        let _ = rows;
        None
    }

    /// All that later epochs need, without taking it away.
    ///
    /// # Errors
    /// A value cannot be computed. If that has changed the state, the next epoch fails.
    fn state(&mut self) -> Result<State> {
        Ok(State::default())
    }

    /// As [`Self::state`], for another instance of it: without what tells how this one came to it, such as the numbers of pieces and rows
    /// that are over.
    ///
    /// # Errors
    /// As [`Self::state`].
    fn state_to_send(&mut self) -> Result<State> {
        Ok(self.state()?.without_pieces())
    }

    /// The state of one with other aggregates as one that it can become.
    ///
    /// # Errors
    /// It has none, or the state is another one than is said.
    fn recast(&self, _: State, former: &FormerAggregates) -> Result<State> {
        Err(broken(format!("a state of {} aggregates for an operator that has none", former.of.len())))
    }

    /// A fresh operator becomes one that has applied the epochs which a state is of.
    ///
    /// # Errors
    /// The state does not fit.
    fn restore(&mut self, state: &State) -> Result<()> {
        let _ = state;
        Ok(())
    }
}

/// Who gets the states of members.
pub trait Snapshots: Send + Sync {
    /// Whether members hand out their state behind this epoch.
    fn is_due(&self, epoch: Epoch) -> bool;

    /// A member, by its stage and the part of the keys that it owns, begins to compute an epoch behind which it hands its state out.
    fn begins(&self, epoch: Epoch, stage: StageId, shuffle: u16);

    /// Takes the state of a member, which `state` computes, or why it cannot be computed. Waits for nothing else.
    fn hand_over(&self, epoch: Epoch, stage: StageId, shuffle: u16, state: &mut dyn FnMut() -> Result<State>);
}

/// What an invocation came to (Flock, C2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It completed an epoch, which was computed.
    Ready,
    /// The set is not complete, or an earlier epoch is missing.
    NotReady,
    /// It was known already.
    Processed,
}

/// The two rules that exactly once rests on. Tests break them to show that the checks notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRules {
    /// A payload whose bit is set is ignored.
    pub ignore_duplicates: bool,
    /// Epoch e is applied after e - 1.
    pub in_order: bool,
}

impl Default for MemberRules {
    fn default() -> Self {
        Self { ignore_duplicates: true, in_order: true }
    }
}

/// One member.
pub struct Member {
    arena: Arena,
    applied: Epoch,
    retained: Retained,
    operator: Box<dyn StageOperator>,
    rules: MemberRules,
    /// Who gets its state, and as whose.
    snapshots: Option<(Arc<dyn Snapshots>, StageId, u16)>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("applied", &self.applied).field("arena", &self.arena).finish_non_exhaustive()
    }
}

impl Member {
    /// A fresh member.
    pub fn new(inputs: Vec<InputKey>, operator: Box<dyn StageOperator>, rules: MemberRules) -> Self {
        let arena = if rules.ignore_duplicates { Arena::new(inputs) } else { Arena::counting(inputs) };
        Self { arena, applied: Epoch::ZERO, retained: Retained::default(), operator, rules, snapshots: None }
    }

    /// The member of a query that begins behind an epoch.
    #[must_use]
    pub fn behind(self, epoch: Epoch) -> Self {
        Self { applied: epoch, ..self }
    }

    /// It hands its state out from now on, as that of this part of a stage.
    pub fn hand_over_to(&mut self, to: Arc<dyn Snapshots>, stage: StageId, shuffle: u16) {
        self.snapshots = Some((to, stage, shuffle));
    }

    /// The state of one with other aggregates as one that it can become.
    ///
    /// # Errors
    /// It does not fit.
    pub fn recast(&self, state: State, former: &FormerAggregates) -> Result<State> {
        self.operator.recast(state, former)
    }

    /// The state of a former process.
    ///
    /// # Errors
    /// It does not fit.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        self.operator.restore(state)
    }

    /// The stage that sends the rows which are in its state under a name, if it is one of its own.
    pub fn sender(&self, rows: &str) -> Option<StageId> {
        self.operator.sender(rows)
    }

    /// What its state is, in words.
    pub fn signature(&self) -> String {
        self.operator.signature()
    }

    /// All that later epochs need, for another instance of it. Nothing is taken away.
    ///
    /// # Errors
    /// A value cannot be computed.
    pub fn state_to_send(&mut self) -> Result<State> {
        self.operator.state_to_send()
    }

    /// What it sent for an epoch; none if it has not computed it, or does not know any more.
    pub fn sent(&self, epoch: Epoch) -> Option<&[Outgoing]> {
        self.retained.known(epoch)
    }

    /// The last epoch that was computed.
    pub fn applied(&self) -> Epoch {
        self.applied
    }

    /// Memory of its state and of the outputs that it keeps, in bytes.
    pub fn bytes(&self) -> usize {
        self.operator.bytes() + self.retained.bytes()
    }

    /// One invocation. `committed` is the newest epoch known to be in the sink; payloads to send are added to `send`.
    ///
    /// # Errors
    /// The payload is not for this member, or the operator failed.
    pub fn receive(&mut self, payload: Payload, committed: Epoch, send: &mut Vec<Outgoing>) -> Result<Outcome> {
        self.retained.forget(committed);
        let epoch = payload.set.epoch;
        if epoch <= self.applied && self.rules.in_order {
            // The sender did not see this epoch committed: what this member sent for it may be lost as well.
            send.extend_from_slice(self.retained.of(epoch));
            return Ok(Outcome::Processed);
        }
        if epoch <= committed {
            return Ok(Outcome::Processed);
        }
        if self.arena.insert(payload)? == Inserted::Duplicate {
            return Ok(Outcome::Processed);
        }
        let mut outcome = Outcome::NotReady;
        while let Some(next) = self.next_epoch() {
            let Some(inputs) = self.arena.take(next) else {
                break;
            };
            let due = self.snapshots.as_ref().filter(|(to, ..)| to.is_due(next));
            if let Some((snapshots, stage, shuffle)) = due {
                snapshots.begins(next, *stage, *shuffle);
            }
            let outputs = self.operator.apply(next, inputs)?;
            self.applied = self.applied.max(next);
            if let Some((snapshots, stage, shuffle)) = due {
                snapshots.hand_over(next, *stage, *shuffle, &mut || self.operator.state());
            }
            send.extend_from_slice(&outputs);
            self.retained.keep(next, outputs);
            outcome = Outcome::Ready;
        }
        Ok(outcome)
    }

    /// Ends the operator.
    ///
    /// # Errors
    /// The outside world failed.
    pub fn finish(&mut self) -> Result<()> {
        self.operator.finish()
    }

    fn next_epoch(&self) -> Option<Epoch> {
        if self.rules.in_order { Some(self.applied.next()) } else { self.arena.complete() }
    }
}

#[cfg(test)]
mod tests;
