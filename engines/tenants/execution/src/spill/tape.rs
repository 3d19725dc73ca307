//! Rows in a file, one behind the other. Several tapes may be in one file: each has extents of it, which are read and written as a whole.

use std::sync::Arc;

use savanna_tenants_store::spills::SpillFile;
use savanna_tenants_values::{error::Result, value::Value};

use super::damaged;

/// Bytes of rows that are written at once; more only if a single row has more.
pub(crate) const EXTENT_BYTES: usize = 64 << 10;

/// Rows in a file. None can be added any more when it was ended.
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    file: Arc<SpillFile>,
    extents: Vec<Extent>,
    /// Rows that are in no extent yet.
    buffer: Vec<u8>,
    rows: usize,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The number of its first row, and of the one behind its last.
    rows: (usize, usize),
    at: u64,
    bytes: usize,
}

impl Tape {
    pub(crate) fn new(file: &Arc<SpillFile>) -> Self {
        Self { file: Arc::clone(file), extents: Vec::new(), buffer: Vec::new(), rows: 0 }
    }

    pub(crate) fn push(&mut self, row: &[Value]) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.buffer = postcard::to_extend(row, buffer).map_err(damaged)?;
        self.rows += 1;
        if self.buffer.len() >= EXTENT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what is in no extent.
    fn flush(&mut self) -> Result<()> {
        let first = self.extents.last().map_or(0, |extent| extent.rows.1);
        if first < self.rows {
            let at = self.file.append(&self.buffer)?;
            self.extents.push(Extent { rows: (first, self.rows), at, bytes: self.buffer.len() });
            self.buffer.clear();
        }
        Ok(())
    }

    /// No row comes any more.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Bytes of its rows in the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes as u64).sum()
    }

    /// Bytes of its largest extent.
    pub(crate) fn extent_bytes(&self) -> usize {
        self.extents.iter().map(|extent| extent.bytes).max().unwrap_or(0)
    }

    fn read(&self, extent: Extent, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        bytes.resize(extent.bytes, 0);
        self.file.read_at(extent.at, bytes)
    }

    /// The number of the extent that a row is in.
    pub(crate) fn extent_of(&self, row: usize) -> usize {
        self.extents.partition_point(|extent| extent.rows.1 <= row)
    }

    /// The rows of an extent, with the number of the first one; `None` behind the last extent.
    pub(crate) fn extent(&self, number: usize) -> Result<Option<(usize, Vec<Vec<Value>>)>> {
        let Some(extent) = self.extents.get(number) else { return Ok(None) };
        let mut bytes = Vec::new();
        self.read(*extent, &mut bytes)?;
        let (mut rest, mut rows) = (&bytes[..], Vec::with_capacity(extent.rows.1 - extent.rows.0));
        while !rest.is_empty() {
            let (row, behind) = postcard::take_from_bytes(rest).map_err(damaged)?;
            rows.push(row);
            rest = behind;
        }
        if rows.len() != extent.rows.1 - extent.rows.0 {
            return Err(damaged(format_args!("{} rows of {}", rows.len(), extent.rows.1 - extent.rows.0)));
        }
        Ok(Some((extent.rows.0, rows)))
    }

    /// Its rows, in the order in which they were added.
    pub(crate) fn into_rows(self) -> TapeRows {
        debug_assert!(self.buffer.is_empty(), "it was ended");
        TapeRows { tape: self, extent: 0, bytes: Vec::new(), at: 0, given: 0 }
    }
}

/// The rows of a tape, read as they are wanted.
#[derive(Debug)]
pub(crate) struct TapeRows {
    tape: Tape,
    /// The extent that comes next, and the one before it with the place in it.
    extent: usize,
    bytes: Vec<u8>,
    at: usize,
    given: usize,
}

impl TapeRows {
    /// How many rows are still to come.
    pub(crate) fn left(&self) -> usize {
        self.tape.rows - self.given
    }

    /// The rows of what is left of an extent, none at the end.
    pub(crate) fn extent(&mut self) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next()? {
            rows.push(row);
            if self.at == self.bytes.len() {
                break;
            }
        }
        Ok(rows)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Vec<Value>>> {
        if self.at == self.bytes.len() {
            let Some(extent) = self.tape.extents.get(self.extent) else {
                return match self.given == self.tape.rows {
                    true => Ok(None),
                    false => Err(damaged(format_args!("{} rows of {}", self.given, self.tape.rows))),
                };
            };
            self.tape.read(*extent, &mut self.bytes)?;
            (self.at, self.extent) = (0, self.extent + 1);
        }
        let (row, behind) = postcard::take_from_bytes(&self.bytes[self.at..]).map_err(damaged)?;
        self.at = self.bytes.len() - behind.len();
        self.given += 1;
        Ok(Some(row))
    }
}
