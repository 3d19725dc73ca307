//! Rows in segments. The tenant's thread reads them and builds new ones; somebody else writes them down and says so.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_tenants_segments::{
    Block, BlockCache, Merge, PageId, ReadError, Segment, SegmentBuilder, SegmentError, TenantId, get,
};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{Csn, Direction, KeyRange};

use super::{Reading, Rows, Store};

/// A flush makes segments of so many bytes, each of which is put to the store at once.
const SEGMENT_BYTES: usize = 64 << 20;
/// Keys that have gone after which a scan that reads by pages stops.
const GONE_MAX: usize = 1_024;

/// The segments of a tenant, as its thread and those who write them share them.
#[derive(Debug)]
pub struct Segments {
    tenant: TenantId,
    cache: Arc<BlockCache>,
    /// Whether somebody else may have written some of them down since the tenant was opened.
    has_others: AtomicBool,
    state: Mutex<State>,
}

/// Segments that are read, newest first. Those that hold the same commits have different keys.
pub type Live = Arc<[Arc<Segment>]>;

#[derive(Debug)]
struct State {
    live: Live,
    sealed: Option<Arc<Sealed>>,
}

/// Segments with the same commits that are to be written down.
#[derive(Debug)]
pub struct Sealed {
    /// They have what was written after this commit ..
    pub after: Csn,
    /// .. up to this one.
    pub upto: Csn,
    /// The bytes of each, in the order of keys.
    pub segments: Vec<Bytes>,
}

/// What has become of segments.
#[derive(Debug)]
pub enum Change {
    /// The sealed ones are written down.
    Saved(Vec<Segment>),
    /// These are all that there are, newest first.
    Reopened(Vec<Arc<Segment>>),
    /// These are now in those.
    Merged {
        /// The numbers of the old ones.
        old: BTreeSet<u64>,
        /// What has taken their place.
        new: Vec<Segment>,
    },
}

impl Segments {
    /// Of a tenant, newest first.
    #[must_use]
    pub fn new(tenant: TenantId, cache: Arc<BlockCache>, live: Vec<Arc<Segment>>) -> Self {
        let has_others = AtomicBool::new(false);
        Self { tenant, cache, has_others, state: Mutex::new(State { live: live.into(), sealed: None }) }
    }

    /// Those that are read, newest first.
    #[must_use]
    pub fn live(&self) -> Live {
        Arc::clone(&self.state.lock().live)
    }

    /// What is to be written down.
    #[must_use]
    pub fn sealed(&self) -> Option<Arc<Sealed>> {
        self.state.lock().sealed.as_ref().map(Arc::clone)
    }

    /// Takes over what has become of segments.
    pub fn publish(&self, change: Change) {
        let mut state = self.state.lock();
        match change {
            Change::Saved(segments) => {
                state.sealed = None;
                // As they are read from a manifest, the last keys first.
                let new = segments.into_iter().rev().map(Arc::new);
                state.live = new.chain(state.live.iter().map(Arc::clone)).collect();
            }
            Change::Reopened(segments) => {
                let flushed = segments.first().map_or(Csn::NONE, |segment| segment.footer().upto);
                state.sealed.take_if(|sealed| sealed.upto <= flushed);
                self.has_others.store(true, Ordering::Relaxed);
                state.live = segments.into();
            }
            Change::Merged { old, new } => {
                let is_old = |segment: &&Arc<Segment>| old.contains(&segment.number());
                let newer = state.live.iter().take_while(|segment| !is_old(segment)).map(Arc::clone);
                let older = state.live.iter().skip_while(|segment| !is_old(segment)).skip_while(is_old).map(Arc::clone);
                state.live = newer.chain(new.into_iter().map(Arc::new)).chain(older).collect();
                self.cache.forget_segments(self.tenant, |segment| old.contains(&segment));
            }
        }
    }

    /// Takes blocks into the cache.
    pub fn keep(&self, blocks: &[(PageId, Arc<Block>)]) {
        for (page, block) in blocks {
            self.cache.insert(self.tenant, *page, Arc::clone(block));
        }
    }

    /// The last commit that the storage has.
    pub(crate) fn flushed(&self) -> Csn {
        self.state.lock().live.first().map_or(Csn::NONE, |segment| segment.footer().upto)
    }

    fn block(&self, page: PageId, reading: &Reading) -> Option<Arc<Block>> {
        self.cache.get(self.tenant, page).or_else(|| reading.held(page))
    }
}

/// A tenant's rows in segments.
#[derive(Debug)]
pub struct SegmentStore {
    segments: Arc<Segments>,
    /// What is collected, in the order of keys.
    builders: Vec<SegmentBuilder>,
    /// A segment that has so many bytes is followed by another one.
    segment_bytes: usize,
}

impl SegmentStore {
    /// Over a tenant's segments.
    #[must_use]
    pub fn new(segments: Arc<Segments>) -> Self {
        Self { segments, builders: Vec::new(), segment_bytes: SEGMENT_BYTES }
    }

    /// Makes segments of so many bytes.
    #[must_use]
    pub fn in_segments_of(self, segment_bytes: usize) -> Self {
        Self { segment_bytes, ..self }
    }
}

fn refused(error: ReadError, reading: &mut Reading, direction: Direction) -> SqlError {
    match error {
        ReadError::Missing(missing) => reading.want(missing.0, direction),
        ReadError::Segment(error) => damaged(&error),
    }
}

pub(crate) fn damaged(error: &SegmentError) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, format!("could not read a segment: {error}"))
}

impl Store for SegmentStore {
    fn flushed(&self) -> Csn {
        self.segments.flushed()
    }

    fn get(&self, key: &[u8], reading: &mut Reading) -> Result<Option<Bytes>> {
        let found = get(&self.segments.live(), key, &mut |page| self.segments.block(page, reading));
        found.map(Option::flatten).map_err(|missing| refused(missing.into(), reading, Direction::Ascending))
    }

    fn scan<'a>(&'a self, range: &KeyRange, direction: Direction, reading: &'a mut Reading) -> Box<dyn Rows + 'a> {
        let merge = Merge::new(&self.segments.live(), range, direction);
        Box::new(SegmentRows { merge, segments: &self.segments, direction, reading, passed: 0 })
    }

    fn apply(&mut self, _: Csn, writes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
        for (key, value) in writes {
            if self.builders.last().is_none_or(|builder| builder.len() >= self.segment_bytes) {
                self.builders.push(SegmentBuilder::default());
            }
            if let Some(builder) = self.builders.last_mut() {
                builder.add(key, value);
            }
        }
    }

    fn seal(&mut self, csn: Csn) -> bool {
        let builders = std::mem::take(&mut self.builders);
        if builders.is_empty() {
            return false;
        }
        let after = self.segments.flushed();
        let segments = builders.into_iter().map(|builder| builder.finish(after, csn)).collect();
        let sealed = Sealed { after, upto: csn, segments };
        self.segments.state.lock().sealed = Some(Arc::new(sealed));
        true
    }

    fn has_rows_of_others(&self) -> bool {
        self.segments.has_others.load(Ordering::Relaxed)
    }

    fn page_of(&self, key: &[u8]) -> Option<PageId> {
        let live = self.segments.live();
        let segment = live.iter().find(|segment| segment.blocks() > 0)?;
        Some(segment.page(segment.block_of(key)))
    }

    fn may_change_structure(&self, _: &mut dyn Iterator<Item = &[u8]>) -> bool {
        // A block that was written stays as it is; what is newer is in another segment.
        false
    }
}

struct SegmentRows<'a> {
    merge: Merge,
    segments: &'a Segments,
    direction: Direction,
    reading: &'a mut Reading,
    passed: usize,
}

impl Rows for SegmentRows<'_> {
    fn step(&mut self) -> Result<bool> {
        let Self { merge, segments, direction, reading, passed } = self;
        loop {
            let more = merge.step(&mut |page| segments.block(page, reading));
            if !more.map_err(|error| refused(error, reading, *direction))? {
                return Ok(false);
            }
            // Of what has gone nobody below knows anything.
            if merge.value().is_some() {
                return Ok(true);
            }
            *passed += 1;
            if reading.is_in_pages() && passed.is_multiple_of(GONE_MAX) {
                return Ok(true);
            }
        }
    }

    fn key(&self) -> &[u8] {
        self.merge.key().unwrap_or_default()
    }

    fn value(&self) -> &[u8] {
        self.merge.value().unwrap_or_default()
    }

    fn passed(&self) -> usize {
        self.passed
    }

    fn has_gone(&self) -> bool {
        self.merge.value().is_none()
    }
}
