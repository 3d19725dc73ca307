//! One grouped table: the aggregates of one pane, or of one window while it closes.

use arrow::array::{ArrayRef, RecordBatch};
use savanna_streams_api::Result;

use super::accumulators::Accumulators;
use super::spec::{AggregateSpec, Evaluated};
use crate::chain::batch_of;
use crate::key_numbers::KeyNumbers;

/// Groups and their accumulators. A table is emptied once and dropped.
pub(super) struct PaneTable {
    keys: KeyNumbers,
    accumulators: Accumulators,
}

/// Keys and results, a row per group.
pub(super) struct Results {
    pub(super) rows: usize,
    pub(super) columns: Vec<ArrayRef>,
}

impl Results {
    /// The results of the groups of a single table, by their partial aggregates.
    pub(super) fn of_state(spec: &AggregateSpec, rows: &RecordBatch) -> Result<Self> {
        let (keys, state) = rows.columns().split_at(spec.key_columns());
        let ids: Vec<usize> = (0..rows.num_rows()).collect();
        let mut accumulators = Accumulators::new(spec)?;
        accumulators.merge(spec, state, &ids, ids.len())?;
        let columns = [keys.to_vec(), accumulators.results()?].concat();
        Ok(Self { rows: ids.len(), columns })
    }
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
    pub(super) fn into_results(self) -> Result<Results> {
        let rows = self.len();
        let mut columns = self.keys.into_columns()?;
        columns.extend(self.accumulators.results()?);
        Ok(Results { rows, columns })
    }

    pub(super) fn bytes(&self) -> usize {
        self.keys.bytes() + self.accumulators.bytes()
    }
}
