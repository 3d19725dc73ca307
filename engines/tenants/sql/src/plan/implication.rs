//! Whether conditions imply the predicate of an index, so that all rows that fulfil them have entries there.

use std::{cmp::Ordering, mem::discriminant};

use savanna_tenants_values::value::Value;

use crate::expression::{Comparison, Expr};

/// Whether rows that fulfil all conditions fulfil a predicate, whose columns begin at `base` there. It may say no where it is so.
pub(crate) fn follows(predicate: &Expr, base: usize, conditions: &[Expr]) -> bool {
    let mut predicate = predicate.clone();
    shift(&mut predicate, base);
    let mut parts = Vec::new();
    predicate.conjuncts(&mut parts);
    parts.iter().all(|part| conditions.iter().any(|condition| implies(condition, part)))
}

/// Moves an expression over a table's row to where its columns begin.
pub fn shift(expr: &mut Expr, base: usize) {
    if let Expr::Column(at) = expr {
        *at += base;
    }
    _ = expr.children_mut(&mut |child| {
        shift(child, base);
        Ok(())
    });
}

fn implies(condition: &Expr, part: &Expr) -> bool {
    if condition == part {
        return true;
    }
    match part {
        Expr::Not(inner) => match &**inner {
            // A comparison is not true for NULL.
            Expr::IsNull(value) => match condition {
                Expr::Compare(_, a, b) => a == value || b == value,
                _ => false,
            },
            _ => false,
        },
        Expr::Or(a, b) => implies(condition, a) || implies(condition, b),
        part => match (bound(condition), bound(part)) {
            (Some((column, comparison, value)), Some((other, wanted, limit))) if column == other => {
                let comparable = !limit.is_null() && discriminant(value) == discriminant(limit);
                comparable && within(comparison, value.compare(limit), wanted)
            }
            _ => false,
        },
    }
}

/// A column that is compared with a constant.
fn bound(expr: &Expr) -> Option<(usize, Comparison, &Value)> {
    match expr {
        Expr::Compare(comparison, a, b) => match (&**a, &**b) {
            (Expr::Column(column), Expr::Constant(value)) => Some((*column, *comparison, value)),
            (Expr::Constant(value), Expr::Column(column)) => Some((*column, comparison.turned(), value)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether whatever compares so with a value compares as wanted with a limit, if the value is there in that order to the limit.
fn within(comparison: Comparison, value_to_limit: Ordering, wanted: Comparison) -> bool {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    match (comparison, wanted) {
        (Equal, wanted) => wanted.holds(value_to_limit),
        (Greater, Greater | GreaterOrEqual | NotEqual) => value_to_limit.is_ge(),
        (GreaterOrEqual, GreaterOrEqual) => value_to_limit.is_ge(),
        (GreaterOrEqual, Greater | NotEqual) => value_to_limit.is_gt(),
        (Less, Less | LessOrEqual | NotEqual) => value_to_limit.is_le(),
        (LessOrEqual, LessOrEqual) => value_to_limit.is_le(),
        (LessOrEqual, Less | NotEqual) => value_to_limit.is_lt(),
        (NotEqual, NotEqual) => value_to_limit.is_eq(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPARISONS: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    fn compare(comparison: Comparison, value: i64) -> Expr {
        Expr::Compare(comparison, Box::new(Expr::Column(3)), Box::new(Expr::Constant(Value::Int(value))))
    }

    #[test]
    fn what_follows_holds_wherever_the_condition_does() {
        let mut found = 0;
        for (comparison, wanted) in COMPARISONS.into_iter().flat_map(|a| COMPARISONS.into_iter().map(move |b| (a, b))) {
            for (value, limit) in (0..5).flat_map(|a| (0..5).map(move |b| (a, b))) {
                if implies(&compare(comparison, value), &compare(wanted, limit)) {
                    found += 1;
                    let wrong = (-2..8_i64).find(|x| comparison.holds(x.cmp(&value)) && !wanted.holds(x.cmp(&limit)));
                    assert_eq!(wrong, None, "x {comparison:?} {value} does not imply x {wanted:?} {limit}");
                }
            }
        }
        assert!(found > 150, "{found}");
    }

    #[test]
    fn parts_follow_one_by_one() {
        let not_null = Expr::Not(Box::new(Expr::IsNull(Box::new(Expr::Column(0)))));
        let mut shifted = compare(Comparison::Greater, 5);
        shift(&mut shifted, 0);
        let predicate = Expr::And(Box::new(not_null), Box::new(Expr::Column(1)));
        assert!(follows(&predicate, 3, &[shifted.clone(), Expr::Column(4)]));
        assert!(!follows(&predicate, 3, &[shifted, Expr::Column(5)]));
        assert!(!follows(&predicate, 3, &[Expr::Column(4)]));
    }
}
