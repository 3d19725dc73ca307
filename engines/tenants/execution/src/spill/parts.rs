//! Rows that are parted by what they are equal by: those that are equal are in one part, so that each part can be worked on by itself.

use std::hash::{DefaultHasher, Hash, Hasher};

use savanna_tenants_values::{error::Result, value::Value};

use super::Tape;
use crate::{Run, explain::Part};

/// Parts that rows come into at once.
const PARTS: u64 = 32;
/// A part that is still too large is parted again, so often at most: then all of its rows are equal, or somebody has chosen them well.
pub(crate) const SPLITS_MAX: u32 = 7;

/// Parts of rows, in one file.
pub(crate) struct Parts {
    tapes: Vec<Tape>,
    /// How often the rows were parted before.
    level: u32,
}

impl Parts {
    pub(crate) fn new(run: &Run<'_>, level: u32) -> Result<Self> {
        let file = run.spill_file()?;
        Ok(Self { tapes: (0..PARTS).map(|_| Tape::new(&file)).collect(), level })
    }

    /// Adds a row that is told from others by these bytes.
    pub(crate) fn push(&mut self, key: &[u8], row: &[Value]) -> Result<()> {
        // At each level by other bits, or one part would be one part again.
        let mut hasher = DefaultHasher::new();
        (self.level, key).hash(&mut hasher);
        self.tapes[(hasher.finish() % PARTS) as usize].push(row)
    }

    /// All parts, also those without rows: the same key is in the same place of two of the same level.
    pub(crate) fn finish(mut self, run: &Run<'_>, part: Part) -> Result<Vec<Tape>> {
        self.tapes.iter_mut().try_for_each(Tape::end)?;
        run.note_spilled(part, self.tapes.iter().map(Tape::bytes).sum());
        Ok(self.tapes)
    }
}
