//! The `stdin` source: CSV or NDJSON on standard input, once.
//!
//! A thread of its own reads, because nothing can interrupt a blocked read of a terminal or pipe: the query goes on or
//! ends without it, and the thread ends with the input or the process.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::source::{Offset, Read, ScanSpec, Source, SourceBatch, SourceReader};

use crate::connector::{Connector, Promise};
use crate::format::csv::CsvSettings;
use crate::format::malformed::{Malformed, OnError};
use crate::format::records::{ByteSource, Fill, Next, Records};
use crate::format::{CSV_DELIMITER, CSV_HEADER, CSV_QUOTE, Format, ON_ERROR, TextFormat, declares_none};
use crate::options::{Kind, OptionSpec, Options, Presence};
use crate::roots::Roots;

const NAME: &str = "stdin";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "format",
        kind: Kind::Choice(&["csv", "ndjson", "json"]),
        presence: Presence::Required,
        help: "The format; 'json' is 'ndjson'.",
    },
    CSV_HEADER,
    CSV_DELIMITER,
    CSV_QUOTE,
    ON_ERROR,
];

/// What standard input is; taken by the first query that reads it.
pub(crate) type Input = Arc<Mutex<Option<Box<dyn std::io::Read + Send>>>>;

/// The connector.
pub(crate) struct Stdin {
    pub(crate) input: Input,
    /// Where rows that cannot be read may be written.
    pub(crate) roots: Roots,
}

impl std::fmt::Debug for Stdin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stdin")
    }
}

impl Connector for Stdin {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(false), delivery: None }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        CsvSettings::of(&options)?;
        self.on_error(&options)?;
        if declares_none(table) {
            return Err(StreamError::invalid(format!(
                "table {} needs columns: their types cannot be inferred from standard input, which is read only once",
                table.name
            )));
        }
        Format::of(&options)?.check(&table.columns)
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        Ok(Arc::new(StdinSource {
            input: Arc::clone(&self.input),
            format: Format::of(&options)?,
            csv: CsvSettings::of(&options)?,
            on_error: self.on_error(&options)?,
        }))
    }
}

impl Stdin {
    fn on_error(&self, options: &Options<'_>) -> Result<OnError> {
        let on_error = options.get("on-error", OnError::parse)?;
        on_error.check(&self.roots)?;
        Ok(on_error)
    }
}

struct StdinSource {
    input: Input,
    format: Format,
    csv: CsvSettings,
    on_error: OnError,
}

impl std::fmt::Debug for StdinSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StdinSource")
    }
}

impl Source for StdinSource {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        false
    }

    fn partitions(&self, _: usize) -> Result<usize> {
        Ok(1)
    }

    fn open(&self, scan: &ScanSpec, _: usize, _: usize, from: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        let input = self.input.lock().take().filter(|_| from.is_none()).ok_or_else(|| {
            StreamError::invalid(
                "standard input was read already and cannot be read again; put the rows in a file and use 'connector' = \
                 'file'",
            )
        })?;
        let text = TextFormat {
            format: self.format,
            csv: self.csv,
            physical: scan.table.physical_schema(),
            wanted: scan.schema(),
        };
        let malformed = Malformed::new(self.on_error.clone(), "stdin")?;
        let records = Records::new(ChannelBytes::start(input)?, text.decoder(), 0, 1);
        Ok(Box::new(StdinReader { records, malformed }))
    }
}

/// Bytes that another thread reads.
struct ChannelBytes {
    chunks: Receiver<std::io::Result<Vec<u8>>>,
}

impl ChannelBytes {
    const CHUNK: usize = 64 << 10;
    /// How many chunks may wait.
    const CHUNKS: usize = 16;

    fn start(mut input: Box<dyn std::io::Read + Send>) -> Result<Self> {
        let (sender, chunks) = sync_channel(Self::CHUNKS);
        let read = move || {
            loop {
                let mut chunk = vec![0; Self::CHUNK];
                let chunk = match input.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(length) => {
                        chunk.truncate(length);
                        Ok(chunk)
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => Err(e),
                };
                let failed = chunk.is_err();
                if sender.send(chunk).is_err() || failed {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("savanna-stdin".into())
            .spawn(read)
            .map_err(|e| StreamError::io("start a thread to read standard input", &e))?;
        Ok(Self { chunks })
    }
}

impl ByteSource for ChannelBytes {
    fn fill(&mut self, buffer: &mut Vec<u8>, wanted: usize, wait: Duration) -> Result<Fill> {
        match self.chunks.recv_timeout(wait) {
            Ok(chunk) => {
                let mut chunk = chunk.map_err(|e| StreamError::io("read standard input", &e));
                while let Ok(bytes) = &chunk {
                    buffer.extend_from_slice(bytes);
                    if buffer.len() >= wanted {
                        break;
                    }
                    // What is there already is taken along; an error among it comes at once.
                    match self.chunks.try_recv() {
                        Ok(next) => chunk = next.map_err(|e| StreamError::io("read standard input", &e)),
                        Err(_) => break,
                    }
                }
                chunk.map(|_| Fill::More)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Fill::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Fill::End),
        }
    }
}

struct StdinReader {
    records: Records<ChannelBytes>,
    malformed: Malformed,
}

impl SourceReader for StdinReader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        Ok(match self.records.next(max_events, wait, &mut self.malformed)? {
            Next::Rows(rows, events) => Read::Rows(SourceBatch { split: 0, rows, left_out_time: None, events }),
            Next::Nothing => Read::Pending,
            Next::End => Read::End,
        })
    }

    fn offset(&self) -> Offset {
        Offset(self.records.position().0.to_string())
    }

    fn skipped(&self) -> u64 {
        self.malformed.skipped
    }
}
