//! What a pair of rows must fulfil besides equal keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::prep_null_mask_filter;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_model::join::JoinCondition;

use crate::chain::{Chain, batch_of};
use crate::error::broken;

/// A decoded condition.
pub(crate) struct PairCondition {
    /// The columns of each side that it reads.
    pub(crate) left: Vec<usize>,
    pub(crate) right: Vec<usize>,
    holds: Chain,
}

impl PairCondition {
    pub(crate) fn decode(condition: &JoinCondition, functions: &Arc<TaskContext>) -> Result<Self> {
        let holds = Chain::decode(&condition.holds, functions)?;
        Ok(Self { left: condition.left.clone(), right: condition.right.clone(), holds })
    }

    /// For which pairs it holds, given the columns that it reads. NULL does not hold.
    pub(crate) fn holds(&mut self, columns: Vec<ArrayRef>, pairs: usize) -> Result<BooleanBuffer> {
        let rows = self.holds.apply(batch_of(self.holds.input(), columns, pairs)?)?;
        let holds = rows.first().and_then(|rows| rows.column(0).as_boolean_opt());
        let holds = holds.filter(|holds| holds.len() == pairs);
        let holds = holds.ok_or_else(|| broken("a condition on pairs gives no BOOLEAN for each of them"))?;
        Ok(if holds.null_count() > 0 { prep_null_mask_filter(holds).values().clone() } else { holds.values().clone() })
    }
}
