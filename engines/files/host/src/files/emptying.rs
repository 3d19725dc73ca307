//! Whether a user may take away all that is in a directory: asked before a large one is deleted, outside of the write section.

use savanna_files::ids::InodeId;
use savanna_files::operation::{Asked, Emptying};
use savanna_files::{Class, Context, FilesError, Key, Missing, Request};

use super::{AT_ONCE, Files, Outcome, Unanswered, Waiting};
use crate::behind;

/// How often a request is attempted whose path leads elsewhere each time.
const ATTEMPTS: usize = 10;

impl Waiting {
    /// The user may take away all that is in a directory. What is waited for after that has its own time.
    pub(super) fn may_empty(mut self, directory: InodeId) -> Self {
        self.missing.0.retain(|key| !matches!(key, Key::Emptying(_)));
        Self { may_empty: Some(directory), deadline: behind::deadline(), ..self }
    }
}

impl Files {
    /// Whether a user may take away all that is in a directory; if not, what is answered, and behind what of the log. Blocks as long as that takes.
    pub(super) fn ask_emptying(&self, context: &Context<'_>, directory: InodeId) -> Result<(), Outcome> {
        let mut walk = Emptying::of(directory);
        let root = loop {
            // The lock is let go in between.
            let state = self.0.state.read();
            match walk.go_on(&state.namespace, context, AT_ONCE) {
                Ok(Asked::More) => {}
                Ok(Asked::All) => return Ok(()),
                Ok(Asked::NotHere(root)) => break (root, state.namespace.txid()),
                Err(error) => {
                    let position = state.pending.position(state.namespace.txid());
                    return Err((Err(error.into()), position));
                }
            }
        };
        // What the database has is durable.
        let told = |why: Unanswered| (Err(why), None);
        let inside = self.ask_when_flushed(root.1, |behind| behind.inside(root.0)).map_err(told)?;
        inside.iter().try_for_each(|inside| inside.check(context)).map_err(|error| told(error.into()))
    }

    /// Does a request that lacks only an answer to that, where all names are in memory.
    pub(super) fn attempt_when_asked(
        &self,
        mut context: Context<'_>,
        request: &Request,
        mut missing: Missing,
    ) -> Outcome {
        for _ in 0..ATTEMPTS {
            let Some(directory) = missing.emptying() else {
                let keys = missing.0;
                let words =
                    format!("{keys:?} is not in memory, and there is no database; this is a mistake in Savanna");
                return (Err(FilesError::new(Class::Io, words).into()), None);
            };
            if let Err(refused) = self.ask_emptying(&context, directory) {
                return refused;
            }
            context.may_empty = Some(directory);
            match self.attempt(&context, request) {
                Ok(outcome) => return outcome,
                Err(lacks) => missing = lacks,
            }
        }
        let words = "What is to be deleted was moved each time that rights in it were asked; try again";
        (Err(FilesError::new(Class::Retriable, words).into()), None)
    }
}
