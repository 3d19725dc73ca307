//! The aggregate stage: merges partial aggregates of panes, closes windows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use savanna_streams_model::Result;
use savanna_streams_model::graph::Aggregate;
use savanna_streams_model::ids::Epoch;
use savanna_streams_model::payload::Body;
use savanna_streams_model::state::{DeltaId, KeyedState};
use savanna_streams_model::time::EventTime;

use crate::aggregate::{AggregateSpec, ClosedWindow, PaneState};
use crate::arena::CollectedInput;
use crate::chain::{Chain, batch_of};
use crate::error::broken;
use crate::expand::{check_window_columns, window_columns};
use crate::member::{Outgoing, StageOperator};
use crate::query::Progress;
use crate::topology::Outlet;

/// The operator of one member.
pub(crate) struct MergeOperator {
    state: PaneState,
    chain: Chain,
    schema: SchemaRef,
    outlet: Outlet,
    progress: Arc<Progress>,
}

impl MergeOperator {
    pub(crate) fn decode(
        stage: &Aggregate,
        functions: &Arc<TaskContext>,
        outlet: Outlet,
        progress: Arc<Progress>,
    ) -> Result<Self> {
        let spec = Arc::new(AggregateSpec::decode(&stage.aggregate, functions)?);
        let chain = Chain::decode(&stage.chain, functions)?;
        let schema = Arc::clone(chain.input());
        check_window_columns(&schema)?;
        Ok(Self { state: PaneState::new(spec)?, chain, schema, outlet, progress })
    }

    fn rows(&mut self, window: ClosedWindow) -> Result<Vec<RecordBatch>> {
        let starts = vec![window.start; window.rows];
        let mut columns = window.columns;
        columns.extend(window_columns(&self.schema, &starts, window.end - window.start)?);
        self.chain.apply(batch_of(&self.schema, columns, window.rows)?)
    }
}

impl StageOperator for MergeOperator {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        let mut watermark = EventTime::MAX;
        for input in inputs {
            watermark = watermark.min(input.watermark);
            for (sender, body) in input.bodies {
                let Body::Delta(delta) = body else {
                    return Err(broken(format!(
                        "stage {} sent rows where partial aggregates are merged",
                        input.key.from
                    )));
                };
                self.state.merge(&delta, DeltaId { epoch, sender })?;
            }
        }
        self.state.complete(epoch);
        let closed = self.state.scan(watermark.0)?;
        self.progress.windows_closed(epoch, closed.iter().map(|window| window.end));
        let mut rows = Vec::with_capacity(closed.len());
        for window in closed {
            rows.extend(self.rows(window)?);
        }
        Ok(self.outlet.send(epoch, watermark, vec![Body::Rows(rows)]))
    }

    fn bytes(&self) -> usize {
        self.state.bytes()
    }
}
