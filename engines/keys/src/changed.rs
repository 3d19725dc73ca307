//! Which keys were changed, for clients that keep copies of values (`CLIENT TRACKING`).
//!
//! They are noted where a delta is written, so that no change can be forgotten. As long as no client keeps copies, that costs a
//! comparison.

use std::sync::Arc;

use hashbrown::HashSet;

/// With more keys than this, all are said to have changed.
const KEYS_MAX: usize = 1 << 20;

/// A key that was changed, and by which client, if that is known.
pub type ChangedKey = (Arc<[u8]>, Option<i64>);

/// What was changed since it was asked last.
#[derive(Debug, Default)]
pub struct ChangedKeys {
    noted: HashSet<ChangedKey>,
    order: Vec<ChangedKey>,
    has_all: bool,
    by: Option<i64>,
}

/// What was changed: keys in the order in which they were changed first, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys, each once for each client that changed it.
    pub keys: Vec<ChangedKey>,
    /// Whether all keys are to be taken for changed.
    pub has_all: bool,
}

impl Changes {
    /// Whether nothing was changed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.has_all
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.keys.iter().map(|(key, _)| key.len() + size_of::<ChangedKey>()).sum()
    }
}

impl ChangedKeys {
    /// Says which client changes what is noted from now on.
    pub const fn set_author(&mut self, by: Option<i64>) {
        self.by = by;
    }

    /// Notes a key.
    pub fn note(&mut self, key: &[u8]) {
        let is_same = |(other, by): &ChangedKey| **other == *key && *by == self.by;
        if self.has_all || self.order.last().is_some_and(is_same) {
            return;
        }
        if self.order.len() == KEYS_MAX {
            return self.note_all();
        }
        let changed: ChangedKey = (key.into(), self.by);
        if self.noted.insert(changed.clone()) {
            self.order.push(changed);
        }
    }

    /// Notes that all keys have changed.
    pub fn note_all(&mut self) {
        *self = Self { has_all: true, by: self.by, ..Self::default() };
    }

    /// Takes what is noted.
    pub fn take(&mut self) -> Changes {
        self.noted.clear();
        Changes { keys: std::mem::take(&mut self.order), has_all: std::mem::take(&mut self.has_all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_once_for_each_client_in_their_order() {
        let mut changed = ChangedKeys::default();
        for (key, by) in [("b", None), ("a", Some(1)), ("b", None), ("a", Some(2)), ("a", Some(1))] {
            changed.set_author(by);
            changed.note(key.as_bytes());
        }
        let told = changed.take();
        let told: Vec<(&[u8], Option<i64>)> = told.keys.iter().map(|(key, by)| (&**key, *by)).collect();
        assert_eq!(told, [(&b"b"[..], None), (b"a", Some(1)), (b"a", Some(2))]);
        assert!(changed.take().is_empty());
    }

    #[test]
    fn more_keys_than_are_kept_are_all_keys() {
        let mut changed = ChangedKeys::default();
        (0..=KEYS_MAX).for_each(|key| changed.note(&key.to_le_bytes()));
        changed.note(b"one more");
        assert_eq!(changed.take(), Changes { keys: Vec::new(), has_all: true });
    }
}
