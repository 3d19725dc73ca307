//! The log of a table: what is read of it, and what is written.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow::json::LineDelimitedWriter;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use savanna_streams_api::{Result, StreamError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::columns::{self, Columns};
use super::place::{LOG, Place, in_log};

/// A log with more entries behind its last checkpoint takes long to read.
const ENTRIES_MANY: usize = 10_000;
/// So many entries are read at once.
const READ_AT_ONCE: usize = 64;
/// The newest versions of the protocol whose tables are written.
const READER_VERSION: i64 = 1;
const WRITER_VERSION: i64 = 2;

/// A line of an entry, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Action {
    protocol: Option<Protocol>,
    meta_data: Option<MetaData>,
    txn: Option<Txn>,
    commit_info: Option<CommitInfo>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Protocol {
    min_reader_version: i64,
    min_writer_version: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaData {
    id: String,
    schema_string: String,
    #[serde(default)]
    partition_columns: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Txn {
    app_id: String,
    version: i64,
}

#[derive(Debug, Deserialize)]
struct CommitInfo {
    #[serde(default)]
    savanna: Option<Writer>,
}

/// Who has written an entry.
#[derive(Debug, Deserialize)]
struct Writer {
    query: String,
    owner: String,
}

/// What is known of a table, and of what one query has written to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The last version; none if there is no table.
    pub(super) version: Option<u64>,
    /// The one of the checkpoint that was read, if there was one.
    pub(super) checkpoint: Option<u64>,
    /// By what its last entry is known; none if a checkpoint tells of it.
    last: Option<u64>,
    /// The last epoch of the query.
    pub(super) held: u64,
    /// Who has written the query last.
    pub(super) owner: Option<String>,
    protocol: Option<Protocol>,
    meta_data: Option<MetaData>,
}

/// The name of an entry.
pub(super) fn entry(version: u64) -> String {
    format!("{version:020}.json")
}

/// A number for the bytes of an entry, within this process.
fn mark_of(lines: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    hasher.finish()
}

/// The version of a file of the log with such an end.
fn version_of(name: &str, end: &str) -> Option<u64> {
    let digits = name.strip_prefix(LOG)?.strip_prefix('/')?.strip_suffix(end)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl Table {
    /// Reads a table's log, from its last checkpoint on.
    ///
    /// # Errors
    /// It cannot be read, or something is missing.
    pub(super) fn read(place: &Place, query: &str) -> Result<Self> {
        let names = place.log_behind("")?;
        let checkpoint = names.iter().filter_map(|name| version_of(name, ".checkpoint.parquet")).max();
        let mut table = Self::default();
        if let Some(version) = checkpoint {
            let name = in_log(&format!("{version:020}.checkpoint.parquet"));
            let lines = lines_of(place.read(&name)?).map_err(|cause| unreadable(place, &name, &cause))?;
            table.apply(version, &lines, query).map_err(|cause| unreadable(place, &name, &cause))?;
            table.last = None;
        }
        let behind = |version: &u64| checkpoint.is_none_or(|checkpoint| *version > checkpoint);
        let versions: Vec<u64> = names.iter().filter_map(|name| version_of(name, ".json")).filter(behind).collect();
        if versions.len() > ENTRIES_MANY {
            let (entries, table) = (versions.len(), place.describe(""));
            tracing::warn!(
                table,
                entries,
                "the log of a table of Delta is long behind its last checkpoint; have one made"
            );
        }
        table.checkpoint = checkpoint;
        table.read_versions(place, &versions, query)?;
        Ok(table)
    }

    /// By what the table is known, whatever becomes of its columns.
    pub(super) fn id(&self) -> Option<&str> {
        self.meta_data.as_ref().map(|meta_data| meta_data.id.as_str())
    }

    /// Whether its last entry is what it was, as far as it was read: a table that was made anew has others under the same numbers.
    ///
    /// # Errors
    /// The store or the disk does not tell.
    pub(super) fn goes_on(&self, place: &Place) -> Result<bool> {
        let (Some(version), Some(last)) = (self.version, self.last) else { return Ok(true) };
        let name = in_log(&entry(version));
        Ok(place.has(&name)? && mark_of(&place.read(&name)?) == last)
    }

    /// Its last entry is not there any more.
    pub(super) const fn forget_last(&mut self) {
        self.last = None;
    }

    /// Reads what has come since.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_on(&mut self, place: &Place, query: &str) -> Result<()> {
        let last = self.version.map_or_else(String::new, entry);
        let names = place.log_behind(&last)?;
        let versions: Vec<u64> = names.iter().filter_map(|name| version_of(name, ".json")).collect();
        self.read_versions(place, &versions, query)
    }

    fn read_versions(&mut self, place: &Place, versions: &[u64], query: &str) -> Result<()> {
        let next = self.version.map_or(0, |version| version + 1);
        for (expected, found) in (next..).zip(versions) {
            if *found != expected {
                return Err(unreadable(
                    place,
                    &in_log(&entry(expected)),
                    &format!("it is not there, but version {found} is, and no checkpoint of one file has both"),
                ));
            }
        }
        for versions in versions.chunks(READ_AT_ONCE) {
            let names: Vec<String> = versions.iter().map(|version| in_log(&entry(*version))).collect();
            for ((version, name), bytes) in versions.iter().zip(&names).zip(place.read_all(&names)?) {
                self.apply(*version, &bytes, query).map_err(|cause| unreadable(place, name, &cause))?;
            }
        }
        Ok(())
    }

    /// Takes an entry in: the next one, or a checkpoint.
    ///
    /// # Errors
    /// It is none, in words.
    pub(super) fn apply(&mut self, version: u64, lines: &[u8], query: &str) -> Result<(), String> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let action: Action =
                serde_json::from_slice(line).map_err(|e| format!("expected an action, got another text ({e})"))?;
            self.protocol = action.protocol.or_else(|| self.protocol.take());
            self.meta_data = action.meta_data.or_else(|| self.meta_data.take());
            if let Some(txn) = action.txn.filter(|txn| txn.app_id == query) {
                self.held =
                    u64::try_from(txn.version).map_err(|_| format!("expected an epoch, got {}", txn.version))?;
            }
            let writer = action.commit_info.and_then(|info| info.savanna);
            if let Some(writer) = writer.filter(|writer| writer.query == query) {
                self.owner = Some(writer.owner);
            }
        }
        (self.version, self.last) = (Some(version), Some(mark_of(lines)));
        Ok(())
    }

    /// Whether rows of these columns may be added.
    ///
    /// # Errors
    /// They may not, in words.
    pub(super) fn check(&self, columns: &Columns) -> Result<(), String> {
        let (Some(protocol), Some(meta_data)) = (&self.protocol, &self.meta_data) else {
            return Err("its log says nothing of its protocol or its columns".into());
        };
        let Protocol { min_reader_version: reader, min_writer_version: writer } = *protocol;
        if reader > READER_VERSION || writer > WRITER_VERSION {
            return Err(format!(
                "it is written by version {writer} of the protocol and read by version {reader}, and only tables up to {WRITER_VERSION} and \
                 {READER_VERSION} are written (without deletion vectors, column mapping and other features)"
            ));
        }
        if !meta_data.partition_columns.is_empty() {
            return Err(format!(
                "it is partitioned by {}, and only tables of one folder are written",
                meta_data.partition_columns.join(", ")
            ));
        }
        columns::fit(&columns.described, &meta_data.schema_string)
    }
}

fn unreadable(place: &Place, name: &str, cause: &str) -> StreamError {
    StreamError::Data {
        place: place.describe(name),
        message: format!("{cause}; restore the log, or write to another table"),
    }
}

/// What of a checkpoint matters, as the lines of entries.
fn lines_of(checkpoint: Bytes) -> Result<Vec<u8>, String> {
    let text = |e: parquet::errors::ParquetError| e.to_string();
    let builder = ParquetRecordBatchReaderBuilder::try_new(checkpoint).map_err(text)?;
    let wanted = ["protocol", "metaData", "txn"];
    let fields = builder.schema().fields().iter().enumerate();
    let roots: Vec<usize> =
        fields.filter(|(_, field)| wanted.contains(&field.name().as_str())).map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let mut writer = LineDelimitedWriter::new(Vec::new());
    for rows in builder.with_projection(mask).build().map_err(text)? {
        writer.write(&rows.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    writer.finish().map_err(|e| e.to_string())?;
    Ok(writer.into_inner())
}

/// A file that is added.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) bytes: usize,
    pub(super) rows: usize,
}

/// What one who writes has to say.
#[derive(Debug)]
pub(super) struct Entry<'e> {
    pub(super) query: &'e str,
    pub(super) owner: &'e str,
    /// Milliseconds since 1970.
    pub(super) now: i64,
    /// The epoch that counts then; none where nothing has come to count yet.
    pub(super) epoch: Option<u64>,
    pub(super) part: Option<&'e Part>,
    /// Of a table that is made: its identifier, and its columns.
    pub(super) makes: Option<(&'e str, &'e Columns)>,
}

impl Entry<'_> {
    pub(super) fn lines(&self) -> Bytes {
        let Self { query, owner, now, .. } = self;
        let epoch = self.epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
        let mut actions = vec![json!({ "commitInfo": {
            "timestamp": now,
            "operation": if self.makes.is_some() { "CREATE TABLE" } else { "STREAMING UPDATE" },
            "operationParameters": { "outputMode": "Append", "queryId": query, "epochId": epoch },
            "isBlindAppend": true,
            "engineInfo": concat!("Savanna/", env!("CARGO_PKG_VERSION")),
            "savanna": { "query": query, "owner": owner },
        } })];
        if let Some((id, columns)) = &self.makes {
            actions.push(
                json!({ "protocol": { "minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION } }),
            );
            actions.push(json!({ "metaData": {
                "id": id,
                "format": { "provider": "parquet", "options": {} },
                "schemaString": columns.described.to_string(),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": now,
            } }));
        }
        if let Some(epoch) = self.epoch {
            actions.push(json!({ "txn": { "appId": query, "version": epoch, "lastUpdated": now } }));
        }
        if let Some(Part { name, bytes, rows }) = self.part {
            actions.push(json!({ "add": {
                "path": name,
                "partitionValues": {},
                "size": bytes,
                "modificationTime": now,
                "dataChange": true,
                "stats": json!({ "numRecords": rows }).to_string(),
            } }));
        }
        let lines = actions.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
        Bytes::from(lines + "\n")
    }
}
