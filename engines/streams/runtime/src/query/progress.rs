//! Counters of a running query, written by its threads and read by whoever asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use savanna_streams_api::handle::QueryStatus;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::time::EventTime;

use crate::cpu::Gauge;

/// The counters.
#[derive(Debug)]
pub(crate) struct Progress {
    committed: AtomicU64,
    result_rows: AtomicU64,
    windows: AtomicU64,
    /// Ends of windows that were closed in epochs that are not committed. Members of a group close the same windows.
    closing: Mutex<BTreeMap<Epoch, BTreeSet<i64>>>,
    invocations: AtomicU64,
    billed_ms: AtomicU64,
    began: Instant,
    /// From the beginning until the functions of a host were there, and until the first of them had answered.
    functions_there: OnceLock<Duration>,
    first_answer: OnceLock<Duration>,
    replays: AtomicU64,
    /// One per source partition.
    scans: RwLock<Vec<Arc<ScanProgress>>>,
    pub(crate) driver_cpu: Gauge,
    /// Whether the tables of look-ups are still being read, and their rows so far.
    loading: AtomicBool,
    lookup_rows: AtomicU64,
}

/// The counters of one source partition.
#[derive(Debug)]
pub(crate) struct ScanProgress {
    pub(crate) events: AtomicU64,
    pub(crate) late_rows: AtomicU64,
    pub(crate) skipped_rows: AtomicU64,
    watermark: AtomicI64,
    ended: AtomicBool,
    pub(crate) cpu: Gauge,
    pub(crate) generator_cpu: Gauge,
}

impl Progress {
    pub(crate) fn new(scans: usize, loading: bool) -> Self {
        Self {
            committed: AtomicU64::new(0),
            result_rows: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            closing: Mutex::new(BTreeMap::new()),
            invocations: AtomicU64::new(0),
            billed_ms: AtomicU64::new(0),
            began: Instant::now(),
            functions_there: OnceLock::new(),
            first_answer: OnceLock::new(),
            replays: AtomicU64::new(0),
            scans: RwLock::new((0..scans).map(|_| Arc::default()).collect()),
            driver_cpu: Gauge::default(),
            loading: AtomicBool::new(loading),
            lookup_rows: AtomicU64::new(0),
        }
    }

    /// The counters of a source partition; one that joins has none before.
    pub(crate) fn scan(&self, source: usize) -> Arc<ScanProgress> {
        let mut scans = self.scans.write();
        while scans.len() <= source {
            scans.push(Arc::default());
        }
        Arc::clone(&scans[source])
    }

    /// The query begins behind an epoch.
    pub(crate) fn begin_behind(&self, epoch: Epoch) {
        self.committed.fetch_max(epoch.0, Ordering::Release);
    }

    /// Rows of tables for look-ups.
    pub(crate) fn loaded(&self, rows: u64) {
        self.lookup_rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// All such tables are there.
    pub(crate) fn all_loaded(&self) {
        self.loading.store(false, Ordering::Release);
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(Ordering::Acquire)
    }

    /// The newest epoch in the sink.
    pub(crate) fn committed_epoch(&self) -> Epoch {
        Epoch(self.committed.load(Ordering::Acquire))
    }

    pub(crate) fn committed(&self, epoch: Epoch, rows: usize) {
        self.result_rows.fetch_add(rows as u64, Ordering::Relaxed);
        let mut closing = self.closing.lock();
        let open = closing.split_off(&epoch.next());
        let closed: usize = std::mem::replace(&mut *closing, open).values().map(BTreeSet::len).sum();
        self.windows.fetch_add(closed as u64, Ordering::Relaxed);
        self.committed.fetch_max(epoch.0, Ordering::Release);
    }

    pub(crate) fn windows_closed(&self, epoch: Epoch, ends: impl Iterator<Item = i64>) {
        let mut ends = ends.peekable();
        if ends.peek().is_some() {
            self.closing.lock().entry(epoch).or_default().extend(ends);
        }
    }

    /// The windows that were closed in epochs that are not committed, which somebody else counts.
    pub(crate) fn take_closed(&self) -> BTreeMap<Epoch, BTreeSet<i64>> {
        std::mem::take(&mut *self.closing.lock())
    }

    /// All functions of a host are there.
    pub(crate) fn deployed(&self) {
        self.functions_there.get_or_init(|| self.began.elapsed());
    }

    /// A function of a host has answered.
    pub(crate) fn answered(&self) {
        self.first_answer.get_or_init(|| self.began.elapsed());
    }

    /// One execution of a function, billed in whole milliseconds.
    pub(crate) fn invoked(&self, cpu: Duration) {
        let billed_ms = cpu.as_nanos().div_ceil(1_000_000).max(1);
        self.invocations.fetch_add(1, Ordering::Relaxed);
        self.billed_ms.fetch_add(billed_ms as u64, Ordering::Relaxed);
    }

    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Ordering::Relaxed);
    }

    /// The lowest watermark of the partitions that have not ended, or the highest of all if all have.
    fn watermark(scans: &[Arc<ScanProgress>]) -> Option<i64> {
        let watermark = |scan: &Arc<ScanProgress>| scan.watermark.load(Ordering::Relaxed);
        let running = scans.iter().filter(|scan| !scan.ended.load(Ordering::Relaxed)).map(watermark).min();
        running.or_else(|| scans.iter().map(watermark).max()).filter(|watermark| *watermark > i64::MIN)
    }

    pub(crate) fn fill(&self, status: &mut QueryStatus) {
        let scans = self.scans.read();
        let sum = |of: fn(&ScanProgress) -> &AtomicU64| -> u64 {
            scans.iter().map(|scan| of(scan).load(Ordering::Relaxed)).sum()
        };
        let generator: Duration = scans.iter().map(|scan| scan.generator_cpu.get()).sum();
        let cpu: Duration = scans.iter().map(|scan| scan.cpu.get()).sum::<Duration>() + self.driver_cpu.get();
        status.events = sum(|scan| &scan.events);
        status.late_rows = sum(|scan| &scan.late_rows);
        status.skipped_rows = sum(|scan| &scan.skipped_rows);
        status.result_rows = self.result_rows.load(Ordering::Relaxed);
        status.windows = self.windows.load(Ordering::Relaxed);
        status.epoch = self.committed_epoch().0;
        status.watermark = Self::watermark(&scans);
        status.cpu_seconds = cpu.as_secs_f64();
        status.generator_cpu_seconds = generator.as_secs_f64();
        status.invocations = self.invocations.load(Ordering::Relaxed);
        status.billed_ms = self.billed_ms.load(Ordering::Relaxed);
        for (name, time) in [("deployed_seconds", &self.functions_there), ("first_answer_seconds", &self.first_answer)]
        {
            if let Some(time) = time.get() {
                status.more.insert(name.into(), time.as_secs_f64());
            }
        }
        status.more.insert("replays".into(), self.replays.load(Ordering::Relaxed) as f64);
        status.more.insert("lookup_rows".into(), self.lookup_rows.load(Ordering::Relaxed) as f64);
    }
}

impl Default for ScanProgress {
    fn default() -> Self {
        Self {
            events: AtomicU64::new(0),
            late_rows: AtomicU64::new(0),
            skipped_rows: AtomicU64::new(0),
            watermark: AtomicI64::new(i64::MIN),
            ended: AtomicBool::new(false),
            cpu: Gauge::default(),
            generator_cpu: Gauge::default(),
        }
    }
}

impl ScanProgress {
    pub(crate) fn set_watermark(&self, watermark: EventTime, ended: bool) {
        self.watermark.store(watermark.0, Ordering::Relaxed);
        self.ended.store(ended, Ordering::Relaxed);
    }
}
