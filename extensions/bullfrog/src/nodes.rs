//! Small steps over the server's parse trees. Everything here takes pointers that the server made and that live as long
//! as the statement.

use std::ffi::{CStr, CString, c_int, c_void};

use pgrx::prelude::*;

use crate::versions::forget_outer_joins;

/// The elements of a list.
///
/// # Safety
/// `list` is NIL or a list of pointers to `T`.
pub(crate) unsafe fn elements<T>(list: *mut pg_sys::List) -> Vec<*mut T> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: a list that is not NIL has `length` cells.
    unsafe {
        let length = usize::try_from((*list).length).unwrap_or(0);
        (0..length).map(|i| (*(*list).elements.add(i)).ptr_value.cast()).collect()
    }
}

/// The kind of a node.
///
/// # Safety
/// `node` points to a node.
pub(crate) unsafe fn tag<T>(node: *const T) -> pg_sys::NodeTag {
    // SAFETY: every node begins with its tag.
    unsafe { (*node.cast::<pg_sys::Node>()).type_ }
}

/// A text of the server; empty if there is none.
///
/// # Safety
/// `text` is null or ends with a zero.
pub(crate) unsafe fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A text for the server. SQL has no zero bytes: a text that came from it has none.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A relation of a query, by its number.
///
/// # Safety
/// `query` is a query that has so many relations.
pub(crate) unsafe fn relation(query: *const pg_sys::Query, number: c_int) -> *mut pg_sys::RangeTblEntry {
    // SAFETY: as promised; numbers begin with 1.
    unsafe { elements((*query).rtable)[number as usize - 1] }
}

/// What a walker does at each node: `true` ends the walk.
pub(crate) type Walker = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool;

/// Walks over everything in a query, its subqueries as nodes of kind `Query`.
///
/// # Safety
/// `query` is a query, `context` what the walker expects.
pub(crate) unsafe fn walk_query(query: *mut pg_sys::Query, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: as promised.
    unsafe { pg_sys::query_tree_walker(query, Some(walker), context, 0) }
}

/// Walks over what is below an expression's node.
///
/// # Safety
/// `node` is a node of an expression, `context` what the walker expects.
pub(crate) unsafe fn walk_expression(node: *mut pg_sys::Node, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: as promised.
    unsafe { pg_sys::expression_tree_walker(node, Some(walker), context) }
}

/// The query and all queries in it, outer ones first.
///
/// # Safety
/// `query` is a query.
pub(crate) unsafe fn levels(query: *mut pg_sys::Query) -> Vec<*mut pg_sys::Query> {
    #[pg_guard]
    unsafe extern "C-unwind" fn collect(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the context is the vector below; the node is one of the query's.
        unsafe {
            if tag(node) == pg_sys::NodeTag::T_Query {
                (*context.cast::<Vec<*mut pg_sys::Query>>()).push(node.cast());
                return walk_query(node.cast(), collect, context);
            }
            walk_expression(node, collect, context)
        }
    }
    let mut found = vec![query];
    // SAFETY: the walker gets the vector it expects.
    unsafe { walk_query(query, collect, (&raw mut found).cast()) };
    found
}

/// Parses, analyses and rewrites one query of our own.
///
/// # Safety
/// There is a snapshot, and names in the text are qualified.
pub(crate) unsafe fn rewritten(sql: &str) -> *mut pg_sys::Query {
    // pg_dump lets no view be read, for fear of what users put there. Views of our own are what it reads here.
    let restriction = c"restrict_nonsystem_relation_kind";
    let sql = c_text(sql);
    // SAFETY: the text lives until the query was analysed; it is one statement, so there is one tree. A setting of a nest
    // level ends with the level, or with the transaction that fails.
    unsafe {
        let level = pg_sys::NewGUCNestLevel();
        if !pg_sys::GetConfigOption(restriction.as_ptr(), true, false).is_null() {
            pg_sys::set_config_option(
                restriction.as_ptr(),
                c"".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        let raw: Vec<*mut pg_sys::RawStmt> = elements(pg_sys::pg_parse_query(sql.as_ptr()));
        let queries =
            pg_sys::pg_analyze_and_rewrite_fixedparams(raw[0], sql.as_ptr(), std::ptr::null(), 0, std::ptr::null_mut());
        pg_sys::AtEOXact_GUC(false, level);
        elements(queries)[0]
    }
}

/// What must all be true for a condition to be true.
///
/// # Safety
/// `condition` is null or a condition of a query.
pub(crate) unsafe fn conjuncts(condition: *mut pg_sys::Node) -> Vec<*mut pg_sys::Node> {
    if condition.is_null() {
        return Vec::new();
    }
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let both = condition.cast::<pg_sys::BoolExpr>();
        if tag(condition) == pg_sys::NodeTag::T_BoolExpr && (*both).boolop == pg_sys::BoolExprType::AND_EXPR {
            return elements((*both).args).into_iter().flat_map(|part| conjuncts(part)).collect();
        }
    }
    vec![condition]
}

/// Lets columns of relation `from` be columns of relation `to`, in an expression that goes to another query.
///
/// # Safety
/// `node` is an expression that nobody else has.
pub(crate) unsafe fn renumber(node: *mut pg_sys::Node, from: c_int, to: c_int) {
    unsafe extern "C-unwind" {
        fn ChangeVarNodes(node: *mut pg_sys::Node, rt_index: c_int, new_index: c_int, sublevels_up: c_int);
    }
    // SAFETY: a function of the server with this signature; an error of the server passes the boundary.
    unsafe {
        pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| ChangeVarNodes(node, from, to, 0));
        forget_outer_joins(node);
    }
}

/// The columns of relation `number` that an expression uses.
///
/// # Safety
/// `node` is an expression.
pub(crate) unsafe fn columns(node: *mut pg_sys::Node, number: c_int) -> impl Iterator<Item = c_int> {
    let mut found: *mut pg_sys::Bitmapset = std::ptr::null_mut();
    // SAFETY: as promised; the set is the server's, and grows with each new column.
    unsafe { pg_sys::pull_varattnos(node, number as pg_sys::Index, &raw mut found) };
    let mut member = -1;
    std::iter::from_fn(move || {
        // SAFETY: the set lives as long as the statement.
        member = unsafe { pg_sys::bms_next_member(found, member) };
        (member >= 0).then_some(member + pg_sys::FirstLowInvalidHeapAttributeNumber)
    })
}

/// A deep copy.
///
/// # Safety
/// `node` is a node.
pub(crate) unsafe fn copy<T>(node: *const T) -> *mut T {
    // SAFETY: as promised.
    unsafe { pg_sys::copyObjectImpl(node.cast()).cast() }
}
