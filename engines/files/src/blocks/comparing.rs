//! Reports of all replicas that a storage has: they are compared with what is known, a part at a time, while more is said.

use std::fmt;
use std::ops::Bound;

use super::nodes::Place;
use super::{Blocks, Replica, State};
use crate::ids::BlockId;

/// A report of all that a storage has, and how far it was compared with what is known.
#[derive(Debug)]
pub struct Comparison {
    place: Place,
    /// How often its data node had registered when it said so.
    registered: u64,
    /// In the order of blocks.
    replicas: Vec<(Replica, State)>,
    at: usize,
    /// The block that was compared last.
    last: Option<BlockId>,
}

/// The data node has registered again since, or was silent for too long: what it said before does not count any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredAgain;

impl fmt::Display for RegisteredAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expected a report of a data node that has not registered again since, or was not silent for too long; it reports again")
    }
}

impl Comparison {
    /// A report of all that a storage has whose data node had registered so often by then.
    #[must_use]
    pub fn new(place: Place, registered: u64, mut replicas: Vec<(Replica, State)>) -> Self {
        // They may be many: this is done before anybody is held up.
        replicas.sort_unstable_by_key(|(replica, _)| replica.block);
        Self { place, registered, replicas, at: 0, last: None }
    }

    /// The next block that is known, or that the report has, and what it says of it.
    fn next(&mut self, known: Option<BlockId>) -> Option<(BlockId, Option<(Replica, State)>)> {
        let said = self.replicas.get(self.at).copied();
        let said = said.filter(|(replica, _)| known.is_none_or(|known| replica.block <= known));
        let block = said.map(|(replica, _)| replica.block).or(known)?;
        self.at += usize::from(said.is_some());
        self.last = Some(block);
        Some((block, said))
    }
}

impl Blocks {
    /// A report of all that a storage has begins to be compared.
    ///
    /// # Errors
    /// [`RegisteredAgain`].
    pub fn begin_comparing(&mut self, comparison: &Comparison) -> Result<(), RegisteredAgain> {
        self.check_registered(comparison)?;
        if let Some(storage) = self.nodes.storage_mut(comparison.place) {
            storage.comparing += 1;
        }
        Ok(())
    }

    fn check_registered(&self, comparison: &Comparison) -> Result<(), RegisteredAgain> {
        let registered = self.nodes.registered(comparison.place.holder);
        if registered == comparison.registered { Ok(()) } else { Err(RegisteredAgain) }
    }

    /// Compares at most so many blocks: the storage has what the report says, and has no more what it does not say. What was said of a block since it began is newer
    /// than the report. Whether there is more; if not, the storage has reported all that it has.
    ///
    /// # Errors
    /// [`RegisteredAgain`].
    pub fn compare(&mut self, comparison: &mut Comparison, most: usize) -> Result<bool, RegisteredAgain> {
        self.check_registered(comparison)?;
        let place = comparison.place;
        for _ in 0..most {
            let Some(storage) = self.nodes.storage_of(place) else { return Ok(false) };
            let behind = (comparison.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let Some((block, said)) = comparison.next(storage.blocks.range(behind).next().copied()) else {
                self.end_comparing(place);
                return Ok(false);
            };
            if storage.said_since.contains(&block) {
                continue;
            }
            match said {
                Some((replica, state)) => self.take_held(place, replica, state),
                None => self.take_lost(place, block, None),
            }
        }
        Ok(true)
    }

    fn end_comparing(&mut self, place: Place) {
        let Some(storage) = self.nodes.storage_mut(place) else { return };
        storage.comparing = storage.comparing.saturating_sub(1);
        if storage.comparing == 0 {
            storage.said_since.clear();
        }
        storage.has_reported = true;
    }
}
