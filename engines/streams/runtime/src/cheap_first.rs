//! Conditions in which a regular expression stands beside something cheap: it is asked only where that leaves the answer open.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr, lit,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// A condition for a filter, which takes NULL for false: `dear OR cheap` becomes
/// `CASE WHEN cheap THEN TRUE ELSE dear END`, `dear AND cheap` becomes `CASE WHEN cheap THEN dear ELSE FALSE END`.
/// A `CASE` asks its branches only for the rows that come to them. What may fail stays behind the regular expression that
/// may guard it: `REGEXP(s, '^[0-9]+$') AND CAST(s AS INT) > 5`.
pub(crate) fn cheap_first(condition: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let Some(both) = condition.downcast_ref::<BinaryExpr>() else {
        return Ok(condition);
    };
    let (cheap, dear) = match (is_dear(both.left()), is_dear(both.right())) {
        (true, false) if cannot_fail(both.right()) => (both.right(), both.left()),
        (false, true) => (both.left(), both.right()),
        _ => return Ok(condition),
    };
    let (cheap, dear) = (Arc::clone(cheap), cheap_first(Arc::clone(dear))?);
    let (then, otherwise) = match both.op() {
        Operator::Or => (lit(true), dear),
        Operator::And => (dear, lit(false)),
        _ => return Ok(condition),
    };
    Ok(Arc::new(CaseExpr::try_new(None, vec![(cheap, then)], Some(otherwise))?))
}

/// Whether a regular expression is matched somewhere in it.
fn is_dear(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| call.name().starts_with("regexp"))
        || expression.children().into_iter().any(is_dear)
}

/// Whether it has a value for every row.
fn cannot_fail(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let compares = |both: &BinaryExpr| {
        use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
        matches!(both.op(), And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
    };
    let changes_case = |call: &ScalarFunctionExpr| ["lower", "upper"].contains(&call.name());
    let itself = expression.is::<Column>()
        || expression.is::<Literal>()
        || expression.is::<InListExpr>()
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
        || expression.is::<NotExpr>()
        || expression.downcast_ref::<BinaryExpr>().is_some_and(compares)
        || expression.downcast_ref::<ScalarFunctionExpr>().is_some_and(changes_case);
    itself && expression.children().into_iter().all(cannot_fail)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
    use datafusion::config::ConfigOptions;
    use datafusion::functions::regex::regexp_like;
    use datafusion::physical_expr::expressions::{CastExpr, col};
    use proptest::prelude::*;

    use super::*;
    use crate::chain::evaluate_condition;

    const OPEN: Option<&str> = Some("(");

    fn rows(cheap: &[Option<bool>], texts: &[Option<&str>], patterns: &[Option<&str>]) -> RecordBatch {
        let columns: [(&str, ArrayRef, bool); 3] = [
            ("cheap", Arc::new(BooleanArray::from(cheap.to_vec())), true),
            ("text", Arc::new(StringArray::from(texts.to_vec())), true),
            ("pattern", Arc::new(StringArray::from(patterns.to_vec())), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    fn condition(
        rows: &RecordBatch,
        op: Operator,
        cheap: Arc<dyn PhysicalExpr>,
        dear_first: bool,
    ) -> Arc<dyn PhysicalExpr> {
        let schema = rows.schema();
        let arguments = vec![col("text", &schema).unwrap(), col("pattern", &schema).unwrap()];
        let dear: Arc<dyn PhysicalExpr> = Arc::new(
            ScalarFunctionExpr::try_new(regexp_like(), arguments, &schema, Arc::new(ConfigOptions::default())).unwrap(),
        );
        let (left, right) = if dear_first { (dear, cheap) } else { (cheap, dear) };
        Arc::new(BinaryExpr::new(left, op, right))
    }

    fn kept(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> BooleanArray {
        evaluate_condition(condition, rows).unwrap()
    }

    #[test]
    fn a_regular_expression_is_not_asked_where_the_cheap_side_decides() {
        let rows = rows(&[Some(true), Some(true)], &[Some("a"), Some("b")], &[OPEN, OPEN]);
        let cheap = col("cheap", &rows.schema()).unwrap();
        for dear_first in [true, false] {
            let asked = condition(&rows, Operator::And, Arc::clone(&cheap), dear_first);
            assert!(cheap_first(asked).unwrap().evaluate(&rows).is_err(), "the pattern is none");
            let left_out = condition(&rows, Operator::Or, Arc::clone(&cheap), dear_first);
            assert_eq!(kept(&cheap_first(left_out).unwrap(), &rows), BooleanArray::from(vec![true, true]));
        }
    }

    #[test]
    fn what_may_fail_stays_behind_its_guard() {
        let rows = rows(&[], &[], &[]);
        let number =
            Arc::new(CastExpr::new(col("text", &rows.schema()).unwrap(), arrow::datatypes::DataType::Int32, None));
        let fallible: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(number, Operator::Gt, lit(5)));
        let guarded = condition(&rows, Operator::And, fallible, true);
        assert!(Arc::ptr_eq(&guarded, &cheap_first(Arc::clone(&guarded)).unwrap()));
    }

    proptest! {
        #[test]
        fn a_filter_keeps_the_same_rows(
            values in prop::collection::vec(
                (prop::option::of(any::<bool>()), prop::option::of("[ab]"), prop::option::of("[ab]")), 1..30,
            ),
            or: bool, dear_first: bool,
        ) {
            let (mut cheap, mut texts, mut patterns) = (Vec::new(), Vec::new(), Vec::new());
            for (a, b, c) in &values {
                cheap.push(*a);
                texts.push(b.as_deref());
                patterns.push(c.as_deref());
            }
            let rows = rows(&cheap, &texts, &patterns);
            let op = if or { Operator::Or } else { Operator::And };
            let written = condition(&rows, op, col("cheap", &rows.schema()).unwrap(), dear_first);
            let turned = cheap_first(Arc::clone(&written)).unwrap();
            prop_assert!(turned.is::<CaseExpr>());
            prop_assert_eq!(kept(&turned, &rows), kept(&written, &rows));
        }
    }
}
