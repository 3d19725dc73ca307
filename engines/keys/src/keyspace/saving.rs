//! All keys of one moment, in the form of a file of Redis, written while they change.
//!
//! The keys are walked through in the order of their places, some at a time. Before a key changes that the walk has not come to, it is
//! written as it is; the walk leaves it out then. So what is written is what there was when the walk began, and nothing is
//! copied that does not change.

use hashbrown::{HashMap, HashSet};
use savanna_keys_rdb::Pieces;
use savanna_lattice::UnixMillis;
use savanna_ownership::KeyGroup;

use super::{DATABASES, Database, Entry, Keyspace, payload};
use crate::memory::ask_for_value;
use crate::placement::KeyHash;

/// Keys that are being written as they were at one moment.
#[derive(Debug)]
pub(super) struct Saving {
    /// Which save it is.
    number: u64,
    /// The moment: keys whose time had come are left out.
    at: UnixMillis,
    /// The first place that the walk has not come to. Databases have the numbers of the moment.
    next: (u8, u16, KeyHash),
    /// The number at the moment of each database.
    numbers: [u8; DATABASES as usize],
    /// Databases that were emptied since.
    flushed: [Option<Box<Database>>; DATABASES as usize],
    /// Keys before the walk that were written, or were not there, by database and key group.
    kept: HashMap<(u8, u16), HashSet<Box<[u8]>>>,
    /// What was written, and nobody has taken.
    pieces: Pieces,
    /// Whether there was no memory for a key.
    is_failed: bool,
}

/// What was written of all keys.
#[derive(Debug, Default)]
pub struct Saved {
    /// Of which save.
    pub number: u64,
    /// Keys as a file has them.
    pub pieces: Pieces,
    /// Whether these were the last.
    pub is_done: bool,
    /// Whether some are missing, for want of memory.
    pub is_failed: bool,
    /// Databases that were emptied, and are not needed any more.
    #[expect(clippy::vec_box, reason = "they are in boxes where they come from")]
    pub(crate) dropped: Vec<Box<Database>>,
}

impl Saving {
    fn write(&mut self, number: u8, entry: &Entry) {
        if entry.has_expired(self.at) || self.is_failed {
            return;
        }
        if ask_for_value(entry.whole_bytes()).is_err() {
            self.is_failed = true;
            return;
        }
        let expires_at = Some(entry.expires_at()).filter(|at| *at != UnixMillis::NEVER).map(|at| at.0);
        let kind = payload::kind_of(&entry.value);
        let write = |writer: &mut _| payload::write(writer, &entry.value);
        self.pieces.key(u64::from(number), &entry.key, expires_at, kind, write);
    }

    /// Whether the walk has come to a key.
    fn has_passed(&self, number: u8, hash: KeyHash) -> bool {
        (number, hash.group().get(), hash.floor()) < self.next
    }

    /// Notes that a key was written, unless that was noted before.
    fn note_kept(&mut self, number: u8, hash: KeyHash, key: &[u8]) -> bool {
        let of_group = self.kept.entry((number, hash.group().get())).or_default();
        !of_group.contains(key) && of_group.insert(key.into())
    }

    /// Writes keys of a database in the key groups before `end`, up to about `bytes`. Says whether these were all.
    fn walk(&mut self, number: u8, database: &Database, end: u16, bytes: usize) -> bool {
        while self.next.1 < end && !self.is_failed {
            let (_, group, from) = self.next;
            let kept = self.kept.remove(&(number, group)).unwrap_or_default();
            let places = KeyGroup::new(group).map(|group| database.places(group, from)).unwrap_or_default();
            let mut last = from;
            for (at, entry) in places {
                // Keys of one place are written together: it cannot say which of them comes next.
                if self.pieces.byte_count() >= bytes && at != last {
                    self.next.2 = at;
                    self.kept.insert((number, group), kept);
                    return false;
                }
                last = at;
                if !kept.contains(&*entry.key) {
                    self.write(number, entry);
                }
            }
            self.next = (number, group + 1, KeyHash::default());
        }
        true
    }
}

impl Keyspace {
    /// Begins to write all keys of this actor as they are now. All of them are here.
    pub fn begin_save(&mut self, number: u64) {
        let mut pieces = Pieces::default();
        self.libraries().for_each(|(_, text)| pieces.library(text));
        self.saving = Some(Box::new(Saving {
            number,
            at: self.now,
            next: (0, self.own_groups().start, KeyHash::default()),
            numbers: std::array::from_fn(|number| number as u8),
            flushed: [const { None }; DATABASES as usize],
            kept: HashMap::new(),
            pieces,
            is_failed: false,
        }));
    }

    /// Ends to write keys for a save. Gives what was emptied since it began, so that it can be dropped elsewhere.
    pub fn end_save(&mut self, number: u64) -> Vec<Box<Database>> {
        let ended = self.saving.take_if(|saving| saving.number == number);
        ended.into_iter().flat_map(|saving| saving.flushed).flatten().collect()
    }

    /// Whether keys are being written.
    #[must_use]
    pub const fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Takes what was written, with more keys of up to about `bytes`.
    pub fn save_some(&mut self, bytes: usize) -> Saved {
        let own = self.own_groups();
        let mut saved = Saved { is_done: true, ..Saved::default() };
        let Some(mut saving) = self.saving.take() else { return saved };
        saved.number = saving.number;
        while saving.next.0 < DATABASES && !saving.is_failed {
            let number = saving.next.0;
            let flushed = saving.flushed[usize::from(number)].take();
            let present = saving.numbers.iter().position(|other| *other == number);
            let present = present.and_then(|present| self.databases[present].as_deref());
            let is_done =
                flushed.as_deref().or(present).is_none_or(|walked| saving.walk(number, walked, own.end, bytes));
            if !is_done {
                saving.flushed[usize::from(number)] = flushed;
                break;
            }
            saved.dropped.extend(flushed);
            saving.next = (number + 1, own.start, KeyHash::default());
        }
        saved.pieces = std::mem::take(&mut saving.pieces);
        (saved.is_done, saved.is_failed) = (saving.is_failed || saving.next.0 == DATABASES, saving.is_failed);
        if saved.is_done {
            saved.dropped.extend(saving.flushed.into_iter().flatten());
        } else {
            self.saving = Some(saving);
        }
        saved
    }

    /// Hears that a key is about to change: it is written as it is now, if it is to be written and was not.
    #[inline]
    pub(super) fn keep(&mut self, database: u8, key: &[u8]) {
        if self.saving.is_some() {
            self.keep_as_it_is(database, key);
        }
    }

    #[cold]
    fn keep_as_it_is(&mut self, database: u8, key: &[u8]) {
        let (hash, spot) = (KeyHash::of(key), self.spot_of(key));
        let is_own = self.own_groups().contains(&hash.group().get());
        let Some(saving) = self.saving.as_deref_mut().filter(|_| is_own && database < DATABASES) else { return };
        let number = saving.numbers[usize::from(database)];
        let is_written = saving.flushed[usize::from(number)].is_some() || saving.has_passed(number, hash);
        if is_written || !saving.note_kept(number, hash, key) {
            return;
        }
        if let Some(entry) = self.databases[usize::from(database)].as_ref().and_then(|all| all.find(spot, key)) {
            saving.write(number, entry);
        }
    }

    /// Hears that a database was emptied. Gives it back unless it is still to be written.
    pub(super) fn keep_flushed(&mut self, database: u8, flushed: Box<Database>) -> Option<Box<Database>> {
        let Some(saving) = self.saving.as_deref_mut() else { return Some(flushed) };
        let number = saving.numbers[usize::from(database)];
        let place = &mut saving.flushed[usize::from(number)];
        // What it had once it had been emptied is of later.
        if number < saving.next.0 || place.is_some() {
            return Some(flushed);
        }
        *place = Some(flushed);
        None
    }

    /// Hears that two databases were swapped.
    pub(super) fn keep_swapped(&mut self, one: u8, other: u8) {
        if let Some(saving) = &mut self.saving {
            saving.numbers.swap(usize::from(one), usize::from(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use proptest::prelude::*;
    use savanna_keys_rdb::{FileReader, FileWriter, Item};

    use super::*;
    use crate::keyspace::{Collection as _, Expiry, Set};
    use crate::placement::Routes;

    /// Database and name, with the value as `DUMP` gives it and when it expires.
    type Keys = BTreeMap<(u8, Vec<u8>), (Vec<u8>, Option<u64>)>;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u8, u8, u64),
        Add(u8, u8, u8),
        Delete(u8, u8),
        Expire(u8, u8, u64),
        Flush(Option<u8>),
        Swap(u8, u8),
        /// Lends a key, and takes it back as it was, or changed, or not at all.
        Lend(u8, u8, Option<bool>),
        Save(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (database, key) = (0..3_u8, 0..12_u8);
        prop_oneof![
            4 => (database.clone(), key.clone(), any::<u64>()).prop_map(|(database, key, value)| Step::Set(database, key, value)),
            4 => (database.clone(), key.clone(), 0..4_u8).prop_map(|(database, key, member)| Step::Add(database, key, member)),
            2 => (database.clone(), key.clone()).prop_map(|(database, key)| Step::Delete(database, key)),
            2 => (database.clone(), key.clone(), 0..50_u64).prop_map(|(database, key, after)| Step::Expire(database, key, after)),
            1 => proptest::option::of(database.clone()).prop_map(Step::Flush),
            1 => (database.clone(), database.clone()).prop_map(|(one, other)| Step::Swap(one, other)),
            2 => (database, key, proptest::option::of(any::<bool>())).prop_map(|(database, key, back)| Step::Lend(database, key, back)),
            4 => (0..200_usize).prop_map(Step::Save),
        ]
    }

    fn name(key: u8) -> Vec<u8> {
        format!("key:{key}").into_bytes()
    }

    fn perform(keys: &mut Keyspace, step: &Step) {
        match *step {
            Step::Set(database, key, value) => {
                keys.select(database);
                keys.set_string(&name(key), value.to_string().as_bytes(), Expiry::Keep);
            }
            Step::Add(database, key, member) => {
                keys.select(database);
                // Of another type it is refused.
                let _ = keys.change::<Set, bool>(&name(key), |set| Ok(set.add(&[member])));
            }
            Step::Delete(database, key) => {
                keys.select(database);
                keys.delete(&name(key));
            }
            Step::Expire(database, key, after) => {
                keys.select(database);
                keys.expire(&name(key), UnixMillis(keys.now().0 + after));
            }
            Step::Flush(database) => drop(keys.flush(database)),
            Step::Swap(one, other) => drop(keys.swap(one, other)),
            Step::Lend(database, key, back) => {
                let lent = keys.lend(database, &name(key));
                if let (Some(mut entry), Some(is_changed)) = (lent, back) {
                    if is_changed {
                        entry.value = Set::default().into_value();
                    }
                    keys.adopt(database, entry);
                }
            }
            Step::Save(_) => {}
        }
    }

    fn present(keys: &Keyspace) -> Keys {
        let entries = keys.databases().flat_map(|(number, database)| database.iter().map(move |entry| (number, entry)));
        let live = entries.filter(|(_, entry)| !entry.has_expired(keys.now()));
        live.map(|(number, entry)| {
            let at = Some(entry.expires_at()).filter(|at| *at != UnixMillis::NEVER).map(|at| at.0);
            ((number, entry.key.to_vec()), (payload::dump(&entry.value), at))
        })
        .collect()
    }

    /// What a file of these pieces has; each key once.
    fn read(pieces: &[Pieces]) -> Keys {
        let mut writer = FileWriter::new(Cursor::new(Vec::new())).expect("memory");
        pieces.iter().for_each(|pieces| writer.pieces(pieces).expect("memory"));
        let bytes = writer.end().expect("memory").into_inner();
        let mut reader = FileReader::new(&bytes[..]).expect("a file");
        let mut keys = Keys::new();
        while let Some(item) = reader.next_item().expect("a file") {
            let Item::Key(entry) = item else { continue };
            let key = (entry.database as u8, entry.key);
            let before = keys.insert(key.clone(), (entry.payload, entry.expires_at));
            assert!(before.is_none(), "{key:?} is there twice");
        }
        keys
    }

    proptest! {
        #[test]
        fn what_is_saved_is_what_there_was_whatever_changes_meanwhile(
            before in proptest::collection::vec(step(), 0..60),
            meanwhile in proptest::collection::vec(step(), 0..60),
        ) {
            let mut keys = Keyspace::new(Routes::over(1), 1);
            keys.set_now(UnixMillis(1_000));
            before.iter().for_each(|step| perform(&mut keys, step));
            keys.set_now(UnixMillis(1_025));
            let expected = present(&keys);
            keys.begin_save(1);
            let mut pieces = Vec::new();
            for (place, step) in meanwhile.iter().enumerate() {
                keys.set_now(UnixMillis(1_025 + place as u64));
                perform(&mut keys, step);
                keys.expire_due(1);
                if let Step::Save(bytes) = step && keys.is_saving() {
                    pieces.push(keys.save_some(*bytes).pieces);
                }
            }
            while keys.is_saving() {
                pieces.push(keys.save_some(1).pieces);
            }
            prop_assert_eq!(read(&pieces), expected);
        }
    }
}
