//! The form of a part: a header that says what the rows are, then Arrow IPC streams, one for each kind of rows.
//!
//! ```text
//!   "SVNSTATE" | version u32 | length of the header u32 | header, JSON | for each kind: length u64 | Arrow IPC stream
//! ```
//!
//! Numbers are little-endian.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use super::{State, Table};
use crate::compact::without_shared_strings;

const MAGIC: &[u8; 8] = b"SVNSTATE";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    marks: BTreeMap<String, i64>,
    kinds: Vec<Kind>,
}

/// The batches of one stream.
#[derive(Serialize, Deserialize)]
struct Kind {
    name: String,
    at: Vec<[i64; 2]>,
}

/// Writes a state.
///
/// # Errors
/// As `out`.
pub fn write_state(state: &State, out: &mut dyn Write) -> io::Result<()> {
    let mut kinds: Vec<(&str, Vec<&Table>)> = Vec::new();
    for table in &state.tables {
        match kinds.iter_mut().find(|(name, _)| *name == table.name) {
            Some((_, tables)) => tables.push(table),
            None => kinds.push((&table.name, vec![table])),
        }
    }
    let kind = |(name, tables): &(&str, Vec<&Table>)| Kind {
        name: (*name).to_owned(),
        at: tables.iter().map(|table| table.at).collect(),
    };
    let header = Header { marks: state.marks.clone(), kinds: kinds.iter().map(kind).collect() };
    let header = serde_json::to_vec(&header).map_err(io::Error::other)?;
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes())?;
    out.write_all(&header)?;
    for (_, tables) in kinds {
        let stream = stream(&tables)?;
        out.write_all(&(stream.len() as u64).to_le_bytes())?;
        out.write_all(&stream)?;
    }
    Ok(())
}

fn stream(tables: &[&Table]) -> io::Result<Vec<u8>> {
    let schema = tables[0].rows.schema();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).map_err(io::Error::other)?;
    for table in tables {
        // Of a text that shares a buffer with others, the whole buffer would be written.
        let rows = without_shared_strings(&table.rows).map_err(io::Error::other)?;
        let rows = rows.with_schema(schema.clone()).map_err(io::Error::other)?;
        writer.write(&rows).map_err(io::Error::other)?;
    }
    writer.into_inner().map_err(io::Error::other)
}

/// Reads what [`write_state`] wrote.
///
/// # Errors
/// What was expected and what came; the caller knows where.
pub fn read_state(bytes: &[u8]) -> Result<State, String> {
    let mut rest = bytes;
    let magic = take(&mut rest, MAGIC.len())?;
    if magic != MAGIC {
        return Err(format!("expected a state, which begins with {:?}, got {magic:?}", String::from_utf8_lossy(MAGIC)));
    }
    let version = number(&mut rest)?;
    if version != VERSION {
        return Err(format!("expected a state of version {VERSION}, got version {version}; start the release that wrote it"));
    }
    let length = number(&mut rest)? as usize;
    let header: Header =
        serde_json::from_slice(take(&mut rest, length)?).map_err(|e| format!("expected the header of a state: {e}"))?;
    let mut state = State { marks: header.marks, tables: Vec::new() };
    for kind in header.kinds {
        let mut length = [0; 8];
        rest.read_exact(&mut length).map_err(|_| ended(8, 0))?;
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|e| e.to_string())?;
        let batches = batches(take(&mut rest, length)?).map_err(|e| format!("expected rows of {}: {e}", kind.name))?;
        if batches.len() != kind.at.len() {
            return Err(format!("expected {} batches of {}, got {}", kind.at.len(), kind.name, batches.len()));
        }
        let table = |(rows, at)| Table { name: kind.name.clone(), at, rows };
        state.tables.extend(batches.into_iter().zip(kind.at).map(table));
    }
    if rest.is_empty() { Ok(state) } else { Err(format!("expected the end of a state, got {} more bytes", rest.len())) }
}

fn batches(stream: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    StreamReader::try_new(stream, None)?.collect()
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
