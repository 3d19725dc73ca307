//! What goes to the database: changes that the log has and the database does not, a batch at a time, in their order.
//!
//! A batch is what the database lacks up to a change, each row as of that change, so that after each batch the database is what the namespace was at
//! one instant. A row that a change gave another name is deleted first: something else may have its old name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cache::Stored;
use crate::change::{Change, Counters, Retry, Row};
use crate::ids::{BlockId, InodeId, Millis, Txid};
use crate::namespace::{Applied, Namespace};

/// A batch for the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The change up to which the database has all then.
    pub txid: Txid,
    /// The instant of that change.
    pub at: Millis,
    /// The numbers that were given last.
    pub counters: Counters,
    /// Rows that are deleted first: of what went, and of what has another name.
    pub removed: Vec<InodeId>,
    /// Rows that are written then, by their numbers.
    pub rows: Vec<Stored>,
    /// Answers to calls that may come again, with their instants and changes.
    pub retries: Vec<(Millis, Txid, Retry)>,
}

impl Batch {
    /// Of changes that follow each other; none of none.
    #[must_use]
    pub fn of<P>(changes: &[Arc<Flushable<P>>]) -> Option<Self> {
        let (mut rows, mut removed) = (BTreeMap::new(), BTreeSet::new());
        let mut batch = Self::default();
        for Flushable { change, applied, .. } in changes.iter().map(|flushable| &**flushable) {
            for id in &change.gone {
                rows.remove(id);
                removed.insert(*id);
            }
            removed.extend(&applied.moved);
            for (row, children) in change.rows.iter().zip(&applied.children) {
                rows.insert(row.id, (row, *children, change.txid));
            }
            batch.retries.extend(change.retry.map(|retry| (change.at, change.txid, retry)));
        }
        let last = &changes.last()?.change;
        (batch.txid, batch.at, batch.counters) = (last.txid, last.at, last.counters);
        batch.removed = removed.into_iter().collect();
        let stored = |(row, children, txid): (&Row, usize, Txid)| Stored { row: row.clone(), children, txid };
        batch.rows = rows.into_values().map(stored).collect();
        Some(batch)
    }

    /// Blocks of the rows, with their files.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, InodeId)> {
        self.rows.iter().flat_map(|stored| {
            let blocks = stored.row.file().map_or(&[][..], |file| &file.blocks);
            blocks.iter().map(|block| (block.id, stored.row.id))
        })
    }
}

impl Namespace {
    /// All that there is, for a database that has nothing: batches of so many rows, or so many answers, and a last one with the marker.
    pub fn batches(&self, rows_max: usize) -> (impl Iterator<Item = Batch>, Batch) {
        let last = Batch {
            txid: self.txid(),
            at: self.kept_answers().map(|(at, ..)| at).max().unwrap_or_default(),
            counters: self.counters(),
            ..Batch::default()
        };
        let mut rows = self.tree().rows().filter(|row| row.id != InodeId::DOOMED).filter_map(|row| {
            let inode = self.tree().get(row.id)?;
            Some(Stored { row, children: inode.child_count(), txid: inode.txid })
        });
        let parts = std::iter::from_fn(move || {
            let rows: Vec<Stored> = rows.by_ref().take(rows_max).collect();
            (!rows.is_empty()).then(|| Batch { rows, ..Batch::default() })
        });
        let mut answers = self.kept_answers();
        let answers = std::iter::from_fn(move || {
            let retries: Vec<_> = answers.by_ref().take(rows_max).collect();
            (!retries.is_empty()).then(|| Batch { retries, ..Batch::default() })
        });
        (parts.chain(answers), last)
    }
}

/// A change, what it did beside its rows, and where it is in the log.
#[derive(Debug)]
pub struct Flushable<P> {
    change: Change,
    applied: Applied,
    position: P,
}

/// Changes that the database does not have.
#[derive(Debug)]
pub struct Unflushed<P> {
    changes: VecDeque<Arc<Flushable<P>>>,
    /// Rows and numbers of them.
    rows: usize,
}

impl<P> Default for Unflushed<P> {
    fn default() -> Self {
        Self { changes: VecDeque::new(), rows: 0 }
    }
}

impl<P: Copy> Unflushed<P> {
    /// A change was applied.
    pub fn add(&mut self, change: Change, applied: Applied, position: P) {
        self.rows += weight(&change);
        self.changes.push_back(Arc::new(Flushable { change, applied, position }));
    }

    /// How many rows there are; of one that changes often, each time.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// The changes of the next batch, of about so many rows, as far as the log has them.
    pub fn next(&self, rows_max: usize, is_durable: impl Fn(P) -> bool) -> Vec<Arc<Flushable<P>>> {
        let mut rows = 0;
        let next = self.changes.iter().take_while(|flushable| {
            let is_next = rows < rows_max && is_durable(flushable.position);
            rows += weight(&flushable.change);
            is_next
        });
        next.cloned().collect()
    }

    /// The database has all changes up to one. Where the newest of them is in the log.
    pub fn flushed(&mut self, txid: Txid) -> Option<P> {
        let mut newest = None;
        while let Some(flushable) = self.changes.front()
            && flushable.change.txid <= txid
        {
            newest = Some(flushable.position);
            self.rows -= weight(&flushable.change);
            self.changes.pop_front();
        }
        newest
    }
}

/// Batches that were sent to the database. One without an answer may have been done, and the next may be smaller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent(Txid);

impl Sent {
    /// A batch up to a change is sent.
    #[must_use]
    pub fn begin(&mut self, batch: Txid) -> Sending {
        self.0 = self.0.max(batch);
        Sending { batch, newest: self.0 }
    }
}

/// A batch that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    batch: Txid,
    newest: Txid,
}

impl Sending {
    /// Up to which change a database has all now that took the batch.
    #[must_use]
    pub const fn taken(self) -> Txid {
        self.batch
    }

    /// Whether one that refuses the batch, because it is at another change, is beyond it by a batch that was sent before, and was done after all.
    #[must_use]
    pub fn was_overtaken(self, came: Txid) -> bool {
        (self.batch..=self.newest).contains(&came)
    }
}

/// All blocks of a file are written with its row: so many count for one more row.
const BLOCKS_OF_A_ROW: usize = 16;
/// And so many bytes of attributes.
const BYTES_OF_A_ROW: usize = 1_024;

/// What a change counts for; one without rows counts, too.
fn weight(change: &Change) -> usize {
    let blocks: usize = change.rows.iter().map(|row| row.file().map_or(0, |file| file.blocks.len())).sum();
    let bytes: usize = change.rows.iter().map(|row| row.more.as_ref().map_or(0, |more| more.attribute_bytes())).sum();
    (change.rows.len() + change.gone.len() + blocks / BLOCKS_OF_A_ROW + bytes / BYTES_OF_A_ROW).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Attribute, AttributeSpace, Block, File, Kind};
    use crate::ids::Stamp;

    fn change(txid: u64, blocks: u64) -> Change {
        let block = |id| Block { id: BlockId(id), stamp: Stamp(1), length: 1, is_committed: true };
        let file =
            File { replication: 1, block_size: 1.into(), blocks: (0..blocks).map(block).collect(), writer: None };
        let row = Row {
            id: InodeId(txid),
            parent: InodeId::ROOT,
            name: Box::default(),
            owner: "ann".into(),
            group: "staff".into(),
            mode: 0o644,
            mtime: Millis(0),
            atime: Millis(0),
            kind: Kind::File(Box::new(file)),
            more: None,
        };
        let (at, counters) = (Millis(0), Counters::default());
        Change { txid: Txid(txid), at, counters, rows: vec![row], gone: Vec::new(), retry: None }
    }

    #[test]
    fn a_database_is_beyond_a_batch_if_an_earlier_one_without_an_answer_was_done() {
        let mut sent = Sent::default();
        assert_eq!(sent.begin(Txid(9)).taken(), Txid(9));
        let sending = sent.begin(Txid(5));
        assert!([5, 7, 9].iter().all(|came| sending.was_overtaken(Txid(*came))));
        assert!(!sending.was_overtaken(Txid(4)), "it went back");
        assert!(!sending.was_overtaken(Txid(10)), "that was somebody else");
    }

    #[test]
    fn attributes_make_a_batch_smaller() {
        let mut large = change(1, 0);
        let value = [0; 10 * BYTES_OF_A_ROW].into();
        large.rows[0].edit(|more| {
            more.attributes.push(Attribute { space: AttributeSpace::User, name: "a".into(), value });
        });
        let mut unflushed = Unflushed::default();
        unflushed.add(large, Applied::default(), ());
        assert_eq!(unflushed.rows(), 11);
    }

    #[test]
    fn blocks_of_files_make_a_batch_smaller() {
        let mut unflushed = Unflushed::default();
        for (txid, blocks) in [(1, 0), (2, 10_000), (3, 0)] {
            unflushed.add(change(txid, blocks), Applied::default(), ());
        }
        assert_eq!(unflushed.rows(), 3 + 10_000 / BLOCKS_OF_A_ROW);
        assert_eq!(unflushed.next(100, |()| true).len(), 2, "the large one ends it");
        assert_eq!(unflushed.next(1, |()| true).len(), 1, "one at least");
        unflushed.flushed(Txid(2));
        assert_eq!(unflushed.rows(), 1);
    }
}
