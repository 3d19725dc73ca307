//! `LIKE`.

use savanna_tenants_values::error::{Result, SqlError, state};

/// Whether a text matches a pattern of `LIKE`: `%` is any characters, `_` one, `\` takes the next as it is.
pub(crate) fn like(text: &str, pattern: &str, any_case: bool) -> Result<bool> {
    if any_case {
        return like(&text.to_lowercase(), &pattern.to_lowercase(), false);
    }
    #[derive(PartialEq)]
    enum Part {
        Any,
        One,
        This(char),
        /// An escape character with nothing behind it.
        Dangling,
    }
    let mut parts = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        parts.push(match character {
            '%' => Part::Any,
            '_' => Part::One,
            '\\' => characters.next().map_or(Part::Dangling, Part::This),
            other => Part::This(other),
        });
    }
    let text: Vec<char> = text.chars().collect();
    // Back to the last `%` whenever the rest does not match: it takes one character more.
    let (mut at, mut part) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                back = Some((at, part + 1));
                part += 1;
            }
            Some(Part::One) => (at, part) = (at + 1, part + 1),
            Some(Part::Dangling) => {
                let message = "LIKE pattern must not end with escape character";
                return Err(SqlError::new(state::INVALID_ESCAPE_SEQUENCE, message));
            }
            Some(Part::This(character)) if *character == text[at] => (at, part) = (at + 1, part + 1),
            _ => match back {
                Some((from, next)) => {
                    back = Some((from + 1, next));
                    (at, part) = (from + 1, next);
                }
                None => return Ok(false),
            },
        }
    }
    Ok(parts[part..].iter().all(|part| *part == Part::Any))
}

/// A pattern of LIKE with another escape character, or none, as one with a backslash.
pub(super) fn like_escape(pattern: &str, escape: &str) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_matches_as_postgresql_does() {
        for (text, pattern, matches) in [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "a_c", true),
            ("abc", "_", false),
            ("", "%", true),
            ("", "_", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("aaab", "%a%ab", true),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "%isx%", false),
        ] {
            assert_eq!(like(text, pattern, false), Ok(matches), "{text} LIKE {pattern}");
        }
        assert_eq!(like("ABC", "a%", true), Ok(true));
        assert!(like("a", "\\", false).is_err());
    }
}
