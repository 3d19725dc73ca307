//! A database in memory: what an SQL database does with the statements of `savanna-files-database`, and refuses.

use std::collections::BTreeMap;

use savanna_files::cache::Beginning;
use savanna_files::change::{Counters, Retry};
use savanna_files::flush::Batch;
use savanna_files::ids::{BlockId, InodeId, Millis, Txid};
use savanna_files::retry::KEPT;
use savanna_files::{Fetched, Key, Stored};

/// Rows of a page.
const PAGE: usize = 3;

/// A process that has a database, or wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) epoch: u64,
    pub(super) process: u64,
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A later owner has it.
    Replaced,
    /// It has less than its owner knows it to have, or more than a batch: all up to this.
    WentBack(Txid),
    /// Two rows would have one key.
    NotUnique(String),
}

/// What the tables have.
#[derive(Clone, Debug, Default)]
struct Tables {
    owner: Owner,
    txid: Txid,
    counters: Counters,
    rows: BTreeMap<InodeId, Stored>,
    names: BTreeMap<(InodeId, Box<[u8]>), InodeId>,
    retries: Vec<(Millis, Txid, Retry)>,
}

/// The database.
#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    tables: Tables,
    /// Nobody reaches it.
    pub(super) is_away: bool,
}

impl Database {
    pub(super) fn txid(&self) -> Txid {
        self.tables.txid
    }

    /// Takes it over, if it is as far as it was found, or farther, but not beyond the log.
    pub(super) fn claim(&mut self, owner: Owner, found: Txid, log: Txid) -> Result<Txid, Refusal> {
        let tables = &mut self.tables;
        if tables.owner.epoch >= owner.epoch {
            return Err(Refusal::Replaced);
        }
        if !(found..=log).contains(&tables.txid) {
            return Err(Refusal::WentBack(tables.txid));
        }
        tables.owner = owner;
        Ok(tables.txid)
    }

    /// A batch of changes, as one transaction.
    pub(super) fn write(&mut self, owner: Owner, base: Txid, batch: &Batch) -> Result<(), Refusal> {
        let mut tables = self.tables.clone();
        tables.mark(owner, base, batch)?;
        tables.write_rows(batch)?;
        self.tables = tables;
        Ok(())
    }

    /// The same, but for the marker, which is a transaction of its own; the second one may not be reached.
    pub(super) fn write_apart(
        &mut self,
        owner: Owner,
        base: Txid,
        batch: &Batch,
        is_reached: bool,
    ) -> Result<(), Refusal> {
        let marked = self.tables.mark(owner, base, batch);
        if is_reached {
            let mut tables = self.tables.clone();
            tables.write_rows(batch)?;
            self.tables = tables;
        }
        marked
    }

    /// Begins anew: what it has counts for nothing.
    pub(super) fn forget(&mut self, owner: Owner, base: Txid, last: Txid) -> Result<(), Refusal> {
        let tables = &mut self.tables;
        tables.check(owner)?;
        if ![Txid(0), base, last].contains(&tables.txid) {
            return Err(Refusal::WentBack(tables.txid));
        }
        *tables = Tables { owner, ..Tables::default() };
        Ok(())
    }

    pub(super) fn fetch(&self, owner: Owner, keys: &[Key]) -> Result<Vec<Fetched>, Refusal> {
        self.tables.check(owner)?;
        Ok(keys.iter().map(|key| self.tables.fetch(key)).collect())
    }

    pub(super) fn beginning(&self, now: Millis) -> Beginning {
        let tables = &self.tables;
        let is_written = |stored: &&Stored| stored.row.file().is_some_and(|file| file.writer.is_some());
        let written = tables.rows.values().filter(is_written);
        let written = written.flat_map(|stored| tables.with_directories(stored.row.id));
        let mut rows: Vec<Stored> = written.chain(tables.rows.get(&InodeId::ROOT).cloned()).collect();
        rows.sort_by_key(|stored| stored.row.id);
        rows.dedup();
        let kept = |(at, ..): &&(Millis, Txid, Retry)| at.0 >= now.0.saturating_sub(KEPT);
        let retries = tables.retries.iter().filter(kept).copied().collect();
        Beginning { txid: tables.txid, counters: tables.counters, rows, retries }
    }

    /// All blocks that files have.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        let files = self.rows().filter_map(|stored| stored.row.file());
        files.flat_map(|file| file.blocks.iter().map(|block| block.id))
    }

    /// All rows, with the numbers of their directories and their names.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Stored> {
        self.tables.rows.values()
    }
}

impl Tables {
    fn check(&self, owner: Owner) -> Result<(), Refusal> {
        if self.owner.process == owner.process { Ok(()) } else { Err(Refusal::Replaced) }
    }

    /// Sets the marker, if it is who owns the database, and that is as far as its owner knows, or farther, but not beyond the batch.
    fn mark(&mut self, owner: Owner, base: Txid, batch: &Batch) -> Result<(), Refusal> {
        self.check(owner)?;
        if !(base..=batch.txid).contains(&self.txid) {
            return Err(Refusal::WentBack(self.txid));
        }
        (self.txid, self.counters) = (batch.txid, batch.counters);
        Ok(())
    }

    /// Deletes what is to go first, then writes rows by their numbers, each with a key of its own.
    fn write_rows(&mut self, batch: &Batch) -> Result<(), Refusal> {
        for id in &batch.removed {
            self.remove(*id);
        }
        for stored in &batch.rows {
            let row = &stored.row;
            self.remove(row.id);
            if let Some(other) = self.names.insert((row.parent, row.name.clone()), row.id) {
                let name = String::from_utf8_lossy(&row.name);
                let words = format!("{} and {other} are both {name:?} in {}", row.id, row.parent);
                return Err(Refusal::NotUnique(words));
            }
            self.rows.insert(row.id, stored.clone());
        }
        for (at, txid, retry) in &batch.retries {
            if !self.retries.iter().any(|(.., other)| other.call == retry.call) {
                self.retries.push((*at, *txid, *retry));
            }
        }
        self.retries.sort_by_key(|(_, txid, _)| *txid);
        self.retries.retain(|(at, ..)| at.0 >= batch.at.0.saturating_sub(KEPT));
        Ok(())
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

    fn fetch(&self, key: &Key) -> Fetched {
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
                let in_it = in_it.take_while(|((parent, _), _)| parent == directory);
                let mut rows: Vec<Stored> = in_it.filter_map(|(_, id)| self.rows.get(id).cloned()).collect();
                is_end = rows.len() < PAGE;
                rows.truncate(PAGE);
                rows
            }
        };
        Fetched { key: key.clone(), txid: self.txid, rows, is_end }
    }
}
