//! Rows that a step keeps until it wants them again, in the order in which they came: in memory, or on a tape.

use std::{cell::RefCell, ops::ControlFlow, sync::Arc};

use savanna_tenants_sql::expression::rows::Take;
use savanna_tenants_store::spills::Spills;
use savanna_tenants_values::{
    error::Result,
    memory::{Memory, row_bytes},
    value::Value,
};

use super::{EXTENT_BYTES, Room, SpoolRows, Tape};
use crate::{Run, explain::Part};

/// Extents whose rows stay in memory when single rows are asked for.
const EXTENTS_KEPT: usize = 4;
/// Beside the newest of them, these take so many bytes at most.
const KEPT_BYTES: usize = 2 << 20;

/// The rows of an extent, its number, and that of its first row.
#[derive(Clone, Debug)]
struct Extent {
    number: usize,
    first: usize,
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

/// Rows that are kept.
#[derive(Clone, Debug, Default)]
pub struct Spool {
    rows: Vec<Vec<Value>>,
    tape: Option<Tape>,
    /// The extents that were read last, the newest first.
    read: RefCell<Vec<Extent>>,
}

impl From<Vec<Vec<Value>>> for Spool {
    fn from(rows: Vec<Vec<Value>>) -> Self {
        Self { rows, ..Self::default() }
    }
}

impl Spool {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.tape.as_ref().map_or(self.rows.len(), Tape::len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are in a file.
    pub fn is_filed(&self) -> bool {
        self.tape.is_some()
    }

    /// Puts the rows into a file, if they are not in one.
    ///
    /// # Errors
    /// 53100 if the disk is full, 53400, 58030; that of `goes_on`, which is asked with every row.
    pub fn put_away(&mut self, spills: &Arc<Spills>, goes_on: impl Fn() -> Result<()>) -> Result<()> {
        if self.tape.is_none() {
            let mut tape = Tape::new(&Arc::new(spills.file()?));
            for row in std::mem::take(&mut self.rows) {
                goes_on()?;
                tape.push(&row)?;
            }
            tape.end()?;
            self.tape = Some(tape);
        }
        Ok(())
    }

    /// What single rows that are asked for take in memory at most, if they are in a file.
    pub(crate) fn near_bytes(&self) -> usize {
        self.tape.as_ref().map_or(0, |tape| tape.loose_bytes() + KEPT_BYTES)
    }

    /// Appends a value to each of the rows, which are in memory.
    pub(crate) fn append(&mut self, values: Vec<Value>) {
        debug_assert!(self.tape.is_none(), "they are in memory");
        for (row, value) in self.rows.iter_mut().zip(values) {
            row.reserve_exact(1);
            row.push(value);
        }
    }

    /// About how many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row_bytes(row)).sum()
    }

    /// The rows, each once.
    pub fn into_rows(self) -> SpoolRows {
        match self.tape {
            Some(tape) => SpoolRows::of_tape(tape.into_rows()),
            None => self.rows.into(),
        }
    }

    /// The rows in memory, or those in a file.
    pub(super) fn into_parts(self) -> (Vec<Vec<Value>>, Option<Tape>) {
        (self.rows, self.tape)
    }

    /// Gives all of its rows.
    pub(crate) fn each(&self, take: &mut Take<'_>) -> Result<()> {
        for row in &self.rows {
            if take(row.clone())?.is_break() {
                return Ok(());
            }
        }
        let Some(tape) = &self.tape else { return Ok(()) };
        let mut rows = tape.clone().into_rows();
        while let Some(row) = rows.next()? {
            if take(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Does something with one of its rows, and with no other one meanwhile.
    ///
    /// # Errors
    /// 58030.
    pub fn with<T>(&self, at: usize, work: impl FnOnce(&[Value]) -> T) -> Result<T> {
        let Some(tape) = &self.tape else { return Ok(work(&self.rows[at])) };
        let number = tape.extent_of(at);
        let mut read = self.read.borrow_mut();
        match read.iter().position(|extent| extent.number == number) {
            Some(place) => read[..=place].rotate_right(1),
            None => {
                read.truncate(EXTENTS_KEPT - 1);
                while read.iter().map(|extent| extent.bytes).sum::<usize>() > KEPT_BYTES {
                    read.pop();
                }
                let (first, rows) = tape.extent(number)?.unwrap_or_default();
                let bytes = rows.iter().map(|row| row_bytes(row)).sum();
                read.insert(0, Extent { number, first, rows, bytes });
            }
        }
        let Extent { first, rows, .. } = &read[0];
        Ok(work(&rows[at - first]))
    }
}

/// Rows that come to be kept.
pub(crate) struct Spooling<'r, 'a> {
    run: &'r Run<'a>,
    room: Room<'r>,
    spool: Spool,
    part: Part,
}

impl<'r, 'a> Spooling<'r, 'a> {
    pub(crate) fn new(run: &'r Run<'a>, part: Part) -> Self {
        Self { run, room: run.room(), spool: Spool::default(), part }
    }

    pub(crate) fn push(&mut self, row: Vec<Value>) -> Result<()> {
        if let Some(tape) = &mut self.spool.tape {
            return tape.push(&row);
        }
        if self.room.takes(row_bytes(&row))? {
            self.spool.rows.push(row);
            return Ok(());
        }
        let mut tape = Tape::new(&self.run.spill_file()?);
        for row in std::mem::take(&mut self.spool.rows) {
            self.run.goes_on_after(0)?;
            tape.push(&row)?;
        }
        tape.push(&row)?;
        self.room.clear();
        // A buffer for those that come.
        self.room.grow(EXTENT_BYTES)?;
        self.room.share_rest();
        self.spool.tape = Some(tape);
        Ok(())
    }

    /// How many rows came so far.
    pub(crate) fn len(&self) -> usize {
        self.spool.len()
    }

    /// The rows, and the memory that they hold.
    pub(crate) fn finish(mut self) -> Result<(Spool, Memory<'r>)> {
        if let Some(tape) = &mut self.spool.tape {
            tape.end()?;
            self.room.clear();
            self.room.share_rest();
            self.run.note_spilled(self.part, tape.bytes());
        }
        Ok((self.spool, self.room.into_memory()))
    }
}

/// Whom rows are given to that are kept.
pub(crate) fn keeping<'t>(
    spooling: &'t mut Spooling<'_, '_>,
) -> impl FnMut(Vec<Value>) -> Result<ControlFlow<()>> + 't {
    |row| {
        spooling.push(row)?;
        Ok(ControlFlow::Continue(()))
    }
}
