//! Rows that are kept until somebody wants them again, in the order in which they came: in memory, or on a tape.

use std::{cell::RefCell, ops::ControlFlow, sync::Arc};

use savanna_tenants_sql::expression::rows::Take;
use savanna_tenants_store::spills::Spills;
use savanna_tenants_values::{
    error::Result,
    memory::{Memory, row_bytes},
    value::Value,
};

use super::{Room, Tape, TapeRows};
use crate::{Run, explain::Part};

/// Extents whose rows stay in memory when single rows are asked for.
const EXTENTS_KEPT: usize = 4;

/// The rows of an extent, with its number.
type Extent = (usize, usize, Vec<Vec<Value>>);

/// Rows that are kept.
#[derive(Clone, Debug, Default)]
pub struct Spool {
    rows: Vec<Vec<Value>>,
    tape: Option<Tape>,
    /// The extents that were read last, the newest first.
    read: RefCell<Vec<Extent>>,
}

/// Rows that are given, each once: as errors those that could not be read from the file.
#[derive(Debug, Default)]
pub struct SpoolRows {
    rows: std::vec::IntoIter<Vec<Value>>,
    tape: Option<TapeRows>,
}

impl Iterator for SpoolRows {
    type Item = Result<Vec<Value>>;

    fn next(&mut self) -> Option<Self::Item> {
        match (self.rows.next(), &mut self.tape) {
            (Some(row), _) => Some(Ok(row)),
            (None, Some(tape)) => tape.next().transpose(),
            (None, None) => None,
        }
    }
}

impl SpoolRows {
    /// How many rows are still to come.
    pub fn left(&self) -> usize {
        self.rows.len() + self.tape.as_ref().map_or(0, TapeRows::left)
    }

    /// Whether they are read from a file.
    pub fn is_filed(&self) -> bool {
        self.tape.is_some()
    }

    /// The rows that need no file, without having been given.
    pub fn kept(&self) -> &[Vec<Value>] {
        self.rows.as_slice()
    }

    /// Some of the rows that are still to come, none at the end. A file is read for no more than these.
    ///
    /// # Errors
    /// 58030.
    pub fn some(&mut self) -> Result<Vec<Vec<Value>>> {
        match &mut self.tape {
            None => Ok(std::mem::take(&mut self.rows).collect()),
            Some(tape) => tape.extent(),
        }
    }
}

impl From<Vec<Vec<Value>>> for Spool {
    fn from(rows: Vec<Vec<Value>>) -> Self {
        Self { rows, ..Self::default() }
    }
}

impl From<Spool> for SpoolRows {
    fn from(spool: Spool) -> Self {
        spool.into_rows()
    }
}

impl From<Vec<Vec<Value>>> for SpoolRows {
    fn from(rows: Vec<Vec<Value>>) -> Self {
        Spool::from(rows).into_rows()
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
    /// 53100 if the disk is full, 58030.
    pub fn put_away(&mut self, spills: &Arc<Spills>) -> Result<()> {
        if self.tape.is_none() {
            let mut tape = Tape::new(&Arc::new(spills.file()?));
            self.rows.drain(..).try_for_each(|row| tape.push(&row))?;
            tape.end()?;
            self.tape = Some(tape);
        }
        Ok(())
    }

    /// Appends a value to each of the rows, which are in memory.
    pub(crate) fn append(&mut self, values: Vec<Value>) {
        debug_assert!(self.tape.is_none(), "they are in memory");
        for (row, value) in self.rows.iter_mut().zip(values) {
            row.push(value);
        }
    }

    /// About how many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row_bytes(row)).sum()
    }

    /// The rows, each once.
    pub fn into_rows(self) -> SpoolRows {
        SpoolRows { rows: self.rows.into_iter(), tape: self.tape.map(Tape::into_rows) }
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
        match read.iter().position(|(other, ..)| *other == number) {
            Some(place) => read[..=place].rotate_right(1),
            None => {
                let (first, rows) = tape.extent(number)?.unwrap_or_default();
                read.truncate(EXTENTS_KEPT - 1);
                read.insert(0, (number, first, rows));
            }
        }
        let (_, first, rows) = &read[0];
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
