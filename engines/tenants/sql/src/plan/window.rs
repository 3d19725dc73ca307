//! Plans of window functions.

use savanna_tenants_values::types::Type;

use crate::expression::{
    Expr,
    aggregate::{Aggregate, SortExpr},
};

/// A window function with its window.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct WindowCall {
    pub function: WindowFunction,
    pub arguments: Vec<Expr>,
    pub partition: Vec<Expr>,
    pub order: Vec<SortExpr>,
    /// The type of the first value that rows are sorted by.
    pub range: Type,
    pub frame: Frame,
    pub(crate) of: Type,
}

/// What is computed over a window.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
    Aggregate(Aggregate),
}

/// The rows that a window function sees from one of them.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub units: Units,
    pub start: Bound,
    pub end: Bound,
    pub exclusion: Exclusion,
}

/// Rows of a frame that are left out.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclusion {
    #[default]
    Nothing,
    /// The row itself.
    Row,
    /// It and its peers.
    Group,
    /// Its peers.
    Ties,
}

/// What a frame is counted in: rows, groups of rows that are equal by the order, or distances between values that rows are sorted by.
/// Without distances `RANGE` is as `GROUPS`.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    Rows,
    Range,
    Groups,
}

/// Where a frame begins or ends.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    First,
    Preceding(Expr),
    Current,
    Following(Expr),
    Last,
}

impl Frame {
    /// Whether it reaches over distances between values.
    pub fn is_distance(&self) -> bool {
        let offset = |bound: &Bound| matches!(bound, Bound::Preceding(_) | Bound::Following(_));
        self.units == Units::Range && (offset(&self.start) || offset(&self.end))
    }
}

impl WindowCall {
    /// Its expressions.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let aggregate = match &self.function {
            WindowFunction::Aggregate(aggregate) => Some(aggregate),
            _ => None,
        };
        let bounds = [&self.frame.start, &self.frame.end].into_iter().filter_map(|bound| match bound {
            Bound::Preceding(expr) | Bound::Following(expr) => Some(expr),
            _ => None,
        });
        let order = self.order.iter().map(|order| &order.expr);
        let aggregate = aggregate.into_iter().flat_map(Aggregate::expressions);
        self.arguments.iter().chain(&self.partition).chain(order).chain(bounds).chain(aggregate)
    }

    /// Its expressions, to be changed.
    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let aggregate = match &mut self.function {
            WindowFunction::Aggregate(aggregate) => Some(aggregate),
            _ => None,
        };
        let bounds = [&mut self.frame.start, &mut self.frame.end].into_iter().filter_map(|bound| match bound {
            Bound::Preceding(expr) | Bound::Following(expr) => Some(expr),
            _ => None,
        });
        let order = self.order.iter_mut().map(|order| &mut order.expr);
        let aggregate = aggregate.into_iter().flat_map(Aggregate::expressions_mut);
        self.arguments.iter_mut().chain(&mut self.partition).chain(order).chain(bounds).chain(aggregate)
    }
}
