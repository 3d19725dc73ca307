//! The connection itself.

use super::generic::parse_database;
use crate::access::Access;
use crate::actor::{Actor, Progress, context_of};
use crate::error::CommandError;
use crate::number::parse_integer;
use crate::reply::{Answering, Reply};
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
    actor.end_monitor(session);
    actor.track(session, None);
    session.queued = None;
    session.watched.clear();
    session.database = 0;
    session.name.clear();
    session.is_kept = false;
    session.protocol = 2;
    session.forget_user(actor.users(), actor.keys.now());
    reply.use_protocol(2);
    reply.answer(Answering::On);
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
        // Who knows the password may rule the whole node.
        Some(user) if user.is_administrator() && session.is_exposed && actor.config.is_protected => {
            return Err(CommandError::text(
                "ERR expected an encrypted connection, because this user is an administrator of the node; connect to tls-port, \
                 or from the same machine (or set protected-mode no)",
            ));
        }
        Some(user) => session.become_user(user),
        None => {
            let client = super::clients::line(actor, session);
            actor.note_denied(client, name, context_of(session), "auth", b"AUTH");
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
    reply.bulk(mode_of(session).as_bytes());
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(Progress::Answered)
}

/// What a node is for a client: `cluster` at the cluster port.
const fn mode_of(session: &Session) -> &'static str {
    if session.is_of_cluster { "cluster" } else { "standalone" }
}

pub(super) fn check_name(name: &[u8]) -> Result<(), CommandError> {
    const NAME_BYTES_MAX: usize = 1024;
    if name.len() > NAME_BYTES_MAX {
        return Err(CommandError::text("ERR Client names have at most 1024 bytes."));
    }
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(CommandError::text("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(())
}

/// `WAIT replicas timeout`: there are none yet
pub fn wait(_: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    parse_integer(&args[1])?;
    parse_integer(&args[2])?;
    reply.integer(0);
    Ok(Progress::Answered)
}
