//! The connection itself.

use super::generic::parse_database;
use crate::access::Access;
use crate::actor::{Actor, Ending, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

type Done = Result<Progress, CommandError>;

/// `PING [message]`
pub fn ping(_: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    if args.len() > 2 {
        return Err(CommandError::Arity("ping".to_owned()));
    }
    let message = args.from(1).next();
    if session.protocol == 2 && session.is_subscribed() {
        reply.array(2);
        reply.bulk(b"pong");
        reply.bulk(message.unwrap_or_default());
    } else {
        match message {
            Some(message) => reply.bulk(message),
            None => reply.simple("PONG"),
        }
    }
    Ok(Progress::Answered)
}

/// `ECHO message`
pub fn echo(_: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    reply.bulk(&args[1]);
    Ok(Progress::Answered)
}

/// `SELECT index`
pub fn select(_: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    session.database = parse_database(&args[1])?;
    reply.ok();
    Ok(Progress::Answered)
}

/// `QUIT`
pub fn quit(_: &mut Actor, _: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    reply.ok();
    Ok(Progress::Closing)
}

/// `RESET`
pub fn reset(actor: &mut Actor, session: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    actor.unsubscribe_all(session);
    session.queued = None;
    session.watched.clear();
    session.database = 0;
    session.name.clear();
    session.protocol = 2;
    session.forget_user(actor.users());
    reply.use_protocol(2);
    reply.simple("RESET");
    Ok(Progress::Answered)
}

/// `AUTH [username] password`
pub fn auth(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    match args.len() {
        2 if actor.users().needs_no_password() => {
            return Err(CommandError::text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => admit(actor, session, b"default", &args[1])?,
        3 => admit(actor, session, &args[1], &args[2])?,
        _ => return Err(CommandError::Syntax),
    }
    reply.ok();
    Ok(Progress::Answered)
}

fn admit(actor: &mut Actor, session: &mut Session, name: &[u8], password: &[u8]) -> Result<(), CommandError> {
    match actor.users().authenticate(name, password) {
        Some(user) => session.become_user(user),
        None => {
            actor.note_denied(session, name, "auth", b"AUTH");
            return Err(CommandError::text("WRONGPASS invalid username-password pair or user is disabled."));
        }
    }
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub fn hello(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let mut protocol = session.protocol;
    if args.len() > 1 {
        let version = crate::number::integer(&args[1])
            .ok_or(CommandError::text("ERR Protocol version is not an integer or out of range"))?;
        if !(2..=3).contains(&version) {
            return Err(CommandError::text("NOPROTO unsupported protocol version"));
        }
        protocol = version as u8;
    }
    let (mut name, mut user) = (None, None);
    let mut options = args.from(2);
    while let Some(option) = options.next() {
        let unknown = || CommandError::from(format!("ERR Syntax error in HELLO option '{}'", option.escape_ascii()));
        match option.to_ascii_lowercase().as_slice() {
            b"auth" => {
                user = Some(options.next().zip(options.next()).ok_or_else(unknown)?);
            }
            b"setname" => name = Some(options.next().ok_or_else(unknown)?),
            _ => return Err(unknown()),
        }
    }
    name.map_or(Ok(()), check_name)?;
    if let Some((user, password)) = user {
        admit(actor, session, user, password)?;
    }
    if session.access == Access::Unknown {
        return Err(CommandError::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        session.name = name.to_vec();
    }
    session.protocol = protocol;
    reply.use_protocol(protocol);
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(super::server::REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(i64::from(protocol));
    reply.bulk(b"id");
    reply.integer(actor.client_number(session.id));
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(Progress::Answered)
}

fn check_name(name: &[u8]) -> Result<(), CommandError> {
    const NAME_BYTES_MAX: usize = 1024;
    if name.len() > NAME_BYTES_MAX {
        return Err(CommandError::text("ERR Client names have at most 1024 bytes."));
    }
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(CommandError::text("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(())
}

/// `CLIENT ID | GETNAME | SETNAME | SETINFO | INFO | LIST | UNBLOCK | NO-EVICT | NO-TOUCH`
pub fn client(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"id", 2) => reply.integer(actor.client_number(session.id)),
        (b"getname", 2) => reply.bulk_or_null((!session.name.is_empty()).then_some(&session.name)),
        (b"setname", 3) => {
            check_name(&args[2])?;
            session.name = args[2].to_vec();
            reply.ok();
        }
        (b"setinfo", 4) => match args[2].to_ascii_lowercase().as_slice() {
            b"lib-name" | b"lib-ver" => reply.ok(),
            _ => return Err(CommandError::from(format!("ERR Unrecognized option '{}'", args[2].escape_ascii()))),
        },
        (b"info", 2) => reply.verbatim(&line(actor, session)),
        (b"list", _) => {
            let mut lines = line(actor, session);
            for other in actor.sessions.iter() {
                lines.push_str(&line(actor, other));
            }
            reply.verbatim(&lines);
        }
        (b"unblock", 3 | 4) => return unblock(actor, session, args, reply),
        (b"no-evict" | b"no-touch", 3) => {
            if !args[2].eq_ignore_ascii_case(b"on") && !args[2].eq_ignore_ascii_case(b"off") {
                return Err(CommandError::Syntax);
            }
            reply.ok();
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLIENT HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`
fn unblock(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let client = parse_integer(&args[2])?;
    parse_ending(args)?;
    actor.ask_actor_of(client, session, &CLIENT_UNBLOCK, args, reply)
}

fn parse_ending(args: Args<'_>) -> Result<Ending, CommandError> {
    match args.from(3).next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"timeout") => Ok(Ending::TimeOut),
        Some(b"error") => Ok(Ending::Unblocked),
        _ => Err(CommandError::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    }
}

/// The part of `CLIENT UNBLOCK` at the client's actor.
static CLIENT_UNBLOCK: Command = Command {
    name: "client|unblock",
    arity: -3,
    flags: Flags::NONE,
    keys: Keys::None,
    class: Class::Everywhere,
    group: Group::Connection,
    since: "5.0.0",
    summary: "Lets a client wait no longer.",
    run: Run::Everywhere(unblock_here, Combine::First),
};

fn unblock_here(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let unblocked = actor.unblock(parse_integer(&args[2])?, parse_ending(args)?);
    reply.flag(unblocked);
    Ok(())
}

/// A client as `CLIENT INFO` tells it.
pub(crate) fn line(actor: &Actor, session: &Session) -> String {
    format!(
        "id={} addr={} name={} db={} sub={} psub={} multi={} watch={} resp={} user={}\n",
        actor.client_number(session.id),
        session.address,
        String::from_utf8_lossy(&session.name),
        session.database,
        session.channels.len(),
        session.patterns.len(),
        session.queued.as_ref().map_or(-1, |program| program.step_count() as i64),
        session.watched.len(),
        session.protocol,
        String::from_utf8_lossy(session.user.name()),
    )
}

/// `WAIT replicas timeout`: there are none yet
pub fn wait(_: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    parse_integer(&args[1])?;
    parse_integer(&args[2])?;
    reply.integer(0);
    Ok(Progress::Answered)
}
