//! Puts rows into an order. Where only the first ones are wanted, not many more are kept at any time. What there is no memory for goes to a file,
//! as runs that are in order by themselves, which are merged.

mod merge;

use std::{cmp::Ordering, ops::ControlFlow, sync::Arc};

use savanna_tenants_sql::{
    expression::rows::{Take, compare, sort_while},
    plan::query::{Presorted, Query, SortKey},
};
use savanna_tenants_store::spills::SpillFile;
use savanna_tenants_values::{error::Result, memory::row_bytes, value::Value};

use self::merge::Merge;
use crate::{
    Run,
    explain::{Part, address},
    spill::{Room, Tape},
};

/// Rows beyond those that are wanted that are equal by the keys that an index sorts by. If the first ones have more of their kind, the table is
/// sorted as a whole.
const TIES_MAX: usize = 2_000;

/// How two rows are ordered.
fn order_of(keys: &[SortKey], a: &[Value], b: &[Value]) -> Ordering {
    let mut orders = keys.iter().map(|key| compare(&a[key.at], &b[key.at], key.descending, key.nulls_first));
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Rows that are sorted, where what is equal stays as it is, or the first so many of these.
pub(crate) struct Sorted<'r, 'a> {
    run: &'r Run<'a>,
    part: Part,
    keys: &'r [SortKey],
    wanted: Option<usize>,
    /// As soon as there are as many as are wanted, these are in order, others behind them.
    rows: Vec<Vec<Value>>,
    /// The place of the last row that is wanted so far, if there are as many.
    last: Option<usize>,
    room: Room<'r>,
    /// Rows before these, each run in order by itself.
    runs: Vec<Tape>,
    file: Option<Arc<SpillFile>>,
}

impl<'r, 'a> Sorted<'r, 'a> {
    /// None yet. If they come to be in a file it is noted for a part of the plan.
    pub(crate) fn new(run: &'r Run<'a>, part: Part, keys: &'r [SortKey], wanted: Option<usize>) -> Self {
        let (rows, runs) = (Vec::new(), Vec::new());
        Self { run, part, keys, wanted, rows, last: None, room: run.room(), runs, file: None }
    }

    pub(crate) fn add(&mut self, row: Vec<Value>) -> Result<()> {
        if self.last.is_some_and(|last| order_of(self.keys, &self.rows[last], &row).is_le()) {
            return Ok(());
        }
        let bytes = sorted_bytes(&row);
        if !self.room.takes(bytes)? {
            self.spill()?;
            self.room.must_take(bytes)?;
            self.room.share_rest();
        }
        self.rows.push(row);
        match self.wanted {
            Some(wanted) if self.rows.len() / 2 >= wanted => self.cut(wanted),
            _ => Ok(()),
        }
    }

    /// Sorts the rows that are in memory.
    fn sort(&mut self) -> Result<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        sort_while(&mut self.rows, |a, b| order_of(self.keys, a, b), || self.run.goes_on_after(0))
    }

    /// Leaves the first rows.
    fn cut(&mut self, wanted: usize) -> Result<()> {
        self.sort()?;
        self.rows.truncate(wanted);
        self.last = wanted.checked_sub(1);
        self.room.clear();
        self.rows.iter().try_for_each(|row| self.room.must_take(sorted_bytes(row)))
    }

    /// Puts the rows into the file, as a run.
    fn spill(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(self.run.spill_file()?);
        }
        self.sort()?;
        let Some(file) = &self.file else { return Ok(()) };
        self.rows.truncate(self.wanted.unwrap_or(usize::MAX));
        let mut tape = Tape::new(file);
        for row in std::mem::take(&mut self.rows) {
            self.run.goes_on_after(0)?;
            tape.push(&row)?;
        }
        tape.end()?;
        self.runs.push(tape);
        self.last = None;
        self.room.clear();
        Ok(())
    }

    /// The rows in their order.
    pub(crate) fn finish(mut self) -> Result<SortedRows<'r, 'a>> {
        let left = self.wanted.unwrap_or(usize::MAX);
        if self.runs.is_empty() {
            self.sort()?;
            self.rows.truncate(left);
            return Ok(SortedRows { rows: Source::Memory(self.rows.into_iter()), left, _room: self.room });
        }
        self.spill()?;
        self.run.note_spilled(self.part, self.runs.iter().map(Tape::bytes).sum());
        drop(self.file);
        let merge = Merge::of_all(self.run, self.keys, self.runs, &mut self.room)?;
        self.room.share_rest();
        Ok(SortedRows { rows: Source::Files(merge), left, _room: self.room })
    }
}

/// What a row takes that is to be sorted: sorting needs a list of as many beside.
fn sorted_bytes(row: &[Value]) -> usize {
    row_bytes(row) + size_of::<Vec<Value>>()
}

/// Rows in their order.
pub(crate) struct SortedRows<'r, 'a> {
    rows: Source<'r, 'a>,
    /// How many are still wanted.
    left: usize,
    _room: Room<'r>,
}

enum Source<'r, 'a> {
    Memory(std::vec::IntoIter<Vec<Value>>),
    Files(Merge<'r, 'a>),
}

impl SortedRows<'_, '_> {
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Value>>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        match &mut self.rows {
            Source::Memory(rows) => Ok(rows.next()),
            Source::Files(merge) => merge.next(),
        }
    }
}

impl Run<'_> {
    /// Gives a query's rows to `take`, which come in the order of its first keys: those that are equal by these are sorted, some after the others.
    pub(crate) fn presorted(
        &self,
        (query, presorted): (&Query, Presorted),
        around: Vec<Value>,
        wanted: Option<usize>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let known = &query.order[..presorted.keys];
        // Where steps are counted they are those of the plan.
        let may_turn = presorted.by_index && self.counts.is_none();
        let mut take_all = |ties: Sorted<'_, '_>| -> Result<ControlFlow<()>> {
            let mut rows = ties.finish()?;
            while let Some(mut row) = rows.next()? {
                row.truncate(query.columns.len());
                if take(row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        let begin = || Sorted::new(self, address(&query.order), &query.order, wanted);
        let (mut ties, mut first, mut flow) = (begin(), Vec::new(), ControlFlow::Continue(()));
        let (mut count, mut is_given, mut too_many) = (0, false, false);
        self.unordered(query, around.clone(), wanted, &mut |row| {
            let is_tie = count > 0 && order_of(known, &first, &row).is_eq();
            if is_tie {
                too_many = may_turn && !is_given && count >= wanted.unwrap_or(0).saturating_add(TIES_MAX);
            } else if count > 0 {
                is_given = true;
                flow = take_all(std::mem::replace(&mut ties, begin()))?;
            }
            if flow.is_break() || too_many {
                return Ok(ControlFlow::Break(()));
            }
            if !is_tie {
                first.clone_from(&row);
            }
            count += 1;
            ties.add(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        if !too_many {
            return if flow.is_continue() { take_all(ties).map(drop) } else { Ok(()) };
        }
        drop(ties);
        let mut all = begin();
        self.unordered(&query.without_index_order(), around, None, &mut |row| {
            all.add(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        take_all(all).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use savanna_tenants_sql::interrupt::Reason;

    use super::*;
    use crate::test_run::with_run;

    const KEYS: [SortKey; 2] = [
        SortKey { at: 1, descending: true, nulls_first: true },
        SortKey { at: 2, descending: false, nulls_first: false },
    ];

    /// Rows with their places, and few values to sort them by.
    fn rows(count: i64) -> Vec<Vec<Value>> {
        let value = |at: i64, of: i64| match at * 7919 % of {
            0 => Value::Null,
            value => Value::Int(value),
        };
        (0..count).map(|at| vec![Value::Int(at), value(at, 11), value(at, 5)]).collect()
    }

    fn first(wanted: Option<usize>, rows: &[Vec<Value>], rows_max: Option<usize>) -> Vec<Vec<Value>> {
        with_run(rows_max, |run| {
            let mut sorted = Sorted::new(run, address(&KEYS), &KEYS, wanted);
            rows.iter().for_each(|row| sorted.add(row.clone()).expect("memory"));
            let (mut sorted, mut first) = (sorted.finish().expect("memory"), Vec::new());
            while let Some(row) = sorted.next().expect("what was written") {
                first.push(row);
            }
            first
        })
    }

    #[test]
    fn the_first_rows_are_those_of_all_that_come_first() {
        for count in [0, 1, 2, 3, 10, 500] {
            let rows = rows(count);
            let all = first(None, &rows, None);
            assert_eq!(all.len(), rows.len());
            assert!(all.windows(2).all(|pair| {
                let order = order_of(&KEYS, &pair[0], &pair[1]);
                order.is_lt() || order.is_eq() && pair[0][0].compare(&pair[1][0]).is_lt()
            }));
            for wanted in [1, 2, 3, 7, 499, 500, 501, usize::MAX] {
                assert_eq!(first(Some(wanted), &rows, None), all[..wanted.min(all.len())], "{wanted} of {count}");
            }
        }
    }

    #[test]
    fn rows_that_were_put_into_files_come_in_the_same_order() {
        // Runs of one row come to more than are merged at once, twice over.
        for (count, rows_max) in [(0, 1), (1, 1), (2, 1), (130, 1), (5_000, 1), (5_000, 7), (5_000, 1_000)] {
            let rows = rows(count);
            let all = first(None, &rows, None);
            for wanted in [None, Some(1), Some(10), Some(4_999), Some(usize::MAX)] {
                let expected = &all[..wanted.unwrap_or(usize::MAX).min(all.len())];
                assert_eq!(first(wanted, &rows, Some(rows_max)), expected, "{wanted:?} of {count} by {rows_max}");
            }
        }
    }

    #[test]
    fn a_sort_that_has_begun_is_ended() {
        with_run(None, |run| {
            let mut sorted = Sorted::new(run, address(&KEYS), &KEYS, None);
            rows(50_000).into_iter().for_each(|row| sorted.add(row).expect("memory"));
            run.facts.interrupts.begin();
            run.facts.interrupts.interrupt(Reason::Cancelled);
            assert!(sorted.finish().is_err_and(|error| error.state == "57014"));
        });
    }

    #[test]
    fn rows_that_are_not_wanted_take_no_memory() {
        let text = || Value::Text("x".repeat(1 << 20));
        with_run(None, |run| {
            let mut sorted = Sorted::new(run, address(&KEYS), &KEYS, Some(10));
            for at in 0..2_000 {
                sorted.add(vec![text(), Value::Int(at), Value::Null]).expect("memory of twenty rows");
            }
            let mut sorted = sorted.finish().expect("memory of twenty rows");
            for at in (1_990..2_000).rev() {
                let row = sorted.next().expect("in memory").expect("ten rows");
                assert_eq!(row[1], Value::Int(at));
            }
            drop(sorted);
            let mut all = Sorted::new(run, address(&KEYS), &KEYS, None);
            assert!((0..2_000).any(|at| all.add(vec![text(), Value::Int(at), Value::Null]).is_err()));
        });
    }

    #[test]
    fn large_rows_go_to_files_before_the_memory_of_the_statement_is_used_up() {
        with_run(Some(usize::MAX), |run| {
            let mut sorted = Sorted::new(run, address(&KEYS), &KEYS, None);
            for at in 0..600 {
                let text = Value::Text(char::from(b'a' + (at % 26) as u8).to_string().repeat(1 << 20));
                sorted.add(vec![text, Value::Int(at), Value::Null]).expect("a file");
            }
            let mut sorted = sorted.finish().expect("a file");
            for at in (0..600).rev() {
                let row = sorted.next().expect("what was written").expect("all rows");
                assert_eq!(row[1], Value::Int(at));
            }
        });
    }
}
