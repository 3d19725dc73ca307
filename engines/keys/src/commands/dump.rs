//! Values as bytes, to be kept by clients and put back here or elsewhere: in the form of Redis ([`crate::keyspace::payload`]).

use savanna_lattice::UnixMillis;

use crate::error::{CommandError, Outcome};
use crate::keyspace::entry::LATEST_EXPIRY;
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Keyspace, PastUse, payload};
use crate::memory;
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

/// `DUMP key`
pub fn dump(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    match keys.get(&args[1]) {
        None => reply.null(),
        Some(value) => {
            memory::ask_for_value(value.heap_bytes())?;
            reply.bulk(&payload::dump(value));
        }
    }
    Ok(())
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`
pub fn restore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (mut replaces, mut is_absolute, mut used) = (false, false, None);
    let mut options = args.from(4);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"absttl" => is_absolute = true,
            b"idletime" if !matches!(used, Some(PastUse::Count(_))) => {
                let seconds = u64::try_from(parse_integer(options.next().ok_or(CommandError::Syntax)?)?)
                    .map_err(|_| CommandError::text("ERR Invalid IDLETIME value, must be >= 0"))?;
                used = Some(PastUse::Idle(u16::try_from(seconds).unwrap_or(u16::MAX)));
            }
            b"freq" if !matches!(used, Some(PastUse::Idle(_))) => {
                let count = u8::try_from(parse_integer(options.next().ok_or(CommandError::Syntax)?)?);
                let refusal = |_| CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255");
                used = Some(PastUse::Count(count.map_err(refusal)?));
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    if !replaces && keys.contains(&args[1]) {
        return Err(CommandError::text("BUSYKEY Target key name already exists."));
    }
    let millis = u64::try_from(parse_integer(&args[2])?)
        .map_err(|_| CommandError::text("ERR Invalid TTL value, must be >= 0"))?;
    let value = payload::restore(&args[3]).map_err(|error| CommandError::from(error.to_string()))?;
    let expires_at = match millis {
        0 => UnixMillis::NEVER,
        at if is_absolute => UnixMillis(at).min(LATEST_EXPIRY),
        millis => UnixMillis(keys.now().0.saturating_add(millis)).min(LATEST_EXPIRY),
    };
    keys.check_may_be_at(keys.selected(), &args[1], &value)?;
    if expires_at > keys.now() {
        keys.ask_for_log(value.whole_bytes() + args[1].len())?;
        keys.put_as_new(&args[1], value, expires_at);
        if let Some(used) = used {
            keys.set_use(&args[1], used);
        }
        keys.note_event(EventClasses::GENERIC, "restore", &args[1]);
        keys.expire_fields_of(&args[1], usize::MAX);
    } else if keys.delete(&args[1]) {
        keys.note_event(EventClasses::GENERIC, "del", &args[1]);
    }
    reply.ok();
    Ok(())
}
