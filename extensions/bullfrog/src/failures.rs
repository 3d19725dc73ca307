//! What fails in a transaction of bullfrog's own.

use std::panic::AssertUnwindSafe;

use bullfrog_model::board::Failure;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

/// Whether a row violates a constraint.
pub(crate) fn is_violation(code: i32) -> bool {
    [
        PgSqlErrorCode::ERRCODE_NOT_NULL_VIOLATION,
        PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION,
        PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
    ]
    .into_iter()
    .any(|violation| code == violation as i32)
}

/// An error of the server, to be told to another process.
pub(crate) fn failure_of(error: &CaughtError) -> Failure {
    match error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => {
            Failure::new(report.sql_error_code() as i32, report.message())
        }
        CaughtError::RustPanic { ereport, .. } => Failure::new(ereport.sql_error_code() as i32, ereport.message()),
    }
}

/// Does something of which nothing is left if it fails, within the transaction.
pub(crate) fn in_subtransaction<R>(body: impl FnOnce() -> R) -> Result<R, Failure> {
    // SAFETY: as the server's own languages do it; what the subtransaction changes of the process is put back.
    unsafe {
        let (memory, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
        let outcome =
            PgTryBuilder::new(AssertUnwindSafe(|| Ok(body()))).catch_others(|error| Err(failure_of(&error))).execute();
        match outcome {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(memory);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// Writes what went wrong into the server's log.
pub(crate) fn warn(what: &str, failure: &Failure) {
    ereport!(LOG, PgSqlErrorCode::ERRCODE_WARNING, format!("bullfrog: {what}: {}", failure.message()));
}
