//! The first rows of each window, chosen early.
//!
//! `ROW_NUMBER() .. <= n` needs, of any part of a window's rows, only the first `n`: a row behind them has as many before it in the whole
//! window. So a leaf that a ranking reads is cut to them where its rows are read, and again while the window is open.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, TableScan, Window as Over, lit,
};
use savanna_streams_api::Result;

use super::chain::{BASE, broken};
use super::refuse::RANKING;

/// Which rows of a leaf are needed.
pub(super) struct FirstRows {
    /// The number of a row, over the leaf's columns.
    place: Expr,
    /// The last number that is needed.
    last: u64,
}

/// What the rows' numbers are called.
const PLACE: &str = "PLACE()";

impl FirstRows {
    /// What a plan needs of a leaf that it reads once, if it is a ranking's first rows.
    pub(super) fn of(plan: &LogicalPlan, is_leaf: &dyn Fn(&TableScan) -> bool) -> Option<Self> {
        if let LogicalPlan::Filter(filter) = plan {
            let bounds = split_conjunction(&filter.predicate).into_iter().filter_map(upper_bound);
            let found = bounds.filter_map(|(place, last)| Some((ranking(place, &filter.input, is_leaf)?, last))).next();
            if let Some((place, last)) = found {
                return Some(Self { place, last });
            }
        }
        plan.inputs().into_iter().find_map(|input| Self::of(input, is_leaf))
    }

    /// The plan that keeps them, of rows of the leaf as a table gives them.
    pub(super) fn plan(&self, rows: Arc<dyn datafusion::catalog::TableProvider>) -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::scan(BASE, provider_as_source(rows), None).and_then(LogicalPlanBuilder::build);
        let rows = rows.map_err(broken)?;
        let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
        let numbered = Over::try_new(vec![self.place.clone().alias(PLACE)], Arc::new(rows)).map_err(broken)?;
        let needed = Expr::Column(Column::new_unqualified(PLACE)).lt_eq(lit(self.last));
        let plan = LogicalPlanBuilder::from(LogicalPlan::Window(numbered)).filter(needed);
        plan.and_then(|plan| plan.project(columns)?.build()).map_err(broken)
    }
}

/// `column <= n`, however it is written.
fn upper_bound(condition: &Expr) -> Option<(&Expr, u64)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return None;
    };
    let (column, op, literal) = match (left.as_ref(), right.as_ref()) {
        (column, Expr::Literal(value, _)) => (column, *op, value),
        (Expr::Literal(value, _), column) => (column, op.swap()?, value),
        _ => return None,
    };
    // A fraction would be cut off, and `n < 2.5` keep too little.
    let whole = Some(literal).filter(|literal| literal.data_type().is_integer());
    let Some(Ok(ScalarValue::UInt64(Some(number)))) = whole.map(|literal| literal.cast_to(&DataType::UInt64)) else {
        return None;
    };
    match op {
        Operator::LtEq | Operator::Eq => Some((column, number)),
        Operator::Lt => Some((column, number.saturating_sub(1))),
        _ => None,
    }
}

/// The ranking that a column of a plan is, over the columns of the only leaf below it.
fn ranking(column: &Expr, plan: &LogicalPlan, is_leaf: &dyn Fn(&TableScan) -> bool) -> Option<Expr> {
    let column = match column {
        Expr::Cast(cast) => cast.expr.as_ref(),
        column => column,
    };
    let LogicalPlan::Window(over) = plan else {
        return ranking(&below(column, plan)?, plan.inputs().first()?, is_leaf);
    };
    let (Expr::Column(column), [function]) = (column, over.window_expr.as_slice()) else {
        return None;
    };
    if over.schema.maybe_index_of_column(column) != Some(over.input.schema().fields().len()) {
        return None;
    }
    let function = function.clone().unalias();
    let Expr::WindowFunction(ranks) = &function else {
        return None;
    };
    RANKING.contains(&ranks.fun.name()).then(|| over_leaf(function.clone(), &over.input, is_leaf)).flatten()
}

/// An expression over the columns of the leaf that a plan only renames and computes columns of.
fn over_leaf(expr: Expr, plan: &LogicalPlan, is_leaf: &dyn Fn(&TableScan) -> bool) -> Option<Expr> {
    match plan {
        LogicalPlan::TableScan(scan) => (is_leaf(scan) && scan.filters.is_empty()).then_some(expr),
        _ => over_leaf(below(&expr, plan)?, plan.inputs().first()?, is_leaf),
    }
}

/// An expression over the columns below a step that keeps all rows.
fn below(expr: &Expr, step: &LogicalPlan) -> Option<Expr> {
    let columns: Vec<Expr> = match step {
        LogicalPlan::Projection(projection) => projection.expr.iter().map(|e| e.clone().unalias()).collect(),
        LogicalPlan::SubqueryAlias(alias) => alias.input.schema().columns().into_iter().map(Expr::Column).collect(),
        _ => return None,
    };
    let schema: &DFSchema = step.schema();
    let replaced = expr.clone().transform(|e| {
        let Expr::Column(column) = &e else {
            return Ok(Transformed::no(e));
        };
        Ok(Transformed::new(
            columns[schema.index_of_column(column)?].clone(),
            true,
            datafusion::common::tree_node::TreeNodeRecursion::Jump,
        ))
    });
    replaced.ok().map(|replaced| replaced.data)
}
