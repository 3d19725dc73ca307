//! A query over rows that are there. It has an end, and is computed on the thread that asks.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt as _;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::{budget, without_shared_strings};
use tokio::runtime::Builder;

use crate::error::{broken, evaluating};

/// How often it is asked whether anybody still waits.
const ASKED_EVERY: Duration = Duration::from_millis(10);

/// All rows of a plan, which may take `limit` bytes together with its operators.
///
/// # Errors
/// A value cannot be computed, there is no room, or `go_on` says no.
pub fn answer(
    plan: Arc<dyn ExecutionPlan>,
    limit: Option<u64>,
    go_on: impl Fn() -> Result<()>,
) -> Result<Vec<RecordBatch>> {
    let bytes = limit.unwrap_or(budget::RESULTS_MAX);
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(usize::try_from(bytes).unwrap_or(usize::MAX)));
    let held = MemoryConsumer::new("result").register(&pool);
    let context = context(pool)?;
    let failed = |error: &DataFusionError| match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => too_large(bytes),
        _ => evaluating("a query over materialized views", error),
    };
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|e| broken(format!("no runtime for a query over views: {e}")))?;
    let computed = async {
        let mut stream = execute_stream(plan, context).map_err(|e| failed(&e))?;
        let mut rows = Vec::new();
        loop {
            budget::begin();
            let next = tokio::time::timeout(ASKED_EVERY, stream.next()).await;
            go_on()?;
            match next {
                Err(_) => {}
                Ok(None) => return Ok(rows),
                Ok(Some(batch)) => {
                    // Rows that were sorted or joined hold all texts of what they were taken from.
                    let batch = without_shared_strings(&batch.map_err(|e| failed(&e))?)?;
                    held.try_grow(batch.get_array_memory_size()).map_err(|e| failed(&e))?;
                    rows.push(batch);
                }
            }
        }
    };
    let rows = budget::within(limit, || runtime.block_on(computed));
    runtime.shutdown_background();
    rows
}

/// Nothing goes to a disk: what has no room fails.
fn context(pool: Arc<dyn MemoryPool>) -> Result<Arc<TaskContext>> {
    let disks = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disks).build_arc();
    let environment = environment.map_err(|e| broken(format!("no environment for a query over views: {e}")))?;
    let functions = savanna_streams_functions::functions();
    Ok(Arc::new(TaskContext::new(
        None,
        functions.session_id(),
        functions.session_config().clone(),
        functions.scalar_functions().clone(),
        functions.higher_order_functions().clone(),
        functions.aggregate_functions().clone(),
        functions.window_functions().clone(),
        environment,
    )))
}

fn too_large(bytes: u64) -> StreamError {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    StreamError::Limit {
        message: format!(
            "the query and its result take more than {mebibytes:.1} MiB; ask for fewer rows or columns, or raise the limit with SET 'memory-limit'"
        ),
    }
}
