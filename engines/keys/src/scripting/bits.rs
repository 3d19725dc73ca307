//! `bit`: numbers as 32 bits.

use mlua::{Lua, MultiValue, Value};

use super::{Given, LibraryFunction, number_at, text};

pub(super) const FUNCTIONS: &[(&str, LibraryFunction)] = &[
    ("tobit", |_, args| given(bits(args, 0)?)),
    ("bnot", |_, args| given(!bits(args, 0)?)),
    ("band", |_, args| fold(args, |a, b| a & b)),
    ("bor", |_, args| fold(args, |a, b| a | b)),
    ("bxor", |_, args| fold(args, |a, b| a ^ b)),
    ("lshift", |_, args| given(bits(args, 0)?.wrapping_shl(count(args)?))),
    ("rshift", |_, args| given((bits(args, 0)? as u32).wrapping_shr(count(args)?) as i32)),
    ("arshift", |_, args| given(bits(args, 0)?.wrapping_shr(count(args)?))),
    ("rol", |_, args| given(bits(args, 0)?.rotate_left(count(args)?))),
    ("ror", |_, args| given(bits(args, 0)?.rotate_right(count(args)?))),
    ("bswap", |_, args| given(bits(args, 0)?.swap_bytes())),
    ("tohex", tohex),
];

/// A number modulo 2^32, as a signed one.
fn bits(args: &[Value], index: usize) -> Result<i32, super::Refused> {
    Ok(number_at(args, index)?.round_ties_even() as i64 as i32)
}

/// How far to shift, modulo 32.
fn count(args: &[Value]) -> Result<u32, super::Refused> {
    Ok(bits(args, 1)? as u32 & 31)
}

fn given(bits: i32) -> Given {
    Ok(MultiValue::from_iter([Value::Number(f64::from(bits))]))
}

fn fold(args: &[Value], combine: fn(i32, i32) -> i32) -> Given {
    let mut result = bits(args, 0)?;
    for index in 1..args.len() {
        result = combine(result, bits(args, index)?);
    }
    given(result)
}

/// `bit.tohex(number [, digits])`: negative for capital letters
fn tohex(lua: &Lua, args: &[Value]) -> Given {
    let digits = if args.len() > 1 { bits(args, 1)? } else { 8 };
    let length = digits.unsigned_abs().min(8) as usize;
    let number = bits(args, 0)? as u32;
    let all = if digits < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    text(lua, &all.as_bytes()[8 - length..])
}
