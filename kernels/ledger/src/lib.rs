//! Lazy work, each piece exactly once: a ledger knows for each granule *untouched, in progress (by whom), done*
//! (BullFrog, section 3.3: the lock and migrate bits of the bitmap tracker, and the procedure that claims).
//!
//! A ledger is a cache of a truth that is kept elsewhere, in the same transaction as the work itself: it is filled from
//! that truth when its process starts, and a granule is marked done only after the work was committed.

use std::collections::BTreeMap;

/// The number of a granule, from 0 on: a page, a group, whatever is worked on as a whole.
pub type Granule = u64;

/// What a claim of a granule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<Owner> {
    /// The granule was untouched; now the claimant has it, and must come to `finish` or `release`.
    Won,
    /// Somebody has it, perhaps the claimant. Wait for the owner, then claim again: it may have given up.
    Busy(Owner),
    /// The work was done and committed.
    Done,
}

/// Granules `0..len` and their states. One bit per granule, and an entry for each that is in progress.
#[derive(Clone, Debug)]
pub struct Ledger<Owner> {
    len: Granule,
    done: Vec<u64>,
    left: u64,
    in_progress: BTreeMap<Granule, Owner>,
}

impl<Owner: Copy + Eq> Ledger<Owner> {
    /// A ledger of `len` untouched granules.
    #[must_use]
    pub fn new(len: Granule) -> Self {
        let words = usize::try_from(len.div_ceil(64)).expect("a bit per granule fits into memory");
        Self { len, done: vec![0; words], left: len, in_progress: BTreeMap::new() }
    }

    /// Claims a granule for `owner`. A granule beyond the end has nothing to do: it is done.
    pub fn claim(&mut self, granule: Granule, owner: Owner) -> Claim<Owner> {
        if self.is_done(granule) {
            return Claim::Done;
        }
        if let Some(busy) = self.in_progress.get(&granule) {
            return Claim::Busy(*busy);
        }
        self.in_progress.insert(granule, owner);
        Claim::Won
    }

    /// Everything that `owner` has in progress was committed.
    pub fn finish(&mut self, owner: Owner) {
        for granule in self.take_claims(owner) {
            self.mark_done(granule);
        }
    }

    /// Everything that `owner` has in progress was undone: others may claim it. To be called after the undoing.
    pub fn release(&mut self, owner: Owner) {
        self.take_claims(owner);
    }

    /// The granule is done, says the truth.
    pub fn mark_done(&mut self, granule: Granule) {
        if !self.is_done(granule) {
            self.done[word(granule)] |= bit(granule);
            self.left -= 1;
        }
    }

    /// The first untouched granule at or after `from`.
    #[must_use]
    pub fn next_untouched(&self, from: Granule) -> Option<Granule> {
        let mut granule = from;
        while granule < self.len {
            let ahead = !self.done[word(granule)] >> (granule % 64);
            if ahead == 0 {
                granule = (granule / 64 + 1) * 64;
                continue;
            }
            granule += u64::from(ahead.trailing_zeros());
            if granule < self.len && !self.in_progress.contains_key(&granule) {
                return Some(granule);
            }
            granule += 1;
        }
        None
    }

    /// How many granules are not done.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    fn is_done(&self, granule: Granule) -> bool {
        granule >= self.len || self.done[word(granule)] & bit(granule) != 0
    }

    fn take_claims(&mut self, owner: Owner) -> Vec<Granule> {
        let taken: Vec<Granule> =
            self.in_progress.iter().filter(|(_, who)| **who == owner).map(|(granule, _)| *granule).collect();
        for granule in &taken {
            self.in_progress.remove(granule);
        }
        taken
    }
}

/// The word that has a granule's bit. Only for granules of a ledger, whose words fit into memory.
fn word(granule: Granule) -> usize {
    usize::try_from(granule / 64).unwrap_or(usize::MAX)
}

fn bit(granule: Granule) -> u64 {
    1 << (granule % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_claimants_wins_and_the_other_learns_who() {
        let mut ledger = Ledger::new(10);
        assert_eq!(ledger.claim(3, 'a'), Claim::Won);
        assert_eq!(ledger.claim(3, 'b'), Claim::Busy('a'));
        assert_eq!(ledger.claim(4, 'b'), Claim::Won);
    }

    #[test]
    fn what_is_finished_is_done_for_everybody() {
        let mut ledger = Ledger::new(10);
        ledger.claim(3, 'a');
        ledger.claim(4, 'b');
        ledger.finish('a');
        assert_eq!(ledger.claim(3, 'b'), Claim::Done);
        assert_eq!(ledger.claim(4, 'a'), Claim::Busy('b'));
        assert_eq!(ledger.left(), 9);
    }

    #[test]
    fn what_is_released_can_be_claimed_by_another() {
        let mut ledger = Ledger::new(10);
        ledger.claim(3, 'a');
        ledger.release('a');
        assert_eq!(ledger.claim(3, 'b'), Claim::Won);
        assert_eq!(ledger.left(), 10);
    }

    #[test]
    fn crossing_claims_never_wait_in_a_circle() {
        let mut ledger = Ledger::new(10);
        assert_eq!((ledger.claim(3, 'a'), ledger.claim(6, 'b')), (Claim::Won, Claim::Won));
        assert_eq!((ledger.claim(6, 'a'), ledger.claim(3, 'b')), (Claim::Busy('b'), Claim::Busy('a')));
        // Neither holds what it has while it waits: each commits, and then finds the other's work done.
        ledger.finish('a');
        ledger.finish('b');
        assert_eq!((ledger.claim(6, 'a'), ledger.claim(3, 'b')), (Claim::Done, Claim::Done));
    }

    #[test]
    fn the_truth_counts_a_granule_once() {
        let mut ledger = Ledger::<char>::new(10);
        ledger.mark_done(9);
        ledger.mark_done(9);
        ledger.mark_done(10);
        assert_eq!(ledger.left(), 9);
    }

    #[test]
    fn there_is_nothing_beyond_the_end() {
        let mut ledger = Ledger::new(64);
        assert_eq!(ledger.claim(64, 'a'), Claim::Done);
        assert_eq!(ledger.next_untouched(64), None);
        assert_eq!(Ledger::<char>::new(0).next_untouched(0), None);
    }

    #[test]
    fn the_sweep_meets_each_untouched_granule_once() {
        let mut ledger = Ledger::new(200);
        let busy = [5, 64, 130];
        for granule in busy {
            ledger.claim(granule, 'c');
        }
        for granule in (0..200).filter(|granule| granule % 3 == 0) {
            ledger.mark_done(granule);
        }
        let mut swept = Vec::new();
        let mut from = 0;
        while let Some(granule) = ledger.next_untouched(from) {
            swept.push(granule);
            from = granule + 1;
        }
        let expected: Vec<Granule> = (0..200).filter(|g| g % 3 != 0 && !busy.contains(g)).collect();
        assert_eq!(swept, expected);
    }
}
