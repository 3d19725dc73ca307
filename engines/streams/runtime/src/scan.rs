//! The scan stage of one source partition: lateness, chain, then rows, windows as columns, or partial aggregates.
//!
//! Only computes; reading, epochs and sending are its thread's business.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::execution::TaskContext;
use savanna_streams_model::Result;
use savanna_streams_model::graph::Scan;
use savanna_streams_model::ids::Epoch;
use savanna_streams_model::payload::Body;
use savanna_streams_model::source::SourceBatch;
use savanna_streams_model::state::KeyedState;
use savanna_streams_model::time::EventTime;

use crate::aggregate::{AggregateSpec, PaneState};
use crate::chain::{Chain, SmallBatches};
use crate::error::{broken, computing};
use crate::expand::ExpandRows;
use crate::key_cut::KeyCut;
use crate::lateness::{RunningWatermark, Sorted, Timeliness};
use crate::member::Outgoing;
use crate::topology::Outlet;

/// The operator of one source partition.
pub(crate) struct ScanOperator {
    time: Option<Chain>,
    running: RunningWatermark,
    chain: Chain,
    /// Joins what a selective chain leaves.
    small: Option<SmallBatches>,
    end: End,
    outlet: Outlet,
    late: Option<LateSide>,
    late_rows: u64,
    without_time_before: u64,
    ended: bool,
}

/// What happens to rows after the chain.
enum End {
    Rows(Vec<RecordBatch>),
    Windows { expand: Box<ExpandRows>, small: SmallBatches, rows: Vec<RecordBatch> },
    Panes { state: Box<PaneState>, key_cut: KeyCut, key_columns: usize },
}

struct LateSide {
    projection: Chain,
    rows: Vec<RecordBatch>,
    outlet: Outlet,
}

impl ScanOperator {
    pub(crate) fn decode(
        scan: &Scan,
        functions: &Arc<TaskContext>,
        batch_rows: usize,
        outlet: Outlet,
        late_outlet: Outlet,
    ) -> Result<Self> {
        let chain = Chain::decode(&scan.chain, functions)?;
        let end = match (&scan.aggregate, &scan.expand) {
            (Some(aggregate), None) => {
                let spec = Arc::new(AggregateSpec::decode(aggregate, functions)?);
                let (key_cut, key_columns) = (KeyCut::new(spec.key_types())?, spec.key_columns());
                End::Panes { state: Box::new(PaneState::new(spec)?), key_cut, key_columns }
            }
            (None, Some(expand)) => {
                let expand = Box::new(ExpandRows::decode(expand, functions)?);
                let small = SmallBatches::new(expand.output(), batch_rows);
                End::Windows { expand, small, rows: Vec::new() }
            }
            (None, None) => End::Rows(Vec::new()),
            (Some(_), Some(_)) => {
                return Err(broken("a scan that both aggregates and adds windows as columns"));
            }
        };
        let window = scan.aggregate.as_ref().map(|a| a.window).or_else(|| scan.expand.as_ref().map(|e| e.window));
        let watermark = scan.watermark.as_ref();
        let time = watermark.map(|watermark| Chain::decode(&watermark.time, functions)).transpose()?;
        let late = match watermark.and_then(|watermark| watermark.late_rows.as_ref()) {
            Some(late) => {
                let projection = Chain::decode(&late.projection, functions)?;
                Some(LateSide { projection, rows: Vec::new(), outlet: late_outlet })
            }
            None => None,
        };
        let small = chain.filters().then(|| SmallBatches::new(chain.output(), batch_rows));
        let running = RunningWatermark::new(watermark.map_or(0, |watermark| watermark.delay), window);
        Ok(Self { time, running, chain, small, end, outlet, late, late_rows: 0, without_time_before: 0, ended: false })
    }

    /// Takes a batch in.
    pub(crate) fn absorb(&mut self, batch: SourceBatch) -> Result<()> {
        if batch.rows.num_rows() > 0 {
            match self.sort(&batch.rows)? {
                Sorted::AllOnTime => self.pass_on_time(batch.rows)?,
                Sorted::Mixed(parts) => {
                    for (timeliness, positions) in parts {
                        let rows = take(&batch.rows, &UInt32Array::from(positions))?;
                        match timeliness {
                            Timeliness::OnTime => self.pass_on_time(rows)?,
                            Timeliness::From(end) => self.pass_from(rows, end)?,
                            Timeliness::Late => self.drop_late(&rows)?,
                        }
                    }
                }
            }
        }
        if let Some(time) = batch.left_out_time {
            self.running.advance(time);
        }
        Ok(())
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
        if self.time.is_some() { self.running.watermark() } else { EventTime::MIN }
    }

    /// Rows dropped as late so far.
    pub(crate) fn late_rows(&self) -> u64 {
        self.late_rows
    }

    /// Ends the epoch: everything that its rows gave, as payloads.
    pub(crate) fn seal(&mut self, epoch: Epoch) -> Result<Vec<Outgoing>> {
        if let Some(small) = &mut self.small {
            for rows in small.flush()? {
                self.late_rows += self.end.take(rows, None)?;
            }
        }
        let watermark = self.watermark();
        let bodies = match &mut self.end {
            End::Rows(rows) => vec![Body::Rows(std::mem::take(rows))],
            End::Windows { small, rows, .. } => {
                rows.extend(small.flush()?);
                vec![Body::Rows(std::mem::take(rows))]
            }
            End::Panes { state, key_cut, key_columns } => {
                let delta = state.freeze(epoch)?;
                self.late_rows += state.without_time() - self.without_time_before;
                self.without_time_before = state.without_time();
                let parts = key_cut.by_member(delta, *key_columns, self.outlet.parts())?;
                parts.into_iter().map(Body::Delta).collect()
            }
        };
        let mut outgoing = self.outlet.send(epoch, watermark, bodies);
        if let Some(late) = &mut self.late {
            outgoing.extend(late.outlet.send(epoch, watermark, vec![Body::Rows(std::mem::take(&mut late.rows))]));
        }
        Ok(outgoing)
    }

    fn sort(&mut self, rows: &RecordBatch) -> Result<Sorted> {
        let Some(time) = &mut self.time else {
            return Ok(Sorted::AllOnTime);
        };
        match time.apply(rows.clone())?.as_slice() {
            [times] if times.num_columns() == 1 && times.num_rows() == rows.num_rows() => {
                self.running.sort(times.column(0))
            }
            _ => Err(broken("an event-time expression must give one column with a value for each row")),
        }
    }

    fn pass_on_time(&mut self, rows: RecordBatch) -> Result<()> {
        for rows in self.chain.apply(rows)? {
            match &mut self.small {
                Some(small) => {
                    for rows in small.push(rows)? {
                        self.late_rows += self.end.take(rows, None)?;
                    }
                }
                None => self.late_rows += self.end.take(rows, None)?,
            }
        }
        Ok(())
    }

    fn pass_from(&mut self, rows: RecordBatch, first_window_end: i64) -> Result<()> {
        for rows in self.chain.apply(rows)? {
            self.late_rows += self.end.take(rows, Some(first_window_end))?;
        }
        Ok(())
    }

    /// A row that the chain filters out is not late: it would not have been in any window.
    fn drop_late(&mut self, rows: &RecordBatch) -> Result<()> {
        let survivors = self.chain.survivors(rows)?;
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

impl End {
    /// Takes rows in that count for windows from `first_window_end` on; tells how many had no event time.
    fn take(&mut self, batch: RecordBatch, first_window_end: Option<i64>) -> Result<u64> {
        match self {
            Self::Rows(rows) => rows.push(batch),
            Self::Windows { expand, small, rows } => {
                let (expanded, without_time) = expand.apply(&batch, first_window_end)?;
                for batch in expanded {
                    rows.extend(small.push(batch)?);
                }
                return Ok(without_time);
            }
            Self::Panes { state, .. } => match first_window_end {
                Some(end) => state.update_from(&batch, end)?,
                None => state.update(&batch)?,
            },
        }
        Ok(0)
    }
}

fn take(rows: &RecordBatch, positions: &UInt32Array) -> Result<RecordBatch> {
    if positions.len() == rows.num_rows() {
        return Ok(rows.clone());
    }
    take_record_batch(rows, positions).map_err(|e| computing("sorting out late rows", &e))
}
