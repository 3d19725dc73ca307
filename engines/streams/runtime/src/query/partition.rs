//! One source partition in turns: reads, computes, seals epochs, sends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::sink::Room;
use savanna_streams_model::source::{Read, SourceBatch, SourceReader};
use savanna_streams_model::time::EventTime;

use super::again::{Again, Way};
use super::control::{Control, Order};
use super::drivers::Mailbox;
use super::groups::FunctionGroups;
use super::growth::Growing;
use super::memory::Memory;
use super::progress::{Progress, ScanProgress};
use super::snapshots::Snapshotting;
use super::standings::Standings;
use super::turns::{Next, blocking};
use crate::clock::{Clock, Instants};
use crate::cpu::thread_cpu;
use crate::driver::{Input, SourceMark};
use crate::member::{Outgoing, Retained};
use crate::scan::ScanOperator;

/// A read waits for nothing: whoever has no rows gets its next turn later.
const READ_WAIT: Duration = Duration::from_micros(1);
/// After so long a source that has nothing is asked again at first, and later less often.
const ASK_AFTER: Duration = Duration::from_millis(1);
const ASK_AFTER_MAX: Duration = Duration::from_millis(20);
/// A source without end that gave fewer events than this gets its next turn after so long.
const GATHERED_MIN: u64 = 256;
const GATHER: Duration = Duration::from_millis(5);

/// Memory is counted after so many batches, and at the end of an epoch.
const ACCOUNT_EVERY: u64 = 32;

/// Everything that a partition works with.
pub(crate) struct ScanPartition {
    pub(crate) stage: StageId,
    /// Its number among the partitions of its scan.
    pub(crate) number: u32,
    /// Its number among all partitions of all scans.
    pub(crate) source: usize,
    pub(crate) reader: Box<dyn SourceReader>,
    pub(crate) operator: ScanOperator,
    pub(crate) control: Arc<Control>,
    pub(crate) groups: Arc<FunctionGroups>,
    pub(crate) driver: Mailbox,
    pub(crate) progress: Arc<Progress>,
    /// Its own counters.
    pub(crate) counters: Arc<ScanProgress>,
    /// Hears of partitions that come to be.
    pub(crate) growing: Growing,
    pub(crate) memory: Arc<Memory>,
    /// Snapshots of the query, if there are any: they hear how long the end of an epoch took.
    pub(crate) snapshots: Option<Arc<Snapshotting>>,
    pub(crate) instants: Arc<Instants>,
    /// How far the others are, if it matters.
    pub(crate) standings: Option<Arc<Standings>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the source may become idle, so that the time matters.
    pub(crate) may_idle: bool,
    pub(crate) limits: ScanLimits,
    /// The recorded epochs that it reads again first.
    pub(crate) again: Again,
    /// Behind which epoch it begins.
    pub(crate) behind: Epoch,
    /// Whether it had ended there.
    pub(crate) ended: bool,
    /// Whether its rows are let gather, because they come without end.
    pub(crate) gathers: bool,
    /// Whether the sink takes more rows now.
    pub(crate) room: Option<Room>,
}

/// Bounds of one partition's part of an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanLimits {
    pub(crate) batch_rows: usize,
    pub(crate) min_events: u64,
    pub(crate) max_events: u64,
}

/// Bytes of the rows that wait for the end of an epoch; with more, it takes no others.
const GATHERED_MAX: usize = 64 << 20;

/// A partition that is being read.
pub(crate) struct Filling {
    scan: ScanPartition,
    epoch: Epoch,
    events: u64,
    /// The rows that wait for its end are many.
    full: bool,
    told_data: bool,
    told_enough: bool,
    told_waits: bool,
    /// It rests below where the others are, and an epoch was asked for that takes it there.
    told_behind: bool,
    /// Its source was told to have so many partitions.
    told_partitions: usize,
    /// It is where a recorded epoch ended.
    arrived: bool,
    ended: bool,
    /// For how many microseconds it could not read: they count for no idleness.
    blocked: i64,
    retained: Retained,
    batches: u64,
    /// When it had its last turn, if it could not read then.
    unread_since: Option<EventTime>,
    /// After so long the source is asked again, if it has nothing.
    ask_after: Duration,
    /// CPU time of the turns so far, and the thread's when this one began.
    cpu: Duration,
    turn_began: Duration,
    /// CPU time at the beginning of the epoch: the turns' without the generator's, but with what members used in them.
    cpu_before: Duration,
}

impl ScanPartition {
    /// At the beginning of its first epoch.
    pub(crate) fn begin(mut self) -> Filling {
        let ended = self.ended;
        if ended {
            self.operator.end();
        }
        let filling = Filling {
            epoch: self.behind.next(),
            scan: self,
            events: 0,
            full: false,
            told_data: false,
            told_enough: false,
            told_waits: false,
            told_behind: false,
            told_partitions: 0,
            arrived: false,
            ended,
            blocked: 0,
            retained: Retained::default(),
            batches: 0,
            unread_since: None,
            ask_after: ASK_AFTER,
            cpu: Duration::ZERO,
            turn_began: Duration::ZERO,
            cpu_before: Duration::ZERO,
        };
        if ended {
            // It has no turns in which others would hear of it.
            filling.publish();
        }
        filling
    }
}

impl Filling {
    /// Does what the driver wants next, once.
    ///
    /// # Errors
    /// The source, a value, or a member that ran in this turn failed.
    pub(crate) fn turn(&mut self) -> Result<Next> {
        self.turn_began = thread_cpu();
        let next = self.obey();
        self.cpu = self.cpu_so_far();
        next
    }

    fn obey(&mut self) -> Result<Next> {
        if let Some(before) = self.unread_since.take() {
            self.blocked_since(before);
        }
        let again = self.scan.again.is_under_way();
        let may_read = if again { !self.arrived } else { !self.ended && !self.is_full() };
        Ok(match self.scan.control.next(self.epoch, may_read) {
            None => self.pause(Next::WhenWoken),
            Some(Order::Read) if again => self.read_again()?,
            Some(Order::Read) if self.is_ahead() => {
                self.waits();
                self.pause(Next::After(ASK_AFTER))
            }
            Some(Order::Cut) if !self.has_room() => {
                let next = self.later();
                self.pause(next)
            }
            Some(Order::Read) => self.read()?,
            Some(Order::Cut) => {
                self.ask_after = ASK_AFTER;
                self.seal()?;
                Next::Again
            }
            Some(Order::Replay(epochs)) => {
                self.replay(&epochs)?;
                Next::Again
            }
            Some(Order::Stop) => {
                self.publish();
                Next::Never
            }
        })
    }

    /// Whether the epoch takes no more rows.
    fn is_full(&self) -> bool {
        self.full || self.events >= self.scan.limits.max_events
    }

    /// The time until the next turn does not count as being idle: the partition might have had rows.
    fn pause(&mut self, next: Next) -> Next {
        self.unread_since = Some(self.now());
        next
    }

    /// The next turn comes after a while, the longer the more often there was nothing to do.
    fn later(&mut self) -> Next {
        let wait = self.ask_after;
        self.ask_after = (wait * 2).min(ASK_AFTER_MAX);
        Next::After(wait)
    }

    /// Whether the sink takes an epoch without having it wait.
    fn has_room(&self) -> bool {
        self.scan.room.as_ref().is_none_or(|room| room())
    }

    /// The time, without that in which the partition could not be read. Where idleness does not matter, none.
    fn now(&self) -> EventTime {
        let now = || EventTime(self.scan.clock.now().0.saturating_sub(self.blocked));
        if self.scan.may_idle { now() } else { EventTime::MIN }
    }

    fn blocked_since(&mut self, before: EventTime) {
        self.blocked = self.blocked.saturating_add(self.now().0.saturating_sub(before.0));
    }

    /// How many events a read asks for.
    fn wanted(&self) -> u64 {
        let left = self.scan.limits.max_events.saturating_sub(self.events);
        left.min(self.scan.limits.batch_rows as u64)
    }

    /// Reads on towards the end of a recorded epoch. Whether others are behind and how full the epoch is was decided before.
    fn read_again(&mut self) -> Result<Next> {
        let at = self.scan.reader.offset();
        match self.scan.again.way(self.events, self.wanted(), self.ended, &at)? {
            Way::There => {
                self.arrived = true;
                self.tell(Input::Full { source: self.scan.source, epoch: self.epoch });
                Ok(Next::WhenWoken)
            }
            Way::Read(events) => {
                let read = self.scan.reader.read(usize::try_from(events).unwrap_or(usize::MAX), READ_WAIT)?;
                if matches!(read, Read::Pending) {
                    if self.scan.reader.comes_later() {
                        self.scan.again.waits(self.events, self.ended, &at)?;
                        return Ok(self.later());
                    }
                    self.scan.again.nothing(self.events, &at)?;
                }
                self.ask_after = ASK_AFTER;
                let now = self.now();
                self.take(read, now)?;
                self.publish();
                Ok(Next::Again)
            }
        }
    }

    fn read(&mut self) -> Result<Next> {
        if let Some(count) = self.scan.reader.partitions().filter(|count| *count > self.told_partitions) {
            if self.scan.growing.grown(self.scan.stage, count)? {
                self.told_partitions = count;
            }
        }
        let wanted = usize::try_from(self.wanted()).unwrap_or(usize::MAX);
        let read = self.scan.reader.read(wanted, READ_WAIT)?;
        let now = self.now();
        let next = match read {
            Read::Pending => self.later(),
            // Many small batches would cost more than few large ones.
            Read::Rows(ref batch) if self.scan.gathers && batch.events < GATHERED_MIN.min(wanted as u64) => {
                self.ask_after = ASK_AFTER;
                Next::After(GATHER)
            }
            _ => {
                self.ask_after = ASK_AFTER;
                Next::Again
            }
        };
        self.take(read, now)?;
        let is_news = self.scan.operator.splits().find_idle(now);
        // An epoch that was cut while others still read, or told that they rest, left it where they had been.
        let is_behind = self.is_behind() && !std::mem::replace(&mut self.told_behind, true);
        self.told_waits &= !(is_news || is_behind);
        // Of one that rests since a former process the driver does not know.
        if is_news || self.scan.operator.is_idle() {
            self.waits();
        }
        self.publish();
        Ok(next)
    }

    /// Takes in what a read gave.
    fn take(&mut self, read: Read, now: EventTime) -> Result<()> {
        match read {
            Read::Rows(batch) => self.absorb(batch)?,
            Read::Split(change) => self.scan.operator.splits().change(change, now),
            Read::Pending if self.scan.reader.has_rows() => self.scan.operator.splits().wake(0),
            Read::Pending => self.scan.operator.splits().wait(now),
            Read::End => {
                self.ended = true;
                self.scan.operator.end();
                self.tell(Input::Ended { source: self.scan.source, epoch: self.epoch });
            }
        }
        Ok(())
    }

    /// Whether it rests, and others have come further.
    fn is_behind(&self) -> bool {
        let behind = |standings: &Arc<Standings>| standings.is_behind(self.scan.source);
        self.scan.operator.is_idle() && self.scan.standings.as_ref().is_some_and(behind)
    }

    /// Whether others of its group have to catch up first.
    fn is_ahead(&self) -> bool {
        let ahead = |standings: &Arc<Standings>| standings.is_ahead(self.scan.source);
        self.scan.standings.as_ref().is_some_and(ahead)
    }

    /// Tells the driver once that epochs need not wait for this partition.
    fn waits(&mut self) {
        if !std::mem::replace(&mut self.told_waits, true) {
            self.tell(Input::Waits { source: self.scan.source, epoch: self.epoch });
            (self.told_data, self.told_enough) = (false, false);
        }
    }

    fn absorb(&mut self, batch: SourceBatch) -> Result<()> {
        if batch.events == 0 && batch.rows.num_rows() == 0 {
            return Ok(());
        }
        let (split, events) = (batch.split, batch.events);
        self.scan.operator.begin(self.epoch, self.instant());
        self.told_waits = false;
        self.scan.operator.absorb(batch)?;
        self.scan.reader.passed(split, self.scan.operator.watermark_of(split));
        self.batches += 1;
        if self.batches.is_multiple_of(ACCOUNT_EVERY) {
            self.account()?;
        }
        self.events += events;
        self.full |= self.scan.operator.gathered_bytes() >= GATHERED_MAX;
        self.counters().events.fetch_add(events, Ordering::Relaxed);
        if self.scan.again.is_under_way() {
            return Ok(());
        }
        let (source, epoch) = (self.scan.source, self.epoch);
        let enough = self.events >= self.scan.limits.min_events;
        if !self.told_data || enough && !self.told_enough {
            (self.told_data, self.told_enough) = (true, enough);
            self.tell(Input::Data { source, epoch, enough });
        }
        if self.is_full() {
            self.tell(Input::Full { source, epoch });
        }
        Ok(())
    }

    fn seal(&mut self) -> Result<()> {
        let committed = self.scan.progress.committed_epoch();
        self.retained.forget(committed);
        let instant = self.instant();
        self.scan.operator.begin(self.epoch, instant);
        let ScanPartition { operator, again, standings, .. } = &mut self.scan;
        operator.splits().settle(again.mark(), standings.as_deref());
        let began = self.scan.snapshots.as_ref().map(|snapshots| (snapshots, Instant::now()));
        let outgoing = self.scan.operator.seal(self.epoch)?;
        if let Some((snapshots, began)) = began {
            snapshots.flushed(self.epoch, began.elapsed());
        }
        let cpu = self.function_cpu();
        self.scan.progress.invoked(cpu.saturating_sub(self.cpu_before));
        self.publish();
        let mark = SourceMark {
            offset: self.scan.reader.offset(),
            watermark: self.scan.operator.watermark(),
            events: self.events,
            idle: self.scan.operator.is_idle(),
            ended: self.ended,
        };
        self.scan.again.seal(self.epoch, &mark)?;
        self.arrived = false;
        // Before the payloads, so that the driver hears of the mark before it hears of the commit.
        self.tell(Input::Sealed { source: self.scan.source, epoch: self.epoch, mark, instant });
        self.retained.keep(self.epoch, outgoing.clone());
        self.account()?;
        self.epoch = self.epoch.next();
        (self.events, self.full) = (0, false);
        (self.told_data, self.told_enough, self.told_behind) = (false, false, false);
        self.send(outgoing)?;
        self.cpu_before = self.function_cpu();
        self.publish();
        Ok(())
    }

    /// The epoch's instant of processing time.
    fn instant(&self) -> EventTime {
        self.scan.instants.of(self.epoch, self.scan.progress.committed_epoch())
    }

    fn replay(&mut self, epochs: &[Epoch]) -> Result<()> {
        for epoch in epochs {
            let outgoing = self.retained.of(*epoch).to_vec();
            if !outgoing.is_empty() {
                self.scan.progress.replayed();
                self.send(outgoing)?;
            }
        }
        self.publish();
        Ok(())
    }

    /// Runs the receivers, which may block, sinks above all.
    fn send(&self, outgoing: Vec<Outgoing>) -> Result<()> {
        blocking(|| self.scan.groups.send(outgoing))
    }

    fn account(&self) -> Result<()> {
        let ScanPartition { stage, number, operator, memory, .. } = &self.scan;
        memory.hold(*stage, *number as usize, operator.bytes() + self.retained.bytes())
    }

    /// CPU time of the turns so far, this one included.
    fn cpu_so_far(&self) -> Duration {
        self.cpu + thread_cpu().saturating_sub(self.turn_began)
    }

    /// CPU time of the turns without the generator: a function platform bills the function, not the outside world.
    fn function_cpu(&self) -> Duration {
        self.cpu_so_far().saturating_sub(self.scan.reader.generator_cpu())
    }

    /// Shows where it stands.
    pub(crate) fn publish(&self) {
        let counters = self.counters();
        counters.late_rows.store(self.scan.operator.late_rows(), Ordering::Relaxed);
        counters.skipped_rows.store(self.scan.reader.skipped(), Ordering::Relaxed);
        counters.set_watermark(self.scan.operator.running_watermark(), self.ended);
        counters.generator_cpu.set(self.scan.reader.generator_cpu());
        counters.cpu.set(self.cpu_so_far());
        if let Some(standings) = &self.scan.standings {
            let operator = &self.scan.operator;
            standings.tell(self.scan.source, operator.running_watermark(), operator.is_idle(), self.ended);
        }
    }

    fn counters(&self) -> &ScanProgress {
        &self.scan.counters
    }

    fn tell(&self, input: Input) {
        self.scan.driver.send(input);
    }
}
