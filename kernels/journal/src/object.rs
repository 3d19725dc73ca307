//! The log in an object store: every batch is one object, and the objects are numbered.
//!
//! An object is written with *create only if it is not there*. That is the fence: a new owner writes an object without
//! records under the first number that is missing, so that the old owner's write of that number meets it and fails. A batch is durable when its
//! object and all before it are written, and no check before or after is needed. The object that began a term stays for ever (72 bytes):
//! an old owner that wakes up after years still meets it.
//!
//! ```text
//!  term 1 ends, with puts under way:    .. 20 21 22    24    26        22 is the last that was told
//!  term 2 fences under the first hole:  .. 20 21 22 [23] 24 25 26 .. 30    24 to 30 are not used: what arrives there late, counts for nothing
//!  and goes on behind:                                                 31 32 33 ..
//! ```
//!
//! **Why nothing is lost.** An owner has at most [`PUTS_MAX`] puts under way, of numbers that follow each other, and tells nobody of one before all
//! before it are there. So what was told is before the first hole, or there is none; and an owner that meets the fence in the hole tells nobody of what is
//! behind it. **Why nothing comes back.** What an owner had under way behind the hole has one of the next seven numbers, which no later owner uses; of an older
//! term behind a newer one, it is ignored, whenever it arrives. **What is a hole.** Each object says how many before it may be missing;
//! all before those were there once, and are missing because they were truncated, or were damaged.
//!
//! **A fence that came too late.** Who looked, was overtaken, and put its object where the owner has been and truncated, fences nobody. It is *void*: an
//! object of an older term behind it says that its number had been there, or the next fence follows another object. Whoever put it sees that
//! as soon as it looks again, removes it and begins anew; if it ended before, everybody who reads the log sees it.
//!
//! A log is ended by such an object that says so. Whoever opens or ends the log meets it.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

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
    time::{Instant, sleep, timeout},
};

use crate::{
    backend::{Backend, PutTold},
    batch::Batch,
    error::JournalError,
    record::{Lsn, Record},
    segment::{self, Beside, Header, Reach, SEGMENT_HEADER, Term},
};

/// Objects read at once, and their bytes, unless one has more.
const READ_AHEAD: usize = 64;
const READ_AHEAD_BYTES: u64 = 32 << 20;

/// To read an object takes as long as to read so many bytes more.
pub(crate) const READ_COST: u64 = 32 << 10;

/// Times that an owner may truncate the log while we look at it, before it is reported.
const SURVEY_ATTEMPTS: usize = 64;

/// Times that other owners may come first while we open, before it is reported.
const FENCE_ATTEMPTS: usize = 64;

/// How long closing waits for objects to be removed.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long a put of which nothing is known is tried again.
pub(crate) const PUT_TIME: Duration = Duration::from_secs(180);
/// Before it is.
const PUT_PAUSE: Duration = Duration::from_millis(200);

/// So many puts of an owner may be under way. Whoever comes after it leaves as many numbers free, so that this is part of the format.
pub(crate) const PUTS_MAX: usize = 8;

/// The numbers that a fence leaves free.
const SKIPPED: u8 = PUTS_MAX as u8 - 1;

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
pub(crate) struct ObjectBackend {
    bucket: Bucket,
    term: Term,
    next_number: u64,
    stored: Vec<Stored>,
    oldest: Lsn,
    told: Option<PutTold>,
}

impl ObjectBackend {
    /// Fences older owners and replays the log. Returns the last LSN.
    pub(crate) fn open(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        epoch: NodeEpoch,
        put_time: Duration,
        deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(Self, Lsn), JournalError> {
        let (mut backend, log, last) = Self::begin(store, prefix, epoch, put_time, false)?;
        let (stored, stale) = replay(&backend.bucket, &log, backend.oldest, last, deliver)?;
        backend.stored.splice(..0, stored);
        backend.bucket.remove(stale);
        backend.remove_needless();
        Ok((backend, last))
    }

    /// Puts the object that begins a term, and ends the log if it `seals`. Returns the log before it and the last LSN.
    fn begin(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        epoch: NodeEpoch,
        put_time: Duration,
        seals: bool,
    ) -> Result<(Self, Log, Lsn), JournalError> {
        if epoch == NodeEpoch::NONE {
            return Err(JournalError::NoEpoch);
        }
        let mut bucket = Bucket::new(store, prefix, put_time)?;
        for _ in 0..FENCE_ATTEMPTS {
            let log = bucket.survey()?;
            if seals && log.objects.is_empty() {
                return Err(JournalError::NoLog { log: bucket.prefix.to_string() });
            }
            let end = log.end(&bucket)?;
            if end.seals {
                return Err(JournalError::Sealed { log: bucket.describe(end.number), last: end.last });
            }
            let Some(term) = end.term.succeed(epoch) else {
                return Err(JournalError::Fenced { ours: epoch, theirs: end.term.epoch });
            };
            let mut backend =
                Self { bucket, term, next_number: end.next, stored: Vec::new(), oldest: end.oldest, told: None };
            let kind = if seals { Kind::End } else { Kind::Begin };
            let behind = end.next - end.number - 1;
            if backend.put_now(end.last, kind, behind)?.is_none() {
                // Had the owner gone on and truncated since we looked, ours would stand in a gap and fence nobody.
                let number = end.next;
                let log = backend.bucket.survey()?;
                match log.fences.last() {
                    Some(fence) if fence.number == number => return Ok((backend, log.before(number), end.last)),
                    // Whoever opened it after that decides what we have to come after. Ours is a part of the log then.
                    _ if !log.void.contains(&number) => {}
                    _ => backend.bucket.remove(vec![number]),
                }
            }
            // Somebody else wrote first; whoever it is decides what we have to come after.
            bucket = backend.bucket;
        }
        Err(JournalError::Stopped {
            reason: format!("{FENCE_ATTEMPTS} other owners wrote to the log while it was being opened"),
        })
    }

    /// The next object, of a kind, which takes its number. So many before it may be missing.
    fn next(&mut self, durable: Lsn, batch: Option<&Batch>, kind: Kind, behind: u64) -> (u64, Bytes) {
        let opens_term = kind != Kind::Batch;
        let skips = if opens_term { SKIPPED } else { 0 };
        // Of those who end a log, all are to put the same.
        let nonce = if kind == Kind::Begin { rand::random() } else { 0 };
        let header = Header {
            term: self.term,
            sequence: self.next_number,
            first: batch.map_or_else(|| durable.next(), Batch::first),
            base: durable,
            oldest: self.oldest,
            body: Some(batch.map_or(0, |batch| batch.bytes() as u64)),
            opens_term,
            seals: kind == Kind::End,
            beside: Some(Beside { behind: u8::try_from(behind).unwrap_or(u8::MAX), skips, nonce }),
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
        let number = self.next_number;
        self.next_number += 1 + u64::from(skips);
        self.stored.push(Stored { number, last: batch.map_or(durable, Batch::last), opens_term });
        (number, Bytes::from(bytes))
    }

    /// Puts an object without records and waits for it. Returns the header of the one that is there already, if it is not ours.
    fn put_now(&mut self, durable: Lsn, kind: Kind, behind: u64) -> Result<Option<Header>, JournalError> {
        let (number, bytes) = self.next(durable, None, kind, behind);
        self.bucket.wait(self.bucket.put(number, bytes))?
    }

    /// Removes objects of which the log promises nothing any more.
    fn remove_needless(&mut self) {
        let (newest, oldest) = (self.stored.last().map_or(0, |stored| stored.number), self.oldest);
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.stored.drain(..).partition(|stored| stored.is_before(oldest) && stored.number != newest);
        self.stored = kept;
        if !gone.is_empty() {
            self.bucket.remove(gone.iter().map(|stored| stored.number).collect());
        }
    }
}

impl std::fmt::Debug for ObjectBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectBackend").field("bucket", &self.bucket).field("term", &self.term).finish_non_exhaustive()
    }
}

impl Backend for ObjectBackend {
    /// Nothing to ask: the write itself meets the fence.
    fn check_fence(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn write(&mut self, _batch: &Batch, _durable: Lsn) -> Result<(), JournalError> {
        Err(JournalError::Stopped { reason: "a store takes batches beside each other".to_owned() })
    }

    fn put(&mut self, batch: &Batch, durable: Lsn, behind: usize) -> Result<(), JournalError> {
        let (number, bytes) = self.next(durable, Some(batch), Kind::Batch, behind as u64);
        let (put, last, ours) = (self.bucket.put(number, bytes), batch.last(), self.term.epoch);
        let told = self.told.clone().expect("whoever puts wants to know what becomes of it");
        self.bucket.spawn(async move {
            told(last, put.await.and_then(|other| unfenced(ours, other)));
        });
        Ok(())
    }

    fn on_put(&mut self, told: PutTold) {
        self.told = Some(told);
    }

    /// Nothing to do: an object that is written is durable.
    fn flush(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// No put is under way.
    fn truncate(&mut self, oldest: Lsn, durable: Lsn) -> Result<(), JournalError> {
        self.oldest = self.oldest.max(oldest);
        if !self.stored.iter().any(|stored| stored.is_before(oldest)) {
            return Ok(());
        }
        // The promise is withdrawn durably before anything is removed, so that a missing object is always an error.
        let other = self.put_now(durable, Kind::Batch, 0)?;
        unfenced(self.term.epoch, other)?;
        self.remove_needless();
        Ok(())
    }
}

/// Fails if another owner's object was met.
fn unfenced(ours: NodeEpoch, met: Option<Header>) -> Result<(), JournalError> {
    met.map_or(Ok(()), |other| Err(JournalError::Fenced { ours, theirs: other.term.epoch }))
}

/// Replays the objects of a log, which end at `last`. Returns those that count, and the numbers of those that came too late to.
fn replay(
    bucket: &Bucket,
    log: &Log,
    oldest: Lsn,
    last: Lsn,
    deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<(Vec<Stored>, Vec<u64>), JournalError> {
    let mut replayed = Vec::with_capacity(log.objects.len());
    let mut stale = Vec::new();
    let mut counted: Option<Lsn> = None;
    for some in read_at_once(&log.objects) {
        let numbers: Vec<u64> = some.iter().map(|object| object.number).collect();
        for (number, bytes) in numbers.iter().zip(bucket.get_many(&numbers)?) {
            let path = bucket.describe(*number);
            // Truncated by the owner before us; if it was needed, the next one shows a hole.
            let Some(bytes) = bytes else { continue };
            let (header, _) = Header::decode(&bytes, &path)?;
            if header.sequence != *number {
                return Err(segment::misplaced(&path, &header));
            }
            if header.term < log.term_at(*number) || log.void.contains(number) {
                stale.push(*number);
                continue;
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
        let end = log.objects.last().map_or(0, |object| object.number);
        return Err(JournalError::Missing { file: bucket.describe(end + 1), needed, first: last.next() });
    }
    Ok((replayed, stale))
}

/// The objects whose headers tell where a log ends, and which fences are void: those without records, what is before each, and the newest.
fn telling(objects: &[Object]) -> Vec<Object> {
    let newest = objects.last().map_or(0, |object| object.number);
    let mut telling = BTreeSet::new();
    for (at, object) in objects.iter().enumerate() {
        if object.bytes <= SEGMENT_HEADER as u64 {
            telling.extend(at.saturating_sub(PUTS_MAX)..=at);
        }
        // What a fence left free, and what was put beside each other, is among these.
        if object.number + 2 * PUTS_MAX as u64 > newest {
            telling.insert(at);
        }
    }
    telling.into_iter().map(|at| objects[at]).collect()
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
pub(crate) fn seal(
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    epoch: NodeEpoch,
    put_time: Duration,
) -> Result<Lsn, JournalError> {
    match ObjectBackend::begin(store, prefix, epoch, put_time, true) {
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
    let bucket = Bucket::new(store, prefix, PUT_TIME)?;
    let (log, end) = sealed(&bucket, last)?;
    replay(&bucket, &log.before(end.number), end.oldest, end.last, deliver).map(drop)
}

/// Removes all but the object that ends the log, at `last`.
pub(crate) fn empty_sealed(store: Arc<dyn ObjectStore>, prefix: Path, last: Lsn) -> Result<(), JournalError> {
    let bucket = Bucket::new(store, prefix, PUT_TIME)?;
    let (log, end) = sealed(&bucket, last)?;
    bucket.remove_now(log.objects.iter().map(|object| object.number).filter(|number| *number != end.number).collect())
}

/// A log that has ended at `last`, and its end.
fn sealed(bucket: &Bucket, last: Lsn) -> Result<(Log, End), JournalError> {
    let log = bucket.survey()?;
    let end = log.end(bucket)?;
    if !end.seals || end.last != last {
        return Err(JournalError::replaced(bucket.prefix.to_string(), last, end.seals.then_some(end.last)));
    }
    Ok((log, end))
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

/// An object of which the header is known.
#[derive(Clone, Copy, Debug)]
struct Head {
    number: u64,
    header: Header,
}

impl Head {
    fn beside(&self) -> Beside {
        self.header.beside.unwrap_or_default()
    }

    /// All numbers of its log below this one were there when it was put.
    fn settled(&self) -> u64 {
        self.number.saturating_sub(u64::from(self.beside().behind))
    }

    /// The number that comes after it.
    fn successor(&self) -> u64 {
        self.number + 1 + u64::from(self.beside().skips)
    }
}

/// What is there of a log.
#[derive(Debug)]
struct Log {
    /// Ascending.
    objects: Vec<Object>,
    /// Of objects without records, and of the newest: ascending.
    heads: Vec<Head>,
    /// Those that begin a term, ascending.
    fences: Vec<Head>,
    /// The numbers of fences that came too late to fence anybody.
    void: BTreeSet<u64>,
}

/// Where a log ends.
struct End {
    /// The last object that counts.
    number: u64,
    /// Where the next one is to be.
    next: u64,
    term: Term,
    last: Lsn,
    oldest: Lsn,
    seals: bool,
}

impl Log {
    fn new(objects: Vec<Object>, heads: Vec<Head>) -> Self {
        let mut log = Self { objects, heads, fences: Vec::new(), void: BTreeSet::new() };
        let fences: Vec<Head> = log.heads.iter().filter(|head| head.header.opens_term).copied().collect();
        // A fence is judged by what comes after it, so the later ones are judged first.
        for fence in fences.into_iter().rev() {
            if log.is_void(&fence) {
                log.void.insert(fence.number);
            } else {
                log.fences.insert(0, fence);
            }
        }
        log
    }

    /// Whether the log went on behind a fence as if it were not there. The fences behind it are known.
    fn is_void(&self, fence: &Head) -> bool {
        let (number, term, own) = (fence.number, fence.header.term, fence.successor());
        if let Some(next) = self.fences.first() {
            // It follows what its owner had found last: this fence, or something behind it that is this owner's.
            let follows = next.settled().saturating_sub(1);
            if next.header.term < term || next.number < own || (number < follows && follows < own) {
                return true;
            }
        }
        let end = self.fences.first().map_or(u64::MAX, |next| next.number);
        let passed = self.heads.iter().filter(|head| (number + 1..end).contains(&head.number));
        // Of an owner before, what arrives late says that this number may be missing.
        passed.filter(|head| head.header.term < term).any(|head| head.number >= own || head.settled() > number)
    }

    /// The term of whoever wrote under a number, if what it wrote counts.
    fn term_at(&self, number: u64) -> Term {
        let before = self.fences.iter().take_while(|fence| fence.number <= number);
        before.last().map_or_else(Term::default, |fence| fence.header.term)
    }

    /// What is there below a number.
    fn before(mut self, number: u64) -> Self {
        self.objects.retain(|object| object.number < number);
        self.heads.retain(|head| head.number < number);
        self.fences.retain(|fence| fence.number < number);
        self.void.retain(|void| *void < number);
        self
    }

    /// Where it ends: before the first number that is missing, and had never been there.
    fn end(&self, bucket: &Bucket) -> Result<End, JournalError> {
        let Some(fence) = self.fences.last() else {
            return match self.objects.first() {
                None => {
                    Ok(End { number: 0, next: 1, term: Term::default(), last: Lsn::NONE, oldest: Lsn(1), seals: false })
                }
                Some(first) => Err(JournalError::Missing {
                    file: format!("what began the log before {}", bucket.describe(first.number)),
                    needed: Lsn(1),
                    first: Lsn(1),
                }),
            };
        };
        // A void fence may stand among them.
        let is_own = |head: &&Head| head.number >= fence.successor() && head.header.term == fence.header.term;
        let own: Vec<&Head> = self.heads.iter().filter(is_own).collect();
        let settled = own.iter().map(|head| head.settled()).max().unwrap_or_default();
        // Numbers before that are missing because they were truncated.
        let mut counts = *own.iter().rev().find(|head| head.number < settled).unwrap_or(&fence);
        let mut next = counts.successor().max(settled);
        while let Some(head) = own.iter().find(|head| head.number == next) {
            (counts, next) = (head, head.successor());
        }
        let last = bucket.last_record(counts)?;
        let durable = own.iter().map(|head| head.header.base).max().unwrap_or(last);
        if durable > last {
            return Err(JournalError::Missing {
                file: bucket.describe(counts.successor()),
                needed: last.next(),
                first: durable.next(),
            });
        }
        let Header { oldest, seals, .. } = counts.header;
        Ok(End { number: counts.number, next, term: fence.header.term, last, oldest, seals })
    }
}

/// The objects under a prefix, with calls that wait. The requests run on a thread of their own, so that a caller
/// may itself be a task of some other runtime.
#[derive(Debug)]
struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Option<Runtime>,
    removals: Mutex<Vec<JoinHandle<()>>>,
    put_time: Duration,
}

impl Bucket {
    fn new(store: Arc<dyn ObjectStore>, prefix: Path, put_time: Duration) -> Result<Self, JournalError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("journal-store")
            .enable_all()
            .build()
            .map_err(JournalError::io("start a thread for", prefix.as_ref()))?;
        Ok(Self { store, prefix, runtime: Some(runtime), removals: Mutex::new(Vec::new()), put_time })
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

    fn spawn(&self, request: impl Future<Output = ()> + Send + 'static) {
        self.runtime.as_ref().expect("the runtime is there until the bucket is dropped").spawn(request);
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

    /// What is there, and what it says of itself.
    fn survey(&self) -> Result<Log, JournalError> {
        for _ in 0..SURVEY_ATTEMPTS {
            let objects = self.list()?;
            let heads = self.heads(&telling(&objects))?;
            if let Some(heads) = heads.into_iter().collect() {
                return Ok(Log::new(objects, heads));
            }
            // Its owner truncates it.
        }
        Err(JournalError::Stopped { reason: format!("the log changed {SURVEY_ATTEMPTS} times while it was looked at") })
    }

    /// The headers of objects; none of one that is not there.
    fn heads(&self, objects: &[Object]) -> Result<Vec<Option<Head>>, JournalError> {
        let store = Arc::clone(&self.store);
        let wanted: Vec<_> = objects.iter().map(|object| (self.path(object.number), object.bytes)).collect();
        let bytes: Result<Vec<Option<Bytes>>, JournalError> = self.wait(async move {
            let requests = wanted.into_iter().map(|(path, bytes)| {
                let store = Arc::clone(&store);
                async move {
                    match store.get_range(&path, 0..bytes.min(SEGMENT_HEADER as u64)).await {
                        Ok(bytes) => Ok(Some(bytes)),
                        Err(StoreError::NotFound { .. }) => Ok(None),
                        Err(error) => Err(JournalError::store("read", &path)(error)),
                    }
                }
            });
            stream::iter(requests).buffered(READ_AHEAD).try_collect().await
        })?;
        let head = |(object, bytes): (&Object, Option<Bytes>)| {
            let number = object.number;
            let read = |bytes: Bytes| {
                let path = self.describe(number);
                let (header, _) = Header::decode(&bytes, &path)?;
                match header.sequence == number {
                    true => Ok(Head { number, header }),
                    false => Err(segment::misplaced(&path, &header)),
                }
            };
            bytes.map(read).transpose()
        };
        objects.iter().zip(bytes?).map(head).collect()
    }

    /// The last record up to an object.
    fn last_record(&self, head: &Head) -> Result<Lsn, JournalError> {
        if head.header.body == Some(0) {
            return Ok(head.header.first.previous());
        }
        let path = self.describe(head.number);
        Ok(segment::scan(&path, &self.get(head.number)?, Reach::Whole, &mut |_| Ok(()))?.last)
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

    /// Puts an object, again and again until it is known whether it is there. Gives the header of the one that is there already, if it is not the same.
    fn put(
        &self,
        number: u64,
        bytes: Bytes,
    ) -> impl Future<Output = Result<Option<Header>, JournalError>> + Send + use<> {
        let (store, path, name) = (Arc::clone(&self.store), self.path(number), self.describe(number));
        let deadline = Instant::now() + self.put_time;
        async move {
            loop {
                let options = PutOptions::from(PutMode::Create);
                let error = match store.put_opts(&path, PutPayload::from(bytes.clone()), options).await {
                    Ok(_) => return Ok(None),
                    Err(refusal @ StoreError::AlreadyExists { .. }) => {
                        let read = async { store.get(&path).await?.bytes().await };
                        match read.await {
                            // A request that was sent twice, or whose answer was lost, meets its own object.
                            Ok(there) if there == bytes => return Ok(None),
                            Ok(there) => return Ok(Some(Header::decode(&there, &name)?.0)),
                            // The store says the same while another request for the object is under way.
                            Err(StoreError::NotFound { .. }) => refusal,
                            Err(error) => error,
                        }
                    }
                    Err(error) => error,
                };
                if !may_pass(&error) || Instant::now() + PUT_PAUSE > deadline {
                    return Err(JournalError::store("create", &name)(error));
                }
                tracing::debug!(%error, object = name, "a put may not have been done, it is tried again");
                sleep(PUT_PAUSE).await;
            }
        }
    }

    /// Removes objects, and waits until they are gone.
    fn remove_now(&self, numbers: Vec<u64>) -> Result<(), JournalError> {
        let paths: Vec<_> = numbers.into_iter().map(|number| Ok(self.path(number))).collect();
        let store = Arc::clone(&self.store);
        let removed = self.wait(async move {
            let removed = store.delete_stream(stream::iter(paths).boxed());
            let is_left =
                |result: &Result<Path, StoreError>| !matches!(result, Ok(_) | Err(StoreError::NotFound { .. }));
            let mut left = removed.filter(|result| std::future::ready(is_left(result)));
            left.next().await.transpose()
        })?;
        removed.map(drop).map_err(JournalError::store("remove objects of", &self.prefix))
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

/// Whether a put that ended so may be done when it is tried again, or is done already.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. } | StoreError::AlreadyExists { .. })
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
