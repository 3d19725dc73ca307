//! Keys of a virtual node that goes to another node, or comes from there.

use std::sync::Arc;

use savanna_lattice::Hlc;
use savanna_ownership::KeyGroup;

use super::adoption::Adopted;
use super::rewrite::header_of;
use super::{DATABASES, DELETION_CLASSES, Entry, Keyspace, log_whole};
use crate::cluster::departure::Departure;
use crate::cluster::owners::{GROUPS, virtual_node_of};
use crate::delta::DeltaLog;
use crate::error::Outcome;
use crate::placement::group_of;

/// The key groups of a virtual node.
fn groups_of(node: u16) -> impl Iterator<Item = KeyGroup> {
    (node * GROUPS..(node + 1) * GROUPS).filter_map(|group| KeyGroup::new(group).ok())
}

/// What is to be written of a virtual node's keys: from this database on, and there from this of its key groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unwritten {
    database: u8,
    group: u16,
}

impl Keyspace {
    /// Notes what is appended from now on about the keys of a virtual node.
    pub(crate) fn begin_noting(&mut self, departure: &Arc<Departure>) {
        self.end_noting(departure.node());
        self.departures.push(Arc::clone(departure));
    }

    /// Ends what [`Keyspace::begin_noting`] began.
    pub(crate) fn end_noting(&mut self, node: u16) {
        self.departures.retain(|departure| departure.node() != node);
    }

    /// The departure of a key's virtual node, if that leaves.
    pub(super) fn departure_of(&self, key: &[u8]) -> Option<&Arc<Departure>> {
        let node = (!self.departures.is_empty()).then(|| virtual_node_of(group_of(key)))?;
        self.departures.iter().find(|departure| departure.node() == node)
    }

    /// Whether a key is on its way to another node: nothing begins with it that has to be undone before.
    pub(crate) fn is_departing(&self, key: &[u8]) -> bool {
        self.departure_of(key).is_some()
    }

    /// What is to be appended is noted for those virtual nodes that leave.
    pub(crate) fn note_departures(&self) {
        self.departures.iter().for_each(|departure| departure.note(self.log.bytes()));
    }

    /// A key that was lent is back: whoever wrote down its virtual node has not seen it.
    pub(super) fn note_back(&self, database: u8, entry: &Entry) {
        if let Some(departure) = self.departure_of(&entry.key) {
            departure.push(&written(database, entry));
        }
    }

    /// Writes keys of a virtual node for another node, up to about `bytes`, at least those of one key group. Gives what is left.
    pub(crate) fn write_departing(
        &self,
        departure: &Departure,
        mut left: Unwritten,
        bytes: usize,
    ) -> Option<Unwritten> {
        let mut count = 0;
        while left.database < DATABASES {
            let database = self.databases[usize::from(left.database)].as_ref();
            if let (Some(database), Some(group)) = (database, groups_of(departure.node()).nth(usize::from(left.group)))
            {
                for entry in database.group(group) {
                    // Those with replicas go when they have none any more.
                    if self.replicas.get(left.database, &entry.key).is_none() {
                        let delta = written(left.database, entry);
                        count += delta.len();
                        departure.push(&delta);
                    }
                }
                left.group += 1;
            } else {
                left = Unwritten { database: left.database + 1, group: 0 };
            }
            if count >= bytes {
                return Some(left);
            }
        }
        None
    }

    /// Has the keys of a virtual node that have replicas have one, as any other key. Says whether that is so.
    pub(crate) fn gather_departing(&mut self, node: u16) -> bool {
        if self.replicas.is_empty() {
            return true;
        }
        let mut replicated = self.replicas.keys();
        replicated.retain(|(_, key)| virtual_node_of(group_of(key)) == node);
        let is_done = replicated.is_empty();
        replicated.retain(|(_, key)| self.replicas.is_first(key));
        let before = self.selected;
        for (database, key) in replicated {
            self.select(database);
            // Where the log has no space for it, it is tried again.
            let _ = self.replicate(&key, 1);
        }
        self.selected = before;
        is_done
    }

    /// The keys of a virtual node are in another node's log, and are that node's. Those who watch one of them find that it has changed.
    pub(crate) fn give_away(&mut self, node: u16) {
        self.translate_changes();
        let version = self.next_version();
        self.log.write_all(|log| log.forget(version, node));
        self.log.note_seen();
        self.let_go(node);
        // Also those that are not there: they may come to be at the other node.
        self.deleted = vec![version; DELETION_CLASSES].into();
    }

    /// Whether any key of a virtual node is here.
    pub(crate) fn has_any_of(&self, node: u16) -> bool {
        self.databases[..usize::from(DATABASES)]
            .iter()
            .flatten()
            .any(|database| groups_of(node).any(|group| database.group(group).len() > 0))
    }

    /// Forgets the keys of a virtual node, that they have replicas, and what is lent of them.
    pub(crate) fn let_go(&mut self, node: u16) {
        drop(self.groups.take(|other| other == node));
        for (database, key) in self.replicas.keys() {
            if virtual_node_of(group_of(&key)) == node {
                self.replicas.forget(database, &key);
            }
        }
        for number in 0..DATABASES {
            for group in groups_of(node) {
                let Some(database) = &self.databases[usize::from(number)] else { break };
                let keys: Vec<Box<[u8]>> = database.group(group).map(|entry| Box::from(&*entry.key)).collect();
                for key in keys {
                    self.lend(number, &key);
                }
            }
        }
    }

    /// Writes keys into the log that come from another node, behind the end of what it has of them, if these are the first. They are not
    /// here yet.
    ///
    /// # Errors
    /// If the log has no space for one of them.
    pub(crate) fn log_arriving(&mut self, node: u16, is_first: bool, arriving: &[Adopted], latest: Hlc) -> Outcome {
        self.observe(latest);
        self.translate_changes();
        if is_first {
            self.forget_arriving(node)?;
        }
        for (database, entry) in arriving {
            self.log_space.ask(self.log.bytes().len() + entry.whole_bytes())?;
            log_whole(&mut self.log, header_of(*database, entry), entry);
            self.log.note_request();
            self.log.note_seen();
        }
        Ok(())
    }

    /// Says in the log that what it has of a virtual node is void.
    ///
    /// # Errors
    /// If the log has no space.
    pub(crate) fn forget_arriving(&mut self, node: u16) -> Outcome {
        /// Of a delta without a key.
        const DELTA_BYTES: usize = 64;
        self.log_space.ask(self.log.bytes().len() + DELTA_BYTES)?;
        let version = self.next_version();
        self.log.forget(version, node);
        self.log.note_seen();
        Ok(())
    }
}

/// A key as it is.
pub(super) fn written(database: u8, entry: &Entry) -> Vec<u8> {
    let mut log = DeltaLog::new();
    log.enable(true);
    log_whole(&mut log, header_of(database, entry), entry);
    log.bytes().to_vec()
}
