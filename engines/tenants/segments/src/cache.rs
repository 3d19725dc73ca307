//! Blocks that a process keeps in memory, shared by all of its tenants. Each is entitled to its share of those that have
//! anything here; what others leave it may use, and who is furthest above its share gives a block up first.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{PageId, TenantId, block::Block};

/// Bytes that a block takes beside its own.
const OVERHEAD: usize = 96;

/// Blocks of several tenants, up to a number of bytes.
#[derive(Debug)]
pub struct BlockCache {
    bytes_max: usize,
    state: Mutex<State>,
}

/// What a cache holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes that it holds.
    pub bytes: usize,
    /// Tenants that have blocks in it.
    pub tenants: usize,
    /// Blocks that were asked for and there.
    pub hits: u64,
    /// Blocks that were asked for and not there.
    pub misses: u64,
}

#[derive(Debug, Default)]
struct State {
    tenants: HashMap<TenantId, Share>,
    stats: CacheStats,
}

/// A tenant's blocks, those that have been there longest in front.
#[derive(Debug, Default)]
struct Share {
    blocks: HashMap<PageId, Kept>,
    queue: VecDeque<PageId>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    block: Arc<Block>,
    /// Whether it was read since it came or was last spared.
    used: bool,
}

fn weight(block: &Block) -> usize {
    block.bytes().len() + OVERHEAD
}

impl BlockCache {
    /// A cache of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    /// A block of a tenant, if it is there.
    #[must_use]
    pub fn get(&self, tenant: TenantId, page: PageId) -> Option<Arc<Block>> {
        let State { tenants, stats } = &mut *self.state.lock();
        let kept = tenants.get_mut(&tenant).and_then(|share| share.blocks.get_mut(&page));
        match kept {
            Some(kept) => {
                kept.used = true;
                stats.hits += 1;
                Some(Arc::clone(&kept.block))
            }
            None => {
                stats.misses += 1;
                None
            }
        }
    }

    /// Keeps a block, and gives up others for it.
    pub fn insert(&self, tenant: TenantId, page: PageId, block: Arc<Block>) {
        self.keep(tenant, page, block, VecDeque::push_back);
    }

    fn keep(&self, tenant: TenantId, page: PageId, block: Arc<Block>, queue: fn(&mut VecDeque<PageId>, PageId)) {
        let mut state = self.state.lock();
        let bytes = weight(&block);
        let share = state.tenants.entry(tenant).or_default();
        if share.blocks.insert(page, Kept { block, used: false }).is_some() {
            return;
        }
        queue(&mut share.queue, page);
        share.bytes += bytes;
        state.stats.bytes += bytes;
        while state.stats.bytes > self.bytes_max {
            // Everybody's share is the same, so the one with most is furthest above it.
            let Some(largest) = state.tenants.iter().max_by_key(|(id, share)| (share.bytes, **id)).map(|(id, _)| *id)
            else {
                break;
            };
            state.evict(largest);
        }
    }

    /// The blocks of a tenant and their bytes in memory: those first that were read since they came or were last spared, of these, those that came last.
    #[must_use]
    pub fn list(&self, tenant: TenantId) -> Vec<(PageId, usize)> {
        let mut listed: Vec<_> = {
            let state = self.state.lock();
            let Some(share) = state.tenants.get(&tenant) else { return Vec::new() };
            let kept = share.queue.iter().rev().filter_map(|page| Some((*page, share.blocks.get(page)?)));
            kept.map(|(page, kept)| (kept.used, page, weight(&kept.block))).collect()
        };
        // All tenants wait for the lock.
        listed.sort_by_key(|(used, ..)| !used);
        listed.into_iter().map(|(_, page, bytes)| (page, bytes)).collect()
    }

    /// How many bytes a tenant may take until it gives up its own for them: what nobody has, or what it lacks of its share.
    #[must_use]
    pub fn room(&self, tenant: TenantId) -> usize {
        let state = self.state.lock();
        let mine = state.tenants.get(&tenant).map_or(0, |share| share.bytes);
        let sharers = state.tenants.len() + usize::from(!state.tenants.contains_key(&tenant));
        let (free, share) = (self.bytes_max.saturating_sub(state.stats.bytes), self.bytes_max / sharers);
        free.max(share.saturating_sub(mine))
    }

    /// Keeps a block of a tenant if there is [room](Self::room) for it, for less long than those that it has already. Whether there was.
    pub fn insert_if_room(&self, tenant: TenantId, page: PageId, block: Arc<Block>) -> bool {
        let fits = weight(&block) <= self.room(tenant);
        if fits {
            self.keep(tenant, page, block, VecDeque::push_front);
        }
        fits
    }

    /// Forgets all blocks of a tenant.
    pub fn forget(&self, tenant: TenantId) {
        let State { tenants, stats } = &mut *self.state.lock();
        if let Some(share) = tenants.remove(&tenant) {
            stats.bytes -= share.bytes;
        }
    }

    /// Forgets the blocks of segments that are no more.
    pub fn forget_segments(&self, tenant: TenantId, is_gone: impl Fn(u64) -> bool) {
        let State { tenants, stats } = &mut *self.state.lock();
        let Some(share) = tenants.get_mut(&tenant) else { return };
        share.queue.retain(|page| !is_gone(page.segment));
        let gone = share.blocks.extract_if(|page, _| is_gone(page.segment));
        let bytes: usize = gone.map(|(_, kept)| weight(&kept.block)).sum();
        share.bytes -= bytes;
        stats.bytes -= bytes;
        if share.blocks.is_empty() {
            tenants.remove(&tenant);
        }
    }

    /// What it holds and did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let state = self.state.lock();
        CacheStats { tenants: state.tenants.len(), ..state.stats }
    }
}

impl State {
    /// Gives up the block of a tenant that came first and was not read since.
    fn evict(&mut self, tenant: TenantId) {
        let Some(share) = self.tenants.get_mut(&tenant) else { return };
        while let Some(page) = share.queue.pop_front() {
            match share.blocks.get_mut(&page) {
                Some(kept) if kept.used => {
                    kept.used = false;
                    share.queue.push_back(page);
                }
                _ => {
                    let bytes = share.blocks.remove(&page).map_or(0, |kept| weight(&kept.block));
                    share.bytes -= bytes;
                    self.stats.bytes -= bytes;
                    break;
                }
            }
        }
        if share.blocks.is_empty() {
            self.tenants.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockBuilder;

    fn block() -> Arc<Block> {
        let mut builder = BlockBuilder::default();
        builder.add(b"key", Some(&[0; 1_000]));
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        Arc::new(Block::new(bytes.into()).unwrap())
    }

    fn page(block: u32) -> PageId {
        PageId { segment: 1, block }
    }

    fn room_for(blocks: usize) -> BlockCache {
        BlockCache::new(blocks * weight(&block()))
    }

    #[test]
    fn the_block_that_was_not_read_goes_first() {
        let cache = room_for(3);
        for number in 0..3 {
            cache.insert(1, page(number), block());
        }
        assert!(cache.get(1, page(0)).is_some());
        cache.insert(1, page(3), block());
        let there: Vec<bool> = (0..4).map(|number| cache.get(1, page(number)).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn who_takes_more_than_its_share_takes_it_from_nobody_else() {
        let cache = room_for(10);
        for number in 0..4 {
            cache.insert(1, page(number), block());
        }
        for number in 0..1_000 {
            cache.insert(2, page(number), block());
        }
        assert!((0..4).all(|number| cache.get(1, page(number)).is_some()), "it has less than half");
        assert_eq!(cache.stats().bytes, 10 * weight(&block()));
    }

    #[test]
    fn what_was_read_is_listed_first_and_then_what_came_last() {
        let cache = room_for(10);
        for number in 0..4 {
            cache.insert(1, page(number), block());
        }
        cache.insert(2, page(9), block());
        assert!(cache.get(1, page(1)).is_some() && cache.get(1, page(0)).is_some());
        let listed: Vec<_> = cache.list(1).into_iter().map(|(page, bytes)| (page.block, bytes)).collect();
        assert_eq!(listed, [1, 0, 3, 2].map(|number| (number, weight(&block()))));
        assert!(cache.list(3).is_empty());
    }

    #[test]
    fn who_comes_early_takes_what_is_free_or_its_share_and_gives_nothing_of_its_own_up() {
        let cache = room_for(10);
        assert!((0..8).all(|number| cache.insert_if_room(1, page(number), block())), "nobody else is there");
        assert!((0..5).all(|number| cache.insert_if_room(2, page(number), block())), "half is its share");
        assert!(!cache.insert_if_room(2, page(5), block()));
        let kept = (0..5).filter(|number| cache.get(2, page(*number)).is_some()).count();
        assert_eq!((kept, cache.stats().bytes), (5, 10 * weight(&block())));
        assert_eq!(cache.room(3), 10 * weight(&block()) / 3);
    }

    #[test]
    fn of_what_comes_early_the_first_stays_longest() {
        let cache = room_for(4);
        assert!((0..4).all(|number| cache.insert_if_room(1, page(number), block())));
        cache.insert(1, page(7), block());
        cache.insert(1, page(8), block());
        let listed: Vec<u32> = cache.list(1).into_iter().map(|(page, _)| page.block).collect();
        assert_eq!(listed, [8, 7, 0, 1]);
    }

    #[test]
    fn what_is_forgotten_is_gone_and_counted() {
        let cache = room_for(10);
        cache.insert(1, page(0), block());
        cache.insert(1, PageId { segment: 2, block: 0 }, block());
        cache.insert(2, page(0), block());
        cache.forget_segments(1, |segment| segment == 1);
        assert_eq!((cache.get(1, page(0)).is_some(), cache.stats().bytes), (false, 2 * weight(&block())));
        cache.forget(2);
        cache.forget_segments(1, |segment| segment == 2);
        assert_eq!((cache.stats().bytes, cache.stats().tenants), (0, 0), "who has nothing takes no share");
    }
}
