//! Several requests that run as one.

use std::ops::Range;
use std::sync::Arc;

use crate::access::User;
use crate::command::Command;
use crate::request::{Args, OwnedArgs};
use crate::session::Watched;

/// A user with less than all rights for whom scripts run.
#[derive(Clone, Debug)]
pub struct ProgramUser {
    /// The user.
    pub user: Arc<User>,
    /// Its client, as lists of clients show it.
    pub client: Arc<str>,
}

/// What MULTI has queued, or one request that needs keys of several actors.
#[derive(Debug, Default)]
pub struct Program {
    args: OwnedArgs,
    steps: Vec<(&'static Command, Range<usize>)>,
    /// The database that is selected at the beginning.
    pub database: u8,
    /// It runs only if these keys are as they were.
    pub watched: Vec<Watched>,
    /// For whom its scripts run, if not for somebody who may do everything.
    pub user: Option<ProgramUser>,
    /// Keys that its steps turned out to name besides those in their words, when it was tried.
    pub found: Vec<Box<[u8]>>,
    /// How often it was tried.
    pub tries: u32,
    /// Whether a request was refused when it was to be queued.
    pub is_broken: bool,
    /// Whether the reply is a list of the steps' replies.
    pub replies_with_list: bool,
    /// Whether the keys' versions are noted for the session, and no step runs.
    pub notes_versions: bool,
}

impl Program {
    /// No requests yet.
    #[must_use]
    pub fn new(database: u8) -> Self {
        Self { database, ..Self::default() }
    }

    /// One request.
    #[must_use]
    pub fn single(database: u8, command: &'static Command, args: Args<'_>) -> Self {
        let mut program = Self::new(database);
        program.push(command, args);
        program
    }

    /// Adds a step.
    pub fn push(&mut self, command: &'static Command, args: Args<'_>) {
        let words = self.args.push(args);
        self.steps.push((command, words));
    }

    /// How many steps there are.
    #[must_use]
    pub const fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// The steps in order.
    pub fn steps(&self) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
        self.steps.iter().map(|(command, words)| (*command, self.args.words(words.clone())))
    }

    /// Whether a step may need more memory.
    #[must_use]
    pub fn needs_room(&self) -> bool {
        self.steps().any(|(command, _)| command.needs_room())
    }

    /// Whether it does not run if there is, or is not, room.
    #[must_use]
    pub fn is_refused(&self, has_room: bool) -> bool {
        self.steps().any(|(command, args)| command.is_refused(has_room, args))
    }

    /// Bytes that it takes.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.args.memory() + self.steps.capacity() * size_of::<(&Command, Range<usize>)>()
    }

    /// Bytes of all requests.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.args.byte_count()
    }
}
