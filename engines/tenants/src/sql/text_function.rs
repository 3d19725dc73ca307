//! Functions of texts.

use crate::{
    error::{Result, SqlError, state},
    value::Value,
};

/// Bytes that a function makes at most.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The character with a number.
pub(crate) fn chr(code: i64) -> Result<Value> {
    match u32::try_from(code).ok().and_then(char::from_u32) {
        Some('\0') => Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "null character not permitted")),
        Some(character) => Ok(Value::Text(character.to_string())),
        None => {
            let message = format!("requested character too large for encoding: {code}");
            Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message))
        }
    }
}

/// The first character of each word in upper case, the others in lower.
pub(crate) fn initcap(text: &str) -> String {
    let mut within = false;
    let mut capped = String::with_capacity(text.len());
    for character in text.chars() {
        match within {
            true => capped.extend(character.to_lowercase()),
            false => capped.extend(character.to_uppercase()),
        }
        within = character.is_alphanumeric();
    }
    capped
}

/// A text of so many characters: filled up, or cut.
pub(crate) fn pad(text: &str, length: i64, fill: &str, before: bool) -> Result<String> {
    let length = usize::try_from(length.max(0)).unwrap_or(usize::MAX);
    if length > TEXT_BYTES_MAX {
        return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested length too large"));
    }
    let kept: String = text.chars().take(length).collect();
    let missing = length - kept.chars().count();
    let filling: String = fill.chars().cycle().take(missing).collect();
    Ok(if before { filling + &kept } else { kept + &filling })
}

/// A part of a text between delimiters, counted from 1, or from the end if negative.
pub(crate) fn split_part<'t>(text: &'t str, by: &str, place: i64) -> Result<&'t str> {
    if place == 0 {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    if by.is_empty() {
        return Ok(if place == 1 || place == -1 { text } else { "" });
    }
    let at = usize::try_from(place.unsigned_abs() - 1).unwrap_or(usize::MAX);
    // From the end delimiters are still those that are found from the beginning.
    let part =
        if place > 0 { text.split(by).nth(at) } else { text.split(by).collect::<Vec<_>>().into_iter().rev().nth(at) };
    Ok(part.unwrap_or(""))
}

/// A text with each character of `from` replaced by that at the same place of `to`, or left out if there is none.
pub(crate) fn translate(text: &str, from: &str, to: &str) -> String {
    let replaced = |character: char| match from.chars().position(|other| other == character) {
        Some(at) => to.chars().nth(at),
        None => Some(character),
    };
    text.chars().filter_map(replaced).collect()
}

/// A pattern of LIKE with another escape character, or none, as one with a backslash.
pub(crate) fn like_escape(pattern: &str, escape: &str) -> Result<String> {
    let mut characters = escape.chars();
    let (escape, None) = (characters.next(), characters.next()) else {
        return Err(SqlError::new(state::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .hint("Escape string must be empty or one character."));
    };
    let mut written = String::with_capacity(pattern.len());
    let mut escaped = false;
    for character in pattern.chars() {
        if Some(character) == escape && !escaped {
            written.push('\\');
            escaped = true;
            continue;
        }
        if character == '\\' && !escaped {
            written.push('\\');
        }
        written.push(character);
        escaped = false;
    }
    Ok(written)
}
