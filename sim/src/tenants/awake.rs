//! A tenant that is awake, flushed and evicted step by step as the host does it, so that anything can happen in between.

use std::{collections::BTreeMap, sync::Arc};

use savanna_journal::Lsn;
use savanna_tenants_host::{
    flushing::{Eviction, FlushRun, Step},
    policy::{Condition, Flush, Found},
};
use savanna_tenants_store::{
    database::Database,
    storage::{Home, StorageError},
};
use savanna_transaction::TxnId;
use tokio::runtime::Runtime;

/// Keys that are collected or evicted in a step.
const KEYS: usize = 2;

/// Names what a session has left with its tenant: by the attempt to move that, and the session's number.
pub(super) type Ticket = (u64, usize);

pub(super) struct Awake {
    pub(super) home: Arc<Home>,
    pub(super) database: Database,
    /// Transactions of sessions that have left.
    pub(super) left: BTreeMap<Ticket, TxnId>,
    /// A flush that has begun, and what it does next.
    flush: Option<(FlushRun, Step, Flush)>,
    /// Behind the keys that were evicted last.
    evicted_to: Vec<u8>,
}

/// What came of a step of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It goes on.
    Further,
    /// The storage has written something down.
    Saved,
    /// The storage has merged segments.
    Merged,
    /// It is over.
    Done,
    /// It is over, because the storage did not write something down.
    Unsaved,
    /// It is over, because the storage or the log has failed.
    Failed,
}

impl Awake {
    pub(super) fn new(woken: (Arc<Home>, Database)) -> Self {
        Self::with(woken, BTreeMap::new())
    }

    /// With what sessions have left in it elsewhere.
    pub(super) fn with((home, database): (Arc<Home>, Database), left: BTreeMap<Ticket, TxnId>) -> Self {
        Self { home, database, left, flush: None, evicted_to: Vec::new() }
    }

    /// Whether a transaction is open.
    pub(super) fn is_used(&self) -> bool {
        self.database.counts().transactions > 0
    }

    /// What maintenance finds.
    pub(super) fn found(&self) -> Found {
        Found { condition: Condition::of(&self.database), flushing: self.flush.is_some(), ..Found::default() }
    }

    pub(super) const fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// Begins a flush, unless it is being flushed.
    pub(super) fn begin_flush(&mut self, how: Flush) {
        self.flush.get_or_insert((FlushRun::new(KEYS), Step::Collect, how));
    }

    /// Goes on with the flush that has begun, if any.
    pub(super) fn flush(&mut self, runtime: &Runtime) -> Came {
        let Some((mut run, step, how)) = self.flush.take() else { return Came::Done };
        let (home, database) = (&self.home, &mut self.database);
        let store = |done: Result<Step, StorageError>, came| match done {
            Ok(next) => (Some(next), came),
            Err(_) if step == Step::Save => (None, Came::Unsaved),
            Err(_) => (None, Came::Failed),
        };
        let (next, came) = match step {
            Step::Collect => match run.collect(database) {
                Ok(next) => (Some(next), Came::Further),
                Err(_) => (None, Came::Failed),
            },
            // Asked again, it waits again.
            Step::WaitDurable(_) => (Some(Step::Collect), Came::Further),
            Step::Save => store(runtime.block_on(home.save()).map(|()| run.saved()), Came::Saved),
            Step::Compact => match runtime.block_on(home.compact()) {
                Ok(merged) => (Some(run.compacted(merged)), if merged { Came::Merged } else { Came::Further }),
                Err(_) => (None, Came::Failed),
            },
            Step::CollectGarbage => store(runtime.block_on(home.collect_garbage()).map(|_| Step::Done), Came::Further),
            Step::Done => (None, Came::Done),
        };
        self.flush = next.map(|next| (run, next, how));
        if let (Came::Done, Some(bytes)) = (came, how.keeps_bytes) {
            self.evict(bytes);
        }
        came
    }

    /// Writes down what the storage may have now, without merging anything. Whether all of it is there.
    pub(super) fn write_down(&mut self, runtime: &Runtime, becomes_durable: impl Fn(Lsn) -> bool) -> bool {
        let (mut run, mut next) = (FlushRun::new(KEYS), Step::Collect);
        loop {
            next = match next {
                Step::Collect => match run.collect(&mut self.database) {
                    Ok(next) => next,
                    Err(_) => return false,
                },
                Step::WaitDurable(lsn) if becomes_durable(lsn) => Step::Collect,
                Step::WaitDurable(_) => return false,
                Step::Save => match runtime.block_on(self.home.save()) {
                    Ok(()) => run.saved(),
                    Err(_) => return false,
                },
                Step::Compact | Step::CollectGarbage | Step::Done => return self.database.is_written_down(),
            };
        }
    }

    /// Goes on with the flush until it is over or waits for the log.
    pub(super) fn flush_on(&mut self, runtime: &Runtime) -> Came {
        loop {
            let waits = matches!(self.flush, Some((_, Step::WaitDurable(_), _)));
            match self.flush(runtime) {
                Came::Further | Came::Saved | Came::Merged if !waits => {}
                came => return came,
            }
        }
    }

    /// Forgets rows that the storage has, until no more than so many bytes are in memory.
    pub(super) fn evict(&mut self, bytes: u64) {
        let mut eviction = Eviction::new(bytes, KEYS, std::mem::take(&mut self.evicted_to));
        while eviction.step(&mut self.database) {}
        self.evicted_to = eviction.into_place();
    }
}
