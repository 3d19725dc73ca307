//! Keys that are lent to a group of keys at several nodes, and those that such a group has here while its program runs.

use hashbrown::{HashMap, HashSet};
use savanna_lattice::Hlc;

use super::adoption::Adopted;
use super::content::value_of;
use super::leaving::written;
use super::rewrite::header_of;
use super::{DATABASES, Entry, Keyspace, log_whole};
use crate::delta::{Body, DeltaLog, Header, Malformed, read_all};
use crate::error::{CommandError, Outcome};
use crate::group::{Commit, GroupId, Lend, Records, Unit};

/// About how many bytes a delta about a group takes beside what it names.
const DELTA_BYTES: usize = 128;

/// Keys of other nodes that are here while a program runs.
#[derive(Debug)]
pub(crate) struct Guests {
    /// The keys.
    keys: HashSet<Box<[u8]>>,
    /// The versions with which they came.
    versions: HashMap<(u8, Box<[u8]>), Hlc>,
    /// What was here under their names: it may come to be served, and is nobody's until then.
    aside: Vec<Adopted>,
    /// Where what the program changes begins in the log.
    mark: usize,
    /// How many keys had got something before.
    arrivals: usize,
}

impl Keyspace {
    /// The values of keys as they are, in all databases, as deltas.
    pub(crate) fn values_of(&self, keys: &[Box<[u8]>]) -> Vec<u8> {
        let mut values = Vec::new();
        for (key, database) in keys.iter().flat_map(|key| (0..DATABASES).map(move |database| (key, database))) {
            if let Some(entry) = self.peek_in(database, key) {
                values.extend_from_slice(&written(database, entry));
            }
        }
        values
    }

    /// About how many bytes the values of keys take, in all databases.
    pub(crate) fn bytes_of_values(&self, keys: &[Box<[u8]>]) -> usize {
        let each = keys.iter().flat_map(|key| (0..DATABASES).filter_map(move |database| self.peek_in(database, key)));
        each.map(Entry::whole_bytes).sum()
    }

    /// Whether keys have one replica each; those with several are told to have one.
    pub(crate) fn gather_for_group(&mut self, keys: &[Box<[u8]>]) -> bool {
        if self.replicas.is_empty() {
            return true;
        }
        let before = self.selected;
        let mut are_gathered = true;
        for (key, database) in keys.iter().flat_map(|key| (0..DATABASES).map(move |database| (key, database))) {
            if self.replicas.get(database, key).is_some() {
                are_gathered = false;
                self.select(database);
                // Where the log has no space for it, it is tried again.
                let _ = self.replicate(key, 1);
            }
        }
        self.selected = before;
        are_gathered
    }

    /// Says in the log that keys are lent to a group. Gives the number of the loan.
    ///
    /// # Errors
    /// If the log has no space for it.
    pub(crate) fn lend_to_group(&mut self, unit: Unit, keys: Vec<Box<[u8]>>) -> Result<Hlc, CommandError> {
        let bytes: usize = keys.iter().map(|key| key.len() + size_of::<u32>()).sum();
        self.ask_for_log(DELTA_BYTES + bytes)?;
        self.translate_changes();
        let lend = Lend { number: self.next_version(), keys };
        self.log.lent(unit.0, &lend);
        self.log.note_seen();
        let number = lend.number;
        self.groups.lends.insert(unit, lend);
        Ok(number)
    }

    /// Writes what a group has written of keys that were lent to it, which are free then.
    ///
    /// # Errors
    /// [`Malformed`] if it is none; nothing is written then, and the keys are the group's.
    pub(crate) fn take_return(&mut self, unit: Unit, writes: &[u8]) -> Result<Lend, Malformed> {
        let Some(lend) = self.groups.lends.get(&unit) else { return Err(Malformed::new("the return of no loan")) };
        let is_lent = |key: &[u8]| lend.keys.iter().any(|lent| **lent == *key);
        // All of it is read before any is done.
        let mut values = Vec::new();
        read_all(writes, &mut |Header { database, key, .. }, body| {
            if database >= DATABASES || !is_lent(key) {
                return Err(Malformed::new("a key that was not lent"));
            }
            values.push((
                database,
                Box::<[u8]>::from(key),
                match body {
                    Body::Whole { tag, expires_at, content, .. } => Some((value_of(tag, content)?, expires_at)),
                    Body::Delete => None,
                    _ => return Err(Malformed::new("a change that is no whole value")),
                },
            ));
            Ok(())
        })?;
        let before = self.selected;
        for (database, key, value) in values {
            self.select(database);
            match value {
                Some((value, expires_at)) => self.put(&key, value, expires_at),
                None => drop(self.delete(&key)),
            }
        }
        self.selected = before;
        self.translate_changes();
        let version = self.next_version();
        let lend = self.groups.lends.remove(&unit).ok_or_else(|| Malformed::new("the return of no loan"))?;
        if let Some(first) = lend.keys.first() {
            self.log.returned(first, version, unit.0);
        }
        self.log.note_seen();
        Ok(lend)
    }

    /// Takes keys of other nodes in, as far as their values are there, for a program that runs now.
    ///
    /// # Errors
    /// [`Malformed`] if they are none; then nothing is here.
    pub(crate) fn welcome(&mut self, keys: HashSet<Box<[u8]>>, values: &[&[u8]]) -> Result<Guests, Malformed> {
        let mut entries: Vec<Adopted> = Vec::new();
        for values in values {
            read_all(values, &mut |header, body| {
                let Body::Whole { tag, expires_at, content, .. } = body else {
                    return Err(Malformed::new("a lent value that is not whole"));
                };
                if header.database >= DATABASES || !keys.contains(header.key) {
                    return Err(Malformed::new("a key that was not asked for"));
                }
                let mut entry = Box::new(Entry::new(header.key, value_of(tag, content)?, header.version));
                entry.expire_at(expires_at);
                entries.push((header.database, entry));
                Ok(())
            })?;
        }
        // What ran before is of this actor's own keys.
        self.translate_changes();
        let aside = keys.iter().flat_map(|key| (0..DATABASES).map(move |database| (database, key)));
        let aside: Vec<(u8, Box<[u8]>)> = aside.map(|(database, key)| (database, key.clone())).collect();
        let aside =
            aside.into_iter().filter_map(|(database, key)| Some((database, self.lend(database, &key)?))).collect();
        let mut versions = HashMap::new();
        for (database, entry) in entries {
            versions.insert((database, Box::from(&*entry.key)), entry.version);
            self.adopt(database, entry);
        }
        self.has_borrowed = true;
        Ok(Guests { keys, versions, aside, mark: self.log.bytes().len(), arrivals: self.ready.len() })
    }

    /// Takes them out again. Gives what the program wrote of each that it changed, as a delta; the log has nothing of that.
    pub(crate) fn see_off(&mut self, guests: Guests) -> Vec<(Box<[u8]>, Vec<u8>)> {
        let Guests { keys, versions, aside, mark, arrivals } = guests;
        self.has_borrowed = false;
        self.log.retain_from(mark, |header| !keys.contains(header.key));
        let arrived = self.ready.split_off(arrivals);
        let is_own = |key: &[u8]| !keys.contains(key);
        let is_awaited = self.is_awaited;
        self.ready.extend(arrived.into_iter().filter(|arrival| is_awaited && is_own(&arrival.key)));
        let mut changed = Vec::new();
        for (key, database) in keys.iter().flat_map(|key| (0..DATABASES).map(move |database| (key, database))) {
            let (before, after) = (versions.get(&(database, key.clone())), self.lend(database, key));
            if before.copied() == after.as_ref().map(|entry| entry.version) {
                continue;
            }
            let mut log = DeltaLog::new();
            log.enable(true);
            match &after {
                Some(entry) => log_whole(&mut log, header_of(database, entry), entry),
                None => {
                    let base = before.copied().unwrap_or_default();
                    log.delete(Header { database, key, base, version: self.latest_version() });
                }
            }
            changed.push((key.clone(), log.bytes().to_vec()));
        }
        for (database, entry) in aside {
            self.adopt(database, entry);
        }
        self.translate_changes();
        changed
    }

    /// Asks for space in the log for a commit about so many bytes of values.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_commit(&mut self, bytes: usize, owed: usize) -> Outcome {
        self.ask_for_log((owed + 1) * DELTA_BYTES + bytes)
    }

    /// Says in the log, with what was changed before, that a group is committed.
    pub(crate) fn log_commit(&mut self, group: GroupId, commit: Commit) {
        let version = self.next_version();
        self.log.committed(version, group, &commit);
        self.log.note_seen();
        self.groups.commits.insert(group, commit);
    }

    /// All that a group owes is written. It need not be in the log: whoever is told again has forgotten the loan.
    pub(crate) fn end_commit(&mut self, group: GroupId) {
        self.translate_changes();
        if let Some(commit) = self.groups.commits.remove(&group) {
            let version = self.next_version();
            self.log.ended(&commit.key, version, group);
            self.log.note_seen();
        }
    }

    /// Takes in what a log that has ended says of groups, and writes it into this one.
    ///
    /// # Errors
    /// If the log has no space.
    pub(crate) fn inherit_groups(&mut self, groups: Records) -> Outcome {
        self.translate_changes();
        self.write_groups(&groups)?;
        self.groups.add(groups);
        Ok(())
    }

    /// Writes what matters of groups into the log once more.
    ///
    /// # Errors
    /// If the log has no space.
    pub(crate) fn rewrite_groups(&mut self) -> Outcome {
        let groups = std::mem::take(&mut self.groups);
        let written = self.write_groups(&groups);
        self.groups = groups;
        written
    }

    fn write_groups(&mut self, groups: &Records) -> Outcome {
        let lent: usize = groups.lent_keys().map(|key| key.len() + DELTA_BYTES).sum();
        let owed = groups.commits.values().flat_map(|commit| &commit.owed);
        let owed: usize = owed.map(|owed| owed.writes.len() + DELTA_BYTES).sum();
        if groups.is_empty() {
            return Ok(());
        }
        self.ask_for_log(lent + owed + groups.commits.len() * DELTA_BYTES)?;
        for ((group, _), lend) in &groups.lends {
            self.log.lent(*group, lend);
        }
        for (group, commit) in &groups.commits {
            let version = self.next_version();
            self.log.committed(version, *group, commit);
        }
        self.log.note_request();
        self.log.note_seen();
        Ok(())
    }
}
