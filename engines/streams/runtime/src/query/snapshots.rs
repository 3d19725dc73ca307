//! Makes snapshots of a running query, beside it: members hand their states over and go on; a thread for each snapshot writes them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_streams_api::Result;
use savanna_streams_api::handle::QueryStatus;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_model::time::EventTime;

use super::drivers::panicked;
use super::forgetting::Forgetting;
use super::handed_out::Charge;
use super::memory::Memory;
use super::pauses::Pauses;
use crate::driver::EpochRecord;
use crate::error::broken;
use crate::member::Snapshots;
use crate::records::EpochLog;
use crate::snapshot::{self, BATCH_BYTES, Chains, Due, Manifest, MemberPart, Schedule, SnapshotStore, State, Step};

/// What snapshots are of, and where they go.
pub(super) struct Of {
    pub(super) query: QueryId,
    pub(super) due: Due,
    pub(super) store: Arc<dyn SnapshotStore>,
    pub(super) log: Arc<dyn EpochLog>,
    /// The sources that want to know what nobody needs any more.
    pub(super) forgetting: Arc<Forgetting>,
    /// Where what they hold is counted.
    pub(super) memory: Arc<Memory>,
    /// Results reach back over a bounded time, so that records which they need not go anyway.
    pub(super) is_bounded: bool,
    /// Of all stages.
    pub(super) signatures: Vec<String>,
    /// How many members the groups have that hold state.
    pub(super) members: BTreeMap<StageId, u16>,
    /// Epochs up to this one were recorded by former processes: there are no snapshots of them.
    pub(super) recorded: Epoch,
    /// The instant of the last epoch that had rows.
    pub(super) rows_at: EventTime,
    pub(super) interval: Duration,
    /// The epoch of the snapshot that counts.
    pub(super) counts: Epoch,
}

/// The snapshots of a running query.
pub(crate) struct Snapshotting {
    of: Arc<Of>,
    began: Instant,
    making: Mutex<Making>,
    /// The parts of the snapshot that counts, of which the next one says what has changed. Nothing if that is not known: then it is whole.
    chains: Mutex<Arc<Chains>>,
    /// What is known of their states.
    known: Mutex<Charge>,
    counts: AtomicU64,
    bytes: AtomicU64,
    written: AtomicU64,
    failed: AtomicU64,
    pauses: Pauses,
    /// The query is over: what is not written yet is given up.
    ends: AtomicBool,
}

struct Making {
    schedule: Schedule,
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// The record of the epoch, once all partitions have sealed it, and the instant of the last epoch with rows then.
    record: Option<(EpochRecord, EventTime)>,
    rows_at: EventTime,
}

enum Work {
    Write(Epoch, MemberPart, Result<(State, Charge)>),
    /// The sinks hold the epoch, and all parts were written before.
    Switch,
}

/// What became of a snapshot.
#[derive(Debug)]
enum Made {
    Nothing,
    /// It counts. Records that results need no more go anyway, and those behind which they reach lead back, too.
    BesideRecords,
    /// It counts, and records before its own are of no use.
    InsteadOfRecords(Box<EpochRecord>),
}

impl fmt::Debug for Snapshotting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshotting").field("query", &self.of.query).finish_non_exhaustive()
    }
}

impl Snapshotting {
    pub(super) fn new(of: Of) -> Arc<Self> {
        let parts = of.members.iter().flat_map(|(stage, members)| (0..*members).map(|shuffle| (*stage, shuffle)));
        let schedule = Schedule::new(of.interval, parts);
        let counts = AtomicU64::new(of.counts.0);
        let making = Making { schedule, work: None, thread: None, record: None, rows_at: of.rows_at };
        let known = Mutex::new(Charge::bytes(&of.memory, 0));
        Arc::new(Self {
            of: Arc::new(of),
            began: Instant::now(),
            making: Mutex::new(making),
            chains: Mutex::default(),
            known,
            counts,
            bytes: AtomicU64::new(0),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            pauses: Pauses::default(),
            ends: AtomicBool::new(false),
        })
    }

    /// An epoch is about to be cut.
    pub(super) fn cut(self: &Arc<Self>, epoch: Epoch) {
        let mut making = self.making.lock();
        if epoch <= self.of.recorded || !making.schedule.cut(epoch, self.began.elapsed()) {
            return;
        }
        // That of the last snapshot has ended.
        drop(making.thread.take());
        let (work, comes) = channel();
        let writing = Arc::clone(self);
        match thread::Builder::new().name("query-snapshot".into()).spawn(move || writing.run(epoch, &comes)) {
            Ok(thread) => {
                (making.work, making.thread, making.record) = (Some(work), Some(thread), None);
                self.of.due.set(epoch);
            }
            Err(error) => {
                tracing::warn!(query = %self.of.query, %error, "no thread could be started for a snapshot");
                making.schedule.over(self.began.elapsed());
            }
        }
    }

    /// All partitions have sealed an epoch.
    pub(super) fn sealed(&self, record: &EpochRecord) {
        let mut making = self.making.lock();
        if record.sources.iter().any(|mark| mark.events > 0) {
            making.rows_at = making.rows_at.max(record.processing_time);
        }
        if self.is_due(record.epoch) {
            // The snapshot counts only if the sinks hold its epoch.
            let record = EpochRecord { committed: record.epoch, ..record.clone() };
            making.record = Some((record, making.rows_at));
        }
    }

    /// All sinks hold an epoch.
    pub(super) fn held(&self, epoch: Epoch) {
        let mut making = self.making.lock();
        if making.schedule.held(epoch) != Step::Wait
            && let Some(work) = &making.work
        {
            // A thread that has ended has given the snapshot up.
            let _ = work.send(Work::Switch);
        }
    }

    /// The query is over. A snapshot that is not complete never counts, and what is left of it is not waited for.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.of.store.give_up();
        let thread = {
            let mut making = self.making.lock();
            making.work = None;
            making.thread.take()
        };
        if let Some(thread) = thread {
            // Its panics were caught.
            let _ = thread.join();
        }
    }

    /// Which snapshot counts, in words.
    pub(super) fn words(&self) -> String {
        let counts = self.counts.load(Ordering::Relaxed);
        let failed = match self.failed.load(Ordering::Relaxed) {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        if counts == 0 { format!("none yet{failed}") } else { format!("epoch {counts}{failed}") }
    }

    /// Shows where it stands.
    pub(super) fn fill(&self, status: &mut QueryStatus) {
        status.more.extend(self.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure)));
    }

    fn figures(&self) -> BTreeMap<&'static str, f64> {
        let counters = [
            ("snapshot_epoch", &self.counts),
            ("snapshot_bytes", &self.bytes),
            ("snapshot_written_bytes", &self.written),
            ("snapshots_failed", &self.failed),
        ];
        let counters = counters.map(|(name, figure)| (name, figure.load(Ordering::Relaxed) as f64));
        let held = ("snapshot_held_bytes", self.of.memory.handed_out().bytes() as f64);
        counters.into_iter().chain([held]).chain(self.pauses.figures()).collect()
    }

    /// A source partition has put together what it sends of an epoch, which took so long.
    pub(super) fn flushed(&self, epoch: Epoch, took: Duration) {
        if self.is_due(epoch) {
            self.pauses.flushed(epoch, took);
        }
    }

    /// Makes the snapshot of an epoch.
    fn run(&self, epoch: Epoch, work: &Receiver<Work>) {
        let made = catch_unwind(AssertUnwindSafe(|| self.make(epoch, work)))
            .unwrap_or_else(|panic| Err(panicked("the thread of a snapshot", panic.as_ref())));
        self.of.due.set(Epoch::ZERO);
        // What was to be known of one that was given up is not.
        self.knows(None);
        match made {
            Ok(Made::InsteadOfRecords(record)) => {
                self.of.log.forget_before(epoch.next());
                self.of.forgetting.snapshot(&record);
            }
            Ok(Made::BesideRecords) => {}
            Ok(Made::Nothing) => self.of.store.tidy(),
            Err(_) if self.ends.load(Ordering::Acquire) => self.of.store.tidy(),
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(query = %self.of.query, %epoch, %error, "a snapshot could not be made; the query goes on, and its records stay");
                self.of.store.tidy();
            }
        }
        // Only now may the next one begin: tidying would take its parts away.
        let mut making = self.making.lock();
        making.work = None;
        making.schedule.over(self.began.elapsed());
    }

    /// No snapshot counts if the query ends first. One that is given up leaves nothing behind: what was to be in it is in the next one.
    fn make(&self, epoch: Epoch, work: &Receiver<Work>) -> Result<Made> {
        let (before, mut next, mut written) = (Arc::clone(&self.chains.lock()), Chains::default(), 0);
        for work in work {
            let is_complete = match work {
                Work::Write(of, _, _) if of != epoch => {
                    return Err(broken(format!("a state of epoch {of} came to the snapshot of epoch {epoch}")));
                }
                Work::Write(..) if self.ends.load(Ordering::Acquire) => return Ok(Made::Nothing),
                Work::Write(_, member, state) => {
                    // Both go when the part is written.
                    let (state, _charge) = state?;
                    written += self.write(epoch, member, &state, &before, &mut next)?;
                    self.knows(Some(&next));
                    self.making.lock().schedule.written(epoch, member) != Step::Wait
                }
                Work::Switch => true,
            };
            if is_complete {
                return self.switch(epoch, next, written);
            }
        }
        Ok(Made::Nothing)
    }

    /// Writes a member's part of the next snapshot. Tells how many bytes that took.
    fn write(
        &self,
        epoch: Epoch,
        member: MemberPart,
        state: &State,
        before: &Chains,
        next: &mut Chains,
    ) -> Result<u64> {
        let (stage, shuffle) = member;
        let part = before.next(member, self.of.members.get(&stage).copied().unwrap_or_default(), state);
        let mut write = |out: &mut dyn io::Write| {
            let encoded = Charge::bytes(&self.of.memory, state.bytes().min(BATCH_BYTES));
            let (memory, gathers) = (&*self.of.memory, self.of.store.gathers());
            part.write(&mut While { not: &self.ends, memory, encoded, gathers, unseen: BATCH_BYTES, out })
        };
        let file = self.of.store.put(epoch, stage, shuffle, &mut write)?;
        let bytes = file.bytes;
        next.add(part, file);
        Ok(bytes)
    }

    /// What is known now: of the snapshot that counts, and of the next one, if there is one.
    fn knows(&self, next: Option<&Chains>) {
        let bytes = self.chains.lock().bytes() + next.map_or(0, Chains::bytes);
        self.known.lock().set(bytes);
    }

    fn switch(&self, epoch: Epoch, next: Chains, written: u64) -> Result<Made> {
        let record = self.making.lock().record.take();
        let (record, rows_at) = record.ok_or_else(|| broken(format!("epoch {epoch} is held and was never sealed")))?;
        let (query, signatures) = (self.of.query.clone(), self.of.signatures.clone());
        let manifest = Manifest { query, record, rows_at, signatures, parts: next.parts().cloned().collect() };
        let bytes = manifest.files().map(|file| file.bytes).sum();
        // What would be refused when it is read counts never.
        snapshot::check(&manifest, &self.of.signatures, &self.of.members)?;
        // If this fails, nobody knows which one counts, and so which files stay: the next one is whole.
        *self.chains.lock() = Arc::default();
        self.of.store.switch(&manifest)?;
        *self.chains.lock() = Arc::new(next);
        self.counts.store(epoch.0, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.written.store(written, Ordering::Relaxed);
        // How far results reach back is not known once a partition has ended.
        let has_ended = manifest.record.sources.iter().any(|mark| mark.ended);
        let record = Box::new(manifest.record);
        let leads_back = self.of.is_bounded && !has_ended && !self.of.store.spares_records();
        Ok(if leads_back { Made::BesideRecords } else { Made::InsteadOfRecords(record) })
    }
}

/// Writes while the query is not over, and holds no more than it may.
struct While<'a> {
    not: &'a AtomicBool,
    memory: &'a Memory,
    /// A batch, and all that was written where the store keeps it in memory.
    encoded: Charge,
    gathers: bool,
    /// Bytes since memory was looked at. At first it is at once.
    unseen: usize,
    out: &'a mut dyn io::Write,
}

impl io::Write for While<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.not.load(Ordering::Acquire) {
            return Err(io::Error::other("the query is over"));
        }
        if self.unseen >= BATCH_BYTES {
            self.unseen = 0;
            if let Some(above) = self.memory.with_snapshots_above_limit() {
                return Err(io::Error::other(above.to_string()));
            }
        }
        let written = self.out.write(bytes)?;
        self.unseen += written;
        if self.gathers {
            self.encoded.add(written);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Snapshots for Snapshotting {
    fn is_due(&self, epoch: Epoch) -> bool {
        self.of.due.is(epoch)
    }

    fn begins(&self, epoch: Epoch, stage: StageId, shuffle: u16) {
        self.pauses.begins(epoch, (stage, shuffle), self.began.elapsed());
    }

    fn hand_over(&self, epoch: Epoch, stage: StageId, shuffle: u16, state: &mut dyn FnMut() -> Result<State>) {
        if !self.making.lock().schedule.takes(epoch) {
            // It was given up. What the state costs is saved.
            return;
        }
        let asked = self.began.elapsed();
        let state = state();
        self.pauses.handed_over(epoch, (stage, shuffle), asked, self.began.elapsed());
        let making = self.making.lock();
        // The snapshot for which it was asked may have been given up, and the next one begun, while the state was computed.
        if let Some(work) = making.work.as_ref().filter(|_| making.schedule.takes(epoch)) {
            let state = state.map(|state| {
                let charge = Charge::of(&self.of.memory, &state);
                (state, charge)
            });
            // A thread that has ended has given the snapshot up.
            let _ = work.send(Work::Write(epoch, (stage, shuffle), state));
        }
    }
}

#[cfg(test)]
mod tests;
