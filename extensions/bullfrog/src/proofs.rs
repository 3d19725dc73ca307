//! What an old table proves of all rows of a new one that has its rows, one for one: by checks, NOT NULL and unique indexes. What is proven the
//! switch does not read. What is not, a check or an index would prove that is made beforehand, while clients go on; from then on the server
//! itself keeps them from writing a row that does not satisfy it.

use pgrx::pg_sys::{self, BoolExprType, NodeTag, Oid};
use pgrx::prelude::*;

use crate::asking::asker;
use crate::definition::{analysed, query_of};
use crate::domains::has_domain;
use crate::errors::defect;
use crate::evaluation::{is_exact_cast, may_fail};
use crate::nodes;
use crate::registry::qualified_name;
use crate::rights::with_rights_of;
use crate::rows::without_join_aliases;
use crate::versions::flatten_join_aliases;

/// That the server takes for a function.
const MOST_ARGUMENTS: usize = 100;

/// A new table whose rows are made of one row each of one old table.
#[derive(Clone, Copy)]
pub(crate) struct Image {
    old_table: Oid,
    query: *mut pg_sys::Query,
}

/// What all rows of the new table must be like, as expressions over the old one.
pub(crate) enum Claim {
    /// It is not false.
    Check(*mut pg_sys::Node),
    /// They have a value, whatever it is.
    Values(Vec<*mut pg_sys::Node>),
    /// So have those that the definition leaves out: the server evaluates the parts of a condition in an order of its own.
    ValuesOfAll(Vec<*mut pg_sys::Node>),
    /// No two rows that meet the condition, if there is one, are equal in all of these.
    Unique { keys: Vec<*mut pg_sys::Node>, condition: *mut pg_sys::Node },
    /// The least and the largest are found without a look at the others.
    Extremes(*mut pg_sys::Node),
}

impl Claim {
    /// What a check asks of all rows. What one of its parts implies the others may still fail to evaluate.
    pub(crate) fn of_check(condition: *mut pg_sys::Node) -> Vec<Self> {
        // SAFETY: a condition.
        vec![Self::Check(condition), Self::Values(unsafe { nodes::conjuncts(condition) })]
    }

    /// Whether it is about values of a domain, which nothing proves.
    fn has_domain(&self) -> bool {
        // SAFETY: expressions.
        unsafe {
            match self {
                Self::Check(condition) => has_domain(*condition),
                Self::Values(expressions) | Self::ValuesOfAll(expressions) => {
                    expressions.iter().any(|expression| has_domain(*expression))
                }
                Self::Unique { .. } | Self::Extremes(_) => false,
            }
        }
    }

    /// What an index asks of all rows.
    pub(crate) fn of_index(keys: Vec<*mut pg_sys::Node>, condition: *mut pg_sys::Node, is_unique: bool) -> Vec<Self> {
        let mut evaluated = keys.clone();
        if !condition.is_null() {
            evaluated.push(condition);
        }
        let mut claims = vec![Self::Values(evaluated)];
        if is_unique {
            claims.push(Self::Unique { keys, condition });
        }
        claims
    }
}

impl Image {
    /// Of an analysed query whose columns name tables, not joins of them. None if its rows are groups, or come from several tables, or who asks
    /// has not the rights of the table's owner: with these what is constant in the definition is evaluated.
    ///
    /// # Safety
    /// `query` is such a query.
    pub(crate) unsafe fn of(query: *mut pg_sys::Query) -> Option<Self> {
        // SAFETY: as promised.
        unsafe {
            let relations: Vec<*mut pg_sys::RangeTblEntry> = nodes::elements((*query).rtable);
            match relations[..] {
                [table]
                    if (*table).rtekind == pg_sys::RTEKind::RTE_RELATION
                        && (*table).relkind as u8 == pg_sys::RELKIND_RELATION
                        && (*query).groupClause.is_null()
                        && !(*query).hasAggs
                        && !(*query).hasSubLinks
                        && pg_sys::has_privs_of_role(asker(), owner_of((*table).relid)) =>
                {
                    Some(Self { old_table: (*table).relid, query })
                }
                _ => None,
            }
        }
    }

    /// What the columns of the new table are.
    unsafe fn columns(self) -> Vec<*mut pg_sys::Node> {
        // SAFETY: an analysed query.
        unsafe {
            nodes::elements::<pg_sys::TargetEntry>((*self.query).targetList)
                .into_iter()
                .filter(|entry| !(**entry).resjunk)
                .map(|entry| (*entry).expr.cast())
                .collect()
        }
    }

    /// A column of the new table.
    ///
    /// # Safety
    /// There is one of this number.
    pub(crate) unsafe fn column(self, number: i16) -> Option<*mut pg_sys::Node> {
        // SAFETY: as promised.
        unsafe { self.columns() }.get(usize::try_from(number - 1).ok()?).copied()
    }

    /// The condition that the definition has for rows; null: none.
    ///
    /// # Safety
    /// Nothing has changed the query.
    pub(crate) unsafe fn condition(self) -> *mut pg_sys::Node {
        // SAFETY: an analysed query.
        unsafe { (*(*self.query).jointree).quals }
    }

    /// That the definition's condition has a value for every row.
    ///
    /// # Safety
    /// Nothing has changed the query.
    pub(crate) unsafe fn condition_has_values(self) -> Claim {
        // SAFETY: a condition over the old table, or none.
        Claim::ValuesOfAll(unsafe { nodes::conjuncts(self.condition()) })
    }

    /// That all that the definition says of a row has a value.
    ///
    /// # Safety
    /// Nothing has changed the query.
    pub(crate) unsafe fn values(self) -> Vec<Claim> {
        // SAFETY: expressions over the old table.
        unsafe { vec![self.condition_has_values(), Claim::Values(self.columns())] }
    }

    /// An expression over the new table, which is relation 1 of it, as one over the old table. None if it is about a whole row.
    ///
    /// # Safety
    /// `expression` is such an expression, and nobody else has it.
    pub(crate) unsafe fn of_old(self, expression: *mut pg_sys::Node) -> Option<*mut pg_sys::Node> {
        // SAFETY: as promised. The server replaces columns of a join by what they are: the new table is a join of the old one alone.
        unsafe {
            let columns = self.columns();
            let known = 1..=columns.len() as i32;
            if !nodes::columns(expression, 1).all(|column| known.contains(&column)) {
                return None;
            }
            nodes::renumber(expression, 1, 2);
            let join = pg_sys::palloc0(size_of::<pg_sys::RangeTblEntry>()).cast::<pg_sys::RangeTblEntry>();
            (*join).type_ = NodeTag::T_RangeTblEntry;
            (*join).rtekind = pg_sys::RTEKind::RTE_JOIN;
            (*join).joinaliasvars = list(columns);
            let query = nodes::copy(self.query);
            (*query).rtable = pg_sys::lappend((*query).rtable, join.cast());
            Some(flatten_join_aliases(query, expression))
        }
    }

    /// Whether the old table proves a claim.
    ///
    /// # Safety
    /// The claim is about the old table, as relation 1.
    pub(crate) unsafe fn proves(self, claim: &Claim) -> bool {
        // SAFETY: as promised.
        self.with_old_table(|old| unsafe {
            match claim {
                Claim::Check(condition) => self.holds(old, *condition),
                Claim::Values(expressions) => have_values(old, expressions, self.left_out()),
                Claim::ValuesOfAll(expressions) => have_values(old, expressions, None),
                Claim::Unique { keys, condition } => self.are_unique(old, keys, *condition),
                Claim::Extremes(expression) => is_in_order(old, *expression),
            }
        })
    }

    /// Opens the old table, and acts with its owner's rights: what is constant in expressions is evaluated.
    fn with_old_table<R>(self, action: impl FnOnce(pg_sys::Relation) -> R) -> R {
        let access_share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        // SAFETY: a table that the definition names; it stays locked until the transaction ends.
        unsafe {
            let old = pg_sys::table_open(self.old_table, access_share);
            let result = with_rights_of((*(*old).rd_rel).relowner, || action(old));
            pg_sys::table_close(old, pg_sys::NoLock as pg_sys::LOCKMODE);
            result
        }
    }

    /// Whether a condition is false for no row.
    unsafe fn holds(self, old: pg_sys::Relation, condition: *mut pg_sys::Node) -> bool {
        // SAFETY: lists of the form in which the server itself compares constraints.
        unsafe {
            let wanted = implicit(condition, true);
            pg_sys::PartConstraintImpliedByRelConstraint(old, wanted)
                || pg_sys::predicate_implied_by(wanted, implicit(self.condition(), false), false)
                || (!self.condition().is_null()
                    && pg_sys::PartConstraintImpliedByRelConstraint(
                        old,
                        implicit(self.unless_left_out(condition), true),
                    ))
        }
    }

    /// A condition for those rows of the old table that the definition does not leave out.
    unsafe fn unless_left_out(self, condition: *mut pg_sys::Node) -> *mut pg_sys::Node {
        // SAFETY: a new node over copies.
        unsafe {
            match self.left_out() {
                None => condition,
                Some(left_out) => {
                    let either = list([left_out, nodes::copy(condition)]);
                    pg_sys::makeBoolExpr(BoolExprType::OR_EXPR, either, -1).cast()
                }
            }
        }
    }

    /// When the definition leaves a row of the old table out.
    unsafe fn left_out(self) -> Option<*mut pg_sys::Node> {
        // SAFETY: a new node over a copy.
        unsafe {
            if self.condition().is_null() {
                return None;
            }
            let test = node::<pg_sys::BooleanTest>(NodeTag::T_BooleanTest);
            (*test).arg = nodes::copy(self.condition()).cast();
            (*test).booltesttype = pg_sys::BoolTestType::IS_NOT_TRUE;
            (*test).location = -1;
            Some(test.cast())
        }
    }

    /// Whether a unique index of the old table keeps rows apart in these keys.
    unsafe fn are_unique(
        self,
        old: pg_sys::Relation,
        keys: &[*mut pg_sys::Node],
        condition: *mut pg_sys::Node,
    ) -> bool {
        // SAFETY: expressions over the old table; indexes are closed again.
        unsafe {
            let keys: Vec<_> = keys.iter().map(|key| folded(*key)).collect();
            let known = pg_sys::list_concat(implicit(self.condition(), false), implicit(condition, false));
            any_index(old, |index| {
                let facts = &*(*index).rd_index;
                // Rows that are equal in more are equal in less.
                facts.indisunique
                    && facts.indimmediate
                    && (0..facts.indnkeyatts as usize).zip(keys_of(index)).all(|(number, of_index)| {
                        let collation = *(*index).rd_indcollation.add(number);
                        let family = *(*index).rd_opfamily.add(number);
                        keys.iter().any(|key| is_kept_apart(*key, of_index, collation, family))
                    })
                    && pg_sys::predicate_implied_by(pg_sys::RelationGetIndexPredicate(index), known, false)
            })
        }
    }

    /// Whether the index that would prove a claim has all rows.
    pub(crate) fn is_proven_by_full_index(self, claim: &Claim) -> bool {
        // SAFETY: reads the query.
        matches!(claim, Claim::Unique { condition, .. } if condition.is_null() && unsafe { self.condition() }.is_null())
    }

    /// The statements that would let the old table prove a claim, if any do. `name` is for what they make.
    ///
    /// # Safety
    /// As for [`Image::proves`].
    pub(crate) unsafe fn proof(self, claim: &Claim, name: &str) -> Vec<String> {
        if claim.has_domain() {
            return Vec::new();
        }
        // SAFETY: as promised; texts are over the old table.
        self.with_old_table(|_| unsafe {
            let table = qualified_name(self.old_table);
            let condition = match claim {
                Claim::Check(condition) => self.text(self.unless_left_out(*condition)),
                Claim::Values(expressions) if !self.condition().is_null() => {
                    format!("({}) IS NOT TRUE OR ({})", self.text(self.condition()), self.evaluation(expressions))
                }
                Claim::Values(expressions) | Claim::ValuesOfAll(expressions) => self.evaluation(expressions),
                Claim::Unique { keys, condition } => {
                    let keys: Vec<_> = keys.iter().map(|key| format!("({})", self.text(*key))).collect();
                    let conditions =
                        [self.condition(), *condition].into_iter().filter(|condition| !condition.is_null());
                    let conditions: Vec<_> = conditions.map(|condition| self.text(condition)).collect();
                    let partial = if conditions.is_empty() { "" } else { " WHERE " };
                    let keys = keys.join(", ");
                    let conditions = conditions.join(" AND ");
                    return vec![format!("CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({keys}){partial}{conditions}")];
                }
                Claim::Extremes(expression) => {
                    return vec![format!("CREATE INDEX CONCURRENTLY ON {table} (({}))", self.text(*expression))];
                }
            };
            let name = if matches!(claim, Claim::ValuesOfAll(_)) { format!("{name}_where") } else { name.to_owned() };
            let name = nodes::text(pg_sys::quote_identifier(nodes::c_text(&name).as_ptr()));
            vec![
                format!("ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({condition}) NOT VALID"),
                format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}"),
            ]
        })
    }

    /// What an open index of the new table asks of all rows. None if that is about whole rows, or compares values as their types do not.
    unsafe fn claims_of(self, index: pg_sys::Relation) -> Option<Vec<Claim>> {
        // SAFETY: an open index, whose lists are copied.
        unsafe {
            let mut keys = Vec::new();
            for (number, key) in keys_of(index).into_iter().enumerate() {
                let (collation, family) = (*(*index).rd_indcollation.add(number), *(*index).rd_opfamily.add(number));
                if (*(*index).rd_index).indisunique && !is_compared_by(key, collation, family) {
                    return None;
                }
                keys.push(self.of_old(nodes::copy(key))?);
            }
            let condition = pg_sys::RelationGetIndexPredicate(index);
            let condition = if condition.is_null() {
                std::ptr::null_mut()
            } else {
                self.of_old(nodes::copy(pg_sys::make_ands_explicit(condition)).cast())?
            };
            Some(Claim::of_index(keys, condition, (*(*index).rd_index).indisunique))
        }
    }

    /// A condition that is true, and evaluates these where they may fail.
    unsafe fn evaluation(self, expressions: &[*mut pg_sys::Node]) -> String {
        // SAFETY: expressions over the old table.
        unsafe {
            let mut texts: Vec<_> = expressions
                .iter()
                .copied()
                .filter(|expression| may_fail(*expression))
                .map(|expression| self.text(expression))
                .collect();
            texts.dedup();
            let calls: Vec<_> = texts
                .chunks(MOST_ARGUMENTS)
                .map(|texts| format!("pg_catalog.num_nulls({}) >= 0", texts.join(", ")))
                .collect();
            calls.join(" AND ")
        }
    }

    unsafe fn text(self, expression: *mut pg_sys::Node) -> String {
        // SAFETY: an expression over the old table.
        unsafe {
            let context = pg_sys::deparse_context_for(pg_sys::get_rel_name(self.old_table), self.old_table);
            nodes::text(pg_sys::deparse_expression(expression, context, false, false))
        }
    }

    /// An expression of the parser over the new table, as one over the old table. None if it is about a whole row.
    ///
    /// # Safety
    /// `raw` is the statement of the parser that creates the new table, and the text that of the definition.
    pub(crate) unsafe fn analyse(
        self,
        raw: *mut pg_sys::RawStmt,
        expression: *mut pg_sys::Node,
        text: *const std::ffi::c_char,
    ) -> Option<*mut pg_sys::Node> {
        // SAFETY: new nodes as the parser makes them, over copies: SELECT expression FROM (query) AS new_table (columns).
        unsafe {
            let create = (*raw).stmt.cast::<pg_sys::CreateTableAsStmt>();
            let into = (*create).into;
            let from = node::<pg_sys::RangeSubselect>(NodeTag::T_RangeSubselect);
            (*from).subquery = nodes::copy((*create).query);
            (*from).alias = pg_sys::makeAlias((*(*into).rel).relname, nodes::copy((*into).colNames));
            let column = node::<pg_sys::ResTarget>(NodeTag::T_ResTarget);
            (*column).val = nodes::copy(expression);
            (*column).location = -1;
            let select = node::<pg_sys::SelectStmt>(NodeTag::T_SelectStmt);
            (*select).targetList = list([column.cast()]);
            (*select).fromClause = list([from.cast()]);
            let analysed = analysed(raw, select.cast(), text);
            let entries: Vec<*mut pg_sys::TargetEntry> = nodes::elements((*analysed).targetList);
            self.of_old((*entries[0]).expr.cast())
        }
    }
}

/// Whether the old table proves a check of a new one, whose condition is as the catalogs keep it.
#[pg_extern(sql = false, strict)]
fn check_is_proven(definition: &str, new_table: &str, condition: &str) -> bool {
    let condition = nodes::c_text(condition);
    // SAFETY: only a superuser may call this, with what the server itself wrote.
    unsafe {
        image_of(definition, new_table).is_some_and(|image| {
            let condition = image.of_old(pg_sys::stringToNode(condition.as_ptr()).cast());
            condition.is_some_and(|condition| Claim::of_check(condition).iter().all(|claim| image.proves(claim)))
        })
    }
}

/// Whether the old table proves that an index of a new one has a place for every row.
#[pg_extern(sql = false, strict)]
fn index_is_proven(definition: &str, new_table: &str, index: Oid) -> bool {
    // SAFETY: an index of the new table, which is locked; others are refused.
    unsafe {
        let Some(image) = image_of(definition, new_table) else { return false };
        let claims = image.with_old_table(|_| {
            let opened = pg_sys::index_open(index, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let is_its = qualified_name((*(*opened).rd_index).indrelid) == new_table;
            let claims = if is_its { image.claims_of(opened) } else { None };
            pg_sys::index_close(opened, pg_sys::NoLock as pg_sys::LOCKMODE);
            claims
        });
        claims.is_some_and(|claims| claims.iter().all(|claim| image.proves(claim)))
    }
}

/// Who owns a table, which is locked.
unsafe fn owner_of(table: Oid) -> Oid {
    // SAFETY: a table that a query names; it is closed again.
    unsafe {
        let opened = pg_sys::table_open(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let owner = (*(*opened).rd_rel).relowner;
        pg_sys::table_close(opened, pg_sys::NoLock as pg_sys::LOCKMODE);
        owner
    }
}

unsafe fn image_of(definition: &str, new_table: &str) -> Option<Image> {
    // SAFETY: an analysed query, which is ours.
    unsafe { query_of(definition, new_table).and_then(|query| Image::of(without_join_aliases(query))) }
}

/// Whether an index has the values of an expression in order, for all rows.
unsafe fn is_in_order(old: pg_sys::Relation, expression: *mut pg_sys::Node) -> bool {
    // SAFETY: an expression over the open table.
    unsafe {
        let expression = folded(expression);
        any_index(old, |index| {
            let (collation, family) = (*(*index).rd_indcollation, *(*index).rd_opfamily);
            (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
                && pg_sys::RelationGetIndexPredicate(index).is_null()
                && keys_of(index).first().is_some_and(|first| are_equal(*first, expression))
                && is_compared_by(expression, collation, family)
        })
    }
}

/// "Has a value", as a condition. A number that is cast to a larger type has one if it had one before.
///
/// # Safety
/// `expression` is one.
pub(crate) unsafe fn is_not_null(expression: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: a new node over a copy.
    unsafe {
        let test = node::<pg_sys::NullTest>(NodeTag::T_NullTest);
        (*test).arg = nodes::copy(before_exact_cast(expression)).cast();
        (*test).nulltesttype = pg_sys::NullTestType::IS_NOT_NULL;
        (*test).location = -1;
        test.cast()
    }
}

/// Whether expressions cannot fail for a row that is not left out, as they were evaluated for each when it was written.
unsafe fn have_values(
    old: pg_sys::Relation,
    expressions: &[*mut pg_sys::Node],
    left_out: Option<*mut pg_sys::Node>,
) -> bool {
    // SAFETY: expressions over the old table.
    unsafe {
        let left_out = left_out.map(|left_out| folded(left_out));
        let mut doubtful = expressions.iter().filter(|expression| may_fail(**expression)).peekable();
        if doubtful.peek().is_none() {
            return true;
        }
        let evaluated = evaluated_for_each_row(old, left_out);
        doubtful.all(|expression| {
            let expression = folded(*expression);
            // Who changes a domain has only its own columns looked at.
            !may_fail(expression)
                || !has_domain(expression) && evaluated.iter().any(|known| are_equal(*known, expression))
        })
    }
}

/// What the server evaluates for each row of a table that is written, or for each of which `left_out` does not say that it does not matter.
unsafe fn evaluated_for_each_row(old: pg_sys::Relation, left_out: Option<*mut pg_sys::Node>) -> Vec<*mut pg_sys::Node> {
    let mut evaluated = Vec::new();
    // SAFETY: an open table; its catalogs have so many checks.
    unsafe {
        let constraints = (*(*old).rd_att).constr;
        let count = if constraints.is_null() { 0 } else { (*constraints).num_check as usize };
        for check in (0..count).map(|number| &*(*constraints).check.add(number)).filter(|check| check.ccvalid) {
            let condition = folded(pg_sys::stringToNode(check.ccbin).cast());
            evaluated_by_check(condition, left_out, &mut evaluated);
        }
        any_index(old, |index| {
            if pg_sys::RelationGetIndexPredicate(index).is_null() {
                for key in nodes::elements(pg_sys::RelationGetIndexExpressions(index)) {
                    always_evaluated(key, &mut evaluated);
                }
            }
            false
        });
    }
    evaluated
}

/// Adds what is evaluated of a condition that is not false.
unsafe fn evaluated_by_check(
    condition: *mut pg_sys::Node,
    left_out: Option<*mut pg_sys::Node>,
    evaluated: &mut Vec<*mut pg_sys::Node>,
) {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        for part in nodes::conjuncts(condition) {
            always_evaluated(part, evaluated);
            let either = part.cast::<pg_sys::BoolExpr>();
            if nodes::tag(part) != NodeTag::T_BoolExpr || (*either).boolop != BoolExprType::OR_EXPR {
                continue;
            }
            let parts: Vec<*mut pg_sys::Node> = nodes::elements((*either).args);
            // Of a row for which the first part is false the others are not.
            if left_out.is_some_and(|left_out| are_equal(parts[0], left_out)) {
                let others = match parts[1..] {
                    [other] => other,
                    _ => pg_sys::makeBoolExpr(BoolExprType::OR_EXPR, list(parts[1..].iter().copied()), -1).cast(),
                };
                evaluated_by_check(others, None, evaluated);
            }
        }
    }
}

/// Adds an expression, and all of its parts that are evaluated whenever it is.
unsafe fn always_evaluated(expression: *mut pg_sys::Node, evaluated: &mut Vec<*mut pg_sys::Node>) {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        evaluated.push(expression);
        let parts: Vec<*mut pg_sys::Node> = match nodes::tag(expression) {
            NodeTag::T_FuncExpr => nodes::elements((*expression.cast::<pg_sys::FuncExpr>()).args),
            NodeTag::T_OpExpr => nodes::elements((*expression.cast::<pg_sys::OpExpr>()).args),
            NodeTag::T_NullTest => vec![(*expression.cast::<pg_sys::NullTest>()).arg.cast()],
            NodeTag::T_BooleanTest => vec![(*expression.cast::<pg_sys::BooleanTest>()).arg.cast()],
            NodeTag::T_RelabelType => vec![(*expression.cast::<pg_sys::RelabelType>()).arg.cast()],
            NodeTag::T_CoerceViaIO => vec![(*expression.cast::<pg_sys::CoerceViaIO>()).arg.cast()],
            // The others may be skipped.
            NodeTag::T_BoolExpr => {
                nodes::elements((*expression.cast::<pg_sys::BoolExpr>()).args).into_iter().take(1).collect()
            }
            _ => Vec::new(),
        };
        for part in parts {
            always_evaluated(part, evaluated);
        }
    }
}

/// Whether rows that are equal in `key`, by its type and collation, are so in the key of an index.
unsafe fn is_kept_apart(key: *mut pg_sys::Node, of_index: *mut pg_sys::Node, collation: Oid, family: Oid) -> bool {
    // SAFETY: expressions over one table.
    unsafe {
        [key, before_exact_cast(key)]
            .into_iter()
            .any(|key| are_equal(key, of_index) && is_compared_by(key, collation, family))
    }
}

/// Whether this is how values of an expression are compared where nobody says how.
unsafe fn is_compared_by(expression: *mut pg_sys::Node, collation: Oid, family: Oid) -> bool {
    // SAFETY: an expression; looks its type up.
    unsafe {
        let class = pg_sys::GetDefaultOpClass(pg_sys::exprType(expression), pg_sys::BTREE_AM_OID);
        pg_sys::exprCollation(expression) == collation
            && class != Oid::INVALID
            && pg_sys::get_opclass_family(class) == family
    }
}

/// What a number was before a cast to a larger type: two are equal after it only if they were before.
unsafe fn before_exact_cast(expression: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: the tag tells the kind of a node; these functions have one argument.
    unsafe {
        let cast = expression.cast::<pg_sys::FuncExpr>();
        if nodes::tag(expression) == NodeTag::T_FuncExpr && is_exact_cast(cast) {
            return nodes::elements((*cast).args)[0];
        }
    }
    expression
}

/// Whether a valid index of a table is one of these.
unsafe fn any_index(table: pg_sys::Relation, mut is_one: impl FnMut(pg_sys::Relation) -> bool) -> bool {
    let access_share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: an open table; each index is opened and closed.
    unsafe {
        let list = pg_sys::RelationGetIndexList(table);
        let count = if list.is_null() { 0 } else { (*list).length as usize };
        (0..count).any(|number| {
            let index = pg_sys::index_open((*(*list).elements.add(number)).oid_value, access_share);
            let found = (*(*index).rd_index).indisvalid && is_one(index);
            pg_sys::index_close(index, access_share);
            found
        })
    }
}

/// What an index compares, over its table.
unsafe fn keys_of(index: pg_sys::Relation) -> Vec<*mut pg_sys::Node> {
    // SAFETY: an open index has so many columns, and an expression for each that is none of the table.
    unsafe {
        let facts = &*(*index).rd_index;
        let mut expressions = nodes::elements::<pg_sys::Node>(pg_sys::RelationGetIndexExpressions(index)).into_iter();
        let numbers = facts.indkey.values.as_slice(facts.indnkeyatts as usize);
        numbers
            .iter()
            .map(|number| {
                if *number == 0 {
                    return expressions.next().unwrap_or_else(|| defect(&"an index without its expression"));
                }
                let (mut kind, mut modifier, mut collation) = (Oid::INVALID, -1, Oid::INVALID);
                let table = facts.indrelid;
                pg_sys::get_atttypetypmodcoll(table, *number, &raw mut kind, &raw mut modifier, &raw mut collation);
                pg_sys::makeVar(1, *number, kind, modifier, collation, 0).cast()
            })
            .collect()
    }
}

/// A copy in which what is constant is evaluated.
unsafe fn folded(expression: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: an expression.
    unsafe { pg_sys::eval_const_expressions(std::ptr::null_mut(), nodes::copy(expression)) }
}

/// A condition, or none, in the form in which the server compares them: what must all be true.
unsafe fn implicit(condition: *mut pg_sys::Node, is_check: bool) -> *mut pg_sys::List {
    // SAFETY: a condition or null.
    unsafe {
        if condition.is_null() {
            return std::ptr::null_mut();
        }
        pg_sys::make_ands_implicit(pg_sys::canonicalize_qual(folded(condition).cast(), is_check))
    }
}

unsafe fn are_equal(one: *mut pg_sys::Node, other: *mut pg_sys::Node) -> bool {
    // SAFETY: nodes.
    unsafe { pg_sys::equal(one.cast(), other.cast()) }
}

unsafe fn list(elements: impl IntoIterator<Item = *mut pg_sys::Node>) -> *mut pg_sys::List {
    // SAFETY: a list grows.
    elements.into_iter().fold(std::ptr::null_mut(), |list, element| unsafe { pg_sys::lappend(list, element.cast()) })
}

/// A new node, all zero.
unsafe fn node<T>(tag: NodeTag) -> *mut T {
    // SAFETY: every node begins with its tag.
    unsafe {
        let node = pg_sys::palloc0(size_of::<T>()).cast::<T>();
        (*node.cast::<pg_sys::Node>()).type_ = tag;
        node
    }
}
