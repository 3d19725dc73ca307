//! Locks on tables by their numbers. A name may mean another table by the time that its lock is free.

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::errors::{defect, raise};

/// Locks a table until the transaction ends.
#[pg_extern(sql = false, strict)]
fn lock(relation: Oid, mode: &str) {
    let mode = match mode {
        "ACCESS SHARE" => pg_sys::AccessShareLock,
        "SHARE UPDATE EXCLUSIVE" => pg_sys::ShareUpdateExclusiveLock,
        "SHARE ROW EXCLUSIVE" => pg_sys::ShareRowExclusiveLock,
        "EXCLUSIVE" => pg_sys::ExclusiveLock,
        "ACCESS EXCLUSIVE" => pg_sys::AccessExclusiveLock,
        _ => defect(&format!("no mode of a lock: {mode}")),
    };
    // SAFETY: waits for others, or ends in an error; then looks into the catalogs.
    let kind = unsafe {
        pg_sys::LockRelationOid(relation, mode as pg_sys::LOCKMODE);
        pg_sys::get_rel_relkind(relation) as u8
    };
    if kind != pg_sys::RELKIND_RELATION {
        raise(
            PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE,
            format!("table {relation} of the migration is gone"),
            "Abort the migration, if its other tables are there.",
        );
    }
}
