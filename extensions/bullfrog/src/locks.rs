//! Locks on tables by their numbers, and on domains. A name may mean another table by the time that its lock is free.

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
    if kind != pg_sys::RELKIND_RELATION && kind != pg_sys::RELKIND_PARTITIONED_TABLE {
        raise(
            PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE,
            format!("table {relation} of the migration is gone"),
            "Abort the migration, if its other tables are there.",
        );
    }
}

/// Keeps others from changing a domain, until the transaction ends: [`announce_change`] waits for that.
#[pg_extern(sql = false, strict)]
fn lock_domain(domain: Oid) {
    lock_type(domain, pg_sys::ShareLock);
}

/// Notes, before a statement changes a domain, that its transaction does. The server itself has it locked only as everybody has who uses it.
///
/// # Safety
/// A statement of the parser.
pub(crate) unsafe fn announce_change(alter: *mut pg_sys::AlterDomainStmt) {
    // SAFETY: as promised; what is found in the catalogs is given back. If there is no such type the statement says so.
    unsafe {
        let name = pg_sys::makeTypeNameFromNameList((*alter).typeName);
        let found = pg_sys::LookupTypeName(std::ptr::null_mut(), name, std::ptr::null_mut(), true);
        if !found.is_null() {
            let domain = (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_type>(found)).oid;
            pg_sys::ReleaseSysCache(found);
            lock_type(domain, pg_sys::ExclusiveLock);
        }
    }
}

fn lock_type(kind: Oid, mode: u32) {
    // SAFETY: waits for others, or ends in an error.
    unsafe { pg_sys::LockDatabaseObject(pg_sys::TypeRelationId, kind, 0, mode as pg_sys::LOCKMODE) };
}
