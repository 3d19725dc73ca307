//! Numbers for join keys: equal keys of both sides have one.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use savanna_streams_model::Result;

use crate::error::computing;

/// The numbers given so far. None of them is taken back: what no longer needs most of them begins anew.
pub(super) struct KeyNumbers {
    schema: SchemaRef,
    /// None without keys: then all rows have number 0.
    numbers: Option<Box<dyn GroupValues>>,
}

impl KeyNumbers {
    pub(super) fn new(types: Vec<DataType>) -> Result<Self> {
        let fields: Vec<Field> = types.into_iter().map(|data_type| Field::new("key", data_type, true)).collect();
        Self::over(Arc::new(Schema::new(fields)))
    }

    /// The same without any numbers.
    pub(super) fn emptied(&self) -> Result<Self> {
        Self::over(Arc::clone(&self.schema))
    }

    fn over(schema: SchemaRef) -> Result<Self> {
        let numbers = match schema.fields().is_empty() {
            true => None,
            false => Some(
                new_group_values(Arc::clone(&schema), &GroupOrdering::None)
                    .map_err(|e| computing("the keys of a join", &e))?,
            ),
        };
        Ok(Self { schema, numbers })
    }

    /// The key number of each row.
    pub(super) fn number(&mut self, rows: &RecordBatch, keys: &[usize], numbers: &mut Vec<usize>) -> Result<()> {
        let Some(known) = &mut self.numbers else {
            numbers.clear();
            numbers.resize(rows.num_rows(), 0);
            return Ok(());
        };
        let keys: Vec<ArrayRef> = keys.iter().map(|key| Arc::clone(rows.column(*key))).collect();
        known.intern(&keys, numbers).map_err(|e| computing("the keys of a join", &e))
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.as_ref().map_or(0, |numbers| numbers.size())
    }
}
