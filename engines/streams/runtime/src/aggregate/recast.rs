//! The state of some aggregates as that of others over the same keys and windows.
//!
//! ```text
//!   rows of the former state:   keys | sum | count, total (avg) | ..
//!                                        \  \--- dropped
//!   rows of this one:           keys | no rows so far (max) | sum | ..
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{FieldRef, Schema};
use savanna_streams_api::{Result, StreamError};

use super::AggregateSpec;
use crate::chain::batch_of;
use crate::snapshot::FormerAggregates;

/// Rows of a former state, which begin with the keys and so many columns more, as those of one with the aggregates that there are now. Of those
/// that there were not, they say that no row has come. What stands behind all aggregates stays there.
///
/// # Errors
/// The rows do not have the columns of the former aggregates.
pub(super) fn recast(
    spec: &AggregateSpec,
    more: usize,
    rows: &RecordBatch,
    former: &FormerAggregates,
) -> Result<RecordBatch> {
    let first = spec.key_columns() + more;
    let ends = former.widths.iter().scan(first, |end, width| {
        *end = end.saturating_add(*width);
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let behind = ends.last().copied().unwrap_or(first);
    let unfit = |expected: String| {
        StreamError::invalid(format!(
            "a state does not fit what was noted of it (expected {expected}, got rows of {} columns)",
            rows.num_columns()
        ))
    };
    if rows.num_columns() < behind {
        return Err(unfit(format!("{behind} columns at least")));
    }
    let of = |at: usize| (FieldRef::clone(&rows.schema_ref().fields()[at]), Arc::clone(rows.column(at)));
    let mut columns: Vec<(FieldRef, ArrayRef)> = (0..first).map(of).collect();
    let aggregates = spec.state_ranges().count();
    if former.of.len() != aggregates {
        return Err(unfit(format!("what {aggregates} aggregates keep, got what {} do", former.of.len())));
    }
    for (aggregate, (range, kept)) in spec.state_ranges().zip(&former.of).enumerate() {
        match kept {
            None => {
                let fields = &spec.delta_schema().fields()[spec.key_columns()..][range];
                let state = spec.state_without_rows(aggregate, rows.num_rows())?;
                columns.extend(fields.iter().cloned().zip(state));
            }
            Some(place) => {
                let (width, end) = former.widths.get(*place).zip(ends.get(*place)).ok_or_else(|| {
                    unfit(format!("one of {} former aggregates, got aggregate {place}", former.widths.len()))
                })?;
                if *width != range.len() {
                    return Err(unfit(format!("{} columns of aggregate {place}, got {width}", range.len())));
                }
                columns.extend((end - width..*end).map(of));
            }
        }
    }
    columns.extend((behind..rows.num_columns()).map(of));
    let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    batch_of(&Arc::new(Schema::new(fields)), columns, rows.num_rows())
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, Float64Array, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::logical_expr::AggregateUDF;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::ExecutionPlan;
    use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
    use datafusion::prelude::SessionContext;
    use savanna_streams_model::graph::WindowAggregate;
    use savanna_streams_model::plan::{Leaf, PlanBytes};
    use savanna_streams_model::time::Windows;

    use super::*;

    /// `SELECT k, sum(v), count(v) .. GROUP BY k`.
    fn spec() -> AggregateSpec {
        let time = Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true);
        let [k, v] = ["k", "v"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(vec![time, k, v]));
        let function = |function: Arc<AggregateUDF>, name: &str| {
            let builder = AggregateExprBuilder::new(function, vec![col("v", &schema).unwrap()]);
            Arc::new(builder.schema(Arc::clone(&schema)).alias(name).build().unwrap())
        };
        let functions = vec![function(sum_udaf(), "sum"), function(count_udaf(), "count")];
        let keys = PhysicalGroupBy::new_single(vec![(col("k", &schema).unwrap(), "k".to_owned())]);
        let input = Arc::new(Leaf::new(0, Arc::clone(&schema)));
        let exec = AggregateExec::try_new(AggregateMode::Single, keys, functions, vec![None, None], input, schema);
        let exec: Arc<dyn ExecutionPlan> = Arc::new(exec.unwrap());
        let (windows, aggregate) = (Windows::Session { gap: 1_000 }, PlanBytes::encode(&exec).unwrap());
        let aggregate = WindowAggregate { time_column: 0, windows, aggregate };
        AggregateSpec::decode(&aggregate, &SessionContext::new().task_ctx()).unwrap()
    }

    /// Rows of `SELECT k, avg(v), count(v) ..`, with the times of sessions and a column behind all.
    fn rows() -> RecordBatch {
        let numbers = |numbers: [i64; 2]| Arc::new(Int64Array::from(numbers.to_vec())) as ArrayRef;
        let total: ArrayRef = Arc::new(Float64Array::from(vec![50.0, 70.0]));
        let columns = [
            ("k", numbers([1, 2])),
            ("first", numbers([10, 20])),
            ("last", numbers([11, 21])),
            ("avg[count]", numbers([5, 7])),
            ("avg[sum]", total),
            ("count[count]", numbers([6, 8])),
            ("over", numbers([0, 1])),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn former(widths: &[usize], of: &[Option<usize>]) -> FormerAggregates {
        FormerAggregates { signature: String::new(), widths: widths.to_vec(), of: of.to_vec() }
    }

    #[test]
    fn aggregates_that_there_were_are_found_by_their_places_and_others_have_no_rows() {
        let recast = recast(&spec(), 2, &rows(), &former(&[2, 1], &[None, Some(1)])).unwrap();
        let names: Vec<_> = recast.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["k", "first", "last", "sum[sum]", "count[count]", "over"]);
        assert_eq!(recast.column(3).null_count(), 2);
        let numbers = |column: usize| recast.column(column).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!([0, 1, 2, 4, 5].map(numbers), [[1, 2], [10, 20], [11, 21], [6, 8], [0, 1]]);
        let none = super::recast(&spec(), 2, &rows().slice(0, 0), &former(&[2, 1], &[None, None])).unwrap();
        assert_eq!((none.num_rows(), none.num_columns()), (0, 6));
    }

    #[test]
    fn rows_that_are_not_those_that_were_noted_are_refused() {
        let refused = |rows: &RecordBatch, widths: &[usize], of: &[Option<usize>]| {
            recast(&spec(), 2, rows, &former(widths, of)).unwrap_err().to_string()
        };
        let error = refused(&rows(), &[2, 1, 2], &[None, Some(1)]);
        assert!(error.contains("expected 8 columns at least, got rows of 7"), "{error}");
        let error = refused(&rows(), &[2, 1], &[None]);
        assert!(error.contains("what 2 aggregates keep, got what 1 do"), "{error}");
        let error = refused(&rows(), &[2, 1], &[None, Some(2)]);
        assert!(error.contains("one of 2 former aggregates, got aggregate 2"), "{error}");
        let error = refused(&rows(), &[2, 1], &[None, Some(0)]);
        assert!(error.contains("1 columns of aggregate 0, got 2"), "{error}");
        let error = refused(&rows(), &[usize::MAX, usize::MAX], &[None, None]);
        assert!(error.contains("columns at least"), "{error}");
    }
}
