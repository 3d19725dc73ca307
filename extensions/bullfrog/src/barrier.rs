//! What a condition of a client may see of old rows: those that were not moved, and that the definition does not leave out. Others are
//! no rows of the new table, or were changed since, and its readers may not be told what is in them; nor may a condition fail for them.
//!
//! So the old rows are behind a security barrier of the server. What cannot fail, nor tell anybody what it sees, is evaluated before it,
//! and looks rows up in indexes: operators that the server calls leakproof it lets through by itself, as `=` of numbers. Comparisons of
//! other scalar types (`numeric`, enums) are as harmless; these are let through here.

use std::ffi::c_int;

use pgrx::pg_sys::{self, NodeTag, Oid};

use crate::flaws::{self, Flaw};
use crate::nodes;
use crate::touching::is_about;
use crate::versions::is_of_order;

/// Puts the old rows of a query behind the barrier, and lets those conditions through that are harmless.
///
/// # Safety
/// `query` is one that was rewritten and that nobody else has, whose last relation is a subquery over a view with the old rows.
/// `conditions` must all be met, and in those about relation `number` this has the columns of the view.
pub(crate) unsafe fn put_behind_barrier(query: *mut pg_sys::Query, conditions: &[*mut pg_sys::Node], number: c_int) {
    // SAFETY: copies of nodes of the server. The view is the only relation of the subquery.
    unsafe {
        let mut let_through = std::ptr::null_mut();
        for condition in harmless(conditions, number) {
            let_through = pg_sys::lappend(let_through, condition.cast());
        }
        let old_rows = old_rows(query);
        (*old_rows).security_barrier = !flaws::is_set(Flaw::NoBarrier);
        if !let_through.is_null() {
            (*(*(*old_rows).subquery).jointree).quals = pg_sys::make_ands_explicit(let_through).cast();
        }
    }
}

/// Copies of those conditions about relation `number` that are harmless, about the first relation of their query.
///
/// # Safety
/// These are conditions of a query.
pub(crate) unsafe fn harmless(conditions: &[*mut pg_sys::Node], number: c_int) -> Vec<*mut pg_sys::Node> {
    // SAFETY: as promised; the copies are nobody else's.
    unsafe {
        let of_relation = conditions.iter().filter(|condition| is_harmless(**condition, number));
        let copies: Vec<_> = of_relation.map(|condition| nodes::copy(*condition)).collect();
        copies.iter().for_each(|condition| nodes::renumber(*condition, number, 1));
        copies
    }
}

/// Whether conditions need no barrier: whoever evaluates them learns nothing, and they do not fail.
///
/// # Safety
/// These are conditions about relation `number`.
pub(crate) unsafe fn are_harmless(conditions: &[*mut pg_sys::Node], number: c_int) -> bool {
    // SAFETY: as promised.
    conditions
        .iter()
        .all(|condition| unsafe { !pg_sys::contain_leaked_vars(*condition) || is_harmless(*condition, number) })
}

/// The subquery over the old rows.
///
/// # Safety
/// `query` is one for [`put_behind_barrier`].
pub(crate) unsafe fn old_rows(query: *mut pg_sys::Query) -> *mut pg_sys::RangeTblEntry {
    // SAFETY: as promised by the caller; a UNION has its members in its range table, in their order.
    unsafe {
        let relations = (*query).rtable;
        (*(*relations).elements.add((*relations).length as usize - 1)).ptr_value.cast()
    }
}

/// Whether a condition compares columns of a relation with each other or with what is known before, by an operator of the server's own
/// for the index of a type that has no other types in it, or searches in a column. (Of those that are leakproof the server knows by itself.)
unsafe fn is_harmless(condition: *mut pg_sys::Node, number: c_int) -> bool {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        if nodes::tag(condition) != NodeTag::T_OpExpr || !is_about(condition, number) {
            return false;
        }
        let comparison = condition.cast::<pg_sys::OpExpr>();
        let sides: Vec<*mut pg_sys::Node> = nodes::elements((*comparison).args);
        let is_plain = |side: &*mut pg_sys::Node| {
            is_column(*side) || !(pg_sys::contain_var_clause(*side) || pg_sys::contain_volatile_functions(*side))
        };
        sides.len() == 2
            && sides.iter().all(is_plain)
            && !pg_sys::get_func_leakproof(pg_sys::get_opcode((*comparison).opno))
            && (compares_scalars((*comparison).opno) || searches((*comparison).opno, sides[1]))
    }
}

/// Whether an expression is a column, maybe as another type of the same bytes (`varchar` as `text`).
unsafe fn is_column(expression: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        match nodes::tag(expression) {
            NodeTag::T_Var => true,
            NodeTag::T_RelabelType => is_column((*expression.cast::<pg_sys::RelabelType>()).arg.cast()),
            _ => false,
        }
    }
}

/// Whether an operator of the server's own searches in a text or a document, and fails for none. `LIKE` does for those that meet the end of a
/// pattern that is an escape, so the pattern must be known and have none.
unsafe fn searches(operator: Oid, searched: *mut pg_sys::Node) -> bool {
    // SAFETY: looks the operator up; the tag tells the kind of a node.
    unsafe {
        match pg_sys::get_opcode(operator).to_u32() {
            pg_sys::F_JSONB_CONTAINS
            | pg_sys::F_JSONB_EXISTS
            | pg_sys::F_JSONB_EXISTS_ANY
            | pg_sys::F_JSONB_EXISTS_ALL => true,
            pg_sys::F_TEXTLIKE | pg_sys::F_TEXTICLIKE => {
                let pattern = searched.cast::<pg_sys::Const>();
                nodes::tag(searched) == NodeTag::T_Const
                    && !(*pattern).constisnull
                    && !nodes::text(pg_sys::text_to_cstring((*pattern).constvalue.cast_mut_ptr())).contains('\\')
            }
            _ => false,
        }
    }
}

/// Whether a comparison needs no barrier, whatever it compares.
///
/// # Safety
/// There is such an operator.
pub(crate) unsafe fn compares_harmlessly(operator: Oid) -> bool {
    // SAFETY: looks the operator up.
    unsafe { pg_sys::get_func_leakproof(pg_sys::get_opcode(operator)) || compares_scalars(operator) }
}

unsafe fn compares_scalars(operator: Oid) -> bool {
    let (mut left, mut right) = (Oid::INVALID, Oid::INVALID);
    // SAFETY: looks the operator up.
    unsafe {
        pg_sys::op_input_types(operator, &raw mut left, &raw mut right);
        let is_scalar =
            |kind: Oid| pg_sys::get_typtype(kind) as u8 == pg_sys::TYPTYPE_BASE || kind == pg_sys::ANYENUMOID;
        operator.to_u32() < pg_sys::FirstNormalObjectId && is_scalar(left) && is_scalar(right) && is_of_order(operator)
    }
}
