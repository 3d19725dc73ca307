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
//! Where results reach back over a bounded span of event time ([`Reach`]), a query begins behind a later record, and the records before
//! it go ([`skippable`], [`Kept`]).
//!
//! [`Recorded`], [`check`], [`skippable`] and [`Kept`] decide and do nothing else.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::time::EventTime;

use crate::driver::{EpochRecord, Joined, Outcome};

/// Called once, when a record is durable or cannot become so.
pub type WhenDurable = Box<dyn FnOnce(Result<()>) + Send>;

/// Where the records of a query's epochs are kept.
pub trait EpochLog: Debug + Send + Sync {
    /// Appends a record behind those before it, and does not wait. `when_durable` may run on any thread, and is short.
    fn append(&self, record: &EpochRecord, when_durable: WhenDurable);

    /// Whether this process may still say what the sink holds: false once another one may have taken its place. It may come to be true again.
    fn may_commit(&self) -> bool {
        true
    }

    /// Records before this one are not needed any more. It is durable itself.
    fn forget_before(&self, epoch: Epoch);

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
/// `sources` are the source partitions without those that have joined.
///
/// # Errors
/// The records have gaps, or they and the sink contradict each other.
pub fn check(records: &[EpochRecord], sources: usize, sink: &str, held: Epoch) -> Result<()> {
    let first = records.first().map_or(1, |record| record.epoch.0);
    let mut joined: &[Joined] = &[];
    for (number, record) in (first..).zip(records) {
        if record.epoch != Epoch(number) {
            return Err(StreamError::invalid(format!(
                "the records of the query's epochs have a gap: expected epoch {number}, got {}; drop the query and start it again",
                record.epoch
            )));
        }
        let others = &record.layout.joined;
        if !others.starts_with(joined) {
            return Err(StreamError::invalid(format!(
                "the records of the query's epochs contradict each other: partitions that had joined before epoch {number} are missing in it; drop \
                 the query and start it again"
            )));
        }
        joined = others;
        if record.sources.len() != sources + joined.len() {
            return Err(StreamError::invalid(format!(
                "the query read {} source partitions before and would read {sources} now; put its sources back as they were, or drop the query and start \
                 it again",
                record.sources.len() - joined.len().min(record.sources.len())
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
    check_held(records, sink, held)
}

/// Whether a sink holds as much as these records know that it has held.
///
/// # Errors
/// It does not.
pub fn check_held(records: &[EpochRecord], sink: &str, held: Epoch) -> Result<()> {
    let known = records.iter().map(|record| record.committed).max().unwrap_or_default();
    if held < known {
        return Err(StreamError::invalid(format!(
            "{sink} holds epoch {held} of the query, but has held epoch {known}: what it wrote was removed or moved away; put it back, \
             or drop the query and start it again"
        )));
    }
    Ok(())
}

/// How far back the rows lie of which a result is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    All,
    /// In the result's own epoch.
    Epoch,
    /// Not further before a watermark than this.
    Span {
        /// In microseconds of event time.
        span: i64,
        /// How far each source partition's watermark is behind its newest row, in microseconds. Those that join later are not among them.
        delays: Vec<i64>,
    },
}

impl Reach {
    /// Whether what was read up to a record plays no part in results behind a later one.
    fn is_behind(&self, record: &Standing, later: &Standing) -> bool {
        match self {
            Self::All => false,
            Self::Epoch => !record.ended,
            Self::Span { span, .. } => {
                !record.ended && later.low > EventTime::MIN && record.newest.0 < later.low.0.saturating_sub(*span)
            }
        }
    }

    /// How far the sources had come at the end of an epoch.
    fn standing(&self, record: &EpochRecord) -> Standing {
        let delays: &[i64] = if let Self::Span { delays, .. } = self { delays } else { &[] };
        let newest = record.sources.iter().enumerate().map(|(source, mark)| {
            // One that has joined since is late by as much as the latest of the others at most.
            let delay = delays.get(source).or_else(|| delays.iter().max()).copied().unwrap_or(0);
            EventTime(mark.watermark.0.saturating_add(delay))
        });
        Standing {
            epoch: record.epoch,
            newest: newest.max().unwrap_or(EventTime::MIN),
            low: record.sources.iter().map(|mark| mark.watermark).min().unwrap_or(EventTime::MIN),
            ended: record.sources.iter().any(|mark| mark.ended),
        }
    }
}

/// How far the sources had come at the end of an epoch.
#[derive(Clone, Copy, Debug)]
struct Standing {
    epoch: Epoch,
    /// No row was newer.
    newest: EventTime,
    /// The query's watermark.
    low: EventTime,
    /// A partition had ended: how new its rows were is not known.
    ended: bool,
}

/// How many of the records a query need not read again whose sink holds epoch `held`. It begins behind the last of these.
///
/// # Errors
/// The first record is not that of epoch 1, and all are needed.
pub fn skippable(records: &[EpochRecord], held: Epoch, reach: &Reach) -> Result<usize> {
    let last_held = records.iter().find(|record| record.epoch == held);
    let skippable = last_held.map_or(0, |last| {
        let last = reach.standing(last);
        let is_behind = |record: &&EpochRecord| record.epoch <= held && reach.is_behind(&reach.standing(record), &last);
        records.iter().rposition(|record| is_behind(&record)).map_or(0, |place| place + 1)
    });
    match records.first() {
        Some(first) if skippable == 0 && first.epoch > Epoch(1) => Err(StreamError::invalid(format!(
            "the records of the query's epochs begin with epoch {}, and it needs all of them; drop the query and start it again",
            first.epoch
        ))),
        _ => Ok(skippable),
    }
}

/// Puts the record of a snapshot before those that follow it. False if the snapshot is of no use: the records begin later.
pub fn join_snapshot(records: &mut Vec<EpochRecord>, snapshot: &EpochRecord) -> bool {
    let epoch = snapshot.epoch;
    match (records.first(), records.last()) {
        (Some(first), _) if first.epoch > epoch.next() => return false,
        (Some(first), _) if first.epoch == epoch.next() => records.insert(0, snapshot.clone()),
        (Some(_), Some(last)) if last.epoch >= epoch => {
            // It says that the sinks hold its epoch, which the record could not.
            if let Some(record) = records.iter_mut().find(|record| record.epoch == epoch) {
                record.committed = record.committed.max(snapshot.committed);
            }
        }
        _ => *records = vec![snapshot.clone()],
    }
    true
}

/// How many of the records a query need not read again, and whether it needs the state of the snapshot: it begins behind it, or where no
/// state is needed if that is later.
///
/// # Errors
/// The first record is not that of epoch 1, all are needed, and there is no snapshot.
pub fn beginning(
    records: &[EpochRecord],
    held: Epoch,
    reach: &Reach,
    snapshot: Option<Epoch>,
) -> Result<(usize, bool)> {
    let by_reach = skippable(records, held, reach);
    let of_snapshot = |record: &EpochRecord| Some(record.epoch) == snapshot && record.epoch <= held;
    match (records.iter().position(of_snapshot), &by_reach) {
        (Some(place), Ok(skippable)) if place < *skippable => Ok((*skippable, false)),
        (Some(place), _) => Ok((place + 1, true)),
        (None, _) => by_reach.map(|skippable| (skippable, false)),
    }
}

/// Whether a query can be computed from its records although its snapshot cannot be read.
///
/// # Errors
/// It cannot: with what is wrong with the snapshot.
pub fn reach_without(records: &[EpochRecord], held: Epoch, reach: &Reach, error: &StreamError) -> Result<()> {
    match skippable(records, held, reach) {
        Ok(_) if !records.is_empty() => Ok(()),
        _ => Err(error.clone()),
    }
}

/// Which records of a running query are still needed.
#[derive(Debug)]
pub struct Kept {
    reach: Reach,
    /// Records go when so many can go.
    at_once: usize,
    /// Of epochs without a gap between them, before any partition had ended.
    standings: VecDeque<Standing>,
    /// Of those behind them that the sink may not hold yet: their records never go.
    ended: VecDeque<Standing>,
}

impl Kept {
    /// None so far. Records go when `at_once` of them can go.
    pub fn new(reach: Reach, at_once: usize) -> Self {
        Self { reach, at_once: at_once.max(1), standings: VecDeque::new(), ended: VecDeque::new() }
    }

    /// One more record, which says what the sink was known to hold. Tells the first record that is needed, if some before it go now.
    pub fn note(&mut self, record: &EpochRecord) -> Option<Epoch> {
        if self.reach == Reach::All {
            return None;
        }
        let standing = self.reach.standing(record);
        if standing.ended {
            self.ended.push_back(standing)
        } else {
            self.standings.push_back(standing)
        }
        let passed = self.ended.partition_point(|standing| standing.epoch < record.committed);
        self.ended.drain(..passed);
        let place = record.committed.0.checked_sub(self.standings.front()?.epoch.0)?;
        let place = usize::try_from(place).ok().filter(|place| *place >= self.at_once)?;
        let of_ended = || self.ended.front().filter(|standing| standing.epoch == record.committed);
        let held = *self.standings.get(place).or_else(of_ended)?;
        if matches!(self.reach, Reach::Span { .. }) && held.low == EventTime::MIN {
            return None;
        }
        let is_behind = |standing: &Standing| self.reach.is_behind(standing, &held);
        let mut candidates = self.standings.range(..=place.min(self.standings.len() - 1));
        let first = candidates.rposition(is_behind).filter(|place| *place >= self.at_once)?;
        self.standings.drain(..first);
        self.standings.front().map(|standing| standing.epoch)
    }
}

/// Where the sink waits for records.
#[derive(Debug)]
pub(crate) struct RecordGate {
    log: Arc<dyn EpochLog>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How often a process that may not commit asks whether it may again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct State {
    recorded: Recorded,
    stopped: bool,
}

impl RecordGate {
    pub(crate) fn new(recorded: Recorded, log: Arc<dyn EpochLog>) -> Self {
        Self { log, state: Mutex::new(State { recorded, stopped: false }), changed: Condvar::new() }
    }

    pub(crate) fn note(&self, epoch: Epoch, outcome: Result<()>) {
        self.state.lock().recorded.note(epoch, outcome);
        self.changed.notify_all();
    }

    /// Whether no other process may have taken the place of this one.
    pub(crate) fn may_commit(&self) -> bool {
        self.log.may_commit()
    }

    /// Nobody waits any more.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits until the sink may commit an epoch: its record is durable, and no other process may have taken the place of this one.
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
        while !self.log.may_commit() {
            if state.stopped {
                return Err(StreamError::Cancelled);
            }
            self.changed.wait_for(&mut state, ASK_AGAIN);
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
        EpochRecord {
            epoch,
            processing_time: EventTime(0),
            sources: Vec::new(),
            committed,
            lookups: Vec::new(),
            layout: crate::driver::Layout::default(),
        }
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

    /// The record of an epoch of one source with a watermark.
    fn at(epoch: u64, watermark: i64, committed: u64) -> EpochRecord {
        let (offset, watermark) = (savanna_streams_model::source::Offset::default(), EventTime(watermark));
        let mark = crate::driver::SourceMark { offset, watermark, events: 1, idle: false, ended: false };
        EpochRecord { sources: vec![mark], ..record(epoch, committed) }
    }

    #[test]
    fn what_lies_further_back_than_results_reach_is_not_read_again() {
        let mut records: Vec<_> = (1..=9).map(|epoch| at(epoch, epoch as i64 * 10, 0)).collect();
        let reach = Reach::Span { span: 29, delays: vec![5] };
        let skipped = |records: &[EpochRecord], held| skippable(records, Epoch(held), &reach).unwrap();
        // With epoch 8 the watermark is 80; rows of epoch 4 are 45 at most, those of epoch 5 up to 55.
        assert_eq!(skipped(&records, 8), 4);
        assert_eq!((skipped(&records, 3), skipped(&records, 0)), (0, 0));
        assert_eq!(skippable(&records, Epoch(8), &Reach::All), Ok(0));
        assert_eq!(skippable(&records, Epoch(8), &Reach::Epoch), Ok(8));
        records[3].sources[0].ended = true;
        assert_eq!(skipped(&records, 8), 3, "how new its rows were is not known");
        assert_eq!(skipped(&records[2..], 8), 1);
        let needed = skippable(&records[2..], Epoch(8), &Reach::All).unwrap_err().to_string();
        assert!(needed.contains("begin with epoch 3, and it needs all"), "{needed}");
    }

    #[test]
    fn records_go_behind_what_the_sink_is_known_to_hold() {
        let mut kept = Kept::new(Reach::Span { span: 30, delays: vec![5] }, 64);
        let told: Vec<_> = (1..=200).filter_map(|e| kept.note(&at(e, e as i64 * 10, e.saturating_sub(2)))).collect();
        // Epoch 71 tells that 69 is held: up to 65, rows are older than 690 - 30.
        assert_eq!(told.first(), Some(&Epoch(65)));
        assert!(kept.standings.len() < 128, "{}", kept.standings.len());
        let mut silent = Kept::new(Reach::Span { span: 30, delays: vec![5] }, 64);
        assert!((1..=200).all(|e| silent.note(&at(e, i64::MIN, e - 1)).is_none()), "there is no watermark yet");
        let mut over = Kept::new(Reach::Epoch, 64);
        let ended = |e: u64| {
            let mut record = at(e, 0, e - 1);
            record.sources[0].ended = true;
            record
        };
        assert!((1..=100).all(|e| over.note(&at(e, 0, 0)).is_none()), "the sink holds nothing");
        let told: Vec<_> = (101..=1_000).filter_map(|e| over.note(&ended(e))).collect();
        assert_eq!((told.as_slice(), over.standings.len()), ([Epoch(100)].as_slice(), 1));
        assert!(over.ended.len() < 4, "those of which a partition had ended do not pile up: {}", over.ended.len());
        let mut behind = Kept::new(Reach::Epoch, 64);
        assert!((1..=200).all(|e| behind.note(&at(e, 0, 0)).is_none()), "the sink holds nothing");
    }

    #[test]
    fn records_with_a_gap_or_of_other_sources_are_refused() {
        let gap = check(&[record(1, 0), record(3, 0)], 0, "table out", Epoch(1)).unwrap_err().to_string();
        assert!(gap.contains("expected epoch 2, got 3"), "{gap}");
        let other = check(&[record(1, 0)], 2, "table out", Epoch(1)).unwrap_err().to_string();
        assert!(other.contains("read 0 source partitions before and would read 2 now"), "{other}");
    }
}
