//! Running a DataFusion plan again and again over new inputs.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use savanna_streams_api::Result;
use savanna_streams_functions::budget;
use savanna_streams_model::plan::{Leaf, leaves};
use tokio::runtime::{Builder, Runtime};

use crate::error::{broken, evaluating};

/// A plan with the runtime that drives its streams.
pub(crate) struct PlanRun {
    plan: Arc<dyn ExecutionPlan>,
    functions: Arc<TaskContext>,
    /// Operators may spawn tasks; they run on the thread that waits for the result. There until dropped.
    runtime: Option<Runtime>,
}

impl PlanRun {
    pub(crate) fn new(plan: Arc<dyn ExecutionPlan>, functions: Arc<TaskContext>) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .build()
            .map_err(|e| broken(format!("no runtime for a plan's streams: {e}")))?;
        Ok(Self { plan, functions, runtime: Some(runtime) })
    }

    /// Runs the plan; leaf number `i` reads `input(i)`.
    pub(crate) fn run(&mut self, mut input: impl FnMut(usize) -> Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        // Without the reset, metrics pile up with every run and some operators refuse a second one.
        let plan =
            reset_plan_states(Arc::clone(&self.plan)).map_err(|e| broken(format!("a plan cannot be reset: {e}")))?;
        self.plan = Arc::clone(&plan);
        let leaves = leaves(&plan);
        for leaf in leaves.iter().filter_map(|leaf| leaf.downcast_ref::<Leaf>()) {
            leaf.fill(input(leaf.index()));
        }
        budget::begin();
        let runtime = self.runtime.as_ref().ok_or_else(|| broken("a plan runs after its end"))?;
        let rows = runtime.block_on(collect(plan, Arc::clone(&self.functions)));
        for leaf in leaves.iter().filter_map(|leaf| leaf.downcast_ref::<Leaf>()) {
            leaf.fill(Vec::new());
        }
        let rows = rows.map_err(|e| evaluating("a plan over a window", &e))?;
        Ok(rows.into_iter().filter(|batch| batch.num_rows() > 0).collect())
    }
}

/// A query may be dropped by an asynchronous task, where a runtime may not wait for its own end.
impl Drop for PlanRun {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
