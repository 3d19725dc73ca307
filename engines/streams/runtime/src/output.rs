//! What every stage but the sink does with its operator's rows: filters and projections, look-ups, then rows, windows as
//! columns or partial aggregates, and at the end of an epoch the cut in payloads.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_model::graph::{Exchange, Output};
use savanna_streams_model::payload::Body;
use savanna_streams_model::time::EventTime;

use crate::aggregate::{AggregateSpec, WindowState};
use crate::chain::{Chain, SmallBatches};
use crate::error::broken;
use crate::expand::ExpandRows;
use crate::first_rows::{FirstRows, Gathered};
use crate::key_cut::KeyCut;
use crate::lookup::LookupRows;
use crate::member::Outgoing;
use crate::options::{Mode, RuntimeOptions};
use crate::snapshot::Due;
use crate::topology::Outlet;

/// The output of one source partition or member.
pub(crate) struct OutputOperator {
    chain: Chain,
    /// Joins what a selective chain leaves.
    small: Option<SmallBatches>,
    lookups: Vec<LookupRows>,
    end: End,
    first_rows: Option<FirstRows>,
    cut: KeyCut,
    outlet: Outlet,
    mode: Mode,
    due: Due,
}

/// What happens to rows after the chain.
enum End {
    Rows(Gathered),
    Windows { expand: Box<ExpandRows>, small: SmallBatches, rows: Gathered, without_time: u64 },
    Aggregate(WindowState),
}

impl OutputOperator {
    pub(crate) fn decode(
        output: &Output,
        lookups: Vec<LookupRows>,
        exchange: &Exchange,
        functions: &Arc<TaskContext>,
        options: &RuntimeOptions,
        outlet: Outlet,
    ) -> Result<Self> {
        let batch_rows = options.batch_rows;
        let chain = Chain::decode(&output.chain, functions)?;
        let (end, leaving) = match (&output.aggregate, &output.expand) {
            (Some(aggregate), None) => {
                let spec = Arc::new(AggregateSpec::decode(aggregate, functions)?);
                let leaving = Arc::clone(spec.delta_schema());
                (End::Aggregate(WindowState::new(spec)?), leaving)
            }
            (None, Some(expand)) => {
                let expand = Box::new(ExpandRows::decode(expand, functions)?);
                let leaving = Arc::clone(expand.output());
                let small = SmallBatches::new(&leaving, batch_rows);
                (End::Windows { expand, small, rows: Gathered::default(), without_time: 0 }, leaving)
            }
            (None, None) => {
                let rows = lookups.last().map_or_else(|| chain.output(), LookupRows::output);
                (End::Rows(Gathered::default()), Arc::clone(rows))
            }
            (Some(_), Some(_)) => {
                return Err(broken("an output that both aggregates and adds windows as columns"));
            }
        };
        let cut = match exchange {
            Exchange::Single => KeyCut::new(Vec::new(), &Schema::empty())?,
            Exchange::KeyGroup { columns } => KeyCut::new(columns.clone(), &leaving)?,
        };
        let first_rows = output.first_rows.as_ref().map(|plan| FirstRows::decode(plan, functions)).transpose()?;
        let small = chain.filters().then(|| SmallBatches::new(chain.output(), batch_rows));
        Ok(Self { chain, small, lookups, end, first_rows, cut, outlet, mode: options.mode, due: Due::default() })
    }

    /// An output that keeps nothing over the end of an epoch of which there is a snapshot.
    #[must_use]
    pub(crate) fn with_snapshots(self, due: Due) -> Self {
        Self { due, ..self }
    }

    /// It is that of another instance of its stage, in another run of the query, from now on.
    pub(crate) fn turn_to(&mut self, query: &QueryId, sequence: u32) {
        self.outlet.turn_to(query, sequence);
    }

    /// The columns that the operator must give.
    pub(crate) fn input(&self) -> &SchemaRef {
        self.chain.input()
    }

    /// The rows to come belong to this epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.lookups.iter_mut().for_each(|lookup| lookup.begin(epoch));
    }

    /// Takes rows in.
    pub(crate) fn take(&mut self, rows: RecordBatch) -> Result<()> {
        for rows in self.chain.apply(rows)? {
            match &mut self.small {
                Some(small) => {
                    for rows in small.push(rows)? {
                        self.pass(rows, None)?;
                    }
                }
                None => self.pass(rows, None)?,
            }
        }
        Ok(())
    }

    /// Takes rows in that count only for windows that end at `first_window_end` or later.
    pub(crate) fn take_from(&mut self, rows: RecordBatch, first_window_end: i64) -> Result<()> {
        for rows in self.chain.apply(rows)? {
            self.pass(rows, Some(first_window_end))?;
        }
        Ok(())
    }

    /// From the chain through the look-ups to the end.
    fn pass(&mut self, rows: RecordBatch, first_window_end: Option<i64>) -> Result<()> {
        let mut batches = vec![rows];
        for lookup in &mut self.lookups {
            let found: Result<Vec<_>> = batches.iter().map(|rows| lookup.apply(rows)).collect();
            batches = found?.concat();
        }
        let Self { end, first_rows, .. } = self;
        batches.into_iter().try_for_each(|rows| end.take(rows, first_window_end, first_rows.as_mut()))
    }

    /// The positions of the rows that the chain lets pass.
    pub(crate) fn survivors(&mut self, rows: &RecordBatch) -> Result<UInt32Array> {
        self.chain.survivors(rows)
    }

    /// Rows that were dropped so far because they had no event time.
    pub(crate) fn without_time(&self) -> u64 {
        match &self.end {
            End::Rows(_) => 0,
            End::Windows { without_time, .. } => *without_time,
            End::Aggregate(state) => state.without_time(),
        }
    }

    /// Memory of what waits for the end of the epoch or of a window, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let tables: usize = self.lookups.iter().map(LookupRows::bytes).sum();
        tables
            + match &self.end {
                End::Rows(rows) | End::Windows { rows, .. } => rows.bytes(),
                End::Aggregate(state) => state.bytes(),
            }
    }

    /// Memory of the rows that wait for the end of the epoch, in bytes.
    pub(crate) fn gathered_bytes(&self) -> usize {
        match &self.end {
            End::Rows(rows) | End::Windows { rows, .. } => rows.bytes(),
            End::Aggregate(_) => 0,
        }
    }

    /// Ends the epoch: everything that its rows gave, as payloads.
    pub(crate) fn seal(&mut self, epoch: Epoch, watermark: EventTime) -> Result<Vec<Outgoing>> {
        if let Some(small) = &mut self.small {
            for rows in small.flush()? {
                self.pass(rows, None)?;
            }
        }
        self.lookups.iter().for_each(|lookup| lookup.sealed(epoch));
        let members = self.outlet.parts();
        let mut first_rows = self.first_rows.as_mut();
        let bodies: Vec<Body> = match &mut self.end {
            End::Rows(rows) => self.cut.rows(rows.take(first_rows)?, members)?.into_iter().map(Body::Rows).collect(),
            End::Windows { small, rows, .. } => {
                for batch in small.flush()? {
                    rows.push(batch, first_rows.as_deref_mut())?;
                }
                self.cut.rows(rows.take(first_rows)?, members)?.into_iter().map(Body::Rows).collect()
            }
            End::Aggregate(state) => {
                let upto = match self.mode {
                    Mode::Serverless => EventTime::MAX,
                    Mode::Provisioned if self.due.is(epoch) => EventTime::MAX,
                    Mode::Provisioned => watermark,
                };
                self.cut.delta(state.freeze(epoch, upto)?, members)?.into_iter().map(Body::Delta).collect()
            }
        };
        Ok(self.outlet.send(epoch, watermark, bodies))
    }
}

impl End {
    fn take(
        &mut self,
        batch: RecordBatch,
        first_window_end: Option<i64>,
        mut first_rows: Option<&mut FirstRows>,
    ) -> Result<()> {
        match self {
            Self::Rows(rows) => rows.push(batch, first_rows)?,
            Self::Windows { expand, small, rows, without_time } => {
                let (expanded, timeless) = expand.apply(&batch, first_window_end)?;
                *without_time += timeless;
                for batch in expanded {
                    for batch in small.push(batch)? {
                        rows.push(batch, first_rows.as_deref_mut())?;
                    }
                }
            }
            Self::Aggregate(state) => state.update(&batch, first_window_end)?,
        }
        Ok(())
    }
}
