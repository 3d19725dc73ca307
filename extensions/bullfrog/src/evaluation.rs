//! Whether an expression has a value for every row. What may fail is evaluated for all rows before the switch: later, it
//! would fail in every query that meets such a row.

use std::ffi::c_void;

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;
use pgrx::tupdesc::PgTupleDesc;

use crate::nodes;
use crate::versions::{is_of_order, makes_of_json};

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

/// Whether an expression makes a value of a domain, or one that has such a value in it: a domain may come to refuse what it took before.
///
/// # Safety
/// `node` is null or an analysed expression.
pub(crate) unsafe fn has_domain(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the walker needs no context.
    unsafe { casts_to_domain(node, std::ptr::null_mut()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn casts_to_domain(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    // SAFETY: the tag tells the kind of a node; of these the server tells the type.
    !node.is_null()
        && unsafe {
            makes_value(node) && contains_domain(pg_sys::exprType(node))
                || nodes::walk_expression(node, casts_to_domain, context)
        }
}

/// Whether an expression gives more than what is there: a cast may go by way of a text, and a function by whatever way it likes.
unsafe fn makes_value(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag tells the kind of a node.
    let tag = unsafe { nodes::tag(node) };
    makes_of_json(tag)
        || matches!(
            tag,
            NodeTag::T_CoerceToDomain
                | NodeTag::T_CoerceViaIO
                | NodeTag::T_ArrayCoerceExpr
                | NodeTag::T_ConvertRowtypeExpr
                | NodeTag::T_FuncExpr
                | NodeTag::T_OpExpr
                | NodeTag::T_Aggref
        )
}

/// Whether a type is a domain, or an array, a row or a range of such values, at any depth.
unsafe fn contains_domain(kind: Oid) -> bool {
    // SAFETY: looks the type up; no type is in itself.
    unsafe {
        match pg_sys::get_typtype(kind) as u8 {
            pg_sys::TYPTYPE_DOMAIN => true,
            pg_sys::TYPTYPE_RANGE => contains_domain(pg_sys::get_range_subtype(kind)),
            pg_sys::TYPTYPE_MULTIRANGE => contains_domain(pg_sys::get_multirange_range(kind)),
            pg_sys::TYPTYPE_COMPOSITE => PgTupleDesc::for_composite_type_by_oid(kind)
                .is_some_and(|row| row.iter().any(|column| !column.attisdropped && contains_domain(column.atttypid))),
            _ => {
                let element = pg_sys::get_element_type(kind);
                element != Oid::INVALID && contains_domain(element)
            }
        }
    }
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
