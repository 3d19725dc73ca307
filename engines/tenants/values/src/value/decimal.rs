//! Roots, exponentials and logarithms of `numeric`, with as many digits as PostgreSQL gives.

use bigdecimal::{BigDecimal, One, RoundingMode, Signed, ToPrimitive, Zero, num_bigint::BigInt};

use super::numeric;
use crate::error::{Result, SqlError, state};

/// Significant digits of a result, at least.
const DIGITS: i64 = 16;
const SCALE_MAX: i64 = 1_000;
/// Digits before the point that a power may have, and those of one that is multiplied out.
const DIGITS_BEFORE_MAX: i64 = 3_000;
const EXACT_DIGITS: u64 = 140_000;
/// Digits more than are kept, so that rounding sees them.
const GUARD: i64 = 10;

/// A whole number that stands for itself divided by ten to the power of a scale.
fn fixed(number: &BigDecimal, scale: i64) -> BigInt {
    number.with_scale_round(scale, RoundingMode::Down).into_bigint_and_scale().0
}

fn ten_to(scale: i64) -> BigInt {
    BigInt::from(10).pow(scale.max(0) as u32)
}

/// The power of ten of the first digit.
fn exponent(number: &BigDecimal) -> i64 {
    let (digits, scale) = number.as_bigint_and_scale();
    digits.magnitude().to_string().len() as i64 - 1 - scale
}

fn overflow() -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

/// The square root of a number that is not negative.
pub fn square_root(number: &BigDecimal) -> BigDecimal {
    // PostgreSQL counts in digits of base 10,000.
    let weight = if number.is_zero() { 0 } else { exponent(number).div_euclid(4) };
    let scale = (DIGITS - weight * 2 - 1).max(numeric::scale(number)).clamp(0, SCALE_MAX);
    let (digits, _) = number.with_scale(2 * (scale + 2)).into_bigint_and_scale();
    numeric::round(&BigDecimal::new(digits.sqrt(), scale + 2), scale)
}

/// e to the power of a number.
pub fn exp(number: &BigDecimal) -> Result<BigDecimal> {
    let value = number.to_f64().unwrap_or(f64::INFINITY) * std::f64::consts::LOG10_E;
    if value > 131_072.0 {
        return Err(overflow());
    }
    let value = value.clamp(-2_000.0, 131_072.0) as i64;
    check_size(value)?;
    let scale = (DIGITS - value).max(numeric::scale(number)).clamp(0, SCALE_MAX);
    Ok(numeric::round(&exponential(number, scale + GUARD + value.max(0)), scale))
}

/// Refuses results that would take too long.
fn check_size(digits: i64) -> Result<()> {
    match digits > DIGITS_BEFORE_MAX {
        true => Err(SqlError::unsupported(format_args!("a power of more than {DIGITS_BEFORE_MAX} digits"))),
        false => Ok(()),
    }
}

/// e to the power of a number, to so many digits behind the point and a few less if it is large.
fn exponential(number: &BigDecimal, digits: i64) -> BigDecimal {
    // Nothing is left of what is so small.
    if number < &BigDecimal::from(-10_000) {
        return BigDecimal::zero();
    }
    // e^x = (e^(x / 2^k))^(2^k), with x / 2^k small.
    let bits = exponent(number).clamp(0, 8) * 4 + 8;
    let scale = digits + bits;
    let one = ten_to(scale);
    let step = fixed(number, scale) >> bits as u64;
    let (mut sum, mut term) = (one.clone(), one.clone());
    for at in 1_u32.. {
        term = &term * &step / &one / at;
        if term.is_zero() {
            break;
        }
        sum += &term;
    }
    for _ in 0..bits {
        sum = &sum * &sum / &one;
    }
    BigDecimal::new(sum, scale)
}

/// About the power of ten of the first digit of a logarithm, as PostgreSQL estimates it.
fn logarithm_exponent(number: &BigDecimal) -> i64 {
    let rest = number - BigDecimal::one();
    if rest.is_zero() {
        return 0;
    }
    if (&rest * BigDecimal::from(10)).abs() <= BigDecimal::one() {
        return exponent(&rest);
    }
    natural(number, 20).to_f64().map_or(0, |value| value.abs().log10() as i64)
}

/// The natural logarithm of a positive number, to so many digits behind the point.
fn natural(number: &BigDecimal, digits: i64) -> BigDecimal {
    // x = m * 10^e with m from 1 on; ln m = 2 artanh((m - 1) / (m + 1)).
    let scale = digits + 10;
    let one = ten_to(scale);
    let exponent = exponent(number);
    let (digits, own_scale) = number.as_bigint_and_scale();
    let mut mantissa = fixed(&BigDecimal::new(digits.into_owned(), own_scale + exponent), scale);
    let mut doubled = 0;
    while mantissa > &one * 3 / 2 {
        mantissa /= 2;
        doubled += 1;
    }
    let artanh = |top: &BigInt, bottom: &BigInt| -> BigInt {
        let part = top * &one / bottom;
        let square = &part * &part / &one;
        let (mut sum, mut term) = (part.clone(), part);
        for at in (3_u32..).step_by(2) {
            term = &term * &square / &one;
            if term.is_zero() {
                break;
            }
            sum += &term / at;
        }
        sum
    };
    let own = artanh(&(&mantissa - &one), &(&mantissa + &one));
    // ln 2 = 2 artanh(1 / 3), ln 10 = 3 ln 2 + 2 artanh(1 / 9)
    let two = artanh(&BigInt::one(), &BigInt::from(3));
    let ten = &two * 3 + artanh(&BigInt::one(), &BigInt::from(9));
    BigDecimal::new((own + two * doubled + ten * exponent) * 2, scale)
}

fn positive(number: &BigDecimal) -> Result<()> {
    let wrong = |message| Err(SqlError::new("2201E", message));
    match () {
        () if number.is_zero() => wrong("cannot take logarithm of zero"),
        () if number.is_negative() => wrong("cannot take logarithm of a negative number"),
        () => Ok(()),
    }
}

/// The natural logarithm.
pub fn ln(number: &BigDecimal) -> Result<BigDecimal> {
    positive(number)?;
    let scale = (DIGITS - logarithm_exponent(number)).max(numeric::scale(number)).clamp(0, SCALE_MAX);
    Ok(numeric::round(&natural(number, scale + GUARD), scale))
}

/// The logarithm to a base.
pub fn log(base: &BigDecimal, number: &BigDecimal) -> Result<BigDecimal> {
    positive(base)?;
    positive(number)?;
    let (base_exponent, own) = (logarithm_exponent(base), logarithm_exponent(number));
    let bottom = natural(base, 60);
    if bottom.is_zero() {
        return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
    }
    let scale =
        (DIGITS - (own - base_exponent)).max(numeric::scale(base)).max(numeric::scale(number)).clamp(0, SCALE_MAX);
    let digits = scale + GUARD + base_exponent.abs() + own.abs();
    let (top, bottom) = (natural(number, digits), natural(base, digits));
    Ok(numeric::round(&(fixed_quotient(&top, &bottom, scale + 2)), scale))
}

fn fixed_quotient(top: &BigDecimal, bottom: &BigDecimal, scale: i64) -> BigDecimal {
    let digits = scale + 40;
    let (top, bottom) = (fixed(top, digits), fixed(bottom, digits));
    BigDecimal::new(top * ten_to(scale) / bottom, scale)
}

/// A number to the power of another.
pub fn power(base: &BigDecimal, by: &BigDecimal) -> Result<BigDecimal> {
    let wrong = |message| Err(SqlError::new("2201F", message));
    let whole = by.is_integer();
    if base.is_zero() && by.is_negative() {
        return wrong("zero raised to a negative power is undefined");
    }
    if base.is_negative() && !whole {
        return wrong("a negative number raised to a non-integer power yields a complex result");
    }
    let own_scale = numeric::scale(base).max(numeric::scale(by));
    if by.is_zero() || base.is_zero() {
        let result = if by.is_zero() { BigDecimal::one() } else { BigDecimal::zero() };
        return Ok(result.with_scale(own_scale.max(DIGITS)));
    }
    let size = base.abs();
    // How many digits the result has before the point.
    let value =
        by.to_f64().unwrap_or(f64::INFINITY) * natural(&size, 40).to_f64().unwrap_or(0.0) * std::f64::consts::LOG10_E;
    if value > 131_072.0 {
        return Err(overflow());
    }
    let before = value.clamp(-2_000.0, 131_072.0) as i64;
    let small = whole && by.to_i32().is_some();
    let scale = match small {
        true => numeric::scale(base).clamp(DIGITS, SCALE_MAX),
        false => (DIGITS - before).max(own_scale).clamp(0, SCALE_MAX),
    };
    let digits = scale + GUARD + before.max(0) + exponent(by).max(0);
    let times = by.to_u32().filter(|times| whole && base.digits() * u64::from(*times) <= EXACT_DIGITS);
    let magnitude = if let Some(times) = times {
        let (digits, own_scale) = size.into_bigint_and_scale();
        BigDecimal::new(digits.pow(times), own_scale * i64::from(times))
    } else {
        check_size(before)?;
        exponential(&(natural(&size, digits) * by), digits)
    };
    let odd = whole && by.with_scale(0).into_bigint_and_scale().0.bit(0);
    Ok(numeric::round(&if base.is_negative() && odd { -magnitude } else { magnitude }, scale))
}
