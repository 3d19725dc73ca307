//! The `file` sink as it is without partitions and rolling: a directory of part files, one for each epoch that has rows.
//!
//! ```text
//!   out/
//!     part-<query>-<epoch, 20 digits>.parquet   the rows of an epoch; its name is the record of the epoch
//!     _epoch-<query>                            the last epoch, as text; written behind its part
//!     .part-...tmp                              being written; removed when the query starts again
//!     ._writer-<query>                          locked while the query is being written
//! ```
//!
//! A part is written under a hidden name, flushed to disk, renamed, and the directory is flushed: rows and epoch become
//! visible in one atomic step, and a reader of the directory never sees half a file. An epoch that is already there is
//! left alone. So there are as many files as epochs with rows; they are not merged. The mark says which epoch was written last when
//! somebody has moved its part away; who goes on then is told by what was recorded that parts are gone.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Sink};

use super::claim::Claim;
use crate::crash::crash_at;
use crate::format::Format;
use crate::format::csv::CsvSettings;

/// The directory to write into; it is made if it is not there.
pub(crate) fn directory(path: &str) -> Result<PathBuf> {
    if super::listing::is_glob(path) && !Path::new(path).exists() {
        return Err(StreamError::invalid(format!(
            "'path' = '{path}': expected a directory to write into, got a pattern"
        )));
    }
    let directory = PathBuf::from(path);
    if directory.is_file() {
        return Err(StreamError::invalid(format!(
            "'path' = '{path}': expected a directory to write part files into, got a file; choose another path"
        )));
    }
    fs::create_dir_all(&directory)
        .map_err(|e| StreamError::io(format!("make directory {}", directory.display()), &e))?;
    Ok(directory)
}

/// Writes part files.
pub(crate) struct FileSink {
    directory: PathBuf,
    format: Format,
    csv: CsvSettings,
    schema: SchemaRef,
    /// The last committed epoch of the query that is being written, once known.
    last: Option<(QueryId, Epoch)>,
    /// The lock of the query that is being written.
    claim: Option<(QueryId, Claim)>,
}

impl FileSink {
    /// Over a directory that exists.
    pub(crate) fn new(directory: PathBuf, format: Format, csv: CsvSettings, schema: SchemaRef) -> Self {
        Self { directory, format, csv, schema, last: None, claim: None }
    }

    fn part_name(&self, query: &QueryId, epoch: Epoch) -> String {
        format!("part-{query}-{:020}.{}", epoch.0, self.format.extension())
    }

    /// Writes a file under a hidden name and makes it durable. It is not visible yet.
    fn write(
        &self,
        name: &str,
        content: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>, String>,
    ) -> Result<PathBuf> {
        let hidden = self.directory.join(format!(".{name}.tmp"));
        let failed = |e: &dyn std::fmt::Display| StreamError::io(format!("write {}", hidden.display()), e);
        let file = File::create(&hidden).map_err(|e| failed(&e))?;
        let writer = content(BufWriter::with_capacity(256 << 10, file)).map_err(|e| failed(&e))?;
        let file = writer.into_inner().map_err(|e| failed(&e))?;
        // A part whose flush failed is never renamed; the epoch is written again, as another file.
        file.sync_all().map_err(|e| failed(&e))?;
        Ok(hidden)
    }

    /// Makes a written file visible under its name, for good.
    fn publish(&self, hidden: &Path, name: &str) -> Result<()> {
        let visible = self.directory.join(name);
        fs::rename(hidden, &visible)
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .map_err(|e| StreamError::io(format!("make {} visible", visible.display()), &e))
    }

    /// Reads the last epoch out of the directory, and clears away what a crash left.
    fn recover(&self, query: &QueryId) -> Result<Epoch> {
        let failed = |e: std::io::Error| StreamError::io(format!("read directory {}", self.directory.display()), &e);
        let (part, hidden) = (format!("part-{query}-"), format!(".part-{query}-"));
        let mut last = Epoch::ZERO;
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&hidden) {
                fs::remove_file(entry.path()).map_err(failed)?;
            } else if let Some(rest) = name.strip_prefix(&part) {
                let digits = rest.split('.').next().unwrap_or_default();
                last = last.max(Epoch(digits.parse().unwrap_or(0)));
            }
        }
        let mark = self.directory.join(mark_name(query));
        match fs::read_to_string(&mark) {
            Ok(text) => match text.trim().parse() {
                Ok(epoch) => Ok(last.max(Epoch(epoch))),
                Err(_) => Err(StreamError::Data {
                    place: mark.display().to_string(),
                    message: format!(
                        "expected the number of an epoch, got '{}'; restore or remove the file",
                        text.trim()
                    ),
                }),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(last),
            Err(e) => Err(failed(e)),
        }
    }

    fn last(&mut self, query: &QueryId) -> Result<Epoch> {
        if let Some((of, epoch)) = &self.last
            && of == query
        {
            return Ok(*epoch);
        }
        if self.claim.as_ref().is_none_or(|(of, _)| of != query) {
            self.claim = Some((query.clone(), Claim::of_writer(&self.directory, &query.to_string())?));
        }
        let epoch = self.recover(query)?;
        self.last = Some((query.clone(), epoch));
        Ok(epoch)
    }
}

fn mark_name(query: &QueryId) -> String {
    format!("_epoch-{query}")
}

impl Sink for FileSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        self.last = None;
        let last = self.last(query)?;
        Ok((last > Epoch::ZERO).then_some(last))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if epoch <= self.last(query)? {
            return Ok(());
        }
        if rows.iter().any(|batch| batch.num_rows() > 0) {
            let name = self.part_name(query, epoch);
            let hidden = self.write(&name, |out| self.format.write(out, &self.schema, rows, self.csv))?;
            crash_at("file-sink-part-written");
            self.publish(&hidden, &name)?;
            crash_at("file-sink-part-visible");
        }
        let name = mark_name(query);
        let hidden = self.write(&name, |mut out| writeln!(out, "{epoch}").map(|()| out).map_err(|e| e.to_string()))?;
        self.publish(&hidden, &name)?;
        crash_at("file-sink-marked");
        self.last = Some((query.clone(), epoch));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::roots::Roots;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
    }

    fn rows(values: &[i64]) -> Vec<RecordBatch> {
        vec![RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()]
    }

    fn open(directory: &Path) -> FileSink {
        let csv = CsvSettings { header: Some(false), ..CsvSettings::default() };
        FileSink::new(directory.to_owned(), Format::Csv, csv, schema())
    }

    fn visible(directory: &Path) -> String {
        let files = super::super::listing::files(directory.to_str().unwrap(), &Roots::anywhere()).unwrap();
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    fn query(job: u64) -> QueryId {
        QueryId { code: "abc".into(), job }
    }

    #[test]
    fn an_epoch_that_is_committed_again_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let mut sink = open(directory.path());
            sink.commit(&query(1), Epoch(1), &rows(&[1, 2])).unwrap();
            sink.commit(&query(1), Epoch(2), &rows(&[3])).unwrap();
            sink.commit(&query(1), Epoch(2), &rows(&[3])).unwrap();
            assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(2)));
        }
        assert_eq!(visible(directory.path()), "1\n2\n3\n");
    }

    #[test]
    fn a_crash_before_the_rename_leaves_nothing_to_see_and_the_epoch_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(1), &rows(&[1])).unwrap();
        let name = sink.part_name(&query(1), Epoch(2));
        sink.write(&name, |out| Format::Csv.write(out, &schema(), &rows(&[2]), sink.csv)).unwrap();
        drop(sink);

        assert_eq!(visible(directory.path()), "1\n");
        let mut sink = open(directory.path());
        assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(1)));
        let is_hidden = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".part");
        assert!(
            !fs::read_dir(directory.path()).unwrap().any(|entry| is_hidden(entry.unwrap())),
            "the hidden file is cleared away"
        );
        sink.commit(&query(1), Epoch(2), &rows(&[2])).unwrap();
        assert_eq!(visible(directory.path()), "1\n2\n");
    }

    #[test]
    fn a_crash_after_the_rename_finds_the_epoch_committed() {
        let directory = tempfile::tempdir().unwrap();
        let sink = open(directory.path());
        let name = sink.part_name(&query(1), Epoch(1));
        let hidden = sink.write(&name, |out| Format::Csv.write(out, &schema(), &rows(&[1]), sink.csv)).unwrap();
        sink.publish(&hidden, &name).unwrap();
        drop(sink);

        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(1), &rows(&[1])).unwrap();
        assert_eq!(visible(directory.path()), "1\n");
    }

    #[test]
    fn epochs_without_rows_are_remembered_and_queries_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(1), &rows(&[1])).unwrap();
        sink.commit(&query(1), Epoch(2), &[]).unwrap();
        sink.commit(&query(1), Epoch(3), &rows(&[])).unwrap();
        drop(sink);
        let mut sink = open(directory.path());
        assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(3)));
        assert_eq!(sink.last_committed(&query(11)).unwrap(), None);
        assert_eq!(visible(directory.path()), "1\n");
    }

    #[test]
    fn an_epoch_is_known_whose_part_was_moved_away() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(1), &[]).unwrap();
        sink.commit(&query(1), Epoch(2), &rows(&[2])).unwrap();
        fs::remove_file(directory.path().join(sink.part_name(&query(1), Epoch(2)))).unwrap();
        drop(sink);
        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(2), &rows(&[2])).unwrap();
        assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(2)));
        assert_eq!(visible(directory.path()), "");
    }

    #[test]
    fn a_query_is_written_by_one_sink() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(1), &rows(&[1])).unwrap();
        let error = open(directory.path()).commit(&query(1), Epoch(2), &rows(&[2])).unwrap_err().to_string();
        assert!(error.contains("is being written to"), "{error}");
        open(directory.path()).commit(&query(2), Epoch(1), &rows(&[2])).unwrap();
        drop(sink);
        open(directory.path()).commit(&query(1), Epoch(2), &rows(&[3])).unwrap();
    }

    #[test]
    fn a_failed_write_counts_for_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = open(directory.path());
        sink.commit(&query(1), Epoch(1), &rows(&[1])).unwrap();
        fs::remove_dir_all(directory.path()).unwrap();
        assert!(sink.commit(&query(1), Epoch(2), &rows(&[2])).is_err());
        fs::create_dir(directory.path()).unwrap();
        assert_eq!(sink.last_committed(&query(1)).unwrap(), None);
    }
}
