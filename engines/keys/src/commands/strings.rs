//! Strings.

use savanna_lattice::UnixMillis;

use super::clamp_part;
use super::expiry::{self, Unit};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Expiry, Keyspace, STRING_BYTES_MAX, Value};
use crate::memory;
use crate::number::{Digits, parse_float, parse_integer, plain};
use crate::reply::Reply;
use crate::request::Args;

/// `GET key`
pub fn get(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let value = keys.string(&args[1])?;
    reply.bulk_or_null(value);
    Ok(())
}

/// `SET key value [NX | XX] [GET] [EX seconds | PX ms | EXAT s | PXAT ms | KEEPTTL]`
pub fn set(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if args.len() == 3 {
        keys.set_string(&args[1], &args[2], Expiry::At(UnixMillis::NEVER));
        keys.note_event(EventClasses::STRING, "set", &args[1]);
        reply.ok();
        return Ok(());
    }
    let (mut nx, mut xx, mut get, mut keeps) = (false, false, false, false);
    let mut time: Option<(Unit, &[u8])> = None;
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" if !xx => nx = true,
            b"xx" if !nx => xx = true,
            b"get" => get = true,
            b"keepttl" if time.is_none() => keeps = true,
            other => {
                // The same unit may come again; the last time counts.
                let is_first = |unit: &Unit| !keeps && time.is_none_or(|(other, _)| other == *unit);
                let unit = expiry::unit_of(other).filter(is_first).ok_or(CommandError::Syntax)?;
                time = Some((unit, options.next().ok_or(CommandError::Syntax)?));
            }
        }
    }
    let expiry = match time {
        None if keeps => Expiry::Keep,
        None => Expiry::At(UnixMillis::NEVER),
        Some((unit, text)) => Expiry::At(expiry::positive_instant(keys, text, unit, "set")?),
    };
    let key = &args[1];
    let is_there = keys.contains(key);
    if get {
        reply.bulk_or_null(keys.string(key)?);
    }
    let is_set = !(nx && is_there || xx && !is_there);
    if is_set {
        set_or_drop(keys, key, &args[2], expiry);
    }
    match (get, is_set) {
        (true, _) => {}
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
    Ok(())
}

/// Writes a string, unless its time has come already: then the key is deleted.
fn set_or_drop(keys: &mut Keyspace, key: &[u8], value: &[u8], expiry: Expiry) {
    match expiry {
        Expiry::At(at) if at <= keys.now() => drop(keys.delete(key)),
        expiry => keys.set_string(key, value, expiry),
    }
    keys.note_event(EventClasses::STRING, "set", key);
    if matches!(expiry, Expiry::At(at) if at != UnixMillis::NEVER) {
        keys.note_event(EventClasses::GENERIC, "expire", key);
    }
}

/// `SETNX key value`
pub fn setnx(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let is_new = !keys.contains(&args[1]);
    if is_new {
        set_or_drop(keys, &args[1], &args[2], Expiry::At(UnixMillis::NEVER));
    }
    reply.flag(is_new);
    Ok(())
}

/// `SETEX key seconds value`
pub fn setex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    set_expiring(keys, args, reply, expiry::SECONDS, "setex")
}

/// `PSETEX key milliseconds value`
pub fn psetex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    set_expiring(keys, args, reply, expiry::MILLIS, "psetex")
}

fn set_expiring(
    keys: &mut Keyspace,
    args: Args<'_>,
    reply: &mut dyn Reply,
    unit: Unit,
    command: &'static str,
) -> Outcome {
    let at = expiry::positive_instant(keys, &args[2], unit, command)?;
    set_or_drop(keys, &args[1], &args[3], Expiry::At(at));
    reply.ok();
    Ok(())
}

/// `GETSET key value`
pub fn getset(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.bulk_or_null(keys.string(&args[1])?);
    set_or_drop(keys, &args[1], &args[2], Expiry::At(UnixMillis::NEVER));
    Ok(())
}

/// `GETDEL key`
pub fn getdel(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.bulk_or_null(keys.string(&args[1])?);
    if keys.delete(&args[1]) {
        keys.note_event(EventClasses::GENERIC, "del", &args[1]);
    }
    Ok(())
}

/// `GETEX key [EX seconds | PX ms | EXAT s | PXAT ms | PERSIST]`
pub fn getex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (unit, persists) = match args.len() {
        2 => (None, false),
        3 if args[2].eq_ignore_ascii_case(b"persist") => (None, true),
        4 => (Some(expiry::unit_of(&args[2]).ok_or(CommandError::Syntax)?), false),
        _ => return Err(CommandError::Syntax),
    };
    // What is not there expires at no time, right or wrong.
    if keys.peek_string(&args[1])?.is_none() {
        reply.bulk_or_null(keys.string(&args[1])?);
        return Ok(());
    }
    let at = unit.map(|unit| expiry::positive_instant(keys, &args[3], unit, "getex")).transpose()?;
    let expiry = at.or_else(|| persists.then_some(UnixMillis::NEVER));
    reply.bulk_or_null(keys.string(&args[1])?);
    let present = keys.peek(&args[1]).map(|entry| entry.expires_at());
    let expiry = expiry.filter(|at| *at != UnixMillis::NEVER || present != Some(UnixMillis::NEVER));
    if let Some(at) = expiry {
        expiry::expire_at(keys, &args[1], at);
    }
    Ok(())
}

/// `MGET key [key ...]`
pub fn mget(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    /// From here on a buffer that grows costs more than a look at all values.
    const LONG_BYTES: usize = 16 << 10;
    /// Of a value in a reply, beside its bytes.
    const AROUND: usize = 16;
    let byte_count = |key: &[u8]| keys.peek(key).and_then(|entry| entry.value.as_string()).map_or(0, <[u8]>::len);
    if byte_count(&args[1]) >= LONG_BYTES {
        reply.expect(args.from(1).map(|key| byte_count(key) + AROUND).sum());
    }
    reply.array(args.len() - 1);
    for key in args.from(1) {
        reply.bulk_or_null(keys.get(key).and_then(Value::as_string));
    }
    Ok(())
}

/// `MSET key value [key value ...]`
pub fn mset(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    set_pairs(keys, args, "mset")?;
    reply.ok();
    Ok(())
}

/// `MSETNX key value [key value ...]`
pub fn msetnx(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let is_new = !args.from(1).step_by(2).any(|key| keys.contains(key));
    if args.len().is_multiple_of(2) || is_new {
        set_pairs(keys, args, "msetnx")?;
    }
    reply.flag(is_new);
    Ok(())
}

fn set_pairs(keys: &mut Keyspace, args: Args<'_>, command: &str) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Arity(command.to_owned()));
    }
    for (key, value) in args.from(1).step_by(2).zip(args.from(2).step_by(2)) {
        set_or_drop(keys, key, value, Expiry::At(UnixMillis::NEVER));
    }
    Ok(())
}

/// `APPEND key value`
pub fn append(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let tail = &args[2];
    let length = keys.peek_string(&args[1])?.map_or(0, <[u8]>::len) + tail.len();
    refuse_too_long(length)?;
    let length = keys.change_string(&args[1], |bytes| {
        let from = bytes.len();
        bytes.extend_from_slice(tail);
        (Some(from..bytes.len()), bytes.len())
    })?;
    keys.note_event(EventClasses::STRING, "append", &args[1]);
    reply.count(length);
    Ok(())
}

fn refuse_too_long(length: usize) -> Outcome {
    if length > STRING_BYTES_MAX {
        return Err(CommandError::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    memory::ask_for_value(length)
}

/// `STRLEN key`
pub fn strlen(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(keys.string(&args[1])?.map_or(0, <[u8]>::len));
    Ok(())
}

/// `GETRANGE key start end`
pub fn getrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (start, end) = (parse_integer(&args[2])?, parse_integer(&args[3])?);
    let bytes = keys.string(&args[1])?.unwrap_or_default();
    reply.bulk(&bytes[clamp_part(start, end, bytes.len())]);
    Ok(())
}

/// `SETRANGE key offset value`
pub fn setrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let offset = usize::try_from(parse_integer(&args[2])?);
    let offset = offset.map_err(|_| CommandError::text("ERR offset is out of range"))?;
    let part = &args[3];
    let present = keys.peek_string(&args[1])?.map_or(0, <[u8]>::len);
    if part.is_empty() {
        reply.count(present);
        return Ok(());
    }
    refuse_too_long(offset.saturating_add(part.len()))?;
    let length = keys.change_string(&args[1], |bytes| {
        let end = offset + part.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(part);
        (Some(offset..end), bytes.len())
    })?;
    keys.note_event(EventClasses::STRING, "setrange", &args[1]);
    reply.count(length);
    Ok(())
}

/// `INCR key`
pub fn incr(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    add(keys, args, reply, 1)
}

/// `DECR key`
pub fn decr(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    add(keys, args, reply, -1)
}

/// `INCRBY key increment`
pub fn incrby(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    add(keys, args, reply, parse_integer(&args[2])?)
}

/// `DECRBY key decrement`
pub fn decrby(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let negated = parse_integer(&args[2])?.checked_neg();
    add(keys, args, reply, negated.ok_or(CommandError::text("ERR decrement would overflow"))?)
}

fn add(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, amount: i64) -> Outcome {
    let number = keys.peek_string(&args[1])?.map_or(Ok(0), parse_integer)?;
    let sum = number.checked_add(amount).ok_or(CommandError::text("ERR increment or decrement would overflow"))?;
    keys.set_string(&args[1], Digits::of(sum).as_bytes(), Expiry::Keep);
    keys.note_event(EventClasses::STRING, "incrby", &args[1]);
    reply.integer(sum);
    Ok(())
}

/// `INCRBYFLOAT key increment`
pub fn incrbyfloat(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let number = keys.peek_string(&args[1])?.map_or(Ok(0.0), parse_float)?;
    let sum = number + parse_float(&args[2])?;
    if !sum.is_finite() {
        return Err(CommandError::text("ERR increment would produce NaN or Infinity"));
    }
    let text = plain(sum);
    keys.set_string(&args[1], text.as_bytes(), Expiry::Keep);
    keys.note_event(EventClasses::STRING, "incrbyfloat", &args[1]);
    reply.bulk(text.as_bytes());
    Ok(())
}
