//! How large a plan may be once its views and common table expressions stand in it.
//!
//! Each of them is written out where it is named: thirty views that name the one before twice make a plan of 2^30 tables. So
//! are their columns in each other: thirty views that compute `a || a` make an expression of 2^30 parts. Both are counted
//! before anything is written out.

use std::cell::Cell;
use std::rc::Rc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use savanna_streams_api::StreamError;

use super::context::external;
use crate::parse::DEPTH_MAX;

/// Tables, joins, projections, .. of a plan. The time to plan it grows with the square.
pub(crate) const NODES_MAX: usize = 500;
/// Operators, columns and constants of a plan node's expressions, written over the columns of tables.
const PARTS_MAX: usize = 50_000;
/// Operators in each other, likewise.
const WRITTEN_DEPTH_MAX: usize = 2 * DEPTH_MAX;

/// Tables and views that a query names, those of its views included: all of them share one counter.
#[derive(Clone, Default)]
pub(super) struct Mentions(Rc<Cell<usize>>);

impl Mentions {
    /// Counts one more.
    ///
    /// # Errors
    /// [`StreamError::TooComplex`].
    pub(super) fn one_more(&self) -> Result<()> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > NODES_MAX { Err(external(too_many_nodes())) } else { Ok(()) }
    }
}

/// Gives the plan back if it is not too large.
///
/// # Errors
/// [`StreamError::TooComplex`].
pub(super) fn check(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut open = vec![&plan];
    let mut count = 0;
    while let Some(node) = open.pop() {
        count += 1;
        if count > NODES_MAX {
            return Err(external(too_many_nodes()));
        }
        open.extend(node.inputs());
    }
    columns(&plan)?;
    Ok(plan)
}

/// The refusal of a statement that has too many.
pub(crate) fn too_many_nodes() -> StreamError {
    StreamError::TooComplex {
        message: format!(
            "the statement has more than {NODES_MAX} tables, joins and subqueries (those of views and of WITH count each \
             time they are named); write parts of it into tables with INSERT INTO"
        ),
    }
}

/// How large an expression is once the columns below stand in it.
#[derive(Clone, Copy)]
struct Size {
    parts: usize,
    depth: usize,
}

impl Size {
    const COLUMN: Self = Self { parts: 1, depth: 0 };

    fn larger(self, other: Self) -> Self {
        Self { parts: self.parts.max(other.parts), depth: self.depth.max(other.depth) }
    }
}

/// The sizes of a node's columns.
fn columns(node: &LogicalPlan) -> Result<Vec<Size>> {
    let inputs = node.inputs();
    let sizes = inputs.iter().map(|input| columns(input)).collect::<Result<Vec<_>>>()?;
    let below = |column: &Column| {
        let place = |(input, sizes): (&&LogicalPlan, &Vec<Size>)| {
            sizes.get(input.schema().maybe_index_of_column(column)?).copied()
        };
        inputs.iter().zip(&sizes).find_map(place).unwrap_or(Size::COLUMN)
    };
    let exprs = node.expressions();
    let computed = exprs.iter().map(|expr| written_out(expr, &below)).collect::<Result<Vec<_>>>()?;
    let all = computed.iter().fold(0_usize, |all, size| all.saturating_add(size.parts));
    if all > PARTS_MAX || computed.iter().any(|size| size.depth > WRITTEN_DEPTH_MAX) {
        return Err(external(StreamError::TooComplex {
            message: format!(
                "expressions over columns of views have more than {PARTS_MAX} parts, or {WRITTEN_DEPTH_MAX} nested operators, \
                 once the views are expanded; write parts of them into tables with INSERT INTO"
            ),
        }));
    }
    node.apply_subqueries(|subquery| columns(subquery).map(|_| TreeNodeRecursion::Jump))?;
    let mut out = match node {
        LogicalPlan::Projection(_) => computed,
        LogicalPlan::Aggregate(aggregate) => computed.into_iter().take(aggregate.group_expr.len()).collect(),
        LogicalPlan::Union(_) => {
            let larger = |a: Vec<Size>, b: Vec<Size>| a.into_iter().zip(b).map(|(a, b)| a.larger(b)).collect();
            sizes.into_iter().reduce(larger).unwrap_or_default()
        }
        _ => sizes.concat(),
    };
    out.resize(node.schema().fields().len(), Size::COLUMN);
    Ok(out)
}

fn written_out(expr: &Expr, below: &impl Fn(&Column) -> Size) -> Result<Size> {
    let mut size = match expr {
        Expr::Column(column) => return Ok(below(column)),
        Expr::Alias(alias) => return written_out(&alias.expr, below),
        _ => Size::COLUMN,
    };
    expr.apply_children(|child| {
        let child = written_out(child, below)?;
        size.parts = size.parts.saturating_add(child.parts);
        size.depth = size.depth.max(child.depth.saturating_add(1));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(size)
}
