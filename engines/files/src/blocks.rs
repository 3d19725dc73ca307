//! The block manager: which file a block belongs to, and what the data node has of it. It decides; it reads no disk and no clock.
//!
//! Which blocks there are follows from the files' rows. Which replicas there are is never kept: the data node reports all of them
//! when it begins, and each one that comes or goes later.

use std::collections::HashMap;

use crate::change::Block;
use crate::ids::{BlockId, InodeId, Stamp};

/// A replica that is complete, as the data node reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its block.
    pub block: BlockId,
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes.
    pub length: u64,
}

#[derive(Debug)]
struct Entry {
    inode: InodeId,
    /// What the data node has: generation and length.
    replica: Option<(Stamp, u64)>,
    is_corrupt: bool,
}

/// All blocks of the files that are here, and all replicas.
#[derive(Debug, Default)]
pub struct Blocks {
    entries: HashMap<BlockId, Entry>,
    /// Those that no file has any more, and the data node may still have.
    unwanted: Vec<BlockId>,
}

impl Blocks {
    /// The file that a block belongs to.
    #[must_use]
    pub fn inode(&self, block: BlockId) -> Option<InodeId> {
        self.entries.get(&block).map(|entry| entry.inode).filter(|inode| *inode != InodeId::NOWHERE)
    }

    /// How many blocks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the data node has all of a block.
    #[must_use]
    pub fn has(&self, block: &Block) -> bool {
        let replica = self.entries.get(&block.id).and_then(|entry| entry.replica);
        replica == Some((block.stamp, block.length))
    }

    /// Whether somebody found a block damaged.
    #[must_use]
    pub fn is_corrupt(&self, block: BlockId) -> bool {
        self.entries.get(&block).is_some_and(|entry| entry.is_corrupt)
    }

    /// Somebody found a block damaged. It is the only replica, so it stays.
    pub fn found_corrupt(&mut self, block: BlockId) {
        if let Some(entry) = self.entries.get_mut(&block) {
            entry.is_corrupt = true;
        }
    }

    /// The data node has a replica. Whether any file wants it; if not, it may go.
    pub fn received(&mut self, replica: Replica) -> bool {
        let Some(entry) = self.entries.get_mut(&replica.block) else { return false };
        // What comes late is of an older generation.
        if entry.replica.is_none_or(|(stamp, _)| stamp <= replica.stamp) {
            entry.replica = Some((replica.stamp, replica.length));
        }
        true
    }

    /// When it begins, the data node has a replica. Of a file that is not here, perhaps.
    pub fn reported(&mut self, replica: Replica) {
        let new = Entry { inode: InodeId::NOWHERE, replica: None, is_corrupt: false };
        self.entries.entry(replica.block).or_insert(new);
        self.received(replica);
    }

    /// Blocks of which no file is here.
    pub fn unnamed(&self) -> impl Iterator<Item = BlockId> {
        let unnamed = self.entries.iter().filter(|(_, entry)| entry.inode == InodeId::NOWHERE);
        unnamed.map(|(block, _)| *block)
    }

    /// No file has these blocks, nor ever will.
    pub fn forget(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            self.entries.remove(block);
        }
    }

    /// A file is not here any more, and still has its blocks. What the data node has of them is kept.
    pub(crate) fn given_up(&mut self, inode: InodeId, blocks: &[Block]) {
        for block in blocks {
            let Some(entry) = self.entries.get_mut(&block.id).filter(|entry| entry.inode == inode) else { continue };
            if entry.replica.is_some() || entry.is_corrupt {
                entry.inode = InodeId::NOWHERE;
            } else {
                self.entries.remove(&block.id);
            }
        }
    }

    /// What no file has any more, since this was asked last. It may go once the changes that took it away are durable.
    pub fn take_unwanted(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.unwanted)
    }

    /// Blocks of files that are here which the data node lacks, or that somebody found damaged, in any order: which, of which file, and whether it is lacking.
    pub fn damaged(&self) -> impl Iterator<Item = (BlockId, InodeId, bool)> {
        let damaged = self.entries.iter().filter(|(_, entry)| entry.replica.is_none() || entry.is_corrupt);
        damaged.map(|(block, entry)| (*block, entry.inode, entry.replica.is_none()))
    }

    /// A file has other blocks than before. Those that another file has meanwhile stay.
    pub(crate) fn changed(&mut self, inode: InodeId, before: &[Block], after: &[Block]) {
        for block in after {
            let new = Entry { inode, replica: None, is_corrupt: false };
            self.entries.entry(block.id).or_insert(new).inode = inode;
        }
        for block in before {
            let is_of_it = self.entries.get(&block.id).is_some_and(|entry| entry.inode == inode);
            if is_of_it && !after.iter().any(|other| other.id == block.id) {
                self.entries.remove(&block.id);
                self.unwanted.push(block.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn block(id: u64, stamp: u64, length: u64) -> Block {
        Block { id: BlockId(id), stamp: Stamp(stamp), length, is_committed: true }
    }

    const fn replica(id: u64, stamp: u64, length: u64) -> Replica {
        Replica { block: BlockId(id), stamp: Stamp(stamp), length }
    }

    #[test]
    fn a_block_is_there_when_the_data_node_has_all_of_its_newest_generation() {
        let mut blocks = Blocks::default();
        blocks.changed(InodeId(7), &[], &[block(1, 5, 100)]);
        assert!(!blocks.has(&block(1, 5, 100)));
        assert!(blocks.received(replica(1, 5, 99)));
        assert!(!blocks.has(&block(1, 5, 100)), "one byte is missing");
        assert!(blocks.received(replica(1, 6, 100)));
        assert!(blocks.received(replica(1, 5, 100)), "late");
        assert!(blocks.has(&block(1, 6, 100)) && !blocks.has(&block(1, 5, 100)));
    }

    #[test]
    fn blocks_that_another_file_has_now_are_wanted() {
        let mut blocks = Blocks::default();
        blocks.changed(InodeId(7), &[], &[block(1, 5, 1)]);
        blocks.received(replica(1, 5, 1));
        blocks.changed(InodeId(8), &[], &[block(1, 5, 1)]);
        blocks.changed(InodeId(7), &[block(1, 5, 1)], &[]);
        assert_eq!((blocks.inode(BlockId(1)), blocks.take_unwanted()), (Some(InodeId(8)), vec![]));
        assert!(blocks.has(&block(1, 5, 1)));
    }

    #[test]
    fn what_no_file_has_is_unwanted() {
        let mut blocks = Blocks::default();
        assert!(!blocks.received(replica(1, 5, 1)));
        blocks.changed(InodeId(7), &[], &[block(1, 5, 1), block(2, 5, 1)]);
        blocks.changed(InodeId(7), &[block(1, 5, 1), block(2, 5, 1)], &[block(1, 5, 1)]);
        assert_eq!((blocks.inode(BlockId(1)), blocks.inode(BlockId(2))), (Some(InodeId(7)), None));
        assert_eq!(blocks.take_unwanted(), [BlockId(2)]);
        assert_eq!(blocks.take_unwanted(), []);
        assert_eq!((blocks.len(), blocks.damaged().collect::<Vec<_>>()), (1, vec![(BlockId(1), InodeId(7), true)]));
        blocks.received(replica(1, 5, 1));
        assert_eq!(blocks.damaged().next(), None);
        blocks.found_corrupt(BlockId(1));
        assert_eq!(blocks.damaged().collect::<Vec<_>>(), [(BlockId(1), InodeId(7), false)]);
    }
}
