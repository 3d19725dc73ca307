//! Old rows that are looked up by the key of a join, where the server cannot see a table in them ([`crate::appended`]): aggregates, joins, and what is
//! computed or checked. It does not pass a key into a member of a `UNION ALL` by itself, and so reads all of them for each statement.
//!
//! So the old rows get the condition of the join, too, as those of a `LATERAL` subquery; or that of an `EXISTS` or `IN`, which is a join otherwise. That
//! leaves the server no other way than to look them up for each row of the other relation, which is the better one for few rows only. Both plans are
//! made, and the cheaper one is taken.

use std::ffi::c_int;

use pgrx::pg_sys::{self, NodeTag};

use crate::barrier::{compares_harmlessly, old_rows};
use crate::nodes;
use crate::shape::without_relabel;

/// Old rows that could be looked up.
pub(crate) struct Keyed {
    /// The subquery over both parts of a new table.
    entry: *mut pg_sys::RangeTblEntry,
    /// Conditions for the old part.
    conditions: Vec<*mut pg_sys::Node>,
    /// They name relations of the same level.
    is_lateral: bool,
    /// The level, and more conditions for it.
    level: *mut pg_sys::Query,
    asked: Vec<*mut pg_sys::Node>,
}

impl Keyed {
    /// Lets the old rows be looked up.
    ///
    /// # Safety
    /// The query was not planned yet.
    pub(crate) unsafe fn take_key(self) {
        // SAFETY: trees of our own; the view with the old rows is the only relation of its subquery.
        unsafe {
            (*self.entry).lateral = self.is_lateral;
            let from = (*(*old_rows((*self.entry).subquery)).subquery).jointree;
            for condition in self.conditions {
                (*from).quals = pg_sys::make_and_qual((*from).quals, condition);
            }
            let from = (*self.level).jointree;
            for condition in self.asked {
                (*from).quals = pg_sys::make_and_qual((*from).quals, condition);
            }
        }
    }
}

/// Those relations of a level, subqueries over both parts of a new table, whose old rows could be looked up by keys of others. `asked`: of `EXISTS` and
/// `IN`, what the level is asked for, as conditions on its rows.
///
/// # Safety
/// `level` is a level of a query that nobody else has.
pub(crate) unsafe fn of(
    level: *mut pg_sys::Query,
    relations: impl Iterator<Item = (c_int, *mut pg_sys::RangeTblEntry)>,
    asked: Option<&Vec<*mut pg_sys::Node>>,
) -> Vec<Keyed> {
    // SAFETY: nodes of the server.
    unsafe {
        let tables = nodes::elements::<pg_sys::RangeTblEntry>((*level).rtable)
            .into_iter()
            .filter(|entry| (**entry).rtekind != pg_sys::RTEKind::RTE_JOIN)
            .count();
        // Of more the server joins some before it looks at the others.
        let is_whole = tables as c_int <= pg_sys::from_collapse_limit.min(pg_sys::join_collapse_limit);
        if !is_whole || (*level).resultRelation != 0 || !(*level).rowMarks.is_null() {
            return Vec::new();
        }
        let mut joins = Joins { is_asked: asked.is_some(), ..Joins::default() };
        joins.add((*level).jointree.cast());
        joins.conditions.extend(asked.into_iter().flatten());
        // Nobody is looked up by who is looked up by it: each by those that are not in question any more.
        let mut open: Vec<(c_int, *mut pg_sys::RangeTblEntry)> = relations.collect();
        let mut found = Vec::new();
        while !open.is_empty() {
            let of_others = |number: c_int| {
                let is_settled = |other: &c_int| !open.iter().any(|(one, _)| one == other);
                let conditions = joins.conditions_on(number).into_iter();
                let conditions = conditions.filter_map(|(one, others)| by_key(one, number, others, joins.is_asked));
                let conditions = conditions.filter(|(_, other)| other.as_ref().is_none_or(is_settled));
                conditions.collect::<Vec<_>>()
            };
            let keyed =
                open.iter().map(|(number, _)| of_others(*number)).enumerate().find(|(_, found)| !found.is_empty());
            let Some((place, conditions)) = keyed else {
                // By the first, which is read as it is, others may be looked up.
                open.remove(0);
                continue;
            };
            let is_lateral = conditions.iter().any(|(_, other)| other.is_some());
            let conditions = conditions.into_iter().map(|(condition, _)| condition).collect();
            let asked = if found.is_empty() { asked.cloned().unwrap_or_default() } else { Vec::new() };
            found.push(Keyed { entry: open.remove(place).1, conditions, is_lateral, level, asked });
        }
        found
    }
}

/// The subqueries of `EXISTS` and `IN` that a level has as conditions, and what they are asked for, as conditions on their rows.
///
/// # Safety
/// `level` is a level of a query.
pub(crate) unsafe fn asked(level: *mut pg_sys::Query) -> Vec<(*mut pg_sys::Query, Vec<*mut pg_sys::Node>)> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let mut found = Vec::new();
        for condition in nodes::conjuncts((*(*level).jointree).quals) {
            let negated = condition.cast::<pg_sys::BoolExpr>();
            let is_negated =
                nodes::tag(condition) == NodeTag::T_BoolExpr && (*negated).boolop == pg_sys::BoolExprType::NOT_EXPR;
            let link = if is_negated { nodes::elements((*negated).args)[0] } else { condition };
            if nodes::tag(link) != NodeTag::T_SubLink {
                continue;
            }
            let link = link.cast::<pg_sys::SubLink>();
            let query = (*link).subselect.cast::<pg_sys::Query>();
            match (*link).subLinkType {
                pg_sys::SubLinkType::EXISTS_SUBLINK => found.push((query, Vec::new())),
                pg_sys::SubLinkType::ANY_SUBLINK if !is_negated && gives_each_row(query) => {
                    let test = nodes::conjuncts((*link).testexpr);
                    found.push((query, test.into_iter().filter_map(|part| asked_of_rows(part, query)).collect()));
                }
                _ => {}
            }
        }
        found
    }
}

/// Whether a condition on the rows of a query leaves those that it gives as they are.
unsafe fn gives_each_row(query: *mut pg_sys::Query) -> bool {
    // SAFETY: a query of the server.
    unsafe {
        let parts = [(*query).groupClause, (*query).groupingSets, (*query).distinctClause];
        let others = [(*query).havingQual, (*query).limitCount, (*query).limitOffset, (*query).setOperations];
        parts.iter().all(|part| part.is_null())
            && others.iter().all(|part| part.is_null())
            && !((*query).hasAggs || (*query).hasWindowFuncs || (*query).hasTargetSRFs)
    }
}

/// A comparison of what the statement has with a column that a query in it gives, as a condition in that query.
unsafe fn asked_of_rows(test: *mut pg_sys::Node, query: *mut pg_sys::Query) -> Option<*mut pg_sys::Node> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        if nodes::tag(test) != NodeTag::T_OpExpr {
            return None;
        }
        let condition = nodes::copy(test.cast::<pg_sys::OpExpr>());
        let [own, given] = nodes::elements::<pg_sys::Node>((*condition).args)[..] else { return None };
        let (outside, column) = (without_relabel(own).cast::<pg_sys::Var>(), without_relabel(given));
        let is_known = nodes::tag(outside) == NodeTag::T_Var && (*outside).varlevelsup == 0;
        if !is_known || nodes::tag(column) != NodeTag::T_Param {
            return None;
        }
        let number = (*column.cast::<pg_sys::Param>()).paramid;
        let given = nodes::elements::<pg_sys::TargetEntry>((*query).targetList)
            .into_iter()
            .find(|entry| c_int::from((**entry).resno) == number)?;
        // The comparison is one of the column's type.
        if pg_sys::exprType((*given).expr.cast()) != pg_sys::exprType(column) {
            return None;
        }
        (*outside).varlevelsup = 1;
        let args = pg_sys::lappend(std::ptr::null_mut(), own.cast());
        (*condition).args = pg_sys::lappend(args, nodes::copy((*given).expr).cast());
        Some(condition.cast())
    }
}

/// What a level joins.
#[derive(Default)]
struct Joins {
    /// The statement asks for rows of the level that go with its own.
    is_asked: bool,
    /// Relations that are on no side of an outer join.
    inner: Vec<c_int>,
    /// What holds for all rows of these.
    conditions: Vec<*mut pg_sys::Node>,
    /// Relations that are joined to others, whose rows are kept, and by what.
    outer: Vec<(c_int, Vec<c_int>, Vec<*mut pg_sys::Node>)>,
}

impl Joins {
    unsafe fn add(&mut self, node: *mut pg_sys::Node) {
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            match nodes::tag(node) {
                NodeTag::T_RangeTblRef => self.inner.push((*node.cast::<pg_sys::RangeTblRef>()).rtindex),
                NodeTag::T_FromExpr => {
                    let from = node.cast::<pg_sys::FromExpr>();
                    nodes::elements((*from).fromlist).into_iter().for_each(|part| self.add(part));
                    self.conditions.extend(nodes::conjuncts((*from).quals));
                }
                NodeTag::T_JoinExpr => self.add_join(node.cast()),
                _ => {}
            }
        }
    }

    unsafe fn add_join(&mut self, join: *mut pg_sys::JoinExpr) {
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            match (*join).jointype {
                pg_sys::JoinType::JOIN_INNER => {
                    self.add((*join).larg);
                    self.add((*join).rarg);
                    self.conditions.extend(nodes::conjuncts((*join).quals));
                }
                pg_sys::JoinType::JOIN_LEFT => {
                    let first = self.inner.len();
                    self.add((*join).larg);
                    if nodes::tag((*join).rarg) == NodeTag::T_RangeTblRef {
                        let number = (*(*join).rarg.cast::<pg_sys::RangeTblRef>()).rtindex;
                        self.outer.push((number, self.inner[first..].to_vec(), nodes::conjuncts((*join).quals)));
                    }
                }
                _ => {}
            }
        }
    }

    /// Conditions that rows of a relation must meet to be joined, and by which others' columns they may be looked up.
    fn conditions_on(&self, number: c_int) -> Vec<(*mut pg_sys::Node, &[c_int])> {
        let inner = self.conditions.iter().filter(|_| self.inner.contains(&number)).map(|one| (*one, &self.inner[..]));
        let outer = self.outer.iter().filter(|(joined, ..)| *joined == number);
        inner.chain(outer.flat_map(|(_, others, quals)| quals.iter().map(|one| (*one, &others[..])))).collect()
    }
}

/// A condition that a column of a relation equals one of another one, as one on the view with the old rows; and the other one, if it is of the
/// same level. `is_asked`: it may be one of the level around it.
unsafe fn by_key(
    condition: *mut pg_sys::Node,
    number: c_int,
    others: &[c_int],
    is_asked: bool,
) -> Option<(*mut pg_sys::Node, Option<c_int>)> {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        if nodes::tag(condition) != NodeTag::T_OpExpr {
            return None;
        }
        let condition = nodes::copy(condition);
        let comparison = condition.cast::<pg_sys::OpExpr>();
        let sides = nodes::elements((*comparison).args).into_iter().map(|side| without_relabel(side));
        let columns = sides.filter(|side| nodes::tag(*side) == NodeTag::T_Var).map(|side| side.cast::<pg_sys::Var>());
        let [left, right]: [*mut pg_sys::Var; 2] = columns.collect::<Vec<_>>().try_into().ok()?;
        let is_own = |var: *mut pg_sys::Var| (*var).varno == number && (*var).varlevelsup == 0;
        let (own, other) = if is_own(left) { (left, right) } else { (right, left) };
        let is_equality = pg_sys::op_mergejoinable((*comparison).opno, pg_sys::exprType(left.cast()))
            && compares_harmlessly((*comparison).opno);
        let is_beside = (*other).varlevelsup == 0 && (*other).varno != number && others.contains(&(*other).varno);
        let is_around = (*other).varlevelsup == 1 && is_asked;
        if !is_equality || !is_own(own) || !(is_beside || is_around) || (*own).varattno <= 0 || (*other).varattno <= 0 {
            return None;
        }
        nodes::renumber(own.cast(), number, 1);
        // The view is in a member of the subquery over both parts.
        (*other).varlevelsup += 2;
        Some((condition, is_beside.then_some((*other).varno)))
    }
}
