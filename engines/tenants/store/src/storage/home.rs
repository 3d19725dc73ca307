//! One tenant's place in the storage: it is opened when the tenant wakes, and what is sealed is written down.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;
use savanna_manifest::{Manifest, ManifestError, ObjectRef, Reader};
use savanna_tenants_segments::{Block, PageId, Segment, TAIL_BYTES, TenantId, open_tail};
use savanna_transaction::Csn;

use super::{Storage, StorageError, now};
use crate::{Change, Live, SegmentStore, Segments, Want, large::Litter, points};

/// Segments that are opened at a time.
const PARALLEL_OPENS: usize = 8;

/// The name of a segment in the manifest. In the order of names they are oldest first.
pub(super) fn entry_name(after: Csn, upto: Csn, part: u32) -> String {
    format!("{:020}-{:020}-{part:04}", upto.0, after.0)
}

/// A tenant's place in the storage.
#[derive(Debug)]
pub struct Home {
    pub(super) storage: Arc<Storage>,
    pub(super) tenant: TenantId,
    /// Under which its owner takes the manifest over.
    pub(super) epoch: OwnerEpoch,
    pub(super) prefix: Path,
    pub(super) reader: Reader,
    pub(super) segments: Arc<Segments>,
    /// The objects of segments that are open, by their numbers; also of those that were merged lately and may still be read.
    pub(super) objects: Mutex<HashMap<u64, ObjectRef>>,
    pub(super) state: futures::lock::Mutex<Owned>,
    /// Parts of large transactions that nobody needs.
    pub(super) litter: Arc<Litter>,
}

/// What only those who write need, one at a time.
#[derive(Debug, Default)]
pub(super) struct Owned {
    manifest: Option<Manifest>,
    /// Up to which commit it is noted that there are segments.
    noted: Csn,
    /// What the manifest has.
    pub(super) entries: BTreeMap<String, ObjectRef>,
}

impl Home {
    /// Opens a tenant's place for its owner under this epoch: reads its manifest and the ends of its segments.
    ///
    /// # Errors
    /// Those of the store, and if what is there is not what was written.
    pub async fn open(storage: &Arc<Storage>, tenant: TenantId, epoch: OwnerEpoch) -> Result<Arc<Self>, StorageError> {
        let prefix = storage.tenant_prefix(tenant);
        // Before the manifest is: a former owner may be writing both, the manifest first.
        let noted = storage.stored(tenant).await?;
        let reader = storage.reader(&prefix);
        let entries = match reader.current().await {
            Ok(snapshot) => snapshot.entries.clone(),
            Err(ManifestError::NoManifest { .. }) => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        // Some may have been merged before the tenant came, or it cannot be opened now.
        let mut early = storage.take_opened(tenant);
        let opened = open_all(storage, &reader, &prefix, (&entries, early.segments())).await?;
        let objects = opened.iter().map(|(segment, object)| (segment.number(), object.clone())).collect();
        let opened: Vec<_> = opened.into_iter().map(|(segment, _)| segment).collect();
        let found = opened.first().map_or(Csn::NONE, |segment| segment.footer().upto);
        if noted > found {
            return Err(StorageError::Behind { place: storage.place(&prefix), noted, found });
        }
        early.use_of(opened.iter().map(|segment| segment.number()));
        Ok(Arc::new(Self {
            storage: Arc::clone(storage),
            tenant,
            epoch,
            prefix,
            reader,
            segments: Arc::new(Segments::new(tenant, Arc::clone(&storage.cache), opened)),
            objects: Mutex::new(objects),
            state: futures::lock::Mutex::new(Owned { entries, noted, ..Owned::default() }),
            litter: Arc::default(),
        }))
    }

    /// The tenant's rows, for its thread.
    #[must_use]
    pub fn store(&self) -> Box<SegmentStore> {
        Box::new(SegmentStore::new(Arc::clone(&self.segments)))
    }

    /// Segments that are read, newest first.
    #[must_use]
    pub fn live(&self) -> Live {
        self.segments.live()
    }

    /// Fetches blocks; they are in the cache then, too.
    ///
    /// # Errors
    /// Those of the store, and if a block is not what was written.
    pub async fn fetch(&self, want: &Want) -> Result<Vec<(PageId, Arc<Block>)>, StorageError> {
        let live = self.segments.live();
        // One that was merged meanwhile: the statement runs again and finds the key elsewhere.
        let Some(segment) = live.iter().find(|segment| segment.number() == want.segment) else { return Ok(Vec::new()) };
        let blocks = self.read(segment, want).await?;
        self.segments.keep(&blocks);
        Ok(blocks)
    }

    pub(super) async fn read(&self, segment: &Segment, want: &Want) -> Result<Vec<(PageId, Arc<Block>)>, StorageError> {
        let blocks = want.blocks.start..want.blocks.end.min(segment.blocks());
        let object = self.objects.lock().get(&segment.number()).cloned();
        let Some(object) = object else { return Ok(Vec::new()) };
        let bytes = self.reader.read_range(&object, segment.range(blocks.clone())).await?;
        let cut = segment.cut(blocks.clone(), &bytes)?;
        // Blocks that stay for different times do not share memory.
        let alone = |block: Block| Block::new(Bytes::copy_from_slice(block.bytes()));
        let cut = if blocks.len() > 1 { cut.into_iter().map(alone).collect::<Result<_, _>>()? } else { cut };
        Ok(blocks.map(|block| segment.page(block)).zip(cut.into_iter().map(Arc::new)).collect())
    }

    /// Writes down what is sealed, if anything: first the segment, then the version of the manifest that names it. After an error
    /// ask again; nothing is lost meanwhile.
    ///
    /// # Errors
    /// Those of the store; `Fenced` if another owner has taken the tenant over, and then it is lost here.
    pub async fn save(&self) -> Result<(), StorageError> {
        let mut owned = self.state.lock().await;
        if self.segments.sealed().is_some() {
            self.save_sealed(&mut owned).await?;
        }
        let upto = self.segments.flushed();
        if upto > owned.noted {
            self.storage.note_stored(self.tenant, upto).await?;
            owned.noted = upto;
        }
        Ok(())
    }

    async fn save_sealed(&self, owned: &mut Owned) -> Result<(), StorageError> {
        self.owned_manifest(owned).await?;
        // Opening the manifest again may have shown that it was written down already.
        let Some(sealed) = self.segments.sealed() else { return Ok(()) };
        let manifest = self.owned_manifest(owned).await?;
        let (mut opened, mut new) = (Vec::new(), Vec::new());
        for (part, bytes) in (0..).zip(&sealed.segments) {
            opened.push(self.open_whole(bytes)?);
            match manifest.put_object(bytes.clone()).await {
                Ok(object) => new.push((entry_name(sealed.after, sealed.upto, part), object)),
                Err(error) => {
                    // All are put again.
                    new.iter().for_each(|(_, object)| manifest.abandon(object));
                    return Err(error.into());
                }
            }
            points::reached("a segment is written and not named");
        }
        self.commit(owned, &[], &new).await?;
        let objects = opened.iter().map(Segment::number).zip(new.into_iter().map(|(_, object)| object));
        self.objects.lock().extend(objects);
        self.segments.publish(Change::Saved(opened));
        Ok(())
    }

    /// Changes the manifest's entries, all at once. If it is not certain what became of that, the manifest is opened again before
    /// anything else is done: what it says then is true.
    pub(super) async fn commit(
        &self,
        owned: &mut Owned,
        old: &[String],
        new: &[(String, ObjectRef)],
    ) -> Result<(), StorageError> {
        let manifest = self.owned_manifest(owned).await?;
        let committed = manifest.commit(now(), |draft| {
            for name in old {
                draft.remove(name);
            }
            for (name, object) in new {
                draft.insert(name.clone(), object.clone());
            }
        });
        match committed.await {
            Ok(snapshot) => owned.entries = snapshot.entries.clone(),
            Err(error) => {
                owned.manifest = None;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// The manifest, taken over by this owner.
    pub(super) async fn owned_manifest<'a>(&self, owned: &'a mut Owned) -> Result<&'a Manifest, StorageError> {
        if owned.manifest.is_none() {
            let manifest = self.storage.take_over(self.tenant, self.epoch).await?;
            let entries = manifest.current().entries.clone();
            if entries != owned.entries {
                // What became of the last change was not certain, or a former owner has written down what it had in the log
                // after this one had read the manifest. All of that is in memory here, too.
                let opened = open_all(&self.storage, &self.reader, &self.prefix, (&entries, &BTreeMap::new())).await?;
                let objects = opened.iter().map(|(segment, object)| (segment.number(), object.clone()));
                self.objects.lock().extend(objects);
                self.segments.publish(Change::Reopened(opened.into_iter().map(|(segment, _)| segment).collect()));
                owned.entries = entries;
            }
            owned.manifest = Some(manifest);
        }
        owned.manifest.as_ref().ok_or(StorageError::Incomplete(self.tenant))
    }

    /// Removes from the store what no version needs any more, unless it is not certain which version is the newest.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn collect_garbage(&self) -> Result<(), StorageError> {
        let owned = self.state.lock().await;
        let is_read = |object: &ObjectRef| owned.entries.values().any(|entry| entry == object);
        let all_are_named = {
            let objects = self.objects.lock();
            self.live().iter().all(|segment| objects.get(&segment.number()).is_some_and(is_read))
        };
        if let Some(manifest) = &owned.manifest
            && all_are_named
        {
            manifest.collect_garbage(now()).await?;
        }
        Ok(())
    }

    pub(super) fn open_whole(&self, bytes: &Bytes) -> Result<Segment, StorageError> {
        let opened = open_tail(self.storage.next_number(), bytes.len() as u64, bytes)?;
        opened.map_err(|_| StorageError::Incomplete(self.tenant))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The tenant may be on its way back, with blocks of segments that were opened for that.
        let early = self.storage.opened_early(self.tenant);
        self.storage.cache.forget_segments(self.tenant, |segment| !early.contains(&segment));
    }
}

/// Opens all segments of a manifest, newest first, but for those that are open.
async fn open_all(
    storage: &Storage,
    reader: &Reader,
    prefix: &Path,
    (entries, early): (&BTreeMap<String, ObjectRef>, &BTreeMap<ObjectRef, Arc<Segment>>),
) -> Result<Vec<(Arc<Segment>, ObjectRef)>, StorageError> {
    let opens = entries.values().rev().cloned().map(|object| async move {
        let segment = match early.get(&object) {
            Some(segment) => Arc::clone(segment),
            None => Arc::new(open_segment(storage, reader, object.clone()).await?),
        };
        Ok::<_, StorageError>((segment, object))
    });
    let opened: Vec<_> = futures::stream::iter(opens).buffered(PARALLEL_OPENS).try_collect().await?;
    for ((segment, _), name) in opened.iter().zip(entries.keys().rev()) {
        let footer = segment.footer();
        if !name.starts_with(&entry_name(footer.after, footer.upto, 0)[..41]) {
            return Err(StorageError::Entry { prefix: storage.place(prefix), entry: name.clone() });
        }
    }
    Ok(opened)
}

pub(super) async fn open_segment(
    storage: &Storage,
    reader: &Reader,
    object: ObjectRef,
) -> Result<Segment, StorageError> {
    let number = storage.next_number();
    let mut from = object.bytes.saturating_sub(TAIL_BYTES);
    loop {
        let tail = reader.read_range(&object, from..object.bytes).await?;
        match open_tail(number, object.bytes, &tail)? {
            Ok(segment) => return Ok(segment),
            Err(needed) => from = needed,
        }
    }
}
