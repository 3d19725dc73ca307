//! Reports of all replicas that a storage has: they are compared with what is known, a part at a time, while more is said.

use std::fmt;
use std::ops::Bound;

use super::nodes::{Holder, Place};
use super::{Blocks, Replica, State};
use crate::ids::BlockId;

/// A report of all that a storage has has come: what is said of the storage from now on is newer than it.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    place: Place,
    /// How often its data node had registered when it said so.
    registered: u64,
    /// Which one of the storage it is.
    number: u64,
}

/// A report of all that a storage has, and how far it was compared with what is known.
#[derive(Debug)]
pub struct Comparison {
    begun: Begun,
    /// In the order of blocks.
    replicas: Vec<(Replica, State)>,
    at: usize,
    /// The block that was compared last.
    last: Option<BlockId>,
}

/// Why a report does not count any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// The data node has registered again since, or was silent for too long.
    RegisteredAgain,
    /// The storage was reported again.
    ReportedAgain,
}

impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RegisteredAgain => "Expected a report of a data node that has not registered again since, or was not silent for too long; it reports again",
            Self::ReportedAgain => "Expected the newest report of a storage, came an older one; the newer one counts",
        })
    }
}

impl Comparison {
    /// A report that has come says this.
    #[must_use]
    pub fn new(begun: Begun, mut replicas: Vec<(Replica, State)>) -> Self {
        // They may be many: this is done while nobody is held up.
        replicas.sort_unstable_by_key(|(replica, _)| replica.block);
        Self { begun, replicas, at: 0, last: None }
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
    /// A report of all that a storage has has come, which is going to be compared. Those that came before it do not count any more. None if there are too many storages,
    /// or no such data node.
    pub fn begin_comparing(&mut self, holder: Holder, storage: &str, kind: i32) -> Option<Begun> {
        let place = self.storage(holder, storage, kind)?;
        let registered = self.nodes.registered(holder);
        let number = self.nodes.storage_mut(place)?.begin_comparing();
        Some(Begun { place, registered, number })
    }

    /// Compares at most so many blocks: the storage has what the report says, and has no more what it does not say. What was said of a block since it came is newer
    /// than the report; so is that the storage is left out, and then nothing is compared. Whether there is more; if not, the storage has reported all that it has.
    ///
    /// # Errors
    /// [`Outdated`].
    pub fn compare(&mut self, comparison: &mut Comparison, most: usize) -> Result<bool, Outdated> {
        let Begun { place, registered, number } = comparison.begun;
        if self.nodes.registered(place.holder) != registered {
            return Err(Outdated::RegisteredAgain);
        }
        match self.nodes.storage_of(place).map(|storage| storage.is_newest(number)) {
            Some(true) => {}
            Some(false) => return Err(Outdated::ReportedAgain),
            None => return Ok(false),
        }
        for _ in 0..most {
            let Some(storage) = self.nodes.storage_of(place).filter(|storage| storage.is_comparing) else {
                return Ok(false);
            };
            let behind = (comparison.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let Some((block, said)) = comparison.next(storage.blocks.range(behind).next().copied()) else {
                self.nodes.end_comparing(place);
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
}
