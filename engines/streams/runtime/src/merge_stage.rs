//! The aggregate stage: merges partial aggregates, closes windows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::graph::Aggregate;
use savanna_streams_model::payload::Body;
use savanna_streams_model::state::DeltaId;
use savanna_streams_model::time::EventTime;

use crate::aggregate::{AggregateSpec, ClosedWindows, WindowState};
use crate::arena::CollectedInput;
use crate::chain::batch_of;
use crate::error::broken;
use crate::expand::{check_window_columns, window_columns};
use crate::member::{Outgoing, StageOperator};
use crate::output::OutputOperator;
use crate::query::Progress;
use crate::snapshot::{FormerAggregates, State};

/// The operator of one member.
pub(crate) struct MergeOperator {
    /// The stages that send partial aggregates; all cut them alike.
    inputs: Vec<StageId>,
    state: WindowState,
    spec: Arc<AggregateSpec>,
    schema: SchemaRef,
    output: OutputOperator,
    /// Where closed windows are counted, if they are counted here.
    progress: Option<Arc<Progress>>,
}

impl MergeOperator {
    pub(crate) fn decode(
        stage: &Aggregate,
        functions: &Arc<TaskContext>,
        output: OutputOperator,
        progress: Option<Arc<Progress>>,
    ) -> Result<Self> {
        let spec = Arc::new(AggregateSpec::decode(&stage.aggregate, functions)?);
        let schema = Arc::clone(output.input());
        check_window_columns(&schema)?;
        let (inputs, state) = (stage.inputs.clone(), WindowState::new(Arc::clone(&spec))?);
        Ok(Self { inputs, state, spec, schema, output, progress })
    }

    fn rows(&self, closed: ClosedWindows) -> Result<RecordBatch> {
        let ClosedWindows { starts, ends, mut columns } = closed;
        columns.extend(window_columns(&self.schema, &starts, &ends)?);
        batch_of(&self.schema, columns, ends.len())
    }
}

impl StageOperator for MergeOperator {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        self.output.begin(epoch);
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
                self.state.merge(&delta, DeltaId { epoch, stage: input.key.from, sender })?;
            }
        }
        self.state.complete(epoch);
        let closed = self.state.scan(watermark)?;
        if let Some(progress) = &self.progress {
            progress.windows_closed(epoch, closed.iter().flat_map(ClosedWindows::distinct_ends));
        }
        for window in closed {
            let rows = self.rows(window)?;
            self.output.take(rows)?;
        }
        self.output.seal(epoch, watermark)
    }

    fn bytes(&self) -> usize {
        self.state.bytes() + self.output.bytes()
    }

    fn signature(&self) -> String {
        self.state.signature(&self.spec)
    }

    fn sender(&self, rows: &str) -> Option<StageId> {
        self.inputs.first().copied().filter(|_| self.state.keeps(rows))
    }

    fn state(&mut self) -> Result<State> {
        self.state.state()
    }

    fn state_to_send(&mut self) -> Result<State> {
        self.state.state_to_send()
    }

    fn recast(&self, state: State, former: &FormerAggregates) -> Result<State> {
        self.state.recast(&self.spec, state, former)
    }

    fn restore(&mut self, state: &State) -> Result<()> {
        self.state.restore(&self.spec, state)
    }
}
