//! The advisory locks that a session holds over the ends of its transactions, and how often each.
//!
//! A statement that has to wait runs again from its beginning. So what it does is kept apart, and is what the session has only when
//! the statement is over; as in PostgreSQL also if it failed.

use std::collections::BTreeMap;

use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{HolderId, RowLock};
use serde::{Deserialize, Serialize};

/// Locks that a session may hold.
const LOCKS_MAX: usize = 10_000;

/// How often a lock is held for itself, and with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    exclusive: u32,
    shared: u32,
}

impl Counts {
    fn of(&mut self, shared: bool) -> &mut u32 {
        if shared { &mut self.shared } else { &mut self.exclusive }
    }

    fn mode(self) -> Option<RowLock> {
        match self {
            Self { exclusive: 0, shared: 0 } => None,
            Self { exclusive: 0, .. } => Some(RowLock::Share),
            Self { .. } => Some(RowLock::Update),
        }
    }
}

/// The advisory locks of a session, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// Who has them in the table of locks, once there was one.
    pub holder: Option<HolderId>,
    held: BTreeMap<Vec<u8>, Counts>,
    /// What the statement that runs does to them.
    changed: BTreeMap<Vec<u8>, Counts>,
    /// What it is to be told besides.
    pub warnings: Vec<String>,
}

impl Advisory {
    /// Whether the session has none.
    pub fn is_free(&self) -> bool {
        self.held.is_empty()
    }

    /// A statement begins, or begins again.
    pub fn begin(&mut self) {
        self.changed.clear();
        self.warnings.clear();
    }

    /// Counts a lock that was taken.
    ///
    /// # Errors
    /// 53200 if there are too many.
    pub fn took(&mut self, key: Vec<u8>, shared: bool) -> Result<()> {
        if self.held.len() + self.changed.len() >= LOCKS_MAX {
            let message = format!("a session holds at most {LOCKS_MAX} advisory locks");
            return Err(SqlError::new(state::OUT_OF_MEMORY, message).hint("Unlock some of them first."));
        }
        *self.counts(key).of(shared) += 1;
        Ok(())
    }

    /// Gives a lock back once; whether it was held.
    pub fn unlock(&mut self, key: Vec<u8>, shared: bool) -> bool {
        let count = self.counts(key).of(shared);
        let held = *count > 0;
        *count -= u32::from(held);
        if !held {
            let mode = if shared { "ShareLock" } else { "ExclusiveLock" };
            self.warnings.push(format!("you don't own a lock of type {mode}"));
        }
        held
    }

    /// Gives all locks back.
    pub fn unlock_all(&mut self) {
        let held = self.held.keys().map(|key| (key.clone(), Counts::default())).collect();
        self.changed = held;
    }

    fn counts(&mut self, key: Vec<u8>) -> &mut Counts {
        let before = self.held.get(&key).copied().unwrap_or_default();
        self.changed.entry(key).or_insert(before)
    }

    /// The statement is over: how strongly each lock that it changed is held now.
    pub fn end(&mut self) -> Vec<(Vec<u8>, Option<RowLock>)> {
        let mut changes = Vec::with_capacity(self.changed.len());
        for (key, counts) in std::mem::take(&mut self.changed) {
            changes.push((key.clone(), counts.mode()));
            if counts.mode().is_some() {
                self.held.insert(key, counts);
            } else {
                self.held.remove(&key);
            }
        }
        changes
    }
}
