//! Merges runs that are in order by themselves, so many at once.

use std::{cmp::Ordering, collections::BinaryHeap};

use savanna_tenants_sql::plan::query::SortKey;
use savanna_tenants_values::{error::Result, value::Value};

use super::order_of;
use crate::{
    Run,
    spill::{EXTENT_BYTES, Room, Tape, TapeRows},
};

/// Runs that are merged at once, at most and at least; each has an extent in memory.
const RUNS_MAX: usize = 64;
const RUNS_MIN: usize = 2;
/// Bytes of extents in memory, unless the rows are so large that two runs have more.
const EXTENTS_BYTES: usize = RUNS_MAX * EXTENT_BYTES;

/// Runs that become one.
pub(super) struct Merge<'r, 'a> {
    run: &'r Run<'a>,
    runs: Vec<TapeRows>,
    /// The next row of each run that has one.
    heads: BinaryHeap<Head<'r>>,
}

struct Head<'k> {
    keys: &'k [SortKey],
    row: Vec<Value>,
    run: usize,
}

impl Ord for Head<'_> {
    /// The greatest comes first: of those that are equal, the one that came first.
    fn cmp(&self, other: &Self) -> Ordering {
        order_of(self.keys, &other.row, &self.row).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

impl<'r, 'a> Merge<'r, 'a> {
    /// Merges runs into fewer until that can be done at once. Neighbours are merged, so that rows that are equal stay as they came.
    pub(super) fn of_all(
        run: &'r Run<'a>,
        keys: &'r [SortKey],
        mut runs: Vec<Tape>,
        room: &mut Room<'r>,
    ) -> Result<Self> {
        let largest = runs.iter().map(Tape::extent_bytes).max().unwrap_or(0).max(1);
        let at_once = (EXTENTS_BYTES / largest).clamp(RUNS_MIN, RUNS_MAX);
        // An extent of each, and a row that was made of it.
        room.must_take(2 * largest * at_once.min(runs.len()))?;
        while runs.len() > at_once {
            let file = run.spill_file()?;
            let mut merged = Vec::with_capacity(runs.len().div_ceil(at_once));
            let mut left = runs.into_iter().peekable();
            while left.peek().is_some() {
                let mut rows = Self::new(run, keys, left.by_ref().take(at_once))?;
                let mut tape = Tape::new(&file);
                while let Some(row) = rows.next()? {
                    run.goes_on_after(0)?;
                    tape.push(&row)?;
                }
                tape.end()?;
                merged.push(tape);
            }
            runs = merged;
        }
        Self::new(run, keys, runs)
    }

    fn new(run: &'r Run<'a>, keys: &'r [SortKey], runs: impl IntoIterator<Item = Tape>) -> Result<Self> {
        let runs = runs.into_iter().map(Tape::into_rows).collect();
        let mut merge = Self { run, runs, heads: BinaryHeap::new() };
        (0..merge.runs.len()).try_for_each(|run| merge.read(keys, run))?;
        Ok(merge)
    }

    /// Reads the next row of a run.
    fn read(&mut self, keys: &'r [SortKey], run: usize) -> Result<()> {
        if let Some(row) = self.runs[run].next()? {
            self.heads.push(Head { keys, row, run });
        }
        Ok(())
    }

    pub(super) fn next(&mut self) -> Result<Option<Vec<Value>>> {
        let Some(Head { keys, row, run }) = self.heads.pop() else { return Ok(None) };
        self.run.goes_on_after(0)?;
        self.read(keys, run)?;
        Ok(Some(row))
    }
}
