//! Rows that are parted by what they are equal by: those that are equal are in one part, so that each part can be worked on by itself.

use std::hash::{DefaultHasher, Hash, Hasher};

use savanna_tenants_values::{error::Result, memory::Memory, value::Value};

use super::{EXTENT_BYTES, Room, Tape};
use crate::{Run, explain::Part};

/// Parts that rows come into at once.
const PARTS: u64 = 32;
/// A part that is still too large is parted again, so often at most: then all of its rows are equal, or somebody has chosen them well.
pub(crate) const SPLITS_MAX: u32 = 7;

/// What the buffers of all of them take, unless rows are large.
pub(crate) const BUFFERS_BYTES: usize = PARTS as usize * EXTENT_BYTES;

/// Parts of rows, in one file.
pub(crate) struct Parts<'r> {
    tapes: Vec<Tape>,
    /// The hash of the rows of each, and whether there are others.
    hashes: Vec<Option<(u64, bool)>>,
    /// Where the next row goes that is equal to none.
    next: usize,
    /// How often the rows were parted before.
    level: u32,
    /// What the tapes take themselves, a buffer each, and what was taken for that.
    held: usize,
    memory: Memory<'r>,
}

impl<'r> Parts<'r> {
    /// Those of a step with such a room.
    pub(crate) fn new(run: &Run<'_>, level: u32, room: &mut Room<'r>) -> Result<Self> {
        let file = run.spill_file()?;
        let tapes = (0..PARTS).map(|_| Tape::new(&file)).collect();
        let hashes = vec![None; PARTS as usize];
        Ok(Self { tapes, hashes, next: 0, level, held: 0, memory: room.take_buffers() })
    }

    /// Adds a row that is told from others by these bytes.
    pub(crate) fn push(&mut self, key: &[u8], row: &[Value]) -> Result<()> {
        // At each level by other bits, or one part would be one part again.
        let mut hasher = DefaultHasher::new();
        (self.level, key).hash(&mut hasher);
        let hash = hasher.finish();
        let place = (hash % PARTS) as usize;
        let (first, differ) = self.hashes[place].get_or_insert((hash, false));
        *differ |= *first != hash;
        self.push_at(place, row)
    }

    /// Adds a row that is equal to no other one: to each part in turn.
    pub(crate) fn push_anywhere(&mut self, row: &[Value]) -> Result<()> {
        self.next = (self.next + 1) % self.tapes.len();
        self.push_at(self.next, row)
    }

    fn push_at(&mut self, place: usize, row: &[Value]) -> Result<()> {
        let tape = &mut self.tapes[place];
        self.held -= tape.held();
        tape.push(row)?;
        self.held += tape.held();
        if self.memory.covers(self.held).is_err() {
            // There is no memory for a larger buffer: what is in all of them goes to the file.
            self.tapes.iter_mut().try_for_each(Tape::end)?;
            self.held = self.tapes.iter().map(Tape::held).sum();
            self.memory.covers(self.held)?;
        }
        Ok(())
    }

    /// All parts, also those without rows: the same key is in the same place of two of the same level.
    pub(crate) fn finish(mut self, run: &Run<'_>, part: Part) -> Result<Vec<Tape>> {
        self.tapes.iter_mut().try_for_each(Tape::end)?;
        for (tape, hashes) in self.tapes.iter_mut().zip(&self.hashes) {
            tape.alike = hashes.is_none_or(|(_, differ)| !differ);
        }
        run.note_spilled(part, self.tapes.iter().map(Tape::bytes).sum());
        Ok(self.tapes)
    }

    /// Bytes that the tapes take, and those that are counted for them.
    #[cfg(test)]
    fn held(&self) -> (usize, usize) {
        (self.tapes.iter().map(Tape::held).sum(), self.memory.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::with_run;

    #[test]
    fn buffers_are_counted_and_do_not_stay_large() {
        with_run(Some(1), |run| {
            let mut parts = Parts::new(run, 0, &mut run.room_for_parts()).expect("a file");
            let row = |bytes: usize| [Value::Text("x".repeat(bytes))];
            for at in 0..20_000_u32 {
                parts.push(&at.to_be_bytes(), &row(100)).expect("a file");
                let (held, counted) = parts.held();
                assert!(held <= counted && counted <= BUFFERS_BYTES + (64 << 10), "{held} of {counted} after {at}");
            }
            let (_, before) = parts.held();
            // One large row for each part.
            for at in 0..1_000_u32 {
                parts.push(&at.to_be_bytes(), &row(1 << 20)).expect("a file");
            }
            let (held, counted) = parts.held();
            assert!(held <= counted && counted <= before + (4 << 20), "{held} of {counted}");
        });
    }

    #[test]
    fn without_memory_for_buffers_rows_go_to_the_file_at_once() {
        with_run(Some(1), |run| {
            let mut others = run.memory();
            while others.take_bytes(1 << 10).is_ok() {}
            let mut parts = Parts::new(run, 0, &mut run.room_for_parts()).expect("a file");
            others.give(64 << 10);
            for at in 0..100_u32 {
                parts.push(&at.to_be_bytes(), &[Value::Text("x".repeat(4_000))]).expect("a file");
            }
            let parts = parts.finish(run, ("", 0)).expect("a file");
            let mut all = Vec::new();
            for part in parts {
                let mut rows = part.into_rows();
                while let Some(row) = rows.next().expect("what was written") {
                    all.push(row);
                }
            }
            assert_eq!(all.len(), 100);
        });
    }
}
