//! Functions over text with regular expressions, in the syntax of the `regex` crate: no look-around, no back-references, and in
//! return time that grows with the text alone, whatever the pattern.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBuilder, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::ScalarUDF;
use regex::{CaptureLocations, Regex, Replacer};

use super::budget;
use super::definition::{Call, Definition, boolean, parts, text};

const TEXT: DataType = DataType::Utf8View;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Definition::exact("regexp", &[&[TEXT, TEXT]], boolean, regexp),
        Definition::exact("regexp_extract", &[&[TEXT, TEXT], &[TEXT, TEXT, DataType::Int64]], text, extract),
        Definition::exact("regexp_replace", &[&[TEXT, TEXT, TEXT]], text, replace),
    ]
}

/// `REGEXP(text, pattern)`: whether the pattern is found somewhere in the text.
fn regexp(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.texts(0)?, call.texts(1)?);
    let mut compiled = Compiled::new("REGEXP");
    let mut out = BooleanBuilder::with_capacity(call.rows());
    for row in 0..call.rows() {
        out.append_option(match (texts.get(row), patterns.get(row)) {
            (Some(text), Some(pattern)) => Some(compiled.get(pattern)?.regex.is_match(text)),
            _ => None,
        });
    }
    Ok(Arc::new(out.finish()))
}

/// `REGEXP_EXTRACT(text, pattern [, group])`: the group of the first match (0, all of it, if none is named), or NULL.
fn extract(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.texts(0)?, call.texts(1)?);
    let groups = if call.arguments() == 3 { Some(call.integers(2)?) } else { None };
    let mut compiled = Compiled::new("REGEXP_EXTRACT");
    parts(&texts, call.rows(), |row, text| {
        let group = groups.as_ref().map_or(Some(0), |groups| groups.get(row));
        Ok(match patterns.get(row).zip(group) {
            Some((pattern, group)) => compiled.get(pattern)?.group(text, group),
            None => None,
        })
    })
}

/// `REGEXP_REPLACE(text, pattern, replacement)`: every match is replaced; `$1` in the replacement is a group of the match.
fn replace(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns, replacements) = (call.texts(0)?, call.texts(1)?, call.texts(2)?);
    let mut compiled = Compiled::new("REGEXP_REPLACE");
    let mut out = StringViewBuilder::with_capacity(call.rows());
    let mut room = budget::left();
    for row in 0..call.rows() {
        match (texts.get(row), patterns.get(row), replacements.get(row)) {
            (Some(text), Some(pattern), Some(replacement)) => {
                let replaced =
                    replace_all(&compiled.get(pattern)?.regex, text, &replacement_of_java(replacement), room)?;
                room = room.saturating_sub(replaced.len() as u64);
                out.append_value(replaced);
            }
            _ => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// [`Regex::replace_all`], as far as there is room for the result.
fn replace_all<'t>(regex: &Regex, text: &'t str, mut by: &str, room: u64) -> Result<Cow<'t, str>> {
    let check = |bytes: usize| match bytes as u64 <= room {
        true => Ok(()),
        false => Err(budget::too_large("REGEXP_REPLACE", bytes as u128)),
    };
    let (mut out, mut done) = (None, 0);
    let mut put = |place: Range<usize>, groups: usize, append: &mut dyn FnMut(&mut String)| -> Result<()> {
        let out = out.get_or_insert_with(String::new);
        out.push_str(&text[done..place.start]);
        check(out.len().saturating_add(by.len()).saturating_add(groups.saturating_mul(place.len())))?;
        append(out);
        done = place.end;
        Ok(())
    };
    match by.no_expansion() {
        Some(plain) => {
            regex.find_iter(text).try_for_each(|found| put(found.range(), 0, &mut |out| out.push_str(&plain)))?
        }
        None => {
            let groups = by.matches('$').count();
            let mut append = by;
            for found in regex.captures_iter(text) {
                put(found.get_match().range(), groups, &mut |out| append.replace_append(&found, out))?;
            }
        }
    }
    let Some(mut out) = out else { return Ok(Cow::Borrowed(text)) };
    out.push_str(&text[done..]);
    check(out.len())?;
    Ok(Cow::Owned(out))
}

/// `$1x` means group 1 and an x in Java, but the group `1x` in Rust; and `\$` is a dollar.
fn replacement_of_java(replacement: &str) -> String {
    let mut out = String::with_capacity(replacement.len() + 8);
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('$') | None => out.push_str("$$"),
                Some(other) => out.push(other),
            },
            '$' if chars.peek().is_some_and(char::is_ascii_digit) => {
                out.push_str("${");
                out.extend(chars.next());
                out.push('}');
            }
            '$' if chars.peek() != Some(&'{') => out.push_str("$$"),
            other => out.push(other),
        }
    }
    out
}

/// A pattern, ready to be matched. `function` is named in errors.
pub(super) fn compiled(pattern: &str, function: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|e| {
        // Before the reason, in its last line, it draws the place.
        let text = e.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        exec_datafusion_err!("{function}: '{pattern}' is not a valid regular expression: {reason}")
    })
}

/// A pattern and what its matching needs.
struct Matcher {
    regex: Regex,
    places: RefCell<CaptureLocations>,
}

impl Matcher {
    /// A group of the first match.
    fn group<'t>(&self, text: &'t str, group: i64) -> Option<&'t str> {
        if group == 0 {
            return self.regex.find(text).map(|found| found.as_str());
        }
        let mut places = self.places.borrow_mut();
        self.regex.captures_read(&mut places, text)?;
        places.get(usize::try_from(group).ok()?).map(|(start, end)| &text[start..end])
    }
}

/// The patterns that a thread keeps; a query has few, and uses them for each of its batches.
const KEPT_MAX: usize = 64;

thread_local! {
    static KEPT: RefCell<HashMap<String, Rc<Matcher>>> = RefCell::default();
}

/// Compiled patterns for one call.
struct Compiled {
    function: &'static str,
    last: Option<(String, Rc<Matcher>)>,
}

impl Compiled {
    fn new(function: &'static str) -> Self {
        Self { function, last: None }
    }

    fn get(&mut self, pattern: &str) -> Result<&Matcher> {
        let last = match self.last.take() {
            Some((last, matcher)) if last == pattern => (last, matcher),
            _ => (pattern.to_owned(), KEPT.with_borrow_mut(|kept| self.compile(pattern, kept))?),
        };
        Ok(&self.last.insert(last).1)
    }

    fn compile(&self, pattern: &str, kept: &mut HashMap<String, Rc<Matcher>>) -> Result<Rc<Matcher>> {
        if let Some(matcher) = kept.get(pattern) {
            return Ok(Rc::clone(matcher));
        }
        let regex = compiled(pattern, self.function)?;
        let places = RefCell::new(regex.capture_locations());
        let matcher = Rc::new(Matcher { regex, places });
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(pattern.to_owned(), Rc::clone(&matcher));
        Ok(matcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_those_of_java() {
        let replace = |text: &str, pattern: &str, by: &str| {
            Regex::new(pattern).unwrap().replace_all(text, replacement_of_java(by).as_str()).into_owned()
        };
        assert_eq!(replace("ab ab", "(a)(b)", "$2$1x"), "bax bax");
        assert_eq!(replace("5", "5", "\\$1"), "$1");
        assert_eq!(replace("5", "5", "US$"), "US$");
        assert_eq!(replace("k=v", "(?<key>.)=.", "${key}"), "k");
    }
}
