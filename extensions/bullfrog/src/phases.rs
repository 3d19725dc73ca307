//! The phases of a migration, and small functions of the SQL script.

use bullfrog_model::granule::name_of_place;
use bullfrog_model::phase::{Event, Phase};
use pgrx::prelude::*;

use crate::errors::raise;

/// The phase after an event.
#[pg_extern(sql = false, immutable, strict)]
fn next_phase(phase: &str, event: &str) -> String {
    let invalid = |message: String| -> ! {
        raise(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            message,
            "bullfrog.pause and its like call this function.",
        )
    };
    let phase: Phase = phase.parse().unwrap_or_else(|error| invalid(error));
    let event: Event = event.parse().unwrap_or_else(|error| invalid(error));
    match phase.on(event) {
        Ok(next) => next.to_string(),
        Err(ended) => raise(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            ended.to_string(),
            "SELECT name, phase FROM bullfrog.migration lists all migrations.",
        ),
    }
}

/// The page on which a row lies.
#[pg_extern(sql = false, immutable, strict, parallel_safe)]
fn page(row: pg_sys::ItemPointerData) -> i64 {
    i64::from(pgrx::itemptr::item_pointer_get_both(row).0)
}

/// Where a row lies, as a number.
#[pg_extern(sql = false, immutable, strict, parallel_safe)]
fn place(row: pg_sys::ItemPointerData) -> i64 {
    let (page, number) = pgrx::itemptr::item_pointer_get_both(row);
    name_of_place(page, number)
}

/// Tells every session that plans over this table are no longer valid.
#[pg_extern(sql = false, strict)]
fn announce(changed: pg_sys::Oid) {
    // SAFETY: takes any oid; the message is sent when the transaction commits.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(changed) };
}
