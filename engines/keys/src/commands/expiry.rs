//! When keys expire.

use savanna_lattice::UnixMillis;

use crate::error::{CommandError, Outcome};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::LATEST_EXPIRY;
use crate::keyspace::events::EventClasses;
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

/// A unit of time in a request, and whether it counts from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    millis: i64,
    is_relative: bool,
}

impl Unit {
    /// So many of it after 1970, or after `now`; none if that is no time.
    #[must_use]
    pub fn after(self, number: u64, now: UnixMillis) -> Option<UnixMillis> {
        let base = if self.is_relative { now.0 } else { 0 };
        number.checked_mul(self.millis.unsigned_abs())?.checked_add(base).map(UnixMillis)
    }
}

/// Seconds from now.
pub const SECONDS: Unit = Unit { millis: 1000, is_relative: true };
/// Milliseconds from now.
pub const MILLIS: Unit = Unit { millis: 1, is_relative: true };
/// Seconds since 1970.
pub const UNIX_SECONDS: Unit = Unit { millis: 1000, is_relative: false };
/// Milliseconds since 1970.
pub const UNIX_MILLIS: Unit = Unit { millis: 1, is_relative: false };

/// The unit of an option such as `EX`.
#[must_use]
pub fn unit_of(option: &[u8]) -> Option<Unit> {
    match option.to_ascii_lowercase().as_slice() {
        b"ex" => Some(SECONDS),
        b"px" => Some(MILLIS),
        b"exat" => Some(UNIX_SECONDS),
        b"pxat" => Some(UNIX_MILLIS),
        _ => None,
    }
}

/// The instant that a request means, [`LATEST_EXPIRY`] at the latest; one before 1970 is 0.
///
/// # Errors
/// If it is no number or out of range.
pub fn instant(keys: &Keyspace, text: &[u8], unit: Unit, command: &'static str) -> Result<UnixMillis, CommandError> {
    let number = parse_integer(text)?;
    let base = if unit.is_relative { keys.now().0 as i64 } else { 0 };
    let millis = number.checked_mul(unit.millis).and_then(|millis| millis.checked_add(base));
    let millis = millis.ok_or(CommandError::Expiry(command))?;
    Ok(UnixMillis(millis.max(0) as u64).min(LATEST_EXPIRY))
}

/// As [`instant`], for commands that refuse what is not after 0.
///
/// # Errors
/// As there.
pub fn positive_instant(
    keys: &Keyspace,
    text: &[u8],
    unit: Unit,
    command: &'static str,
) -> Result<UnixMillis, CommandError> {
    if parse_integer(text)? <= 0 {
        return Err(CommandError::Expiry(command));
    }
    instant(keys, text, unit, command)
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub fn expire(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, SECONDS, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub fn pexpire(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, MILLIS, "pexpire")
}

/// `EXPIREAT key unix-seconds [NX | XX | GT | LT]`
pub fn expireat(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, UNIX_SECONDS, "expireat")
}

/// `PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]`
pub fn pexpireat(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, UNIX_MILLIS, "pexpireat")
}

fn expire_in(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, unit: Unit, command: &'static str) -> Outcome {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in args.from(3) {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            _ => return Err(CommandError::from(format!("ERR Unsupported option {}", option.escape_ascii()))),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(CommandError::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if gt && lt {
        return Err(CommandError::text("ERR GT and LT options at the same time are not compatible"));
    }
    let at = instant(keys, &args[2], unit, command)?;
    let Some(entry) = keys.peek(&args[1]) else {
        reply.integer(0);
        return Ok(());
    };
    let present = entry.expires_at();
    let is_bound = present != UnixMillis::NEVER;
    let refused = nx && is_bound || xx && !is_bound || gt && at <= present || lt && is_bound && at >= present;
    reply.flag(!refused && expire_at(keys, &args[1], at));
    Ok(())
}

/// Lets a key that is there expire at a time, or never; notes the event. Says whether it is there.
pub(super) fn expire_at(keys: &mut Keyspace, key: &[u8], at: UnixMillis) -> bool {
    let is_there = keys.expire(key, at);
    if is_there {
        let event = match at {
            UnixMillis::NEVER => "persist",
            at if at <= keys.now() => "del",
            _ => "expire",
        };
        keys.note_event(EventClasses::GENERIC, event, key);
    }
    is_there
}

/// `PERSIST key`
pub fn persist(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let is_bound = keys.peek(&args[1]).is_some_and(|entry| entry.expires_at() != UnixMillis::NEVER);
    reply.flag(is_bound && expire_at(keys, &args[1], UnixMillis::NEVER));
    Ok(())
}

/// `TTL key`
pub fn ttl(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = keys.now();
    answer_expiry(keys, args, reply, |at| ((at.0 - now.0) as i64 + 500) / 1000)
}

/// `PTTL key`
pub fn pttl(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = keys.now();
    answer_expiry(keys, args, reply, |at| (at.0 - now.0) as i64)
}

/// `EXPIRETIME key`
pub fn expiretime(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_expiry(keys, args, reply, |at| (at.0 as i64 + 500) / 1000)
}

/// `PEXPIRETIME key`
pub fn pexpiretime(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_expiry(keys, args, reply, |at| at.0 as i64)
}

fn answer_expiry(
    keys: &mut Keyspace,
    args: Args<'_>,
    reply: &mut dyn Reply,
    shown: impl FnOnce(UnixMillis) -> i64,
) -> Outcome {
    reply.integer(match keys.look(&args[1]).map(|entry| entry.expires_at()) {
        None => -2,
        Some(UnixMillis::NEVER) => -1,
        Some(at) => shown(at),
    });
    Ok(())
}
