//! Lazy work, each piece exactly once: a ledger knows who has which piece in progress (BullFrog, section 3.3: the lock bits of
//! the tracker, and the procedure that claims). Whether a piece is *done* is said by a truth that is kept elsewhere, in the same
//! transaction as the work itself.
//!
//! ```text
//! claim  ->  look whether it is done (after the claim: what an earlier owner committed is seen)  ->  work, commit  ->  release
//! ```
//!
//! A claim lasts until it is released or its owner has ended, whichever is first: an owner that dies, or whose work is undone,
//! leaves nothing behind that somebody would have to clean up.
//!
//! The ledger is of fixed size and has no pointers, so that processes can share it, and a claim takes the same few steps however
//! many there are. When it has no room for a claim it says so, and the truth alone decides.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Claims that share one place of the table.
const WAYS: usize = 8;

/// What a claim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<Owner> {
    /// The claimant has it.
    Won,
    /// Somebody else has it. Wait for the owner, then claim again: it may have given up.
    Busy(Owner),
    /// There is no room. The truth decides: two may do the work, and one of them finds out when it writes the truth.
    Full,
}

/// Which piece of work (`Name`) is in progress, and with whom. Room for `8 * SETS` claims.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<Name, Owner, const SETS: usize> {
    sets: [[Option<(Name, Owner)>; WAYS]; SETS],
}

impl<Name: Copy, Owner: Copy, const SETS: usize> Default for Ledger<Name, Owner, SETS> {
    fn default() -> Self {
        Self { sets: [[None; WAYS]; SETS] }
    }
}

impl<Name: Copy + Eq + Hash, Owner: Copy + Eq, const SETS: usize> Ledger<Name, Owner, SETS> {
    /// Claims a piece of work for `owner`. `has_ended` tells of another owner whether what it did is committed or undone.
    pub fn claim(&mut self, name: Name, owner: Owner, has_ended: impl Fn(Owner) -> bool) -> Claim<Owner> {
        let set = self.set(name);
        if let Some((_, holder)) = set.iter_mut().flatten().find(|(claimed, _)| *claimed == name) {
            if *holder != owner && !has_ended(*holder) {
                return Claim::Busy(*holder);
            }
            *holder = owner;
            return Claim::Won;
        }
        let is_free = |way: &Option<(Name, Owner)>| way.is_none_or(|(_, holder)| holder != owner && has_ended(holder));
        let place = set.iter().position(Option::is_none).or_else(|| set.iter().position(is_free));
        let Some(place) = place else {
            return Claim::Full;
        };
        set[place] = Some((name, owner));
        Claim::Won
    }

    /// Gives up what `owner` has of this piece, if anything. To be called when what it did is committed or undone.
    pub fn release(&mut self, name: Name, owner: Owner) {
        for way in self.set(name) {
            if *way == Some((name, owner)) {
                *way = None;
            }
        }
    }

    /// Who claimed a piece of work last, be it that it has ended.
    pub fn holder(&self, name: Name) -> Option<Owner> {
        self.sets[Self::place(name)].iter().flatten().find(|(claimed, _)| *claimed == name).map(|(_, holder)| *holder)
    }

    /// The claims among which that of `name` is.
    fn set(&mut self, name: Name) -> &mut [Option<(Name, Owner)>; WAYS] {
        &mut self.sets[Self::place(name)]
    }

    fn place(name: Name) -> usize {
        // The same in every process: the keys of this hasher are fixed.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        (hasher.finish() % SETS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    type Small = Ledger<u64, char, 4>;

    fn nobody(_: char) -> bool {
        false
    }

    #[test]
    fn one_of_two_claimants_wins_and_the_other_learns_who() {
        let mut ledger = Small::default();
        assert_eq!(ledger.claim(3, 'a', nobody), Claim::Won);
        assert_eq!(ledger.claim(3, 'b', nobody), Claim::Busy('a'));
        assert_eq!(ledger.claim(3, 'a', nobody), Claim::Won);
        assert_eq!(ledger.claim(4, 'b', nobody), Claim::Won);
    }

    #[test]
    fn what_is_released_can_be_claimed_by_another() {
        let mut ledger = Small::default();
        ledger.claim(3, 'a', nobody);
        ledger.release(3, 'b');
        assert_eq!(ledger.claim(3, 'b', nobody), Claim::Busy('a'));
        assert_eq!((ledger.holder(3), ledger.holder(4)), (Some('a'), None));
        ledger.release(3, 'a');
        assert_eq!(ledger.holder(3), None);
        assert_eq!(ledger.claim(3, 'b', nobody), Claim::Won);
    }

    #[test]
    fn the_claims_of_an_owner_end_with_it() {
        let mut ledger = Small::default();
        ledger.claim(3, 'a', nobody);
        assert_eq!(ledger.claim(3, 'b', |owner| owner == 'a'), Claim::Won);
        assert_eq!(ledger.claim(3, 'a', nobody), Claim::Busy('b'));
    }

    #[test]
    fn crossing_claims_never_wait_in_a_circle() {
        let mut ledger = Small::default();
        assert_eq!((ledger.claim(3, 'a', nobody), ledger.claim(6, 'b', nobody)), (Claim::Won, Claim::Won));
        assert_eq!((ledger.claim(6, 'a', nobody), ledger.claim(3, 'b', nobody)), (Claim::Busy('b'), Claim::Busy('a')));
        // Neither holds what it has while it waits: each commits, and then finds the other's work done.
        ledger.release(3, 'a');
        ledger.release(6, 'b');
        assert_eq!((ledger.claim(6, 'a', nobody), ledger.claim(3, 'b', nobody)), (Claim::Won, Claim::Won));
    }

    #[test]
    fn a_ledger_without_room_says_so_until_an_owner_has_ended() {
        let mut ledger = Ledger::<u64, char, 1>::default();
        for name in 0..WAYS as u64 {
            assert_eq!(ledger.claim(name, 'a', nobody), Claim::Won);
        }
        assert_eq!(ledger.claim(100, 'b', nobody), Claim::Full);
        assert_eq!(ledger.claim(3, 'b', nobody), Claim::Busy('a'));
        assert_eq!(ledger.claim(100, 'b', |owner| owner == 'a'), Claim::Won);
    }

    /// Workers claim, work and end in random order; the checker fails if two of them have the same piece at the same time.
    fn run(seed: u64, has_ended: impl Fn(&BTreeSet<u64>, u64) -> bool) -> Result<(), String> {
        let mut ledger = Ledger::<u64, u64, 8>::default();
        let mut running = BTreeSet::new();
        let mut held = BTreeMap::<u64, u64>::new();
        let (mut random, mut next_owner) = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, 0);
        let mut draw = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for _ in 0..2000 {
            let chosen = running.iter().copied().nth(draw(6) as usize);
            match (chosen, draw(8)) {
                (Some(owner), 0) => {
                    // Half of them clean up, half die.
                    running.remove(&owner);
                    for (name, _) in held.extract_if(.., |_, holder| *holder == owner) {
                        if owner % 2 == 0 {
                            ledger.release(name, owner);
                        }
                    }
                }
                (Some(owner), _) => {
                    let name = draw(40);
                    if ledger.claim(name, owner, |other| has_ended(&running, other)) == Claim::Won
                        && held.insert(name, owner).is_some_and(|other| other != owner)
                    {
                        return Err(format!("seed {seed}: {name} was claimed by two"));
                    }
                }
                (None, _) => {
                    next_owner += 1;
                    running.insert(next_owner);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn no_two_have_the_same_piece_at_the_same_time() {
        for seed in 1..200 {
            run(seed, |running, owner| !running.contains(&owner)).unwrap();
        }
    }

    #[test]
    fn the_checker_notices_owners_that_are_taken_for_ended() {
        assert!((1..20).any(|seed| run(seed, |running, owner| !running.contains(&owner) || owner % 5 == 0).is_err()));
    }
}
