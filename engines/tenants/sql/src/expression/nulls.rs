//! What NULL does to conditions.

use std::ops::Range;

use crate::expression::Expr;

impl Expr {
    /// Whether the condition does not hold, for sure, where these columns are all NULL.
    pub(crate) fn rejects_null(&self, columns: &Range<usize>) -> bool {
        match self {
            Self::Column(_) => self.is_null_with(columns),
            Self::Compare(_, a, b) | Self::Like { text: a, pattern: b, .. } => {
                a.is_null_with(columns) || b.is_null_with(columns)
            }
            Self::In(value, _) => value.is_null_with(columns),
            Self::And(a, b) => a.rejects_null(columns) || b.rejects_null(columns),
            Self::Or(a, b) => a.rejects_null(columns) && b.rejects_null(columns),
            Self::Not(inner) => match &**inner {
                Self::IsNull(value) => value.is_null_with(columns),
                // These are NULL then, and so is the opposite.
                Self::Column(_) | Self::Compare(..) | Self::Like { .. } | Self::In(..) => inner.rejects_null(columns),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether it is NULL, for sure, where these columns are.
    fn is_null_with(&self, columns: &Range<usize>) -> bool {
        match self {
            Self::Column(at) => columns.contains(at),
            Self::Cast { value, .. } | Self::Negate(value, _) => value.is_null_with(columns),
            Self::Arithmetic(_, _, a, b) | Self::Concat(a, b) => a.is_null_with(columns) || b.is_null_with(columns),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_tenants_values::{types::Type, value::Value};

    use super::*;
    use crate::expression::{Comparison, Operator, list::List};

    #[test]
    fn what_compares_a_column_rejects_null() {
        let column = |at| Box::new(Expr::Column(at));
        let one = || Box::new(Expr::Constant(Value::Int(1)));
        let compare = |a, b| Expr::Compare(Comparison::Less, a, b);
        let not = |inner| Expr::Not(Box::new(inner));
        let and = |a, b| Expr::And(Box::new(a), Box::new(b));
        let or = |a, b| Expr::Or(Box::new(a), Box::new(b));
        let sum = |at| Box::new(Expr::Arithmetic(Operator::Add, Type::Int8, one(), column(at)));
        let null = |at| Expr::IsNull(column(at));
        let list = |at| List::new(vec![Expr::Column(at)]);
        for condition in [
            Expr::Column(3),
            compare(column(3), one()),
            compare(one(), sum(4)),
            not(compare(column(3), one())),
            not(null(3)),
            Expr::In(column(4), list(9)),
            not(Expr::In(column(4), list(9))),
            and(compare(column(9), one()), compare(column(3), one())),
            or(not(null(3)), compare(column(4), one())),
        ] {
            assert!(condition.rejects_null(&(3..5)), "{condition:?}");
        }
        for condition in [
            compare(column(2), one()),
            compare(column(5), sum(2)),
            null(3),
            not(null(9)),
            not(not(null(3))),
            not(and(not(null(3)), compare(column(4), one()))),
            or(compare(column(9), one()), compare(column(3), one())),
            Expr::In(column(9), list(3)),
            Expr::IsDistinct(column(3), one()),
            compare(Box::new(Expr::Coalesce(vec![Expr::Column(3), *one()])), one()),
        ] {
            assert!(!condition.rejects_null(&(3..5)), "{condition:?}");
        }
    }
}
