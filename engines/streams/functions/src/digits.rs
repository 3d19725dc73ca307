//! `in_digits(x)`: the decimal, if it has no more digits than its type. Planning puts it around arithmetic, which looks at the
//! 128 bits only: there is room for numbers of 39 digits in them.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarUDF};

use super::definition::Definition;

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Definition::any(
        "in_digits",
        1,
        |types| match types {
            [number] => Ok(number.clone()),
            other => plan_err!("in_digits takes a number, but got {} arguments", other.len()),
        },
        // Each result of a function is looked at.
        |call| call.column(0),
    )
}

/// A decimal that has no more digits than its type.
#[must_use]
pub fn in_digits(number: Expr) -> Expr {
    super::bounded::bounded(function()).call(vec![number])
}

/// Whether arithmetic may give a value of this type that has too many digits.
pub fn may_overflow(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _))
}

/// The value, if its decimals have no more digits than their type.
pub(super) fn checked(value: ColumnarValue) -> Result<ColumnarValue> {
    const MAX: i128 = 10_i128.pow(DECIMAL128_MAX_PRECISION as u32) - 1;
    let fits = |number: i128| (-MAX..=MAX).contains(&number);
    let all_fit = match &value {
        ColumnarValue::Scalar(ScalarValue::Decimal128(number, ..)) => number.is_none_or(fits),
        ColumnarValue::Array(array) if may_overflow(array.data_type()) => {
            array.as_primitive::<Decimal128Type>().iter().flatten().all(fits)
        }
        _ => true,
    };
    if all_fit {
        return Ok(value);
    }
    exec_err!(
        "the result has more than {DECIMAL128_MAX_PRECISION} digits; CAST a part of it to DOUBLE, or to fewer digits"
    )
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Decimal128Array};

    use super::*;

    #[test]
    fn numbers_of_39_digits_are_refused() {
        let largest = 10_i128.pow(38) - 1;
        let column = |numbers: Vec<Option<i128>>| {
            let numbers = Decimal128Array::from(numbers).with_precision_and_scale(38, 2).unwrap();
            ColumnarValue::Array(Arc::new(numbers) as ArrayRef)
        };
        assert!(checked(column(vec![Some(largest), None, Some(-largest)])).is_ok());
        assert!(checked(column(vec![Some(1), Some(largest + 1)])).is_err());
        assert!(checked(ColumnarValue::Scalar(ScalarValue::Decimal128(Some(-largest - 1), 38, 0))).is_err());
    }
}
