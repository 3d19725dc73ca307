//! What must hold in every run, judged from its history alone.

mod durability;
mod owners;
mod progress;
mod registers;

use std::fmt;

pub use self::registers::linearizable;
use crate::history::History;

/// A guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guarantee {
    /// What was told to anybody is in the log of every later owner.
    Durable,
    /// Acknowledgements for a shard come from one owner at a time, in the order of their epochs.
    OneOwner,
    /// Each register behaves as if operations took effect one at a time, between their call and their return.
    Linearizable,
    /// After the faults end, every shard is written and read again.
    Progress,
}

/// A guarantee that did not hold, with what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which guarantee.
    pub guarantee: Guarantee,
    /// The evidence, in words.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.guarantee, self.evidence)
    }
}

/// Judges a run over `shards` shards.
#[must_use]
pub fn check(history: &History, shards: usize) -> Vec<Violation> {
    let mut violations = durability::check(history);
    violations.extend(owners::check(history));
    violations.extend(registers::check(history));
    violations.extend(progress::check(history, shards));
    violations
}
