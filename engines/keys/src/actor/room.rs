//! Memory for commands that may need more of it.
//!
//! Each actor has its share of `maxmemory`. The actor that has the keys makes room before it runs a command, so that
//! what it gives up is in the log before what the command changes; a transaction asks each actor that it borrows from.

use super::Actor;
use crate::command::{Command, Flags};
use crate::error::CommandError;
use crate::keyspace::Entry;
use crate::log::no_space;
use crate::request::Args;

/// Keys that are given up at once, which takes about 1 ms; others follow between requests.
const PATIENCE: usize = 1_000;

/// A key takes so many bytes at least: where they are not left, there is no room.
const KEY_BYTES: usize = size_of::<Entry>();

/// About how many bytes the deletion of a key takes in the log.
const DELETION_BYTES: usize = 1 << 10;

/// About how many bytes a word takes in the log beside its own.
const WORD_BYTES: usize = 64;

impl Actor {
    /// Whether there is room for what a command may need; if there is none, it is made.
    pub(super) fn has_room_for(&mut self, command: &Command) -> bool {
        self.script_has_room = !command.needs_room() || self.make_room();
        self.script_has_room
    }

    /// Gives up keys until this actor takes no more than its share, or until that is enough for one turn. Says whether it was
    /// possible.
    pub(super) fn make_room(&mut self) -> bool {
        self.owes_room = false;
        if self.config.memory_max == 0 || self.is_still() {
            return true;
        }
        let share = self.config.memory_max / usize::from(self.routes.actors());
        let mut may_have_copies = true;
        for _ in 0..PATIENCE {
            if self.keys.byte_count() + KEY_BYTES <= share {
                return true;
            }
            may_have_copies = may_have_copies && self.keys.evict_copy();
            if may_have_copies {
                continue;
            }
            if self.keys.ask_for_log(DELETION_BYTES).is_err() || !self.keys.evict(self.config.eviction) {
                return false;
            }
        }
        self.owes_room = true;
        true
    }

    /// Gives up what is above a limit that has just been set, or begins to.
    pub(crate) fn make_room_now(&mut self) {
        self.make_room();
        self.note_request();
    }

    /// Refuses a change that the log has no space for: it would wait there, and whoever reads it with it.
    pub(super) fn check_log_space(&self) -> Result<(), CommandError> {
        match &self.log_full {
            None => Ok(()),
            Some(cause) => Err(no_space(cause)),
        }
    }

    /// Asks for space in the log for what a request may change, as far as that follows from its words, beside so many bytes of
    /// requests before it. Says how many bytes these are with it. A command that keeps what other keys have asks for that itself.
    #[inline]
    pub(super) fn ask_for_log(
        &mut self,
        command: &Command,
        args: Args<'_>,
        before: usize,
    ) -> Result<usize, CommandError> {
        if command.flags.has(Flags::WRITE) { self.ask_for_log_of(command, args, before) } else { Ok(before) }
    }

    fn ask_for_log_of(&mut self, command: &Command, args: Args<'_>, before: usize) -> Result<usize, CommandError> {
        // A value with replicas is written as what they merge, mostly as a whole.
        if self.keys.has_replicas()
            && let Ok(keys) = command.keys.of(args)
        {
            self.keys.ask_for_log_of_replicas(keys)?;
        }
        let bytes = before + args.byte_count() + (args.len() + 1) * WORD_BYTES;
        self.keys.ask_for_log(bytes).map(|()| bytes)
    }

    /// Whether [`Actor::tick`] is to come again soon, to give up more.
    #[must_use]
    pub const fn owes_room(&self) -> bool {
        self.owes_room
    }

    /// Goes on with what [`Actor::make_room`] left.
    pub(super) fn make_owed_room(&mut self) {
        if self.owes_room {
            self.make_room_now();
        }
    }
}

/// What a command is told that finds no room.
pub(super) const fn out_of_memory() -> CommandError {
    CommandError::text("OOM command not allowed when used memory > 'maxmemory'.")
}
