//! The accumulators of all aggregates of a table, moved together.

use arrow::array::ArrayRef;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use savanna_streams_api::Result;
use savanna_streams_functions::with_one_nan;

use super::spec::{AggregateSpec, Evaluated};
use crate::error::evaluating;

/// One accumulator per aggregate; group numbers are given from outside. Reading empties them.
pub(super) struct Accumulators(Vec<Box<dyn GroupsAccumulator>>);

impl Accumulators {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        spec.new_accumulators().map(Self)
    }

    /// Adds rows; `ids[i]`, below `groups`, is the group of row `i`.
    pub(super) fn update(&mut self, rows: &Evaluated, ids: &[usize], groups: usize) -> Result<()> {
        for ((accumulator, arguments), filter) in self.0.iter_mut().zip(&rows.arguments).zip(&rows.filters) {
            accumulator
                .update_batch(arguments, ids, filter.as_ref(), groups)
                .map_err(|e| evaluating("an aggregate", &e))?;
        }
        Ok(())
    }

    /// Adds partial aggregates: the columns of [`Accumulators::state`].
    pub(super) fn merge(
        &mut self,
        spec: &AggregateSpec,
        state: &[ArrayRef],
        ids: &[usize],
        groups: usize,
    ) -> Result<()> {
        for (accumulator, range) in self.0.iter_mut().zip(spec.state_ranges()) {
            accumulator.merge_batch(&state[range], ids, groups).map_err(|e| evaluating("an aggregate", &e))?;
        }
        Ok(())
    }

    /// The partial aggregates of all groups, in the order of [`AggregateSpec::state_ranges`].
    pub(super) fn state(mut self) -> Result<Vec<ArrayRef>> {
        let mut columns = Vec::new();
        for accumulator in &mut self.0 {
            columns.extend(accumulator.state(EmitTo::All).map_err(|e| evaluating("an aggregate", &e))?);
        }
        Ok(columns)
    }

    /// The results of all groups.
    pub(super) fn results(mut self) -> Result<Vec<ArrayRef>> {
        let result = |accumulator: &mut Box<dyn GroupsAccumulator>| accumulator.evaluate(EmitTo::All).map(with_one_nan);
        self.0.iter_mut().map(|a| result(a).map_err(|e| evaluating("an aggregate", &e))).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|accumulator| accumulator.size()).sum()
    }
}
