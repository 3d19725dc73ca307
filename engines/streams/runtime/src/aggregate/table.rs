//! One grouped table: the aggregates of one pane, or of one window while it closes.

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::group_values::GroupValues;
use savanna_streams_model::Result;

use super::spec::{AggregateSpec, Evaluated};
use crate::chain::batch_of;
use crate::error::computing;

/// Groups and their accumulators. A table is emptied once and dropped: `GroupValues` of several columns must not be used
/// again after `emit` (it would keep group numbers that no longer exist).
pub(super) struct PaneTable {
    /// None if there are no keys: then everything is group 0.
    groups: Option<Box<dyn GroupValues>>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    without_keys: usize,
}

impl PaneTable {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        Ok(Self { groups: spec.new_groups()?, accumulators: spec.new_accumulators()?, without_keys: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.groups.as_ref().map_or(self.without_keys, |groups| groups.len())
    }

    /// Adds rows. `ids` is scratch space.
    pub(super) fn update(&mut self, rows: &Evaluated, ids: &mut Vec<usize>) -> Result<()> {
        self.intern(&rows.keys, rows.rows, ids)?;
        let groups = self.len();
        for ((accumulator, arguments), filter) in self.accumulators.iter_mut().zip(&rows.arguments).zip(&rows.filters) {
            accumulator
                .update_batch(arguments, ids, filter.as_ref(), groups)
                .map_err(|e| computing("an aggregate", &e))?;
        }
        Ok(())
    }

    /// Adds partial aggregates.
    pub(super) fn merge(&mut self, spec: &AggregateSpec, delta: &RecordBatch, ids: &mut Vec<usize>) -> Result<()> {
        let columns = delta.columns();
        self.intern(&columns[..spec.key_columns()], delta.num_rows(), ids)?;
        let groups = self.len();
        for (accumulator, range) in self.accumulators.iter_mut().zip(spec.state_ranges()) {
            accumulator.merge_batch(&columns[range], ids, groups).map_err(|e| computing("merging an aggregate", &e))?;
        }
        Ok(())
    }

    /// The partial aggregates, and the end of the table.
    pub(super) fn into_state(mut self, spec: &AggregateSpec) -> Result<RecordBatch> {
        let rows = self.len();
        let mut columns = self.emit_keys()?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All).map_err(|e| computing("an aggregate's state", &e))?);
        }
        batch_of(spec.delta_schema(), columns, rows)
    }

    /// Keys and results, and the end of the table.
    pub(super) fn into_results(mut self) -> Result<Vec<ArrayRef>> {
        let mut columns = self.emit_keys()?;
        for accumulator in &mut self.accumulators {
            columns.push(accumulator.evaluate(EmitTo::All).map_err(|e| computing("an aggregate's result", &e))?);
        }
        Ok(columns)
    }

    pub(super) fn bytes(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, |groups| groups.size());
        groups + self.accumulators.iter().map(|accumulator| accumulator.size()).sum::<usize>()
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<usize>) -> Result<()> {
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

    fn emit_keys(&mut self) -> Result<Vec<ArrayRef>> {
        match &mut self.groups {
            Some(groups) => groups.emit(EmitTo::All).map_err(|e| computing("GROUP BY", &e)),
            None => Ok(Vec::new()),
        }
    }
}
