//! Constants that no row can make right: told when a query is planned.

use savanna_streams_model::foreign::in_sql;

use super::pattern::Pattern;
use super::{json, regexp};

/// What is wrong with a constant text as the argument of a function at a place, from 0; none if nothing is known to be.
pub fn wrong_text(function: &str, place: usize, text: &str) -> Option<String> {
    let function = function.to_ascii_uppercase();
    let checked = match (function.as_str(), place) {
        (
            "REGEXP" | "REGEXP_EXTRACT" | "REGEXP_REPLACE" | "REGEXP_LIKE" | "REGEXP_MATCH" | "REGEXP_COUNT"
            | "REGEXP_INSTR",
            1,
        ) => regexp::compiled(text, &function).map(drop),
        ("DATE_FORMAT" | "TO_TIMESTAMP" | "TO_DATE" | "UNIX_TIMESTAMP" | "FROM_UNIXTIME", 1) => {
            Pattern::parse(text, &function).map(drop)
        }
        ("JSON_VALUE" | "JSON_EXISTS", 1) => json::steps(text, &function).map(drop),
        _ => Ok(()),
    };
    checked.err().map(|error| in_sql(&error.strip_backtrace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_checked_without_rows() {
        for (function, text, message) in [
            ("regexp_extract", "(a", "REGEXP_EXTRACT: '(a' is not a valid regular expression: unclosed group"),
            ("DATE_FORMAT", "yyyy-bb", "DATE_FORMAT: the pattern yyyy-bb has the letter b"),
            ("JSON_VALUE", "a.b", "JSON_VALUE: expected a path"),
        ] {
            let wrong = wrong_text(function, 1, text).unwrap_or_default();
            assert!(wrong.starts_with(message), "{wrong}");
            assert_eq!(wrong_text(function, 0, text), None);
        }
        assert_eq!(wrong_text("REGEXP", 1, "(a)"), None);
    }
}
