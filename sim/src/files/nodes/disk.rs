//! What a data node has on its disk.

use std::collections::BTreeMap;

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use savanna_files::blocks::{Here, State};
use savanna_files::ids::{BlockId, Stamp};

/// A replica.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) stamp: Stamp,
    /// The numbers of its bytes.
    pub(super) bytes: Vec<u32>,
    /// So many of them survive the end of the machine.
    flushed: usize,
    pub(super) state: State,
    /// Others end it under this generation: nobody writes it.
    ending: Option<Stamp>,
    /// The process to which its client wrote has ended.
    is_cut_off: bool,
}

impl Stored {
    pub(super) fn whole(stamp: Stamp, bytes: Vec<u32>) -> Self {
        Self { stamp, flushed: bytes.len(), bytes, state: State::Whole, ending: None, is_cut_off: false }
    }

    pub(super) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether a client writes it under a generation.
    fn is_of(&self, stamp: Stamp) -> bool {
        self.stamp == stamp && self.state == State::Begun && self.ending.is_none() && !self.is_cut_off
    }

    /// Whether it is all of a generation.
    pub(super) fn is_all(&self, stamp: Stamp, length: u64) -> bool {
        self.state == State::Whole && (self.stamp, self.length()) == (stamp, length)
    }
}

/// Why a replica is not ended.
pub(super) enum Refused {
    /// Others end it, who began later.
    Late,
    /// It cannot be.
    Failed,
}

/// All replicas.
#[derive(Debug, Default)]
pub(super) struct Disk(pub(super) BTreeMap<BlockId, Stored>);

impl Disk {
    pub(super) fn look(&self, block: BlockId) -> Option<Here> {
        let stored = self.0.get(&block)?;
        Some(Here { stamp: stored.stamp, length: stored.length(), state: stored.state })
    }

    /// A client begins to write. One that is there may only be of an older generation, and not whole.
    pub(super) fn begin(&mut self, block: BlockId, stamp: Stamp) -> bool {
        if self.0.get(&block).is_some_and(|old| old.state == State::Whole || old.stamp >= stamp) {
            return false;
        }
        self.0.insert(block, Stored { state: State::Begun, ..Stored::whole(stamp, Vec::new()) });
        true
    }

    /// A client goes on under a new generation behind so many bytes; what is behind them was not acknowledged.
    pub(super) fn go_on(&mut self, block: BlockId, stamp: Stamp, length: usize, is_here: bool) -> bool {
        let Some(stored) = self.0.get_mut(&block) else { return false };
        let is_usable = match stored.state {
            State::Begun => stored.bytes.len() >= length,
            State::Whole => stored.bytes.len() == length,
            State::Left => is_here && stored.bytes.len() >= length,
        };
        if !is_usable || stored.stamp > stamp || stored.ending.is_some() {
            return false;
        }
        if !is_here {
            stored.bytes.truncate(length);
        }
        stored.flushed = stored.flushed.min(stored.bytes.len());
        (stored.stamp, stored.state, stored.is_cut_off) = (stamp, State::Begun, false);
        true
    }

    /// Writes bytes; those may be there that were not acknowledged.
    pub(super) fn write(&mut self, block: BlockId, stamp: Stamp, at: usize, bytes: &[u32]) -> bool {
        let Some(stored) = self.0.get_mut(&block) else { return false };
        if !stored.is_of(stamp) || stored.bytes.len() < at {
            return false;
        }
        let end = (at + bytes.len()).min(stored.bytes.len());
        stored.bytes.splice(at..end, bytes.iter().copied());
        true
    }

    pub(super) fn flush(&mut self, block: BlockId) {
        if let Some(stored) = self.0.get_mut(&block) {
            stored.flushed = stored.bytes.len();
        }
    }

    /// Its writer ends it.
    pub(super) fn finish(&mut self, block: BlockId, stamp: Stamp, length: usize) -> bool {
        let Some(stored) = self.0.get_mut(&block) else { return false };
        let is_its = stored.is_of(stamp);
        if is_its {
            stored.bytes.truncate(length);
            *stored = Stored::whole(stamp, std::mem::take(&mut stored.bytes));
        }
        is_its
    }

    /// Others are about to end it under a new generation. What it is.
    pub(super) fn begin_ending(&mut self, block: BlockId, newer: Stamp) -> Result<Option<Here>, Refused> {
        let found = self.look(block);
        let Some(stored) = self.0.get_mut(&block) else { return Ok(None) };
        if stored.ending.is_some_and(|other| other > newer) {
            return Err(Refused::Late);
        }
        if stored.stamp >= newer {
            return Err(Refused::Failed);
        }
        stored.ending = Some(newer);
        Ok(found)
    }

    /// They have agreed on a length.
    pub(super) fn end_as_agreed(&mut self, block: BlockId, newer: Stamp, length: u64) -> bool {
        let is_begun = self.0.get(&block).is_some_and(|stored| stored.ending == Some(newer));
        is_begun && self.end(block, newer, length, length).is_some()
    }

    /// Ends a replica that has at least so many bytes, and cuts it to at most so many. How many it has then; nothing if it cannot be.
    pub(super) fn end(&mut self, block: BlockId, newer: Stamp, least: u64, most: u64) -> Option<u64> {
        let stored = self.0.get_mut(&block)?;
        if stored.stamp.max(stored.ending.unwrap_or_default()) > newer || stored.length() < least {
            return None;
        }
        stored.bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        *stored = Stored::whole(newer, std::mem::take(&mut stored.bytes));
        Some(stored.length())
    }

    /// Its process ends: a data node of Hadoop calls what it wrote left.
    pub(super) fn end_process(&mut self, is_here: bool) {
        for stored in self.0.values_mut() {
            (stored.ending, stored.is_cut_off) = (None, true);
            if stored.state == State::Begun && !is_here {
                stored.state = State::Left;
            }
        }
    }

    /// Its machine ends.
    pub(super) fn lose_power(&mut self, dice: &mut ChaCha8Rng) {
        for stored in self.0.values_mut() {
            stored.ending = None;
            if stored.state != State::Whole {
                let kept = dice.random_range(stored.flushed..=stored.bytes.len());
                stored.bytes.truncate(kept);
                (stored.flushed, stored.state) = (kept, State::Left);
            }
        }
    }
}
