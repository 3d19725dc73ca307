//! `numeric`: how many digits results have, and their bytes.

use bigdecimal::{
    BigDecimal, RoundingMode, Signed, Zero,
    num_bigint::{BigInt, BigUint, Sign},
};

use super::{NonFinite, Value};
use crate::error::{Result, SqlError, state};

/// Digits before the point and behind it that PostgreSQL's `numeric` has at most.
const DIGITS_MAX: i64 = 131_072;
const SCALE_MAX: i64 = 16_383;
/// Significant digits of a quotient, at least.
const DIGITS_OF_QUOTIENT: i64 = 16;

/// What a text stands for as a `numeric`.
pub(crate) fn value(text: &str) -> Result<Value> {
    Ok(match text.trim().to_ascii_lowercase().as_str() {
        "nan" => Value::NonFinite(NonFinite::NaN),
        "infinity" | "+infinity" | "inf" | "+inf" => Value::NonFinite(NonFinite::Infinity),
        "-infinity" | "-inf" => Value::NonFinite(NonFinite::NegativeInfinity),
        _ => Value::Numeric(parse(text)?),
    })
}

/// A floating-point number that is none or infinite, as a `numeric`; `None` if it is finite.
pub fn non_finite(number: f64) -> Option<NonFinite> {
    match number {
        number if number.is_nan() => Some(NonFinite::NaN),
        f64::INFINITY => Some(NonFinite::Infinity),
        f64::NEG_INFINITY => Some(NonFinite::NegativeInfinity),
        _ => None,
    }
}

/// As much of a number as it takes to compute with what is not finite: its sign.
pub fn rough(value: &Value) -> Option<f64> {
    match value {
        Value::Numeric(number) => Some(f64::from(i8::from(number.is_positive()) - i8::from(number.is_negative()))),
        Value::NonFinite(NonFinite::NaN) => Some(f64::NAN),
        Value::NonFinite(NonFinite::Infinity) => Some(f64::INFINITY),
        Value::NonFinite(NonFinite::NegativeInfinity) => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// About how many bytes its text has, at least as many as it takes itself.
pub(crate) fn written_bytes(number: &BigDecimal) -> usize {
    let (digits, scale) = number.as_bigint_and_scale();
    // A bit is less than a third of a digit.
    let digits = digits.bits() / 3 + 1;
    let zeros = if scale < 0 { scale.unsigned_abs() } else { 0 };
    usize::try_from(digits.max(scale.max(0) as u64).saturating_add(zeros)).unwrap_or(usize::MAX)
}

/// A number from its text: digits, a point, an exponent.
pub fn parse(text: &str) -> Result<BigDecimal> {
    let trimmed = text.trim();
    let wrong = || {
        let message = format!("invalid input syntax for type numeric: \"{text}\"");
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    };
    let (mantissa, exponent) = match trimmed.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| wrong())?),
        None => (trimmed, 0),
    };
    let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let scale = fraction.len() as i64 - i64::from(exponent);
    if scale > SCALE_MAX || whole.trim_start_matches('0').len() as i64 + i64::from(exponent) > DIGITS_MAX {
        return Err(overflow());
    }
    let magnitude = BigInt::parse_bytes(digits.as_bytes(), 10).ok_or_else(wrong)?;
    let number = BigDecimal::new(if mantissa.starts_with('-') { -magnitude } else { magnitude }, scale);
    Ok(if scale < 0 { number.with_scale(0) } else { number })
}

/// The error for a `numeric` with more digits than PostgreSQL takes.
pub fn overflow() -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

/// Digits behind the point.
pub fn scale(number: &BigDecimal) -> i64 {
    number.fractional_digit_count()
}

/// Rounded to so many digits behind the point, halves away from zero.
pub fn round(number: &BigDecimal, scale: i64) -> BigDecimal {
    let rounded = number.with_scale_round(scale, RoundingMode::HalfUp);
    if scale < 0 { rounded.with_scale(0) } else { rounded }
}

/// Whether a result is within the limits.
pub fn checked(number: BigDecimal) -> Result<BigDecimal> {
    let (digits, scale) = (number.digits() as i64, scale(&number));
    if digits - scale > DIGITS_MAX {
        return Err(overflow());
    }
    Ok(if scale > SCALE_MAX { round(&number, SCALE_MAX) } else { number })
}

/// `a / b`, with as many digits behind the point as PostgreSQL gives it.
pub fn divide(a: &BigDecimal, b: &BigDecimal) -> Result<BigDecimal> {
    if b.is_zero() {
        return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
    }
    let scale = quotient_scale(a, b);
    // One digit more than is kept, so that rounding sees it.
    let (a_digits, a_scale) = a.as_bigint_and_scale();
    let (b_digits, b_scale) = b.as_bigint_and_scale();
    let shift = scale + 1 - a_scale + b_scale;
    let ten = BigInt::from(10);
    let quotient = if shift >= 0 {
        a_digits.as_ref() * ten.pow(shift as u32) / b_digits.as_ref()
    } else {
        a_digits.as_ref() / (b_digits.as_ref() * ten.pow(-shift as u32))
    };
    checked(round(&BigDecimal::new(quotient, scale + 1), scale))
}

/// A sum has as many digits behind the point as the term that has more, also if a term is zero.
pub fn sum(a: &BigDecimal, b: &BigDecimal) -> Result<BigDecimal> {
    with_digits_of(a, b, a + b)
}

/// As [`sum`].
pub fn difference(a: &BigDecimal, b: &BigDecimal) -> Result<BigDecimal> {
    with_digits_of(a, b, a - b)
}

fn with_digits_of(a: &BigDecimal, b: &BigDecimal, result: BigDecimal) -> Result<BigDecimal> {
    let digits = scale(a).max(scale(b));
    checked(if scale(&result) == digits { result } else { result.with_scale(digits) })
}

/// A product's digits behind the point are those of both factors together.
pub fn product(a: &BigDecimal, b: &BigDecimal) -> Result<BigDecimal> {
    let scale = scale(a) + scale(b);
    let product = if a.is_zero() || b.is_zero() { BigDecimal::zero() } else { a * b };
    checked(product.with_scale(scale))
}

/// The square root of a number that is not negative, with as many digits behind the point as it has.
pub fn square_root(number: &BigDecimal) -> BigDecimal {
    let scale = scale(number).max(0);
    // Two digits more than are kept, so that rounding sees them.
    let (digits, _) = number.with_scale(2 * (scale + 2)).into_bigint_and_scale();
    round(&BigDecimal::new(digits.sqrt(), scale + 2), scale)
}

/// `a % b`, with the sign of `a`.
pub fn remainder(a: &BigDecimal, b: &BigDecimal) -> Result<BigDecimal> {
    if b.is_zero() {
        return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
    }
    let scale = scale(a).max(scale(b));
    let (a, _) = a.with_scale(scale).into_bigint_and_scale();
    let (b, _) = b.with_scale(scale).into_bigint_and_scale();
    Ok(BigDecimal::new(a % b, scale))
}

/// As PostgreSQL chooses it, which counts in digits of base 10,000.
fn quotient_scale(a: &BigDecimal, b: &BigDecimal) -> i64 {
    let ((a_weight, a_first), (b_weight, b_first)) = (leading(a), leading(b));
    let weight = a_weight - b_weight - i64::from(a_first <= b_first);
    (DIGITS_OF_QUOTIENT - weight * 4).max(scale(a)).max(scale(b)).clamp(0, 1000)
}

/// The place of the first digit in base 10,000, and the digit.
fn leading(number: &BigDecimal) -> (i64, u32) {
    let (digits, scale) = number.as_bigint_and_scale();
    let text = digits.magnitude().to_string();
    if number.is_zero() {
        return (0, 0);
    }
    let exponent = text.len() as i64 - scale - 1;
    let weight = exponent.div_euclid(4);
    let length = (exponent - weight * 4 + 1) as usize;
    let first = text.bytes().chain(std::iter::repeat(b'0')).take(length);
    (weight, first.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

/// The bytes in a row: scale, then the digits as a signed number, smallest byte first.
pub fn to_row(number: &BigDecimal) -> Vec<u8> {
    let (digits, scale) = number.as_bigint_and_scale();
    let mut bytes = (scale as i32).to_le_bytes().to_vec();
    bytes.extend(digits.to_signed_bytes_le());
    bytes
}

/// The number whose bytes [`to_row`] wrote.
pub fn from_row(bytes: &[u8]) -> Option<BigDecimal> {
    let (scale, digits) = bytes.split_first_chunk::<4>()?;
    let scale = i64::from(i32::from_le_bytes(*scale));
    (-DIGITS_MAX..=DIGITS_MAX).contains(&scale).then(|| BigDecimal::new(BigInt::from_signed_bytes_le(digits), scale))
}

/// The bytes on the wire of what has no digits.
pub(crate) fn non_finite_to_wire(value: NonFinite, out: &mut Vec<u8>) {
    let (sign, scale) = match value {
        NonFinite::NaN => (0xc000_u16, 0_u16),
        NonFinite::Infinity => (0xd000, 0x20),
        NonFinite::NegativeInfinity => (0xf000, 0x20),
    };
    out.extend([0; 4]);
    out.extend(sign.to_be_bytes());
    out.extend(scale.to_be_bytes());
}

/// A value from its bytes on the wire.
pub(crate) fn value_from_wire(bytes: &[u8]) -> Result<Value> {
    Ok(match bytes.get(4..6) {
        Some([0xc0, 0]) => Value::NonFinite(NonFinite::NaN),
        Some([0xd0, 0]) => Value::NonFinite(NonFinite::Infinity),
        Some([0xf0, 0]) => Value::NonFinite(NonFinite::NegativeInfinity),
        _ => Value::Numeric(from_wire(bytes)?),
    })
}

/// The bytes on the wire: digits of base 10,000.
pub(crate) fn to_wire(number: &BigDecimal, out: &mut Vec<u8>) {
    let scale = scale(number).max(0);
    // As many digits behind the point as fill digits of base 10,000.
    let padded = number.with_scale((scale + 3) / 4 * 4);
    let (digits, padded_scale) = padded.as_bigint_and_scale();
    let mut groups: Vec<i16> = digits
        .magnitude()
        .to_radix_le(10)
        .chunks(4)
        .map(|four| four.iter().rev().fold(0, |n, d| n * 10 + i16::from(*d)))
        .collect();
    let mut lowest = -padded_scale / 4;
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..zeros);
    lowest += zeros as i64;
    let weight = if groups.is_empty() { 0 } else { lowest + groups.len() as i64 - 1 };
    out.extend((groups.len() as i16).to_be_bytes());
    out.extend((weight as i16).to_be_bytes());
    out.extend((if digits.sign() == Sign::Minus { 0x4000_u16 } else { 0 }).to_be_bytes());
    out.extend((scale as i16).to_be_bytes());
    out.extend(groups.iter().rev().flat_map(|group| group.to_be_bytes()));
}

pub(crate) fn from_wire(bytes: &[u8]) -> Result<BigDecimal> {
    let wrong = || SqlError::new(state::INVALID_BINARY_REPRESENTATION, "invalid numeric in binary format");
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
    let field = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
    let (count, weight, sign, scale) = (field(0), i64::from(field(2)), field(4) as u16, i64::from(field(6)));
    let sign = match sign {
        0 => Sign::Plus,
        0x4000 => Sign::Minus,
        _ => return Err(wrong()),
    };
    if count < 0 || rest.len() != count as usize * 2 || !(0..=SCALE_MAX).contains(&scale) {
        return Err(wrong());
    }
    let mut decimal = Vec::with_capacity(rest.len() * 2);
    for group in rest.chunks(2) {
        let group = i16::from_be_bytes([group[0], group[1]]);
        if !(0..10_000).contains(&group) {
            return Err(wrong());
        }
        decimal.extend([group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|digit| digit as u8));
    }
    let digits = BigUint::from_radix_be(&decimal, 10).ok_or_else(wrong)?;
    let own_scale = (i64::from(count) - 1 - weight) * 4;
    Ok(BigDecimal::new(BigInt::from_biguint(sign, digits), own_scale).with_scale(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> BigDecimal {
        parse(text).unwrap()
    }

    #[test]
    fn quotients_have_postgresqls_number_of_digits() {
        for (a, b, quotient) in [
            ("1", "3", "0.33333333333333333333"),
            ("10", "2", "5.0000000000000000"),
            ("10000", "3", "3333.3333333333333333"),
            ("2", "3", "0.66666666666666666667"),
            ("-7", "2", "-3.5000000000000000"),
            ("1.5", "0.3", "5.0000000000000000"),
            ("1", "300000", "0.000003333333333333333333"),
        ] {
            assert_eq!(divide(&number(a), &number(b)).unwrap().to_plain_string(), quotient, "{a} / {b}");
        }
        assert_eq!(divide(&number("1"), &number("0.0")).unwrap_err().state, state::DIVISION_BY_ZERO);
    }

    #[test]
    fn sums_keep_the_digits_behind_the_point_beside_zero() {
        let zeros = number("0.00000000000000000000");
        for (a, b) in [("0", "0.00000000000000000000"), ("1", "1.00000000000000000000")] {
            for sum in [sum(&number(a), &zeros), sum(&zeros, &number(a)), difference(&number(a), &zeros)] {
                assert_eq!(sum.unwrap().to_plain_string(), b);
            }
        }
        assert_eq!(difference(&zeros, &number("1")).unwrap().to_plain_string(), "-1.00000000000000000000");
    }

    #[test]
    fn numbers_survive_row_and_wire() {
        for text in
            ["0", "0.00", "1", "-1", "12345.678", "0.00001", "100000000", "-99999999999999999999.999999", "10000"]
        {
            let value = number(text);
            assert_eq!(from_row(&to_row(&value)).unwrap().to_plain_string(), text);
            let mut wire = Vec::new();
            to_wire(&value, &mut wire);
            assert_eq!(from_wire(&wire).unwrap().to_plain_string(), text);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", ".", "1.2.3", "abc", "1e", "--1", "1e999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(number("1.50e3").to_plain_string(), "1500");
        assert_eq!(number("-.5").to_plain_string(), "-0.5");
    }
}
