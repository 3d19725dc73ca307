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
    let text = str::from_utf8(text).ok()?;
    text.parse().ok().filter(|number: &f64| !number.is_nan())
}

/// A number of a request.
///
/// # Errors
/// [`CommandError::NotFloat`].
pub fn parse_float(text: &[u8]) -> Result<f64, CommandError> {
    float(text).ok_or(CommandError::NotFloat)
}

/// The shortest digits that give the number back, as in `ZSCORE`: `3`, `3.5`, `1e+20`, `inf`.
#[must_use]
pub fn shortest(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    if number == number.trunc() && number.abs() < 1e17 {
        // A zero keeps its sign.
        return if number == 0.0 && number.is_sign_negative() { "-0".to_owned() } else { format!("{number:.0}") };
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-5..17).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The digits of `INCRBYFLOAT`: never an exponent, 17 digits behind the point, no zeros at the end.
#[must_use]
pub fn plain(number: f64) -> String {
    let shortest = format!("{number}"); // Rust never writes an exponent here, and rounds to what gives the number back.
    if shortest == "-0" { "0".to_owned() } else { shortest }
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
        let mut digits = Self { bytes: [0; 20], start: 20 };
        let mut rest = number.unsigned_abs();
        loop {
            digits.start -= 1;
            digits.bytes[digits.start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            digits.start -= 1;
            digits.bytes[digits.start] = b'-';
        }
        digits
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
        for (number, text) in
            [(3.0, "3"), (3.5, "3.5"), (-1.25, "-1.25"), (1e20, "1e+20"), (1.5e-9, "1.5e-09"), (f64::INFINITY, "inf")]
        {
            assert_eq!(shortest(number), text);
        }
        assert_eq!(plain(10.6), "10.6");
        assert_eq!(plain(5e3), "5000");
        assert_eq!(float(b"nan"), None);
        assert_eq!(float(b"1e3"), Some(1000.0));
    }
}
