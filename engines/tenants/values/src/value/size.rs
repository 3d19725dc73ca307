//! How large values may be. Whoever makes one that may be much larger than what it is made of asks before it takes the memory.

use super::Value;
use crate::error::{Result, SqlError, state};

/// Bytes of a text or a `bytea` that an expression makes at most.
const FIELD_BYTES_MAX: usize = 64 << 20;
/// Bytes of memory that an array or a `jsonb` takes at most.
const STRUCTURE_BYTES_MAX: usize = 256 << 20;

/// Refuses a text or bytes that would be longer than a value may be.
///
/// # Errors
/// 54000.
pub fn check(bytes: usize) -> Result<()> {
    if bytes <= FIELD_BYTES_MAX {
        return Ok(());
    }
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
        .detail(format!("A value has at most {} MiB.", FIELD_BYTES_MAX >> 20)))
}

/// Refuses an array or a `jsonb` that would take more memory than one may.
///
/// # Errors
/// 54000.
pub fn check_structure(bytes: usize) -> Result<()> {
    if bytes <= STRUCTURE_BYTES_MAX {
        return Ok(());
    }
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
        .detail(format!("An array or a JSON value takes at most {} MiB of memory.", STRUCTURE_BYTES_MAX >> 20)))
}

/// Refuses the text of an array or of a row that is longer than one that is written.
///
/// # Errors
/// 54000.
pub fn check_written(bytes: usize) -> Result<()> {
    check_structure(bytes)
}

/// What stands for a text that would be too long: [`check_written`] refuses it, and so it reaches nobody.
pub(crate) fn overlong(part: String) -> String {
    if check_written(part.len()).is_err() { part } else { " ".repeat(STRUCTURE_BYTES_MAX + 1) }
}

/// Refuses a value that is larger than one may be, or nested more deeply.
///
/// # Errors
/// 54000, 54001.
pub fn checked(value: Value) -> Result<Value> {
    match &value {
        Value::Text(text) => check(text.len())?,
        Value::Bytes(bytes) => check(bytes.len())?,
        Value::Array(_) | Value::Record(_) => check_structure(value.bytes())?,
        Value::Json(json) => {
            check_structure(value.bytes())?;
            json.check_depth()?;
        }
        _ => {}
    }
    Ok(value)
}

/// A text on the way, which does not grow longer than a value may be.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Appends something.
    ///
    /// # Errors
    /// 54000.
    pub fn push_str(&mut self, part: &str) -> Result<()> {
        check(self.0.len() + part.len())?;
        self.0.push_str(part);
        Ok(())
    }

    /// Appends something so many times.
    ///
    /// # Errors
    /// 54000.
    pub fn push_repeated(&mut self, part: char, count: usize) -> Result<()> {
        check(self.0.len().saturating_add(part.len_utf8().saturating_mul(count)))?;
        self.0.extend(std::iter::repeat_n(part, count));
        Ok(())
    }

    /// Appends a character.
    ///
    /// # Errors
    /// 54000.
    pub fn push(&mut self, character: char) -> Result<()> {
        self.push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Parts put together with something in between.
///
/// # Errors
/// 54000.
pub fn joined<P: AsRef<str>>(parts: impl Iterator<Item = Result<P>>, between: &str) -> Result<String> {
    let mut whole = Text::default();
    for (at, part) in parts.enumerate() {
        if at > 0 {
            whole.push_str(between)?;
        }
        whole.push_str(part?.as_ref())?;
    }
    Ok(whole.finish())
}

/// Elements of an array on the way, which do not take more memory than one may.
#[derive(Debug, Default)]
pub struct Elements {
    elements: Vec<Value>,
    bytes: usize,
}

impl Elements {
    /// Appends an element.
    ///
    /// # Errors
    /// 54000.
    pub(crate) fn push(&mut self, element: Value) -> Result<()> {
        self.bytes += element.bytes();
        check_structure(self.bytes)?;
        self.elements.push(element);
        Ok(())
    }

    /// All of these.
    ///
    /// # Errors
    /// 54000.
    pub fn collect(elements: impl IntoIterator<Item = Value>) -> Result<Vec<Value>> {
        let mut all = Self::default();
        elements.into_iter().try_for_each(|element| all.push(element))?;
        Ok(all.finish())
    }

    pub(crate) fn finish(self) -> Vec<Value> {
        self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_too_large_is_refused_before_it_is_made() {
        let part = "a".repeat(FIELD_BYTES_MAX / 2);
        let mut text = Text::default();
        text.push_str(&part).unwrap();
        assert_eq!(text.push_repeated(' ', usize::MAX).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
        text.push_str(&part).unwrap();
        assert_eq!(text.push('a').unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!(text.finish().len(), FIELD_BYTES_MAX);
        let endless = std::iter::repeat(Value::Int(1));
        assert_eq!(Elements::collect(endless).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
    }

    /// What could be stored and not be read again is not made.
    #[test]
    fn what_is_nested_as_deeply_as_can_be_read_is_made_and_no_deeper() {
        use std::sync::Arc;

        use crate::value::json::Json;

        let nested = |levels| {
            let value = (0..levels).fold(Json::Null, |inner, level| match level % 2 {
                0 => Json::Array(vec![Json::Null, inner]),
                _ => Json::object(vec![("key".to_owned(), inner)]),
            });
            Value::Json(Arc::new(value))
        };
        let Ok(Value::Json(deepest)) = checked(nested(1_000)) else { panic!("it can be read") };
        assert_eq!(Json::parse_again(&deepest.text()).as_ref(), Ok(&*deepest));
        assert_eq!(checked(nested(1_001)).unwrap_err().state, "54001");
    }
}
