//! What a query's operators hold in memory, and the bound on it.
//!
//! Counted are state, rows gathered for the next stage, and payloads kept until their epoch is committed; payloads under
//! way are counted where they were made. Not counted are batches in the hands of a connector and what an operator needs
//! while it computes. What snapshots hold beside operators is counted apart: it may take a snapshot above the limit, which is given up
//! then, and fails no query.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use savanna_streams_api::ids::StageId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Operator, Stage, StageGraph};

use super::handed_out::HandedOut;

/// The accounts of one query.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: Option<u64>,
    total: AtomicU64,
    peak: AtomicU64,
    stages: Vec<Account>,
    handed_out: HandedOut,
}

#[derive(Debug)]
struct Account {
    operator: String,
    /// One per source partition or member.
    instances: RwLock<Vec<AtomicU64>>,
}

impl Memory {
    /// Accounts for so many instances of each stage.
    pub(crate) fn new(graph: &StageGraph, instances: impl Fn(StageId) -> usize, limit: Option<u64>) -> Self {
        let account = |stage: &Stage| Account {
            operator: name(stage),
            instances: RwLock::new((0..instances(stage.id)).map(|_| AtomicU64::new(0)).collect()),
        };
        let stages = graph.stages.iter().map(account).collect();
        Self { stages, ..Self::without_stages(limit) }
    }

    /// Accounts for what snapshots hold alone.
    pub(super) fn without_stages(limit: Option<u64>) -> Self {
        let (total, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { limit, total, peak, stages: Vec::new(), handed_out: HandedOut::default() }
    }

    /// A stage has so many instances from now on.
    pub(crate) fn grow(&self, stage: StageId, instances: usize) {
        if let Some(account) = self.stages.get(usize::from(stage.0)) {
            let mut accounts = account.instances.write();
            let instances = instances.max(accounts.len());
            accounts.resize_with(instances, AtomicU64::default);
        }
    }

    /// Enters what an instance holds now.
    ///
    /// # Errors
    /// The query holds more than it may.
    pub(crate) fn hold(&self, stage: StageId, instance: usize, bytes: usize) -> Result<()> {
        let Some(account) = self.stages.get(usize::from(stage.0)) else { return Ok(()) };
        let bytes = bytes as u64;
        let change = {
            let instances = account.instances.read();
            let Some(account) = instances.get(instance) else { return Ok(()) };
            bytes.wrapping_sub(account.swap(bytes, Ordering::Relaxed))
        };
        let total = self.total.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        self.peak.fetch_max(total + self.handed_out.bytes(), Ordering::Relaxed);
        match self.limit {
            Some(limit) if total > limit => Err(self.exceeded(limit, total)),
            _ => Ok(()),
        }
    }

    /// How many bytes the query may hold, if it is bounded.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The most that was held at a time.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// What snapshots hold.
    pub(super) fn handed_out(&self) -> &HandedOut {
        &self.handed_out
    }

    /// What is held now may be the most.
    pub(super) fn note_peak(&self) {
        self.peak.fetch_max(self.total() + self.handed_out.bytes(), Ordering::Relaxed);
    }

    /// Why a snapshot is given up, if it is: with what it holds there is more than there may be.
    pub(super) fn with_snapshots_above_limit(&self) -> Option<StreamError> {
        let (limit, held) = (self.limit?, self.handed_out.bytes());
        let total = self.total() + held;
        (total > limit).then(|| StreamError::Limit {
            message: format!(
                "the query with its snapshot holds {} of memory, above its memory-limit of {}; {} of them are what was handed out and is not \
                 written yet; raise the limit, or set a longer snapshot-interval",
                mebibytes(total),
                mebibytes(limit),
                mebibytes(held)
            ),
        })
    }

    fn exceeded(&self, limit: u64, total: u64) -> StreamError {
        let largest = self.stages.iter().map(|stage| (stage.bytes(), stage.operator.as_str())).max();
        let (bytes, operator) = largest.unwrap_or_default();
        StreamError::Limit {
            message: format!(
                "the query holds {} of memory, above its memory-limit of {}; most of it in the {operator}: {}; use shorter \
                 windows or fewer keys, or raise the limit",
                mebibytes(total),
                mebibytes(limit),
                mebibytes(bytes)
            ),
        }
    }
}

impl Account {
    fn bytes(&self) -> u64 {
        self.instances.read().iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }
}

fn name(stage: &Stage) -> String {
    let operator = match &stage.operator {
        Operator::Scan(scan) => format!("scan of {}", scan.source.table.name),
        Operator::Aggregate(_) => "windowed aggregate".to_owned(),
        Operator::Window(_) => "plan over windows".to_owned(),
        Operator::IntervalJoin(_) => "interval join".to_owned(),
        Operator::Sink(_) => "sink".to_owned(),
    };
    format!("{operator} (stage {})", stage.id)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
