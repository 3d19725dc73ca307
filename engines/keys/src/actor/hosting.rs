//! What a host does with its actor beside requests and messages: time, changes and the log.

use std::time::Duration;

use savanna_journal::{Draft, JournalError, Lsn};
use savanna_lattice::{Hlc, UnixMillis};

use super::Actor;
use crate::config;
use crate::error::{CommandError, Outcome};
use crate::group::Records;
use crate::keyspace::Keyspace;
use crate::keyspace::adoption::Adopted;

impl Actor {
    /// Begins to count and to keep time: `stopwatch` is for durations, `instant` for the order of changes. `began` is when the
    /// process did, for all its actors alike: it is part of the name by which clients tell processes apart.
    pub fn keep_time(&mut self, stopwatch: fn() -> Duration, instant: fn() -> Hlc, began: UnixMillis) {
        (self.stopwatch, self.keys.instant) = (stopwatch, instant);
        self.counters.started = began;
    }

    /// Notes a client that was sent away because there were too many.
    pub const fn note_rejected(&mut self) {
        self.counters.rejected += 1;
    }

    /// Notes a client that was sent away because all together took too much memory.
    pub const fn note_evicted_client(&mut self) {
        self.counters.evicted_clients += 1;
    }

    /// What time it is, as of the last [`Actor::tick`].
    #[must_use]
    pub const fn now(&self) -> UnixMillis {
        self.keys.now()
    }

    /// Its keys, to be looked at.
    #[must_use]
    pub const fn keys(&self) -> &Keyspace {
        &self.keys
    }

    /// When its changes have to be durable.
    #[must_use]
    pub const fn sync(&self) -> config::Sync {
        self.config.sync
    }

    /// Keeps what it changes, for a log.
    pub const fn keep_changes(&mut self) {
        self.keys.log.enable(true);
    }

    /// Whether something was changed and is not appended.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes().is_empty()
    }

    /// Whether that was so when the script that runs began.
    #[must_use]
    pub const fn had_changes(&self) -> bool {
        self.had_changes
    }

    /// What was changed and is not appended: deltas.
    #[must_use]
    pub fn changes(&self) -> &[u8] {
        self.keys.log.bytes()
    }

    /// Forgets what was changed, where there is no log.
    pub fn forget_changes(&mut self) {
        self.keys.log.clear();
    }

    /// Appends what was changed; each request's part all or nothing. Gives the position on which everything the actor says from now on
    /// depends; `None` if nothing was changed.
    ///
    /// # Errors
    /// That of `append`. The changes that were not taken wait.
    pub fn append_changes(
        &mut self,
        append: impl FnMut(Draft<'_>) -> Result<Lsn, JournalError>,
    ) -> Result<Option<Lsn>, JournalError> {
        self.keys.append_changes(append)
    }

    /// Takes in keys of a node that is gone, out of its log, as changes of this actor, with what the log says of groups of which they are, or which were
    /// led from their virtual nodes. What is changed from now on is later than `latest`.
    ///
    /// # Errors
    /// If the log has no space, all keys are held, or one of them is served here.
    pub fn take_over(&mut self, adopted: Vec<Adopted>, groups: Records, latest: Hlc) -> Outcome {
        if self.claims.holds_all() {
            // All are being flushed, perhaps: what comes in between would be in the log behind that, and not here.
            return Err(CommandError::text("TRYAGAIN all keys are held for the moment"));
        }
        // They are served: what a log of before says of them is old.
        if adopted.iter().any(|(_, entry)| self.is_spread() && self.is_of_this_node(&entry.key)) {
            return Err(CommandError::text(
                "ERR expected keys that this node does not serve yet, came some that it does",
            ));
        }
        self.keys.take_in(adopted, latest)?;
        if !groups.is_empty() {
            self.keys.inherit_groups(groups)?;
            self.hold_lent();
            self.note_request();
        }
        Ok(())
    }

    /// Notes why the log has no space for changes, or that it has. They are refused as long as it has none.
    pub fn note_log_full(&mut self, full: Option<JournalError>) {
        match full {
            None => self.log_full = None,
            Some(_) if self.log_full.is_some() => {}
            Some(full) => self.log_full = Some(full.to_string().into()),
        }
    }

    /// Whether the log has space for changes, as far as is known.
    #[must_use]
    pub const fn has_log_space(&self) -> bool {
        self.log_full.is_none()
    }

    /// Whether somebody asked for a rewrite of the log since this was asked last.
    pub const fn take_rewrite_wanted(&mut self) -> bool {
        std::mem::replace(&mut self.is_rewrite_wanted, false)
    }

    /// Whether somebody asked for the end of the process since this was asked last.
    pub const fn take_stop_wanted(&mut self) -> bool {
        std::mem::replace(&mut self.is_stop_wanted, false)
    }

    /// Whether somebody asked, since this was asked last, that what is answered waits for the disk.
    pub const fn take_flush_awaited(&mut self) -> bool {
        std::mem::replace(&mut self.is_flush_awaited, false)
    }

    /// Begins to write all its keys into the log once more (see [`crate::log`]).
    pub fn begin_rewrite(&mut self) {
        self.keys.begin_rewrite();
        self.begin_rewrite_of_arrivals();
    }

    /// Whether keys are still to be written once more.
    #[must_use]
    pub const fn is_rewriting(&self) -> bool {
        self.keys.is_rewriting()
    }

    /// Goes on with a rewrite of the log by about `bytes`. Says whether this actor is done.
    pub fn rewrite_some(&mut self, bytes: usize) -> bool {
        // The log may have a swap already of which this actor has not heard.
        if self.claims.holds_all() {
            return false;
        }
        self.note_request();
        // A key that is lent is written when it comes back.
        let is_done = self.keys.rewrite_some(bytes)
            && self.rewrite_arrivals(bytes)
            && self.holds_for_groups_alone()
            && self.keys.rewrite_groups().is_ok();
        if is_done {
            self.keys.end_rewrite();
        }
        is_done
    }

    /// Hears that all actors have written their keys, and that what they told before has arrived. Says whether it was also taken in; if
    /// not, this is to be said again.
    pub fn settle_rewrite(&mut self) -> bool {
        let is_settled = !self.has_put_off();
        if is_settled {
            self.keys.settle_rewrite();
        }
        is_settled
    }

    /// Gives up a copy of a key whose first replica is elsewhere. Says whether it could be.
    pub fn give_up_copy(&mut self, database: u8, key: &[u8]) -> bool {
        self.keys.give_up(database, key)
    }
}
