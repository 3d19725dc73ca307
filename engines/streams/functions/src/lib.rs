//! The functions that a query may call: DataFusion's, and those that streaming SQL has besides.

mod average;
mod bounded;
pub mod budget;
mod calendar;
mod casts;
mod compact;
mod constants;
mod definition;
mod digits;
mod extract;
mod fold;
mod forms;
mod json;
mod listagg;
mod not_null;
mod numbers;
mod one_nan;
mod pattern;
pub mod proctime;
mod regexp;
mod sizes;
mod strict;
mod text;
mod time_text;
mod time_units;
mod user;
mod user_groups;

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::execution::registry::FunctionRegistry;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionConfig;
use parking_lot::RwLock;
use savanna_streams_api::StreamError;

pub use bounded::with_bounds;
pub use casts::bounded_cast;
pub use compact::without_shared_strings;
pub use constants::wrong_text;
pub use digits::{in_digits, may_overflow};
pub use extract::wrong_field;
pub use forms::{Form, forms, forms_of};
pub use not_null::not_null;
pub use one_nan::{in_array as with_one_nan, one_nan};
pub use time_units::wrong_unit;
pub use user::{AggregateFunction, ScalarFunction, register_aggregate, register_scalar};

static STATE: LazyLock<SessionState> = LazyLock::new(|| {
    let mut config = SessionConfig::new().with_target_partitions(1);
    let options = config.options_mut();
    options.optimizer.enable_round_robin_repartition = false;
    options.optimizer.enable_dynamic_filter_pushdown = false;
    options.sql_parser.enable_ident_normalization = false;
    let mut builder = SessionStateBuilder::new().with_config(config).with_default_features();
    for function in builder.scalar_functions().iter_mut().flatten() {
        *function = bounded::bounded(Arc::clone(function));
    }
    let mut state = builder.build();
    for function in own() {
        state.register_udf(bounded::bounded(function)).expect("a session takes any scalar function");
    }
    for aggregate in [average::function(), listagg::function()].into_iter().chain(fold::functions()) {
        state.register_udaf(aggregate).expect("a session takes any aggregate");
    }
    state
});

/// The functions: ours, DataFusion's, and those that were registered.
static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(|| {
    let session = STATE.clone();
    RwLock::new(Registry { task: session.task_ctx(), session })
});

struct Registry {
    session: SessionState,
    task: Arc<TaskContext>,
}

/// Adds a function of the user's own.
fn register(name: &str, add: impl FnOnce(&mut SessionState) -> Result<()>) -> Result<(), StreamError> {
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    if !is_name {
        return Err(StreamError::invalid(format!(
            "'{name}' is not a valid function name; use lower-case letters, digits and _"
        )));
    }
    let mut registry = REGISTRY.write();
    let task = &registry.task;
    if task.scalar_functions().contains_key(name) || task.aggregate_functions().contains_key(name) {
        return Err(StreamError::Exists { kind: "function".into(), name: name.into(), position: None });
    }
    add(&mut registry.session).map_err(|e| StreamError::Internal(e.strip_backtrace()))?;
    registry.task = registry.session.task_ctx();
    Ok(())
}

/// Functions that planning puts into queries, and users do not call.
pub const OF_PLANS: [&str; 5] = ["cast", "in_digits", "not_null", "one_nan", "try_cast"];

/// The functions that shadow or complete DataFusion's.
fn own() -> Vec<Arc<ScalarUDF>> {
    let mut own =
        vec![numbers::modulo(), numbers::logarithm(), not_null::function(), one_nan::function(), proctime::function()];
    own.push(digits::function());
    own.extend(casts::functions());
    own.extend(extract::functions());
    own.extend(json::functions());
    own.extend(regexp::functions());
    own.extend(strict::functions());
    own.extend(text::functions());
    own.extend(time_text::functions());
    own.extend(time_units::functions());
    own
}

/// Every function that a stage graph may name; stages are decoded with it.
pub fn functions() -> Arc<TaskContext> {
    Arc::clone(&REGISTRY.read().task)
}

/// Those of them that every program of this release has: the ones that were registered are not among them.
pub fn builtin() -> Arc<TaskContext> {
    static TASK: LazyLock<Arc<TaskContext>> = LazyLock::new(|| STATE.task_ctx());
    Arc::clone(&TASK)
}

/// The names of the functions that were registered, in order.
pub fn registered() -> Vec<String> {
    let (all, builtin) = (functions(), builtin());
    let scalar = all.scalar_functions().keys().filter(|name| !builtin.scalar_functions().contains_key(*name));
    let aggregate = all.aggregate_functions().keys().filter(|name| !builtin.aggregate_functions().contains_key(*name));
    let mut names: Vec<String> = scalar.chain(aggregate).cloned().collect();
    names.sort();
    names
}

/// All functions but one that was registered.
pub fn without(name: &str) -> Arc<TaskContext> {
    let mut session = REGISTRY.read().session.clone();
    // It is one of both kinds, and none of the other.
    let _ = (session.deregister_udf(name), session.deregister_udaf(name));
    session.task_ctx()
}

/// A scalar function by name.
///
/// # Errors
/// If there is none of this name.
pub fn scalar(name: &str) -> Result<Arc<ScalarUDF>> {
    functions().udf(name)
}

/// The settings and rules that plans are made with.
pub fn session() -> &'static SessionState {
    &STATE
}
