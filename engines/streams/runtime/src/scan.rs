//! The scan stage of one source partition: the running watermark, lateness, and the output.
//!
//! Only computes; reading, epochs and sending are its thread's business.

use std::sync::Arc;

use arrow::array::{RecordBatch, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{SchemaRef, TimeUnit};
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_api::ids::Epoch;
use savanna_streams_functions::with_one_nan;
use savanna_streams_model::graph::{Lateness, ProcessingTime, Scan};
use savanna_streams_model::payload::Body;
use savanna_streams_model::source::SourceBatch;
use savanna_streams_model::time::{EventTime, from_event_time};

use crate::chain::{Chain, batch_of};
use crate::error::{broken, computing};
use crate::lateness::{RunningWatermark, Sorted, Timeliness};
use crate::member::Outgoing;
use crate::scan_output::ScanOutput;
use crate::splits::Splits;
use crate::topology::Outlet;

/// The operator of one source partition.
pub(crate) struct ScanOperator {
    time: Option<Chain>,
    splits: Splits,
    schema: SchemaRef,
    clock: Option<ProcessingTime>,
    /// The instant of the epoch.
    instant: EventTime,
    output: ScanOutput,
    late: Option<LateSide>,
    late_rows: u64,
    ended: bool,
}

struct LateSide {
    projection: Chain,
    rows: Vec<RecordBatch>,
    outlet: Outlet,
}

impl ScanOperator {
    pub(crate) fn decode(
        scan: &Scan,
        output: ScanOutput,
        functions: &Arc<TaskContext>,
        late_outlet: Outlet,
        splits: usize,
    ) -> Result<Self> {
        let watermark = scan.watermark.as_ref();
        let time = watermark.map(|watermark| Chain::decode(&watermark.time, functions)).transpose()?;
        let late = match watermark.and_then(|watermark| watermark.late_rows.as_ref()) {
            Some(late) => {
                let projection = Chain::decode(&late.projection, functions)?;
                Some(LateSide { projection, rows: Vec::new(), outlet: late_outlet })
            }
            None => None,
        };
        let lateness = watermark.map_or(Lateness::Never, |watermark| watermark.lateness);
        let fresh = RunningWatermark::new(watermark.map_or(0, |watermark| watermark.delay), lateness);
        let splits = Splits::new(splits, fresh, watermark.and_then(|watermark| watermark.waiting.idle_after));
        let (schema, clock) = (scan.schema(), scan.processing_time);
        Ok(Self { time, splits, schema, clock, instant: EventTime::MIN, output, late, late_rows: 0, ended: false })
    }

    /// The rows to come belong to this epoch, of this instant.
    pub(crate) fn begin(&mut self, epoch: Epoch, instant: EventTime) {
        self.instant = instant;
        self.output.begin(epoch);
    }

    /// Takes a batch in.
    pub(crate) fn absorb(&mut self, mut batch: SourceBatch) -> Result<()> {
        batch.rows = with_one_nan_each(self.with_instant(batch.rows)?)?;
        self.splits.wake(batch.split);
        if batch.rows.num_rows() > 0 {
            match self.sort(batch.split, &batch.rows)? {
                Sorted::AllOnTime => self.output.take(batch.rows)?,
                Sorted::Mixed(parts) => {
                    for (timeliness, positions) in parts {
                        let rows = take(&batch.rows, &UInt32Array::from(positions))?;
                        match timeliness {
                            Timeliness::OnTime => self.output.take(rows)?,
                            Timeliness::From(end) => self.output.take_from(rows, end)?,
                            Timeliness::Late => self.drop_late(&rows)?,
                        }
                    }
                }
            }
        }
        if let Some(time) = batch.left_out_time {
            self.splits.advance(batch.split, time);
        }
        Ok(())
    }

    /// What the source tells of its splits.
    pub(crate) fn splits(&mut self) -> &mut Splits {
        &mut self.splits
    }

    /// The watermark of one split.
    pub(crate) fn watermark_of(&self, split: usize) -> EventTime {
        self.splits.watermark_of(split)
    }

    /// Whether nothing waits for the partition.
    pub(crate) fn is_idle(&self) -> bool {
        self.splits.is_idle()
    }

    /// The source has ended.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn watermark(&self) -> EventTime {
        if self.ended { EventTime::MAX } else { self.running_watermark() }
    }

    /// The watermark by the rows alone.
    pub(crate) fn running_watermark(&self) -> EventTime {
        if self.clock == Some(ProcessingTime::Watermark) {
            self.instant
        } else if self.time.is_some() {
            self.splits.watermark()
        } else {
            EventTime::MIN
        }
    }

    /// Rows dropped as late so far.
    pub(crate) fn late_rows(&self) -> u64 {
        self.late_rows + self.output.without_time()
    }

    /// Memory of what waits for the end of the epoch or of a window, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let late = self.late.iter().flat_map(|late| &late.rows).map(RecordBatch::get_array_memory_size);
        self.output.bytes() + late.sum::<usize>()
    }

    /// Memory of the rows that wait for the end of the epoch, in bytes.
    pub(crate) fn gathered_bytes(&self) -> usize {
        self.output.gathered_bytes()
    }

    /// Ends the epoch: everything that its rows gave, as payloads.
    pub(crate) fn seal(&mut self, epoch: Epoch) -> Result<Vec<Outgoing>> {
        let watermark = self.watermark();
        let mut outgoing = self.output.seal(epoch, watermark)?;
        if let Some(late) = &mut self.late {
            outgoing.extend(late.outlet.send(epoch, watermark, vec![Body::Rows(std::mem::take(&mut late.rows))]));
        }
        Ok(outgoing)
    }

    fn with_instant(&self, rows: RecordBatch) -> Result<RecordBatch> {
        if self.clock.is_none() {
            return Ok(rows);
        }
        let instant = from_event_time(self.instant, TimeUnit::Millisecond);
        let instants = TimestampMillisecondArray::from_value(instant, rows.num_rows());
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(instants));
        batch_of(&self.schema, columns, rows.num_rows())
    }

    fn sort(&mut self, split: usize, rows: &RecordBatch) -> Result<Sorted> {
        let Some(time) = &mut self.time else {
            return Ok(Sorted::AllOnTime);
        };
        match time.apply(rows.clone())?.as_slice() {
            [times] if times.num_columns() == 1 && times.num_rows() == rows.num_rows() => {
                self.splits.sort(split, times.column(0))
            }
            _ => Err(broken("an event-time expression must give one column with a value for each row")),
        }
    }

    /// A row that the chain filters out is not late: it would not have been in any window.
    fn drop_late(&mut self, rows: &RecordBatch) -> Result<()> {
        let survivors = self.output.survivors(rows)?;
        self.late_rows += survivors.len() as u64;
        if let Some(late) = &mut self.late
            && !survivors.is_empty()
        {
            let rows = take(rows, &survivors)?;
            late.rows.extend(late.projection.apply(rows)?);
        }
        Ok(())
    }
}

/// Sources may give NaNs of any bits.
fn with_one_nan_each(rows: RecordBatch) -> Result<RecordBatch> {
    if !rows.columns().iter().any(|column| column.data_type().is_floating()) {
        return Ok(rows);
    }
    let columns = rows.columns().iter().map(|column| with_one_nan(Arc::clone(column))).collect();
    batch_of(rows.schema_ref(), columns, rows.num_rows())
}

fn take(rows: &RecordBatch, positions: &UInt32Array) -> Result<RecordBatch> {
    if positions.len() == rows.num_rows() {
        return Ok(rows.clone());
    }
    take_record_batch(rows, positions).map_err(|e| computing("sorting out late rows", &e))
}
