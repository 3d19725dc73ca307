//! What data nodes say that they have.

use super::ending::Closing;
use super::nodes::{Heartbeat, Holder, Place, Registration, Removal, Why};
use super::{Blocks, Entry, Held, Replica, State};
use crate::change::Counters;
use crate::ids::{BlockId, InodeId, Millis, Stamp};

/// So many blocks are remembered that are newer than anything that was given.
const NEWER_MAX: usize = 100_000;
/// So long a data node may take to remove what it was told to remove.
pub(super) const TOLD_TIME: u64 = 10 * 60_000;

impl Blocks {
    /// It is so late, by a clock that only goes forward.
    pub fn advance(&mut self, now: Millis) {
        self.nodes.advance(now);
    }

    /// A data node says who it is. None if there are too many.
    pub fn register(&mut self, registration: Registration) -> Option<Holder> {
        let holder = self.nodes.register(registration)?;
        self.closings.values_mut().for_each(|closing| closing.begins_anew(holder));
        // What it was told before it may have forgotten.
        let lost = self.copies.values().filter(|copy| copy.from == holder || copy.to.holder == holder);
        for block in lost.map(|copy| copy.block.id).collect::<Vec<_>>() {
            self.drop_copy(block);
            self.look_at(block);
        }
        Some(holder)
    }

    /// A data node is there. Under what number it may report all its replicas, 0 if it may not now; none if it has to say who it is first.
    pub fn heard(&mut self, holder: Holder, heartbeat: Heartbeat) -> Option<u64> {
        let wants_to_report = heartbeat.wants_to_report;
        let gone = self.nodes.heard(holder, heartbeat)?;
        self.lose(&gone);
        Some(if wants_to_report { self.nodes.lease(holder) } else { 0 })
    }

    /// A data node of another process has a replica, or writes one.
    pub fn held(&mut self, place: Place, replica: Replica, is_whole: bool) {
        self.held_as(place, replica, if is_whole { State::Whole } else { State::Begun });
    }

    /// The same of a replica that may be left by a writer that has gone.
    pub fn held_as(&mut self, place: Place, replica: Replica, state: State) {
        self.nodes.is_said(place, replica.block);
        self.take_held(place, replica, state);
    }

    pub(super) fn take_held(&mut self, place: Place, replica: Replica, state: State) {
        let is_whole = state == State::Whole;
        let Replica { block, stamp, length } = replica;
        let now = self.nodes.now();
        let is_asked_for = is_whole && self.copies.get(&block).is_some_and(|copy| copy.to.holder == place.holder);
        let Some(node) = self.nodes.get_mut(place.holder).filter(|node| !node.is_dead) else { return };
        // It was told to remove it, and says what it had before.
        let is_told = |(old, since): &(Stamp, Millis)| *old >= stamp && now.since(*since) < TOLD_TIME;
        if !is_asked_for && node.told.get(&block).is_some_and(is_told) {
            return;
        }
        if let Some(storage) = node.storages.get_mut(usize::from(place.storage)) {
            storage.blocks.insert(block);
        }
        // It was removed, and is there again.
        if node.removals.get(&block).is_some_and(|removal| removal.stamp < stamp) {
            node.stays(block);
        }
        let registered = self.nodes.registered(place.holder);
        // What the storage had when it went does not count.
        let was_gone = self.nodes.is_not_gone(place, block);
        let mut entry = self.entries.get_or_new(block, InodeId::NOWHERE);
        let new = Held { place, stamp, length, state, is_corrupt: false, registered };
        match entry.others.iter_mut().find(|held| held.place == place) {
            // What comes late is of an older generation, or of what it was before. What a new process says takes the place of all that: what was not on the disk
            // when the machine ended is gone, generations and names as well.
            Some(held) if was_gone => *held = new,
            Some(held)
                if held.registered == registered
                    && (held.stamp > stamp || (held.stamp == stamp && held.state > state)) => {}
            Some(held) => *held = Held { is_corrupt: held.is_corrupt && held.stamp == stamp, ..new },
            None => entry.others.push(new),
        }
        let is_unknown = entry.inode == InodeId::NOWHERE && entry.wanted.is_none();
        drop(entry);
        if is_unknown {
            self.unchecked.insert(block);
        }
        if let Some(closing) = self.closings.get_mut(&block) {
            closing.has(place.holder, stamp, length);
        }
        if is_whole {
            self.copied(block, place.holder);
        }
        self.look_at(block);
    }

    /// A data node of another process does not have a replica any more.
    pub fn lost(&mut self, place: Place, block: BlockId, stamp: Option<Stamp>) {
        self.nodes.is_said(place, block);
        self.take_lost(place, block, stamp);
    }

    pub(super) fn take_lost(&mut self, place: Place, block: BlockId, stamp: Option<Stamp>) {
        if let (Some(node), Some(stamp)) = (self.nodes.get_mut(place.holder), stamp)
            && node.told.get(&block).is_some_and(|(old, _)| *old <= stamp)
        {
            node.told.remove(&block);
        }
        let Some(mut entry) = self.entries.get_mut(&block) else { return };
        // What is removed late is of an older generation.
        let is_it = |held: &Held| held.place == place && stamp.is_none_or(|stamp| held.stamp <= stamp);
        entry.others.retain(|held| !is_it(held));
        if entry.others.iter().any(|held| held.place == place) {
            return;
        }
        let is_empty = entry.inode == InodeId::NOWHERE && entry.replicas().next().is_none();
        drop(entry);
        if let Some(storage) = self.nodes.storage_mut(place) {
            storage.blocks.remove(&block);
        }
        self.nodes.is_not_gone(place, block);
        if is_empty {
            self.entries.remove(&block);
            self.unchecked.remove(&block);
            self.newer.remove(&block);
        }
        self.look_at(block);
    }

    /// The storage of a data node, which may be new. None if there are too many, or no such data node.
    pub fn storage(&mut self, holder: Holder, id: &str, kind: i32) -> Option<Place> {
        let storage = self.nodes.storage(holder, id, kind)?;
        Some(Place { holder, storage })
    }

    /// A report of all that a storage has was taken.
    pub fn has_reported(&mut self, place: Place) {
        let Some(node) = self.nodes.get_mut(place.holder) else { return };
        if let Some(storage) = node.storages.get_mut(usize::from(place.storage)) {
            storage.has_reported = true;
        }
    }

    /// A data node has reported all that its storages have: it has no others.
    pub fn all_reported(&mut self, holder: Holder) {
        let was_sure = self.nodes.is_sure(holder);
        let silent = self.nodes.reported(holder);
        self.lose(&silent);
        if !was_sure {
            // Others may have too few, and this one room.
            self.look_at_all();
            self.closings.values_mut().for_each(Closing::look_again);
        }
    }

    /// Storages have nothing any more: that counts from now on, and is taken from their blocks by and by.
    pub(super) fn lose(&mut self, places: &[Place]) {
        places.iter().for_each(|place| self.nodes.lose_storage(*place));
    }

    /// Takes what is gone from its blocks, of at most so many. Whether there may be more.
    pub fn take_gone(&mut self, most: usize) -> bool {
        for _ in 0..most {
            match self.nodes.take_gone() {
                Some((place, block)) => self.take_lost(place, block, None),
                None if self.nodes.drop_rubbish() => {}
                None => return false,
            }
        }
        true
    }

    /// What data nodes have of blocks of which no file is here, of at most so many, since this was asked last. They are kept until somebody says that there
    /// is no file. What is newer than the newest numbers that were given stays: the log was put back from a backup, and somebody may want those blocks.
    pub fn take_unchecked(&mut self, most: usize, newest: Counters) -> Vec<BlockId> {
        let mut taken = Vec::new();
        for _ in 0..most {
            let Some(block) = self.unchecked.pop_first() else { break };
            let Some(entry) = self.entries.get(&block) else { continue };
            if entry.inode != InodeId::NOWHERE || entry.wanted.is_some() {
                continue;
            }
            if block > newest.block || entry.others.iter().any(|held| held.stamp > newest.stamp) {
                if self.newer.len() < NEWER_MAX {
                    self.newer.insert(block);
                } else if let Some(entry) = self.entries.remove(&block) {
                    // It is left alone all the same.
                    self.drop_places(block, &entry);
                }
            } else {
                taken.push(block);
            }
        }
        taken
    }

    /// Blocks that are newer than the newest that was given.
    #[must_use]
    pub fn newer(&self) -> usize {
        self.newer.len()
    }

    /// These are to be asked for again.
    pub fn check_again(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        self.unchecked.extend(blocks);
    }

    /// What data nodes of other processes had of a block goes, once the log has all up to now.
    pub(super) fn drop_replicas(&mut self, block: BlockId, entry: &Entry) {
        let since = self.txid;
        for held in &entry.others {
            let is_gone = self.nodes.is_gone(held.place, block);
            let Some(node) = self.nodes.get_mut(held.place.holder).filter(|_| !is_gone) else { continue };
            node.is_to_remove(block, Removal { stamp: held.stamp, since, why: Why::Gone });
        }
        self.drop_places(block, entry);
        self.drop_looks(block);
        self.closings.remove(&block);
        self.newer.remove(&block);
    }

    /// Nobody looks at a block any more that is not here: nothing is known of what it should be.
    pub(super) fn drop_looks(&mut self, block: BlockId) {
        self.pipelines.remove(&block);
        self.unchecked.remove(&block);
        self.unseen.remove(&block);
        self.low.remove(&block);
        self.fresh.remove(&block);
        self.drop_copy(block);
        self.stalled.remove(&block);
        self.failed.remove(&block);
        self.doubtful.remove(&block);
        self.compared.remove(&block);
    }

    fn drop_places(&mut self, block: BlockId, entry: &Entry) {
        for held in &entry.others {
            if let Some(storage) = self.nodes.storage_mut(held.place) {
                storage.blocks.remove(&block);
            }
            self.nodes.is_not_gone(held.place, block);
        }
    }

    /// What is being sent has come, or will not come any more.
    pub fn copied(&mut self, block: BlockId, to: Holder) {
        if self.copies.get(&block).is_some_and(|copy| copy.to.holder == to) {
            self.drop_copy(block);
            self.failed.remove(&block);
        }
        self.look_at(block);
    }
}
