//! One grouped table: the aggregates of one pane, or of one window while it closes.

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::GroupValues;
use savanna_streams_model::Result;

use super::accumulators::Accumulators;
use super::spec::{AggregateSpec, Evaluated};
use crate::chain::batch_of;
use crate::error::computing;

/// Groups and their accumulators. A table is emptied once and dropped: `GroupValues` of several columns must not be used
/// again after `emit` (it would keep group numbers that no longer exist).
pub(super) struct PaneTable {
    keys: Keys,
    accumulators: Accumulators,
}

/// Numbers keys in the order in which they come.
pub(super) struct Keys {
    /// None if there are no key columns: then everything is group 0.
    groups: Option<Box<dyn GroupValues>>,
    without_keys: usize,
}

impl PaneTable {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        Ok(Self { keys: Keys::new(spec)?, accumulators: Accumulators::new(spec)? })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Adds rows. `ids` is scratch space.
    pub(super) fn update(&mut self, rows: &Evaluated, ids: &mut Vec<usize>) -> Result<()> {
        self.keys.intern(&rows.keys, rows.rows, ids)?;
        self.accumulators.update(rows, ids, self.keys.len())
    }

    /// Adds partial aggregates.
    pub(super) fn merge(&mut self, spec: &AggregateSpec, delta: &RecordBatch, ids: &mut Vec<usize>) -> Result<()> {
        let (keys, state) = delta.columns().split_at(spec.key_columns());
        self.keys.intern(keys, delta.num_rows(), ids)?;
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

impl Keys {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        Ok(Self { groups: spec.new_groups()?, without_keys: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.groups.as_ref().map_or(self.without_keys, |groups| groups.len())
    }

    /// Sets `ids` to the numbers of the keys of so many rows.
    pub(super) fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<usize>) -> Result<()> {
        match &mut self.groups {
            Some(groups) => groups.intern(keys, ids).map_err(|e| computing("GROUP BY", &e)),
            None => {
                self.without_keys = self.without_keys.max(usize::from(rows > 0));
                ids.clear();
                ids.resize(rows, 0);
                Ok(())
            }
        }
    }

    /// The keys in the order of their numbers.
    pub(super) fn into_columns(self) -> Result<Vec<ArrayRef>> {
        match self.groups {
            Some(mut groups) => groups.emit(EmitTo::All).map_err(|e| computing("GROUP BY", &e)),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.size())
    }
}
