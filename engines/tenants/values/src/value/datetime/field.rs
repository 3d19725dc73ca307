//! The fields that texts of dates, times and intervals consist of, as PostgreSQL parts them.

/// A field of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    /// Digits, with a point perhaps.
    Number(&'a str),
    /// Digits with colons, and a point perhaps.
    Time(&'a str),
    /// Numbers or words with `-`, `/` or points between: a date, or the name of a time zone.
    Date(&'a str),
    Word(&'a str),
    /// A number or a time with a sign in front.
    Signed(char, &'a str),
}

/// The fields of a text; `None` if it has something that is in none.
pub(super) fn fields(text: &str) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (field, length) = match first {
            '0'..='9' => number(rest),
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                let length = 1 + span(&rest[1..], |c| c.is_ascii_digit());
                (Field::Number(&rest[..length]), length)
            }
            'A'..='Z' | 'a'..='z' => word(rest),
            '+' | '-' => {
                let content = rest[1..].trim_start();
                let length = span(content, |c| c.is_ascii_digit() || matches!(c, ':' | '.' | '-'));
                if length == 0 {
                    return None;
                }
                (Field::Signed(first, &content[..length]), rest.len() - content.len() + length)
            }
            ' ' | '\t'..='\r' | '!'..='~' => {
                rest = &rest[1..];
                continue;
            }
            _ => return None,
        };
        fields.push(field);
        rest = &rest[length..];
    }
    Some(fields)
}

/// Bytes of a text's beginning that are all of one kind.
pub(super) fn span(text: &str, kind: impl Fn(char) -> bool) -> usize {
    text.find(|c| !kind(c)).unwrap_or(text.len())
}

/// What begins with a digit.
fn number(text: &str) -> (Field<'_>, usize) {
    let digits = span(text, |c| c.is_ascii_digit());
    match text[digits..].chars().next() {
        Some(':') => {
            let length = digits + span(&text[digits..], |c| c.is_ascii_digit() || matches!(c, ':' | '.'));
            (Field::Time(&text[..length]), length)
        }
        Some(between @ ('-' | '/' | '.')) => {
            let behind = digits + 1;
            let second = span(&text[behind..], |c| c.is_ascii_digit());
            if second == 0 && between != '.' {
                // A month that is a word.
                let length = behind + span(&text[behind..], |c| c.is_ascii_alphanumeric() || c == between);
                return (Field::Date(&text[..length]), length);
            }
            let end = behind + second;
            if text[end..].starts_with(between) {
                let length = end + span(&text[end..], |c| c.is_ascii_digit() || c == between);
                return (Field::Date(&text[..length]), length);
            }
            let field = if between == '.' { Field::Number(&text[..end]) } else { Field::Date(&text[..end]) };
            (field, end)
        }
        _ => (Field::Number(&text[..digits]), digits),
    }
}

/// What begins with a letter.
fn word(text: &str) -> (Field<'_>, usize) {
    let letters = span(text, |c| c.is_ascii_alphabetic());
    let joined = match text[letters..].chars().next() {
        Some('-' | '/' | '_' | '.') => true,
        Some('+' | '0'..='9') => !super::reading::is_known(&text[..letters]),
        _ => false,
    };
    if !joined {
        return (Field::Word(&text[..letters]), letters);
    }
    let within = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '/' | '_' | '.' | ':');
    let length = span(text, within);
    (Field::Date(&text[..length]), length)
}
