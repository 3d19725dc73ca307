//! `one_nan(x)`: the number, and of all NaNs the one. Planning puts it around arithmetic.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarUDF};

use super::definition::Definition;

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Definition::any(
        "one_nan",
        1,
        |types| match types {
            [number] => Ok(number.clone()),
            other => plan_err!("one_nan takes a number, but got {} arguments", other.len()),
        },
        |call| Ok(in_array(call.column(0)?)),
    )
}

/// A number, or the one NaN.
#[must_use]
pub fn one_nan(number: Expr) -> Expr {
    super::bounded::bounded(function()).call(vec![number])
}

/// The same value, with the one NaN in place of others.
pub(super) fn in_value(value: ColumnarValue) -> ColumnarValue {
    match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(in_array(array)),
        ColumnarValue::Scalar(ScalarValue::Float64(Some(number))) if number.is_nan() => {
            ColumnarValue::Scalar(ScalarValue::Float64(Some(f64::NAN)))
        }
        ColumnarValue::Scalar(ScalarValue::Float32(Some(number))) if number.is_nan() => {
            ColumnarValue::Scalar(ScalarValue::Float32(Some(f32::NAN)))
        }
        other => other,
    }
}

/// The same column, with the one NaN in place of others. Other types stay as they are.
#[must_use]
pub fn in_array(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            of::<Float32Type>(array, |bits| f32::is_nan(bits) && bits.to_bits() != f32::NAN.to_bits(), f32::NAN)
        }
        DataType::Float64 => {
            of::<Float64Type>(array, |bits| f64::is_nan(bits) && bits.to_bits() != f64::NAN.to_bits(), f64::NAN)
        }
        _ => array,
    }
}

fn of<T: ArrowPrimitiveType>(array: ArrayRef, is_other: fn(T::Native) -> bool, nan: T::Native) -> ArrayRef {
    let numbers = array.as_primitive::<T>();
    if !numbers.values().iter().any(|number| is_other(*number)) {
        return array;
    }
    Arc::new(numbers.unary::<_, T>(|number| if is_other(number) { nan } else { number }))
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    #[test]
    fn all_nans_become_one_and_numbers_stay() {
        let numbers: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-f64::NAN), None, Some(-0.0), Some(f64::INFINITY), Some(f64::NAN)]));
        let one = in_array(numbers);
        let bits: Vec<Option<u64>> = one.as_primitive::<Float64Type>().iter().map(|n| n.map(f64::to_bits)).collect();
        let nan = Some(f64::NAN.to_bits());
        assert_eq!(bits, [nan, None, Some((-0.0_f64).to_bits()), Some(f64::INFINITY.to_bits()), nan]);
    }
}
