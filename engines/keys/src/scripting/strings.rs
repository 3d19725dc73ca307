//! `string.find`, `match`, `gmatch` and `gsub`, as Lua 5.1 has them.

use std::sync::{Arc, Mutex};

use mlua::{Lua, LuaString, MultiValue, Value};

use super::pattern::{Captured, Failure, Matching, Pattern, SPECIAL};
use super::watch::Watch;
use super::{Given, LibraryFunction, MEMORY_BYTES_MAX, Refused, bytes_at, number_at, raising};

pub(super) const FUNCTIONS: &[(&str, LibraryFunction)] = &[
    ("find", |lua, args| first_match(lua, args, true)),
    ("match", |lua, args| first_match(lua, args, false)),
    ("gmatch", gmatch),
    ("gsub", gsub),
    ("substitutions", substitutions),
];

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Mistake(text) => text.into(),
            Failure::Stopped(stopped) => Self(stopped.0),
        }
    }
}

/// A text among the arguments, which is not copied unless it is a number.
fn string_at(lua: &Lua, args: &[Value], index: usize) -> Result<LuaString, Refused> {
    match args.get(index) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Ok(lua.create_string(bytes_at(args, index)?)?),
    }
}

/// A whole number among the arguments, which may be left out.
fn optional_at(args: &[Value], index: usize) -> Result<Option<i64>, Refused> {
    match args.get(index) {
        None | Some(Value::Nil) => Ok(None),
        Some(_) => number_at(args, index).map(|number| Some(number as i64)),
    }
}

fn watch_of(lua: &Lua) -> Watch {
    lua.app_data_ref::<Watch>().map(|watch| watch.clone()).unwrap_or_default()
}

fn value_of(lua: &Lua, captured: Captured<'_>) -> Result<Value, Refused> {
    Ok(match captured {
        Captured::Text(text) => Value::String(lua.create_string(text)?),
        Captured::Position(place) => Value::Number(place as f64),
    })
}

fn values_of(lua: &Lua, captured: Vec<Captured<'_>>) -> Result<Vec<Value>, Refused> {
    captured.into_iter().map(|one| value_of(lua, one)).collect()
}

/// Places are given from 1.
fn place_of(place: usize) -> Value {
    Value::Number(place as f64)
}

fn first_match(lua: &Lua, args: &[Value], finds: bool) -> Given {
    let (text, pattern) = (string_at(lua, args, 0)?, string_at(lua, args, 1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let begin = optional_at(args, 2)?.unwrap_or(1);
    let length = text.len() as i64;
    let begin = if begin < 0 { (length + begin).max(0) } else { (begin - 1).clamp(0, length) } as usize;
    let is_plain = args.get(3).is_some_and(|plain| !matches!(plain, Value::Nil | Value::Boolean(false)));
    let until_nul = &pattern[..memchr::memchr(0, &pattern).unwrap_or(pattern.len())];
    if finds && (is_plain || !until_nul.iter().any(|byte| SPECIAL.contains(byte))) {
        return Ok(match memchr::memmem::find(&text[begin..], &pattern) {
            Some(at) => MultiValue::from_iter([place_of(begin + at + 1), place_of(begin + at + pattern.len())]),
            None => MultiValue::from_iter([Value::Nil]),
        });
    }
    let (pattern, watch) = (Pattern::read(&pattern, true)?, watch_of(lua));
    let mut matching = Matching::new(&text, &pattern, &watch);
    let Some((begin, end)) = matching.find(begin)? else { return Ok(MultiValue::from_iter([Value::Nil])) };
    let mut values = Vec::new();
    if finds {
        values.extend([place_of(begin + 1), place_of(end)]);
    }
    if !finds || matching.level() > 0 {
        values.extend(values_of(lua, matching.captured(&text[begin..end])?)?);
    }
    Ok(values.into_iter().collect())
}

/// `string.gmatch(text, pattern)`: a function that gives the next match whenever it is called.
fn gmatch(lua: &Lua, args: &[Value]) -> Given {
    let (text, pattern) = (string_at(lua, args, 0)?, string_at(lua, args, 1)?);
    let pattern = Pattern::read(&pattern.as_bytes(), false)?;
    let mut place = 0;
    let next = lua.create_function_mut(move |lua, ()| {
        let text = text.as_bytes();
        let mut next = || {
            if place > text.len() {
                return Ok(MultiValue::new());
            }
            let watch = watch_of(lua);
            let mut matching = Matching::new(&text, &pattern, &watch);
            let Some((begin, end)) = matching.find(place)? else {
                place = text.len() + 1;
                return Ok(MultiValue::new());
            };
            place = if begin == end { end + 1 } else { end };
            let values = values_of(lua, matching.captured(&text[begin..end])?)?;
            Ok(values.into_iter().collect())
        };
        next().map_err(|refused| raising(lua, refused))
    })?;
    Ok(MultiValue::from_iter([Value::Function(next)]))
}

/// The matches that `gsub` replaces, one behind the other.
struct Substitutions {
    pattern: Arc<Pattern>,
    /// How many it replaces at the most.
    most: usize,
    count: usize,
    /// Up to where the text went to the result.
    taken: usize,
    /// Where the next match is looked for; none if there is none.
    place: Option<usize>,
}

/// A match with the text between it and the one before.
struct Substitution<'a> {
    before: &'a [u8],
    whole: &'a [u8],
}

impl Substitutions {
    fn new(lua: &Lua, args: &[Value]) -> Result<(LuaString, Self), Refused> {
        let (text, pattern) = (string_at(lua, args, 0)?, string_at(lua, args, 1)?);
        let most = optional_at(args, 3)?.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
        let pattern = Arc::new(Pattern::read(&pattern.as_bytes(), true)?);
        Ok((text, Self { pattern, most, count: 0, taken: 0, place: Some(0) }))
    }

    fn next<'a>(&mut self, text: &'a [u8], matching: &mut Matching<'_>) -> Result<Option<Substitution<'a>>, Failure> {
        let Some(place) = self.place.filter(|_| self.count < self.most) else { return Ok(None) };
        self.place = None;
        let Some((begin, end)) = matching.find(place)? else { return Ok(None) };
        let found = Substitution { before: &text[self.taken..begin], whole: &text[begin..end] };
        self.count += 1;
        self.taken = end;
        let next = if begin == end { end + 1 } else { end };
        self.place = (!self.pattern.is_anchored && next <= text.len()).then_some(next);
        Ok(Some(found))
    }
}

/// `string.gsub(text, pattern, text, count)`
fn gsub(lua: &Lua, args: &[Value]) -> Given {
    let (text, mut all) = Substitutions::new(lua, args)?;
    let replacement = string_at(lua, args, 2)?;
    let (text, replacement) = (text.as_bytes(), replacement.as_bytes());
    let (pattern, watch) = (Arc::clone(&all.pattern), watch_of(lua));
    let mut matching = Matching::new(&text, &pattern, &watch);
    let mut result = Vec::new();
    while let Some(found) = all.next(&text, &mut matching)? {
        result.extend_from_slice(found.before);
        replace(&mut result, &replacement, &matching, found.whole)?;
        if result.len() > MEMORY_BYTES_MAX {
            return Err("not enough memory".into());
        }
        if all.count % LOOK_EVERY == 0 {
            watch.look().map_err(Failure::from)?;
        }
    }
    result.extend_from_slice(&text[all.taken..]);
    Ok(MultiValue::from_iter([Value::String(lua.create_string(&result)?), Value::Number(all.count as f64)]))
}

/// How many replacements are made between two looks at the watch.
const LOOK_EVERY: usize = 1_000;

/// Adds what stands for a match, with `%1` and its like replaced by what was captured.
fn replace<'a>(
    result: &mut Vec<u8>,
    replacement: &[u8],
    matching: &Matching<'a>,
    whole: &'a [u8],
) -> Result<(), Refused> {
    let mut rest = replacement;
    while let Some(at) = memchr::memchr(b'%', rest) {
        result.extend_from_slice(&rest[..at]);
        match rest.get(at + 1) {
            Some(b'0') => result.extend_from_slice(whole),
            Some(digit @ b'1'..=b'9') => match matching.capture(usize::from(digit - b'1'), whole)? {
                Captured::Text(text) => result.extend_from_slice(text),
                Captured::Position(place) => result.extend_from_slice(place.to_string().as_bytes()),
            },
            Some(byte) => result.push(*byte),
            // As in C, where a text has a zero behind its end.
            None => result.push(0),
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    result.extend_from_slice(rest);
    Ok(())
}

/// The matches of `gsub(text, pattern, nil, count)` for a replacement that Lua has to work out: two functions. One gives the
/// text before the next match, the match, and its captures, or nothing; the other, what is behind the last one.
fn substitutions(lua: &Lua, args: &[Value]) -> Given {
    let (text, all) = Substitutions::new(lua, args)?;
    let all = Arc::new(Mutex::new(all));
    let (shared, subject) = (Arc::clone(&all), text.clone());
    let next = lua.create_function(move |lua, ()| {
        let next = || -> Given {
            let mut all = shared.lock().map_err(|_| Refused::from("a match had ended badly"))?;
            let text = subject.as_bytes();
            let (pattern, watch) = (Arc::clone(&all.pattern), watch_of(lua));
            let mut matching = Matching::new(&text, &pattern, &watch);
            let Some(found) = all.next(&text, &mut matching)? else { return Ok(MultiValue::new()) };
            let mut values = vec![value_of(lua, Captured::Text(found.before))?];
            values.push(value_of(lua, Captured::Text(found.whole))?);
            values.extend(values_of(lua, matching.captured(found.whole)?)?);
            Ok(values.into_iter().collect())
        };
        next().map_err(|refused| raising(lua, refused))
    })?;
    let rest = lua.create_function(move |lua, ()| {
        let taken = all.lock().map_or(0, |all| all.taken);
        lua.create_string(&text.as_bytes()[taken..])
    })?;
    Ok(MultiValue::from_iter([Value::Function(next), Value::Function(rest)]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mlua::{Function, LuaOptions, StdLib};
    use proptest::prelude::*;

    use super::super::library;
    use super::*;

    /// Gives what a function of Lua's own library and one of this gave for the same arguments, as texts.
    const BOTH: &str = r##"
        local ours = ...
        local function shown(...)
          local parts = {}
          for index = 1, select("#", ...) do
            local value = select(index, ...)
            parts[index] = type(value) .. ":" .. tostring(value)
          end
          return table.concat(parts, "|")
        end
        local function told(succeeded, ...)
          if succeeded then return shown(...) end
          return "error: " .. tostring((...)):gsub("\n.*", ""):gsub("^runtime error: ", ""):gsub("^.-:%d+: ", "")
        end
        local function all(gmatch, text, pattern)
          local found = {}
          for one, two in gmatch(text, pattern) do
            found[#found + 1] = shown(one, two)
            if #found > 100 then break end
          end
          return table.concat(found, ",")
        end
        local function calls(lib, text, pattern, begin, replacement)
          return {
            told(pcall(lib.find, text, pattern, begin)), told(pcall(lib.match, text, pattern, begin)),
            told(pcall(lib.find, text, pattern, begin, true)),
            told(pcall(all, lib.gmatch, text, pattern)),
            told(pcall(lib.gsub, text, pattern, replacement)), told(pcall(lib.gsub, text, pattern, replacement, begin)),
          }
        end
        local theirs = {find = string.find, match = string.match, gmatch = string.gmatch, gsub = string.gsub}
        return function(...)
          return table.concat(calls(theirs, ...), "\n"), table.concat(calls(ours, ...), "\n")
        end
    "##;

    fn machine() -> (Lua, Function) {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING, LuaOptions::default()).unwrap();
        let watch = Watch::default();
        watch.start(Duration::from_secs(600), Duration::ZERO);
        lua.set_app_data(watch);
        let both = lua.load(BOTH).call(library(&lua, FUNCTIONS).unwrap()).unwrap();
        (lua, both)
    }

    fn compare(both: &Function, text: &[u8], pattern: &[u8], begin: i64, replacement: &[u8]) {
        let bytes = |bytes: &[u8]| mlua::BString::from(bytes.to_vec());
        let arguments = (bytes(text), bytes(pattern), begin, bytes(replacement));
        let (theirs, ours): (mlua::BString, mlua::BString) = both.call(arguments).unwrap();
        assert_eq!(ours, theirs, "text {text:?}, pattern {pattern:?}, from {begin}, by {replacement:?}");
    }

    #[test]
    fn patterns_match_as_luas_own() {
        let (_lua, both) = machine();
        let text = b"THE (quick) fox, 2 of ((them)) = \0 k=v;  \xe9\tend";
        for pattern in [
            "",
            "^",
            "$",
            "^$",
            "%a+",
            "(%a+)",
            "()",
            "(()%w)",
            "%((%a+)%)",
            "%b()",
            "%b((",
            "%f[%a]%a+",
            "%f[^%a]",
            "[%w_]*",
            "[^%s]+",
            "[]]",
            "[^]]",
            "[]",
            "[a",
            "[a-",
            "[a-]",
            "[%a-z]",
            "[a-c-e]",
            "%",
            "%1",
            "(%1)",
            "(.)%1",
            "(x)%2",
            "%0",
            "(",
            ")",
            "(()",
            "a)",
            ".-",
            ".-o",
            ".*o",
            ".+$",
            "^T",
            "x^",
            "$x",
            "x?",
            "o?x",
            "%z",
            "[%z]",
            "%d%d?",
            "%q",
            "%.",
            "%f",
            "%fa",
            "%b",
            "%bx",
            "[[]",
            "[]-a]",
            "[%]]",
            "(%w+)=(%w+)",
            "-",
            "*",
            "+",
            "?",
            "a-",
            "[^",
            "[^%",
            "\0x",
        ] {
            for begin in [1, 5, -3, 0, 100, -100] {
                for replacement in ["", "<%0>", "%1", "%2", "%%", "%x", "x%"] {
                    compare(&both, text, pattern.as_bytes(), begin, replacement.as_bytes());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn random_patterns_match_as_luas_own(
            text in "[ab1 ()=%]{0,12}",
            pattern in prop::collection::vec(prop_oneof![
                Just("a"), Just("b"), Just("1"), Just("."), Just("%a"), Just("%d"), Just("%s"), Just("%W"), Just("[ab]"), Just("[^a]"),
                Just("[%d-b]"), Just("("), Just(")"), Just("()"), Just("%1"), Just("%b()"), Just("%f[%a]"), Just("*"), Just("+"),
                Just("-"), Just("?"), Just("^"), Just("$"), Just("["), Just("]"), Just("%"),
            ], 0..8),
            begin in -4_i64..14,
            replacement in "[x%01]{0,4}",
        ) {
            let (_lua, both) = machine();
            compare(&both, text.as_bytes(), pattern.concat().as_bytes(), begin, replacement.as_bytes());
        }
    }

    #[test]
    fn a_pattern_that_would_take_for_ever_is_stopped() {
        let text = vec![b'a'; 30_000];
        let watch = Watch::default();
        watch.start(Duration::from_millis(20), Duration::ZERO);
        let pattern = Pattern::read(b".-.-.-.-b", true).unwrap();
        assert!(matches!(Matching::new(&text, &pattern, &watch).find(0), Err(Failure::Stopped(_))));
    }

    #[test]
    fn a_pattern_of_many_parts_is_refused_before_it_exhausts_the_stack() {
        let watch = Watch::default();
        watch.start(Duration::from_secs(600), Duration::ZERO);
        let pattern = Pattern::read(&b"a?".repeat(10_000), true).unwrap();
        let text = vec![b'a'; 30_000];
        assert_eq!(Matching::new(&text, &pattern, &watch).find(0), Err(Failure::Mistake("pattern too complex")));
    }
}
