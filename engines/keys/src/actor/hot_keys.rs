//! Which keys are asked for most of late.
//!
//! Each actor counts a sample of the requests that it runs, by space-saving: a key that is not counted yet takes the place of
//! the one with the lowest count and goes on from there. So a key with more than one in [`KEPT`] of the requests is always
//! among those that are counted. Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
//! streams (2005), section 3.

use savanna_lattice::UnixMillis;

use super::Actor;
use crate::command::{Class, Command};
use crate::random::Random;
use crate::request::Args;

/// One of so many requests is looked at, on average.
pub(super) const SAMPLED: u32 = 256;

/// How many keys are counted at a time.
pub(crate) const KEPT: usize = 128;

/// After this time, in milliseconds, what was counted before counts half.
const HALF_LIFE: u64 = 60_000;

/// The keys that an actor is asked for most.
#[derive(Debug)]
pub(super) struct HotKeys {
    /// Requests until one is looked at.
    until_next: u32,
    random: Random,
    halved: UnixMillis,
    counted: Vec<Counted>,
    /// Requests about keys that were looked at.
    looked_at: u64,
}

/// How often an actor was asked for a key of late, at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// The database.
    pub database: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// Requests.
    pub requests: u64,
    /// Those of them that only read.
    pub reads: u64,
}

impl Heat {
    /// What it is after so many milliseconds without a request.
    pub(super) fn faded(&self, millis: u64) -> Self {
        let fade = |count: u64| count.checked_shr((millis / HALF_LIFE).min(64) as u32).unwrap_or(0);
        Self { requests: fade(self.requests), reads: fade(self.reads), ..self.clone() }
    }
}

#[derive(Clone, Debug)]
struct Counted {
    database: u8,
    key: Box<[u8]>,
    count: u64,
    /// What it may have got from the key whose place it took.
    inherited: u64,
    /// How many of its own only read.
    reads: u64,
}

impl HotKeys {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            until_next: SAMPLED,
            random: Random::new(seed),
            halved: UnixMillis(0),
            counted: Vec::new(),
            looked_at: 0,
        }
    }

    /// Hears of a request. Says whether it is to be noted.
    #[inline]
    pub(super) const fn is_next(&mut self) -> bool {
        self.until_next -= 1;
        self.until_next == 0
    }

    /// Notes a request about keys, which only reads or not.
    #[cold]
    pub(super) fn note<'a>(
        &mut self,
        database: u8,
        keys: impl Iterator<Item = &'a [u8]>,
        only_reads: bool,
        now: UnixMillis,
    ) {
        // Not every 256th: requests may come in a rhythm.
        self.until_next = 1 + self.random.below(2 * SAMPLED as usize - 1) as u32;
        self.fade(now);
        self.looked_at += 1;
        for key in keys {
            self.count(database, key, u64::from(only_reads));
        }
    }

    fn count(&mut self, database: u8, key: &[u8], reads: u64) {
        let is_full = self.counted.len() == KEPT;
        let known = self.counted.iter_mut().find(|counted| *counted.key == *key && counted.database == database);
        match known {
            Some(counted) => {
                counted.count += 1;
                counted.reads += reads;
            }
            None if !is_full => {
                self.counted.push(Counted { database, key: key.into(), count: 1, inherited: 0, reads });
            }
            None => {
                if let Some(lowest) = self.counted.iter_mut().min_by_key(|counted| counted.count) {
                    let inherited = lowest.count;
                    *lowest = Counted { database, key: key.into(), count: inherited + 1, inherited, reads };
                }
            }
        }
    }

    /// How often what was counted is to be halved by now.
    fn halvings(&self, now: UnixMillis) -> u32 {
        (now.0.saturating_sub(self.halved.0) / HALF_LIFE).min(64) as u32
    }

    fn fade(&mut self, now: UnixMillis) {
        let halvings = self.halvings(now);
        if halvings == 0 {
            return;
        }
        self.halved = now;
        self.looked_at = self.looked_at.checked_shr(halvings).unwrap_or(0);
        for counted in &mut self.counted {
            counted.count = counted.count.checked_shr(halvings).unwrap_or(0);
            counted.inherited = counted.inherited.checked_shr(halvings).unwrap_or(0);
            counted.reads = counted.reads.checked_shr(halvings).unwrap_or(0);
        }
        self.counted.retain(|counted| counted.count > 0);
    }

    /// The keys of all databases that are asked for most, with about how many requests of late were about each, at least.
    pub(super) fn hottest(&self, count: usize, now: UnixMillis) -> Vec<(u8, Box<[u8]>, u64)> {
        let halvings = self.halvings(now);
        let counted = self.counted.iter().map(|counted| {
            let requests = (counted.count - counted.inherited).checked_shr(halvings).unwrap_or(0) * u64::from(SAMPLED);
            (counted.database, counted.key.clone(), requests)
        });
        let mut hottest: Vec<_> = counted.filter(|(.., requests)| *requests > 0).collect();
        hottest.sort_by(|one, other| other.2.cmp(&one.2).then_with(|| one.1.cmp(&other.1)));
        hottest.truncate(count);
        hottest
    }

    /// Requests of late about all keys, and how many of them were about those that are counted.
    pub(super) fn heat(&mut self, now: UnixMillis) -> (u64, Vec<Heat>) {
        self.fade(now);
        let sampled = u64::from(SAMPLED);
        let heat = self.counted.iter().map(|counted| Heat {
            database: counted.database,
            key: counted.key.clone(),
            requests: (counted.count - counted.inherited) * sampled,
            reads: counted.reads * sampled,
        });
        (self.looked_at * sampled, heat.collect())
    }

    /// Keys of a database, with about how many requests of late were about each, at least.
    pub(super) fn of_database(&mut self, database: u8, now: UnixMillis) -> Vec<(&[u8], u64)> {
        self.fade(now);
        let counted = self.counted.iter().filter(|counted| counted.database == database);
        let counted = counted.map(|counted| (&*counted.key, (counted.count - counted.inherited) * u64::from(SAMPLED)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

impl Actor {
    /// Counts the keys of a request in the selected database.
    #[cold]
    pub(super) fn note_hot(&mut self, command: &'static Command, args: Args<'_>) {
        let keys = command.keys.of(args).into_iter().flatten();
        let only_reads = command.class_of(args) == Class::Read;
        self.hot_keys.note(self.keys.selected(), keys, only_reads, self.keys.now());
    }

    /// The keys of all databases that this actor is asked for most, with the number of requests of late.
    pub(crate) fn hottest(&self, count: usize) -> Vec<(u8, Box<[u8]>, u64)> {
        self.hot_keys.hottest(count, self.keys.now())
    }

    /// The keys of the selected database that this actor is asked for most, with the number of requests of late.
    pub(crate) fn hot_keys(&mut self) -> Vec<(&[u8], u64)> {
        self.hot_keys.of_database(self.keys.selected(), self.keys.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes requests about keys of these names.
    fn ask<'a>(hot: &mut HotKeys, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if hot.is_next() {
                hot.note(0, [name.as_bytes()].into_iter(), name.starts_with("hot"), UnixMillis(0));
            }
        }
    }

    #[test]
    fn what_is_asked_for_often_is_counted_among_many_others() {
        let mut hot = HotKeys::new(1);
        let names: Vec<String> = (0..10_000).map(|number| format!("key{number}")).collect();
        // Every tenth request is about one key, in a rhythm.
        let requests = (0..1_000_000).map(|number| if number % 10 == 0 { "hot" } else { &*names[number % 10_000] });
        ask(&mut hot, requests);
        let counts = hot.of_database(0, UnixMillis(0));
        let (name, count) = counts.iter().max_by_key(|(_, count)| *count).expect("some");
        assert_eq!(*name, b"hot");
        assert!((80_000..120_000).contains(count), "{count}");
        assert!(counts.len() <= KEPT && hot.of_database(1, UnixMillis(0)).is_empty());
        let hottest = hot.hottest(2, UnixMillis(0));
        assert_eq!((hottest.len(), hottest[0].0, &*hottest[0].1), (2, 0, &b"hot"[..]));
    }

    #[test]
    fn what_was_counted_fades() {
        let mut hot = HotKeys::new(1);
        ask(&mut hot, std::iter::repeat_n("hot", 100_000));
        let before = hot.of_database(0, UnixMillis(0))[0].1;
        let after = hot.of_database(0, UnixMillis(HALF_LIFE))[0].1;
        assert!(after.abs_diff(before / 2) <= u64::from(SAMPLED), "{before} became {after}");
        assert!(hot.of_database(0, UnixMillis(100 * HALF_LIFE)).is_empty());
    }

    #[test]
    fn reads_are_told_from_writes() {
        let mut hot = HotKeys::new(1);
        ask(&mut hot, ["hot", "hot", "hot", "cold"].into_iter().cycle().take(400_000));
        let (requests, heat) = hot.heat(UnixMillis(0));
        let of = |name: &str| heat.iter().find(|heat| *heat.key == *name.as_bytes()).expect("it is counted");
        assert!((300_000..500_000).contains(&requests), "{requests}");
        assert_eq!(of("cold").reads, 0);
        assert_eq!(of("hot").reads, of("hot").requests);
        assert_eq!(of("hot").faded(HALF_LIFE).requests, of("hot").requests / 2);
    }
}
