//! Whole databases: emptied, and swapped with each other.

use std::ops::Range;

use savanna_lattice::Hlc;

use super::replica::Replicas;
use super::{DATABASES, DELETION_CLASSES, Database, Keyspace, LIBRARIES, TABLES, Tables, rewrite};
use crate::delta::Header;
use crate::error::Outcome;

/// Which databases' tables there are to be seen, by number; `None` where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View(pub(crate) [Option<u8>; DATABASES as usize]);

impl Default for View {
    fn default() -> Self {
        Self(std::array::from_fn(|number| Some(number as u8)))
    }
}

impl Keyspace {
    /// Shows databases as they are going to be, to whoever only looks. Gives what is not to be seen, for
    /// [`Keyspace::arrange_back`].
    pub(crate) fn rearrange(&mut self, view: &View) -> Tables {
        let mut tables = std::mem::replace(&mut self.databases, [const { None }; TABLES as usize]);
        let libraries = usize::from(LIBRARIES);
        self.databases[libraries] = tables[libraries].take();
        for (place, number) in view.0.iter().enumerate() {
            self.databases[place] = number.and_then(|number| tables[usize::from(number)].take());
        }
        tables
    }

    /// Ends what [`Keyspace::rearrange`] began, with the same view.
    pub(crate) fn arrange_back(&mut self, view: &View, mut tables: Tables) {
        for (place, number) in view.0.iter().enumerate() {
            if let Some(number) = number {
                tables[usize::from(*number)] = self.databases[place].take();
            }
        }
        tables[usize::from(LIBRARIES)] = self.databases[usize::from(LIBRARIES)].take();
        self.databases = tables;
    }

    /// Empties a database, or all, at all actors if the others hear of it: what is in the log before is gone with it. Gives the
    /// version of that, and what was here, so that it can be dropped elsewhere.
    pub fn flush(&mut self, database: Option<u8>) -> (Hlc, Vec<Box<Database>>) {
        // They are told of what was before in its order.
        self.translate_changes();
        let version = self.next_version();
        let header = Header { database: database.unwrap_or_default(), key: b"", base: Hlc::ZERO, version };
        self.log.write_all(|log| log.flush(header, database.is_none()));
        self.log.note_seen();
        (version, self.hear_flush(database, version))
    }

    /// Hears that a database is emptied, or all. Gives what was here.
    pub fn hear_flush(&mut self, database: Option<u8>, version: Hlc) -> Vec<Box<Database>> {
        self.translate_changes();
        let flushed = self.empty(database, version);
        for (number, key) in self.replicas.keys() {
            if numbers(database).contains(&number) {
                self.end_replica(number, &key);
            }
        }
        // Before keys come back from a transaction that has written them anew.
        self.translate_changes();
        flushed
    }

    #[expect(clippy::vec_box, reason = "they are in boxes where they come from")]
    fn empty(&mut self, database: Option<u8>, version: Hlc) -> Vec<Box<Database>> {
        self.observe(version);
        // Also where there is nothing: who keeps copies may have one of a key that is not there.
        self.log.write_all(|_| ());
        let mut flushed = Vec::new();
        for number in numbers(database) {
            let Some(database) = self.databases[usize::from(number)].take() else { continue };
            // Some thousand keys have all classes: of millions, most are not looked at.
            let mut others = self.deleted.iter().filter(|deleted| **deleted != version).count();
            for entry in database.iter() {
                if others == 0 {
                    break;
                }
                let class = self.spot_of(&entry.key).class(DELETION_CLASSES);
                let deleted = &mut self.deleted[class];
                others -= usize::from(*deleted != version);
                *deleted = version;
            }
            self.counters.changes += database.key_count() as u64;
            flushed.extend(self.keep_flushed(number, database));
        }
        flushed
    }

    /// Reads back that a database was emptied, or all.
    pub(super) fn replay_flush(&mut self, database: Option<u8>, version: Hlc) {
        for number in numbers(database) {
            self.end_lives(number, version);
        }
        self.empty(database, version);
    }

    /// Forgets all keys and libraries as if they had never been. The log hears nothing of it.
    pub(crate) fn forget_all(&mut self) {
        self.databases = [const { None }; TABLES as usize];
        self.replicas = Replicas::new(self.routes.clone());
    }

    /// Asks for space in the log for emptying a database, or all.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_flush(&mut self, database: Option<u8>) -> Outcome {
        /// Of a delta, beside the key.
        const DELTA_BYTES: usize = 32;
        let is_meant = |number| database.is_none_or(|database| database == number);
        let replicated = self.replicas.iter().filter(|(number, ..)| is_meant(*number));
        let bytes = replicated.map(|(_, key, _)| key.len() + DELTA_BYTES).sum::<usize>() + DELTA_BYTES;
        self.ask_for_log(bytes)
    }

    /// Swaps two databases, at all actors if the others hear of it: what is in the log before is about the keys before. Gives
    /// the version of the swap.
    pub fn swap(&mut self, one: u8, other: u8) -> Hlc {
        let version = self.next_version();
        self.log.write_all(|log| log.swap(Header { database: one, key: b"", base: Hlc::ZERO, version }, other));
        self.log.note_seen();
        self.counters.changes += 1;
        self.hear_swap(one, other, version);
        version
    }

    /// Hears that two databases are swapped.
    pub fn hear_swap(&mut self, one: u8, other: u8, version: Hlc) {
        self.observe(version);
        self.log.write_all(|_| ());
        self.keep_swapped(one, other);
        self.databases.swap(usize::from(one), usize::from(other));
        for database in [one, other] {
            self.swapped[usize::from(database)] = version;
        }
        // What was written before is in the log by its former number.
        if self.is_rewriting() {
            self.rewriting = Some(rewrite::Place::default());
        }
    }

    /// When a database was swapped the last time.
    #[must_use]
    pub fn swapped_at(&self, database: u8) -> Hlc {
        self.swapped[usize::from(database)]
    }
}

/// The number of a database, or those of all.
fn numbers(database: Option<u8>) -> Range<u8> {
    database.map_or(0..DATABASES, |number| number..number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::strings;
    use crate::placement::Routes;
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    #[test]
    fn a_flush_deletes_each_key_and_no_other() {
        for count in [3_usize, 20_000] {
            let mut keys = Keyspace::new(Routes::over(1), 1);
            let names: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
            for name in &names {
                let args = OwnedArgs::of_words(&[b"SET", name.as_bytes(), b"x"]);
                strings::set(&mut keys, args.args(), &mut Tape::new()).expect("a string");
            }
            let (version, _) = keys.flush(Some(0));
            let class = |name: &String| keys.spot_of(name.as_bytes()).class(DELETION_CLASSES);
            assert!(names.iter().all(|name| keys.deleted[class(name)] == version));
            let deleted = keys.deleted.iter().filter(|deleted| **deleted == version).count();
            assert_eq!(deleted, count.min(DELETION_CLASSES));
        }
    }
}
