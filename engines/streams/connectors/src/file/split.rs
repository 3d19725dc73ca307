//! One split of a table of files: a text file, or a row group of a Parquet file, and how far it was read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::RecordBatch;
use savanna_streams_api::Result;
use savanna_streams_model::time::EventTime;

use super::bytes::{FileBytes, Remembered, Seen, replaced};
use super::folders::{FolderValues, Folders};
use crate::format::malformed::{Malformed, OnError};
use crate::format::parquet::ParquetRows;
use crate::format::records::{ByteSource, Next, Records};
use crate::format::{Format, Input, TextFormat};
use crate::roots::Roots;

/// What is read as a whole: a text file, or a row group of a Parquet file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    pub(crate) group: usize,
}

/// Which files are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// None: the files that are there are read to their ends.
    No,
    /// New files, each of which is whole when it appears.
    NewFiles,
    /// New files, and more in those that are there.
    Growth,
}

/// How files are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) text: TextFormat,
    /// The columns in folders' names, where there are such.
    pub(crate) folders: Option<Folders>,
    pub(crate) path: String,
    /// Where files may lie.
    pub(crate) roots: Roots,
    pub(crate) follow: Follow,
    pub(crate) on_error: OnError,
}

impl Reading {
    /// Whether the files grow while they are read.
    pub(crate) fn grows(&self) -> bool {
        self.follow == Follow::Growth && self.text.format != Format::Parquet
    }
}

/// Whether there is something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There may be.
    Readable,
    /// Not now.
    Waits,
    /// Never again.
    Ended,
}

/// One split.
pub(crate) struct Split {
    pub(crate) unit: Unit,
    pub(crate) state: State,
    /// Bytes of a text file, or rows of a row group, that were read.
    pub(crate) at: u64,
    /// The line of a text file that comes next, from 1.
    pub(crate) line: u64,
    /// Byte and line behind the last row of a text file; blank lines may lie between this and `at`.
    pub(crate) behind: (u64, u64),
    /// How the file has to begin that was read up to a recorded place, until it is open.
    pub(crate) head: Option<String>,
    /// Its watermark, and when it was read last, in reads.
    pub(crate) watermark: EventTime,
    pub(crate) last_read: u64,
    open: Option<Open>,
    /// The file when it was looked at last, if new files are waited for.
    pub(crate) seen: Option<Seen>,
    /// What is remembered of a file that grows while it is not open.
    remembered: Option<Remembered>,
}

/// What is being read.
struct Open {
    content: Content,
    in_folders: Option<FolderValues>,
}

enum Content {
    Text(Records<FileBytes>),
    Parquet {
        rows: ParquetRows,
        /// What is left of a batch that was larger than asked for.
        left: Option<RecordBatch>,
    },
}

/// How many rows of a Parquet file are decoded at a time.
const PARQUET_ROWS: usize = 8_192;

/// How much of a file is read for its header.
const HEAD_BYTES: usize = 1 << 20;

impl Split {
    /// A unit from its start.
    pub(crate) fn new(unit: Unit) -> Self {
        Self {
            unit,
            state: State::Readable,
            at: 0,
            line: 1,
            behind: (0, 1),
            head: None,
            watermark: EventTime::MIN,
            last_read: 0,
            open: None,
            seen: None,
            remembered: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.unit.path
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether nothing was read of it yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.at == 0
    }

    /// The file that is open.
    pub(crate) fn open_file(&self) -> Result<Option<Seen>> {
        match &self.open {
            Some(Open { content: Content::Text(records), .. }) => records.source.seen().map(Some),
            _ => Ok(None),
        }
    }

    /// Opens the unit where it was left.
    pub(crate) fn open(&mut self, reading: &Reading, malformed: &mut Malformed) -> Result<()> {
        let path = &self.unit.path;
        let in_folders = reading.folders.as_ref().map(|folders| folders.values(path)).transpose()?;
        let text = &reading.text;
        let content = if text.format == Format::Parquet {
            let rows = ParquetRows::open(path, self.unit.group, self.at, &text.wanted, PARQUET_ROWS)?;
            Content::Parquet { rows, left: None }
        } else {
            let mut decoder = text.decoder();
            if self.at > 0 {
                // The header at the start of the file says where the columns are.
                let mut head = Vec::new();
                FileBytes::open(path, 0)?.fill(&mut head, HEAD_BYTES, Duration::ZERO)?;
                let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head);
                let whole = head.len() < HEAD_BYTES;
                decoder.decode(Input { bytes: head, line: 1, last: whole }, 0, malformed)?;
            }
            let mut bytes = FileBytes::open(path, self.at)?;
            if reading.grows() {
                bytes = bytes.followed(self.remembered.take())?;
                if self.head.take().is_some_and(|head| bytes.head(self.at) != Some(head)) {
                    return Err(replaced(path));
                }
            }
            Content::Text(Records::new(bytes, decoder, self.at, self.line))
        };
        self.open = Some(Open { content, in_folders });
        Ok(())
    }

    /// Puts it where a record says.
    pub(crate) fn go_to(&mut self, (at, line): (u64, u64), head: Option<String>, state: State) {
        (self.at, self.line, self.behind) = (at, line, (at, line));
        (self.head, self.state) = (head, state);
    }

    /// How the file begins that was read, if it grows.
    pub(crate) fn begins(&self) -> Option<String> {
        let upto = self.behind.0;
        match (&self.open, &self.remembered) {
            (Some(Open { content: Content::Text(records), .. }), _) => records.source.head(upto),
            (None, Some(remembered)) => Some(remembered.head(upto)),
            _ => self.head.clone(),
        }
    }

    /// A file that is open does not grow any more.
    pub(crate) fn stop_following(&mut self) -> bool {
        match &mut self.open {
            Some(Open { content: Content::Text(records), .. }) => {
                records.source.stop_following();
                true
            }
            _ => false,
        }
    }

    /// Lets go of the file, to be opened again.
    pub(crate) fn close(&mut self) {
        if let Some(Open { content: Content::Text(records), .. }) = self.open.take() {
            self.remembered = records.source.remembered();
        }
    }

    /// The next rows of a unit that is open.
    pub(crate) fn read(&mut self, max_rows: usize, malformed: &mut Malformed) -> Result<Next> {
        let Some(Open { content, in_folders }) = &mut self.open else { return Ok(Next::End) };
        let next = match content {
            Content::Text(records) => {
                let next = records.next(max_rows, Duration::ZERO, malformed)?;
                (self.at, self.line) = records.position();
                if matches!(next, Next::Rows(..)) {
                    self.behind = records.behind();
                }
                next
            }
            Content::Parquet { rows, left } => match left.take().map_or_else(|| rows.next(), |rows| Ok(Some(rows)))? {
                None => Next::End,
                Some(batch) => {
                    let now = batch.num_rows().min(max_rows.max(1));
                    *left = (now < batch.num_rows()).then(|| batch.slice(now, batch.num_rows() - now));
                    self.at += now as u64;
                    Next::Rows(batch.slice(0, now), now as u64)
                }
            },
        };
        match (next, in_folders) {
            (Next::Rows(rows, events), Some(values)) => Ok(Next::Rows(values.complete(&rows)?, events)),
            (next, _) => Ok(next),
        }
    }
}
