//! Which old rows a statement touches, told by all of its conditions: those that join its table with others, and subqueries.
//!
//! The answer depends on what the other tables hold, so it counts for one snapshot. When rows were moved, the statement gets a new one, and looks
//! again with that, until it finds none: then it runs with the very snapshot with which it looked. What may have another result each time,
//! whatever the snapshot (volatile functions, `LIMIT`, the order of rows), is for [`crate::touching`] alone.

use std::ffi::{c_int, c_void};

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::appended::append_old_rows;
use crate::barrier::{old_rows, put_behind_barrier};
use crate::evaluation::is_total;
use crate::nodes;
use crate::reading::read_both_parts;
use crate::registry::{Asked, Registry, Target};
use crate::versions::{all_rights, drop_rights};

/// The query for the granules that a statement touches by its relation `number`; none if all of its conditions cannot be asked.
///
/// # Safety
/// `level` is `statement` or a query in it, and its relation `number` the target's new table.
pub(crate) unsafe fn query(
    registry: &Registry,
    target: &Target,
    statement: *mut pg_sys::Query,
    level: *mut pg_sys::Query,
    number: c_int,
) -> Option<*mut pg_sys::Query> {
    // SAFETY: the trees are the server's and copies of our own.
    unsafe {
        let search = conditions_of(level);
        (*search).targetList = std::ptr::null_mut();
        (*search).sortClause = std::ptr::null_mut();
        (*search).limitCount = std::ptr::null_mut();
        (*search).limitOffset = std::ptr::null_mut();
        let is_whole = level == statement && !(*level).hasModifyingCTE && can_be_asked(search, number);
        if !is_whole {
            return None;
        }
        read_others(registry, search, number);
        look_for(registry, registry.query(target, Asked::GranulesBehindBarrier), level, search, number);
        Some(search)
    }
}

/// Reads the new tables among the relations of a query with both their parts, all but relation `number`.
pub(crate) unsafe fn read_others(registry: &Registry, query: *mut pg_sys::Query, number: c_int) {
    // SAFETY: a copy of our own.
    unsafe {
        for part in nodes::levels(query) {
            let relations: Vec<*mut pg_sys::RangeTblEntry> = nodes::elements((*part).rtable);
            for (other, entry) in (1..).zip(relations) {
                let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
                    && (*entry).relkind as u8 == pg_sys::RELKIND_RELATION
                    && (part != query || other != number);
                if let Some(target) = registry.target((*entry).relid).filter(|_| is_table) {
                    read_both_parts(registry, target, query, part, entry, other);
                }
            }
        }
    }
}

/// Lets relation `number` of a query be old rows, as `granules` asks for them behind a barrier, and the query give their granules. `level` has
/// the same conditions.
pub(crate) unsafe fn look_for(
    registry: &Registry,
    granules: *mut pg_sys::Query,
    level: *mut pg_sys::Query,
    search: *mut pg_sys::Query,
    number: c_int,
) {
    // SAFETY: the trees are the server's and copies of our own.
    unsafe {
        let conditions = nodes::conjuncts((*(*level).jointree).quals);
        if !append_old_rows(granules, level, level, &conditions, number) {
            put_behind_barrier(granules, &conditions, number);
        }
        for part in nodes::levels(granules) {
            for rights in all_rights(part) {
                registry.open_view(rights);
            }
        }
        let rows = old_rows(granules);
        let entry = nodes::relation(search, number);
        (*entry).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry).subquery = (*rows).subquery;
        (*entry).security_barrier = (*rows).security_barrier;
        (*entry).eref = (*rows).eref;
        (*entry).relid = Oid::INVALID;
        (*entry).relkind = 0;
        (*entry).rellockmode = 0;
        (*entry).inh = false;
        drop_rights(entry);
        let found = (*granules).targetList;
        nodes::renumber(found.cast(), 1, number);
        (*search).targetList = pg_sys::list_concat(found, (*search).targetList);
        let condition = (*(*granules).jointree).quals;
        if !condition.is_null() {
            nodes::renumber(condition, 1, number);
            let from = (*search).jointree;
            (*from).quals = pg_sys::make_and_qual((*from).quals, condition);
        }
    }
}

/// Whether a query gives the same each time that it is asked with one snapshot, also of old rows in place of relation `number`.
pub(crate) unsafe fn can_be_asked(query: *mut pg_sys::Query, number: c_int) -> bool {
    // SAFETY: a query of our own.
    unsafe {
        (*nodes::relation(query, number)).securityQuals.is_null()
            && !names_row(query, number)
            && !pg_sys::contain_volatile_functions(query.cast())
            && nodes::levels(query).iter().all(|part| reads_by_snapshot(*part))
            && nodes::levels(query)[1..].iter().all(|part| is_settled(*part))
    }
}

/// A query that gives what a statement is about: its tables and their conditions, with its columns, their order and its limit.
pub(crate) unsafe fn conditions_of(statement: *mut pg_sys::Query) -> *mut pg_sys::Query {
    // SAFETY: a copy that is ours.
    unsafe {
        let search = nodes::copy(statement);
        (*search).commandType = pg_sys::CmdType::CMD_SELECT;
        (*search).resultRelation = 0;
        for list in [
            &mut (*search).returningList,
            &mut (*search).withCheckOptions,
            &mut (*search).rowMarks,
            &mut (*search).distinctClause,
        ] {
            *list = std::ptr::null_mut();
        }
        (*search).hasDistinctOn = false;
        (*search).hasTargetSRFs = false;
        (*search).hasForUpdate = false;
        search
    }
}

unsafe extern "C-unwind" {
    /// A table and those that inherit from it.
    fn find_all_inheritors(table: Oid, lock: pg_sys::LOCKMODE, parents: *mut *mut pg_sys::List) -> *mut pg_sys::List;
}

/// Whether the relations of a query hold the same rows each time that they are read with one snapshot: samples, sequences and foreign tables do not.
unsafe fn reads_by_snapshot(query: *mut pg_sys::Query) -> bool {
    // SAFETY: a query of the server, whose relations are locked.
    unsafe {
        let is_other = |kind| [pg_sys::RELKIND_SEQUENCE, pg_sys::RELKIND_FOREIGN_TABLE].contains(&kind);
        nodes::elements::<pg_sys::RangeTblEntry>((*query).rtable)
            .into_iter()
            .filter(|entry| (**entry).rtekind == pg_sys::RTEKind::RTE_RELATION)
            .all(|entry| {
                let all = find_all_inheritors((*entry).relid, pg_sys::NoLock as pg_sys::LOCKMODE, std::ptr::null_mut());
                let count = if all.is_null() { 0 } else { (*all).length as usize };
                (*entry).tablesample.is_null()
                    && !(0..count)
                        .any(|at| is_other(pg_sys::get_rel_relkind((*(*all).elements.add(at)).oid_value) as u8))
            })
    }
}

/// Whether a query gives the same rows each time that it is asked with one snapshot.
unsafe fn is_settled(query: *mut pg_sys::Query) -> bool {
    #[pg_guard]
    unsafe extern "C-unwind" fn depends_on_order(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            nodes::tag(node) == NodeTag::T_Aggref && !(is_total(node.cast()) && gives_one_of_equal_bytes(node.cast()))
                || nodes::walk_expression(node, depends_on_order, context)
        }
    }
    // SAFETY: a query of the server; the walker needs no context.
    unsafe {
        (*query).commandType == pg_sys::CmdType::CMD_SELECT
            && (*query).rowMarks.is_null()
            && (*query).limitCount.is_null()
            && (*query).limitOffset.is_null()
            && !((*query).hasDistinctOn || (*query).hasWindowFuncs)
            && told_apart(query).into_iter().all(|expression| is_equal_by_bytes(expression))
            && !nodes::walk_query(query, depends_on_order, std::ptr::null_mut())
    }
}

/// Of what a query gives one row for those that are equal.
unsafe fn told_apart(query: *mut pg_sys::Query) -> Vec<*mut pg_sys::Node> {
    // SAFETY: a query of the server.
    unsafe {
        let columns: Vec<*mut pg_sys::TargetEntry> = nodes::elements((*query).targetList);
        if !(*query).setOperations.is_null() {
            return columns.into_iter().map(|column| (*column).expr.cast()).collect();
        }
        [(*query).groupClause, (*query).distinctClause]
            .into_iter()
            .flat_map(|clauses| nodes::elements::<pg_sys::SortGroupClause>(clauses))
            .map(|clause| (*pg_sys::get_sortgroupclause_tle(clause, (*query).targetList)).expr.cast())
            .collect()
    }
}

/// Whether an aggregate does not give any one of values that are equal and differ in their bytes.
unsafe fn gives_one_of_equal_bytes(aggregate: *mut pg_sys::Aggref) -> bool {
    // SAFETY: a node of the server.
    unsafe {
        let name = nodes::text(pg_sys::get_func_name((*aggregate).aggfnoid));
        !["min", "max"].contains(&name.as_str()) || is_equal_by_bytes(aggregate.cast())
    }
}

/// Whether values of an expression are equal only if their bytes are: not so numbers with several scales, or texts of some collations.
unsafe fn is_equal_by_bytes(expression: *mut pg_sys::Node) -> bool {
    /// What the server asks before it keeps equal keys of an index once.
    const EQUAL_IMAGE: i16 = 4;
    // SAFETY: looks the type up; the function is of its operator class, and takes the class's type.
    unsafe {
        let class = pg_sys::GetDefaultOpClass(pg_sys::exprType(expression), pg_sys::BTREE_AM_OID);
        if class == Oid::INVALID {
            return false;
        }
        let (family, kind) = (pg_sys::get_opclass_family(class), pg_sys::get_opclass_input_type(class));
        let function = pg_sys::get_opfamily_proc(family, kind, kind, EQUAL_IMAGE);
        function != Oid::INVALID && {
            let collation = pg_sys::exprCollation(expression);
            pg_sys::OidFunctionCall1Coll(function, collation, pg_sys::Datum::from(kind)).value() != 0
        }
    }
}

/// A relation of a query, as it is called in queries that are so deep in it.
struct Relation {
    number: c_int,
    depth: u32,
}

/// Whether a query names a whole row of a relation, or its system columns: as old rows, these are others.
unsafe fn names_row(query: *mut pg_sys::Query, number: c_int) -> bool {
    #[pg_guard]
    unsafe extern "C-unwind" fn is_row(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the context is a `Relation`, the node one of the query's.
        unsafe {
            let relation = context.cast::<Relation>();
            match nodes::tag(node) {
                NodeTag::T_Var => {
                    let var = node.cast::<pg_sys::Var>();
                    (*var).varno == (*relation).number
                        && (*var).varlevelsup == (*relation).depth
                        && (*var).varattno <= 0
                }
                NodeTag::T_CurrentOfExpr => true,
                NodeTag::T_Query => {
                    (*relation).depth += 1;
                    let found = nodes::walk_query(node.cast(), is_row, context);
                    (*relation).depth -= 1;
                    found
                }
                _ => nodes::walk_expression(node, is_row, context),
            }
        }
    }
    let mut relation = Relation { number, depth: 0 };
    // SAFETY: the walker gets what it expects.
    unsafe { nodes::walk_query(query, is_row, (&raw mut relation).cast()) }
}
