//! What outer joins of a query may lack, and what it asks of that. A joined row may be left out for a row that an outer join finds, and come when that
//! one is gone. So who looks for joined rows that may be others needs those that are left out as well, but no more of them than that: without the
//! conditions by which tables are joined, they are all combinations of their rows.

use pgrx::pg_sys::{self, JoinExpr, JoinType, Node, NodeTag};

use crate::flaws::{self, Flaw};
use crate::nodes;
use crate::shape::Survey;

/// The outer joins of a query that may lack a row where it gives one.
pub(crate) struct Absence<'a> {
    survey: &'a Survey,
    from: *mut Node,
    /// Not those of whose rows a condition is kept that is true of no row that lacks them: they find a row, or there is none.
    open: Vec<*mut JoinExpr>,
}

impl<'a> Absence<'a> {
    /// Looks at a query's `FROM`, where columns name tables, not joins of them.
    ///
    /// # Safety
    /// `from` is that of the query that was surveyed.
    pub(crate) unsafe fn of(survey: &'a Survey, from: *mut Node) -> Self {
        // SAFETY: as promised.
        unsafe {
            let open = joins_of(from).into_iter().filter(|join| (**join).jointype != JoinType::JOIN_INNER).collect();
            let mut absence = Self { survey, from, open };
            let filters = filters(from);
            let closed = |absence: &Self| {
                let mut found = filters.iter().filter_map(|(condition, at)| absence.closed_by(*condition, *at));
                found.find(|closed| !closed.is_empty())
            };
            while let Some(closed) = closed(&absence) {
                absence.open.retain(|join| !closed.contains(join));
            }
            absence
        }
    }

    /// Whether a condition by which the query leaves joined rows out is about what an outer join may lack.
    pub(crate) fn is_asked_for(&self) -> bool {
        // SAFETY: nodes of the query.
        unsafe { filters(self.from).into_iter().any(|(condition, at)| self.is_about_lacking(condition, at)) }
    }

    /// Takes those conditions out of a query: joined rows that were left out for them are there, too. Tells whether that was possible: `USING` has its
    /// condition in its name.
    ///
    /// # Safety
    /// `from` is the same `FROM`, where columns may name joins, and is the caller's to change.
    pub(crate) unsafe fn forget(&self, from: *mut Node) -> bool {
        // SAFETY: as promised.
        unsafe { self.forget_in(from, self.from) }
    }

    unsafe fn forget_in(&self, node: *mut Node, flat: *mut Node) -> bool {
        // SAFETY: both have the same form; the tag tells the kind of a node.
        unsafe {
            match nodes::tag(node) {
                NodeTag::T_FromExpr => {
                    let (from, flat_from) = (node.cast::<pg_sys::FromExpr>(), flat.cast::<pg_sys::FromExpr>());
                    (*from).quals = self.of_what_is_there((*from).quals, (*flat_from).quals, flat);
                    let parts =
                        nodes::elements((*from).fromlist).into_iter().zip(nodes::elements((*flat_from).fromlist));
                    parts.fold(true, |is_possible, (part, flat)| self.forget_in(part, flat) && is_possible)
                }
                NodeTag::T_JoinExpr => {
                    let (join, flat_join) = (node.cast::<JoinExpr>(), flat.cast::<JoinExpr>());
                    // An outer join keeps its rows whatever it asks.
                    if (*join).jointype == JoinType::JOIN_INNER && self.is_about_lacking((*flat_join).quals, flat) {
                        if !(*join).usingClause.is_null() {
                            return false;
                        }
                        (*join).quals = self.of_what_is_there((*join).quals, (*flat_join).quals, flat);
                    }
                    self.forget_in((*join).larg, (*flat_join).larg) && self.forget_in((*join).rarg, (*flat_join).rarg)
                }
                _ => true,
            }
        }
    }

    /// Those of conditions that are about nothing that an outer join may lack; null: none.
    unsafe fn of_what_is_there(&self, conditions: *mut Node, flat: *mut Node, at: *mut Node) -> *mut Node {
        // SAFETY: conditions of one form; the list is a new one.
        unsafe {
            let all = nodes::conjuncts(conditions).into_iter().zip(nodes::conjuncts(flat));
            let kept = all.filter(|(_, flat)| !self.is_about_lacking(*flat, at)).map(|(condition, _)| condition);
            let list = kept.fold(std::ptr::null_mut(), |list, condition| pg_sys::lappend(list, condition.cast()));
            if list.is_null() { std::ptr::null_mut() } else { pg_sys::make_ands_explicit(list).cast() }
        }
    }

    /// Whether conditions at a place of `FROM` are about what outer joins below it may lack. Elsewhere the same tables have all that they are asked for.
    unsafe fn is_about_lacking(&self, conditions: *mut Node, at: *mut Node) -> bool {
        // SAFETY: conditions of the query.
        unsafe {
            let about = self.survey.relations_of(conditions);
            self.open_below(at).into_iter().any(|join| self.lacked_by(join).iter().any(|lacked| about.contains(lacked)))
        }
    }

    /// The outer joins that lack nothing where a condition is true. None: it may be true where something is lacking, so what it leaves out may come.
    unsafe fn closed_by(&self, condition: *mut Node, at: *mut Node) -> Option<Vec<*mut JoinExpr>> {
        let mut closed = Vec::new();
        // SAFETY: a condition of the query; the set is the server's.
        unsafe {
            let about = self.survey.relations_of(condition);
            let there = self.survey.relations_in(pg_sys::find_nonnullable_rels(condition));
            for join in self.open_below(at) {
                let lacked = self.lacked_by(join);
                if !lacked.iter().any(|relation| about.contains(relation)) {
                    continue;
                }
                if !lacked.iter().any(|relation| there.contains(relation)) {
                    return None;
                }
                closed.push(join);
                // Then it leaves rows out by its own condition, too: another one of its rows may come for what that one lacks.
                for own in nodes::conjuncts((*join).quals) {
                    match self.closed_by(own, join.cast()) {
                        Some(others) => closed.extend(others),
                        None if flaws::is_set(Flaw::LackingForgotten) => {}
                        None => return None,
                    }
                }
            }
        }
        Some(closed)
    }

    /// The open outer joins in a part of `FROM`, but for itself.
    unsafe fn open_below(&self, at: *mut Node) -> Vec<*mut JoinExpr> {
        // SAFETY: a part of the query's FROM.
        let below = unsafe { joins_of(at) };
        below.into_iter().filter(|join| join.cast() != at && self.open.contains(join)).collect()
    }

    /// The relations that an outer join may lack.
    unsafe fn lacked_by(&self, join: *mut JoinExpr) -> Vec<usize> {
        // SAFETY: a join of the query.
        unsafe {
            let side = if (*join).jointype == JoinType::JOIN_LEFT { (*join).rarg } else { (*join).larg };
            self.survey.relations_below(side)
        }
    }
}

/// The conditions by which a part of `FROM` leaves rows out, one by one, each with the place where it is asked.
unsafe fn filters(node: *mut Node) -> Vec<(*mut Node, *mut Node)> {
    // SAFETY: as promised by who calls; the tag tells the kind of a node.
    unsafe {
        let mut found: Vec<_> = joins_of(node)
            .into_iter()
            .filter(|join| (**join).jointype == JoinType::JOIN_INNER)
            .map(|join| ((*join).quals, join.cast::<Node>()))
            .collect();
        if nodes::tag(node) == NodeTag::T_FromExpr {
            found.push(((*node.cast::<pg_sys::FromExpr>()).quals, node));
        }
        let one_by_one =
            |(conditions, at)| nodes::conjuncts(conditions).into_iter().map(move |condition| (condition, at));
        found.into_iter().flat_map(one_by_one).collect()
    }
}

/// The joins in a part of `FROM`, itself among them.
unsafe fn joins_of(node: *mut Node) -> Vec<*mut JoinExpr> {
    // SAFETY: as promised by who calls; the tag tells the kind of a node.
    unsafe {
        match nodes::tag(node) {
            NodeTag::T_FromExpr => nodes::elements((*node.cast::<pg_sys::FromExpr>()).fromlist)
                .into_iter()
                .flat_map(|part| joins_of(part))
                .collect(),
            NodeTag::T_JoinExpr => {
                let join = node.cast::<JoinExpr>();
                [vec![join], joins_of((*join).larg), joins_of((*join).rarg)].concat()
            }
            _ => Vec::new(),
        }
    }
}

/// Whether an outer join lacks rows of a join that is itself an outer one: then one of these that is there may let another one be lacking.
///
/// # Safety
/// `node` is a part of a query's `FROM`.
pub(crate) unsafe fn nests_outer_joins(node: *mut Node) -> bool {
    // SAFETY: as promised.
    unsafe {
        joins_of(node).into_iter().any(|join| {
            let lacked = match (*join).jointype {
                JoinType::JOIN_INNER => return false,
                JoinType::JOIN_LEFT => (*join).rarg,
                _ => (*join).larg,
            };
            joins_of(lacked).into_iter().any(|inner| (*inner).jointype != JoinType::JOIN_INNER)
        })
    }
}
