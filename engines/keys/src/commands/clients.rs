//! Clients: who they are, and what others may do to them.

use savanna_lattice::UnixMillis;

use super::connection::check_name;
use super::tracking::{caching, redirect_of, tracking, tracking_here, tracking_info};
use crate::access::permissions;
use crate::actor::pause::Pause;
use crate::actor::tracking::Mode;
use crate::actor::{Actor, Ending, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::number::{integer, parse_integer};
use crate::reply::{Answering, Reply, Tape, Value};
use crate::request::Args;
use crate::session::{Session, SessionId};

type Done = Result<Progress, CommandError>;

/// `CLIENT ID | GETNAME | SETNAME | SETINFO | INFO | LIST | KILL | PAUSE | UNPAUSE | REPLY | UNBLOCK | NO-EVICT | NO-TOUCH | TRACKING | CACHING | GETREDIR | TRACKINGINFO`
pub fn client(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let subcommand = args[1].to_ascii_lowercase();
    match (subcommand.as_slice(), args.len()) {
        (b"help", 2) => super::help("client", reply),
        (b"id", 2) => reply.integer(actor.client_number(session.id)),
        (b"getname", 2) => reply.bulk_or_null((!session.name.is_empty()).then_some(&session.name)),
        (b"setname", 3) => {
            check_name(&args[2])?;
            session.name = args[2].to_vec();
            reply.ok();
        }
        (b"setinfo", 4) => {
            set_info(session, &args[2], &args[3])?;
            reply.ok();
        }
        (b"info", 2) => reply.verbatim(&line(actor, session)),
        (b"list", _) => return list(actor, session, args, reply),
        (b"kill", 3..) => return kill(actor, session, args, reply),
        (b"pause", 3 | 4) => return pause(actor, session, args, reply),
        (b"unpause", 2) => return actor.ask_everybody(session, &CLIENT_UNPAUSE, args, reply),
        (b"reply", 3) => answer(&args[2], reply)?,
        (b"unblock", 3 | 4) => return unblock(actor, session, args, reply),
        (b"tracking", 3..) => return tracking(actor, session, args, reply),
        (b"caching", 3) => {
            caching(session, &args[2])?;
            reply.ok();
        }
        (b"getredir", 2) => reply.integer(redirect_of(session)),
        (b"trackinginfo", 2) => tracking_info(session, reply),
        (b"no-evict" | b"no-touch", 3) => {
            let is_on = match args[2].to_ascii_lowercase().as_slice() {
                b"on" => true,
                b"off" => false,
                _ => return Err(CommandError::Syntax),
            };
            if subcommand == b"no-evict" {
                session.is_kept = is_on;
            }
            reply.ok();
        }
        (
            b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"kill" | b"pause" | b"unpause" | b"reply"
            | b"unblock" | b"no-evict" | b"no-touch" | b"tracking" | b"caching" | b"getredir" | b"trackinginfo",
            _,
        ) => return Err(CommandError::Arity(format!("client|{}", String::from_utf8_lossy(&subcommand)))),
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand '{}'. Try CLIENT HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

/// `CLIENT SETINFO LIB-NAME name | LIB-VER version`
fn set_info(session: &mut Session, what: &[u8], value: &[u8]) -> Outcome {
    let (name, place) = match what.to_ascii_lowercase().as_slice() {
        b"lib-name" => ("lib-name", &mut session.library.0),
        b"lib-ver" => ("lib-ver", &mut session.library.1),
        _ => return Err(CommandError::from(format!("ERR Unrecognized option '{}'", what.escape_ascii()))),
    };
    if !value.iter().all(u8::is_ascii_graphic) {
        return Err(CommandError::from(format!("ERR {name} cannot contain spaces, newlines or special characters.")));
    }
    *place = value.to_vec();
    Ok(())
}

/// Whether a request is one about all actors, though its command is about the session, or about replies: such are no part
/// of a transaction.
pub(crate) fn asks_others(command: &Command, args: Args<'_>) -> bool {
    const THEY: [&[u8]; 7] = [b"list", b"kill", b"pause", b"unpause", b"unblock", b"reply", b"tracking"];
    matches!(command.name, "swapdb" | "flushdb" | "flushall")
        || command.name == "config" && [&b"set"[..], b"resetstat"].iter().any(|name| args[1].eq_ignore_ascii_case(name))
        || matches!(command.name, "latency" | "slowlog")
        || command.name == "memory" && args.len() == 2
        || command.name == "client" && THEY.iter().any(|name| args[1].eq_ignore_ascii_case(name))
}

/// The part of a subcommand that an actor runs.
const fn part(
    name: &'static str,
    summary: &'static str,
    run: fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome,
    combine: Combine,
) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::KEYLESS,
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Connection,
        since: "2.4.0",
        summary,
        run: Run::Everywhere(run, combine),
    }
}

static CLIENT_LIST: Command = part("client|list", "Tells of clients.", list_here, Combine::Clients);
static CLIENT_KILL: Command = part("client|kill", "Sends clients away.", kill_here, Combine::Sum);
static CLIENT_KILL_ONE: Command = part("client|kill", "Sends a client away.", kill_here, Combine::Killed);
static CLIENT_UNPAUSE: Command = part("client|unpause", "Ends a pause.", unpause_here, Combine::First);
pub(super) static CLIENT_TRACKING: Command =
    part("client|tracking", "Has changes told to a client.", tracking_here, Combine::First);
static CLIENT_UNBLOCK: Command = part("client|unblock", "Lets a client wait no longer.", unblock_here, Combine::First);

/// What a client is, for those who choose clients by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It asks.
    Normal,
    /// It listens.
    PubSub,
    /// Another server of Redis; there are none.
    Server,
}

impl Kind {
    fn parse(name: &[u8]) -> Result<Self, CommandError> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::PubSub),
            b"master" | b"replica" | b"slave" => Ok(Self::Server),
            _ => Err(CommandError::from(format!("ERR Unknown client type '{}'", name.escape_ascii()))),
        }
    }

    fn of(session: &Session) -> Self {
        if session.is_subscribed() { Self::PubSub } else { Self::Normal }
    }
}

/// Which clients `CLIENT LIST` tells of: of one kind, or of these numbers.
#[derive(Debug, Default)]
struct Listed {
    kind: Option<Kind>,
    numbers: Option<Vec<i64>>,
}

impl Listed {
    /// `[TYPE NORMAL | MASTER | REPLICA | PUBSUB] | [ID client-id [client-id ...]]`
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let option = args.from(2).next().unwrap_or_default().to_ascii_lowercase();
        match (option.as_slice(), args.len()) {
            (_, 2) => Ok(Self::default()),
            (b"type", 4) => Ok(Self { kind: Some(Kind::parse(&args[3])?), numbers: None }),
            (b"id", 4..) => {
                let numbers = args.from(3).map(integer).collect::<Option<_>>();
                let numbers = numbers.ok_or(CommandError::text("ERR Invalid client ID"))?;
                Ok(Self { kind: None, numbers: Some(numbers) })
            }
            _ => Err(CommandError::Syntax),
        }
    }

    fn has(&self, actor: &Actor, session: &Session) -> bool {
        let numbers = self.numbers.as_ref();
        self.kind.is_none_or(|kind| kind == Kind::of(session))
            && numbers.is_none_or(|numbers| numbers.contains(&actor.client_number(session.id)))
    }
}

fn list(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let listed = Listed::parse(args)?;
    let mut own = lines(actor, &listed);
    if listed.has(actor, session) {
        own.push_str(&line(actor, session));
    }
    let mut tape = Tape::new();
    tape.verbatim(&own);
    actor.ask_others(session, &CLIENT_LIST, args, tape, reply)
}

fn list_here(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.verbatim(&lines(actor, &Listed::parse(args)?));
    Ok(())
}

/// The clients of this actor but the one whose request runs.
fn lines(actor: &Actor, listed: &Listed) -> String {
    actor.sessions.iter().filter(|session| listed.has(actor, session)).map(|session| line(actor, session)).collect()
}

/// Puts the actors' parts of `CLIENT LIST` together.
pub(crate) fn combine(parts: &[Tape], reply: &mut dyn Reply) {
    let texts = parts.iter().filter_map(|part| match part.first() {
        Some(Value::Verbatim(text)) => Some(text),
        _ => None,
    });
    let mut lines: Vec<&str> = texts.flat_map(|text| text.split_inclusive('\n')).collect();
    lines.sort_by_key(|line| line.split_once(' ').and_then(|(id, _)| id.strip_prefix("id=")?.parse::<i64>().ok()));
    reply.verbatim(&lines.concat());
}

/// A client as `CLIENT INFO` tells it.
pub(crate) fn line(actor: &Actor, session: &Session) -> String {
    let seconds_since = |at: UnixMillis| actor.keys.now().0.saturating_sub(at.0) / 1000;
    let mut flags = String::new();
    let tracking = session.tracking.as_ref();
    for (is_so, flag) in [
        (session.is_monitor, 'O'),
        (session.is_subscribed(), 'P'),
        (session.queued.is_some(), 'x'),
        (session.is_held || actor.is_blocked_session(session.id), 'b'),
        (tracking.is_some(), 't'),
        (tracking.is_some_and(|tracking| tracking.is_broken), 'R'),
        (tracking.is_some_and(|tracking| tracking.mode == Mode::Broadcast), 'B'),
        (session.is_kept, 'e'),
    ] {
        if is_so {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    format!(
        "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} watch={} \
         qbuf={} multi-mem={} omem={} tot-mem={} cmd={} user={} redir={} resp={} lib-name={} lib-ver={}\n",
        actor.client_number(session.id),
        session.address,
        session.local_address,
        String::from_utf8_lossy(&session.name),
        seconds_since(session.opened_at),
        seconds_since(session.heard_at),
        session.database,
        session.channels.len(),
        session.patterns.len(),
        session.shards.len(),
        session.queued.as_ref().map_or(-1, |program| program.step_count() as i64),
        session.watched.len(),
        session.memory.input,
        session.queued_bytes(),
        session.memory.output,
        session.memory.total,
        session.last.map_or_else(|| "NULL".to_owned(), |index| permissions()[index].name()),
        String::from_utf8_lossy(session.user.name()),
        redirect_of(session),
        session.protocol,
        String::from_utf8_lossy(&session.library.0),
        String::from_utf8_lossy(&session.library.1),
    )
}

/// Which clients `CLIENT KILL` sends away.
#[derive(Debug)]
struct Doomed<'a> {
    number: Option<i64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    kind: Option<Kind>,
    seconds_min: Option<u64>,
    skips_me: bool,
    /// Whether it was asked for by an address alone, and is answered with `OK`.
    is_one: bool,
}

impl<'a> Doomed<'a> {
    /// `ip:port`, or `[ID client-id] [TYPE type] [USER name] [ADDR ip:port] [LADDR ip:port] [SKIPME YES | NO] [MAXAGE s]`
    fn parse(actor: &Actor, args: Args<'a>) -> Result<Self, CommandError> {
        let mut doomed = Self {
            number: None,
            address: None,
            local_address: None,
            user: None,
            kind: None,
            seconds_min: None,
            skips_me: true,
            is_one: args.len() == 3,
        };
        if doomed.is_one {
            return Ok(Self { address: Some(args.at(2)), skips_me: false, ..doomed });
        }
        let mut options = args.from(2);
        while let Some(option) = options.next() {
            let value = options.next().ok_or(CommandError::Syntax)?;
            match option.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let number = integer(value).filter(|number| *number > 0);
                    doomed.number = Some(number.ok_or(CommandError::text("ERR client-id should be greater than 0"))?);
                }
                b"type" => doomed.kind = Some(Kind::parse(value)?),
                b"addr" => doomed.address = Some(value),
                b"laddr" => doomed.local_address = Some(value),
                b"user" if actor.users().get(value).is_none() => {
                    return Err(CommandError::from(format!("ERR No such user '{}'", value.escape_ascii())));
                }
                b"user" => doomed.user = Some(value),
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => doomed.skips_me = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => doomed.skips_me = false,
                b"maxage" => {
                    let seconds = integer(value).and_then(|seconds| u64::try_from(seconds).ok());
                    let refusal = CommandError::text("ERR maxage is not an integer or out of range");
                    doomed.seconds_min = Some(seconds.ok_or(refusal)?);
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(doomed)
    }

    fn has(&self, actor: &Actor, session: &Session) -> bool {
        let age = actor.keys.now().0.saturating_sub(session.opened_at.0) / 1000;
        self.number.is_none_or(|number| number == actor.client_number(session.id))
            && self.address.is_none_or(|address| address == session.address.as_bytes())
            && self.local_address.is_none_or(|address| address == session.local_address.as_bytes())
            && self.user.is_none_or(|user| user == session.user.name())
            && self.kind.is_none_or(|kind| kind == Kind::of(session))
            && self.seconds_min.is_none_or(|seconds| age >= seconds)
    }
}

fn kill(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let doomed = Doomed::parse(actor, args)?;
    let is_me = !doomed.skips_me && doomed.has(actor, session);
    let mut tape = Tape::new();
    tape.count(send_away(actor, &doomed) + usize::from(is_me));
    let command = if doomed.is_one { &CLIENT_KILL_ONE } else { &CLIENT_KILL };
    let progress = actor.ask_others(session, command, args, tape, reply)?;
    Ok(match progress {
        Progress::Answered if is_me => Progress::Closing,
        Progress::LaterAlone(ticket) if is_me => Progress::LaterClosing(ticket),
        progress => progress,
    })
}

fn kill_here(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let doomed = Doomed::parse(actor, args)?;
    reply.count(send_away(actor, &doomed));
    Ok(())
}

/// Sends clients of this actor away, but not the one whose request runs. Says how many.
fn send_away(actor: &mut Actor, doomed: &Doomed<'_>) -> usize {
    let found: Vec<SessionId> =
        actor.sessions.iter().filter(|session| doomed.has(actor, session)).map(|session| session.id).collect();
    found.iter().for_each(|session| actor.dismiss(*session));
    found.len()
}

/// Puts the actors' parts of the older `CLIENT KILL` together.
pub(crate) fn combine_killed(parts: &[Tape], reply: &mut dyn Reply) {
    if parts.iter().any(|part| part.first() != Some(Value::Integer(0))) {
        reply.ok();
    } else {
        reply.error("ERR No such client");
    }
}

/// `CLIENT PAUSE milliseconds [WRITE | ALL]`
fn pause(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let is_for_all = match args.from(3).next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"all") => true,
        Some(b"write") => false,
        _ => return Err(CommandError::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let millis = integer(&args[2]).ok_or(CommandError::text("ERR timeout is not an integer or out of range"))?;
    let millis = u64::try_from(millis).map_err(|_| CommandError::text("ERR timeout is negative"))?;
    let until = UnixMillis(actor.keys.now().0.saturating_add(millis));
    Ok(actor.ask_for_pause(session, Pause { until, is_for_all }, reply))
}

fn unpause_here(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    actor.end_pause();
    reply.ok();
    Ok(())
}

/// `CLIENT REPLY ON | OFF | SKIP`
fn answer(how: &[u8], reply: &mut dyn Reply) -> Outcome {
    match how.to_ascii_lowercase().as_slice() {
        b"on" => {
            reply.answer(Answering::On);
            reply.ok();
        }
        b"off" => reply.answer(Answering::Off),
        b"skip" => reply.answer(Answering::SkipNext),
        _ => return Err(CommandError::Syntax),
    }
    Ok(())
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

fn unblock_here(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let unblocked = actor.unblock(parse_integer(&args[2])?, parse_ending(args)?);
    reply.flag(unblocked);
    Ok(())
}
