//! Numbers for keys: equal keys have one, counted from 0 in the order in which they come.

mod integers;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use savanna_streams_api::Result;

use self::integers::IntegerNumbers;
use crate::error::computing;

/// The numbers given so far. None of them is taken back.
pub(crate) struct KeyNumbers {
    schema: SchemaRef,
    table: Table,
}

enum Table {
    /// No key columns: every row has number 0. How many numbers that makes, 0 or 1.
    Empty(usize),
    /// One column of `BIGINT`, as most keys are.
    Integers(IntegerNumbers),
    Columns(Box<dyn GroupValues>),
}

impl KeyNumbers {
    /// No numbers yet, for keys of these columns.
    ///
    /// # Errors
    /// The columns cannot be keys.
    pub(crate) fn new(schema: &SchemaRef) -> Result<Self> {
        let table = match schema.fields().as_ref() {
            [] => Table::Empty(0),
            [key] if key.data_type() == &DataType::Int64 => Table::Integers(IntegerNumbers::new()),
            _ => Table::Columns(
                new_group_values(Arc::clone(schema), &GroupOrdering::None).map_err(|e| computing("a key", &e))?,
            ),
        };
        Ok(Self { schema: Arc::clone(schema), table })
    }

    /// The same without any numbers.
    pub(crate) fn emptied(&self) -> Result<Self> {
        Self::new(&self.schema)
    }

    /// How many different keys came.
    pub(crate) fn len(&self) -> usize {
        match &self.table {
            Table::Empty(numbers) => *numbers,
            Table::Integers(numbers) => numbers.len(),
            Table::Columns(numbers) => numbers.len(),
        }
    }

    /// Sets `numbers` to those of the keys of so many rows.
    pub(crate) fn number(&mut self, keys: &[ArrayRef], rows: usize, numbers: &mut Vec<usize>) -> Result<()> {
        match &mut self.table {
            Table::Empty(one) => {
                *one = (*one).max(usize::from(rows > 0));
                numbers.clear();
                numbers.resize(rows, 0);
                Ok(())
            }
            Table::Integers(table) => table.number(keys[0].as_primitive::<Int64Type>(), numbers),
            Table::Columns(table) => table.intern(keys, numbers).map_err(|e| computing("a key", &e)),
        }
    }

    /// The keys in the order of their numbers.
    pub(crate) fn into_columns(self) -> Result<Vec<ArrayRef>> {
        match self.table {
            Table::Empty(_) => Ok(Vec::new()),
            Table::Integers(numbers) => Ok(vec![Arc::new(numbers.into_keys())]),
            Table::Columns(mut numbers) => numbers.emit(EmitTo::All).map_err(|e| computing("a key", &e)),
        }
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.table {
            Table::Empty(_) => 0,
            Table::Integers(numbers) => numbers.bytes(),
            Table::Columns(numbers) => numbers.size(),
        }
    }
}
