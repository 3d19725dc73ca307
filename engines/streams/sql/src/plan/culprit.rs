//! Where in a query an error is that has no place: the smallest expression that fails in the same way on its own, or the
//! smallest `UNION`.
//!
//! DataFusion knows the places of names, not of types that do not fit. So each expression of a `SELECT` is planned alone, over the
//! tables of its `FROM`; of one that fails, its parts are.

use std::time::{Duration, Instant};

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Cte, Expr, GroupByExpr, JoinConstraint, JoinOperator, Query as SqlQuery, Select, SelectItem, SetExpr,
    Spanned, TableFactor, TableWithJoins, Value, With,
};
use savanna_streams_api::{Position, StreamError};

use super::conditions;
use super::walk::{self, Node};
use crate::parse::position;

/// Queries that are planned to find one place.
const TRIES_MAX: usize = 200;
/// An answer without a place is better than one that comes late.
const TIME_MAX: Duration = Duration::from_millis(300);

/// Looks for the place of an error. `fails` tells how a query fails, without a place; none if it does not.
pub(super) fn find(
    query: &SqlQuery,
    error: &StreamError,
    fails: &dyn Fn(&SqlQuery) -> Option<StreamError>,
) -> Option<Position> {
    let is_about_a_condition = conditions::is_about_one(error);
    Search { error, fails, is_about_a_condition, tries: 0, began: Instant::now() }.query(query, &mut Vec::new())
}

struct Search<'a> {
    error: &'a StreamError,
    fails: &'a dyn Fn(&SqlQuery) -> Option<StreamError>,
    /// Whether what is looked for fails only where a condition stands.
    is_about_a_condition: bool,
    tries: usize,
    began: Instant,
}

impl Search<'_> {
    fn query(&mut self, query: &SqlQuery, ctes: &mut Vec<Cte>) -> Option<Position> {
        let known = ctes.len();
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            if let Some(place) = self.query(&cte.query, ctes) {
                return Some(place);
            }
            ctes.push(cte.clone());
        }
        let place = self.body(&query.body, ctes);
        ctes.truncate(known);
        place
    }

    fn body(&mut self, body: &SetExpr, ctes: &mut Vec<Cte>) -> Option<Position> {
        match body {
            SetExpr::Select(select) => self.select(select, ctes),
            SetExpr::Query(query) => self.query(query, ctes),
            SetExpr::SetOperation { left, right, .. } => {
                let side = self.body(left, ctes).or_else(|| self.body(right, ctes));
                side.or_else(|| if self.fails_as(body.clone(), ctes) { first_column(right) } else { None })
            }
            _ => None,
        }
    }

    fn select(&mut self, select: &Select, ctes: &mut Vec<Cte>) -> Option<Position> {
        for factor in select
            .from
            .iter()
            .flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)))
        {
            if let TableFactor::Derived { subquery, .. } = factor
                && let Some(place) = self.query(subquery, ctes)
            {
                return Some(place);
            }
        }
        let crossed: Vec<TableWithJoins> = select.from.iter().map(without_conditions).collect();
        let joins = select.from.iter().flat_map(|table| &table.joins).filter_map(|join| on(&join.join_operator));
        let conditions: Vec<&Expr> = joins.chain(&select.selection).chain(&select.having).collect();
        let columns = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        });
        let groups = match &select.group_by {
            GroupByExpr::Expressions(groups, _) => groups.as_slice(),
            GroupByExpr::All(_) => &[],
        };
        let exprs: Vec<&Expr> = conditions.iter().copied().chain(columns).chain(groups).collect();
        let place = exprs.into_iter().find_map(|expr| self.expr(expr, select, &crossed, ctes, None));
        place.or_else(|| self.condition(conditions, select, &crossed, ctes))
    }

    /// The place of an expression's smallest part that fails; none if it does not fail.
    fn expr(
        &mut self,
        expr: &Expr,
        select: &Select,
        from: &[TableWithJoins],
        ctes: &[Cte],
        around: Option<Position>,
    ) -> Option<Position> {
        if !self.fails_alone(expr, select, from, ctes) {
            return None;
        }
        let place = position(expr.span().start).or(around);
        let parts = parts(expr);
        if let Some(place) = parts.iter().find_map(|part| self.expr(part, select, from, ctes, place)) {
            return Some(place);
        }
        self.condition(&parts, select, from, ctes).or(place)
    }

    /// The place of the first expression that fails where a condition stands, if what is looked for does.
    fn condition<'e>(
        &mut self,
        exprs: impl IntoIterator<Item = &'e Expr>,
        select: &Select,
        from: &[TableWithJoins],
        ctes: &[Cte],
    ) -> Option<Position> {
        if !self.is_about_a_condition {
            return None;
        }
        let failing = exprs.into_iter().find(|expr| self.fails_alone(&condition(expr), select, from, ctes));
        failing.and_then(|expr| position(expr.span().start))
    }

    fn fails_alone(&mut self, expr: &Expr, select: &Select, from: &[TableWithJoins], ctes: &[Cte]) -> bool {
        let mut alone = select.clone();
        alone.projection = vec![SelectItem::UnnamedExpr(expr.clone())];
        alone.from = from.to_vec();
        (alone.selection, alone.having, alone.distinct) = (None, None, None);
        alone.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
        self.fails_as(SetExpr::Select(Box::new(alone)), ctes)
    }

    /// Whether a part of the query fails in the same way, where there are tries left.
    fn fails_as(&mut self, body: SetExpr, ctes: &[Cte]) -> bool {
        self.tries += 1;
        if self.tries > TRIES_MAX || self.began.elapsed() > TIME_MAX {
            return false;
        }
        let mut query = SqlQuery {
            with: None,
            body: Box::new(body),
            order_by: None,
            limit_clause: None,
            fetch: None,
            locks: Vec::new(),
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators: Vec::new(),
        };
        if !ctes.is_empty() {
            let with_token = AttachedToken::empty();
            query.with = Some(With { with_token, recursive: false, cte_tables: ctes.to_vec() });
        }
        (self.fails)(&query).is_some_and(|failure| failure == *self.error)
    }
}

/// The place of the first column of a query, where PostgreSQL sees what does not fit about it.
fn first_column(body: &SetExpr) -> Option<Position> {
    match body {
        SetExpr::Select(select) => position(select.projection.first()?.span().start),
        SetExpr::Query(query) => first_column(&query.body),
        SetExpr::SetOperation { left, .. } => first_column(left),
        _ => None,
    }
}

/// `CASE WHEN expr THEN NULL END`.
fn condition(expr: &Expr) -> Expr {
    let result = Expr::value(Value::Null);
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: expr.clone(), result }],
        else_result: None,
    }
}

/// The expressions that stand right in another one.
fn parts(expr: &Expr) -> Vec<Expr> {
    let (mut depth, mut parts) = (0, Vec::new());
    let _all: Option<()> = walk::find(expr, |node| {
        match node {
            Node::Expr(part) => {
                depth += 1;
                if depth == 2 {
                    parts.push(part.clone());
                }
            }
            Node::LeftExpr => depth -= 1,
            _ => {}
        }
        None
    });
    parts
}

fn without_conditions(table: &TableWithJoins) -> TableWithJoins {
    let mut table = table.clone();
    for join in &mut table.joins {
        if on(&join.join_operator).is_some() {
            join.join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        }
    }
    table
}

/// The condition of a join.
pub(super) fn on(join: &JoinOperator) -> Option<&Expr> {
    match join {
        JoinOperator::Join(JoinConstraint::On(on))
        | JoinOperator::Inner(JoinConstraint::On(on))
        | JoinOperator::Left(JoinConstraint::On(on))
        | JoinOperator::LeftOuter(JoinConstraint::On(on))
        | JoinOperator::Right(JoinConstraint::On(on))
        | JoinOperator::RightOuter(JoinConstraint::On(on))
        | JoinOperator::FullOuter(JoinConstraint::On(on)) => Some(on),
        _ => None,
    }
}
