//! Values to and from the texts that PostgreSQL writes and reads.

use std::sync::Arc;

use crate::{
    error::{Result, SqlError, state},
    types::{Ranged, Type},
    value::{
        Context, Value,
        array::Array,
        bits, byte, datetime,
        json::{self, Json},
        mac,
        multirange::Multirange,
        network::Network,
        numeric,
        range::Range,
        style::Style,
    },
};

/// Appends a value's text; NULL has none.
pub(crate) fn write(value: &Value, of: Type, style: Style, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(if *value { 't' } else { 'f' }),
        Value::Int(value) => out.push_str(itoa(*value, &mut [0; 20])),
        Value::Float(value) if of == Type::Float4 => write_float(&format!("{:e}", *value as f32), 6, out),
        Value::Float(value) => write_float(&format!("{value:e}"), 15, out),
        Value::Numeric(value) => out.push_str(&value.to_plain_string()),
        Value::NonFinite(value) => out.push_str(value.text()),
        Value::Text(value) if of == Type::Byte => out.push_str(&byte::shown(value)),
        Value::Text(value) => {
            out.push_str(value);
            if let Type::Char(length) = of
                && of != Type::ANY_CHAR
            {
                let blanks = (length as usize).saturating_sub(value.chars().count());
                out.extend(std::iter::repeat_n(' ', blanks));
            }
        }
        Value::Date(days) => datetime::write_date(*days, style, out),
        Value::Time(micros) => datetime::write_time(*micros, out),
        Value::Timestamp(micros) => {
            datetime::write_timestamp(*micros, of.exact() == Type::Timestamptz, style, out);
        }
        Value::Interval(interval) => datetime::write_interval(*interval, style.intervals, out),
        Value::Uuid(bytes) => {
            for (at, byte) in bytes.iter().enumerate() {
                if matches!(at, 4 | 6 | 8 | 10) {
                    out.push('-');
                }
                push_hex(*byte, out);
            }
        }
        Value::Json(value) => value.write(out),
        Value::Enum(_, label) => out.push_str(label),
        Value::Array(array) if of.is_vector() => {
            let shown = array.elements.iter().map(|element| shown(element, of.element().unwrap_or(Type::Text), style));
            out.push_str(&shown.collect::<Vec<_>>().join(" "));
        }
        Value::Array(array) => array.write(of.element().unwrap_or(Type::Text), style, out),
        Value::Range(range) => {
            let kind = if let Type::Range(kind) = of { kind } else { Ranged::Int8 };
            range.write(kind, style, out);
        }
        Value::Multirange(multirange) => {
            let kind = if let Type::Multirange(kind) = of { kind } else { Ranged::Int8 };
            multirange.write(kind, style, out);
        }
        Value::Record(record) => record.write(style, out),
        Value::Network(network) => out.push_str(&network.text(of)),
        Value::Bytes(bytes) if matches!(of, Type::Macaddr | Type::Macaddr8) => {
            for (at, byte) in bytes.iter().enumerate() {
                if at > 0 {
                    out.push(':');
                }
                push_hex(*byte, out);
            }
        }
        Value::Bytes(bytes) => {
            out.push_str("\\x");
            for byte in bytes {
                push_hex(*byte, out);
            }
        }
    }
}

/// A value's text.
pub fn shown(value: &Value, of: Type, style: Style) -> String {
    let mut out = String::new();
    write(value, of, style, &mut out);
    out
}

fn push_hex(byte: u8, out: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
    }
}

/// A number's digits, without an allocation.
fn itoa(value: i64, digits: &mut [u8; 20]) -> &str {
    let mut rest = value.unsigned_abs();
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    str::from_utf8(&digits[at..]).unwrap_or_default()
}

/// From Rust's shortest digits and exponent to PostgreSQL's form, with an exponent from 10^`fixed_max` on.
fn write_float(scientific: &str, fixed_max: i32, out: &mut String) {
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        out.push_str(match scientific {
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            other => other,
        });
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    out.push_str(sign);
    if !(-4..fixed_max).contains(&exponent) {
        out.push_str(mantissa);
        out.push_str(&format!("e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()));
    } else if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-exponent - 1) as usize));
        out.push_str(&digits);
    } else {
        let point = exponent as usize + 1;
        let whole = digits.len().min(point);
        out.push_str(&digits[..whole]);
        out.extend(std::iter::repeat_n('0', point - whole));
        if whole < digits.len() {
            out.push('.');
            out.push_str(&digits[whole..]);
        }
    }
}

/// The value of a type that a text stands for.
pub fn parse(text: &str, of: Type, context: Context<'_>) -> Result<Value> {
    let wrong = || {
        let message = format!("invalid input syntax for type {}: \"{text}\"", of.base_name());
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    };
    Ok(match of {
        Type::Bool => Value::Bool(parse_bool(text).ok_or_else(wrong)?),
        Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid => {
            let trimmed = text.trim();
            let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong());
            }
            let range = || {
                let message = format!("value \"{text}\" is out of range for type {}", of.name());
                SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message)
            };
            let value: i64 = trimmed.parse().map_err(|_| range())?;
            if of == Type::Oid && value < 0 && in_range(value, Type::Int4) {
                return Ok(Value::Int((value as u32).into()));
            }
            if in_range(value, of) { Value::Int(value) } else { return Err(range()) }
        }
        Type::Float4 | Type::Float8 => Value::Float(parse_float(text, of).ok_or_else(wrong)??),
        Type::Numeric(_) => super::cast::fit(numeric::value(text)?, of, false)?,
        Type::Text | Type::Unknown => Value::Text(text.to_owned()),
        Type::Byte => byte::parse(text),
        Type::Varchar(_) | Type::Char(_) => super::cast::fit(Value::Text(text.to_owned()), of, false)?,
        Type::Rounded(..) => super::cast::fit(parse(text, of.exact(), context)?, of, false)?,
        Type::Spanned(span, _) => {
            let interval = datetime::parse_interval(text, Some(span.units()), context.style.intervals)?;
            super::cast::fit(Value::Interval(interval), of, false)?
        }
        Type::Date => Value::Date(datetime::parse_date(text, context.style.order)?),
        Type::Time => Value::Time(datetime::parse_time(text, context.style.order)?),
        Type::Timestamp | Type::Timestamptz => Value::Timestamp(datetime::parse_timestamp(text, of, context.style)?),
        Type::Interval => Value::Interval(datetime::parse_interval(text, None, context.style.intervals)?),
        Type::Uuid => Value::Uuid(parse_uuid(text).ok_or_else(wrong)?),
        Type::Bytea => Value::Bytes(match text.strip_prefix("\\x") {
            Some(digits) => parse_hex(digits)?,
            None => parse_escaped(text).ok_or_else(wrong)?,
        }),
        Type::Range(kind) => Value::Range(Box::new(Range::parse(text, kind, context)?)),
        Type::Multirange(kind) => Value::Multirange(Box::new(Multirange::parse(text, kind, context)?)),
        Type::Record => return Err(super::record::anonymous()),
        Type::Composite(id) => context.own.known_composite(id)?.parse(text, context)?,
        Type::Inet | Type::Cidr => Value::Network(Network::parse(text, of)?),
        Type::Macaddr | Type::Macaddr8 => mac::parse(text, of)?,
        Type::Bit(_) | Type::Varbit(_) => super::cast::fit(Value::Text(bits::parse(text)?), of, false)?,
        Type::Json => {
            json::check(text)?;
            Value::Text(text.to_owned())
        }
        Type::Jsonb => Value::Json(Arc::new(Json::parse(text)?)),
        Type::Jsonpath => Value::Text(json::path::Path::parse(text)?.to_string()),
        Type::Enum(id) => context.own.known_enumeration(id)?.value(text)?,
        Type::Array(_) if of.is_vector() => {
            let element = of.element().unwrap_or(Type::Text);
            let elements = text.split_whitespace().map(|word| parse(word, element, context)).collect::<Result<_>>()?;
            Value::Array(Arc::new(Array::vector(elements)))
        }
        Type::Array(_) => {
            let array = Array::parse(text, of.element().unwrap_or(Type::Text), context)?;
            Value::Array(Arc::new(array))
        }
    })
}

/// Whether an integer fits a type of integers.
pub fn in_range(value: i64, of: Type) -> bool {
    match of {
        Type::Int2 => i16::try_from(value).is_ok(),
        Type::Int4 => i32::try_from(value).is_ok(),
        Type::Oid => u32::try_from(value).is_ok(),
        _ => true,
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" => Some(true),
        () if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" => Some(false),
        () => None,
    }
}

pub(crate) fn parse_float(text: &str, of: Type) -> Option<Result<f64>> {
    let trimmed = text.trim();
    let value: f64 = trimmed.parse().ok()?;
    let value = if of == Type::Float4 { f64::from(trimmed.parse::<f32>().ok()?) } else { value };
    let named = trimmed.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_alphabetic());
    let mantissa = trimmed.split(['e', 'E']).next().unwrap_or_default();
    let vanishes = value == 0.0 && mantissa.contains(|c: char| ('1'..='9').contains(&c));
    if vanishes || value.is_infinite() && !named {
        let message = format!("\"{text}\" is out of range for type {}", of.name());
        return Some(Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message)));
    }
    Some(Ok(value))
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let inner = text.trim();
    let inner = inner.strip_prefix('{').map_or(Some(inner), |rest| rest.strip_suffix('}'))?;
    // A hyphen may stand behind each four digits.
    let (mut digits, mut split) = (Vec::with_capacity(32), false);
    for byte in inner.bytes() {
        let hyphen = byte == b'-';
        if hyphen && (split || digits.is_empty() || digits.len() >= 32 || digits.len() % 4 != 0) {
            return None;
        }
        split = hyphen;
        if !hyphen {
            digits.push(byte);
        }
    }
    hex(&digits)?.try_into().ok()
}

/// Bytes from pairs of hexadecimal digits.
fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// The bytes of hexadecimal digits, between which there may be space.
pub fn parse_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    hex(&digits).ok_or_else(|| SqlError::new(state::INVALID_PARAMETER_VALUE, "invalid hexadecimal data"))
}

/// Bytes from a text with `\\\\` and `\\ooo`.
pub fn parse_escaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut value = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\\' => value.push(b'\\'),
            first @ b'0'..=b'3' => {
                let mut octal = first - b'0';
                for _ in 0..2 {
                    let digit = bytes.next().filter(|byte| (b'0'..=b'7').contains(byte))?;
                    octal = octal << 3 | (digit - b'0');
                }
                value.push(octal);
            }
            _ => return None,
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f64) -> String {
        shown(&Value::Float(value), Type::Float8, Style::PLAIN)
    }

    #[test]
    fn floats_have_postgresqls_form() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (123.456, "123.456"),
            (100.0, "100"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(value), text);
        }
        assert_eq!(shown(&Value::Float(f64::from(0.1_f32)), Type::Float4, Style::PLAIN), "0.1");
        assert_eq!(shown(&Value::Float(1e6), Type::Float4, Style::PLAIN), "1e+06");
    }

    #[test]
    fn every_type_is_read_as_it_is_shown() {
        for (of, text) in [
            (Type::Bool, "t"),
            (Type::Int2, "-32768"),
            (Type::Int8, "9223372036854775807"),
            (Type::Float8, "2.5"),
            (Type::Numeric(None), "1.500"),
            (Type::Text, "a b"),
            (Type::Char(5), "ab   "),
            (Type::Date, "2024-02-29"),
            (Type::Time, "23:59:59.5"),
            (Type::Timestamp, "2024-02-29 01:02:03"),
            (Type::Timestamptz, "2024-02-29 01:02:03.000004+00"),
            (Type::Interval, "1 day 01:00:00"),
            (Type::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (Type::Bytea, "\\x00ff"),
            (Type::Json, " { \"a\":1}"),
            (Type::Jsonb, "{\"a\": [1, null]}"),
            (Type::Inet, "10.1.2.3/8"),
            (Type::Cidr, "10.0.0.0/8"),
            (Type::Macaddr, "08:00:2b:01:02:03"),
            (Type::Macaddr8, "08:00:2b:01:02:03:04:05"),
            (Type::Bit(Some(3)), "011"),
            (Type::Varbit(Some(9)), "011"),
        ] {
            assert_eq!(shown(&parse(text, of, Context::NONE).unwrap(), of, Style::PLAIN), text);
        }
    }

    #[test]
    fn what_a_type_does_not_have_is_refused() {
        for (of, text, state) in [
            (Type::Int2, "32768", state::NUMERIC_VALUE_OUT_OF_RANGE),
            (Type::Int4, "12a", state::INVALID_TEXT_REPRESENTATION),
            (Type::Int4, "", state::INVALID_TEXT_REPRESENTATION),
            (Type::Bool, "maybe", state::INVALID_TEXT_REPRESENTATION),
            (Type::Bool, "o", state::INVALID_TEXT_REPRESENTATION),
            (Type::Uuid, "a0", state::INVALID_TEXT_REPRESENTATION),
            (Type::Bytea, "\\x0", state::INVALID_PARAMETER_VALUE),
            (Type::Varchar(Some(2)), "abc", state::STRING_DATA_RIGHT_TRUNCATION),
            (Type::Numeric(Some((3, 1))), "123.4", state::NUMERIC_VALUE_OUT_OF_RANGE),
            (Type::Float8, "1e400", state::NUMERIC_VALUE_OUT_OF_RANGE),
        ] {
            assert_eq!(parse(text, of, Context::NONE).unwrap_err().state, state, "{text}");
        }
    }
}
