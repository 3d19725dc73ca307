//! Keys whose time comes.

use savanna_lattice::UnixMillis;

use super::events::EventClasses;
use super::{DATABASES, Database, Entry, Hash, Keyspace, Spot};
use crate::delta::Header;

/// How long to wait where the log has no space.
const PAUSE_MILLIS: u64 = 1000;
/// Of the log, for fields that are removed at once.
const FIELDS_LOG_BYTES: usize = 128 << 10;

impl Keyspace {
    /// Lets a key expire at a time, or never. Says whether it is there. A time that has come deletes it.
    pub fn expire(&mut self, key: &[u8], at: UnixMillis) -> bool {
        let spot = self.spot_of(key);
        if !self.contains(key) {
            return false;
        }
        if at <= self.now {
            return self.delete(key);
        }
        self.keep(self.selected, key);
        let version = self.next_version();
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let Some(entry) = database.find_mut(spot, key) else { return false };
        let before = entry.expires_at();
        entry.expire_at(at);
        let at = entry.expires_at();
        let base = std::mem::replace(&mut entry.version, version);
        database.note_expiry(spot, before, at);
        self.log.expiry(Header { database: self.selected, key, base, version }, at);
        self.counters.changes += 1;
        true
    }

    /// Deletes keys whose time has come. Looks at no more than `patience`. Says when to come again.
    pub fn expire_due(&mut self, mut patience: usize) -> Option<UnixMillis> {
        /// Of the log, for what is deleted at once.
        const LOG_BYTES: usize = 128 << 10;
        let due = self.databases.iter().flatten().filter_map(|database| database.next_expiry()).min()?;
        if due > self.now {
            return Some(due);
        }
        // Keys whose time has come are gone for whoever looks, deleted or not.
        if self.ask_for_log(LOG_BYTES).is_err() {
            return Some(UnixMillis(self.now.0 + PAUSE_MILLIS));
        }
        let before = self.selected;
        for number in 0..DATABASES {
            self.selected = number;
            while let Some(database) = self.databases[usize::from(number)].as_deref_mut() {
                let Some((spot, key)) = database.next_expired(self.now, &mut patience) else { break };
                if self.replicas.is_first(&key) {
                    self.expire_if_due(spot, &key);
                } else {
                    // The first replica deletes it; here it is only gone.
                    database.remove(spot, &key);
                }
            }
        }
        self.selected = before;
        self.databases.iter().flatten().filter_map(|database| database.next_expiry()).min()
    }

    /// Removes fields of hashes whose time has come, of no more than `patience` of them. Says when to come again.
    pub fn expire_fields_due(&mut self, mut patience: usize) -> Option<UnixMillis> {
        let due = self.databases.iter().flatten().filter_map(|database| database.next_field_expiry()).min()?;
        if due > self.now {
            return Some(due);
        }
        let before = self.selected;
        for number in 0..DATABASES {
            self.selected = number;
            while patience > 0
                && let Some(database) = self.databases[usize::from(number)].as_deref()
                && let Some(entry) = database.next_with_expired_fields(self.now)
            {
                let key = Box::from(&*entry.key);
                match self.expire_fields_of(&key, patience) {
                    0 => patience = 0,
                    removed => patience -= removed.min(patience),
                }
            }
        }
        self.selected = before;
        let next = self.databases.iter().flatten().filter_map(|database| database.next_field_expiry()).min();
        if next.is_some_and(|next| next <= self.now) && self.ask_for_log(FIELDS_LOG_BYTES).is_err() {
            return Some(UnixMillis(self.now.0 + PAUSE_MILLIS));
        }
        next
    }

    /// Whether there are fields in the selected database whose time has come and that are still there: in the midst of a turn keys come from
    /// other actors, or all are released that were held.
    #[inline]
    #[must_use]
    pub fn has_late_fields(&self) -> bool {
        self.database().and_then(Database::next_field_expiry).is_some_and(|at| at <= self.now)
    }

    /// Removes up to so many fields of a hash whose time has come. Says how many; none if the log has no space for that.
    pub fn expire_fields_of(&mut self, key: &[u8], most: usize) -> usize {
        let now = self.now;
        let first = |entry: &Entry| entry.value.first_field_expiry().is_some_and(|at| at <= now);
        if !self.peek(key).is_some_and(first) || self.ask_for_log(FIELDS_LOG_BYTES).is_err() {
            return self.remove_expired(key);
        }
        let removed = self.change::<Hash, _>(key, |hash| {
            let mut removed = 0;
            while removed < most
                && let Some((_, field)) = hash.first_expiry().filter(|(at, _)| *at <= now)
            {
                let field = field.to_vec();
                hash.remove(&field);
                removed += 1;
            }
            Ok(removed)
        });
        let removed = removed.unwrap_or(0);
        if removed > 0 {
            self.counters.expired_fields += removed as u64;
            self.note_taken(EventClasses::HASH, "hexpired", key);
        }
        removed
    }

    /// Removes a key that has expired as a whole, with its fields. Says how many keys that were.
    fn remove_expired(&mut self, key: &[u8]) -> usize {
        let (spot, now) = (self.spot_of(key), self.now);
        let has_expired = self.database().and_then(|all| all.find(spot, key)).is_some_and(|it| it.has_expired(now));
        if has_expired && self.ask_for_log(FIELDS_LOG_BYTES).is_ok() {
            self.expire_if_due(spot, key);
            return 1;
        }
        0
    }

    pub(super) fn expire_if_due(&mut self, spot: Spot, key: &[u8]) {
        let now = self.now;
        if self.database().and_then(|d| d.find(spot, key)).is_some_and(|entry| entry.has_expired(now)) {
            self.take(key);
            self.counters.expired += 1;
        }
    }
}
