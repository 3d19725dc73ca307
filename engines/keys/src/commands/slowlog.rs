//! Requests that took long.

use crate::actor::{Actor, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::number::integer;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

/// `SLOWLOG GET [count] | LEN | RESET`
pub fn slowlog(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    if args.len() == 2 && args[1].eq_ignore_ascii_case(b"help") {
        super::help("slowlog", reply);
        return Ok(Progress::Answered);
    }
    actor.ask_first(session, &AT_THE_FIRST, args, reply)
}

/// The part of the first actor, which keeps them.
static AT_THE_FIRST: Command = Command {
    name: "slowlog",
    arity: -2,
    flags: Flags::NONE,
    keys: Keys::None,
    uses: KeyUses::NONE,
    class: Class::Everywhere,
    group: Group::Server,
    since: "2.2.12",
    summary: "Tells of requests that took long.",
    run: Run::Everywhere(answer, Combine::First),
};

fn answer(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"get", 2 | 3) => {
            let count = args.from(2).next().map_or(Some(10), integer).filter(|count| *count >= -1);
            let count = count.ok_or(CommandError::text("ERR count should be greater than or equal to -1"))?;
            let slow = actor.logbook.slow();
            let count = usize::try_from(count).map_or_else(|_| slow.len(), |count| count.min(slow.len()));
            reply.array(count);
            for (number, slow) in slow.take(count) {
                reply.array(6);
                reply.integer(*number);
                reply.integer((slow.at.0 / 1000) as i64);
                reply.integer(slow.took.as_micros() as i64);
                reply.array(slow.words.len());
                slow.words.iter().for_each(|word| reply.bulk(word));
                reply.bulk(slow.address.as_bytes());
                reply.bulk(&slow.client);
            }
        }
        (b"len", 2) => reply.count(actor.logbook.slow().len()),
        (b"reset", 2) => {
            actor.logbook.forget_slow();
            reply.ok();
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try SLOWLOG HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(())
}
