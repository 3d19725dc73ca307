//! Numbers of any length, as an index sees them.

use crate::KeyError;

/// Decimal digits before or behind the point that a key can hold; PostgreSQL's `numeric` has 131,072 and 16,383.
const DIGITS_MAX: usize = 1 << 20;

/// A value of the type `numeric`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numeric {
    /// Not a number; larger than every other and equal to itself.
    NaN,
    /// Larger than every number.
    Infinity,
    /// Smaller than every number.
    NegativeInfinity,
    /// The digits (0 to 9, most significant first), divided by 10 to the power of `scale`.
    Finite {
        /// Whether it is below zero.
        negative: bool,
        /// Its digits.
        digits: Vec<u8>,
        /// How many of them are behind the point; below 0, zeros follow them.
        scale: i32,
    },
}

/// 0.d1d2d3.. * 100^exponent in base 100, without zeros at either end; zero has no digits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hundreds {
    pub(crate) exponent: i32,
    pub(crate) digits: Vec<u8>,
}

impl Hundreds {
    pub(crate) fn of(digits: &[u8], scale: i32) -> Result<Self, KeyError> {
        let leading = digits.iter().take_while(|digit| **digit == 0).count();
        let trailing = digits[leading..].iter().rev().take_while(|digit| **digit == 0).count();
        let significant = &digits[leading..digits.len() - trailing];
        if significant.is_empty() {
            return Ok(Self { exponent: 0, digits: Vec::new() });
        }
        // Of 0.s1s2s3.. * 10^point.
        let point = (digits.len() - leading) as i64 - i64::from(scale);
        let longest = (point.unsigned_abs() as usize).max(significant.len());
        if longest > DIGITS_MAX {
            return Err(KeyError::TooManyDigits { max: DIGITS_MAX, came: longest });
        }
        // Digits are paired from the point on: with an odd number before it, the first pair begins with a zero.
        let odd = usize::from(point.rem_euclid(2) == 1);
        let mut pairs = vec![0; (odd + significant.len()).div_ceil(2)];
        for (place, digit) in significant.iter().enumerate() {
            let place = odd + place;
            pairs[place / 2] += if place % 2 == 0 { 10 * digit } else { *digit };
        }
        Ok(Self { exponent: (point + odd as i64).div_euclid(2) as i32, digits: pairs })
    }

    /// The shortest form of the same value.
    pub(crate) fn into_finite(self, negative: bool) -> Numeric {
        let mut digits: Vec<u8> = self.digits.iter().flat_map(|pair| [pair / 10, pair % 10]).collect();
        let mut scale = digits.len() as i32 - 2 * self.exponent;
        if digits.last() == Some(&0) {
            digits.pop();
            scale -= 1;
        }
        if digits.first() == Some(&0) {
            digits.remove(0);
        }
        Numeric::Finite { negative: negative && !digits.is_empty(), digits, scale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hundreds(digits: &[u8], scale: i32) -> (i32, Vec<u8>) {
        let hundreds = Hundreds::of(digits, scale).expect("short enough");
        (hundreds.exponent, hundreds.digits)
    }

    #[test]
    fn equal_values_have_one_form() {
        assert_eq!(hundreds(&[1, 2, 3], 0), (2, vec![1, 23]));
        assert_eq!(hundreds(&[0, 1, 2, 3, 0], 1), (2, vec![1, 23]));
        assert_eq!(hundreds(&[1, 2, 3], 2), (1, vec![1, 23]));
        assert_eq!(hundreds(&[1, 2, 3], 1), (1, vec![12, 30]));
        assert_eq!(hundreds(&[5], 3), (-1, vec![50]));
        assert_eq!(hundreds(&[5], -3), (2, vec![50]));
        assert_eq!(hundreds(&[0, 0], 5), (0, vec![]));
    }

    #[test]
    fn a_number_that_is_too_long_is_refused() {
        assert!(matches!(Hundreds::of(&[1], i32::MAX), Err(KeyError::TooManyDigits { .. })));
        assert!(Hundreds::of(&[1], i32::MIN).is_err());
        assert!(Hundreds::of(&[0], i32::MIN).is_ok());
    }
}
