//! What the results of functions may take in memory while one batch of rows is computed.
//!
//! A thread knows how much. What a call may give is asked for before it is computed, and what it gave is counted for as long as
//! somebody holds it. While a statement is planned, results become constants of the plan: these are counted for good, and
//! those that have no room are computed when the query runs.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use savanna_streams_api::StreamError;

use super::sizes;

/// Bytes that results may take together where no `memory-limit` says otherwise.
pub const RESULTS_MAX: u64 = 512 << 20;
/// Bytes that the constants of a statement may take, beyond those that are written in it.
const CONSTANTS_MAX: u64 = 16 << 20;
/// The offsets within a column of texts have 31 bits.
const COLUMN_MAX: u64 = i32::MAX as u64;
/// Results that are smaller are not counted.
const COUNTED_MIN: usize = 16 << 10;

thread_local! {
    static BUDGET: RefCell<Budget> = const { RefCell::new(Budget::new(None)) };
}

#[derive(Debug)]
struct Budget {
    /// The query's own limit.
    limit: Option<u64>,
    /// Whether results become constants of a plan.
    plans: bool,
    /// Results that somebody may still hold.
    results: Vec<(Weak<dyn Array>, u64)>,
    /// Bytes of results that are values for all rows.
    constants: u64,
}

impl Budget {
    const fn new(limit: Option<u64>) -> Self {
        Self { limit, plans: false, results: Vec::new(), constants: 0 }
    }

    fn max(&self) -> u64 {
        if self.plans { CONSTANTS_MAX } else { self.limit.unwrap_or(RESULTS_MAX).min(COLUMN_MAX) }
    }

    fn used(&mut self) -> u64 {
        self.results.retain(|(result, _)| result.strong_count() > 0);
        self.results.iter().map(|(_, bytes)| *bytes).sum::<u64>() + self.constants
    }
}

/// Does some work of a query that may hold `limit` bytes, if it has a limit.
pub fn within<T>(limit: Option<u64>, work: impl FnOnce() -> T) -> T {
    under(Budget::new(limit), work)
}

/// Plans a statement: results of functions become constants.
pub fn planning<T>(work: impl FnOnce() -> T) -> T {
    under(Budget { plans: true, ..Budget::new(None) }, work)
}

fn under<T>(budget: Budget, work: impl FnOnce() -> T) -> T {
    /// Gives the thread its former budget back, also when it panics.
    struct Former(Option<Budget>);
    impl Drop for Former {
        fn drop(&mut self) {
            if let Some(former) = self.0.take() {
                BUDGET.set(former);
            }
        }
    }
    let _former = Former(Some(BUDGET.replace(budget)));
    work()
}

/// Another batch of rows begins: what came of the last one is the caller's to count.
pub fn begin() {
    BUDGET.with_borrow_mut(|budget| {
        if !budget.plans {
            budget.results.clear();
            budget.constants = 0;
        }
    });
}

/// How many bytes may still be computed.
pub(super) fn left() -> u64 {
    BUDGET.with_borrow_mut(|budget| budget.max().saturating_sub(budget.used()))
}

/// Counts a result.
pub(super) fn count(result: &ColumnarValue) {
    let bytes = sizes::of_value(result);
    if bytes < COUNTED_MIN {
        return;
    }
    BUDGET.with_borrow_mut(|budget| match result {
        ColumnarValue::Array(array) if !budget.plans => budget.results.push((Arc::downgrade(array), bytes as u64)),
        _ => budget.constants += bytes as u64,
    });
}

/// Counts a column that is no function's result.
///
/// # Errors
/// There is no room for it.
pub fn count_column(what: &str, column: &ArrayRef) -> Result<()> {
    check(what, sizes::of_array(column.as_ref()) as u128)?;
    count(&ColumnarValue::Array(Arc::clone(column)));
    Ok(())
}

/// A column of a value: of one for all rows, if there is room for so many copies.
///
/// # Errors
/// There is not.
pub fn column_of(what: &str, value: ColumnarValue, rows: usize) -> Result<ArrayRef> {
    if let ColumnarValue::Scalar(_) = &value {
        check(what, sizes::of_value(&value) as u128 * rows as u128)?;
    }
    value.into_array(rows)
}

/// Refuses to compute what may take so many bytes if there is no room for them.
///
/// # Errors
/// [`StreamError::Limit`].
pub fn check(what: &str, bytes: u128) -> Result<()> {
    if bytes <= left().into() { Ok(()) } else { Err(too_large(what, bytes)) }
}

/// That something is too large to be computed.
pub(super) fn too_large(what: &str, bytes: u128) -> DataFusionError {
    let (max, limit) = BUDGET.with_borrow(|budget| (budget.max(), budget.limit));
    let bound = match limit {
        Some(_) => "the query's memory-limit of",
        None => "the default limit of",
    };
    let max = mebibytes(max.into());
    let message = format!(
        "{what} may need {} for one batch of rows; with the batch's other values this exceeds {bound} {max}; use shorter values, \
         or raise the limit with SET 'memory-limit'",
        mebibytes(bytes)
    );
    DataFusionError::External(Box::new(StreamError::Limit { message }))
}

fn mebibytes(bytes: u128) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
