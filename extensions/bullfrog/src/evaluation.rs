//! Whether an expression has a value for every row. What may fail is evaluated for all rows before the switch: later, it
//! would fail in every query that meets such a row.

use std::ffi::c_void;

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::nodes;
use crate::versions::is_of_order;

/// Aggregates of the server that have a value whatever they are given.
const TOTAL: [&str; 8] = ["count", "min", "max", "sum", "avg", "bool_and", "bool_or", "every"];

/// Whether an expression may fail for a row: it is more than columns, constants, comparisons and plain aggregates of them.
///
/// # Safety
/// `node` is null or an analysed expression.
pub(crate) unsafe fn may_fail(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the walker needs no context.
    unsafe { fails(node, std::ptr::null_mut()) }
}

/// Whether an expression of the catalogs, as they keep it, may have another value at another time.
#[pg_extern(sql = false, strict)]
fn is_mutable(expression: &str) -> bool {
    let text = nodes::c_text(expression);
    // SAFETY: only a superuser may call this, with what the server itself wrote.
    unsafe { pg_sys::contain_mutable_functions(pg_sys::stringToNode(text.as_ptr()).cast()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn fails(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let is_plain = match nodes::tag(node) {
            NodeTag::T_Var
            | NodeTag::T_Const
            | NodeTag::T_RelabelType
            | NodeTag::T_BoolExpr
            | NodeTag::T_NullTest
            | NodeTag::T_BooleanTest
            | NodeTag::T_List
            | NodeTag::T_TargetEntry
            | NodeTag::T_FromExpr
            | NodeTag::T_JoinExpr
            | NodeTag::T_RangeTblRef => true,
            NodeTag::T_FuncExpr => is_exact_cast(node.cast()),
            NodeTag::T_OpExpr => is_of_order((*node.cast::<pg_sys::OpExpr>()).opno),
            NodeTag::T_Aggref => is_total(node.cast()),
            _ => false,
        };
        !is_plain || nodes::walk_expression(node, fails, context)
    }
}

/// Whether an expression is a cast of a number to a larger type: it has a value for each, and another one for another number.
///
/// # Safety
/// A node of an analysed expression.
pub(crate) unsafe fn is_exact_cast(call: *mut pg_sys::FuncExpr) -> bool {
    const EXACT: [u32; 6] = [
        pg_sys::F_INT4_INT2,
        pg_sys::F_INT8_INT2,
        pg_sys::F_INT8_INT4,
        pg_sys::F_NUMERIC_INT2,
        pg_sys::F_NUMERIC_INT4,
        pg_sys::F_NUMERIC_INT8,
    ];
    // SAFETY: as promised.
    unsafe { EXACT.contains(&(*call).funcid.to_u32()) }
}

/// Whether an aggregate has one value, whatever it is given and in whatever order.
///
/// # Safety
/// A node of an analysed expression.
pub(crate) unsafe fn is_total(aggregate: *mut pg_sys::Aggref) -> bool {
    // SAFETY: a node of an analysed expression.
    unsafe {
        let function = (*aggregate).aggfnoid;
        let name = nodes::text(pg_sys::get_func_name(function));
        // Floating point numbers, money and intervals overflow.
        let adds = name == "sum" || name == "avg";
        let overflows = (*aggregate).aggtype != pg_sys::INT8OID && (*aggregate).aggtype != pg_sys::NUMERICOID;
        pg_sys::get_func_namespace(function) == Oid::from_u32(pg_sys::PG_CATALOG_NAMESPACE)
            && TOTAL.contains(&name.as_str())
            && !(adds && overflows)
    }
}
