//! One grouped table: the aggregates of one pane, or of one window while it closes.

use arrow::array::{ArrayRef, RecordBatch};
use savanna_streams_model::Result;

use super::accumulators::Accumulators;
use super::spec::{AggregateSpec, Evaluated};
use crate::chain::batch_of;
use crate::key_numbers::KeyNumbers;

/// Groups and their accumulators. A table is emptied once and dropped.
pub(super) struct PaneTable {
    keys: KeyNumbers,
    accumulators: Accumulators,
}

impl PaneTable {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        Ok(Self { keys: spec.new_keys()?, accumulators: Accumulators::new(spec)? })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Adds rows. `ids` is scratch space.
    pub(super) fn update(&mut self, rows: &Evaluated, ids: &mut Vec<usize>) -> Result<()> {
        self.keys.number(&rows.keys, rows.rows, ids)?;
        self.accumulators.update(rows, ids, self.keys.len())
    }

    /// Adds partial aggregates.
    pub(super) fn merge(&mut self, spec: &AggregateSpec, delta: &RecordBatch, ids: &mut Vec<usize>) -> Result<()> {
        let (keys, state) = delta.columns().split_at(spec.key_columns());
        self.keys.number(keys, delta.num_rows(), ids)?;
        self.accumulators.merge(spec, state, ids, self.keys.len())
    }

    /// The partial aggregates, and the end of the table.
    pub(super) fn into_state(self, spec: &AggregateSpec) -> Result<RecordBatch> {
        let rows = self.len();
        let mut columns = self.keys.into_columns()?;
        columns.extend(self.accumulators.state()?);
        batch_of(spec.delta_schema(), columns, rows)
    }

    /// Keys and results, and the end of the table.
    pub(super) fn into_results(self) -> Result<Vec<ArrayRef>> {
        let mut columns = self.keys.into_columns()?;
        columns.extend(self.accumulators.results()?);
        Ok(columns)
    }

    pub(super) fn bytes(&self) -> usize {
        self.keys.bytes() + self.accumulators.bytes()
    }
}
