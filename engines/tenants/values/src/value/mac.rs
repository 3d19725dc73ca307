//! Addresses of network cards: `macaddr` of six bytes, `macaddr8` of eight.

use super::Value;
use crate::{
    error::{Result, SqlError, state},
    types::Type,
};

/// Bytes that an address of six has in its middle as one of eight.
const MIDDLE: [u8; 2] = [0xff, 0xfe];

fn wrong(text: &str, of: Type) -> SqlError {
    SqlError::new(
        state::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {}: \"{text}\"", of.name()),
    )
}

/// The address that a text stands for.
///
/// # Errors
/// 22P02, 22003.
pub(crate) fn parse(text: &str, of: Type) -> Result<Value> {
    if of == Type::Macaddr8 {
        return long(text).map(|bytes| Value::Bytes(bytes.to_vec())).ok_or_else(|| wrong(text, of));
    }
    let trimmed = text.trim();
    let (parts, digits): (Vec<&str>, usize) = match trimmed {
        text if text.contains('.') => (text.split('.').collect(), 4),
        text if text.split(':').count() == 6 => (text.split(':').collect(), 2),
        text if text.split('-').count() == 6 => (text.split('-').collect(), 2),
        text if text.contains(':') => (text.split(':').collect(), 6),
        text if text.split('-').count() == 3 => (text.split('-').collect(), 4),
        text if text.contains('-') => (text.split('-').collect(), 6),
        text => (vec![text], 12),
    };
    if parts.len() * digits != 12 {
        return Err(wrong(text, of));
    }
    let mut bytes = Vec::with_capacity(6);
    for part in parts {
        let is_hex = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or_else(|| wrong(text, of))?;
        if digits == 2 && number > 0xff {
            let message = format!("invalid octet value in \"macaddr\" value: \"{text}\"");
            return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        if digits > 2 && part.len() != digits {
            return Err(wrong(text, of));
        }
        bytes.extend(&number.to_be_bytes()[8 - digits / 2..]);
    }
    Ok(Value::Bytes(bytes))
}

/// Pairs of digits, between which there may be one kind of separator; six of them get their middle.
fn long(text: &str) -> Option<[u8; 8]> {
    let mut bytes = Vec::with_capacity(8);
    let (mut rest, mut separator) = (text.trim(), None);
    while !rest.is_empty() {
        let pair = rest.get(..2).filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(pair, 16).ok()?);
        rest = &rest[2..];
        if let Some(found) = rest.chars().next().filter(|found| matches!(found, ':' | '-' | '.')) {
            if *separator.get_or_insert(found) != found || bytes.len() == 8 {
                return None;
            }
            rest = &rest[1..];
        }
    }
    widened(&bytes)
}

/// An address of six or eight bytes as one of eight.
pub(crate) fn widened(bytes: &[u8]) -> Option<[u8; 8]> {
    match bytes {
        [a, b, c, d, e, f] => Some([*a, *b, *c, MIDDLE[0], MIDDLE[1], *d, *e, *f]),
        other => other.try_into().ok(),
    }
}

/// An address of eight bytes as one of six.
///
/// # Errors
/// 22003.
pub(crate) fn narrowed(bytes: &[u8]) -> Result<Value> {
    match bytes {
        [a, b, c, 0xff, 0xfe, d, e, f] => Ok(Value::Bytes(vec![*a, *b, *c, *d, *e, *f])),
        _ => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "macaddr8 data out of range to convert to macaddr")
            .hint("Only addresses that have FF and FE as values in the 4th and 5th bytes from the left, for example xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from macaddr8 to macaddr.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{style::Style, text::shown};

    #[test]
    fn every_form_of_an_address_is_read() {
        let read = |text, of| parse(text, of).map(|value| shown(&value, of, Style::PLAIN));
        for text in [
            "08:00:2b:01:02:03",
            "8:0:2b:1:2:3",
            "08-00-2b-01-02-03",
            "08002b:010203",
            "08002b-010203",
            "0800.2b01.0203",
            "0800-2b01-0203",
            "08002B010203",
        ] {
            assert_eq!(read(text, Type::Macaddr).as_deref(), Ok("08:00:2b:01:02:03"), "{text}");
        }
        for text in ["08:00:2b:01:02:03:04:05", "08002b0102030405", "08-00-2b-01-02-03-04-05", "0800.2b01.0203.0405"] {
            assert_eq!(read(text, Type::Macaddr8).as_deref(), Ok("08:00:2b:01:02:03:04:05"), "{text}");
        }
        assert_eq!(read("08002b010203", Type::Macaddr8).as_deref(), Ok("08:00:2b:ff:fe:01:02:03"));
        for text in
            ["", "0800:2b01:0203", "08:00:2b:01:02", "not even close", "08:00:2b:01:02:03:04", "é8:00:2b:01:02:03"]
        {
            assert_eq!(read(text, Type::Macaddr).unwrap_err().state, state::INVALID_TEXT_REPRESENTATION, "{text}");
            assert_eq!(read(text, Type::Macaddr8).is_err(), text != "0800:2b01:0203", "{text}");
        }
        assert_eq!(read("100:0:0:0:0:0", Type::Macaddr).unwrap_err().state, state::NUMERIC_VALUE_OUT_OF_RANGE);
    }

    #[test]
    fn an_address_is_widened_and_narrowed() {
        let six = [8, 0, 0x2b, 1, 2, 3];
        let eight = widened(&six).unwrap();
        assert_eq!(narrowed(&eight), Ok(Value::Bytes(six.to_vec())));
        assert_eq!(narrowed(&[0; 8]).unwrap_err().state, state::NUMERIC_VALUE_OUT_OF_RANGE);
    }
}
