//! Regular expressions and the patterns of `SIMILAR TO`.
//!
//! They are PostgreSQL's advanced ones as far as they can be matched in time that is linear in the text: without back references and
//! without looking around. Where alternatives match at the same place the first one is taken, not the longest.

use std::{cell::RefCell, collections::HashMap, ops::RangeInclusive, sync::Arc};

use regex::{Captures, Match, Regex, RegexBuilder};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        array::Array,
        size::{Elements, Text},
    },
};

use super::{Resolved, array::made, is_texty, wrong_arguments};
use crate::expression::Facts;

/// Bytes of a compiled expression.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Expressions that a session keeps compiled.
const KEPT: usize = 16;
/// Bytes of an expression's text: to read one takes a hundred times as much memory.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// Classes of characters between brackets.
const CLASSES: [&str; 13] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word", "xdigit",
];

/// A function of patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternFunction {
    /// `~`, `~*`, `regexp_like`
    Matches { any_case: bool },
    /// `regexp_match`: the groups of the first match
    Groups,
    /// `regexp_replace`
    Replace,
    /// `regexp_replace` of a match that has a number, from a place on
    ReplaceNth,
    /// `regexp_split_to_array`
    Split,
    /// `regexp_count`
    Count,
    /// `regexp_instr`: where a match begins or ends
    Instr,
    /// `regexp_substr`: what matches
    Substr,
    /// `substring(.. FROM pattern)`: the first group, or all that matches
    Substring,
    /// `SIMILAR TO`
    Similar,
}

/// The function of patterns of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<PatternFunction>> {
    use PatternFunction as F;
    use Type::{Bool, Text};
    if !arguments.iter().all(is_texty) {
        return with_numbers(name, arguments);
    }
    let (function, least, most, of) = match name {
        "regexp_like" => (F::Matches { any_case: false }, 2, 3, Bool),
        "regexp_match" => (F::Groups, 2, 3, Text.array()?),
        "regexp_replace" => (F::Replace, 3, 4, Text),
        "regexp_split_to_array" => (F::Split, 2, 3, Text.array()?),
        "substr" | "substring" => (F::Substring, 2, 2, Text),
        _ => return with_numbers(name, arguments),
    };
    if !(least..=most).contains(&arguments.len()) {
        return with_numbers(name, arguments);
    }
    Some((function, vec![Text; arguments.len()], of))
}

/// One that has numbers among its arguments.
fn with_numbers(name: &str, arguments: &[Type]) -> Option<Resolved<PatternFunction>> {
    use PatternFunction as F;
    use Type::{Int4, Text};
    let (function, least, wanted, of): (_, _, &[Type], _) = match name {
        "regexp_count" => (F::Count, 2, &[Text, Text, Int4, Text], Int4),
        "regexp_instr" => (F::Instr, 2, &[Text, Text, Int4, Int4, Int4, Text, Int4], Int4),
        "regexp_substr" => (F::Substr, 2, &[Text, Text, Int4, Int4, Text, Int4], Text),
        "regexp_replace" => (F::ReplaceNth, 4, &[Text, Text, Text, Int4, Int4, Text], Text),
        _ => return None,
    };
    let fits = |(of, wanted): (&Type, &Type)| match wanted {
        Int4 => matches!(of, Type::Int2 | Int4 | Type::Unknown),
        _ => is_texty(of),
    };
    let known = (least..=wanted.len()).contains(&arguments.len()) && arguments.iter().zip(wanted).all(fits);
    known.then(|| (function, wanted[..arguments.len()].to_vec(), of))
}

impl PatternFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        let [Value::Text(text), Value::Text(pattern), rest @ ..] = arguments else { return Err(wrong_arguments(self)) };
        let flags = |at: usize| if let Some(Value::Text(flags)) = rest.get(at) { flags.as_str() } else { "" };
        Ok(match self {
            Self::Matches { any_case } => {
                let flags = if any_case { "i" } else { flags(0) };
                Value::Bool(facts.patterns.get(pattern, flags, "regexp_like")?.is_match(text))
            }
            Self::Similar => {
                let escape = if let Some(Value::Text(escape)) = rest.first() { escape.as_str() } else { "\\" };
                Value::Bool(
                    facts
                        .patterns
                        .compiled(&similar(pattern, escape)?, "", |pattern| Regex::new(pattern).map_err(refused))?
                        .is_match(text),
                )
            }
            Self::Groups => {
                let regex = facts.patterns.get(pattern, flags(0), "regexp_match")?;
                groups(&regex, text).next().unwrap_or(Value::Null)
            }
            Self::Replace => {
                let Some(Value::Text(by)) = rest.first() else { return Err(wrong_arguments(self)) };
                let (flags, all) = global(flags(1));
                let regex = facts.patterns.get(pattern, &flags, "")?;
                Value::Text(replaced(&regex, text, by, Some(0), (!all).then_some(1))?)
            }
            Self::ReplaceNth => {
                let [Value::Text(by), rest @ ..] = rest else { return Err(wrong_arguments(self)) };
                let start = parameter(rest.first(), "start", 1..=i64::MAX, 1)?;
                let (flags, all) = global(flags(3));
                let number = parameter(rest.get(1), "n", 0..=i64::MAX, i64::from(!all))?;
                let regex = facts.patterns.get(pattern, &flags, "")?;
                Value::Text(replaced(
                    &regex,
                    text,
                    by,
                    byte_at(text, start),
                    Some(number).filter(|number| *number > 0),
                )?)
            }
            Self::Split => {
                let regex = facts.patterns.get(pattern, flags(0), "regexp_split_to_array")?;
                made(Array::from(Elements::collect(split(&regex, text))?))
            }
            Self::Count => {
                let start = parameter(rest.first(), "start", 1..=i64::MAX, 1)?;
                let regex = facts.patterns.get(pattern, flags(1), "regexp_count")?;
                Value::Int(matches(&regex, text, byte_at(text, start)).count() as i64)
            }
            Self::Instr => {
                let start = parameter(rest.first(), "start", 1..=i64::MAX, 1)?;
                let number = parameter(rest.get(1), "n", 1..=i64::MAX, 1)?;
                let ends = parameter(rest.get(2), "endoption", 0..=1, 0)? == 1;
                let group = parameter(rest.get(4), "subexpr", 0..=i64::MAX, 0)?;
                let regex = facts.patterns.get(pattern, flags(3), "regexp_instr")?;
                let found = part(&regex, text, start, number, group);
                let place = found.map(|found| if ends { found.end() } else { found.start() });
                Value::Int(place.map_or(0, |place| text[..place].chars().count() as i64 + 1))
            }
            Self::Substr => {
                let start = parameter(rest.first(), "start", 1..=i64::MAX, 1)?;
                let number = parameter(rest.get(1), "n", 1..=i64::MAX, 1)?;
                let group = parameter(rest.get(3), "subexpr", 0..=i64::MAX, 0)?;
                let regex = facts.patterns.get(pattern, flags(2), "regexp_substr")?;
                let found = part(&regex, text, start, number, group);
                found.map_or(Value::Null, |found| Value::Text(found.as_str().to_owned()))
            }
            Self::Substring => {
                let regex = facts.patterns.get(pattern, "", "")?;
                let found = regex
                    .captures(text)
                    .and_then(|found| if regex.captures_len() > 1 { found.get(1) } else { found.get(0) });
                found.map_or(Value::Null, |found| Value::Text(found.as_str().to_owned()))
            }
        })
    }
}

/// Flags without `g`, and whether it was among them.
pub(crate) fn global(flags: &str) -> (String, bool) {
    (flags.replace('g', ""), flags.contains('g'))
}

/// A number among the arguments, or what it is where it is left out.
fn parameter(given: Option<&&Value>, name: &str, range: RangeInclusive<i64>, absent: i64) -> Result<i64> {
    let number = if let Some(Value::Int(number)) = given { *number } else { absent };
    if range.contains(&number) {
        return Ok(number);
    }
    let message = format!("invalid value for parameter \"{name}\": {number}");
    Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
}

/// Where the character of a number begins, of which the first is 1; nothing if it is behind the end.
fn byte_at(text: &str, number: i64) -> Option<usize> {
    let mut begins = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    begins.nth(usize::try_from(number - 1).ok()?)
}

/// Of the match of a number, from a character on, a group or all of it. An expression without groups is its own first one.
fn part<'a>(regex: &Regex, text: &'a str, start: i64, number: i64, group: i64) -> Option<Match<'a>> {
    let found = matches(regex, text, byte_at(text, start)).nth(usize::try_from(number - 1).ok()?)?;
    let group = if regex.captures_len() == 1 && group == 1 { 0 } else { group };
    found.get(usize::try_from(group).ok()?)
}

/// The matches from a place on, as PostgreSQL finds them: an empty one may follow another one at once.
fn matches<'t>(regex: &Regex, text: &'t str, mut from: Option<usize>) -> impl Iterator<Item = Captures<'t>> {
    std::iter::from_fn(move || {
        let found = regex.captures_at(text, from?)?;
        let whole = found.get(0)?;
        let next = text[whole.end()..].chars().next();
        from = if whole.is_empty() { next.map(|next| whole.end() + next.len_utf8()) } else { Some(whole.end()) };
        Some(found)
    })
}

/// For each match the groups of the expression, or all that matches if there are none.
pub(crate) fn groups<'a>(regex: &'a Regex, text: &'a str) -> impl Iterator<Item = Value> + 'a {
    let first = usize::from(regex.captures_len() > 1);
    matches(regex, text, Some(0)).map(move |found| {
        let group = |at| found.get(at).map_or(Value::Null, |group| Value::Text(group.as_str().to_owned()));
        made(Array::from((first..found.len()).map(group).collect::<Vec<_>>()))
    })
}

/// The parts of a text between matches. An empty match parts nothing at the ends.
pub(crate) fn split<'a>(regex: &'a Regex, text: &'a str) -> impl Iterator<Item = Value> + 'a {
    let (mut matches, mut begin) = (regex.find_iter(text), Some(0));
    std::iter::from_fn(move || {
        let start = begin?;
        let next =
            matches.by_ref().find(|found| !found.is_empty() || (found.start() != start && found.end() != text.len()));
        begin = next.map(|found| found.end());
        Some(Value::Text(text[start..next.map_or(text.len(), |found| found.start())].to_owned()))
    })
}

/// A text with the match of a number from a place on replaced, or all: `\1` is a group, `\&` all that matches.
fn replaced(regex: &Regex, text: &str, by: &str, from: Option<usize>, number: Option<i64>) -> Result<String> {
    let (mut out, mut begin) = (Text::default(), 0);
    let chosen = (1..).zip(matches(regex, text, from)).skip_while(|(at, _)| number.is_some_and(|number| *at < number));
    for (_, found) in chosen.take(if number.is_some() { 1 } else { usize::MAX }) {
        let Some(whole) = found.get(0) else { continue };
        out.push_str(&text[begin..whole.start()])?;
        let group = |at: usize| found.get(at).map_or("", |group| group.as_str());
        let mut rest = by;
        while let Some((plain, escaped)) = rest.split_once('\\') {
            out.push_str(plain)?;
            let mut characters = escaped.chars();
            match characters.next() {
                Some('&') => out.push_str(whole.as_str())?,
                Some(digit @ '1'..='9') => out.push_str(group(digit as usize - '0' as usize))?,
                Some('\\') | None => out.push('\\')?,
                Some(other) => {
                    out.push('\\')?;
                    out.push(other)?;
                }
            }
            rest = characters.as_str();
        }
        out.push_str(rest)?;
        begin = whole.end();
    }
    out.push_str(&text[begin..])?;
    Ok(out.finish())
}

/// What a session has compiled lately.
#[derive(Clone, Debug, Default)]
pub struct Patterns(RefCell<HashMap<(String, String), Arc<Regex>>>);

impl Patterns {
    /// A regular expression with flags, for a function that cannot take `g`.
    pub(crate) fn get(&self, pattern: &str, flags: &str, function: &str) -> Result<Arc<Regex>> {
        self.compiled(pattern, flags, |pattern| compile(pattern, flags, function))
    }

    fn compiled(&self, pattern: &str, flags: &str, compile: impl FnOnce(&str) -> Result<Regex>) -> Result<Arc<Regex>> {
        let key = (pattern.to_owned(), flags.to_owned());
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(Arc::clone(known));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            let message = format!("a regular expression has more than {PATTERN_BYTES_MAX} bytes");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let regex = Arc::new(compile(pattern)?);
        let mut kept = self.0.borrow_mut();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(key, Arc::clone(&regex));
        Ok(regex)
    }
}

fn invalid(what: impl std::fmt::Display) -> SqlError {
    SqlError::new("2201B", format!("invalid regular expression: {what}"))
}

fn refused(error: regex::Error) -> SqlError {
    match error {
        regex::Error::CompiledTooBig(_) => {
            let message = format!("a regular expression takes more than {COMPILED_BYTES_MAX} bytes");
            SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
        }
        other => {
            let text = other.to_string();
            invalid(text.lines().last().unwrap_or_default().trim_start_matches("error: "))
        }
    }
}

fn compile(pattern: &str, flags: &str, function: &str) -> Result<Regex> {
    let (mut any_case, mut literal, mut extended) = (false, false, false);
    // Whether ^ and $ are at the ends of lines, and whether a point is also a line break.
    let (mut anchors, mut all) = (false, true);
    for flag in flags.chars() {
        match flag {
            'i' => any_case = true,
            'c' => any_case = false,
            'n' | 'm' => (anchors, all) = (true, false),
            's' => (anchors, all) = (false, true),
            'p' => (anchors, all) = (false, false),
            'w' => (anchors, all) = (true, true),
            'x' => extended = true,
            'q' => literal = true,
            't' | 'e' => {}
            'g' if !function.is_empty() => {
                let message = format!("{function}() does not support the \"global\" option");
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
            'b' => {
                return Err(SqlError::unsupported(format_args!("the option {flag} of a regular expression")));
            }
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    let written = if literal { regex::escape(pattern) } else { translated(pattern)? };
    RegexBuilder::new(&written)
        .case_insensitive(any_case)
        .multi_line(anchors)
        .dot_matches_new_line(all)
        .ignore_whitespace(extended)
        .size_limit(COMPILED_BYTES_MAX)
        .build()
        .map_err(refused)
}

/// An expression of PostgreSQL as one of the library that matches it.
fn translated(pattern: &str) -> Result<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    let mut begin = true;
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.push_str(&escape(&mut characters)?),
            '[' => bracket(&mut characters, &mut out)?,
            '(' if characters.peek() == Some(&'?') => {
                characters.next();
                match characters.next() {
                    Some(':') => out.push_str("(?:"),
                    // Options come at the beginning.
                    Some('i') if begin && characters.next_if_eq(&')').is_some() => out.push_str("(?i)"),
                    Some('=' | '!' | '<') => {
                        return Err(SqlError::unsupported("looking around in a regular expression"));
                    }
                    _ => return Err(invalid("quantifier operand invalid")),
                }
            }
            other => out.push(other),
        }
        begin = false;
    }
    Ok(out)
}

/// Characters of a pattern.
type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The character with a hexadecimal number of at most so many digits.
fn hex(characters: &mut Characters<'_>, count: usize) -> Result<String> {
    let mut digits = String::new();
    while digits.len() < count
        && let Some(digit) = characters.next_if(char::is_ascii_hexdigit)
    {
        digits.push(digit);
    }
    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
    let wrong = || invalid("invalid escape \\ sequence");
    code.map(|character| regex::escape(character.encode_utf8(&mut [0; 4]))).ok_or_else(wrong)
}

/// What stands behind a backslash.
fn escape(characters: &mut Characters<'_>) -> Result<String> {
    let wrong = || invalid("invalid escape \\ sequence");
    let Some(character) = characters.next() else { return Err(wrong()) };
    Ok(match character {
        'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'n' | 't' | 'r' | 'f' | 'v' | 'A' => format!("\\{character}"),
        'y' => "\\b".to_owned(),
        'Y' => "\\B".to_owned(),
        'm' => "\\b{start}".to_owned(),
        'M' => "\\b{end}".to_owned(),
        'Z' => "\\z".to_owned(),
        'a' => "\\x07".to_owned(),
        'b' => "\\x08".to_owned(),
        'e' => "\\x1B".to_owned(),
        'B' => "\\\\".to_owned(),
        'u' => hex(characters, 4)?,
        'U' => hex(characters, 8)?,
        'x' => hex(characters, 8)?,
        '1'..='9' => return Err(SqlError::unsupported("a back reference in a regular expression")),
        other if other.is_ascii_alphanumeric() => return Err(wrong()),
        other => regex::escape(other.encode_utf8(&mut [0; 4])),
    })
}

/// What stands between square brackets.
fn bracket(characters: &mut Characters<'_>, out: &mut String) -> Result<()> {
    let unbalanced = || invalid("brackets [] not balanced");
    out.push('[');
    if characters.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match characters.next().ok_or_else(unbalanced)? {
            ']' if !first => break,
            '[' if characters.next_if_eq(&':').is_some() => {
                let mut class = String::new();
                loop {
                    match characters.next().ok_or_else(unbalanced)? {
                        ':' if characters.next_if_eq(&']').is_some() => break,
                        other => class.push(other),
                    }
                }
                if !CLASSES.contains(&class.as_str()) {
                    return Err(invalid("invalid character class"));
                }
                out.push_str(&format!("[:{class}:]"));
            }
            '[' if matches!(characters.peek(), Some('.' | '=')) => {
                return Err(SqlError::unsupported("a collating element in a regular expression"));
            }
            '\\' => out.push_str(&escape(characters)?),
            // What has a meaning of its own there in the library.
            special @ ('[' | ']' | '&' | '~' | '^') => {
                out.push('\\');
                out.push(special);
            }
            '-' if out.ends_with('-') => out.push_str("\\-"),
            other => out.push(other),
        }
        first = false;
    }
    out.push(']');
    Ok(())
}

/// A pattern of `SIMILAR TO` as a regular expression of the library, over the whole text.
fn similar(pattern: &str, escape_by: &str) -> Result<String> {
    let mut escapes = escape_by.chars();
    let (escape_by, None) = (escapes.next(), escapes.next()) else {
        return Err(SqlError::new(state::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .hint("Escape string must be empty or one character."));
    };
    let mut out = String::from("(?s)^(?:");
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            escape if Some(escape) == escape_by => {
                let escaped = characters.next().unwrap_or(escape);
                out.push_str(&regex::escape(escaped.encode_utf8(&mut [0; 4])));
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '[' => bracket(&mut characters, &mut out)?,
            '|' | '*' | '+' | '?' | ')' | '{' | '}' => out.push(character),
            other => out.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    out.push_str(")$");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, pattern: &str) -> Result<bool> {
        compile(pattern, "", "").map(|regex| regex.is_match(text))
    }

    #[test]
    fn expressions_of_postgresql_are_understood() {
        for (text, pattern, expected) in [
            ("foo bar", "\\mbar\\M", true),
            ("foobar", "\\mbar", false),
            ("a[b", "[[]", true),
            ("a]", "[]]", true),
            ("x&y", "[&&]", true),
            ("x-y", "[a\\-]-?", true),
            ("\u{fc}", "^\\u00fc$", true),
            ("A1", "^[[:upper:]][[:digit:]]$", true),
            ("a\nb", "a.b", true),
            ("a\nb", "^b", false),
            ("(a)", "\\(a\\)", true),
        ] {
            assert_eq!(matches(text, pattern), Ok(expected), "{text} ~ {pattern}");
        }
        for pattern in ["(", "[", "a{2", "*", "\\q", "[[:nothing:]]", "\\"] {
            assert_eq!(matches("", pattern).map_err(|error| error.state), Err("2201B"), "{pattern}");
        }
        for pattern in ["(a)\\1", "a(?=b)", "(?<!a)b", "[[.a.]]"] {
            assert_eq!(matches("", pattern).unwrap_err().state, state::FEATURE_NOT_SUPPORTED, "{pattern}");
        }
        assert_eq!(matches("", &"(a{1000}){1000}".repeat(2)).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
    }
}
