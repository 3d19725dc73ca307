//! What a tree does that has a database behind it: it learns inodes that it lacks, and gives up those that were not used for a while.

use super::tombstones::Tombstones;
use super::{Covered, Inode, Slot, Tree};
use crate::change::Row;
use crate::ids::{InodeId, Txid};

/// What is kept because a database has the rest.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub(super) tombstones: Tombstones,
    /// The newest change that the database has.
    flushed: Txid,
    /// The newest change of what was given up: what was read from the database before it had that may be older than what was here.
    given_up: Txid,
    hand: Slot,
}

impl Tree {
    /// From now on a database has what is not here: nothing is known but what is put.
    pub(crate) fn is_part_of_more(&mut self, flushed: Txid) {
        self.behind = Some(Behind { flushed, ..Behind::default() });
        for inode in self.slots.iter_mut().flatten() {
            if let Some(directory) = inode.directory_mut() {
                directory.covered = Covered::nothing();
            }
        }
    }

    /// From now on a database has all of this, up to a change, and what is given up.
    pub(crate) fn is_behind(&mut self, flushed: Txid) {
        self.behind = Some(Behind { flushed, ..Behind::default() });
    }

    /// Whether a database has what is not here.
    pub(crate) const fn is_part(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether a change took a name away that the database may still have.
    pub(crate) fn was_taken(&self, directory: InodeId, name: &[u8]) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.tombstones.has(directory, name))
    }

    /// Whether something that was read from the database as of a change may be older than what was here and given up.
    pub(crate) fn is_too_old(&self, read: Txid) -> bool {
        self.behind.as_ref().is_some_and(|behind| read < behind.given_up)
    }

    /// The database has all changes up to one.
    pub(crate) fn flushed(&mut self, txid: Txid) {
        let Some(behind) = &mut self.behind else { return };
        behind.flushed = behind.flushed.max(txid);
        if let Some(forgotten) = behind.tombstones.forget(behind.flushed) {
            behind.given_up = behind.given_up.max(forgotten);
        }
    }

    /// Takes in an inode that the database has, with how many children; not over what is here, and not under a name that a change took
    /// away. Whether it did.
    pub(crate) fn learn(&mut self, row: &Row, count: usize, txid: Txid) -> bool {
        let is_newer_here = self.slot_of(row.id).is_some()
            || self.child(row.parent, &row.name).is_some()
            || self.was_taken(row.parent, &row.name);
        let is_fixed = row.parent == InodeId::NOWHERE;
        if is_newer_here || !is_fixed && self.slot_of(row.parent).is_none() {
            return false;
        }
        let covered = if count == 0 { Covered::All } else { Covered::nothing() };
        let slot = self.add(row, txid, covered);
        if let Some(inode) = self.slots[slot as usize].as_mut() {
            // Who lists a large directory needs each of its children once.
            inode.mode.forget_use();
            if let Some(directory) = inode.directory_mut() {
                directory.count = count;
            }
        }
        self.link(slot);
        true
    }

    /// The root is as the database has it.
    pub(crate) fn learn_root(&mut self, row: &Row, count: usize, txid: Txid) {
        self.put(row, txid);
        self.count(row.id, |_| count);
    }

    /// A directory is here from one name to another, or to its end.
    pub(crate) fn cover(&mut self, directory: InodeId, after: &[u8], end: Option<&[u8]>) {
        let Some(slot) = self.slot_of(directory) else { return };
        let Some(directory) = self.slots[slot as usize].as_mut().and_then(Inode::directory_mut) else { return };
        if directory.covered.reaches(after) {
            match end {
                None => directory.covered = Covered::All,
                Some(end) if !directory.covered.reaches(end) => directory.covered = Covered::UpTo(end.into()),
                Some(_) => {}
            }
        }
    }

    /// Gives up an inode that was not used for a while, if the database has it, it is nobody's directory here, and no file that is being
    /// written. Looks at so many at most.
    pub(crate) fn give_up(&mut self, looks: &mut usize) -> Option<Inode> {
        while *looks > 0 {
            *looks -= 1;
            let behind = self.behind.as_mut()?;
            let hand = behind.hand;
            behind.hand = if hand as usize + 1 < self.slots.len() { hand + 1 } else { 0 };
            let Some(inode) = self.slots.get(hand as usize)?.as_ref() else { continue };
            if self.stays(inode) || inode.mode.forget_use() {
                continue;
            }
            let parent = inode.parent;
            self.unlink(hand);
            let Some(slot) = self.slot_of(parent) else { continue };
            if let Some(directory) = self.slots[slot as usize].as_mut().and_then(Inode::directory_mut) {
                directory.covered = Covered::nothing();
            }
            let inode = self.drop_slot(hand)?;
            let behind = self.behind.as_mut()?;
            behind.given_up = behind.given_up.max(inode.txid);
            return Some(inode);
        }
        None
    }

    /// Forgets which names changes took away, whether or not the database has the changes.
    #[cfg(feature = "flaws")]
    pub(crate) fn forget_tombstones(&mut self) {
        if let Some(behind) = &mut self.behind {
            behind.tombstones = Tombstones::default();
        }
    }

    fn stays(&self, inode: &Inode) -> bool {
        let flushed = self.behind.as_ref().map_or(Txid(0), |behind| behind.flushed);
        inode.txid > flushed
            || inode.parent == InodeId::NOWHERE
            || inode.directory().is_some_and(|directory| !directory.children.is_empty())
            || inode.file().is_some_and(|file| file.writer.is_some())
    }
}
