//! Copies of values that clients keep.

use super::clients::CLIENT_TRACKING;
use crate::actor::tracking::{Mode, Tracking};
use crate::actor::{Actor, Progress};
use crate::error::{CommandError, Outcome};
use crate::number::parse_integer;
use crate::reply::{Reply, Tape};
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

type Done = Result<Progress, CommandError>;

/// What a request says.
#[derive(Debug, Default)]
struct Options<'a> {
    redirect: i64,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    skips_own: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// `[REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut words = args.from(3);
        while let Some(option) = words.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"redirect" => {
                    let number = words.next().ok_or(CommandError::Syntax)?;
                    if options.redirect != 0 {
                        return Err(CommandError::text("ERR A client can only redirect to a single other client"));
                    }
                    options.redirect = parse_integer(number)?;
                }
                b"prefix" => options.prefixes.push(words.next().ok_or(CommandError::Syntax)?),
                b"bcast" => options.is_broadcast = true,
                b"optin" => options.is_opt_in = true,
                b"optout" => options.is_opt_out = true,
                b"noloop" => options.skips_own = true,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(options)
    }

    /// What a session tracks from now on, which says so, and what it said before.
    fn applied(&self, before: Option<&Tracking>) -> Result<Tracking, CommandError> {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err(CommandError::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if before.is_some_and(|before| (before.mode == Mode::Broadcast) != self.is_broadcast) {
            return Err(CommandError::text(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
                 with a different mode.",
            ));
        }
        if self.is_broadcast && (self.is_opt_in || self.is_opt_out) {
            return Err(CommandError::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.is_opt_in && self.is_opt_out {
            return Err(CommandError::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        let mode_before = before.map(|before| before.mode);
        if self.is_opt_in && mode_before == Some(Mode::OptOut) || self.is_opt_out && mode_before == Some(Mode::OptIn) {
            return Err(CommandError::text(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
                 with a different mode.",
            ));
        }
        let mode = match (self.is_broadcast, self.is_opt_in, self.is_opt_out) {
            (true, ..) => Mode::Broadcast,
            (_, true, _) => Mode::OptIn,
            (_, _, true) => Mode::OptOut,
            _ => Mode::Read,
        };
        let mut tracking = Tracking::new(mode);
        (tracking.skips_own, tracking.redirect) = (self.skips_own, self.redirect);
        if self.is_broadcast {
            tracking.prefixes = self.joined(before.map(|before| &before.prefixes[..]).unwrap_or_default())?;
        }
        Ok(tracking)
    }

    /// The prefixes before, and those that are added. None may be the beginning of another one: who hears twice of a key is none the
    /// wiser.
    fn joined(&self, before: &[Box<[u8]>]) -> Result<Vec<Box<[u8]>>, CommandError> {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        let refusal = |one: &[u8], kind: &str, other: &[u8]| {
            CommandError::from(format!(
                "ERR Prefix '{}' overlaps with {kind} prefix '{}'. Prefixes for a single client must not overlap.",
                one.escape_ascii(),
                other.escape_ascii()
            ))
        };
        for (place, prefix) in self.prefixes.iter().enumerate() {
            if let Some(other) = before.iter().find(|other| overlap(prefix, other)) {
                return Err(refusal(prefix, "an existing", other));
            }
            if let Some(other) = self.prefixes[place + 1..].iter().find(|other| overlap(prefix, other)) {
                return Err(refusal(prefix, "another provided", other));
            }
        }
        let mut all: Vec<Box<[u8]>> = before.to_vec();
        all.extend(self.prefixes.iter().map(|prefix| Box::from(*prefix)));
        if all.is_empty() {
            all.push(Box::default());
        }
        all.sort();
        Ok(all)
    }
}

/// `CLIENT TRACKING ON | OFF [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
pub(super) fn tracking(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    if actor.has_keys_elsewhere() {
        return Err(CommandError::text(
            "ELSEWHERE the keys are on another node, and CLIENT TRACKING cannot be used from here yet; connect to that node",
        ));
    }
    let options = Options::parse(args)?;
    let redirect = options.redirect;
    if redirect != 0 && actor.actor_of_client(redirect) == actor.id() {
        if redirect == actor.client_number(session.id) {
            actor.redirect_to_itself(session.id);
        } else if !actor.redirect_to(redirect) {
            return Err(no_such_client());
        }
    }
    match args[2].to_ascii_lowercase().as_slice() {
        b"on" => {
            let tracking = options.applied(session.tracking.as_deref())?;
            actor.track(session, Some(tracking));
        }
        b"off" => {
            actor.track(session, None);
            reply.ok();
            return Ok(Progress::Answered);
        }
        _ => return Err(CommandError::Syntax),
    }
    if redirect != 0 && actor.actor_of_client(redirect) != actor.id() {
        actor.ask_for_redirect(session.id, redirect);
    }
    // When it is acknowledged, all actors tell of what they change.
    let mut own = Tape::new();
    own.ok();
    let part = OwnedArgs::of_words(&[b"client", b"tracking", redirect.to_string().as_bytes()]);
    actor.ask_others(session, &CLIENT_TRACKING, part.args(), own, reply)
}

/// What another actor answers: it has heard that there is one more session that is to be told.
pub(super) fn tracking_here(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let redirect = parse_integer(&args[2])?;
    if redirect != 0 && actor.actor_of_client(redirect) == actor.id() && !actor.redirect_to(redirect) {
        return Err(no_such_client());
    }
    reply.ok();
    Ok(())
}

fn no_such_client() -> CommandError {
    CommandError::text("ERR The client ID you want redirect to does not exist")
}

/// `CLIENT CACHING YES | NO`
pub(super) fn caching(session: &mut Session, said: &[u8]) -> Outcome {
    let Some(tracking) = &mut session.tracking else {
        return Err(CommandError::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match said.to_ascii_lowercase().as_slice() {
        b"yes" if tracking.mode == Mode::OptIn => {}
        b"no" if tracking.mode == Mode::OptOut => {}
        b"yes" => {
            return Err(CommandError::text(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        b"no" => {
            return Err(CommandError::text(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(CommandError::Syntax),
    }
    tracking.is_said = true;
    Ok(())
}

/// The number of the client that hears in a session's place: 0 for none, -1 if the session keeps no copies.
pub(super) fn redirect_of(session: &Session) -> i64 {
    session.tracking.as_ref().map_or(-1, |tracking| tracking.redirect)
}

/// `CLIENT TRACKINGINFO`
pub(super) fn tracking_info(session: &Session, reply: &mut dyn Reply) {
    let mut flags = Vec::new();
    match &session.tracking {
        None => flags.push("off"),
        Some(tracking) => {
            flags.push("on");
            match tracking.mode {
                Mode::Read => {}
                Mode::Broadcast => flags.push("bcast"),
                Mode::OptIn => flags.extend(["optin"].into_iter().chain(tracking.is_said.then_some("caching-yes"))),
                Mode::OptOut => flags.extend(["optout"].into_iter().chain(tracking.is_said.then_some("caching-no"))),
            }
            flags.extend(tracking.skips_own.then_some("noloop"));
            flags.extend(tracking.is_broken.then_some("broken_redirect"));
        }
    }
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect_of(session));
    reply.bulk(b"prefixes");
    let prefixes = session.tracking.as_ref().map(|tracking| &tracking.prefixes[..]).unwrap_or_default();
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
}
