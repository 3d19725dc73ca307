//! What an actor does for libraries of functions. Each has all of them, and keeps those in the log whose names are its keys.

use hashbrown::HashSet;

use super::Actor;
use crate::error::{CommandError, Outcome};
use crate::request::Args;
use crate::scripting::{Libraries, Policy};

impl Actor {
    /// All libraries.
    pub(crate) const fn libraries(&self) -> &Libraries {
        self.scripts.libraries()
    }

    /// Asks for space in the log for what a request brings.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn expect_log_space(&mut self, args: Args<'_>) -> Outcome {
        self.check_log_space()?;
        self.keys.ask_for_log(args.from(2).map(<[u8]>::len).sum())
    }

    /// Loads a library, and keeps it. Gives its name.
    ///
    /// # Errors
    /// Why it is none, or not to come.
    pub(crate) fn load_library(&mut self, text: &[u8], replaces: bool) -> Result<Box<[u8]>, CommandError> {
        let name = self.scripts.load_library(text, replaces)?;
        self.keep_libraries();
        Ok(name)
    }

    /// Loads libraries beside those that are there, or instead of them, and keeps them.
    ///
    /// # Errors
    /// Why one of them is not to come; then none does.
    pub(crate) fn restore_libraries(&mut self, texts: &[Vec<u8>], policy: Policy) -> Outcome {
        self.scripts.restore_libraries(texts, policy)?;
        self.keep_libraries();
        Ok(())
    }

    /// Forgets a library. Says whether there was one.
    pub(crate) fn forget_library(&mut self, name: &[u8]) -> bool {
        let is_forgotten = self.scripts.forget_library(name);
        self.keep_libraries();
        is_forgotten
    }

    /// Forgets all libraries.
    pub(crate) fn forget_libraries(&mut self) {
        self.scripts.forget_libraries();
        self.keep_libraries();
    }

    /// Brings what is kept to what there is.
    fn keep_libraries(&mut self) {
        let (mut gone, mut kept) = (Vec::new(), HashSet::new());
        for (name, text) in self.keys.libraries() {
            match self.scripts.libraries().get(name) {
                Some(library) if *library.text == *text => drop(kept.insert(name.to_vec())),
                Some(_) => {}
                None => gone.push(name.to_vec()),
            }
        }
        gone.iter().for_each(|name| self.keys.forget_library(name));
        for (name, library) in self.scripts.libraries().iter() {
            if self.placement.actor_of(crate::placement::KeyHash::of(name).group()) == self.id && !kept.contains(name) {
                self.keys.keep_library(name, &library.text);
            }
        }
    }

    /// Loads the libraries that were read back from the log, at all actors of a node.
    pub(crate) fn recover_libraries(actors: &mut [Self]) {
        let texts: Vec<Vec<u8>> =
            actors.iter().flat_map(|actor| actor.keys.libraries().map(|(_, text)| text.to_vec())).collect();
        for actor in actors {
            for text in &texts {
                // It was loaded before, and would not be kept otherwise.
                if let Err(error) = actor.scripts.load_library(text, true) {
                    tracing::error!(%error, "a library of functions of the log cannot be loaded; it is kept there");
                }
            }
        }
    }
}
