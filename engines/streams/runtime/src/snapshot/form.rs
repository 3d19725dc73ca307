//! The form of a state, and of the changes of one: a header that says what the rows are, then Arrow IPC streams, one for each kind of rows.
//!
//! ```text
//!   "SVNSTATE" | version u32 | length of the header u32 | header, JSON | for each kind: Arrow IPC stream | "SVNSTATE"
//! ```
//!
//! Numbers are little-endian. A whole state has version 1, and changes have version 2: they are not taken for one another.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, UInt32Array};
use arrow::datatypes::UInt32Type;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use super::{Changes, PieceId, State, Table};
use savanna_streams_functions::without_shared_strings;

const MAGIC: &[u8; 8] = b"SVNSTATE";
const VERSION: u32 = 1;
const VERSION_OF_CHANGES: u32 = 2;
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
    /// Whether the last column says which rows are marked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_marks: bool,
}

/// Writes a state.
///
/// # Errors
/// As `out`.
pub fn write_state(state: &State, out: &mut dyn Write) -> io::Result<()> {
    let header = |kinds| Header {
        marks: state.marks.clone(),
        kinds,
        gone: Vec::new(),
        marked: Vec::new(),
        follows: None,
        gives: state.sum(),
    };
    write_form(VERSION, &state.tables, header, &[], out)
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
    write_form(VERSION_OF_CHANGES, tables, header, &marked.map_err(io::Error::other)?, out)
}

fn write_form(
    version: u32,
    tables: &[Table],
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
        has_marks: tables.iter().all(|table| table.has_marks),
    };
    check_numbers(tables.iter().filter_map(|table| table.piece)).map_err(io::Error::other)?;
    let header = serde_json::to_vec(&header(kinds.iter().map(kind).collect())).map_err(io::Error::other)?;
    out.write_all(MAGIC)?;
    out.write_all(&version.to_le_bytes())?;
    out.write_all(&u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes())?;
    out.write_all(&header)?;
    for (_, tables) in &kinds {
        stream(tables.iter().map(|table| &table.rows), out).map_err(io::Error::other)?;
    }
    stream(marked.iter(), out).map_err(io::Error::other)?;
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
fn stream<'r>(tables: impl Iterator<Item = &'r RecordBatch>, out: &mut dyn Write) -> Result<(), ArrowError> {
    let mut tables = tables.peekable();
    let Some(schema) = tables.peek().map(|rows| rows.schema()) else { return Ok(()) };
    let mut writer = StreamWriter::try_new(out, &schema)?;
    for rows in tables {
        // Of a text that shares a buffer with others, the whole buffer would be written.
        let rows = without_shared_strings(rows).map_err(|e| ArrowError::ComputeError(e.to_string()))?;
        writer.write(&rows.with_schema(Arc::clone(&schema))?)?;
    }
    writer.finish()
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
        let batches = batches(&mut rest).map_err(|e| format!("expected rows of {}: {e}", kind.name))?;
        if batches.len() != kind.at.len() || ![0, batches.len()].contains(&kind.pieces.len()) {
            return Err(format!("expected {} batches of {}, got {}", kind.at.len(), kind.name, batches.len()));
        }
        let pieces = kind.pieces.iter().copied().map(Some).chain(std::iter::repeat(None));
        let has_marks = kind.has_marks;
        let table = |((rows, at), piece)| Table { name: kind.name.clone(), at, rows, piece, has_marks };
        all.extend(batches.into_iter().zip(kind.at.iter().copied()).zip(pieces).map(table));
    }
    check_numbers(header.kinds.iter().flat_map(|kind| kind.pieces.iter().copied()))?;
    let marked = match header.marked.len() {
        0 => Vec::new(),
        _ => batches(&mut rest).map_err(|e| format!("expected numbers of rows that are marked now: {e}"))?,
    };
    if marked.len() != header.marked.len() {
        return Err(format!(
            "expected rows of {} pieces that are marked now, got {}",
            header.marked.len(),
            marked.len()
        ));
    }
    if take(&mut rest, MAGIC.len())? != MAGIC {
        return Err(format!("expected the end of {what}, got something else"));
    }
    if rest.is_empty() {
        Ok((header, all, marked))
    } else {
        Err(format!("expected the end of {what}, got {} more bytes", rest.len()))
    }
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
    use arrow::array::{ArrayRef, BooleanArray, Int64Array, StringViewArray};

    use super::*;
    use crate::snapshot::{Piece, Pieces};

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

    /// A state in pieces, and what has become of it: a piece is gone, others have come, and a row of one is marked now.
    fn in_pieces() -> [State; 2] {
        let rows = |from: i64| -> RecordBatch {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 3));
            RecordBatch::try_from_iter([("n", numbers)]).unwrap()
        };
        let pieces: Vec<Piece> = (0..4).map(|from| Piece::new(rows(from * 10))).collect();
        let met = |met: [bool; 3]| ("met", BooleanArray::from(met.to_vec()));
        let mut whole = State { marks: [("closed".to_owned(), 5)].into(), tables: Vec::new() };
        whole.put_marked("joined", [0; 2], &pieces[0], met([true, false, false])).unwrap();
        whole.put_piece("panes", [1, 2], &pieces[1]);
        let mut now = State { marks: [("closed".to_owned(), 7)].into(), tables: Vec::new() };
        now.put_marked("joined", [0; 2], &pieces[0], met([true, false, true])).unwrap();
        now.put_piece("panes", [1, 2], &pieces[2]);
        now.put_marked("joined", [0; 2], &pieces[3], met([false; 3])).unwrap();
        [whole, now]
    }

    #[test]
    fn changes_come_back_as_they_were_and_are_no_state() {
        let [whole, now] = in_pieces();
        let changes = Pieces::of(&whole).unwrap().until(&now, &Pieces::of(&now).unwrap()).unwrap();
        assert_eq!((changes.gone.len(), changes.tables.len(), changes.marked.len()), (1, 2, 1));
        let mut bytes = Vec::new();
        write_changes(&changes, &mut bytes).unwrap();
        let mut base = Vec::new();
        write_state(&whole, &mut base).unwrap();
        let again = read_state(&base).unwrap().apply(read_changes(&bytes).unwrap()).unwrap();
        assert_eq!(again.marks, now.marks);
        for name in ["joined", "panes"] {
            assert_eq!(again.of(name).collect::<Vec<_>>(), now.of(name).collect::<Vec<_>>());
        }
        // Those of another state, or twice.
        let error = again.apply(read_changes(&bytes).unwrap()).unwrap_err();
        assert!(error.contains("expected changes of this state, got those of another"), "{error}");
        assert!(read_state(&bytes).unwrap_err().contains("expected a state of version 1, got version 2"));
        assert!(read_changes(&base).unwrap_err().contains("expected changes of a state of version 2, got version 1"));
        (0..bytes.len()).for_each(|end| drop(read_changes(&bytes[..end]).unwrap_err()));
    }

    #[test]
    fn a_state_that_is_not_what_was_handed_out_is_refused() {
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let pieces = [0; 3].map(|_| Piece::new(RecordBatch::try_from_iter([("n", Arc::clone(&rows))]).unwrap()));
        let state = |pieces: &[&Piece], met: [bool; 2]| {
            let mut state = State { marks: [("closed".to_owned(), 7)].into(), tables: Vec::new() };
            let put = |piece: &&Piece| {
                state.put_marked("joined", [0; 2], piece, ("met", BooleanArray::from(met.to_vec()))).unwrap();
            };
            pieces.iter().for_each(put);
            state
        };
        let [one, two, three] = &pieces;
        let (whole, now) = (state(&[one, two], [false; 2]), state(&[one, three], [true, false]));
        let written = |changes: &Changes| {
            let mut bytes = Vec::new();
            write_changes(changes, &mut bytes).unwrap();
            read_changes(&bytes).unwrap()
        };
        let changes = Pieces::of(&whole).unwrap().until(&now, &Pieces::of(&now).unwrap()).unwrap();
        let applied = |changes: &Changes| whole.clone().apply(written(changes));
        applied(&changes).unwrap();
        let wrong = |change: &dyn Fn(&mut Changes)| {
            let mut changed = changes.clone();
            change(&mut changed);
            let error = applied(&changed).unwrap_err();
            assert!(error.contains("expected a state of the checksum"), "{error}");
        };
        wrong(&|changes| changes.tables.clear());
        wrong(&|changes| changes.gone.clear());
        wrong(&|changes| changes.marked.clear());
        wrong(&|changes| *changes.marks.get_mut("closed").unwrap() = 8);
        let mut bytes = Vec::new();
        write_state(&whole, &mut bytes).unwrap();
        read_state(&bytes).unwrap();
        let at = bytes.windows(8).position(|text| text == b"\"gives\":").unwrap() + 8;
        bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
        let error = read_state(&bytes).unwrap_err();
        assert!(error.contains("expected a state of the checksum"), "{error}");
    }

    #[test]
    fn two_pieces_of_one_number_are_refused() {
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let piece = || Piece::new(RecordBatch::try_from_iter([("n", Arc::clone(&rows))]).unwrap());
        let number = |piece: &Piece| serde_json::to_string(&piece.id()).unwrap();
        let (one, two) = std::iter::repeat_with(|| (piece(), piece()))
            .find(|(one, two)| number(one).len() == number(two).len())
            .unwrap();
        let state = |pieces: &[(&str, &Piece)]| {
            let mut state = State::default();
            pieces.iter().for_each(|(name, piece)| state.put_piece(name, [0; 2], piece));
            state
        };
        let written = |state: &State| {
            let mut bytes = Vec::new();
            write_state(state, &mut bytes).map(|()| bytes)
        };
        let once = state(&[("panes", &one), ("others", &two)]);
        let bytes = written(&once).unwrap();
        read_state(&bytes).unwrap();
        for twice in [state(&[("panes", &one), ("panes", &one)]), state(&[("panes", &one), ("others", &one)])] {
            let error = written(&twice).unwrap_err().to_string();
            assert!(error.contains("expected pieces with a number each, got two with"), "{error}");
            assert!(twice.sum().is_none() && Pieces::of(&twice).is_none());
            let changes = Changes { tables: twice.tables.clone(), ..Changes::default() };
            write_changes(&changes, &mut io::sink()).unwrap_err();
            twice.apply(changes).unwrap_err();
        }
        // The same where a file says so.
        let (one, two) = (number(&one), format!("\"pieces\":[{}]", number(&two)));
        let at = bytes.windows(two.len()).position(|text| text == two.as_bytes()).unwrap() + two.len() - 1;
        let mut damaged = bytes;
        damaged[at - one.len()..at].copy_from_slice(one.as_bytes());
        let error = read_state(&damaged).unwrap_err();
        assert!(error.contains(&format!("got two with {one}")), "{error}");
    }

    #[test]
    fn a_whole_state_follows_no_other_one() {
        let mut changes = Vec::new();
        let piece = Piece::new(state().tables[1].rows.clone());
        let mut now = State::default();
        now.put_piece("panes", [0; 2], &piece);
        let of = |state: &State| Pieces::of(state).unwrap();
        write_changes(&of(&State::default()).until(&now, &of(&now)).unwrap(), &mut changes).unwrap();
        // As if it were a whole one.
        changes[8] = VERSION as u8;
        let error = read_state(&changes).unwrap_err();
        assert!(error.contains("expected a whole state"), "{error}");
    }

    #[test]
    fn rows_that_are_not_marked_any_more_are_told_as_a_whole() {
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let piece = Piece::new(RecordBatch::try_from_iter([("n", rows)]).unwrap());
        let state = |met: [bool; 2]| {
            let mut state = State::default();
            state.put_marked("joined", [0; 2], &piece, ("met", BooleanArray::from(met.to_vec()))).unwrap();
            state
        };
        let before = Pieces::of(&state([true, false])).unwrap();
        let until = |now: &State| before.until(now, &Pieces::of(now).unwrap());
        assert!(until(&state([false, true])).is_none() && until(&state([true, true])).is_some());
        let mut without = State::default();
        without.put("rows", [0; 2], piece.rows().clone());
        assert!(Pieces::of(&without).is_none());
    }

    /// The bytes that the first release with them wrote.
    #[test]
    fn states_of_version_1_are_read() {
        let bytes = include_bytes!("state-1.bin");
        let again = read_state(bytes).unwrap();
        assert_eq!(again.marks, state().marks);
        assert_eq!(again.of("panes").collect::<Vec<_>>(), state().of("panes").collect::<Vec<_>>());
    }

    /// The bytes that the first release with changes wrote.
    #[test]
    fn states_in_pieces_and_changes_of_version_2_are_read() {
        let [before, now] = in_pieces();
        let whole = read_state(include_bytes!("state-1-pieces.bin")).unwrap();
        for name in ["joined", "panes"] {
            assert_eq!(whole.of(name).collect::<Vec<_>>(), before.of(name).collect::<Vec<_>>());
        }
        let read = whole.apply(read_changes(include_bytes!("changes-2.bin")).unwrap()).unwrap();
        assert_eq!(read.marks, now.marks);
        for name in ["joined", "panes"] {
            assert_eq!(read.of(name).collect::<Vec<_>>(), now.of(name).collect::<Vec<_>>());
        }
    }
}
