//! Rows of open windows of which only the first are needed: the others are left out as early as they can be.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_model::plan::PlanBytes;

use crate::plan_run::PlanRun;

/// Chooses rows. Of chosen rows and any others it chooses the same as of all.
pub(crate) struct FirstRows(PlanRun);

/// Rows that are kept for later.
#[derive(Default)]
pub(crate) struct Gathered {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// How many were chosen the last time.
    chosen: usize,
}

/// Fewer rows than this are not worth a choice.
const ROWS_MIN: usize = 4096;

impl FirstRows {
    /// # Errors
    /// The plan cannot be decoded.
    pub(crate) fn decode(plan: &PlanBytes, functions: &Arc<TaskContext>) -> Result<Self> {
        Ok(Self(PlanRun::new(plan.decode(functions)?, Arc::clone(functions))?))
    }
}

impl Gathered {
    /// Adds rows, and chooses among them once there are twice as many as the last choice left.
    pub(crate) fn push(&mut self, rows: RecordBatch, first: Option<&mut FirstRows>) -> Result<()> {
        self.rows += rows.num_rows();
        self.bytes += rows.get_array_memory_size();
        self.batches.push(rows);
        match first {
            Some(first) if self.rows >= ROWS_MIN.max(2 * self.chosen) => self.choose(first),
            _ => Ok(()),
        }
    }

    /// Gives the rows away: those that are needed.
    pub(crate) fn take(&mut self, first: Option<&mut FirstRows>) -> Result<Vec<RecordBatch>> {
        if let Some(first) = first
            && self.rows > 0
        {
            self.choose(first)?;
        }
        Ok(std::mem::take(self).batches)
    }

    /// What is kept.
    pub(crate) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn choose(&mut self, first: &mut FirstRows) -> Result<()> {
        let mut all = Some(std::mem::take(&mut self.batches));
        self.batches = first.0.run(|_| all.take().unwrap_or_default())?;
        self.rows = self.batches.iter().map(RecordBatch::num_rows).sum();
        self.bytes = self.batches.iter().map(RecordBatch::get_array_memory_size).sum();
        self.chosen = self.rows;
        Ok(())
    }
}
