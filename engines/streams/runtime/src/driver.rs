//! The epoch driver: cuts and admits epochs, replays those that get lost, ends the query.
//!
//! ```text
//!            Open e                Cut e               Sealed by all         Committed e
//!   (room) ---------> filling e ---------> sealing e ----------------> in flight e -----------> done
//!                      |  first data starts the clock      ^                |  replay_timeout
//!                      |  no data: stays open until a     +---- Replay e --+
//!                      |  window of processing time ends
//! ```
//!
//! A query that goes on replays its recorded epochs first: each is cut when all partitions are where they were, and not by time.
//!
//! A pure state machine: the time comes in with each input as the time since the query began. At most `max_in_flight`
//! epochs are open or uncommitted, so sources wait for the sink.

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_streams_api::StreamError;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::source::Offset;
use savanna_streams_model::time::{EventTime, Windows};
use serde::{Deserialize, Serialize};

use crate::options::EpochPolicy;

/// A small epoch waits for more events at most so many times the target.
const PATIENCE: u32 = 4;

/// Everything that a replay of an epoch needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch.
    pub epoch: Epoch,
    /// Its instant of processing time.
    pub processing_time: EventTime,
    /// One mark per source partition of the query, in the order of the scans.
    pub sources: Vec<SourceMark>,
    /// The last epoch that the sink was known to hold then.
    pub committed: Epoch,
    /// For each look-up of the query, which version of its table the epoch's rows were looked up in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<u64>,
    /// Whose marks they are.
    #[serde(default, skip_serializing_if = "Layout::is_unsaid")]
    pub layout: Layout,
}

/// The source partitions of a query, to which more may join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// How many each scan had when the query began, in the order of the scans. Records of former releases do not say it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scans: Vec<u32>,
    /// Those that have joined since. Their marks come behind the others, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<Joined>,
}

impl Layout {
    /// How many partitions a scan has.
    pub(crate) fn known(&self, scan: usize) -> usize {
        let base = self.scans.get(scan).map_or(0, |count| *count as usize);
        base + self.joined.iter().filter(|joined| joined.scan as usize == scan).count()
    }

    fn is_unsaid(&self) -> bool {
        self.scans.is_empty() && self.joined.is_empty()
    }
}

/// A source partition that has joined a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The scan that reads it, by its place among the scans.
    pub scan: u32,
    /// Its number among the partitions of its scan.
    pub number: u32,
}

/// Where a source partition stood at the end of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceMark {
    /// Everything before has been read.
    pub offset: Offset,
    /// Its watermark; [`EventTime::MAX`] once it has ended.
    pub watermark: EventTime,
    /// Events of this epoch.
    pub events: u64,
    /// It gave nothing for so long that nothing waited for it.
    pub idle: bool,
    /// It will never give anything again.
    pub ended: bool,
}

/// What the driver is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// The query begins.
    Start,
    /// A partition has the first rows of the open epoch, or (again, with `enough`) its share of the least events.
    Data {
        /// The partition.
        source: usize,
        /// The epoch.
        epoch: Epoch,
        /// Whether it has its share of [`EpochPolicy::min_events`].
        enough: bool,
    },
    /// A partition has nothing for now, or must not read on before others have: epochs are cut without waiting for it until
    /// it has rows again.
    Waits {
        /// The partition.
        source: usize,
        /// The epoch.
        epoch: Epoch,
    },
    /// A partition has its share of the most events an epoch may have, and waits.
    Full {
        /// The partition.
        source: usize,
        /// The epoch.
        epoch: Epoch,
    },
    /// A partition has met its end.
    Ended {
        /// The partition.
        source: usize,
        /// The epoch.
        epoch: Epoch,
    },
    /// A partition has closed its part of an epoch that was cut; its payloads follow.
    Sealed {
        /// The partition.
        source: usize,
        /// The epoch.
        epoch: Epoch,
        /// Where it stands.
        mark: SourceMark,
        /// The epoch's instant of processing time, the same from all partitions.
        instant: EventTime,
    },
    /// So many more source partitions are there, which are to be read.
    Joins {
        /// How many.
        count: usize,
    },
    /// The sink has an epoch.
    Committed {
        /// The epoch.
        epoch: Epoch,
    },
    /// The user wants no more.
    Cancel,
    /// Something failed.
    Failed(StreamError),
    /// Nothing but the time.
    Tick,
    /// [`Driver::fires_at`] has come.
    Fire,
}

/// What the driver wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// So many source partitions join at the beginning of this epoch. All before it are sealed.
    Join {
        /// The epoch, which is opened next.
        epoch: Epoch,
        /// How many.
        count: usize,
    },
    /// Sources may read rows into this epoch.
    Open(Epoch),
    /// Sources close this epoch, seal it and send it.
    Cut(Epoch),
    /// All partitions have sealed this epoch. Who looks rows up adds which versions of its tables it had.
    Record(EpochRecord),
    /// Sources send the payloads of this epoch again.
    Replay(Epoch),
    /// The query is over; nothing follows.
    Stop(Outcome),
}

/// How a query ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Every row of its bounded sources is committed.
    Finished,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed(StreamError),
}

/// The bounds that a driver obeys.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// When to cut.
    pub policy: EpochPolicy,
    /// Epochs that may be open or uncommitted.
    pub max_in_flight: u64,
    /// How long an epoch that is complete may stay uncommitted.
    pub replay_timeout: Duration,
    /// How often.
    pub replay_limit: u32,
    /// The query's windows of processing time.
    pub clock_windows: Vec<Windows>,
}

/// The state machine.
#[derive(Debug)]
pub struct Driver {
    options: DriverOptions,
    ended: Vec<bool>,
    /// Partitions that epochs do not wait for.
    waits: Vec<bool>,
    /// At which recorded epochs so many partitions have joined.
    joined: BTreeMap<Epoch, usize>,
    /// So many partitions join at the next epoch.
    joining: usize,
    committed: Epoch,
    last_cut: Epoch,
    /// Epochs up to this one are recorded, and read again.
    recorded: Epoch,
    open: Option<Open>,
    in_flight: BTreeMap<Epoch, InFlight>,
    /// When the oldest epoch in flight became the oldest, was sealed, or was replayed, whichever came last.
    oldest_since: Duration,
    replays: u32,
    /// The instants of the last sealed epoch, and of the last one that had rows.
    sealed_at: EventTime,
    rows_at: EventTime,
    stopped: bool,
}

#[derive(Debug)]
struct Open {
    epoch: Epoch,
    first_news: Option<Duration>,
    enough: bool,
    full: Vec<bool>,
    /// A window of processing time waits for it, or partitions that are to join.
    fire: bool,
}

#[derive(Debug)]
struct InFlight {
    marks: Vec<Option<SourceMark>>,
    sealed: bool,
}

impl Driver {
    /// A driver of a query with so many source partitions.
    pub fn new(sources: usize, options: DriverOptions) -> Self {
        Self::going_on(sources, options, Epoch::ZERO, Epoch::ZERO)
    }

    /// A driver of a query that begins behind epoch `from`, and whose epochs up to `recorded` are read again. In these a partition
    /// says that it is full where its record ends.
    pub fn going_on(sources: usize, options: DriverOptions, from: Epoch, recorded: Epoch) -> Self {
        Self {
            recorded,
            options,
            ended: vec![false; sources],
            waits: vec![false; sources],
            joined: BTreeMap::new(),
            joining: 0,
            committed: from,
            last_cut: from,
            open: None,
            in_flight: BTreeMap::new(),
            oldest_since: Duration::ZERO,
            replays: 0,
            sealed_at: EventTime::MIN,
            rows_at: EventTime::MIN,
            stopped: false,
        }
    }

    /// The same, where the query does not begin anew: which partitions have ended, the instant of the epoch behind which it begins, and
    /// that of the last one that had rows. Windows of processing time may be open.
    #[must_use]
    pub fn with_rows_at(mut self, ended: &[bool], sealed_at: EventTime, rows_at: EventTime) -> Self {
        for (known, ended) in self.ended.iter_mut().zip(ended) {
            *known |= ended;
        }
        Self { sealed_at, rows_at, ..self }
    }

    /// The same, where partitions have joined at recorded epochs: so many beyond those before.
    #[must_use]
    pub fn with_joined(self, joined: BTreeMap<Epoch, usize>) -> Self {
        Self { joined, ..self }
    }

    /// The same, where partitions have come to be that no record knows: so many join at the first epoch that is not recorded.
    #[must_use]
    pub fn with_joining(self, joining: usize) -> Self {
        Self { joining, ..self }
    }

    /// The last committed epoch.
    pub fn committed(&self) -> Epoch {
        self.committed
    }

    /// When the driver next wants a [`Input::Tick`], if nothing else comes.
    pub fn deadline(&self) -> Option<Duration> {
        let cut = self.open.as_ref().and_then(|open| self.cut_due(open));
        let replay = self.oldest_sealed().map(|_| self.oldest_since + self.replay_after());
        [cut, replay].into_iter().flatten().min()
    }

    /// The instant of processing time at which a window that has rows ends, if only an epoch is missing to close it: then
    /// the driver wants an [`Input::Fire`].
    pub fn fires_at(&self) -> Option<EventTime> {
        let waits = self.open.as_ref().is_some_and(|open| open.first_news.is_none() && !self.is_recorded(open.epoch));
        if !waits || self.rows_at == EventTime::MIN || self.in_flight.values().any(|epoch| !epoch.sealed) {
            return None;
        }
        let next_end = |windows: &Windows| match windows {
            Windows::Fixed(spec) => {
                spec.windows_of(self.rows_at).map(|(_, end)| end).find(|end| *end > self.sealed_at.0)
            }
            Windows::Session { gap } => Some(self.rows_at.0.saturating_add(*gap)).filter(|end| *end > self.sealed_at.0),
        };
        self.options.clock_windows.iter().filter_map(next_end).min().map(EventTime)
    }

    /// One step.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.stopped {
            return actions;
        }
        match input {
            Input::Start | Input::Tick => {}
            Input::Fire => {
                if let Some(open) = &mut self.open {
                    open.first_news.get_or_insert(now);
                    open.fire = true;
                }
            }
            Input::Data { source, epoch, enough } => {
                self.waits[source] = false;
                self.news(epoch, now, |open| open.enough |= enough);
            }
            Input::Waits { source, epoch } => {
                self.waits[source] = true;
                self.news(epoch, now, |_| ());
            }
            Input::Full { source, epoch } => self.news(epoch, now, |open| open.full[source] = true),
            Input::Ended { source, epoch } => {
                self.ended[source] = true;
                self.news(epoch, now, |_| ());
            }
            Input::Sealed { source, epoch, mark, instant } => {
                if let Some(marks) = self.seal(source, epoch, mark, now) {
                    self.sealed_at = self.sealed_at.max(instant);
                    if marks.iter().any(|mark| mark.events > 0) {
                        self.rows_at = self.rows_at.max(instant);
                    }
                    let committed = self.committed;
                    actions.push(Action::Record(EpochRecord {
                        epoch,
                        processing_time: instant,
                        sources: marks,
                        committed,
                        lookups: Vec::new(),
                        layout: Layout::default(),
                    }));
                }
            }
            Input::Joins { count } => {
                self.joining += count;
                let recorded = self.recorded;
                // They must not wait for rows of others.
                if let Some(open) = self.open.as_mut().filter(|open| open.epoch > recorded) {
                    open.first_news.get_or_insert(now);
                    open.fire = true;
                }
            }
            Input::Committed { epoch } => self.commit(epoch, now),
            Input::Cancel => return self.stop(Outcome::Cancelled),
            Input::Failed(error) => return self.stop(Outcome::Failed(error)),
        }
        self.cut(now, &mut actions);
        self.admit(&mut actions);
        if let Err(error) = self.replay(now, &mut actions) {
            actions.extend(self.stop(Outcome::Failed(error)));
        } else if self.open.is_none()
            && self.in_flight.is_empty()
            && self.all_ended()
            && !self.is_recorded(self.last_cut.next())
        {
            actions.extend(self.stop(Outcome::Finished));
        }
        actions
    }

    fn stop(&mut self, outcome: Outcome) -> Vec<Action> {
        self.stopped = true;
        vec![Action::Stop(outcome)]
    }

    fn is_recorded(&self, epoch: Epoch) -> bool {
        epoch <= self.recorded
    }

    fn all_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }

    fn news(&mut self, epoch: Epoch, now: Duration, change: impl FnOnce(&mut Open)) {
        // What arrives after the cut belongs to a part that is being sealed anyway.
        if let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) {
            open.first_news.get_or_insert(now);
            change(open);
        }
    }

    fn has_room(&self) -> bool {
        self.last_cut.0 - self.committed.0 < self.options.max_in_flight
    }

    /// Whether cutting the open epoch leaves room to open the next one.
    fn has_room_behind(&self) -> bool {
        self.last_cut.0 + 1 - self.committed.0 < self.options.max_in_flight
    }

    /// When the open epoch is to be cut for its age; none if it has nothing, or must grow while later stages are behind.
    fn cut_due(&self, open: &Open) -> Option<Duration> {
        if self.is_recorded(open.epoch)
            || self.options.policy.fixed_events.is_some()
            || !self.has_room_behind() && !self.in_flight.is_empty()
        {
            return None;
        }
        let target = self.options.policy.target;
        open.first_news.map(|first| first + if open.enough { target } else { target * PATIENCE })
    }

    fn cut(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Some(open) = self.open.as_ref().filter(|open| open.first_news.is_some()) else {
            return;
        };
        let stalled = |source: usize| open.full[source] || self.ended[source] || self.waits[source];
        let complete = if self.is_recorded(open.epoch) {
            open.full.iter().all(|full| *full)
        } else {
            let some_full = self.options.policy.fixed_events.is_none() && open.full.contains(&true);
            let due = self.cut_due(open).is_some_and(|due| due <= now);
            (0..self.ended.len()).all(stalled) || some_full || due || open.fire
        };
        if !complete {
            return;
        }
        let epoch = open.epoch;
        self.open = None;
        self.last_cut = epoch;
        if self.in_flight.is_empty() {
            self.oldest_since = now;
            self.replays = 0;
        }
        let marks = vec![None; self.ended.len()];
        self.in_flight.insert(epoch, InFlight { marks, sealed: false });
        actions.push(Action::Cut(epoch));
    }

    fn admit(&mut self, actions: &mut Vec<Action>) {
        if self.all_ended() && !self.is_recorded(self.last_cut.next()) {
            // The last end was told for an epoch that was cut meanwhile; its payloads carry the final watermark, so the
            // empty epoch behind it is not needed.
            self.open.take_if(|open| open.first_news.is_none());
        } else if self.open.is_none() && self.has_room() && !self.waits_to_join() {
            let epoch = self.last_cut.next();
            self.join(epoch, actions);
            self.open =
                Some(Open { epoch, first_news: None, enough: false, full: vec![false; self.ended.len()], fire: false });
            actions.push(Action::Open(epoch));
        }
    }

    /// Whether partitions are to join at the next epoch: they begin where the others are at the end of the one before.
    fn waits_to_join(&self) -> bool {
        self.joining > 0
            && !self.is_recorded(self.last_cut.next())
            && self.in_flight.values().any(|in_flight| !in_flight.sealed)
    }

    fn join(&mut self, epoch: Epoch, actions: &mut Vec<Action>) {
        let recorded = self.joined.remove(&epoch).unwrap_or(0);
        let new = if self.is_recorded(epoch) { 0 } else { std::mem::take(&mut self.joining) };
        let sources = self.ended.len() + recorded + new;
        self.ended.resize(sources, false);
        self.waits.resize(sources, false);
        if new > 0 {
            actions.push(Action::Join { epoch, count: new });
        }
    }

    /// Takes a partition's mark; gives all marks of the epoch once they are complete.
    fn seal(&mut self, source: usize, epoch: Epoch, mark: SourceMark, now: Duration) -> Option<Vec<SourceMark>> {
        let in_flight = self.in_flight.get_mut(&epoch)?;
        *in_flight.marks.get_mut(source)? = Some(mark);
        if in_flight.sealed || in_flight.marks.iter().any(Option::is_none) {
            return None;
        }
        in_flight.sealed = true;
        let marks = in_flight.marks.iter().flatten().cloned().collect();
        if self.in_flight.first_key_value().is_some_and(|(oldest, _)| *oldest == epoch) {
            self.oldest_since = now;
        }
        Some(marks)
    }

    fn commit(&mut self, epoch: Epoch, now: Duration) {
        if epoch > self.committed {
            self.committed = epoch;
            self.in_flight.retain(|e, _| *e > epoch);
            self.oldest_since = now;
            self.replays = 0;
        }
    }

    fn oldest_sealed(&self) -> Option<Epoch> {
        self.in_flight.first_key_value().filter(|(_, in_flight)| in_flight.sealed).map(|(epoch, _)| *epoch)
    }

    fn replay_after(&self) -> Duration {
        self.options.replay_timeout.saturating_mul(1 + self.replays)
    }

    /// Replays every sealed epoch in flight once the oldest is overdue: what was lost with it was likely lost behind it.
    fn replay(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), StreamError> {
        let Some(oldest) = self.oldest_sealed() else {
            return Ok(());
        };
        if now < self.oldest_since + self.replay_after() {
            return Ok(());
        }
        if self.replays >= self.options.replay_limit {
            return Err(StreamError::Limit {
                message: format!(
                    "epoch {oldest} was not committed after {} replays; look at the functions' errors, or raise the \
                     replay time-out ({:?})",
                    self.replays, self.options.replay_timeout
                ),
            });
        }
        self.replays += 1;
        self.oldest_since = now;
        actions.extend(self.in_flight.iter().filter(|(_, f)| f.sealed).map(|(epoch, _)| Action::Replay(*epoch)));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
