//! What a statement has read of the storage, and what it waits for.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use savanna_tenants_segments::{Block, PageId};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Lent,
};
use savanna_transaction::Direction;

/// Blocks that one statement reads at once, at most: 32 MiB of them.
const AHEAD_MAX: u32 = 4_096;
/// The same of one that holds its blocks only for a while.
const AHEAD_IN_PAGES: u32 = 256;
/// Bytes of blocks that such a one holds from one page to the next.
const HELD_BETWEEN_PAGES: usize = 64 << 20;
/// Bytes of blocks that one statement holds. It cannot go on with less than it has read.
const HELD_BYTES_MAX: usize = 512 << 20;

/// Blocks of one segment that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The segment.
    pub segment: u64,
    /// The blocks; there may be fewer in the segment.
    pub blocks: Range<u32>,
}

/// The blocks that a statement has waited for. It holds them until it is done, however full the cache is, and each time that it
/// waits it wants twice as many as the time before: so it runs again a few times, and not once for every block.
#[derive(Debug, Default)]
pub struct Reading {
    held: HashMap<PageId, Arc<Block>>,
    /// The same, in the order in which they came.
    came: VecDeque<PageId>,
    held_bytes: usize,
    /// What they take of the memory that all share.
    lent: Lent,
    waits: u32,
    wanted: Option<Want>,
    /// Whether what it reads is copied as it goes on, so that it does not need all of its blocks to the end.
    in_pages: bool,
}

impl Reading {
    /// Of a statement that reads by pages.
    #[must_use]
    pub fn in_pages() -> Self {
        Self { in_pages: true, ..Self::default() }
    }

    /// Whether it is one.
    pub(crate) const fn is_in_pages(&self) -> bool {
        self.in_pages
    }

    /// The next page begins: blocks that came long ago are not needed any more.
    pub fn next_page(&mut self) {
        while self.held_bytes > HELD_BETWEEN_PAGES
            && let Some(oldest) = self.came.pop_front()
        {
            if let Some(block) = self.held.remove(&oldest) {
                self.held_bytes -= block.bytes().len();
            }
        }
    }

    /// A block that it has waited for.
    pub(crate) fn held(&self, page: PageId) -> Option<Arc<Block>> {
        self.held.get(&page).map(Arc::clone)
    }

    /// Notes that a block is missing, and those that will be next if the reading goes on in a direction. The error ends the
    /// statement's run.
    pub(crate) fn want(&mut self, page: PageId, direction: Direction) -> SqlError {
        let most = if self.in_pages { AHEAD_IN_PAGES } else { AHEAD_MAX };
        let count = 1_u32.checked_shl(self.waits).map_or(most, |count| count.min(most));
        let blocks = match direction {
            Direction::Ascending => page.block..page.block.saturating_add(count),
            Direction::Descending => (page.block + 1).saturating_sub(count)..page.block + 1,
        };
        self.wanted = Some(Want { segment: page.segment, blocks });
        SqlError::internal("a block is waited for")
    }

    /// Whether it has missed a block since it was last asked what it waits for.
    pub fn misses_block(&self) -> bool {
        self.wanted.is_some()
    }

    /// What it waits for, once. What came of its run is to be ignored then.
    pub fn wanted(&mut self) -> Option<Want> {
        let wanted = self.wanted.take();
        self.waits += u32::from(wanted.is_some());
        wanted
    }

    /// Lets it take its memory where somebody else does.
    pub fn share(&mut self, with: &Lent) {
        if self.held.is_empty() {
            self.lent = with.clone();
        }
    }

    /// Gives it what it waited for.
    ///
    /// # Errors
    /// 53200 if that is more than one statement may hold, or all of them.
    pub fn arrived(&mut self, blocks: &[(PageId, Arc<Block>)]) -> Result<()> {
        for (page, block) in blocks {
            if self.held.insert(*page, Arc::clone(block)).is_none() {
                self.held_bytes += block.bytes().len();
                self.came.push_back(*page);
            }
        }
        if self.held_bytes > HELD_BYTES_MAX {
            let message = format!("a statement reads at most {} MiB that are not in memory", HELD_BYTES_MAX >> 20);
            return Err(SqlError::new(state::OUT_OF_MEMORY, message).hint("Read less at once, or by an index."));
        }
        self.lent.cover(self.held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_wants_twice_as_much_in_the_direction_of_the_reading() {
        let mut reading = Reading::default();
        let mut wants = |block, direction| {
            reading.want(PageId { segment: 3, block }, direction);
            reading.wanted().expect("a want").blocks
        };
        assert_eq!(wants(7, Direction::Ascending), 7..8);
        assert_eq!(wants(8, Direction::Ascending), 8..10);
        assert_eq!(wants(10, Direction::Descending), 7..11);
        assert_eq!(wants(2, Direction::Descending), 0..3);
        for _ in 0..40 {
            wants(0, Direction::Ascending);
        }
        assert_eq!(wants(5, Direction::Ascending), 5..5 + AHEAD_MAX);
    }
}
