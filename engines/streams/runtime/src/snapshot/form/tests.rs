//! The form of states and changes, and of former releases.

use arrow::array::{ArrayRef, BooleanArray, Int64Array, ListBuilder, StringViewArray, StringViewBuilder};

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

/// Numbers, texts, lists of texts, and marks that begin anywhere in a byte.
fn of_all_kinds() -> State {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..23).map(|i| (i % 5 > 0).then_some(i))));
    let text = |i: i64| format!("a text that is too long for its view, number {i}");
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..23).map(text)));
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    (0..23).for_each(|i| lists.append_value((0..i % 4).map(|j| Some(text(i * j)))));
    let columns = [("n", numbers), ("s", texts), ("l", Arc::new(lists.finish()) as ArrayRef)];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let marks = BooleanArray::from_iter((0..30).map(|i| Some(i % 3 == 0))).slice(5, 23);
    let mut state = State { marks: [("closed".to_owned(), 5)].into(), tables: Vec::new() };
    state.put_marked("joined", [0; 2], &Piece::new(rows.clone()), ("met", marks)).unwrap();
    state.put_piece("panes", [1, 2], &Piece::new(rows.slice(3, 9)));
    state.put_piece("panes", [1, 3], &Piece::new(rows.slice(0, 0)));
    state.put_piece("panes", [1, 4], &Piece::new(rows.slice(7, 1)));
    state
}

#[test]
fn pieces_in_many_batches_come_back_as_pieces() {
    let state = of_all_kinds();
    for batch_bytes in [1, 100, 1_000, 10_000] {
        let mut bytes = Vec::new();
        write_in_batches(&state, batch_bytes, &mut bytes).unwrap();
        assert_eq!(read_state(&bytes).unwrap(), state, "batches of {batch_bytes} bytes");
    }
    let mut bytes = Vec::new();
    write_in_batches(&state, 1, &mut bytes).unwrap();
    for (said, other) in
        [("[9,1,1]", "[9,1,2]"), ("[9,1,1]", "[1,9,1]"), ("[9,1,1]", "[9,0,2]"), ("[9,1,1]", "[8,1,1]")]
    {
        let mut damaged = bytes.clone();
        let at = damaged.windows(said.len()).position(|text| text == said.as_bytes()).unwrap();
        damaged[at..at + said.len()].copy_from_slice(other.as_bytes());
        let error = read_state(&damaged).unwrap_err();
        assert!(error.contains("expected"), "{other}: {error}");
    }
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
    let bytes = include_bytes!("../state-1.bin");
    let again = read_state(bytes).unwrap();
    assert_eq!(again.marks, state().marks);
    assert_eq!(again.of("panes").collect::<Vec<_>>(), state().of("panes").collect::<Vec<_>>());
}

/// The bytes that the first release with changes wrote.
#[test]
fn states_in_pieces_and_changes_of_version_2_are_read() {
    let [before, now] = in_pieces();
    let whole = read_state(include_bytes!("../state-1-pieces.bin")).unwrap();
    for name in ["joined", "panes"] {
        assert_eq!(whole.of(name).collect::<Vec<_>>(), before.of(name).collect::<Vec<_>>());
    }
    let read = whole.apply(read_changes(include_bytes!("../changes-2.bin")).unwrap()).unwrap();
    assert_eq!(read.marks, now.marks);
    for name in ["joined", "panes"] {
        assert_eq!(read.of(name).collect::<Vec<_>>(), now.of(name).collect::<Vec<_>>());
    }
}
