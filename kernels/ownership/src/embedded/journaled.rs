//! The coordinator's log on the journal kernel.
//!
//! One journal belongs to the coordinator alone. Its records are of two kinds: an [`Entry`], and an [`Image`] of all
//! state at one revision, which is written on opening when many entries have piled up, so that the log can be cut.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};

use super::{EmbeddedCoordinator, Log, LogError, LogPosition};
use crate::core::{CoordinatorCore, Image};
use crate::error::CoordinatorError;
use crate::event::Entry;
use crate::guard::LeaseGuard;
use crate::record::Revision;
use crate::time::Clock;

const KIND_ENTRY: u16 = 1;
const KIND_IMAGE: u16 = 2;

/// The coordinator's shard in its journal; there is no other.
const SHARD: u64 = 0;

/// How many entries since the last image make an opening write a new one.
const ENTRIES_PER_IMAGE: usize = 4096;

/// Why the embedded coordinator did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal could not be opened, read back or cut.
    #[error("the coordinator's journal: {0}")]
    Journal(#[from] JournalError),
    /// The journal's records make no coordinator.
    #[error(transparent)]
    Records(#[from] CoordinatorError),
    /// The opening was interrupted.
    #[error("expected to finish opening the coordinator's journal, but the runtime is shutting down; start again")]
    Interrupted,
}

/// How an embedded coordinator runs.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The ttl of node leases.
    pub ttl: Duration,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The lease of the data directory; nothing is answered while it does not cover the instant.
    pub guard: Option<LeaseGuard>,
}

/// Rebuilds a core from the records of a journal.
struct Recovery {
    core: CoordinatorCore,
    ttl: Duration,
    image_seen: bool,
    /// The first entry that did not follow: what came before it was cut off, and an image must come later.
    cut_before: Option<Revision>,
    entries_since_image: usize,
}

impl Recovery {
    fn new(ttl: Duration) -> Self {
        let core = CoordinatorCore::new(ttl);
        Self { core, ttl, image_seen: false, cut_before: None, entries_since_image: 0 }
    }

    fn record(&mut self, record: &Record) -> Result<(), CoordinatorError> {
        let corrupt = |reason| CoordinatorError::Corrupt { place: format!("journal record {}", record.lsn), reason };
        match record.kind {
            KIND_IMAGE => {
                let image: Image =
                    serde_json::from_slice(&record.payload).map_err(|error| corrupt(error.to_string()))?;
                self.core = CoordinatorCore::from_image(self.ttl, image);
                self.image_seen = true;
                self.cut_before = None;
                self.entries_since_image = 0;
                Ok(())
            }
            KIND_ENTRY => {
                let entry: Entry =
                    serde_json::from_slice(&record.payload).map_err(|error| corrupt(error.to_string()))?;
                self.entries_since_image += 1;
                if self.cut_before.is_some() {
                    return Ok(());
                }
                if entry.revision != self.core.revision().next() && !self.image_seen {
                    self.cut_before = Some(entry.revision);
                    return Ok(());
                }
                self.core.replay(&entry)
            }
            kind => Err(corrupt(format!("kind {kind}"))),
        }
    }

    fn finish(self) -> Result<CoordinatorCore, CoordinatorError> {
        match self.cut_before {
            None => Ok(self.core),
            Some(first) => Err(CoordinatorError::Corrupt {
                place: "coordinator journal".to_owned(),
                reason: format!("it begins at revision {first} and holds no image of what was before"),
            }),
        }
    }
}

struct JournalLog {
    journal: Arc<Journal>,
}

impl From<JournalError> for LogError {
    fn from(error: JournalError) -> Self {
        Self(error.to_string())
    }
}

#[async_trait]
impl Log for JournalLog {
    fn append(&self, payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
        let drafts: Vec<Draft<'_>> =
            payloads.iter().map(|payload| Draft { shard: SHARD, kind: KIND_ENTRY, payload }).collect();
        Ok(LogPosition(self.journal.append(&drafts)?.0))
    }

    async fn wait_durable(&self, position: LogPosition) -> Result<(), LogError> {
        Ok(self.journal.wait_durable(Lsn(position.0)).await?)
    }
}

impl EmbeddedCoordinator {
    /// Takes the coordinator's journal over under `epoch`, replays it and starts. The journal must belong to the
    /// coordinator alone.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(journal: Options, epoch: NodeEpoch, options: EmbeddedOptions) -> Result<Self, OpenError> {
        let ttl = options.ttl;
        let opening = tokio::task::spawn_blocking(move || {
            let mut recovery = Recovery::new(ttl);
            let opened = Journal::open(journal, epoch, &mut |record| recovery.record(&record));
            opened.map(|journal| (journal, recovery))
        });
        let (journal, recovery) = opening.await.map_err(|_| OpenError::Interrupted)??;
        let image_due = recovery.entries_since_image >= ENTRIES_PER_IMAGE;
        let core = recovery.finish()?;
        if image_due {
            cut(&journal, &core).await?;
        }
        let log = JournalLog { journal: Arc::new(journal) };
        Ok(Self::start(core, Arc::new(log), options.clock, options.guard))
    }
}

/// Writes an image and lets the journal drop what is before it.
async fn cut(journal: &Journal, core: &CoordinatorCore) -> Result<(), JournalError> {
    let image = serde_json::to_vec(core.image()).expect("an image has string keys and no failing parts");
    match journal.append(&[Draft { shard: SHARD, kind: KIND_IMAGE, payload: &image }]) {
        Ok(lsn) => {
            journal.wait_durable(lsn).await?;
            journal.truncate_before(lsn)
        }
        Err(JournalError::TooLarge { .. }) => {
            tracing::warn!(bytes = image.len(), "the coordinator's image does not fit its journal; the log is not cut");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::core::Request;
    use crate::time::MonoTime;

    const TTL: Duration = Duration::from_secs(3);

    fn record(kind: u16, payload: Vec<u8>) -> Record {
        Record { stream: 0, epoch: NodeEpoch(1), lsn: Lsn(9), shard: SHARD, kind, payload: Bytes::from(payload) }
    }

    /// Five allocations, as records, and the core after them.
    fn history() -> (Vec<Record>, CoordinatorCore) {
        let mut core = CoordinatorCore::new(TTL);
        let mut records = Vec::new();
        for _ in 0..5 {
            let allocate = Request::Allocate { name: "x".to_owned(), count: 10 };
            for entry in core.step(&allocate, MonoTime(0)).entries {
                records.push(record(KIND_ENTRY, serde_json::to_vec(&entry).unwrap()));
            }
        }
        (records, core)
    }

    fn recover(records: &[Record]) -> Result<CoordinatorCore, CoordinatorError> {
        let mut recovery = Recovery::new(TTL);
        for record in records {
            recovery.record(record)?;
        }
        recovery.finish()
    }

    #[test]
    fn entries_before_an_image_may_be_missing_in_part_or_whole() {
        let (records, core) = history();
        let image = record(KIND_IMAGE, serde_json::to_vec(core.image()).unwrap());
        for kept in 0..=records.len() {
            let mut cut = records[kept..].to_vec();
            cut.push(image.clone());
            assert_eq!(recover(&cut).unwrap().image(), core.image(), "from entry {kept}");
        }
    }

    #[test]
    fn a_hole_in_the_history_is_an_error_that_says_where() {
        let (records, core) = history();
        let message = recover(&records[2..]).unwrap_err().to_string();
        assert!(message.contains("begins at revision 3"), "{message}");
        let image = record(KIND_IMAGE, serde_json::to_vec(core.image()).unwrap());
        let after_image = recover(&[image, records[2].clone()]).unwrap_err().to_string();
        assert!(after_image.contains("expected revision 6"), "{after_image}");
        assert!(recover(&[record(77, Vec::new())]).unwrap_err().to_string().contains("kind 77"));
        assert!(recover(&[record(KIND_ENTRY, b"{".to_vec())]).unwrap_err().to_string().contains("journal record 9"));
    }
}
