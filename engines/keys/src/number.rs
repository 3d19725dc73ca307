//! Numbers in requests and replies, read and written as Redis does.

use crate::error::CommandError;

/// A whole number in its only spelling: no sign `+`, no leading zeros, no blanks.
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 || digits[0] == b'0' && text.len() > 1 {
        return None;
    }
    let mut number: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit); // 19 digits fit
    }
    if negative { 0_i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
}

/// A whole number of a request.
///
/// # Errors
/// [`CommandError::NotInteger`].
pub fn parse_integer(text: &[u8]) -> Result<i64, CommandError> {
    integer(text).ok_or(CommandError::NotInteger)
}

/// A number with a fraction; `inf` is one, `nan` and blanks are not.
#[must_use]
pub fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    // What has digits and is too large is no number.
    let is_one = number.is_finite() || number.is_infinite() && !text.iter().any(u8::is_ascii_digit);
    is_one.then_some(number)
}

/// A number of a request.
///
/// # Errors
/// [`CommandError::NotFloat`].
pub fn parse_float(text: &[u8]) -> Result<f64, CommandError> {
    float(text).ok_or(CommandError::NotFloat)
}

/// How long a request waits: seconds with a fraction, as milliseconds rounded up; 0 for ever.
///
/// # Errors
/// If it is no number, negative, or longer than time goes.
pub fn parse_timeout(text: &[u8]) -> Result<u64, CommandError> {
    let seconds = float(text).ok_or(CommandError::text("ERR timeout is not a float or out of range"))?;
    let millis = (seconds * 1000.0).ceil();
    if millis > i64::MAX as f64 / 2.0 {
        return Err(CommandError::text("ERR timeout is out of range"));
    }
    if millis < 0.0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    Ok(millis as u64)
}

/// The digits that give any number back, as in `ZSCORE`: `3`, `3.5`, `0.10000000000000001`, `1e+20`, `inf`.
#[must_use]
pub fn exact(number: f64) -> String {
    if number == number.trunc() && number.abs() < 1e17 {
        // A zero keeps its sign.
        return if number == 0.0 && number.is_sign_negative() { "-0".to_owned() } else { format!("{number:.0}") };
    }
    general(number, 17)
}

/// The digits of `INCRBYFLOAT`: never an exponent, 17 digits behind the point, no zeros at the end.
#[must_use]
pub fn plain(number: f64) -> String {
    let shortest = format!("{number}"); // Rust never writes an exponent here, and rounds to what gives the number back.
    if shortest == "-0" { "0".to_owned() } else { shortest }
}

/// 17 digits behind the point, without zeros at the end.
#[must_use]
pub fn fixed(number: f64) -> String {
    let digits = format!("{number:.17}");
    let short = digits.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// A number in the digits of C's `%.{precision}g`.
#[must_use]
pub fn general(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "nan" } else { if number > 0.0 { "inf" } else { "-inf" } }.to_owned();
    }
    let scientific = format!("{number:.*e}", precision - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if (-4..precision as i32).contains(&exponent) {
        return without_zeros(&format!("{number:.*}", (precision as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

/// Writes the digits of a whole number at the end of `bytes`, and says where they begin.
pub fn write_digits(bytes: &mut [u8; 20], number: i64) -> usize {
    let mut start = bytes.len();
    let mut rest = number.unsigned_abs();
    loop {
        start -= 1;
        bytes[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        bytes[start] = b'-';
    }
    start
}

/// Digits of a whole number, without an allocation.
pub struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    /// The digits of `number`.
    #[must_use]
    pub fn of(number: i64) -> Self {
        let mut bytes = [0; 20];
        let start = write_digits(&mut bytes, number);
        Self { bytes, start }
    }

    /// As bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_c() {
        for (number, precision, expected) in [
            (3.0, 14, "3"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e20, 17, "1e+20"),
            (1e15, 14, "1e+15"),
            (-0.00001, 14, "-1e-05"),
            (100.0, 14, "100"),
            (0.0, 14, "0"),
            (123456789012345678.0, 17, "1.2345678901234568e+17"),
        ] {
            assert_eq!(general(number, precision), expected);
        }
    }

    #[test]
    fn a_whole_number_has_one_spelling() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "-9223372036854775809", "x"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fractions_are_written_as_redis_does() {
        for (number, text) in [
            (3.0, "3"),
            (3.5, "3.5"),
            (-1.25, "-1.25"),
            (0.1, "0.10000000000000001"),
            (1e20, "1e+20"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(exact(number), text);
        }
        assert_eq!(plain(10.6), "10.6");
        assert_eq!(plain(5e3), "5000");
        assert_eq!(float(b"nan"), None);
        assert_eq!((float(b"1e3"), float(b"1e400"), float(b"-inf")), (Some(1000.0), None, Some(f64::NEG_INFINITY)));
    }
}
