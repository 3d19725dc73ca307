//! Runs of panes merged ahead, so that a window of many panes is put together from few batches.
//!
//! ```text
//!   level 2   |-----------------------|
//!   level 1   |-----------|-----------|-----------|
//!   panes     |-----|-----|-----|-----|-----|-----|
//!   window          |-----------------------------|    = a pane and two runs of level 1
//! ```
//!
//! A run of level `l` has 2^l panes and begins at a multiple of that. It is merged from its halves when a window first needs
//! it, and serves all windows that begin at or before it. A window of n panes takes at most 2 log2(n) batches instead of n,
//! and a pane is merged into a run log2(n) times at most; where keys seldom come again in the next pane, merging would only
//! double the memory, and panes stay apart.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow::array::RecordBatch;
use savanna_streams_api::Result;

/// A run is kept if its rows are at most so many quarters of its halves' rows.
const WORTH_QUARTERS: usize = 3;

/// Where runs come from. Panes are numbered in the order of time.
pub(super) trait Panes {
    /// Whether any of these panes has rows.
    fn any(&self, panes: Range<i64>) -> bool;

    /// The rows of a pane, if it has any.
    fn rows(&mut self, pane: i64) -> Result<Option<RecordBatch>>;

    /// Merges the partial aggregates of two batches.
    fn merge(&mut self, batches: &[RecordBatch]) -> Result<RecordBatch>;
}

/// Merged runs by first pane and level; none where the halves serve as well.
#[derive(Default)]
pub(super) struct PaneRuns(BTreeMap<(i64, u32), Option<RecordBatch>>);

impl PaneRuns {
    /// Adds batches that together hold the rows of `panes` to `into`.
    pub(super) fn cover(
        &mut self,
        panes: Range<i64>,
        source: &mut impl Panes,
        into: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        let mut first = panes.start;
        while first < panes.end {
            let level = first.trailing_zeros().min((panes.end - first).ilog2());
            self.run(first, level, source, into)?;
            first += 1 << level;
        }
        Ok(())
    }

    fn run(&mut self, first: i64, level: u32, source: &mut impl Panes, into: &mut Vec<RecordBatch>) -> Result<()> {
        if level == 0 {
            into.extend(source.rows(first)?);
            return Ok(());
        }
        if let Some(Some(merged)) = self.0.get(&(first, level)) {
            into.push(merged.clone());
            return Ok(());
        }
        if !source.any(first..first + (1 << level)) {
            return Ok(());
        }
        let known = self.0.contains_key(&(first, level));
        let mut halves = Vec::new();
        self.run(first, level - 1, source, &mut halves)?;
        self.run(first + (1 << (level - 1)), level - 1, source, &mut halves)?;
        if !known {
            let merged = if let [left, right] = halves.as_slice() {
                let merged = source.merge(&halves)?;
                let worth = merged.num_rows() * 4 <= (left.num_rows() + right.num_rows()) * WORTH_QUARTERS;
                worth.then_some(merged)
            } else {
                None
            };
            self.0.insert((first, level), merged.clone());
            if let Some(merged) = merged {
                halves = vec![merged];
            }
        }
        into.extend(halves);
        Ok(())
    }

    /// Drops runs that begin before a pane: no window needs them any more.
    pub(super) fn forget_before(&mut self, pane: i64) {
        while let Some(first) = self.0.first_entry()
            && first.key().0 < pane
        {
            first.remove();
        }
    }

    /// A pane has changed.
    pub(super) fn forget_with(&mut self, pane: i64) {
        self.0.retain(|(first, level), _| !(*first..*first + (1 << *level)).contains(&pane));
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.values().flatten().map(RecordBatch::get_array_memory_size).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use proptest::prelude::*;

    use super::*;

    /// Every pane has its own number as its only row; merging adds up.
    #[derive(Default)]
    struct Numbers {
        merges: usize,
    }

    fn row(number: i64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![number]))]).unwrap()
    }

    fn sum(batches: &[RecordBatch]) -> i64 {
        batches.iter().map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0)).sum()
    }

    impl Panes for Numbers {
        fn any(&self, _: Range<i64>) -> bool {
            true
        }

        fn rows(&mut self, pane: i64) -> Result<Option<RecordBatch>> {
            Ok(Some(row(pane)))
        }

        fn merge(&mut self, batches: &[RecordBatch]) -> Result<RecordBatch> {
            self.merges += 1;
            Ok(row(sum(batches)))
        }
    }

    proptest! {
        #[test]
        fn a_sliding_window_is_covered_by_few_runs_that_are_merged_once(first in -300_i64..300, panes in 1_i64..200) {
            let (mut runs, mut numbers) = (PaneRuns::default(), Numbers::default());
            for start in first..first + 100 {
                let mut batches = Vec::new();
                runs.cover(start..start + panes, &mut numbers, &mut batches).unwrap();
                prop_assert_eq!(sum(&batches), (start..start + panes).sum::<i64>());
                prop_assert!(batches.len() <= 2 * panes.ilog2() as usize + 1, "{} batches", batches.len());
                runs.forget_before(start + 1);
            }
            prop_assert!(numbers.merges as i64 <= panes + 100, "{} merges for {} panes", numbers.merges, panes + 100);
            prop_assert!(runs.0.keys().all(|(run, _)| *run >= first + 100));
        }
    }
}
