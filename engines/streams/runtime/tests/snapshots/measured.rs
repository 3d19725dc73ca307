//! What writing and reading a state takes of the allocator.

use std::io;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use savanna_allocations::measured;
use savanna_streams_runtime::snapshot::{Piece, State, read_state, write_state};

const MIB: usize = 1 << 20;

/// A piece of 64 MiB of numbers and texts.
fn state() -> State {
    let rows = 1 << 20;
    let numbers = || -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..rows)) };
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..rows).map(|row| format!("{row:>16}"))));
    let columns = [("a", numbers()), ("b", numbers()), ("c", numbers()), ("s", texts), ("d", numbers())];
    let mut state = State::default();
    state.put_piece("rows", [0; 2], &Piece::new(RecordBatch::try_from_iter(columns).unwrap()));
    state
}

#[test]
fn a_large_piece_is_written_in_little_memory_and_read_without_a_second_copy() {
    let state = state();
    let (written, most) = measured(|| write_state(&state, &mut io::sink()));
    written.unwrap();
    assert!(most < 20 * MIB, "{most} bytes to write 64 MiB");
    let mut bytes = Vec::new();
    write_state(&state, &mut bytes).unwrap();
    let (read, most) = measured(|| read_state(&bytes));
    let read = read.unwrap();
    assert_eq!(read, state);
    let held = read.tables[0].rows.get_array_memory_size();
    assert!(held < bytes.len() * 5 / 4, "{held} bytes are held of a state of {}", bytes.len());
    // The batches of a piece, and the piece.
    assert!(most < bytes.len() * 5 / 2, "{most} bytes to read a state of {}", bytes.len());
}
