//! What becomes of the rows of a scan: its output, here or in a function.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, UInt32Array};
use savanna_streams_api::Result;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::payload::{Body, ReadRows};
use savanna_streams_model::time::EventTime;

use crate::chain::Chain;
use crate::member::Outgoing;
use crate::output::OutputOperator;
use crate::topology::Outlet;

/// The output of one source partition.
pub(crate) enum ScanOutput {
    /// It computes here.
    Here(Box<OutputOperator>),
    /// It sends rows as they were read to a function, which computes.
    There(ReadOutput),
}

/// Rows that go to a function as they were read.
pub(crate) struct ReadOutput {
    /// The filters of the output: a late row that they drop is not late.
    chain: Chain,
    rows: Vec<ReadRows>,
    bytes: usize,
    outlet: Outlet,
    /// Rows that the function has left out because they had no event time.
    without_time: Arc<AtomicU64>,
}

impl ReadOutput {
    /// That of a partition which sends to this outlet, with the filters of its output.
    pub(crate) fn new(chain: Chain, outlet: Outlet, without_time: Arc<AtomicU64>) -> Self {
        Self { chain, rows: Vec::new(), bytes: 0, outlet, without_time }
    }

    fn push(&mut self, rows: RecordBatch, first_window_end: Option<i64>) {
        self.bytes += rows.get_array_memory_size();
        self.rows.push(ReadRows { rows, first_window_end });
    }
}

impl ScanOutput {
    /// The rows to come belong to this epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        if let Self::Here(output) = self {
            output.begin(epoch);
        }
    }

    /// Takes rows in.
    pub(crate) fn take(&mut self, rows: RecordBatch) -> Result<()> {
        match self {
            Self::Here(output) => output.take(rows)?,
            Self::There(read) => read.push(rows, None),
        }
        Ok(())
    }

    /// Takes rows in that count only for windows that end at `first_window_end` or later.
    pub(crate) fn take_from(&mut self, rows: RecordBatch, first_window_end: i64) -> Result<()> {
        match self {
            Self::Here(output) => output.take_from(rows, first_window_end)?,
            Self::There(read) => read.push(rows, Some(first_window_end)),
        }
        Ok(())
    }

    /// The positions of the rows that the output's filters let pass.
    pub(crate) fn survivors(&mut self, rows: &RecordBatch) -> Result<UInt32Array> {
        match self {
            Self::Here(output) => output.survivors(rows),
            Self::There(read) => read.chain.survivors(rows),
        }
    }

    /// Rows that were dropped so far because they had no event time.
    pub(crate) fn without_time(&self) -> u64 {
        match self {
            Self::Here(output) => output.without_time(),
            Self::There(read) => read.without_time.load(Ordering::Relaxed),
        }
    }

    /// Memory of what waits for the end of the epoch or of a window, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Here(output) => output.bytes(),
            Self::There(read) => read.bytes,
        }
    }

    /// Memory of the rows that wait for the end of the epoch, in bytes.
    pub(crate) fn gathered_bytes(&self) -> usize {
        match self {
            Self::Here(output) => output.gathered_bytes(),
            Self::There(read) => read.bytes,
        }
    }

    /// Ends the epoch: everything that its rows gave, as payloads.
    pub(crate) fn seal(&mut self, epoch: Epoch, watermark: EventTime) -> Result<Vec<Outgoing>> {
        match self {
            Self::Here(output) => output.seal(epoch, watermark),
            Self::There(read) => {
                read.bytes = 0;
                let rows = std::mem::take(&mut read.rows);
                Ok(read.outlet.send(epoch, watermark, vec![Body::Read(rows)]))
            }
        }
    }
}
