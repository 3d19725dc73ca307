//! JSON: `jsonb` as a value, and what is read of a `json` text where it is.
//!
//! Numbers keep all of their digits, and an object has each key once, shorter keys first, as in PostgreSQL.

use std::cmp::Ordering;

use bigdecimal::BigDecimal;

use crate::{
    error::{Result, SqlError, state},
    value::numeric,
};

/// How deep arrays and objects may stand in each other.
const DEPTH_MAX: usize = 1_000;

/// A value of `jsonb`.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number.
    Number(BigDecimal),
    /// A string.
    String(String),
    /// `[..]`
    Array(Vec<Json>),
    /// `{..}`, in the order of its keys, each once.
    Object(Vec<(String, Json)>),
}

/// How the keys of an object are ordered.
fn compare_keys(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

impl Json {
    /// The value of a text.
    ///
    /// # Errors
    /// 22P02; 54001 if it is nested too deeply.
    pub fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader::new(text, "jsonb");
        let value = reader.value(0)?;
        reader.end()?;
        Ok(value)
    }

    /// An object of pairs in any order. Of several values of a key the last one stays.
    pub(crate) fn object(mut pairs: Vec<(String, Self)>) -> Self {
        // Stable, so that the last of a key is the last of its run.
        pairs.sort_by(|(a, _), (b, _)| compare_keys(a, b));
        let mut unique: Vec<(String, Self)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            match unique.last_mut() {
                Some((last, old)) if *last == key => *old = value,
                _ => unique.push((key, value)),
            }
        }
        Self::Object(unique)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(pairs) = self else { return None };
        let at = pairs.binary_search_by(|(other, _)| compare_keys(other, key)).ok()?;
        Some(&pairs[at].1)
    }

    /// An element of an array, from its end if the place is negative. What is neither array nor object is the only element of one,
    /// as in PostgreSQL.
    pub(crate) fn element(&self, place: i64) -> Option<&Self> {
        match self {
            Self::Array(elements) => elements.get(index(place, elements.len())?),
            Self::Object(_) => None,
            scalar => matches!(place, 0 | -1).then_some(scalar),
        }
    }

    /// What stands at the end of a path.
    pub(crate) fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |value, step| match value {
            Self::Array(_) => value.element(step.trim().parse().ok()?),
            _ => value.get(step),
        })
    }

    /// Appends the text, as `jsonb` is shown.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(&number.to_plain_string()),
            Self::String(text) => write_string(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(pairs) => {
                out.push('{');
                for (at, (key, value)) in pairs.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    write_string(key, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// Appends the text over several lines, as `jsonb_pretty` does.
    pub(crate) fn write_pretty(&self, indent: usize, out: &mut String) {
        let line = |out: &mut String, indent: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
        };
        let (open, close) = match self {
            Self::Array(_) => ('[', ']'),
            Self::Object(_) => ('{', '}'),
            other => return other.write(out),
        };
        out.push(open);
        match self {
            Self::Array(elements) => {
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    line(out, indent + 4);
                    element.write_pretty(indent + 4, out);
                }
            }
            Self::Object(pairs) => {
                for (at, (key, value)) in pairs.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    line(out, indent + 4);
                    write_string(key, out);
                    out.push_str(": ");
                    value.write_pretty(indent + 4, out);
                }
            }
            _ => {}
        }
        line(out, indent);
        out.push(close);
    }

    /// The text.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// The text, without quotes if it is a string; nothing if it is `null`.
    pub(crate) fn bare(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::String(text) => Some(text.clone()),
            other => Some(other.text()),
        }
    }

    /// The name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::String(_) => 1,
            Self::Number(_) => 2,
            Self::Bool(_) => 3,
            Self::Array(_) => 4,
            Self::Object(_) => 5,
        }
    }

    /// PostgreSQL's order: by kind, then by the number of elements, then by the elements.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        // An empty array comes before everything.
        let empty = |value: &Self| matches!(value, Self::Array(elements) if elements.is_empty());
        match (self, other) {
            _ if empty(self) || empty(other) => empty(other).cmp(&empty(self)),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Array(a), Self::Array(b)) => {
                let each = a.iter().zip(b).map(|(a, b)| a.compare(b)).find(|order| order.is_ne());
                a.len().cmp(&b.len()).then_with(|| each.unwrap_or(Ordering::Equal))
            }
            (Self::Object(a), Self::Object(b)) => {
                let pair = |((ak, av), (bk, bv)): (&(String, Self), &(String, Self))| {
                    compare_keys(ak, bk).then_with(|| av.compare(bv))
                };
                let each = a.iter().zip(b).map(pair).find(|order| order.is_ne());
                a.len().cmp(&b.len()).then_with(|| each.unwrap_or(Ordering::Equal))
            }
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    /// Whether everything in `part` is in here, at the same place.
    pub(crate) fn contains(&self, part: &Self) -> bool {
        // An array contains a scalar that is one of its elements.
        match (self, part) {
            (Self::Array(elements), scalar) if !matches!(scalar, Self::Array(_) | Self::Object(_)) => {
                elements.contains(scalar)
            }
            _ => self.contains_at_place(part),
        }
    }

    fn contains_at_place(&self, part: &Self) -> bool {
        match (self, part) {
            (Self::Object(_), Self::Object(pairs)) => {
                pairs.iter().all(|(key, part)| self.get(key).is_some_and(|value| value.contains_at_place(part)))
            }
            (Self::Array(elements), Self::Array(parts)) => {
                parts.iter().all(|part| elements.iter().any(|element| element.contains_at_place(part)))
            }
            (a, b) => a == b,
        }
    }

    /// Whether a text is a key, an element that is a string, or the string itself.
    pub(crate) fn has(&self, text: &str) -> bool {
        let is = |value: &Self| matches!(value, Self::String(string) if string == text);
        match self {
            Self::Array(elements) => elements.iter().any(is),
            Self::Object(_) => self.get(text).is_some(),
            other => is(other),
        }
    }

    /// `||`
    pub(crate) fn concat(self, other: Self) -> Self {
        let listed = |value: Self| if let Self::Array(elements) = value { elements } else { vec![value] };
        match (self, other) {
            (Self::Object(mut a), Self::Object(b)) => {
                a.extend(b);
                Self::object(a)
            }
            (a, b) => {
                let mut all = listed(a);
                all.extend(listed(b));
                Self::Array(all)
            }
        }
    }

    /// Without a key, or without the strings that are it.
    pub(crate) fn without(self, key: &str) -> Result<Self> {
        Ok(match self {
            Self::Object(mut pairs) => {
                pairs.retain(|(other, _)| other != key);
                Self::Object(pairs)
            }
            Self::Array(mut elements) => {
                elements.retain(|element| !matches!(element, Self::String(text) if text == key));
                Self::Array(elements)
            }
            _ => return Err(wrong_kind("cannot delete from scalar")),
        })
    }

    /// Without an element of an array.
    pub(crate) fn without_element(self, place: i64) -> Result<Self> {
        match self {
            Self::Array(mut elements) => {
                if let Some(at) = index(place, elements.len()) {
                    elements.remove(at);
                }
                Ok(Self::Array(elements))
            }
            Self::Object(_) => Err(wrong_kind("cannot delete from object using integer index")),
            _ => Err(wrong_kind("cannot delete from scalar")),
        }
    }

    /// Without what stands at the end of a path.
    pub(crate) fn without_path(mut self, path: &[String]) -> Result<Self> {
        let Some((last, before)) = path.split_last() else { return Ok(self) };
        if !matches!(self, Self::Array(_) | Self::Object(_)) {
            return Err(wrong_kind("cannot delete path in scalar"));
        }
        if let Some(parent) = self.at_mut(before)? {
            match parent {
                Self::Object(pairs) => pairs.retain(|(key, _)| key != last),
                Self::Array(elements) => {
                    if let Some(at) = index(place(last, path.len())?, elements.len()) {
                        elements.remove(at);
                    }
                }
                _ => {}
            }
        }
        Ok(self)
    }

    /// With a value at the end of a path. Only the last step may be new, and only if `create`.
    pub(crate) fn with(mut self, path: &[String], value: Self, create: bool) -> Result<Self> {
        let Some((last, before)) = path.split_last() else { return Ok(self) };
        if !matches!(self, Self::Array(_) | Self::Object(_)) {
            return Err(wrong_kind("cannot set path in scalar"));
        }
        if let Some(parent) = self.at_mut(before)? {
            match parent {
                Self::Object(pairs) => match pairs.binary_search_by(|(key, _)| compare_keys(key, last)) {
                    Ok(at) => pairs[at].1 = value,
                    Err(at) if create => pairs.insert(at, (last.clone(), value)),
                    Err(_) => {}
                },
                Self::Array(elements) => {
                    let place = place(last, path.len())?;
                    match index(place, elements.len()) {
                        Some(at) => elements[at] = value,
                        None if create && place < 0 => elements.insert(0, value),
                        None if create => elements.push(value),
                        None => {}
                    }
                }
                _ => {}
            }
        }
        Ok(self)
    }

    fn at_mut(&mut self, path: &[String]) -> Result<Option<&mut Self>> {
        let mut value = self;
        for (at, step) in path.iter().enumerate() {
            let next = match value {
                Self::Object(pairs) => {
                    let found = pairs.binary_search_by(|(key, _)| compare_keys(key, step));
                    found.ok().map(|at| &mut pairs[at].1)
                }
                Self::Array(elements) => {
                    let found = index(place(step, at + 1)?, elements.len());
                    found.map(|at| &mut elements[at])
                }
                _ => None,
            };
            match next {
                Some(next) => value = next,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }

    /// Without the keys whose value is `null`, at every depth.
    pub(crate) fn stripped(self) -> Self {
        match self {
            Self::Object(pairs) => {
                let kept = pairs.into_iter().filter(|(_, value)| *value != Self::Null);
                Self::Object(kept.map(|(key, value)| (key, value.stripped())).collect())
            }
            Self::Array(elements) => Self::Array(elements.into_iter().map(Self::stripped).collect()),
            other => other,
        }
    }

    /// With numbers in their shortest form, so that equal values have one text.
    pub(crate) fn normalized(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(number.normalized()),
            Self::Array(elements) => Self::Array(elements.iter().map(Self::normalized).collect()),
            Self::Object(pairs) => {
                Self::Object(pairs.iter().map(|(key, value)| (key.clone(), value.normalized())).collect())
            }
            other => other.clone(),
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Number(number) => number.digits() as usize,
                Self::String(text) => text.len(),
                Self::Array(elements) => elements.iter().map(Self::bytes).sum(),
                Self::Object(pairs) => pairs.iter().map(|(key, value)| key.len() + value.bytes()).sum(),
                _ => 0,
            }
    }
}

fn wrong_kind(message: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// The place of an element, counted from the end if it is negative.
fn index(place: i64, length: usize) -> Option<usize> {
    let at = if place < 0 { place + length as i64 } else { place };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// A step of a path as a place in an array.
fn place(step: &str, number: usize) -> Result<i64> {
    step.trim().parse().map_err(|_| {
        let message = format!("path element at position {number} is not an integer: \"{step}\"");
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    })
}

/// Appends a string with its quotes.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Checks a text of `json`, which stays as it is.
pub(crate) fn check(text: &str) -> Result<()> {
    let mut reader = Reader::new(text, "json");
    reader.skip(0)?;
    reader.end()
}

/// What of a `json` text is wanted.
pub(crate) enum Step<'a> {
    Key(&'a str),
    Element(i64),
}

/// The part of a `json` text that a step leads to, as it is written.
pub(crate) fn part<'a>(text: &'a str, step: &Step<'_>) -> Result<Option<&'a str>> {
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

/// How many elements a `json` text of an array has; `None` if it is none.
pub(crate) fn array_length(text: &str) -> Result<Option<i64>> {
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
struct Reader<'a> {
    rest: &'a str,
    of: &'static str,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, of: &'static str) -> Self {
        Self { rest: text, of }
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

    fn expect(&mut self, prefix: &str) -> Result<()> {
        self.space();
        if self.take(prefix) { Ok(()) } else { Err(self.wrong(&format!("\"{prefix}\""))) }
    }

    fn end(&mut self) -> Result<()> {
        self.space();
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("the end")) }
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        if depth < DEPTH_MAX {
            return Ok(depth + 1);
        }
        let message = format!("a value of {} is nested more than {DEPTH_MAX} deep", self.of);
        Err(SqlError::new("54001", message))
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        self.space();
        match self.rest.bytes().next() {
            Some(b'{') => {
                let mut pairs = Vec::new();
                self.object(depth, &mut |reader, key| {
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
        self.expect("{")?;
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
            self.expect(":")?;
            value(self, key)?;
            self.space();
            if self.take("}") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    fn array(&mut self, depth: usize, element: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.deeper(depth)?;
        self.expect("[")?;
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
            self.expect(",")?;
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
        self.expect("\"")?;
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

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    fn shown(text: &str) -> String {
        json(text).text()
    }

    #[test]
    fn values_have_the_form_of_jsonb() {
        for (text, expected) in [
            (" {\"bb\":1, \"a\" : [1,2 , {}], \"a\":null} ", "{\"a\": null, \"bb\": 1}"),
            ("[1.10, 1e2, -0.5, 12345678901234567890]", "[1.10, 100, -0.5, 12345678901234567890]"),
            ("\"\\u00fc\\ud83d\\ude00\\n\\u0001\"", "\"ü😀\\n\\u0001\""),
            ("true", "true"),
        ] {
            assert_eq!(shown(text), expected);
            assert_eq!(shown(expected), expected);
        }
    }

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

    #[test]
    fn what_contains_what_is_as_in_postgresql() {
        for (whole, part, expected) in [
            ("{\"a\": 1, \"b\": [1, 2]}", "{\"b\": [2]}", true),
            ("[1, 2, [3]]", "[[3]]", true),
            ("[1, 2]", "1", true),
            ("1", "[1]", false),
            ("[[1]]", "[1]", false),
            ("{\"a\": {\"b\": 1}}", "{\"b\": 1}", false),
            ("{\"a\": 1}", "{}", true),
        ] {
            assert_eq!(json(whole).contains(&json(part)), expected, "{whole} @> {part}");
        }
    }

    #[test]
    fn paths_lead_to_what_is_replaced_added_and_removed() {
        let path = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        let of = "{\"a\": [1, {\"b\": 2}]}";
        let with = |steps: &[&str], create| json(of).with(&path(steps), json("9"), create).map(|value| value.text());
        assert_eq!(with(&["a", "1", "b"], false).unwrap(), "{\"a\": [1, {\"b\": 9}]}");
        assert_eq!(with(&["a", "1", "c"], true).unwrap(), "{\"a\": [1, {\"b\": 2, \"c\": 9}]}");
        assert_eq!(with(&["a", "1", "c"], false).unwrap(), of);
        assert_eq!(with(&["a", "7"], true).unwrap(), "{\"a\": [1, {\"b\": 2}, 9]}");
        assert_eq!(with(&["x", "y"], true).unwrap(), of);
        assert_eq!(with(&["a", "x"], true).unwrap_err().state, "22P02");
        let without = |steps: &[&str]| json(of).without_path(&path(steps)).unwrap().text();
        assert_eq!(
            (without(&["a", "-1"]), without(&["a", "1", "b"])),
            ("{\"a\": [1]}".into(), "{\"a\": [1, {}]}".into())
        );
    }

    #[test]
    fn values_are_ordered_as_in_postgresql() {
        let order = [
            "[]",
            "null",
            "\"b\"",
            "1",
            "2",
            "false",
            "true",
            "[5]",
            "[1, 1]",
            "{}",
            "{\"b\": 1}",
            "{\"a\": 1, \"b\": 1}",
        ];
        for pair in order.windows(2) {
            assert_eq!(json(pair[0]).compare(&json(pair[1])), Ordering::Less, "{pair:?}");
        }
    }
}
