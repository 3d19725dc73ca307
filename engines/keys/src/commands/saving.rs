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
