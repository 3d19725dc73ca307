//! Streams.

mod groups;
mod info;
mod options;
mod reading;

pub(crate) use self::groups::xgroup_adds;
pub use self::groups::{xack, xautoclaim, xclaim, xgroup, xpending};
pub use self::info::xinfo;
pub(crate) use self::reading::{LAST_IDS, block_millis, names_last, wanted_of, with_last_ids};
pub use self::reading::{xread, xreadgroup};

use self::options::{Addition, NewId, next_of, parse_bound, parse_id, parse_trim, previous_of};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection as _, Keyspace, Stream, StreamEntry, StreamId, StreamOperation};
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

fn answer_id(id: StreamId, reply: &mut dyn Reply) {
    reply.bulk(id.to_string().as_bytes());
}

/// An entry as its number and a list of its fields and values.
fn answer_entry(entry: &StreamEntry<'_>, reply: &mut dyn Reply) {
    reply.array(2);
    answer_id(entry.id, reply);
    reply.array(2 * entry.fields().count());
    for (field, value) in entry.fields() {
        reply.bulk(field);
        reply.bulk(value);
    }
}

fn answer_entries(entries: &[StreamEntry<'_>], reply: &mut dyn Reply) {
    reply.array(entries.len());
    entries.iter().for_each(|entry| answer_entry(entry, reply));
}

/// `XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value [field value ...]`
pub fn xadd(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let Addition { id, creates, trim, first } = Addition::parse(args, keys.encodings.stream_block.entries)?;
    let words: Vec<&[u8]> = args.from(first).collect();
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return Err(CommandError::Arity("xadd".to_owned()));
    }
    if id == NewId::Given(StreamId::MIN) {
        return Err(CommandError::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = &args[1];
    if keys.peek_collection::<Stream>(key)?.is_none() && !creates {
        reply.null();
        return Ok(());
    }
    let (now, limits) = (keys.now().0, keys.encodings.stream_block);
    let (id, trimmed) = keys.change::<Stream, _>(key, |stream| {
        let last = stream.last();
        let Some(following) = last.next() else {
            return Err(CommandError::text(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        };
        let id = match id {
            NewId::Given(id) => id,
            NewId::Now if now > last.millis => StreamId { millis: now, count: 0 },
            NewId::Now => following,
            // One in another millisecond is refused below.
            NewId::At(millis) if millis == last.millis => StreamId { millis, count: last.count.wrapping_add(1) },
            NewId::At(millis) => StreamId { millis, count: 0 },
        };
        if id <= last {
            return Err(CommandError::text(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ));
        }
        stream.limit_blocks(limits);
        stream.perform(&StreamOperation::Add { id, words });
        let trimmed = trim.map_or(0, |trim| stream.trimmed(trim));
        if trimmed > 0 {
            stream.perform(&StreamOperation::Trim(trimmed));
        }
        Ok((id, trimmed))
    })?;
    keys.note_ready(key);
    keys.note_event(EventClasses::STREAM, "xadd", key);
    if trimmed > 0 {
        keys.note_event(EventClasses::STREAM, "xtrim", key);
    }
    answer_id(id, reply);
    Ok(())
}

/// `XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count]`
pub fn xtrim(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let trim = parse_trim(args, keys.encodings.stream_block.entries)?;
    let trimmed = keys.change_present::<Stream, _>(&args[1], |stream| {
        let count = stream.trimmed(trim);
        if count > 0 {
            stream.perform(&StreamOperation::Trim(count));
        }
        Ok(count)
    })?;
    let trimmed = trimmed.unwrap_or(0);
    if trimmed > 0 {
        keys.note_event(EventClasses::STREAM, "xtrim", &args[1]);
    }
    reply.count(trimmed);
    Ok(())
}

/// `XDEL key id [id ...]`
pub fn xdel(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let deleted = keys.change_present::<Stream, _>(&args[1], |stream| {
        let ids = args.from(2).map(|text| parse_id(text, 0)).collect::<Result<Vec<_>, _>>()?;
        let mut deleted = 0;
        for id in ids {
            if stream.contains(id) {
                stream.perform(&StreamOperation::Delete(id));
                deleted += 1;
            }
        }
        Ok(deleted)
    })?;
    let deleted = deleted.unwrap_or(0);
    if deleted > 0 {
        keys.note_event(EventClasses::STREAM, "xdel", &args[1]);
    }
    reply.count(deleted);
    Ok(())
}

/// `XLEN key`
pub fn xlen(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(keys.collection::<Stream>(&args[1])?.map_or(0, Stream::len));
    Ok(())
}

/// `XRANGE key start end [COUNT count]`
pub fn xrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    range(keys, args, reply, (2, 3), |stream, low, high, count| stream.range(low, high).take(count).collect())
}

/// `XREVRANGE key end start [COUNT count]`
pub fn xrevrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    range(keys, args, reply, (3, 2), |stream, low, high, count| stream.range_reversed(low, high).take(count).collect())
}

fn range(
    keys: &mut Keyspace,
    args: Args<'_>,
    reply: &mut dyn Reply,
    (low, high): (usize, usize),
    find: impl FnOnce(&Stream, StreamId, StreamId, usize) -> Vec<StreamEntry<'_>>,
) -> Outcome {
    let low = parse_bound(&args[low], 0, next_of)?;
    let high = parse_bound(&args[high], u64::MAX, previous_of)?;
    let mut count = usize::MAX;
    let mut options = args.from(4);
    while let Some(option) = options.next() {
        if !option.eq_ignore_ascii_case(b"count") {
            return Err(CommandError::Syntax);
        }
        let number = parse_integer(options.next().ok_or(CommandError::Syntax)?)?;
        count = usize::try_from(number).unwrap_or(0);
    }
    match keys.collection::<Stream>(&args[1])? {
        None => reply.array(0),
        Some(_) if count == 0 => reply.null_array(),
        Some(stream) => answer_entries(&find(stream, low, high, count), reply),
    }
    Ok(())
}

/// `XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]`
pub fn xsetid(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let last = parse_id(&args[2], 0)?;
    let (mut added, mut max_deleted) = (None, StreamId::MIN);
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        let value = options.next();
        match (option.to_ascii_lowercase().as_slice(), value) {
            (b"entriesadded", Some(value)) => {
                let number = u64::try_from(parse_integer(value)?);
                added = Some(number.map_err(|_| CommandError::text("ERR entries_added must be positive"))?);
            }
            (b"maxdeletedid", Some(value)) => {
                max_deleted = parse_id(value, 0)?;
                if last < max_deleted {
                    return Err(CommandError::text(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    let set = keys.change_present::<Stream, _>(&args[1], |stream| {
        if stream.top().is_some_and(|top| last < top) {
            return Err(CommandError::text(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| (stream.len() as u64) > added) {
            return Err(CommandError::text(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
        let max_deleted = if max_deleted == StreamId::MIN { stream.max_deleted() } else { max_deleted };
        let added = added.unwrap_or_else(|| stream.added());
        stream.perform(&StreamOperation::SetId { last, added, max_deleted });
        Ok(())
    })?;
    set.ok_or(CommandError::NoSuchKey)?;
    keys.note_event(EventClasses::STREAM, "xsetid", &args[1]);
    reply.ok();
    Ok(())
}
