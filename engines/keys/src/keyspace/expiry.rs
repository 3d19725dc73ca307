//! Keys whose time comes.

use savanna_lattice::UnixMillis;

use super::{DATABASES, Database, Keyspace};
use crate::delta::Header;
use crate::placement::KeyHash;

impl Keyspace {
    /// Lets a key expire at a time, or never. Says whether it is there. A time that has come deletes it.
    pub fn expire(&mut self, key: &[u8], at: UnixMillis) -> bool {
        let hash = KeyHash::of(key);
        if !self.contains(key) {
            return false;
        }
        if at <= self.now {
            return self.delete(key);
        }
        self.keep(self.selected, hash, key);
        let version = self.next_version();
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let Some(entry) = database.find_mut(hash, key) else { return false };
        let before = entry.expires_at();
        entry.expire_at(at);
        let at = entry.expires_at();
        let base = std::mem::replace(&mut entry.version, version);
        database.note_expiry(hash, key, before, at);
        self.log.expiry(Header { database: self.selected, key, base, version }, at);
        self.counters.changes += 1;
        true
    }

    /// Deletes keys whose time has come. Looks at no more than `patience`. Says when to come again.
    pub fn expire_due(&mut self, mut patience: usize) -> Option<UnixMillis> {
        /// Of the log, for what is deleted at once.
        const LOG_BYTES: usize = 128 << 10;
        /// How long to wait where the log has no space.
        const PAUSE_MILLIS: u64 = 1000;
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
                let Some((hash, key)) = database.next_expired(self.now, &mut patience) else { break };
                if self.replicas.is_first(&key) {
                    self.expire_if_due(hash, &key);
                } else {
                    // The first replica deletes it; here it is only gone.
                    database.remove(hash, &key);
                }
            }
        }
        self.selected = before;
        self.databases.iter().flatten().filter_map(|database| database.next_expiry()).min()
    }

    pub(super) fn expire_if_due(&mut self, hash: KeyHash, key: &[u8]) {
        let now = self.now;
        if self.database().and_then(|d| d.find(hash, key)).is_some_and(|entry| entry.has_expired(now)) {
            self.take(key);
            self.counters.expired += 1;
        }
    }
}
