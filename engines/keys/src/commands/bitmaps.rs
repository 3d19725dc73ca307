//! Bits of strings.

use std::ops::Range;

use savanna_lattice::UnixMillis;

use super::clamp_range;
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Expiry, Keyspace, STRING_BYTES_MAX};
use crate::memory;
use crate::number::{integer, parse_integer};
use crate::reply::Reply;
use crate::request::Args;

fn parse_offset(text: &[u8]) -> Result<usize, CommandError> {
    let offset = integer(text).and_then(|offset| usize::try_from(offset).ok());
    offset
        .filter(|offset| offset / 8 < STRING_BYTES_MAX)
        .ok_or(CommandError::text("ERR bit offset is not an integer or out of range"))
}

fn bit(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset / 8).is_some_and(|byte| byte & mask(offset) != 0)
}

/// The first bit is the highest one.
const fn mask(offset: usize) -> u8 {
    0x80 >> (offset % 8)
}

/// `SETBIT key offset value`
pub fn setbit(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let offset = parse_offset(&args[2])?;
    let value = match &args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::text("ERR bit is not an integer or out of range")),
    };
    let present = keys.peek_string(&args[1])?.map_or(0, <[u8]>::len);
    memory::ask_for_value(present.max(offset / 8 + 1))?;
    let (before, is_changed) = keys.change_string(&args[1], |bytes| {
        let (before, at) = (bit(bytes, offset), offset / 8);
        let grows = bytes.len() <= at;
        if grows {
            bytes.resize(at + 1, 0);
        }
        if value {
            bytes[at] |= mask(offset);
        } else {
            bytes[at] &= !mask(offset);
        }
        let is_changed = grows || before != value;
        (is_changed.then_some(at..at + 1), (before, is_changed))
    })?;
    if is_changed {
        keys.note_event(EventClasses::STRING, "setbit", &args[1]);
    }
    reply.flag(before);
    Ok(())
}

/// `GETBIT key offset`
pub fn getbit(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let offset = parse_offset(&args[2])?;
    reply.flag(keys.string(&args[1])?.is_some_and(|bytes| bit(bytes, offset)));
    Ok(())
}

/// The bits that `start end [BYTE | BIT]` names.
fn bit_range(start: i64, end: i64, unit: Option<&[u8]>, length: usize) -> Result<Range<usize>, CommandError> {
    match unit.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"byte") => {
            let bytes = clamp_range(start, end.max(-(length as i64)), length);
            Ok(bytes.start * 8..bytes.end * 8)
        }
        Some(b"bit") => Ok(clamp_range(start, end.max(-(length as i64 * 8)), length * 8)),
        Some(_) => Err(CommandError::Syntax),
    }
}

fn ones(bytes: &[u8], range: Range<usize>) -> usize {
    let (first, last) = (range.start.div_ceil(8), range.end / 8);
    if first > last {
        return range.filter(|offset| bit(bytes, *offset)).count();
    }
    let whole: usize = bytes[first..last].iter().map(|byte| byte.count_ones() as usize).sum();
    let edges = (range.start..first * 8).chain(last * 8..range.end);
    whole + edges.filter(|offset| bit(bytes, *offset)).count()
}

/// `BITCOUNT key [start end [BYTE | BIT]]`
pub fn bitcount(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let Some(bytes) = keys.string(&args[1])? else {
        reply.integer(0);
        return Ok(());
    };
    let (start, end) = match args.len() {
        2 => (0, -1),
        4 | 5 => (parse_integer(&args[2])?, parse_integer(&args[3])?),
        _ => return Err(CommandError::Syntax),
    };
    if start < 0 && end < 0 && start > end {
        reply.integer(0);
        return Ok(());
    }
    let unit = args.from(4).next();
    reply.count(ones(bytes, bit_range(start, end, unit, bytes.len())?));
    Ok(())
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`
pub fn bitpos(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let wanted = match parse_integer(&args[2])? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::text("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let Some(bytes) = keys.string(&args[1])? else {
        reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let start = args.from(3).next().map_or(Ok(0), parse_integer)?;
    let unit = args.from(5).next();
    bit_range(0, 0, unit, 0)?;
    let end = args.from(4).next().map(parse_integer).transpose()?;
    let range = bit_range(start, end.unwrap_or(-1), unit, bytes.len())?;
    let is_empty = range.is_empty();
    let skipped = if wanted { 0x00 } else { 0xff };
    let mut at = range.start;
    let found = loop {
        if at >= range.end {
            break None;
        }
        if at % 8 == 0 && bytes[at / 8] == skipped && at + 8 <= range.end {
            at += 8;
        } else if bit(bytes, at) == wanted {
            break Some(at);
        } else {
            at += 1;
        }
    };
    reply.integer(match found {
        Some(at) => at as i64,
        // Without an end, the string is followed by zeros.
        None if !wanted && end.is_none() && !is_empty => bytes.len() as i64 * 8,
        None => -1,
    });
    Ok(())
}

/// `BITOP AND | OR | XOR | NOT destination key [key ...]`
pub fn bitop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let operation = args[1].to_ascii_lowercase();
    let combine: fn(u8, u8) -> u8 = match operation.as_slice() {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        b"not" if args.len() == 4 => |a, _| !a,
        b"not" => return Err(CommandError::text("ERR BITOP NOT must be called with a single source key.")),
        _ => return Err(CommandError::Syntax),
    };
    let mut length = 0;
    for key in args.from(3) {
        length = length.max(keys.string(key)?.map_or(0, <[u8]>::len));
    }
    memory::ask_for_value(length)?;
    keys.ask_for_log(length)?;
    let mut result = keys.peek_string(&args[3])?.unwrap_or_default().to_vec();
    result.resize(length, 0);
    if operation == b"not" {
        result.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
    }
    for key in args.from(4) {
        let other = keys.peek_string(key)?.unwrap_or_default();
        let (head, tail) = result.split_at_mut(other.len());
        head.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = combine(*mine, *theirs));
        tail.iter_mut().for_each(|mine| *mine = combine(*mine, 0));
    }
    if !result.is_empty() {
        keys.set_string(&args[2], &result, Expiry::At(UnixMillis::NEVER));
        keys.note_event(EventClasses::STRING, "set", &args[2]);
    } else if keys.delete(&args[2]) {
        keys.note_event(EventClasses::GENERIC, "del", &args[2]);
    }
    reply.count(length);
    Ok(())
}
