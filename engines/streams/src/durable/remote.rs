//! A query that is kept in a folder of a bucket, so that another node goes on with it where its own is lost.
//!
//! ```text
//!   log/<number>                                who has the query, its text, the records of its epochs, which snapshot counts
//!   snapshots/<owner>-<epoch>-<stage>-<part>    the state of a member
//!   lookups/<look-up>-<version>                 a table in which it looks rows up, as it was read
//! ```
//!
//! What counts is said by the log alone, whose entries are created and never written over ([`StoreLog`]). Everything else is created under
//! a name of its own before an entry names it, and goes when no entry does.

mod files;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{Bucket, Created, unique};
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::records::{EpochLog, WhenDurable};
use savanna_streams_runtime::snapshot::{Manifest, Snapshot};
use savanna_streams_runtime::store_log::{Entry, Found, StoreLog};

use self::files::{RemoteLookups, RemoteSnapshots};
use super::query_log::WhenEnded;
use super::store::HasItsPlace;
use super::stored::{KeptIn, StoredQuery, decode, encode};

/// A store may be away for so long when a query begins, and while it runs.
const PATIENCE_AT_START: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(300);
/// An entry that is longer is none: the longest has the text of the query and 200 bytes for each member.
const ENTRY_MAX: u64 = 64 << 20;
/// So many entries are read at once.
const READ_AT_ONCE: usize = 64;
/// Entries that go while they are read were those of a process that runs: then it is looked again, so often.
const LOOKS_MAX: usize = 5;

/// A query that was opened.
pub(super) struct Opened {
    pub(super) log: Arc<RemoteLog>,
    pub(super) records: Vec<EpochRecord>,
    pub(super) snapshots: Arc<RemoteSnapshots>,
    pub(super) lookups: Arc<RemoteLookups>,
    pub(super) found: Result<Option<Snapshot>>,
}

/// From whom a query is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// A process of this node, or nobody.
    Ourselves,
    /// Anybody.
    Anybody,
}

/// A folder, by how long a store may be away.
type Folder<'f> = &'f dyn Fn(Duration) -> Result<Bucket>;

fn folder_of(url: &str) -> impl Fn(Duration) -> Result<Bucket> {
    move |patience| Bucket::of_url(url, patience)
}

/// Opens what a query needs to go on: from now on no former process writes anything that counts.
///
/// # Errors
/// The store does not answer or something is damaged or missing, with its place; or another node has the query.
pub(super) fn open(
    query: &StoredQuery,
    kept: &KeptIn,
    has_its_place: Option<HasItsPlace>,
    when_ended: WhenEnded,
) -> Result<Opened> {
    open_in(&folder_of(&kept.url), query, kept, has_its_place, when_ended)
}

/// Takes a query over from whoever has it, for the node that `kept` names.
///
/// # Errors
/// As [`open`].
pub(super) fn take(query: &StoredQuery, kept: &KeptIn) -> Result<()> {
    claim(&Bucket::of_url(&kept.url, PATIENCE_AT_START)?, query, kept, Whom::Anybody).map(drop)
}

/// The query that is kept in a folder; none if there is none.
///
/// # Errors
/// The store does not answer, or what is there cannot be read.
pub(super) fn kept_at(url: &str) -> Result<Option<StoredQuery>> {
    let bucket = Bucket::of_url(url, PATIENCE_AT_START)?;
    let (entries, _) = look(&bucket)?;
    let Some(claim) = found(&bucket, entries)?.claim else { return Ok(None) };
    let query = serde_json::from_str(&claim.query);
    query.map(Some).map_err(|e| unreadable(&bucket, &format!("expected a query, got something else ({e})")))
}

/// Removes a query that does not run, unless another node has it.
///
/// # Errors
/// The store does not answer; what is there belongs to nobody once its log says so.
pub(super) fn forget(kept: &KeptIn) -> Result<()> {
    forget_in(&Bucket::of_url(&kept.url, PATIENCE_AT_START)?, kept)
}

fn forget_in(bucket: &Bucket, kept: &KeptIn) -> Result<()> {
    let (entries, _) = look(bucket)?;
    let found = found(bucket, entries)?;
    let Some(claim) = found.claim.clone().filter(|claim| claim.holder == kept.holder) else { return Ok(()) };
    let log = StoreLog::new(&found, found.last, claim);
    if !create(bucket, log.next(), &log.ended())? {
        return Ok(());
    }
    let last = name_of(log.next());
    let mut names = bucket.list_behind("", "")?;
    names.retain(|name| *name != last);
    bucket.remove(&names)?;
    // Only now may it look as if nothing had been there.
    bucket.remove(&[last])
}

fn open_in(
    folder: Folder<'_>,
    query: &StoredQuery,
    kept: &KeptIn,
    has_its_place: Option<HasItsPlace>,
    when_ended: WhenEnded,
) -> Result<Opened> {
    let bucket = folder(PATIENCE_AT_START)?;
    let (log, records, numbers) = claim(&bucket, query, kept, Whom::Ourselves)?;
    let over: Vec<_> = numbers.into_iter().filter(|number| !log.stays(*number)).map(name_of).collect();
    if let Err(error) = bucket.remove(&over) {
        tracing::warn!(%error, "entries that count no more stay");
    }
    let found = files::read(&bucket, log.snapshot());
    let lookups = Arc::new(RemoteLookups::open(&bucket, folder(PATIENCE)?)?);
    let (work, comes) = channel();
    let snapshots = RemoteSnapshots::new(folder(PATIENCE)?, &log, work.clone(), has_its_place.clone());
    if found.is_ok()
        && let Err(error) = snapshots.tidy_by(&bucket)
    {
        tracing::warn!(%error, "what snapshots have left behind stays");
    }
    let writer = Writer {
        bucket: folder(PATIENCE)?,
        lookups: Arc::clone(&lookups),
        versions: records.iter().map(|record| (record.epoch, record.lookups.clone())).collect(),
        log,
        failed: None,
    };
    let give_up = {
        let (of_log, of_lookups) = (writer.bucket.give_up(), lookups.give_up());
        Box::new(move || {
            of_log();
            of_lookups();
        })
    };
    let place = bucket.describe("");
    let thread = thread::Builder::new().name("query-records".into()).spawn(move || writer.run(&comes));
    let thread = thread.map_err(|e| StreamError::io("start a thread that records epochs", &e))?;
    let log = RemoteLog { place, work, thread: Mutex::new(Some(thread)), give_up, has_its_place, when_ended };
    Ok(Opened { log: Arc::new(log), records, snapshots: Arc::new(snapshots), lookups, found })
}

fn name_of(number: u64) -> String {
    format!("log/{number:020}")
}

fn unreadable(bucket: &Bucket, cause: &str) -> StreamError {
    let cause = format!("{cause}; restore it, or drop the query and start it again with another place for its rows");
    StreamError::io(format!("read the query in {}", bucket.describe("")), &cause)
}

fn found(bucket: &Bucket, entries: BTreeMap<u64, Entry>) -> Result<Found> {
    Found::of(entries).map_err(|cause| unreadable(bucket, &cause))
}

/// All entries that count, perhaps others as well, and the numbers of all.
fn look(bucket: &Bucket) -> Result<(BTreeMap<u64, Entry>, Vec<u64>)> {
    let mut looks = 0;
    loop {
        let names = bucket.list_behind("log", "")?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.rsplit('/').next()?.parse().ok()).collect();
        numbers.sort_unstable();
        looks += 1;
        match read(bucket, &numbers) {
            Err(StreamError::Io { .. }) if looks < LOOKS_MAX && bucket.list_behind("log", "")? != names => {}
            entries => return Ok((entries?, numbers)),
        }
    }
}

fn read(bucket: &Bucket, numbers: &[u64]) -> Result<BTreeMap<u64, Entry>> {
    let mut entries = BTreeMap::new();
    let mut first = None;
    for numbers in numbers.rchunks(READ_AT_ONCE) {
        if first.is_some_and(|first| numbers.last().is_none_or(|last| *last < first)) {
            break;
        }
        let names: Vec<_> = numbers.iter().copied().map(name_of).collect();
        for (number, bytes) in numbers.iter().zip(bucket.read_all(&names, ENTRY_MAX)?) {
            entries.insert(*number, entry(bucket, *number, &bytes)?);
        }
        first = first.or_else(|| {
            entries.values().rev().find_map(|entry| match entry {
                Entry::Claim(claim) => Some(claim.first),
                Entry::Record { .. } | Entry::Ended { .. } => None,
            })
        });
    }
    Ok(entries)
}

/// The form of an entry: its CRC-32C, then a record.
fn entry(bucket: &Bucket, number: u64, bytes: &[u8]) -> Result<Entry> {
    let entry = match bytes.split_first_chunk::<4>() {
        Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode(rest),
        _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
    };
    entry.map_err(|cause| unreadable(bucket, &format!("{}: {cause}", name_of(number))))
}

/// Creates an entry. Tells whether it is there, and not another one.
fn create(bucket: &Bucket, number: u64, entry: &Entry) -> Result<bool> {
    let record = encode(entry)?;
    let bytes = Bytes::from([&crc32c::crc32c(&record).to_le_bytes(), record.as_slice()].concat());
    let name = name_of(number);
    // Perhaps the answer of an attempt was lost.
    Ok(bucket.create(&name, &bytes)? == Created::Now || bucket.read(&name, ENTRY_MAX)? == bytes)
}

/// Makes a query this process'. Tells the records that count, and the numbers of all entries from before.
fn claim(
    bucket: &Bucket,
    query: &StoredQuery,
    kept: &KeptIn,
    from: Whom,
) -> Result<(StoreLog, Vec<EpochRecord>, Vec<u64>)> {
    let text = serde_json::to_string(query).map_err(|e| StreamError::Internal(e.to_string()))?;
    let (mut entries, numbers) = look(bucket)?;
    loop {
        let found = found(bucket, entries.clone())?;
        if let Some(claim) = found.claim.as_ref().filter(|claim| claim.holder != kept.holder)
            && from == Whom::Ourselves
        {
            return Err(StreamError::invalid(format!(
                "{} has a query that another node has taken (with entry {}), so that it does not go on here; RESUME QUERY FROM SAVEPOINT with \
                 this place takes it over, and DROP QUERY forgets it here alone; for another query, SET another 'query.store' or 'query.name'",
                bucket.describe(""),
                claim.owner
            )));
        }
        let (number, claim) = found.claim(&kept.holder, &unique()?, &text);
        if create(bucket, number, &Entry::Claim(Box::new(claim.clone())))? {
            if bucket.create(&name_of(number), &Bytes::new())? == Created::Now {
                return Err(StreamError::invalid(format!(
                    "{} was written over: the store does not honour `If-None-Match: *`, without which two nodes could go on with a query; use \
                     one that does",
                    bucket.describe(&name_of(number))
                )));
            }
            let log = StoreLog::new(&found, number, claim);
            return Ok((log, found.records.into_iter().map(|(_, record)| record).collect(), numbers));
        }
        // Whoever has it has written meanwhile.
        let bytes = bucket.read(&name_of(number), ENTRY_MAX)?;
        entries.insert(number, entry(bucket, number, &bytes)?);
    }
}

/// What is to be written, in this order.
enum Work {
    Record(EpochRecord, WhenDurable),
    Forget(Epoch),
    Switch(Box<Manifest>, Sender<Result<()>>),
    End,
}

/// The thread that writes entries.
struct Writer {
    bucket: Bucket,
    log: StoreLog,
    lookups: Arc<RemoteLookups>,
    /// The versions of tables that records name.
    versions: VecDeque<(Epoch, Vec<u64>)>,
    /// Nothing is written any more: what is there is not known, or another process has the query.
    failed: Option<StreamError>,
}

impl Writer {
    fn run(mut self, work: &Receiver<Work>) {
        for work in work {
            match work {
                Work::Record(record, when_durable) => {
                    let put = self.put(self.log.record(&record));
                    if put.is_ok() {
                        self.versions.push_back((record.epoch, record.lookups));
                    }
                    when_durable(put);
                }
                Work::Forget(epoch) => self.forget_before(epoch),
                // Who does not wait any more has the error of the next record.
                Work::Switch(manifest, tell) => drop(tell.send(self.put(self.log.switch(&manifest)))),
                Work::End => break,
            }
        }
    }

    fn put(&mut self, entry: Entry) -> Result<()> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let error = match create(&self.bucket, self.log.next(), &entry) {
            Ok(true) => {
                let over: Vec<_> = self.log.put(entry).into_iter().map(name_of).collect();
                if let Err(error) = self.bucket.remove(&over) {
                    tracing::warn!(%error, "entries that count no more stay");
                }
                return Ok(());
            }
            Ok(false) => StreamError::invalid(format!(
                "another process has taken the query in {} over, so that this one goes on no more; DROP QUERY forgets it here alone",
                self.bucket.describe("")
            )),
            Err(error) => error,
        };
        Err(self.failed.insert(error).clone())
    }

    fn forget_before(&mut self, epoch: Epoch) {
        let Some(entry) = self.log.forget_before(epoch) else { return };
        match self.put(entry) {
            Ok(()) => {}
            Err(StreamError::Cancelled) => return,
            Err(error) => {
                tracing::warn!(%error, "records that are not needed any more stay");
                return;
            }
        }
        let gone = self.versions.partition_point(|(kept, _)| *kept < epoch);
        if let Some((_, gone)) = self.versions.drain(..gone).next_back() {
            // What the last of them had is perhaps what a snapshot of its epoch goes on with.
            self.lookups.forget_before(&gone);
        }
    }
}

/// The records of a query's epochs.
pub(super) struct RemoteLog {
    place: String,
    work: Sender<Work>,
    thread: Mutex<Option<JoinHandle<()>>>,
    give_up: Box<dyn Fn() + Send + Sync>,
    has_its_place: Option<HasItsPlace>,
    when_ended: WhenEnded,
}

impl fmt::Debug for RemoteLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteLog").field("place", &self.place).finish_non_exhaustive()
    }
}

impl RemoteLog {
    fn close(&self) {
        (self.give_up)();
        let _ = self.work.send(Work::End);
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(place = self.place, "the thread that records epochs has panicked");
        }
    }
}

impl Drop for RemoteLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl EpochLog for RemoteLog {
    fn append(&self, record: &EpochRecord, when_durable: WhenDurable) {
        if let Err(unsent) = self.work.send(Work::Record(record.clone(), when_durable))
            && let Work::Record(_, when_durable) = unsent.0
        {
            when_durable(Err(StreamError::Cancelled));
        }
    }

    fn may_commit(&self) -> bool {
        self.has_its_place.as_ref().is_none_or(|has_its_place| (has_its_place.0)())
    }

    fn forget_before(&self, epoch: Epoch) {
        // A thread that has ended writes nothing any more.
        let _ = self.work.send(Work::Forget(epoch));
    }

    fn ended(&self, outcome: &Outcome) {
        self.close();
        (self.when_ended)(outcome);
    }
}

#[cfg(test)]
mod tests;
