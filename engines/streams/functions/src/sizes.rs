//! How large values are, and how large the result of a function may become.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

/// Bytes of a view of a text, or of a number; of an offset with what else a row takes.
const ROW: usize = 16;

/// Bytes of a value for all rows, or of a column.
pub(super) fn of_value(value: &ColumnarValue) -> usize {
    match value {
        ColumnarValue::Array(array) => of_array(array.as_ref()),
        ColumnarValue::Scalar(scalar) => of_scalar(scalar),
    }
}

fn of_scalar(scalar: &ScalarValue) -> usize {
    match scalar {
        ScalarValue::List(list) => of_array(list.as_ref()),
        ScalarValue::LargeList(list) => of_array(list.as_ref()),
        ScalarValue::Struct(row) => of_array(row.as_ref()),
        ScalarValue::Map(map) => of_array(map.as_ref()),
        other => match other.try_as_str().flatten() {
            Some(text) => ROW + text.len(),
            None => other.size(),
        },
    }
}

/// Bytes of the values of a column, without what else its buffers hold.
pub(super) fn of_array(array: &dyn Array) -> usize {
    let rows = array.len();
    let own = match array.data_type() {
        DataType::Utf8View => array.as_string_view().lengths().map(|length| length as usize).sum(),
        DataType::BinaryView => array.as_binary_view().lengths().map(|length| length as usize).sum(),
        DataType::Utf8 => spanned(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => spanned(array.as_string::<i64>().value_offsets()),
        DataType::Binary => spanned(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => spanned(array.as_binary::<i64>().value_offsets()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            of_part(list.values(), list.value_offsets())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            of_part(list.values(), list.value_offsets())
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let offsets = map.value_offsets();
            let (first, count) = (offsets[0] as usize, spanned(offsets));
            of_array(&map.entries().slice(first, count))
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| of_array(column.as_ref())).sum(),
        fixed => match fixed.primitive_width() {
            Some(width) => return rows * width,
            None => array.get_array_memory_size(),
        },
    };
    own + rows * ROW
}

fn of_part<O: Copy + Into<i64>>(values: &ArrayRef, offsets: &[O]) -> usize {
    let first: i64 = offsets[0].into();
    of_array(values.slice(first as usize, spanned(offsets)).as_ref())
}

/// What lies between the first and the last of some offsets.
fn spanned<O: Copy + Into<i64>>(offsets: &[O]) -> usize {
    let (first, last): (i64, i64) = (offsets[0].into(), offsets[offsets.len() - 1].into());
    (last - first) as usize
}

/// The arguments of a call for some rows.
struct Call<'a> {
    args: &'a [ColumnarValue],
    rows: usize,
}

/// How many bytes the result of a function may take, with what is needed to compute it. Never less than it does take.
pub(super) fn estimate(name: &str, args: &[ColumnarValue], rows: usize, returns: &DataType) -> u128 {
    let call = Call { args, rows };
    match name {
        "repeat" => call.sum(|row| call.bytes(0, row) * call.number(1, row)),
        // Of characters, each of up to four bytes.
        "lpad" | "rpad" => call.sum(|row| call.number(1, row) * 4),
        "replace" => call.sum(|row| {
            let (text, from, to) = (call.bytes(0, row), call.bytes(1, row), call.bytes(2, row));
            text + (text / from.max(1) + 1) * to
        }),
        "concat_ws" => call.sum(|row| call.bytes(0, row) * args.len() as u128) + call.given(),
        "array_to_string" | "array_join" | "list_to_string" | "list_join" => {
            let between = (1..args.len()).map(|arg| call.widest(arg)).sum::<u128>();
            call.given() * 4 + call.leaves() * (between + 32)
        }
        "array_repeat" | "list_repeat" => call.sum(|row| (call.bytes(0, row) + ROW as u128) * call.number(1, row)),
        "array_resize" | "list_resize" => {
            call.given() + call.sum(|row| (call.bytes(2, row) + ROW as u128) * call.number(1, row))
        }
        "range" | "generate_series" => call.sum(|row| call.series(row) * ROW as u128),
        "array_replace" | "array_replace_all" | "array_replace_n" | "list_replace" | "list_replace_all"
        | "list_replace_n" => call.given() + call.leaves() * (call.widest(2) + ROW as u128),
        "arrays_zip" | "list_zip" => call.given() * args.len() as u128 * 4,
        // Each character may become an element.
        "string_to_array" | "string_to_list" | "regexp_match" => call.given() * 24,
        "to_char" | "date_format" | "from_unixtime" => call.given() * 40,
        "levenshtein" => call.given() * 8,
        _ if is_fixed(returns) => call.expanded() + (rows * ROW) as u128,
        // Letters get longer in the other case, bytes as digits, values as texts.
        _ => call.given() * 4,
    }
}

/// The largest product of the lengths of two texts or arrays.
pub(super) fn pairs(args: &[ColumnarValue], rows: usize) -> u128 {
    let call = Call { args, rows };
    (0..rows).map(|row| call.length(0, row) * call.length(1, row)).max().unwrap_or(0)
}

/// The most bytes of an argument in any row.
pub(super) fn widest(args: &[ColumnarValue], arg: usize, rows: usize) -> u128 {
    Call { args, rows }.widest(arg)
}

/// Whether all values of a type have the same size.
fn is_fixed(data_type: &DataType) -> bool {
    data_type.primitive_width().is_some() || matches!(data_type, DataType::Boolean | DataType::Null)
}

impl Call<'_> {
    /// A bound for each row, summed up.
    fn sum(&self, of_row: impl Fn(usize) -> u128) -> u128 {
        let constant = self.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        match constant {
            true => of_row(0).saturating_mul(self.rows as u128),
            false => (0..self.rows).map(of_row).fold(0, u128::saturating_add),
        }
    }

    /// The bytes of all arguments, constants for each row.
    fn given(&self) -> u128 {
        let columns = self.args.iter().filter(|arg| matches!(arg, ColumnarValue::Array(_)));
        self.expanded() + columns.map(|column| of_value(column) as u128).sum::<u128>() + (self.rows * ROW) as u128
    }

    /// The bytes of constants, for each row.
    fn expanded(&self) -> u128 {
        let constants = self.args.iter().filter(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        constants.map(|constant| of_value(constant) as u128).sum::<u128>() * self.rows as u128
    }

    /// The bytes of an argument in a row.
    fn bytes(&self, arg: usize, row: usize) -> u128 {
        let bytes = match self.args.get(arg) {
            None => 0,
            Some(ColumnarValue::Scalar(scalar)) => match scalar.try_as_str() {
                Some(text) => text.map_or(0, str::len),
                None => of_scalar(scalar),
            },
            Some(ColumnarValue::Array(array)) => match array.data_type() {
                DataType::Utf8View => array.as_string_view().views()[row] as u32 as usize,
                DataType::Utf8 => array.as_string::<i32>().value_length(row) as usize,
                DataType::LargeUtf8 => array.as_string::<i64>().value_length(row) as usize,
                _ => of_array(array.slice(row, 1).as_ref()),
            },
        };
        bytes as u128
    }

    /// The elements of an array in a row, or the bytes of another value.
    fn length(&self, arg: usize, row: usize) -> u128 {
        let elements = match self.args.get(arg) {
            Some(ColumnarValue::Array(array)) => leaves_of(array.slice(row, 1).as_ref()),
            Some(ColumnarValue::Scalar(ScalarValue::List(list))) => leaves_of(list.as_ref()),
            _ => 0,
        };
        if elements > 0 { elements } else { self.bytes(arg, row) }
    }

    /// The most bytes of an argument in any row.
    fn widest(&self, arg: usize) -> u128 {
        match self.args.get(arg) {
            Some(ColumnarValue::Array(_)) => (0..self.rows).map(|row| self.bytes(arg, row)).max().unwrap_or(0),
            _ => self.bytes(arg, 0),
        }
    }

    /// A number in a row; what is negative or NULL is 0.
    fn number(&self, arg: usize, row: usize) -> u128 {
        u128::try_from(self.signed(arg, row)).unwrap_or(0)
    }

    fn signed(&self, arg: usize, row: usize) -> i128 {
        let number = match self.args.get(arg) {
            None => return 0,
            Some(ColumnarValue::Scalar(scalar)) => match scalar.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(number)) => number,
                _ => None,
            },
            Some(ColumnarValue::Array(array)) => {
                as_numbers(&array.slice(row, 1)).and_then(|numbers| numbers.is_valid(0).then(|| numbers.value(0)))
            }
        };
        number.map_or(0, i128::from)
    }

    /// How many values the arrays among the arguments have, the arrays in them included.
    fn leaves(&self) -> u128 {
        let leaves = self.args.iter().map(|arg| match arg {
            ColumnarValue::Array(array) => leaves_of(array.as_ref()),
            ColumnarValue::Scalar(ScalarValue::List(list)) => leaves_of(list.as_ref()) * self.rows as u128,
            ColumnarValue::Scalar(ScalarValue::LargeList(list)) => leaves_of(list.as_ref()) * self.rows as u128,
            ColumnarValue::Scalar(_) => 0,
        });
        leaves.sum()
    }

    /// How many steps there are from the first to the second argument, by the third.
    fn series(&self, row: usize) -> u128 {
        let calendar = self.args.iter().find_map(|arg| match arg.data_type() {
            DataType::Interval(IntervalUnit::MonthDayNano) => Some(shortest_nanos(arg, row)),
            _ => None,
        });
        if let Some(step) = calendar {
            let nanos = |arg| self.nanos(arg, row);
            return nanos(1).abs_diff(nanos(0)) / step.max(1) + 1;
        }
        let (from, to) =
            if self.args.len() == 1 { (0, self.signed(0, row)) } else { (self.signed(0, row), self.signed(1, row)) };
        let step = if self.args.len() > 2 { self.signed(2, row).unsigned_abs() } else { 1 };
        to.abs_diff(from) / step.max(1) + 1
    }

    /// A date or time in a row as nanoseconds.
    fn nanos(&self, arg: usize, row: usize) -> i128 {
        const SECOND: i128 = 1_000_000_000;
        use arrow::datatypes::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        let unit = match self.args[arg].data_type() {
            DataType::Date32 => 86_400 * SECOND,
            DataType::Date64 | DataType::Timestamp(Millisecond, _) => SECOND / 1_000,
            DataType::Timestamp(Second, _) => SECOND,
            DataType::Timestamp(Microsecond, _) => SECOND / 1_000_000,
            DataType::Timestamp(Nanosecond, _) => 1,
            _ => 1,
        };
        self.signed(arg, row).saturating_mul(unit)
    }
}

/// The least that an interval can be long.
fn shortest_nanos(interval: &ColumnarValue, row: usize) -> u128 {
    const DAY: i128 = 86_400_000_000_000;
    let value = match interval {
        ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(value)) => *value,
        ColumnarValue::Array(array) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            array.is_valid(row).then(|| array.value(row))
        }
        ColumnarValue::Scalar(_) => None,
    };
    let Some(value) = value else { return 1 };
    let length = |days_of_month: i128| {
        (i128::from(value.months) * days_of_month + i128::from(value.days)) * DAY + i128::from(value.nanoseconds)
    };
    let (short, long) = (length(28), length(31));
    if short.signum() == long.signum() { short.unsigned_abs().min(long.unsigned_abs()) } else { 1 }
}

/// Numbers, dates and times as numbers.
fn as_numbers(array: &ArrayRef) -> Option<Int64Array> {
    let array = match array.data_type() {
        DataType::Date32 => cast(array, &DataType::Int32).ok()?,
        _ => Arc::clone(array),
    };
    cast(&array, &DataType::Int64).ok().map(|numbers| numbers.as_primitive::<Int64Type>().clone())
}

fn leaves_of(array: &dyn Array) -> u128 {
    let part = |values: &ArrayRef, first: i64, count: usize| {
        count as u128 + leaves_of(values.slice(first as usize, count).as_ref())
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            part(list.values(), offsets[0].into(), spanned(offsets))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            part(list.values(), offsets[0], spanned(offsets))
        }
        _ => 0,
    }
}
