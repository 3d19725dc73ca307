//! `AVG`: of whole numbers a whole number of the same type, cut towards zero, as streaming SQL has it. Other types are
//! DataFusion's.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt64Type,
};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

/// The aggregate.
pub(super) fn function() -> Arc<AggregateUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(Average { signature, aliases: vec!["mean".to_owned()], inner: avg_udaf() }.into())
}

/// The type of a sum: it holds 2^63 values of any integer type.
const SUM: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    signature: Signature,
    aliases: Vec<String>,
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &'static str {
        "avg"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(vec![match types {
            [signed @ (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64)] => signed.clone(),
            [unsigned] if unsigned.is_integer() => DataType::Int64,
            [decimal] if decimal.is_decimal() => decimal.clone(),
            [DataType::Null | DataType::Float16 | DataType::Float32 | DataType::Float64] => DataType::Float64,
            other => {
                let got = other.iter().map(savanna_streams_api::type_name).collect::<Vec<_>>().join(", ");
                return plan_err!("AVG takes a number, but got {got}");
            }
        }])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [integer] if integer.is_integer() => Ok(integer.clone()),
            other => self.inner.return_type(other),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !args.input_fields[0].data_type().is_integer() {
            return self.inner.state_fields(args);
        }
        let field = |part: &str, data_type| Arc::new(Field::new(format_state_name(args.name, part), data_type, true));
        Ok(if args.is_distinct {
            let values = Field::new_list_field(DataType::Int64, true);
            vec![field("avg distinct", DataType::List(Arc::new(values)))]
        } else {
            vec![field("count", DataType::UInt64), field("sum", SUM)]
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (args.expr_fields[0].data_type(), args.is_distinct) {
            (integer, true) if integer.is_integer() => {
                Ok(Box::new(DistinctAverage { values: HashSet::new(), returns: integer.clone() }))
            }
            (integer, false) if integer.is_integer() => {
                Ok(Box::new(TotalAverage { totals: Totals::default(), returns: integer.clone() }))
            }
            _ => self.inner.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match (args.expr_fields[0].data_type(), args.is_distinct) {
            (integer, distinct) if integer.is_integer() => !distinct,
            _ => self.inner.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match args.expr_fields[0].data_type() {
            integer if integer.is_integer() => integer_average(integer),
            _ => self.inner.create_groups_accumulator(args),
        }
    }
}

fn integer_average(integer: &DataType) -> Result<Box<dyn GroupsAccumulator>> {
    Ok(match integer {
        DataType::Int8 => Box::<IntegerAverage<Int8Type>>::default(),
        DataType::Int16 => Box::<IntegerAverage<Int16Type>>::default(),
        DataType::Int32 => Box::<IntegerAverage<Int32Type>>::default(),
        DataType::Int64 => Box::<IntegerAverage<Int64Type>>::default(),
        other => return internal_err!("no integer average of {other}"),
    })
}

/// Count and sum of each group.
struct IntegerAverage<T> {
    groups: Vec<Totals>,
    of: std::marker::PhantomData<T>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    sum: i128,
    count: u64,
}

impl Totals {
    fn add(&mut self, value: i64) {
        self.sum += i128::from(value);
        self.count += 1;
    }

    /// None of no values.
    fn average(self) -> Option<i64> {
        // It lies between the smallest and the largest value.
        (self.count > 0).then(|| (self.sum / i128::from(self.count)) as i64)
    }
}

impl<T> Default for IntegerAverage<T> {
    fn default() -> Self {
        Self { groups: Vec::new(), of: std::marker::PhantomData }
    }
}

impl<T: ArrowPrimitiveType + Send> GroupsAccumulator for IntegerAverage<T>
where
    T::Native: Into<i64> + TryFrom<i64>,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Totals::default());
        let values = values[0].as_primitive::<T>();
        if filter.is_none() && values.null_count() == 0 {
            for (group, value) in group_indices.iter().zip(values.values()) {
                self.groups[*group].add((*value).into());
            }
            return Ok(());
        }
        for (row, group) in group_indices.iter().enumerate() {
            if values.is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                self.groups[*group].add(values.value(row).into());
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let average = |totals: Totals| T::Native::try_from(totals.average()?).ok();
        Ok(Arc::new(groups.into_iter().map(average).collect::<PrimitiveArray<T>>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = emit_to.take_needed(&mut self.groups);
        let counts = UInt64Array::from_iter_values(groups.iter().map(|t| t.count));
        let sums = Decimal128Array::from_iter_values(groups.iter().map(|t| t.sum)).with_data_type(SUM);
        Ok(vec![Arc::new(counts), Arc::new(sums)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.groups.resize(total_num_groups, Totals::default());
        let (counts, sums) = (values[0].as_primitive::<UInt64Type>(), values[1].as_primitive::<Decimal128Type>());
        for (row, group) in group_indices.iter().enumerate() {
            let totals = &mut self.groups[*group];
            totals.count += counts.value(row);
            totals.sum += sums.value(row);
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut alone = Self::default();
        let rows = values[0].len();
        alone.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Totals>()
    }
}

/// The average over all rows.
#[derive(Debug)]
struct TotalAverage {
    totals: Totals,
    returns: DataType,
}

impl Accumulator for TotalAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = cast(&values[0], &DataType::Int64)?;
        for value in values.as_primitive::<Int64Type>().iter().flatten() {
            self.totals.add(value);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::Int64(self.totals.average()).cast_to(&self.returns)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Totals { sum, count } = self.totals;
        Ok(vec![ScalarValue::UInt64(Some(count)), ScalarValue::Decimal128(Some(sum), DECIMAL128_MAX_PRECISION, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for (count, sum) in
            states[0].as_primitive::<UInt64Type>().iter().zip(states[1].as_primitive::<Decimal128Type>())
        {
            self.totals.count += count.unwrap_or(0);
            self.totals.sum += sum.unwrap_or(0);
        }
        Ok(())
    }
}

/// `AVG(DISTINCT ..)`.
#[derive(Debug)]
struct DistinctAverage {
    values: HashSet<i64>,
    returns: DataType,
}

impl Accumulator for DistinctAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = cast(&values[0], &DataType::Int64)?;
        self.values.extend(values.as_primitive::<Int64Type>().iter().flatten());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut totals = Totals::default();
        self.values.iter().for_each(|value| totals.add(*value));
        ScalarValue::Int64(totals.average()).cast_to(&self.returns)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * (size_of::<i64>() + 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.values.iter().map(|v| ScalarValue::Int64(Some(*v))).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Int64))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states[0].as_list_opt::<i32>() else {
            return exec_err!("the state of AVG(DISTINCT) must be lists, but is {}", states[0].data_type());
        };
        lists.iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }
}
