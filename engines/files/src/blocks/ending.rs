//! Blocks whose writers have gone: who ends each, together with whom, and whether what comes of it counts.
//!
//! Hadoop's data node asks all that it is told of, takes the best kind of what it reaches (written to its end, before being written, before left by a writer that went
//! with its data node), and cuts all of that kind to the shortest. So nobody is named beside others who may have less than they: who has all that was
//! acknowledged for certain, or else, when all have said what they have, who has the most.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes::{Holder, Liveness, Place};
use super::{Blocks, Held, Replica, State};
use crate::ids::{BlockId, Millis, Stamp};
use crate::operation::Recovery;
use crate::request::BlockName;

/// So long it is waited for somebody who can end a block.
const NOBODY_TIME: u64 = 5_000;
/// So long it is waited for the end of a block.
const CLOSING_TIME: u64 = 60_000;

/// A block that has to be ended by a data node, with the others that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryOrder {
    /// The block, under the oldest generation that counts, with the bytes that it has at least.
    pub block: BlockName,
    /// The generation under which it is ended.
    pub stamp: Stamp,
    /// To how many bytes it is cut, if it is to be.
    pub cut: Option<u64>,
    /// Who has it.
    pub places: Vec<Place>,
}

impl RecoveryOrder {
    /// Whether the block may be ended with so many bytes: those to which it is to be cut, or no fewer than were acknowledged, as far as is known.
    #[must_use]
    pub fn fits(&self, length: u64) -> bool {
        self.cut.map_or(length >= self.block.length, |cut| length == cut)
    }

    fn names(&self, holder: Holder) -> bool {
        self.places.iter().any(|place| place.holder == holder)
    }
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

/// Why it does not count what a data node says of the end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEnded {
    /// That was begun anew, or is done.
    Unknown,
    /// It was ended with one that was not named for it.
    Stranger(Holder),
    /// It was ended with nobody.
    OfNobody,
    /// Somebody may have bytes of it.
    SomebodyHas,
    /// It has fewer bytes than so many, which were acknowledged, or more than a block may have.
    Misfit(u64),
}

/// What the data node in the process has of a block that is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes.
    pub length: u64,
    /// What it is.
    pub state: State,
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
    /// It is begun anew without waiting.
    is_due: bool,
    /// One that it names has begun anew since, and may have less than before: what comes of it does not count.
    is_void: bool,
    /// All who may have something of it, and whether there are no others.
    holders: BTreeSet<Holder>,
    knows_all: bool,
    learned: Learned,
}

impl Closing {
    /// A data node has begun anew: it may have what it said that it lacks, and less than it had of the rest.
    pub(super) fn begins_anew(&mut self, holder: Holder) {
        self.learned.none.remove(&holder);
        if self.primary.is_some() && self.order.names(holder) {
            (self.is_due, self.is_void) = (true, true);
            self.primary = self.primary.filter(|_| self.is_told);
        }
    }

    /// A data node says that it has so many bytes of a generation.
    pub(super) fn has(&mut self, holder: Holder, stamp: Stamp, length: u64) {
        if stamp >= self.order.block.stamp && length > 0 {
            self.learned.none.remove(&holder);
        }
    }

    /// More is known of what data nodes have: if nobody can end it, it is looked again.
    pub(super) const fn look_again(&mut self) {
        self.is_due |= self.primary.is_none();
    }
}

/// What earlier attempts to end a block have shown.
#[derive(Clone, Debug, Default)]
struct Learned {
    /// The generation under which it was written, if that is known.
    written: Option<Stamp>,
    /// Those who have said of themselves that they have nothing.
    none: BTreeSet<Holder>,
    /// One has said that none of several has anything, and may have failed to look at its own, or to reach others: each is asked alone.
    asks_alone: bool,
    /// Who was asked last.
    asked: Option<Holder>,
}

/// What somebody may have of a block that is to be ended.
#[derive(Clone, Copy, Debug)]
struct Part {
    place: Place,
    state: State,
    /// Its bytes, unless it is being written: then they are not known.
    length: u64,
    /// It has all that was acknowledged. What a writer left has not, perhaps, nor what an end made that did not count.
    is_full: bool,
}

impl Blocks {
    /// Who may have something of a block that was written under a generation, each data node once. What it said counts for more than where it was to write: it
    /// chooses its disks itself.
    fn parts(
        &self,
        (block, least, is_cut): (BlockId, u64, bool),
        here: Option<Here>,
        old: Stamp,
        none: &BTreeSet<Holder>,
    ) -> BTreeMap<Holder, Part> {
        let pipeline = || self.pipelines.get(&block).into_iter().flat_map(|pipeline| &pipeline.places);
        // Who has registered since, and reported, has what it has reported.
        let writes = |(place, before): &&(Place, u64)| {
            self.nodes.registered(place.holder) == *before || !self.nodes.is_sure(place.holder)
        };
        let written = pipeline().filter(writes).map(|(place, _)| *place);
        let written = written.map(|place| Part { place, state: State::Begun, length: 0, is_full: true });
        let mut parts: BTreeMap<Holder, Part> = written.map(|part| (part.place.holder, part)).collect();
        let others = self.others(block);
        let mut said: Vec<&Held> = others.filter(|held| held.stamp >= old).collect();
        said.sort_by_key(|held| held.length);
        for Held { place, state, length, stamp, registered, .. } in said {
            // Hadoop's data node flushes nothing when a block is ended: behind the end of its machine it may be called whole, and lack its end.
            let has_written = |(other, before): &(Place, u64)| other.holder == place.holder && before == registered;
            let is_full = match state {
                State::Begun => true,
                State::Whole => *stamp == old && *length >= least && (is_cut || pipeline().any(has_written)),
                State::Left => false,
            };
            parts.insert(place.holder, Part { place: *place, state: *state, length: *length, is_full });
        }
        parts.remove(&Holder::HERE);
        if let Some(Here { state, length, .. }) = here.filter(|here| here.stamp >= old) {
            let is_full = match state {
                State::Begun => true,
                // Here nothing is ended but what counts.
                State::Whole => length >= least,
                State::Left => false,
            };
            parts.insert(Holder::HERE, Part { place: Place::HERE, state, length, is_full });
        }
        parts.retain(|holder, _| !none.contains(holder));
        parts
    }

    /// Who ends the last block of a file whose writer has gone, or that is to be cut. `here` is what the data node in the process has of it.
    pub fn close(&mut self, recovery: Recovery, here: Option<Here>) -> Ended {
        let Some((block, newer)) = recovery.block else { return Ended::Here };
        if self.nodes.are_alone() {
            return Ended::Here;
        }
        if self.closings.get(&block).is_some_and(|closing| closing.order.stamp > newer) {
            // Another end of it was begun since, and is waited for.
            return Ended::Nobody;
        }
        let mut learned = self.closings.remove(&block).map(|closing| closing.learned).unwrap_or_default();
        learned.written = recovery.old.or(learned.written);
        let is_unheard = self.nodes.is_anybody_unheard(block);
        // Those who wrote it are known, or all have said what they have.
        let knows_all = self.pipelines.get(&block).is_some_and(|pipeline| pipeline.is_all) || !is_unheard;
        let others =
            self.others(block).filter(|held| !learned.none.contains(&held.place.holder)).map(|held| held.stamp);
        let newest = others.chain(here.map(|here| here.stamp)).max();
        let mut old = learned.written.or(newest).unwrap_or(newer);
        let is_cut = recovery.length.is_some();
        let name = (block, recovery.least, is_cut);
        let mut parts = self.parts(name, here, old, &learned.none);
        // Who was not heard of yet may have the generation of the writer.
        let may_come = parts.is_empty() && learned.written.is_some() && is_unheard;
        if parts.is_empty()
            && knows_all
            && !may_come
            && let Some(newest) = newest
        {
            // Nobody has the generation of the writer any more: the newest that there is has to do.
            old = newest;
            parts = self.parts(name, here, old, &learned.none);
        }
        let holders: BTreeSet<Holder> = parts.keys().copied().collect();
        // Who has begun anew and not reported yet may have less than it had.
        let is_there = |part: &Part| self.nodes.is_sure(part.place.holder);
        let are_all_there = knows_all && parts.values().all(is_there);
        let has_full = parts.values().any(|part| part.is_full);
        parts.retain(|_, part| is_there(part));
        if parts.values().any(|part| part.is_full) || has_full && !is_cut {
            parts.retain(|_, part| part.is_full);
        }
        // Of what does not change any more only the longest can have all: others were cut when a machine lost its power, or by an end that was refused.
        let longest = parts.values().filter(|part| part.state != State::Begun).map(|part| part.length).max();
        // There are clients that go on here under the generation that others have as a whole.
        let here = parts.get(&Holder::HERE).filter(|_| !is_cut).map_or(0, |part| part.length);
        let is_long = |part: &Part| {
            let is_longest = Some(part.length) == longest && part.length >= here;
            part.state == State::Begun || part.length >= recovery.least && is_longest
        };
        parts.retain(|_, part| is_long(part));
        let leader = self.leader(&parts, learned.asked);
        let awaits = !self.nodes.awaited().is_empty();
        let waits = if parts.is_empty() {
            // What is here alone and has too little is told to who wants the file closed.
            awaits || !knows_all || may_come || holders.iter().any(|holder| *holder != Holder::HERE)
        } else if !has_full && !is_cut && !are_all_there {
            // Somebody who is away may have more.
            true
        } else if leader.is_some() {
            // Who is waited for may have a newer generation.
            learned.written.is_none() && awaits
        } else {
            awaits || learned.written.is_none() && is_unheard
        };
        if leader.is_none() && !waits {
            return Ended::Here;
        }
        let primary = leader.filter(|_| !waits);
        learned.asked = primary.or(learned.asked);
        parts.retain(|holder, _| !learned.asks_alone || Some(*holder) == primary);
        let least = recovery.least.max(longest.filter(|_| !is_cut).unwrap_or(0));
        let order = RecoveryOrder {
            block: BlockName { id: block, stamp: old, length: least },
            stamp: newer,
            cut: recovery.length,
            places: parts.values().map(|part| part.place).collect(),
        };
        let since = self.nodes.now();
        let (is_told, is_due, is_void) = (false, false, false);
        let closing =
            Closing { recovery, order, primary, since, is_told, is_due, is_void, holders, knows_all, learned };
        self.closings.insert(block, closing);
        if primary.is_some() { Ended::Elsewhere } else { Ended::Nobody }
    }

    /// Which of them is to end a block: the one that was heard of last, and the next one in its turn if that was in vain; one that is silent only if all are.
    fn leader(&self, parts: &BTreeMap<Holder, Part>, asked: Option<Holder>) -> Option<Holder> {
        let others = || parts.keys().copied().filter(|holder| *holder != Holder::HERE);
        let live = || others().filter(|holder| self.nodes.liveness(*holder) == Liveness::Live);
        let heard = |holder: &Holder| self.nodes.get(*holder).map(|node| node.heard);
        let next = asked.and_then(|asked| live().find(|holder| *holder > asked).or_else(|| live().next()));
        next.or_else(|| others().max_by_key(heard))
    }

    /// What a data node has to end that it was not told of.
    pub(super) fn take_orders(&mut self, holder: Holder) -> Vec<RecoveryOrder> {
        let new = |closing: &&mut Closing| closing.primary == Some(holder) && !closing.is_told;
        let new = self.closings.values_mut().filter(new);
        new.map(|closing| {
            closing.is_told = true;
            closing.order.clone()
        })
        .collect()
    }

    /// The recovery that a data node says it has done, if that is still wanted.
    #[must_use]
    pub fn closing(&self, block: BlockId, stamp: Stamp) -> Option<(Recovery, &RecoveryOrder)> {
        let closing = self.closings.get(&block)?;
        (closing.order.stamp == stamp && !closing.is_void).then_some((closing.recovery, &closing.order))
    }

    /// A data node says that it has ended a block with those that have it at some places: so many bytes, of as many as a block may have; or that nobody has any.
    /// `here` is what the data node in the process has of it. What is done by that.
    ///
    /// # Errors
    /// [`NotEnded`].
    pub fn ended(
        &mut self,
        (block, stamp): (BlockId, Stamp),
        (length, most): (Option<u64>, u64),
        places: &[Place],
        here: Option<Here>,
    ) -> Result<Recovery, NotEnded> {
        let (recovery, order) = self.closing(block, stamp).ok_or(NotEnded::Unknown)?;
        let order = order.clone();
        if let Some(stranger) = places.iter().find(|place| !order.names(place.holder)) {
            return Err(NotEnded::Stranger(stranger.holder));
        }
        let Some(length) = length else {
            let is_here = here.is_some_and(|here| here.stamp >= order.block.stamp && here.length > 0);
            let nobody_has = self.nobody_has(block);
            return if nobody_has && !is_here { Ok(recovery) } else { Err(NotEnded::SomebodyHas) };
        };
        if places.is_empty() {
            return Err(NotEnded::OfNobody);
        }
        for place in places.iter().filter(|place| place.holder != Holder::HERE && length <= most) {
            // Also if that is too little: whoever has it is not asked again.
            self.held(*place, Replica { block, stamp, length }, true);
        }
        if order.fits(length) && length <= most { Ok(recovery) } else { Err(NotEnded::Misfit(order.block.length)) }
    }

    /// The data node that was to end a block says that nobody has any bytes of it. Others it did not reach, perhaps, or it failed to look at its own. Whether it
    /// may be so: nothing was acknowledged as far as is known here, and all have said so of themselves, each asked alone, who may have some. Else it is begun
    /// anew soon.
    pub(super) fn nobody_has(&mut self, block: BlockId) -> bool {
        let Some(oldest) = self.closings.get(&block).map(|closing| closing.order.block.stamp) else { return false };
        let others = self.others(block);
        // What they have said that they have counts for more.
        let have: BTreeSet<Holder> =
            others.filter(|held| held.stamp >= oldest && held.length > 0).map(|held| held.place.holder).collect();
        let Some(closing) = self.closings.get_mut(&block) else { return false };
        let Some(primary) = closing.primary else { return false };
        let is_alone = closing.order.places.iter().all(|place| place.holder == primary);
        if is_alone && have.contains(&primary) {
            return false;
        }
        if is_alone {
            closing.learned.none.insert(primary);
        } else {
            closing.learned.asks_alone = true;
        }
        closing.is_due = true;
        let have_said = closing.holders.iter().all(|holder| closing.learned.none.contains(holder));
        closing.recovery.least == 0 && closing.knows_all && have_said && have.is_empty()
    }

    /// Nobody is waited for any more of those that were there before.
    pub fn await_nobody(&mut self) {
        self.nodes.await_nobody();
        self.closings.values_mut().for_each(Closing::look_again);
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

    /// Recoveries that take too long, and whether a data node was told of each: then it is begun anew, under another generation.
    pub fn overdue(&mut self) -> Vec<(Recovery, bool)> {
        let now = self.nodes.now();
        let patience = |closing: &Closing| if closing.primary.is_some() { CLOSING_TIME } else { NOBODY_TIME };
        let is_late = |closing: &&mut Closing| closing.is_due || now.since(closing.since) > patience(closing);
        let late = self.closings.values_mut().filter(is_late);
        late.map(|closing| {
            (closing.since, closing.is_due) = (now, false);
            (closing.recovery, closing.primary.is_some())
        })
        .collect()
    }

    /// The generation of a block that data nodes know, as long as they end it under another one.
    #[must_use]
    pub fn generation_of_readers(&self, block: BlockId) -> Option<Stamp> {
        Some(self.closings.get(&block)?.order.block.stamp)
    }
}
