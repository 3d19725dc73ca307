//! Values as bytes, to be kept by clients and put back here or elsewhere.
//!
//! ```text
//! ┌──────┬─────────┬───────────┬─────────┐
//! │ type │ content │ version 1 │ CRC-32C │   content: as in the log (see `crate::delta`); CRC-32C: of all before it
//! └──────┴─────────┴───────────┴─────────┘
//!  1                2           4
//! ```

use savanna_lattice::UnixMillis;

use crate::delta::STRING_TAG;
use crate::error::{CommandError, Outcome};
use crate::keyspace::entry::LATEST_EXPIRY;
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection as _, Keyspace, List, Value, content_of, value_of};
use crate::memory;
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

const VERSION: u16 = 1;

/// `DUMP key`
pub fn dump(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    match keys.get(&args[1]) {
        None => reply.null(),
        Some(value) => {
            memory::ask_for_value(value.heap_bytes())?;
            let (tag, mut payload) = content_of(value);
            payload.insert(0, tag);
            payload.extend_from_slice(&VERSION.to_le_bytes());
            payload.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
            reply.bulk(&payload);
        }
    }
    Ok(())
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`
pub fn restore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (mut replaces, mut is_absolute) = (false, false);
    let mut options = args.from(4);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"absttl" => is_absolute = true,
            b"idletime" => {
                if parse_integer(options.next().ok_or(CommandError::Syntax)?)? < 0 {
                    return Err(CommandError::text("ERR Invalid IDLETIME value, must be >= 0"));
                }
            }
            b"freq" => {
                if !(0..=255).contains(&parse_integer(options.next().ok_or(CommandError::Syntax)?)?) {
                    return Err(CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    if !replaces && keys.contains(&args[1]) {
        return Err(CommandError::text("BUSYKEY Target key name already exists."));
    }
    let millis = u64::try_from(parse_integer(&args[2])?)
        .map_err(|_| CommandError::text("ERR Invalid TTL value, must be >= 0"))?;
    let (tag, content) =
        opened(&args[3]).ok_or(CommandError::text("ERR DUMP payload version or checksum are wrong"))?;
    let value = parse_value(tag, content).ok_or(CommandError::text("ERR Bad data format"))?;
    let expires_at = match millis {
        0 => UnixMillis::NEVER,
        at if is_absolute => UnixMillis(at).min(LATEST_EXPIRY),
        millis => UnixMillis(keys.now().0.saturating_add(millis)).min(LATEST_EXPIRY),
    };
    if expires_at > keys.now() {
        keys.put_as_new(&args[1], value, expires_at);
        keys.note_event(EventClasses::GENERIC, "restore", &args[1]);
    } else if keys.delete(&args[1]) {
        keys.note_event(EventClasses::GENERIC, "del", &args[1]);
    }
    reply.ok();
    Ok(())
}

/// The value of a content that is just as `DUMP` writes it: nothing is added and removed again, or empty in the end.
fn parse_value(tag: u8, content: &[u8]) -> Option<Value> {
    if tag == List::TAG && !List::is_plain(content) || tag != STRING_TAG && content.is_empty() {
        return None;
    }
    let value = value_of(tag, content).ok()?;
    let (_, written) = content_of(&value);
    (written == content).then_some(value)
}

/// Type and content of a payload of this version that is whole.
fn opened(payload: &[u8]) -> Option<(u8, &[u8])> {
    let (checked, checksum) = payload.split_last_chunk()?;
    let (value, version) = checked.split_last_chunk()?;
    let (tag, content) = value.split_first()?;
    let is_whole = crc32c::crc32c(checked) == u32::from_le_bytes(*checksum);
    (is_whole && u16::from_le_bytes(*version) == VERSION).then_some((*tag, content))
}
