//! The keys of one database, by key group.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hint::black_box;
use std::ops::Range;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use savanna_lattice::UnixMillis;
use savanna_ownership::{KEY_GROUPS, KeyGroup};

use crate::keyspace::entry::{Entry, Value};
use crate::keyspace::spot::{NEAR_MAX, Spot};
use crate::random::Random;

/// The keys of one database that one actor holds: a small hash table per key group, so that no growth is ever long and a
/// position in the space of hashes is a position in the database.
#[derive(Debug)]
pub struct Database {
    groups: Box<[HashTable<Box<Entry>>]>,
    seed: u64,
    len: usize,
    /// Keys by the time when they expire, found again by their spot. What is not true any more is dropped when its time
    /// comes.
    expiries: BinaryHeap<Reverse<Note>>,
    renewal: Option<Renewal>,
    /// Hashes whose fields expire, by when the first of each does.
    field_expiries: BTreeSet<Note>,
    expiring: usize,
    bytes: usize,
}

/// That a key may expire at a time.
type Note = (UnixMillis, Spot);

/// Notes that are true, while they are collected out of the tables in small steps: all at once would take long.
#[derive(Debug, Default)]
struct Renewal {
    /// Key groups before this one were looked at; who writes to them since notes it here, too.
    group: usize,
    expiries: BinaryHeap<Reverse<Note>>,
}

impl Database {
    /// A database without keys.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let groups = (0..KEY_GROUPS).map(|_| HashTable::new()).collect();
        Self {
            groups,
            seed,
            len: 0,
            expiries: BinaryHeap::new(),
            renewal: None,
            field_expiries: BTreeSet::new(),
            expiring: 0,
            bytes: 0,
        }
    }

    /// How many keys there are, expired ones included.
    #[must_use]
    pub const fn key_count(&self) -> usize {
        self.len
    }

    /// How many keys expire some time.
    #[must_use]
    pub const fn expiring(&self) -> usize {
        self.expiring
    }

    /// About how many bytes the keys and their values took when they were last counted.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A key's entry.
    #[must_use]
    pub fn find(&self, spot: Spot, key: &[u8]) -> Option<&Entry> {
        self.groups[spot.table()].find(spot.within(), |entry| *entry.key == *key).map(|entry| &**entry)
    }

    /// Reads what finding keys will read, so that it is in the processor's cache. In each step the reads do not depend on
    /// each other, so they are waited for together: places in tables, entries, values.
    pub fn bring_near(&self, spots: &[Spot]) {
        let mut entries = [None; NEAR_MAX];
        for (entry, spot) in entries.iter_mut().zip(spots) {
            // By its tag, which is nearly always enough.
            *entry = self.groups[spot.table()].find(spot.within(), |_| true);
        }
        let entries = entries.iter().flatten();
        entries.clone().for_each(|entry| {
            black_box(entry.version);
        });
        for entry in entries {
            if let Value::String(bytes) = &entry.value {
                black_box((bytes.first().copied(), bytes.last().copied()));
            }
        }
    }

    /// A key's entry, to be changed; whoever changes the expiry tells [`Database::note_expiry`].
    pub fn find_mut(&mut self, spot: Spot, key: &[u8]) -> Option<&mut Entry> {
        self.groups[spot.table()].find_mut(spot.within(), |entry| *entry.key == *key).map(|entry| &mut **entry)
    }

    /// Puts an entry in the place of the one of the same key.
    pub fn insert(&mut self, spot: Spot, entry: Box<Entry>) -> &mut Entry {
        let seed = self.seed;
        let expires_at = entry.expires_at();
        if expires_at != UnixMillis::NEVER {
            self.expiring += 1;
            self.note(expires_at, spot);
        }
        self.bytes += entry.byte_count();
        let fields_expire_at = entry.value.first_field_expiry();
        // All entries of the table are of this key group.
        let rehash = |other: &Entry| Spot::in_group(spot.group(), &other.key, seed).within();
        match self.groups[spot.table()].entry(spot.within(), |other| other.key == entry.key, |other| rehash(other)) {
            Place::Occupied(mut slot) => {
                let old = std::mem::replace(slot.get_mut(), entry);
                self.expiring -= usize::from(old.expires_at() != UnixMillis::NEVER);
                self.bytes = self.bytes.saturating_sub(old.byte_count());
                let before = old.value.first_field_expiry();
                Self::note_first_field(&mut self.field_expiries, spot, before, fields_expire_at);
                slot.into_mut()
            }
            Place::Vacant(slot) => {
                self.len += 1;
                Self::note_first_field(&mut self.field_expiries, spot, None, fields_expire_at);
                slot.insert(entry).into_mut()
            }
        }
    }

    /// Takes a key's entry out.
    pub fn remove(&mut self, spot: Spot, key: &[u8]) -> Option<Box<Entry>> {
        let found = self.groups[spot.table()].find_entry(spot.within(), |entry| *entry.key == *key).ok()?;
        let (entry, _) = found.remove();
        self.len -= 1;
        Self::note_first_field(&mut self.field_expiries, spot, entry.value.first_field_expiry(), None);
        self.expiring -= usize::from(entry.expires_at() != UnixMillis::NEVER);
        self.bytes = self.bytes.saturating_sub(entry.byte_count());
        Some(entry)
    }

    /// Hears that an entry's size changed.
    pub const fn note_size(&mut self, before: usize, after: usize) {
        self.bytes = (self.bytes + after).saturating_sub(before);
    }

    /// Hears that a key's expiry changed.
    pub fn note_expiry(&mut self, spot: Spot, before: UnixMillis, after: UnixMillis) {
        self.expiring += usize::from(after != UnixMillis::NEVER);
        self.expiring -= usize::from(before != UnixMillis::NEVER);
        if after != UnixMillis::NEVER {
            self.note(after, spot);
        }
    }

    /// Hears that the first field of a hash expires at another time than before.
    pub fn note_field_expiry(&mut self, spot: Spot, before: Option<UnixMillis>, after: Option<UnixMillis>) {
        if before != after {
            Self::note_first_field(&mut self.field_expiries, spot, before, after);
        }
    }

    fn note_first_field(notes: &mut BTreeSet<Note>, spot: Spot, before: Option<UnixMillis>, after: Option<UnixMillis>) {
        if let Some(before) = before {
            notes.remove(&(before, spot));
        }
        if let Some(after) = after {
            notes.insert((after, spot));
        }
    }

    /// When the next field of a hash expires.
    #[must_use]
    pub fn next_field_expiry(&self) -> Option<UnixMillis> {
        self.field_expiries.first().map(|(at, _)| *at)
    }

    /// A hash with a field whose time has come, if there is one.
    #[must_use]
    pub fn next_with_expired_fields(&self, now: UnixMillis) -> Option<&Entry> {
        let due = self.field_expiries.iter().take_while(|(at, _)| *at <= now);
        due.filter_map(|(at, spot)| {
            let is_it = |entry: &Entry| entry.value.first_field_expiry() == Some(*at) && self.lies_at(entry, *spot);
            self.groups[spot.table()].find(spot.within(), |entry| is_it(entry)).map(|entry| &**entry)
        })
        .next()
    }

    /// Whether an entry of this spot's group lies there.
    fn lies_at(&self, entry: &Entry, spot: Spot) -> bool {
        Spot::in_group(spot.group(), &entry.key, self.seed) == spot
    }

    /// Notes when a key expires; what is not true any more is forgotten in time.
    fn note(&mut self, at: UnixMillis, spot: Spot) {
        if self.renewal.is_none() && self.expiries.len() > 2 * self.expiring + self.len / 4 + 1024 {
            self.renewal = Some(Renewal::default());
        }
        self.expiries.push(Reverse((at, spot)));
        if let Some(renewal) = &mut self.renewal {
            renewal.expiries.push(Reverse((at, spot)));
            self.renew_some();
        }
    }

    /// Goes on with a renewal of the notes.
    fn renew_some(&mut self) {
        const GROUPS: usize = 128;
        const ENTRIES: usize = 16;
        let Some(mut renewal) = self.renewal.take() else { return };
        let (end, mut entries) = (renewal.group + GROUPS, 0);
        while renewal.group < end && entries < ENTRIES {
            let Some(group) = self.groups.get(renewal.group) else {
                self.expiries = renewal.expiries;
                return;
            };
            renewal.expiries.extend(group.iter().filter_map(|entry| self.note_of(entry)).map(Reverse));
            renewal.group += 1;
            entries += group.len();
        }
        self.renewal = Some(renewal);
    }

    fn renew_all(&mut self) {
        self.renewal = None;
        self.expiries = self.iter().filter_map(|entry| self.note_of(entry)).map(Reverse).collect();
    }

    /// What is to be noted of an entry, if it expires.
    fn note_of(&self, entry: &Entry) -> Option<Note> {
        let at = entry.expires_at();
        (at != UnixMillis::NEVER).then(|| (at, Spot::of(&entry.key, self.seed)))
    }

    /// When the next key may expire.
    #[must_use]
    pub fn next_expiry(&self) -> Option<UnixMillis> {
        self.expiries.peek().map(|Reverse((at, _))| *at)
    }

    /// A key whose time has come, if there is one; it is to be removed. Looks at no more than `patience` notes.
    pub fn next_expired(&mut self, now: UnixMillis, patience: &mut usize) -> Option<(Spot, Box<[u8]>)> {
        while *patience > 0 {
            let Reverse((at, spot)) = *self.expiries.peek()?;
            if at > now {
                return None;
            }
            *patience -= 1;
            let is_it = |entry: &Entry| entry.has_expired(now) && self.lies_at(entry, spot);
            match self.groups[spot.table()].find(spot.within(), |entry| is_it(entry)) {
                Some(entry) => return Some((spot, Box::from(&*entry.key))),
                None => drop(self.expiries.pop()),
            }
        }
        None
    }

    /// Up to `size` entries of these key groups, half of them from one random group on and half from another: what lies
    /// together stays together, so that one place alone would be looked at again and again.
    pub fn sample<'a>(
        &'a self,
        groups: Range<u16>,
        random: &mut Random,
        size: usize,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let groups = &self.groups[usize::from(groups.start)..usize::from(groups.end)];
        let half = size.div_ceil(2);
        let mut part = || {
            let (before, from) = groups.split_at(random.below(groups.len()));
            let skipped = from.first().map_or(0, |group| random.below((group.len() + 1).saturating_sub(half)));
            from.iter().flatten().skip(skipped).chain(before.iter().flatten()).take(half)
        };
        let (one, other) = (part(), part());
        one.chain(other).map(|entry| &**entry)
    }

    /// The entry at a place among those of these key groups.
    pub fn nth(&self, groups: Range<u16>, mut place: usize) -> Option<&Entry> {
        let groups = &self.groups[usize::from(groups.start)..usize::from(groups.end)];
        for group in groups {
            if place < group.len() {
                return group.iter().nth(place).map(|entry| &**entry);
            }
            place -= group.len();
        }
        None
    }

    /// Up to `size` entries of these key groups that expire some time, at random.
    pub fn sample_expiring(&mut self, groups: Range<u16>, random: &mut Random, size: usize) -> Vec<&Entry> {
        let mut found = self.true_notes(&groups, random, size);
        if found.is_empty() && self.expiries.len() > 2 * self.expiring {
            self.renew_all();
            found = self.true_notes(&groups, random, size);
        }
        found.into_iter().filter_map(|note| self.noted(note)).collect()
    }

    /// Up to `size` notes about entries of these key groups, at random.
    fn true_notes(&self, groups: &Range<u16>, random: &mut Random, size: usize) -> Vec<Note> {
        let notes = self.expiries.as_slice();
        let chosen: Vec<usize> = if notes.len() <= 4 * size {
            (0..notes.len()).collect()
        } else {
            (0..4 * size).map(|_| random.below(notes.len())).collect()
        };
        let notes = chosen.into_iter().map(|place| notes[place].0);
        notes
            .filter(|(_, spot)| groups.contains(&spot.group().get()))
            .filter(|note| self.noted(*note).is_some())
            .take(size)
            .collect()
    }

    /// The entry that a note is about, if it is true.
    fn noted(&self, (at, spot): Note) -> Option<&Entry> {
        let is_it = |entry: &Entry| at != UnixMillis::NEVER && entry.expires_at() == at && self.lies_at(entry, spot);
        self.groups[spot.table()].find(spot.within(), |entry| is_it(entry)).map(|entry| &**entry)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.groups.iter().flatten().map(|entry| &**entry)
    }

    /// The entries of a key group.
    pub fn group(&self, group: KeyGroup) -> impl ExactSizeIterator<Item = &Entry> {
        self.groups[usize::from(group.get())].iter().map(|entry| &**entry)
    }
}

#[cfg(test)]
mod tests {
    use savanna_lattice::Hlc;

    use super::*;
    use crate::short_bytes::ShortBytes;

    const KEYS: u64 = 5_000;

    fn put(database: &mut Database, key: u64, at: u64) {
        let key = key.to_string().into_bytes();
        let mut entry = Box::new(Entry::new(&key, Value::String(ShortBytes::EMPTY), Hlc::ZERO));
        entry.expire_at(UnixMillis(at));
        database.insert(Spot::of(&key, database.seed), entry);
    }

    #[test]
    fn notes_of_keys_whose_expiry_changes_are_renewed_in_small_steps() {
        let mut database = Database::new(1);
        let (mut steps, mut renewals) = (0, 0);
        for round in 0..20 {
            for key in 0..KEYS {
                let before = database.renewal.is_some();
                put(&mut database, key, 1_000 + round);
                match (before, database.renewal.is_some()) {
                    (true, false) => renewals += 1,
                    (_, true) => steps += 1,
                    _ => {}
                }
                assert!(database.expiries.len() < 4 * KEYS as usize + 2048, "{} notes", database.expiries.len());
            }
        }
        assert!(renewals > 2 && steps > 100 * renewals, "{renewals} in {steps} steps");
        // None was lost, none is true too early.
        let (mut patience, mut random) = (usize::MAX, Random::new(1));
        assert_eq!(database.next_expired(UnixMillis(1_018), &mut patience), None);
        assert_eq!(database.sample_expiring(0..KEY_GROUPS, &mut random, 5).len(), 5);
        let mut expired = 0;
        while let Some((spot, key)) = database.next_expired(UnixMillis(1_019), &mut patience) {
            database.remove(spot, &key);
            expired += 1;
        }
        assert_eq!((expired, database.key_count(), database.expiring()), (KEYS, 0, 0));
    }

    #[test]
    fn a_key_that_expires_is_found_among_many_that_do_not_any_more() {
        let (mut database, mut random) = (Database::new(1), Random::new(1));
        for key in 0..KEYS {
            put(&mut database, key, 1_000);
            put(&mut database, key, UnixMillis::NEVER.0);
        }
        put(&mut database, 0, 2_000);
        assert_eq!(database.sample_expiring(0..KEY_GROUPS, &mut random, 5).len(), 1);
    }
}
