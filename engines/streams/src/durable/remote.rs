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
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{Bucket, Created, unique};
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::records::{EpochLog, WhenDurable, join_snapshot};
use savanna_streams_runtime::snapshot::{Manifest, Snapshot};
use savanna_streams_runtime::store_log::{Entry, Found, StoreLog};

use self::files::{RemoteLookups, RemoteSnapshots};
use super::query_log::WhenEnded;
use super::snapshots::numbers;
use super::store::HasItsPlace;
use super::stored::{KeptIn, StoredQuery, decode_with_snapshot, encode_with};

/// A store may be away for so long when a query begins, and while it runs.
const PATIENCE_AT_START: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(300);
/// So long it is waited for what is under way when a query ends.
const PATIENCE_AT_END: Duration = Duration::from_secs(3);
const LOOK_AFTER: Duration = Duration::from_millis(5);
/// An entry that is longer is none: the longest has the text of the query and 200 bytes for each member.
const ENTRY_MAX: u64 = 64 << 20;
/// So many entries are read at once.
const READ_AT_ONCE: usize = 64;
/// Entries that go while they are read were those of a process that runs: then it is looked again, so often.
const LOOKS_MAX: usize = 5;
/// A folder of a name has so many queries at most; what else is there may be any number.
const QUERIES_MAX: usize = 1_000;
/// So many names are listed at once to find them, and so often.
const NAMES_AT_ONCE: usize = 1_000;
const LISTINGS_MAX: usize = 1_000;
/// The folder of a query is named by milliseconds of a clock, which have so many digits.
const DIGITS_MIN: usize = 13;
/// A query's entries come first in its log, whatever else is there.
const ENTRIES_LOOKED_AT: usize = 10;

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
enum Whom<'w> {
    /// A process of this node, or nobody.
    Ourselves,
    /// The run that has this word.
    Run(&'w str),
}

/// A folder, by how long a store may be away.
type Folder<'f> = &'f dyn Fn(Duration) -> Result<Bucket>;

fn folder_of(url: &str) -> Result<Bucket> {
    Bucket::of_url(url, PATIENCE_AT_START)
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
    open_in(&|patience| Bucket::of_url(&kept.url, patience), query, kept, has_its_place, when_ended)
}

/// A query that is kept in a folder.
pub(crate) struct Kept {
    pub(crate) query: StoredQuery,
    /// The folder of it alone.
    pub(crate) url: String,
    /// The records of its epochs from where it goes on, that of its snapshot first.
    pub(crate) records: Vec<EpochRecord>,
    /// Who has it.
    token: String,
}

/// Takes a query over from whoever had it when it was found, for the node that `kept` names.
///
/// # Errors
/// As [`open`]; or somebody else has it by now.
pub(super) fn take(found: &Kept, query: &StoredQuery, kept: &KeptIn) -> Result<()> {
    let bucket = Bucket::of_url(&kept.url, PATIENCE_AT_START)?;
    claim(&bucket, query, kept, Whom::Run(&found.token)).map(drop)
}

/// Says again what a query is, which does not run: nothing where nobody has said anything else.
///
/// # Errors
/// As [`open`].
pub(super) fn tell(query: &StoredQuery, kept: &KeptIn) -> Result<()> {
    tell_in(&Bucket::of_url(&kept.url, PATIENCE_AT_START)?, query, kept)
}

fn tell_in(bucket: &Bucket, query: &StoredQuery, kept: &KeptIn) -> Result<()> {
    let text = text_of(query)?;
    match found(bucket, look(bucket)?.0)?.claim {
        Some(last) if last.holder == kept.holder && last.query != text => {
            claim(bucket, query, kept, Whom::Ourselves).map(drop)
        }
        _ => Ok(()),
    }
}

/// The query that is kept in a folder, which is that of a name or of one query; none if there is none.
///
/// # Errors
/// The store does not answer, what is there cannot be read, or there are several.
pub(super) fn kept_at(url: &str) -> Result<Option<Kept>> {
    let url = url.trim_end_matches('/');
    kept_in(&Bucket::of_url(url, PATIENCE_AT_START)?, url, &folder_of)
}

/// The folder of a query that is kept in the folder of its name, if there is one. What others have left there, and cannot be read, hinders
/// nobody who begins: each query has a folder of its own.
///
/// # Errors
/// The store does not answer, or there is too much.
pub(super) fn living_at(url: &str) -> Result<Option<String>> {
    let url = url.trim_end_matches('/');
    living_in(&Bucket::of_url(url, PATIENCE_AT_START)?, url, &folder_of)
}

fn living_in(bucket: &Bucket, url: &str, at: &dyn Fn(&str) -> Result<Bucket>) -> Result<Option<String>> {
    let (mut kept, failed) = all_in(bucket, url, at)?;
    if let Some(error) = failed {
        tracing::warn!(url, %error, "what is left of a former query of this name cannot be read, and stays");
    }
    Ok(kept.pop().map(|kept| kept.url))
}

/// The numbers of the queries of a name of which something is kept. Most of what else is there is not listed.
fn jobs(bucket: &Bucket) -> Result<Vec<u64>> {
    let mut jobs = Vec::new();
    // Digits come before letters.
    let mut behind = "0".to_owned();
    for _ in 0..LISTINGS_MAX {
        let names = bucket.some_behind("", &behind, NAMES_AT_ONCE)?;
        let is_all = names.len() < NAMES_AT_ONCE;
        for name in &names {
            if !name.starts_with(|c: char| c.is_ascii_digit()) {
                return Ok(jobs);
            }
            let folder = name.split_once('/').map(|(folder, _)| folder).filter(|folder| folder.len() >= DIGITS_MIN);
            if let Some([job]) = folder.and_then(numbers::<1>).filter(|[job]| jobs.last() != Some(job)) {
                jobs.push(job);
            }
        }
        if jobs.len() > QUERIES_MAX {
            break;
        }
        behind = match names.last().map(|name| (name, name.split_once('/'))) {
            Some((name, None)) => name.clone(),
            // Behind all that is in it: what comes behind '/' is '0'.
            Some((_, Some((folder, _)))) => format!("{folder}0"),
            None => return Ok(jobs),
        };
        if is_all {
            return Ok(jobs);
        }
    }
    Err(StreamError::invalid(format!(
        "expected a folder with at most {QUERIES_MAX} queries and {} objects that begin with digits, got one with more: {}; SET another \
         'query.store'",
        NAMES_AT_ONCE * LISTINGS_MAX,
        bucket.describe("")
    )))
}

/// Whether a folder is that of a query, and not that of a name.
fn is_of_one(bucket: &Bucket) -> Result<bool> {
    let first = bucket.some_behind("log", "log/0", ENTRIES_LOOKED_AT)?;
    Ok(first.iter().any(|name| files::is_of_query(name)))
}

/// The queries that are kept in a folder, and what is wrong with one that cannot be read.
fn all_in(bucket: &Bucket, url: &str, at: &dyn Fn(&str) -> Result<Bucket>) -> Result<(Vec<Kept>, Option<StreamError>)> {
    let folders: Vec<String> = match is_of_one(bucket)? {
        true => vec![url.to_owned()],
        false => jobs(bucket)?.iter().map(|job| format!("{url}/{job}")).collect(),
    };
    let mut kept = Vec::new();
    let mut failed = None;
    for url in folders {
        let bucket = at(&url)?;
        match look(&bucket).and_then(|(entries, _)| found(&bucket, entries)) {
            Ok(Found { claim: Some(claim), records, .. }) => match serde_json::from_str(&claim.query) {
                Ok(query) => {
                    let mut records = records.into_iter().map(|(_, record)| record).collect();
                    if let Some(manifest) = &claim.snapshot {
                        // One that is of no use will be found to be so by whoever reads it.
                        join_snapshot(&mut records, &manifest.record);
                    }
                    kept.push(Kept { query, url, records, token: claim.token });
                }
                Err(e) => {
                    failed = Some(unreadable(&bucket, &format!("expected a query, got something else ({e})")));
                }
            },
            Ok(_) => {}
            // What was read, and makes no sense. Of what could not be read nobody knows whether it does.
            Err(error @ StreamError::Data { .. }) => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok((kept, failed))
}

fn kept_in(bucket: &Bucket, url: &str, at: &dyn Fn(&str) -> Result<Bucket>) -> Result<Option<Kept>> {
    let (mut kept, failed) = all_in(bucket, url, at)?;
    match (kept.len(), failed) {
        (0, Some(error)) => Err(error),
        (0 | 1, _) => Ok(kept.pop()),
        _ => Err(StreamError::invalid(format!(
            "{url} has several queries: {}; name one of them",
            kept.iter().map(|kept| kept.url.as_str()).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The records of a query, and the epoch of its snapshot. Nothing changes.
///
/// # Errors
/// The store does not answer, or what is there cannot be read.
pub(super) fn records(kept: &KeptIn) -> Result<(Vec<EpochRecord>, Option<Epoch>)> {
    let bucket = folder_of(&kept.url)?;
    let Found { claim, records, .. } = found(&bucket, look(&bucket)?.0)?;
    let snapshot = claim.and_then(|claim| claim.snapshot).map(|manifest| manifest.record.epoch);
    Ok((records.into_iter().map(|(_, record)| record).collect(), snapshot))
}

/// Removes a query that does not run, unless another node has it.
///
/// # Errors
/// The store does not answer; what is there belongs to nobody once its log says so.
pub(super) fn forget(kept: &KeptIn) -> Result<()> {
    forget_in(&Bucket::of_url(&kept.url, PATIENCE_AT_START)?, kept)
}

fn forget_in(bucket: &Bucket, kept: &KeptIn) -> Result<()> {
    let last = loop {
        let (entries, _) = look(bucket)?;
        let is_of_others = |entry: &Entry| matches!(entry, Entry::Claim(claim) if claim.holder != kept.holder);
        let found = match Found::of(entries.clone()) {
            Ok(found) => found,
            Err(_) if entries.values().any(is_of_others) => return Ok(()),
            // Nobody can go on with it: late requests of a query that was forgotten.
            Err(_) => break String::new(),
        };
        let Some(claim) = found.claim.clone().filter(|claim| claim.holder == kept.holder) else { return Ok(()) };
        let log = StoreLog::new(&found, found.last, claim);
        if create(bucket, log.next(), &log.ended())? {
            break name_of(log.next());
        }
        // A request of the query that has just ended has arrived.
    };
    let mut names = bucket.list_behind("", "")?;
    names.retain(|name| *name != last && files::is_of_query(name));
    bucket.remove(&names)?;
    // Only now may it look as if nothing had been there.
    if last.is_empty() { Ok(()) } else { bucket.remove(&[last]) }
}

fn open_in(
    folder: Folder<'_>,
    query: &StoredQuery,
    kept: &KeptIn,
    has_its_place: Option<HasItsPlace>,
    when_ended: WhenEnded,
) -> Result<Opened> {
    let bucket = folder(PATIENCE_AT_START)?;
    check_conditions(&bucket)?;
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
    StreamError::Data { place: format!("the query in {}", bucket.describe("")), message: cause }
}

fn text_of(query: &StoredQuery) -> Result<String> {
    serde_json::to_string(query).map_err(|e| StreamError::Internal(e.to_string()))
}

fn found(bucket: &Bucket, entries: BTreeMap<u64, Entry>) -> Result<Found> {
    Found::of(entries).map_err(|cause| unreadable(bucket, &cause))
}

/// All entries that count, perhaps others as well, and the numbers of all.
fn look(bucket: &Bucket) -> Result<(BTreeMap<u64, Entry>, Vec<u64>)> {
    let mut looks = 0;
    loop {
        let names = bucket.list_behind("log", "")?;
        let number = |name: &String| name.strip_prefix("log/").filter(|_| files::is_of_query(name))?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
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
        Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode_with_snapshot(rest),
        _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
    };
    entry.map_err(|cause| unreadable(bucket, &format!("{}: {cause}", name_of(number))))
}

/// Creates an entry. Tells whether it is there, and not another one.
fn create(bucket: &Bucket, number: u64, entry: &Entry) -> Result<bool> {
    let snapshot = match entry {
        Entry::Claim(claim) => claim.snapshot.as_ref(),
        Entry::Record { .. } | Entry::Ended { .. } => None,
    };
    let record = encode_with(snapshot, entry)?;
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
    from: Whom<'_>,
) -> Result<(StoreLog, Vec<EpochRecord>, Vec<u64>)> {
    let text = text_of(query)?;
    let (mut entries, mut numbers) = look(bucket)?;
    loop {
        let found = found(bucket, entries.clone())?;
        let is_ours = match (from, &found.claim) {
            (Whom::Ourselves, Some(claim)) => claim.holder == kept.holder,
            (Whom::Ourselves, None) => true,
            (Whom::Run(token), claim) => claim.as_ref().is_some_and(|claim| claim.token == token),
        };
        if !is_ours {
            return Err(StreamError::invalid(format!(
                "{} has a query that another node has taken (with entry {}), so that it does not go on here; RESUME QUERY FROM SAVEPOINT with \
                 this place takes it over, and DROP QUERY forgets it here alone",
                bucket.describe(""),
                found.claim.map_or(found.last, |claim| claim.owner)
            )));
        }
        let token = unique()?;
        let (number, claim) = found.claim(&kept.holder, &token, &text);
        if create(bucket, number, &Entry::Claim(Box::new(claim.clone())))? {
            // Entries that were written and removed since it was looked leave their numbers free, but not what is behind them; and of a query
            // that was forgotten the one before goes, too.
            let (before, this) = (name_of(found.last), name_of(number));
            let mut there = bucket.list_behind("log", &name_of(found.last.saturating_sub(1)))?;
            there.retain(|name| files::is_of_query(name));
            let is_last = there.iter().all(|name| *name <= this);
            if is_last && (found.last == 0 || there.contains(&before)) {
                let log = StoreLog::new(&found, number, claim);
                return Ok((log, found.records.into_iter().map(|(_, record)| record).collect(), numbers));
            }
            if is_last {
                bucket.remove(&[this])?;
            }
            (entries, numbers) = look(bucket)?;
            continue;
        }
        // Whoever has it has written meanwhile.
        let bytes = bucket.read(&name_of(number), ENTRY_MAX)?;
        entries.insert(number, entry(bucket, number, &bytes)?);
    }
}

/// Whether a store refuses to create what is there already.
///
/// # Errors
/// It does not.
fn check_conditions(bucket: &Bucket) -> Result<()> {
    let name = format!("probe/{}", unique()?);
    bucket.create(&name, &Bytes::from_static(b"a"))?;
    let again = bucket.create(&name, &Bytes::from_static(b"b"))?;
    bucket.remove(std::slice::from_ref(&name))?;
    match again {
        Created::Before => Ok(()),
        Created::Now => Err(StreamError::invalid(format!(
            "{} was written over: the store does not honour `If-None-Match: *`, without which two nodes could go on with a query; use one that \
             does",
            bucket.describe(&name)
        ))),
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
            let over = match work {
                Work::Record(record, when_durable) => {
                    let (put, over) = split(self.put(self.log.record(&record)));
                    if put.is_ok() {
                        self.versions.push_back((record.epoch, record.lookups));
                    }
                    when_durable(put);
                    over
                }
                Work::Forget(epoch) => self.forget_before(epoch),
                Work::Switch(manifest, tell) => {
                    let (put, over) = split(self.put(self.log.switch(&manifest)));
                    // Who does not wait any more has the error of the next record.
                    drop(tell.send(put));
                    over
                }
                Work::End => break,
            };
            // Whoever waits has heard of it.
            let over: Vec<_> = over.into_iter().map(name_of).collect();
            if !over.is_empty()
                && let Err(error) = self.bucket.remove(&over)
            {
                tracing::warn!(%error, "entries that count no more stay");
            }
        }
    }

    /// Tells which entries count no more.
    fn put(&mut self, entry: Entry) -> Result<Vec<u64>> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let error = match create(&self.bucket, self.log.next(), &entry) {
            Ok(true) => return Ok(self.log.put(entry)),
            Ok(false) => StreamError::invalid(format!(
                "another process has taken the query in {} over, so that this one goes on no more; DROP QUERY forgets it here alone",
                self.bucket.describe("")
            )),
            Err(error) => error,
        };
        Err(self.failed.insert(error).clone())
    }

    fn forget_before(&mut self, epoch: Epoch) -> Vec<u64> {
        let Some(entry) = self.log.forget_before(epoch) else { return Vec::new() };
        let over = match self.put(entry) {
            Ok(over) => over,
            Err(StreamError::Cancelled) => return Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "records that are not needed any more stay");
                return Vec::new();
            }
        };
        let gone = self.versions.partition_point(|(kept, _)| *kept < epoch);
        if let Some((_, gone)) = self.versions.drain(..gone).next_back() {
            // What the last of them had is perhaps what a snapshot of its epoch goes on with.
            self.lookups.forget_before(&gone);
        }
        over
    }
}

fn split(put: Result<Vec<u64>>) -> (Result<()>, Vec<u64>) {
    match put {
        Ok(over) => (Ok(()), over),
        Err(error) => (Err(error), Vec::new()),
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
        let Some(thread) = self.thread.lock().take() else { return };
        let _ = self.work.send(Work::End);
        // A request that is under way would arrive later otherwise.
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < PATIENCE_AT_END {
            thread::sleep(LOOK_AFTER);
        }
        (self.give_up)();
        if thread.join().is_err() {
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
