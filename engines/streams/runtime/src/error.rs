//! Foreign errors in the engine's words.

use std::fmt::Display;

use datafusion::common::DataFusionError;
use savanna_streams_api::StreamError;
use savanna_streams_model::foreign::{about_a_value, in_sql, ours};

/// An expression or operator could not compute a value.
pub(crate) fn computing(place: &str, cause: &dyn Display) -> StreamError {
    StreamError::Data {
        place: in_sql(&with_intervals(with_fields(without_checks(without_numbers(place))))),
        message: about_a_value(&cause.to_string()),
    }
}

/// As [`computing`], with an error of ours as it is.
pub(crate) fn evaluating(place: &str, cause: &DataFusionError) -> StreamError {
    ours(cause).unwrap_or_else(|| computing(place, cause))
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

/// An expression as the user wrote it: planning puts `one_nan(..)` and `in_digits(..)` around arithmetic, and writes
/// `cast(a, NULL)` for some casts.
fn without_checks(expression: String) -> String {
    let mut text = expression;
    for (call, becomes) in [("one_nan(", None), ("in_digits(", None), ("cast(", Some("CAST("))] {
        while let Some(at) = text.rfind(call) {
            let inside = &text[at + call.len()..];
            let (mut depth, mut argument) = (1, None);
            let end = inside.char_indices().find(|(at, c)| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                if depth == 1 && *c == ',' {
                    argument.get_or_insert(*at);
                }
                depth == 0
            });
            let Some((end, _)) = end else { break };
            let (rest, argument) = (&inside[end + 1..], &inside[..argument.unwrap_or(end)]);
            text = match becomes {
                Some(becomes) => format!("{}{becomes}{argument}){rest}", &text[..at]),
                None => format!("{}{argument}{rest}", &text[..at]),
            };
        }
    }
    text
}

/// An interval, as which the plan writes its months, days and nanoseconds.
fn with_intervals(expression: String) -> String {
    const INTERVAL: &str = "IntervalMonthDayNano {";
    let mut text = expression;
    while let Some(at) = text.find(INTERVAL) {
        let Some(end) = text[at..].find('}').map(|end| at + end) else { break };
        text.replace_range(at..=end, "INTERVAL ..");
    }
    text
}

/// A field of a `ROW` as the user wrote it: the plan writes `get_field(r, a)`.
fn with_fields(expression: String) -> String {
    let mut text = expression;
    while let Some(at) = text.rfind("get_field(") {
        let inside = at + "get_field(".len();
        let Some(end) = text[inside..].find(')').map(|end| inside + end) else { break };
        let field = text[inside..end].replacen(", ", ".", 1);
        text.replace_range(at..=end, &field);
    }
    text
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
        let error = computing("expression one_nan(CAST(s@0 AS Float64)) > one_nan((a@1 + 1) / 2)", &"Cast error: no");
        assert_eq!(error.to_string(), "expression CAST(s AS DOUBLE) > (a + 1) / 2: no");
        let error = computing("expression cast(in_digits(f(a@1, b) + 1), {x:,y:}) + 2", &"Cast error: no");
        assert_eq!(error.to_string(), "expression CAST(f(a, b) + 1) + 2: no");
        let interval = "expression at@1 + IntervalMonthDayNano { months: 0, days: 1, nanoseconds: 0 }";
        assert_eq!(computing(interval, &"no").to_string(), "expression at + INTERVAL ..: no");
        let error = computing("expression CAST(get_field(get_field(r@1, a), b) AS Int64)", &"Cast error: no");
        assert_eq!(error.to_string(), "expression CAST(r.a.b AS BIGINT): no");
    }
}
