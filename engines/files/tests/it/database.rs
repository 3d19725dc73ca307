//! A database in memory: what an SQL database does with a batch and with keys, and refuses.

use std::collections::BTreeMap;

use savanna_files::Key;
use savanna_files::cache::{Beginning, Fetched, Stored};
use savanna_files::change::{Counters, Kind, Retry};
use savanna_files::flush::Batch;
use savanna_files::ids::{InodeId, Millis, Txid};
use savanna_files::operation::{Below, Rights};

/// Rows of a page.
const PAGE: usize = 3;

#[derive(Clone, Default)]
pub(crate) struct Database {
    pub(crate) txid: Txid,
    counters: Counters,
    rows: BTreeMap<InodeId, Stored>,
    names: BTreeMap<(InodeId, Box<[u8]>), InodeId>,
    retries: Vec<(Millis, Txid, Retry)>,
}

impl Database {
    pub(crate) fn write(&mut self, batch: &Batch) {
        (self.txid, self.counters) = (batch.txid, batch.counters);
        for id in &batch.removed {
            self.remove(*id);
        }
        for stored in &batch.rows {
            let row = &stored.row;
            self.remove(row.id);
            let other = self.names.insert((row.parent, row.name.clone()), row.id);
            assert_eq!(other, None, "unique (parent, name)");
            self.rows.insert(row.id, stored.clone());
        }
        self.retries.extend(&batch.retries);
    }

    fn remove(&mut self, id: InodeId) {
        if let Some(Stored { row, .. }) = self.rows.remove(&id) {
            self.names.remove(&(row.parent, row.name));
        }
    }

    fn child(&self, directory: InodeId, name: &[u8]) -> Option<&Stored> {
        self.rows.get(self.names.get(&(directory, name.into()))?)
    }

    fn with_directories(&self, id: InodeId) -> impl Iterator<Item = Stored> {
        std::iter::successors(self.rows.get(&id), |stored| self.rows.get(&stored.row.parent)).cloned()
    }

    pub(crate) fn fetch(&self, key: &Key) -> Fetched {
        let mut is_end = false;
        let rows = match key {
            Key::Path(directory, names) => {
                let (mut rows, mut at) = (Vec::new(), *directory);
                for name in names {
                    let Some(stored) = self.child(at, name) else { break };
                    at = stored.row.id;
                    rows.push(stored.clone());
                }
                rows
            }
            Key::Id(id) | Key::Emptying(id) | Key::Usage(id) => self.with_directories(*id).collect(),
            Key::Children(directory, after) => {
                let in_it = self.names.range((*directory, after.clone())..).filter(|((_, name), _)| name != after);
                let mut rows: Vec<Stored> = in_it
                    .take_while(|((parent, _), _)| parent == directory)
                    .map(|(_, id)| self.rows[id].clone())
                    .collect();
                is_end = rows.len() <= PAGE;
                rows.truncate(PAGE);
                rows
            }
        };
        Fetched { key: key.clone(), txid: self.txid, rows, is_end }
    }

    /// Who may take away what is in a subtree.
    pub(crate) fn inside(&self, root: InodeId) -> Vec<Below> {
        let rights = |Stored { row, children, .. }: &Stored| {
            let acl = row.more.as_ref().map(|more| more.acl.clone()).unwrap_or_default();
            let rights = Rights { owner: row.owner.to_string(), group: row.group.to_string(), mode: row.mode, acl };
            (*children > 0).then_some(rights)
        };
        let mut inside = Vec::new();
        let mut open: Vec<&Stored> = self.rows.get(&root).into_iter().collect();
        while let Some(directory) = open.pop() {
            inside.push(Below { rights: rights(directory), sticky: None });
            for child in self.rows.values().filter(|child| child.row.parent == directory.row.id) {
                let sticky = (directory.row.mode & 0o1000 != 0)
                    .then(|| [&directory.row, &child.row].map(|row| row.owner.to_string()));
                inside.push(Below { rights: None, sticky });
                open.push(child);
            }
        }
        inside
    }

    pub(crate) fn beginning(&self) -> Beginning {
        let is_written = |stored: &&Stored| matches!(&stored.row.kind, Kind::File(file) if file.writer.is_some());
        let written = self.rows.values().filter(is_written).flat_map(|stored| self.with_directories(stored.row.id));
        let mut rows: Vec<Stored> = written.chain(self.rows.get(&InodeId::ROOT).cloned()).collect();
        rows.sort_by_key(|stored| stored.row.id);
        rows.dedup();
        Beginning { txid: self.txid, counters: self.counters, rows, retries: self.retries.clone() }
    }

    /// All rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Stored> {
        self.rows.values()
    }
}
