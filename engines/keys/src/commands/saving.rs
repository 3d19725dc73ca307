//! All keys as a file of Redis: on the disk, or for who asks ([`crate::actor::saving`]).

use crate::actor::saving::SaveWish;
use crate::actor::{Actor, Progress};
use crate::error::CommandError;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

type Done = Result<Progress, CommandError>;

/// `SAVE`
pub fn save(actor: &mut Actor, session: &mut Session, _: Args<'_>, _: &mut dyn Reply) -> Done {
    actor.save(session, SaveWish::Wait)
}

/// `BGSAVE [SCHEDULE]`
pub fn bgsave(actor: &mut Actor, session: &mut Session, args: Args<'_>, _: &mut dyn Reply) -> Done {
    let later = match args.len() {
        1 => false,
        2 if args[1].eq_ignore_ascii_case(b"schedule") => true,
        _ => return Err(CommandError::Syntax),
    };
    actor.save(session, SaveWish::Begin { later })
}

/// `LASTSAVE`
pub fn lastsave(actor: &mut Actor, _: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    reply.count((actor.last_saved_at().0 / 1000) as usize);
    Ok(Progress::Answered)
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]`
pub fn shutdown(actor: &mut Actor, session: &mut Session, args: Args<'_>, _: &mut dyn Reply) -> Done {
    let (mut saves, mut aborts) = (None, false);
    for word in args.from(1) {
        match word.to_ascii_lowercase().as_slice() {
            b"save" if saves != Some(false) => saves = Some(true),
            b"nosave" if saves != Some(true) => saves = Some(false),
            // There are no replicas that are waited for, and what must not be lost is in the log.
            b"now" | b"force" => {}
            b"abort" if args.len() == 2 => aborts = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    if aborts {
        return Err(CommandError::text("ERR No shutdown in progress."));
    }
    if !actor.config.may_be_shut_down {
        return Err(CommandError::text(
            "ERR SHUTDOWN would stop the whole node, which may have more than keys; set keys.shutdown = yes to allow it, or stop \
             the process as you started it",
        ));
    }
    if saves == Some(true) {
        return actor.save(session, SaveWish::Stop);
    }
    actor.is_stop_wanted = true;
    // Nobody is told: the connection ends with the process.
    Ok(Progress::LaterAlone(session.ticket()))
}

/// `SYNC`
pub fn sync(actor: &mut Actor, session: &mut Session, _: Args<'_>, _: &mut dyn Reply) -> Done {
    actor.save(session, SaveWish::Copy { says_history: false })
}

/// `PSYNC replicationid offset`
pub fn psync(actor: &mut Actor, session: &mut Session, _: Args<'_>, _: &mut dyn Reply) -> Done {
    // No history is kept from which anybody could go on.
    actor.save(session, SaveWish::Copy { says_history: true })
}

/// `REPLCONF name value [name value ...]`
pub fn replconf(_: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    for name in args.from(1).step_by(2) {
        match name.to_ascii_lowercase().as_slice() {
            b"listening-port" | b"ip-address" | b"capa" | b"version" | b"rdb-only" => {}
            _ => return Err(CommandError::from(format!("ERR Unrecognized REPLCONF option: {}", name.escape_ascii()))),
        }
    }
    reply.ok();
    Ok(Progress::Answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::placement::{ActorId, Routes};
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    /// Whether a process with these settings is to stop when a client says this, and whether that is refused.
    fn says(config: Config, words: &[&[u8]]) -> (bool, bool) {
        says_to(Actor::new(ActorId(0), Routes::over(1), config, 1), words)
    }

    fn says_to(mut actor: Actor, words: &[&[u8]]) -> (bool, bool) {
        let session = actor.open_session(String::new(), String::new());
        let progress = actor.request(session, OwnedArgs::of_words(words).args(), &mut Tape::new());
        (actor.take_stop_wanted(), progress == Progress::Answered)
    }

    #[test]
    fn a_client_stops_the_process_only_where_it_may_and_never_before_what_it_asks_to_be_saved() {
        let may = || Config { may_be_shut_down: true, ..Config::default() };
        assert_eq!(says(may(), &[b"SHUTDOWN"]), (true, false));
        assert_eq!(says(Config::default(), &[b"SHUTDOWN"]), (false, true));
        assert_eq!(says(may(), &[b"SHUTDOWN", b"SAVE"]), (false, true), "there is no place for a file");
        let saves = Config { dump_directory: Some("/".into()), ..may() };
        assert_eq!(says(saves.clone(), &[b"SHUTDOWN", b"save", b"now"]), (false, false), "the file is not there yet");
        let mut front = Actor::new(ActorId(0), Routes::over(1), saves, 1);
        front.face_elsewhere();
        assert_eq!(says_to(front, &[b"SHUTDOWN", b"SAVE"]), (false, true), "another node has the keys");
    }
}
