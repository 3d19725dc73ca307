//! The cache of a tenant goes along with it: the node that has it lists its blocks, and the node that gets it reads them from the store before it has the tenant.
//!
//! Nothing depends on it. A block that is gone from the store by then is left out, as is what there is no room for. What was read is named by the segment, and this by
//! the number that the node gives it; so the [`Home`] that opens the tenant takes the segments that are open over, with their numbers, and finds the blocks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use savanna_manifest::{ManifestError, ObjectRef, Reader};
use savanna_tenants_segments::{Block, PageId, Segment, TenantId};
use savanna_transaction::Csn;
use serde::{Deserialize, Serialize};

use super::{Home, Storage, StorageError, home::open_segment};

/// So many blocks are asked for at once: about 2 MiB.
const BLOCKS_AT_ONCE: usize = 256;
/// Segments that are opened at a time, and reads of blocks. They take a store's time rather than its strength.
const PARALLEL_OPENS: usize = 8;
const PARALLEL_READS: usize = 32;
/// So many segments of a tenant are opened before it is here.
const SEGMENTS_MAX: usize = 4_096;

/// What was read of tenants that are not here yet.
pub(super) type Expected = HashMap<TenantId, Early>;

/// Segments that were opened for a tenant that is not here yet, by their objects.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// The last attempt to bring it here.
    attempt: u64,
    segments: BTreeMap<ObjectRef, Arc<Segment>>,
}

impl Early {
    fn numbers(&self) -> BTreeSet<u64> {
        self.segments.values().map(|segment| segment.number()).collect()
    }
}

/// Segments that were opened for a tenant that is here now. The blocks of those that it does not use are forgotten with this.
pub(super) struct Taken<'a> {
    storage: &'a Storage,
    tenant: TenantId,
    early: Early,
    used: BTreeSet<u64>,
}

impl Taken<'_> {
    pub(super) const fn segments(&self) -> &BTreeMap<ObjectRef, Arc<Segment>> {
        &self.early.segments
    }

    /// The tenant goes on with these.
    pub(super) fn use_of(&mut self, segments: impl Iterator<Item = u64>) {
        self.used.extend(segments);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let unused = &self.early.numbers() - &self.used;
        if !unused.is_empty() {
            self.storage.cache.forget_segments(self.tenant, |segment| unused.contains(&segment));
        }
    }
}

/// Blocks of one segment. Without any, it is only opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmBlocks {
    object: ObjectRef,
    blocks: Vec<u32>,
}

/// What a tenant has in the cache, hottest first.
#[derive(Clone, Debug)]
pub struct Cached {
    /// The last commit that is in the storage.
    flushed: Csn,
    objects: Vec<ObjectRef>,
    /// The object's place among those, and the block.
    blocks: Vec<(u32, u32)>,
}

impl Default for Cached {
    /// Nothing, of a tenant that is not in memory: nothing has come into its storage since.
    fn default() -> Self {
        Self { flushed: Csn(u64::MAX), objects: Vec::new(), blocks: Vec::new() }
    }
}

impl Cached {
    /// For whoever wants to know later what has come into the storage since.
    #[must_use]
    pub const fn since(&self) -> Since {
        Since(self.flushed)
    }
}

/// The last commit that was in a tenant's storage when somebody looked.
#[derive(Clone, Copy, Debug)]
pub struct Since(Csn);

impl Default for Since {
    /// Nothing has come since.
    fn default() -> Self {
        Self(Csn(u64::MAX))
    }
}

/// What came of the blocks that a node was to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether there is room for more.
    pub has_room: bool,
}

/// Which blocks another node was told of.
#[derive(Debug, Default)]
pub struct BlockRounds {
    told: HashSet<(ObjectRef, u32)>,
    opened: BTreeSet<ObjectRef>,
}

impl BlockRounds {
    /// What is new, in the order in which it is listed, cut into what is asked for at once.
    pub fn next(&mut self, cached: &Cached) -> Vec<Vec<WarmBlocks>> {
        let Self { told, opened } = self;
        let new =
            cached.blocks.iter().filter_map(|(object, block)| Some((cached.objects.get(*object as usize)?, *block)));
        let new: Vec<_> = new.filter(|(object, block)| told.insert(((*object).clone(), *block))).collect();
        let mut rounds: Vec<Vec<WarmBlocks>> = new.chunks(BLOCKS_AT_ONCE).map(of_segments).collect();
        opened.extend(new.iter().map(|(object, _)| (*object).clone()));
        let rest = cached.objects.iter().filter(|object| opened.insert((*object).clone()));
        let rest: Vec<_> = rest.map(|object| WarmBlocks { object: object.clone(), blocks: Vec::new() }).collect();
        rounds.extend(rest.chunks(BLOCKS_AT_ONCE).map(<[WarmBlocks]>::to_vec));
        rounds
    }
}

/// Blocks by their segments, each in order.
fn of_segments(blocks: &[(&ObjectRef, u32)]) -> Vec<WarmBlocks> {
    let mut segments = BTreeMap::<&ObjectRef, Vec<u32>>::new();
    for (object, block) in blocks {
        segments.entry(object).or_default().push(*block);
    }
    let in_order = |(object, mut blocks): (&ObjectRef, Vec<u32>)| {
        blocks.sort_unstable();
        WarmBlocks { object: object.clone(), blocks }
    };
    segments.into_iter().map(in_order).collect()
}

/// Blocks in order, as ranges of those that follow each other.
fn ranges(blocks: &[u32], end: u32) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for block in blocks.iter().copied().filter(|block| *block < end) {
        match ranges.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            Some(last) if last.contains(&block) => {}
            _ => ranges.push(block..block + 1),
        }
    }
    ranges
}

impl Home {
    /// What the tenant has in the cache, and all of the segments that have come since somebody looked: their rows may be in memory, where they are used.
    #[must_use]
    pub fn cached(&self, Since(since): Since) -> Cached {
        let live = self.live();
        let objects = self.objects.lock().clone();
        let mut cached =
            Cached { flushed: live.first().map_or(Csn::NONE, |segment| segment.footer().upto), ..Cached::default() };
        let mut places = HashMap::new();
        for segment in live.iter() {
            let Some(object) = objects.get(&segment.number()) else { continue };
            places.insert(segment.number(), cached.objects.len() as u32);
            cached.objects.push(object.clone());
        }
        let hot = self.storage.cache.list(self.tenant).into_iter();
        cached.blocks.extend(hot.filter_map(|(page, _)| Some((*places.get(&page.segment)?, page.block))));
        for segment in live.iter().filter(|segment| segment.footer().after >= since) {
            let place = places.get(&segment.number()).copied();
            cached
                .blocks
                .extend(place.into_iter().flat_map(|place| (0..segment.blocks()).map(move |block| (place, block))));
        }
        cached
    }
}

impl Storage {
    /// Blocks of a tenant are about to be read here by an attempt to bring it. They are kept until it is here, or until that is [given up](Self::give_up_warm).
    pub fn expect_warm(&self, tenant: TenantId, attempt: u64) {
        let mut expected = self.expected.lock();
        let early = expected.entry(tenant).or_default();
        early.attempt = early.attempt.max(attempt);
    }

    /// Reads blocks of a tenant that is [expected](Self::expect_warm) into the cache, as far as there is room. There is none if it is not expected any more.
    ///
    /// # Errors
    /// Those of the store. What was read by then is kept.
    pub async fn warm(&self, tenant: TenantId, wanted: &[WarmBlocks]) -> Result<Warmed, StorageError> {
        let reader = self.reader(&self.tenant_prefix(tenant));
        let mut warmed = Warmed { bytes: 0, has_room: true };
        let opens: Vec<_> = wanted.iter().map(|wanted| self.open_early(tenant, &reader, &wanted.object)).collect();
        let mut opens = stream::iter(opens).buffered(PARALLEL_OPENS);
        let mut opened = Vec::new();
        for WarmBlocks { object, blocks } in wanted {
            let Some(open) = opens.next().await else { break };
            match there(open)? {
                Some(Some(segment)) => opened.push((object, segment, blocks)),
                Some(None) => return Ok(Warmed { has_room: false, ..warmed }),
                None => {}
            }
        }
        let mut reads = Vec::new();
        for (object, segment, blocks) in &opened {
            let ranges = ranges(blocks, segment.blocks());
            reads.extend(ranges.into_iter().map(|range| read(&reader, (*object, segment), range)));
        }
        let mut reads = stream::iter(reads).buffered(PARALLEL_READS);
        while let Some(came) = reads.next().await {
            let Some((segment, blocks)) = there(came)? else { continue };
            for (page, block) in blocks {
                let bytes = block.bytes().len() as u64;
                if !self.keep_early(tenant, segment, (page, block)) {
                    return Ok(Warmed { has_room: false, ..warmed });
                }
                warmed.bytes += bytes;
            }
        }
        Ok(warmed)
    }

    /// Keeps a block of a segment that was opened early, if its tenant is still expected with that and there is room. Whether it is kept.
    fn keep_early(&self, tenant: TenantId, (object, segment): Of<'_>, (page, block): (PageId, Arc<Block>)) -> bool {
        // Whoever forgets the segment forgets its blocks behind this lock.
        let expected = self.expected.lock();
        let opened = expected.get(&tenant).and_then(|early| early.segments.get(object));
        opened.is_some_and(|opened| Arc::ptr_eq(opened, segment)) && self.cache.insert_if_room(tenant, page, block)
    }

    /// A tenant does not come by this attempt, nor by an earlier one: what was read for it is needed no more.
    pub fn give_up_warm(&self, tenant: TenantId, attempt: u64) {
        let early = {
            let mut expected = self.expected.lock();
            let is_over = expected.get(&tenant).is_some_and(|early| early.attempt <= attempt);
            if is_over { expected.remove(&tenant) } else { None }
        };
        self.forget_early(tenant, early);
    }

    /// Nothing is expected of a tenant any more: it has gone for ever, or elsewhere.
    pub fn forget_warm(&self, tenant: TenantId) {
        let early = self.expected.lock().remove(&tenant);
        self.forget_early(tenant, early);
    }

    fn forget_early(&self, tenant: TenantId, early: Option<Early>) {
        let numbers = early.map(|early| early.numbers()).unwrap_or_default();
        if !numbers.is_empty() {
            self.cache.forget_segments(tenant, |segment| numbers.contains(&segment));
        }
    }

    /// The tenants of which something is expected, each with the last attempt to bring it here.
    #[must_use]
    pub fn expected_warm(&self) -> Vec<(TenantId, u64)> {
        self.expected.lock().iter().map(|(tenant, early)| (*tenant, early.attempt)).collect()
    }

    /// The numbers of the segments that were opened for a tenant that is not here yet.
    pub(super) fn opened_early(&self, tenant: TenantId) -> BTreeSet<u64> {
        self.expected.lock().get(&tenant).map(Early::numbers).unwrap_or_default()
    }

    /// The segments that were opened for a tenant that is here now.
    pub(super) fn take_opened(&self, tenant: TenantId) -> Taken<'_> {
        let early = self.expected.lock().remove(&tenant).unwrap_or_default();
        Taken { storage: self, tenant, early, used: BTreeSet::new() }
    }

    /// Opens a segment of a tenant that is not here yet; `None` if there are too many, or nothing is expected of it any more.
    async fn open_early(
        &self,
        tenant: TenantId,
        reader: &Reader,
        object: &ObjectRef,
    ) -> Result<Option<Arc<Segment>>, StorageError> {
        let opened = |early: &Early| early.segments.get(object).map(Arc::clone);
        match self.expected.lock().get(&tenant) {
            None => return Ok(None),
            Some(early) => {
                if let Some(segment) = opened(early) {
                    return Ok(Some(segment));
                }
            }
        }
        let segment = Arc::new(open_segment(self, reader, object.clone()).await?);
        let mut expected = self.expected.lock();
        let Some(early) = expected.get_mut(&tenant).filter(|early| early.segments.len() < SEGMENTS_MAX) else {
            return Ok(None);
        };
        Ok(Some(Arc::clone(early.segments.entry(object.clone()).or_insert(segment))))
    }
}

/// What was read; `None` if its object is no more, as it was merged with others meanwhile.
fn there<T>(read: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match read {
        Err(StorageError::Manifest(ManifestError::ObjectMissing { .. })) => Ok(None),
        read => read.map(Some),
    }
}

/// A segment that is open, and its object.
type Of<'a> = (&'a ObjectRef, &'a Arc<Segment>);

/// Reads blocks that follow each other. Each has its own memory, as they stay for different times.
async fn read<'a>(
    reader: &Reader,
    (object, segment): Of<'a>,
    blocks: Range<u32>,
) -> Result<(Of<'a>, Vec<(PageId, Arc<Block>)>), StorageError> {
    let bytes = reader.read_range(object, segment.range(blocks.clone())).await?;
    let cut = segment.cut(blocks.clone(), &bytes)?.into_iter();
    let alone = cut.map(|block| Block::new(Bytes::copy_from_slice(block.bytes())).map(Arc::new));
    let read = blocks.map(|block| segment.page(block)).zip(alone.collect::<Result<Vec<_>, _>>()?).collect();
    Ok(((object, segment), read))
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStore, memory::InMemory, path::Path};
    use savanna_epoch::OwnerEpoch;

    use super::*;
    use crate::{Store as _, Want};

    const TENANT: TenantId = 7;

    /// The storage as two nodes have it, the second with a cache of so many bytes.
    fn nodes(cache_bytes: usize) -> [Arc<Storage>; 2] {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let nodes = [1 << 20, cache_bytes].map(|bytes| Storage::new(Arc::clone(&store), Path::default(), bytes));
        // They give segments different numbers.
        for _ in 0..5 {
            let _ = nodes[1].next_number();
        }
        nodes
    }

    /// Writes a segment of some forty blocks.
    async fn flush(home: &Home, csn: u64) {
        let mut store = home.store();
        for key in 0..300_u32 {
            let (key, value) = (key.to_be_bytes(), [csn as u8; 1_000]);
            store.apply(Csn(csn), &mut std::iter::once((&key[..], Some(&value[..]))));
        }
        assert!(store.seal(Csn(csn)));
        home.save().await.expect("memory");
    }

    async fn fetch(home: &Home, blocks: Range<u32>) {
        let segment = home.live().last().expect("a segment").number();
        home.fetch(&Want { segment, blocks }).await.expect("what was written");
    }

    fn blocks(round: &[WarmBlocks]) -> usize {
        round.iter().map(|segment| segment.blocks.len()).sum()
    }

    fn found(storage: &Storage, segment: &Segment) -> Vec<u32> {
        (0..segment.blocks()).filter(|block| storage.cache().get(TENANT, segment.page(*block)).is_some()).collect()
    }

    #[tokio::test]
    async fn what_a_tenant_has_in_the_cache_is_there_at_the_next_node_and_each_round_has_what_is_new() {
        let [here, there] = nodes(1 << 20);
        let home = Home::open(&here, TENANT, OwnerEpoch(1)).await.expect("memory");
        flush(&home, 1).await;
        fetch(&home, 2..5).await;
        let mut rounds = BlockRounds::default();
        let first = rounds.next(&home.cached(Since::default())).concat();
        assert_eq!(blocks(&first), 3);
        there.expect_warm(TENANT, 1);
        let warmed = there.warm(TENANT, &first).await.expect("memory");
        assert!(warmed.bytes > 3 * 7_000 && warmed.has_room);

        fetch(&home, 9..10).await;
        flush(&home, 2).await;
        let second = rounds.next(&home.cached(Since(Csn(1)))).concat();
        let flushed = home.live()[0].blocks() as usize;
        assert_eq!(blocks(&second), flushed + 1, "the block that was read, and the segment that has come");
        there.warm(TENANT, &second).await.expect("memory");
        assert!(rounds.next(&home.cached(Since(Csn(1)))).is_empty());

        let moved = Home::open(&there, TENANT, OwnerEpoch(2)).await.expect("memory");
        let live = moved.live();
        assert_eq!(found(&there, &live[1]), [2, 3, 4, 9]);
        assert_eq!(found(&there, &live[0]).len(), flushed);
        drop(moved);
        assert_eq!(there.cache().stats().bytes, 0);
    }

    #[tokio::test]
    async fn nothing_stays_of_a_tenant_that_does_not_come_nor_of_segments_that_were_merged_before_it_did() {
        let [here, there] = nodes(1 << 20);
        let home = Home::open(&here, TENANT, OwnerEpoch(1)).await.expect("memory");
        flush(&home, 1).await;
        fetch(&home, 0..9).await;
        let cached = home.cached(Since::default());
        let warm = async || {
            there.expect_warm(TENANT, 2);
            there.warm(TENANT, &BlockRounds::default().next(&cached).concat()).await.expect("memory")
        };
        assert!(warm().await.bytes > 0);
        there.give_up_warm(TENANT, 1);
        assert_ne!(there.cache().stats().bytes, 0, "it comes by a later attempt");
        there.give_up_warm(TENANT, 2);
        assert_eq!(there.cache().stats().bytes, 0);

        warm().await;
        for csn in 2..9 {
            flush(&home, csn).await;
        }
        assert!(home.compact().await.expect("memory"));
        let moved = Home::open(&there, TENANT, OwnerEpoch(2)).await.expect("memory");
        assert_eq!(there.cache().stats().bytes, 0);
        drop(moved);
        here.remove(TENANT).await.expect("memory");
        assert_eq!(warm().await, Warmed { bytes: 0, has_room: true }, "what is gone is left out");
    }

    #[tokio::test]
    async fn no_more_is_read_than_there_is_room_for() {
        let [here, there] = nodes(30_000);
        let home = Home::open(&here, TENANT, OwnerEpoch(1)).await.expect("memory");
        flush(&home, 1).await;
        fetch(&home, 0..40).await;
        there.expect_warm(TENANT, 1);
        let warmed = there.warm(TENANT, &BlockRounds::default().next(&home.cached(Since::default())).concat()).await;
        let warmed = warmed.expect("memory");
        assert!(!warmed.has_room && (15_000..30_000).contains(&warmed.bytes), "{warmed:?}");
    }

    #[tokio::test]
    async fn what_comes_late_of_a_tenant_that_does_not_come_is_not_kept() {
        let [here, there] = nodes(1 << 20);
        let home = Home::open(&here, TENANT, OwnerEpoch(1)).await.expect("memory");
        flush(&home, 1).await;
        let cached = home.cached(Since::default());
        let (object, reader) = (&cached.objects[0], there.reader(&there.tenant_prefix(TENANT)));
        let open = async || there.open_early(TENANT, &reader, object).await.expect("memory");
        assert!(open().await.is_none(), "nothing is expected");

        there.expect_warm(TENANT, 1);
        let segment = open().await.expect("it is expected");
        let mut blocks = read(&reader, (object, &segment), 0..3).await.expect("memory").1.into_iter();
        let mut keep = || there.keep_early(TENANT, (object, &segment), blocks.next().expect("three blocks"));
        assert!(keep());
        there.give_up_warm(TENANT, 1);
        assert!(!keep() && open().await.is_none());
        there.expect_warm(TENANT, 2);
        assert!(open().await.is_some() && !keep(), "it is opened anew, under another number");
        assert_eq!(there.cache().stats().bytes, 0);
    }

    #[tokio::test]
    async fn nothing_stays_of_a_tenant_that_comes_and_cannot_be_opened() {
        let [here, there] = nodes(1 << 20);
        let home = Home::open(&here, TENANT, OwnerEpoch(1)).await.expect("memory");
        flush(&home, 1).await;
        fetch(&home, 0..9).await;
        there.expect_warm(TENANT, 1);
        let blocks = BlockRounds::default().next(&home.cached(Since::default())).concat();
        assert!(there.warm(TENANT, &blocks).await.expect("memory").bytes > 0);
        here.note_stored(TENANT, Csn(9)).await.expect("memory");
        let opened = Home::open(&there, TENANT, OwnerEpoch(2)).await;
        assert!(matches!(opened, Err(StorageError::Behind { .. })));
        assert_eq!(there.cache().stats().bytes, 0);
    }

    #[test]
    fn blocks_that_follow_each_other_are_read_at_once() {
        assert_eq!(ranges(&[1, 2, 2, 3, 7, 9], 9), [1..4, 7..8]);
    }
}
