//! What the server says of objects while it changes them: it has all locks of the statement by then, so a switch that the statement
//! waited for has committed. Here are refused changes that commit before [`crate::utility`] could compare the tables with what
//! they were, and whatever would take the extension along.

use std::ffi::{c_int, c_void};

use pgrx::pg_sys::{self, ObjectAccessType, Oid};
use pgrx::prelude::*;

use crate::registry;
use crate::shared::{database, with_meters};
use crate::snapshots::function_is_called;
use crate::utility::{refuse_moving, refuse_without_bullfrog};

static mut NEXT_ACCESS: pg_sys::object_access_hook_type = None;

/// Takes its place.
pub(crate) fn hook() {
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_ACCESS = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(object_access);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn object_access(
    access: ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    part: c_int,
    argument: *mut c_void,
) {
    // SAFETY: the argument is what the kind of access says; an error of another hook passes the boundary.
    unsafe {
        if let Some(next) = NEXT_ACCESS {
            pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next(access, class, object, part, argument));
        }
        if access == ObjectAccessType::OAT_FUNCTION_EXECUTE {
            function_is_called();
        }
        if class != pg_sys::RelationRelationId {
            return;
        }
        match access {
            ObjectAccessType::OAT_DROP if object == registry::own_table(c"target") => drop_extension(),
            ObjectAccessType::OAT_DROP => {
                let flags = (*argument.cast::<pg_sys::ObjectAccessDrop>()).dropflags as u32;
                if flags & pg_sys::PERFORM_DELETION_CONCURRENTLY != 0 {
                    refuse_change_of_index(object, "DROP INDEX CONCURRENTLY");
                }
            }
            ObjectAccessType::OAT_POST_CREATE => refuse_change_of_index(object, "a new unique index"),
            // The server exchanges the file of a table by itself: VACUUM FULL, CLUSTER.
            ObjectAccessType::OAT_POST_ALTER if (*argument.cast::<pg_sys::ObjectAccessPostAlter>()).is_internal => {
                refuse_moving(&registry::current(), object, "a new file of a table");
            }
            _ => {}
        }
    }
}

/// Refuses to let the extension go while rows move, whatever statement drops it: its schema, its owner or its language may take it
/// along.
fn drop_extension() {
    if !registry::current().is_empty() {
        refuse_without_bullfrog();
    }
    // An extension that is created again numbers its sources from 1.
    with_meters(|meters| meters.forget(database()));
}

/// Refuses that a unique index of a table on the move comes or goes.
unsafe fn refuse_change_of_index(index: Oid, what: &str) {
    let registry = registry::current();
    if registry.is_empty() {
        return;
    }
    // SAFETY: a look at the catalog with what the statement itself has written there; an error ends all of it.
    let table = unsafe {
        let access_share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let catalog = pg_sys::table_open(pg_sys::IndexRelationId, access_share);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &raw mut key,
            pg_sys::Anum_pg_index_indexrelid as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_OIDEQ.into(),
            index.into(),
        );
        let scan = pg_sys::systable_beginscan(
            catalog,
            Oid::from_u32(pg_sys::IndexRelidIndexId),
            true,
            &raw mut pg_sys::SnapshotSelfData,
            1,
            &raw mut key,
        );
        let row = pg_sys::systable_getnext(scan);
        let table = (!row.is_null())
            .then(|| &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_index>())
            .filter(|form| form.indisunique)
            .map(|form| form.indrelid);
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, access_share);
        table
    };
    if let Some(table) = table {
        refuse_moving(&registry, table, what);
    }
}
