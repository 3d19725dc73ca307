//! What the planner expects of tables that fill. A plan is kept while rows move, perhaps from the switch on, when a new table was
//! empty: planned for an empty table it would read a full one from end to end. So plans are made for the size that tables will have.

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::nodes;
use crate::registry;

/// Entries of an index on a page, roughly.
const ENTRIES: f64 = 250.0;

static mut NEXT_RELATION_INFO: pg_sys::get_relation_info_hook_type = None;

/// Takes its place behind the server's own look at a table.
pub(crate) fn hook() {
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_RELATION_INFO = pg_sys::get_relation_info_hook;
        pg_sys::get_relation_info_hook = Some(relation_info);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_info(
    root: *mut pg_sys::PlannerInfo,
    relation: Oid,
    is_parent: bool,
    info: *mut pg_sys::RelOptInfo,
) {
    // SAFETY: the arguments are the server's; a hook may end in an error of the server, which passes the boundary.
    unsafe {
        if let Some(next) = NEXT_RELATION_INFO {
            pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next(root, relation, is_parent, info));
        }
        let registry = registry::current();
        let Some(target) = registry.target(relation) else {
            return;
        };
        if (*info).tuples < target.rows {
            (*info).tuples = target.rows;
            (*info).pages = (*info).pages.max(target.pages as pg_sys::BlockNumber);
            for index in nodes::elements::<pg_sys::IndexOptInfo>((*info).indexlist) {
                (*index).tuples = (*index).tuples.max(target.rows);
                (*index).pages = (*index).pages.max((target.rows / ENTRIES).ceil() as pg_sys::BlockNumber);
            }
        }
    }
}
