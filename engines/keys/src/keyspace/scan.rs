//! Walking through a database in the order of hashes.

use savanna_ownership::{KEY_GROUPS, KeyGroup};

use super::{Entry, Keyspace};
use crate::placement::KeyHash;

impl Keyspace {
    /// Shows the keys of the selected database from the place `from` on to `visit`, in the order of their places, up to the
    /// group `end` and until about `count` were shown. Says where to go on, `None` at the end.
    ///
    /// What is there from the first call to the last is shown once; growth, and another spread of the groups over actors, do
    /// not move it.
    pub fn scan(&self, from: KeyHash, end: u16, count: usize, visit: &mut dyn FnMut(&Entry)) -> Option<KeyHash> {
        let database = self.database()?;
        let mut left = count.max(1);
        let mut places: Vec<(KeyHash, &Entry)> = Vec::new();
        for number in from.group().get()..end.min(KEY_GROUPS) {
            let Ok(group) = KeyGroup::new(number) else { break };
            if database.group(group).len() == 0 {
                continue;
            }
            places.clear();
            let placed = database.group(group).map(|entry| (KeyHash::of(&entry.key).floor(), entry));
            places.extend(placed.filter(|(at, _)| *at >= from));
            places.sort_unstable_by_key(|(at, _)| *at);
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

    /// A key of the selected database by chance, if there is one. (Keys in groups with few are likelier.)
    pub fn random_key(&mut self) -> Option<Box<[u8]>> {
        let start = self.random.below(usize::from(KEY_GROUPS)) as u16;
        let chance = self.random.next() as usize;
        let database = self.database()?;
        (0..KEY_GROUPS).find_map(|offset| {
            let group = KeyGroup::new((start + offset) % KEY_GROUPS).ok()?;
            let alive = || database.group(group).filter(|entry| !entry.has_expired(self.now));
            let count = alive().count();
            (count > 0).then(|| alive().nth(chance % count).map(|entry| Box::from(&*entry.key)))?
        })
    }
}
