//! Functions of texts.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use md5::Md5;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, size},
};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{
    Resolved,
    encoding::{decode, encode, hex},
    format::{formatted, quoted_literal, quoted_name},
    is_texty,
    like::like_escape,
    written::{names, unescaped},
    wrong_arguments,
};

/// A function of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFunction {
    Ascii,
    BitLength,
    CharLength,
    Chr,
    Concat,
    ConcatWs,
    /// Bytes of a text that stands for them in a format
    Decode,
    Encode,
    /// `format(text, ..)`
    Format,
    Initcap,
    Left,
    /// A pattern of LIKE with another escape character, as one with a backslash.
    LikeEscape,
    Lower,
    Md5,
    LPad,
    LTrim,
    OctetLength,
    /// A text with a part replaced, by its place
    Overlay,
    /// A text with blanks up to a length: a `character` as it is shown.
    Pad,
    Position,
    QuoteIdent,
    QuoteLiteral,
    QuoteNullable,
    Repeat,
    Replace,
    Reverse,
    Right,
    RPad,
    RTrim,
    /// A hash of so many bits
    Sha(u16),
    SplitPart,
    StartsWith,
    SubstringBytes,
    Substring,
    SubstringFor,
    Translate,
    ToHex,
    Trim,
    /// `parse_ident`
    Names,
    /// `unistr`
    Unescape,
    Upper,
}

/// The function of texts of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<TextFunction>> {
    use TextFunction as F;
    use Type::{Bytea, Int4, Text};
    let texty = is_texty;
    Some(match (name, arguments) {
        ("unistr", [of]) if texty(of) => (F::Unescape, vec![Text], Text),
        ("parse_ident", [of]) if texty(of) => (F::Names, vec![Text], Text.array()?),
        ("parse_ident", [of, Type::Bool | Type::Unknown]) if texty(of) => {
            (F::Names, vec![Text, Type::Bool], Text.array()?)
        }
        ("ascii", [of]) if texty(of) => (F::Ascii, vec![Text], Int4),
        ("chr", [of]) if of.is_integer() => (F::Chr, vec![Int4], Text),
        ("initcap", [of]) if texty(of) => (F::Initcap, vec![Text], Text),
        ("lpad" | "rpad", [of, n]) | ("lpad" | "rpad", [of, n, _])
            if texty(of) && n.is_integer() && arguments.get(2).is_none_or(texty) =>
        {
            let wanted = [Text, Int4, Text][..arguments.len()].to_vec();
            (if name == "lpad" { F::LPad } else { F::RPad }, wanted, Text)
        }
        ("split_part", [of, by, n]) if texty(of) && texty(by) && n.is_integer() => {
            (F::SplitPart, vec![Text, Text, Int4], Text)
        }
        ("starts_with", [a, b]) if texty(a) && texty(b) => (F::StartsWith, vec![Text, Text], Type::Bool),
        ("translate", [a, b, c]) if texty(a) && texty(b) && texty(c) => (F::Translate, vec![Text, Text, Text], Text),
        ("like_escape", [a, b]) if texty(a) && texty(b) => (F::LikeEscape, vec![Text, Text], Text),
        ("concat_ws", [by, ..]) if texty(by) => (F::ConcatWs, vec![Text; arguments.len()], Text),
        ("lower", [of]) if texty(of) => (F::Lower, vec![Text], Text),
        ("upper", [of]) if texty(of) => (F::Upper, vec![Text], Text),
        ("length" | "char_length" | "character_length", [of]) if texty(of) => (F::CharLength, vec![Text], Int4),
        ("octet_length", [of]) if texty(of) => (F::OctetLength, vec![Text], Int4),
        ("octet_length" | "length", [Bytea]) => (F::OctetLength, vec![Bytea], Int4),
        ("reverse", [of]) if texty(of) => (F::Reverse, vec![Text], Text),
        ("left", [of, n]) if texty(of) && n.is_integer() => (F::Left, vec![Text, Int4], Text),
        ("right", [of, n]) if texty(of) && n.is_integer() => (F::Right, vec![Text, Int4], Text),
        ("repeat", [of, n]) if texty(of) && n.is_integer() => (F::Repeat, vec![Text, Int4], Text),
        ("replace", [a, b, c]) if texty(a) && texty(b) && texty(c) => (F::Replace, vec![Text, Text, Text], Text),
        ("strpos" | "position", [a, b]) if texty(a) && texty(b) => (F::Position, vec![Text, Text], Int4),
        ("substr" | "substring", [of, n]) if texty(of) && n.is_integer() => (F::Substring, vec![Text, Int4], Text),
        ("substr" | "substring", [of, a, b]) if texty(of) && a.is_integer() && b.is_integer() => {
            (F::SubstringFor, vec![Text, Int4, Int4], Text)
        }
        ("btrim" | "ltrim" | "rtrim", [of] | [of, _]) if arguments.iter().all(texty) => {
            let function = match name {
                "btrim" => F::Trim,
                "ltrim" => F::LTrim,
                _ => F::RTrim,
            };
            let _ = of;
            (function, vec![Text; arguments.len()], Text)
        }
        ("concat", _) => (F::Concat, vec![Text; arguments.len()], Text),
        ("md5", [of]) if texty(of) => (F::Md5, vec![Text], Text),
        ("md5", [Bytea]) => (F::Md5, vec![Bytea], Text),
        ("sha224" | "sha256" | "sha384" | "sha512", [Bytea | Type::Unknown]) => {
            let bits = name.trim_start_matches("sha").parse().ok()?;
            (F::Sha(bits), vec![Bytea], Bytea)
        }
        ("encode", [Bytea | Type::Unknown, format]) if texty(format) => (F::Encode, vec![Bytea, Text], Text),
        ("decode", [of, format]) if texty(of) && texty(format) => (F::Decode, vec![Text, Text], Bytea),
        ("bit_length", [of]) if texty(of) => (F::BitLength, vec![Text], Int4),
        ("bit_length", [Bytea]) => (F::BitLength, vec![Bytea], Int4),
        ("format", [of, ..]) if texty(of) => (F::Format, vec![Text; arguments.len()], Text),
        ("quote_ident", [of]) if texty(of) => (F::QuoteIdent, vec![Text], Text),
        ("quote_literal", [_]) => (F::QuoteLiteral, vec![Text], Text),
        ("quote_nullable", [_]) => (F::QuoteNullable, vec![Text], Text),
        ("to_hex", [of]) if of.is_integer() => (F::ToHex, vec![if *of == Type::Int8 { *of } else { Int4 }], Text),
        ("overlay", [of, by, from]) if texty(of) && texty(by) && from.is_integer() => {
            (F::Overlay, vec![Text, Text, Int4], Text)
        }
        ("overlay", [of, by, from, length]) if texty(of) && texty(by) && from.is_integer() && length.is_integer() => {
            (F::Overlay, vec![Text, Text, Int4, Int4], Text)
        }
        ("substr" | "substring", [Bytea, from, rest @ ..])
            if from.is_integer() && rest.len() < 2 && rest.iter().all(|of| of.is_integer()) =>
        {
            (F::SubstringBytes, [Bytea, Int4, Int4][..arguments.len()].to_vec(), Bytea)
        }
        _ => return None,
    })
}

impl TextFunction {
    /// Whether it is NULL as soon as one of its arguments is.
    pub(super) fn is_strict(self) -> bool {
        !matches!(self, Self::Concat | Self::ConcatWs | Self::Format | Self::QuoteNullable)
    }

    /// Its value. If it is strict, no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        match (self, arguments) {
            (Self::Concat, parts) => size::joined(texts(parts), "").map(Value::Text),
            (Self::ConcatWs, [Value::Text(by), parts @ ..]) => size::joined(texts(parts), by).map(Value::Text),
            (Self::ConcatWs, _) => Ok(Value::Null),
            (Self::Md5, [Value::Text(text)]) => Ok(Value::Text(hex(&Md5::digest(text)))),
            (Self::Md5, [Value::Bytes(bytes)]) => Ok(Value::Text(hex(&Md5::digest(bytes)))),
            (Self::Sha(bits), [Value::Bytes(bytes)]) => Ok(Value::Bytes(match bits {
                224 => Sha224::digest(bytes).to_vec(),
                256 => Sha256::digest(bytes).to_vec(),
                384 => Sha384::digest(bytes).to_vec(),
                _ => Sha512::digest(bytes).to_vec(),
            })),
            (Self::Encode, [Value::Bytes(bytes), Value::Text(format)]) => encode(bytes, format).map(Value::Text),
            (Self::Decode, [Value::Text(text), Value::Text(format)]) => decode(text, format).map(Value::Bytes),
            (Self::BitLength, [Value::Bytes(bytes)]) => Ok(Value::Int(8 * bytes.len() as i64)),
            (Self::BitLength, [Value::Text(text)]) => Ok(Value::Int(8 * text.len() as i64)),
            (Self::Format, [Value::Text(format), arguments @ ..]) => formatted(format, arguments).map(Value::Text),
            (Self::Format, _) => Ok(Value::Null),
            (Self::Unescape, [Value::Text(text)]) => unescaped(text).map(Value::Text),
            (Self::Names, [Value::Text(text), strict @ ..]) => {
                let strict = !matches!(strict, [Value::Bool(false)]);
                Ok(Value::Array(Arc::new(names(text, strict)?.into())))
            }
            (Self::QuoteIdent, [Value::Text(text)]) => Ok(Value::Text(quoted_name(text))),
            (Self::QuoteLiteral | Self::QuoteNullable, [Value::Text(text)]) => Ok(Value::Text(quoted_literal(text))),
            (Self::QuoteNullable, [Value::Null]) => Ok(Value::Text("NULL".to_owned())),
            (Self::ToHex, [Value::Int(number)]) => Ok(Value::Text(match i32::try_from(*number) {
                Ok(short) if *number < 0 => format!("{short:x}"),
                _ => format!("{number:x}"),
            })),
            (Self::SubstringBytes, [Value::Bytes(bytes), Value::Int(from), length @ ..]) => {
                let end =
                    if let [Value::Int(length)] = length { from.saturating_add((*length).max(0)) } else { i64::MAX };
                if matches!(length, [Value::Int(..0)]) {
                    return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
                }
                let place = |at: i64| usize::try_from((at - 1).max(0)).unwrap_or(usize::MAX).min(bytes.len());
                Ok(Value::Bytes(bytes[place(*from)..place(end).max(place(*from))].to_vec()))
            }
            (Self::Chr, [Value::Int(code)]) => chr(*code),
            (Self::OctetLength, [Value::Bytes(bytes)]) => Ok(Value::Int(bytes.len() as i64)),
            (_, [Value::Text(text), rest @ ..]) => self.of_text(text, rest),
            _ => Err(wrong_arguments(self)),
        }
    }

    fn of_text(self, text: &str, rest: &[&Value]) -> Result<Value> {
        let characters = || text.chars().count() as i64;
        Ok(match (self, rest) {
            (Self::Lower, []) => Value::Text(text.to_lowercase()),
            (Self::Upper, []) => Value::Text(text.to_uppercase()),
            (Self::CharLength, []) => Value::Int(characters()),
            (Self::OctetLength, []) => Value::Int(text.len() as i64),
            (Self::Reverse, []) => Value::Text(text.chars().rev().collect()),
            (Self::Left, [Value::Int(n)]) => {
                let keep = if *n < 0 { characters() + n } else { *n };
                Value::Text(text.chars().take(keep.max(0) as usize).collect())
            }
            (Self::Right, [Value::Int(n)]) => {
                let skip = if *n < 0 { -n } else { characters() - n };
                Value::Text(text.chars().skip(skip.max(0) as usize).collect())
            }
            (Self::Repeat, [Value::Int(n)]) => {
                let times = (*n).max(0) as usize;
                size::check(text.len().saturating_mul(times))?;
                Value::Text(text.repeat(times))
            }
            (Self::Pad, [Value::Int(length)]) => {
                let blanks = (length - characters()).max(0) as usize;
                size::check(text.len().saturating_add(blanks))?;
                Value::Text([text, &" ".repeat(blanks)].concat())
            }
            (Self::Replace, [Value::Text(from), Value::Text(to)]) => Value::Text(replaced(text, from, to)?),
            (Self::Position, [Value::Text(part)]) => {
                Value::Int(text.find(part.as_str()).map_or(0, |at| text[..at].chars().count() as i64 + 1))
            }
            (Self::Substring, [Value::Int(from)]) => substring(text, *from, None)?,
            (Self::SubstringFor, [Value::Int(from), Value::Int(length)]) => substring(text, *from, Some(*length))?,
            (Self::Trim | Self::LTrim | Self::RTrim, rest) => {
                let what = if let [Value::Text(what)] = rest { what.as_str() } else { " " };
                let what: HashSet<char> = what.chars().collect();
                let mut trimmed = text;
                if self != Self::RTrim {
                    trimmed = trimmed.trim_start_matches(|c| what.contains(&c));
                }
                if self != Self::LTrim {
                    trimmed = trimmed.trim_end_matches(|c| what.contains(&c));
                }
                Value::Text(trimmed.to_owned())
            }
            (Self::Ascii, []) => Value::Int(text.chars().next().map_or(0, |first| i64::from(u32::from(first)))),
            (Self::Initcap, []) => Value::Text(initcap(text)),
            (Self::LPad | Self::RPad, [Value::Int(length), rest @ ..]) => {
                let fill = if let [Value::Text(fill)] = rest { fill.as_str() } else { " " };
                Value::Text(pad(text, *length, fill, self == Self::LPad)?)
            }
            (Self::SplitPart, [Value::Text(by), Value::Int(place)]) => {
                Value::Text(split_part(text, by, *place)?.to_owned())
            }
            (Self::Overlay, [Value::Text(by), Value::Int(from), length @ ..]) => {
                if *from < 1 {
                    return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
                }
                let length = if let [Value::Int(length)] = length { *length } else { by.chars().count() as i64 };
                let before: String = text.chars().take(*from as usize - 1).collect();
                let after: String = text.chars().skip((from + length - 1).max(0) as usize).collect();
                Value::Text([before.as_str(), by, &after].concat())
            }
            (Self::StartsWith, [Value::Text(start)]) => Value::Bool(text.starts_with(start.as_str())),
            (Self::Translate, [Value::Text(from), Value::Text(to)]) => Value::Text(translate(text, from, to)),
            (Self::LikeEscape, [Value::Text(escape)]) => Value::Text(like_escape(text, escape)?),
            _ => return Err(wrong_arguments(self)),
        })
    }
}

pub(super) fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The texts among some values.
fn texts<'v>(values: &'v [&Value]) -> impl Iterator<Item = Result<&'v str>> {
    values.iter().filter_map(|value| text_of(value)).map(Ok)
}

/// The character with a number.
fn chr(code: i64) -> Result<Value> {
    if code < 0 {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "character number must be positive"));
    }
    match u32::try_from(code).ok().and_then(char::from_u32) {
        Some('\0') => Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "null character not permitted")),
        Some(character) => Ok(Value::Text(character.to_string())),
        None => {
            let message = format!("requested character too large for encoding: {code}");
            Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message))
        }
    }
}

/// The first character of each word in upper case, the others in lower.
fn initcap(text: &str) -> String {
    let mut within = false;
    let mut capped = String::with_capacity(text.len());
    for character in text.chars() {
        match within {
            true => capped.extend(character.to_lowercase()),
            false => capped.extend(character.to_uppercase()),
        }
        within = character.is_alphanumeric();
    }
    capped
}

/// A text of so many characters: filled up, or cut.
fn pad(text: &str, length: i64, fill: &str, before: bool) -> Result<String> {
    let length = usize::try_from(length.max(0)).unwrap_or(usize::MAX);
    let widest = fill.chars().map(char::len_utf8).max().unwrap_or(0);
    size::check(length.saturating_mul(widest.max(1)))?;
    let kept: String = text.chars().take(length).collect();
    let missing = length - kept.chars().count();
    let filling: String = fill.chars().cycle().take(missing).collect();
    Ok(if before { filling + &kept } else { kept + &filling })
}

/// A part of a text between delimiters, counted from 1, or from the end if negative.
fn split_part<'t>(text: &'t str, by: &str, place: i64) -> Result<&'t str> {
    if place == 0 {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    if by.is_empty() {
        return Ok(if place == 1 || place == -1 { text } else { "" });
    }
    let at = usize::try_from(place.unsigned_abs() - 1).unwrap_or(usize::MAX);
    // From the end delimiters are still those that are found from the beginning.
    let at = if place > 0 { Some(at) } else { text.split(by).count().checked_sub(at.saturating_add(1)) };
    let part = at.and_then(|at| text.split(by).nth(at));
    Ok(part.unwrap_or(""))
}

/// A text with each `from` in it replaced by another text.
fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    if from.is_empty() {
        return Ok(text.to_owned());
    }
    if to.len() > from.len() {
        let more = text.matches(from).count().saturating_mul(to.len() - from.len());
        size::check(text.len().saturating_add(more))?;
    }
    Ok(text.replace(from, to))
}

/// A text with each character of `from` replaced by that at the same place of `to`, or left out if there is none.
fn translate(text: &str, from: &str, to: &str) -> String {
    let mut others = HashMap::new();
    let mut to = to.chars();
    for character in from.chars() {
        let other = to.next();
        others.entry(character).or_insert(other);
    }
    let replaced = |character: char| others.get(&character).copied().unwrap_or(Some(character));
    text.chars().filter_map(replaced).collect()
}

/// Characters from a place on, counted from 1; places before the text count, too.
fn substring(text: &str, from: i64, length: Option<i64>) -> Result<Value> {
    if length.is_some_and(|length| length < 0) {
        return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = length.map_or(i64::MAX, |length| from.saturating_add(length));
    let (skip, end) = ((from - 1).max(0), (end - 1).max(0));
    let take = usize::try_from(end.saturating_sub(skip).max(0)).unwrap_or(usize::MAX);
    Ok(Value::Text(text.chars().skip(skip as usize).take(take).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substrings_count_from_one_and_may_begin_before() {
        let of = |from, length| substring("hello", from, length).unwrap();
        assert_eq!(of(2, Some(3)), Value::Text("ell".to_owned()));
        assert_eq!(of(-1, Some(3)), Value::Text("h".to_owned()));
        assert_eq!(of(4, None), Value::Text("lo".to_owned()));
        assert_eq!(of(9, Some(2)), Value::Text(String::new()));
        assert!(substring("hello", 1, Some(-1)).is_err());
    }
}
