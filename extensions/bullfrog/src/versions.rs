//! What differs between versions of the server: each difference is one function here, with a body for each side of it. Everything else is
//! written once. Versions before 15 cannot write an analysed query down as text, which is how definitions become views.

use std::ffi::c_void;

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::nodes;

/// The rights that a statement needs on one of its relations.
#[cfg(feature = "pg15")]
pub(crate) type Rights = pg_sys::RangeTblEntry;
/// The rights that a statement needs on one of its relations.
#[cfg(not(feature = "pg15"))]
pub(crate) type Rights = pg_sys::RTEPermissionInfo;

/// The rights that a level of a query needs, on all of its relations.
///
/// # Safety
/// `level` is a query.
pub(crate) unsafe fn all_rights(level: *mut pg_sys::Query) -> Vec<*mut Rights> {
    // SAFETY: as promised.
    unsafe {
        #[cfg(feature = "pg15")]
        let rights = (*level).rtable;
        #[cfg(not(feature = "pg15"))]
        let rights = (*level).rteperminfos;
        nodes::elements(rights)
    }
}

/// The rights that a level of a query needs on a table.
///
/// # Safety
/// `entry` is a table of `level`.
pub(crate) unsafe fn rights_on(level: *mut pg_sys::Query, entry: *mut pg_sys::RangeTblEntry) -> *mut Rights {
    #[cfg(feature = "pg15")]
    let rights = {
        let _ = level;
        entry
    };
    // SAFETY: as promised.
    #[cfg(not(feature = "pg15"))]
    let rights = unsafe { pg_sys::getRTEPermissionInfo((*level).rteperminfos, entry) };
    rights
}

/// Lets a relation of a query need no rights: what was a table is something else now.
///
/// # Safety
/// `entry` is one of a range table.
pub(crate) unsafe fn drop_rights(entry: *mut pg_sys::RangeTblEntry) {
    // SAFETY: as promised.
    unsafe {
        #[cfg(feature = "pg15")]
        {
            (*entry).requiredPerms = 0;
            (*entry).checkAsUser = Oid::INVALID;
            (*entry).selectedCols = std::ptr::null_mut();
            (*entry).insertedCols = std::ptr::null_mut();
            (*entry).updatedCols = std::ptr::null_mut();
            (*entry).extraUpdatedCols = std::ptr::null_mut();
        }
        #[cfg(not(feature = "pg15"))]
        {
            (*entry).perminfoindex = 0;
        }
    }
}

/// Ends a statement that may not do what it says.
///
/// # Safety
/// `statement` is a plan.
pub(crate) unsafe fn check_rights(statement: *mut pg_sys::PlannedStmt) {
    // SAFETY: as promised.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::ExecCheckRTPerms((*statement).rtable, true);
        #[cfg(not(feature = "pg15"))]
        pg_sys::ExecCheckPermissions((*statement).rtable, (*statement).permInfos, true);
    }
}

/// The view that a subquery was before the server expanded it; none if it was not one.
///
/// # Safety
/// `entry` is one of the range table of a rewritten query.
pub(crate) unsafe fn expanded_view(entry: *mut pg_sys::RangeTblEntry) -> Oid {
    // SAFETY: as promised.
    unsafe {
        if (*entry).rtekind != pg_sys::RTEKind::RTE_SUBQUERY {
            return Oid::INVALID;
        }
        // The first relation of a view's query is the view itself.
        #[cfg(feature = "pg15")]
        let view = nodes::elements::<pg_sys::RangeTblEntry>((*(*entry).subquery).rtable)
            .first()
            .filter(|first| (***first).relkind as u8 == pg_sys::RELKIND_VIEW)
            .map_or(Oid::INVALID, |first| (**first).relid);
        #[cfg(not(feature = "pg15"))]
        let view = (*entry).relid;
        view
    }
}

/// Lets columns in an expression, or in a query, be those of their tables as they are there: from 16 on they tell which outer joins may
/// make them NULL, and in another query there are no such joins.
///
/// # Safety
/// `node` is an expression or a query that nobody else has.
pub(crate) unsafe fn forget_outer_joins(node: *mut pg_sys::Node) {
    #[pg_guard]
    unsafe extern "C-unwind" fn forget(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: a node of what is ours to change.
        unsafe {
            match nodes::tag(node) {
                #[cfg(not(feature = "pg15"))]
                pg_sys::NodeTag::T_Var => {
                    (*node.cast::<pg_sys::Var>()).varnullingrels = std::ptr::null_mut();
                    false
                }
                pg_sys::NodeTag::T_Query => nodes::walk_query(node.cast(), forget, context),
                _ => nodes::walk_expression(node, forget, context),
            }
        }
    }
    if cfg!(not(feature = "pg15")) {
        // SAFETY: as promised; the walker needs no context.
        unsafe { forget(node, std::ptr::null_mut()) };
    }
}

/// Replaces columns of joins by those of their tables, in a part of a query that [`forget_outer_joins`] was done to.
///
/// # Safety
/// `part` is one of `query`, or null.
pub(crate) unsafe fn flatten_join_aliases<T>(query: *mut pg_sys::Query, part: *mut T) -> *mut T {
    // SAFETY: as promised; without outer joins nothing is asked of the planner.
    unsafe {
        #[cfg(feature = "pg15")]
        let flat = pg_sys::flatten_join_alias_vars(query, part.cast());
        #[cfg(not(feature = "pg15"))]
        let flat = pg_sys::flatten_join_alias_vars(std::ptr::null_mut(), query, part.cast());
        flat.cast()
    }
}

/// Lets the columns and conditions of a query with groups say what they are: in 18 they may name columns of a relation that stands for the
/// groups, the last one.
///
/// # Safety
/// `query` is an analysed query that nobody else has.
pub(crate) unsafe fn flatten_groups(query: *mut pg_sys::Query) {
    #[cfg(not(feature = "pg18"))]
    let _ = query;
    #[cfg(feature = "pg18")]
    // SAFETY: as promised.
    unsafe {
        if (*query).hasGroupRTE {
            let no_plan = std::ptr::null_mut();
            (*query).targetList = pg_sys::flatten_group_exprs(no_plan, query, (*query).targetList.cast()).cast();
            (*query).havingQual = pg_sys::flatten_group_exprs(no_plan, query, (*query).havingQual);
            (*query).rtable = pg_sys::list_truncate((*query).rtable, (*(*query).rtable).length - 1);
            (*query).hasGroupRTE = false;
        }
    }
}

/// Whether a constraint of a new table is of a kind that a migration does not know: in 18 over periods, or one that need not hold.
///
/// # Safety
/// A node of the parser.
pub(crate) unsafe fn is_unknown_kind(constraint: *const pg_sys::Constraint) -> bool {
    #[cfg(not(feature = "pg18"))]
    {
        let _ = constraint;
        false
    }
    #[cfg(feature = "pg18")]
    // SAFETY: as promised.
    unsafe {
        use pg_sys::ConstrType::{CONSTR_CHECK, CONSTR_FOREIGN};
        let may_be_idle = matches!((*constraint).contype, CONSTR_CHECK | CONSTR_FOREIGN);
        (*constraint).without_overlaps
            || (*constraint).fk_with_period
            || (*constraint).pk_with_period
            || (may_be_idle && !(*constraint).is_enforced)
    }
}

/// Whether an expression of this kind makes a value out of JSON: from 17 on it may be of any type.
pub(crate) fn makes_of_json(tag: pg_sys::NodeTag) -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    let found = {
        let _ = tag;
        false
    };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    let found = tag == pg_sys::NodeTag::T_JsonExpr;
    found
}

/// Whether an operator is one of an order, or equality.
pub(crate) fn is_of_order(operator: Oid) -> bool {
    // SAFETY: looks the operator up.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        let found = pg_sys::get_op_btree_interpretation(operator);
        #[cfg(feature = "pg18")]
        let found = pg_sys::get_op_index_interpretation(operator);
        !found.is_null()
    }
}

/// Runs a plan to its end.
///
/// # Safety
/// `execution` was started.
pub(crate) unsafe fn run_to_end(execution: *mut pg_sys::QueryDesc) {
    let forward = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: as promised.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::ExecutorRun(execution, forward, 0, true);
        #[cfg(feature = "pg18")]
        pg_sys::ExecutorRun(execution, forward, 0);
    }
}

/// The columns of an open relation, dropped ones, too.
///
/// # Safety
/// `relation` is open, and stays so as long as the columns are used.
pub(crate) unsafe fn attributes<'a>(relation: pg_sys::Relation) -> &'a [pg_sys::FormData_pg_attribute] {
    // SAFETY: as promised.
    unsafe { columns_of((*relation).rd_att) }
}

/// The columns of rows.
///
/// # Safety
/// `description` is one of the server's, and stays as long as the columns are used.
pub(crate) unsafe fn columns_of<'a>(description: pg_sys::TupleDesc) -> &'a [pg_sys::FormData_pg_attribute] {
    // SAFETY: a description has so many columns; in 18 they lie behind an array of their short forms.
    unsafe {
        let count = (*description).natts as usize;
        #[cfg(not(feature = "pg18"))]
        let first = (*description).attrs.as_ptr();
        #[cfg(feature = "pg18")]
        let first = (*description).compact_attrs.as_ptr().add(count).cast();
        std::slice::from_raw_parts(first, count)
    }
}

/// The index of an open table's primary key.
///
/// # Safety
/// `table` is open.
pub(crate) unsafe fn primary_key(table: pg_sys::Relation) -> Oid {
    // SAFETY: as promised.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        let key = pg_sys::RelationGetPrimaryKeyIndex(table);
        #[cfg(feature = "pg18")]
        let key = pg_sys::RelationGetPrimaryKeyIndex(table, false);
        key
    }
}

/// The number that this process has given its transaction.
pub(crate) fn local_transaction() -> pg_sys::LocalTransactionId {
    // SAFETY: a number of this process.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let transaction = (*pg_sys::MyProc).lxid;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let transaction = (*pg_sys::MyProc).vxid.lxid;
        transaction
    }
}

/// The number that the next transaction of the server gets.
pub(crate) fn next_transaction() -> u64 {
    // SAFETY: a number that is written at once.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let variables = pg_sys::ShmemVariableCache;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let variables = pg_sys::TransamVariables;
        std::ptr::read_volatile(&raw const (*variables).nextXid.value)
    }
}

/// Whether a process of the server serves a client, or the server itself, but is none that an extension started.
pub(crate) fn is_own_process(process: &pg_sys::PGPROC) -> bool {
    #[cfg(not(feature = "pg18"))]
    let is_own = !process.isBackgroundWorker;
    #[cfg(feature = "pg18")]
    let is_own = process.isRegularBackend;
    is_own
}

/// Sets what a signal does.
///
/// # Safety
/// The handler is one of the server.
pub(crate) unsafe fn handle_signal(signal: u32, handler: unsafe extern "C-unwind" fn(std::ffi::c_int)) {
    // SAFETY: as promised.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(signal as i32, Some(handler));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal as i32, Some(handler));
    }
}

/// For what a process of the server waits.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// A session, until a mover has moved rows for it.
    Rows,
    /// A mover, until the rest of the background between two batches is over.
    Rest,
    /// A process of bullfrog's own, until there is something to do.
    Idle,
    /// A session, because it writes faster than an abort carries back.
    Slowed,
}

/// What `pg_stat_activity.wait_event` has of a wait: from 17 on a name of its own, before that `Extension`.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub(crate) fn wait_event(_wait: Wait) -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// What `pg_stat_activity.wait_event` has of a wait: from 17 on a name of its own, before that `Extension`.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub(crate) fn wait_event(wait: Wait) -> u32 {
    thread_local! {
        static EVENTS: std::cell::Cell<[u32; 4]> = const { std::cell::Cell::new([0; 4]) };
    }
    let name = match wait {
        Wait::Rows => c"BullfrogRows",
        Wait::Rest => c"BullfrogRest",
        Wait::Idle => c"BullfrogIdle",
        Wait::Slowed => c"BullfrogSlowed",
    };
    let mut events = EVENTS.get();
    if events[wait as usize] == 0 {
        // SAFETY: the server keeps a copy of the name, and gives it the same number in all processes.
        events[wait as usize] = unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) };
        EVENTS.set(events);
    }
    events[wait as usize]
}

/// Writes a row into the indexes of its table. Tells whether a unique one has its key already, or is about to: no error, then.
///
/// # Safety
/// The table was opened with `ExecOpenIndices` for rows that may be taken back; the row was written so.
pub(crate) unsafe fn insert_into_indexes(
    table: *mut pg_sys::ResultRelInfo,
    row: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
) -> bool {
    let mut is_taken = false;
    // SAFETY: as promised.
    unsafe {
        let none = std::ptr::null_mut();
        #[cfg(feature = "pg15")]
        let again = pg_sys::ExecInsertIndexTuples(table, row, state, false, true, &raw mut is_taken, none);
        #[cfg(not(feature = "pg15"))]
        let again = pg_sys::ExecInsertIndexTuples(table, row, state, false, true, &raw mut is_taken, none, false);
        pg_sys::list_free(again);
    }
    is_taken
}
