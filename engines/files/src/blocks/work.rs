//! What data nodes have to do: send replicas to others where there are too few, remove what is too much, damaged or of no file, and end blocks
//! whose writers have gone.
//!
//! Nothing is removed that the log's end could bring back: each removal has the change that was the newest when it was decided, and is told to the data
//! node when the log has that durably. It is decided again at that moment, because replicas may have been lost meanwhile.

use std::collections::BTreeSet;

use super::nodes::{Holder, Liveness, Place, Removal, Why};
use super::{Blocks, Copying, Entry, Held, Wanted, is_all};
use crate::ids::{BlockId, Millis, Stamp, Txid};
use crate::operation::Recovery;
use crate::request::BlockName;

/// Replicas that a data node removes between two heartbeats.
const REMOVALS_MAX: usize = 1_000;
/// Replicas that a data node sends at the same time.
const COPIES_MAX: usize = 4;
/// So long it is waited for a replica that is being sent.
const COPY_TIME: u64 = 5 * 60_000;
/// So long after a file was closed its data nodes may take to say so.
const REPORT_TIME: u64 = 5_000;
/// So long it is waited for the end of a block.
const CLOSING_TIME: u64 = 60_000;

/// A block that has to be ended by a data node, with the others that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryOrder {
    /// The block, under the oldest generation that counts.
    pub block: BlockName,
    /// The generation under which it is ended.
    pub stamp: Stamp,
    /// To how many bytes it is cut, if it is to be.
    pub cut: Option<u64>,
    /// Who has it.
    pub places: Vec<Place>,
}

/// A block that other data nodes end.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    /// For what.
    recovery: Recovery,
    order: RecoveryOrder,
    /// Who is to do it; nobody as long as none is there that has it.
    primary: Option<Holder>,
    since: Millis,
    is_told: bool,
    /// The generation under which it was written, if that is known.
    old: Option<Stamp>,
}

/// What a data node is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// To remove these.
    pub removals: Vec<(BlockId, Stamp)>,
    /// To send these to others.
    pub copies: Vec<Copying>,
    /// To end these.
    pub recoveries: Vec<RecoveryOrder>,
}

/// Who ends a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The data node in the process.
    Here,
    /// Another one, which was told or will be.
    Elsewhere,
    /// Nobody that has it is there.
    Nobody,
}

/// Replicas of a block that are as they should be.
struct Sound {
    places: Vec<Place>,
    /// Those of which it is known.
    sure: usize,
}

impl Blocks {
    /// All blocks are to be looked at: there is another data node, or one less.
    pub(super) fn look_at_all(&mut self) {
        self.unseen.extend(self.entries.keys());
    }

    /// Data nodes that are silent for too long have nothing any more. Which ones.
    pub fn bury(&mut self) -> Vec<Holder> {
        let dead = self.nodes.bury();
        for holder in &dead {
            let Some(node) = self.nodes.get_mut(*holder) else { continue };
            let storages: Vec<BTreeSet<BlockId>> = node
                .storages
                .iter_mut()
                .map(|storage| {
                    storage.has_reported = false;
                    std::mem::take(&mut storage.blocks)
                })
                .collect();
            for (number, blocks) in (0..).zip(storages) {
                let place = Place { holder: *holder, storage: number };
                for block in blocks {
                    self.lost(place, block, None);
                }
            }
            self.copies.retain(|_, copy| copy.from != *holder && copy.to.holder != *holder);
            self.copies_here.retain(|copy| copy.to.holder != *holder);
        }
        if !dead.is_empty() {
            self.look_at_all();
        }
        dead
    }

    /// Looks at blocks, at most so many, and decides what is to be done about them. Whether there are more.
    pub fn look(&mut self, most: usize) -> bool {
        let now = self.nodes.now();
        let late: Vec<BlockId> =
            self.copies.values().filter(|copy| now.since(copy.since) > COPY_TIME).map(|copy| copy.block.id).collect();
        for block in late {
            self.copies.remove(&block);
            self.unseen.insert(block);
        }
        let mut later = Vec::new();
        for _ in 0..most {
            let Some(block) = self.unseen.pop_first() else { break };
            if !self.look_at_one(block) {
                later.push(block);
            }
        }
        let has_more = !self.unseen.is_empty();
        self.unseen.extend(later);
        has_more
    }

    fn sound(&self, block: BlockId, entry: &Entry, wanted: Wanted) -> Sound {
        let is_sound = |held: &Held| {
            is_all(held, wanted.stamp, wanted.length)
                && !held.is_corrupt
                && !self.nodes.is_leaving(held.place.holder, block)
        };
        let mut places: Vec<Place> = entry.replicas().filter(is_sound).map(|held| held.place).collect();
        // One data node counts once.
        places.dedup_by_key(|place| place.holder);
        let is_sure =
            |place: &&Place| self.nodes.is_sure(place.holder) && self.nodes.liveness(place.holder) == Liveness::Live;
        let sure = places.iter().filter(is_sure).count();
        Sound { places, sure }
    }

    /// Whether that is all, or the block is to be looked at again in a moment.
    fn look_at_one(&mut self, block: BlockId) -> bool {
        self.low.remove(&block);
        let Some(entry) = self.entries.get(&block) else { return true };
        // What no file here has said is not known, and who writes a block sees to its replicas.
        let Some(wanted) = entry.wanted.filter(|wanted| !wanted.is_open) else { return true };
        let sound = self.sound(block, entry, wanted);
        let (there, target) = (sound.places.len(), usize::from(wanted.replication.max(1)));
        let coming = usize::from(self.copies.contains_key(&block));
        let is_fresh = |closed: &Millis| there < target && self.nodes.now().since(*closed) < REPORT_TIME;
        if self.fresh.get(&block).is_some_and(is_fresh) {
            return false;
        }
        self.fresh.remove(&block);
        if there < target {
            self.low.insert(block);
        }
        if there > 0 && there + coming < target && !self.send(block, wanted, &sound) {
            // Nobody else has room for it: a damaged replica may keep the place of a good one.
            self.remove_bad(block, wanted, 1);
        } else if there >= target {
            self.remove_bad(block, wanted, target);
            self.remove_excess(block, wanted, &sound, target);
        }
        true
    }

    /// Has one replica more made, if anybody can take it. Whether it is.
    fn send(&mut self, block: BlockId, wanted: Wanted, sound: &Sound) -> bool {
        let Some(entry) = self.entries.get(&block) else { return false };
        let holders: BTreeSet<Holder> = entry.replicas().map(|held| held.place.holder).collect();
        let to = if holders.contains(&Holder::HERE) {
            let found = self.nodes.choose((block, wanted.length), 1, |holder| {
                holders.contains(&holder) || self.nodes.is_leaving(holder, block)
            });
            found.first().copied()
        } else {
            Some(Place::HERE)
        };
        let Some(to) = to else { return false };
        let busy = |holder: Holder| self.copies.values().filter(|copy| copy.from == holder).count();
        let from = sound.places.iter().map(|place| place.holder);
        let from = from.filter(|holder| self.nodes.liveness(*holder) == Liveness::Live).min_by_key(|it| busy(*it));
        let Some(from) = from else { return false };
        let name = BlockName { id: block, stamp: wanted.stamp, length: wanted.length };
        let copy = Copying { block: name, from, to, since: self.nodes.now() };
        match self.nodes.get_mut(from) {
            Some(node) => node.copies.push(copy),
            None => self.copies_here.push(copy),
        }
        self.copies.insert(block, copy);
        true
    }

    /// Has damaged replicas and those of older generations removed, if there are so many good ones.
    fn remove_bad(&mut self, block: BlockId, wanted: Wanted, least: usize) {
        let Some(entry) = self.entries.get(&block) else { return };
        if self.sound(block, entry, wanted).sure < least {
            return;
        }
        let is_bad = |held: &Held| held.is_corrupt || (held.is_whole && !is_all(held, wanted.stamp, wanted.length));
        let bad: Vec<Held> = entry.replicas().filter(is_bad).filter(|held| held.stamp <= wanted.stamp).collect();
        for held in bad {
            self.remove(block, held, Why::Bad);
        }
    }

    /// Has replicas removed that are too many, of the data nodes with the least room first. The one in the process keeps its own.
    fn remove_excess(&mut self, block: BlockId, wanted: Wanted, sound: &Sound, target: usize) {
        let count = sound.places.len().min(sound.sure).saturating_sub(target);
        let mut others: Vec<Place> = sound.places.iter().copied().filter(|place| *place != Place::HERE).collect();
        others.sort_by_key(|place| self.nodes.get(place.holder).map_or(0, |node| node.room()));
        for place in others.into_iter().take(count) {
            let held = Held { place, stamp: wanted.stamp, length: wanted.length, is_whole: true, is_corrupt: false };
            self.remove(block, held, Why::Excess);
        }
    }

    fn remove(&mut self, block: BlockId, held: Held, why: Why) {
        let since = self.txid;
        let removal = Removal { stamp: held.stamp, since, why };
        match self.nodes.get_mut(held.place.holder) {
            Some(node) => node.removals.insert(block, removal),
            None => self.removals_here.insert(block, removal),
        };
    }

    /// What the data node in the process is to look at, and to remove if it is what it is said to be: damaged, or of an older generation. The log has all
    /// changes up to `durable`.
    pub fn duties_here(&mut self, durable: Txid) -> Vec<(BlockId, Stamp)> {
        let removals = std::mem::take(&mut self.removals_here);
        let (ripe, later): (Vec<_>, Vec<_>) = removals.into_iter().partition(|(_, removal)| removal.since <= durable);
        self.removals_here.extend(later);
        let still = ripe.into_iter().filter(|(block, removal)| {
            self.entries.contains_key(block) && self.is_still_to_go(*block, *removal, Holder::HERE)
        });
        still.map(|(block, removal)| (block, removal.stamp)).collect()
    }

    /// The data node in the process does not have a replica any more, which was as it was said to be.
    pub fn lost_here(&mut self, block: BlockId) {
        if let Some(entry) = self.entries.get_mut(&block) {
            (entry.here, entry.is_corrupt_here) = (None, false);
        }
        self.look_at(block);
    }

    /// Whoever found a replica of the data node in the process damaged was wrong.
    pub fn is_sound_here(&mut self, block: BlockId) {
        if let Some(entry) = self.entries.get_mut(&block) {
            entry.is_corrupt_here = false;
        }
        self.look_at(block);
    }

    /// What a data node is to do now. The log has all changes up to `durable`; nothing is removed or sent while that is `None`: in safe mode, and while the
    /// database is away.
    pub fn duties(&mut self, holder: Holder, durable: Option<Txid>) -> Duties {
        let mut duties = Duties::default();
        for closing in self.closings.values_mut().filter(|closing| closing.primary == Some(holder) && !closing.is_told)
        {
            closing.is_told = true;
            duties.recoveries.push(closing.order.clone());
        }
        let (Some(durable), Some(node)) = (durable, self.nodes.get(holder)) else { return duties };
        let ripe = node.removals.iter().filter(|(_, removal)| removal.since <= durable);
        let ripe: Vec<(BlockId, Removal)> =
            ripe.take(REMOVALS_MAX).map(|(block, removal)| (*block, *removal)).collect();
        for (block, removal) in ripe {
            if let Some(node) = self.nodes.get_mut(holder) {
                node.removals.remove(&block);
            }
            if !self.is_still_to_go(block, removal, holder) {
                self.look_at(block);
                continue;
            }
            duties.removals.push((block, removal.stamp));
            let places: Vec<Place> =
                self.entries.get(&block).into_iter().flat_map(|entry| &entry.others).map(|held| held.place).collect();
            for place in places.into_iter().filter(|place| place.holder == holder) {
                self.lost(place, block, Some(removal.stamp));
            }
            let now = self.nodes.now();
            if let Some(node) = self.nodes.get_mut(holder) {
                node.told.insert(block, (removal.stamp, now));
            }
        }
        let under_way = self.copies.values().filter(|copy| copy.from == holder).count();
        if let Some(node) = self.nodes.get_mut(holder) {
            let waiting = node.copies.len();
            let count = waiting.min((COPIES_MAX + waiting).saturating_sub(under_way));
            duties.copies = node.copies.drain(..count).collect();
        }
        duties
    }

    /// Whether what was decided still holds. The removal itself is not among those that are pending any more.
    fn is_still_to_go(&self, block: BlockId, removal: Removal, holder: Holder) -> bool {
        let Some(entry) = self.entries.get(&block) else { return true };
        let Some(wanted) = entry.wanted else {
            // Of a block that no file had one is there again: that is looked at anew.
            return false;
        };
        if wanted.is_open {
            return false;
        }
        let sound = self.sound(block, entry, wanted);
        let target = usize::from(wanted.replication.max(1));
        let own = sound.places.iter().filter(|place| place.holder == holder).count();
        match removal.why {
            Why::Gone => false,
            Why::Excess => own > 0 && sound.sure.saturating_sub(own) >= target,
            Why::Bad => own == 0 && sound.sure >= 1,
        }
    }

    /// What the data node in the process has to send.
    pub fn take_copies_here(&mut self) -> Vec<Copying> {
        std::mem::take(&mut self.copies_here)
    }

    /// Blocks that have fewer replicas than they should, when they were looked at last.
    #[must_use]
    pub fn low(&self) -> usize {
        self.low.len()
    }

    /// Replicas that are to be removed.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.nodes.nodes.iter().map(|node| node.removals.len()).sum()
    }

    /// Who ends the last block of a file whose writer has gone, or that is to be cut. `stamp` is the generation of what the data node in the process has.
    pub fn close(&mut self, recovery: Recovery, stamp: Option<Stamp>) -> Ended {
        let Some((block, newer)) = recovery.block else { return Ended::Here };
        if self.nodes.is_empty() && self.nodes.awaited().is_empty() {
            return Ended::Here;
        }
        let before = self.closings.remove(&block).and_then(|closing| closing.old);
        let entry = self.entries.get(&block);
        let reported = || entry.into_iter().flat_map(|entry| &entry.others).map(|held| held.stamp).chain(stamp).max();
        let written = before.or(recovery.old);
        let old = written.or_else(reported).unwrap_or(newer);
        let mut holders: BTreeSet<Place> = self.pipelines.get(&block).into_iter().flatten().copied().collect();
        let is_known = !holders.is_empty();
        holders.extend(
            entry.into_iter().flat_map(|entry| &entry.others).filter(|held| held.stamp >= old).map(|held| held.place),
        );
        if stamp.is_some_and(|stamp| stamp >= old) {
            holders.insert(Place::HERE);
        }
        let live = |place: &&Place| self.nodes.liveness(place.holder) != Liveness::Dead;
        let heard = |holder: &Holder| self.nodes.get(*holder).map(|node| node.heard);
        let others = holders.iter().filter(|place| **place != Place::HERE);
        let primary = others.clone().filter(live).map(|place| place.holder).max_by_key(heard);
        let awaits = !self.nodes.awaited().is_empty();
        let is_here = stamp.is_some_and(|stamp| stamp >= old) && (written.is_some() || !awaits);
        let was_elsewhere = others.count() > 0 || (awaits && !is_known);
        if primary.is_none() && (is_here || !was_elsewhere) {
            return Ended::Here;
        }
        // A newer generation may be reported yet.
        let primary = primary.filter(|_| written.is_some() || !awaits);
        let places = holders.iter().filter(live).copied().collect();
        let name = BlockName { id: block, stamp: old, length: recovery.least };
        let order = RecoveryOrder { block: name, stamp: newer, cut: recovery.length, places };
        let since = self.nodes.now();
        self.closings.insert(block, Closing { recovery, order, primary, since, is_told: false, old: written });
        if primary.is_some() { Ended::Elsewhere } else { Ended::Nobody }
    }

    /// The recovery that a data node says it has done, if that is still wanted.
    #[must_use]
    pub fn closing(&self, block: BlockId, stamp: Stamp) -> Option<Recovery> {
        let closing = self.closings.get(&block)?;
        (closing.order.stamp == stamp).then_some(closing.recovery)
    }

    /// Whether data nodes end a block.
    pub(crate) fn is_closing(&self, block: BlockId) -> bool {
        self.closings.contains_key(&block)
    }

    /// A block was ended.
    pub fn closed(&mut self, block: BlockId) {
        self.closings.remove(&block);
        self.pipelines.remove(&block);
    }

    /// Recoveries that take too long: they are begun anew.
    pub fn overdue(&mut self) -> Vec<Recovery> {
        let now = self.nodes.now();
        let late = self.closings.values_mut().filter(|closing| now.since(closing.since) > CLOSING_TIME);
        late.map(|closing| {
            closing.since = now;
            closing.recovery
        })
        .collect()
    }
}
