//! What functions, versions and aliases there are, and what their settings may be.
//!
//! An operation looks at the catalog and makes a [`Change`] or a [`Refusal`](crate::Refusal); a change is put into the log and applied. What a version
//! is never changes; `$LATEST` is replaced by another build when its code or its settings are.

mod function;
mod operation;
mod request;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use function::{Alias, Code, EventConfig, Function, Language, Recursion, RuntimeKind, Settings, Version};
pub use operation::{Context, EVENT_AGE, EVENT_RETRIES};
pub use request::{
    AliasRequest, ConcurrencyRequest, CreateFunction, DestinationConfig, EventConfigRequest, Publish, Routing, Target,
    UpdateCode, UpdateConfiguration, ZipSource,
};

/// Everything that clients have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    functions: BTreeMap<String, Function>,
}

/// What an operation changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A function as it is from now on.
    Put(Box<Function>),
    /// There is no such function any more.
    Remove(String),
}

impl Change {
    /// The newest build in it.
    #[must_use]
    pub fn newest_build(&self) -> u64 {
        match self {
            Self::Put(function) => function.builds().map(|version| version.build).max().unwrap_or(0),
            Self::Remove(_) => 0,
        }
    }
}

impl Catalog {
    /// Takes a change over.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Put(function) => drop(self.functions.insert(function.name.clone(), *function)),
            Change::Remove(name) => drop(self.functions.remove(&name)),
        }
    }

    /// A function by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// All functions in the order of their names, from behind one of them.
    pub fn after(&self, name: &str) -> impl Iterator<Item = &Function> {
        let from = (std::ops::Bound::Excluded(name.to_owned()), std::ops::Bound::Unbounded);
        self.functions.range(from).map(|(_, function)| function)
    }

    /// How many functions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Changes that make all this out of nothing.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        self.functions.values().map(|function| Change::Put(Box::new(function.clone())))
    }

    /// Hashes of code that a function has now, and has no more after a change of it.
    #[must_use]
    pub fn dropped_by(&self, change: &Change) -> Vec<String> {
        let (name, kept) = match change {
            Change::Put(function) => (&function.name, function.builds().map(|build| &build.code.sha256).collect()),
            Change::Remove(name) => (name, BTreeSet::new()),
        };
        let had: BTreeSet<_> = self.get(name).into_iter().flat_map(Function::builds).map(|b| &b.code.sha256).collect();
        had.difference(&kept).map(|hash| (*hash).clone()).collect()
    }

    /// The code that any version has, by its hash.
    pub fn codes(&self) -> impl Iterator<Item = &Code> {
        self.functions.values().flat_map(Function::builds).map(|version| &version.code)
    }
}
