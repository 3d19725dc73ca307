//! What goes on in a tenant, for whoever watches many of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a tenant since its process began. Its thread writes them, anybody reads them.
#[derive(Debug, Default)]
pub struct Activity {
    sessions: AtomicU64,
    commits: AtomicU64,
    rollbacks: AtomicU64,
    cpu_micros: AtomicU64,
    log_bytes: AtomicU64,
    waits: AtomicU64,
    wakes: AtomicU64,
    memory_bytes: AtomicU64,
}

/// The counts at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open.
    pub sessions: u64,
    /// Transactions that were committed, those of single statements included.
    pub commits: u64,
    /// Transactions that were rolled back, for whatever reason.
    pub rollbacks: u64,
    /// Microseconds of its thread, and of others where its statements take long.
    pub cpu_micros: u64,
    /// Bytes that it has written to the log.
    pub log_bytes: u64,
    /// Waits of its statements: for a lock, or for rows that its storage has.
    pub waits: u64,
    /// How often it woke.
    pub wakes: u64,
    /// About how many bytes of memory its rows take.
    pub memory_bytes: u64,
}

impl Activity {
    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            sessions: read(&self.sessions),
            commits: read(&self.commits),
            rollbacks: read(&self.rollbacks),
            cpu_micros: read(&self.cpu_micros),
            log_bytes: read(&self.log_bytes),
            waits: read(&self.waits),
            wakes: read(&self.wakes),
            memory_bytes: read(&self.memory_bytes),
        }
    }

    /// It has used its thread for so long, and written so much to the log.
    pub fn spent(&self, cpu_micros: u64, log_bytes: u64) {
        self.cpu_micros.fetch_add(cpu_micros, Ordering::Relaxed);
        self.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
    }

    /// A statement waits.
    pub fn waited(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// It is awake.
    pub fn woke(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    /// Its rows take so much memory; nothing when it sleeps.
    pub fn takes(&self, memory_bytes: u64) {
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
    }

    pub(crate) fn has_sessions(&self, count: usize) {
        self.sessions.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rolled_back(&self) {
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
    }
}
