//! Messages to all who listen.

use crate::actor::{Actor, Progress, Topic};
use crate::error::CommandError;
use crate::pattern;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

/// `SUBSCRIBE channel [channel ...]`
pub fn subscribe(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    args.from(1).for_each(|name| actor.subscribe(session, Topic::Channel, name, reply));
    Ok(Progress::Answered)
}

/// `SSUBSCRIBE channel [channel ...]`
pub fn ssubscribe(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    args.from(1).for_each(|name| actor.subscribe(session, Topic::Shard, name, reply));
    Ok(Progress::Answered)
}

/// `PSUBSCRIBE pattern [pattern ...]`
pub fn psubscribe(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    args.from(1).for_each(|name| actor.subscribe(session, Topic::Pattern, name, reply));
    Ok(Progress::Answered)
}

/// `UNSUBSCRIBE [channel ...]`
pub fn unsubscribe(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    leave(actor, session, args, reply, Topic::Channel)
}

/// `PUNSUBSCRIBE [pattern ...]`
pub fn punsubscribe(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    leave(actor, session, args, reply, Topic::Pattern)
}

/// `SUNSUBSCRIBE [channel ...]`
pub fn sunsubscribe(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    leave(actor, session, args, reply, Topic::Shard)
}

fn leave(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
    topic: Topic,
) -> Result<Progress, CommandError> {
    if args.len() == 1 {
        actor.unsubscribe(session, topic, None, reply);
    }
    args.from(1).for_each(|name| actor.unsubscribe(session, topic, Some(name), reply));
    Ok(Progress::Answered)
}

/// `PUBLISH channel message`
pub fn publish(
    actor: &mut Actor,
    _: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    reply.count(actor.publish(&args[1], &args[2]));
    actor.publish_beyond(args);
    Ok(Progress::Answered)
}

/// `SPUBLISH channel message`
pub fn spublish(
    actor: &mut Actor,
    _: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    reply.count(actor.publish_to_shard(&args[1], &args[2]));
    actor.publish_beyond(args);
    Ok(Progress::Answered)
}

/// `PUBSUB CHANNELS [pattern] | NUMSUB [channel ...] | NUMPAT | SHARDCHANNELS [pattern] | SHARDNUMSUB [channel ...]`
pub fn pubsub(
    actor: &mut Actor,
    _: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    let subcommand = args[1].to_ascii_lowercase();
    let topic = if subcommand.starts_with(b"shard") { Topic::Shard } else { Topic::Channel };
    match (subcommand.as_slice(), args.len()) {
        (b"help", 2) => super::help("pubsub", reply),
        (b"channels" | b"shardchannels", 2 | 3) => {
            let wanted = args.from(2).next().unwrap_or(b"*");
            let channels: Vec<&[u8]> =
                actor.listened_channels(topic).filter(|name| pattern::matches(wanted, name)).collect();
            reply.array(channels.len());
            channels.into_iter().for_each(|channel| reply.bulk(channel));
        }
        (b"numsub" | b"shardnumsub", _) => {
            reply.array(2 * (args.len() - 2));
            for channel in args.from(2) {
                reply.bulk(channel);
                reply.count(actor.listeners_of(topic, channel));
            }
        }
        (b"numpat", 2) => reply.count(actor.pattern_count()),
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}
