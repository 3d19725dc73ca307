//! Texts of JSON: from a text to a value, and the parts of a text where they are.

use super::{Json, written_bytes};
use crate::{
    error::{Result, SqlError, state},
    value::{numeric, size},
};

/// How deep arrays and objects may stand in each other.
pub(super) const DEPTH_MAX: usize = 1_000;
/// Checks a text of `json`, which stays as it is.
pub fn check(text: &str) -> Result<()> {
    let mut reader = Reader::new(text, "json");
    reader.skip(0)?;
    reader.end()
}

/// What of a `json` text is wanted.
pub enum Step<'a> {
    /// The value of a key of an object.
    Key(&'a str),
    /// The element of an array with this number, from 0; from the end if it is negative.
    Element(i64),
}

/// The part of a `json` text that a step leads to, as it is written.
pub fn part<'a>(text: &'a str, step: &Step<'_>) -> Result<Option<&'a str>> {
    let mut found = None;
    let mut elements = Vec::new();
    let mut reader = Reader::new(text, "json");
    reader.space();
    match (reader.rest.bytes().next(), step) {
        (Some(b'{'), Step::Key(wanted)) => reader.object(0, &mut |reader, key| {
            let value = reader.span(1)?;
            if key == *wanted {
                found = Some(value);
            }
            Ok(())
        })?,
        (Some(b'['), Step::Element(_)) => reader.array(0, &mut |reader| {
            elements.push(reader.span(1)?);
            Ok(())
        })?,
        _ => return Ok(None),
    }
    if let Step::Element(place) = step {
        found = index(*place, elements.len()).map(|at| elements[at]);
    }
    Ok(found)
}

/// The place of an element, counted from the end if it is negative.
pub(super) fn index(place: i64, length: usize) -> Option<usize> {
    let at = if place < 0 { place + length as i64 } else { place };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// A member's key, and a value as it is written.
pub(crate) type Part<'a> = (Option<String>, &'a str);

/// The members of a `json` text of an object with their keys, or the elements of one of an array, as they are written; `None` if it is
/// something else.
pub fn parts(text: &str, object: bool) -> Result<Option<Vec<Part<'_>>>> {
    let mut reader = Reader::new(text, "json");
    reader.space();
    let mut parts = Vec::new();
    match (reader.rest.bytes().next(), object) {
        (Some(b'{'), true) => reader.object(0, &mut |reader, key| {
            parts.push((Some(key), reader.span(1)?));
            Ok(())
        })?,
        (Some(b'['), false) => reader.array(0, &mut |reader| {
            parts.push((None, reader.span(1)?));
            Ok(())
        })?,
        _ => return Ok(None),
    }
    Ok(Some(parts))
}

/// How many elements a `json` text of an array has; `None` if it is none.
pub fn array_length(text: &str) -> Result<Option<i64>> {
    let mut reader = Reader::new(text, "json");
    reader.space();
    if !reader.rest.starts_with('[') {
        return Ok(None);
    }
    let mut length = 0;
    reader.array(0, &mut |reader| {
        length += 1;
        reader.skip(1)
    })?;
    Ok(Some(length))
}

/// A text that is being read from its start.
pub(super) struct Reader<'a> {
    rest: &'a str,
    of: &'static str,
    /// What the values take that were read, unless it does not matter.
    bytes: Option<usize>,
}

pub(super) fn too_deep(of: &str) -> SqlError {
    SqlError::new("54001", format!("a value of {of} is nested more than {DEPTH_MAX} deep"))
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, of: &'static str) -> Self {
        Self { rest: text, of, bytes: Some(0) }
    }

    /// Of a text that was read once before.
    pub(super) fn again(text: &'a str) -> Self {
        Self { rest: text, of: "jsonb", bytes: None }
    }

    /// Something takes so many bytes.
    fn takes(&mut self, bytes: usize) -> Result<()> {
        let Some(all) = &mut self.bytes else { return Ok(()) };
        *all += bytes;
        size::check_structure(*all)
    }

    fn wrong(&self, expected: &str) -> SqlError {
        let message = "invalid input syntax for type json".to_owned();
        let came = match self.rest.chars().next() {
            Some(character) => format!("\"{character}\""),
            None => "the end of the input".to_owned(),
        };
        let detail = format!("Expected {expected} of {}, but found {came}.", self.of);
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message).detail(detail)
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, prefix: &str) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    fn expected(&mut self, prefix: &str) -> Result<()> {
        self.space();
        if self.take(prefix) { Ok(()) } else { Err(self.wrong(&format!("\"{prefix}\""))) }
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.space();
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("the end")) }
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        if depth < DEPTH_MAX {
            return Ok(depth + 1);
        }
        Err(too_deep(self.of))
    }

    pub(super) fn value(&mut self, depth: usize) -> Result<Json> {
        let value = self.any_value(depth)?;
        self.takes(match &value {
            Json::Array(_) | Json::Object(_) => size_of::<Json>(),
            scalar => scalar.bytes(),
        })?;
        Ok(value)
    }

    fn any_value(&mut self, depth: usize) -> Result<Json> {
        self.space();
        match self.rest.bytes().next() {
            Some(b'{') => {
                let mut pairs = Vec::new();
                self.object(depth, &mut |reader, key| {
                    reader.takes(size_of::<String>() + written_bytes(&key))?;
                    pairs.push((key, reader.value(depth + 1)?));
                    Ok(())
                })?;
                Ok(Json::object(pairs))
            }
            Some(b'[') => {
                let mut elements = Vec::new();
                self.array(depth, &mut |reader| {
                    elements.push(reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Json::Array(elements))
            }
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => Ok(Json::Number(numeric::parse(self.number()?)?)),
            _ => self.word(),
        }
    }

    /// Goes over a value without keeping it.
    fn skip(&mut self, depth: usize) -> Result<()> {
        self.space();
        match self.rest.bytes().next() {
            Some(b'{') => self.object(depth, &mut |reader, _| reader.skip(depth + 1)),
            Some(b'[') => self.array(depth, &mut |reader| reader.skip(depth + 1)),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            _ => self.word().map(|_| ()),
        }
    }

    /// The text of the next value, without blanks around.
    fn span(&mut self, depth: usize) -> Result<&'a str> {
        self.space();
        let start = self.rest;
        self.skip(depth)?;
        Ok(&start[..start.len() - self.rest.len()])
    }

    /// An object, each of whose values is read by `value` after its key.
    fn object(&mut self, depth: usize, value: &mut dyn FnMut(&mut Self, String) -> Result<()>) -> Result<()> {
        self.deeper(depth)?;
        self.expected("{")?;
        self.space();
        if self.take("}") {
            return Ok(());
        }
        loop {
            self.space();
            if !self.rest.starts_with('"') {
                return Err(self.wrong("a string as key"));
            }
            let key = self.string()?;
            self.expected(":")?;
            value(self, key)?;
            self.space();
            if self.take("}") {
                return Ok(());
            }
            self.expected(",")?;
        }
    }

    fn array(&mut self, depth: usize, element: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.deeper(depth)?;
        self.expected("[")?;
        self.space();
        if self.take("]") {
            return Ok(());
        }
        loop {
            element(self)?;
            self.space();
            if self.take("]") {
                return Ok(());
            }
            self.expected(",")?;
        }
    }

    fn word(&mut self) -> Result<Json> {
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
            if self.rest.starts_with(word) {
                let after = self.rest[word.len()..].chars().next();
                if after.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    break;
                }
                self.rest = &self.rest[word.len()..];
                return Ok(value);
            }
        }
        Err(self.wrong("a value"))
    }

    /// The text of a number.
    fn number(&mut self) -> Result<&'a str> {
        let bytes = self.rest.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut at = usize::from(bytes[0] == b'-');
        let whole = digits(at);
        if whole == 0 || (whole > 1 && bytes[at] == b'0') {
            return Err(self.wrong("a number"));
        }
        at += whole;
        if bytes.get(at) == Some(&b'.') {
            let fraction = digits(at + 1);
            if fraction == 0 {
                return Err(self.wrong("a number"));
            }
            at += 1 + fraction;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let exponent = digits((at + 1 + sign).min(bytes.len()));
            if exponent == 0 {
                return Err(self.wrong("a number"));
            }
            at += 1 + sign + exponent;
        }
        if self.rest[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            return Err(self.wrong("a number"));
        }
        let (number, rest) = self.rest.split_at(at);
        self.rest = rest;
        Ok(number)
    }

    fn string(&mut self) -> Result<String> {
        self.expected("\"")?;
        let mut text = String::new();
        loop {
            let mut characters = self.rest.chars();
            match characters.next() {
                None => return Err(self.wrong("the rest of a string")),
                Some('"') => {
                    self.rest = characters.as_str();
                    return Ok(text);
                }
                Some('\\') => {
                    self.rest = characters.as_str();
                    text.push(self.escape()?);
                }
                Some(control) if (control as u32) < 0x20 => return Err(self.wrong("an escaped control character")),
                Some(other) => {
                    self.rest = characters.as_str();
                    text.push(other);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let mut characters = self.rest.chars();
        let escaped = match characters.next() {
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                self.rest = characters.as_str();
                return self.unicode();
            }
            _ => return Err(self.wrong("an escape sequence")),
        };
        self.rest = characters.as_str();
        Ok(escaped)
    }

    fn unicode(&mut self) -> Result<char> {
        let first = self.hex()?;
        if first == 0 && self.of == "jsonb" {
            let error = SqlError::new("22P05", "unsupported Unicode escape sequence");
            return Err(error.detail("\\u0000 cannot be converted to text."));
        }
        let code = match first {
            0xd800..=0xdbff => {
                if !self.take("\\u") {
                    return Err(self.wrong("the second half of a surrogate pair"));
                }
                let second = self.hex()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(self.wrong("the second half of a surrogate pair"));
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| self.wrong("the first half of a surrogate pair"))
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(digits) = digits else { return Err(self.wrong("four hexadecimal digits")) };
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).map_err(|_| self.wrong("four hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "01",
            "1.",
            "+1",
            "nul",
            "truex",
            "\"\\x\"",
            "\"\n\"",
            "1 2",
            "\"\\ud800\"",
            "'a'",
            "[1 2]",
            "\"\\u0000\"",
            "-",
            "1e",
            "\"open",
        ] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert_eq!(Json::parse(&"[".repeat(100_000)).unwrap_err().state, "54001");
        assert_eq!(check(&"[".repeat(100_000)).unwrap_err().state, "54001");
        assert!(check("\"\\u0000\"").is_ok(), "a text of json may have it");
    }

    #[test]
    fn parts_of_a_text_are_found_where_they_are() {
        let text = " { \"a\" : [ 1 , { \"b\":2 } ] , \"a\":\"x\" }";
        assert_eq!(part(text, &Step::Key("a")), Ok(Some("\"x\"")));
        assert_eq!(part("[ 1 , { \"b\":2 } ]", &Step::Element(-1)), Ok(Some("{ \"b\":2 }")));
        assert_eq!(part("[1]", &Step::Key("a")), Ok(None));
        assert_eq!((array_length("[1, [2, 3]]"), array_length("{}")), (Ok(Some(2)), Ok(None)));
    }
}
