//! Partners found by comparing keys: each row of the smaller set with the other's rows of the right time.
//!
//! A row that is compared costs about a nanosecond, a key that is numbered the misses of a table as large as the state. So
//! keys are compared until that has cost about as much as numbering them.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, RecordBatch, Scalar};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::eq;
use savanna_streams_api::Result;

use super::{IntervalJoin, LEFT, PAIRS, Pairs, RIGHT};
use crate::error::computing;

/// So many comparisons cost as much as numbering a row's key and looking it up.
const COMPARISONS_PER_ROW: usize = 16;
/// Comparing a row with a stretch of others costs as much, beside the comparisons, as so many of them.
const PER_STRETCH: usize = if cfg!(test) { 1 } else { 256 };

/// What comparing has cost, in comparisons.
#[derive(Default)]
pub(super) struct Effort(usize);

/// A row, and rows of the other side that lie together and have the right time.
struct Candidates {
    row: u32,
    others: Range<u32>,
}

/// What a side's new rows are compared with, or the other way round.
pub(super) struct Comparisons {
    /// The side of [`Candidates::row`].
    side: usize,
    candidates: Vec<Candidates>,
}

impl IntervalJoin {
    /// What has to be compared to find the partners of a side's new rows; none if numbering keys costs less.
    pub(super) fn candidates(&mut self, side: usize, new: Range<u32>) -> Option<Comparisons> {
        let other = 1 - side;
        let rows: usize = self.sides.iter().map(|side| side.numbers().len()).sum();
        let Effort(spent) = self.effort.as_mut()?;
        let mut left = (rows * COMPARISONS_PER_ROW).checked_sub(*spent)?;
        let before = left;
        let (few, of, from) = if new.len() <= self.sides[other].live() {
            (side, new, 0)
        } else {
            (other, self.sides[other].numbers(), new.start)
        };
        let (earliest, latest) = self.plans[few].reach;
        let mut candidates = Vec::new();
        for row in self.sides[few].live_within(of) {
            let time = self.sides[few].time(row);
            let times = time.saturating_add(earliest)..=time.saturating_add(latest);
            left = left.checked_sub(self.sides[1 - few].segments())?;
            for others in self.sides[1 - few].stretches(from, times) {
                left = left.checked_sub(others.len() + PER_STRETCH)?;
                candidates.push(Candidates { row, others });
            }
        }
        *spent += before - left;
        Some(Comparisons { side: few, candidates })
    }

    /// Pairs rows whose keys are equal.
    pub(super) fn compare(&mut self, comparisons: &Comparisons, out: &mut Vec<RecordBatch>) -> Result<()> {
        let mut pairs = Pairs::default();
        for Candidates { row, others } in &comparisons.candidates {
            let equal = self.equal_keys(comparisons.side, *row, others)?;
            let found = equal.set_indices().map(|place| others.start + place as u32);
            let Pairs([left, right]) = &mut pairs;
            let (own, partners) = if comparisons.side == LEFT { (left, right) } else { (right, left) };
            partners.extend(found);
            own.resize(partners.len(), *row);
            if own.len() >= PAIRS {
                self.match_pairs(std::mem::take(&mut pairs), out)?;
            }
        }
        self.match_pairs(pairs, out)
    }

    /// Which rows of a stretch of the other side have the keys of a row. No key is NULL.
    fn equal_keys(&self, side: usize, row: u32, others: &Range<u32>) -> Result<BooleanBuffer> {
        let (own, place) = self.sides[side].place(row)?;
        let (batch, first) = self.sides[1 - side].place(others.start)?;
        let keys = self.plans[LEFT].keys.iter().zip(&self.plans[RIGHT].keys);
        let mut equal = BooleanBuffer::new_set(others.len());
        for (left, right) in keys {
            let (of_row, of_others) = if side == LEFT { (left, right) } else { (right, left) };
            let key: Scalar<ArrayRef> = Scalar::new(own.column(*of_row).slice(place, 1));
            let keys = batch.column(*of_others).slice(first, others.len());
            let one = eq(&keys, &key).map_err(|e| computing("comparing keys of a join", &e))?;
            equal = &equal & one.values();
        }
        Ok(equal)
    }
}
