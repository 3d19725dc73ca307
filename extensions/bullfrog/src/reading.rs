//! The read path. The planner sees every query after views and rules were expanded, whatever it came in by: the simple
//! protocol, prepared statements, functions, foreign keys. There, a new table that is read becomes
//! `new UNION ALL what was not moved`; both parts are seen by one snapshot, and a move changes both in one transaction, so
//! each row is seen exactly once at any isolation level. A plan that is kept has both parts in it and stays right
//! while rows move; when the migration ends, the server drops it because its tables changed.
//!
//! A new table that is written, or whose rows are locked, stays as it is: see [`crate::touching`].

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::appended::append_old_rows;
use crate::barrier::put_behind_barrier;
use crate::errors::{raise, refuse};
use crate::flags::while_set;
use crate::keyed::{self, Keyed};
use crate::nodes;
use crate::passing::{as_they_are, remembering};
use crate::registry::{self, Asked, Registry, Target};
use crate::snapshots;
use crate::touching::{self, Touch};
use crate::versions::{all_rights, drop_rights, expanded_view, rights_on};

thread_local! {
    /// Queries see tables on the move as they are.
    static IS_PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// Does something for which new tables have only the rows that were moved, and old ones are open.
pub(crate) fn plainly<R>(action: impl FnOnce() -> R) -> R {
    while_set(&IS_PLAIN, action)
}

static mut NEXT_PLANNER: pg_sys::planner_hook_type = None;
static mut NEXT_CALLED: pg_sys::needs_fmgr_hook_type = None;

/// Takes its place before the planner.
pub(crate) fn hook() {
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_PLANNER = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(plan_for_server);
        NEXT_CALLED = pg_sys::needs_fmgr_hook;
        pg_sys::needs_fmgr_hook = Some(must_be_called);
    }
}

/// Whether a function must be called, and may not become a part of the query that calls it. The planner would take in the query of an SQL
/// function that gives rows after [`planner`] has seen the tables, and so as they are; when it is called, its query is planned by itself.
#[pg_guard]
unsafe extern "C-unwind" fn must_be_called(function: Oid) -> bool {
    // SAFETY: looks the function up; a hook may end in an error of the server, which passes the boundary.
    unsafe {
        NEXT_CALLED.is_some_and(|next| pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next(function)))
            || snapshots::is_planning() && pg_sys::get_func_retset(function)
    }
}

unsafe extern "C-unwind" fn plan_for_server(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the arguments are the server's; nothing here is to be dropped.
    unsafe { as_they_are(|| planner(query, text, options, parameters)) }
}

#[pg_guard]
unsafe extern "C-unwind" fn planner(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    let registry = registry::current();
    // SAFETY: the arguments are the server's.
    unsafe {
        if IS_PLAIN.get() {
            return plan(query, text, options, parameters);
        }
        if registry.is_empty() {
            let statement = plan(query, text, options, parameters);
            refuse_switched(&registry::current(), statement);
            return statement;
        }
        snapshots::planning(|| {
            let (touches, keyed) = rewrite(&registry, query);
            let statement = plan_cheapest(query, keyed, text, options, parameters);
            for touch in touches {
                let granules = plan(touch.query, text, 0, parameters);
                let probe = touch.probe.as_ref().map(|probe| plan(probe.query, text, 0, parameters));
                touching::attach(statement, &touch, granules, probe);
            }
            statement
        })
    }
}

/// Plans a query as it is, and if old rows could be looked up by keys with these looked up; gives the cheaper plan.
unsafe fn plan_cheapest(
    query: *mut pg_sys::Query,
    keyed: Vec<Keyed>,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the arguments are the server's, the copy our own.
    unsafe {
        if keyed.is_empty() {
            return plan(query, text, options, parameters);
        }
        let as_it_is = plan(nodes::copy(query), text, options, parameters);
        keyed.into_iter().for_each(|keyed| keyed.take_key());
        let by_key = plan(query, text, options, parameters);
        let cost = |statement: *mut pg_sys::PlannedStmt| (*(*statement).planTree).total_cost;
        if cost(by_key) < cost(as_it_is) { by_key } else { as_it_is }
    }
}

/// Plans a query that needs nothing more of bullfrog.
unsafe fn plan(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the arguments are the server's; a hook may end in an error of the server, which passes the boundary.
    unsafe {
        remembering(|| match NEXT_PLANNER {
            Some(next) => pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next(query, text, options, parameters)),
            None => pg_sys::standard_planner(query, text, options, parameters),
        })
    }
}

/// Ends a statement that was planned as if nothing were on the move, if it uses what is: the planner took in the query of a function, and
/// waited there for the switch.
unsafe fn refuse_switched(registry: &Registry, statement: *mut pg_sys::PlannedStmt) {
    // SAFETY: a list of tables.
    let uses = |table: Oid| unsafe { pg_sys::list_member_oid((*statement).relationOids, table) };
    for target in registry.targets() {
        let closed = target.olds.iter().find(|old| uses(**old) && registry.closed(**old).is_some());
        if let Some(old) = closed.filter(|_| !target.are_olds_readable) {
            refuse_old(target, *old);
        }
        if uses(target.new) {
            raise(
                PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
                format!("could not plan over {} because it is new", registry::qualified_name(target.new)),
                "Try again.",
            );
        }
    }
}

/// Lets a query read new tables with the rows that were not moved, and refuses it if it names an old table. Gives what
/// must be moved before it runs, and which old rows it could look up by keys.
unsafe fn rewrite<'a>(registry: &'a Registry, query: *mut pg_sys::Query) -> (Vec<Touch<'a>>, Vec<Keyed>) {
    let mut touches = Vec::new();
    let mut reads = Vec::new();
    let mut keyed = Vec::new();
    // SAFETY: the tree is the server's, and not shared with anybody.
    unsafe {
        let levels = nodes::levels(query);
        let own: Vec<*mut pg_sys::Query> = levels
            .iter()
            .flat_map(|level| nodes::elements::<pg_sys::RangeTblEntry>((**level).rtable))
            .filter(|entry| registry.is_own_view(expanded_view(*entry)))
            .map(|entry| (*entry).subquery)
            .collect();
        for level in levels {
            let relations: Vec<*mut pg_sys::RangeTblEntry> = nodes::elements((*level).rtable);
            let locked: Vec<*mut pg_sys::RowMarkClause> = nodes::elements((*level).rowMarks);
            for (number, entry) in (1..).zip(relations).filter(|(_, entry)| is_relation(*entry)) {
                let written = (*level).resultRelation == number;
                let is_read = !written && !locked.iter().any(|mark| (**mark).rti == number as u32);
                if let Some(target) = registry.closed((*entry).relid).filter(|_| !own.contains(&level))
                    && !(is_read && target.are_olds_readable)
                {
                    refuse_old(target, (*entry).relid);
                }
                // The row EXCLUDED of an INSERT has the table's number and is no table.
                let is_table = (*entry).relkind as u8 == pg_sys::RELKIND_RELATION;
                let Some(target) = registry.target((*entry).relid).filter(|_| is_table) else {
                    continue;
                };
                if is_read {
                    check_read(target, level, entry, number);
                    reads.push((target, level, entry, number));
                } else {
                    touches.extend(touching::query(registry, target, query, level, number));
                }
            }
        }
        let mut not_seen = Vec::new();
        for (target, level, entry, number) in reads {
            if !read_both_parts(registry, target, query, level, entry, number) {
                not_seen.push((level, number, entry));
            }
        }
        if !not_seen.is_empty() {
            let levels = nodes::levels(query);
            let asked: HashMap<_, _> = levels.iter().flat_map(|level| keyed::asked(*level)).collect();
            for level in levels {
                let relations = not_seen.iter().filter(|(other, ..)| *other == level);
                keyed.extend(keyed::of(
                    level,
                    relations.map(|(_, number, entry)| (*number, *entry)),
                    asked.get(&level),
                ));
            }
        }
    }
    (touches, keyed)
}

unsafe fn is_relation(entry: *mut pg_sys::RangeTblEntry) -> bool {
    // SAFETY: a range table has entries only.
    unsafe { (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION }
}

/// Ends the statement, which names an old table.
pub(crate) fn refuse_old(target: &Target, old: Oid) -> ! {
    raise(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!(
            "table {} is closed{}: its rows are moving to a new schema",
            registry::qualified_name(old),
            if target.are_olds_readable { " to writes" } else { "" }
        ),
        format!(
            "They are in {} and its sisters; SELECT * FROM bullfrog.progress tells the migration.",
            registry::qualified_name(target.new)
        ),
    )
}

/// Refuses what has no meaning for rows of which some are elsewhere.
unsafe fn check_read(target: &Target, level: *mut pg_sys::Query, entry: *mut pg_sys::RangeTblEntry, number: c_int) {
    // SAFETY: the tree is the server's.
    unsafe {
        if !(*entry).tablesample.is_null() {
            refuse(
                format!(
                    "TABLESAMPLE of {} is not supported while rows move to it",
                    registry::qualified_name(target.new)
                ),
                "Wait for the end of the migration, or choose rows with WHERE.",
            );
        }
        let mut search = SystemColumn { number, depth: 0 };
        if nodes::walk_query(level, names_system_column, (&raw mut search).cast()) {
            refuse(
                format!(
                    "system columns of {} cannot be read while rows move to it",
                    registry::qualified_name(target.new)
                ),
                "Leave out ctid, xmin, tableoid and their like, or lock the rows with FOR UPDATE.",
            );
        }
    }
}

struct SystemColumn {
    number: c_int,
    depth: u32,
}

#[pg_guard]
unsafe extern "C-unwind" fn names_system_column(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the context is a `SystemColumn`, the node one of the query's.
    unsafe {
        let search = context.cast::<SystemColumn>();
        match nodes::tag(node) {
            pg_sys::NodeTag::T_Var => {
                let var = node.cast::<pg_sys::Var>();
                (*var).varno == (*search).number && (*var).varlevelsup == (*search).depth && (*var).varattno < 0
            }
            pg_sys::NodeTag::T_Query => {
                (*search).depth += 1;
                let found = nodes::walk_query(node.cast(), names_system_column, context);
                (*search).depth -= 1;
                found
            }
            _ => nodes::walk_expression(node, names_system_column, context),
        }
    }
}

/// Turns a relation of a query into the subquery over both parts. The reader's rights on the new table are checked as
/// ever; the views over the old ones are open, and read these with the rights of their owner. Whether the server sees a table in the old rows.
///
/// # Safety
/// `entry` is relation `number` of `level`, which is a level of `statement` that nobody else has, and the target's new table.
pub(crate) unsafe fn read_both_parts(
    registry: &Registry,
    target: &Target,
    statement: *mut pg_sys::Query,
    level: *mut pg_sys::Query,
    entry: *mut pg_sys::RangeTblEntry,
    number: c_int,
) -> bool {
    // SAFETY: the entry is the server's, the subquery a copy of our own.
    unsafe {
        let subquery = registry.query(target, Asked::All);
        let needed = rights_on(level, entry);
        // Also where an outer join may add rows of NULLs: no comparison is true of these. What a MERGE has there is no condition for all
        // rows, but tells which of them match.
        let is_merge = (*level).commandType == pg_sys::CmdType::CMD_MERGE;
        let conditions = if is_merge { Vec::new() } else { nodes::conjuncts((*(*level).jointree).quals) };
        let is_table = append_old_rows(subquery, statement, level, &conditions, number);
        if !is_table {
            put_behind_barrier(subquery, &conditions, number);
        }
        for level in nodes::levels(subquery) {
            for rights in all_rights(level) {
                registry.open_view(rights);
                if (*rights).relid == target.new {
                    (*rights).requiredPerms = (*needed).requiredPerms;
                    (*rights).checkAsUser = (*needed).checkAsUser;
                    (*rights).selectedCols = (*needed).selectedCols;
                }
            }
        }
        (*entry).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry).subquery = subquery;
        (*entry).security_barrier = false;
        (*entry).relid = Oid::INVALID;
        (*entry).relkind = 0;
        (*entry).rellockmode = 0;
        (*entry).inh = false;
        drop_rights(entry);
        is_table
    }
}
