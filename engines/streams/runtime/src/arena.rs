//! Where a member collects payload sets (Flock, C7).
//!
//! ```text
//!   epoch 7:  input (stage 0, part 2)   bitmap 1 1 0 1   3 of 4 -> not complete
//!             input (stage 3, part 0)   bitmap 1         1 of 1 -> complete
//! ```
//!
//! An epoch is complete when each expected input has all payloads `0..sequence_len`. A payload whose bit is set is ignored
//! cheaply. The driver admits a bounded number of epochs, which bounds the arena.

use std::collections::BTreeMap;

use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::payload::{Body, Payload};
use savanna_streams_model::time::EventTime;

/// An input that a member waits for in each epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputKey {
    /// The sending stage.
    pub from: StageId,
    /// The part of the sender's output.
    pub shuffle: u16,
}

/// One input of a complete epoch.
#[derive(Clone, Debug)]
pub struct CollectedInput {
    /// Where it comes from.
    pub key: InputKey,
    /// The lowest watermark of its payloads.
    pub watermark: EventTime,
    /// The payloads' data, in the order of their sequence numbers.
    pub bodies: Vec<(u32, Body)>,
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is new.
    New,
    /// It was there already.
    Duplicate,
}

/// The payload sets of one member.
#[derive(Debug)]
pub struct Arena {
    expected: Vec<InputKey>,
    epochs: BTreeMap<Epoch, Vec<Option<PayloadSet>>>,
    ignore_duplicates: bool,
}

impl Arena {
    /// An arena that waits for these inputs in each epoch.
    pub fn new(expected: Vec<InputKey>) -> Self {
        Self { expected, epochs: BTreeMap::new(), ignore_duplicates: true }
    }

    /// An arena that counts payloads instead of marking them: wrong, for tests that must notice.
    pub(crate) fn counting(expected: Vec<InputKey>) -> Self {
        Self { ignore_duplicates: false, ..Self::new(expected) }
    }

    /// Puts a payload in.
    ///
    /// # Errors
    /// The payload is not for this member, or contradicts its set.
    pub fn insert(&mut self, payload: Payload) -> Result<Inserted> {
        let key = InputKey { from: payload.set.from, shuffle: payload.set.shuffle };
        let Some(index) = self.expected.iter().position(|expected| *expected == key) else {
            return Err(StreamError::Internal(format!(
                "a payload of stage {}, part {}, came to a member that expects {:?}",
                key.from, key.shuffle, self.expected
            )));
        };
        let inputs = self.epochs.entry(payload.set.epoch).or_insert_with(|| vec![None; self.expected.len()]);
        let set = inputs[index].get_or_insert_with(|| PayloadSet::new(payload.sequence_len));
        set.insert(payload, self.ignore_duplicates)
    }

    /// Whether every input of the epoch is complete.
    pub fn is_complete(&self, epoch: Epoch) -> bool {
        self.epochs
            .get(&epoch)
            .is_some_and(|inputs| inputs.iter().all(|i| i.as_ref().is_some_and(PayloadSet::is_complete)))
    }

    /// Any complete epoch.
    pub(crate) fn complete(&self) -> Option<Epoch> {
        self.epochs.keys().copied().rev().find(|epoch| self.is_complete(*epoch))
    }

    /// Takes a complete epoch out, inputs in the expected order; none if it is not complete.
    pub fn take(&mut self, epoch: Epoch) -> Option<Vec<CollectedInput>> {
        if !self.is_complete(epoch) {
            return None;
        }
        let inputs = self.epochs.remove(&epoch)?;
        Some(self.expected.iter().zip(inputs.into_iter().flatten()).map(|(key, set)| set.collect(*key)).collect())
    }

    /// Payloads held.
    pub fn payloads(&self) -> usize {
        self.epochs.values().flatten().flatten().map(|set| set.payloads.len()).sum()
    }
}

#[derive(Clone, Debug)]
struct PayloadSet {
    seen: Bitmap,
    len: u32,
    watermark: EventTime,
    payloads: Vec<(u32, Body)>,
}

impl PayloadSet {
    fn new(len: u32) -> Self {
        Self { seen: Bitmap::new(len), len, watermark: EventTime::MAX, payloads: Vec::with_capacity(len as usize) }
    }

    fn insert(&mut self, payload: Payload, ignore_duplicates: bool) -> Result<Inserted> {
        if payload.sequence_len != self.len || payload.sequence >= self.len {
            return Err(StreamError::Internal(format!(
                "payload {} of {} came to a set of {} payloads (stage {}, epoch {})",
                payload.sequence, payload.sequence_len, self.len, payload.set.from, payload.set.epoch
            )));
        }
        if !self.seen.set(payload.sequence) && ignore_duplicates || self.is_complete() {
            return Ok(Inserted::Duplicate);
        }
        self.watermark = self.watermark.min(payload.watermark);
        self.payloads.push((payload.sequence, payload.body));
        Ok(Inserted::New)
    }

    fn is_complete(&self) -> bool {
        self.payloads.len() == self.len as usize
    }

    fn collect(mut self, key: InputKey) -> CollectedInput {
        // By sequence, whatever the order of arrival, so that sums of floating-point numbers do not depend on it.
        self.payloads.sort_unstable_by_key(|(sequence, _)| *sequence);
        CollectedInput { key, watermark: self.watermark, bodies: self.payloads }
    }
}

/// One bit per sequence number.
#[derive(Clone, Debug)]
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn new(len: u32) -> Self {
        Self(vec![0; len.div_ceil(u64::BITS) as usize])
    }

    /// Sets a bit; returns whether it was clear.
    fn set(&mut self, index: u32) -> bool {
        let (word, bit) = (&mut self.0[(index / u64::BITS) as usize], 1 << (index % u64::BITS));
        let clear = *word & bit == 0;
        *word |= bit;
        clear
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_api::ids::QueryId;
    use savanna_streams_model::payload::SetKey;

    use super::*;

    fn payload(epoch: u64, from: u16, sequence: u32, sequence_len: u32, watermark: i64) -> Payload {
        let query = QueryId { code: "c".into(), job: 1 };
        let set = SetKey { query, epoch: Epoch(epoch), from: StageId(from), shuffle: 0 };
        Payload { set, sequence, sequence_len, watermark: EventTime(watermark), body: Body::Rows(Vec::new()) }
    }

    fn input(from: u16) -> InputKey {
        InputKey { from: StageId(from), shuffle: 0 }
    }

    #[test]
    fn an_epoch_is_complete_when_every_input_has_every_payload() {
        let mut arena = Arena::new(vec![input(0), input(1)]);
        for sequence in [69, 0, 68].into_iter().chain(1..68) {
            assert_eq!(arena.insert(payload(1, 0, sequence, 70, i64::from(sequence) + 5)).unwrap(), Inserted::New);
            assert!(!arena.is_complete(Epoch(1)));
        }
        assert!(arena.take(Epoch(1)).is_none());
        arena.insert(payload(1, 1, 0, 1, 3)).unwrap();
        let inputs = arena.take(Epoch(1)).unwrap();
        assert_eq!(inputs.iter().map(|i| i.watermark.0).collect::<Vec<_>>(), [5, 3]);
        assert!(inputs[0].bodies.iter().map(|(sequence, _)| *sequence).eq(0..70));
        assert_eq!(arena.payloads(), 0);
    }

    #[test]
    fn a_payload_whose_bit_is_set_is_ignored() {
        let mut arena = Arena::new(vec![input(0)]);
        arena.insert(payload(1, 0, 1, 2, 0)).unwrap();
        assert_eq!(arena.insert(payload(1, 0, 1, 2, 0)).unwrap(), Inserted::Duplicate);
        assert!(!arena.is_complete(Epoch(1)));
    }

    #[test]
    fn a_payload_that_contradicts_its_set_is_refused() {
        let mut arena = Arena::new(vec![input(0)]);
        arena.insert(payload(1, 0, 1, 2, 0)).unwrap();
        assert!(arena.insert(payload(1, 0, 0, 3, 0)).is_err());
        assert!(arena.insert(payload(1, 0, 2, 2, 0)).is_err());
        assert!(arena.insert(payload(1, 7, 0, 1, 0)).is_err());
    }
}
