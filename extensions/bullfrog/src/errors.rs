//! Errors as clients see them: SQLSTATE, message, hint.

use std::borrow::Cow;
use std::fmt::Display;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Ends the statement with an error.
pub(crate) fn raise(code: PgSqlErrorCode, message: impl Into<Cow<'static, str>>, hint: impl Into<String>) -> ! {
    ErrorReport::new(code, message, "bullfrog").set_hint(hint).report(PgLogLevel::ERROR);
    unreachable!("an error report of level ERROR does not return")
}

/// Ends the statement: what it asks for is not supported.
pub(crate) fn refuse(message: impl Into<Cow<'static, str>>, hint: impl Into<String>) -> ! {
    raise(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, message, hint)
}

/// Ends the statement: one of our own failed in a way that it never should.
pub(crate) fn defect(error: &impl Display) -> ! {
    raise(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, error.to_string(), "This is a defect of bullfrog.")
}
