//! A windowed aggregate, decoded.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{ColumnarValue, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, aggregate_expressions};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::WindowAggregate;
use savanna_streams_model::time::Windows;

use crate::chain::{evaluate, evaluate_condition};
use crate::error::{broken, computing, evaluating};
use crate::key_numbers::KeyNumbers;

/// A windowed aggregate, lifted out of a planned `AggregateExec`.
#[derive(Debug)]
pub struct AggregateSpec {
    windows: Windows,
    pub(super) time_column: usize,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    key_schema: SchemaRef,
    functions: Vec<Function>,
    delta_schema: SchemaRef,
}

#[derive(Debug)]
struct Function {
    expression: Arc<AggregateFunctionExpr>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    argument_types: Vec<DataType>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// How many columns its state takes.
    state_columns: usize,
}

/// What a batch of rows brings to the aggregate, before it is split by pane.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    pub(super) keys: Vec<ArrayRef>,
    /// Per function.
    pub(super) arguments: Vec<Vec<ArrayRef>>,
    /// Per function.
    pub(super) filters: Vec<Option<BooleanArray>>,
    pub(super) rows: usize,
}

/// Arrays of one value, kept from batch to batch: `COUNT(*)` counts a literal.
#[derive(Debug, Default)]
pub(super) struct Constants(Vec<(usize, usize, ArrayRef)>);

impl AggregateSpec {
    /// Decodes an aggregate. `functions` knows every function it names.
    ///
    /// # Errors
    /// The plan is no `AggregateExec` over a leaf, or groups by several sets.
    pub fn decode(aggregate: &WindowAggregate, functions: &TaskContext) -> Result<Self> {
        let plan = aggregate.aggregate.decode(functions)?;
        let Some(exec) = plan.downcast_ref::<AggregateExec>() else {
            return Err(broken(format!("a windowed aggregate must be an AggregateExec, but it is a {}", plan.name())));
        };
        if exec.group_expr().has_grouping_set() {
            return Err(StreamError::Unsupported {
                what: "GROUPING SETS in a windowed aggregate".into(),
                position: None,
                instead: "write one query per set".into(),
            });
        }
        let keys: Vec<_> = exec.group_expr().expr().iter().map(|(key, _)| Arc::clone(key)).collect();
        let key_fields = exec.schema().fields()[..keys.len()].to_vec();
        let arguments = aggregate_expressions(exec.aggr_expr(), &AggregateMode::Single, keys.len())
            .map_err(|e| broken(format!("an aggregate's arguments: {e}")))?;
        let mut delta_fields: Vec<Field> =
            key_fields.iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let mut decoded = Vec::with_capacity(arguments.len());
        for ((expression, arguments), filter) in exec.aggr_expr().iter().zip(arguments).zip(exec.filter_expr()) {
            let state =
                expression.state_fields().map_err(|e| broken(format!("state of {}: {e}", expression.name())))?;
            delta_fields.extend(state.iter().map(|field| field.as_ref().clone().with_nullable(true)));
            let input = exec.input_schema();
            let argument_types = arguments.iter().map(|argument| argument.data_type(&input)).collect::<Result<_, _>>();
            decoded.push(Function {
                expression: Arc::clone(expression),
                arguments,
                argument_types: argument_types.map_err(|e| broken(format!("an aggregate's arguments: {e}")))?,
                filter: filter.clone(),
                state_columns: state.len(),
            });
        }
        Ok(Self {
            windows: aggregate.windows,
            time_column: aggregate.time_column,
            keys,
            key_schema: Arc::new(Schema::new(key_fields)),
            functions: decoded,
            delta_schema: Arc::new(Schema::new(delta_fields)),
        })
    }

    /// How rows come into windows.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// How many key columns there are; they come first in every delta.
    pub fn key_columns(&self) -> usize {
        self.keys.len()
    }

    /// The columns of a delta: keys, then the aggregates' state.
    pub(crate) fn delta_schema(&self) -> &SchemaRef {
        &self.delta_schema
    }

    /// The state columns of each function, as ranges of a delta's columns behind the keys.
    pub(super) fn state_ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut next = 0;
        self.functions.iter().map(move |function| {
            let start = next;
            next += function.state_columns;
            start..next
        })
    }

    /// The state of a function for groups of which it has seen no row.
    pub(super) fn state_without_rows(&self, function: usize, groups: usize) -> Result<Vec<ArrayRef>> {
        self.functions[function].state_without_rows(groups)
    }

    pub(super) fn new_keys(&self) -> Result<KeyNumbers> {
        KeyNumbers::new(&self.key_schema)
    }

    pub(super) fn new_accumulators(&self) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        self.functions.iter().map(Function::new_accumulator).collect()
    }

    pub(super) fn evaluate(&self, rows: &RecordBatch, constants: &mut Constants) -> Result<Evaluated> {
        let keys = self.keys.iter().map(|key| evaluate(key, rows)).collect::<Result<_>>()?;
        let mut arguments = Vec::with_capacity(self.functions.len());
        let mut filters = Vec::with_capacity(self.functions.len());
        for (index, function) in self.functions.iter().enumerate() {
            let values = function.arguments.iter().enumerate();
            arguments.push(
                values.map(|(i, argument)| constants.evaluate((index, i), argument, rows)).collect::<Result<_>>()?,
            );
            filters.push(function.filter.as_ref().map(|filter| evaluate_condition(filter, rows)).transpose()?);
        }
        Ok(Evaluated { keys, arguments, filters, rows: rows.num_rows() })
    }
}

impl Function {
    /// A group is there by its rows, none of which passes the filter.
    fn state_without_rows(&self, groups: usize) -> Result<Vec<ArrayRef>> {
        let arguments: Vec<_> = self.argument_types.iter().map(|of| new_null_array(of, groups)).collect();
        let (ids, none) = ((0..groups).collect::<Vec<_>>(), BooleanArray::from(vec![false; groups]));
        let mut accumulator = self.new_accumulator()?;
        let updated = accumulator.update_batch(&arguments, &ids, Some(&none), groups);
        updated.and_then(|()| accumulator.state(EmitTo::All)).map_err(|e| evaluating("an aggregate", &e))
    }

    fn new_accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        if self.expression.groups_accumulator_supported() {
            return self.expression.create_groups_accumulator().map_err(|e| computing(self.expression.name(), &e));
        }
        let expression = Arc::clone(&self.expression);
        Ok(Box::new(GroupsAccumulatorAdapter::new(move || expression.create_accumulator())))
    }
}

impl Constants {
    fn evaluate(
        &mut self,
        place: (usize, usize),
        argument: &Arc<dyn PhysicalExpr>,
        rows: &RecordBatch,
    ) -> Result<ArrayRef> {
        if !argument.is::<Literal>() {
            return evaluate(argument, rows);
        }
        let wanted = rows.num_rows();
        let known = self.0.iter().position(|(function, index, _)| (*function, *index) == place);
        let position = match known {
            Some(position) if self.0[position].2.len() >= wanted => position,
            known => {
                let value = match argument.evaluate(rows) {
                    Ok(ColumnarValue::Scalar(value)) => value.to_array_of_size(wanted),
                    Ok(ColumnarValue::Array(values)) => Ok(values),
                    Err(e) => Err(e),
                };
                let array = value.map_err(|e| computing("a constant", &e))?;
                let entry = (place.0, place.1, array);
                if let Some(position) = known {
                    self.0[position] = entry;
                    position
                } else {
                    self.0.push(entry);
                    self.0.len() - 1
                }
            }
        };
        Ok(self.0[position].2.slice(0, wanted))
    }
}

impl Evaluated {
    /// A run of neighbouring rows; nothing is copied.
    pub(super) fn slice(&self, start: usize, rows: usize) -> Self {
        let cut = |array: &ArrayRef| array.slice(start, rows);
        Self {
            keys: self.keys.iter().map(cut).collect(),
            arguments: self.arguments.iter().map(|arrays| arrays.iter().map(cut).collect()).collect(),
            filters: self
                .filters
                .iter()
                .map(|filter| filter.as_ref().map(|filter| filter.slice(start, rows)))
                .collect(),
            rows,
        }
    }

    /// Some rows, copied; constants are not, and what several functions take is copied once.
    pub(super) fn take(&self, spec: &AggregateSpec, positions: &UInt32Array) -> Result<Self> {
        let mut copied: Vec<(&ArrayRef, ArrayRef)> = Vec::new();
        let mut take = |array| -> Result<ArrayRef> {
            if let Some((_, copy)) = copied.iter().find(|(original, _)| Arc::ptr_eq(original, array)) {
                return Ok(Arc::clone(copy));
            }
            let copy = arrow::compute::take(array, positions, None);
            let copy = copy.map_err(|e| computing("splitting rows by pane", &e))?;
            copied.push((array, Arc::clone(&copy)));
            Ok(copy)
        };
        let keys = self.keys.iter().map(&mut take).collect::<Result<_>>()?;
        let filter = |filter: &Option<BooleanArray>| -> Result<Option<BooleanArray>> {
            let Some(filter) = filter else {
                return Ok(None);
            };
            let kept =
                arrow::compute::take(filter, positions, None).map_err(|e| computing("splitting rows by pane", &e))?;
            Ok(Some(kept.as_boolean().clone()))
        };
        let arguments = self.arguments.iter().zip(&spec.functions).map(|(arrays, function)| {
            let arguments = arrays.iter().zip(&function.arguments);
            let taken = arguments.map(|(array, argument)| match argument.is::<Literal>() {
                true => Ok(array.slice(0, positions.len())),
                false => take(array),
            });
            taken.collect::<Result<_>>()
        });
        Ok(Self {
            keys,
            arguments: arguments.collect::<Result<_>>()?,
            filters: self.filters.iter().map(filter).collect::<Result<_>>()?,
            rows: positions.len(),
        })
    }
}
