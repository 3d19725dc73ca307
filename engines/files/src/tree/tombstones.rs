//! Names that changes took away, which the database may still have.

use std::collections::{HashMap, VecDeque};

use crate::ids::{InodeId, Txid};

/// So many are kept also when the database knows of them: for what was read from it before it did.
const KEPT: usize = 1 << 16;

/// Names, by directory, with the change that took them away last.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    names: HashMap<InodeId, HashMap<Box<[u8]>, Txid>>,
    ages: VecDeque<(Txid, InodeId, Box<[u8]>)>,
}

impl Tombstones {
    /// A change takes a name away.
    pub(super) fn add(&mut self, directory: InodeId, name: &[u8], txid: Txid) {
        self.names.entry(directory).or_default().insert(name.into(), txid);
        self.ages.push_back((txid, directory, name.into()));
    }

    /// Something has a name again.
    pub(super) fn remove(&mut self, directory: InodeId, name: &[u8]) {
        let Some(names) = self.names.get_mut(&directory) else { return };
        names.remove(name);
        if names.is_empty() {
            self.names.remove(&directory);
        }
    }

    /// Whether a name was taken away, and nothing has it.
    pub(super) fn has(&self, directory: InodeId, name: &[u8]) -> bool {
        self.names.get(&directory).is_some_and(|names| names.contains_key(name))
    }

    /// Forgets the oldest of those that the database knows of. The newest change among them.
    pub(super) fn forget(&mut self, flushed: Txid) -> Option<Txid> {
        let mut newest = None;
        while self.ages.len() > KEPT && self.ages.front().is_some_and(|(txid, ..)| *txid <= flushed) {
            let Some((txid, directory, name)) = self.ages.pop_front() else { break };
            newest = Some(txid);
            let Some(names) = self.names.get_mut(&directory) else { continue };
            // One that was taken away again is further behind in the line.
            if names.get(&name) == Some(&txid) {
                names.remove(&name);
                if names.is_empty() {
                    self.names.remove(&directory);
                }
            }
        }
        newest
    }
}
