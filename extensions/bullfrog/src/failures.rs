//! What fails in a transaction of bullfrog's own.

use std::panic::AssertUnwindSafe;

use bullfrog_model::board::Failure;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::nodes;

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

/// What may be told of a failed move to the client: it has moved rows of others, and an error may say what is in them (`invalid input
/// syntax for type integer: ".."`). That a constraint is violated says nothing; all else is for those who may see the statements of others.
pub(crate) fn for_client(failure: &Failure) -> String {
    // SAFETY: the client's role, also where a function has other rights, and what the server knows of it; the state is copied at once.
    unsafe {
        let all_stats = pg_sys::Oid::from_u32(pg_sys::ROLE_PG_READ_ALL_STATS);
        if is_violation(failure.code) || pg_sys::has_privs_of_role(pg_sys::GetOuterUserId(), all_stats) {
            return failure.message();
        }
        let state = nodes::text(pg_sys::unpack_sql_state(failure.code));
        format!("error {state}, of which superusers and members of pg_read_all_stats see more")
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
