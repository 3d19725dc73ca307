//! Scripts: see [`crate::scripting`].

use super::functions::kill;
use crate::actor::{Actor, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::reply::Reply;
use crate::request::Args;
use crate::scripting::{Digest, Invocation, Named, digest};
use crate::session::Session;

/// `EVAL script numkeys [key ...] [arg ...]`
pub fn eval(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    eval_source(actor, args, reply, false)
}

/// `EVAL_RO script numkeys [key ...] [arg ...]`
pub fn eval_ro(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    eval_source(actor, args, reply, true)
}

/// `EVALSHA sha1 numkeys [key ...] [arg ...]`
pub fn evalsha(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    eval_known(actor, args, reply, false)
}

/// `EVALSHA_RO sha1 numkeys [key ...] [arg ...]`
pub fn evalsha_ro(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    eval_known(actor, args, reply, true)
}

fn eval_source(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply, is_readonly: bool) -> Outcome {
    let digest = digest(&args[1]);
    let count = number_of_keys(args)?;
    actor.learn_script(digest, &args[1], false)?;
    run(actor, args, count, Named::Script(&digest), is_readonly, reply)
}

fn eval_known(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply, is_readonly: bool) -> Outcome {
    let count = number_of_keys(args)?;
    let unknown = CommandError::text("NOSCRIPT No matching script. Please use EVAL.");
    let digest = Digest::try_from(args[1].to_ascii_lowercase()).map_err(|_| unknown)?;
    run(actor, args, count, Named::Script(&digest), is_readonly, reply)
}

/// Checks the number of keys.
pub(super) fn number_of_keys(args: Args<'_>) -> Result<usize, CommandError> {
    Keys::Counted { at: 2, also: 0 }.of(args).map(|keys| keys.count())
}

/// Runs a script, or a function: `.. name numkeys [key ...] [arg ...]`
pub(super) fn run(
    actor: &mut Actor,
    args: Args<'_>,
    key_count: usize,
    named: Named<'_>,
    is_readonly: bool,
    reply: &mut dyn Reply,
) -> Outcome {
    let invocation = Invocation {
        named,
        keys: args.from(3).take(key_count).collect(),
        arguments: args.from(3 + key_count).collect(),
        is_readonly,
    };
    actor.run_script(&invocation, actor.keys.selected(), reply)
}

/// `SCRIPT LOAD script | EXISTS sha1 [sha1 ...] | FLUSH [ASYNC | SYNC] | KILL`
pub fn script(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"help", 2) => super::help("script", reply),
        (b"load", 3) => return actor.ask_everybody(session, &SCRIPT_LOAD, args, reply),
        (b"exists", 3..) => {
            reply.array(args.len() - 2);
            args.from(2).for_each(|digest| reply.flag(actor.knows_script(&digest.to_ascii_lowercase())));
        }
        (b"flush", 2 | 3) => {
            let mode = args.from(2).next().unwrap_or(b"sync").to_ascii_lowercase();
            if !matches!(mode.as_slice(), b"sync" | b"async") {
                return Err(CommandError::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            return actor.ask_everybody(session, &SCRIPT_FLUSH, args, reply);
        }
        (b"kill", 2) => kill(actor, false, reply)?,
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try SCRIPT HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

const fn part(
    name: &'static str,
    summary: &'static str,
    run: fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome,
) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::NONE,
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Scripting,
        since: "2.6.0",
        summary,
        run: Run::Everywhere(run, Combine::First),
    }
}

static SCRIPT_LOAD: Command = part("script|load", "Keeps a script.", load);
static SCRIPT_FLUSH: Command = part("script|flush", "Forgets all scripts.", flush);

fn load(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let digest = digest(&args[2]);
    actor.learn_script(digest, &args[2], true)?;
    reply.bulk(&digest);
    Ok(())
}

fn flush(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    actor.forget_scripts();
    reply.ok();
    Ok(())
}

/// Commands about the session that a script may use.
pub(crate) const SESSION_COMMANDS: [&str; 6] = ["ping", "echo", "time", "select", "publish", "spublish"];
