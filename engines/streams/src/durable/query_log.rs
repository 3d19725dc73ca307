//! The journal of one query: the records of its epochs.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::crash::crash_at;
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::records::{EpochLog, WhenDurable};

use super::lookups::QueryLookups;
use super::store::HasItsPlace;
use super::stored::{decode, encode};

/// The only kind of record in it.
const EPOCH: u16 = 1;
/// Bytes of a segment of the journal.
const SEGMENT_BYTES: usize = 16 << 20;

/// Told how a query ended.
pub(crate) type WhenEnded = Box<dyn Fn(&Outcome) + Send + Sync>;

/// Where a record is.
struct Place {
    epoch: Epoch,
    lsn: Lsn,
    /// The versions of tables that it names.
    lookups: Vec<u64>,
}

/// The records of one query's epochs.
pub(crate) struct QueryLog {
    directory: PathBuf,
    journal: Journal,
    /// Where the records are that are still needed.
    places: Mutex<VecDeque<Place>>,
    /// The tables that they name.
    lookups: Arc<QueryLookups>,
    may_commit: Option<HasItsPlace>,
    when_ended: WhenEnded,
}

impl fmt::Debug for QueryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryLog").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl QueryLog {
    /// Opens the log and reads the records in it.
    ///
    /// # Errors
    /// It cannot be read, or has a record that is none: with file and place.
    pub(crate) fn open(
        directory: &Path,
        epoch: NodeEpoch,
        lookups: Arc<QueryLookups>,
        may_commit: Option<HasItsPlace>,
        when_ended: WhenEnded,
    ) -> Result<(Arc<Self>, Vec<EpochRecord>)> {
        let (mut records, mut places) = (Vec::new(), VecDeque::new());
        let mut replay = |record: Record| {
            let decoded: EpochRecord = decode(&record.payload)?;
            places.push_back(Place { epoch: decoded.epoch, lsn: record.lsn, lookups: decoded.lookups.clone() });
            records.push(decoded);
            Ok::<(), String>(())
        };
        let options = Options::dir(directory).segment_bytes(SEGMENT_BYTES);
        let journal = Journal::open(options, epoch, &mut replay)
            .map_err(|e| failed("read the epochs of a query from", directory, &e))?;
        Ok((
            Arc::new(Self {
                directory: directory.to_owned(),
                journal,
                places: Mutex::new(places),
                lookups,
                may_commit,
                when_ended,
            }),
            records,
        ))
    }
}

/// An error of a journal, with its directory.
pub(super) fn failed(what: &str, directory: &Path, error: &JournalError) -> StreamError {
    StreamError::io(format!("{what} {}", directory.display()), error)
}

impl EpochLog for QueryLog {
    fn append(&self, record: &EpochRecord, when_durable: WhenDurable) {
        let appended = encode(record).and_then(|payload| {
            let appended = self.journal.append(&[Draft { shard: 0, kind: EPOCH, payload: &payload }]);
            appended.map_err(|e| failed("record an epoch in", &self.directory, &e))
        });
        let directory = self.directory.clone();
        if let Ok(lsn) = appended {
            crash_at("record-appended");
            self.places.lock().push_back(Place { epoch: record.epoch, lsn, lookups: record.lookups.clone() });
        }
        match appended {
            Ok(lsn) => self.journal.gate().hold(lsn, move |outcome| {
                crash_at("record-durable");
                when_durable(outcome.map_err(|e| failed("record an epoch in", &directory, &e)));
            }),
            Err(error) => when_durable(Err(error)),
        }
    }

    fn may_commit(&self) -> bool {
        self.may_commit.as_ref().is_none_or(|has_its_place| (has_its_place.0)())
    }

    fn forget_before(&self, epoch: Epoch) {
        let (first, gone) = {
            let mut places = self.places.lock();
            let gone = places.partition_point(|place| place.epoch < epoch);
            let gone = places.drain(..gone).next_back();
            (places.front().map(|place| place.lsn), gone)
        };
        if let Some(Err(error)) = first.map(|first| self.journal.truncate_before(first)) {
            tracing::warn!(directory = %self.directory.display(), %error, "records that are not needed any more stay");
        }
        if let Some(gone) = gone {
            crash_at("records-cut");
            // What the last of them had is perhaps what a snapshot of its epoch goes on with.
            self.lookups.forget_before(&gone.lookups);
        }
    }

    fn ended(&self, outcome: &Outcome) {
        if let Err(error) = self.journal.close() {
            tracing::warn!(directory = %self.directory.display(), %error, "the records of a query could not be closed in order");
        }
        (self.when_ended)(outcome);
    }
}
