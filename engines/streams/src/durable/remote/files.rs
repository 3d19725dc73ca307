//! What a query in a bucket has beside its log: the states of its members, and the tables in which it looks rows up.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{Bucket, Created};
use savanna_streams_runtime::LookupStore;
use savanna_streams_runtime::snapshot::{Manifest, PartFile, Snapshot, SnapshotStore, State, read_state, write_state};
use savanna_streams_runtime::store_log::StoreLog;

use super::super::snapshots::{Summed, check_named, numbers, read_parts};
use super::super::store::HasItsPlace;
use super::{Work, unreadable};

const SNAPSHOTS: &str = "snapshots";
const LOOKUPS: &str = "lookups";
/// So often it is looked whether nobody waits for a switch any more.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// Whether an object is one of a query, and not somebody else's.
pub(super) fn is_of_query(name: &str) -> bool {
    match name.split_once('/') {
        Some(("log", number)) => number.len() == 20 && numbers::<1>(number).is_some(),
        Some((SNAPSHOTS, part)) => numbers::<4>(part).is_some(),
        Some((LOOKUPS, table)) => numbers::<2>(table).is_some(),
        _ => false,
    }
}

/// The snapshot that a manifest names.
pub(super) fn read(bucket: &Bucket, manifest: Option<&Manifest>) -> Result<Option<Snapshot>> {
    let Some(manifest) = manifest else { return Ok(None) };
    let name = |file: &PartFile| format!("{SNAPSHOTS}/{}", file.name);
    let read =
        |file: &PartFile| bucket.read(&name(file), file.bytes).map(|read| read.to_vec()).map_err(|e| e.to_string());
    let states = read_parts(manifest, read).map_err(|(name, cause)| unreadable(bucket, &format!("{name}: {cause}")))?;
    Ok(Some(Snapshot { manifest: manifest.clone(), states }))
}

/// Creates an object whose name no other process has. Tells whether it is there, and not another one.
fn create(bucket: &Bucket, name: &str, bytes: &Bytes) -> Result<bool> {
    if bucket.create(name, bytes)? == Created::Now {
        return Ok(true);
    }
    // Perhaps the answer of an attempt was lost.
    match bucket.read(name, bytes.len() as u64) {
        Ok(there) => Ok(there == *bytes),
        Err(StreamError::Data { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The snapshots of one query.
pub(in super::super) struct RemoteSnapshots {
    bucket: Bucket,
    owner: u64,
    work: Sender<Work>,
    has_its_place: Option<HasItsPlace>,
    counting: Mutex<Counting>,
    given_up: AtomicBool,
}

/// The files of the snapshot that counts.
struct Counting {
    parts: BTreeSet<String>,
    /// Perhaps another one counts by now.
    is_unsure: bool,
}

impl Counting {
    fn of(manifest: Option<&Manifest>) -> Self {
        let parts = manifest.into_iter().flat_map(Manifest::files).map(|file| file.name);
        Self { parts: parts.collect(), is_unsure: false }
    }
}

impl fmt::Debug for RemoteSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSnapshots").field("place", &self.bucket.describe("")).finish_non_exhaustive()
    }
}

impl RemoteSnapshots {
    pub(super) fn new(bucket: Bucket, log: &StoreLog, work: Sender<Work>, has_its_place: Option<HasItsPlace>) -> Self {
        let (owner, counting) = (log.owner(), Mutex::new(Counting::of(log.snapshot())));
        Self { bucket, owner, work, has_its_place, counting, given_up: AtomicBool::new(false) }
    }

    /// Removes parts of former snapshots.
    pub(super) fn tidy_by(&self, bucket: &Bucket) -> Result<()> {
        let counting = self.counting.lock();
        if counting.is_unsure || self.given_up.load(Ordering::Acquire) {
            return Ok(());
        }
        let names = bucket.list_behind(SNAPSHOTS, "")?;
        let is_over = |name: &String| {
            let part = name.rsplit('/').next().unwrap_or(name);
            // Those of an owner that came later are its own.
            numbers::<4>(part).is_some_and(|[owner, ..]| owner <= self.owner) && !counting.parts.contains(part)
        };
        bucket.remove(&names.into_iter().filter(is_over).collect::<Vec<_>>())
    }

    /// # Errors
    /// A file is gone that a manifest names, or the store does not tell.
    fn check_files(&self, manifest: &Manifest) -> Result<()> {
        let names = self.bucket.list_behind(SNAPSHOTS, "")?;
        let names: Vec<String> = names.iter().filter_map(|name| Some(name.rsplit_once('/')?.1.to_owned())).collect();
        check_named(manifest, &names)
            .map_err(|cause| StreamError::io(format!("write {}", self.bucket.describe("log")), &cause))
    }

    fn told(&self, manifest: &Manifest) -> Result<()> {
        let (tell, told) = channel();
        self.work.send(Work::Switch(Box::new(manifest.clone()), tell)).map_err(|_| StreamError::Cancelled)?;
        loop {
            match told.recv_timeout(LOOK_AFTER) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) if !self.given_up.load(Ordering::Acquire) => {}
                Err(_) => return Err(StreamError::Cancelled),
            }
        }
    }
}

impl SnapshotStore for RemoteSnapshots {
    fn put(
        &self,
        epoch: Epoch,
        stage: StageId,
        shuffle: u16,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PartFile> {
        let name = format!("{}-{}-{}-{shuffle}", self.owner, epoch.0, stage.0);
        let object = format!("{SNAPSHOTS}/{name}");
        let failed = |cause: &dyn fmt::Display| {
            StreamError::io(format!("write {}", self.bucket.describe(&object)), &cause.to_string())
        };
        let mut out = Summed::new(Vec::new());
        write(&mut out).map_err(|e| failed(&e))?;
        if !create(&self.bucket, &object, &out.out.into())? {
            return Err(failed(&"there is another object of this name"));
        }
        Ok(PartFile { name, bytes: out.bytes, checksum: out.checksum })
    }

    fn switch(&self, manifest: &Manifest) -> Result<()> {
        if self.has_its_place.as_ref().is_some_and(|has_its_place| !(has_its_place.0)()) {
            return Err(StreamError::io(
                format!("write {}", self.bucket.describe("log")),
                &"another process may have this data directory",
            ));
        }
        self.check_files(manifest)?;
        self.counting.lock().is_unsure = true;
        self.told(manifest)?;
        *self.counting.lock() = Counting::of(Some(manifest));
        self.tidy();
        Ok(())
    }

    fn tidy(&self) {
        if let Err(error) = self.tidy_by(&self.bucket) {
            tracing::warn!(%error, "what snapshots have left behind stays");
        }
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        (self.bucket.give_up())();
    }

    /// One is created in one request.
    fn gathers(&self) -> bool {
        true
    }

    /// Each is an object.
    fn spares_records(&self) -> bool {
        true
    }
}

/// The tables of one query's look-ups.
pub(in super::super) struct RemoteLookups {
    bucket: Bucket,
    /// Those that were there when it was opened, and those that were put since: others are those of a process that came later.
    known: Mutex<BTreeSet<(u16, u64)>>,
}

impl fmt::Debug for RemoteLookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteLookups").field("place", &self.bucket.describe("")).finish_non_exhaustive()
    }
}

fn table(lookup: u16, version: u64) -> String {
    format!("{LOOKUPS}/{lookup}-{version}")
}

impl RemoteLookups {
    /// Those that are there by one client, for another one that is more patient.
    pub(super) fn open(now: &Bucket, bucket: Bucket) -> Result<Self> {
        let version = |name: &String| {
            let [lookup, version] = numbers(name.rsplit('/').next()?)?;
            Some((u16::try_from(lookup).ok()?, version))
        };
        let known = now.list_behind(LOOKUPS, "")?.iter().filter_map(version).collect();
        Ok(Self { bucket, known: Mutex::new(known) })
    }

    pub(super) fn give_up(&self) -> impl Fn() + Send + Sync + use<> {
        self.bucket.give_up()
    }

    /// Removes the versions of each look-up before these: no record names them any more.
    pub(super) fn forget_before(&self, versions: &[u64]) {
        self.remove(|lookup, version| versions.get(usize::from(lookup)).is_some_and(|first| version < *first));
    }

    fn remove(&self, is_over: impl Fn(u16, u64) -> bool) {
        let over: Vec<_> = {
            let mut known = self.known.lock();
            known.extract_if(.., |(lookup, version)| is_over(*lookup, *version)).collect()
        };
        if over.is_empty() {
            return;
        }
        let names: Vec<_> = over.into_iter().map(|(lookup, version)| table(lookup, version)).collect();
        if let Err(error) = self.bucket.remove(&names) {
            tracing::warn!(%error, "tables for look-ups that are not needed any more stay");
        }
    }
}

impl LookupStore for RemoteLookups {
    fn put(&self, lookup: u16, rows: &State) -> Result<u64> {
        let mut bytes = Vec::new();
        let written = write_state(rows, &mut bytes);
        written.map_err(|e| StreamError::io(format!("write {}", self.bucket.describe(LOOKUPS)), &e))?;
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        let bytes = Bytes::from(bytes);
        let last = self.known.lock().range((lookup, 0)..=(lookup, u64::MAX)).next_back().copied();
        let mut version = last.map_or(1, |(_, version)| version + 1);
        // A former process that was paused has written late.
        while !create(&self.bucket, &table(lookup, version), &bytes)? {
            version += 1;
        }
        self.known.lock().insert((lookup, version));
        Ok(version)
    }

    fn read(&self, lookup: u16, version: u64) -> Result<State> {
        let bytes = self.bucket.read(&table(lookup, version), u64::MAX)?;
        let state = match bytes.split_last_chunk::<4>() {
            Some((state, checksum)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(state) => read_state(state),
            _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
        };
        state.map_err(|cause| unreadable(&self.bucket, &format!("{}: {cause}", table(lookup, version))))
    }

    fn forget(&self, lookup: u16, version: u64) {
        self.remove(|of, other| (of, other) == (lookup, version));
    }

    fn keep_only(&self, lookup: u16, versions: &BTreeSet<u64>) {
        self.remove(|of, version| of == lookup && !versions.contains(&version));
    }
}
