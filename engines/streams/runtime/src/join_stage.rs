//! The join stage: two streams within bounds of time.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::join::IntervalJoin as JoinPlan;
use savanna_streams_model::payload::Body;
use savanna_streams_model::state::MovableState;
use savanna_streams_model::time::EventTime;

use crate::arena::CollectedInput;
use crate::error::broken;
use crate::interval_join::{IntervalJoin, Watermarks};
use crate::member::{Outgoing, StageOperator};
use crate::output::OutputOperator;
use crate::snapshot::State;

/// The operator of one member.
pub(crate) struct JoinOperator {
    join: IntervalJoin,
    /// The stages of each side.
    left: Vec<StageId>,
    right: Vec<StageId>,
    output: OutputOperator,
}

impl JoinOperator {
    pub(crate) fn decode(plan: &JoinPlan, functions: &Arc<TaskContext>, output: OutputOperator) -> Result<Self> {
        let join = IntervalJoin::decode(plan, functions)?;
        Ok(Self { join, left: plan.left.stages.clone(), right: plan.right.stages.clone(), output })
    }
}

/// The rows of an input.
fn rows_of(input: &CollectedInput) -> Result<Vec<RecordBatch>> {
    let mut rows = Vec::new();
    for (_, body) in &input.bodies {
        match body {
            Body::Rows(batches) => rows.extend(batches.iter().cloned()),
            Body::Delta(_) | Body::Read(_) => {
                return Err(broken(format!("stage {} sent something else than rows to a join", input.key.from)));
            }
        }
    }
    Ok(rows)
}

impl StageOperator for JoinOperator {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        self.output.begin(epoch);
        let mut watermarks = Watermarks { left: EventTime::MAX, right: EventTime::MAX };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for input in &inputs {
            if self.left.contains(&input.key.from) {
                watermarks.left = watermarks.left.min(input.watermark);
                left.extend(rows_of(input)?);
            } else if self.right.contains(&input.key.from) {
                watermarks.right = watermarks.right.min(input.watermark);
                right.extend(rows_of(input)?);
            }
        }
        for rows in self.join.apply(&left, &right, watermarks)? {
            self.output.take(rows)?;
        }
        self.output.seal(epoch, self.join.watermark())
    }

    fn bytes(&self) -> usize {
        self.join.bytes() + self.output.bytes()
    }

    fn signature(&self) -> String {
        self.join.signature()
    }

    fn sender(&self, rows: &str) -> Option<StageId> {
        let [left, right] = IntervalJoin::ROWS;
        let side = if rows == left { Some(&self.left) } else { (rows == right).then_some(&self.right) };
        side?.first().copied()
    }

    fn state(&mut self) -> Result<State> {
        self.join.state()
    }

    fn state_to_send(&mut self) -> Result<State> {
        self.join.state_to_send()
    }

    fn restore(&mut self, state: &State) -> Result<()> {
        self.join.restore(state)
    }
}
