//! The log in an object store: every batch is one object, and the objects are numbered without gaps.
//!
//! An object is written with *create only if it is not there*. That is the fence: a new owner writes an object without
//! records under the next number, so that the old owner's next write meets it and fails. A batch is durable when its
//! object is written, and no check before or after is needed. The object that began a term stays for ever (72 bytes):
//! an old owner that wakes up after years still meets it.
//!
//! A log is ended by such an object that says so. Nobody puts one behind it: the owner's next write meets it, and whoever opens or
//! ends the log reads the newest object first.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, path::Path,
};
use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    backend::Backend,
    batch::Batch,
    error::JournalError,
    record::{Lsn, Record},
    segment::{self, Header, Reach, Term},
};

/// Objects read at once, and their bytes, unless one has more.
const READ_AHEAD: usize = 16;
const READ_AHEAD_BYTES: u64 = 32 << 20;

/// Times that other owners may come first while we open, before it is reported.
const FENCE_ATTEMPTS: usize = 64;

/// How long closing waits for objects to be removed.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

/// An object of the log.
#[derive(Clone, Copy, Debug)]
struct Stored {
    number: u64,
    last: Lsn,
    opens_term: bool,
}

impl Stored {
    /// Whether it holds only records before `oldest` and fences nobody.
    fn is_before(&self, oldest: Lsn) -> bool {
        self.last < oldest && !self.opens_term
    }
}

/// The log in an object store, open for appending.
#[derive(Debug)]
pub(crate) struct ObjectBackend {
    bucket: Bucket,
    term: Term,
    next_number: u64,
    stored: Vec<Stored>,
    oldest: Lsn,
}

impl ObjectBackend {
    /// Fences older owners and replays the log. Returns the last LSN.
    pub(crate) fn open(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        epoch: NodeEpoch,
        deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(Self, Lsn), JournalError> {
        let (mut backend, objects, last) = Self::begin(store, prefix, epoch, false)?;
        let stored = replay(&backend.bucket, &objects, backend.oldest, last, deliver)?;
        backend.stored.splice(..0, stored);
        backend.remove_needless();
        Ok((backend, last))
    }

    /// Puts the object that begins a term, and ends the log if it `seals`. Returns the objects before it and the last LSN.
    fn begin(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        epoch: NodeEpoch,
        seals: bool,
    ) -> Result<(Self, Vec<Object>, Lsn), JournalError> {
        if epoch == NodeEpoch::NONE {
            return Err(JournalError::NoEpoch);
        }
        let mut bucket = Bucket::new(store, prefix)?;
        for _ in 0..FENCE_ATTEMPTS {
            let objects = bucket.list()?;
            if seals && objects.is_empty() {
                return Err(JournalError::NoLog { log: bucket.prefix.to_string() });
            }
            let newest = bucket.newest(objects.last())?;
            if newest.seals {
                return Err(JournalError::Sealed { log: bucket.describe(newest.number), last: newest.last });
            }
            let Some(term) = newest.term.succeed(epoch) else {
                return Err(JournalError::Fenced { ours: epoch, theirs: newest.term.epoch });
            };
            let mut backend =
                Self { bucket, term, next_number: newest.number + 1, stored: Vec::new(), oldest: newest.oldest };
            let number = backend.next_number;
            let kind = if seals { Kind::End } else { Kind::Begin };
            if backend.put(newest.last, None, kind)?.is_none() {
                // Had the owner gone on and truncated since we looked, ours would stand in a gap and fence nobody. The
                // newest object is never removed, so that if ours is the newest now, the owner's next one meets it.
                let mut objects = backend.bucket.list()?;
                if objects.pop().is_some_and(|object| object.number == number) {
                    return Ok((backend, objects, newest.last));
                }
                backend.bucket.remove(vec![number]);
            }
            // Somebody else wrote first; whoever it is decides what we have to come after.
            bucket = backend.bucket;
        }
        Err(JournalError::Stopped {
            reason: format!("{FENCE_ATTEMPTS} other owners wrote to the log while it was being opened"),
        })
    }

    /// Writes the next object. Returns the header of the one that is there already, if it is not ours.
    fn put(&mut self, durable: Lsn, batch: Option<&Batch>, kind: Kind) -> Result<Option<Header>, JournalError> {
        let opens_term = kind != Kind::Batch;
        let header = Header {
            term: self.term,
            sequence: self.next_number,
            first: durable.next(),
            base: durable,
            oldest: self.oldest,
            body: Some(batch.map_or(0, |batch| batch.bytes() as u64)),
            opens_term,
            seals: kind == Kind::End,
        };
        let (head, seal) = header.encode();
        let mut bytes = head.to_vec();
        if let Some(batch) = batch {
            bytes.reserve(batch.bytes());
            for piece in batch.pieces() {
                let offset = bytes.len();
                piece.encode(&mut bytes, seal, offset, self.term.epoch, durable);
            }
        }
        let bytes = Bytes::from(bytes);
        if !self.bucket.create(self.next_number, bytes.clone())? {
            let there = self.bucket.get(self.next_number)?;
            // A request that was sent twice meets its own object.
            if there != bytes {
                let path = self.bucket.describe(self.next_number);
                return Ok(Some(Header::decode(&there, &path)?.0));
            }
        }
        self.stored.push(Stored { number: self.next_number, last: batch.map_or(durable, Batch::last), opens_term });
        self.next_number += 1;
        Ok(None)
    }

    /// Removes objects of which the log promises nothing any more.
    fn remove_needless(&mut self) {
        let (newest, oldest) = (self.next_number - 1, self.oldest);
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.stored.drain(..).partition(|stored| stored.is_before(oldest) && stored.number != newest);
        self.stored = kept;
        if !gone.is_empty() {
            self.bucket.remove(gone.iter().map(|stored| stored.number).collect());
        }
    }

    fn put_or_fenced(&mut self, durable: Lsn, batch: Option<&Batch>) -> Result<(), JournalError> {
        match self.put(durable, batch, Kind::Batch)? {
            None => Ok(()),
            Some(other) => Err(JournalError::Fenced { ours: self.term.epoch, theirs: other.term.epoch }),
        }
    }
}

impl Backend for ObjectBackend {
    /// Nothing to ask: the write itself meets the fence.
    fn check_fence(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn write(&mut self, batch: &Batch, durable: Lsn) -> Result<(), JournalError> {
        self.put_or_fenced(durable, Some(batch))
    }

    /// Nothing to do: an object that is written is durable.
    fn flush(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn truncate(&mut self, oldest: Lsn, durable: Lsn) -> Result<(), JournalError> {
        self.oldest = self.oldest.max(oldest);
        if !self.stored.iter().any(|stored| stored.is_before(oldest)) {
            return Ok(());
        }
        // The promise is withdrawn durably before anything is removed, so that a missing object is always an error.
        self.put_or_fenced(durable, None)?;
        self.remove_needless();
        Ok(())
    }
}

/// Replays objects, which end at `last`.
fn replay(
    bucket: &Bucket,
    objects: &[Object],
    oldest: Lsn,
    last: Lsn,
    deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<Vec<Stored>, JournalError> {
    let mut replayed = Vec::with_capacity(objects.len());
    let mut counted: Option<Lsn> = None;
    for some in read_at_once(objects) {
        let numbers: Vec<u64> = some.iter().map(|object| object.number).collect();
        for (number, bytes) in numbers.iter().zip(bucket.get_many(&numbers)?) {
            let path = bucket.describe(*number);
            // Truncated by the owner before us; if it was needed, the next one shows a hole.
            let Some(bytes) = bytes else { continue };
            let (header, _) = Header::decode(&bytes, &path)?;
            if header.sequence != *number {
                return Err(segment::misplaced(&path, &header));
            }
            let mut records = Vec::new();
            let scan = segment::scan(&path, &bytes, Reach::Whole, &mut |record| {
                records.push(record);
                Ok(())
            })?;
            replayed.push(Stored { number: *number, last: scan.last, opens_term: header.opens_term });
            if scan.last < oldest {
                continue;
            }
            let needed = counted.map_or(oldest, Lsn::next);
            if header.first > needed {
                return Err(JournalError::Missing { file: path, needed, first: header.first });
            }
            counted = Some(scan.last);
            records.into_iter().try_for_each(&mut *deliver)?;
        }
    }
    let needed = counted.map_or(oldest, Lsn::next);
    if needed <= last {
        let end = objects.last().map_or(0, |object| object.number);
        return Err(JournalError::Missing { file: bucket.describe(end + 1), needed, first: last.next() });
    }
    Ok(replayed)
}

/// Objects in parts that fit into memory and are few enough requests.
fn read_at_once(objects: &[Object]) -> impl Iterator<Item = &[Object]> {
    let mut rest = objects;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |object: &&Object| {
            bytes += object.bytes;
            bytes <= READ_AHEAD_BYTES
        };
        let count = rest.iter().take(READ_AHEAD).take_while(fits).count().max(1).min(rest.len());
        let (some, others) = rest.split_at(count);
        rest = others;
        (!some.is_empty()).then_some(some)
    })
}

/// Ends the log, if it has not ended. Returns its last record's LSN.
pub(crate) fn seal(store: Arc<dyn ObjectStore>, prefix: Path, epoch: NodeEpoch) -> Result<Lsn, JournalError> {
    match ObjectBackend::begin(store, prefix, epoch, true) {
        Ok((_, _, last)) | Err(JournalError::Sealed { last, .. }) => Ok(last),
        Err(error) => Err(error),
    }
}

/// Hands over the records of a log that has ended at `last`, and changes nothing.
pub(crate) fn read_sealed(
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    last: Lsn,
    deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let bucket = Bucket::new(store, prefix)?;
    let mut objects = bucket.list()?;
    let end = bucket.newest(objects.pop().as_ref())?;
    if !end.seals || end.last != last {
        return Err(JournalError::replaced(bucket.prefix.to_string(), last, end.seals.then_some(end.last)));
    }
    replay(&bucket, &objects, end.oldest, end.last, deliver).map(drop)
}

/// What an object is put for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Batch,
    /// The first of a term.
    Begin,
    /// The last of the log.
    End,
}

/// An object that is there.
#[derive(Clone, Copy, Debug)]
struct Object {
    number: u64,
    bytes: u64,
}

/// What the newest object says.
struct Newest {
    number: u64,
    term: Term,
    last: Lsn,
    oldest: Lsn,
    seals: bool,
}

/// The objects under a prefix, with calls that wait. The requests run on a thread of their own, so that a caller
/// may itself be a task of some other runtime.
#[derive(Debug)]
struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Option<Runtime>,
    removals: Mutex<Vec<JoinHandle<()>>>,
}

impl Bucket {
    fn new(store: Arc<dyn ObjectStore>, prefix: Path) -> Result<Self, JournalError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("journal-store")
            .enable_all()
            .build()
            .map_err(JournalError::io("start a thread for", prefix.as_ref()))?;
        Ok(Self { store, prefix, runtime: Some(runtime), removals: Mutex::new(Vec::new()) })
    }

    fn wait<T: Send + 'static>(&self, request: impl Future<Output = T> + Send + 'static) -> Result<T, JournalError> {
        let runtime = self.runtime.as_ref().expect("the runtime is there until the bucket is dropped");
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            // Whoever waits is gone only if its thread is.
            drop(sender.send(request.await));
        });
        receiver
            .recv()
            .map_err(|_| JournalError::Stopped { reason: "a request to the object store panicked".to_owned() })
    }

    fn path(&self, number: u64) -> Path {
        self.prefix.clone().join(format!("{number:020}.segment"))
    }

    fn describe(&self, number: u64) -> String {
        format!("{} in {}", self.path(number), self.store)
    }

    /// All objects, ascending.
    fn list(&self) -> Result<Vec<Object>, JournalError> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let listed = self.wait(async move { store.list(Some(&prefix)).try_collect::<Vec<_>>().await })?;
        let objects = listed.map_err(JournalError::store("list", &self.prefix))?;
        let object = |meta: &ObjectMeta| {
            let number = meta.location.filename()?.strip_suffix(".segment")?.parse().ok()?;
            Some(Object { number, bytes: meta.size })
        };
        let mut objects: Vec<Object> = objects.iter().filter_map(object).collect();
        objects.sort_unstable_by_key(|object| object.number);
        Ok(objects)
    }

    fn newest(&self, object: Option<&Object>) -> Result<Newest, JournalError> {
        let Some(&Object { number, .. }) = object else {
            return Ok(Newest { number: 0, term: Term::default(), last: Lsn::NONE, oldest: Lsn(1), seals: false });
        };
        let bytes = self.get(number)?;
        let path = self.describe(number);
        let (header, _) = Header::decode(&bytes, &path)?;
        let scan = segment::scan(&path, &bytes, Reach::Whole, &mut |_| Ok(()))?;
        Ok(Newest { number, term: header.term, last: scan.last, oldest: header.oldest, seals: header.seals })
    }

    fn get(&self, number: u64) -> Result<Bytes, JournalError> {
        let (store, path) = (Arc::clone(&self.store), self.path(number));
        let read = self.wait(async move { store.get(&path).await?.bytes().await })?;
        read.map_err(JournalError::store("read", &self.describe(number)))
    }

    /// The objects of these numbers; `None` for one that is not there.
    fn get_many(&self, numbers: &[u64]) -> Result<Vec<Option<Bytes>>, JournalError> {
        let paths: Vec<Path> = numbers.iter().map(|number| self.path(*number)).collect();
        let store = Arc::clone(&self.store);
        self.wait(async move {
            let requests = paths.into_iter().map(|path| {
                let store = Arc::clone(&store);
                async move {
                    let read = async { store.get(&path).await?.bytes().await };
                    match read.await {
                        Ok(bytes) => Ok(Some(bytes)),
                        Err(StoreError::NotFound { .. }) => Ok(None),
                        Err(error) => Err(JournalError::store("read", &path)(error)),
                    }
                }
            });
            stream::iter(requests).buffered(READ_AHEAD).try_collect().await
        })?
    }

    /// Whether the object was created; `false` if there is one.
    fn create(&self, number: u64, bytes: Bytes) -> Result<bool, JournalError> {
        let (store, path) = (Arc::clone(&self.store), self.path(number));
        let options = PutOptions::from(PutMode::Create);
        let created = self.wait(async move { store.put_opts(&path, PutPayload::from(bytes), options).await })?;
        match created {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(JournalError::store("create", &self.describe(number))(error)),
        }
    }

    /// Removes objects in the background.
    fn remove(&self, numbers: Vec<u64>) {
        let paths: Vec<_> = numbers.into_iter().map(|number| Ok(self.path(number))).collect();
        let store = Arc::clone(&self.store);
        let runtime = self.runtime.as_ref().expect("the runtime is there until the bucket is dropped");
        let removal = runtime.spawn(async move {
            let mut removed = store.delete_stream(stream::iter(paths).boxed());
            while let Some(result) = removed.next().await {
                if let Err(error) = result {
                    tracing::warn!(%error, "could not remove an object that is no longer needed; it only takes space");
                }
            }
        });
        let mut removals = self.removals.lock();
        removals.retain(|removal| !removal.is_finished());
        removals.push(removal);
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Dropped like any other value, a runtime would refuse to stop inside of an asynchronous task.
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let removals = std::mem::take(&mut *self.removals.lock());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // What is not removed by then is removed by the next owner.
                let patience = async { timeout(REMOVAL_PATIENCE, join_all(removals)).await };
                drop(runtime.block_on(patience));
                runtime.shutdown_background();
            });
        });
    }
}
