//! The `file` sink over an object store: a folder of a bucket, with an object for each epoch that has rows, or for each folder of
//! `PARTITIONED BY` in it, or for the rows of several epochs that were gathered ([`pieces`]).
//!
//! ```text
//!   s3://bucket/out/
//!     [dt=2026-01-31/]part-<query>-<epoch, 20 digits>.parquet    rows of an epoch, or of several up to this one
//!     _epochs/<query>/<version, 20 digits>                       which epoch counts, its parts, and what is gathered
//!     _open/<query>/<epoch, 20 digits>/                          what is gathered
//!
//!   start:   the last version v says epoch s   create v + 1: s, mine --> who wrote v finds its next number taken
//!            parts of epochs behind s go
//!   epoch:   is v the last one?   create parts   create v + 1: e   is v + 1 the last one? --> e counts
//! ```
//!
//! An epoch counts when the version that names its parts is there, which is created last and never written over. Two who want the same
//! number meet in the store, and one has it. Versions before the last one go from time to time; who comes so late that its number has
//! become free again sees that there are later ones.
//!
//! A part's name follows from query and epoch. One that is there already was written by an attempt whose answer was lost, or by somebody
//! who does not know yet that it is shut out. It is written over only while it is still what it was *before* it was seen that nobody has
//! opened the query since: whoever was shut out meanwhile changes nothing that counts.
//!
//! What is gathered is not seen. A version says what of it has become whole; its part is made behind that, by whoever finds that it is not
//! there, and then what it was made of goes.

mod pieces;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{mem, slice, thread};

use arrow::array::RecordBatch;
use bytes::Bytes;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};
use serde::{Deserialize, Serialize};

use self::pieces::{Form, Gathered};
use super::partitions::Partitions;
use super::rolling::Rolling;
use crate::bucket::{Bucket, Created, unique};
use crate::format::Format;
use crate::format::csv::CsvSettings;

/// So many versions are there before those that came before the last one go.
const VERSIONS_MAX: u64 = 64;
/// A version that is longer is none: it has 100 bytes for each folder of an epoch.
const VERSION_MAX: u64 = 256 << 20;
/// A part that somebody else writes again and again is tried so often.
const TRIES_MAX: usize = 10;
/// A piece that is longer is none.
const PIECE_MAX: u64 = 5 << 30;
/// So many parts are written at the same time.
const PUTS_AT_ONCE: usize = 16;
/// Nothing is forgotten.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Writes objects.
pub(super) struct ObjectSink {
    bucket: Bucket,
    format: Format,
    csv: CsvSettings,
    partitions: Partitions,
    rolling: Rolling,
    tenure: Option<Tenure>,
    /// Since when rows are gathered for a folder.
    begun: BTreeMap<String, Instant>,
}

/// What is known of the query that is being written.
#[derive(Clone, Debug)]
struct Tenure {
    query: QueryId,
    /// Who writes, by a name that nobody else has.
    owner: String,
    /// The last version, and the epoch that counts by it.
    version: u64,
    epoch: Epoch,
    /// What is gathered, by folder.
    open: BTreeMap<String, Gathered>,
    /// What has become whole, by the names of the parts that are made of it.
    whole: BTreeMap<String, Gathered>,
}

/// A version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    owner: String,
    epoch: Epoch,
    /// The names of the epoch's objects.
    parts: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    open: BTreeMap<String, Gathered>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    whole: BTreeMap<String, Gathered>,
}

impl Tenure {
    fn folder(&self) -> String {
        format!("_epochs/{}", self.query)
    }

    fn name_of(&self, version: u64) -> String {
        format!("{}/{version:020}", self.folder())
    }

    fn part(&self, folder: &str, epoch: Epoch, format: Format) -> String {
        let file = format!("part-{}-{:020}.{}", self.query, epoch.0, format.extension());
        if folder.is_empty() { file } else { format!("{folder}/{file}") }
    }

    /// The epoch of a part of this query, by its name.
    fn epoch_of(&self, part: &str) -> Option<Epoch> {
        let file = part.rsplit('/').next()?;
        let rest = file.strip_prefix(&format!("part-{}-", self.query))?;
        rest.split('.').next()?.parse().ok().map(Epoch)
    }
}

impl ObjectSink {
    pub(super) fn new(
        bucket: Bucket,
        format: Format,
        csv: CsvSettings,
        partitions: Partitions,
        rolling: Rolling,
    ) -> Self {
        Self { bucket, format, csv, partitions, rolling, tenure: None, begun: BTreeMap::new() }
    }

    fn tenure(&mut self, query: &QueryId) -> Result<Tenure> {
        match &self.tenure {
            Some(tenure) if tenure.query == *query => Ok(tenure.clone()),
            _ => {
                let tenure = self.open(query)?;
                Ok(self.tenure.insert(tenure).clone())
            }
        }
    }

    /// Shuts out who has written the query before, and clears away what did not come to count.
    fn open(&self, query: &QueryId) -> Result<Tenure> {
        let mut tenure = Tenure {
            query: query.clone(),
            owner: unique()?,
            version: 0,
            epoch: Epoch::ZERO,
            open: BTreeMap::new(),
            whole: BTreeMap::new(),
        };
        loop {
            if let Some(last) = self.versions_behind(&tenure)?.last() {
                let Version { epoch, open, whole, .. } = self.read(&tenure, *last)?;
                tenure = Tenure { version: *last, epoch, open, whole, ..tenure };
            }
            let (epoch, before) = (tenure.epoch, tenure.version);
            match self.advance(&mut tenure, epoch, Vec::new()) {
                Ok(()) => break,
                // Somebody else opens it at the same time.
                Err(_) if self.versions_behind(&tenure)?.last().is_some_and(|last| *last > before) => {}
                Err(error) => return Err(error),
            }
        }
        if self.bucket.create(&tenure.name_of(tenure.version), &Bytes::new())? == Created::Now {
            return Err(StreamError::invalid(format!(
                "{} was written over: the store does not honour `If-None-Match: *`, without which rows could be lost; use one that does",
                self.bucket.describe(&tenure.name_of(tenure.version))
            )));
        }
        self.publish(&mut tenure)?;
        self.clear(&tenure)?;
        Ok(tenure)
    }

    /// Removes the parts of epochs that do not count.
    fn clear(&self, tenure: &Tenure) -> Result<()> {
        // Names go up with epochs where all parts are in one folder.
        let counts = match self.partitions.is_one_folder() {
            true => tenure.part("", tenure.epoch, self.format),
            false => String::new(),
        };
        let parts = self.bucket.list_behind("", &counts)?;
        let over = |part: &String| tenure.epoch_of(part).is_some_and(|epoch| epoch > tenure.epoch);
        let mut over: Vec<String> = parts.into_iter().filter(over).collect();
        let known: BTreeSet<String> =
            tenure.open.values().flat_map(|gathered| gathered.pieces(&tenure.query)).collect();
        let pieces = self.bucket.list_behind(&pieces::folder_of(&tenure.query), "")?;
        over.extend(pieces.into_iter().filter(|piece| !known.contains(piece)));
        self.bucket.remove(&over)
    }

    /// The versions behind the last one that is known, in order.
    fn versions_behind(&self, tenure: &Tenure) -> Result<Vec<u64>> {
        let names = self.bucket.list_behind(&tenure.folder(), &tenure.name_of(tenure.version))?;
        let version = |name: &String| name.rsplit('/').next()?.parse().ok();
        let mut versions: Vec<u64> = names.iter().filter_map(version).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    fn read(&self, tenure: &Tenure, version: u64) -> Result<Version> {
        let name = tenure.name_of(version);
        serde_json::from_slice(&self.bucket.read(&name, VERSION_MAX)?).map_err(|e| StreamError::Data {
            place: self.bucket.describe(&name),
            message: format!("expected the parts of an epoch, got something else ({e}); restore the object, or write to another place"),
        })
    }

    /// Creates the next version. The epoch counts then.
    ///
    /// # Errors
    /// The store fails, or somebody else writes the query.
    fn advance(&self, tenure: &mut Tenure, epoch: Epoch, parts: Vec<String>) -> Result<()> {
        let (next, owner) = (tenure.version + 1, tenure.owner.clone());
        let name = tenure.name_of(next);
        let (open, whole) = (tenure.open.clone(), tenure.whole.clone());
        let version = serde_json::to_vec(&Version { owner, epoch, parts, open, whole });
        let version = Bytes::from(version.map_err(|e| StreamError::Internal(e.to_string()))?);
        if self.bucket.create(&name, &version)? == Created::Before && self.bucket.read(&name, VERSION_MAX)? != version {
            return Err(self.shut_out(tenure));
        }
        (tenure.version, tenure.epoch) = (next, epoch);
        // The number may have become free again.
        self.check_last(tenure)
    }

    /// # Errors
    /// Somebody else has opened the query.
    fn check_last(&self, tenure: &Tenure) -> Result<()> {
        if self.versions_behind(tenure)?.is_empty() { Ok(()) } else { Err(self.shut_out(tenure)) }
    }

    fn shut_out(&self, tenure: &Tenure) -> StreamError {
        StreamError::invalid(format!(
            "another process has begun to write query {} to {}, so that this one writes no more; STOP one of them",
            tenure.query,
            self.bucket.describe("")
        ))
    }

    /// Writes the parts of an epoch. Tells their names.
    fn write(&self, tenure: &Tenure, epoch: Epoch, folders: &[(String, RecordBatch)]) -> Result<Vec<String>> {
        each_at_once(folders, |(folder, rows)| {
            let name = tenure.part(folder, epoch, self.format);
            let written = self.format.write(Vec::new(), self.partitions.schema(), slice::from_ref(rows), self.csv);
            self.put(tenure, &name, &written.map_err(|cause| self.unwritten(&name, &cause))?.into())?;
            Ok(name)
        })
    }

    /// Writes the rows of an epoch beside those that were gathered before, and says what of it has become whole. Tells the names of pieces that
    /// are not needed any more when that counts.
    fn gather(&mut self, tenure: &mut Tenure, epoch: Epoch, folders: &[(String, RecordBatch)]) -> Result<Vec<String>> {
        let written = each_at_once(folders, |(folder, rows)| {
            let name = pieces::rows(&tenure.query, epoch, folder);
            let piece = self.form().piece(rows).map_err(|cause| self.unwritten(&name, &cause))?;
            self.put(tenure, &name, &piece)?;
            Ok(piece.len() as u64)
        })?;
        let mut open = mem::take(&mut tenure.open);
        for ((folder, _), bytes) in folders.iter().zip(written) {
            open.entry(folder.clone()).or_insert_with(|| Gathered::of(folder)).add(epoch, bytes);
        }
        let mut over = Vec::new();
        for gathered in open.values_mut().filter(|gathered| gathered.is_in_many()) {
            let recent = gathered.recent(&tenure.query);
            let pieces = self.bucket.read_all(&recent, PIECE_MAX)?;
            let name = pieces::joined(&tenure.query, epoch, &gathered.folder);
            self.put(tenure, &name, &pieces.concat().into())?;
            gathered.join(epoch);
            over.extend(recent);
        }
        for (folder, gathered) in open {
            let begun = *self.begun.entry(folder.clone()).or_insert_with(Instant::now);
            if self.rolling.is_whole(gathered.bytes, begun) {
                self.begun.remove(&folder);
                tenure.whole.insert(tenure.part(&folder, epoch, self.format), gathered);
            } else {
                tenure.open.insert(folder, gathered);
            }
        }
        Ok(over)
    }

    /// Makes the parts of what has become whole, and removes what they were made of.
    fn publish(&self, tenure: &mut Tenure) -> Result<()> {
        if tenure.whole.is_empty() {
            return Ok(());
        }
        let there: BTreeSet<String> =
            self.bucket.list_behind(&pieces::folder_of(&tenure.query), "")?.into_iter().collect();
        for (part, gathered) in &tenure.whole {
            let (pieces, gone): (Vec<_>, Vec<_>) =
                gathered.pieces(&tenure.query).into_iter().partition(|piece| there.contains(piece));
            // They go when the part is there.
            if gone.is_empty() {
                let made = self.form().part(&self.bucket.read_all(&pieces, PIECE_MAX)?);
                self.put(tenure, part, &made.map_err(|cause| self.unwritten(part, &cause))?)?;
            }
            self.bucket.remove(&pieces)?;
        }
        tenure.whole.clear();
        Ok(())
    }

    fn form(&self) -> Form<'_> {
        Form { format: self.format, csv: self.csv, schema: self.partitions.schema() }
    }

    fn unwritten(&self, name: &str, cause: &str) -> StreamError {
        StreamError::io(format!("write {}", self.bucket.describe(name)), &cause)
    }

    /// Writes a part, whatever an earlier attempt has left of it.
    fn put(&self, tenure: &Tenure, name: &str, bytes: &Bytes) -> Result<()> {
        for _ in 0..TRIES_MAX {
            if self.bucket.create(name, bytes)? == Created::Now {
                return Ok(());
            }
            let Some(tag) = self.bucket.tag(name)? else { continue };
            self.check_last(tenure)?;
            if self.bucket.replace(name, bytes, &tag)? == Created::Now {
                return Ok(());
            }
        }
        let cause = format!("somebody else writes it again and again; it was tried {TRIES_MAX} times");
        Err(StreamError::io(format!("write {}", self.bucket.describe(name)), &cause))
    }

    /// Removes the versions before the last one.
    fn tidy(&self, tenure: &Tenure) {
        let none = Tenure { version: 0, ..tenure.clone() };
        let removed = self.versions_behind(&none).and_then(|versions| {
            let former = versions.into_iter().filter(|version| *version < tenure.version);
            self.bucket.remove(&former.map(|version| tenure.name_of(version)).collect::<Vec<_>>())
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "objects that are not needed any more stay");
        }
    }
}

/// Writes for some folders at the same time.
fn each_at_once<T: Send>(
    folders: &[(String, RecordBatch)],
    write: impl Fn(&(String, RecordBatch)) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(folders.len());
    for folders in folders.chunks(PUTS_AT_ONCE) {
        let [others @ .., last] = folders else { continue };
        let write = &write;
        let written: Result<Vec<T>> = thread::scope(|scope| {
            let begin =
                |folder| thread::Builder::new().name("streams-parts".into()).spawn_scoped(scope, move || write(folder));
            let begun: Vec<_> = others.iter().map(begin).collect();
            let last = write(last);
            let others = begun.into_iter().map(|begun| {
                let begun = begun.map_err(|e| StreamError::io("start a thread that writes to a bucket", &e))?;
                begun.join().unwrap_or_else(|panic| resume_unwind(panic))
            });
            others.chain([last]).collect()
        });
        all.append(&mut written?);
    }
    Ok(all)
}

impl Sink for ObjectSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        self.tenure = None;
        let epoch = self.tenure(query)?.epoch;
        Ok((epoch > Epoch::ZERO).then_some(epoch))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let mut tenure = self.tenure(query)?;
        if epoch <= tenure.epoch {
            return Ok(());
        }
        let folders: Vec<_> = self.partitions.cut(rows)?.into_iter().collect();
        if !folders.is_empty() {
            self.check_last(&tenure)?;
        }
        let mut over = Vec::new();
        let parts = match self.rolling.spans_epochs() {
            true => {
                over = self.gather(&mut tenure, epoch, &folders)?;
                // What is whole depends on the clock: whether this version is there is asked, should that not be known.
                self.tenure = None;
                tenure.whole.keys().cloned().collect()
            }
            false => self.write(&tenure, epoch, &folders)?,
        };
        self.advance(&mut tenure, epoch, parts)?;
        self.publish(&mut tenure)?;
        if let Err(error) = self.bucket.remove(&over) {
            tracing::warn!(%error, "objects that are not needed any more stay");
        }
        if tenure.version.is_multiple_of(VERSIONS_MAX) {
            self.tidy(&tenure);
        }
        self.tenure = Some(tenure);
        Ok(())
    }

    /// What is gathered becomes whole.
    fn finish(&mut self) -> Result<()> {
        let Some(mut tenure) = self.tenure.take() else { return Ok(()) };
        if !tenure.open.is_empty() {
            let epoch = tenure.epoch;
            for (folder, gathered) in mem::take(&mut tenure.open) {
                tenure.whole.insert(tenure.part(&folder, epoch, self.format), gathered);
            }
            let parts = tenure.whole.keys().cloned().collect();
            self.advance(&mut tenure, epoch, parts)?;
            self.publish(&mut tenure)?;
            self.begun.clear();
        }
        self.tenure = Some(tenure);
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }

    fn remote(&self) -> Option<Remote> {
        Some(Remote { renew_after: NEVER, give_up: Arc::new(self.bucket.give_up()) })
    }
}

#[cfg(test)]
mod tests;
