//! Bounds of time in the condition of a join, however they are written:
//! `l.t BETWEEN r.t - INTERVAL '5' SECOND AND r.t`, `r.t >= l.t AND r.t < l.t + INTERVAL '5' SECOND`, `l.t = r.t`, ..
//!
//! Each side of a comparison is a sum of event times and constants. Moved to one side they are `left - right + constant`, or
//! the comparison is no bound.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

use super::expression::literal_micros;

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// An event time: of which side, and how much later (in microseconds) than the column the time is that the join counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) side: Side,
    pub(super) lag: i64,
}

/// The least and the most of left time - right time, in microseconds, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) earliest: Option<i64>,
    pub(super) latest: Option<i64>,
}

impl Bounds {
    /// Takes a condition as a bound; tells whether it is nothing else. `time` knows event times.
    pub(super) fn narrow(&mut self, condition: &Expr, schema: &DFSchema, time: &dyn Fn(&Expr) -> Option<Time>) -> bool {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
            return false;
        };
        let sum = |e: &Expr| Sum::of(e, schema, time);
        let Some(difference) = sum(left).zip(sum(right)).and_then(|(left, right)| left.minus(right)) else {
            return false;
        };
        let (op, constant) = match (difference.left, difference.right) {
            (1, -1) => (Some(*op), Some(difference.constant)),
            (-1, 1) => (op.swap(), difference.constant.checked_neg()),
            _ => return false,
        };
        // left - right + constant op 0
        let Some(bound) = constant.and_then(i64::checked_neg) else {
            return false;
        };
        // Rounded times may be as far apart as a bound that is not included.
        let strict = i64::from(!difference.rounded);
        let (earliest, latest) = match op {
            Some(Operator::Eq) => (Some(bound), Some(bound)),
            Some(Operator::GtEq) => (Some(bound), None),
            Some(Operator::Gt) => (bound.checked_add(strict), None),
            Some(Operator::LtEq) => (None, Some(bound)),
            Some(Operator::Lt) => (None, bound.checked_sub(strict)),
            _ => return false,
        };
        self.earliest = self.earliest.max(earliest);
        self.latest = [self.latest, latest].into_iter().flatten().min();
        !difference.rounded
    }
}

/// `left * left time + right * right time + constant`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    left: i8,
    right: i8,
    /// In microseconds.
    constant: i64,
    /// Some time is finer than a microsecond.
    rounded: bool,
}

impl Sum {
    fn of(expr: &Expr, schema: &DFSchema, time: &dyn Fn(&Expr) -> Option<Time>) -> Option<Self> {
        if let Some(Time { side, lag }) = time(expr) {
            let rounded = matches!(expr.get_type(schema), Ok(DataType::Timestamp(TimeUnit::Nanosecond, _)));
            let (left, right) = if side == Side::Left { (1, 0) } else { (0, 1) };
            return Some(Self { left, right, constant: lag.checked_neg()?, rounded });
        }
        match expr {
            Expr::Literal(value, _) => Some(Self { constant: length(value)?, ..Self::default() }),
            Expr::Cast(Cast { expr: inner, .. }) if widens(inner, expr, schema) => Self::of(inner, schema, time),
            Expr::Negative(inner) => Self::default().minus(Self::of(inner, schema, time)?),
            Expr::Alias(alias) => Self::of(&alias.expr, schema, time),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
                let negated = Self::default().minus(Self::of(right, schema, time)?)?;
                Self::of(left, schema, time)?.minus(negated)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
                Self::of(left, schema, time)?.minus(Self::of(right, schema, time)?)
            }
            _ => None,
        }
    }

    fn minus(self, other: Self) -> Option<Self> {
        Some(Self {
            left: self.left.checked_sub(other.left)?,
            right: self.right.checked_sub(other.right)?,
            constant: self.constant.checked_sub(other.constant)?,
            rounded: self.rounded || other.rounded,
        })
    }
}

/// Whether a cast keeps every instant, or every length.
fn widens(from: &Expr, to: &Expr, schema: &DFSchema) -> bool {
    match (from.get_type(schema), to.get_type(schema)) {
        (Ok(DataType::Timestamp(from, _)), Ok(DataType::Timestamp(to, _))) => to >= from,
        (Ok(DataType::Duration(_) | DataType::Interval(_)), Ok(DataType::Duration(_) | DataType::Interval(_))) => true,
        _ => false,
    }
}

/// A constant length in microseconds.
fn length(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::DurationSecond(Some(n)) => n.checked_mul(1_000_000),
        ScalarValue::DurationMillisecond(Some(n)) => n.checked_mul(1_000),
        ScalarValue::DurationMicrosecond(Some(n)) => Some(*n),
        ScalarValue::DurationNanosecond(Some(n)) if n % 1_000 == 0 => Some(n / 1_000),
        other => literal_micros(other),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::common::TableReference;
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn schema() -> DFSchema {
        let time = |name: &str| Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, None), true);
        let schema = Schema::new(vec![time("l"), time("r"), time("other")]);
        DFSchema::try_from_qualified_schema(TableReference::bare("t"), &schema).unwrap()
    }

    fn seconds(n: i64) -> Expr {
        lit(ScalarValue::new_interval_mdn(0, 0, n * 1_000_000_000))
    }

    fn bounds(conditions: &[Expr]) -> Bounds {
        let time = |e: &Expr| match e {
            Expr::Column(c) if c.name == "l" => Some(Time { side: Side::Left, lag: 0 }),
            Expr::Column(c) if c.name == "r" => Some(Time { side: Side::Right, lag: 0 }),
            _ => None,
        };
        let mut bounds = Bounds::default();
        for condition in conditions {
            bounds.narrow(condition, &schema(), &time);
        }
        bounds
    }

    fn between(earliest: i64, latest: i64) -> Bounds {
        Bounds { earliest: Some(earliest), latest: Some(latest) }
    }

    #[test]
    fn the_usual_spellings_are_bounds() {
        let (l, r) = (|| col("t.l"), || col("t.r"));
        let expected = between(-5 * SECOND, 2 * SECOND);
        let spellings = [
            [l().gt_eq(r() - seconds(5)), l().lt_eq(r() + seconds(2))],
            [r().lt_eq(l() + seconds(5)), r().gt_eq(l() - seconds(2))],
            [(l() + seconds(5)).gt_eq(r()), (l() - seconds(2)).lt_eq(r())],
            [(l() - r()).gt_eq(seconds(-5)), (r() - l()).gt_eq(-seconds(2))],
            [l().gt_eq(seconds(-5) + r()), lit(ScalarValue::DurationSecond(Some(2))).gt_eq(l() - r())],
        ];
        for spelling in spellings {
            assert_eq!(bounds(&spelling), expected, "{spelling:?}");
        }
    }

    #[test]
    fn strict_comparisons_leave_the_bound_out() {
        let (l, r) = (|| col("t.l"), || col("t.r"));
        assert_eq!(bounds(&[l().gt(r()), l().lt(r() + seconds(1))]), between(1, SECOND - 1));
        assert_eq!(bounds(&[r().lt(l()), r().gt(l() - seconds(1))]), between(1, SECOND - 1));
        assert_eq!(bounds(&[l().eq(r())]), between(0, 0));
    }

    #[test]
    fn the_narrowest_bounds_count() {
        let (l, r) = (|| col("t.l"), || col("t.r"));
        let conditions =
            [l().gt_eq(r() - seconds(5)), l().gt_eq(r() - seconds(3)), l().lt_eq(r()), l().lt_eq(r() + seconds(1))];
        assert_eq!(bounds(&conditions), between(-3 * SECOND, 0));
    }

    #[test]
    fn casts_to_finer_timestamps_are_seen_through_and_others_are_not() {
        let (l, r) = (|| col("t.l"), || col("t.r"));
        let to = |unit, e| cast(e, DataType::Timestamp(unit, None));
        assert_eq!(bounds(&[to(TimeUnit::Nanosecond, l()).eq(to(TimeUnit::Nanosecond, r()))]), between(0, 0));
        assert_eq!(bounds(&[to(TimeUnit::Second, l()).eq(to(TimeUnit::Second, r()))]), Bounds::default());
    }

    #[test]
    fn what_is_no_distance_of_the_two_times_is_no_bound() {
        let (l, r) = (|| col("t.l"), || col("t.r"));
        let months = lit(ScalarValue::new_interval_mdn(1, 0, 0));
        for condition in [
            l().gt(col("t.other")),
            l().gt_eq(l() - seconds(5)),
            l().gt_eq(r() - months),
            l().not_eq(r()),
            (l() - r()).gt(r() - l()),
        ] {
            assert_eq!(bounds(std::slice::from_ref(&condition)), Bounds::default(), "{condition}");
        }
    }
}
