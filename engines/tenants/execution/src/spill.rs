//! What the steps of a plan do with rows that they have no memory for: they put them into files, as [`tape`]s, one row behind the other.
//!
//! Files are written and read where the statement runs. So a statement that comes to its first file gives way first, and runs again where
//! it is in nobody's way but its own tenant's.

mod parts;
mod shelf;
mod spool;
mod tape;

use std::sync::Arc;

use savanna_tenants_store::spills::{SpillFile, Spills};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::Memory,
};

pub(crate) use self::{
    parts::{BUFFERS_BYTES, Parts, SPLITS_MAX},
    spool::{Spooling, keeping},
    tape::{EXTENT_BYTES, Reading, Tape, TapeRows},
};
pub use self::{
    shelf::{Shelf, SpoolRows},
    spool::Spool,
};
use crate::{Run, explain::Part};

/// The memory of a step that puts its rows into files when there is no room.
pub(crate) struct Room<'r> {
    memory: Memory<'r>,
    /// What the buffers of its parts will take, as soon as it has so much that it may need them: later there may be none.
    buffers: Option<Memory<'r>>,
    /// Rows that it keeps.
    rows: usize,
    spills: Option<&'r Spills>,
}

impl<'r> Room<'r> {
    /// Whether there is room for something that takes so many bytes, which are taken then. If not, whoever asks is to put what it has into a file.
    pub(crate) fn takes(&mut self, bytes: usize) -> Result<bool> {
        let Some(spills) = self.spills else { return self.must_take(bytes).map(|()| true) };
        if spills.rows_max().is_some_and(|most| self.rows >= most) {
            return Ok(false);
        }
        let has = self.memory.bytes() + bytes;
        if let Some(buffers) = &mut self.buffers
            && !buffers.is_used()
            && has >= BUFFERS_BYTES
            && buffers.take_bytes(BUFFERS_BYTES).is_err()
        {
            return Ok(false);
        }
        let takes = self.memory.take_if_roomy(bytes)?;
        self.rows += usize::from(takes);
        Ok(takes)
    }

    /// Takes what cannot be anywhere else.
    pub(crate) fn must_take(&mut self, bytes: usize) -> Result<()> {
        self.rows += 1;
        self.memory.take_bytes(bytes)
    }

    /// Takes more for what it has already.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        self.memory.take_bytes(bytes)
    }

    /// It keeps no row any more.
    pub(crate) fn clear(&mut self) {
        self.memory.give_back();
        self.rows = 0;
    }

    /// Gives to others what it does not need any more since it has put rows into a file.
    pub(crate) fn share_rest(&self) {
        self.memory.share_rest();
    }

    /// What the buffers of its parts may take.
    fn take_buffers(&mut self) -> Memory<'r> {
        self.buffers.take().unwrap_or_else(|| self.memory.another())
    }

    /// What it has taken, without a way to put it elsewhere.
    pub(crate) fn into_memory(self) -> Memory<'r> {
        self.memory
    }
}

impl Run<'_> {
    /// Memory for the rows of a step that can put them into files.
    pub(crate) fn room(&self) -> Room<'_> {
        Room { memory: self.memory(), buffers: None, rows: 0, spills: self.spills.as_deref() }
    }

    /// The same for one that puts them into [`Parts`].
    pub(crate) fn room_for_parts(&self) -> Room<'_> {
        Room { buffers: Some(self.memory()), ..self.room() }
    }

    /// A file for rows. The error says that the statement gives way first, if it can.
    pub(crate) fn spill_file(&self) -> Result<Arc<SpillFile>> {
        self.give_way_to_spill()?;
        match &self.spills {
            Some(spills) => spills.file().map(Arc::new),
            None => Err(SqlError::internal("rows are put into files, and there is no folder")),
        }
    }

    /// Notes for `EXPLAIN ANALYZE` what a step has put into files.
    pub(crate) fn note_spilled(&self, part: Part, bytes: u64) {
        if let Some(counts) = &self.counts {
            counts.spilled(part, bytes);
        }
    }
}

/// The numbers of what cannot be read back.
#[cold]
fn damaged(what: impl std::fmt::Display) -> SqlError {
    SqlError::internal(format_args!("rows that a statement had put into a file came back otherwise: {what}"))
}
