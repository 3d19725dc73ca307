//! `struct`: numbers and strings as bytes in a format of letters.

use mlua::{Lua, MultiValue, Value};

use super::{Given, LibraryFunction, Refused, bytes_at, number_at, text};

pub(super) const FUNCTIONS: &[(&str, LibraryFunction)] = &[("pack", pack), ("unpack", unpack), ("size", size)];

/// The largest alignment of `!`.
const ALIGNMENT_MAX: usize = 8;
const INTEGER_BYTES_MAX: usize = 32;

/// One thing in a format.
enum Field {
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// A string that ends with a zero.
    Zero,
    /// A string of this length; 0 for that of the argument, or of the number before it.
    Fixed(usize),
    Padding,
}

/// A format, read letter by letter.
struct Format<'a> {
    rest: &'a [u8],
    is_little: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    const fn new(format: &'a [u8]) -> Self {
        Self { rest: format, is_little: true, alignment: 1 }
    }

    fn number(&mut self) -> Result<Option<usize>, Refused> {
        let digits = self.rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if number.is_empty() {
            return Ok(None);
        }
        let number = str::from_utf8(number).ok().and_then(|number| number.parse::<i32>().ok());
        number.map(|number| Some(number as usize)).ok_or_else(|| "integral size overflow".into())
    }

    fn integer(&mut self, default: usize, is_signed: bool) -> Result<Field, Refused> {
        let bytes = self.number()?.unwrap_or(default);
        if bytes == 0 || bytes > INTEGER_BYTES_MAX {
            return Err(Refused(format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}")));
        }
        Ok(Field::Integer { bytes, is_signed })
    }

    fn next(&mut self) -> Result<Option<Field>, Refused> {
        while let Some((letter, rest)) = self.rest.split_first() {
            self.rest = rest;
            let integer = |bytes, is_signed| Field::Integer { bytes, is_signed };
            return Ok(Some(match letter {
                b'b' => integer(1, true),
                b'B' => integer(1, false),
                b'h' => integer(2, true),
                b'H' => integer(2, false),
                b'l' => integer(8, true),
                b'L' | b'T' => integer(8, false),
                b'i' => self.integer(4, true)?,
                b'I' => self.integer(4, false)?,
                b'f' => Field::Float,
                b'd' => Field::Double,
                b's' => Field::Zero,
                b'x' => Field::Padding,
                b'c' => Field::Fixed(self.number()?.unwrap_or(1)),
                b' ' => continue,
                b'<' | b'=' | b'>' => {
                    self.is_little = *letter != b'>';
                    continue;
                }
                b'!' => {
                    let alignment = self.number()?.unwrap_or(ALIGNMENT_MAX);
                    if !alignment.is_power_of_two() {
                        return Err("alignment is not a power of 2".into());
                    }
                    self.alignment = alignment;
                    continue;
                }
                other => return Err(Refused(format!("invalid format option '{}'", char::from(*other)))),
            }));
        }
        Ok(None)
    }

    /// How many bytes are left out before a field, so that it is aligned.
    fn gap(&self, field: &Field, at: usize) -> usize {
        let size = match field {
            Field::Integer { bytes, .. } => *bytes,
            Field::Float => 4,
            Field::Double => 8,
            Field::Zero | Field::Fixed(_) | Field::Padding => return 0,
        };
        let alignment = size.min(self.alignment);
        if alignment > 1 { (alignment - (at & (alignment - 1))) & (alignment - 1) } else { 0 }
    }
}

/// `struct.pack(format, value ...)`
fn pack(lua: &Lua, args: &[Value]) -> Given {
    let format = bytes_at(args, 0)?;
    let mut format = Format::new(&format);
    let mut out = Vec::new();
    let mut at = 1;
    while let Some(field) = format.next()? {
        out.resize(out.len() + format.gap(&field, out.len()), 0);
        match field {
            Field::Integer { bytes, .. } => {
                let number = number_at(args, at)?;
                let number = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                let mut little = [0; INTEGER_BYTES_MAX];
                little[..8].copy_from_slice(&number.to_le_bytes());
                let little = &mut little[..bytes];
                if !format.is_little {
                    little.reverse();
                }
                out.extend_from_slice(little);
            }
            Field::Float => {
                let number = number_at(args, at)? as f32;
                out.extend(if format.is_little { number.to_le_bytes() } else { number.to_be_bytes() });
            }
            Field::Double => {
                let number = number_at(args, at)?;
                out.extend(if format.is_little { number.to_le_bytes() } else { number.to_be_bytes() });
            }
            Field::Zero => {
                out.extend(bytes_at(args, at)?);
                out.push(0);
            }
            Field::Fixed(length) => {
                let bytes = bytes_at(args, at)?;
                let length = if length == 0 { bytes.len() } else { length };
                out.extend_from_slice(bytes.get(..length).ok_or_else(|| Refused::from("string too short"))?);
            }
            Field::Padding => {
                out.push(0);
                continue;
            }
        }
        at += 1;
    }
    text(lua, &out)
}

/// `struct.unpack(format, text [, position])`: the values, and the position behind them
fn unpack(lua: &Lua, args: &[Value]) -> Given {
    let (format, data) = (bytes_at(args, 0)?, bytes_at(args, 1)?);
    let mut format = Format::new(&format);
    let start = if args.len() > 2 { number_at(args, 2)? } else { 1.0 };
    if start < 1.0 {
        return Err("offset must be 1 or greater".into());
    }
    let mut at = start as usize - 1;
    let mut values = MultiValue::new();
    while let Some(field) = format.next()? {
        at = at.saturating_add(format.gap(&field, at));
        let part = |length: usize| {
            let end = at.checked_add(length);
            end.and_then(|end| data.get(at..end)).ok_or_else(|| Refused::from("data string too short"))
        };
        let value = match field {
            Field::Integer { bytes, is_signed } => {
                let mut little = part(bytes)?.to_vec();
                if !format.is_little {
                    little.reverse();
                }
                at += bytes;
                Value::Number(integer(&little, is_signed))
            }
            Field::Float => {
                let bytes: [u8; 4] = part(4)?.try_into().unwrap_or_default();
                at += 4;
                Value::Number(f64::from(if format.is_little {
                    f32::from_le_bytes(bytes)
                } else {
                    f32::from_be_bytes(bytes)
                }))
            }
            Field::Double => {
                let bytes: [u8; 8] = part(8)?.try_into().unwrap_or_default();
                at += 8;
                Value::Number(if format.is_little { f64::from_le_bytes(bytes) } else { f64::from_be_bytes(bytes) })
            }
            Field::Zero => {
                let rest = data.get(at..).unwrap_or_default();
                let length = rest
                    .iter()
                    .position(|byte| *byte == 0)
                    .ok_or_else(|| Refused::from("unfinished string in data"))?;
                at += length + 1;
                Value::String(lua.create_string(&rest[..length])?)
            }
            Field::Fixed(length) => {
                let length = match (length, values.pop_back()) {
                    (0, Some(Value::Number(number))) if number >= 0.0 => number as usize,
                    (0, _) => return Err("format 'c0' needs a previous size".into()),
                    (length, Some(before)) => {
                        values.push_back(before);
                        length
                    }
                    (length, None) => length,
                };
                let string = lua.create_string(part(length)?)?;
                at += length;
                Value::String(string)
            }
            Field::Padding => {
                part(1)?;
                at += 1;
                continue;
            }
        };
        values.push_back(value);
    }
    values.push_back(Value::Number((at + 1) as f64));
    Ok(values)
}

/// A number of up to 8 bytes that count, the lowest first.
fn integer(little: &[u8], is_signed: bool) -> f64 {
    let is_negative = is_signed && little.last().is_some_and(|byte| *byte >= 0x80);
    let mut bytes = [if is_negative { 0xff } else { 0 }; 8];
    let length = little.len().min(8);
    bytes[..length].copy_from_slice(&little[..length]);
    if is_signed { i64::from_le_bytes(bytes) as f64 } else { u64::from_le_bytes(bytes) as f64 }
}

/// `struct.size(format)`
fn size(_: &Lua, args: &[Value]) -> Given {
    let format = bytes_at(args, 0)?;
    let mut format = Format::new(&format);
    let mut total = 0_usize;
    while let Some(field) = format.next()? {
        total += format.gap(&field, total);
        total += match field {
            Field::Integer { bytes, .. } => bytes,
            Field::Float => 4,
            Field::Double => 8,
            Field::Padding => 1,
            Field::Fixed(0) => return Err("variable-length format".into()),
            Field::Fixed(length) => length,
            Field::Zero => return Err("variable-size format in size".into()),
        };
    }
    Ok(MultiValue::from_iter([Value::Number(total as f64)]))
}
