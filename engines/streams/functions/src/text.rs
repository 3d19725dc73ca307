//! Functions over text.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use memchr::memchr_iter;

use super::definition::{Call, Definition, bigint, parts, text};

const TEXT: DataType = DataType::Utf8View;
const BIGINT: DataType = DataType::Int64;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Definition::exact("split_index", &[&[TEXT, TEXT, BIGINT]], text, split_index),
        Definition::exact("substr", &[&[TEXT, BIGINT], &[TEXT, BIGINT, BIGINT]], text, substr),
        Definition::exact("substring", &[&[TEXT, BIGINT], &[TEXT, BIGINT, BIGINT]], text, substr),
        Definition::exact("locate", &[&[TEXT, TEXT], &[TEXT, TEXT, BIGINT]], bigint, locate),
        Definition::exact("count_char", &[&[TEXT, TEXT]], bigint, count_char),
    ]
}

/// `SPLIT_INDEX(text, delimiter, index)`: the part at an index, from 0; NULL outside.
fn split_index(call: &Call) -> Result<ArrayRef> {
    let (texts, delimiters, indexes) = (call.texts(0)?, call.texts(1)?, call.integers(2)?);
    parts(&texts, call.rows(), |row, text| {
        let index = indexes.get(row).and_then(|index| usize::try_from(index).ok());
        Ok(index.zip(delimiters.get(row)).and_then(|(index, delimiter)| split_at_nth(text, delimiter, index)))
    })
}

fn split_at_nth<'t>(text: &'t str, delimiter: &str, index: usize) -> Option<&'t str> {
    match delimiter.as_bytes() {
        [] => None,
        // One byte is found many times faster than a text of one byte.
        [byte] => {
            let mut places = memchr_iter(*byte, text.as_bytes());
            let start = if index == 0 { 0 } else { places.nth(index - 1)? + 1 };
            Some(&text[start..places.next().unwrap_or(text.len())])
        }
        _ => text.split(delimiter).nth(index),
    }
}

/// `SUBSTR(text, from [, length])`: characters from a place on; the first is 1, negative places count from the end.
fn substr(call: &Call) -> Result<ArrayRef> {
    let (texts, places) = (call.texts(0)?, call.integers(1)?);
    let lengths = if call.arguments() == 3 { Some(call.integers(2)?) } else { None };
    parts(&texts, call.rows(), |row, text| {
        let length = lengths.as_ref().map_or(Some(i64::MAX), |lengths| lengths.get(row));
        Ok(places.get(row).zip(length).and_then(|(place, length)| characters(text, place, length)))
    })
}

fn characters(text: &str, place: i64, length: i64) -> Option<&str> {
    let length = usize::try_from(length).ok()?;
    let start = match usize::try_from(place) {
        Ok(place) => place.saturating_sub(1),
        Err(_) => match text.chars().count().checked_add_signed(place as isize) {
            Some(start) => start,
            None => return Some(&text[..0]),
        },
    };
    let byte = |text: &str, characters: usize| match text.char_indices().nth(characters) {
        Some((byte, _)) => byte,
        None => text.len(),
    };
    let rest = &text[byte(text, start)..];
    Some(&rest[..byte(rest, length)])
}

/// `LOCATE(part, text [, from])`: the place of a part in a text at or after a place, in characters from 1; 0 if it is not there.
fn locate(call: &Call) -> Result<ArrayRef> {
    let (parts, texts) = (call.texts(0)?, call.texts(1)?);
    let starts = if call.arguments() == 3 { Some(call.integers(2)?) } else { None };
    let place = |row: usize| {
        let (part, text) = (parts.get(row)?, texts.get(row)?);
        let start = match &starts {
            None => 1,
            Some(starts) => starts.get(row)?,
        };
        let Ok(before @ 0..) = usize::try_from(start.saturating_sub(1)) else { return Some(0) };
        let Some((byte, _)) = text.char_indices().nth(before) else {
            return Some(i64::from(part.is_empty() && before == 0));
        };
        Some(text[byte..].find(part).map_or(0, |at| text[..byte + at].chars().count() as i64 + 1))
    };
    Ok(numbers(call.rows(), place))
}

/// `COUNT_CHAR(text, character)`: how often a character occurs.
fn count_char(call: &Call) -> Result<ArrayRef> {
    let (texts, characters) = (call.texts(0)?, call.texts(1)?);
    let count = |row: usize| {
        let (text, character) = (texts.get(row)?, characters.get(row)?.chars().next());
        Some(match character {
            None => 0,
            Some(ascii) if ascii.is_ascii() => text.bytes().filter(|byte| *byte == ascii as u8).count() as i64,
            Some(character) => text.matches(character).count() as i64,
        })
    };
    Ok(numbers(call.rows(), count))
}

/// A column of a number per row.
fn numbers(rows: usize, value: impl Fn(usize) -> Option<i64>) -> ArrayRef {
    let mut out = Int64Builder::with_capacity(rows);
    (0..rows).for_each(|row| out.append_option(value(row)));
    Arc::new(out.finish())
}
