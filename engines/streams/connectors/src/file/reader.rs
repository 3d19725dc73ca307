//! One partition of files, read one after the other.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use arrow::array::RecordBatch;
use savanna_streams_model::source::{Offset, Read, SourceBatch, SourceReader};
use savanna_streams_model::{Result, StreamError};
use serde::{Deserialize, Serialize};

use super::bytes::FileBytes;
use super::folders::{FolderValues, Folders};
use super::listing;
use crate::format::malformed::{Malformed, OnError};
use crate::format::parquet::{ParquetRows, row_groups};
use crate::format::records::{ByteSource, Next, Records};
use crate::format::{Format, Input, TextFormat};

/// What is read as a whole by one partition: a text file, or a row group of a Parquet file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    pub(crate) group: usize,
}

/// How files are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) text: TextFormat,
    /// The columns in folders' names, where there are such.
    pub(crate) folders: Option<Folders>,
    pub(crate) path: String,
    pub(crate) follow: bool,
    pub(crate) on_error: OnError,
}

/// A place in a partition, as JSON. Everything before it has been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// How many units the partition has; none if more may come.
    of: Option<usize>,
    /// The unit that was read last; none at the start.
    file: Option<PathBuf>,
    group: usize,
    /// Whether it was read to its end.
    done: bool,
    /// Bytes of a text file, or rows of a row group, that were read.
    at: u64,
    /// The line of a text file that comes next, from 1.
    line: u64,
}

impl Place {
    /// Which of the units comes next, if the place is one of them. A unit that was read to its end may be gone.
    fn next_unit(&self, units: &[Unit]) -> Option<usize> {
        let Some(file) = &self.file else { return Some(0) };
        let index = units.partition_point(|unit| (&unit.path, unit.group) < (file, self.group));
        let is_there = units.get(index).is_some_and(|unit| unit.path == *file && unit.group == self.group);
        match (is_there, self.done) {
            (true, true) => Some(index + 1),
            (true, false) | (false, true) => Some(index),
            (false, false) => None,
        }
    }
}

/// Reads one partition.
pub(crate) struct FileReader {
    reading: Reading,
    /// In the order of their names.
    units: Vec<Unit>,
    /// The unit that is being read, or comes next.
    index: usize,
    place: Place,
    current: Option<Current>,
    /// The folders of the unit that is being read.
    in_folders: Option<FolderValues>,
    malformed: Malformed,
}

/// The unit that is being read.
enum Current {
    Text(Records<FileBytes>),
    Parquet {
        rows: ParquetRows,
        /// What is left of a batch that was larger than asked for.
        left: Option<RecordBatch>,
    },
}

/// How many rows of a Parquet file are decoded at a time.
const PARQUET_ROWS: usize = 8_192;

impl FileReader {
    /// Opens the partition of these units at the start, or at an offset.
    pub(crate) fn open(reading: Reading, units: Vec<Unit>, from: Option<&Offset>) -> Result<Self> {
        let of = (!reading.follow).then_some(units.len());
        let start = Place { of, file: None, group: 0, done: true, at: 0, line: 1 };
        let (place, index) = match from {
            None => (start, 0),
            Some(offset) => {
                let wrong = |cause: &dyn Display| wrong_offset(&reading.path, offset, cause);
                let place: Place = serde_json::from_str(&offset.0).map_err(|e| wrong(&e))?;
                if place.of != of {
                    return Err(wrong(&"there are more or fewer files or row groups than before"));
                }
                let index = place.next_unit(&units).ok_or_else(|| wrong(&"the file is not there"))?;
                (place, index)
            }
        };
        let malformed = Malformed::new(reading.on_error.clone(), "")?;
        let mut reader = Self { reading, units, index, place, current: None, in_folders: None, malformed };
        if !reader.place.done {
            reader.open_unit()?;
        }
        Ok(reader)
    }

    /// Opens the next unit, at the present place in it.
    fn open_unit(&mut self) -> Result<()> {
        let unit = &self.units[self.index];
        if self.place.done {
            (self.place.at, self.place.line) = (0, 1);
        }
        self.malformed.place = unit.path.display().to_string();
        self.in_folders = self.reading.folders.as_ref().map(|folders| folders.values(&unit.path)).transpose()?;
        let text = &self.reading.text;
        self.current = Some(if text.format == Format::Parquet {
            let rows = ParquetRows::open(&unit.path, unit.group, self.place.at, &text.wanted, PARQUET_ROWS)?;
            Current::Parquet { rows, left: None }
        } else {
            let mut decoder = text.decoder();
            if self.place.at > 0 {
                // The header at the start of the file says where the columns are.
                let mut head = Vec::new();
                FileBytes::open(&unit.path, 0, false)?.fill(&mut head, 1 << 20, Duration::ZERO)?;
                let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head);
                let whole = head.len() < 1 << 20;
                decoder.decode(Input { bytes: head, line: 1, last: whole }, 0, &mut self.malformed)?;
            }
            let bytes = FileBytes::open(&unit.path, self.place.at, self.reading.follow)?;
            Current::Text(Records::new(bytes, decoder, self.place.at, self.place.line))
        });
        self.place.file = Some(unit.path.clone());
        self.place.group = unit.group;
        self.place.done = false;
        Ok(())
    }

    /// In follow mode: adds files that have appeared. Returns whether there is one after the one being read.
    fn find_new_files(&mut self) -> Result<bool> {
        let last_path = self.units.last().map(|unit| &unit.path).max(self.place.file.as_ref()).cloned();
        for path in listing::files(&self.reading.path)? {
            match &last_path {
                Some(last) if path <= *last => {
                    if !self.units.iter().any(|unit| unit.path == path) {
                        return Err(StreamError::Data {
                            place: path.display().to_string(),
                            message: format!(
                                "expected new files to come after {} in the order of names, got one before it; name \
                                 files in ascending order, or start the query anew",
                                last.display()
                            ),
                        });
                    }
                }
                _ if self.reading.text.format == Format::Parquet => {
                    let groups = row_groups(&path)?.len();
                    self.units.extend((0..groups).map(|group| Unit { path: path.clone(), group }));
                }
                _ => self.units.push(Unit { path, group: 0 }),
            }
        }
        Ok(self.units.len() > self.index + usize::from(self.current.is_some()))
    }

    /// Rows of the unit that is open.
    fn read_unit(&mut self, max_rows: usize, wait: Duration) -> Result<Next> {
        match &mut self.current {
            None => Ok(Next::End),
            Some(Current::Text(records)) => {
                let next = records.next(max_rows, wait, &mut self.malformed)?;
                (self.place.at, self.place.line) = records.position();
                Ok(next)
            }
            Some(Current::Parquet { rows, left }) => {
                let Some(batch) = left.take().map_or_else(|| rows.next(), |batch| Ok(Some(batch)))? else {
                    return Ok(Next::End);
                };
                let now = batch.num_rows().min(max_rows.max(1));
                *left = (now < batch.num_rows()).then(|| batch.slice(now, batch.num_rows() - now));
                self.place.at += now as u64;
                Ok(Next::Rows(batch.slice(0, now), now as u64))
            }
        }
    }
}

impl SourceReader for FileReader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        loop {
            if self.current.is_none() {
                if self.index == self.units.len() {
                    if !self.reading.follow {
                        return Ok(Read::End);
                    }
                    if !self.find_new_files()? {
                        std::thread::sleep(wait.min(Duration::from_millis(50)));
                        return Ok(Read::Pending);
                    }
                }
                self.open_unit()?;
            }
            match self.read_unit(max_events, wait)? {
                Next::Rows(rows, events) => {
                    let rows = match &self.in_folders {
                        Some(values) => values.complete(&rows)?,
                        None => rows,
                    };
                    return Ok(Read::Rows(SourceBatch { rows, left_out_time: None, events }));
                }
                Next::Nothing => {
                    // A file is complete as soon as there is a later one.
                    if !self.find_new_files()? {
                        return Ok(Read::Pending);
                    }
                    if let Some(Current::Text(records)) = &mut self.current {
                        records.source.follow = false;
                    }
                }
                Next::End => {
                    self.current = None;
                    self.index += 1;
                    self.place.done = true;
                }
            }
        }
    }

    fn offset(&self) -> Offset {
        Offset(serde_json::to_string(&self.place).unwrap_or_default())
    }

    fn skipped(&self) -> u64 {
        self.malformed.skipped
    }
}

fn wrong_offset(path: &str, offset: &Offset, cause: &dyn Display) -> StreamError {
    StreamError::invalid(format!(
        "offset {} is no place in {path} ({cause}); a query goes on only over the same files, in as many partitions as \
         before: put them back, or start it anew",
        offset.0
    ))
}
