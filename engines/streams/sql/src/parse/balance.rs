//! Long chains of `AND` and `OR` as trees.
//!
//! The grammar reads `a OR b OR c OR d` as `((a OR b) OR c) OR d`, as deep as it is long, and whoever looks at the type of each
//! part looks at all that is below. Both operators mean the same in any grouping, so `(a OR b) OR (c OR d)` does, too.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitMut};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::plan::walk::{self, NodeMut};

/// Regroups all chains of a syntax tree.
pub(super) fn balance(tree: &mut impl VisitMut) {
    let regrouped = walk::change(tree, &mut |node| {
        if let NodeMut::Expr(expr) = node {
            regroup(expr);
        }
        Ok(())
    });
    debug_assert!(regrouped.is_ok(), "it refuses nothing");
}

/// Shorter chains stay as they are; so do the trees that come out.
const LONG: usize = 32;

fn regroup(expr: &mut Expr) {
    let Some(operator) = chain_operator(expr) else { return };
    if length(expr, &operator) < LONG {
        return;
    }
    let nothing = || Expr::Value(Value::Null.with_span(Span::empty()));
    let mut rest = std::mem::replace(expr, nothing());
    let mut operands = Vec::new();
    // From the last operand to the first.
    loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == operator => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    operands.reverse();
    *expr = tree_of(operands, &operator);
}

/// How many operators are in each other to the left.
fn length(mut expr: &Expr, operator: &BinaryOperator) -> usize {
    let mut count = 0;
    while let Expr::BinaryOp { left, op, .. } = expr
        && op == operator
    {
        (expr, count) = (left, count + 1);
    }
    count
}

fn chain_operator(expr: &Expr) -> Option<BinaryOperator> {
    match expr {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => Some(op.clone()),
        _ => None,
    }
}

/// Pairs of neighbours, pairs of pairs, ..
fn tree_of(mut operands: Vec<Expr>, operator: &BinaryOperator) -> Expr {
    while operands.len() > 1 {
        let mut pairs = Vec::with_capacity(operands.len().div_ceil(2));
        let mut rest = operands.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                None => left,
                Some(right) => Expr::BinaryOp { left: Box::new(left), op: operator.clone(), right: Box::new(right) },
            });
        }
        operands = pairs;
    }
    operands.pop().unwrap_or_else(|| Expr::Value(Value::Null.with_span(Span::empty())))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn balanced(sql: &str) -> Expr {
        let mut expr = Parser::new(&GenericDialect).try_with_sql(sql).unwrap().parse_expr().unwrap();
        balance(&mut expr);
        expr
    }

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 0,
        }
    }

    #[test]
    fn a_chain_keeps_its_operands_in_order_and_loses_its_depth() {
        for operator in ["OR", "AND"] {
            let sql = (0..1000).map(|n| format!("a{n}")).collect::<Vec<_>>().join(&format!(" {operator} "));
            let expr = balanced(&sql);
            assert_eq!(expr.to_string(), sql);
            assert_eq!(depth(&expr), 10);
        }
    }

    #[test]
    fn operators_bind_as_before() {
        for part in ["a AND b", "(a OR b)", "a = b", "NOT a"] {
            let sql = vec![part; 100].join(" OR ");
            let expr = balanced(&sql);
            assert_eq!(expr.to_string(), sql);
            let Expr::BinaryOp { op, .. } = expr else { panic!() };
            assert_eq!(op, BinaryOperator::Or);
        }
    }
}
