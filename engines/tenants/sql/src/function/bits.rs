//! Functions and operators of strings of bits.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};

use super::{Resolved, wrong_arguments};

/// A function of strings of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitsFunction {
    And,
    Count,
    Get,
    Length,
    Not,
    OctetLength,
    Or,
    Overlay,
    Position,
    Set,
    ShiftLeft,
    ShiftRight,
    Substring,
    Xor,
}

/// The function of strings of bits of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<BitsFunction>> {
    use BitsFunction as F;
    use Type::{Int4, Int8, Unknown};
    if !arguments.iter().any(|of| of.is_bits()) {
        return None;
    }
    let bit = Type::Bit(None);
    let bits = |of: &Type| of.is_bits() || *of == Unknown;
    let number = |of: &Type| of.is_integer() || *of == Unknown;
    Some(match (name, arguments) {
        ("length" | "bit_length", [_]) => (F::Length, vec![bit], Int4),
        ("octet_length", [_]) => (F::OctetLength, vec![bit], Int4),
        ("bit_count", [_]) => (F::Count, vec![bit], Int8),
        ("~", [_]) => (F::Not, vec![bit], bit),
        ("&" | "|" | "#", [a, b]) if bits(a) && bits(b) => {
            let function = match name {
                "&" => F::And,
                "|" => F::Or,
                _ => F::Xor,
            };
            (function, vec![bit; 2], bit)
        }
        ("<<" | ">>", [of, by]) if of.is_bits() && number(by) => {
            (if name == "<<" { F::ShiftLeft } else { F::ShiftRight }, vec![bit, Int4], bit)
        }
        ("substring", [of, numbers @ ..]) if of.is_bits() && (1..=2).contains(&numbers.len()) => {
            let wanted = [bit, Int4, Int4][..arguments.len()].to_vec();
            numbers.iter().all(number).then_some((F::Substring, wanted, bit))?
        }
        ("overlay", [a, b, numbers @ ..]) if bits(a) && bits(b) && (1..=2).contains(&numbers.len()) => {
            let wanted = [bit, bit, Int4, Int4][..arguments.len()].to_vec();
            numbers.iter().all(number).then_some((F::Overlay, wanted, bit))?
        }
        ("position", [a, b]) if bits(a) && bits(b) => (F::Position, vec![bit; 2], Int4),
        ("get_bit", [of, at]) if of.is_bits() && number(at) => (F::Get, vec![bit, Int4], Int4),
        ("set_bit", [of, at, value]) if of.is_bits() && number(at) && number(value) => {
            (F::Set, vec![bit, Int4, Int4], bit)
        }
        _ => return None,
    })
}

impl BitsFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        Ok(match (self, arguments) {
            (Self::Length, [Value::Text(bits)]) => Value::Int(bits.len() as i64),
            (Self::OctetLength, [Value::Text(bits)]) => Value::Int(bits.len().div_ceil(8) as i64),
            (Self::Count, [Value::Text(bits)]) => Value::Int(bits.bytes().filter(|bit| *bit == b'1').count() as i64),
            (Self::Not, [Value::Text(bits)]) => {
                Value::Text(bits.chars().map(|bit| if bit == '1' { '0' } else { '1' }).collect())
            }
            (Self::And | Self::Or | Self::Xor, [Value::Text(a), Value::Text(b)]) => self.both(a, b)?,
            (Self::ShiftLeft | Self::ShiftRight, [Value::Text(bits), Value::Int(by)]) => {
                let left = (self == Self::ShiftLeft) == (*by >= 0);
                Value::Text(shifted(bits, left, by.unsigned_abs()))
            }
            (Self::Substring, [Value::Text(bits), Value::Int(from), rest @ ..]) => {
                let count = if let [Value::Int(count)] = rest { Some(*count) } else { None };
                Value::Text(part(bits, *from, count)?.to_owned())
            }
            (Self::Overlay, [Value::Text(bits), Value::Text(by), Value::Int(from), rest @ ..]) => {
                let count = if let [Value::Int(count)] = rest { *count } else { by.len() as i64 };
                if *from <= 0 {
                    return Err(negative());
                }
                let behind = from.checked_add(count).filter(|at| i32::try_from(*at).is_ok()).ok_or_else(too_far)?;
                Value::Text([part(bits, 1, Some(from - 1))?, by, part(bits, behind, None)?].concat())
            }
            (Self::Position, [Value::Text(whole), Value::Text(part)]) => {
                Value::Int(if whole.is_empty() { 0 } else { whole.find(part.as_str()).map_or(0, |at| at as i64 + 1) })
            }
            (Self::Get, [Value::Text(bits), Value::Int(at)]) => {
                Value::Int(i64::from(bits.as_bytes()[place(bits, *at)?] == b'1'))
            }
            (Self::Set, [Value::Text(bits), Value::Int(at), Value::Int(value)]) => {
                let at = place(bits, *at)?;
                let bit = match value {
                    0 => "0",
                    1 => "1",
                    _ => return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")),
                };
                Value::Text([&bits[..at], bit, &bits[at + 1..]].concat())
            }
            _ => return Err(wrong_arguments(self)),
        })
    }

    fn both(self, a: &str, b: &str) -> Result<Value> {
        let name = match self {
            Self::And => "AND",
            Self::Or => "OR",
            _ => "XOR",
        };
        if a.len() != b.len() {
            return Err(SqlError::new("22026", format!("cannot {name} bit strings of different sizes")));
        }
        let bit = |(a, b): (u8, u8)| {
            let bit = match self {
                Self::And => a & b,
                Self::Or => a | b,
                _ => b'0' | (a ^ b),
            };
            char::from(bit)
        };
        Ok(Value::Text(a.bytes().zip(b.bytes()).map(bit).collect()))
    }
}

/// Bits so many places further, with zeros instead.
fn shifted(bits: &str, left: bool, by: u64) -> String {
    let by = usize::try_from(by).unwrap_or(usize::MAX).min(bits.len());
    let zeros = "0".repeat(by);
    if left { bits[by..].to_owned() + &zeros } else { zeros + &bits[..bits.len() - by] }
}

/// The bits from a place, which counts from 1, so many or all.
fn part(bits: &str, from: i64, count: Option<i64>) -> Result<&str> {
    let end = match count {
        Some(count) if count < 0 => return Err(negative()),
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let at = |place: i64| usize::try_from(place.saturating_sub(1)).unwrap_or(0).min(bits.len());
    Ok(bits.get(at(from)..at(end)).unwrap_or_default())
}

fn negative() -> SqlError {
    SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed")
}

fn too_far() -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range")
}

/// The place of a bit; the first is 0.
fn place(bits: &str, at: i64) -> Result<usize> {
    usize::try_from(at).ok().filter(|at| *at < bits.len()).ok_or_else(|| {
        let message = format!("bit index {at} out of valid range (0..{})", bits.len() as i64 - 1);
        SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn bits_are_combined_and_moved() {
        use BitsFunction as F;
        for (function, expected) in [(F::And, "0001"), (F::Or, "0111"), (F::Xor, "0110")] {
            assert_eq!(function.call(&[&text("0011"), &text("0101")]), Ok(text(expected)));
            assert_eq!(function.call(&[&text("0"), &text("01")]).unwrap_err().state, "22026");
        }
        for (function, by, expected) in [
            (F::ShiftLeft, 1, "0110"),
            (F::ShiftLeft, -1, "0001"),
            (F::ShiftRight, 2, "0000"),
            (F::ShiftRight, i64::MIN, "0000"),
        ] {
            assert_eq!(function.call(&[&text("0011"), &Value::Int(by)]), Ok(text(expected)));
        }
    }

    #[test]
    fn parts_never_reach_behind_the_bits() {
        use BitsFunction as F;
        let cut = |from, count| F::Substring.call(&[&text("10110"), &Value::Int(from), &Value::Int(count)]);
        assert_eq!((cut(2, 3), cut(-1, 3), cut(9, 1)), (Ok(text("011")), Ok(text("1")), Ok(text(""))));
        assert_eq!(cut(i64::MIN, i64::MAX), Ok(text("")));
        assert_eq!(cut(1, -1).unwrap_err().state, state::SUBSTRING_ERROR);
        let whole = text("10110");
        assert_eq!(F::Overlay.call(&[&whole, &text("000"), &Value::Int(2)]), Ok(text("10000")));
        assert_eq!(F::Overlay.call(&[&whole, &text("1"), &Value::Int(0)]).unwrap_err().state, state::SUBSTRING_ERROR);
        assert_eq!(F::Set.call(&[&whole, &Value::Int(0), &Value::Int(0)]), Ok(text("00110")));
        for at in [-1, 5, i64::MAX] {
            assert_eq!(F::Get.call(&[&whole, &Value::Int(at)]).unwrap_err().state, state::ARRAY_SUBSCRIPT_ERROR);
        }
    }
}
