//! Who may do what: requests are admitted here.

use std::sync::Arc;

use super::Actor;
use super::logbook::{self, DeniedRequest, Note};
use super::program::Program;
use crate::access::{Access, Denial, Users};
use crate::command::{Command, Flags};
use crate::commands::clients::line;
use crate::error::CommandError;
use crate::request::Args;
use crate::session::{Session, SessionId};

/// In what a session's request is refused.
pub(crate) const fn context_of(session: &Session) -> &'static str {
    if session.queued.is_some() { "multi" } else { "toplevel" }
}

impl Actor {
    /// All users.
    #[must_use]
    pub const fn users(&self) -> &Users {
        &self.users
    }

    /// Whether the session's user may run a request: this is the place where requests are admitted.
    pub(super) fn check_access(
        &mut self,
        session: &Session,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), CommandError> {
        if session.access == Access::Unknown {
            if command.flags.has(Flags::NO_AUTH) {
                return Ok(());
            }
            return Err(CommandError::text("NOAUTH Authentication required."));
        }
        session.user.check(command, args).map_err(|denial| {
            let text = match &denial {
                Denial::Command(name) => format!("NOPERM this user has no permissions to run the '{name}' command"),
                Denial::Key(_) => {
                    "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
                }
                Denial::Channel(_) => {
                    "NOPERM this user has no permissions to access one of the channels used as arguments".to_owned()
                }
            };
            let client = line(self, session);
            self.note_denied(client, session.user.name(), context_of(session), denial.reason(), denial.object());
            CommandError::from(text)
        })
    }

    /// Whether the session's user may still run what was queued.
    pub(crate) fn check_queued(&mut self, session: &Session, program: &Program) -> Result<(), CommandError> {
        if session.access == Access::Full {
            return Ok(());
        }
        program.steps().try_for_each(|(command, args)| self.check_access(session, command, args))
    }

    /// Notes what a client, as lists of clients show it, was refused.
    pub(crate) fn note_denied(
        &mut self,
        client: String,
        user: &[u8],
        context: &'static str,
        reason: &'static str,
        object: &[u8],
    ) {
        let (object, user) = (logbook::shortened(object).into(), logbook::shortened(user).into());
        self.note(Note::Denied(DeniedRequest { at: self.keys.now(), reason, context, object, user, client }));
    }

    /// Changes users; sessions have what they may do from before the next request on.
    pub fn change_users<R>(&mut self, change: impl FnOnce(&mut Users) -> R) -> R {
        self.have_users_changed = true;
        change(&mut self.users)
    }

    /// Gives sessions their users as they are now. Who is no user any more, or listens to what it may not, has to go.
    pub(super) fn renew_sessions(&mut self) {
        self.have_users_changed = false;
        for session in self.sessions.iter_mut() {
            match self.users.get(session.user.name()) {
                None => {
                    session.access = Access::Unknown;
                    self.dismissed.push(session.id);
                }
                Some(user) => {
                    let may_listen =
                        session.channels.iter().chain(&session.shards).all(|name| user.may_use_channel(name))
                            && session.patterns.iter().all(|name| user.may_listen_to_pattern(name));
                    if !may_listen {
                        self.dismissed.push(session.id);
                    }
                    session.user = Arc::clone(user);
                    if session.access != Access::Unknown {
                        session.access = user.access();
                    }
                }
            }
        }
    }

    /// Sends a client away: from now on it neither waits nor listens, and its session ends soon.
    pub(crate) fn dismiss(&mut self, id: SessionId) {
        self.abandon(id);
        if let Some(mut session) = self.sessions.take(id) {
            self.unsubscribe_all(&mut session);
            self.end_monitor(&mut session);
            self.sessions.put_back(session);
        }
        self.dismissed.push(id);
    }

    /// Takes the sessions that end when they have been told what they asked for.
    #[must_use]
    pub fn take_closing(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.closing)
    }

    /// Takes the sessions that have to end.
    #[must_use]
    pub fn take_dismissed(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.dismissed)
    }
}
