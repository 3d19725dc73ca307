//! The functions that a query may call: DataFusion's, and those that streaming SQL has besides.

mod calendar;
mod date_format;
mod numbers;
mod text;

use std::sync::{Arc, LazyLock};

use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionConfig;

static STATE: LazyLock<SessionState> = LazyLock::new(|| {
    let mut config = SessionConfig::new().with_target_partitions(1);
    let options = config.options_mut();
    options.optimizer.enable_round_robin_repartition = false;
    options.optimizer.enable_dynamic_filter_pushdown = false;
    options.sql_parser.enable_ident_normalization = false;
    let mut state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    for function in own() {
        datafusion::execution::registry::FunctionRegistry::register_udf(&mut state, function)
            .expect("a session takes any scalar function");
    }
    state
});

static TASK: LazyLock<Arc<TaskContext>> = LazyLock::new(|| STATE.task_ctx());

/// The functions that shadow or complete DataFusion's.
fn own() -> Vec<Arc<ScalarUDF>> {
    let mut own = calendar::functions();
    own.extend([
        date_format::function(),
        numbers::modulo(),
        text::split_index(),
        text::regexp_extract(),
        text::count_char(),
    ]);
    own
}

/// Every function that a stage graph may name. Built once per process; stages are decoded with it.
pub fn functions() -> Arc<TaskContext> {
    Arc::clone(&TASK)
}

/// The names for `SHOW FUNCTIONS`, sorted: scalar functions and aggregates that queries may use.
pub fn function_names() -> Vec<String> {
    let mut names: Vec<String> = TASK
        .scalar_functions()
        .keys()
        .chain(TASK.aggregate_functions().keys())
        .filter(|name| crate::plan::refused_function(name).is_none())
        .cloned()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The settings and rules that plans are made with.
pub(crate) fn session() -> &'static SessionState {
    &STATE
}
