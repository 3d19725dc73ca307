//! Groups of consumers: what they are, and what was delivered and not acknowledged.

use super::options::{next_of, parse_any_id, parse_bound, parse_id, previous_of};
use super::reading::{note_seen, see};
use super::{answer_entry, answer_id};
use crate::commands::check_subcommand;
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Change, Keyspace, Stream, StreamGroup, StreamId, StreamOperation};
use crate::number::{integer, parse_integer};
use crate::reply::{Reply, Tape};
use crate::request::Args;

/// Subcommands of `XGROUP` with how many words they have.
const XGROUP: [(&str, i16); 6] =
    [("create", -5), ("setid", -5), ("destroy", 4), ("createconsumer", 5), ("delconsumer", 5), ("help", 2)];

fn no_group(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::from(format!(
        "NOGROUP No such key '{}' or consumer group '{}'",
        String::from_utf8_lossy(key),
        String::from_utf8_lossy(group)
    ))
}

/// A group of a stream that is there.
fn group_of<'k>(
    keys: &'k mut Keyspace,
    key: &[u8],
    name: &[u8],
) -> Result<(&'k Stream, &'k StreamGroup), CommandError> {
    let stream = keys.collection::<Stream>(key)?;
    stream.and_then(|stream| Some((stream, stream.group(name)?))).ok_or_else(|| no_group(key, name))
}

/// Whether a request of `XGROUP` makes something.
pub(crate) fn xgroup_adds(args: Args<'_>) -> bool {
    args.len() > 1 && ["create", "createconsumer"].iter().any(|name| args[1].eq_ignore_ascii_case(name.as_bytes()))
}

/// `XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD entries-read] | SETID key group id | $ [ENTRIESREAD entries-read] |
/// DESTROY key group | CREATECONSUMER key group consumer | DELCONSUMER key group consumer | HELP`
pub fn xgroup(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let subcommand = check_subcommand("xgroup", &XGROUP, args)?;
    if subcommand == "help" {
        const HELP: [&str; 6] = [
            "XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]: makes a group.",
            "XGROUP CREATECONSUMER key group consumer: makes a consumer.",
            "XGROUP DELCONSUMER key group consumer: removes a consumer.",
            "XGROUP DESTROY key group: removes a group.",
            "XGROUP SETID key group id|$ [ENTRIESREAD entries-read]: lets a group go on elsewhere.",
            "XGROUP HELP: this.",
        ];
        reply.array(HELP.len());
        HELP.into_iter().for_each(|line| reply.simple(line));
        return Ok(());
    }
    let (key, name) = (&args[2], &args[3]);
    let (mut makes_stream, mut read) = (false, None);
    let mut options = args.from(5);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"mkstream" if subcommand == "create" => makes_stream = true,
            b"entriesread" if matches!(subcommand, "create" | "setid") && options.len() > 0 => {
                read = match parse_integer(options.next().unwrap_or_default())? {
                    -1 => None,
                    number => Some(
                        u64::try_from(number)
                            .map_err(|_| CommandError::text("ERR value for ENTRIESREAD must be positive or -1"))?,
                    ),
                };
            }
            _ => return Err(unknown("XGROUP", args)),
        }
    }
    let stream = keys.peek_collection::<Stream>(key)?;
    if stream.is_none() && !makes_stream {
        return Err(CommandError::text(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
             option to create an empty stream automatically.",
        ));
    }
    let has_group = stream.is_some_and(|stream| stream.group(name).is_some());
    if !has_group && matches!(subcommand, "setid" | "createconsumer" | "delconsumer") {
        return Err(CommandError::from(format!(
            "NOGROUP No such consumer group '{}' for key name '{}'",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(key)
        )));
    }
    let last = stream.map_or(StreamId::MIN, Stream::last);
    match subcommand {
        "create" => {
            let last = if &args[4] == b"$" { last } else { parse_id(&args[4], 0)? };
            if has_group {
                return Err(CommandError::text("BUSYGROUP Consumer Group name already exists"));
            }
            perform(keys, key, &StreamOperation::CreateGroup { name, last, read })?;
            keys.note_event(EventClasses::STREAM, "xgroup-create", key);
            reply.ok();
        }
        "setid" => {
            if !matches!(args.len(), 5 | 7) {
                return Err(unknown("XGROUP", args));
            }
            let last = if &args[4] == b"$" { last } else { parse_any_id(&args[4], 0)? };
            perform(keys, key, &StreamOperation::MoveGroup { name, last, read })?;
            keys.note_event(EventClasses::STREAM, "xgroup-setid", key);
            reply.ok();
        }
        "destroy" => {
            if has_group {
                perform(keys, key, &StreamOperation::DestroyGroup(name))?;
                // Who waits as one of the group hears that it is gone.
                keys.note_ready(key);
                keys.note_event(EventClasses::STREAM, "xgroup-destroy", key);
            }
            reply.flag(has_group);
        }
        "createconsumer" => {
            let at = keys.now().0;
            let consumer = &args[4];
            let is_new = keys.change::<Stream, _>(key, |stream| {
                let is_new = stream.group(name).is_some_and(|group| group.consumer(consumer).is_none());
                if is_new {
                    stream.perform(&StreamOperation::SeeConsumer { group: name, name: consumer, at });
                }
                Ok(is_new)
            })?;
            note_seen(keys, key, is_new);
            reply.flag(is_new);
        }
        _ => {
            let consumer = &args[4];
            let pending = keys.change::<Stream, _>(key, |stream| {
                let found = stream.group(name).and_then(|group| group.consumer(consumer));
                let pending = found.map(|consumer| consumer.pending.len());
                if pending.is_some() {
                    stream.perform(&StreamOperation::DeleteConsumer { group: name, name: consumer });
                }
                Ok(pending)
            })?;
            if pending.is_some() {
                keys.note_event(EventClasses::STREAM, "xgroup-delconsumer", key);
            }
            reply.count(pending.unwrap_or(0));
        }
    }
    Ok(())
}

fn perform(keys: &mut Keyspace, key: &[u8], operation: &StreamOperation<'_>) -> Outcome {
    keys.change::<Stream, _>(key, |stream| {
        stream.perform(operation);
        Ok(())
    })
}

pub(super) fn unknown(command: &str, args: Args<'_>) -> CommandError {
    CommandError::from(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {command} HELP.",
        args[1].escape_ascii()
    ))
}

/// `XACK key group id [id ...]`
pub fn xack(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let name = &args[2];
    let stream = keys.peek_collection::<Stream>(&args[1])?;
    let Some(group) = stream.and_then(|stream| stream.group(name)) else {
        reply.integer(0);
        return Ok(());
    };
    let mut ids = args.from(3).map(|text| parse_id(text, 0)).collect::<Result<Vec<_>, _>>()?;
    ids.retain(|id| group.pending_at(*id).is_some());
    ids.sort();
    ids.dedup();
    let count = ids.len();
    if count > 0 {
        perform(keys, &args[1], &StreamOperation::Settle { group: name, ids })?;
    }
    reply.count(count);
    Ok(())
}

/// `XPENDING key group [[IDLE min-idle-time] start end count [consumer]]`
pub fn xpending(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = keys.now().0;
    if args.len() == 3 {
        let (_, group) = group_of(keys, &args[1], &args[2])?;
        summarize(group, reply);
        return Ok(());
    }
    let mut rest = args.skip(3);
    let mut idle_min = 0;
    if !(3..=6).contains(&rest.len()) {
        return Err(CommandError::Syntax);
    }
    if rest[0].eq_ignore_ascii_case(b"idle") {
        idle_min = parse_integer(&rest[1])?;
        rest = rest.skip(2);
        if rest.len() < 3 {
            return Err(CommandError::Syntax);
        }
    }
    let count = usize::try_from(parse_integer(&rest[2])?).unwrap_or(0);
    let low = parse_bound(&rest[0], 0, next_of)?;
    let high = parse_bound(&rest[1], u64::MAX, previous_of)?;
    let (_, group) = group_of(keys, &args[1], &args[2])?;
    let ids: Box<dyn Iterator<Item = StreamId>> = match rest.from(3).next() {
        None => Box::new(group.pending(low).map(|(id, _)| id)),
        Some(name) => {
            let consumer = group.consumer(name).into_iter();
            Box::new(consumer.flat_map(|consumer| consumer.pending.range(low..).copied()))
        }
    };
    let pending = ids.take_while(|id| *id <= high).filter_map(|id| Some((id, group.pending_at(id)?)));
    let is_idle = |at: u64| idle_min <= 0 || now.saturating_sub(at) >= idle_min as u64;
    let found: Vec<_> = pending.filter(|(_, pending)| is_idle(pending.at)).take(count).collect();
    reply.array(found.len());
    for (id, pending) in found {
        reply.array(4);
        answer_id(id, reply);
        reply.bulk(&pending.consumer);
        reply.integer(now.saturating_sub(pending.at) as i64);
        reply.integer(pending.count as i64);
    }
    Ok(())
}

fn summarize(group: &StreamGroup, reply: &mut dyn Reply) {
    reply.array(4);
    reply.count(group.pending_count());
    let ids = || group.pending(StreamId::MIN).map(|(id, _)| id);
    let Some((first, last)) = ids().next().zip(ids().next_back()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    answer_id(first, reply);
    answer_id(last, reply);
    let busy: Vec<_> = group.consumers().filter(|(_, consumer)| !consumer.pending.is_empty()).collect();
    reply.array(busy.len());
    for (name, consumer) in busy {
        reply.array(2);
        reply.bulk(name);
        reply.bulk(consumer.pending.len().to_string().as_bytes());
    }
}

/// Entries that go to another consumer.
struct Claim<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    /// How long an entry must have been idle.
    idle_min: u64,
    /// When it is said to have been delivered.
    at: u64,
    /// How often it is said to have been.
    count: Option<u64>,
    /// Whether what is not pending becomes so.
    is_forced: bool,
    /// Whether only numbers are told; then it does not count as delivered.
    only_ids: bool,
    now: u64,
}

/// What became of an entry that was claimed.
#[derive(PartialEq, Eq)]
enum Claimed {
    /// It is the consumer's.
    Yes,
    /// It stays as it was.
    No,
    /// It was deleted from the stream, and is pending no longer.
    Gone,
}

impl Claim<'_> {
    fn take(&self, stream: &mut Change<'_, Stream>, id: StreamId, tape: &mut Tape) -> Claimed {
        let pending = stream.group(self.group).and_then(|group| group.pending_at(id));
        let before = pending.map(|pending| (pending.at, pending.count));
        let Some(entry) = stream.entry(id) else {
            if before.is_none() {
                return Claimed::No;
            }
            stream.perform(&StreamOperation::Settle { group: self.group, ids: vec![id] });
            return Claimed::Gone;
        };
        let delivered = match before {
            None if !self.is_forced => return Claimed::No,
            None => 1,
            Some((at, _)) if self.now.saturating_sub(at) < self.idle_min => return Claimed::No,
            Some((_, count)) => count,
        };
        if self.only_ids {
            answer_id(id, tape);
        } else {
            answer_entry(&entry, tape);
        }
        let count = self.count.unwrap_or_else(|| delivered.saturating_add(u64::from(!self.only_ids)));
        let (group, consumer, at) = (self.group, self.consumer, self.at);
        stream.perform(&StreamOperation::Deliver { group, consumer, at, count, ids: vec![id] });
        Claimed::Yes
    }
}

fn parse_idle(text: &[u8], refusal: &'static str) -> Result<u64, CommandError> {
    let idle = integer(text).ok_or_else(|| CommandError::text(refusal))?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

/// `XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-ms] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]`
pub fn xclaim(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = keys.now().0;
    let (_, group) = group_of(keys, &args[1], &args[2])?;
    let group_last = group.last;
    let idle_min = parse_idle(&args[4], "ERR Invalid min-idle-time argument for XCLAIM")?;
    let ids: Vec<StreamId> = args.from(5).map_while(|text| parse_id(text, 0).ok()).collect();
    let mut claim = Claim {
        group: args.at(2),
        consumer: args.at(3),
        idle_min,
        at: now,
        count: None,
        is_forced: false,
        only_ids: false,
        now,
    };
    let mut last = StreamId::MIN;
    let mut options = args.from(5 + ids.len());
    while let Some(option) = options.next() {
        let left = options.len();
        let mut number = |refusal: &'static str| {
            integer(options.next().unwrap_or_default()).ok_or_else(|| CommandError::text(refusal))
        };
        match option.to_ascii_lowercase().as_slice() {
            b"force" => claim.is_forced = true,
            b"justid" => claim.only_ids = true,
            b"idle" if left > 0 => {
                let idle = number("ERR Invalid IDLE option argument for XCLAIM")?;
                claim.at = delivery_time((now as i64).checked_sub(idle), now);
            }
            b"time" if left > 0 => {
                claim.at = delivery_time(Some(number("ERR Invalid TIME option argument for XCLAIM")?), now);
            }
            b"retrycount" if left > 0 => {
                claim.count = u64::try_from(number("ERR Invalid RETRYCOUNT option argument for XCLAIM")?).ok();
            }
            b"lastid" if left > 0 => last = parse_id(options.next().unwrap_or_default(), 0)?,
            _ => {
                return Err(CommandError::from(format!(
                    "ERR Unrecognized XCLAIM option '{}'",
                    String::from_utf8_lossy(option)
                )));
            }
        }
    }
    let mut tape = Tape::new();
    keys.ask_for_log(ids.len() * (64 + args[2].len() + args[3].len()))?;
    let (claimed, is_new) = keys.change::<Stream, _>(&args[1], |stream| {
        if last > group_last {
            let read = stream.group(claim.group).and_then(|group| group.read);
            stream.perform(&StreamOperation::MoveGroup { name: claim.group, last, read });
        }
        Ok(claim_all(&claim, stream, &ids, &mut tape))
    })?;
    note_seen(keys, &args[1], is_new);
    reply.array(claimed);
    tape.play(reply);
    Ok(())
}

/// Claims entries. Says how many were, and whether the consumer is new.
fn claim_all(claim: &Claim<'_>, stream: &mut Change<'_, Stream>, ids: &[StreamId], tape: &mut Tape) -> (usize, bool) {
    let is_new = stream.group(claim.group).is_some_and(|group| group.consumer(claim.consumer).is_none());
    let claimed = ids.iter().filter(|id| claim.take(stream, **id, tape) == Claimed::Yes).count();
    if claimed > 0 {
        see(stream, claim.group, claim.consumer, claim.now);
    }
    (claimed, is_new && claimed > 0)
}

/// A time that is in the future, or none, is now.
fn delivery_time(at: Option<i64>, now: u64) -> u64 {
    at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at <= now).unwrap_or(now)
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`
pub fn xautoclaim(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    /// So many are looked at for each that is wanted.
    const TRIES: usize = 10;
    let now = keys.now().0;
    let idle_min = parse_idle(&args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = parse_bound(&args[5], 0, next_of)?;
    let (mut count, mut only_ids) = (100, false);
    let mut options = args.from(6);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"count" if options.len() > 0 => {
                let refusal = CommandError::text("ERR COUNT must be > 0");
                let number = integer(options.next().unwrap_or_default());
                let number = number.filter(|number| (1..=i64::MAX / 16).contains(number)).ok_or(refusal)?;
                count = number as usize;
            }
            b"justid" => only_ids = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    let (_, group) = group_of(keys, &args[1], &args[2])?;
    let tries = count.saturating_mul(TRIES);
    let ids: Vec<StreamId> = group.pending(start).map(|(id, _)| id).take(tries.saturating_add(1)).collect();
    let claim = Claim {
        group: args.at(2),
        consumer: args.at(3),
        idle_min,
        at: now,
        count: None,
        is_forced: false,
        only_ids,
        now,
    };
    let (mut tape, mut gone) = (Tape::new(), Vec::new());
    keys.ask_for_log(ids.len().min(count) * (64 + args[2].len() + args[3].len()))?;
    let (looked_at, claimed, is_new) = keys.change::<Stream, _>(&args[1], |stream| {
        let is_new = stream.group(claim.group).is_some_and(|group| group.consumer(claim.consumer).is_none());
        let (mut looked_at, mut claimed) = (0, 0);
        for id in ids.iter().take(tries) {
            if claimed + gone.len() == count {
                break;
            }
            looked_at += 1;
            match claim.take(stream, *id, &mut tape) {
                Claimed::Yes => claimed += 1,
                Claimed::Gone => gone.push(*id),
                Claimed::No => {}
            }
        }
        if claimed > 0 {
            see(stream, claim.group, claim.consumer, now);
        }
        Ok((looked_at, claimed, is_new && claimed > 0))
    })?;
    note_seen(keys, &args[1], is_new);
    reply.array(3);
    answer_id(ids.get(looked_at).copied().unwrap_or(StreamId::MIN), reply);
    reply.array(claimed);
    tape.play(reply);
    reply.array(gone.len());
    gone.into_iter().for_each(|id| answer_id(id, reply));
    Ok(())
}
