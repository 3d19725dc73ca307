//! The sink stage: commits epochs, in order, side tables first.
//!
//! A side table of late rows is a sink of its own. A crash between the two commits of an epoch leaves the side table one
//! epoch ahead; when that epoch is run again, a side table that stores epochs ignores it, another holds its late rows twice.
//!
//! Where epochs are recorded, none is committed before its record is durable: what the sink holds can always be computed again.
//!
//! Quick sinks commit on the thread that sends to them, those on other machines on a [`SinkThread`].

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::payload::Body;
use savanna_streams_model::sink::{GiveUp, Remote, Sink};

use crate::arena::CollectedInput;
use crate::driver::{EpochRecord, Input};
use crate::error::broken;
use crate::member::{Outgoing, StageOperator};
use crate::query::{Mailbox, Progress, SinkThread};
use crate::records::{self, RecordGate};
use crate::topology::LATE_SHUFFLE;

/// The operator of the stage's member.
pub(crate) struct SinkOperator {
    pub(crate) query: QueryId,
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) side_tables: Vec<SideTable>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) driver: Mailbox,
    /// Where an epoch waits for its record, if epochs are recorded.
    pub(crate) gate: Option<Arc<RecordGate>>,
}

/// A table for late rows.
pub(crate) struct SideTable {
    /// The scans whose late rows it gets.
    pub(crate) scans: Vec<StageId>,
    pub(crate) sink: Box<dyn Sink>,
}

impl SinkOperator {
    /// Where the sinks are to commit: here, or on a thread of their own, for which at most so many epochs wait. With the latter comes
    /// what ends its waiting.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(crate) fn placed(self, waiting: usize) -> Result<(Box<dyn StageOperator>, Option<GiveUp>)> {
        let sinks = self.side_tables.iter().map(|side| &side.sink).chain([&self.sink]);
        let remotes: Vec<Remote> = sinks.filter_map(|sink| sink.remote()).collect();
        if remotes.is_empty() {
            return Ok((Box::new(self), None));
        }
        let (thread, give_up) = SinkThread::start(self, remotes, waiting)?;
        Ok((Box::new(thread), Some(give_up)))
    }

    /// Asks all sinks whether they know this query already.
    pub(crate) fn check_fresh(&mut self) -> Result<()> {
        let sinks = self.side_tables.iter_mut().map(|side| &mut side.sink).chain([&mut self.sink]);
        for sink in sinks {
            if let Some(epoch) = sink.last_committed(&self.query)?.filter(|epoch| *epoch > Epoch::ZERO) {
                return Err(StreamError::invalid(format!(
                    "the sink holds epoch {epoch} of query {} already; start the statement as a new query",
                    self.query
                )));
            }
        }
        Ok(())
    }

    /// Asks all sinks whether they hold what the records say. A side table may be one epoch ahead of the sink.
    pub(crate) fn check_records(&mut self, records: &[EpochRecord], sources: usize) -> Result<()> {
        let side = self.side_tables.iter_mut().map(|side| ("the table for late rows", &mut side.sink));
        for (name, sink) in side.chain([("the sink", &mut self.sink)]) {
            let held = sink.last_committed(&self.query)?.unwrap_or(Epoch::ZERO);
            records::check(records, sources, name, held)?;
        }
        Ok(())
    }
}

fn rows_of(input: CollectedInput) -> Result<Vec<RecordBatch>> {
    let mut rows = Vec::new();
    for (_, body) in input.bodies {
        match body {
            Body::Rows(batches) => rows.extend(batches),
            Body::Delta(_) | Body::Read(_) => {
                return Err(broken(format!("stage {} sent something else than rows to the sink", input.key.from)));
            }
        }
    }
    Ok(rows)
}

impl SinkOperator {
    /// Commits an epoch, and tells of it.
    pub(crate) fn commit(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<()> {
        if let Some(gate) = &self.gate {
            gate.wait(epoch)?;
        }
        let mut rows = Vec::new();
        let mut late: BTreeMap<StageId, Vec<RecordBatch>> = BTreeMap::new();
        for input in inputs {
            let key = input.key;
            let batches = rows_of(input)?;
            if key.shuffle == LATE_SHUFFLE {
                late.entry(key.from).or_default().extend(batches)
            } else {
                rows.extend(batches)
            }
        }
        for side in &mut self.side_tables {
            let late: Vec<RecordBatch> = side.scans.iter().filter_map(|scan| late.remove(scan)).flatten().collect();
            side.sink.commit(&self.query, epoch, &late)?;
        }
        self.sink.commit(&self.query, epoch, &rows)?;
        self.progress.committed(epoch, rows.iter().map(RecordBatch::num_rows).sum());
        self.driver.send(Input::Committed { epoch });
        Ok(())
    }

    /// Nothing was committed for long. A process whose place another one may have taken renews nothing.
    pub(crate) fn renew(&mut self) -> Result<()> {
        if self.gate.as_ref().is_some_and(|gate| !gate.may_commit()) {
            return Ok(());
        }
        let sinks = self.side_tables.iter_mut().map(|side| &mut side.sink).chain([&mut self.sink]);
        for sink in sinks {
            sink.renew(&self.query)?;
        }
        Ok(())
    }
}

impl StageOperator for SinkOperator {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        self.commit(epoch, inputs)?;
        Ok(Vec::new())
    }

    fn bytes(&self) -> usize {
        0
    }

    fn finish(&mut self) -> Result<()> {
        for side in &mut self.side_tables {
            side.sink.finish()?;
        }
        self.sink.finish()
    }
}
