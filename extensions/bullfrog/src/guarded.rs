//! Tables on the move cannot be used without the library. A server or a standby that does not have it would answer from the rows that
//! moved alone, and leave old tables open. So until the end they have an access method of bullfrog's own. It is the server's heap, row by row
//! and byte by byte, but the server asks a function of the library for it, before anything else, whatever is done with the table.

use pgrx::datum::Internal;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::errors::{defect, raise};

/// The access method of guarded tables: the server's heap.
#[pg_extern(sql = false)]
fn guarded_heap(_call: pg_sys::FunctionCallInfo) -> Internal {
    // SAFETY: a constant of the server.
    Internal::from(Some(unsafe { pg_sys::GetHeapamTableAmRoutine() }.expose_provenance().into()))
}

/// Gives a table the access method with this name, of those that are the server's heap. The caller has it locked against everybody.
#[pg_extern(sql = false, strict)]
fn set_access_method(relation: Oid, name: &str) {
    // SAFETY: the right of the current user.
    if !unsafe { pg_sys::superuser() } {
        raise(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "only a superuser may change how tables are accessed",
            "bullfrog.migrate, bullfrog.finish and bullfrog.abort call this function.",
        );
    }
    let heap = pg_sys::HEAP_TABLE_AM_OID;
    // SAFETY: changes a row of a catalog as the server does it; the copy of the row is ours.
    unsafe {
        let guarded = pg_sys::get_table_am_oid(c"bullfrog_heap".as_ptr(), false);
        let chosen = if name == "heap" { heap } else { guarded };
        let catalog = pg_sys::table_open(pg_sys::RelationRelationId, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
        let row = pg_sys::SearchSysCacheCopy(
            pg_sys::SysCacheIdentifier::RELOID as i32,
            relation.into(),
            0.into(),
            0.into(),
            0.into(),
        );
        if row.is_null() {
            defect(&format!("table {relation} is gone"));
        }
        let form = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_class>(row);
        if (*form).relam != heap && (*form).relam != guarded {
            raise(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                "a table that takes part in a migration must have the access method heap",
                "ALTER TABLE .. SET ACCESS METHOD heap.",
            );
        }
        if (*form).relam != chosen {
            (*form).relam = chosen;
            pg_sys::CatalogTupleUpdate(catalog, &raw mut (*row).t_self, row);
            depend(relation, guarded, chosen == guarded);
        }
        pg_sys::heap_freetuple(row);
        pg_sys::table_close(catalog, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
        pg_sys::CommandCounterIncrement();
    }
}

/// Notes that a table cannot be without its access method, or that it can.
unsafe fn depend(relation: Oid, method: Oid, depends: bool) {
    let table = pg_sys::ObjectAddress { classId: pg_sys::RelationRelationId, objectId: relation, objectSubId: 0 };
    let method_address =
        pg_sys::ObjectAddress { classId: pg_sys::AccessMethodRelationId, objectId: method, objectSubId: 0 };
    let kind = pg_sys::DependencyType::DEPENDENCY_NORMAL;
    // SAFETY: addresses of objects that are there.
    unsafe {
        if depends {
            pg_sys::recordDependencyOn(&raw const table, &raw const method_address, kind);
        } else {
            pg_sys::deleteDependencyRecordsForSpecific(
                table.classId,
                table.objectId,
                kind as std::ffi::c_char,
                method_address.classId,
                method_address.objectId,
            );
        }
    }
}
