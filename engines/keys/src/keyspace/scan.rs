//! Walking through a database in the order of hashes.

use savanna_ownership::{KEY_GROUPS, KeyGroup};

use super::{Database, Entry, Keyspace};
use crate::placement::KeyHash;
use crate::slot::HashSlot;

impl Keyspace {
    /// Shows the keys of the selected database from the place `from` on to `visit`, in the order of their places, up to the
    /// group `end` and until about `count` were shown. Says where to go on, `None` at the end.
    ///
    /// What is there from the first call to the last is shown once; growth, and another spread of the groups over actors, do
    /// not move it.
    pub fn scan(&self, from: KeyHash, end: u16, count: usize, visit: &mut dyn FnMut(&Entry)) -> Option<KeyHash> {
        let database = self.database()?;
        let mut left = count.max(1);
        for number in from.group().get()..end.min(KEY_GROUPS) {
            let Ok(group) = KeyGroup::new(number) else { break };
            if database.group(group).len() == 0 {
                continue;
            }
            let places = database.places(group, from);
            for (index, (at, entry)) in places.iter().enumerate() {
                // Keys of one place are shown together: it cannot say which of them comes next.
                if left == 0 && places[index - 1].0 != *at {
                    return Some(*at);
                }
                left = left.saturating_sub(1);
                if !entry.has_expired(self.now) {
                    visit(entry);
                }
            }
            if left == 0 && number + 1 < end {
                return Some(KeyHash::first_of(number + 1));
            }
        }
        None
    }

    /// The keys of this actor in a slot, as clients of clusters know them: those of the first database.
    pub fn keys_in(&self, slot: HashSlot) -> impl Iterator<Item = &[u8]> {
        // In groups of others are copies of their keys.
        let groups = slot.groups().into_iter().filter(|group| self.routes.actor_of(*group) == self.replicas.id);
        let entries = groups.flat_map(|group| self.databases[0].iter().flat_map(move |all| all.group(group)));
        entries.filter(|entry| !entry.has_expired(self.now)).map(|entry| &*entry.key)
    }

    /// A key of this actor in the selected database by chance, if there is one; each is as likely as any other.
    pub fn random_key(&mut self) -> Option<Box<[u8]>> {
        /// How many keys whose time has come may be found until others are looked for in turn.
        const TRIES: usize = 100;
        let (count, own, now) = (self.key_count(), self.own_groups(), self.now);
        if self.has_borrowed {
            let place = self.random.below(count);
            let shown = self.database()?.iter().filter(|entry| self.is_no_copy(&entry.key) && !entry.has_expired(now));
            let shown: Vec<&Entry> = shown.collect();
            return Some(Box::from(&*shown.get(place).or_else(|| shown.last())?.key));
        }
        for _ in 0..TRIES {
            let place = self.random.below(count);
            let entry = self.database()?.nth(own.clone(), place)?;
            if !entry.has_expired(now) {
                return Some(Box::from(&*entry.key));
            }
        }
        let database = self.database()?;
        let groups = own.filter_map(|group| KeyGroup::new(group).ok());
        let found = groups.flat_map(|group| database.group(group)).find(|entry| !entry.has_expired(now));
        found.map(|entry| Box::from(&*entry.key))
    }
}

impl Database {
    /// The entries of a key group from a place on, in the order of their places.
    pub(super) fn places(&self, group: KeyGroup, from: KeyHash) -> Vec<(KeyHash, &Entry)> {
        let placed = self.group(group).map(|entry| (KeyHash::of(&entry.key).floor(), entry));
        let mut places: Vec<(KeyHash, &Entry)> = placed.filter(|(at, _)| *at >= from).collect();
        places.sort_unstable_by_key(|(at, _)| *at);
        places
    }
}
