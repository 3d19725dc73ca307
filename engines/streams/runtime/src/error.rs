//! Foreign errors in the engine's words.

use std::fmt::Display;

use savanna_streams_model::StreamError;

/// An expression or operator could not compute a value.
pub(crate) fn computing(place: &str, cause: &dyn Display) -> StreamError {
    StreamError::Data { place: without_numbers(place), message: in_our_words(&cause.to_string()) }
}

/// An expression as the user wrote it: the plan writes the number of a column behind its name, `price@2`.
fn without_numbers(expression: &str) -> String {
    let mut parts = expression.split('@');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == part.len() {
            out.push('@');
        }
        out.push_str(rest);
    }
    out
}

/// The message without the library's prefixes, and what to do where it is known.
fn in_our_words(message: &str) -> String {
    const PREFIXES: [&str; 7] = [
        "Arrow error: ",
        "Execution error: ",
        "Compute error: ",
        "Cast error: ",
        "Parser error: ",
        "Arithmetic overflow: ",
        "External error: ",
    ];
    let mut message = message;
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest;
    }
    match message.trim_end() {
        "Divide by zero error" => "the divisor is 0; leave such rows out, or divide by NULLIF(.., 0)".into(),
        other => other.to_owned(),
    }
}

/// Something that the planner or another part of the engine promised does not hold.
pub(crate) fn broken(what: impl Into<String>) -> StreamError {
    StreamError::Internal(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_computed_is_told_as_it_was_written() {
        let error = computing("expression price@2 / (a@b@1 - 5)", &"Arrow error: Divide by zero error");
        assert_eq!(
            error.to_string(),
            "expression price / (a@b - 5): the divisor is 0; leave such rows out, or divide by NULLIF(.., 0)"
        );
    }
}
