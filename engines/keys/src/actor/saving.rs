//! Saving all keys of one moment to a file (`SAVE`, `BGSAVE`), or for a client that takes the file (`SYNC`, `PSYNC`).
//!
//! The first actor does one save after the other. All actors hold all their keys for a moment, as for a change of whole databases
//! ([`super::databases`]); each then writes its keys as they were at that moment, while it serves. What is written goes to the host, which has
//! the file, and says what became of it to all actors.

use std::fs::File;
use std::sync::Arc;

use savanna_lattice::UnixMillis;

use super::message::{Destination, Message};
use super::{Actor, DatabaseChange, FIRST, Progress};
use crate::error::CommandError;
use crate::keyspace::Saved;
use crate::placement::ActorId;
use crate::reply::Reply;
use crate::session::{Session, SessionId, Ticket};

/// What a save is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveTarget {
    /// The file in the data directory.
    File,
    /// Clients.
    Copy,
}

/// One save among those of a node, which are numbered: what is said of one is not taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOrder {
    /// The later the higher, from 1.
    pub number: u64,
    /// What it is for.
    pub target: SaveTarget,
}

/// What a session asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveWish {
    /// To hear when the file is there.
    Wait,
    /// To hear that it will be there; also where one that is under way has to end first, if it is to be so.
    Begin {
        /// Whether it may begin later.
        later: bool,
    },
    /// That the process stops when the file is there.
    Stop,
    /// The file itself.
    Copy {
        /// Whether it is told in front of it of which history the file is.
        says_history: bool,
    },
}

impl SaveWish {
    const fn target(self) -> SaveTarget {
        match self {
            Self::Wait | Self::Begin { .. } | Self::Stop => SaveTarget::File,
            Self::Copy { .. } => SaveTarget::Copy,
        }
    }
}

/// What became of a save.
#[derive(Debug)]
pub struct SaveOutcome {
    /// Which one.
    pub order: SaveOrder,
    /// Why there is no file, if there is none.
    pub problem: Option<String>,
    /// The file, if clients wait for it.
    pub copy: Option<FileCopy>,
}

/// A file with all keys, for clients.
#[derive(Clone, Debug)]
pub struct FileCopy {
    /// The file. Nobody changes it.
    pub file: Arc<File>,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A file for a session.
#[derive(Debug)]
pub struct CopyFor {
    /// Whose it is.
    pub session: SessionId,
    /// Where it comes among the session's replies.
    pub ticket: Ticket,
    /// The file.
    pub copy: FileCopy,
    /// What is told in front of it.
    pub greeting: String,
}

/// Who waits for a save.
#[derive(Debug)]
struct Waiter {
    from: ActorId,
    to: Destination,
    wish: SaveWish,
}

/// What an actor knows of saves; the first one has those that wait.
#[derive(Debug, Default)]
pub(crate) struct Saves {
    /// What is being saved, and since when.
    under_way: Option<(SaveOrder, UnixMillis)>,
    /// The last save that began, at the first actor.
    numbered: u64,
    /// The last save that has ended.
    ended: u64,
    served: Vec<Waiter>,
    waiting: Vec<Waiter>,
    /// What is to begin, for the host.
    begun: Option<SaveOrder>,
    /// Files for sessions of this actor.
    copies: Vec<CopyFor>,
    /// When the file was last there, if it was since the server began.
    pub(crate) last_at: Option<UnixMillis>,
    /// Whether the last save failed.
    pub(crate) has_failed: bool,
    /// How many milliseconds the last save took.
    pub(crate) last_millis: Option<u64>,
    /// How many saves there were.
    pub(crate) count: u64,
    /// How many changes there had been when the last save began, or the one that is under way.
    changes_before: u64,
    changes_then: u64,
}

impl Saves {
    /// Whether a file is being written, or is to be.
    pub(crate) fn has_file_to_come(&self) -> bool {
        self.file_since().is_some() || self.awaits_file()
    }

    /// Whether a file is to be written that has not begun.
    fn awaits_file(&self) -> bool {
        self.waiting.iter().any(|waiter| waiter.wish.target() == SaveTarget::File)
    }

    /// Since when the file is being written, if it is.
    pub(crate) fn file_since(&self) -> Option<UnixMillis> {
        self.under_way.filter(|(order, _)| order.target == SaveTarget::File).map(|(_, since)| since)
    }
}

impl Actor {
    /// Saves all keys for one of this actor's sessions.
    ///
    /// # Errors
    /// If there is no place for the file, or the session is told things that would come into its midst.
    pub(crate) fn save(&mut self, session: &mut Session, wish: SaveWish) -> Result<Progress, CommandError> {
        if self.has_keys_elsewhere() {
            return Err(CommandError::text("ERR another node has the keys; SAVE there, and SHUTDOWN NOSAVE this one"));
        }
        if self.config.dump_directory.is_none() {
            return Err(CommandError::text(
                "ERR there is no directory for a file with all keys; set keys.dir, or start with a data directory",
            ));
        }
        let is_told_more = session.listens() || session.is_monitor || session.tracking.is_some();
        if is_told_more && wish.target() == SaveTarget::Copy {
            return Err(CommandError::text(
                "ERR SYNC needs a connection that neither subscribes, nor monitors, nor tracks keys: what it is told would come into the file",
            ));
        }
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        if self.id == FIRST {
            self.hear_save(FIRST, to, wish);
        } else {
            self.send(FIRST, Message::Save { to, wish });
        }
        Ok(Progress::LaterAlone(ticket))
    }

    pub(super) fn hear_save(&mut self, from: ActorId, to: Destination, wish: SaveWish) {
        let is_later = self.saves.under_way.is_some();
        match wish {
            SaveWish::Wait | SaveWish::Begin { later: false } if self.saves.file_since().is_some() => {
                return self.answer_save(from, to, |reply| reply.error("ERR Background save already in progress"));
            }
            SaveWish::Begin { later: false } if is_later => {
                return self.answer_save(from, to, |reply| {
                    reply.error(
                        "ERR Another child process is active (SYNC): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a BGSAVE \
                         whenever possible.",
                    );
                });
            }
            SaveWish::Begin { .. } => {
                let words = if is_later { "Background saving scheduled" } else { "Background saving started" };
                self.answer_save(from, to, |reply| reply.simple(words));
                // One that is to come has what there is now, too.
                if self.saves.awaits_file() {
                    return;
                }
            }
            SaveWish::Wait | SaveWish::Stop | SaveWish::Copy { .. } => {}
        }
        self.saves.waiting.push(Waiter { from, to, wish });
        self.begin_next_save();
    }

    /// Begins to save for those who wait, unless a save is under way.
    fn begin_next_save(&mut self) {
        let Some(first) = self.saves.waiting.first().filter(|_| self.saves.under_way.is_none()) else { return };
        let target = first.wish.target();
        self.saves.numbered += 1;
        let order = SaveOrder { number: self.saves.numbered, target };
        self.saves.under_way = Some((order, self.keys.now()));
        self.saves.served = self.saves.waiting.extract_if(.., |waiter| waiter.wish.target() == target).collect();
        if self.routes.actors() == 1 {
            self.begin_save(order);
        } else {
            self.begin_freeze(FIRST, Destination::Gather(0), DatabaseChange::Save(order));
        }
    }

    /// Begins to write this actor's keys, which are all here, as they are now.
    pub(super) fn begin_save(&mut self, order: SaveOrder) {
        if order.number <= self.saves.ended {
            return; // The file failed before this actor was asked for its keys.
        }
        self.saves.under_way = Some((order, self.keys.now()));
        self.saves.changes_then = self.keys.counters.changes;
        self.keys.begin_save(order.number);
        if self.id == FIRST {
            self.saves.begun = Some(order);
        }
    }

    /// A save that begins, once, at the first actor: there is to be a file before anything is written.
    pub const fn take_save_begun(&mut self) -> Option<SaveOrder> {
        self.saves.begun.take()
    }

    /// Whether keys are being written for a file.
    #[must_use]
    pub const fn is_saving(&self) -> bool {
        self.keys.is_saving()
    }

    /// Takes what was written for a file, with more keys of up to about `bytes`.
    pub fn save_some(&mut self, bytes: usize) -> Saved {
        let mut saved = self.keys.save_some(bytes);
        self.drop_later(std::mem::take(&mut saved.dropped));
        saved
    }

    /// Ends the walk of a save: nobody takes its keys any more.
    pub fn end_walk(&mut self, number: u64) {
        let flushed = self.keys.end_save(number);
        self.drop_later(flushed);
    }

    /// Hears what became of a save. What is left of its walk ends.
    pub fn end_save(&mut self, outcome: &SaveOutcome) {
        let number = outcome.order.number;
        self.saves.ended = self.saves.ended.max(number);
        self.end_walk(number);
        let Some((order, since)) = self.saves.under_way.take_if(|(order, _)| order.number == number) else { return };
        let now = self.keys.now();
        if order.target == SaveTarget::File {
            self.saves.has_failed = outcome.problem.is_some();
            self.saves.last_millis = Some(now.0.saturating_sub(since.0));
            self.saves.count += 1;
            if outcome.problem.is_none() {
                self.saves.last_at = Some(now);
                self.saves.changes_before = self.saves.changes_then;
            }
        }
        for Waiter { from, to, wish } in std::mem::take(&mut self.saves.served) {
            match (&outcome.problem, wish) {
                (_, SaveWish::Begin { .. }) => {}
                (Some(problem), _) => self.answer_save(from, to, |reply| reply.error(&format!("ERR {problem}"))),
                (None, SaveWish::Wait) => self.answer_save(from, to, |reply| reply.ok()),
                // Nobody is told: the connection ends with the process.
                (None, SaveWish::Stop) => self.is_stop_wanted = true,
                (None, SaveWish::Copy { says_history }) => {
                    let (Some(copy), Destination::Session(session, ticket)) = (&outcome.copy, to) else { continue };
                    let history =
                        if says_history { format!("+FULLRESYNC {} 0\r\n", self.history()) } else { String::new() };
                    let greeting = format!("{history}${}\r\n", copy.bytes);
                    let copy = CopyFor { session, ticket, copy: copy.clone(), greeting };
                    if from == self.id {
                        self.saves.copies.push(copy);
                    } else {
                        self.send(from, Message::Copy(Box::new(copy)));
                    }
                }
            }
        }
        self.begin_next_save();
    }

    pub(super) fn hear_copy(&mut self, copy: CopyFor) {
        self.saves.copies.push(copy);
    }

    /// Takes the files that sessions of this actor are to be sent; nothing else comes behind them.
    pub fn take_copies(&mut self) -> Vec<CopyFor> {
        std::mem::take(&mut self.saves.copies)
    }

    /// When the file was written last; if it was not, when the server began.
    pub(crate) fn last_saved_at(&self) -> UnixMillis {
        self.saves.last_at.unwrap_or(self.counters.started)
    }

    /// Changes since the file was written last.
    pub(crate) const fn unsaved_changes(&self) -> u64 {
        self.keys.counters.changes.saturating_sub(self.saves.changes_before)
    }

    /// A name for what this process has kept since it began, as replicas of a Redis expect one.
    pub(crate) fn history(&self) -> String {
        format!("{:016x}{:016x}{:08x}", self.counters.started.0, u64::from(std::process::id()), 0)
    }

    /// The node's name for clients of clusters.
    pub(crate) fn node_id(&self) -> String {
        self.config.node_id.clone().unwrap_or_else(|| self.history())
    }

    fn answer_save(&mut self, from: ActorId, to: Destination, write: impl FnOnce(&mut dyn Reply)) {
        let mut replies = self.take_replies(from);
        replies.push(to, |reply| write(reply));
        self.put_replies(from, replies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::databases::Thawed;
    use crate::config::Config;
    use crate::placement::Routes;
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    fn actors(count: u16) -> Vec<Actor> {
        let routes = Routes::over(count);
        let config = Config { dump_directory: Some("somewhere".into()), ..Config::default() };
        let mut actors: Vec<Actor> = routes.all().map(|id| Actor::new(id, routes.clone(), config.clone(), 1)).collect();
        Actor::introduce(&mut actors);
        actors
    }

    /// What a new session hears at once of a request.
    fn ask(actor: &mut Actor, words: &[&[u8]]) -> String {
        let session = actor.open_session(String::new(), String::new());
        let mut tape = Tape::new();
        actor.request(session, OwnedArgs::of_words(words).args(), &mut tape);
        let later = actor.take_own_replies();
        later.iter().for_each(|(_, part)| part.play(&mut tape));
        tape.to_string()
    }

    fn failed(order: SaveOrder) -> SaveOutcome {
        SaveOutcome { order, problem: Some("no disk".to_owned()), copy: None }
    }

    #[test]
    fn a_walk_ends_with_its_save_and_does_not_begin_after_it() {
        let mut actors = actors(2);
        let [first, last] = [1, 2].map(|number| SaveOrder { number, target: SaveTarget::File });
        let actor = &mut actors[1];
        actor.begin_save(first);
        assert!(actor.is_saving());
        actor.end_save(&failed(first));
        assert!(!actor.is_saving(), "nobody takes its keys any more");
        // The file may fail before this actor hears that it is to write its keys.
        actor.end_save(&failed(last));
        actor.thaw(Thawed::Saved(last));
        assert!(!actor.is_saving() && actor.saves.file_since().is_none());
    }

    #[test]
    fn a_node_without_keys_does_not_say_when_they_were_saved() {
        let mut actors = actors(1);
        actors[0].face_elsewhere();
        for words in [&[&b"LASTSAVE"[..]], &[b"SAVE"]] {
            let refusal = ask(&mut actors[0], words);
            assert!(refusal.contains("node"), "{refusal}");
        }
    }

    #[test]
    fn who_is_told_other_things_in_between_takes_no_file() {
        let mut actors = actors(1);
        let actor = &mut actors[0];
        for words in [&[&b"SUBSCRIBE"[..], b"news"][..], &[b"MONITOR"], &[b"CLIENT", b"TRACKING", b"ON"]] {
            let session = actor.open_session(String::new(), String::new());
            let mut tape = Tape::new();
            for words in [&[&b"HELLO"[..], b"3"][..], words] {
                actor.request(session, OwnedArgs::of_words(words).args(), &mut tape);
            }
            let mut tape = Tape::new();
            actor.request(session, OwnedArgs::of_words(&[b"SYNC"]).args(), &mut tape);
            assert!(tape.to_string().contains("SYNC needs a connection"), "{tape}");
        }
        assert!(actor.saves.under_way.is_none());
    }

    #[test]
    fn a_file_does_not_begin_beside_one_for_clients_and_one_that_is_scheduled_is_under_way() {
        let mut actors = actors(1);
        let actor = &mut actors[0];
        let in_progress =
            |actor: &mut Actor| ask(actor, &[b"INFO", b"persistence"]).contains("rdb_bgsave_in_progress:1");
        ask(actor, &[b"SYNC"]);
        let refusal = ask(actor, &[b"BGSAVE"]);
        assert!(refusal.contains("can't BGSAVE right now"), "{refusal}");
        assert!(!in_progress(actor));
        for _ in 0..3 {
            assert!(ask(actor, &[b"BGSAVE", b"SCHEDULE"]).contains("scheduled"));
        }
        assert_eq!(actor.saves.waiting.len(), 1);
        assert!(in_progress(actor), "who waits for the file waits for the one that is to come");
        let (copy, _) = actor.saves.under_way.expect("for a client");
        actor.end_save(&failed(copy));
        assert!(in_progress(actor) && actor.saves.waiting.is_empty());
        let (file, _) = actor.saves.under_way.expect("what was scheduled");
        assert_eq!(file, SaveOrder { number: 2, target: SaveTarget::File });
        actor.end_save(&failed(file));
        assert!(!in_progress(actor));
    }
}
