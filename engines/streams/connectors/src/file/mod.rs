//! The `file` source and sink: CSV, NDJSON and Parquet.

mod bytes;
mod claim;
mod folders;
mod gathered;
mod listing;
mod objects;
mod partitions;
mod reader;
mod rolling;
mod sink;
mod split;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{EqualTo, Offset, Repeats, ScanSpec, Source, SourceReader};
use savanna_streams_model::time::parse_duration;

use crate::bucket::Bucket;
use crate::connector::{Connector, Promise};
use crate::format::csv::CsvSettings;
use crate::format::malformed::OnError;
use crate::format::{
    CSV_DELIMITER, CSV_HEADER, CSV_QUOTE, Format, ON_ERROR, TextFormat, csv, declares_none, infer, ndjson, parquet,
};
use crate::options::{Kind, OptionSpec, Options, Presence, size};
use crate::roots::{Roots, as_path, is_url};
use folders::Folders;
use objects::ObjectSink;
use partitions::Partitions;
use reader::{FileReader, Follow, Reading, Unit};
use rolling::{Rolling, RollingSink};
use sink::FileSink;

/// The connector's name.
pub(crate) const NAME: &str = "file";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "path",
        kind: Kind::Text,
        presence: Presence::Required,
        help: "The file, directory or glob pattern to read; the directory to write into, or s3://BUCKET/FOLDER. Paths may be URLs: file:///FOLDER.",
    },
    OptionSpec {
        name: "format",
        kind: Kind::Choice(&["csv", "ndjson", "json", "parquet"]),
        presence: Presence::Required,
        help: "The format; 'json' is 'ndjson'.",
    },
    OptionSpec {
        name: "follow",
        kind: Kind::Choice(&["true", "false", "new-files"]),
        presence: Presence::Default("false"),
        help: "Whether to wait for rows that are appended to files, and for new files; 'new-files' for files that are whole \
               when they appear.",
    },
    OptionSpec {
        name: ROLL_SIZE,
        kind: Kind::Size,
        presence: Presence::Optional,
        help: "Written files take rows until they have this size (Parquet: before it is compressed); without it and the \
               next, those of one epoch.",
    },
    OptionSpec {
        name: ROLL_INTERVAL,
        kind: Kind::Duration,
        presence: Presence::Optional,
        help: "How long a file takes rows before the next one begins.",
    },
    OptionSpec {
        name: RETRY_TIMEOUT,
        kind: Kind::Duration,
        presence: Presence::Default("5min"),
        help: "How long an object store may be away when an epoch is written.",
    },
    CSV_HEADER,
    CSV_DELIMITER,
    CSV_QUOTE,
    ON_ERROR,
];

const ROLL_SIZE: &str = "sink.rolling-policy.file-size";
const ROLL_INTERVAL: &str = "sink.rolling-policy.rollover-interval";
const RETRY_TIMEOUT: &str = "retry.timeout";

/// How much of a file is looked at to find its columns.
const SAMPLE_BYTES: u64 = 1 << 20;

/// The connector.
#[derive(Debug)]
pub(crate) struct FileConnector {
    /// Where tables may lie.
    pub(crate) roots: Roots,
}

/// What the options say.
#[derive(Clone, Debug)]
struct Settings {
    path: String,
    format: Format,
    follow: Follow,
    csv: CsvSettings,
    on_error: OnError,
    rolling: Rolling,
    retry: Duration,
    roots: Roots,
}

impl Settings {
    fn new(table: &TableDef, roots: &Roots) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let settings = Self {
            path: options.get("path", |path| Some(as_path(path).to_owned()))?,
            format: Format::of(&options)?,
            follow: options.get("follow", |text| match text {
                "false" => Some(Follow::No),
                "new-files" => Some(Follow::NewFiles),
                _ => Some(Follow::Growth),
            })?,
            csv: CsvSettings::of(&options)?,
            on_error: options.get("on-error", OnError::parse)?,
            rolling: Rolling {
                bytes: options.find(ROLL_SIZE, size)?,
                age: options.find(ROLL_INTERVAL, parse_duration)?,
            },
            retry: options.get(RETRY_TIMEOUT, parse_duration)?,
            roots: roots.clone(),
        };
        if settings.is_in_bucket() {
            roots.check(Path::new(&settings.path))?;
            return Ok(settings);
        }
        roots.check_pattern(&settings.path)?;
        settings.on_error.check(roots)?;
        let grows = settings.follow != Follow::No && settings.format == Format::Parquet;
        if grows && Path::new(&settings.path).is_file() {
            return Err(
                options.error("follow", "'false' for one Parquet file, which cannot grow, or a directory of them")
            );
        }
        Ok(settings)
    }

    /// Whether the path is one of an object store.
    fn is_in_bucket(&self) -> bool {
        is_url(&self.path)
    }

    /// # Errors
    /// The path is one of an object store, of which nothing is read.
    fn check_readable(&self) -> Result<()> {
        if !self.is_in_bucket() {
            return Ok(());
        }
        Err(StreamError::invalid(format!(
            "'path' = '{}': files in a bucket are written and not read; declare the table's columns, and INSERT INTO it",
            self.path
        )))
    }

    /// The columns of the first file.
    fn infer(&self) -> Result<Vec<savanna_streams_model::catalog::ColumnDef>> {
        let files = listing::files(&self.path, &self.roots)?;
        let Some(file) = files.first() else {
            let hint = StreamError::io(
                format!("find the columns of {}", self.path),
                &"there is no file to look at; declare the table's columns",
            );
            return Err(hint);
        };
        if self.format == Format::Parquet {
            return parquet::columns(file);
        }
        let failed = |e: std::io::Error| StreamError::io(format!("read {}", file.display()), &e);
        let mut sample = Vec::new();
        let open = File::open(file).map_err(failed)?;
        let length = open.metadata().map_err(failed)?.len();
        open.take(SAMPLE_BYTES).read_to_end(&mut sample).map_err(failed)?;
        let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&sample);
        let complete = length <= SAMPLE_BYTES;
        let columns = infer::columns(match self.format {
            Format::Ndjson => ndjson::infer(sample, complete),
            Format::Csv | Format::Parquet => csv::infer(sample, complete, self.csv),
        });
        if columns.is_empty() {
            return Err(StreamError::Data {
                place: file.display().to_string(),
                message: "expected rows to find the columns by, got none; declare the table's columns".into(),
            });
        }
        Ok(columns)
    }
}

impl Connector for FileConnector {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(true), delivery: Some(Delivery::ExactlyOnce) }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        let settings = Settings::new(table, &self.roots)?;
        if declares_none(table) {
            settings.check_readable()?;
            table.columns.splice(0..0, settings.infer()?);
        }
        if !table.partitioned_by.is_empty() {
            Partitions::new(&table.partitioned_by, &table.physical_schema())?;
        }
        settings.format.check(&table.columns)
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let settings = Settings::new(table, &self.roots)?;
        settings.check_readable()?;
        settings.format.check(&table.columns)?;
        let files = match table.partitioned_by.as_slice() {
            [] => listing::files(&settings.path, &self.roots)?,
            _ if settings.follow != Follow::No => {
                return Err(StreamError::invalid(format!(
                    "table {} is PARTITIONED BY and 'follow': new files have no order; leave one of them out",
                    table.name
                )));
            }
            by if Path::new(&settings.path).is_dir() => {
                listing::files_in_folders(Path::new(&settings.path), by.len(), &self.roots)?
            }
            _ => Vec::new(),
        };
        if files.is_empty() && settings.follow == Follow::No {
            return Err(listing::nothing_there(&settings.path));
        }
        let units = files.into_iter().map(|file| units_of(&settings, file)).collect::<Result<Vec<_>>>()?;
        let folders = table.partitioned_by.clone();
        Ok(Arc::new(FileSource { settings, folders, units: units.into_iter().flatten().collect() }))
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        let settings = Settings::new(table, &self.roots)?;
        settings.format.check(&table.columns)?;
        let Settings { path, format, csv, rolling, retry, .. } = settings;
        if is_url(&path) {
            let partitions = Partitions::new(&table.partitioned_by, &schema)?;
            return Ok(Box::new(ObjectSink::new(Bucket::of_url(&path, retry)?, format, csv, partitions, rolling)));
        }
        let directory = sink::directory(&path)?;
        if table.partitioned_by.is_empty() && !rolling.spans_epochs() {
            return Ok(Box::new(FileSink::new(directory, format, csv, schema)));
        }
        let partitions = Partitions::new(&table.partitioned_by, &schema)?;
        Ok(Box::new(RollingSink::new(directory, format, csv, partitions, rolling, self.roots.clone())))
    }
}

/// A text file is read as a whole; a Parquet file by row groups.
fn units_of(settings: &Settings, path: PathBuf) -> Result<Vec<Unit>> {
    if settings.format != Format::Parquet {
        return Ok(vec![Unit { path, group: 0 }]);
    }
    let groups = parquet::row_groups(&path)?.len();
    Ok((0..groups).map(|group| Unit { path: path.clone(), group }).collect())
}

#[derive(Debug)]
struct FileSource {
    settings: Settings,
    /// The columns that name folders.
    folders: Vec<String>,
    units: Vec<Unit>,
}

impl FileSource {
    /// What a scan reads: its conditions are all on folders.
    fn units_of(&self, scan: &ScanSpec) -> Result<Vec<Unit>> {
        if scan.equal_to.is_empty() {
            return Ok(self.units.clone());
        }
        let folders = Folders::new(&self.settings.path, &self.folders, scan.table.physical_schema());
        let mut units = Vec::new();
        for unit in &self.units {
            if folders.values(&unit.path)?.meet(&scan.equal_to) {
                units.push(unit.clone());
            }
        }
        Ok(units)
    }
}

impl Source for FileSource {
    fn bounded(&self) -> bool {
        self.settings.follow == Follow::No
    }

    fn replayable(&self) -> bool {
        true
    }

    fn repeats(&self) -> Repeats {
        let settings = &self.settings;
        match settings.follow {
            _ if matches!(settings.on_error, OnError::DeadLetter(_)) => {
                Repeats::Not("rows that cannot be read would be written to the dead-letter file again")
            }
            Follow::No => Repeats::ByReads,
            // What is skipped leaves no trace in the number of events.
            Follow::Growth if Path::new(&settings.path).is_file() && matches!(settings.on_error, OnError::Fail) => {
                Repeats::ByEvents
            }
            _ => Repeats::Not(
                "when a new file is found depends on the clock; follow a single file, with 'on-error' = 'fail'",
            ),
        }
    }

    fn partitions(&self, wanted: usize) -> Result<usize> {
        // Files that appear come to one reader.
        Ok(if self.settings.follow != Follow::No { 1 } else { wanted.min(self.units.len()).max(1) })
    }

    /// Folders with other values are not read.
    fn pushes_down(&self, condition: &EqualTo) -> bool {
        matches!(condition.path.0.as_slice(), [column] if self.folders.contains(column))
    }

    fn open(
        &self,
        scan: &ScanSpec,
        partition: usize,
        partitions: usize,
        from: Option<&Offset>,
    ) -> Result<Box<dyn SourceReader>> {
        let folders = Folders::new(&self.settings.path, &scan.table.partitioned_by, scan.schema());
        let text = TextFormat {
            format: self.settings.format,
            csv: self.settings.csv,
            physical: folders.in_files(&scan.table.physical_schema()),
            wanted: folders.in_files(&scan.schema()),
        };
        let reading = Reading {
            text,
            folders: (!scan.table.partitioned_by.is_empty()).then_some(folders),
            path: self.settings.path.clone(),
            roots: self.settings.roots.clone(),
            follow: self.settings.follow,
            on_error: self.settings.on_error.clone(),
        };
        let units = self.units_of(scan)?;
        let dealt = units.into_iter().skip(partition).step_by(partitions.max(1)).collect();
        Ok(Box::new(FileReader::open(reading, dealt, from)?))
    }
}
