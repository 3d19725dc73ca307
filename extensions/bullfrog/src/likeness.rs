//! What a new table takes over from its old one where a migration asks for it (`like => true`): indexes, and the expressions of checks, over
//! the columns that both have, whatever their names and numbers are. The server's own steps for `CREATE TABLE .. LIKE` do it.

use std::ffi::c_int;

use pgrx::pg_sys::submodules::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, AttrMap, NodeTag, Oid};
use pgrx::prelude::*;

use crate::errors::{defect, refuse};
use crate::nodes;

// Of headers that pgrx does not read; the same in all versions.
unsafe extern "C-unwind" {
    fn generateClonedIndexStmt(
        heap: *mut pg_sys::RangeVar,
        index: pg_sys::Relation,
        map: *const AttrMap,
        constraint: *mut Oid,
    ) -> *mut pg_sys::IndexStmt;
    fn map_variable_attnos(
        node: *mut pg_sys::Node,
        varno: c_int,
        sublevels: c_int,
        map: *const AttrMap,
        row_type: Oid,
        found_whole_row: *mut bool,
    ) -> *mut pg_sys::Node;
}

/// Creates an index of a new table that is like one of its old table. All columns that it is about are there. `origins`: of each new column
/// the old one.
#[pg_extern(sql = false, strict)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn copy_index(index: Oid, new_table: Oid, origins: Vec<i16>) {
    // SAFETY: as the server does it for LIKE; the index stays locked until the transaction ends.
    unsafe {
        let map = map_of(&origins);
        let opened = pg_sys::index_open(index, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let old_table = (*(*opened).rd_index).indrelid;
        let mut constraint = Oid::INVALID;
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(new_table));
        let heap = pg_sys::makeRangeVar(schema, pg_sys::get_rel_name(new_table), -1);
        let statement = pg_guard_ffi_boundary(|| generateClonedIndexStmt(heap, opened, map, &raw mut constraint));
        pg_sys::index_close(opened, pg_sys::NoLock as pg_sys::LOCKMODE);
        // The server takes the names of columns for those of both tables.
        let elements = [(*statement).indexParams, (*statement).indexIncludingParams];
        for element in elements.into_iter().flat_map(|list| nodes::elements::<pg_sys::IndexElem>(list)) {
            if !(*element).name.is_null() {
                let origin = pg_sys::get_attnum(old_table, (*element).name);
                let number = origins.iter().position(|of| *of == origin);
                let number = number.unwrap_or_else(|| defect(&"an index of a column that the new table does not have"));
                (*element).name = pg_sys::get_attname(new_table, number as i16 + 1, false);
            }
        }
        run(statement.cast());
    }
}

/// An expression of an old table's catalogs, as a text for a new table.
#[pg_extern(sql = false, strict)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn expression_of(expression: &str, new_table: Oid, origins: Vec<i16>) -> String {
    let text = nodes::c_text(expression);
    // SAFETY: only a superuser may call this, with what the server itself wrote.
    unsafe {
        let map = map_of(&origins);
        let node = pg_sys::stringToNode(text.as_ptr()).cast::<pg_sys::Node>();
        let mut has_whole_row = false;
        let found = &raw mut has_whole_row;
        let mapped = pg_guard_ffi_boundary(|| map_variable_attnos(node, 1, 0, map, Oid::INVALID, found));
        if has_whole_row {
            refuse(
                "a check of the whole row cannot be carried over",
                "Declare it in the definition, or without like => true.",
            );
        }
        let context = pg_sys::deparse_context_for(pg_sys::get_rel_name(new_table), new_table);
        nodes::text(pg_sys::deparse_expression(mapped, context, false, false))
    }
}

/// Of each old column the number of the new one; 0: there is none.
unsafe fn map_of(origins: &[i16]) -> *mut AttrMap {
    let length = origins.iter().copied().max().unwrap_or(0);
    // SAFETY: the map has as many numbers as it is made for, all 0.
    unsafe {
        let map = pg_sys::make_attrmap(length.into());
        for (number, origin) in origins.iter().enumerate().rev().filter(|(_, origin)| **origin > 0) {
            *(*map).attnums.add(*origin as usize - 1) = number as i16 + 1;
        }
        map
    }
}

/// Runs a statement of the server's own making, as one of a function.
unsafe fn run(statement: *mut pg_sys::Node) {
    // SAFETY: a statement that is complete.
    unsafe {
        let planned = pg_sys::palloc0(size_of::<pg_sys::PlannedStmt>()).cast::<pg_sys::PlannedStmt>();
        (*planned).type_ = NodeTag::T_PlannedStmt;
        (*planned).commandType = pg_sys::CmdType::CMD_UTILITY;
        (*planned).utilityStmt = statement;
        (*planned).stmt_location = -1;
        pg_sys::ProcessUtility(
            planned,
            c"bullfrog.copy_index".as_ptr(),
            false,
            pg_sys::ProcessUtilityContext::PROCESS_UTILITY_QUERY,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            pg_sys::CreateDestReceiver(pg_sys::CommandDest::DestNone),
            std::ptr::null_mut(),
        );
        pg_sys::CommandCounterIncrement();
    }
}
