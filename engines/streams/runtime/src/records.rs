//! What lets a query outlive its process: the records of its epochs, and the sink as the judge of what counts.
//!
//! ```text
//!   all partitions have sealed e --> record of e is appended --> it is durable --> the sink may commit e
//!
//!   start again:  records 1..=R    sink holds s <= R
//!                 epochs 1..=R are read and computed again exactly as recorded; the sink leaves out those up to s
//!                 epochs from R + 1 on are cut anew
//! ```
//!
//! [`Recorded`] and [`check`] decide and do nothing else.

use std::fmt::Debug;

use parking_lot::{Condvar, Mutex};
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};

use crate::driver::{EpochRecord, Outcome};

/// Called once, when a record is durable or cannot become so.
pub type WhenDurable = Box<dyn FnOnce(Result<()>) + Send>;

/// Where the records of a query's epochs are kept.
pub trait EpochLog: Debug + Send + Sync {
    /// Appends a record behind those before it, and does not wait. `when_durable` may run on any thread, and is short.
    fn append(&self, record: &EpochRecord, when_durable: WhenDurable);

    /// The query is over, after its sink was finished.
    fn ended(&self, outcome: &Outcome);
}

/// Up to which epoch the sink may commit.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    durable: Epoch,
    failed: Option<StreamError>,
}

impl Recorded {
    /// The records up to `durable` are in the log.
    pub fn up_to(durable: Epoch) -> Self {
        Self { durable, failed: None }
    }

    /// What became of the record of an epoch.
    pub fn note(&mut self, epoch: Epoch, outcome: Result<()>) {
        match outcome {
            Ok(()) if self.failed.is_none() => self.durable = self.durable.max(epoch),
            Ok(()) => {}
            Err(error) => drop(self.failed.get_or_insert(error)),
        }
    }

    /// Whether the sink may commit an epoch now; if not yet, it waits.
    ///
    /// # Errors
    /// Its record will never be durable.
    pub fn allows(&self, epoch: Epoch) -> Result<bool> {
        if epoch <= self.durable {
            return Ok(true);
        }
        self.failed.clone().map_or(Ok(false), Err)
    }
}

/// Whether a query can go on from these records with a sink that holds epoch `held`.
///
/// # Errors
/// The records have gaps, or they and the sink contradict each other.
pub fn check(records: &[EpochRecord], sources: usize, sink: &str, held: Epoch) -> Result<()> {
    for (number, record) in (1..).zip(records) {
        if record.epoch != Epoch(number) {
            return Err(StreamError::invalid(format!(
                "the records of the query's epochs have a gap: expected epoch {number}, got {}; drop the query and start it again",
                record.epoch
            )));
        }
        if record.sources.len() != sources {
            return Err(StreamError::invalid(format!(
                "the query read {} source partitions before and would read {sources} now; put its sources back as they were, or drop \
                 the query and start it again",
                record.sources.len()
            )));
        }
    }
    let last = records.last().map_or(Epoch::ZERO, |record| record.epoch);
    if held > last {
        return Err(StreamError::invalid(format!(
            "{sink} holds epoch {held} of the query, but its records end at epoch {last}: records were lost; drop the query and start \
             it again with another place for its rows"
        )));
    }
    let known = records.iter().map(|record| record.committed).max().unwrap_or_default();
    if held < known {
        return Err(StreamError::invalid(format!(
            "{sink} holds epoch {held} of the query, but has held epoch {known}: what it wrote was removed or moved away; put it back, \
             or drop the query and start it again"
        )));
    }
    Ok(())
}

/// Where the sink waits for records.
#[derive(Debug)]
pub(crate) struct RecordGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    recorded: Recorded,
    stopped: bool,
}

impl RecordGate {
    pub(crate) fn new(recorded: Recorded) -> Self {
        Self { state: Mutex::new(State { recorded, stopped: false }), changed: Condvar::new() }
    }

    pub(crate) fn note(&self, epoch: Epoch, outcome: Result<()>) {
        self.state.lock().recorded.note(epoch, outcome);
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits until the sink may commit an epoch.
    ///
    /// # Errors
    /// Its record will never be durable, or the query stops.
    pub(crate) fn wait(&self, epoch: Epoch) -> Result<()> {
        let mut state = self.state.lock();
        while !state.recorded.allows(epoch)? {
            if state.stopped {
                return Err(StreamError::Cancelled);
            }
            self.changed.wait(&mut state);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_model::time::EventTime;

    use super::*;

    fn record(epoch: u64, committed: u64) -> EpochRecord {
        let (epoch, committed) = (Epoch(epoch), Epoch(committed));
        EpochRecord { epoch, processing_time: EventTime(0), sources: Vec::new(), committed }
    }

    #[test]
    fn an_epoch_is_committed_when_its_record_is_durable_and_never_after_one_that_failed() {
        let mut recorded = Recorded::up_to(Epoch(2));
        assert_eq!((recorded.allows(Epoch(2)), recorded.allows(Epoch(3))), (Ok(true), Ok(false)));
        recorded.note(Epoch(3), Ok(()));
        assert_eq!(recorded.allows(Epoch(3)), Ok(true));
        recorded.note(Epoch(4), Err(StreamError::Cancelled));
        recorded.note(Epoch(5), Ok(()));
        assert_eq!(recorded.allows(Epoch(4)), Err(StreamError::Cancelled));
        assert_eq!(recorded.allows(Epoch(5)), Err(StreamError::Cancelled), "it is behind a gap");
        assert_eq!(recorded.allows(Epoch(3)), Ok(true));
    }

    #[test]
    fn a_sink_that_contradicts_the_records_is_refused() {
        let records = [record(1, 0), record(2, 0), record(3, 2)];
        let text = |held| check(&records, 0, "table out", Epoch(held)).map_err(|error| error.to_string());
        assert_eq!(text(2), Ok(()));
        assert_eq!(text(3), Ok(()));
        assert!(text(4).unwrap_err().contains("holds epoch 4 of the query, but its records end at epoch 3"));
        assert!(text(1).unwrap_err().contains("holds epoch 1 of the query, but has held epoch 2"));
    }

    #[test]
    fn records_with_a_gap_or_of_other_sources_are_refused() {
        let gap = check(&[record(1, 0), record(3, 0)], 0, "table out", Epoch(1)).unwrap_err().to_string();
        assert!(gap.contains("expected epoch 2, got 3"), "{gap}");
        let other = check(&[record(1, 0)], 2, "table out", Epoch(1)).unwrap_err().to_string();
        assert!(other.contains("read 0 source partitions before and would read 2 now"), "{other}");
    }
}
