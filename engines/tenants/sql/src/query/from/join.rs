//! Joins: which side may be missing, and what the sides have in common.

use std::ops::Range;

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{Join, JoinConstraint, JoinOperator};

use super::{From, Inner, Item, Outer};
use crate::{
    bind::{Binder, Typed, comparison_type},
    expression::{Comparison, Expr},
    parse::name::object_name,
    query::{
        join::needed,
        scope::{Scope, Visible},
        select::Planner,
    },
};

impl Planner<'_> {
    pub(super) fn join_of(
        &mut self,
        from: &mut From<'_>,
        (begin, middle): (usize, usize),
        (left, right): (Item, Item),
        ast: &Join,
    ) -> Result<Item> {
        let (constraint, kind) = match &ast.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, Kind::Inner),
            JoinOperator::CrossJoin(constraint) => (constraint, Kind::Inner),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, Kind::Left),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (constraint, Kind::Right),
            JoinOperator::FullOuter(constraint) => (constraint, Kind::Full),
            _ => return Err(SqlError::unsupported(format_args!("{}", ast.to_string().trim()))),
        };
        let optional = match kind {
            Kind::Inner => begin..begin,
            Kind::Left => middle..from.scope.columns.len(),
            Kind::Right => begin..middle,
            Kind::Full => begin..from.scope.columns.len(),
        };
        from.scope.columns[optional].iter_mut().for_each(|column| column.optional = true);
        if matches!(kind, Kind::Right | Kind::Full) && needed(&right, 0).iter().any(|at| left.part().contains(at)) {
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, "invalid reference to FROM-clause entry")
                .detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference."));
        }
        let missing = match kind {
            Kind::Inner => None,
            Kind::Left => right.recursive(),
            Kind::Right => left.recursive(),
            Kind::Full => left.recursive().or_else(|| right.recursive()),
        };
        if let Some(name) = missing {
            let message = format!("recursive reference to query \"{name}\" must not appear within an outer join");
            return Err(SqlError::new(state::INVALID_RECURSION, message));
        }
        let mut on = Vec::new();
        match constraint {
            JoinConstraint::None => {}
            JoinConstraint::On(condition) => {
                // Only what is joined here can be named.
                let scope = Scope {
                    columns: from.scope.columns[begin..].to_vec(),
                    values: from.scope.values.clone(),
                    width: from.scope.width,
                    outer: from.scope.outer,
                };
                let mut binder = Binder::plain(&scope, self, "JOIN conditions");
                binder.condition(condition, "JOIN/ON")?.conjuncts(&mut on);
            }
            JoinConstraint::Using(names) => {
                let names = names.iter().map(object_name).collect::<Result<Vec<_>>>()?;
                on = self.using(from, (begin, middle), &names, kind)?;
            }
            JoinConstraint::Natural => {
                let shown = |range: Range<usize>| {
                    from.scope.columns[range].iter().filter(|column| !column.hidden).map(|column| column.name.clone())
                };
                let right: Vec<String> = shown(middle..from.scope.columns.len()).collect();
                let names: Vec<String> = shown(begin..middle).filter(|name| right.contains(name)).collect();
                on = self.using(from, (begin, middle), &names, kind)?;
            }
        }
        Ok(match kind {
            Kind::Inner => Item::Inner(Inner { items: vec![left, right], conditions: on }),
            Kind::Left => Item::Outer(Box::new(Outer { left, right, on, full: false })),
            Kind::Right => Item::Outer(Box::new(Outer { left: right, right: left, on, full: false })),
            Kind::Full => Item::Outer(Box::new(Outer { left, right, on, full: true })),
        })
    }

    /// `USING`: the columns are equal, and one in front of all stands for both.
    fn using(
        &mut self,
        from: &mut From<'_>,
        (begin, middle): (usize, usize),
        names: &[String],
        kind: Kind,
    ) -> Result<Vec<Expr>> {
        let mut conditions = Vec::new();
        let mut merged = Vec::new();
        for name in names {
            let find = |range: Range<usize>, side: &str| {
                let mut found = range.filter(|at| {
                    let column = &from.scope.columns[*at];
                    column.name == *name && !column.hidden
                });
                match (found.next(), found.next()) {
                    (Some(at), None) => Ok(at),
                    (Some(_), Some(_)) => {
                        let message = format!("common column name \"{name}\" appears more than once in {side} table");
                        Err(SqlError::new(state::AMBIGUOUS_COLUMN, message))
                    }
                    (None, _) => {
                        let message =
                            format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                        Err(SqlError::new(state::UNDEFINED_COLUMN, message))
                    }
                }
            };
            let (left, right) = (find(begin..middle, "left")?, find(middle..from.scope.columns.len(), "right")?);
            let (a, b) = (from.scope.columns[left].clone(), from.scope.columns[right].clone());
            self.names_column(a.origin);
            self.names_column(b.origin);
            let of = comparison_type(a.of, b.of).ok_or_else(|| {
                let message = format!(
                    "JOIN/USING types {} and {} cannot be matched",
                    self.catalog.type_name(a.of),
                    self.catalog.type_name(b.of)
                );
                SqlError::new(state::DATATYPE_MISMATCH, message)
            })?;
            let mut binder = Binder::plain(&from.scope, self, "JOIN/USING");
            let left_value = binder.implicit(Typed::new(a.expr.clone(), a.of), of)?;
            let right_value = binder.implicit(Typed::new(b.expr.clone(), b.of), of)?;
            let (left_value_of, right_value_of) = (Box::new(left_value.clone()), Box::new(right_value.clone()));
            conditions.push(Expr::Compare(Comparison::Equal, left_value_of, right_value_of));
            let (expr, of, origin) = match kind {
                Kind::Inner | Kind::Left if a.of == of => (a.expr, of, a.origin),
                Kind::Inner | Kind::Left => (left_value, of, (0, 0)),
                Kind::Right if b.of == of => (b.expr, of, b.origin),
                Kind::Right => (right_value, of, (0, 0)),
                Kind::Full => (Expr::Coalesce(vec![left_value, right_value]), of, (0, 0)),
            };
            merged.push(Visible {
                table: String::new(),
                name: name.clone(),
                of,
                expr,
                origin,
                optional: false,
                hidden: false,
            });
            from.scope.columns[left].hidden = true;
            from.scope.columns[right].hidden = true;
        }
        from.scope.columns.splice(begin..begin, merged);
        Ok(conditions)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}
