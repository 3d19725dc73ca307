//! Texts as SQL writes them: characters by their numbers, and names.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{
        Value,
        size::{Elements, Text},
    },
};

/// `unistr`: `\0064`, `\+000064`, `\u0064` and `\U00000064` are characters, `\\` a backslash.
pub(super) fn unescaped(text: &str) -> Result<String> {
    let (mut out, mut rest) = (Text::default(), text);
    // The first half of a pair that is one character.
    let mut half = None;
    let pair = || SqlError::new(state::SYNTAX_ERROR, "invalid Unicode surrogate pair");
    while let Some(first) = rest.chars().next() {
        let escaped = rest.strip_prefix('\\');
        let plain = match escaped {
            None => Some(first),
            Some(behind) if behind.starts_with('\\') => Some('\\'),
            Some(_) => None,
        };
        if let Some(character) = plain {
            if half.is_some() {
                return Err(pair());
            }
            out.push(character)?;
            rest = &rest[if escaped.is_some() { 2 } else { character.len_utf8() }..];
            continue;
        }
        let (code, length) = number(&rest[1..])?;
        rest = &rest[1 + length..];
        let code = match (half.take(), code) {
            (None, 0xD800..=0xDBFF) => {
                half = Some(code);
                continue;
            }
            (None, 0xDC00..=0xDFFF) => return Err(pair()),
            (Some(high), 0xDC00..=0xDFFF) => 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00),
            (Some(_), _) => return Err(pair()),
            (None, code) => code,
        };
        let character = char::from_u32(code).filter(|character| *character != '\0');
        out.push(character.ok_or_else(|| {
            SqlError::new(state::INVALID_PARAMETER_VALUE, format!("invalid Unicode code point: {code:04X}"))
        })?)?;
    }
    if half.is_some() { Err(pair()) } else { Ok(out.finish()) }
}

/// The number behind a backslash, and how many bytes it takes with what says its kind.
fn number(behind: &str) -> Result<(u32, usize)> {
    let (skipped, digits) = match behind.as_bytes().first() {
        Some(b'+') => (1, 6),
        Some(b'u') => (1, 4),
        Some(b'U') => (1, 8),
        _ => (0, 4),
    };
    let written =
        behind.get(skipped..skipped + digits).filter(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let wrong = || {
        SqlError::new(state::SYNTAX_ERROR, "invalid Unicode escape")
            .hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
    };
    let code = written.and_then(|part| u32::from_str_radix(part, 16).ok()).ok_or_else(wrong)?;
    Ok((code, skipped + digits))
}

/// `parse_ident`: the names of a qualified name. What stands behind it is wrong if that is `strict`.
pub(super) fn names(text: &str, strict: bool) -> Result<Vec<Value>> {
    let wrong = |detail: String| {
        let message = format!("string is not a valid identifier: \"{text}\"");
        let error = SqlError::new(state::INVALID_PARAMETER_VALUE, message);
        if detail.is_empty() { error } else { error.detail(detail) }
    };
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let (mut names, mut rest) = (Vec::new(), text.trim_start_matches(blank));
    loop {
        let name;
        (name, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = closing(quoted).ok_or_else(|| wrong("String has unclosed double quotes.".to_owned()))?;
                if end == 0 {
                    return Err(wrong("Quoted identifier must not be empty.".to_owned()));
                }
                (quoted[..end].replace("\"\"", "\""), &quoted[end + 1..])
            }
            None => {
                let is_part = |c: char| c == '_' || c == '$' || c.is_ascii_alphanumeric() || !c.is_ascii();
                let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
                if end == 0 || rest.starts_with(|c: char| c == '$' || c.is_ascii_digit()) {
                    return Err(wrong(match (rest.starts_with('.'), names.is_empty()) {
                        (true, _) => "No valid identifier before \".\".".to_owned(),
                        (false, false) => "No valid identifier after \".\".".to_owned(),
                        (false, true) => String::new(),
                    }));
                }
                (rest[..end].to_ascii_lowercase(), &rest[end..])
            }
        };
        names.push(Value::Text(name));
        rest = rest.trim_start_matches(blank);
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind.trim_start_matches(blank),
            None if strict && !rest.is_empty() => return Err(wrong(String::new())),
            None => return Elements::collect(names),
        }
    }
}

/// Where the quote stands that ends a name; two are one within it.
fn closing(quoted: &str) -> Option<usize> {
    let mut quotes = quoted.match_indices('"').map(|(at, _)| at).peekable();
    while let Some(at) = quotes.next() {
        if quotes.next_if_eq(&(at + 1)).is_none() {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_written_by_their_numbers() {
        assert_eq!(unescaped("\\0064at\\+0000610 \\\\ \\uD83D\\uDE00é").unwrap(), "data0 \\ \u{1F600}é");
        for wrong in ["\\xyz", "\\", "\\u12", "\\é123", "\\d83d", "\\d83dx", "\\d83d\\\\", "\\de00", "\\d83d\\0061"] {
            assert_eq!(unescaped(wrong).unwrap_err().state, state::SYNTAX_ERROR, "{wrong}");
        }
        for wrong in ["\\U00110000", "\\0000"] {
            assert_eq!(unescaped(wrong).unwrap_err().state, state::INVALID_PARAMETER_VALUE, "{wrong}");
        }
    }

    #[test]
    fn a_qualified_name_is_its_names() {
        let shown = |name: &Value| if let Value::Text(name) = name { name.clone() } else { String::new() };
        let read = |text, strict| names(text, strict).map(|names| names.iter().map(shown).collect::<Vec<String>>());
        let expected =
            |names: &[&str]| Ok::<Vec<String>, SqlError>(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(read(" A . \"b\"\"C\" .é$1 ", true), expected(&["a", "b\"C", "é$1"]));
        assert_eq!(read("a[]", false), expected(&["a"]));
        for wrong in ["", "a[]", ".a", "a.", "1", "a.1", "\"\"", "\"a", "a b", "$a"] {
            assert_eq!(read(wrong, true).unwrap_err().state, state::INVALID_PARAMETER_VALUE, "{wrong}");
        }
    }
}
