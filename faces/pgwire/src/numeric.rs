//! `numeric` and `numeric[]`: decimals with all of their digits, as text and in binary. Floating-point numbers as text.
//!
//! ```text
//!   groups of 4 digits (how many)  power of the first  sign  digits behind the point  the groups     (2 bytes each)
//!
//!   1 (dimensions)  whether one is NULL  1700 (numeric)  how many  1 (the first)                      (4 bytes each)
//!   then for each: its length, or -1 for NULL (4 bytes), and the decimal
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{Decimal128Type, DecimalType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow_schema::{DataType, Field, Schema};
use pgwire::api::Type;
use pgwire::api::results::{FieldFormat, FieldInfo};

use crate::float;

/// Digits in a group.
const GROUP_DIGITS: usize = 4;

/// The sign of a number below zero.
const NEGATIVE: u16 = 0x4000;

/// Rows whose decimals, and floating-point numbers in text, are what is sent for them, in the formats of the result's columns.
pub(crate) fn encoded(rows: RecordBatch, fields: &[FieldInfo]) -> Result<RecordBatch, ArrowError> {
    let mut formats = rows.schema_ref().fields().iter().zip(fields);
    if !formats.any(|(column, field)| is_ours(column.data_type(), field.format())) {
        return Ok(rows);
    }
    let column = |(column, field): (&ArrayRef, &FieldInfo)| match (column.data_type(), field.format()) {
        (DataType::Decimal128(precision, scale), FieldFormat::Text) => texts(column, *precision, *scale),
        (DataType::Decimal128(_, scale), FieldFormat::Binary) => binaries(column, *scale),
        (DataType::Float64, FieldFormat::Text) => {
            Arc::new(column.as_primitive::<Float64Type>().iter().map(|n| n.map(float::double)).collect::<StringArray>())
        }
        (DataType::Float32, FieldFormat::Text) => {
            Arc::new(column.as_primitive::<Float32Type>().iter().map(|n| n.map(float::single)).collect::<StringArray>())
        }
        (list @ DataType::List(_), format) if is_ours(list, format) => lists(column, format),
        _ => Arc::clone(column),
    };
    let columns: Vec<ArrayRef> = rows.columns().iter().zip(fields).map(column).collect();
    let retyped =
        |(field, column): (&Arc<Field>, &ArrayRef)| field.as_ref().clone().with_data_type(column.data_type().clone());
    let schema = Schema::new(rows.schema_ref().fields().iter().zip(&columns).map(retyped).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns)
}

/// The columns as [`encoded`] makes them: arrays are whole already.
pub(crate) fn as_encoded(fields: &[FieldInfo]) -> Arc<Vec<FieldInfo>> {
    let whole = |field: &FieldInfo| match (field.datatype(), field.format()) {
        (of, _) if *of == Type::NUMERIC_ARRAY => true,
        (of, FieldFormat::Text) => [Type::FLOAT4_ARRAY, Type::FLOAT8_ARRAY].contains(of),
        _ => false,
    };
    let field = |field: &FieldInfo| match whole(field) {
        true => FieldInfo::new(field.name().to_owned(), None, None, Type::TEXT, field.format()),
        false => field.clone(),
    };
    Arc::new(fields.iter().map(field).collect())
}

/// Whether values of a type, or arrays of such, are encoded here.
fn is_ours(data_type: &DataType, format: FieldFormat) -> bool {
    match data_type {
        DataType::List(item) => !item.data_type().is_nested() && is_ours(item.data_type(), format),
        DataType::Decimal128(..) => true,
        DataType::Float32 | DataType::Float64 => format == FieldFormat::Text,
        _ => false,
    }
}

fn lists(column: &ArrayRef, format: FieldFormat) -> ArrayRef {
    let lists = column.as_list::<i32>().iter();
    match format {
        FieldFormat::Text => Arc::new(lists.map(|list| list.map(|list| list_text(&list))).collect::<StringArray>()),
        FieldFormat::Binary => Arc::new(lists.map(|list| list.map(|list| list_binary(&list))).collect::<BinaryArray>()),
    }
}

fn list_text(list: &ArrayRef) -> String {
    let items: Vec<Option<String>> = match list.data_type() {
        DataType::Float32 => list.as_primitive::<Float32Type>().iter().map(|n| n.map(float::single)).collect(),
        DataType::Float64 => list.as_primitive::<Float64Type>().iter().map(|n| n.map(float::double)).collect(),
        _ => {
            let decimals = list.as_primitive::<Decimal128Type>();
            let text = |value: i128| Decimal128Type::format_decimal(value, decimals.precision(), decimals.scale());
            decimals.iter().map(|value| value.map(text)).collect()
        }
    };
    let items: Vec<String> = items.into_iter().map(|item| item.unwrap_or_else(|| "NULL".to_owned())).collect();
    format!("{{{}}}", items.join(","))
}

fn list_binary(list: &ArrayRef) -> Vec<u8> {
    let decimals = list.as_primitive::<Decimal128Type>();
    let mut head =
        vec![i32::from(!list.is_empty()), i32::from(list.null_count() > 0), Type::NUMERIC.oid().cast_signed()];
    if !list.is_empty() {
        // An array of Arrow's has less than 2^31 items.
        head.extend([list.len() as i32, 1]);
    }
    let mut out: Vec<u8> = head.into_iter().flat_map(i32::to_be_bytes).collect();
    for value in decimals {
        let bytes = value.map(|value| to_binary(value, decimals.scale()));
        let length = bytes.as_ref().map_or(-1, |bytes| bytes.len() as i32);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend(bytes.into_iter().flatten());
    }
    out
}

fn texts(column: &ArrayRef, precision: u8, scale: i8) -> ArrayRef {
    let text = |value: i128| Decimal128Type::format_decimal(value, precision, scale);
    Arc::new(column.as_primitive::<Decimal128Type>().iter().map(|value| value.map(text)).collect::<StringArray>())
}

fn binaries(column: &ArrayRef, scale: i8) -> ArrayRef {
    let values = column.as_primitive::<Decimal128Type>().iter();
    Arc::new(values.map(|value| value.map(|value| to_binary(value, scale))).collect::<BinaryArray>())
}

/// A decimal in binary.
fn to_binary(value: i128, scale: i8) -> Vec<u8> {
    let behind = usize::try_from(scale).unwrap_or(0);
    let ahead = usize::from(scale.min(0).unsigned_abs());
    // Groups begin and end at the point.
    let digits = value.unsigned_abs().to_string() + &"0".repeat(ahead);
    let digits = format!("{digits:0>width$}", width = behind + 1);
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    let whole = format!("{}{whole}", "0".repeat(whole.len().next_multiple_of(GROUP_DIGITS) - whole.len()));
    let fraction = format!("{fraction:0<width$}", width = behind.next_multiple_of(GROUP_DIGITS));
    let all = [whole.as_bytes(), fraction.as_bytes()].concat();
    let number = |group: &[u8]| group.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
    let groups: Vec<u16> = all.chunks(GROUP_DIGITS).map(number).collect();
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    let weight = (whole.len() / GROUP_DIGITS) as i16 - 1 - zeros as i16;
    let groups = &groups[zeros..];
    let groups = &groups[..groups.iter().rposition(|group| *group != 0).map_or(0, |last| last + 1)];
    let weight = if groups.is_empty() { 0 } else { weight };
    let sign = if value < 0 { NEGATIVE } else { 0 };
    let head = [groups.len() as u16, weight.cast_unsigned(), sign, behind as u16];
    head.iter().chain(groups).flat_map(|word| word.to_be_bytes()).collect()
}

/// The text of a number in binary; none if the bytes are no decimal.
pub(crate) fn from_binary(bytes: &[u8]) -> Option<String> {
    let mut words = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let (count, weight, sign, scale) = (words.next()?, words.next()? as i16, words.next()?, words.next()?);
    let groups: Vec<u16> = words.collect();
    if groups.len() != usize::from(count) || groups.iter().any(|group| *group > 9_999) || ![0, NEGATIVE].contains(&sign)
    {
        return None;
    }
    let group = |power: i32| {
        let at = usize::try_from(i32::from(weight) - power).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    let mut text: String = (0..=i32::from(weight).max(0)).rev().map(|power| format!("{:04}", group(power))).collect();
    text = text.trim_start_matches('0').to_owned();
    if text.is_empty() {
        text.push('0');
    }
    let scale = usize::from(scale);
    if scale > 0 {
        let groups = scale.div_ceil(GROUP_DIGITS) as i32;
        let fraction: String = (1..=groups).map(|place| format!("{:04}", group(-place))).collect();
        text = format!("{text}.{}", &fraction[..scale]);
    }
    Some(if sign == NEGATIVE { format!("-{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Float64Array};
    use proptest::prelude::*;

    use super::*;

    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn numerics_are_read_digit_by_digit() {
        for (bytes, text) in [
            (vec![0, 0, 0, 0], "0"),
            (vec![2, 0, 0, 2, 19, 9000], "19.90"),
            (vec![1, 1, 0x4000, 0, 12], "-120000"),
            (vec![1, (-2_i16) as u16, 0, 7, 1230], "0.0000123"),
            (vec![3, 1, 0, 3, 1, 2345, 6780], "12345.678"),
        ] {
            assert_eq!(from_binary(&words(&bytes)).as_deref(), Some(text));
        }
        assert_eq!(from_binary(&words(&[0, 0, 0xc000, 0])), None, "NaN is no decimal");
        assert_eq!(from_binary(&words(&[2, 0, 0, 0, 1])), None);
    }

    #[test]
    fn decimals_in_arrays_have_all_of_their_digits() {
        let value = 12_345_678_901_234_567_890_123_456_789_012_345_678_i128;
        let items = Decimal128Array::from(vec![Some(value), None, Some(-5)]).with_precision_and_scale(38, 2).unwrap();
        let list: ArrayRef = Arc::new(items);
        assert_eq!(list_text(&list), "{123456789012345678901234567890123456.78,NULL,-0.05}");
        let binary = list_binary(&list);
        assert_eq!(binary[..20], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 6, 0xa4, 0, 0, 0, 3, 0, 0, 0, 1]);
        let first = to_binary(value, 2);
        assert_eq!(binary[20..24], (first.len() as i32).to_be_bytes());
        assert_eq!(binary[24..24 + first.len()], first);
        assert_eq!(binary[24 + first.len()..][..4], [0xff; 4]);
        assert_eq!(list_binary(&list.slice(0, 0)), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0xa4]);
        assert_eq!(list_text(&list.slice(0, 0)), "{}");
    }

    #[test]
    fn floating_point_numbers_in_arrays_are_written_as_alone() {
        let list: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(f64::INFINITY), Some(1e-20)]));
        assert_eq!(list_text(&list), "{1,NULL,Infinity,1e-20}");
    }

    #[test]
    fn decimals_have_all_of_their_digits() {
        let largest = 10_i128.pow(38) - 1;
        for (value, scale, text) in [
            (largest, 0, "99999999999999999999999999999999999999".to_owned()),
            (-largest, 0, "-99999999999999999999999999999999999999".to_owned()),
            (1, 38, format!("0.{}1", "0".repeat(37))),
            (0, 0, "0".to_owned()),
            (0, 2, "0.00".to_owned()),
            (-5, 1, "-0.5".to_owned()),
            (100_000, 0, "100000".to_owned()),
            (1_990, 2, "19.90".to_owned()),
            (12, -3, "12000".to_owned()),
        ] {
            assert_eq!(from_binary(&to_binary(value, scale)).as_deref(), Some(&*text));
        }
        assert_eq!(to_binary(1_990, 2), words(&[2, 0, 0, 2, 19, 9000]));
        assert_eq!(to_binary(-120_000, 0), words(&[1, 1, NEGATIVE, 0, 12]));
        assert_eq!(to_binary(0, 0), words(&[0, 0, 0, 0]));
    }

    proptest! {
        #[test]
        fn binary_and_text_say_the_same(value in -10_i128.pow(38) + 1..10_i128.pow(38), shift in 0..38_u32, scale in 0..=38_i8) {
            let value = value / 10_i128.pow(shift);
            let text = Decimal128Type::format_decimal(value, 38, scale);
            prop_assert_eq!(from_binary(&to_binary(value, scale)), Some(text));
        }
    }
}
