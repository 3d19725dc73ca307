//! What streams and their groups are.

use super::groups::unknown;
use super::{answer_entries, answer_entry, answer_id};
use crate::commands::check_subcommand;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Collection as _, Keyspace, Stream, StreamGroup, StreamId};
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

/// Subcommands of `XINFO` with how many words they have.
const XINFO: [(&str, i16); 4] = [("consumers", 4), ("groups", 3), ("stream", -3), ("help", 2)];

/// `XINFO STREAM key [FULL [COUNT count]] | GROUPS key | CONSUMERS key group | HELP`
pub fn xinfo(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let subcommand = check_subcommand("xinfo", &XINFO, args)?;
    if subcommand == "help" {
        const HELP: [&str; 4] = [
            "XINFO CONSUMERS key group: the consumers of a group.",
            "XINFO GROUPS key: the groups of a stream.",
            "XINFO STREAM key [FULL [COUNT count]]: what there is to know of a stream.",
            "XINFO HELP: this.",
        ];
        reply.array(HELP.len());
        HELP.into_iter().for_each(|line| reply.simple(line));
        return Ok(());
    }
    let now = keys.now().0;
    let stream = keys.collection::<Stream>(&args[2])?.ok_or(CommandError::NoSuchKey)?;
    match subcommand {
        "consumers" => {
            let group = stream.group(&args[3]).ok_or_else(|| {
                CommandError::from(format!(
                    "NOGROUP No such consumer group '{}' for key name '{}'",
                    String::from_utf8_lossy(&args[3]),
                    String::from_utf8_lossy(&args[2])
                ))
            })?;
            reply.array(group.consumers().len());
            for (name, consumer) in group.consumers() {
                reply.map(3);
                reply.bulk(b"name");
                reply.bulk(name);
                reply.bulk(b"pending");
                reply.count(consumer.pending.len());
                reply.bulk(b"idle");
                reply.integer(now.saturating_sub(consumer.seen_at) as i64);
            }
        }
        "groups" => {
            reply.array(stream.groups().len());
            for (name, group) in stream.groups() {
                reply.map(6);
                reply.bulk(b"name");
                reply.bulk(name);
                reply.bulk(b"consumers");
                reply.count(group.consumers().len());
                reply.bulk(b"pending");
                reply.count(group.pending_count());
                answer_progress(stream, group, reply);
            }
        }
        _ if args.len() == 3 => summarize(stream, reply),
        _ => {
            let count = match (args[3].eq_ignore_ascii_case(b"full"), args.len()) {
                (true, 4) => 10,
                (true, 6) if args[4].eq_ignore_ascii_case(b"count") => {
                    usize::try_from(parse_integer(&args[5])?).unwrap_or(10)
                }
                _ => return Err(unknown("XINFO", args)),
            };
            // 0 for all.
            tell_all(stream, if count == 0 { usize::MAX } else { count }, reply);
        }
    }
    Ok(())
}

/// Where a group is.
fn answer_progress(stream: &Stream, group: &StreamGroup, reply: &mut dyn Reply) {
    reply.bulk(b"last-delivered-id");
    answer_id(group.last, reply);
    reply.bulk(b"entries-read");
    answer_known(group.read.map(|read| read as i64), reply);
    reply.bulk(b"lag");
    answer_known(stream.lag(group), reply);
}

fn answer_known(number: Option<i64>, reply: &mut dyn Reply) {
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

fn tell_of(stream: &Stream, reply: &mut dyn Reply) {
    reply.bulk(b"length");
    reply.count(stream.len());
    reply.bulk(b"radix-tree-keys");
    reply.count(stream.block_count());
    reply.bulk(b"radix-tree-nodes");
    reply.count(stream.block_count() + 1);
    reply.bulk(b"last-generated-id");
    answer_id(stream.last(), reply);
    reply.bulk(b"max-deleted-entry-id");
    answer_id(stream.max_deleted(), reply);
    reply.bulk(b"entries-added");
    reply.integer(stream.added() as i64);
    reply.bulk(b"recorded-first-entry-id");
    answer_id(stream.first(), reply);
}

fn summarize(stream: &Stream, reply: &mut dyn Reply) {
    reply.map(10);
    tell_of(stream, reply);
    reply.bulk(b"groups");
    reply.count(stream.groups().len());
    let first = stream.range(StreamId::MIN, StreamId::MAX).next();
    let last = stream.range_reversed(StreamId::MIN, StreamId::MAX).next();
    for (name, entry) in [("first-entry", first), ("last-entry", last)] {
        reply.bulk(name.as_bytes());
        match entry {
            Some(entry) => answer_entry(&entry, reply),
            None => reply.null(),
        }
    }
}

fn tell_all(stream: &Stream, count: usize, reply: &mut dyn Reply) {
    reply.map(9);
    tell_of(stream, reply);
    reply.bulk(b"entries");
    let entries: Vec<_> = stream.range(StreamId::MIN, StreamId::MAX).take(count).collect();
    answer_entries(&entries, reply);
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        answer_progress(stream, group, reply);
        reply.bulk(b"pel-count");
        reply.count(group.pending_count());
        reply.bulk(b"pending");
        reply.array(group.pending_count().min(count));
        for (id, pending) in group.pending(StreamId::MIN).take(count) {
            reply.array(4);
            answer_id(id, reply);
            reply.bulk(&pending.consumer);
            reply.integer(pending.at as i64);
            reply.integer(pending.count as i64);
        }
        reply.bulk(b"consumers");
        reply.array(group.consumers().len());
        for (name, consumer) in group.consumers() {
            reply.map(4);
            reply.bulk(b"name");
            reply.bulk(name);
            reply.bulk(b"seen-time");
            reply.integer(consumer.seen_at as i64);
            reply.bulk(b"pel-count");
            reply.count(consumer.pending.len());
            reply.bulk(b"pending");
            reply.array(consumer.pending.len().min(count));
            for id in consumer.pending.iter().take(count) {
                let pending = group.pending_at(*id);
                reply.array(3);
                answer_id(*id, reply);
                reply.integer(pending.map_or(0, |pending| pending.at) as i64);
                reply.integer(pending.map_or(0, |pending| pending.count) as i64);
            }
        }
    }
}
