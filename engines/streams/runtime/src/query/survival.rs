//! A query that outlives its process: what it needs for that, and how its epochs are recorded.

use std::sync::Arc;

use savanna_streams_api::Result;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::graph::{Operator, StageGraph};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{Connectors, Repeats};

use super::Shared;
use crate::driver::{EpochRecord, Outcome};
use crate::records::{EpochLog, RecordGate, Recorded};

/// What a query needs to outlive its process.
#[derive(Clone, Debug)]
pub struct Survival {
    /// Where its epochs are recorded.
    pub log: Arc<dyn EpochLog>,
    /// What was recorded in former processes, from epoch 1 on; nothing for a query that begins.
    pub records: Vec<EpochRecord>,
}

/// Why a query cannot outlive its process, if it cannot: then it could not write each row exactly once.
///
/// # Errors
/// A source cannot be opened.
pub fn cannot_survive(graph: &StageGraph, connectors: &dyn Connectors, sink: &dyn Sink) -> Result<Option<String>> {
    if sink.delivery() != Delivery::ExactlyOnce {
        return Ok(Some("its sink does not store which epochs it holds".into()));
    }
    for stage in &graph.stages {
        if stage.output.as_ref().is_some_and(|output| !output.lookups.is_empty()) {
            return Ok(Some("the tables that it looks rows up in may have changed meanwhile".into()));
        }
        let Operator::Scan(scan) = &stage.operator else { continue };
        let table = &scan.source.table;
        if let Repeats::Not(why) = connectors.source(table)?.repeats() {
            return Ok(Some(format!("table {}: {why}", table.name)));
        }
        let watermark = scan.watermark.as_ref();
        if watermark.is_some_and(|watermark| watermark.waiting.idle_after.is_some()) {
            let name = &table.name;
            return Ok(Some(format!(
                "table {name} has a scan.watermark.idle-timeout, which depends on the machine's clock"
            )));
        }
        if let Some(late) = watermark.and_then(|watermark| watermark.late_rows.as_ref()) {
            let known = connectors.list();
            let delivery =
                known.iter().find(|known| known.name == late.table.connector()).and_then(|known| known.delivery);
            if delivery != Some(Delivery::ExactlyOnce) {
                return Ok(Some(format!(
                    "table {} for late rows does not store which epochs it holds",
                    late.table.name
                )));
            }
        }
    }
    Ok(None)
}

/// Records the epochs of a running query.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    log: Arc<dyn EpochLog>,
    /// Epochs up to this one were recorded by former processes.
    pub(super) recorded: Epoch,
    pub(super) gate: Arc<RecordGate>,
}

impl Recording {
    pub(super) fn new(survival: &Survival) -> Self {
        let recorded = survival.records.last().map_or(Epoch::ZERO, |record| record.epoch);
        let gate = Arc::new(RecordGate::new(Recorded::up_to(recorded)));
        Self { log: Arc::clone(&survival.log), recorded, gate }
    }
}

impl Shared {
    /// All partitions have sealed an epoch.
    pub(super) fn sealed(&self, record: EpochRecord) {
        if let Some(recording) = self.recording.as_ref().filter(|recording| record.epoch > recording.recorded) {
            let (gate, epoch) = (Arc::clone(&recording.gate), record.epoch);
            recording.log.append(&record, Box::new(move |outcome| gate.note(epoch, outcome)));
        }
        *self.record.lock() = Some(record);
    }

    /// Tells the log how the query ended.
    pub(super) fn note_end(&self, outcome: &Outcome) {
        if let Some(recording) = &self.recording {
            recording.log.ended(outcome);
        }
    }
}
