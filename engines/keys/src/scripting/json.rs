//! `cjson`: JSON as Redis' scripts write and read it. Strings are bytes, whatever their encoding.

use mlua::{Lua, MultiValue, Table, Value};

use super::{Given, LibraryFunction, MEMORY_BYTES_MAX, Refused, Steps, bytes_at, text};
use crate::number::general;

pub(super) const FUNCTIONS: &[(&str, LibraryFunction)] = &[("encode", encode), ("decode", decode)];

const DEPTH_MAX: usize = 1000;
/// Bytes of a string between two steps.
const BYTES_BETWEEN: usize = 1 << 12;
/// A list may have so many places, whatever is in them; a longer one at most twice as many as elements.
const SPARSE_SAFE: usize = 10;

/// `cjson.encode(value)`
fn encode(lua: &Lua, args: &[Value]) -> Given {
    let [value] = args else { return Err("expected 1 argument".into()) };
    let (mut out, mut steps) = (Vec::new(), Steps::of(lua));
    write(value, 0, &mut steps, &mut out)?;
    text(lua, &out)
}

fn write(value: &Value, depth: usize, steps: &mut Steps, out: &mut Vec<u8>) -> Result<(), Refused> {
    let before = out.len();
    if before > MEMORY_BYTES_MAX {
        return Err("not enough memory".into());
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if value.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Integer(number) => out.extend_from_slice(general(*number as f64, 14).as_bytes()),
        Value::Number(number) if !number.is_finite() => {
            return Err("Cannot serialise number: must not be NaN or Inf".into());
        }
        Value::Number(number) => out.extend_from_slice(general(*number, 14).as_bytes()),
        Value::String(string) => write_string(&string.as_bytes(), out),
        Value::Table(_) if depth == DEPTH_MAX => {
            return Err(Refused(format!("Cannot serialise, excessive depth ({})", depth + 1)));
        }
        Value::Table(table) => return write_table(table, depth + 1, steps, out),
        other => return Err(Refused(format!("Cannot serialise {}: type not supported", other.type_name()))),
    }
    Ok(steps.step(out.len() - before)?)
}

fn write_table(table: &Table, depth: usize, steps: &mut Steps, out: &mut Vec<u8>) -> Result<(), Refused> {
    steps.step(0)?;
    if let Some(length) = list_length(table, steps)? {
        out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                out.push(b',');
            }
            write(&table.raw_get(index)?, depth, steps, out)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    for (index, pair) in table.pairs::<Value, Value>().enumerate() {
        let (name, value) = pair?;
        if index > 0 {
            out.push(b',');
        }
        match name {
            Value::String(name) => write_string(&name.as_bytes(), out),
            Value::Integer(number) => write_string(general(number as f64, 14).as_bytes(), out),
            Value::Number(number) => write_string(general(number, 14).as_bytes(), out),
            _ => return Err("Cannot serialise table: table key must be a number or string".into()),
        }
        out.push(b':');
        write(&value, depth, steps, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// The length of a table that is a list: all its names are whole numbers above 0.
fn list_length(table: &Table, steps: &mut Steps) -> Result<Option<usize>, Refused> {
    let (mut longest, mut count) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let Some(index) = list_index(&pair?.0) else { return Ok(None) };
        steps.step(0)?;
        longest = longest.max(index);
        count += 1;
    }
    if longest > SPARSE_SAFE && longest > 2 * count {
        return Err("Cannot serialise table: excessively sparse array".into());
    }
    Ok((count > 0).then_some(longest))
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
    let mut reader = Reader { lua, bytes: &bytes, at: 0, steps: Steps::of(lua) };
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
        if depth > DEPTH_MAX {
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
