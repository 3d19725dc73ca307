//! Values to and from the bytes of the protocol's binary format, and of rows.

use std::sync::Arc;

use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Context, Interval, Value, array::Array, bits, byte, datetime, mac, multirange::Multirange, network::Network,
        numeric, range::Range, style::Style, text,
    },
};

/// Appends a value's bytes in the binary format; NULL has none.
pub(crate) fn write(value: &Value, of: Type, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int(value) => match of {
            Type::Int2 => out.extend((*value as i16).to_be_bytes()),
            Type::Int4 => out.extend((*value as i32).to_be_bytes()),
            Type::Oid => out.extend((*value as u32).to_be_bytes()),
            _ => out.extend(value.to_be_bytes()),
        },
        Value::Float(value) if of == Type::Float4 => out.extend((*value as f32).to_be_bytes()),
        Value::Float(value) => out.extend(value.to_be_bytes()),
        Value::Numeric(value) => numeric::to_wire(value, out),
        Value::NonFinite(value) => numeric::non_finite_to_wire(*value, out),
        Value::Text(value) if of == Type::Byte => out.push(byte::byte_of(value)),
        Value::Text(value) if of == Type::Jsonpath => {
            out.push(JSON_VERSION);
            out.extend(value.as_bytes());
        }
        Value::Text(value) if of.is_bits() => bits::to_wire(value, out),
        Value::Text(_) => out.extend(text::shown(value, of, Style::PLAIN).into_bytes()),
        Value::Date(days) => out.extend(days.to_be_bytes()),
        Value::Time(micros) | Value::Timestamp(micros) => out.extend(micros.to_be_bytes()),
        Value::Interval(Interval { months, days, micros }) => {
            out.extend(micros.to_be_bytes());
            out.extend(days.to_be_bytes());
            out.extend(months.to_be_bytes());
        }
        Value::Uuid(bytes) => out.extend(bytes),
        Value::Bytes(bytes) => out.extend(bytes),
        Value::Record(record) => record.to_wire(out),
        Value::Network(network) => network.to_wire(of, out),
        Value::Range(range) => {
            if let Type::Range(kind) = of {
                range.to_wire(kind, out);
            }
        }
        Value::Multirange(multirange) => {
            if let Type::Multirange(kind) = of {
                multirange.to_wire(kind, out);
            }
        }
        Value::Json(value) => {
            out.push(JSON_VERSION);
            out.extend(value.text().into_bytes());
        }
        Value::Enum(_, label) => out.extend(label.as_bytes()),
        Value::Array(array) => array.to_binary(of.element().unwrap_or(Type::Text), out),
    }
}

/// What the binary formats of `jsonb` and `jsonpath` begin with.
const JSON_VERSION: u8 = 1;

/// The value of a type from its binary format.
pub fn parse(bytes: &[u8], of: Type, context: Context<'_>) -> Result<Value> {
    let wrong = || {
        let message = format!("incorrect binary data format for type {}: {} bytes", of.base_name(), bytes.len());
        SqlError::new(state::INVALID_BINARY_REPRESENTATION, message)
    };
    let out_of_range = |what| SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"));
    fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    let value = match of {
        Type::Rounded(..) | Type::Spanned(..) => {
            return super::cast::fit(parse(bytes, of.exact(), context)?, of, false);
        }
        Type::Bool => fixed::<1>(bytes).map(|[byte]| Value::Bool(byte != 0)),
        Type::Int2 => fixed(bytes).map(|bytes| Value::Int(i64::from(i16::from_be_bytes(bytes)))),
        Type::Int4 => fixed(bytes).map(|bytes| Value::Int(i64::from(i32::from_be_bytes(bytes)))),
        Type::Oid => fixed(bytes).map(|bytes| Value::Int(i64::from(u32::from_be_bytes(bytes)))),
        Type::Int8 => fixed(bytes).map(|bytes| Value::Int(i64::from_be_bytes(bytes))),
        Type::Float4 => fixed(bytes).map(|bytes| Value::Float(f64::from(f32::from_be_bytes(bytes)))),
        Type::Float8 => fixed(bytes).map(|bytes| Value::Float(f64::from_be_bytes(bytes))),
        Type::Date => {
            let days = fixed(bytes).map(i32::from_be_bytes).ok_or_else(wrong)?;
            let known = datetime::is_infinite_date(days) || datetime::known_day(days.into()).is_some();
            Some(Value::Date(if known { days } else { return Err(out_of_range("date")) }))
        }
        Type::Time => {
            let micros = fixed(bytes).map(i64::from_be_bytes).ok_or_else(wrong)?;
            let known = (0..=datetime::MICROS_PER_DAY).contains(&micros);
            Some(Value::Time(if known { micros } else { return Err(out_of_range("time")) }))
        }
        Type::Timestamp | Type::Timestamptz => {
            let micros = fixed(bytes).map(i64::from_be_bytes).ok_or_else(wrong)?;
            Some(Value::Timestamp(datetime::known(micros)?))
        }
        Type::Interval => fixed::<16>(bytes).map(|bytes| {
            let [m0, m1, m2, m3, m4, m5, m6, m7, d0, d1, d2, d3, n0, n1, n2, n3] = bytes;
            Value::Interval(Interval {
                micros: i64::from_be_bytes([m0, m1, m2, m3, m4, m5, m6, m7]),
                days: i32::from_be_bytes([d0, d1, d2, d3]),
                months: i32::from_be_bytes([n0, n1, n2, n3]),
            })
        }),
        Type::Uuid => fixed(bytes).map(Value::Uuid),
        Type::Bytea => Some(Value::Bytes(bytes.to_vec())),
        Type::Macaddr => fixed::<6>(bytes).map(|bytes| Value::Bytes(bytes.to_vec())),
        Type::Macaddr8 => mac::widened(bytes).map(|bytes| Value::Bytes(bytes.to_vec())),
        Type::Range(kind) => Range::from_wire(bytes, kind, context)?.map(|range| Value::Range(Box::new(range))),
        Type::Multirange(kind) => {
            Multirange::from_wire(bytes, kind, context)?.map(|multirange| Value::Multirange(Box::new(multirange)))
        }
        Type::Record => return Err(super::record::anonymous()),
        Type::Composite(id) => return context.own.known_composite(id)?.from_wire(bytes, context),
        Type::Inet | Type::Cidr => Network::from_wire(bytes, of).map(Value::Network),
        Type::Bit(_) | Type::Varbit(_) => {
            let bits = bits::from_wire(bytes).ok_or_else(wrong)?;
            return super::cast::fit(Value::Text(bits), of, false);
        }
        Type::Numeric(_) => return super::cast::fit(numeric::value_from_wire(bytes)?, of, false),
        Type::Byte => fixed(bytes).map(|[code]| byte::of_byte(code)),
        Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Unknown | Type::Json | Type::Enum(_) => {
            return text::parse(utf8(bytes)?, of, context);
        }
        Type::Array(_) => {
            let array = Array::from_binary(bytes, of.element().unwrap_or(Type::Text), context)?;
            Some(Value::Array(Arc::new(array)))
        }
        Type::Jsonb | Type::Jsonpath => match bytes.split_first() {
            Some((&JSON_VERSION, text)) => return text::parse(utf8(text)?, of, context),
            _ => None,
        },
    };
    value.ok_or_else(wrong)
}

/// Text that a client sent.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let wrong = |what: &str| SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, format!("invalid {what}"));
    let text = str::from_utf8(bytes).map_err(|_| wrong("byte sequence for encoding \"UTF8\""))?;
    match text.contains('\0') {
        true => Err(wrong("byte sequence for encoding \"UTF8\": 0x00")),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_the_calendar_has_not_are_refused() {
        for (of, bytes) in [
            (Type::Date, &2_145_031_949_i32.to_be_bytes()[..]),
            (Type::Time, &(-1_i64).to_be_bytes()[..]),
            (Type::Time, &86_400_000_001_i64.to_be_bytes()[..]),
            (Type::Timestamp, &(i64::MAX - 1).to_be_bytes()[..]),
        ] {
            let refused = parse(bytes, of, Context::NONE).unwrap_err();
            assert_eq!(refused.state, state::DATETIME_FIELD_OVERFLOW, "{of:?}");
        }
        let infinite = parse(&i64::MAX.to_be_bytes(), Type::Timestamp, Context::NONE);
        assert_eq!(infinite, Ok(Value::Timestamp(i64::MAX)));
    }

    #[test]
    fn every_type_survives_the_binary_format() {
        for (of, shown) in [
            (Type::Bool, "f"),
            (Type::Int2, "-2"),
            (Type::Int4, "70000"),
            (Type::Int8, "-9223372036854775808"),
            (Type::Float4, "1.5"),
            (Type::Float8, "-0.1"),
            (Type::Numeric(None), "-12345.6700"),
            (Type::Text, "für"),
            (Type::Char(4), "ab  "),
            (Type::Date, "1999-12-31"),
            (Type::Time, "00:00:00.000001"),
            (Type::Timestamp, "1999-12-31 23:59:59"),
            (Type::Interval, "1 mon -1 days +00:00:01"),
            (Type::Uuid, "00000000-0000-0000-0000-0000000000ff"),
            (Type::Bytea, "\\x00"),
            (Type::Json, "[ 1 ]"),
            (Type::Jsonb, "{\"a\": 1.50}"),
            (Type::Jsonpath, "$.\"a\"[last]"),
            (Type::Inet, "2001:db8::1/64"),
            (Type::Cidr, "10.0.0.0/8"),
            (Type::Macaddr, "08:00:2b:01:02:03"),
            (Type::Macaddr8, "08:00:2b:01:02:03:04:05"),
            (Type::Bit(Some(3)), "011"),
            (Type::Varbit(None), "0110101011"),
        ] {
            let mut bytes = Vec::new();
            write(&text::parse(shown, of, Context::NONE).unwrap(), of, &mut bytes);
            assert_eq!(text::shown(&parse(&bytes, of, Context::NONE).unwrap(), of, Style::PLAIN), shown);
        }
    }

    #[test]
    fn bytes_of_the_wrong_length_are_refused() {
        for of in [
            Type::Int4,
            Type::Uuid,
            Type::Interval,
            Type::Numeric(None),
            Type::Bool,
            Type::Inet,
            Type::Macaddr,
            Type::Varbit(None),
        ] {
            assert_eq!(parse(&[1, 2, 3], of, Context::NONE).unwrap_err().state, state::INVALID_BINARY_REPRESENTATION);
        }
        assert_eq!(parse(&[0xff], Type::Text, Context::NONE).unwrap_err().state, state::CHARACTER_NOT_IN_REPERTOIRE);
        assert!(parse(b"a\0", Type::Text, Context::NONE).is_err());
    }
}
