//! Writing all keys into the log once more, so that its beginning is not needed.

use savanna_ownership::{KEY_GROUPS, KeyGroup};

use super::{Entry, Keyspace, TABLES, log_whole};
use crate::delta::Header;
use crate::memory::ask_for_value;
use crate::placement::KeyHash;

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Databases and key groups before these.
    database: u8,
    group: u16,
    /// Of that group, keys at places before this.
    from: KeyHash,
    /// Keys with replicas that are still to be written, once all key groups are.
    replicas: Option<Vec<(u8, Box<[u8]>)>>,
}

impl Keyspace {
    /// Begins to write all keys. Until [`Keyspace::end_rewrite`], keys that come back from elsewhere are written, too; until
    /// [`Keyspace::settle_rewrite`], also what first replicas hear: it may be in the log before the rewrite only, of a
    /// replica that was given up since.
    pub fn begin_rewrite(&mut self) {
        self.rewriting = Some(Place::default());
        self.logs_heard = true;
    }

    /// Whether keys are being written.
    #[must_use]
    pub const fn is_rewriting(&self) -> bool {
        self.rewriting.is_some()
    }

    /// Whether a rewrite was begun, and not all actors are known to have written their keys.
    #[must_use]
    pub const fn is_being_rewritten(&self) -> bool {
        self.logs_heard
    }

    /// Writes keys up to about `bytes`, and at least one, if there is memory for it and space in the log. Says whether all keys that are here were
    /// written.
    pub fn rewrite_some(&mut self, bytes: usize) -> bool {
        let Some(mut place) = self.rewriting.take() else { return true };
        let end = self.log.bytes().len() + bytes;
        while place.database < TABLES && self.log.bytes().len() < end {
            match &self.databases[usize::from(place.database)] {
                Some(database) if place.group < KEY_GROUPS => {
                    // Those with replicas are written at the end; some have no entry.
                    let places = KeyGroup::new(place.group).map(|group| database.places(group, place.from));
                    let replicas = &self.replicas;
                    let single = |(_, entry): &(KeyHash, &Entry)| replicas.get(place.database, &entry.key).is_none();
                    let mut rest = places.unwrap_or_default().into_iter().filter(single);
                    place.from = KeyHash::default();
                    let stopped = rest.find(|(at, entry)| {
                        let is_enough = self.log.bytes().len() >= end && place.from != *at;
                        let bytes = entry.whole_bytes();
                        let is_refused =
                            ask_for_value(bytes).and_then(|()| self.log_space.ask(self.log.bytes().len() + bytes));
                        if is_enough || is_refused.is_err() {
                            return true;
                        }
                        log_whole(&mut self.log, header_of(place.database, entry), entry);
                        self.log.note_request();
                        place.from = *at;
                        false
                    });
                    match stopped {
                        Some((at, _)) => {
                            place.from = at;
                            break;
                        }
                        None => (place.group, place.from) = (place.group + 1, KeyHash::default()),
                    }
                }
                _ => (place.database, place.group) = (place.database + 1, 0),
            }
        }
        let mut is_done = false;
        if place.database == TABLES {
            let replicas = place.replicas.get_or_insert_with(|| self.replicas.keys());
            while self.log.bytes().len() < end
                && let Some((database, key)) = replicas.pop()
            {
                self.rewrite_replica(database, &key);
                self.log.note_request();
            }
            is_done = replicas.is_empty();
        }
        self.rewriting = Some(place);
        self.log.note_seen();
        is_done
    }

    /// Ends what [`Keyspace::begin_rewrite`] began.
    pub fn end_rewrite(&mut self) {
        self.rewriting = None;
    }

    /// Everybody has written all keys, and what was told before that has arrived.
    pub const fn settle_rewrite(&mut self) {
        self.logs_heard = false;
    }

    /// Takes back an entry that was lent.
    pub fn take_back(&mut self, database: u8, entry: Box<Entry>) {
        if self.is_rewriting() && self.replicas.get(database, &entry.key).is_none() {
            log_whole(&mut self.log, header_of(database, &entry), &entry);
        }
        self.note_back(database, &entry);
        self.adopt(database, entry);
    }
}

/// From a version to itself: the delta says what is there, for those who do not know.
pub(super) fn header_of(database: u8, entry: &Entry) -> Header<'_> {
    Header { database, key: &entry.key, base: entry.version, version: entry.version }
}
