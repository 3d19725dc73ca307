//! Sequences: numbers that are given once, outside of transactions. What a tenant may give without asking is reserved by a
//! transaction of its own, so that a number is never given again; numbers that were reserved and not given are lost when
//! the process ends, and given back when the tenant falls asleep.
//!
//! ```text
//! SEQUENCES  4 | sequence's state   -> the first number that is not reserved, 16 bytes, smallest first
//! ```

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use savanna_journal::Lsn;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::Sequence;

/// What may be given of each sequence. Shared by a tenant and its sessions, all of them on one thread.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// By the sequences' states.
    ranges: HashMap<u32, Range>,
    /// A sequence whose reserved numbers are all given.
    wanted: Option<Arc<Sequence>>,
    /// Sequences that a statement has set, to be written down when it ends.
    set: HashMap<u32, Arc<Sequence>>,
    /// Where the log has what was given since this was asked.
    after: Lsn,
}

/// Numbers that may be given: runs of them, with how many each has left. A sequence that cycles has several.
#[derive(Clone, Debug)]
struct Range {
    sequence: Arc<Sequence>,
    runs: VecDeque<(i128, u64)>,
    logged: Lsn,
}

/// Numbers that were reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The first of them.
    pub first: i128,
    /// How many.
    pub count: u64,
    /// Where the log has it.
    pub logged: Lsn,
}

/// What may be given, as it was before a statement.
#[derive(Debug)]
pub struct Before(HashMap<u32, Range>);

impl Numbers {
    /// Gives a number. `None` if there is none reserved, which is noted.
    ///
    /// # Errors
    /// 2200H if the statement has set the sequence to its end.
    pub fn next(&self, sequence: &Arc<Sequence>) -> Result<Option<i64>> {
        let mut state = self.state();
        let State { ranges, wanted, set, after } = &mut *state;
        match ranges.get_mut(&sequence.state) {
            Some(Range { runs, logged, .. }) if runs.front().is_some_and(|(_, left)| *left > 0) => {
                let Some((next, left)) = runs.front_mut() else { return Ok(None) };
                let number = *next as i64;
                *next += i128::from(sequence.increment);
                *left -= 1;
                if *left == 0 && runs.len() > 1 {
                    runs.pop_front();
                }
                *after = (*after).max(*logged);
                Ok(Some(number))
            }
            _ if set.contains_key(&sequence.state) => Err(exhausted(sequence)),
            _ => {
                *wanted = Some(Arc::clone(sequence));
                Ok(None)
            }
        }
    }

    /// Adds numbers that were reserved.
    pub fn add(&self, sequence: &Arc<Sequence>, reserved: Reserved) {
        let Reserved { first, count, logged } = reserved;
        let mut state = self.state();
        let range = state.ranges.entry(sequence.state).or_insert_with(|| Range {
            sequence: Arc::clone(sequence),
            runs: VecDeque::new(),
            logged,
        });
        range.runs.retain(|(_, left)| *left > 0);
        match range.runs.back_mut() {
            Some((next, left)) if *next + i128::from(*left) * i128::from(sequence.increment) == first => *left += count,
            _ => range.runs.push_back((first, count)),
        }
        range.logged = logged;
    }

    /// Lets a sequence go on with a number, for the statement that runs and then for all.
    pub fn set(&self, sequence: &Arc<Sequence>, next: i128) {
        let mut state = self.state();
        let runs = VecDeque::from([(next, left(sequence, next))]);
        let range = Range { sequence: Arc::clone(sequence), runs, logged: Lsn::NONE };
        state.ranges.insert(sequence.state, range);
        state.set.insert(sequence.state, Arc::clone(sequence));
    }

    /// The sequences that were set, once, with the numbers that they go on with.
    pub fn taken_set(&self) -> Vec<(Arc<Sequence>, i128)> {
        let mut state = self.state();
        let set = std::mem::take(&mut state.set);
        let next = |(id, sequence)| Some((sequence, state.ranges.remove(&id)?.runs.front()?.0));
        set.into_iter().filter_map(next).collect()
    }

    /// The sequences of which numbers were reserved that nobody was given, once, with the first of these.
    pub fn unused(&self) -> Vec<(Arc<Sequence>, i128)> {
        let ranges = std::mem::take(&mut self.state().ranges);
        // One that has begun again has no one place to go on from.
        let unused = |Range { sequence, runs, .. }: Range| match (runs.len(), runs.front()) {
            (1, Some((next, 1..))) => Some((sequence, *next)),
            _ => None,
        };
        ranges.into_values().filter_map(unused).collect()
    }

    /// The same as [`Self::peek`], for somebody who is told: what was reserved has to be in the log before.
    pub fn told(&self, sequence: &Sequence) -> Option<i128> {
        let next = self.peek(sequence)?;
        let mut state = self.state();
        let State { ranges, after, .. } = &mut *state;
        let logged = ranges.get(&sequence.state).map_or(Lsn::NONE, |range| range.logged);
        *after = (*after).max(logged);
        Some(next)
    }

    /// The number that a sequence goes on with, if one is reserved.
    pub fn peek(&self, sequence: &Sequence) -> Option<i128> {
        let state = self.state();
        let run = state.ranges.get(&sequence.state)?.runs.front().filter(|(_, left)| *left > 0);
        run.map(|(next, _)| *next)
    }

    /// The sequence that numbers were wanted of, once.
    pub fn wanted(&self) -> Option<Arc<Sequence>> {
        self.state().wanted.take()
    }

    /// The place in the log of what was given since the last call.
    pub fn after(&self) -> Lsn {
        std::mem::take(&mut self.state().after)
    }

    /// What may be given now, for [`Self::restore`].
    pub fn save(&self) -> Before {
        Before(self.state().ranges.clone())
    }

    /// Takes the numbers back that a statement was given which did nothing.
    pub fn restore(&self, before: Before) {
        let mut state = self.state();
        state.ranges = before.0;
        state.set.clear();
        state.after = Lsn::NONE;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many numbers a sequence has from one on, before it ends or begins again.
pub fn left(sequence: &Sequence, next: i128) -> u64 {
    let (min, max, increment) = (i128::from(sequence.min), i128::from(sequence.max), i128::from(sequence.increment));
    let room = if increment > 0 { max - next } else { next - min };
    if room < 0 { 0 } else { u64::try_from(room / increment.abs() + 1).unwrap_or(u64::MAX) }
}

/// The error of a sequence that has no number left.
pub fn exhausted(sequence: &Sequence) -> SqlError {
    let (end, bound) = if sequence.increment > 0 { ("maximum", sequence.max) } else { ("minimum", sequence.min) };
    let message = format!("nextval: reached {end} value of sequence \"{}\" ({bound})", sequence.name);
    SqlError::new(state::SEQUENCE_LIMIT_EXCEEDED, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use savanna_tenants_values::types::Type;

    fn sequence(increment: i64) -> Arc<Sequence> {
        let (name, of, owner) = (String::new(), Type::Int8, None);
        let (start, min, max, cache, cycle) = (1, -10, 10, 1, false);
        let schema = crate::PUBLIC;
        Arc::new(Sequence {
            id: 6,
            name,
            state: 7,
            first: 1,
            of,
            start,
            increment,
            min,
            max,
            cache,
            cycle,
            owner,
            schema,
            comment: None,
        })
    }

    fn reserved(first: i128, count: u64) -> Reserved {
        Reserved { first, count, logged: Lsn(first.unsigned_abs() as u64) }
    }

    #[test]
    fn numbers_are_given_once_and_in_order() {
        let (numbers, sequence) = (Numbers::default(), sequence(1));
        let next = || numbers.next(&sequence).unwrap();
        assert_eq!((next(), numbers.wanted().is_some(), numbers.wanted().is_some()), (None, true, false));
        numbers.add(&sequence, reserved(1, 2));
        let before = numbers.save();
        assert_eq!([next(), next(), next()], [Some(1), Some(2), None]);
        numbers.restore(before);
        assert_eq!(numbers.after(), Lsn::NONE);
        numbers.add(&sequence, reserved(3, 2));
        assert_eq!([next(), next(), next(), next(), next()], [Some(1), Some(2), Some(3), Some(4), None]);
        assert_eq!((numbers.after(), numbers.after()), (Lsn(3), Lsn::NONE));
    }

    #[test]
    fn a_sequence_that_cycles_gives_what_it_had_left_first() {
        let (numbers, sequence) = (Numbers::default(), sequence(5));
        numbers.add(&sequence, reserved(6, 1));
        numbers.add(&sequence, reserved(-10, 2));
        let next = || numbers.next(&sequence).unwrap();
        assert_eq!([next(), next(), next(), next()], [Some(6), Some(-10), Some(-5), None]);
    }

    #[test]
    fn what_a_statement_sets_goes_on_from_there() {
        let (numbers, sequence) = (Numbers::default(), sequence(-4));
        numbers.set(&sequence, 0);
        let next = || numbers.next(&sequence).map_err(|error| error.state);
        assert_eq!([next(), next(), next(), next()], [Ok(Some(0)), Ok(Some(-4)), Ok(Some(-8)), Err("2200H")]);
        assert_eq!(numbers.taken_set(), [(Arc::clone(&sequence), -12)]);
        assert_eq!((next(), left(&sequence, -10), left(&sequence, -11)), (Ok(None), 1, 0));
    }
}
