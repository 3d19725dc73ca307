//! Sequences: numbers that are given once, outside of transactions. What a tenant may give without asking is reserved by a
//! transaction of its own, so that a number is never given again; numbers that were reserved and not given are lost when
//! the process ends.
//!
//! ```text
//! SEQUENCES  4 | sequence's number  -> the first number that is not reserved, 8 bytes, smallest first
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What may be given of each sequence. Shared by a tenant and its sessions, all of them on one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    ranges: HashMap<u32, Range>,
    /// A sequence whose reserved numbers are all given.
    wanted: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    next: i64,
    end: i64,
}

/// What may be given, as it was before a statement.
#[derive(Debug)]
pub(crate) struct Before(HashMap<u32, Range>);

impl Numbers {
    /// Gives a number. `None` if there is none reserved, which is noted.
    pub(crate) fn next(&self, sequence: u32) -> Option<i64> {
        let mut state = self.state();
        match state.ranges.get_mut(&sequence) {
            Some(range) if range.next < range.end => {
                range.next += 1;
                Some(range.next - 1)
            }
            _ => {
                state.wanted = Some(sequence);
                None
            }
        }
    }

    /// Adds numbers that were reserved.
    pub(crate) fn add(&self, sequence: u32, first: i64, end: i64) {
        let mut state = self.state();
        let range = state.ranges.entry(sequence).or_insert(Range { next: first, end: first });
        if range.end != first {
            range.next = first;
        }
        range.end = end;
    }

    /// The sequence that numbers were wanted of, once.
    pub(crate) fn wanted(&self) -> Option<u32> {
        self.state().wanted.take()
    }

    pub(crate) fn save(&self) -> Before {
        Before(self.state().ranges.clone())
    }

    /// Takes the numbers back that a statement was given which did nothing.
    pub(crate) fn restore(&self, before: Before) {
        self.state().ranges = before.0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_in_order() {
        let numbers = Numbers::default();
        assert_eq!((numbers.next(7), numbers.wanted(), numbers.wanted()), (None, Some(7), None));
        numbers.add(7, 1, 3);
        let before = numbers.save();
        assert_eq!([numbers.next(7), numbers.next(7), numbers.next(7)], [Some(1), Some(2), None]);
        numbers.restore(before);
        numbers.add(7, 3, 5);
        assert_eq!([1, 2, 3, 4].map(Some), [(); 4].map(|()| numbers.next(7)));
        assert_eq!(numbers.next(8), None);
    }
}
