//! How a tenant is flushed and its rows are evicted, step by step: what is to be done next, without I/O.
//!
//! ```text
//!              a few keys a step     all collected          saved            nothing more to merge
//!  Collect ──► Collect ──► Wait ──► Save ──────────► Collect ──► Compact ──────────────► CollectGarbage ──► Done
//!                          the log                   until all of it is there             if anything was merged
//! ```

use savanna_journal::Lsn;
use savanna_tenants_store::{database::Database, flush};
use savanna_tenants_values::error::Result;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`FlushRun::collect`].
    Collect,
    /// Wait until the log is durable up to here, then `Collect`.
    WaitDurable(Lsn),
    /// The storage is to write down what was collected, then [`FlushRun::saved`].
    Save,
    /// The storage is to merge segments, then [`FlushRun::compacted`].
    Compact,
    /// The storage is to remove what nobody reads any more, then nothing.
    CollectGarbage,
    /// Nothing.
    Done,
}

/// A flush of a tenant. If anything that it asks for fails, the next one begins anew; what was collected is not lost.
#[derive(Clone, Copy, Debug)]
pub struct FlushRun {
    keys_max: usize,
    saved: bool,
    merged: bool,
}

impl FlushRun {
    /// A flush that looks at so many keys in a step, and begins with [`Step::Collect`].
    #[must_use]
    pub const fn new(keys_max: usize) -> Self {
        Self { keys_max, saved: false, merged: false }
    }

    /// Collects some of what the storage does not have. It may have all of it, or still get it from an earlier flush.
    ///
    /// # Errors
    /// Those of the log.
    pub fn collect(&mut self, database: &mut Database) -> Result<Step> {
        Ok(match database.flush(self.keys_max)? {
            flush::Flush::Clean => Step::Compact,
            flush::Flush::Done if self.saved => Step::Compact,
            flush::Flush::More | flush::Flush::Done => Step::Collect,
            flush::Flush::Wait(lsn) => Step::WaitDurable(lsn),
            flush::Flush::Sealed => Step::Save,
        })
    }

    /// The storage has written it down.
    pub const fn saved(&mut self) -> Step {
        self.saved = true;
        Step::Collect
    }

    /// The storage has merged some segments, or there was nothing to be merged.
    pub const fn compacted(&mut self, merged: bool) -> Step {
        self.merged |= merged;
        match (merged, self.merged) {
            (true, _) => Step::Compact,
            (false, true) => Step::CollectGarbage,
            (false, false) => Step::Done,
        }
    }
}

/// An eviction: rows that the storage has are forgotten until no more than so many bytes are in memory.
#[derive(Clone, Debug)]
pub struct Eviction {
    bytes: u64,
    keys_max: usize,
    from: Vec<u8>,
    /// How often it came to the end of the keys.
    ends: u32,
}

impl Eviction {
    /// Down to so many bytes, with so many keys a step, from where an earlier one has stopped.
    #[must_use]
    pub const fn new(bytes: u64, keys_max: usize, from: Vec<u8>) -> Self {
        Self { bytes, keys_max, from, ends: 0 }
    }

    /// Forgets some rows. Whether there is more to be done: first what is behind the place where it began, then all keys once.
    pub fn step(&mut self, database: &mut Database) -> bool {
        if self.ends == 2 || database.memory_bytes() <= self.bytes {
            return false;
        }
        let next = database.evict(std::mem::take(&mut self.from), self.keys_max);
        self.ends += u32::from(next.is_none());
        self.from = next.unwrap_or_default();
        true
    }

    /// Where the next one goes on.
    #[must_use]
    pub fn into_place(self) -> Vec<u8> {
        self.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_merged_until_there_is_nothing_to_be_merged_and_garbage_is_collected_if_any_was() {
        let mut run = FlushRun::new(1);
        assert_eq!(run.compacted(false), Step::Done);
        let mut run = FlushRun::new(1);
        assert_eq!([run.compacted(true), run.compacted(true)], [Step::Compact; 2]);
        assert_eq!(run.compacted(false), Step::CollectGarbage);
    }
}
