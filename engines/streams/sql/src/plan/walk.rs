//! Walks over the syntax tree.
//!
//! A visitor of sqlparser's compiles the way through some five hundred types of node anew, tens of thousands of functions. All
//! walks share the two visitors here.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use savanna_streams_api::{Result, StreamError};

/// A node that is met, before its parts if nothing else is said.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    Query(&'a Query),
    Select(&'a Select),
    Factor(&'a TableFactor),
    Relation(&'a ObjectName),
    Expr(&'a Expr),
    /// After its parts.
    LeftQuery(&'a Query),
    /// After its parts.
    LeftExpr,
}

/// A node that may be changed.
pub(crate) enum NodeMut<'a> {
    /// Before its parts.
    Select(&'a mut Select),
    /// Before its parts.
    Expr(&'a mut Expr),
    /// After its parts.
    WholeExpr(&'a mut Expr),
}

/// The first answer to a question that each node is asked.
pub(crate) fn find<T>(tree: &impl Visit, mut ask: impl FnMut(Node<'_>) -> Option<T>) -> Option<T> {
    let mut answer = None;
    let mut ask = |node: Node<'_>| {
        answer = ask(node);
        if answer.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let _ = tree.visit(&mut Reader(&mut ask));
    answer
}

/// Hands each node over to be changed, until one cannot.
pub(crate) fn change(tree: &mut impl VisitMut, change: &mut dyn FnMut(NodeMut<'_>) -> Result<()>) -> Result<()> {
    match tree.visit(&mut Writer(change)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Reader<'f>(&'f mut dyn FnMut(Node<'_>) -> ControlFlow<()>);

impl Visitor for Reader<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0(Node::Query(query))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.0(Node::Select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.0(Node::Factor(factor))
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.0(Node::Relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0(Node::Expr(expr))
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0(Node::LeftQuery(query))
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0(Node::LeftExpr)
    }
}

struct Writer<'f>(&'f mut dyn FnMut(NodeMut<'_>) -> Result<()>);

impl Writer<'_> {
    fn hand_over(&mut self, node: NodeMut<'_>) -> ControlFlow<StreamError> {
        match self.0(node) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl VisitorMut for Writer<'_> {
    type Break = StreamError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<StreamError> {
        self.hand_over(NodeMut::Select(select))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<StreamError> {
        self.hand_over(NodeMut::Expr(expr))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<StreamError> {
        self.hand_over(NodeMut::WholeExpr(expr))
    }
}
