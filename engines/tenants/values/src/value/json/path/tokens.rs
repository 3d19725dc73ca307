//! Words, signs and literals of a path.

use crate::error::{Result, SqlError, state};

/// A word, sign or literal of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name, or a word with a meaning.
    Name(String),
    String(String),
    Variable(String),
    /// The text of a number.
    Number(String),
    Sign(&'static str),
}

/// Longer ones first.
const SIGNS: [&str; 27] = [
    "**", "&&", "||", "==", "!=", "<>", "<=", ">=", "$", "@", "(", ")", "[", "]", "{", "}", ".", ",", "?", "*", "+",
    "-", "/", "%", "<", ">", "!",
];

const BLANKS: [char; 5] = [' ', '\t', '\n', '\r', '\u{c}'];

/// What ends a name, beside blanks.
const SPECIAL: &str = "?%$.[]{}()|&!=<>@#,*:-+/\\\"";

/// Those of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(BLANKS);
        if let Some(comment) = rest.strip_prefix("/*") {
            rest =
                comment.split_once("*/").ok_or_else(|| syntax("unexpected end of comment at end of jsonpath input"))?.1;
            continue;
        }
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if first == '"' {
            tokens.push(Token::String(string(&mut rest)?));
        } else if first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit()) {
            tokens.push(Token::Number(number(&mut rest)?));
        } else if let Some(mut name) = rest.strip_prefix('$').filter(|rest| rest.starts_with('"') || begins_name(rest))
        {
            let quoted = name.starts_with('"');
            tokens.push(Token::Variable(if quoted { string(&mut name)? } else { word(&mut name)? }));
            rest = name;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else if begins_name(rest) {
            tokens.push(Token::Name(word(&mut rest)?));
        } else {
            return Err(wrong_at(&first.to_string()));
        }
    }
}

fn begins_name(rest: &str) -> bool {
    rest.starts_with(|first: char| first == '\\' || !SPECIAL.contains(first) && !BLANKS.contains(&first))
}

/// A number in front of something.
fn number(rest: &mut &str) -> Result<String> {
    let bytes = rest.as_bytes();
    let digits =
        |from: usize| bytes.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut at = whole;
    let junk = |end: usize| {
        let shown: String = rest.chars().take(end + 1).collect();
        syntax(format!("trailing junk after numeric literal at or near \"{shown}\" of jsonpath input"))
    };
    if whole > 1 && bytes[0] == b'0' {
        return Err(junk(1));
    }
    // Two points are none of a number.
    if bytes.get(at) == Some(&b'.') {
        at += 1 + digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        match digits(at + 1 + sign) {
            0 => return Err(junk(at)),
            exponent => at += 1 + sign + exponent,
        }
    }
    if begins_name(&rest[at..]) {
        return Err(junk(at));
    }
    let (number, behind) = rest.split_at(at);
    *rest = behind;
    Ok(number.to_owned())
}

/// A name in front of something.
fn word(rest: &mut &str) -> Result<String> {
    let mut name = String::new();
    while begins_name(rest) {
        name.push(character(rest)?);
    }
    Ok(name)
}

/// A string between quotes in front of something.
fn string(rest: &mut &str) -> Result<String> {
    let mut inner = &rest[1..];
    let mut text = String::new();
    loop {
        match inner.chars().next() {
            None => return Err(syntax("unterminated quoted string at end of jsonpath input")),
            Some('"') => break,
            Some(_) => text.push(character(&mut inner)?),
        }
    }
    *rest = &inner[1..];
    Ok(text)
}

/// A character, which may be written with a backslash, in front of something.
fn character(rest: &mut &str) -> Result<char> {
    let mut characters = rest.chars();
    let first = characters.next().ok_or_else(|| wrong_at(""))?;
    let value = match first {
        '\\' => match characters.next() {
            None => return Err(syntax("unexpected end after backslash at end of jsonpath input")),
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('x') => {
                let code = hex(&mut characters, 2)?;
                nonzero(code)?
            }
            Some('u') => unicode(&mut characters)?,
            Some(other) => other,
        },
        other => other,
    };
    *rest = characters.as_str();
    Ok(value)
}

fn hex(characters: &mut std::str::Chars<'_>, count: usize) -> Result<u32> {
    let mut code = 0;
    for _ in 0..count {
        let digit = characters.next().and_then(|digit| digit.to_digit(16));
        code = code << 4 | digit.ok_or_else(|| syntax("invalid Unicode escape sequence of jsonpath input"))?;
    }
    Ok(code)
}

/// What stands behind `\u`: four digits, or up to six in braces, perhaps with a second half.
fn unicode(characters: &mut std::str::Chars<'_>) -> Result<char> {
    let first = match characters.as_str().strip_prefix('{') {
        None => hex(characters, 4)?,
        Some(braced) => {
            let digits = braced.find('}').filter(|digits| (1..=6).contains(digits));
            let digits = digits.ok_or_else(|| syntax("invalid Unicode escape sequence of jsonpath input"))?;
            characters.next();
            let code = hex(characters, digits)?;
            characters.next();
            code
        }
    };
    let wrong = |what: &str| {
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type jsonpath")
            .detail(format!("Unicode {what}."))
    };
    match first {
        0xd800..0xdc00 => {
            let missing = || wrong("low surrogate must follow a high surrogate");
            let behind = characters.as_str().strip_prefix("\\u").ok_or_else(missing)?;
            *characters = behind.chars();
            match hex(characters, 4)? {
                second @ 0xdc00..0xe000 => nonzero(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)),
                _ => Err(missing()),
            }
        }
        0xdc00..0xe000 => Err(wrong("low surrogate must follow a high surrogate")),
        code => nonzero(code),
    }
}

fn nonzero(code: u32) -> Result<char> {
    let wrong =
        || SqlError::new("22P05", "unsupported Unicode escape sequence").detail("\\u0000 cannot be converted to text.");
    char::from_u32(code).filter(|character| *character != '\0').ok_or_else(wrong)
}

pub(super) fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, message)
}

pub(super) fn wrong_at(at: &str) -> SqlError {
    match at {
        "" => syntax("syntax error at end of jsonpath input"),
        at => syntax(format!("syntax error at or near \"{at}\" of jsonpath input")),
    }
}
