//! The `file` sink with several parts at a time: one in each folder of `PARTITIONED BY`, or parts that take the rows of several
//! epochs until they are large or old enough.
//!
//! ```text
//!   out/
//!     _epoch-<query>                          the last epoch and the parts it wrote to, as JSON
//!     dt=2026-01-01/
//!       part-<query>-<epoch, 20 digits>.csv   whole parts, named by the epoch of their first rows
//!       .part-...csv.open                     parts that still take rows, or are being written; of Parquet, what is
//!                                             gathered for one, and `.tmp` while it is made of that
//! ```
//!
//! The rows of an epoch are flushed to hidden parts; then the record of the epoch, with the length of each part, is put in place
//! by a rename: that is the commit. After it, parts that are whole get their visible names. When a query starts again, what the
//! record says is made true: whole parts are renamed, others are cut to their length, and parts that it does not know are removed.
//!
//! A query holds a lock while it writes. The record of a query that holds none, because its process died, is made true by the
//! next one that writes to the directory, and all its parts are whole then: its committed rows do not stay hidden.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Sink};
use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::gathered;
use super::partitions::Partitions;
use crate::format::Format;
use crate::format::csv::CsvSettings;
use crate::roots::Roots;

/// How the records of queries are called, before their ids.
const RECORD: &str = "_epoch-";

/// When a part is whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rolling {
    /// With so many bytes.
    pub(crate) bytes: Option<u64>,
    /// So long after its first row.
    pub(crate) age: Option<Duration>,
}

impl Rolling {
    /// Whether parts take the rows of several epochs.
    pub(crate) fn spans_epochs(self) -> bool {
        self.bytes.is_some() || self.age.is_some()
    }

    /// Whether a part is whole that has so many bytes, and rows since then.
    pub(crate) fn is_whole(self, bytes: u64, begun: Instant) -> bool {
        !self.spans_epochs()
            || self.bytes.is_some_and(|most| bytes >= most)
            || self.age.is_some_and(|age| begun.elapsed() >= age)
    }
}

/// Writes parts in folders.
pub(crate) struct RollingSink {
    directory: PathBuf,
    format: Format,
    csv: CsvSettings,
    partitions: Partitions,
    rolling: Rolling,
    /// The query that is being written, once known, and its last epoch.
    last: Option<(QueryId, Epoch)>,
    /// The parts that take rows, by folder.
    open: BTreeMap<String, Part>,
    /// The lock of the query that is being written.
    claim: Option<Claim>,
    roots: Roots,
}

/// A part as the record knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    folder: String,
    /// The visible name.
    name: String,
    bytes: u64,
    whole: bool,
    /// Whether the visible file is made of the hidden one, and not the same.
    #[serde(default)]
    gathered: bool,
}

/// A part that takes rows.
#[derive(Debug)]
struct Part {
    entry: Entry,
    begun: Instant,
}

/// The record of an epoch.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    epoch: Epoch,
    parts: Vec<Entry>,
}

impl Entry {
    fn hidden(&self, directory: &Path) -> PathBuf {
        directory.join(&self.folder).join(format!(".{}.open", self.name))
    }

    fn visible(&self, directory: &Path) -> PathBuf {
        directory.join(&self.folder).join(&self.name)
    }
}

fn failed(what: &str, path: &Path) -> impl Fn(std::io::Error) -> StreamError {
    let what = format!("{what} {}", path.display());
    move |e| StreamError::io(what.clone(), &e)
}

fn flush_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed("flush directory", path))
}

impl RollingSink {
    /// Over a directory that exists.
    pub(crate) fn new(
        directory: PathBuf,
        format: Format,
        csv: CsvSettings,
        partitions: Partitions,
        rolling: Rolling,
        roots: Roots,
    ) -> Self {
        Self { directory, format, csv, partitions, rolling, last: None, open: BTreeMap::new(), claim: None, roots }
    }

    fn record_path(&self, query: &str) -> PathBuf {
        self.directory.join(format!("{RECORD}{query}"))
    }

    fn record(&self, query: &str) -> Result<Record> {
        let path = self.record_path(query);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| StreamError::Data {
                place: path.display().to_string(),
                message: format!("expected the record of an epoch, got: {e}; restore or remove the file"),
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Record { epoch: Epoch::ZERO, parts: Vec::new() }),
            Err(e) => Err(failed("read", &path)(e)),
        }
    }

    /// Makes what the record says true.
    fn recover(&mut self, query: &QueryId) -> Result<Epoch> {
        if self.claim.is_none() {
            self.claim = Some(Claim::of_writer(&self.directory, &query.to_string())?);
            self.finish_the_dead(query)?;
        }
        let record = self.record(&query.to_string())?;
        self.open.clear();
        for entry in &record.parts {
            if !self.cut(entry)? {
                let hidden = entry.hidden(&self.directory);
                if !entry.whole && !entry.visible(&self.directory).exists() {
                    return Err(StreamError::Data {
                        place: hidden.display().to_string(),
                        message: format!(
                            "expected the {} bytes that the query wrote to it, got no such file: it was removed or moved away; put it back, or \
                             drop the query and start it again",
                            entry.bytes
                        ),
                    });
                }
                continue;
            }
            if entry.whole {
                self.publish(entry)?;
            } else {
                let part = Part { entry: entry.clone(), begun: Instant::now() };
                self.open.insert(entry.folder.clone(), part);
            }
        }
        let known: Vec<PathBuf> = self.open.values().map(|part| part.entry.hidden(&self.directory)).collect();
        remove_unknown(&self.directory, &format!(".part-{query}-"), &known)?;
        Ok(record.epoch)
    }

    /// Makes the committed rows visible of queries that are being written by nobody any more.
    fn finish_the_dead(&self, own: &QueryId) -> Result<()> {
        let entries = fs::read_dir(&self.directory).map_err(failed("read directory", &self.directory))?;
        for entry in entries {
            let name = entry.map_err(failed("read directory", &self.directory))?.file_name();
            let Some(query) = name.to_str().and_then(|name| name.strip_prefix(RECORD)) else { continue };
            // A record that cannot be read is the mark of a query that has no open parts, or its own affair.
            let Some(record) = self.record(query).ok().filter(|record| !record.parts.is_empty()) else { continue };
            if query == own.to_string() {
                continue;
            }
            let Some(_claim) = Claim::of(&self.directory, query)? else { continue };
            for entry in &record.parts {
                if self.cut(entry)? {
                    self.publish(entry)?;
                }
            }
            self.store(query, &Record { parts: Vec::new(), ..record })?;
            remove_unknown(&self.directory, &format!(".part-{query}-"), &[])?;
        }
        Ok(())
    }

    /// Cuts what is not committed off a hidden part; tells whether it is there.
    fn cut(&self, entry: &Entry) -> Result<bool> {
        let hidden = entry.hidden(&self.directory);
        if !hidden.exists() {
            return Ok(false);
        }
        let file = OpenOptions::new().write(true).open(&hidden).map_err(failed("open", &hidden))?;
        file.set_len(entry.bytes).and_then(|()| file.sync_all()).map_err(failed("cut", &hidden))?;
        Ok(true)
    }

    fn last(&mut self, query: &QueryId) -> Result<Epoch> {
        if let Some((of, epoch)) = &self.last
            && of == query
        {
            return Ok(*epoch);
        }
        let epoch = self.recover(query)?;
        self.last = Some((query.clone(), epoch));
        Ok(epoch)
    }

    fn make_folder(&self, folder: &str) -> Result<()> {
        let path = self.directory.join(folder);
        self.roots.check(&path)?;
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&path).map_err(failed("make directory", &path))?;
        path.ancestors().skip(1).take_while(|above| above.starts_with(&self.directory)).try_for_each(flush_directory)
    }

    /// Adds rows to the part of a folder, or to a new one, and flushes it.
    fn append(&mut self, query: &QueryId, epoch: Epoch, folder: String, rows: &RecordBatch) -> Result<()> {
        let part = match self.open.remove(&folder) {
            Some(part) => part,
            None => {
                self.make_folder(&folder)?;
                let name = format!("part-{query}-{:020}.{}", epoch.0, self.format.extension());
                let gathered = self.format == Format::Parquet && self.rolling.spans_epochs();
                let entry = Entry { folder: folder.clone(), name, bytes: 0, whole: false, gathered };
                Part { entry, begun: Instant::now() }
            }
        };
        let hidden = part.entry.hidden(&self.directory);
        let file = OpenOptions::new().create(true).append(true).open(&hidden).map_err(failed("open", &hidden))?;
        let csv = match part.entry.bytes {
            0 => self.csv,
            _ => CsvSettings { header: Some(false), ..self.csv },
        };
        let writer = BufWriter::with_capacity(256 << 10, file);
        let schema = self.partitions.schema();
        let written = match part.entry.gathered {
            true => gathered::append(writer, schema, rows),
            false => self.format.write(writer, schema, std::slice::from_ref(rows), csv),
        };
        let written = written.map_err(|e| StreamError::io(format!("write {}", hidden.display()), &e))?;
        let file = written.into_inner().map_err(|e| failed("write", &hidden)(e.into_error()))?;
        file.sync_all().map_err(failed("flush", &hidden))?;
        let bytes = file.metadata().map_err(failed("look at", &hidden))?.len();
        if part.entry.bytes == 0 {
            flush_directory(&self.directory.join(&folder))?;
        }
        self.open.insert(folder, Part { entry: Entry { bytes, ..part.entry }, begun: part.begun });
        Ok(())
    }

    /// Puts the record of an epoch in place. Rows count from here on.
    fn store(&self, query: &str, record: &Record) -> Result<()> {
        let path = self.record_path(query);
        let hidden = self.directory.join(format!(".{RECORD}{query}.tmp"));
        let text = serde_json::to_string(record).map_err(|e| StreamError::Internal(e.to_string()))?;
        let write = || {
            let mut file = File::create(&hidden)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&hidden, &path)
        };
        write().map_err(failed("write", &path))?;
        flush_directory(&self.directory)
    }

    /// Makes a whole part visible. Doing it again gives the same.
    fn publish(&self, entry: &Entry) -> Result<()> {
        let (hidden, visible) = (entry.hidden(&self.directory), entry.visible(&self.directory));
        if entry.gathered {
            let made = hidden.with_extension("tmp");
            gathered::convert(&hidden, &made).map_err(|e| StreamError::io(format!("write {}", made.display()), &e))?;
            fs::rename(&made, &visible).map_err(failed("make visible", &visible))?;
            flush_directory(&self.directory.join(&entry.folder))?;
            return fs::remove_file(&hidden).map_err(failed("remove", &hidden));
        }
        fs::rename(&hidden, &visible).map_err(failed("make visible", &visible))?;
        flush_directory(&self.directory.join(&entry.folder))
    }

    /// Makes parts whole: all, or those that are large or old enough.
    fn roll(&mut self, query: &QueryId, epoch: Epoch, all: bool) -> Result<()> {
        let mut whole = Vec::new();
        let mut parts = Vec::new();
        for part in self.open.values_mut() {
            part.entry.whole = all || self.rolling.is_whole(part.entry.bytes, part.begun);
            parts.push(part.entry.clone());
        }
        self.store(&query.to_string(), &Record { epoch, parts })?;
        self.open.retain(|_, part| {
            if part.entry.whole {
                whole.push(part.entry.clone());
            }
            !part.entry.whole
        });
        whole.iter().try_for_each(|entry| self.publish(entry))
    }
}

/// Removes the hidden parts of a query that are not among the known ones, in all folders.
fn remove_unknown(directory: &Path, hidden: &str, known: &[PathBuf]) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(failed("read directory", directory))? {
        let path = entry.map_err(failed("read directory", directory))?.path();
        if path.is_dir() {
            remove_unknown(&path, hidden, known)?;
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(hidden))
            && !known.contains(&path)
        {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

impl Sink for RollingSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        self.last = None;
        let last = self.last(query)?;
        Ok((last > Epoch::ZERO).then_some(last))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if epoch <= self.last(query)? {
            return Ok(());
        }
        let written = self.partitions.cut(rows)?.into_iter();
        let stored = written
            .into_iter()
            .try_for_each(|(folder, rows)| self.append(query, epoch, folder, &rows))
            .and_then(|()| self.roll(query, epoch, false));
        // What was written of a failed epoch is cut off before it is tried again.
        self.last = stored.is_ok().then(|| (query.clone(), epoch));
        stored
    }

    fn finish(&mut self) -> Result<()> {
        let Some((query, epoch)) = self.last.clone() else { return Ok(()) };
        if self.open.is_empty() { Ok(()) } else { self.roll(&query, epoch, true) }
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }
}

impl Drop for RollingSink {
    /// A query that is stopped leaves its committed rows where they can be seen.
    fn drop(&mut self) {
        // The record says the same, so what fails here is made true when the query starts again.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("day", DataType::Utf8View, true)])
    }

    fn rows(values: &[(i64, &str)]) -> Vec<RecordBatch> {
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values(values.iter().map(|v| v.0)));
        let day: ArrayRef = Arc::new(StringViewArray::from_iter_values(values.iter().map(|v| v.1)));
        vec![RecordBatch::try_new(Arc::new(schema()), vec![n, day]).unwrap()]
    }

    fn open_as(format: Format, directory: &Path, rolling: Rolling) -> RollingSink {
        let csv = CsvSettings { header: Some(true), ..CsvSettings::default() };
        let partitions = Partitions::new(&["day".into()], &schema()).unwrap();
        RollingSink::new(directory.to_owned(), format, csv, partitions, rolling, Roots::anywhere())
    }

    fn open(directory: &Path, rolling: Rolling) -> RollingSink {
        open_as(Format::Csv, directory, rolling)
    }

    /// How many rows each visible Parquet file of a folder has.
    fn parquet_rows(directory: &Path, day: &str) -> Vec<u64> {
        let folder = directory.join(format!("day={day}"));
        let files = super::super::listing::files(folder.to_str().unwrap(), &Roots::anywhere()).unwrap();
        files.iter().map(|file| crate::format::parquet::row_groups(file).unwrap().iter().sum()).collect()
    }

    /// The visible parts of a folder, one behind the other.
    fn visible(directory: &Path, day: &str) -> String {
        let folder = directory.join(format!("day={day}"));
        let files = super::super::listing::files(folder.to_str().unwrap(), &Roots::anywhere()).unwrap();
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    fn query() -> QueryId {
        QueryId { code: "abc".into(), job: 1 }
    }

    /// What the end of a process leaves of a sink.
    fn die(mut sink: RollingSink) {
        drop(sink.claim.take());
        std::mem::forget(sink);
    }

    const BY_SIZE: Rolling = Rolling { bytes: Some(6), age: None };

    #[test]
    fn each_epoch_has_a_part_in_each_of_its_folders() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let mut sink = open(directory.path(), Rolling::default());
            sink.commit(&query(), Epoch(1), &rows(&[(1, "a"), (2, "b"), (3, "a")])).unwrap();
            sink.commit(&query(), Epoch(2), &rows(&[(4, "b")])).unwrap();
            sink.commit(&query(), Epoch(2), &rows(&[(4, "b")])).unwrap();
            sink.commit(&query(), Epoch(3), &[]).unwrap();
            assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(3)));
        }
        assert_eq!(visible(directory.path(), "a"), "n\n1\n3\n");
        assert_eq!(visible(directory.path(), "b"), "n\n2\nn\n4\n");
    }

    #[test]
    fn a_part_takes_rows_until_it_is_large_enough() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), BY_SIZE);
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        assert_eq!(visible(directory.path(), "a"), "");
        sink.commit(&query(), Epoch(2), &rows(&[(2, "a"), (3, "b")])).unwrap();
        assert_eq!(visible(directory.path(), "a"), "n\n1\n2\n");
        assert_eq!(visible(directory.path(), "b"), "");
        sink.finish().unwrap();
        assert_eq!(visible(directory.path(), "b"), "n\n3\n");
    }

    #[test]
    fn a_parquet_file_takes_the_rows_of_several_epochs() {
        let directory = tempfile::tempdir().unwrap();
        let by_size = |bytes| Rolling { bytes: Some(bytes), age: None };
        let mut sink = open_as(Format::Parquet, directory.path(), by_size(1 << 20));
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a"), (2, "b")])).unwrap();
        sink.commit(&query(), Epoch(2), &rows(&[(3, "a"), (4, "a")])).unwrap();
        assert_eq!(parquet_rows(directory.path(), "a"), [0_u64; 0]);
        die(sink);

        // Half an epoch that was being written when the process died.
        let open_part = fs::read_dir(directory.path().join("day=a")).unwrap().next().unwrap().unwrap().path();
        OpenOptions::new().append(true).open(open_part).unwrap().write_all(b"half").unwrap();
        let mut sink = open_as(Format::Parquet, directory.path(), by_size(1));
        assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(2)));
        sink.commit(&query(), Epoch(3), &rows(&[(5, "a")])).unwrap();
        assert_eq!(parquet_rows(directory.path(), "a"), [4]);
        assert_eq!(parquet_rows(directory.path(), "b"), [1]);
        let hidden = fs::read_dir(directory.path().join("day=a")).unwrap().count();
        assert_eq!(hidden, 1, "what was gathered is gone");
    }

    #[test]
    fn an_old_part_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), Rolling { bytes: None, age: Some(Duration::ZERO) });
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        assert_eq!(visible(directory.path(), "a"), "n\n1\n");
    }

    #[test]
    fn a_stopped_query_leaves_its_rows_visible() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), BY_SIZE);
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        drop(sink);
        assert_eq!(visible(directory.path(), "a"), "n\n1\n");
    }

    #[test]
    fn the_committed_rows_of_a_query_that_died_become_visible_when_another_writes() {
        let directory = tempfile::tempdir().unwrap();
        let mut dead = open(directory.path(), BY_SIZE);
        dead.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        dead.append(&query(), Epoch(2), "day=a".into(), &dead.partitions.cut(&rows(&[(2, "a")])).unwrap()["day=a"])
            .unwrap();
        let mut living = open(directory.path(), BY_SIZE);
        let id = |job| QueryId { code: "abc".into(), job };
        living.commit(&id(2), Epoch(1), &rows(&[(3, "b")])).unwrap();
        assert_eq!(visible(directory.path(), "a"), "", "it still holds its lock");
        die(dead);
        let mut next = open(directory.path(), BY_SIZE);
        next.commit(&id(3), Epoch(1), &rows(&[])).unwrap();
        assert_eq!(visible(directory.path(), "a"), "n\n1\n");
        assert_eq!(visible(directory.path(), "b"), "", "it is being written");
        living.finish().unwrap();
        assert_eq!(visible(directory.path(), "b"), "n\n3\n");
    }

    #[test]
    fn a_crash_while_an_epoch_is_written_leaves_nothing_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), BY_SIZE);
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        sink.append(&query(), Epoch(2), "day=a".into(), &sink.partitions.cut(&rows(&[(2, "a")])).unwrap()["day=a"])
            .unwrap();
        sink.append(&query(), Epoch(2), "day=b".into(), &sink.partitions.cut(&rows(&[(3, "b")])).unwrap()["day=b"])
            .unwrap();
        die(sink);

        let mut sink = open(directory.path(), BY_SIZE);
        assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(1)));
        assert_eq!(fs::read_dir(directory.path().join("day=b")).unwrap().count(), 0, "the hidden part is cleared away");
        sink.commit(&query(), Epoch(2), &rows(&[(2, "a"), (3, "b")])).unwrap();
        sink.finish().unwrap();
        assert_eq!(visible(directory.path(), "a"), "n\n1\n2\n");
        assert_eq!(visible(directory.path(), "b"), "n\n3\n");
    }

    #[test]
    fn a_crash_after_the_record_makes_the_parts_visible_later() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), Rolling::default());
        let cut = sink.partitions.cut(&rows(&[(1, "a"), (2, "b")])).unwrap();
        for (folder, rows) in cut {
            sink.append(&query(), Epoch(1), folder, &rows).unwrap();
        }
        let whole = |part: &Part| Entry { whole: true, ..part.entry.clone() };
        let parts = sink.open.values().map(whole).collect();
        sink.store(&query().to_string(), &Record { epoch: Epoch(1), parts }).unwrap();
        die(sink);

        let mut sink = open(directory.path(), Rolling::default());
        assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(1)));
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a"), (2, "b")])).unwrap();
        assert_eq!(visible(directory.path(), "a") + &visible(directory.path(), "b"), "n\n1\nn\n2\n");
    }

    #[test]
    fn a_query_that_another_one_writes_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut living = open(directory.path(), BY_SIZE);
        living.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        let mut second = open(directory.path(), BY_SIZE);
        let error = second.last_committed(&query()).unwrap_err().to_string();
        assert!(error.contains("is being written to"), "{error}");
        drop(second);
        living.commit(&query(), Epoch(2), &rows(&[(2, "a")])).unwrap();
        drop(living);
        assert_eq!(open(directory.path(), BY_SIZE).last_committed(&query()).unwrap(), Some(Epoch(2)));
        assert_eq!(visible(directory.path(), "a"), "n\n1\n2\n");
    }

    #[test]
    fn committed_rows_that_are_gone_from_a_hidden_part_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), Rolling { bytes: Some(1 << 20), age: None });
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        die(sink);
        fs::remove_dir_all(directory.path().join("day=a")).unwrap();
        let error = open(directory.path(), BY_SIZE).last_committed(&query()).unwrap_err().to_string();
        assert!(error.contains("it was removed or moved away"), "{error}");
    }

    #[test]
    fn a_failed_epoch_is_written_again_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path(), BY_SIZE);
        sink.commit(&query(), Epoch(1), &rows(&[(1, "a")])).unwrap();
        // A file where the folder should be.
        fs::write(directory.path().join("day=b"), "").unwrap();
        assert!(sink.commit(&query(), Epoch(2), &rows(&[(2, "a"), (3, "b")])).is_err());
        fs::remove_file(directory.path().join("day=b")).unwrap();
        sink.commit(&query(), Epoch(2), &rows(&[(2, "a"), (3, "b")])).unwrap();
        sink.finish().unwrap();
        assert_eq!(visible(directory.path(), "a"), "n\n1\n2\n");
    }
}
