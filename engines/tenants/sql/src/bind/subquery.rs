//! Queries in expressions.

use std::sync::Arc;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, BinaryOperator};

use super::{
    Binder, Typed, not_if,
    operator::{comparison_of, comparison_type, no_operator},
};
use crate::{
    expression::{Comparison, Expr},
    plan::{
        OutputColumn,
        query::{Body, Query, Subquery, Test},
    },
    query::select::Planner,
};

impl Binder<'_, '_> {
    /// `(SELECT ..)` as a value.
    pub(super) fn scalar(&mut self, ast: &ast::Query) -> Result<Typed> {
        let query = self.query(ast)?;
        let [column] = query.columns.as_slice() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let of = column.of;
        Ok(Typed::new(self.planner.answer(Test::Scalar(0), Arc::new(query)), of))
    }

    /// `ARRAY(SELECT ..)`
    pub(super) fn array_of_query(&mut self, ast: &ast::Query) -> Result<Typed> {
        let mut query = self.query(ast)?;
        let [column] = query.columns.as_slice() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column"));
        };
        if column.of.element().is_some() {
            return Err(SqlError::unsupported("ARRAY of a query whose rows are arrays"));
        }
        let element = if column.of == Type::Unknown { Type::Text } else { column.of };
        self.planner.coerce(&mut query, &[element])?;
        let of = element.array().ok_or_else(|| SqlError::internal("an array of nothing"))?;
        Ok(Typed::new(self.planner.answer(Test::Array, Arc::new(query)), of))
    }

    /// The columns of a query's one row, each as a value.
    pub(crate) fn row(&mut self, ast: &ast::Query) -> Result<Vec<Typed>> {
        let query = Arc::new(self.query(ast)?);
        let column = |(at, column): (usize, &OutputColumn)| {
            Typed::new(self.planner.answer(Test::Scalar(at), Arc::clone(&query)), column.of)
        };
        Ok(query.columns.iter().enumerate().map(column).collect())
    }

    /// `EXISTS (SELECT ..)`
    pub(super) fn exists(&mut self, ast: &ast::Query, negated: bool) -> Result<Typed> {
        let failure = self.planner.parameters.failure.clone();
        // What it joins may yet be joined otherwise.
        let is_in_from = std::mem::replace(&mut self.planner.is_in_from, true);
        let query = self.query(ast);
        self.planner.is_in_from = is_in_from;
        let mut query = query?;
        // What would be selected is never computed, and in which order never asked.
        if let Body::Select(select) = &mut query.body
            && select.distinct.is_none()
            && select.sets.is_empty()
        {
            self.planner.parameters.failure = failure;
            select.outputs.clear();
            query.columns.clear();
            query.order.clear();
            query.presorted = None;
        }
        let hashed = self.planner.hashed(&query).map(Arc::new);
        if let Body::Select(select) = &mut query.body {
            select.joins = None;
        }
        let mut answer = self.planner.answer(Test::Exists, Arc::new(query));
        if let Expr::Subquery(subquery) = &mut answer {
            subquery.hashed = hashed;
        }
        Ok(Typed::new(not_if(negated, answer), Type::Bool))
    }

    /// `.. IN (SELECT ..)`
    pub(super) fn in_query(&mut self, left: &ast::Expr, ast: &ast::Query, negated: bool) -> Result<Typed> {
        let (left, query) = self.compared(left, "=", ast)?;
        let answer = self.planner.answer(Test::Any(Comparison::Equal, left), Arc::new(query));
        Ok(Typed::new(not_if(negated, answer), Type::Bool))
    }

    /// `.. = ANY (SELECT ..)`, and the other comparisons; `ALL` with `all`.
    pub(super) fn any_or_all(
        &mut self,
        left: &ast::Expr,
        operator: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        let mut right = right;
        while let ast::Expr::Nested(inner) = right {
            right = inner;
        }
        let (ast::Expr::Subquery(ast), Some(comparison)) = (right, comparison_of(operator)) else {
            return self.with_elements(left, operator, right, all);
        };
        let (left, query) = self.compared(left, &operator.to_string(), ast)?;
        if left.len() > 1 && !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            return Err(SqlError::unsupported("a comparison of rows by order with a subquery"));
        }
        let test = if all { Test::All(comparison, left) } else { Test::Any(comparison, left) };
        Ok(Typed::new(self.planner.answer(test, Arc::new(query)), Type::Bool))
    }

    /// Values that are compared with a query's columns, and the query, in common types.
    fn compared(&mut self, left: &ast::Expr, operator: &str, ast: &ast::Query) -> Result<(Vec<Expr>, Query)> {
        let left = match left {
            ast::Expr::Tuple(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        let typed = left.iter().map(|value| self.expr(value)).collect::<Result<Vec<_>>>()?;
        let mut query = self.query(ast)?;
        if query.columns.len() != typed.len() {
            let few = if query.columns.len() < typed.len() { "too few" } else { "too many" };
            return Err(SqlError::new(state::SYNTAX_ERROR, format!("subquery has {few} columns")));
        }
        let (mut values, mut types) = (Vec::new(), Vec::new());
        for (typed, column) in typed.into_iter().zip(&query.columns) {
            let of = comparison_type(typed.of, column.of).ok_or_else(|| {
                no_operator(&format!("{} {operator} {}", self.named(typed.of), self.named(column.of)))
            })?;
            values.push(self.implicit(typed, of)?);
            types.push(of);
        }
        self.planner.coerce(&mut query, &types)?;
        Ok((values, query))
    }

    fn query(&mut self, ast: &ast::Query) -> Result<Query> {
        if let Some(place) = self.closed {
            return Err(SqlError::unsupported(format_args!("a subquery in {place}")));
        }
        let failure = self.planner.parameters.failure.clone();
        let query = self.planner.query(ast, self.scope)?;
        if self.branches > 0 {
            // It fails when it is asked, if it is.
            self.planner.parameters.failure = failure;
        }
        Ok(query)
    }
}

impl Planner<'_> {
    /// What a query in an expression comes to.
    pub(crate) fn answer(&mut self, test: Test, query: Arc<Query>) -> Expr {
        let arguments = query.arguments();
        let is_fixed = arguments.is_empty() && !query.varies();
        Expr::Subquery(Box::new(Subquery { test, query, arguments, id: self.number(), is_fixed, hashed: None }))
    }
}
