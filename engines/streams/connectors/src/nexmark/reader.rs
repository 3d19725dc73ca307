//! One partition of the generator's events.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::{Offset, Read, SourceBatch, SourceReader};
use savanna_streams_model::time::EventTime;

use super::generator::{Generator, Projection};
use super::selection::{Selection, Wanted};
use super::timeline::Timeline;

/// At most this many events in one batch, whatever is asked for.
const EVENTS_MAX: u64 = 1 << 20;
/// Within a batch, places in the stream lie at most this far apart; rounding down to a group keeps it below
/// [`Timeline::SPAN`].
const SPAN_MAX: u64 = Timeline::SPAN / 4 * 3;
/// Events that come in real time are gathered for this long, so that batches do not get tiny.
const GATHER: Duration = Duration::from_millis(5);

/// Which of the blocks of events belong to a partition: they are dealt round-robin, so that all progress evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deal {
    pub(crate) block: u64,
    pub(crate) partition: u64,
    pub(crate) partitions: u64,
}

impl Deal {
    /// The first place at or after `position` that belongs to the partition.
    pub(crate) const fn next(self, position: u64) -> u64 {
        let block = position / self.block;
        let ahead = (self.partition + self.partitions - block % self.partitions) % self.partitions;
        if ahead == 0 { position } else { (block + ahead) * self.block }
    }

    /// The end of the block that `position` lies in.
    const fn block_end(self, position: u64) -> u64 {
        (position / self.block + 1) * self.block
    }
}

/// Reads one partition.
pub(crate) struct Reader {
    generator: Arc<Generator>,
    projection: Projection,
    wanted: Wanted,
    deal: Deal,
    /// The next place of the stream to read, one of this partition.
    next: u64,
    pace: Option<Pace>,
    /// Places before this one are not waited for.
    hurries_until: u64,
    cpu: Duration,
}

/// Event time against real time.
struct Pace {
    started: Instant,
    started_at_ms: i64,
}

impl Reader {
    /// Opens the partition at the start or at an offset of the same partition.
    pub(crate) fn open(
        generator: Arc<Generator>,
        projection: Projection,
        wanted: Wanted,
        deal: Deal,
        from: Option<&Offset>,
    ) -> Result<Self> {
        let next = match from {
            None => deal.next(0),
            Some(offset) => {
                offset.0.parse().ok().filter(|&position| deal.next(position) == position).ok_or_else(|| {
                    StreamError::invalid(format!(
                        "offset '{}' is not a position in partition {} of {} of a nexmark source; start the query again, or \
                         with as many partitions as before",
                        offset.0, deal.partition, deal.partitions
                    ))
                })?
            }
        };
        let mut reader =
            Self { generator, projection, wanted, deal, next, pace: None, hurries_until: 0, cpu: Duration::ZERO };
        reader.start_clock();
        Ok(reader)
    }

    /// All partitions start their clocks at the same event, the first of this round of blocks.
    fn start_clock(&mut self) {
        let round = self.next - self.next % (self.deal.block * self.deal.partitions);
        let started_at_ms = self.generator.config.timeline.time_ms(round);
        self.pace = self.generator.config.paced.then(|| Pace { started: Instant::now(), started_at_ms });
    }

    /// Before which place events can be read now.
    fn available(&self) -> u64 {
        let end = self.generator.config.events.unwrap_or(u64::MAX);
        if self.next < self.hurries_until {
            return end.min(self.hurries_until);
        }
        let due = self.pace.as_ref().map_or(u64::MAX, |pace| {
            let passed = i64::try_from(pace.started.elapsed().as_millis()).unwrap_or(i64::MAX);
            self.generator.config.timeline.events_until(pace.started_at_ms.saturating_add(passed))
        });
        end.min(due)
    }

    /// How long until the next event is due.
    fn until_next(&self) -> Duration {
        self.pace.as_ref().map_or(Duration::ZERO, |pace| {
            let due = self.generator.config.timeline.time_ms(self.next) - pace.started_at_ms;
            Duration::from_millis(u64::try_from(due).unwrap_or(0)).saturating_sub(pace.started.elapsed())
        })
    }

    /// Takes the next places, at most `events` of them, all before `available`.
    fn take(&mut self, events: u64, available: u64) -> Vec<Range<u64>> {
        let first = self.next;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut left = events.clamp(1, EVENTS_MAX);
        while left > 0 && self.next < available && self.next - first < SPAN_MAX {
            let start = self.next;
            let end = self.deal.block_end(start).min(available).min(start + left);
            left -= end - start;
            self.next = self.deal.next(end);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

impl SourceReader for Reader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        let config = &self.generator.config;
        if config.events.is_some_and(|end| self.next >= end) {
            if !config.keep_alive {
                return Ok(Read::End);
            }
            thread::sleep(wait);
            return Ok(Read::Pending);
        }
        if self.next >= self.available() {
            thread::sleep(self.until_next().max(GATHER).min(wait));
        }
        let before = thread_cpu();
        let available = self.available();
        let ranges = self.take(max_events as u64, available);
        if ranges.is_empty() {
            return Ok(Read::Pending);
        }
        let selection = Selection::new(&self.generator.config, &ranges, self.wanted);
        let rows = self.generator.batch(&self.projection, &selection)?;
        let left_out_time =
            selection.left_out.map(|n| EventTime(self.generator.config.timeline.time_ms(n).saturating_mul(1_000)));
        self.cpu += thread_cpu().saturating_sub(before);
        if self.hurries_until > 0 && self.next >= self.hurries_until {
            self.hurries_until = 0;
            self.start_clock();
        }
        Ok(Read::Rows(SourceBatch {
            split: 0,
            rows,
            left_out_time,
            events: ranges.iter().map(|r| r.end - r.start).sum(),
        }))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }

    fn hurry(&mut self, until: &Offset) {
        self.hurries_until = until.0.parse().unwrap_or(0);
    }

    fn generator_cpu(&self) -> Duration {
        self.cpu
    }
}

/// CPU time of this thread so far.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_belongs_to_one_partition() {
        for partitions in 1..5 {
            for position in 0..100 {
                let owners = (0..partitions)
                    .filter(|&partition| Deal { block: 7, partition, partitions }.next(position) == position);
                assert_eq!(owners.count(), 1);
            }
        }
        assert_eq!(Deal { block: 7, partition: 1, partitions: 3 }.next(15), 28);
    }
}
