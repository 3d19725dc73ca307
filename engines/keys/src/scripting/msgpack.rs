//! `cmsgpack`: MessagePack as Redis' scripts write and read it.

use mlua::{Lua, MultiValue, Table, Value};

use super::json::list_index;
use super::{Given, LibraryFunction, MEMORY_BYTES_MAX, Refused, Steps, bytes_at, number_at, text};

pub(super) const FUNCTIONS: &[(&str, LibraryFunction)] = &[
    ("pack", pack),
    ("unpack", |lua, args| unpack(lua, args, usize::MAX, 0).map(|(values, _)| values)),
    ("unpack_one", |lua, args| unpack_limit(lua, args, 1, 1)),
    ("unpack_limit", |lua, args| {
        let limit = number_at(args, 1)?;
        unpack_limit(lua, args, if limit > 0.0 { limit as usize } else { usize::MAX }, 2)
    }),
];

/// What is deeper is written as nil.
const DEPTH_MAX: usize = 16;

/// `cmsgpack.pack(value ...)`
fn pack(lua: &Lua, args: &[Value]) -> Given {
    if args.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let (mut out, mut steps) = (Vec::new(), Steps::of(lua));
    args.iter().try_for_each(|value| write(value, 0, &mut steps, &mut out))?;
    text(lua, &out)
}

fn write(value: &Value, depth: usize, steps: &mut Steps, out: &mut Vec<u8>) -> Result<(), Refused> {
    let before = out.len();
    if before > MEMORY_BYTES_MAX {
        return Err("not enough memory".into());
    }
    match value {
        Value::Boolean(flag) => out.push(if *flag { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => write_integer(*number, out),
        Value::Number(number) => write_number(*number, out),
        Value::String(string) => write_string(&string.as_bytes(), out),
        Value::Table(table) if depth < DEPTH_MAX => return write_table(table, depth + 1, steps, out),
        _ => out.push(0xc0),
    }
    Ok(steps.step(out.len() - before)?)
}

fn write_number(number: f64, out: &mut Vec<u8>) {
    let narrow = number as f32;
    if number as i64 as f64 == number {
        write_integer(number as i64, out);
    } else if f64::from(narrow) == number {
        out.push(0xca);
        out.extend_from_slice(&narrow.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

fn write_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        -32..=127 => out.push(number as u8),
        128..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..=0xffff => write_sized(0xcd, &(number as u16).to_be_bytes(), out),
        0x1_0000..=0xffff_ffff => write_sized(0xce, &(number as u32).to_be_bytes(), out),
        0x1_0000_0000.. => write_sized(0xcf, &number.to_be_bytes(), out),
        -128..=-33 => out.extend_from_slice(&[0xd0, number as u8]),
        -0x8000..=-129 => write_sized(0xd1, &(number as i16).to_be_bytes(), out),
        -0x8000_0000..=-0x8001 => write_sized(0xd2, &(number as i32).to_be_bytes(), out),
        _ => write_sized(0xd3, &number.to_be_bytes(), out),
    }
}

fn write_sized(mark: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(mark);
    out.extend_from_slice(bytes);
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        length @ 0..32 => out.push(0xa0 | length as u8),
        length @ 32..=0xff => out.extend_from_slice(&[0xd9, length as u8]),
        length => write_length(length, 0xda, out),
    }
    out.extend_from_slice(bytes);
}

/// A length of 16 bits behind `mark`, or of 32 behind the next one.
fn write_length(length: usize, mark: u8, out: &mut Vec<u8>) {
    match u16::try_from(length) {
        Ok(short) => write_sized(mark, &short.to_be_bytes(), out),
        Err(_) => write_sized(mark + 1, &(length as u32).to_be_bytes(), out),
    }
}

fn write_table(table: &Table, depth: usize, steps: &mut Steps, out: &mut Vec<u8>) -> Result<(), Refused> {
    steps.step(0)?;
    // One pair at a time: Lua has room for some thousand values only that are held outside of it.
    let (mut count, mut longest) = (0, Some(0));
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        steps.step(0)?;
        longest = longest.zip(list_index(&pair?.0)).map(|(longest, index): (usize, usize)| longest.max(index));
    }
    if longest == Some(count) {
        match count {
            length @ 0..16 => out.push(0x90 | length as u8),
            length => write_length(length, 0xdc, out),
        }
        return (1..=count).try_for_each(|index| write(&table.raw_get(index)?, depth, steps, out));
    }
    match count {
        length @ 0..16 => out.push(0x80 | length as u8),
        length => write_length(length, 0xde, out),
    }
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        write(&name, depth, steps, out)?;
        write(&value, depth, steps, out)?;
    }
    Ok(())
}

/// `cmsgpack.unpack_one(text [, offset])`, `cmsgpack.unpack_limit(text, limit [, offset])`: where to go on, -1 for nowhere, and
/// the values
fn unpack_limit(lua: &Lua, args: &[Value], limit: usize, offset_at: usize) -> Given {
    let offset = if args.len() > offset_at { number_at(args, offset_at)? } else { 0.0 };
    if offset < 0.0 {
        return Err("Invalid request to unpack with offset of -1 and limit of 0.".into());
    }
    let (mut values, next) = unpack(lua, args, limit, offset as usize)?;
    values.push_front(Value::Number(next.map_or(-1.0, |next| next as f64)));
    Ok(values)
}

fn unpack(lua: &Lua, args: &[Value], limit: usize, offset: usize) -> Result<(MultiValue, Option<usize>), Refused> {
    let bytes = bytes_at(args, 0)?;
    let Some(rest) = bytes.get(offset..) else {
        return Err(Refused(format!("Start offset {offset} greater than input length {}.", bytes.len())));
    };
    let mut reader = Reader { lua, rest, steps: Steps::of(lua) };
    let mut values = MultiValue::new();
    while !reader.rest.is_empty() && values.len() < limit {
        values.push_back(reader.value(0)?);
    }
    let next = (!reader.rest.is_empty()).then(|| bytes.len() - reader.rest.len());
    Ok((values, next))
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
    steps: Steps,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Refused> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| Refused::from("Missing bytes in input."))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| Refused::from("Missing bytes in input."))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn short(&mut self) -> Result<usize, Refused> {
        Ok(usize::from(u16::from_be_bytes(self.array()?)))
    }

    fn long(&mut self) -> Result<usize, Refused> {
        Ok(u32::from_be_bytes(self.array()?) as usize)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Refused> {
        /// Deeper input is refused, because it is read by recursion.
        const READ_DEPTH_MAX: usize = 200;
        if depth > READ_DEPTH_MAX {
            return Err("Bad data format in input.".into());
        }
        self.steps.step(0)?;
        let [mark] = self.array()?;
        let number = match mark {
            0..0x80 => f64::from(mark),
            0xe0.. => f64::from(mark as i8),
            0xca => f64::from(f32::from_be_bytes(self.array()?)),
            0xcb => f64::from_be_bytes(self.array()?),
            0xcc => f64::from(self.array::<1>()?[0]),
            0xcd => f64::from(u16::from_be_bytes(self.array()?)),
            0xce => f64::from(u32::from_be_bytes(self.array()?)),
            0xcf => u64::from_be_bytes(self.array()?) as f64,
            0xd0 => f64::from(self.array::<1>()?[0] as i8),
            0xd1 => f64::from(i16::from_be_bytes(self.array()?)),
            0xd2 => f64::from(i32::from_be_bytes(self.array()?)),
            0xd3 => i64::from_be_bytes(self.array()?) as f64,
            0xc0 => return Ok(Value::Nil),
            0xc2 | 0xc3 => return Ok(Value::Boolean(mark == 0xc3)),
            0xa0..0xc0 => return self.string(usize::from(mark & 31)),
            0xd9 | 0xc4 => {
                let length = usize::from(self.array::<1>()?[0]);
                return self.string(length);
            }
            0xda | 0xc5 => {
                let length = self.short()?;
                return self.string(length);
            }
            0xdb | 0xc6 => {
                let length = self.long()?;
                return self.string(length);
            }
            0x90..0xa0 => return self.list(usize::from(mark & 15), depth),
            0xdc => {
                let length = self.short()?;
                return self.list(length, depth);
            }
            0xdd => {
                let length = self.long()?;
                return self.list(length, depth);
            }
            0x80..0x90 => return self.map(usize::from(mark & 15), depth),
            0xde => {
                let length = self.short()?;
                return self.map(length, depth);
            }
            0xdf => {
                let length = self.long()?;
                return self.map(length, depth);
            }
            _ => return Err("Bad data format in input.".into()),
        };
        Ok(Value::Number(number))
    }

    fn string(&mut self, length: usize) -> Result<Value, Refused> {
        let bytes = self.bytes(length)?;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn list(&mut self, length: usize, depth: usize) -> Result<Value, Refused> {
        let table = self.lua.create_table()?;
        for index in 1..=length {
            table.raw_set(index, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value, Refused> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let name = self.value(depth + 1)?;
            if matches!(name, Value::Nil) || matches!(name, Value::Number(number) if number.is_nan()) {
                return Err("Bad data format in input.".into());
            }
            table.raw_set(name, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }
}
