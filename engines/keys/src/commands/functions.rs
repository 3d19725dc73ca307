//! Functions: see [`crate::scripting`].

use super::scripts::{number_of_keys, run};
use crate::actor::{Actor, Progress};
use crate::error::{CommandError, Outcome};
use crate::keyspace::payload;
use crate::pattern;
use crate::reply::Reply;
use crate::request::Args;
use crate::scripting::{Kill, Library, LibraryRequest, Named, Policy};
use crate::session::Session;

/// `FCALL function numkeys [key ...] [arg ...]`
pub fn fcall(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    call(actor, args, reply, false)
}

/// `FCALL_RO function numkeys [key ...] [arg ...]`
pub fn fcall_ro(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    call(actor, args, reply, true)
}

fn call(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply, is_readonly: bool) -> Outcome {
    let found = actor.libraries().function(&args[1]);
    let (_, function) = found.ok_or(CommandError::text("ERR Function not found"))?;
    if is_readonly && !function.is_readonly() {
        return Err(CommandError::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    let count = number_of_keys(args).map_err(|error| match error {
        CommandError::NotInteger => CommandError::text("ERR Bad number of keys provided"),
        other => other,
    })?;
    run(actor, args, count, Named::Function(&args[1]), is_readonly, reply)
}

/// `FUNCTION LOAD [REPLACE] code | DELETE library | FLUSH [ASYNC | SYNC] | LIST [LIBRARYNAME pattern] [WITHCODE] | DUMP |
/// RESTORE payload [FLUSH | APPEND | REPLACE] | STATS | KILL | HELP`
pub fn function(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    let name = args[1].to_ascii_lowercase();
    let takes = |is_right: bool| {
        let wrong = || format!("ERR wrong number of arguments for 'function|{}' command", name.escape_ascii());
        if is_right { Ok(()) } else { Err(CommandError::from(wrong())) }
    };
    match name.as_slice() {
        b"load" => {
            takes(args.len() >= 3)?;
            let (replaces, text) = (replaces(args)?, args[args.len() - 1].to_vec());
            return actor.change_libraries(session, LibraryRequest::Load { text, replaces }, reply);
        }
        b"delete" => {
            takes(args.len() == 3)?;
            return actor.change_libraries(session, LibraryRequest::Delete(args[2].to_vec()), reply);
        }
        b"flush" => {
            if args.len() > 3 {
                return Err(unfit(args));
            }
            let mode = args.from(2).next().unwrap_or(b"sync").to_ascii_lowercase();
            if !matches!(mode.as_slice(), b"sync" | b"async") {
                return Err(CommandError::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            return actor.change_libraries(session, LibraryRequest::Flush, reply);
        }
        b"restore" => {
            takes(args.len() >= 3)?;
            if args.len() > 4 {
                return Err(unfit(args));
            }
            let policy = policy(args)?;
            let refused = |why: payload::NoValue| CommandError::from(why.to_string());
            let texts = payload::restore_libraries(&args[2]).map_err(refused)?;
            return actor.change_libraries(session, LibraryRequest::Restore { texts, policy }, reply);
        }
        b"list" => list(actor, args, reply)?,
        b"dump" => {
            takes(args.len() == 2)?;
            reply.bulk(&payload::dump_libraries(actor.libraries().iter().map(|(_, library)| &*library.text)));
        }
        b"stats" => {
            takes(args.len() == 2)?;
            stats(actor, reply);
        }
        b"kill" => {
            takes(args.len() == 2)?;
            kill(actor, true, reply)?;
        }
        b"help" => {
            takes(args.len() == 2)?;
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.simple(line));
        }
        _ => {
            let name = args[1].escape_ascii();
            return Err(CommandError::from(format!("ERR unknown subcommand '{name}'. Try FUNCTION HELP.")));
        }
    }
    Ok(Progress::Answered)
}

/// What a request with words too many is told.
fn unfit(args: Args<'_>) -> CommandError {
    CommandError::from(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try FUNCTION HELP.",
        args[1].escape_ascii()
    ))
}

/// Whether a `FUNCTION` request changes libraries.
pub(crate) fn may_change(args: Args<'_>) -> bool {
    let subcommand = args.from(1).next().unwrap_or_default().to_ascii_lowercase();
    matches!(subcommand.as_slice(), b"load" | b"delete" | b"flush" | b"restore")
}

const HELP: [&str; 19] = [
    "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Tell the name, engine and functions of all libraries, or of those whose names match, and their code.",
    "STATS",
    "    Tell how many libraries and functions there are.",
    "KILL",
    "    End the function that runs, if it has changed nothing.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
    "DUMP",
    "    Return a serialized payload of all libraries, which FUNCTION RESTORE takes.",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Load the libraries of a payload beside those that are there (APPEND), replacing those of the same names, or all.",
    "HELP",
    "    Prints this help.",
];

/// Whether a library may take another one's place.
fn replaces(args: Args<'_>) -> Result<bool, CommandError> {
    let mut replaces = false;
    for option in args.from(2).take(args.len() - 3) {
        if !option.eq_ignore_ascii_case(b"replace") {
            return Err(CommandError::from(format!("ERR Unknown option given: {}", option.escape_ascii())));
        }
        replaces = true;
    }
    Ok(replaces)
}

fn policy(args: Args<'_>) -> Result<Policy, CommandError> {
    match args.from(3).next().unwrap_or(b"append").to_ascii_lowercase().as_slice() {
        b"append" => Ok(Policy::Append),
        b"replace" => Ok(Policy::Replace),
        b"flush" => Ok(Policy::Flush),
        _ => {
            Err(CommandError::text("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."))
        }
    }
}

fn list(actor: &Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (mut wanted, mut has_code) = (None, false);
    let mut options = args.from(2);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"withcode" if !has_code => has_code = true,
            b"libraryname" if wanted.is_none() => {
                wanted = Some(options.next().ok_or(CommandError::text("ERR library name argument was not given"))?);
            }
            _ => return Err(CommandError::from(format!("ERR Unknown argument {}", option.escape_ascii()))),
        }
    }
    let is_wanted = |name: &[u8]| wanted.is_none_or(|wanted| pattern::matches(wanted, name));
    let listed: Vec<_> = actor.libraries().iter().filter(|(name, _)| is_wanted(name)).collect();
    reply.array(listed.len());
    for (name, library) in listed {
        show(name, library, has_code, reply);
    }
    Ok(())
}

fn show(name: &[u8], library: &Library, has_code: bool, reply: &mut dyn Reply) {
    reply.map(3 + usize::from(has_code));
    reply.bulk(b"library_name");
    reply.bulk(name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        reply.bulk_or_null(function.description.as_deref());
        reply.bulk(b"flags");
        reply.set(function.flags.len());
        function.flags.iter().for_each(|flag| reply.simple(flag));
    }
    if has_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.text);
    }
}

fn stats(actor: &Actor, reply: &mut dyn Reply) {
    let libraries = actor.libraries();
    reply.map(2);
    reply.bulk(b"running_script");
    // While one runs, its thread answers nobody who asks for this.
    reply.null();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries.iter().count());
    reply.bulk(b"functions_count");
    reply.count(libraries.function_count());
}

/// Ends the scripts or functions that run, on whichever thread: `SCRIPT KILL`, `FUNCTION KILL`
pub(super) fn kill(actor: &Actor, are_functions: bool, reply: &mut dyn Reply) -> Outcome {
    match actor.kill_scripts(are_functions) {
        Kill::Done => reply.ok(),
        Kill::Other => {
            return Err(CommandError::text(match are_functions {
                true => "BUSY Savanna is busy running a script. You can only call SCRIPT KILL.",
                false => "BUSY Savanna is busy running a function. You can only call FUNCTION KILL.",
            }));
        }
        Kill::Idle => return Err(CommandError::text("NOTBUSY No scripts in execution right now.")),
        Kill::HasWritten => {
            return Err(CommandError::text(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. It is stopped \
                 when script-time-limit is over.",
            ));
        }
    }
    Ok(())
}
