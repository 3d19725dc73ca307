//! Giving up keys when memory is full.
//!
//! No order of all keys is kept. A victim is the best one of a sample: of the keys in key groups from a random one on, or of
//! random notes of when keys expire. Copies of other actors' keys go first, because nothing is lost by that.

use std::cmp::Reverse;

use savanna_lattice::UnixMillis;

use super::events::EventClasses;
use super::{DATABASES, Keyspace};
use crate::config::{Eviction, Order, Scope};
use crate::keyspace::Entry;

/// Keys that are looked at to find a victim.
const SAMPLE: usize = 10;

/// Marks of replicas that are looked at to find copies.
const PATIENCE: usize = 1_000;

type Key = (u8, Box<[u8]>);

impl Keyspace {
    /// Gives up a copy of another actor's key. Says whether there was one; to find that there is none takes a while.
    pub fn evict_copy(&mut self) -> bool {
        let is_given_up = self.coldest_copy().is_some_and(|(database, key)| self.give_up(database, &key));
        self.counters.given_up += u64::from(is_given_up);
        is_given_up
    }

    /// Gives up one key of this actor's as the policy has it. Says whether there was one.
    pub fn evict(&mut self, policy: Eviction) -> bool {
        let Eviction::Evict(scope, order) = policy else { return false };
        let Some((database, key)) = self.victim(scope, order) else { return false };
        let before = self.selected;
        self.select(database);
        match self.take(&key) {
            Some(_) => {
                self.counters.evicted += 1;
                self.note_event(EventClasses::EVICTED, "evicted", &key);
            }
            None => self.counters.expired += 1,
        }
        self.select(before);
        true
    }

    /// The copy that was used longest ago among those whose turn it is.
    fn coldest_copy(&mut self) -> Option<Key> {
        let mut sample = Vec::new();
        for _ in 0..self.replicas.len().min(PATIENCE) {
            let place = self.replicas.next_turn();
            let Some((database, key)) = self.replicas.copy_at(place) else { continue };
            let Some(entry) = self.peek_in(database, key) else { continue };
            let coldness = match self.use_count(entry) {
                Some(count) => u16::from(u8::MAX - count),
                None => entry.idle_seconds(self.now),
            };
            sample.push((coldness, place));
            if sample.len() == SAMPLE {
                break;
            }
        }
        let (_, place) = sample.into_iter().max()?;
        self.replicas.copy_at(place).map(|(database, key)| (database, key.into()))
    }

    fn victim(&mut self, scope: Scope, order: Order) -> Option<Key> {
        let count = |database: &super::Database| match scope {
            Scope::All => database.key_count(),
            Scope::Expiring => database.expiring(),
        };
        let counts: [usize; DATABASES as usize] =
            std::array::from_fn(|number| self.databases[number].as_deref().map_or(0, count));
        let mut chosen = self.random.below(counts.iter().sum());
        let number = counts.iter().position(|count| {
            let is_here = chosen < *count;
            chosen = chosen.saturating_sub(*count);
            is_here
        })?;
        let own = self.own_groups();
        let database = self.databases[number].as_deref_mut()?;
        let (now, decay_minutes) = (self.now, self.counts_uses.map_or(0, |(_, decay_minutes)| decay_minutes));
        let rank = |entry: &Entry| rank(entry, order, now, decay_minutes);
        let best = match scope {
            Scope::All => database.sample(own, &mut self.random, SAMPLE).max_by_key(|entry| rank(entry)),
            Scope::Expiring => {
                let sample = database.sample_expiring(own, &mut self.random, SAMPLE);
                sample.into_iter().max_by_key(|entry| rank(entry))
            }
        };
        Some((number as u8, Box::from(&*best?.key)))
    }
}

/// The higher, the rather it goes.
fn rank(entry: &Entry, order: Order, now: UnixMillis, decay_minutes: u8) -> (u16, Reverse<UnixMillis>) {
    match order {
        Order::LeastRecent => (entry.idle_seconds(now), Reverse(UnixMillis(0))),
        Order::LeastFrequent => (u16::from(u8::MAX - entry.use_count(now, decay_minutes)), Reverse(UnixMillis(0))),
        Order::FirstToExpire => (0, Reverse(entry.expires_at())),
        Order::Chance => (0, Reverse(UnixMillis(0))),
    }
}
