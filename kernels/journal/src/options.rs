//! Where a journal is kept and how it behaves.

use std::{path::PathBuf, sync::Arc, time::Duration};

use object_store::{ObjectStore, path::Path};

use crate::{
    core::Limits,
    local::{Disk, OsDisk},
    object::{PUT_TIME, PUTS_MAX},
    record::Record,
    segment::SEGMENT_HEADER,
};

/// Where the log is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Disk(Arc<dyn Disk>),
    Store { store: Arc<dyn ObjectStore>, prefix: Path },
}

/// Which records of a log to replay. Without a condition all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only records of this stream.
    pub stream: Option<u32>,
    /// Only records of these shards.
    pub shards: Option<Vec<u64>>,
}

impl Filter {
    /// Whether a record is wanted.
    #[must_use]
    pub fn wants(&self, record: &Record) -> bool {
        self.stream.is_none_or(|stream| stream == record.stream)
            && self.shards.as_ref().is_none_or(|shards| shards.contains(&record.shard))
    }
}

/// Where a journal is kept and how it behaves.
///
/// ```
/// # use savanna_journal::Options;
/// let options = Options::dir("/var/lib/savanna/journal").stream(7).segment_bytes(16 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) place: Place,
    pub(crate) stream: u32,
    pub(crate) segment_bytes: usize,
    pub(crate) batch_bytes: usize,
    pub(crate) backlog_bytes: usize,
    pub(crate) linger: Duration,
    pub(crate) patience: Duration,
    pub(crate) puts: usize,
    pub(crate) put_time: Duration,
    pub(crate) filter: Filter,
    pub(crate) high_water: Option<Arc<dyn Disk>>,
}

/// The least a segment may hold, so that a record of some size always fits.
const SEGMENT_BYTES_MIN: usize = 4 << 10;
/// Offsets and lengths inside a segment stay below 4 GiB.
const SEGMENT_BYTES_MAX: usize = 1 << 30;

impl Options {
    /// A journal in a directory of a local file system. The directory is created and belongs to the journal alone.
    pub fn dir(dir: impl Into<PathBuf>) -> Self {
        Self::disk(Arc::new(OsDisk::new(dir)))
    }

    /// A journal on a [`Disk`]: the simulated one, or another implementation.
    pub fn disk(disk: Arc<dyn Disk>) -> Self {
        Self::at(Place::Disk(disk), 8 << 20, Duration::ZERO)
    }

    /// A journal of objects under `prefix`. Batches wait up to 20 ms for company, since every one is a paid request.
    pub fn store(store: Arc<dyn ObjectStore>, prefix: impl Into<Path>) -> Self {
        let prefix = prefix.into();
        Self::at(Place::Store { store, prefix }, 16 << 20, Duration::from_millis(20))
    }

    fn at(place: Place, batch_bytes: usize, linger: Duration) -> Self {
        Self {
            place,
            stream: 0,
            segment_bytes: 64 << 20,
            batch_bytes,
            backlog_bytes: 64 << 20,
            linger,
            patience: Duration::ZERO,
            puts: PUTS_MAX,
            put_time: PUT_TIME,
            filter: Filter::default(),
            high_water: None,
        }
    }

    /// What the core keeps to.
    pub(crate) fn limits(&self) -> Limits {
        let group_bytes = self.segment_bytes - SEGMENT_HEADER;
        Limits {
            group_bytes,
            batch_bytes: self.batch_bytes.min(group_bytes),
            backlog_bytes: self.backlog_bytes,
            linger: self.linger,
            patience: self.patience.max(self.linger),
            puts: matches!(self.place, Place::Store { .. }).then_some(self.puts),
        }
    }

    /// The stream that [`append`](crate::Journal::append) writes to; 0 if not set.
    #[must_use]
    pub fn stream(mut self, stream: u32) -> Self {
        self.stream = stream;
        self
    }

    /// Size of a segment file, or the most an object holds, in bytes (4 KiB to 1 GiB; 64 MiB if not set). An append
    /// group must fit into one.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: usize) -> Self {
        self.segment_bytes = bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        self
    }

    /// A batch is closed when it reaches this many bytes (8 MiB on a disk, 16 MiB in an object store).
    #[must_use]
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Appends are refused while this many bytes wait to be flushed (64 MiB).
    #[must_use]
    pub fn backlog_bytes(mut self, bytes: usize) -> Self {
        self.backlog_bytes = bytes;
        self
    }

    /// How long a batch waits for company before it is written (none on a disk, 20 ms in an object store).
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// How many batches may be on their way to an object store at once (1 to 8; 8 if not set).
    #[must_use]
    pub fn puts(mut self, puts: usize) -> Self {
        self.puts = puts.clamp(1, PUTS_MAX);
        self
    }

    /// How long a put to an object store of which nothing is known is tried again, before the journal ends (3 min if not set).
    #[must_use]
    pub fn put_time(mut self, time: Duration) -> Self {
        self.put_time = time;
        self
    }

    /// How long a batch waits for company that no reply waits for (not at all if not set).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// A second place, with nothing else in it, that says how far the log has been durable. The next opening refuses a log
    /// that ends earlier, or is not there. Of use to a log in a directory alone; without it, the end of a log that was not
    /// closed can be cut or damaged unnoticed.
    #[must_use]
    pub fn high_water(mut self, disk: Arc<dyn Disk>) -> Self {
        self.high_water = Some(disk);
        self
    }

    /// Which records to replay on opening.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }
}
