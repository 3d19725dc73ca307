//! What an actor tells of itself to whoever watches the service.

use crate::actor::Actor;
use crate::keyspace::DATABASES;

/// So many of the keys that an actor is asked for most are told.
const HOT_KEYS_TOLD: usize = 16;

/// A key that is asked for much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Its database.
    pub database: u8,
    /// Its name.
    pub key: Box<[u8]>,
    /// About how many requests of the last minutes were about it, at least.
    pub requests: u64,
}

/// The figures of one actor. Those that count begin again with its process and with `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clients that are connected.
    pub clients: u64,
    /// Clients that wait for a key or for the end of a pause.
    pub blocked_clients: u64,
    /// Connections that were taken, counted.
    pub connections: u64,
    /// Requests of its clients, counted.
    pub commands: u64,
    /// Requests that went to another actor, counted.
    pub commands_sent: u64,
    /// Transactions that borrowed keys of other actors, counted.
    pub transactions: u64,
    /// Keys that were looked up and found, counted.
    pub hits: u64,
    /// Keys that were looked up and not found, counted.
    pub misses: u64,
    /// Keys whose time came, counted.
    pub expired: u64,
    /// Keys that were deleted because memory was full, counted.
    pub evicted: u64,
    /// Copies of other actors' keys that were given up because memory was full, counted.
    pub copies_given_up: u64,
    /// Keys that are there.
    pub keys: u64,
    /// About how many bytes they take.
    pub bytes: u64,
    /// The keys that it is asked for most, these first.
    pub hot_keys: Vec<HotKey>,
}

impl Actor {
    /// Its figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let hot_keys = self.hottest(HOT_KEYS_TOLD).into_iter();
        let hot_keys = hot_keys.map(|(database, key, requests)| HotKey { database, key, requests }).collect();
        let (clients, opened) = self.sessions.counts();
        let counters = self.keys.counters;
        Figures {
            clients: clients as u64,
            blocked_clients: (self.waiting_count() + self.held_count()) as u64,
            connections: u64::from(opened.wrapping_sub(self.counters.opened_before)),
            commands: self.counters.requests,
            commands_sent: self.counters.sent,
            transactions: self.counters.transactions,
            hits: counters.hits,
            misses: counters.misses,
            expired: counters.expired,
            evicted: counters.evicted,
            copies_given_up: counters.given_up,
            keys: (0..DATABASES).map(|database| self.keys.count_keys(database).0 as u64).sum(),
            bytes: self.keys.byte_count() as u64,
            hot_keys,
        }
    }
}
