//! Rows in a file, one behind the other. Several tapes may be in one file: each has extents of it, which are read and written as a whole.

use std::{ops::Range, sync::Arc};

use savanna_tenants_store::spills::SpillFile;
use savanna_tenants_values::{
    error::Result,
    memory::{Memory, row_bytes},
    value::Value,
};

use super::damaged;
use crate::Run;

/// Bytes of rows that are written at once; more only if a single row has more.
pub(crate) const EXTENT_BYTES: usize = 64 << 10;
/// Bytes that the rows of an extent take in memory: small ones take many times as much there.
const ROWS_BYTES: usize = 512 << 10;
/// A buffer begins with so many, and doubles until it has those of an extent.
const BUFFER_BYTES_MIN: usize = EXTENT_BYTES >> 6;
/// A buffer that has come to be larger is not kept for the next rows.
const BUFFER_BYTES: usize = 2 * EXTENT_BYTES;

/// Rows in a file. None can be added any more when it was ended.
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    file: Arc<SpillFile>,
    /// Shared by all who read them.
    extents: Arc<Vec<Extent>>,
    /// Rows that are in no extent yet, and what they take in memory.
    buffer: Vec<u8>,
    loose: usize,
    rows: usize,
    /// Whether all of them are known to be equal by what they were parted by.
    pub(super) alike: bool,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The number of its first row, and of the one behind its last.
    rows: (usize, usize),
    at: u64,
    bytes: usize,
    /// What its rows take in memory.
    loose: usize,
}

impl Tape {
    pub(crate) fn new(file: &Arc<SpillFile>) -> Self {
        Self { file: Arc::clone(file), extents: Arc::default(), buffer: Vec::new(), loose: 0, rows: 0, alike: false }
    }

    pub(crate) fn push(&mut self, row: &[Value]) -> Result<()> {
        let before = self.buffer.len();
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.capacity() == 0 {
            buffer.reserve_exact(BUFFER_BYTES_MIN);
        }
        self.buffer = postcard::to_extend(row, buffer).map_err(damaged)?;
        self.rows += 1;
        self.loose += row_bytes(row);
        // Before another one like this makes the buffer twice as large.
        let next = 2 * self.buffer.len() - before;
        if next > EXTENT_BYTES || self.loose >= ROWS_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what is in no extent.
    fn flush(&mut self) -> Result<()> {
        let first = self.extents.last().map_or(0, |extent| extent.rows.1);
        if first < self.rows {
            let at = self.file.append(&self.buffer)?;
            let (bytes, loose) = (self.buffer.len(), std::mem::take(&mut self.loose));
            Arc::make_mut(&mut self.extents).push(Extent { rows: (first, self.rows), at, bytes, loose });
            self.buffer.clear();
            if self.buffer.capacity() > BUFFER_BYTES {
                self.buffer = Vec::new();
            }
        }
        Ok(())
    }

    /// Writes all rows and keeps no buffer for those that may still come.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }

    /// Bytes of memory that it takes itself.
    pub(crate) fn held(&self) -> usize {
        self.buffer.capacity() + self.extents.capacity() * size_of::<Extent>()
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Whether it is of no use to part them again: all are equal.
    pub(crate) fn is_alike(&self) -> bool {
        self.alike
    }

    /// Bytes of its rows in the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes as u64).sum()
    }

    /// Bytes of its largest extent.
    pub(crate) fn extent_bytes(&self) -> usize {
        self.extents.iter().map(|extent| extent.bytes).max().unwrap_or(0)
    }

    /// What the rows of an extent take in memory at most.
    pub(crate) fn loose_bytes(&self) -> usize {
        self.extents.iter().map(|extent| extent.loose).max().unwrap_or(0)
    }

    fn read(&self, extent: Extent, bytes: &mut Vec<u8>) -> Result<()> {
        if bytes.capacity() > BUFFER_BYTES.max(extent.bytes) {
            *bytes = Vec::new();
        }
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
        let all = 0..self.rows;
        self.into_part(all, false)
    }

    /// Some of its rows, perhaps the last one first.
    pub(crate) fn into_part(self, left: Range<usize>, backwards: bool) -> TapeRows {
        debug_assert!(self.buffer.is_empty(), "it was ended");
        TapeRows { tape: self, left, backwards, bytes: Vec::new(), at: 0, behind: 0, back: Vec::new() }
    }
}

/// Rows of a tape, read as they are wanted.
#[derive(Debug)]
pub(crate) struct TapeRows {
    tape: Tape,
    /// The numbers of those that are still to come.
    left: Range<usize>,
    backwards: bool,
    /// The extent of the row that comes next, and its place in it.
    bytes: Vec<u8>,
    at: usize,
    /// The number of the row behind that extent.
    behind: usize,
    /// On the way back: rows that were read, the next one last.
    back: Vec<Vec<Value>>,
}

impl TapeRows {
    /// How many rows are still to come.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// The rows that come next, so many at most, to be read by somebody else: they do not come here any more.
    pub(crate) fn split(&mut self, count: usize) -> Self {
        let Range { start, end } = self.left;
        let count = count.min(self.left.len());
        let part = if self.backwards { end - count..end } else { start..start + count };
        self.left = if self.backwards { start..part.start } else { part.end..end };
        (self.bytes, self.at, self.back) = (Vec::new(), 0, Vec::new());
        self.tape.clone().into_part(part, self.backwards)
    }

    /// The rows of what is left of an extent, none at the end.
    pub(crate) fn extent(&mut self) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next()? {
            rows.push(row);
            if self.at == self.bytes.len() && self.back.is_empty() {
                break;
            }
        }
        Ok(rows)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Vec<Value>>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        if self.backwards {
            if self.back.is_empty() {
                self.read_back()?;
            }
            self.left.end -= 1;
            return Ok(self.back.pop());
        }
        if self.at == self.bytes.len() {
            self.read_on()?;
        }
        let row = self.decode()?;
        self.left.start += 1;
        if self.left.start == self.behind && self.at < self.bytes.len() {
            return Err(damaged(format_args!("more rows than {}", self.behind)));
        }
        Ok(Some(row))
    }

    /// Reads the extent of the next row, up to that.
    fn read_on(&mut self) -> Result<()> {
        let extent = self.tape.extents.get(self.tape.extent_of(self.left.start));
        let extent = *extent.ok_or_else(|| damaged(format_args!("no row {}", self.left.start)))?;
        self.tape.read(extent, &mut self.bytes)?;
        (self.at, self.behind) = (0, extent.rows.1);
        for _ in extent.rows.0..self.left.start {
            self.decode()?;
        }
        Ok(())
    }

    fn decode(&mut self) -> Result<Vec<Value>> {
        let (row, behind) = postcard::take_from_bytes(&self.bytes[self.at..]).map_err(damaged)?;
        self.at = self.bytes.len() - behind.len();
        Ok(row)
    }

    /// Reads the rows of the extent of the last one that is still to come.
    fn read_back(&mut self) -> Result<()> {
        let last = self.left.end - 1;
        let read = self.tape.extent(self.tape.extent_of(last))?;
        let (first, mut rows) = read.ok_or_else(|| damaged(format_args!("no row {last}")))?;
        rows.truncate(self.left.end - first);
        rows.drain(..self.left.start.saturating_sub(first));
        self.back = rows;
        Ok(())
    }
}

/// The rows of a part that a statement works on: one after the other, as long as the statement goes on.
pub(crate) struct Reading<'r, 'a> {
    run: &'r Run<'a>,
    rows: TapeRows,
    _buffer: Memory<'r>,
}

impl<'r, 'a> Reading<'r, 'a> {
    pub(crate) fn new(run: &'r Run<'a>, tape: Tape) -> Result<Self> {
        let mut buffer = run.memory();
        buffer.take_bytes(tape.extent_bytes())?;
        Ok(Self { run, rows: tape.into_rows(), _buffer: buffer })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Vec<Value>>> {
        self.run.goes_on()?;
        self.rows.next()
    }
}
