//! Reading what is new in streams, for oneself or as one of a group.

use super::options::parse_id;
use super::{answer_entries, answer_entry, answer_id};
use crate::actor::message::Wanted;
use crate::command::{Class, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Change, Keyspace, Stream, StreamEntry, StreamId, StreamOperation};
use crate::number::{integer, parse_integer};
use crate::reply::{Reply, Tape, Value};
use crate::request::{Args, OwnedArgs};

/// A request of `XREAD` or `XREADGROUP`.
#[derive(Debug)]
struct Read<'a> {
    /// How long it waits, in milliseconds; 0 for ever.
    block: Option<u64>,
    /// Up to how many entries of each stream.
    count: usize,
    /// Group and consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// Whether what is delivered is not pending.
    is_settled: bool,
    keys: Vec<&'a [u8]>,
    from: Vec<&'a [u8]>,
}

/// After which entry a stream is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// After this one; of a group, what is pending after it.
    After(StreamId),
    /// After the last one that the group has.
    New,
}

impl<'a> Read<'a> {
    /// `[GROUP group consumer] [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]`
    fn parse(args: Args<'a>, is_of_group: bool) -> Result<Self, CommandError> {
        let mut read =
            Self { block: None, count: usize::MAX, group: None, is_settled: false, keys: Vec::new(), from: Vec::new() };
        let only_groups = |name: &str| {
            CommandError::from(format!(
                "ERR The {name} option is only supported by XREADGROUP. You called XREAD instead."
            ))
        };
        let mut words = args.from(1);
        let mut has_streams = false;
        while let Some(word) = words.next() {
            let left = words.len();
            let mut next = || words.next().unwrap_or_default();
            match word.to_ascii_lowercase().as_slice() {
                b"block" if left > 0 => {
                    let refusal = CommandError::text("ERR timeout is not an integer or out of range");
                    let millis = u64::try_from(integer(next()).ok_or(refusal)?);
                    read.block = Some(millis.map_err(|_| CommandError::text("ERR timeout is negative"))?);
                }
                b"count" if left > 0 => {
                    let count = usize::try_from(parse_integer(next())?).unwrap_or(0);
                    read.count = if count == 0 { usize::MAX } else { count };
                }
                b"streams" if left > 0 => {
                    if !left.is_multiple_of(2) {
                        return Err(CommandError::text(
                            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                        ));
                    }
                    read.keys = words.by_ref().take(left / 2).collect();
                    read.from = words.by_ref().collect();
                    has_streams = true;
                }
                b"group" if left > 1 && is_of_group => read.group = Some((next(), next())),
                b"group" if left > 1 => return Err(only_groups("GROUP")),
                b"noack" if is_of_group => read.is_settled = true,
                b"noack" => return Err(only_groups("NOACK")),
                _ => return Err(CommandError::Syntax),
            }
        }
        if !has_streams {
            return Err(CommandError::Syntax);
        }
        if is_of_group && read.group.is_none() {
            return Err(CommandError::text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(read)
    }

    /// After which entries the streams are read. All have to be streams, and to have the group.
    fn begin(&self, keys: &mut Keyspace) -> Result<Vec<Start>, CommandError> {
        let begin = |(key, from): (&&[u8], &&[u8])| {
            let stream = keys.collection::<Stream>(key)?;
            if let Some((group, _)) = self.group
                && stream.and_then(|stream| stream.group(group)).is_none()
            {
                return Err(CommandError::from(format!(
                    "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                    String::from_utf8_lossy(key),
                    String::from_utf8_lossy(group)
                )));
            }
            match *from {
                b"$" if self.group.is_some() => Err(CommandError::text(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                     consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an \
                     empty result set.",
                )),
                b"$" => Ok(Start::After(stream.map_or(StreamId::MIN, Stream::last))),
                b">" if self.group.is_none() => Err(CommandError::text(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                )),
                b">" => Ok(Start::New),
                id => Ok(Start::After(parse_id(id, 0)?)),
            }
        };
        self.keys.iter().zip(&self.from).map(begin).collect()
    }
}

/// How long a request waits, if it is right and does, in milliseconds.
pub(crate) fn block_millis(args: Args<'_>) -> Option<u64> {
    let is_of_group = args[0].eq_ignore_ascii_case(b"xreadgroup");
    Read::parse(args, is_of_group).ok()?.block
}

/// What a request that waits wants of one of its streams; `None` if it reads none.
pub(crate) fn wanted_of(command: &Command, args: Args<'_>, key: &[u8]) -> Option<Wanted> {
    if command.group != Group::Stream {
        return None;
    }
    let read = Read::parse(args, args[0].eq_ignore_ascii_case(b"xreadgroup")).ok()?;
    if let Some((group, _)) = read.group {
        return Some(Wanted::New(group.into()));
    }
    // Of a key that is named twice the first place counts, as in [`Keys::only`].
    let place = read.keys.iter().position(|other| *other == key)?;
    parse_id(read.from[place], 0).ok().map(Wanted::After)
}

/// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]`, without the waiting
pub fn xread(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    read(keys, &Read::parse(args, false)?, reply)
}

/// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]`, without the
/// waiting
pub fn xreadgroup(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    read(keys, &Read::parse(args, true)?, reply)
}

fn read(keys: &mut Keyspace, read: &Read<'_>, reply: &mut dyn Reply) -> Outcome {
    let begin = read.begin(keys)?;
    let (mut tape, mut served) = (Tape::new(), 0);
    for (key, from) in read.keys.iter().zip(begin) {
        let is_served = match (read.group, from) {
            (None, Start::New) => false,
            (None, Start::After(id)) => read_alone(keys, key, id, read.count, &mut tape)?,
            (Some(group), Start::New) => read_new(keys, key, group, read, &mut tape)?,
            (Some(group), Start::After(id)) => read_pending(keys, key, group, id, read.count, &mut tape)?,
        };
        served += usize::from(is_served);
    }
    if served == 0 {
        reply.null_array();
    } else {
        reply.named(served);
        tape.play(reply);
    }
    Ok(())
}

/// Up to so many entries behind one.
fn behind(stream: &Stream, id: StreamId, count: usize) -> Vec<StreamEntry<'_>> {
    if id >= stream.last() {
        return Vec::new();
    }
    let first = id.next().unwrap_or(StreamId::MAX);
    stream.range(first, StreamId::MAX).take(count).collect()
}

fn read_alone(
    keys: &mut Keyspace,
    key: &[u8],
    id: StreamId,
    count: usize,
    tape: &mut Tape,
) -> Result<bool, CommandError> {
    let Some(stream) = keys.collection::<Stream>(key)? else { return Ok(false) };
    let entries = behind(stream, id, count);
    if !entries.is_empty() {
        tape.name();
        tape.bulk(key);
        answer_entries(&entries, tape);
    }
    Ok(!entries.is_empty())
}

/// Delivers what is new to a group.
fn read_new(
    keys: &mut Keyspace,
    key: &[u8],
    (name, consumer): (&[u8], &[u8]),
    read: &Read<'_>,
    tape: &mut Tape,
) -> Result<bool, CommandError> {
    let Some(stream) = keys.peek_collection::<Stream>(key)? else { return Ok(false) };
    let Some(group) = stream.group(name) else { return Ok(false) };
    let entries = behind(stream, group.last, read.count);
    let Some(last) = entries.last().map(|entry| entry.id) else { return Ok(false) };
    let mut known = group.read;
    for entry in &entries {
        known = match known {
            Some(read) if !stream.has_gap_from(entry.id) => Some(read.saturating_add(1)),
            _ => stream.added_up_to(entry.id),
        };
    }
    tape.name();
    tape.bulk(key);
    answer_entries(&entries, tape);
    let ids: Vec<StreamId> = entries.iter().map(|entry| entry.id).collect();
    keys.ask_for_log(ids.len() * size_of::<StreamId>())?;
    let at = keys.now().0;
    let is_new = keys.change::<Stream, _>(key, |stream| {
        let is_new = see(stream, name, consumer, at);
        if !read.is_settled {
            stream.perform(&StreamOperation::Deliver { group: name, consumer, at, count: 1, ids });
        }
        stream.perform(&StreamOperation::MoveGroup { name, last, read: known });
        Ok(is_new)
    })?;
    note_seen(keys, key, is_new);
    Ok(true)
}

/// Delivers what a consumer of a group has and did not acknowledge once more.
fn read_pending(
    keys: &mut Keyspace,
    key: &[u8],
    (name, consumer): (&[u8], &[u8]),
    id: StreamId,
    count: usize,
    tape: &mut Tape,
) -> Result<bool, CommandError> {
    let at = keys.now().0;
    let Some(stream) = keys.peek_collection::<Stream>(key)? else { return Ok(false) };
    let Some(group) = stream.group(name) else { return Ok(false) };
    let first = id.next().unwrap_or(StreamId::MAX);
    let pending = group.consumer(consumer).into_iter().flat_map(|consumer| consumer.pending.range(first..));
    let ids: Vec<StreamId> = pending.take(count).copied().collect();
    tape.name();
    tape.bulk(key);
    tape.array(ids.len());
    let mut delivered = Vec::new();
    for id in &ids {
        match stream.entry(*id) {
            Some(entry) => {
                answer_entry(&entry, tape);
                let before = group.pending_at(*id).map_or(0, |pending| pending.count);
                delivered.push((*id, before.saturating_add(1)));
            }
            None => {
                tape.array(2);
                answer_id(*id, tape);
                tape.null_array();
            }
        }
    }
    keys.ask_for_log(delivered.len() * (64 + name.len() + consumer.len()))?;
    let is_new = keys.change::<Stream, _>(key, |stream| {
        let is_new = see(stream, name, consumer, at);
        for (id, count) in delivered {
            stream.perform(&StreamOperation::Deliver { group: name, consumer, at, count, ids: vec![id] });
        }
        Ok(is_new)
    })?;
    note_seen(keys, key, is_new);
    Ok(true)
}

/// Notes that a consumer of a group asks for something. Says whether it is new.
pub(super) fn see(stream: &mut Change<'_, Stream>, group: &[u8], name: &[u8], at: u64) -> bool {
    let is_new = stream.group(group).is_some_and(|group| group.consumer(name).is_none());
    stream.perform(&StreamOperation::SeeConsumer { group, name, at });
    is_new
}

/// Tells of a consumer, if it is new.
pub(super) fn note_seen(keys: &mut Keyspace, key: &[u8], is_new: bool) {
    if is_new {
        keys.note_event(EventClasses::STREAM, "xgroup-createconsumer", key);
    }
}

/// The last numbers of the streams that a request of `XREAD` names, so that what comes later is behind them however long it takes
/// until somebody looks.
pub(crate) static LAST_IDS: Command = Command {
    name: "xread|last",
    arity: -4,
    flags: Flags::READONLY,
    keys: Keys::Streams,
    uses: KeyUses::NONE,
    class: Class::Read,
    group: Group::Stream,
    since: "5.0.0",
    summary: "Gives the last numbers of streams.",
    run: Run::Keys(last_ids),
};

fn last_ids(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let read = Read::parse(args, false)?;
    let mut ids = Vec::with_capacity(read.keys.len());
    for key in &read.keys {
        ids.push(keys.peek_collection::<Stream>(key)?.map_or(StreamId::MIN, Stream::last));
    }
    reply.array(ids.len());
    ids.into_iter().for_each(|id| answer_id(id, reply));
    Ok(())
}

/// Whether a request of a command that waits wants what is behind the last entries (`$`).
pub(crate) fn names_last(command: &Command, args: Args<'_>) -> bool {
    command.name == "xread" && args.from(1).any(|word| word == b"$")
}

/// The request with these last numbers in the place of `$`; `None` if they are not such.
pub(crate) fn with_last_ids(args: Args<'_>, last: &Tape) -> Option<OwnedArgs> {
    let Some(Value::Array(count)) = last.first() else { return None };
    let ids: Vec<&[u8]> = last
        .values()
        .skip(1)
        .filter_map(|value| match value {
            Value::Bulk(id) => Some(id),
            _ => None,
        })
        .collect();
    let first = args.len().checked_sub(count)?;
    let words: Vec<&[u8]> = args
        .from(0)
        .enumerate()
        .map(|(at, word)| match at.checked_sub(first).and_then(|place| ids.get(place)) {
            Some(id) if word == b"$" => id,
            _ => word,
        })
        .collect();
    Some(OwnedArgs::of_words(&words))
}
