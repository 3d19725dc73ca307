//! Statements that lock so many rows of a table, whichever these are, as those that take jobs from a queue (`SELECT .. LIMIT 1 FOR UPDATE SKIP LOCKED`).
//!
//! Of the old rows they touch the first that are found, so these are moved. But others may take them before the statement does, and there
//! may be more: so the rows are locked first ([`Touch::probe`](crate::touching)), as the statement will do it, and if they are too few, more are moved.
//! Where the order says which are the first, old rows that come before the last one that is locked are moved, too, until there are none.
//!
//! An `UPDATE` of rows that such a query names by their primary key touches no others.

use std::ffi::{c_int, c_void};

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::joined::{can_be_asked, conditions_of, look_for, read_others};
use crate::nodes;
use crate::registry::{Asked, Registry, Target};
use crate::shape::without_relabel;
use crate::touching::is_about;

/// What is needed to lock the first rows.
pub(crate) struct Queue {
    /// Finds the granules of the first old rows.
    pub(crate) query: *mut pg_sys::Query,
    pub(crate) probe: Probe,
}

/// What locks rows before a statement does.
pub(crate) struct Probe {
    /// Locks them as the statement will, and gives for each how many there are to be, and by what it is in its place in the order.
    pub(crate) query: *mut pg_sys::Query,
    /// The order (`SortGroupClause`), NULL if there is none. The granules of old rows come with the same columns.
    pub(crate) order: *mut pg_sys::List,
    /// Rows that others have locked are passed over.
    pub(crate) skips: bool,
}

/// A level of a statement that locks the first rows of its relation `number`. None: it is no such level.
///
/// # Safety
/// Relation `number` of `level` is the target's new table.
pub(crate) unsafe fn of(
    registry: &Registry,
    target: &Target,
    level: *mut pg_sys::Query,
    number: c_int,
) -> Option<Queue> {
    // SAFETY: the trees are the server's and copies of our own.
    unsafe {
        if !is_queue(level, number) || !is_alone(level) {
            return None;
        }
        let search = conditions_of(level);
        (*search).targetList = sort_columns(level, 1);
        if !can_be_asked(search, number) {
            return None;
        }
        read_others(registry, search, number);
        let marks: Vec<*mut pg_sys::RowMarkClause> = nodes::elements((*level).rowMarks);
        if marks.iter().any(|mark| (**mark).strength == pg_sys::LockClauseStrength::LCS_FORKEYSHARE) {
            return None;
        }
        let skips = marks.iter().any(|mark| (**mark).waitPolicy == pg_sys::LockWaitPolicy::LockWaitSkip);
        // What moves in another's transaction is as locked as that row.
        let asked =
            if skips && target.is_inside { Asked::FreeGranulesBehindBarrier } else { Asked::GranulesBehindBarrier };
        look_for(registry, registry.query(target, asked), level, search, number);
        for (place, column) in (1..).zip(nodes::elements::<pg_sys::TargetEntry>((*search).targetList)) {
            (*column).resno = place;
        }

        let probe = nodes::copy(level);
        (*probe).hasTargetSRFs = false;
        let limit = nodes::copy((*probe).limitCount);
        let limit = pg_sys::makeTargetEntry(limit.cast(), 1, c"limit".as_ptr().cast_mut(), false);
        let limit = pg_sys::lappend(std::ptr::null_mut(), limit.cast());
        (*probe).targetList = pg_sys::list_concat(limit, sort_columns(level, 2));
        read_others(registry, probe, number);
        Some(Queue { query: search, probe: Probe { query: probe, order: nodes::copy((*level).sortClause), skips } })
    }
}

/// The columns by which a level is sorted, one for each part of its order, as columns from this one on.
unsafe fn sort_columns(level: *mut pg_sys::Query, first: pg_sys::AttrNumber) -> *mut pg_sys::List {
    // SAFETY: nodes of the server, and copies of our own.
    unsafe {
        let mut columns = std::ptr::null_mut();
        for (number, clause) in (first..).zip(nodes::elements::<pg_sys::SortGroupClause>((*level).sortClause)) {
            let column = nodes::copy(pg_sys::get_sortgroupclause_tle(clause, (*level).targetList));
            (*column).resno = number;
            (*column).resjunk = false;
            columns = pg_sys::lappend(columns, column.cast());
        }
        columns
    }
}

/// Whether a query locks so many rows of one relation, whichever these are.
unsafe fn is_queue(level: *mut pg_sys::Query, number: c_int) -> bool {
    // SAFETY: a query of the server.
    unsafe {
        let limit = (*level).limitCount;
        (*level).commandType == pg_sys::CmdType::CMD_SELECT
            && locks_only(level) == Some(number)
            && !limit.is_null()
            && is_about(limit, 0)
            // One row would be several.
            && ((*level).sortClause.is_null() || !(*level).hasTargetSRFs)
            && (*level).limitOffset.is_null()
            && (*level).limitOption == pg_sys::LimitOption::LIMIT_OPTION_COUNT
    }
}

/// The relation of a query that has one, and locks its rows.
unsafe fn locks_only(query: *mut pg_sys::Query) -> Option<c_int> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let from: Vec<*mut pg_sys::Node> = nodes::elements((*(*query).jointree).fromlist);
        let marks: Vec<*mut pg_sys::RowMarkClause> = nodes::elements((*query).rowMarks);
        let ([only], [mark]) = (&from[..], &marks[..]) else { return None };
        let is_it = nodes::tag(*only) == NodeTag::T_RangeTblRef
            && (*only.cast::<pg_sys::RangeTblRef>()).rtindex as u32 == (**mark).rti;
        is_it.then_some((**mark).rti as c_int)
    }
}

/// Whether a query can be asked without the statement around it.
unsafe fn is_alone(query: *mut pg_sys::Query) -> bool {
    #[pg_guard]
    unsafe extern "C-unwind" fn needs_more(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            match nodes::tag(node) {
                NodeTag::T_Param => {
                    let kind = (*node.cast::<pg_sys::Param>()).paramkind;
                    kind != pg_sys::ParamKind::PARAM_EXTERN && kind != pg_sys::ParamKind::PARAM_SUBLINK
                }
                NodeTag::T_Var => (*node.cast::<pg_sys::Var>()).varlevelsup > *context.cast::<u32>(),
                NodeTag::T_Query => {
                    *context.cast::<u32>() += 1;
                    let needs = nodes::walk_query(node.cast(), needs_more, context);
                    *context.cast::<u32>() -= 1;
                    needs
                }
                _ => nodes::walk_expression(node, needs_more, context),
            }
        }
    }
    // SAFETY: a query of the server; the walker gets how deep it is in it.
    unsafe {
        let mut depth = 0_u32;
        let reads_cte = nodes::levels(query)
            .into_iter()
            .flat_map(|level| nodes::elements::<pg_sys::RangeTblEntry>((*level).rtable))
            .any(|entry| (*entry).rtekind == pg_sys::RTEKind::RTE_CTE);
        !reads_cte && !nodes::walk_query(query, needs_more, (&raw mut depth).cast())
    }
}

/// Whether all rows of relation `number` that a level touches are such as a query in it has locked: the level names them by the primary key.
/// They are in the new table then, and a key is there once.
///
/// # Safety
/// Relation `number` of `level` is the new table `table`.
pub(crate) unsafe fn touches_locked_only(level: *mut pg_sys::Query, number: c_int, table: Oid) -> bool {
    // SAFETY: nodes of the server.
    unsafe {
        let Some(key) = single_key(table) else { return false };
        nodes::conjuncts((*(*level).jointree).quals).into_iter().any(|condition| {
            let Some((equality, other)) = compared(condition, number, key) else { return false };
            let query = match nodes::tag(other) {
                NodeTag::T_SubLink => (*other.cast::<pg_sys::SubLink>()).subselect.cast(),
                NodeTag::T_Var => named_by(level, other.cast()),
                _ => std::ptr::null_mut(),
            };
            !query.is_null() && gives_locked(query, other, table, key) && equality.tells_keys_apart()
        })
    }
}

/// The column that is the primary key of a table.
unsafe fn single_key(table: Oid) -> Option<pg_sys::AttrNumber> {
    // SAFETY: a table that is locked for the statement.
    unsafe {
        let relation = pg_sys::RelationIdGetRelation(table);
        if relation.is_null() {
            return None;
        }
        let columns =
            pg_sys::RelationGetIndexAttrBitmap(relation, pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_PRIMARY_KEY);
        pg_sys::RelationClose(relation);
        let mut member = -1;
        pg_sys::bms_get_singleton_member(columns, &raw mut member)
            .then(|| (member + pg_sys::FirstLowInvalidHeapAttributeNumber) as pg_sys::AttrNumber)
    }
}

/// An operator that is applied to a key and something of its type.
struct Equality {
    operator: Oid,
    collation: Oid,
    key: *mut pg_sys::Node,
}

impl Equality {
    /// Whether it is that by which keys are told apart.
    unsafe fn tells_keys_apart(&self) -> bool {
        // SAFETY: a column; the entry of the cache stays.
        unsafe {
            let known = pg_sys::lookup_type_cache(pg_sys::exprType(self.key), pg_sys::TYPECACHE_EQ_OPR as c_int);
            (*known).eq_opr == self.operator && pg_sys::exprCollation(self.key) == self.collation
        }
    }
}

/// With what a condition compares the key of a relation: `key IN (SELECT ..)`, `key = (SELECT ..)`, `key = ANY (ARRAY(SELECT ..))`, or `key =
/// other.column`.
unsafe fn compared(
    condition: *mut pg_sys::Node,
    number: c_int,
    key: pg_sys::AttrNumber,
) -> Option<(Equality, *mut pg_sys::Node)> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let is_key = |side: *mut pg_sys::Node| {
            let var = side.cast::<pg_sys::Var>();
            nodes::tag(side) == NodeTag::T_Var
                && (*var).varno == number
                && (*var).varlevelsup == 0
                && (*var).varattno == key
        };
        let is_link = |side: *mut pg_sys::Node, kind| {
            nodes::tag(side) != NodeTag::T_SubLink || (*side.cast::<pg_sys::SubLink>()).subLinkType == kind
        };
        // Types with the same bytes (varchar as text) and domains are compared as others.
        let sides_of = |arguments| -> Option<[*mut pg_sys::Node; 2]> {
            let sides = nodes::elements(arguments).into_iter().map(|side| without_relabel(side));
            sides.collect::<Vec<_>>().try_into().ok()
        };
        match nodes::tag(condition) {
            NodeTag::T_SubLink => {
                let link = condition.cast::<pg_sys::SubLink>();
                let test = (*link).testexpr.cast::<pg_sys::OpExpr>();
                let is_any = (*link).subLinkType == pg_sys::SubLinkType::ANY_SUBLINK
                    && !test.is_null()
                    && nodes::tag(test) == NodeTag::T_OpExpr;
                let [left, right] = is_any.then(|| sides_of((*test).args)).flatten()?;
                let equality = Equality { operator: (*test).opno, collation: (*test).inputcollid, key: left };
                (is_key(left) && nodes::tag(right) == NodeTag::T_Param).then_some((equality, condition))
            }
            NodeTag::T_ScalarArrayOpExpr => {
                let test = condition.cast::<pg_sys::ScalarArrayOpExpr>();
                let [left, right] = sides_of((*test).args)?;
                let equality = Equality { operator: (*test).opno, collation: (*test).inputcollid, key: left };
                let is_any = (*test).useOr && is_link(right, pg_sys::SubLinkType::ARRAY_SUBLINK);
                (is_key(left) && is_any && nodes::tag(right) == NodeTag::T_SubLink).then_some((equality, right))
            }
            NodeTag::T_OpExpr => {
                let test = condition.cast::<pg_sys::OpExpr>();
                let [left, right] = sides_of((*test).args)?;
                let (key, other) = if is_key(left) { (left, right) } else { (right, left) };
                let equality = Equality { operator: (*test).opno, collation: (*test).inputcollid, key };
                (is_key(key) && is_link(other, pg_sys::SubLinkType::EXPR_SUBLINK)).then_some((equality, other))
            }
            _ => None,
        }
    }
}

/// The query of the subquery or CTE of a level whose column this is.
unsafe fn named_by(level: *mut pg_sys::Query, column: *mut pg_sys::Var) -> *mut pg_sys::Query {
    // SAFETY: a column of the level; names of CTEs are the server's.
    unsafe {
        if (*column).varlevelsup != 0 {
            return std::ptr::null_mut();
        }
        let entry = nodes::relation(level, (*column).varno);
        match (*entry).rtekind {
            pg_sys::RTEKind::RTE_SUBQUERY => (*entry).subquery,
            pg_sys::RTEKind::RTE_CTE if (*entry).ctelevelsup == 0 => {
                let name = nodes::text((*entry).ctename);
                nodes::elements::<pg_sys::CommonTableExpr>((*level).cteList)
                    .into_iter()
                    .find(|cte| nodes::text((**cte).ctename) == name)
                    .map_or(std::ptr::null_mut(), |cte| (*cte).ctequery.cast())
            }
            _ => std::ptr::null_mut(),
        }
    }
}

/// Whether what `other` takes from a query is the key of rows of a table that the query has locked.
unsafe fn gives_locked(
    query: *mut pg_sys::Query,
    other: *mut pg_sys::Node,
    table: Oid,
    key: pg_sys::AttrNumber,
) -> bool {
    // SAFETY: a query of the server; the tag tells the kind of a node.
    unsafe {
        let Some(number) = locks_only(query).filter(|number| (*nodes::relation(query, *number)).relid == table) else {
            return false;
        };
        let taken = if nodes::tag(other) == NodeTag::T_Var { (*other.cast::<pg_sys::Var>()).varattno } else { 1 };
        let column = nodes::elements::<pg_sys::TargetEntry>((*query).targetList)
            .into_iter()
            .find(|column| (**column).resno == taken && !(**column).resjunk);
        column.is_some_and(|column| {
            let var = without_relabel((*column).expr.cast()).cast::<pg_sys::Var>();
            nodes::tag(var) == NodeTag::T_Var
                && (*var).varno == number
                && (*var).varlevelsup == 0
                && (*var).varattno == key
        })
    }
}
