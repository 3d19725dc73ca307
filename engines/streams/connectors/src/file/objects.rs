//! The `file` sink over an object store: a folder of a bucket, with an object for each epoch that has rows, or for each folder of
//! `PARTITIONED BY` in it.
//!
//! ```text
//!   s3://bucket/out/
//!     [dt=2026-01-31/]part-<query>-<epoch, 20 digits>.parquet    rows of an epoch
//!     _epochs/<query>/<version, 20 digits>                       which epoch counts, and its parts
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

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use std::{slice, thread};

use arrow::array::RecordBatch;
use bytes::Bytes;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};
use serde::{Deserialize, Serialize};

use super::partitions::Partitions;
use crate::bucket::{Bucket, Created, unique};
use crate::format::Format;
use crate::format::csv::CsvSettings;

/// So many versions are there before those that came before the last one go.
const VERSIONS_MAX: u64 = 64;
/// A version that is longer is none: it has 100 bytes for each folder of an epoch.
const VERSION_MAX: u64 = 256 << 20;
/// A part that somebody else writes again and again is tried so often.
const TRIES_MAX: usize = 10;
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
    tenure: Option<Tenure>,
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
}

/// A version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    owner: String,
    epoch: Epoch,
    /// The names of the epoch's objects.
    parts: Vec<String>,
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
    pub(super) fn new(bucket: Bucket, format: Format, csv: CsvSettings, partitions: Partitions) -> Self {
        Self { bucket, format, csv, partitions, tenure: None }
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
        let mut tenure = Tenure { query: query.clone(), owner: unique()?, version: 0, epoch: Epoch::ZERO };
        loop {
            if let Some(last) = self.versions_behind(&tenure)?.last() {
                (tenure.version, tenure.epoch) = (*last, self.read(&tenure, *last)?.epoch);
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
        self.bucket.remove(&parts.into_iter().filter(over).collect::<Vec<_>>())
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
        let version = serde_json::to_vec(&Version { owner, epoch, parts });
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

    /// Writes the parts of some folders at the same time. Tells their names.
    fn write(&self, tenure: &Tenure, epoch: Epoch, folders: &[(String, RecordBatch)]) -> Result<Vec<String>> {
        let write = |(folder, rows): &(String, RecordBatch)| {
            let name = tenure.part(folder, epoch, self.format);
            let written = self.format.write(Vec::new(), self.partitions.schema(), slice::from_ref(rows), self.csv);
            let written =
                written.map_err(|cause| StreamError::io(format!("write {}", self.bucket.describe(&name)), &cause))?;
            self.put(tenure, &name, &written.into())?;
            Ok(name)
        };
        let [others @ .., last] = folders else { return Ok(Vec::new()) };
        thread::scope(|scope| {
            let begin =
                |folder| thread::Builder::new().name("streams-parts".into()).spawn_scoped(scope, move || write(folder));
            let begun: Vec<_> = others.iter().map(begin).collect();
            let last = write(last);
            let others = begun.into_iter().map(|begun| {
                let begun = begun.map_err(|e| StreamError::io("start a thread that writes to a bucket", &e))?;
                begun.join().unwrap_or_else(|panic| resume_unwind(panic))
            });
            others.chain([last]).collect()
        })
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
        let mut parts = Vec::with_capacity(folders.len());
        for folders in folders.chunks(PUTS_AT_ONCE) {
            parts.append(&mut self.write(&tenure, epoch, folders)?);
        }
        self.advance(&mut tenure, epoch, parts)?;
        if tenure.version.is_multiple_of(VERSIONS_MAX) {
            self.tidy(&tenure);
        }
        self.tenure = Some(tenure);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
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
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::TryStreamExt as _;
    use object_store::path::Path;
    use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::faulty::Faulty;

    fn schema() -> Schema {
        Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("dt", DataType::Utf8View, true)])
    }

    /// Rows of an epoch: each third has none, and they lie in one to three folders.
    fn rows(epoch: u64, of: i64) -> Vec<RecordBatch> {
        let count = (epoch % 3) * 2;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(|row| row as i64 + of)));
        let folders = (0..count).map(|row| format!("{}", (epoch + row) % 3));
        let folders: ArrayRef = Arc::new(StringViewArray::from_iter_values(folders));
        vec![RecordBatch::try_new(Arc::new(schema()), vec![numbers, folders]).unwrap()]
    }

    fn open(store: &Arc<Faulty>, by: &[&str]) -> ObjectSink {
        let by: Vec<String> = by.iter().map(|column| (*column).to_owned()).collect();
        let store = Arc::clone(store) as Arc<dyn ObjectStore>;
        let bucket = Bucket::new(store, Path::from("a/b"), "s3://test/a/b", Duration::from_millis(200)).unwrap();
        let csv = CsvSettings { header: Some(false), ..CsvSettings::default() };
        ObjectSink::new(bucket, Format::Csv, csv, Partitions::new(&by, &schema()).unwrap())
    }

    fn query() -> QueryId {
        QueryId { code: "abc".into(), job: 1 }
    }

    /// All parts with what is in them.
    fn parts(store: &Faulty) -> BTreeMap<String, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let listed: Vec<ObjectMeta> = store.store.list(None).try_collect().await.unwrap();
            let mut parts = BTreeMap::new();
            for object in listed.iter().filter(|object| object.location.as_ref().contains("/part-")) {
                let bytes = store.store.get(&object.location).await.unwrap().bytes().await.unwrap();
                parts.insert(object.location.to_string(), String::from_utf8(bytes.to_vec()).unwrap());
            }
            parts
        })
    }

    /// The parts of epochs that one sink has written without any fault.
    fn expected(epochs: u64, by: &[&str]) -> BTreeMap<String, String> {
        let store = Faulty::new(0);
        let mut sink = open(&store, by);
        (1..=epochs).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
        parts(&store)
    }

    #[test]
    fn an_epoch_has_an_object_for_each_folder_and_is_written_once() {
        let store = Faulty::new(1);
        let mut sink = open(&store, &["dt"]);
        assert_eq!(sink.last_committed(&query()).unwrap(), None);
        for epoch in [1, 2, 2, 3, 1] {
            sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
        }
        assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(3)), "one without rows, too");
        let found = parts(&store);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let part = |folder: u64, epoch: u64| format!("a/b/dt={folder}/part-abc-1-{epoch:020}.csv");
        assert_eq!(names, [part(0, 2), part(1, 1), part(1, 2), part(2, 1), part(2, 2)]);
        assert_eq!(found[&part(2, 2)], "0\n3\n");
        assert_eq!(found, expected(3, &["dt"]));
        let other = QueryId { code: "abc".into(), job: 11 };
        assert_eq!(open(&store, &["dt"]).last_committed(&other).unwrap(), None);
    }

    #[test]
    fn whatever_the_store_does_and_whenever_the_process_ends_each_epoch_is_there_once() {
        let epochs = 12;
        for seed in 0..60 {
            let by: &[&str] = if seed % 2 == 0 { &["dt"] } else { &[] };
            let store = Faulty::new(seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed + 1_000);
            let mut processes = 0;
            loop {
                processes += 1;
                store.state.lock().left = (processes < 8).then(|| rng.random_range(0..40));
                store.state.lock().one_in = [0, 9][processes % 2];
                let mut sink = open(&store, by);
                let Ok(held) = sink.last_committed(&query()) else { continue };
                let held = held.unwrap_or(Epoch::ZERO).0;
                let mut commits = (held + 1..=epochs).map(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)));
                if commits.all(|committed| committed.is_ok()) {
                    break;
                }
            }
            assert_eq!(parts(&store), expected(epochs, by), "seed {seed}");
        }
    }

    #[test]
    fn what_meets_a_request_that_comes_to_nothing_is_created_all_the_same() {
        let store = Faulty::new(1);
        let mut sink = open(&store, &["dt"]);
        store.state.lock().conflicts = 2;
        assert_eq!(sink.last_committed(&query()).unwrap(), None);
        for epoch in 1..=3 {
            store.state.lock().conflicts = 2;
            sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
        }
        assert_eq!(parts(&store), expected(3, &["dt"]));
    }

    #[test]
    fn the_folders_of_an_epoch_are_written_at_the_same_time() {
        let store = Faulty::new(1);
        let mut sink = open(&store, &["dt"]);
        store.state.lock().meet = 3;
        sink.commit(&query(), Epoch(2), &rows(2, 0)).unwrap();
        assert_eq!(parts(&store).len(), 3);
    }

    #[test]
    fn who_was_shut_out_writes_nothing_that_counts() {
        for seed in 0..60 {
            let by: &[&str] = if seed % 2 == 0 { &["dt"] } else { &[] };
            let (store, mut rng) = (Faulty::new(seed), ChaCha8Rng::seed_from_u64(seed));
            let mut former = open(&store, by);
            let paused = rng.random_range(0..4);
            former.last_committed(&query()).unwrap();
            (1..=paused).for_each(|epoch| former.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
            // It ends, or is paused, within the next epoch.
            store.state.lock().left = Some(rng.random_range(0..8));
            let in_doubt = former.commit(&query(), Epoch(paused + 1), &rows(paused + 1, 0)).is_ok();
            store.state.lock().left = None;
            let mut sink = open(&store, by);
            let held = sink.last_committed(&query()).unwrap().unwrap_or(Epoch::ZERO).0;
            assert!(held == paused + 1 || held == paused && !in_doubt, "seed {seed}");
            for epoch in held + 1..=80 {
                sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
                if rng.random_range(0..20) == 0 {
                    let error = former.commit(&query(), Epoch(held + 1), &rows(held + 1, 900)).unwrap_err().to_string();
                    assert!(error.contains("another process has begun to write query"), "{error}");
                }
            }
            assert_eq!(parts(&store), expected(80, by), "seed {seed}");
        }
    }

    #[test]
    fn a_part_that_somebody_was_about_to_write_over_is_not_written_over_when_it_counts() {
        let store = Faulty::new(1);
        let mut former = open(&store, &[]);
        let tenure = former.tenure(&query()).unwrap();
        let name = tenure.part("", Epoch(1), Format::Csv);
        // It has found its part there, and that nobody has opened the query since; then it is paused.
        former.bucket.create(&name, &"of a lost answer".into()).unwrap();
        let tag = former.bucket.tag(&name).unwrap().unwrap();
        former.check_last(&tenure).unwrap();
        let mut sink = open(&store, &[]);
        sink.commit(&query(), Epoch(1), &rows(1, 0)).unwrap();
        assert_eq!(former.bucket.replace(&name, &"too late".into(), &tag).unwrap(), Created::Before);
        assert_eq!(parts(&store), expected(1, &[]));
    }

    #[test]
    fn what_did_not_come_to_count_goes() {
        let store = Faulty::new(1);
        let mut former = open(&store, &["dt"]);
        former.commit(&query(), Epoch(1), &rows(1, 0)).unwrap();
        let tenure = former.tenure(&query()).unwrap();
        // Parts of the next epoch by a former text: it has other folders now, or none.
        for (folder, epoch) in [("dt=7", 2), ("dt=8", 3)] {
            let name = tenure.part(folder, Epoch(epoch), Format::Csv);
            former.bucket.create(&name, &"of another text".into()).unwrap();
        }
        let other = "a/b/dt=7/part-abc-11-00000000000000000002.csv";
        former.bucket.create(&other[4..], &"of another query".into()).unwrap();
        let mut sink = open(&store, &["dt"]);
        (2..=3).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
        let mut found = parts(&store);
        assert_eq!(found.remove(other).as_deref(), Some("of another query"));
        assert_eq!(found, expected(3, &["dt"]));
    }

    #[test]
    fn a_store_that_stays_away_is_told_of_and_waiting_for_it_can_be_given_up() {
        let store = Faulty::new(1);
        store.state.lock().one_in = 1;
        let error = open(&store, &[]).last_committed(&query()).unwrap_err().to_string();
        assert!(
            error.contains("s3://test/a/b/_epochs/abc-1/")
                && error.contains("it is away")
                && error.contains("'retry.timeout'"),
            "{error}"
        );
        let mut sink = open(&store, &[]);
        (sink.remote().unwrap().give_up)();
        assert_eq!(sink.last_committed(&query()), Err(StreamError::Cancelled));
    }
}
