//! `format`, and names and literals with quotes.

use savanna_tenants_catalog::name::quoted;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{Value, size::Text},
};

use super::text::text_of;

/// A name as SQL has to write it.
pub(super) fn quoted_name(name: &str) -> String {
    let reserved = sqlparser::keywords::ALL_KEYWORDS.binary_search(&name.to_ascii_uppercase().as_str()).is_ok();
    match quoted(name) {
        plain if plain == name && reserved => format!("\"{name}\""),
        quoted => quoted,
    }
}

pub(super) fn quoted_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''").replace('\\', "\\\\");
    if text.contains('\\') { format!("E'{doubled}'") } else { format!("'{doubled}'") }
}

/// `%s`, `%I`, `%L`, with a place, a width, and `-` for the left.
pub(super) fn formatted(format: &str, arguments: &[&Value]) -> Result<String> {
    let wrong = |message: &str| SqlError::new(state::INVALID_PARAMETER_VALUE, message.to_owned());
    let few = || wrong("too few arguments for format()");
    let (mut out, mut next) = (Text::default(), 0);
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character)?;
            continue;
        }
        if characters.next_if_eq(&'%').is_some() {
            out.push('%')?;
            continue;
        }
        let number = |characters: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut digits = String::new();
            while let Some(digit) = characters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            digits.parse::<usize>().ok()
        };
        let mut width = number(&mut characters);
        let mut place = None;
        if width.is_some() && characters.next_if_eq(&'$').is_some() {
            (place, width) = (width, None);
        }
        let left = characters.next_if_eq(&'-').is_some();
        while characters.next_if_eq(&'-').is_some() {}
        width = width.or_else(|| number(&mut characters));
        if characters.next_if_eq(&'*').is_some() {
            return Err(SqlError::unsupported("a width of format() that is an argument"));
        }
        let kind = characters.next().ok_or_else(|| wrong("unterminated format() type specifier"))?;
        let at = match place {
            Some(0) => return Err(wrong("format specifies argument 0, but arguments are numbered from 1")),
            Some(place) => place - 1,
            None => next,
        };
        next = at + 1;
        let argument = arguments.get(at).and_then(|argument| text_of(argument));
        if at >= arguments.len() {
            return Err(few());
        }
        let text = match (kind, argument) {
            ('s', text) => text.unwrap_or_default().to_owned(),
            ('I', Some(text)) => quoted_name(text),
            ('I', None) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
            }
            ('L', text) => text.map_or_else(|| "NULL".to_owned(), quoted_literal),
            (other, _) => return Err(wrong(&format!("unrecognized format() type specifier \"{other}\""))),
        };
        let blanks = width.unwrap_or(0).saturating_sub(text.chars().count());
        if left {
            out.push_str(&text)?;
        }
        out.push_repeated(' ', blanks)?;
        if !left {
            out.push_str(&text)?;
        }
    }
    Ok(out.finish())
}
