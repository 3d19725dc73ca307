//! The thread of one source partition: reads, computes, seals epochs, sends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::source::{Read, SourceBatch, SourceReader};
use savanna_streams_model::time::EventTime;

use super::control::{Control, Order};
use super::drivers::Mailbox;
use super::groups::FunctionGroups;
use super::memory::Memory;
use super::progress::{Progress, ScanProgress};
use super::standings::Standings;
use crate::clock::{Clock, Instants};
use crate::cpu::thread_cpu;
use crate::driver::{Input, SourceMark};
use crate::member::Retained;
use crate::scan::ScanOperator;

/// How long a read may wait: the delay of a cut or a cancellation when the source has nothing.
const READ_WAIT: Duration = Duration::from_millis(20);

/// Memory is counted after so many batches, and at the end of an epoch.
const ACCOUNT_EVERY: u64 = 32;

/// Everything the thread works with.
pub(crate) struct ScanThread {
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
    pub(crate) memory: Arc<Memory>,
    pub(crate) instants: Arc<Instants>,
    /// How far the others are, if it matters.
    pub(crate) standings: Option<Arc<Standings>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the source may become idle, so that the time matters.
    pub(crate) may_idle: bool,
    pub(crate) limits: ScanLimits,
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

/// A running thread's own state.
struct Filling {
    thread: ScanThread,
    epoch: Epoch,
    events: u64,
    /// The rows that wait for its end are many.
    full: bool,
    told_data: bool,
    told_enough: bool,
    told_waits: bool,
    ended: bool,
    /// For how many microseconds it could not read: they count for no idleness.
    blocked: i64,
    retained: Retained,
    batches: u64,
    /// CPU time at the beginning of the epoch: the thread's, the generator's, and what members used on this thread.
    cpu_before: Duration,
}

impl ScanThread {
    /// Runs until the driver stops it.
    ///
    /// # Errors
    /// The source, a value, or a member that ran on this thread failed.
    pub(crate) fn run(self) -> Result<()> {
        let mut filling = Filling {
            thread: self,
            epoch: Epoch::ZERO.next(),
            events: 0,
            full: false,
            told_data: false,
            told_enough: false,
            told_waits: false,
            ended: false,
            blocked: 0,
            retained: Retained::default(),
            batches: 0,
            cpu_before: Duration::ZERO,
        };
        let result = filling.run();
        filling.publish();
        result
    }
}

impl Filling {
    fn run(&mut self) -> Result<()> {
        loop {
            let may_read = !self.ended && !self.is_full();
            match self.next_order(may_read) {
                Order::Read if self.is_ahead() => self.pause(),
                Order::Read => self.read()?,
                Order::Cut => self.seal()?,
                Order::Replay(epochs) => self.replay(&epochs)?,
                Order::Stop => return Ok(()),
            }
        }
    }

    /// Whether the epoch takes no more rows.
    fn is_full(&self) -> bool {
        self.full || self.events >= self.thread.limits.max_events
    }

    /// Waits for an order. The time does not count as being idle: the partition might have had rows.
    fn next_order(&mut self, may_read: bool) -> Order {
        let asked_at = self.now();
        let order = self.thread.control.next(self.epoch, may_read);
        self.blocked_since(asked_at);
        order
    }

    /// The time, without that in which the partition could not be read. Where idleness does not matter, none.
    fn now(&self) -> EventTime {
        let now = || EventTime(self.thread.clock.now().0.saturating_sub(self.blocked));
        if self.thread.may_idle { now() } else { EventTime::MIN }
    }

    fn blocked_since(&mut self, before: EventTime) {
        self.blocked = self.blocked.saturating_add(self.now().0.saturating_sub(before.0));
    }

    fn read(&mut self) -> Result<()> {
        let left = self.thread.limits.max_events - self.events;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(self.thread.limits.batch_rows);
        let read = self.thread.reader.read(wanted, READ_WAIT)?;
        let now = self.now();
        match read {
            Read::Rows(batch) => self.absorb(batch)?,
            Read::Split(change) => self.thread.operator.splits().change(change, now),
            Read::Pending => self.thread.operator.splits().wait(now),
            Read::End => {
                self.ended = true;
                self.thread.operator.end();
                self.tell(Input::Ended { source: self.thread.source, epoch: self.epoch });
            }
        }
        if self.thread.operator.splits().find_idle(now) {
            self.told_waits = false;
            self.waits();
        }
        self.publish();
        Ok(())
    }

    /// Whether others of its group have to catch up first.
    fn is_ahead(&self) -> bool {
        let ahead = |standings: &Arc<Standings>| standings.is_ahead(self.thread.source);
        self.thread.standings.as_ref().is_some_and(ahead)
    }

    /// Lets the others catch up.
    fn pause(&mut self) {
        self.waits();
        let before = self.now();
        if let Some(standings) = &self.thread.standings {
            standings.wait(self.thread.source, READ_WAIT);
        }
        // Not to read is not to be idle.
        self.blocked_since(before);
    }

    /// Tells the driver once that epochs need not wait for this partition.
    fn waits(&mut self) {
        if !std::mem::replace(&mut self.told_waits, true) {
            self.tell(Input::Waits { source: self.thread.source, epoch: self.epoch });
            (self.told_data, self.told_enough) = (false, false);
        }
    }

    fn absorb(&mut self, batch: SourceBatch) -> Result<()> {
        if batch.events == 0 && batch.rows.num_rows() == 0 {
            return Ok(());
        }
        let (split, events) = (batch.split, batch.events);
        self.thread.operator.set_instant(self.instant());
        self.told_waits = false;
        self.thread.operator.absorb(batch)?;
        self.thread.reader.passed(split, self.thread.operator.watermark_of(split));
        self.batches += 1;
        if self.batches.is_multiple_of(ACCOUNT_EVERY) {
            self.account()?;
        }
        self.events += events;
        self.full |= self.thread.operator.gathered_bytes() >= GATHERED_MAX;
        self.counters().events.fetch_add(events, Ordering::Relaxed);
        let (source, epoch) = (self.thread.source, self.epoch);
        let enough = self.events >= self.thread.limits.min_events;
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
        let committed = self.thread.progress.committed_epoch();
        self.retained.forget(committed);
        let instant = self.instant();
        self.thread.operator.set_instant(instant);
        if self.thread.operator.is_idle()
            && let Some(standings) = &self.thread.standings
        {
            self.thread.operator.splits().raise(standings.watermark());
        }
        let outgoing = self.thread.operator.seal(self.epoch)?;
        let cpu = self.function_cpu();
        self.thread.progress.invoked(cpu.saturating_sub(self.cpu_before));
        self.publish();
        let mark = SourceMark {
            offset: self.thread.reader.offset(),
            watermark: self.thread.operator.watermark(),
            events: self.events,
            idle: self.thread.operator.is_idle(),
            ended: self.ended,
        };
        // Before the payloads, so that the driver hears of the mark before it hears of the commit.
        self.tell(Input::Sealed { source: self.thread.source, epoch: self.epoch, mark, instant });
        self.retained.keep(self.epoch, outgoing.clone());
        self.account()?;
        self.epoch = self.epoch.next();
        (self.events, self.full, self.told_data, self.told_enough) = (0, false, false, false);
        self.thread.groups.send(outgoing)?;
        self.cpu_before = self.function_cpu();
        self.publish();
        Ok(())
    }

    /// The epoch's instant of processing time.
    fn instant(&self) -> EventTime {
        self.thread.instants.of(self.epoch, self.thread.progress.committed_epoch())
    }

    fn replay(&mut self, epochs: &[Epoch]) -> Result<()> {
        for epoch in epochs {
            let outgoing = self.retained.of(*epoch).to_vec();
            if !outgoing.is_empty() {
                self.thread.progress.replayed();
                self.thread.groups.send(outgoing)?;
            }
        }
        self.publish();
        Ok(())
    }

    fn account(&self) -> Result<()> {
        let ScanThread { stage, number, operator, memory, .. } = &self.thread;
        memory.hold(*stage, *number as usize, operator.bytes() + self.retained.bytes())
    }

    /// CPU time of this thread without the generator: a function platform bills the function, not the outside world.
    fn function_cpu(&self) -> Duration {
        thread_cpu().saturating_sub(self.thread.reader.generator_cpu())
    }

    fn publish(&self) {
        let counters = self.counters();
        counters.late_rows.store(self.thread.operator.late_rows(), Ordering::Relaxed);
        counters.skipped_rows.store(self.thread.reader.skipped(), Ordering::Relaxed);
        counters.set_watermark(self.thread.operator.running_watermark(), self.ended);
        counters.generator_cpu.set(self.thread.reader.generator_cpu());
        counters.cpu.set(thread_cpu());
        if let Some(standings) = &self.thread.standings {
            let operator = &self.thread.operator;
            standings.tell(self.thread.source, operator.running_watermark(), operator.is_idle(), self.ended);
        }
    }

    fn counters(&self) -> &ScanProgress {
        &self.thread.progress.scans[self.thread.source]
    }

    fn tell(&self, input: Input) {
        self.thread.driver.send(input);
    }
}
