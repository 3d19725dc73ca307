//! The form of a state, and of the changes of one: a header that says what the rows are, then Arrow IPC streams, one for each kind of rows.
//!
//! ```text
//!   "SVNSTATE" | version u32 | length of the header u32 | header, JSON | for each kind: Arrow IPC stream | "SVNSTATE"
//! ```
//!
//! A piece of many bytes is written as several batches, so that none of them takes much memory; it is one again when it is read. Numbers
//! are little-endian. A whole state has version 1, and changes have version 2: they are not taken for one another.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::UInt32Type;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use super::{Changes, PieceId, State, Table, Tie, bytes_of};
use savanna_streams_functions::without_shared_strings;

const MAGIC: &[u8; 8] = b"SVNSTATE";
const VERSION: u32 = 1;
const VERSION_OF_CHANGES: u32 = 2;
/// Rows that take more bytes than this are written as several batches: a batch is encoded as a whole.
pub(crate) const BATCH_BYTES: usize = 4 << 20;
/// The stream of the rows that are marked now.
const MARKED: &str = "marked";
/// Stands before the length of each message.
const CONTINUATION: u32 = u32::MAX;

#[derive(Serialize, Deserialize)]
struct Header {
    marks: BTreeMap<String, i64>,
    kinds: Vec<Kind>,
    /// Of changes: the pieces that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<PieceId>,
    /// Of changes: the pieces of which rows are marked now. Their numbers come last, as one more stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    marked: Vec<PieceId>,
    /// Of changes: the checksum of the state that they follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    follows: Option<u32>,
    /// The checksum of the state, or of that which the changes give, if all of it is pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gives: Option<u32>,
}

/// The batches of one stream.
#[derive(Serialize, Deserialize)]
struct Kind {
    name: String,
    at: Vec<[i64; 2]>,
    /// Their numbers, if all of them are pieces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<PieceId>,
    /// How many batches each has, if some have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    batches: Vec<usize>,
    /// Whether the last column says which rows are marked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_marks: bool,
}

/// Writes a state.
///
/// # Errors
/// As `out`.
pub fn write_state(state: &State, out: &mut dyn Write) -> io::Result<()> {
    write_in_batches(state, BATCH_BYTES, out)
}

/// As [`write_state`], in batches of about so many bytes.
fn write_in_batches(state: &State, batch_bytes: usize, out: &mut dyn Write) -> io::Result<()> {
    let header = |kinds| Header {
        marks: state.marks.clone(),
        kinds,
        gone: Vec::new(),
        marked: Vec::new(),
        follows: None,
        gives: state.sum(),
    };
    write_form(VERSION, &state.tables, batch_bytes, header, &[], out)
}

/// Writes the changes of a state.
///
/// # Errors
/// As `out`.
pub fn write_changes(changes: &Changes, out: &mut dyn Write) -> io::Result<()> {
    let Changes { marks, gone, tables, marked, follows, gives } = changes;
    let header = |kinds| Header {
        marks: marks.clone(),
        kinds,
        gone: gone.clone(),
        marked: marked.iter().map(|(piece, _)| *piece).collect(),
        follows: Some(*follows),
        gives: Some(*gives),
    };
    let rows = |rows: &UInt32Array| RecordBatch::try_from_iter([(MARKED, Arc::new(rows.clone()) as ArrayRef)]);
    let marked = marked.iter().map(|(_, marked)| rows(marked)).collect::<Result<Vec<_>, _>>();
    write_form(VERSION_OF_CHANGES, tables, BATCH_BYTES, header, &marked.map_err(io::Error::other)?, out)
}

fn write_form(
    version: u32,
    tables: &[Table],
    batch_bytes: usize,
    header: impl FnOnce(Vec<Kind>) -> Header,
    marked: &[RecordBatch],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut kinds: Vec<(&str, Vec<&Table>)> = Vec::new();
    for table in tables {
        match kinds.iter_mut().find(|(name, _)| *name == table.name) {
            Some((_, tables)) => tables.push(table),
            None => kinds.push((&table.name, vec![table])),
        }
    }
    let kind = |(name, tables): &(&str, Vec<&Table>)| Kind {
        name: (*name).to_owned(),
        at: tables.iter().map(|table| table.at).collect(),
        pieces: tables.iter().map(|table| table.piece).collect::<Option<_>>().unwrap_or_default(),
        batches: numbers_of_batches(tables, batch_bytes),
        has_marks: tables.iter().all(|table| table.has_marks),
    };
    check_numbers(tables.iter().filter_map(|table| table.piece)).map_err(io::Error::other)?;
    let header = serde_json::to_vec(&header(kinds.iter().map(kind).collect())).map_err(io::Error::other)?;
    out.write_all(MAGIC)?;
    out.write_all(&version.to_le_bytes())?;
    out.write_all(&u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes())?;
    out.write_all(&header)?;
    for (_, tables) in &kinds {
        stream(tables.iter().map(|table| &table.rows), batch_bytes, out).map_err(io::Error::other)?;
    }
    // One for each piece.
    stream(marked.iter(), usize::MAX, out).map_err(io::Error::other)?;
    // A stream may end between any two messages.
    out.write_all(MAGIC)
}

/// Whether each number is there once: of two pieces with one, a state that is read has the last alone.
fn check_numbers(mut pieces: impl Iterator<Item = PieceId>) -> Result<(), String> {
    let mut numbers = BTreeSet::new();
    match pieces.find(|piece| !numbers.insert(*piece)) {
        None => Ok(()),
        Some(PieceId(number)) => Err(format!("expected pieces with a number each, got two with {number}")),
    }
}

/// Nothing if there are no rows.
fn stream<'r>(
    tables: impl Iterator<Item = &'r RecordBatch>,
    batch_bytes: usize,
    out: &mut dyn Write,
) -> Result<(), ArrowError> {
    let mut tables = tables.peekable();
    let Some(schema) = tables.peek().map(|rows| rows.schema()) else { return Ok(()) };
    let mut writer = StreamWriter::try_new(out, &schema)?;
    for rows in tables {
        for part in parts(rows, batch_bytes) {
            // Of a text that shares a buffer with others, the whole buffer would be written.
            let part = without_shared_strings(&part_of(rows, part)?);
            let part = part.map_err(|e| ArrowError::ComputeError(e.to_string()))?;
            writer.write(&part.with_schema(Arc::clone(&schema))?)?;
        }
    }
    writer.finish()
}

/// How many batches each of these has; nothing if all have one.
fn numbers_of_batches(tables: &[&Table], batch_bytes: usize) -> Vec<usize> {
    let numbers: Vec<usize> = tables.iter().map(|table| parts(&table.rows, batch_bytes).count()).collect();
    if numbers.iter().all(|number| *number == 1) { Vec::new() } else { numbers }
}

/// The rows of each batch that these are written as.
fn parts(rows: &RecordBatch, batch_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.num_rows();
    let parts = bytes_of(rows.columns()).div_ceil(batch_bytes).clamp(1, count.max(1));
    let each = count.div_ceil(parts).max(1);
    let parts = count.div_ceil(each).max(1);
    (0..parts).map(move |part| part * each..((part + 1) * each).min(count))
}

fn part_of(rows: &RecordBatch, part: Range<usize>) -> Result<RecordBatch, ArrowError> {
    let is_nested = rows.schema_ref().fields().iter().any(|field| field.data_type().is_nested());
    if is_nested && part.len() < rows.num_rows() {
        // A part of lists would take all of their values along.
        return take_record_batch(rows, &UInt32Array::from_iter_values(part.start as u32..part.end as u32));
    }
    Ok(rows.slice(part.start, part.len()))
}

/// Reads what [`write_state`] wrote.
///
/// # Errors
/// What was expected and what came; the caller knows where.
pub fn read_state(bytes: &[u8]) -> Result<State, String> {
    let (header, tables, marked) = read_form(VERSION, "a state", bytes)?;
    if header.follows.is_some() || !header.gone.is_empty() || !marked.is_empty() {
        return Err("expected a whole state, got one that says what it follows".into());
    }
    let state = State { marks: header.marks, tables };
    header.gives.map_or(Ok(()), |gives| state.check(gives))?;
    Ok(state)
}

/// Reads what [`write_changes`] wrote.
///
/// # Errors
/// What was expected and what came; the caller knows where.
pub fn read_changes(bytes: &[u8]) -> Result<Changes, String> {
    let (header, tables, marked) = read_form(VERSION_OF_CHANGES, "changes of a state", bytes)?;
    let rows = |rows: RecordBatch| {
        let rows = rows.columns().first().and_then(|rows| rows.as_primitive_opt::<UInt32Type>().cloned());
        rows.ok_or("expected the numbers of rows that are marked now, got something else")
    };
    let marked = marked.into_iter().map(rows).collect::<Result<Vec<_>, _>>()?;
    let (Some(follows), Some(gives)) = (header.follows, header.gives) else {
        return Err("expected the checksums of the states before and behind changes, got none".into());
    };
    Ok(Changes {
        marks: header.marks,
        gone: header.gone,
        tables,
        marked: header.marked.into_iter().zip(marked).collect(),
        follows,
        gives,
    })
}

/// What a form has: its header, its rows, and the numbers of those that are marked now.
fn read_form(expected: u32, what: &str, bytes: &[u8]) -> Result<(Header, Vec<Table>, Vec<RecordBatch>), String> {
    let mut rest = bytes;
    let magic = take(&mut rest, MAGIC.len())?;
    if magic != MAGIC {
        return Err(format!("expected {what}, which begins with {:?}, got {magic:?}", String::from_utf8_lossy(MAGIC)));
    }
    let version = number(&mut rest)?;
    if version != expected {
        return Err(format!(
            "expected {what} of version {expected}, got version {version}; start the release that wrote it"
        ));
    }
    let length = number(&mut rest)? as usize;
    let header: Header =
        serde_json::from_slice(take(&mut rest, length)?).map_err(|e| format!("expected the header of {what}: {e}"))?;
    let mut all = Vec::new();
    for kind in &header.kinds {
        let one_each = vec![1; kind.at.len()];
        let numbers = if kind.batches.is_empty() { &one_each } else { &kind.batches };
        if numbers.len() != kind.at.len() || ![0, kind.at.len()].contains(&kind.pieces.len()) {
            let (numbers, pieces) = (numbers.len(), kind.pieces.len());
            return Err(format!("expected {} rows of {}, got {numbers} and {pieces}", kind.at.len(), kind.name));
        }
        let batches = batches(&mut rest, numbers).map_err(|e| format!("expected rows of {}: {e}", kind.name))?;
        let pieces = kind.pieces.iter().copied().map(Some).chain(std::iter::repeat(None));
        let has_marks = kind.has_marks;
        let table =
            |((rows, at), piece)| Table { name: kind.name.clone(), at, rows, piece, has_marks, tie: Tie::default() };
        all.extend(batches.into_iter().zip(kind.at.iter().copied()).zip(pieces).map(table));
    }
    check_numbers(header.kinds.iter().flat_map(|kind| kind.pieces.iter().copied()))?;
    let marked = match header.marked.len() {
        0 => Vec::new(),
        pieces => batches(&mut rest, &vec![1; pieces])
            .map_err(|e| format!("expected numbers of rows that are marked now: {e}"))?,
    };
    if take(&mut rest, MAGIC.len())? != MAGIC {
        return Err(format!("expected the end of {what}, got something else"));
    }
    if rest.is_empty() {
        Ok((header, all, marked))
    } else {
        Err(format!("expected the end of {what}, got {} more bytes", rest.len()))
    }
}

/// The batches of a stream, so many of which are one.
fn batches(rest: &mut &[u8], numbers: &[usize]) -> Result<Vec<RecordBatch>, ArrowError> {
    check_lengths(rest)?;
    let read = || {
        let mut reader = StreamReader::try_new(rest, None)?;
        let read = numbers.iter().map(|number| joined(&mut reader, *number)).collect::<Result<_, ArrowError>>()?;
        match reader.next() {
            None => Ok(read),
            Some(_) => {
                Err(ArrowError::IpcError(format!("expected {} batches, got more", numbers.iter().sum::<usize>())))
            }
        }
    };
    // Its reader panics where an array lies outside of its message.
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ArrowError::IpcError("expected rows of Arrow, got something else".into())))
}

/// The next batches as one that holds no memory but its own: each column of a batch that is read holds all of its message.
fn joined(reader: &mut StreamReader<&mut &[u8]>, number: usize) -> Result<RecordBatch, ArrowError> {
    let schema = reader.schema();
    let mut read = reader.take(number).collect::<Result<Vec<_>, _>>()?;
    if read.len() != number || number == 0 {
        return Err(ArrowError::IpcError(format!("expected {number} batches of one piece, got {}", read.len())));
    }
    // Of a single batch nothing would be copied.
    read.push(RecordBatch::new_empty(Arc::clone(&schema)));
    without_shared_strings(&concat_batches(&schema, &read)?).map_err(|e| ArrowError::ComputeError(e.to_string()))
}

/// Whether all that a stream says of lengths is there: its reader takes memory for what is said. Texts that are longer than they were
/// written, because they are compressed, are in none of them.
fn check_lengths(mut rest: &[u8]) -> Result<(), ArrowError> {
    let failed = |cause: String| ArrowError::IpcError(cause);
    loop {
        let mut length = number(&mut rest).map_err(failed)?;
        if length == CONTINUATION {
            length = number(&mut rest).map_err(failed)?;
        }
        if length == 0 {
            return Ok(());
        }
        // Its numbers lie at multiples of their size.
        let message = take(&mut rest, length as usize).map_err(failed)?.to_vec();
        let message = root_as_message(&message).map_err(|e| failed(format!("expected a message: {e}")))?;
        let rows = message.header_as_record_batch();
        let rows = rows.or_else(|| message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data()));
        if rows.is_some_and(|rows| rows.compression().is_some()) {
            return Err(failed("expected rows that are not compressed".into()));
        }
        let body = usize::try_from(message.bodyLength()).map_err(|e| failed(e.to_string()))?;
        take(&mut rest, body).map_err(failed)?;
    }
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Result<&'b [u8], String> {
    let (taken, left) = rest.split_at_checked(length).ok_or_else(|| ended(length, rest.len()))?;
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[u8]) -> Result<u32, String> {
    let bytes = take(rest, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn ended(expected: usize, got: usize) -> String {
    format!("expected {expected} more bytes of a state, got {got}")
}

#[cfg(test)]
mod tests;
