//! What snapshots hold in memory beside what operators do.
//!
//! ```text
//!   handed out:  piece 1   piece 2   marks      written, and let go
//!   operator:    piece 1             piece 3    piece 2 is held for the snapshot alone by now: it counts
//! ```
//!
//! Rows of a state are shared with the operator that has handed them out, and count once as long as that has them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::memory::Memory;
use crate::snapshot::{State, Tie, bytes_of};

/// The accounts of what was handed out, by number.
#[derive(Debug, Default)]
pub(super) struct HandedOut(Mutex<Accounts>);

#[derive(Debug, Default)]
struct Accounts {
    next: u64,
    of: BTreeMap<u64, Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// What nobody else has.
    own: u64,
    /// Bytes of rows, and whether their operator has them.
    shared: Vec<(u64, Tie)>,
}

impl Account {
    fn of(state: &State) -> Self {
        let mut account = Self::default();
        for table in &state.tables {
            let columns = table.rows.columns();
            let (rows, marks) = columns.split_at(columns.len() - usize::from(table.has_marks && !columns.is_empty()));
            account.own += bytes_of(marks) as u64;
            account.shared.push((bytes_of(rows) as u64, table.tie.clone()));
        }
        account
    }

    fn bytes(&self) -> u64 {
        let alone = self.shared.iter().filter(|(_, tie)| !tie.holds()).map(|(bytes, _)| bytes);
        self.own + alone.sum::<u64>()
    }
}

impl HandedOut {
    /// Bytes that snapshots hold and no operator does.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().of.values().map(Account::bytes).sum()
    }

    fn open(&self, account: Account) -> u64 {
        let mut accounts = self.0.lock();
        accounts.next += 1;
        let number = accounts.next;
        accounts.of.insert(number, account);
        number
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Account)) {
        if let Some(account) = self.0.lock().of.get_mut(&number) {
            change(account);
        }
    }

    fn close(&self, number: u64) {
        self.0.lock().of.remove(&number);
    }
}

/// Something that is held, until it goes.
pub(crate) struct Charge {
    memory: Arc<Memory>,
    number: u64,
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.number).finish()
    }
}

impl Charge {
    /// A state that was handed out.
    pub(crate) fn of(memory: &Arc<Memory>, state: &State) -> Self {
        Self::open(memory, Account::of(state))
    }

    /// So many bytes that nobody else has.
    pub(crate) fn bytes(memory: &Arc<Memory>, bytes: usize) -> Self {
        Self::open(memory, Account { own: bytes as u64, ..Account::default() })
    }

    fn open(memory: &Arc<Memory>, account: Account) -> Self {
        let charge = Self { number: memory.handed_out().open(account), memory: Arc::clone(memory) };
        memory.note_peak();
        charge
    }

    /// There are so many now.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.memory.handed_out().change(self.number, |account| account.own = bytes as u64);
        self.memory.note_peak();
    }

    /// There are so many more.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.memory.handed_out().change(self.number, |account| account.own += bytes as u64);
        self.memory.note_peak();
    }

    /// So many have gone.
    pub(crate) fn sub(&mut self, bytes: usize) {
        self.memory.handed_out().change(self.number, |account| account.own = account.own.saturating_sub(bytes as u64));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.handed_out().close(self.number);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};

    use super::*;
    use crate::snapshot::Piece;

    const ROWS: usize = 10_000;

    fn piece() -> Piece {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; ROWS]));
        Piece::new(RecordBatch::try_from_iter([("n", numbers)]).unwrap())
    }

    #[test]
    fn rows_count_once_their_operator_has_given_them_up_and_until_they_are_written() {
        let memory = Arc::new(Memory::without_stages(None));
        let (kept, given_up) = (piece(), piece());
        let mut state = State::default();
        [&kept, &given_up].into_iter().for_each(|piece| state.put_piece("rows", [0; 2], piece));
        let charge = Charge::of(&memory, &state);
        assert_eq!(memory.handed_out().bytes(), 0, "they are the operator's");
        // Another state has them, too.
        let copy = given_up.clone();
        drop(given_up);
        assert_eq!(memory.handed_out().bytes(), 0);
        drop(copy);
        let bytes = memory.handed_out().bytes();
        assert!((ROWS as u64 * 8..ROWS as u64 * 9).contains(&bytes), "{bytes}");
        drop(charge);
        assert_eq!(memory.handed_out().bytes(), 0);
        drop(kept);
    }

    #[test]
    fn marks_and_what_is_in_no_piece_count_at_once() {
        let memory = Arc::new(Memory::without_stages(None));
        let (mut state, piece) = (State::default(), piece());
        state.put_marked("rows", [0; 2], &piece, ("met", BooleanArray::from(vec![false; ROWS]))).unwrap();
        let marks = Charge::of(&memory, &state);
        let bytes = memory.handed_out().bytes();
        assert!((ROWS as u64 / 8..ROWS as u64 / 4).contains(&bytes), "{bytes}");
        drop(marks);
        let mut state = State::default();
        state.put("rows", [0; 2], piece.rows().clone());
        let _rows = Charge::of(&memory, &state);
        assert!(memory.handed_out().bytes() >= ROWS as u64 * 8);
    }

    #[test]
    fn what_is_held_beside_operators_is_in_the_peak_and_above_the_limit_without_failing_them() {
        let memory = Arc::new(Memory::without_stages(Some(1_000)));
        assert!(memory.with_snapshots_above_limit().is_none());
        let mut charge = Charge::bytes(&memory, 900);
        charge.add(200);
        let error = memory.with_snapshots_above_limit().unwrap().to_string();
        assert!(error.contains("with its snapshot") && error.contains("memory-limit"), "{error}");
        charge.sub(200);
        assert!(memory.with_snapshots_above_limit().is_none());
        drop(charge);
        assert_eq!((memory.peak(), memory.handed_out().bytes()), (1_100, 0));
    }
}
