//! What actors do for libraries of functions. All have all of them; the first one loads them, keeps them in the log, and tells the others,
//! which load a library when one of its functions is called.
//!
//! ```text
//!  a session's actor          the first actor              the others
//!   │ ChangeLibraries ───────►│ load, keep                 │
//!   │                         │ Libraries ────────────────►│ take
//!   │                         │◄──────────────────── reply │
//!   │◄───────────────── reply │
//! ```

use super::message::{Destination, Message};
use super::room::out_of_memory;
use super::{Actor, FIRST, Progress};
use crate::error::CommandError;
use crate::placement::ActorId;
use crate::reply::{Reply, Tape};
use crate::scripting::{Libraries, LibraryChange, LibraryRequest};
use crate::session::Session;

impl Actor {
    /// All libraries.
    pub(crate) const fn libraries(&self) -> &Libraries {
        self.scripts.libraries()
    }

    /// Changes libraries for one of this actor's sessions.
    ///
    /// # Errors
    /// If they cannot be changed so.
    pub(crate) fn change_libraries(
        &mut self,
        session: &mut Session,
        request: LibraryRequest,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        if self.routes.actors() == 1 {
            let change = self.make_change(&request)?;
            answer(&request, &change, reply);
            return Ok(Progress::Answered);
        }
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        if self.id == FIRST {
            self.begin_library_change(FIRST, to, &request);
        } else {
            self.send(FIRST, Message::ChangeLibraries { to, request });
        }
        Ok(Progress::LaterAlone(ticket))
    }

    pub(super) fn begin_library_change(&mut self, from: ActorId, to: Destination, request: &LibraryRequest) {
        let mut told = Tape::new();
        match self.make_change(request) {
            Ok(change) => {
                answer(request, &change, &mut told);
                let gather = self.gather_acknowledgements_of_others(from, to, told);
                for actor in self.routes.all().filter(|actor| *actor != FIRST) {
                    self.send(actor, Message::Libraries { gather, change: change.clone() });
                }
            }
            Err(error) => {
                let mut replies = self.take_replies(from);
                replies.push(to, |reply| error.answer(reply));
                self.put_replies(from, replies);
            }
        }
    }

    /// Loads what is to come, and keeps it. What fails changes nothing.
    fn make_change(&mut self, request: &LibraryRequest) -> Result<LibraryChange, CommandError> {
        // What removes libraries makes room.
        let needs_room = matches!(request, LibraryRequest::Load { .. } | LibraryRequest::Restore { .. });
        if needs_room && !self.make_room() {
            return Err(out_of_memory());
        }
        self.check_log_space()?;
        self.make_change_with_room(request)
    }

    fn make_change_with_room(&mut self, request: &LibraryRequest) -> Result<LibraryChange, CommandError> {
        self.keys.ask_for_log(request.byte_count())?;
        let change = self.scripts.change_libraries(request)?;
        if change.removes_all {
            self.keys.forget_libraries();
        }
        change.removed.iter().for_each(|name| self.keys.forget_library(name));
        change.new.iter().for_each(|(name, library)| self.keys.keep_library(name, &library.text));
        Ok(change)
    }

    pub(super) fn hear_libraries(&mut self, gather: u64, change: &LibraryChange) {
        self.scripts.take_libraries(change);
        let mut replies = self.take_replies(FIRST);
        replies.push(Destination::Gather(gather), |reply| reply.ok());
        self.put_replies(FIRST, replies);
    }

    /// Loads a library at all actors of a node, and keeps it, whatever memory there is to be. Gives the actor that does.
    pub(super) fn load_library<'a>(
        actors: &'a mut [Self],
        request: &LibraryRequest,
    ) -> Result<Option<&'a mut Self>, CommandError> {
        let Some((first, others)) = actors.split_first_mut() else { return Ok(None) };
        let change = first.make_change_with_room(request)?;
        others.iter_mut().for_each(|actor| actor.scripts.take_libraries(&change));
        Ok(Some(first))
    }

    /// Loads the libraries that were read back from the log, at all actors of a node. One that cannot be loaded stays in the log.
    pub(crate) fn recover_libraries(actors: &mut [Self]) {
        let Some((first, others)) = actors.split_first_mut() else { return };
        let texts: Vec<Vec<u8>> = first.keys.libraries().map(|(_, text)| text.to_vec()).collect();
        for text in texts {
            match first.scripts.change_libraries(&LibraryRequest::Load { text, replaces: true }) {
                Ok(change) => others.iter_mut().for_each(|actor| actor.scripts.take_libraries(&change)),
                Err(error) => {
                    tracing::error!(%error, "a library of functions cannot be loaded; it stays in the log, and is tried again at the next start");
                }
            }
        }
    }
}

fn answer(request: &LibraryRequest, change: &LibraryChange, reply: &mut dyn Reply) {
    match (request, change.new.first()) {
        (LibraryRequest::Load { .. }, Some((name, _))) => reply.bulk(name),
        _ => reply.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::placement::Routes;

    #[test]
    fn a_library_that_cannot_be_loaded_stays_in_the_log_until_somebody_deletes_all() {
        let routes = Routes::over(2);
        let mut actors: Vec<Actor> =
            routes.all().map(|id| Actor::new(id, routes.clone(), Config::default(), u64::from(id.0))).collect();
        let good =
            |name: &str| format!("#!lua name={name}\nredis.register_function('f_{name}', function() end)").into_bytes();
        actors[0].keys.keep_library(b"broken", b"#!lua name=broken\nerror('not now')");
        actors[0].keys.keep_library(b"good", &good("good"));
        Actor::recover_libraries(&mut actors);
        for actor in &actors {
            assert!(actor.libraries().function(b"f_good").is_some() && actor.libraries().get(b"broken").is_none());
        }
        let kept = |actor: &Actor| {
            let mut names: Vec<Vec<u8>> = actor.keys.libraries().map(|(name, _)| name.to_vec()).collect();
            names.sort();
            names
        };
        let requests = [
            LibraryRequest::Load { text: good("other"), replaces: false },
            LibraryRequest::Load { text: b"#!lua name=good\nerror('no')".to_vec(), replaces: true },
            LibraryRequest::Delete(b"good".to_vec()),
        ];
        let outcomes = requests.map(|request| actors[0].make_change(&request).is_ok());
        assert_eq!(outcomes, [true, false, true]);
        assert_eq!(kept(&actors[0]), [b"broken".to_vec(), b"other".to_vec()]);
        actors[0].make_change(&LibraryRequest::Flush).expect("it can");
        assert!(kept(&actors[0]).is_empty());
    }
}
