//! What is gathered in a bucket for parts that have the rows of several epochs.
//!
//! ```text
//!   _open/<query>/<epoch>/[<folder>/]rows      the rows of an epoch
//!   _open/<query>/<epoch>/[<folder>/]joined    those of several epochs, up to this one, when there were many
//! ```
//!
//! A version names what is gathered and what of it has become whole; the parts are made of that behind the version, so that whatever is seen
//! counts.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use savanna_streams_api::ids::{Epoch, QueryId};
use serde::{Deserialize, Serialize};

use crate::file::gathered;
use crate::format::Format;
use crate::format::csv::CsvSettings;

/// So many pieces of one epoch each become one.
const JOINED_AT: usize = 64;

/// What is gathered for one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gathered {
    pub(super) folder: String,
    /// The epochs up to which pieces were joined.
    joined: Vec<Epoch>,
    /// The epochs behind them, with a piece each.
    recent: Vec<Epoch>,
    /// What they have together.
    pub(super) bytes: u64,
}

impl Gathered {
    pub(super) fn of(folder: &str) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    pub(super) fn add(&mut self, epoch: Epoch, bytes: u64) {
        self.recent.push(epoch);
        self.bytes += bytes;
    }

    /// Whether pieces are to be joined.
    pub(super) fn is_in_many(&self) -> bool {
        self.recent.len() >= JOINED_AT
    }

    /// The pieces of one epoch each, in order.
    pub(super) fn recent(&self, query: &QueryId) -> Vec<String> {
        self.recent.iter().map(|epoch| rows(query, *epoch, &self.folder)).collect()
    }

    /// They are one now.
    pub(super) fn join(&mut self, epoch: Epoch) {
        self.joined.push(epoch);
        self.recent.clear();
    }

    /// All pieces, in the order of their rows.
    pub(super) fn pieces(&self, query: &QueryId) -> Vec<String> {
        let joined = self.joined.iter().map(|epoch| joined(query, *epoch, &self.folder));
        joined.chain(self.recent(query)).collect()
    }
}

/// The folder of all pieces of a query.
pub(super) fn folder_of(query: &QueryId) -> String {
    format!("_open/{query}")
}

/// The name of the piece of an epoch.
pub(super) fn rows(query: &QueryId, epoch: Epoch, folder: &str) -> String {
    name(query, epoch, folder, "rows")
}

/// The name of the piece of several epochs.
pub(super) fn joined(query: &QueryId, epoch: Epoch, folder: &str) -> String {
    name(query, epoch, folder, "joined")
}

fn name(query: &QueryId, epoch: Epoch, folder: &str, what: &str) -> String {
    let behind = if folder.is_empty() { what.to_owned() } else { format!("{folder}/{what}") };
    format!("{}/{:020}/{behind}", folder_of(query), epoch.0)
}

/// How pieces and parts are written.
pub(super) struct Form<'f> {
    pub(super) format: Format,
    pub(super) csv: CsvSettings,
    pub(super) schema: &'f SchemaRef,
}

impl Form<'_> {
    /// The rows of an epoch: as they stand in the part, and of Parquet, which cannot be put together, as Arrow writes them.
    pub(super) fn piece(&self, rows: &RecordBatch) -> Result<Bytes, String> {
        let csv = CsvSettings { header: Some(false), ..self.csv };
        let piece = match self.format {
            Format::Parquet => gathered::append(Vec::new(), self.schema, rows)?,
            Format::Csv | Format::Ndjson => {
                self.format.write(Vec::new(), self.schema, std::slice::from_ref(rows), csv)?
            }
        };
        Ok(piece.into())
    }

    /// A whole part of its pieces.
    pub(super) fn part(&self, pieces: &[Bytes]) -> Result<Bytes, String> {
        let part = match self.format {
            Format::Parquet => {
                let mut rows = Vec::new();
                for piece in pieces {
                    rows.append(&mut gathered::read(piece)?);
                }
                self.format.write(Vec::new(), self.schema, &rows, self.csv)?
            }
            Format::Csv | Format::Ndjson => {
                let mut part = self.format.write(Vec::new(), self.schema, &[], self.csv)?;
                pieces.iter().for_each(|piece| part.extend_from_slice(piece));
                part
            }
        };
        Ok(part.into())
    }
}
