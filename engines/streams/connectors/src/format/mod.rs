//! The three formats, each read and written in one place.
//!
//! CSV and NDJSON are decoded from bytes by a [`Decode`]: a function of the bytes alone, which [`records`] feeds from a
//! file or from standard input, and [`messages`] from a topic. Parquet is read from files only.

pub(crate) mod avro;
pub(crate) mod csv;
mod debezium;
pub(crate) mod infer;
pub(crate) mod keyed;
pub(crate) mod malformed;
pub(crate) mod messages;
pub(crate) mod ndjson;
pub(crate) mod parquet;
pub(crate) mod records;
pub(crate) mod values;

use std::io::Write;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::{ColumnDef, TableDef};

use crate::options::{Kind, OptionSpec, Options, Presence};
use csv::{CsvDecoder, CsvSettings};
use malformed::Malformed;
use ndjson::NdjsonDecoder;

/// A format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Ndjson,
    Parquet,
}

/// The options of the text formats.
pub(crate) const CSV_HEADER: OptionSpec = OptionSpec {
    name: "csv.header",
    kind: Kind::Choice(&["auto", "true", "false"]),
    presence: Presence::Default("auto"),
    help: "Whether the first record names the columns; 'auto' looks. Written files have one unless 'false'.",
};
/// See [`CSV_HEADER`].
pub(crate) const CSV_DELIMITER: OptionSpec = OptionSpec {
    name: "csv.delimiter",
    kind: Kind::Character,
    presence: Presence::Default(","),
    help: "What stands between fields.",
};
/// See [`CSV_HEADER`].
pub(crate) const CSV_QUOTE: OptionSpec = OptionSpec {
    name: "csv.quote",
    kind: Kind::Character,
    presence: Presence::Default("\""),
    help: "What stands around fields that hold delimiters or line ends; doubled within them.",
};
/// What to do with rows that cannot be read.
pub(crate) const ON_ERROR: OptionSpec = OptionSpec {
    name: "on-error",
    kind: Kind::OnError,
    presence: Presence::Default("fail"),
    help: "What happens to a malformed row: the query fails, or the row is skipped and counted, or also appended to a \
           file of JSON lines (again, if the query is replayed).",
};

impl Format {
    /// The format by its option.
    pub(crate) fn of(options: &Options<'_>) -> Result<Self> {
        options.get("format", |text| match text {
            "csv" => Some(Self::Csv),
            "ndjson" | "json" => Some(Self::Ndjson),
            "parquet" => Some(Self::Parquet),
            _ => None,
        })
    }

    /// The ending of files of this format.
    pub(crate) const fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
        }
    }

    /// Refuses columns that the format cannot hold.
    pub(crate) fn check(self, columns: &[ColumnDef]) -> Result<()> {
        let nested = |c: &&ColumnDef| c.computed.is_none() && c.data_type.is_nested();
        match columns.iter().find(nested) {
            Some(column) if self == Self::Csv => Err(StreamError::invalid(format!(
                "column {} is {}, which CSV cannot hold; choose another 'format', such as 'json'",
                column.name,
                type_name(&column.data_type)
            ))),
            _ => Ok(()),
        }
    }

    /// Writes rows as one whole file.
    pub(crate) fn write<W: Write + Send>(
        self,
        out: W,
        schema: &SchemaRef,
        rows: &[RecordBatch],
        csv: CsvSettings,
    ) -> Result<W, String> {
        match self {
            Self::Csv => csv::write(out, schema, rows, csv),
            Self::Ndjson => ndjson::write(out, rows),
            Self::Parquet => parquet::write(out, schema, rows),
        }
    }
}

/// A text format with its settings and columns.
#[derive(Clone, Debug)]
pub(crate) struct TextFormat {
    pub(crate) format: Format,
    pub(crate) csv: CsvSettings,
    /// All columns of the records.
    pub(crate) physical: SchemaRef,
    /// The columns and fields to read.
    pub(crate) wanted: SchemaRef,
}

impl TextFormat {
    /// A decoder for one stream of bytes, from its start.
    pub(crate) fn decoder(&self) -> Box<dyn Decode> {
        match self.format {
            Format::Ndjson => Box::new(NdjsonDecoder::new(&self.wanted, &self.physical)),
            Format::Csv | Format::Parquet => Box::new(CsvDecoder::new(self.csv, &self.wanted, &self.physical)),
        }
    }
}

/// Bytes to decode, from the start of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    /// The line that the first byte lies on, from 1.
    pub(crate) line: u64,
    /// Whether nothing follows, so that a record without a line end at the end of `bytes` is complete.
    pub(crate) last: bool,
}

/// What came out of some bytes.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) rows: RecordBatch,
    /// How many bytes were used up: whole records, and blank lines. None if there is no whole record.
    pub(crate) consumed: usize,
    /// How many of them lie before the end of the last record; blank lines may follow.
    pub(crate) upto: usize,
    /// How many records these were, malformed ones included.
    pub(crate) records: u64,
}

/// Makes rows of bytes.
pub(crate) trait Decode: Send {
    /// Decodes at most `max_rows` records. Malformed ones are given to `malformed`, which says whether to go on. With
    /// `max_rows == 0` only a header is looked for.
    fn decode(&mut self, input: Input<'_>, max_rows: usize, malformed: &mut Malformed) -> Result<Decoded>;
}

/// A batch of these columns that has rows even if it has no columns.
fn batch(schema: &SchemaRef, columns: Vec<arrow::array::ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(std::sync::Arc::clone(schema), columns, &options)
        .map_err(|e| StreamError::Internal(format!("a decoder made a wrong batch: {e}")))
}

/// Whether a table declares no columns that are read from its source.
pub(crate) fn declares_none(table: &TableDef) -> bool {
    table.columns.iter().all(|c| c.computed.is_some())
}
