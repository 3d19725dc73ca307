//! One partition of a source, as the product's partitions act.

use savanna_streams_api::ids::Epoch;
use savanna_streams_model::graph::Lateness;
use savanna_streams_model::source::Offset;
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::driver::{Input, SourceMark};
use savanna_streams_runtime::reading::{Again, Instants, RunningWatermark, Splits, Standings, Way};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Size of the windows of event time, in microseconds.
pub(super) const WINDOW: i64 = 40;
/// Nothing waits for a partition that has had nothing for so long, in microseconds of the clock.
const IDLE_AFTER: i64 = 25_000;
/// A read gives so many rows at most.
const READ_MAX: u64 = 3;

/// A row: its source, and its number there.
pub(super) type RowId = (usize, usize);

/// What a source has.
#[derive(Debug)]
pub(super) struct Rows {
    /// Event times.
    pub(super) times: Vec<i64>,
    /// When a row comes, in microseconds of the clock; in order.
    pub(super) comes: Vec<i64>,
}

/// A row that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRow {
    pub(super) id: RowId,
    /// The end of its window.
    pub(super) end: i64,
    pub(super) late: bool,
}

/// What a partition may look at.
pub(super) struct Around<'a> {
    pub(super) rows: &'a Rows,
    pub(super) now: EventTime,
    pub(super) standings: &'a Standings,
    pub(super) instants: &'a Instants,
    pub(super) committed: Epoch,
    /// What records say of how it stood is not looked at.
    pub(super) by_the_clock: bool,
}

#[derive(Debug)]
pub(super) struct Partition {
    source: usize,
    at: usize,
    epoch: Epoch,
    events: u64,
    pub(super) opened: Epoch,
    pub(super) cut: Epoch,
    pub(super) ended: bool,
    arrived: bool,
    told_waits: bool,
    splits: Splits,
    again: Again,
    read: Vec<ReadRow>,
}

fn end_of(time: i64) -> i64 {
    (time.div_euclid(WINDOW) + 1) * WINDOW
}

pub(super) fn offset(at: usize) -> Offset {
    Offset(at.to_string())
}

/// The place that an offset says.
pub(super) fn place(offset: &Offset) -> usize {
    offset.0.parse().unwrap_or(usize::MAX)
}

impl Partition {
    /// Behind a mark, if it does not begin anew; it reads these epochs again first.
    pub(super) fn new(source: usize, from: Epoch, behind: Option<&SourceMark>, again: Vec<SourceMark>) -> Self {
        let mut splits = Splits::new(1, RunningWatermark::new(0, Lateness::Never), Some(IDLE_AFTER));
        if let Some(mark) = behind {
            splits.begin_at(mark);
        }
        Self {
            source,
            at: behind.map_or(0, |mark| place(&mark.offset)),
            epoch: from.next(),
            events: 0,
            opened: Epoch::ZERO,
            cut: Epoch::ZERO,
            ended: behind.is_some_and(|mark| mark.ended),
            arrived: false,
            told_waits: false,
            splits,
            again: Again::new(again.into(), true),
            read: Vec::new(),
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Its running watermark, and whether it is idle.
    pub(super) fn standing(&self) -> (EventTime, bool) {
        (self.watermark(), self.splits.is_idle())
    }

    fn watermark(&self) -> EventTime {
        if self.ended { EventTime::MAX } else { self.splits.watermark() }
    }

    /// Does what the driver wants next, once: tells the driver something, perhaps, and the rows of an epoch when it seals it.
    ///
    /// # Errors
    /// Other rows came than before.
    pub(super) fn step(
        &mut self,
        around: &Around<'_>,
        rng: &mut ChaCha8Rng,
    ) -> Result<(Option<Input>, Vec<ReadRow>), String> {
        let (source, epoch) = (self.source, self.epoch);
        if self.cut >= epoch {
            return self.seal(around).map(|(input, read)| (Some(input), read));
        }
        let input = match self.opened < epoch {
            true => None,
            false if self.again.is_under_way() => self.read_again(around, rng)?,
            false if self.ended => None,
            false if self.at == around.rows.times.len() => Some(self.end()),
            false if self.there(around) == 0 => {
                self.splits.wait(around.now);
                let is_news = self.splits.find_idle(around.now);
                self.told_waits &= !is_news;
                let waits = self.splits.is_idle() && !std::mem::replace(&mut self.told_waits, true);
                waits.then_some(Input::Waits { source, epoch })
            }
            false => {
                self.told_waits = false;
                self.take(around, rng, READ_MAX);
                Some(Input::Data { source, epoch, enough: true })
            }
        };
        Ok((input, Vec::new()))
    }

    fn there(&self, around: &Around<'_>) -> usize {
        around.rows.comes[self.at..].iter().take_while(|comes| **comes <= around.now.0).count()
    }

    fn end(&mut self) -> Input {
        self.ended = true;
        Input::Ended { source: self.source, epoch: self.epoch }
    }

    fn read_again(&mut self, around: &Around<'_>, rng: &mut ChaCha8Rng) -> Result<Option<Input>, String> {
        if self.arrived {
            return Ok(None);
        }
        let way = self.again.way(self.events, READ_MAX, self.ended, &offset(self.at));
        match way.map_err(|error| error.to_string())? {
            Way::There => {
                self.arrived = true;
                Ok(Some(Input::Full { source: self.source, epoch: self.epoch }))
            }
            Way::Read(_) if self.at == around.rows.times.len() && !self.ended => Ok(Some(self.end())),
            // What it had before may take a while to come again.
            Way::Read(_) if self.there(around) == 0 => Ok(None),
            Way::Read(most) => {
                self.take(around, rng, most);
                Ok(None)
            }
        }
    }

    fn take(&mut self, around: &Around<'_>, rng: &mut ChaCha8Rng, most: u64) {
        // An epoch has the instant of its first rows.
        around.instants.of(self.epoch, around.committed);
        let count = rng.random_range(1..=most).min(self.there(around) as u64);
        for row in self.at..self.at + count as usize {
            let time = around.rows.times[row];
            self.splits.wake(0);
            self.splits.advance(0, EventTime(time));
            let (id, end) = ((self.source, row), end_of(time));
            self.read.push(ReadRow { id, end, late: end <= self.splits.watermark().0 });
        }
        self.at += count as usize;
        self.events += count;
    }

    fn seal(&mut self, around: &Around<'_>) -> Result<(Input, Vec<ReadRow>), String> {
        let before = self.again.mark().filter(|_| !around.by_the_clock);
        self.splits.settle(before, Some(around.standings));
        let mark = SourceMark {
            offset: offset(self.at),
            watermark: self.watermark(),
            events: self.events,
            idle: self.splits.is_idle(),
            ended: self.ended,
        };
        let sealed = self.again.seal(self.epoch, &mark);
        if !around.by_the_clock {
            sealed.map_err(|error| error.to_string())?;
        }
        let (source, epoch, instant) = (self.source, self.epoch, around.instants.of(self.epoch, around.committed));
        (self.epoch, self.events, self.arrived) = (epoch.next(), 0, false);
        Ok((Input::Sealed { source, epoch, mark, instant }, std::mem::take(&mut self.read)))
    }
}
