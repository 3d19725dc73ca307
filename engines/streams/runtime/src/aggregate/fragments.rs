//! Rows as fragments of sessions: what an epoch's rows of one key, near each other, come to.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;

use super::accumulators::Accumulators;
use super::spec::{AggregateSpec, Evaluated};
use crate::chain::batch_of;
use crate::error::computing;
use crate::key_numbers::KeyNumbers;

/// No fragment.
const NONE: u32 = u32::MAX;

/// So many fragments of its key are looked at for a row, the newest first. A row that would fit an older one starts
/// another: fragments may touch, since they are joined when they are merged.
const LOOK_BACK: usize = 8;

/// Whether two runs of rows of one key belong to one session: the later one begins before the earlier one's session ends.
pub(super) fn touch(a: (i64, i64), b: (i64, i64), gap: i64) -> bool {
    a.0.saturating_sub(gap) < b.1 && b.0 < a.1.saturating_add(gap)
}

/// The fragments of the rows since the last freeze.
pub(super) struct Fragments {
    keys: KeyNumbers,
    accumulators: Accumulators,
    /// The newest fragment of each key.
    newest: Vec<u32>,
    fragments: Vec<Fragment>,
}

/// A run of rows of one key, each less than the gap from the rest.
struct Fragment {
    key: u32,
    first: i64,
    last: i64,
    /// The fragment of this key that was made before it.
    older: u32,
}

impl Fragments {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        let (keys, accumulators) = (spec.new_keys()?, Accumulators::new(spec)?);
        Ok(Self { keys, accumulators, newest: Vec::new(), fragments: Vec::new() })
    }

    /// Adds rows with their times in microseconds. `ids` is scratch space.
    pub(super) fn update(&mut self, rows: &Evaluated, times: &[i64], gap: i64, ids: &mut Vec<usize>) -> Result<()> {
        self.keys.number(&rows.keys, rows.rows, ids)?;
        self.newest.resize(self.keys.len(), NONE);
        for (id, time) in ids.iter_mut().zip(times) {
            *id = self.fragment_of(*id, *time, gap);
        }
        self.accumulators.update(rows, ids, self.fragments.len())
    }

    fn fragment_of(&mut self, key: usize, time: i64, gap: i64) -> usize {
        let mut at = self.newest[key];
        for _ in 0..LOOK_BACK {
            let Some(fragment) = self.fragments.get_mut(at as usize) else {
                break;
            };
            if touch((fragment.first, fragment.last), (time, time), gap) {
                fragment.first = fragment.first.min(time);
                fragment.last = fragment.last.max(time);
                return at as usize;
            }
            at = fragment.older;
        }
        let made = self.fragments.len();
        self.fragments.push(Fragment { key: key as u32, first: time, last: time, older: self.newest[key] });
        self.newest[key] = made as u32;
        made
    }

    /// One row per fragment: key columns, first and last time, state columns.
    pub(super) fn into_rows(self, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = self.keys.into_columns()?;
        // Most keys have one fragment; then keys and fragments mostly come in one order.
        if !(0..).zip(&self.fragments).all(|(key, fragment)| fragment.key == key) {
            let of_fragments = UInt32Array::from_iter_values(self.fragments.iter().map(|fragment| fragment.key));
            for column in &mut columns {
                *column = arrow::compute::take(column, &of_fragments, None).map_err(|e| computing("GROUP BY", &e))?;
            }
        }
        let times = |of: fn(&Fragment) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(self.fragments.iter().map(of)))
        };
        columns.extend([times(|fragment| fragment.first), times(|fragment| fragment.last)]);
        columns.extend(self.accumulators.state()?);
        batch_of(schema, columns, self.fragments.len())
    }

    pub(super) fn bytes(&self) -> usize {
        let own = self.newest.capacity() * size_of::<u32>() + self.fragments.capacity() * size_of::<Fragment>();
        own + self.keys.bytes() + self.accumulators.bytes()
    }
}
