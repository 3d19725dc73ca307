//! `cjson`: JSON as Redis' scripts write and read it. Strings are bytes, whatever their encoding.

use mlua::{Lua, MultiValue, Table, Value};

use super::{Given, LibraryFunction, MEMORY_BYTES_MAX, Refused, Steps, bytes_at, number_at, text};
use crate::number::general;

pub(super) const FUNCTIONS: &[(&str, LibraryFunction)] = &[
    ("encode", encode),
    ("decode", decode),
    ("encode_max_depth", encode_max_depth),
    ("decode_max_depth", decode_max_depth),
    ("encode_invalid_numbers", encode_invalid_numbers),
    ("decode_invalid_numbers", decode_invalid_numbers),
    ("encode_keep_buffer", encode_keep_buffer),
    ("encode_number_precision", encode_number_precision),
    ("encode_sparse_array", encode_sparse_array),
];

/// No text is nested deeper than this, whatever a script sets: reading and writing it go as deep.
const DEPTH_MAX: usize = 1000;

/// How a script wants texts read and written; the next one begins with the usual ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Options {
    encode_depth: usize,
    decode_depth: usize,
    /// What is written for a number that JSON has not.
    encode_invalid: InvalidNumbers,
    /// What scripts may set, and has no effect: such numbers are never read, and no buffer is kept.
    decodes_invalid: bool,
    keeps_buffer: bool,
    digits: usize,
    sparse: Sparse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    Refused,
    Written,
    Null,
}

/// When a list with places that are empty is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sparse {
    /// Whether it is written as an object then, and not refused.
    is_converted: bool,
    /// If it has so many times as many places as elements; 0 for never.
    ratio: usize,
    /// .. and more than so many places.
    safe: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            encode_depth: DEPTH_MAX,
            decode_depth: DEPTH_MAX,
            encode_invalid: InvalidNumbers::Refused,
            decodes_invalid: true,
            keeps_buffer: true,
            digits: 14,
            sparse: Sparse { is_converted: false, ratio: 2, safe: 10 },
        }
    }
}

fn options(lua: &Lua) -> Options {
    lua.app_data_ref::<Options>().map(|options| *options).unwrap_or_default()
}

/// Changes the options of the script that runs, and gives them.
fn change(lua: &Lua, change: impl FnOnce(&mut Options)) -> Options {
    let mut changed = options(lua);
    change(&mut changed);
    lua.set_app_data(changed);
    changed
}

/// Gives the next script the usual options.
pub(super) fn forget_options(lua: &Lua) {
    if options(lua) != Options::default() {
        lua.remove_app_data::<Options>();
    }
}

/// A whole number of an option, if one is given.
fn option_number(
    args: &[Value],
    index: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, Refused> {
    if matches!(args.get(index), None | Some(Value::Nil)) {
        return Ok(None);
    }
    let number = number_at(args, index)?;
    if number.fract() != 0.0 || number < *range.start() as f64 || number > *range.end() as f64 {
        let (index, least, most) = (index + 1, range.start(), range.end());
        return Err(Refused(format!("bad argument #{index} (expected integer between {least} and {most})")));
    }
    Ok(Some(number as usize))
}

/// A flag of an option, if one is given.
fn option_flag(args: &[Value], index: usize) -> Result<Option<bool>, Refused> {
    match args.get(index) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Boolean(flag)) => Ok(Some(*flag)),
        Some(Value::String(word)) if *word == "on" => Ok(Some(true)),
        Some(Value::String(word)) if *word == "off" => Ok(Some(false)),
        Some(_) => Err(Refused(format!("bad argument #{} (invalid option)", index + 1))),
    }
}

fn number(number: usize) -> Given {
    Ok(MultiValue::from_iter([Value::Number(number as f64)]))
}

fn flag(flag: bool) -> Given {
    Ok(MultiValue::from_iter([Value::Boolean(flag)]))
}

/// `cjson.encode_max_depth([depth])`
fn encode_max_depth(lua: &Lua, args: &[Value]) -> Given {
    let depth = option_number(args, 0, 1..=i32::MAX as usize)?;
    number(change(lua, |options| options.encode_depth = depth.unwrap_or(options.encode_depth)).encode_depth)
}

/// `cjson.decode_max_depth([depth])`
fn decode_max_depth(lua: &Lua, args: &[Value]) -> Given {
    let depth = option_number(args, 0, 1..=i32::MAX as usize)?;
    number(change(lua, |options| options.decode_depth = depth.unwrap_or(options.decode_depth)).decode_depth)
}

/// `cjson.encode_invalid_numbers([true | false | "null"])`
fn encode_invalid_numbers(lua: &Lua, args: &[Value]) -> Given {
    let wanted = match args.first() {
        Some(Value::String(word)) if *word == "null" => Some(InvalidNumbers::Null),
        _ => option_flag(args, 0)?.map(|is_on| if is_on { InvalidNumbers::Written } else { InvalidNumbers::Refused }),
    };
    match change(lua, |options| options.encode_invalid = wanted.unwrap_or(options.encode_invalid)).encode_invalid {
        InvalidNumbers::Null => text(lua, b"null"),
        other => flag(other == InvalidNumbers::Written),
    }
}

/// `cjson.decode_invalid_numbers([flag])`
fn decode_invalid_numbers(lua: &Lua, args: &[Value]) -> Given {
    let wanted = option_flag(args, 0)?;
    flag(change(lua, |options| options.decodes_invalid = wanted.unwrap_or(options.decodes_invalid)).decodes_invalid)
}

/// `cjson.encode_keep_buffer([flag])`
fn encode_keep_buffer(lua: &Lua, args: &[Value]) -> Given {
    let wanted = option_flag(args, 0)?;
    flag(change(lua, |options| options.keeps_buffer = wanted.unwrap_or(options.keeps_buffer)).keeps_buffer)
}

/// `cjson.encode_number_precision([digits])`
fn encode_number_precision(lua: &Lua, args: &[Value]) -> Given {
    let digits = option_number(args, 0, 1..=14)?;
    number(change(lua, |options| options.digits = digits.unwrap_or(options.digits)).digits)
}

/// `cjson.encode_sparse_array([convert [, ratio [, safe]]])`
fn encode_sparse_array(lua: &Lua, args: &[Value]) -> Given {
    let is_converted = option_flag(args, 0)?;
    let ratio = option_number(args, 1, 0..=i32::MAX as usize)?;
    let safe = option_number(args, 2, 0..=i32::MAX as usize)?;
    let Sparse { is_converted, ratio, safe } = change(lua, |options| {
        let sparse = options.sparse;
        options.sparse = Sparse {
            is_converted: is_converted.unwrap_or(sparse.is_converted),
            ratio: ratio.unwrap_or(sparse.ratio),
            safe: safe.unwrap_or(sparse.safe),
        };
    })
    .sparse;
    let numbers = [ratio, safe].map(|number| Value::Number(number as f64));
    Ok(MultiValue::from_iter([Value::Boolean(is_converted)].into_iter().chain(numbers)))
}

/// Bytes of a string between two steps.
const BYTES_BETWEEN: usize = 1 << 12;

/// `cjson.encode(value)`
fn encode(lua: &Lua, args: &[Value]) -> Given {
    let [value] = args else { return Err("expected 1 argument".into()) };
    let mut writer = Writer { options: options(lua), steps: Steps::of(lua), out: Vec::new() };
    writer.value(value, 0)?;
    text(lua, &writer.out)
}

struct Writer {
    options: Options,
    steps: Steps,
    out: Vec<u8>,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Refused> {
        let before = self.out.len();
        if before > MEMORY_BYTES_MAX {
            return Err("not enough memory".into());
        }
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            value if value.is_null() => self.out.extend_from_slice(b"null"),
            Value::Boolean(flag) => self.out.extend_from_slice(if *flag { b"true" } else { b"false" }),
            Value::Integer(number) => self.number(*number as f64),
            Value::Number(number) if !number.is_finite() => match self.options.encode_invalid {
                InvalidNumbers::Refused => {
                    return Err("Cannot serialise number: must not be NaN or Inf".into());
                }
                InvalidNumbers::Written => self.number(*number),
                InvalidNumbers::Null => self.out.extend_from_slice(b"null"),
            },
            Value::Number(number) => self.number(*number),
            Value::String(string) => write_string(&string.as_bytes(), &mut self.out),
            Value::Table(_) if depth >= self.options.encode_depth.min(DEPTH_MAX) => {
                return Err(Refused(format!("Cannot serialise, excessive depth ({})", depth + 1)));
            }
            Value::Table(table) => return self.table(table, depth + 1),
            other => return Err(Refused(format!("Cannot serialise {}: type not supported", other.type_name()))),
        }
        Ok(self.steps.step(self.out.len() - before)?)
    }

    fn number(&mut self, number: f64) {
        self.out.extend_from_slice(general(number, self.options.digits).as_bytes());
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), Refused> {
        self.steps.step(0)?;
        if let Some(length) = self.list_length(table)? {
            self.out.push(b'[');
            for index in 1..=length {
                if index > 1 {
                    self.out.push(b',');
                }
                self.value(&table.raw_get(index)?, depth)?;
            }
            self.out.push(b']');
            return Ok(());
        }
        self.out.push(b'{');
        for (index, pair) in table.pairs::<Value, Value>().enumerate() {
            let (name, value) = pair?;
            if index > 0 {
                self.out.push(b',');
            }
            let digits = self.options.digits;
            match name {
                Value::String(name) => write_string(&name.as_bytes(), &mut self.out),
                Value::Integer(number) => write_string(general(number as f64, digits).as_bytes(), &mut self.out),
                Value::Number(number) => write_string(general(number, digits).as_bytes(), &mut self.out),
                _ => return Err("Cannot serialise table: table key must be a number or string".into()),
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The length of a table that is a list: all its names are whole numbers above 0.
    fn list_length(&mut self, table: &Table) -> Result<Option<usize>, Refused> {
        let (mut longest, mut count) = (0_usize, 0_usize);
        for pair in table.pairs::<Value, Value>() {
            let Some(index) = list_index(&pair?.0) else { return Ok(None) };
            self.steps.step(0)?;
            longest = longest.max(index);
            count += 1;
        }
        let Sparse { is_converted, ratio, safe } = self.options.sparse;
        if ratio > 0 && longest > safe && longest > count.saturating_mul(ratio) {
            if is_converted {
                return Ok(None);
            }
            return Err("Cannot serialise table: excessively sparse array".into());
        }
        Ok((count > 0).then_some(longest))
    }
}

/// A place in a list.
pub(super) fn list_index(name: &Value) -> Option<usize> {
    match name {
        Value::Integer(number) => usize::try_from(*number).ok().filter(|index| *index > 0),
        Value::Number(number) if *number >= 1.0 && number.fract() == 0.0 && *number < 1e15 => Some(*number as usize),
        _ => None,
    }
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// `cjson.decode(text)`
fn decode(lua: &Lua, args: &[Value]) -> Given {
    if args.len() != 1 {
        return Err("expected 1 argument".into());
    }
    let bytes = bytes_at(args, 0)?;
    let depth_max = options(lua).decode_depth.min(DEPTH_MAX);
    let mut reader = Reader { lua, bytes: &bytes, at: 0, steps: Steps::of(lua), depth_max };
    let value = reader.value(0)?;
    reader.skip_blanks();
    if reader.at < bytes.len() {
        return Err(reader.unexpected("the end"));
    }
    Ok(MultiValue::from_iter([value]))
}

struct Reader<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
    steps: Steps,
    depth_max: usize,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, expected: &str) -> Refused {
        let found = if self.at < self.bytes.len() { "invalid token" } else { "T_END" };
        Refused(format!("Expected {expected} but found {found} at character {}", self.at + 1))
    }

    fn takes(&mut self, mark: u8) -> bool {
        self.skip_blanks();
        let is_there = self.bytes.get(self.at) == Some(&mark);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self, depth: usize) -> Result<Value, Refused> {
        if depth > self.depth_max {
            return Err(Refused(format!("Found too many nested data structures ({depth})")));
        }
        let before = self.at;
        self.skip_blanks();
        self.steps.step(self.at - before)?;
        let rest = &self.bytes[self.at..];
        match rest.first() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.list(depth + 1),
            Some(b'"') => Ok(Value::String(self.lua.create_string(self.string()?)?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in
                    [("null", Value::NULL), ("true", Value::Boolean(true)), ("false", Value::Boolean(false))]
                {
                    if rest.starts_with(word.as_bytes()) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.unexpected("value"))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Refused> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.takes(b'}') {
            return Ok(Value::Table(table));
        }
        loop {
            self.skip_blanks();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(self.unexpected("object key string"));
            }
            let name = self.lua.create_string(self.string()?)?;
            if !self.takes(b':') {
                return Err(self.unexpected("colon"));
            }
            table.raw_set(name, self.value(depth)?)?;
            if self.takes(b'}') {
                return Ok(Value::Table(table));
            }
            if !self.takes(b',') {
                return Err(self.unexpected("comma or object end"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Refused> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.takes(b']') {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            table.raw_set(index, self.value(depth)?)?;
            if self.takes(b']') {
                break;
            }
            if !self.takes(b',') {
                return Err(self.unexpected("comma or array end"));
            }
        }
        Ok(Value::Table(table))
    }

    fn number(&mut self) -> Result<Value, Refused> {
        let rest = &self.bytes[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let number = str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse::<f64>().ok());
        let number = number.ok_or_else(|| self.unexpected("value"))?;
        self.at += length;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<Vec<u8>, Refused> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(byte) = self.bytes.get(self.at) else { return Err(self.unexpected("string end")) };
            self.at += 1;
            if self.at.is_multiple_of(BYTES_BETWEEN) {
                self.steps.step(BYTES_BETWEEN)?;
            }
            match byte {
                b'"' => return Ok(out),
                0..32 => {
                    self.at -= 1;
                    return Err(self.unexpected("string without control characters"));
                }
                b'\\' => {
                    let escape = self.bytes.get(self.at).copied();
                    self.at += 1;
                    out.push(match escape {
                        Some(mark @ (b'"' | b'\\' | b'/')) => mark,
                        Some(b'b') => 8,
                        Some(b'f') => 12,
                        Some(b'n') => b'\n',
                        Some(b'r') => b'\r',
                        Some(b't') => b'\t',
                        Some(b'u') => {
                            let mut utf8 = [0; 4];
                            out.extend_from_slice(self.escaped_character()?.encode_utf8(&mut utf8).as_bytes());
                            continue;
                        }
                        _ => {
                            self.at -= 1;
                            return Err(self.unexpected("escape code"));
                        }
                    });
                }
                other => out.push(*other),
            }
        }
    }

    /// What is behind `\u`: four digits, or two times four for what is beyond 16 bits.
    fn escaped_character(&mut self) -> Result<char, Refused> {
        let first = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.unexpected("unicode escape code"));
        }
        if !self.bytes[self.at..].starts_with(b"\\u") {
            return Err(self.unexpected("unicode escape code"));
        }
        self.at += 2;
        let second = self.four_digits()?;
        let code = 0x10000 + (first - 0xd800) * 0x400 + second.wrapping_sub(0xdc00);
        let is_pair = (0xdc00..0xe000).contains(&second);
        char::from_u32(code).filter(|_| is_pair).ok_or_else(|| self.unexpected("unicode escape code"))
    }

    fn four_digits(&mut self) -> Result<u32, Refused> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|digits| str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.unexpected("unicode escape code"))?;
        self.at += 4;
        Ok(code)
    }
}
