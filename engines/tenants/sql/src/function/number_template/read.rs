//! Numbers that texts have by a template.

use bigdecimal::Zero;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, cast, numeric},
};

use super::{Piece, Template};

/// The number that a text has by a template.
pub(super) fn read(text: &str, template: &Template) -> Result<Value> {
    let wrong = || {
        let message =
            format!("invalid input syntax for type numeric: \"{}\"", if text.is_empty() { " " } else { text });
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    };
    let (mut digits, mut negative, mut behind) = (String::new(), false, None);
    let mut rest = text.trim_start().chars().peekable();
    for piece in &template.pieces {
        let sign = rest.next_if(|character| matches!(character, '-' | '+' | '<'));
        negative |= matches!(sign, Some('-' | '<'));
        match piece {
            Piece::Nine | Piece::Zero => {
                if rest.peek() == Some(&'.') && behind.is_none() && !template.point {
                    break;
                }
                if let Some(digit) = rest.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                    if let Some(behind) = &mut behind {
                        *behind += 1;
                    }
                } else if rest.peek() == Some(&' ') {
                    rest.next();
                }
            }
            Piece::Point if rest.next_if_eq(&'.').is_some() => behind = Some(0_usize),
            Piece::Comma => {
                rest.next_if_eq(&',');
            }
            Piece::Text(text) => {
                for _ in text.chars() {
                    rest.next_if(|next| !next.is_ascii_digit());
                }
            }
            _ => {}
        }
    }
    negative |= rest.next_if(|character| matches!(character, '-')).is_some();
    if digits.is_empty() {
        return Err(wrong());
    }
    let behind = behind.unwrap_or(0);
    let number = format!(
        "{}{}.{}",
        if negative { "-" } else { "" },
        &digits[..digits.len() - behind],
        &digits[digits.len() - behind..]
    );
    let number = numeric::parse(number.trim_end_matches('.'))?;
    let number = if number.is_zero() { number.abs() } else { number };
    cast::fit(Value::Numeric(number), Type::Numeric(None), false)
}
