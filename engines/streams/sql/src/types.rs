//! SQL types and their Arrow types, one table for declarations and casts.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, StructField, TimezoneInfo,
};
use savanna_streams_api::{Result, StreamError, type_name};

const UTC: &str = "UTC";

/// The Arrow type of an SQL type, or an error that lists the types there are.
pub(crate) fn data_type(sql: &SqlType) -> Result<DataType> {
    Ok(match sql {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::Float(_) | SqlType::Real | SqlType::Float4 => DataType::Float32,
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float8 => DataType::Float64,
        SqlType::Decimal(size) | SqlType::Numeric(size) | SqlType::Dec(size) => decimal(*size)?,
        SqlType::Varchar(_)
        | SqlType::Char(_)
        | SqlType::CharVarying(_)
        | SqlType::Character(_)
        | SqlType::CharacterVarying(_)
        | SqlType::Text
        | SqlType::String(_) => DataType::Utf8View,
        SqlType::Bytes(_) | SqlType::Bytea | SqlType::Binary(_) | SqlType::Varbinary(_) => DataType::BinaryView,
        SqlType::Date => DataType::Date32,
        SqlType::Timestamp(precision, zone) => timestamp(*precision, *zone)?,
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(of)
            | ArrayElemTypeDef::SquareBracket(of, _)
            | ArrayElemTypeDef::Parenthesis(of),
        ) => DataType::List(Arc::new(Field::new_list_field(data_type(of)?, true))),
        SqlType::Map(key, value) => map(data_type(key)?, data_type(value)?)?,
        SqlType::Struct(fields, _) => DataType::Struct(fields.iter().map(row_field).collect::<Result<Fields>>()?),
        SqlType::Custom(name, arguments) if name.to_string().eq_ignore_ascii_case("TIMESTAMP_LTZ") => {
            let precision = match arguments.as_slice() {
                [] => None,
                [digits] => Some(digits.parse().map_err(|_| unknown(sql))?),
                _ => return Err(unknown(sql)),
            };
            timestamp(precision, TimezoneInfo::WithTimeZone)?
        }
        _ => return Err(unknown(sql)),
    })
}

fn unknown(sql: &SqlType) -> StreamError {
    StreamError::Unsupported {
        what: format!("the type {sql}"),
        position: None,
        instead: "the types are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BYTES, DATE, \
                  TIMESTAMP(p), TIMESTAMP_LTZ(p), ROW<..>, ARRAY<..> and MAP<..>"
            .into(),
    }
}

fn decimal(size: ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match size {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let fits = |p: u64, s: i64| (1..=38).contains(&p) && (0..=p as i64).contains(&s);
    if !fits(precision, scale) {
        return Err(StreamError::invalid(format!(
            "DECIMAL({precision}, {scale}) is out of range; the precision is 1 to 38 and the scale 0 to the precision"
        )));
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

fn timestamp(precision: Option<u64>, zone: TimezoneInfo) -> Result<DataType> {
    let unit = match precision.unwrap_or(6) {
        0 => TimeUnit::Second,
        3 => TimeUnit::Millisecond,
        6 => TimeUnit::Microsecond,
        9 => TimeUnit::Nanosecond,
        other => {
            return Err(StreamError::invalid(format!(
                "TIMESTAMP({other}) does not exist; the precision is 0, 3, 6 or 9 digits of a second"
            )));
        }
    };
    let zone = match zone {
        TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => None,
        TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => Some(UTC.into()),
    };
    Ok(DataType::Timestamp(unit, zone))
}

fn map(key: DataType, value: DataType) -> Result<DataType> {
    if key.is_nested() {
        let key = type_name(&key);
        return Err(StreamError::invalid(format!("the keys of a MAP are plain values, not {key}; use a part of them")));
    }
    let entry = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    Ok(DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry), false)), false))
}

fn row_field(field: &StructField) -> Result<Field> {
    let Some(name) = &field.field_name else {
        return Err(StreamError::invalid("every field of a ROW needs a name: ROW<name TYPE, ..>"));
    };
    Ok(Field::new(&name.value, data_type(&field.field_type)?, true))
}

/// Whether a value of one type may be written to a column of another without an explicit CAST: numbers among each other
/// unless a fraction would be lost, anything into VARCHAR, and points in time among each other.
pub(crate) fn assignable(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, List, Map, Null, Struct, Timestamp};
    if from == to || *from == Null || (is_text(from) && is_text(to)) || (is_binary(from) && is_binary(to)) {
        return true;
    }
    match (from, to) {
        _ if from.is_integer() && to.is_numeric() => true,
        _ if from.is_numeric() && to.is_numeric() => !to.is_integer(),
        (Timestamp(..) | Date32, Timestamp(..)) => true,
        (Struct(a), Struct(b)) => {
            let unnamed = is_unnamed(a);
            let same_name = |a: &Field, b: &Field| unnamed || a.name() == b.name();
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| same_name(a, b) && assignable(a.data_type(), b.data_type()))
        }
        (List(a), List(b)) => assignable(a.data_type(), b.data_type()),
        (Map(a, _), Map(b, _)) => match (a.data_type(), b.data_type()) {
            (Struct(a), Struct(b)) => a.iter().zip(b).all(|(a, b)| assignable(a.data_type(), b.data_type())),
            _ => false,
        },
        _ => is_text(to) && !from.is_nested() && !is_binary(from),
    }
}

/// Whether these are the fields of `ROW(..)`, which have no names of their own.
pub(crate) fn is_unnamed(fields: &Fields) -> bool {
    fields.iter().enumerate().all(|(i, field)| *field.name() == format!("c{i}"))
}

/// Whether a value of this type has a text that can be cast to it.
pub(crate) fn is_plain(data_type: &DataType) -> bool {
    let known = data_type.is_numeric() || is_text(data_type);
    known || matches!(data_type, DataType::Boolean | DataType::Date32 | DataType::Timestamp(..))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_widened_and_narrowed_but_lose_no_fraction_silently() {
        use DataType::{Boolean, Decimal128, Float64, Int32, Int64, Utf8View};
        assert!(assignable(&Int64, &Int32));
        assert!(assignable(&Decimal128(24, 3), &Decimal128(23, 3)));
        assert!(!assignable(&Float64, &Int64));
        assert!(!assignable(&Decimal128(10, 2), &Int64));
        assert!(assignable(&Boolean, &Utf8View));
        assert!(!assignable(&Utf8View, &Int64));
    }
}
