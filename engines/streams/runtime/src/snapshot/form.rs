//! The form of a part: a header that says what the rows are, then Arrow IPC streams, one for each kind of rows.
//!
//! ```text
//!   "SVNSTATE" | version u32 | length of the header u32 | header, JSON | for each kind: Arrow IPC stream | "SVNSTATE"
//! ```
//!
//! Numbers are little-endian.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use super::{State, Table};
use savanna_streams_functions::without_shared_strings;

const MAGIC: &[u8; 8] = b"SVNSTATE";
const VERSION: u32 = 1;
/// Stands before the length of each message.
const CONTINUATION: u32 = u32::MAX;

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
    kinds.iter().try_for_each(|(_, tables)| stream(tables, out).map_err(io::Error::other))?;
    // A stream may end between any two messages.
    out.write_all(MAGIC)
}

fn stream(tables: &[&Table], out: &mut dyn Write) -> Result<(), ArrowError> {
    let schema = tables[0].rows.schema();
    let mut writer = StreamWriter::try_new(out, &schema)?;
    for table in tables {
        // Of a text that shares a buffer with others, the whole buffer would be written.
        let rows = without_shared_strings(&table.rows).map_err(|e| ArrowError::ComputeError(e.to_string()))?;
        writer.write(&rows.with_schema(Arc::clone(&schema))?)?;
    }
    writer.finish()
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
        return Err(format!(
            "expected a state of version {VERSION}, got version {version}; start the release that wrote it"
        ));
    }
    let length = number(&mut rest)? as usize;
    let header: Header =
        serde_json::from_slice(take(&mut rest, length)?).map_err(|e| format!("expected the header of a state: {e}"))?;
    let mut state = State { marks: header.marks, tables: Vec::new() };
    for kind in header.kinds {
        let batches = batches(&mut rest).map_err(|e| format!("expected rows of {}: {e}", kind.name))?;
        if batches.len() != kind.at.len() {
            return Err(format!("expected {} batches of {}, got {}", kind.at.len(), kind.name, batches.len()));
        }
        let table = |(rows, at)| Table { name: kind.name.clone(), at, rows };
        state.tables.extend(batches.into_iter().zip(kind.at).map(table));
    }
    if take(&mut rest, MAGIC.len())? != MAGIC {
        return Err("expected the end of a state, got something else".into());
    }
    if rest.is_empty() { Ok(state) } else { Err(format!("expected the end of a state, got {} more bytes", rest.len())) }
}

fn batches(rest: &mut &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    check_lengths(rest)?;
    // Its reader panics where an array lies outside of its message.
    catch_unwind(AssertUnwindSafe(|| StreamReader::try_new(rest, None)?.collect()))
        .unwrap_or_else(|_| Err(ArrowError::IpcError("expected rows of Arrow, got something else".into())))
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
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::*;

    fn state() -> State {
        let rows = |from: i64| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter((from..from + 3).map(Some).chain([None])));
            let text = |i: i64| format!("a text that is too long for its view, number {i}");
            let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((from..from + 4).map(text)));
            RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("s", texts, true)]).unwrap()
        };
        let mut state = State { marks: [("closed".to_owned(), i64::MIN)].into(), tables: Vec::new() };
        state.put("panes", [1, 2], rows(0));
        state.put("others", [0; 2], rows(10).project(&[0]).unwrap());
        state.put("panes", [3, i64::MAX], rows(20).slice(1, 2));
        state
    }

    #[test]
    fn a_state_comes_back_as_it_was() {
        let mut bytes = Vec::new();
        write_state(&state(), &mut bytes).unwrap();
        let again = read_state(&bytes).unwrap();
        assert_eq!(again.marks, state().marks);
        for name in ["panes", "others"] {
            assert_eq!(again.of(name).collect::<Vec<_>>(), state().of(name).collect::<Vec<_>>());
        }
        let mut nothing = Vec::new();
        write_state(&State::default(), &mut nothing).unwrap();
        assert_eq!(read_state(&nothing).unwrap(), State::default());
        let mut long = Vec::new();
        let mut one = State::default();
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..9_000).map(|i| format!("{i:>40}"))));
        one.put("rows", [0; 2], RecordBatch::try_from_iter([("s", texts)]).unwrap().slice(0, 1));
        write_state(&one, &mut long).unwrap();
        assert!(long.len() < 4_000, "{} bytes of one row", long.len());
    }

    #[test]
    fn what_is_no_state_or_of_a_later_release_says_so() {
        let mut bytes = Vec::new();
        write_state(&state(), &mut bytes).unwrap();
        let error = |bytes: &[u8]| read_state(bytes).unwrap_err();
        assert!(error(b"something else").starts_with("expected a state, which begins with"));
        for end in 0..bytes.len() {
            error(&bytes[..end]);
        }
        let mut later = bytes.clone();
        later[8] = 2;
        assert!(error(&later).contains("got version 2"));
        bytes.push(0);
        assert!(error(&bytes).contains("1 more bytes"));
    }

    #[test]
    fn no_more_memory_is_taken_than_there_are_bytes() {
        let mut bytes = Vec::new();
        write_state(&state(), &mut bytes).unwrap();
        // The length of the first message of the first stream, and any number within it that may be the length of its rows.
        let header = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        let stream = 16 + header;
        assert_eq!(bytes[stream..stream + 4], CONTINUATION.to_le_bytes());
        let mut long = bytes.clone();
        long[stream + 4..stream + 8].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes());
        let error = read_state(&long).unwrap_err();
        assert!(error.contains("expected 2147483632 more bytes"), "{error}");
        let mut refused = 0;
        for at in (stream..bytes.len() - 8).step_by(8) {
            let mut long = bytes.clone();
            long[at..at + 8].copy_from_slice(&(1_i64 << 50).to_le_bytes());
            refused +=
                i32::from(read_state(&long).is_err_and(|error| error.contains(&format!("{} more bytes", 1_i64 << 50))));
        }
        assert!(refused > 0, "no length of rows was found");
    }

    /// The bytes that the first release with them wrote.
    #[test]
    fn states_of_version_1_are_read() {
        let bytes = include_bytes!("state-1.bin");
        let again = read_state(bytes).unwrap();
        assert_eq!(again.marks, state().marks);
        assert_eq!(again.of("panes").collect::<Vec<_>>(), state().of("panes").collect::<Vec<_>>());
    }
}
