//! Keys of a node that is gone, on their way out of its log to the actors of another one.

use savanna_lattice::Hlc;
use savanna_ownership::KeyGroup;

use super::rewrite::header_of;
use super::{DATABASES, Entry, Keyspace, log_whole};
use crate::error::Outcome;
use crate::placement::group_of;

/// A key with its database.
pub type Adopted = (u8, Box<Entry>);

impl Keyspace {
    /// Takes keys in that are another node's no more, and writes them into the log as they are. What is changed from now on is later than
    /// `latest`.
    ///
    /// # Errors
    /// If the log has no space for one of them. Those before it are there; to take them in once more changes nothing.
    pub(crate) fn take_in(&mut self, adopted: Vec<Adopted>, latest: Hlc) -> Outcome {
        self.observe(latest);
        self.translate_changes();
        for (database, entry) in adopted {
            self.log_space.ask(self.log.bytes().len() + entry.whole_bytes())?;
            log_whole(&mut self.log, header_of(database, &entry), &entry);
            self.log.note_request();
            // No replica has heard of it, nor has to.
            self.log.note_seen();
            self.adopt(database, entry);
        }
        Ok(())
    }

    /// Takes all keys out.
    pub(crate) fn take_out(&mut self) -> Vec<Adopted> {
        let mut taken = Vec::new();
        for number in 0..DATABASES {
            let keys: Vec<Box<[u8]>> = match &self.databases[usize::from(number)] {
                Some(database) => database.iter().map(|entry| Box::from(&*entry.key)).collect(),
                None => continue,
            };
            taken.extend(keys.iter().filter_map(|key| Some((number, self.lend(number, key)?))));
        }
        taken
    }
}

/// The key group of an adopted key.
#[must_use]
pub fn group_of_adopted((_, entry): &Adopted) -> KeyGroup {
    group_of(&entry.key)
}
