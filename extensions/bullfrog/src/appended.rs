//! Old rows as a member of an append, where each new row is made of one row of one old table. The server does not look into a subquery
//! with conditions: a join cannot pass its key to it, and it gives no order. What it knows is that of a table with row security, so
//! the conditions that choose the old rows become such (`securityQuals`). They are the same barrier ([`crate::barrier`]), and the server
//! sees a table with its indexes: nested loops look keys up, `ORDER BY .. LIMIT`, `min` and `max` read both tables in order.

use std::ffi::{c_int, c_void};

use pgrx::pg_sys::{self, NodeTag};
use pgrx::prelude::*;

use crate::barrier::{harmless, old_rows};
use crate::flaws::{self, Flaw};
use crate::nodes;

/// Lets the old rows of a query be a table with conditions. False, and nothing is changed, if they cannot, or if the statement would lose by
/// it.
///
/// # Safety
/// As of [`crate::barrier::put_behind_barrier`]; relation `number` is one of `level`, which is a level of `statement`.
pub(crate) unsafe fn append_old_rows(
    query: *mut pg_sys::Query,
    statement: *mut pg_sys::Query,
    level: *mut pg_sys::Query,
    conditions: &[*mut pg_sys::Node],
    number: c_int,
) -> bool {
    // SAFETY: copies of nodes of the server; the old rows are read through views of bullfrog's own.
    unsafe {
        let rows = (*old_rows(query)).subquery;
        let Some(appended) = Appended::of(rows).filter(|_| !flaws::is_set(Flaw::NoBarrier)) else {
            return false;
        };
        if appended.loses_index(statement, level, number) || loses_equalities(statement) {
            return false;
        }
        let mut chosen = std::ptr::null_mut();
        for condition in nodes::conjuncts((*(*appended.query).jointree).quals) {
            chosen = pg_sys::lappend(chosen, condition.cast());
        }
        if !flaws::is_set(Flaw::MovedAppended) {
            chosen = pg_sys::lappend(chosen, appended.unmoved.cast());
        }
        for condition in harmless(conditions, number) {
            if replace_columns(condition, &appended.columns) {
                chosen = pg_sys::lappend(chosen, condition.cast());
            }
        }
        let targets: Vec<*mut pg_sys::TargetEntry> = nodes::elements((*rows).targetList);
        let mut list = std::ptr::null_mut();
        for (target, column) in targets.into_iter().zip(&appended.columns) {
            (*target).expr = nodes::copy(*column).cast();
            list = pg_sys::lappend(list, target.cast());
        }
        (*appended.query).targetList = list;
        (*(*appended.query).jointree).quals = std::ptr::null_mut();
        (*appended.table).securityQuals =
            pg_sys::lappend(std::ptr::null_mut(), pg_sys::make_ands_explicit(chosen).cast());
        (*old_rows(query)).subquery = appended.query;
        true
    }
}

/// The rows of one old table, as columns of the new one.
struct Appended {
    /// The query over the old table alone.
    query: *mut pg_sys::Query,
    /// The old table in it.
    table: *mut pg_sys::RangeTblEntry,
    /// What the columns of the new table are in it.
    columns: Vec<*mut pg_sys::Node>,
    /// The condition that a row was not moved.
    unmoved: *mut pg_sys::Node,
}

impl Appended {
    /// `rows` reads the view of the rows that were not moved, which reads that of all rows, which reads the old table.
    unsafe fn of(rows: *mut pg_sys::Query) -> Option<Self> {
        // SAFETY: queries that the server rewrote.
        unsafe {
            let unmoved = (*only_relation(rows)?).subquery;
            let query = (*only_relation(Some(unmoved).filter(|unmoved| !unmoved.is_null())?)?).subquery;
            let table = only_relation(Some(query).filter(|query| !query.is_null() && is_projection(*query))?)?;
            let is_table = (*table).rtekind == pg_sys::RTEKind::RTE_RELATION
                && (*table).relkind as u8 == pg_sys::RELKIND_RELATION
                && (*table).securityQuals.is_null();
            if !is_table || (*unmoved).hasSubLinks {
                return None;
            }
            let of_all = columns(query);
            let of_unmoved = columns(unmoved);
            let through = |column: &*mut pg_sys::Node| behind(behind(*column, &of_unmoved)?, &of_all);
            let columns = columns(rows).iter().map(through).collect::<Option<Vec<_>>>()?;
            let condition = (*(*unmoved).jointree).quals;
            let unmoved =
                Some(condition).filter(|condition| !condition.is_null()).map(|condition| nodes::copy(condition))?;
            replace_columns(unmoved, &of_all).then_some(Self { query, table, columns, unmoved })
        }
    }

    /// Whether a condition is about more than a column of the old table. Below a subquery it would be looked up in an index of that
    /// expression; in an append it is not.
    unsafe fn loses_index(&self, statement: *mut pg_sys::Query, level: *mut pg_sys::Query, number: c_int) -> bool {
        let is_computed: Vec<bool> =
            // SAFETY: nodes of the server.
            self.columns.iter().map(|column| unsafe { nodes::tag(*column) } != NodeTag::T_Var).collect();
        if !is_computed.contains(&true) {
            return false;
        }
        // Conditions of the queries around the level may come to it.
        let mut search = Computed { number, is_computed };
        // SAFETY: the walker gets what it expects.
        level != statement || unsafe { names_computed((*level).jointree.cast(), (&raw mut search).cast()) }
    }
}

/// The relation of a query that has one and nothing else.
unsafe fn only_relation(query: *mut pg_sys::Query) -> Option<*mut pg_sys::RangeTblEntry> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let from: Vec<*mut pg_sys::Node> = nodes::elements((*(*query).jointree).fromlist);
        let [only] = from[..] else { return None };
        (nodes::tag(only) == NodeTag::T_RangeTblRef)
            .then(|| nodes::relation(query, (*only.cast::<pg_sys::RangeTblRef>()).rtindex))
    }
}

/// Whether each row of a query is made of one row below it.
unsafe fn is_projection(query: *mut pg_sys::Query) -> bool {
    // SAFETY: a query of the server.
    unsafe {
        let parts = [
            (*query).groupClause,
            (*query).groupingSets,
            (*query).distinctClause,
            (*query).sortClause,
            (*query).cteList,
        ];
        parts.iter().all(|part| part.is_null())
            && [(*query).havingQual, (*query).limitCount, (*query).limitOffset, (*query).setOperations]
                .iter()
                .all(|part| part.is_null())
            && !((*query).hasAggs || (*query).hasWindowFuncs || (*query).hasTargetSRFs || (*query).hasSubLinks)
    }
}

/// What the columns of a query are.
unsafe fn columns(query: *mut pg_sys::Query) -> Vec<*mut pg_sys::Node> {
    // SAFETY: a list of columns.
    unsafe {
        nodes::elements::<pg_sys::TargetEntry>((*query).targetList)
            .into_iter()
            .map(|target| (*target).expr.cast())
            .collect()
    }
}

/// What a column of a subquery is in it.
unsafe fn behind(column: *mut pg_sys::Node, columns: &[*mut pg_sys::Node]) -> Option<*mut pg_sys::Node> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        if nodes::tag(column) != NodeTag::T_Var {
            return None;
        }
        let index = usize::try_from((*column.cast::<pg_sys::Var>()).varattno - 1).ok()?;
        columns.get(index).copied()
    }
}

/// Replaces columns of a subquery, in an expression that nobody else has, by those of its table. False if one is more than that.
unsafe fn replace_columns(expression: *mut pg_sys::Node, columns: &Vec<*mut pg_sys::Node>) -> bool {
    #[pg_guard]
    unsafe extern "C-unwind" fn is_more(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the context is the list of columns, the node one of the expression.
        unsafe {
            if nodes::tag(node) != NodeTag::T_Var {
                return nodes::walk_expression(node, is_more, context);
            }
            match behind(node, &*context.cast::<Vec<*mut pg_sys::Node>>()) {
                Some(column) if nodes::tag(column) == NodeTag::T_Var => {
                    *node.cast::<pg_sys::Var>() = *column.cast::<pg_sys::Var>();
                    false
                }
                _ => true,
            }
        }
    }
    // SAFETY: the walker reads the list.
    unsafe { !is_more(expression, std::ptr::from_ref(columns).cast_mut().cast()) }
}

/// Columns of a relation that are more than columns of an old table.
struct Computed {
    number: c_int,
    is_computed: Vec<bool>,
}

#[pg_guard]
unsafe extern "C-unwind" fn names_computed(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the context is a `Computed`, the node one of the query's.
    unsafe {
        let search = &*context.cast::<Computed>();
        match nodes::tag(node) {
            NodeTag::T_Var => {
                let var = node.cast::<pg_sys::Var>();
                let index = usize::try_from((*var).varattno - 1).ok();
                (*var).varno == search.number
                    && (*var).varlevelsup == 0
                    && index.is_none_or(|index| search.is_computed.get(index) != Some(&false))
            }
            _ => nodes::walk_expression(node, names_computed, context),
        }
    }
}

/// Whether a statement has an equality of columns that is not leakproof. Beside a table with row security the server does not conclude from
/// such equalities (that what equals the one equals the other), nor looks them up.
unsafe fn loses_equalities(statement: *mut pg_sys::Query) -> bool {
    #[pg_guard]
    unsafe extern "C-unwind" fn is_lost(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            match nodes::tag(node) {
                NodeTag::T_Query => return nodes::walk_query(node.cast(), is_lost, context),
                NodeTag::T_OpExpr => {
                    let comparison = node.cast::<pg_sys::OpExpr>();
                    let sides: Vec<*mut pg_sys::Node> = nodes::elements((*comparison).args);
                    let is_known = |side: &*mut pg_sys::Node| {
                        let is_given = nodes::tag(*side) == NodeTag::T_Param
                            && (*(*side).cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_EXTERN;
                        is_given || nodes::tag(*side) == NodeTag::T_Const
                    };
                    if sides.len() == 2
                        && !sides.iter().any(is_known)
                        && !pg_sys::get_func_leakproof(pg_sys::get_opcode((*comparison).opno))
                        && pg_sys::op_mergejoinable((*comparison).opno, pg_sys::exprType(sides[0]))
                    {
                        return true;
                    }
                }
                _ => {}
            }
            nodes::walk_expression(node, is_lost, context)
        }
    }
    // SAFETY: the walker needs no context.
    unsafe { nodes::walk_query(statement, is_lost, std::ptr::null_mut()) }
}
