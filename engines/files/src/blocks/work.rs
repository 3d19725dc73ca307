//! What data nodes have to do: send replicas to others where there are too few, and remove what is too much, damaged or of no file.
//!
//! Nothing is removed that the log's end could bring back: each removal has the change that was the newest when it was decided, and is told to the data
//! node when the log has that durably. It is decided again at that moment, because replicas may have been lost meanwhile.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::nodes::{Holder, Liveness, Place, Removal, Why};
use super::reports::TOLD_TIME;
use super::{Blocks, Copying, Entry, Held, RecoveryOrder, State, Wanted, is_all};
use crate::ids::{BlockId, Millis, Stamp, Txid};
use crate::namespace::AT_ONCE;
use crate::request::BlockName;

/// Replicas that a data node sends at the same time.
const COPIES_MAX: usize = 4;
/// Replicas that wait to be sent by a data node, with those that it sends.
const QUEUE_MAX: usize = 2 * COPIES_MAX;
/// Blocks that had to wait, and are looked at in a turn.
const STALLED_LOOKS: usize = 64;
/// A pause before a replica is sent again that could not be; it grows to that, doubled so many times.
const PAUSE: u64 = 5_000;
const PAUSES: u32 = 6;
/// So long it is waited for a replica that is being sent.
const COPY_TIME: u64 = 5 * 60_000;
/// So long after a file was closed its data nodes may take to say so.
const REPORT_TIME: u64 = 5_000;
/// So long a replica counts as good that was compared with its checksums.
const COMPARED_TIME: u64 = 60_000;

/// What a data node is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// To remove these.
    pub removals: Vec<(BlockId, Stamp)>,
    /// To send these to others.
    pub copies: Vec<Copying>,
    /// To end these.
    pub recoveries: Vec<RecoveryOrder>,
    /// There may be more to remove, which is asked for by itself.
    pub has_more: bool,
}

/// What becomes of a wish for one more replica.
enum Sent {
    /// It is under way, or will be.
    UnderWay,
    /// Those who could do it have enough to do.
    Later,
    /// Nobody can take it.
    Nowhere,
}

/// Whether a replica of a closed block keeps a place that a good one could have.
fn is_bad(held: &Held, wanted: Wanted) -> bool {
    let is_part = match held.state {
        State::Whole => !is_all(held, wanted.stamp, wanted.length),
        State::Begun => held.stamp < wanted.stamp,
        State::Left => true,
    };
    held.stamp <= wanted.stamp && (held.is_corrupt || is_part)
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
        self.entries.begin_round();
    }

    /// Data nodes that are silent for too long have nothing any more. Which ones. `newest` is the newest block.
    pub fn bury(&mut self, newest: BlockId) -> Vec<Holder> {
        let dead = self.nodes.bury(newest);
        for holder in &dead {
            let Some(node) = self.nodes.get_mut(*holder) else { continue };
            node.storages.iter_mut().for_each(|storage| storage.has_reported = false);
            let places = (0..).take(node.storages.len()).map(|storage| Place { holder: *holder, storage });
            let places: Vec<Place> = places.collect();
            self.lose(&places);
            let lost = self.copies.values().filter(|copy| copy.from == *holder || copy.to.holder == *holder);
            for block in lost.map(|copy| copy.block.id).collect::<Vec<_>>() {
                self.drop_copy(block);
                self.look_at(block);
            }
        }
        if !dead.is_empty() {
            self.look_at_all();
        }
        dead
    }

    /// Another turn of looking at blocks begins: what did not come is asked for again, and what had to wait is looked at.
    pub fn begin_turn(&mut self) {
        let now = self.nodes.now();
        let late = self.copies.values().filter(|copy| now.since(copy.since) > COPY_TIME).map(|copy| copy.block.id);
        for block in late.collect::<Vec<_>>() {
            self.not_copied(block);
        }
        let behind = (Bound::Excluded(self.stalled_up_to), Bound::Unbounded);
        let mut stalled: Vec<BlockId> = self.stalled.range(behind).copied().take(STALLED_LOOKS).collect();
        if stalled.len() < STALLED_LOOKS {
            stalled.extend(self.stalled.range(..=self.stalled_up_to).take(STALLED_LOOKS - stalled.len()));
        }
        self.stalled_up_to = stalled.last().copied().unwrap_or_default();
        for block in stalled {
            self.stalled.remove(&block);
            self.unseen.insert(block);
        }
    }

    /// Looks at blocks, at most so many, and decides what is to be done about them. Whether there are more.
    pub fn look(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let changed = self.unseen.pop_first();
            if changed.is_none() && self.entries.is_round_over() {
                return false;
            }
            // A place may be free.
            let Some(block) = changed.or_else(|| self.entries.next_of_round()) else { continue };
            if !self.look_at_one(block) {
                self.stalled.insert(block);
            }
        }
        !self.unseen.is_empty() || !self.entries.is_round_over()
    }

    /// What was to be sent could not be: another data node is asked first, and after a while.
    pub fn not_copied(&mut self, block: BlockId) {
        let Some(copy) = self.drop_copy(block) else { return };
        let before = self.failed.get(&block).map_or(0, |(_, count, _)| *count);
        let pause = PAUSE << before.min(PAUSES);
        let until = Millis(self.nodes.now().0 + pause);
        self.failed.insert(block, (copy.from, before + 1, until));
        self.stalled.insert(block);
    }

    /// Nothing is sent of a block any more.
    pub(super) fn drop_copy(&mut self, block: BlockId) -> Option<Copying> {
        let copy = self.copies.remove(&block)?;
        if let Some(count) = self.sending.get_mut(&copy.from) {
            *count = count.saturating_sub(1);
        }
        match self.nodes.get_mut(copy.from) {
            Some(node) => node.copies.retain(|other| other.block.id != block),
            None => self.copies_here.retain(|other| other.block.id != block),
        }
        Some(copy)
    }

    fn sound(&self, block: BlockId, entry: &Entry, wanted: Wanted) -> Sound {
        let is_sound = |held: &Held| {
            is_all(held, wanted.stamp, wanted.length)
                && !held.is_corrupt
                && !self.nodes.is_leaving(held.place.holder, block)
        };
        let mut places: Vec<Place> = self.replicas(block, entry).filter(is_sound).map(|held| held.place).collect();
        // One data node counts once.
        places.sort_unstable();
        places.dedup_by_key(|place| place.holder);
        let is_sure =
            |place: &&Place| self.nodes.is_sure(place.holder) && self.nodes.liveness(place.holder) == Liveness::Live;
        let sure = places.iter().filter(is_sure).count();
        Sound { places, sure }
    }

    /// Whether that is all, or the block is to be looked at again in a moment.
    fn look_at_one(&mut self, block: BlockId) -> bool {
        self.low.remove(&block);
        let now = self.nodes.now();
        let is_compared = self.compared.remove(&block).is_some_and(|at| now.since(at) < COMPARED_TIME);
        let Some(entry) = self.entries.get(&block) else { return true };
        // What no file here has said is not known, and who writes a block sees to its replicas.
        let Some(wanted) = entry.wanted.filter(|wanted| !wanted.is_open) else { return true };
        let sound = self.sound(block, entry, wanted);
        let (there, target) = (sound.places.len(), usize::from(wanted.replication.max(1)));
        let is_fresh = |closed: &Millis| there < target && now.since(*closed) < REPORT_TIME;
        if self.fresh.get(&block).is_some_and(is_fresh) {
            return false;
        }
        self.fresh.remove(&block);
        if there < target {
            self.low.insert(block);
        }
        if there > 0 && there < target {
            // One at a time for each block: where it has come, the next one is sent.
            if self.copies.contains_key(&block) {
                return true;
            }
            match self.send(block, wanted, &sound) {
                Sent::UnderWay => {}
                Sent::Later => return false,
                // A damaged replica may keep the place of a good one.
                Sent::Nowhere => return self.make_room(block, wanted, &sound, is_compared),
            }
        } else if there >= target {
            self.remove_bad(block, wanted, target);
            self.remove_excess(block, wanted, &sound, target);
        }
        true
    }

    /// Has one replica more made, if anybody can take it.
    fn send(&mut self, block: BlockId, wanted: Wanted, sound: &Sound) -> Sent {
        let Some(entry) = self.entries.get(&block) else { return Sent::Nowhere };
        let holders: BTreeSet<Holder> = self.replicas(block, entry).map(|held| held.place.holder).collect();
        let to = if holders.contains(&Holder::HERE) {
            let found = self.nodes.choose((block, wanted.length), 1, |holder| {
                // Who has not reported yet may have it.
                holders.contains(&holder) || self.nodes.is_leaving(holder, block) || !self.nodes.is_sure(holder)
            });
            found.first().copied()
        } else {
            Some(Place::HERE)
        };
        let Some(to) = to else { return Sent::Nowhere };
        let (failed, until) =
            self.failed.get(&block).map_or((None, Millis(0)), |(from, _, until)| (Some(*from), *until));
        if self.nodes.now() < until {
            return Sent::Later;
        }
        let busy = |holder: Holder| self.sending.get(&holder).copied().unwrap_or(0);
        let from = sound.places.iter().map(|place| place.holder);
        let from = from.filter(|holder| self.nodes.liveness(*holder) == Liveness::Live);
        // Who failed is asked last.
        let from = from.min_by_key(|holder| (Some(*holder) == failed, busy(*holder)));
        let Some(from) = from.filter(|holder| busy(*holder) < QUEUE_MAX) else { return Sent::Later };
        let name = BlockName { id: block, stamp: wanted.stamp, length: wanted.length };
        let copy = Copying { block: name, from, to, since: self.nodes.now() };
        match self.nodes.get_mut(from) {
            Some(node) => node.copies.push(copy),
            None => self.copies_here.push(copy),
        }
        *self.sending.entry(from).or_default() += 1;
        self.copies.insert(block, copy);
        Sent::UnderWay
    }

    /// Nobody has room for another replica: a damaged one gives its place up, if there is a good one. If that is here alone, it is compared with its checksums
    /// first, if that was not done just now: whoever said that the other one is damaged may be wrong. Whether that is all.
    fn make_room(&mut self, block: BlockId, wanted: Wanted, sound: &Sound, is_compared: bool) -> bool {
        let is_here_alone = *sound.places == [Place::HERE];
        let entry = self.entries.get(&block);
        let has_bad = entry.is_some_and(|entry| self.replicas(block, entry).any(|held| is_bad(&held, wanted)));
        if has_bad && is_here_alone && !is_compared {
            self.doubtful.insert(block);
            return true;
        }
        self.remove_bad(block, wanted, 1);
        true
    }

    /// Has damaged replicas and those of older generations removed, if there are so many good ones.
    fn remove_bad(&mut self, block: BlockId, wanted: Wanted, least: usize) {
        let Some(entry) = self.entries.get(&block) else { return };
        if self.sound(block, entry, wanted).sure < least {
            return;
        }
        let bad: Vec<Held> = self.replicas(block, entry).filter(|held| is_bad(held, wanted)).collect();
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
            let held = Held {
                place,
                stamp: wanted.stamp,
                length: wanted.length,
                state: State::Whole,
                is_corrupt: false,
                registered: 0,
            };
            self.remove(block, held, Why::Excess);
        }
    }

    fn remove(&mut self, block: BlockId, held: Held, why: Why) {
        let since = self.txid;
        let removal = Removal { stamp: held.stamp, since, why };
        match self.nodes.get_mut(held.place.holder) {
            Some(node) => node.is_to_remove(block, removal),
            None => drop(self.removals_here.insert(block, removal)),
        }
    }

    /// Blocks, at most so many, whose replicas here are to be compared with their checksums: they were found damaged, or are of an older generation, or others go
    /// for them. The log has all changes up to `durable`. Whether a replica goes is asked again behind that.
    pub fn duties_here(&mut self, durable: Txid, most: usize) -> Vec<BlockId> {
        // Those that are not ripe yet soon are: nobody has to look behind them.
        let ripe = self
            .removals_here
            .iter()
            .take(AT_ONCE)
            .filter(|(_, removal)| removal.since <= durable)
            .map(|(block, _)| *block);
        let mut blocks: Vec<BlockId> = ripe.take(most).collect();
        while blocks.len() < most {
            let Some(block) = self.doubtful.pop_first() else { break };
            blocks.push(block);
        }
        blocks
    }

    /// The replica here of a block was compared with its checksums. The generation of what is to be removed of it now; nothing if it stays.
    pub fn compared_here(&mut self, block: BlockId, is_sound: bool) -> Option<Stamp> {
        let removal = self.removals_here.remove(&block);
        let mut entry = self.entries.get_mut(&block)?;
        entry.is_corrupt_here = !is_sound;
        let here = entry.here;
        drop(entry);
        let (stamp, _) = here?;
        if is_sound {
            self.compared.insert(block, self.nodes.now());
        }
        self.look_at(block);
        let removal = removal.filter(|removal| removal.stamp == stamp)?;
        if !self.is_still_to_go(block, removal, Holder::HERE) {
            return None;
        }
        // From now on it does not count.
        self.lost_here(block);
        Some(stamp)
    }

    /// The data node in the process does not have a replica any more, which was as it was said to be.
    pub fn lost_here(&mut self, block: BlockId) {
        if let Some(mut entry) = self.entries.get_mut(&block) {
            (entry.here, entry.is_corrupt_here) = (None, false);
        }
        self.look_at(block);
    }

    /// What a data node is to do now. The log has all changes up to `durable`; nothing is removed or sent while that is `None`: in safe mode, and while the
    /// database is away.
    pub fn duties(&mut self, holder: Holder, durable: Option<Txid>) -> Duties {
        let mut duties = Duties { recoveries: self.take_orders(holder), ..Duties::default() };
        let Some(durable) = durable else { return duties };
        (duties.removals, duties.has_more) = self.removals(holder, durable);
        let under_way = self.sending.get(&holder).copied().unwrap_or(0);
        if let Some(node) = self.nodes.get_mut(holder) {
            let waiting = node.copies.len();
            let count = waiting.min((COPIES_MAX + waiting).saturating_sub(under_way));
            duties.copies = node.copies.drain(..count).collect();
        }
        self.told_to_send(&duties.copies);
        duties
    }

    /// What a data node is to remove now, a part at a time, and whether there may be more.
    pub fn removals(&mut self, holder: Holder, durable: Txid) -> (Vec<(BlockId, Stamp)>, bool) {
        let now = self.nodes.now();
        let Some(node) = self.nodes.get_mut(holder) else { return (Vec::new(), false) };
        node.forget_told(now, TOLD_TIME, AT_ONCE);
        // Those that are not ripe yet soon are: nobody has to look behind them.
        let ripe = node.removals.iter().take(AT_ONCE).filter(|(_, removal)| removal.since <= durable);
        let ripe: Vec<(BlockId, Removal)> = ripe.map(|(block, removal)| (*block, *removal)).collect();
        let has_more = ripe.len() == AT_ONCE;
        let mut removals = Vec::new();
        for (block, removal) in ripe {
            if let Some(node) = self.nodes.get_mut(holder) {
                node.stays(block);
            }
            if !self.is_still_to_go(block, removal, holder) {
                self.look_at(block);
                continue;
            }
            removals.push((block, removal.stamp));
            let places: Vec<Place> = self.others(block).map(|held| held.place).collect();
            for place in places.into_iter().filter(|place| place.holder == holder) {
                self.lost(place, block, Some(removal.stamp));
            }
            if let Some(node) = self.nodes.get_mut(holder) {
                node.tell(block, removal.stamp, now);
            }
        }
        (removals, has_more)
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

    /// What the data node in the process has to send now.
    pub fn take_copies_here(&mut self) -> Vec<Copying> {
        let count = self.copies_here.len().min(COPIES_MAX);
        let copies = self.copies_here.drain(..count).collect::<Vec<_>>();
        self.told_to_send(&copies);
        copies
    }

    /// From now on it is waited for these.
    fn told_to_send(&mut self, copies: &[Copying]) {
        let now = self.nodes.now();
        for copy in copies {
            if let Some(copy) = self.copies.get_mut(&copy.block.id) {
                copy.since = now;
            }
        }
    }

    /// Whether a replica may be taken here that another data node sends: it was asked for, or the block is closed and not here.
    #[must_use]
    pub fn expects_here(&self, block: BlockId, stamp: Stamp) -> bool {
        let Some(entry) = self.entries.get(&block) else { return false };
        let is_wanted = entry.wanted.is_some_and(|wanted| !wanted.is_open && wanted.stamp == stamp);
        is_wanted && entry.here.is_none_or(|(old, _)| old < stamp)
    }

    /// Blocks that have fewer replicas than they should, when they were looked at last.
    #[must_use]
    pub fn low(&self) -> usize {
        self.low.len()
    }

    /// Replicas that are to be removed because there are too many.
    #[must_use]
    pub fn excess(&self) -> usize {
        self.nodes.nodes.iter().map(|node| node.excess).sum()
    }

    /// Replicas that are being sent, and those that data nodes have not been told to send yet.
    #[must_use]
    pub fn copies(&self) -> (usize, usize) {
        let waiting = self.copies_here.len() + self.nodes.nodes.iter().map(|node| node.copies.len()).sum::<usize>();
        (self.copies.len().saturating_sub(waiting), waiting)
    }

    /// Replicas that are to be removed.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.nodes.nodes.iter().map(|node| node.removals.len()).sum()
    }
}
