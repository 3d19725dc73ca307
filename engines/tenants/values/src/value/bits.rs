//! Strings of bits: `bit` and `bit varying`. A value is kept as its digits, so that values are ordered as PostgreSQL orders them.

use std::iter;

use super::{Value, size};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
};

/// The bits that a text stands for: digits of base 2 behind `b` or nothing, of base 16 behind `x`.
///
/// # Errors
/// 22P02, 54000.
pub fn parse(text: &str) -> Result<String> {
    let wrong = |digit: char, base: &str| {
        let message = format!("\"{digit}\" is not a valid {base} digit");
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    };
    let Some(digits) = text.strip_prefix(['x', 'X']) else {
        let digits = text.strip_prefix(['b', 'B']).unwrap_or(text);
        return match digits.chars().find(|digit| !matches!(digit, '0' | '1')) {
            Some(digit) => Err(wrong(digit, "binary")),
            None => Ok(digits.to_owned()),
        };
    };
    size::check(4 * digits.len())?;
    let mut bits = String::with_capacity(4 * digits.len());
    for digit in digits.chars() {
        let number = digit.to_digit(16).ok_or_else(|| wrong(digit, "hexadecimal"))?;
        push_number(number.into(), 4, &mut bits);
    }
    Ok(bits)
}

/// Appends the last bits of a number.
pub fn push_number(number: u64, count: usize, bits: &mut String) {
    bits.extend((0..count).rev().map(|at| if at < 64 && number >> at & 1 == 1 { '1' } else { '0' }));
}

/// The number whose last bits these are, as a signed one of so many bits.
///
/// # Errors
/// 22003.
pub fn number(bits: &str, width: usize, of: Type) -> Result<i64> {
    if bits.len() > width {
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", of.name())));
    }
    let number = bits.bytes().fold(0_u64, |number, bit| number << 1 | u64::from(bit == b'1'));
    Ok(if width == 32 { i64::from(number as u32 as i32) } else { number as i64 })
}

/// An integer as so many bits, as a cast makes them: the sign goes on to the left.
pub fn of_number(number: i64, count: usize) -> Result<String> {
    size::check(count)?;
    let mut bits = String::with_capacity(count);
    let sign = if number < 0 { '1' } else { '0' };
    bits.extend(iter::repeat_n(sign, count.saturating_sub(64)));
    push_number(number as u64, count.min(64), &mut bits);
    Ok(bits)
}

/// Bits within the length of their type. `explicit` cuts what is too long, and fills up what is too short.
///
/// # Errors
/// 22026, 22001.
pub(crate) fn fit(mut bits: String, of: Type, explicit: bool) -> Result<Value> {
    match of {
        Type::Bit(Some(length)) if bits.len() != length as usize => {
            if !explicit {
                let message = format!("bit string length {} does not match type bit({length})", bits.len());
                return Err(SqlError::new("22026", message));
            }
            size::check(length as usize)?;
            bits.truncate(length as usize);
            bits.extend(iter::repeat_n('0', length as usize - bits.len()));
        }
        Type::Varbit(Some(length)) if bits.len() > length as usize => {
            if !explicit {
                let message = format!("bit string too long for type bit varying({length})");
                return Err(SqlError::new(state::STRING_DATA_RIGHT_TRUNCATION, message));
            }
            bits.truncate(length as usize);
        }
        _ => {}
    }
    Ok(Value::Text(bits))
}

/// Appends bits in the binary format.
pub(crate) fn to_wire(bits: &str, out: &mut Vec<u8>) {
    out.extend((bits.len() as u32).to_be_bytes());
    for byte in bits.as_bytes().chunks(8) {
        out.push(byte.iter().enumerate().fold(0, |sum, (at, bit)| sum | (bit & 1) << (7 - at)));
    }
}

/// Bits from the binary format.
pub(crate) fn from_wire(bytes: &[u8]) -> Option<String> {
    let (length, bytes) = bytes.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    (length.div_ceil(8) == bytes.len())
        .then(|| (0..length).map(|at| if bytes[at / 8] >> (7 - at % 8) & 1 == 1 { '1' } else { '0' }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_from_digits_of_both_bases() {
        assert_eq!(parse("x1F").as_deref(), Ok("00011111"));
        assert_eq!((parse("b01").as_deref(), parse("").as_deref()), (Ok("01"), Ok("")));
        for wrong in ["12", "xg", "b2", "é"] {
            assert_eq!(parse(wrong).unwrap_err().state, state::INVALID_TEXT_REPRESENTATION, "{wrong}");
        }
    }

    #[test]
    fn numbers_become_bits_and_bits_numbers() {
        assert_eq!(of_number(-1, 70).unwrap(), "1".repeat(70));
        assert_eq!(of_number(5, 2).unwrap(), "01");
        assert_eq!(number("11111111111111111111111111111111", 32, Type::Int4), Ok(-1));
        assert_eq!(number("101", 64, Type::Int8), Ok(5));
        assert_eq!(number(&"1".repeat(33), 32, Type::Int4).unwrap_err().state, state::NUMERIC_VALUE_OUT_OF_RANGE);
    }

    #[test]
    fn lengths_are_kept_to_or_made() {
        let fitted = |bits: &str, of, explicit| fit(bits.to_owned(), of, explicit);
        assert_eq!(fitted("101", Type::Bit(Some(5)), true), Ok(Value::Text("10100".to_owned())));
        assert_eq!(fitted("101", Type::Bit(Some(2)), true), Ok(Value::Text("10".to_owned())));
        assert_eq!(fitted("101", Type::Bit(Some(2)), false).unwrap_err().state, "22026");
        assert_eq!(fitted("101", Type::Varbit(Some(2)), false).unwrap_err().state, "22001");
        assert!(fit("1".to_owned(), Type::Bit(Some(u32::MAX)), true).is_err(), "no memory is taken for it");
    }

    #[test]
    fn bits_survive_the_binary_format() {
        for bits in ["", "1", "10000000", "011000001"] {
            let mut bytes = Vec::new();
            to_wire(bits, &mut bytes);
            assert_eq!(from_wire(&bytes).as_deref(), Some(bits));
            bytes.push(0);
            assert_eq!(from_wire(&bytes), None);
        }
        assert_eq!(from_wire(&[0xff; 5]), None, "longer than it is");
    }
}
