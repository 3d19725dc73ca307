//! What Arrow and DataFusion say about a value or a type, in the words of SQL.

use std::str::FromStr;

use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;

use crate::{StreamError, type_name};

/// How these libraries name the kind of an error, before they say what is wrong.
const PREFIXES: [&str; 12] = [
    "Arithmetic overflow: ",
    "Arrow error: ",
    "Cast error: ",
    "Compute error: ",
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Internal error: ",
    "Invalid argument error: ",
    "Not yet implemented: ",
    "Parser error: ",
    "This feature is not implemented: ",
];

/// The error of ours that a library carried through, if there is one.
pub fn ours(error: &DataFusionError) -> Option<StreamError> {
    match error.find_root() {
        DataFusionError::External(carried) => carried.downcast_ref::<StreamError>().cloned(),
        _ => None,
    }
}

/// A message without the names of the libraries' errors, and with types by their names in SQL.
pub fn in_sql(message: &str) -> String {
    let mut message = message.trim();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest;
    }
    with_sql_types(message)
}

/// What is wrong with a value, and what to do where it is known.
pub fn about_a_value(message: &str) -> String {
    let message = in_sql(message);
    if message == "Divide by zero error" {
        return "the divisor is 0; leave such rows out, or divide by NULLIF(.., 0)".into();
    }
    if let Some(operation) = message.strip_prefix("Overflow happened on: ") {
        return format!("{operation} has more digits than its type; CAST to a larger one, or to DOUBLE");
    }
    if message.starts_with("Cannot cast ") || message.starts_with("Can't cast ") {
        return format!("{message}; leave such rows out, or TRY_CAST, which gives NULL for them");
    }
    message
}

/// Replaces types outside of quoted texts.
fn with_sql_types(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        if word > 0 {
            let (len, name) = sql_type(rest, word).unwrap_or_else(|| (word, rest[..word].to_owned()));
            out.push_str(&name);
            rest = &rest[len..];
            continue;
        }
        // An apostrophe behind a letter ends no word, so it begins no quoted text.
        let quoted = match first {
            '\'' if !out.ends_with(char::is_alphanumeric) => rest[1..].find('\'').map(|end| end + 2),
            _ => None,
        };
        let len = quoted.unwrap_or_else(|| first.len_utf8());
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// The type that a text begins with, in SQL, and how much of the text it is.
fn sql_type(text: &str, word: usize) -> Option<(usize, String)> {
    if ["Decimal128", "Decimal256"].contains(&&text[..word]) && !text[word..].starts_with('(') {
        return Some((word, "DECIMAL".into()));
    }
    // These are words of English as well.
    if !text.starts_with(|c: char| c.is_ascii_uppercase()) || ["Null", "Binary"].contains(&&text[..word]) {
        return None;
    }
    let whole = if text[word..].starts_with('(') { closing(&text[word..]).map(|end| word + end) } else { Some(word) };
    let parsed = whole.and_then(|len| Some((len, DataType::from_str(&text[..len]).ok()?)));
    parsed.map(|(len, data_type)| (len, type_name(&data_type)))
}

/// Where the parenthesis closes that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_called_as_in_sql() {
        for (foreign, ours) in [
            (
                "Arrow error: Cast error: Cannot cast string 'Int64' to value of Int64 type",
                "Cannot cast string 'Int64' to value of BIGINT type",
            ),
            ("Struct(\"a\": Int32, \"b\": Utf8View) + Int64", "ROW<a INT, b VARCHAR> + BIGINT"),
            (
                "Map(\"entries\": non-null Struct(\"key\": non-null Utf8View, \"value\": Int32), unsorted)",
                "MAP<VARCHAR, INT>",
            ),
            ("List(Timestamp(ms)) or Decimal128(10, 2)", "ARRAY<TIMESTAMP(3)> or DECIMAL(10, 2)"),
            ("it doesn't take Utf8, isn't it", "it doesn't take VARCHAR, isn't it"),
            ("a Decimal128 of precision 3", "a DECIMAL of precision 3"),
            ("Interval(MonthDayNano) and Date32", "INTERVAL and DATE"),
            (
                "Null and Binary are words, Int64_t and Foo(Int8) are none",
                "Null and Binary are words, Int64_t and Foo(TINYINT) are none",
            ),
        ] {
            assert_eq!(in_sql(foreign), ours);
        }
    }

    #[test]
    fn the_kinds_of_errors_are_left_out() {
        assert_eq!(in_sql("Execution error: Error during planning: no"), "no");
        assert_eq!(in_sql(""), "");
        assert_eq!(in_sql("("), "(");
    }
}
