//! `CONFIG`: what is set, and the file in which it is.

use std::fmt::Display;
use std::fs;

use hashbrown::HashSet;

use crate::actor::{Actor, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::config::file::rewritten;
use crate::error::{CommandError, Outcome};
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;
use crate::small_file;

type Done = Result<Progress, CommandError>;

/// `CONFIG GET pattern [pattern ...] | SET name value [name value ...] | RESETSTAT | REWRITE`
pub fn config(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"help", 2) => super::help("config", reply),
        (b"get", 3..) => {
            let mut found = Vec::new();
            for pattern in args.from(2) {
                found.extend(actor.config.matching(pattern));
            }
            found.sort();
            found.dedup();
            reply.map(found.len());
            for (name, value) in found {
                reply.bulk(name.as_bytes());
                reply.bulk(&value);
            }
        }
        (b"set", 4..) => {
            check_config(actor, args)?;
            return actor.ask_everybody(session, &CONFIG_SET, args, reply);
        }
        (b"resetstat", 2) => return actor.ask_everybody(session, &CONFIG_RESETSTAT, args, reply),
        (b"rewrite", 2) => return actor.ask_first(session, &CONFIG_REWRITE, args, reply),
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try CONFIG HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

/// Sets nothing if anything cannot be set.
fn check_config(actor: &Actor, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("config|set".to_owned()));
    }
    let mut trial = actor.config.clone();
    let mut named = HashSet::new();
    for (name, value) in args.from(2).step_by(2).zip(args.from(3).step_by(2)) {
        let is_new = named.insert(name.to_ascii_lowercase());
        let outcome = match is_new {
            true if actor.config.is_kept(name, value) => Ok(()),
            true => trial.set(name, value),
            false => Err("duplicate parameter".to_owned()),
        };
        outcome.map_err(|reason| {
            CommandError::from(if reason.starts_with("Unknown") {
                format!("ERR {reason} - '{}'", name.escape_ascii())
            } else {
                format!("ERR CONFIG SET failed (possibly related to argument '{}') - {reason}", name.escape_ascii())
            })
        })?;
    }
    Ok(())
}

/// A subcommand that actors run: all, or the first.
const fn part(
    name: &'static str,
    arity: i16,
    flags: Flags,
    run: fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome,
) -> Command {
    Command {
        name,
        arity,
        flags: flags.and(Flags::ADMIN),
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Server,
        since: "2.0.0",
        summary: "",
        run: Run::Everywhere(run, Combine::First),
    }
}

static CONFIG_SET: Command = part("config|set", -4, Flags::SECRET, config_set);
static CONFIG_RESETSTAT: Command = part("config|resetstat", 2, Flags::NONE, reset_counters);
static CONFIG_REWRITE: Command = part("config|rewrite", 2, Flags::NONE, config_rewrite);

fn config_rewrite(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let Some(path) = &actor.config.settings_file else {
        return Err(CommandError::text("ERR The server is running without a config file; start it with keys.config"));
    };
    let refused = |reason: &dyn Display| {
        CommandError::from(format!("ERR Rewriting config file {} failed: {reason}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|error| refused(&error))?;
    let text = rewritten(&text, &actor.written_config, &actor.config).map_err(|reason| refused(&reason))?;
    small_file::replace(path, text.as_bytes()).map_err(|error| refused(&error))?;
    *actor.written_config = actor.config.clone();
    reply.ok();
    Ok(())
}

fn reset_counters(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    actor.reset_counters();
    reply.ok();
    Ok(())
}

fn config_set(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    check_config(actor, args)?;
    for (name, value) in args.from(2).step_by(2).zip(args.from(3).step_by(2)) {
        if actor.config.is_kept(name, value) {
            continue;
        }
        actor.config.set(name, value)?;
        if name.eq_ignore_ascii_case(b"requirepass") {
            let password = actor.config.password.clone();
            actor.change_users(|users| users.set_default_password(password.as_ref()));
        }
    }
    actor.keys.events.want(actor.config.events);
    actor.keys.encodings = actor.config.encodings;
    actor.keys.count_uses(actor.config.counting());
    actor.make_room_now();
    reply.ok();
    Ok(())
}
