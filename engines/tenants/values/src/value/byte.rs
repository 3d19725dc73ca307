//! Values of `"char"`: one byte, of which the catalog makes its codes. A value is kept as the character with the byte's number, nothing for
//! zero, so that values are ordered as their bytes. PostgreSQL shows a byte beyond ASCII as `\ooo`.

use std::borrow::Cow;

use super::Value;
use crate::error::{Result, SqlError, state};

/// The value that a text stands for: its first byte, or the byte whose number it has in octal digits.
pub(crate) fn parse(text: &str) -> Value {
    let bytes = text.as_bytes();
    let octal = |bytes: &[u8]| bytes.iter().all(|byte| (b'0'..=b'7').contains(byte));
    match bytes {
        [b'\\', digits @ ..] if digits.len() == 3 && octal(digits) => {
            let number = digits.iter().fold(0_u32, |sum, digit| sum << 3 | u32::from(digit - b'0'));
            of_byte(number as u8)
        }
        [] => of_byte(0),
        [first, ..] => of_byte(*first),
    }
}

/// The value of a number.
///
/// # Errors
/// 22003.
pub(crate) fn of_number(number: i64) -> Result<Value> {
    match i8::try_from(number) {
        Ok(number) => Ok(of_byte(number as u8)),
        Err(_) => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "\"char\" out of range")),
    }
}

/// The value of a byte.
pub(crate) fn of_byte(byte: u8) -> Value {
    Value::Text(if byte == 0 { String::new() } else { char::from(byte).to_string() })
}

/// The byte of a value.
pub(crate) fn byte_of(kept: &str) -> u8 {
    kept.chars().next().map_or(0, |character| u32::from(character) as u8)
}

/// The text of a value.
pub(crate) fn shown(kept: &str) -> Cow<'_, str> {
    if kept.is_ascii() { kept.into() } else { format!("\\{:03o}", byte_of(kept)).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_as_it_is_shown() {
        for byte in 0..=u8::MAX {
            let Value::Text(kept) = of_byte(byte) else { panic!("a text") };
            assert_eq!((byte_of(&kept), parse(&shown(&kept))), (byte, Value::Text(kept)));
        }
        assert_eq!(shown("\u{80}"), "\\200");
        assert_eq!(parse("hello"), Value::Text("h".to_owned()));
        assert_eq!(parse("\\78"), Value::Text("\\".to_owned()));
        assert!(of_number(127).is_ok() && of_number(-128).is_ok() && of_number(128).is_err());
    }
}
