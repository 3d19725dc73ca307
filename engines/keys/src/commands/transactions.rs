//! Several requests as one.

use crate::actor::program::Program;
use crate::actor::{Actor, Progress};
use crate::command::Command;
use crate::error::CommandError;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

/// `MULTI`
pub fn multi(
    _: &mut Actor,
    session: &mut Session,
    _: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    if session.queued.is_some() {
        reply.error("ERR MULTI calls can not be nested");
        return Ok(Progress::Answered);
    }
    session.queued = Some(Program::new(session.database));
    reply.ok();
    Ok(Progress::Answered)
}

/// `EXEC`
pub fn exec(
    actor: &mut Actor,
    session: &mut Session,
    _: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    let Some(mut program) = session.queued.take() else {
        return Err(CommandError::text("ERR EXEC without MULTI"));
    };
    program.watched = std::mem::take(&mut session.watched);
    if program.is_broken {
        return Err(CommandError::text("EXECABORT Transaction discarded because of previous errors."));
    }
    actor.check_queued(session, &program)?;
    program.replies_with_list = true;
    actor.execute(session, Box::new(program), reply)
}

/// `DISCARD`
pub fn discard(
    _: &mut Actor,
    session: &mut Session,
    _: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    if session.queued.take().is_none() {
        return Err(CommandError::text("ERR DISCARD without MULTI"));
    }
    session.watched.clear();
    reply.ok();
    Ok(Progress::Answered)
}

/// `WATCH key [key ...]`
pub fn watch(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    if session.queued.is_some() {
        reply.error("ERR WATCH inside MULTI is not allowed");
        return Ok(Progress::Answered);
    }
    let Some(command) = Command::find(b"watch") else { return Err(CommandError::Syntax) };
    actor.watch(session, Box::new(Program::single(session.database, command, args)), reply)
}

/// `UNWATCH`
pub fn unwatch(
    _: &mut Actor,
    session: &mut Session,
    _: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    session.watched.clear();
    reply.ok();
    Ok(Progress::Answered)
}
