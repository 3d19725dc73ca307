//! Segments of about the same size become one, beside everything else that goes on.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use savanna_manifest::ObjectRef;
use savanna_tenants_segments::{Block, Merge, PageId, ReadError, Segment, SegmentBuilder, compaction};
use savanna_transaction::{Csn, Direction, KeyRange};

use super::{Home, StorageError, home::entry_name};
use crate::{Change, Want};

/// Blocks that are read of a segment at once: about 1 MiB.
const BLOCKS_AT_ONCE: u32 = 128;
/// A result that is longer is cut into parts with different keys.
const PART_BYTES: usize = 64 << 20;

/// Segments with the same commits, which are one for the order of newer and older.
fn generations(live: &[Arc<Segment>]) -> Vec<&[Arc<Segment>]> {
    live.chunk_by(|a, b| a.footer().upto == b.footer().upto).collect()
}

impl Home {
    /// Merges segments if there are some to be merged; whether there were.
    ///
    /// # Errors
    /// Those of the store; everything is as before then.
    pub async fn compact(&self) -> Result<bool, StorageError> {
        let mut owned = self.state.lock().await;
        let live = self.segments.live();
        let generations = generations(&live);
        let bytes = |generation: &&[Arc<Segment>]| generation.iter().map(|segment| segment.bytes()).sum();
        let sizes: Vec<u64> = generations.iter().map(bytes).collect();
        let Some(row) = compaction(&sizes) else { return Ok(false) };
        let oldest = row.end == generations.len();
        let merged: Vec<Arc<Segment>> = generations[row].concat();
        let (Some(newest), Some(last)) = (merged.first(), merged.last()) else { return Ok(false) };
        let (after, upto) = (last.footer().after, newest.footer().upto);

        let mut new: Vec<(String, ObjectRef)> = Vec::new();
        let mut opened = Vec::new();
        let mut parts = Parts::new(self, &merged, oldest);
        while let Some(part) = parts.next(after, upto).await? {
            let segment = self.open_whole(&part)?;
            let object = self.owned_manifest(&mut owned).await?.put_object(part).await?;
            self.objects.lock().insert(segment.number(), object.clone());
            new.push((entry_name(after, upto, new.len() as u32), object));
            opened.push(segment);
        }
        let old: BTreeSet<u64> = merged.iter().map(|segment| segment.number()).collect();
        let paths: BTreeSet<String> = {
            let objects = self.objects.lock();
            old.iter().filter_map(|number| objects.get(number)).map(|object| object.path.clone()).collect()
        };
        let gone: Vec<String> = owned
            .entries
            .iter()
            .filter(|(_, object)| paths.contains(&object.path))
            .map(|(name, _)| name.clone())
            .collect();
        self.commit(&mut owned, &gone, &new).await?;
        self.segments.publish(Change::Merged { old: old.clone(), new: opened });
        self.objects.lock().retain(|number, _| !old.contains(number));
        Ok(true)
    }
}

/// The merged segments, part by part.
struct Parts<'a> {
    home: &'a Home,
    segments: &'a [Arc<Segment>],
    merge: Merge,
    blocks: HashMap<PageId, Arc<Block>>,
    /// Nothing is older, so what has gone need not be remembered.
    oldest: bool,
    first: bool,
}

impl<'a> Parts<'a> {
    fn new(home: &'a Home, segments: &'a [Arc<Segment>], oldest: bool) -> Self {
        let merge = Merge::new(segments, &KeyRange::ALL, Direction::Ascending);
        Self { home, segments, merge, blocks: HashMap::new(), oldest, first: true }
    }

    /// There is at least one, if only to say up to which commit there is nothing.
    async fn next(&mut self, after: Csn, upto: Csn) -> Result<Option<Bytes>, StorageError> {
        let mut builder = SegmentBuilder::default();
        while builder.len() < PART_BYTES {
            let blocks = &self.blocks;
            match self.merge.step(&mut |page| blocks.get(&page).map(Arc::clone)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ReadError::Missing(missing)) => {
                    self.fetch(missing.0).await?;
                    continue;
                }
                Err(ReadError::Segment(error)) => return Err(error.into()),
            }
            let (key, value) = (self.merge.key().unwrap_or_default(), self.merge.value());
            if value.is_some() || !self.oldest {
                builder.add(key, value);
            }
        }
        let first = std::mem::replace(&mut self.first, false);
        Ok((first || !builder.is_empty()).then(|| builder.finish(after, upto)))
    }

    async fn fetch(&mut self, page: PageId) -> Result<(), StorageError> {
        let found = self.segments.iter().find(|segment| segment.number() == page.segment);
        let Some(segment) = found else { return Ok(()) };
        self.blocks.retain(|other, _| other.segment != page.segment);
        let want = Want { segment: page.segment, blocks: page.block..page.block + BLOCKS_AT_ONCE };
        self.blocks.extend(self.home.read(segment, &want).await?);
        Ok(())
    }
}
