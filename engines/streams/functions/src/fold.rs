//! `SUM` of decimals, and `MIN` and `MAX` of floating-point numbers: DataFusion's wrap around where a sum has no room, and
//! see NaN or not depending on the order of rows. Other types are DataFusion's.
//!
//! A fold is the same in whatever order and parts its values come, so its state is a value of its own type.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::functions_aggregate::{min_max, sum::sum_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};

/// The aggregates.
pub(super) fn functions() -> [Arc<AggregateUDF>; 3] {
    [(Kind::Sum, sum_udaf()), (Kind::Min, min_max::min_udaf()), (Kind::Max, min_max::max_udaf())]
        .map(|(kind, inner)| Arc::new(Folding { kind, inner }.into()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Sum,
    Min,
    Max,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Folding {
    kind: Kind,
    inner: Arc<AggregateUDF>,
}

impl Folding {
    fn is_ours(&self, data_type: &DataType) -> bool {
        match self.kind {
            Kind::Sum => matches!(data_type, DataType::Decimal128(..)),
            Kind::Min | Kind::Max => matches!(data_type, DataType::Float32 | DataType::Float64),
        }
    }

    fn rule<T: Float>(&self) -> Rule<T> {
        match self.kind {
            Kind::Max => |a, b| Ok(if order::<T>(a, b).is_lt() { b } else { a }),
            Kind::Min | Kind::Sum => |a, b| Ok(if order::<T>(a, b).is_gt() { b } else { a }),
        }
    }
}

/// What two values come to.
type Rule<T> = fn(
    <T as ArrowPrimitiveType>::Native,
    <T as ArrowPrimitiveType>::Native,
) -> Result<<T as ArrowPrimitiveType>::Native>;

/// A floating-point type.
trait Float: ArrowPrimitiveType {
    fn wide(value: Self::Native) -> f64;
}

impl Float for Float32Type {
    fn wide(value: f32) -> f64 {
        value.into()
    }
}

impl Float for Float64Type {
    fn wide(value: f64) -> f64 {
        value
    }
}

/// The order that comparisons have: NaN is above all, and one NaN is like another.
fn order<T: Float>(a: T::Native, b: T::Native) -> Ordering {
    let (a, b) = (T::wide(a), T::wide(b));
    a.is_nan().cmp(&b.is_nan()).then_with(|| if a.is_nan() { Ordering::Equal } else { a.total_cmp(&b) })
}

/// The sum of two decimals of one scale.
fn plus(a: i128, b: i128) -> Result<i128> {
    match a.checked_add(b) {
        Some(sum) if sum.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into()) => Ok(sum),
        _ => exec_err!(
            "SUM of decimals overflows: it has at most {DECIMAL128_MAX_PRECISION} digits; CAST its argument to DOUBLE, or to fewer decimal places"
        ),
    }
}

impl AggregateUDFImpl for Folding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !self.is_ours(args.input_fields[0].data_type()) {
            return self.inner.state_fields(args);
        }
        let result = args.return_field.data_type().clone();
        let state = match (self.kind, args.is_distinct) {
            (Kind::Sum, true) => DataType::List(Arc::new(Field::new_list_field(result, true))),
            _ => result,
        };
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "folded"), state, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let returns = args.return_field.data_type().clone();
        match args.expr_fields[0].data_type() {
            given if !self.is_ours(given) => self.inner.accumulator(args),
            DataType::Decimal128(..) if args.is_distinct => {
                Ok(Box::new(DistinctSum { values: HashSet::new(), returns }))
            }
            DataType::Decimal128(..) => Ok(Box::new(Total(Fold::<Decimal128Type>::new(plus, returns)))),
            DataType::Float32 => Ok(Box::new(Total(Fold::<Float32Type>::new(self.rule::<Float32Type>(), returns)))),
            _ => Ok(Box::new(Total(Fold::<Float64Type>::new(self.rule::<Float64Type>(), returns)))),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match (self.is_ours(args.expr_fields[0].data_type()), self.kind) {
            (true, Kind::Sum) => !args.is_distinct,
            (true, _) => true,
            (false, _) => self.inner.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let returns = args.return_field.data_type().clone();
        match args.expr_fields[0].data_type() {
            given if !self.is_ours(given) => self.inner.create_groups_accumulator(args),
            DataType::Decimal128(..) => Ok(Box::new(Fold::<Decimal128Type>::new(plus, returns))),
            DataType::Float32 => Ok(Box::new(Fold::<Float32Type>::new(self.rule::<Float32Type>(), returns))),
            _ => Ok(Box::new(Fold::<Float64Type>::new(self.rule::<Float64Type>(), returns))),
        }
    }
}

/// What the values of each group come to.
#[derive(Debug)]
struct Fold<T: ArrowPrimitiveType> {
    groups: Vec<Option<T::Native>>,
    rule: Rule<T>,
    returns: DataType,
}

impl<T: ArrowPrimitiveType> Fold<T> {
    fn new(rule: Rule<T>, returns: DataType) -> Self {
        Self { groups: Vec::new(), rule, returns }
    }

    fn take_in(&mut self, group: usize, value: T::Native) -> Result<()> {
        let folded = &mut self.groups[group];
        *folded = Some(match *folded {
            None => value,
            Some(before) => (self.rule)(before, value)?,
        });
        Ok(())
    }
}

impl<T: ArrowPrimitiveType + Send> GroupsAccumulator for Fold<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, None);
        let values = values[0].as_primitive::<T>();
        if filter.is_none() && values.null_count() == 0 {
            return group_indices
                .iter()
                .zip(values.values())
                .try_for_each(|(group, value)| self.take_in(*group, *value));
        }
        for (row, group) in group_indices.iter().enumerate() {
            if values.is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                self.take_in(*group, values.value(row))?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(groups).with_data_type(self.returns.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.evaluate(emit_to).map(|folded| vec![folded])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut alone = Self::new(self.rule, self.returns.clone());
        let rows = values[0].len();
        alone.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Option<T::Native>>()
    }
}

/// What all values come to.
#[derive(Debug)]
struct Total<T: ArrowPrimitiveType>(Fold<T>);

impl<T: ArrowPrimitiveType + Debug + Send> Accumulator for Total<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.groups.resize(1, None);
        values[0].as_primitive::<T>().iter().flatten().try_for_each(|value| self.0.take_in(0, value))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.0.groups.first() {
            Some(Some(value)) => ScalarValue::new_primitive::<T>(Some(*value), &self.0.returns),
            _ => ScalarValue::try_from(&self.0.returns),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + GroupsAccumulator::size(&self.0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.evaluate().map(|folded| vec![folded])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// `SUM(DISTINCT ..)`.
#[derive(Debug)]
struct DistinctSum {
    values: HashSet<i128>,
    returns: DataType,
}

impl DistinctSum {
    fn scalar(&self, value: Option<i128>) -> Result<ScalarValue> {
        let DataType::Decimal128(precision, scale) = self.returns else {
            return internal_err!("a sum of decimals is one, and no {}", self.returns);
        };
        Ok(ScalarValue::Decimal128(value, precision, scale))
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<Decimal128Type>().iter().flatten());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut values = self.values.iter().copied();
        let first = values.next();
        let sum = first.map(|first| values.try_fold(first, plus)).transpose()?;
        self.scalar(sum)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * (size_of::<i128>() + 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.values.iter().map(|value| self.scalar(Some(*value))).collect::<Result<Vec<_>>>()?;
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.returns))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states[0].as_list_opt::<i32>() else {
            return exec_err!("the state of SUM(DISTINCT) must be lists, but is {}", states[0].data_type());
        };
        lists.iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded<T: ArrowPrimitiveType + Debug + Send>(
        rule: Rule<T>,
        returns: &DataType,
        values: impl IntoIterator<Item = T::Native>,
    ) -> Result<Option<T::Native>> {
        let values: ArrayRef = Arc::new(PrimitiveArray::<T>::from_iter_values(values).with_data_type(returns.clone()));
        let mut halves = Fold::<T>::new(rule, returns.clone());
        let rows = values.len();
        GroupsAccumulator::update_batch(
            &mut halves,
            &[values],
            &(0..rows).map(|row| row % 2).collect::<Vec<_>>(),
            None,
            2,
        )?;
        let states = GroupsAccumulator::state(&mut halves, EmitTo::All)?;
        let mut whole = Total(Fold::<T>::new(rule, returns.clone()));
        whole.merge_batch(&states)?;
        Ok(whole.0.groups[0])
    }

    fn extremes(values: &[f64]) -> (f64, f64) {
        let [_, min, max] = [Kind::Sum, Kind::Min, Kind::Max].map(|kind| Folding { kind, inner: sum_udaf() });
        let fold = |folding: &Folding| {
            folded::<Float64Type>(folding.rule::<Float64Type>(), &DataType::Float64, values.to_vec()).unwrap().unwrap()
        };
        (fold(&min), fold(&max))
    }

    #[test]
    fn nan_is_above_all_wherever_it_stands() {
        let (nan, infinite) = (f64::NAN, f64::INFINITY);
        for values in [[nan, 1.0, infinite], [1.0, nan, infinite], [infinite, 1.0, nan], [1.0, infinite, -nan]] {
            let (min, max) = extremes(&values);
            assert!(min.to_bits() == 1_f64.to_bits() && max.is_nan(), "{values:?}: {min} {max}");
        }
        assert!(extremes(&[nan, nan]).0.is_nan());
        assert_eq!(extremes(&[1.0, -infinite, infinite]), (-infinite, infinite));
    }

    #[test]
    fn a_sum_of_decimals_has_38_digits_or_fails() {
        let largest = 10_i128.pow(38) - 1;
        let returns = DataType::Decimal128(38, 0);
        assert_eq!(folded::<Decimal128Type>(plus, &returns, [largest - 1, 1]).unwrap(), Some(largest));
        assert!(folded::<Decimal128Type>(plus, &returns, [largest, 1]).is_err());
        assert!(folded::<Decimal128Type>(plus, &returns, [-largest, -largest]).is_err());
        assert!(folded::<Decimal128Type>(plus, &returns, [largest, 0, largest]).is_err(), "it wrapped around");
        let mut distinct = DistinctSum { values: [largest, 1].into(), returns };
        assert!(distinct.evaluate().is_err());
    }
}
