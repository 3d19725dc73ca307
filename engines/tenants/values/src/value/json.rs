//! JSON: `jsonb` as a value, and its text. What is read of a `json` text where it is, is in `read`, what is asked of values in
//! `operators`.
//!
//! Numbers keep all of their digits, and an object has each key once, shorter keys first, as in PostgreSQL.

mod operators;
pub mod path;
mod read;

use std::cmp::Ordering;

use bigdecimal::BigDecimal;
use read::Reader;
pub use read::{Step, array_length, check, part, parts};

use super::{numeric, size};
use crate::error::Result;

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
    /// 22P02; 54001 if it is nested too deeply; 54000 if it takes too much memory.
    pub fn parse(text: &str) -> Result<Self> {
        Self::read(Reader::new(text, "jsonb"))
    }

    /// The value of a text that was one's before, however much memory it takes.
    ///
    /// # Errors
    /// 22P02.
    pub fn parse_again(text: &str) -> Result<Self> {
        Self::read(Reader::again(text))
    }

    fn read(mut reader: Reader<'_>) -> Result<Self> {
        let value = reader.value(0)?;
        reader.end()?;
        Ok(value)
    }

    /// An object of pairs in any order. Of several values of a key the last one stays.
    pub fn object(mut pairs: Vec<(String, Self)>) -> Self {
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

    /// Refuses a value that is nested more deeply than one may be that is read: it could be stored, and never be read again.
    ///
    /// # Errors
    /// 54001.
    pub fn check_depth(&self) -> Result<()> {
        if self.is_deeper_than(read::DEPTH_MAX) { Err(read::too_deep("jsonb")) } else { Ok(()) }
    }

    fn is_deeper_than(&self, levels: usize) -> bool {
        let is_deeper = |inner: &Self| inner.is_deeper_than(levels - 1);
        match self {
            Self::Array(elements) => levels == 0 || elements.iter().any(is_deeper),
            Self::Object(pairs) => levels == 0 || pairs.iter().any(|(_, value)| is_deeper(value)),
            _ => false,
        }
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
    ///
    /// # Errors
    /// 54000.
    pub fn write_pretty(&self, indent: usize, out: &mut String) -> Result<()> {
        let line = |out: &mut String, indent: usize| -> Result<()> {
            size::check(out.len())?;
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            Ok(())
        };
        let (open, close) = match self {
            Self::Array(_) => ('[', ']'),
            Self::Object(_) => ('{', '}'),
            other => {
                other.write(out);
                return Ok(());
            }
        };
        out.push(open);
        match self {
            Self::Array(elements) => {
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    line(out, indent + 4)?;
                    element.write_pretty(indent + 4, out)?;
                }
            }
            Self::Object(pairs) => {
                for (at, (key, value)) in pairs.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    line(out, indent + 4)?;
                    write_string(key, out);
                    out.push_str(": ");
                    value.write_pretty(indent + 4, out)?;
                }
            }
            _ => {}
        }
        line(out, indent)?;
        out.push(close);
        Ok(())
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// The text, without quotes if it is a string; nothing if it is `null`.
    pub fn bare(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::String(text) => Some(text.clone()),
            other => Some(other.text()),
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// About how many bytes it takes, and no fewer than its text.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Number(number) => numeric::written_bytes(number),
                Self::String(text) => written_bytes(text),
                Self::Array(elements) => elements.iter().map(Self::bytes).sum(),
                Self::Object(pairs) => {
                    pairs.iter().map(|(key, value)| size_of::<String>() + written_bytes(key) + value.bytes()).sum()
                }
                _ => 0,
            }
    }
}

/// How many bytes a string has with its quotes.
pub fn written_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    2 + text.bytes().map(escaped).sum::<usize>()
}

/// Appends a string with its quotes.
pub fn write_string(text: &str, out: &mut String) {
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
}
