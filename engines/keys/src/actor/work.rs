//! Work that may have to wait for keys that are lent.

use super::claims::Wants;
use super::databases::DatabaseChange;
use super::elsewhere::Place;
use super::message::Destination;
use super::program::Program;
use super::room::out_of_memory;
use super::whole::Inquiry;
use super::{Actor, Progress, transaction};
use crate::command::{Command, Flags, Run};
use crate::group::{GroupId, Unit};
use crate::keyspace::replica::Vector;
use crate::placement::ActorId;
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

/// Work that may have to wait for keys.
#[derive(Debug)]
pub(super) enum Work {
    Task {
        from: ActorId,
        to: Destination,
        database: u8,
        command: &'static Command,
        args: OwnedArgs,
    },
    Program {
        from: ActorId,
        to: Destination,
        program: Box<Program>,
    },
    Borrow {
        from: ActorId,
        transaction: u64,
        keys: Vec<Box<[u8]>>,
        needs_room: bool,
        whole: Option<Inquiry>,
    },
    Transaction(u64),
    /// Keys of this actor that a group borrows.
    GroupLend {
        unit: Unit,
        keys: Vec<Box<[u8]>>,
        needs_room: bool,
    },
    /// Keys of this actor that a group needs which it leads.
    GroupStop {
        group: GroupId,
        place: usize,
    },
    Freeze {
        from: ActorId,
        number: u64,
        change: DatabaseChange,
    },
    Join {
        from: ActorId,
        database: u8,
        key: Box<[u8]>,
        vector: Vector,
        asked: u64,
    },
}

impl Work {
    /// Whether it may end without being done, if whoever waits for it is told so.
    pub(super) const fn may_be_given_up(&self) -> bool {
        match self {
            Self::Task { .. } | Self::Program { .. } | Self::Transaction(_) => true,
            Self::GroupLend { .. } | Self::GroupStop { .. } => true,
            Self::Borrow { whole, .. } => whole.is_none(),
            // They are about more than what is lent.
            Self::Freeze { .. } | Self::Join { .. } => false,
        }
    }
}

impl Actor {
    pub(super) fn is_blocked(&self, command: &'static Command, args: Args<'_>) -> bool {
        !self.claims.is_free()
            && match command.run {
                Run::Keys(_) | Run::Waits(..) | Run::Script(_) | Run::Finds { .. } => {
                    command.keys.of(args).is_ok_and(|keys| self.claims.blocks(keys))
                }
                _ => !command.flags.has(Flags::KEYLESS),
            }
    }

    pub(super) fn wait_here(&mut self, session: &mut Session, command: &'static Command, args: Args<'_>) -> Progress {
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        self.wait_for_keys(self.id, to, session.database, command, args);
        Progress::Later(ticket)
    }

    pub(super) fn wait_for_keys(
        &mut self,
        from: ActorId,
        to: Destination,
        database: u8,
        command: &'static Command,
        args: Args<'_>,
    ) {
        let wants = wants_of(command, args);
        self.claims.wait(wants, Work::Task { from, to, database, command, args: OwnedArgs::of(args) });
    }

    /// Does work, now or when its keys are free.
    pub(super) fn begin(&mut self, work: Work) {
        let wants = match &work {
            Work::Task { command, args, .. } => wants_of(command, args.args()),
            Work::Program { program, .. } => Wants::Keys(transaction::keys_of(program)),
            Work::Borrow { whole: Some(_), .. } | Work::Freeze { .. } => Wants::Everything,
            Work::Borrow { keys, .. } => Wants::Keys(keys.clone()),
            Work::Transaction(number) if self.holds_whole(*number) => Wants::Everything,
            Work::Transaction(number) => Wants::Keys(self.own_keys_of(*number)),
            Work::GroupLend { keys, .. } => {
                // It has keys elsewhere.
                return match self.claims.blocks_urgent(keys.iter().map(|key| &**key)) {
                    true => self.claims.wait_urgently(Wants::Keys(keys.clone()), work),
                    false => self.perform(work),
                };
            }
            // It waits already.
            Work::GroupStop { .. } => Wants::Keys(Vec::new()),
            Work::Join { key, .. } => Wants::Keys(vec![key.clone()]),
        };
        let is_blocked = match &wants {
            Wants::Keys(keys) => self.claims.blocks(keys.iter().map(|key| &**key)),
            Wants::Everything => !self.claims.is_free(),
        };
        if is_blocked { self.claims.wait(wants, work) } else { self.perform(work) }
    }

    pub(super) fn perform(&mut self, work: Work) {
        match work {
            Work::Task { from, to, database, command, args } => {
                // Before the place is looked for again: a copy that was here may be given up, or was meanwhile.
                let has_room = self.has_room_for(command);
                if let Some(actor) = self.moved_to(database, command, args.args()) {
                    return self.requests_to(actor).push(to, database, command, args.args());
                }
                let mut replies = self.take_replies(from);
                self.note_author(from, to);
                replies.push(to, |reply| {
                    if command.is_refused(has_room, args.args()) {
                        self.calls.note_rejected(command, args.args());
                        out_of_memory().answer(reply);
                    } else {
                        self.run_with_room(database, command, args.args(), reply);
                    }
                });
                self.keys.log.set_author(None);
                self.put_replies(from, replies);
            }
            Work::Program { from, to, program } => {
                let mut replies = self.take_replies(from);
                self.note_author(from, to);
                replies.push(to, |reply| {
                    self.run_own_program(&program, None, reply);
                });
                self.keys.log.set_author(None);
                self.put_replies(from, replies);
            }
            Work::Borrow { from, transaction, keys, needs_room, whole } => {
                self.lend(from, transaction, keys, needs_room, whole.as_ref());
            }
            Work::Transaction(number) => self.hold_own(number),
            Work::GroupLend { unit, keys, needs_room } => self.lend_to_group(unit, keys, needs_room),
            Work::GroupStop { group, place } => self.hold_for_group(group, place),
            Work::Join { from, database, key, vector, asked } => self.hear_join(from, database, key, vector, asked),
            Work::Freeze { from, number, change } => self.freeze(from, number, change),
        }
    }

    /// Which other actor has the key of a request that waited here.
    pub(super) fn moved_to(&self, database: u8, command: &'static Command, args: Args<'_>) -> Option<ActorId> {
        let keys = command.keys.of(args).ok().filter(|_| wants_of(command, args) != Wants::Everything)?;
        match self.place(keys, Some(database)) {
            Place::At(actor) => Some(actor),
            _ => None,
        }
    }

    /// Does the work that became possible.
    pub(super) fn resume(&mut self) {
        while let Some(work) = self.claims.next() {
            self.perform(work);
        }
    }
}

fn wants_of(command: &'static Command, args: Args<'_>) -> Wants {
    match (command.run, command.keys.of(args)) {
        (Run::Keys(_) | Run::Waits(..) | Run::Script(_) | Run::Finds { .. }, Ok(keys)) => {
            Wants::Keys(keys.map(Box::from).collect())
        }
        _ if command.flags.has(Flags::KEYLESS) => Wants::Keys(Vec::new()),
        _ => Wants::Everything,
    }
}
