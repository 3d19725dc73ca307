//! Values of one type as values of another.

use std::sync::Arc;

use bigdecimal::{BigDecimal, FromPrimitive, ToPrimitive};

use crate::{
    composite::Composite,
    error::{Result, SqlError, state},
    types::{Clock, Type},
    value::{Context, NonFinite, Value, bits, byte, datetime, json::Json, mac, numeric, record::Record, text},
};

/// How readily one type becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ease {
    /// Wherever it helps.
    Implicit,
    /// When it is stored in a column.
    Assignment,
    /// When the statement says so.
    Explicit,
}

/// What a conversion from one type to another takes, if there is one.
pub fn ease(from: Type, to: Type) -> Option<Ease> {
    use Ease::{Assignment, Explicit, Implicit};
    let (from, to) = (from.exact(), to.exact());
    if from == Type::Unknown || from.unbounded() == to.unbounded() || (from.is_text() && to.is_text()) {
        return Some(Implicit);
    }
    // A number of an object is an integer, and no other number.
    let inexact = |of: Type| of.is_number() && !of.is_integer();
    if (from == Type::Oid && (inexact(to) || to == Type::Int2)) || (to == Type::Oid && inexact(from)) {
        return None;
    }
    if let (Some(a), Some(b)) = (from.number_rank(), to.number_rank()) {
        return Some(if a <= b { Implicit } else { Assignment });
    }
    if let (Some(from), Some(to)) = (from.element(), to.element()) {
        return ease(from, to);
    }
    Some(match (from, to) {
        (Type::Int4, Type::Byte) | (Type::Byte, Type::Int4) => Explicit,
        (Type::Byte, Type::Text) => Implicit,
        (from, Type::Byte) if from.is_text() => Assignment,
        (Type::Date, Type::Timestamp | Type::Timestamptz) | (Type::Timestamp, Type::Timestamptz) => Implicit,
        (Type::Time, Type::Interval) => Implicit,
        (Type::Timestamp | Type::Timestamptz, Type::Date | Type::Time) => Assignment,
        (Type::Timestamptz, Type::Timestamp) | (Type::Interval, Type::Time) => Assignment,
        (Type::Json, Type::Jsonb) | (Type::Jsonb, Type::Json) => Assignment,
        (_, to) if to.is_text() => Assignment,
        (from, _) if from.is_text() => Explicit,
        (Type::Inet, Type::Cidr) => Assignment,
        (Type::Cidr, Type::Inet) => Implicit,
        (Type::Macaddr, Type::Macaddr8) | (Type::Macaddr8, Type::Macaddr) => Implicit,
        (Type::Bit(_), Type::Varbit(_)) | (Type::Varbit(_), Type::Bit(_)) => Implicit,
        (Type::Record, Type::Composite(_)) | (Type::Composite(_), Type::Record) => Implicit,
        (Type::Int4 | Type::Int8, Type::Bit(_)) | (Type::Bit(_), Type::Int4 | Type::Int8) => Explicit,
        (Type::Range(range), Type::Multirange(of)) if range == of => Explicit,
        (Type::Jsonb, to) if to.is_number() || to == Type::Bool => Explicit,
        (Type::Bool, Type::Int4) | (Type::Int4, Type::Bool) => Explicit,
        _ => return None,
    })
}

/// A value of type `from` as one of type `to`. `explicit` cuts texts that are too long instead of refusing them.
pub fn cast(value: Value, from: Type, to: Type, explicit: bool, context: Context<'_>) -> Result<Value> {
    if from.exact() != from || to.exact() != to {
        return fit(cast(value, from.exact(), to.exact(), explicit, context)?, to, explicit);
    }
    let value = match (value, to) {
        (Value::Null, _) => return Ok(Value::Null),
        (value, _) if from.unbounded() == to.unbounded() && from.element().is_none() => value,
        (Value::Int(value), Type::Byte) => byte::of_number(value)?,
        (Value::Text(value), Type::Byte) => byte::parse(&value),
        (Value::Text(value), Type::Int4) if from == Type::Byte => Value::Int((byte::byte_of(&value) as i8).into()),
        (Value::Text(value), to) if from == Type::Byte && to.is_text() => Value::Text(byte::shown(&value).into_owned()),
        (Value::Text(value), to) if to.is_text() => Value::Text(value),
        (Value::Text(bits), to) if from.is_bits() && to.is_bits() => Value::Text(bits),
        (Value::Text(bits), Type::Int4) if from.is_bits() => Value::Int(bits::number(&bits, 32, to)?),
        (Value::Text(bits), Type::Int8) if from.is_bits() => Value::Int(bits::number(&bits, 64, to)?),
        (Value::Int(value), Type::Bit(length)) => {
            Value::Text(bits::of_number(value, length.map_or(1, |length| length as usize))?)
        }
        (Value::Json(value), Type::Json) => Value::Text(value.text()),
        (Value::Json(value), to) if !to.is_text() => return scalar(&value, to, context),
        (Value::Record(row), Type::Composite(id)) => return row_as(*row, id, explicit, context),
        (Value::Record(row), Type::Record) => Value::Record(row),
        (Value::Text(value), to) => return text::parse(&value, to, context),
        (Value::Array(array), to) if let Some((from, to)) = from.element().zip(to.element()) => {
            let element = |element: &Value| cast(element.clone(), from, to, explicit, context);
            return Ok(Value::Array(Arc::new(array.map(element)?)));
        }
        (Value::Network(network), Type::Cidr) => Value::Network(network.network()),
        (Value::Network(network), Type::Inet) => Value::Network(network),
        (Value::Network(network), to) if to.is_text() => Value::Text(network.text(Type::Cidr)),
        (Value::Range(range), Type::Multirange(_)) => Value::Multirange(Box::new((*range).into())),
        (Value::Bytes(bytes), Type::Macaddr) => mac::narrowed(&bytes)?,
        (Value::Bytes(bytes), Type::Macaddr8) => Value::Bytes(mac::widened(&bytes).unwrap_or_default().to_vec()),
        (value, to) if to.is_text() => {
            // As PostgreSQL's own cast to text does.
            match value {
                Value::Bool(value) => Value::Text(if value { "true" } else { "false" }.to_owned()),
                other => Value::Text(text::shown(&other, from, context.style)),
            }
        }
        // The same bits, as in PostgreSQL.
        (Value::Int(value), Type::Oid) if matches!(from, Type::Int2 | Type::Int4) => Value::Int((value as u32).into()),
        (Value::Int(value), Type::Int4) if from == Type::Oid => Value::Int((value as u32 as i32).into()),
        (Value::Int(value), Type::Oid) if !text::in_range(value, to) => {
            return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "OID out of range"));
        }
        (Value::Int(value), Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid) => integer(Some(value), to)?,
        (Value::Int(value), Type::Float4) => Value::Float(f64::from(value as f32)),
        (Value::Int(value), Type::Float8) => Value::Float(value as f64),
        (Value::Int(value), Type::Numeric(_)) => Value::Numeric(BigDecimal::from(value)),
        (Value::Int(value), Type::Bool) => Value::Bool(value != 0),
        (Value::Bool(value), Type::Int4) => Value::Int(i64::from(value)),
        (Value::Float(value), Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid) => {
            let rounded = value.round_ties_even();
            let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
            integer(fits.then_some(rounded as i64), to)?
        }
        (Value::Float(value), Type::Float4) => {
            let narrow = value as f32;
            let lost = match (narrow.is_infinite() && value.is_finite(), narrow == 0.0 && value != 0.0) {
                (true, _) => Some("overflow"),
                (_, true) => Some("underflow"),
                _ => None,
            };
            if let Some(lost) = lost {
                let message = format!("value out of range: {lost}");
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
            }
            Value::Float(f64::from(narrow))
        }
        (Value::Float(value), Type::Float8) => Value::Float(value),
        (Value::Float(value), Type::Numeric(_)) => {
            // PostgreSQL takes 15 digits of the longer kind and 6 of the shorter.
            let digits = if from == Type::Float4 { 5 } else { 14 };
            if let Some(value) = numeric::non_finite(value) {
                return fit(Value::NonFinite(value), to, explicit);
            }
            let number = numeric::parse(&format!("{value:.digits$e}"))?;
            let scale = numeric::scale(&number.normalized()).max(0);
            Value::Numeric(number.with_scale(scale))
        }
        (Value::Numeric(value), Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid) => {
            integer(numeric::round(&value, 0).to_i64(), to)?
        }
        (value @ Value::NonFinite(_), Type::Float4 | Type::Float8) => {
            Value::Float(numeric::rough(&value).unwrap_or(f64::NAN))
        }
        (Value::NonFinite(value), to) if to.is_integer() => {
            let what = if value == NonFinite::NaN { "NaN" } else { "infinity" };
            let message = format!("cannot convert {what} to {}", to.name());
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
        }
        (Value::Numeric(value), Type::Float4 | Type::Float8) => {
            let unread = || SqlError::internal(format_args!("the number {value} is none"));
            Value::Float(text::parse_float(&value.to_plain_string(), to).ok_or_else(unread)??)
        }
        (Value::Date(days), Type::Timestamp | Type::Timestamptz) => {
            let wrong = || SqlError::new(state::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp");
            let micros = datetime::timestamp_of(days).ok_or_else(wrong)?;
            let micros = if to == Type::Timestamptz { context.style.zone.utc(micros) } else { micros };
            Value::Timestamp(datetime::known(micros).map_err(|_| wrong())?)
        }
        (Value::Timestamp(micros), to) if from == Type::Timestamptz => {
            let local = Value::Timestamp(context.style.zone.local(micros));
            return cast(local, Type::Timestamp, to, explicit, context);
        }
        (Value::Timestamp(micros), Type::Timestamptz) => {
            Value::Timestamp(datetime::known(context.style.zone.utc(micros))?)
        }
        (Value::Timestamp(micros), Type::Timestamp) => Value::Timestamp(micros),
        (Value::Timestamp(micros), Type::Date) => Value::Date(datetime::date_of_timestamp(micros)),
        (Value::Timestamp(micros), Type::Time) if datetime::is_infinite(micros) => return Ok(Value::Null),
        (Value::Timestamp(micros), Type::Time) => Value::Time(micros.rem_euclid(datetime::MICROS_PER_DAY)),
        (Value::Time(micros), Type::Interval) => {
            Value::Interval(super::Interval { micros, ..super::Interval::default() })
        }
        (Value::Interval(interval), Type::Time) => Value::Time(interval.micros.rem_euclid(datetime::MICROS_PER_DAY)),
        (value, to) => return Err(SqlError::internal(format_args!("a cast from {value:?} to {}", to.name()))),
    };
    fit(value, to, explicit)
}

/// A scalar of `jsonb` as a number or truth value.
fn scalar(value: &Json, to: Type, context: Context<'_>) -> Result<Value> {
    match (value, to) {
        (Json::Bool(value), Type::Bool) => Ok(Value::Bool(*value)),
        (Json::Number(number), to) if to.is_number() => {
            cast(Value::Numeric(number.clone()), Type::Numeric(None), to, true, context)
        }
        (other, to) => {
            let message = format!("cannot cast jsonb {} to type {}", other.kind(), to.base_name());
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// A row as one of a composite type, whose attributes its values become.
fn row_as(row: Record, id: u32, explicit: bool, context: Context<'_>) -> Result<Value> {
    let composite = context.own.known_composite(id)?;
    let least = if explicit { Ease::Explicit } else { Ease::Assignment };
    fits(&row, composite, |from, to| ease(from, to).is_some_and(|ease| ease <= least))?;
    let fields = row.fields.into_iter().zip(composite.live());
    let values = fields.map(|(field, to)| cast(field.value, field.of, to.of, explicit, context));
    Ok(composite.row(values.collect::<Result<_>>()?))
}

/// Refuses a row that is none of a composite type.
///
/// # Errors
/// 42846.
pub fn fits(row: &Record, composite: &Composite, becomes: impl Fn(Type, Type) -> bool) -> Result<()> {
    let refused = |detail: String| {
        let message = format!("cannot cast type record to {}", composite.name);
        Err(SqlError::new(state::CANNOT_COERCE, message).detail(detail))
    };
    let expected = composite.live().count();
    if row.fields.len() != expected {
        let many = if row.fields.len() < expected { "few" } else { "many" };
        return refused(format!("Input has too {many} columns."));
    }
    let mut pairs = row.fields.iter().zip(composite.live()).enumerate();
    match pairs.find(|(_, (field, to))| !becomes(field.of, to.of)) {
        Some((at, (field, to))) => {
            let (from, to) = (field.of.base_name(), to.of.base_name());
            refused(format!("Cannot cast type {from} to {to} in column {}.", at + 1))
        }
        None => Ok(()),
    }
}

fn integer(value: Option<i64>, of: Type) -> Result<Value> {
    match value.filter(|value| text::in_range(*value, of)) {
        Some(value) => Ok(Value::Int(value)),
        None => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", of.name()))),
    }
}

/// A value of the right kind within length or precision of its type.
pub fn fit(value: Value, of: Type, explicit: bool) -> Result<Value> {
    match (value, of) {
        (Value::Numeric(value), Type::Numeric(Some((precision, scale)))) => {
            let rounded = numeric::round(&value, i64::from(scale));
            let whole = rounded.digits() as i64 - i64::from(scale);
            if whole > i64::from(precision) - i64::from(scale) && rounded != BigDecimal::from_u8(0).unwrap_or_default()
            {
                let detail = format!(
                    "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
                    precision - scale
                );
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail));
            }
            Ok(Value::Numeric(rounded))
        }
        (Value::NonFinite(value), Type::Numeric(Some((precision, scale)))) if value != NonFinite::NaN => {
            let detail = format!("A field with precision {precision}, scale {scale} cannot hold an infinite value.");
            Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail))
        }
        (Value::Text(mut value), Type::Varchar(Some(length)) | Type::Char(length)) => {
            if matches!(of, Type::Char(_)) {
                value.truncate(value.trim_end_matches(' ').len());
            }
            if let Some((end, _)) = value.char_indices().nth(length as usize) {
                if !explicit && value[end..].bytes().any(|byte| byte != b' ') {
                    let message = format!("value too long for type {}", of.name());
                    return Err(SqlError::new(state::STRING_DATA_RIGHT_TRUNCATION, message));
                }
                value.truncate(end);
            }
            Ok(Value::Text(value))
        }
        (Value::Text(bits), Type::Bit(_) | Type::Varbit(_)) => bits::fit(bits, of, explicit),
        (Value::Timestamp(micros), Type::Rounded(_, digits)) => Ok(Value::Timestamp(datetime::round(micros, digits))),
        (Value::Time(micros), Type::Rounded(_, digits)) => Ok(Value::Time(datetime::round(micros, digits))),
        (Value::Interval(interval), Type::Rounded(_, digits)) => {
            Ok(Value::Interval(super::Interval { micros: datetime::round(interval.micros, digits), ..interval }))
        }
        (Value::Interval(interval), Type::Spanned(span, digits)) => {
            let interval = datetime::cut(interval, Some(span.units().1));
            match digits {
                Some(digits) => fit(Value::Interval(interval), Type::Rounded(Clock::Interval, digits), explicit),
                None => Ok(Value::Interval(interval)),
            }
        }
        (value, _) => Ok(value),
    }
}
