//! Filters and projections, driven directly: a decoded chain of `FilterExec` and `ProjectionExec` becomes a list of
//! steps over `PhysicalExpr`s, several times cheaper per batch than running the plan. Other operators run as a plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{BatchCoalescer, filter, filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use savanna_streams_api::Result;
use savanna_streams_functions::budget;
use savanna_streams_model::plan::{Leaf, PlanBytes, leaves};

use crate::cheap_first::cheap_first;
use crate::error::{broken, computing, evaluating};
use crate::plan_run::PlanRun;

/// A decoded chain.
pub(crate) struct Chain {
    input: SchemaRef,
    output: SchemaRef,
    work: Work,
}

enum Work {
    Steps {
        steps: Vec<Step>,
        /// Rows that are computed at a time: with long constants, fewer.
        rows_max: usize,
    },
    Plan(PlanRun),
}

/// Constants that are shorter are not looked at.
const LONG_CONSTANT: usize = 4 << 10;
/// Bytes that the long constants of a chain may come to, if each row gets a copy of each.
const COPIES_MAX: usize = 64 << 20;

enum Step {
    /// Keeps the rows that match, and of these the columns in `keep`.
    Filter {
        predicate: Arc<dyn PhysicalExpr>,
        keep: Option<Vec<usize>>,
    },
    Project {
        columns: Vec<Arc<dyn PhysicalExpr>>,
        schema: SchemaRef,
    },
}

/// Which rows match.
enum Mask {
    All,
    None,
    Some(BooleanArray),
}

impl Chain {
    pub(crate) fn decode(bytes: &PlanBytes, functions: &Arc<TaskContext>) -> Result<Self> {
        let plan = bytes.decode(functions)?;
        let leaves = leaves(&plan);
        let [leaf] = leaves.as_slice() else {
            return Err(broken(format!("a chain reads one leaf, but this one reads {}", leaves.len())));
        };
        let (input, output) = (leaf.schema(), plan.schema());
        let work = match steps(&plan) {
            Some(steps) => {
                let steps = narrowed(steps);
                let long: usize = steps.iter().flat_map(Step::expressions).map(long_constants).sum();
                Work::Steps { steps, rows_max: COPIES_MAX.checked_div(long).unwrap_or(usize::MAX).max(1) }
            }
            None => Work::Plan(PlanRun::new(plan, Arc::clone(functions))?),
        };
        Ok(Self { input, output, work })
    }

    /// The columns that go in.
    pub(crate) fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// The columns that come out.
    pub(crate) fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Whether fewer rows may come out than go in.
    pub(crate) fn filters(&self) -> bool {
        match &self.work {
            Work::Steps { steps, .. } => steps.iter().any(|step| matches!(step, Step::Filter { .. })),
            Work::Plan(_) => true,
        }
    }

    /// Runs the chain over a batch; no batch comes out if no row does.
    pub(crate) fn apply(&mut self, rows: RecordBatch) -> Result<Vec<RecordBatch>> {
        budget::begin();
        match &mut self.work {
            Work::Steps { steps, rows_max } if rows.num_rows() > *rows_max => {
                let mut out = Vec::new();
                for from in (0..rows.num_rows()).step_by(*rows_max) {
                    let part = rows.slice(from, (*rows_max).min(rows.num_rows() - from));
                    let part = through(steps, part)?;
                    part.iter().flat_map(RecordBatch::columns).try_for_each(has_room)?;
                    out.extend(part);
                }
                Ok(out)
            }
            Work::Steps { steps, .. } => Ok(Vec::from_iter(through(steps, rows)?)),
            Work::Plan(run) => run.run(|_| vec![rows.clone()]),
        }
    }

    /// The positions of the rows that pass the chain's filters. A plan cannot tell: all positions are returned if any row
    /// comes out of it.
    pub(crate) fn survivors(&mut self, rows: &RecordBatch) -> Result<UInt32Array> {
        let all = || UInt32Array::from_iter_values(0..rows.num_rows() as u32);
        match &mut self.work {
            Work::Steps { steps, .. } => {
                let (mut rows, mut positions) = (rows.clone(), all());
                for step in steps {
                    if let Step::Filter { predicate, .. } = step {
                        match mask(predicate, &rows)? {
                            Mask::All => {}
                            Mask::None => return Ok(UInt32Array::from_iter_values([])),
                            Mask::Some(mask) => {
                                let kept = filter(&positions, &mask).map_err(|e| computing("a filter", &e))?;
                                positions = kept.as_primitive::<arrow::datatypes::UInt32Type>().clone();
                            }
                        }
                    }
                    match step.apply(rows)? {
                        Some(next) => rows = next,
                        None => return Ok(UInt32Array::from_iter_values([])),
                    }
                }
                Ok(positions)
            }
            Work::Plan(run) => {
                let out = run.run(|_| vec![rows.clone()])?;
                Ok(if out.is_empty() { UInt32Array::from_iter_values([]) } else { all() })
            }
        }
    }
}

/// Rows through all steps; none if no row passes.
fn through(steps: &[Step], rows: RecordBatch) -> Result<Option<RecordBatch>> {
    steps.iter().try_fold(Some(rows), |rows, step| rows.map_or(Ok(None), |rows| step.apply(rows)))
}

/// Counts a column of the result.
fn has_room(column: &ArrayRef) -> Result<()> {
    budget::count_column("an expression", column).map_err(|e| evaluating("an expression", &e))
}

/// Bytes of the long constants in an expression.
fn long_constants(expression: &Arc<dyn PhysicalExpr>) -> usize {
    let mut bytes = 0;
    // Nothing in it fails.
    let _ = expression.apply(|part| {
        if let Some(constant) = part.downcast_ref::<Literal>()
            && constant.value().size() >= LONG_CONSTANT
        {
            bytes += constant.value().size();
        }
        Ok(TreeNodeRecursion::Continue)
    });
    bytes
}

impl Step {
    fn expressions(&self) -> &[Arc<dyn PhysicalExpr>] {
        match self {
            Self::Filter { predicate, .. } => std::slice::from_ref(predicate),
            Self::Project { columns, .. } => columns,
        }
    }

    fn apply(&self, rows: RecordBatch) -> Result<Option<RecordBatch>> {
        let failed = |e: &dyn std::fmt::Display| computing("a filter", e);
        match self {
            Self::Filter { predicate, keep } => {
                let mask = mask(predicate, &rows)?;
                if matches!(mask, Mask::None) {
                    return Ok(None);
                }
                let rows = match keep {
                    Some(keep) => rows.project(keep).map_err(|e| failed(&e))?,
                    None => rows,
                };
                match mask {
                    Mask::Some(mask) => filter_record_batch(&rows, &mask).map(Some).map_err(|e| failed(&e)),
                    _ => Ok(Some(rows)),
                }
            }
            Self::Project { columns, schema } => {
                let count = rows.num_rows();
                let columns = columns.iter().map(|column| evaluate(column, &rows)).collect::<Result<Vec<_>>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(count));
                RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
                    .map(Some)
                    .map_err(|e| broken(format!("a projection gives other columns than planned: {e}")))
            }
        }
    }
}

/// An expression's value for each row.
pub(crate) fn evaluate(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef> {
    expression
        .evaluate(rows)
        .and_then(|value| budget::column_of("an expression", value, rows.num_rows()))
        .map_err(|e| evaluating(&format!("expression {expression}"), &e))
}

/// A condition's value for each row; NULL counts as false.
pub(crate) fn evaluate_condition(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<BooleanArray> {
    let values = evaluate(condition, rows)?;
    let values = values.as_boolean_opt().ok_or_else(|| broken(format!("condition {condition} is not BOOLEAN")))?;
    Ok(if values.null_count() > 0 { prep_null_mask_filter(values) } else { values.clone() })
}

fn mask(predicate: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<Mask> {
    let value = predicate.evaluate(rows).map_err(|e| evaluating(&format!("condition {predicate}"), &e))?;
    let mask = match value {
        ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => return Ok(Mask::All),
        ColumnarValue::Scalar(_) => return Ok(Mask::None),
        ColumnarValue::Array(values) => match values.as_boolean_opt() {
            Some(values) if values.null_count() > 0 => prep_null_mask_filter(values),
            Some(values) => values.clone(),
            None => return Err(broken(format!("condition {predicate} is not BOOLEAN"))),
        },
    };
    Ok(match mask.true_count() {
        0 => Mask::None,
        matching if matching == rows.num_rows() => Mask::All,
        _ => Mask::Some(mask),
    })
}

/// The chain as steps from the leaf upward; none if it holds an operator that has no step.
fn steps(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<Step>> {
    if plan.is::<Leaf>() {
        return Some(Vec::new());
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>()
        && plan.fetch().is_none()
    {
        let mut steps = steps(filter.input())?;
        let keep = filter.projection().as_ref().map(|columns| columns.to_vec());
        let predicate = cheap_first(Arc::clone(filter.predicate())).ok()?;
        steps.push(Step::Filter { predicate, keep });
        return Some(steps);
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let mut steps = steps(projection.input())?;
    let columns = projection.expr().iter().map(|column| Arc::clone(&column.expr)).collect();
    steps.push(Step::Project { columns, schema: plan.schema() });
    Some(steps)
}

/// Lets a filter that is followed by a projection copy only the columns which that projection reads.
fn narrowed(mut steps: Vec<Step>) -> Vec<Step> {
    for above in 1..steps.len() {
        let (below, above) = steps.split_at_mut(above);
        let (Some(Step::Filter { keep: keep @ None, .. }), Some(Step::Project { columns, .. })) =
            (below.last_mut(), above.first_mut())
        else {
            continue;
        };
        let needed: BTreeSet<usize> = columns.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        let needed: Vec<usize> = needed.into_iter().collect();
        if let Some(moved) = columns.iter().map(|column| renumbered(column, &needed)).collect() {
            *columns = moved;
            *keep = Some(needed);
        }
    }
    steps
}

/// The expression over a batch that holds only the columns `kept`.
fn renumbered(expression: &Arc<dyn PhysicalExpr>, kept: &[usize]) -> Option<Arc<dyn PhysicalExpr>> {
    let moved = Arc::clone(expression).transform_up(|node| {
        let place = node
            .downcast_ref::<Column>()
            .and_then(|c| Some((c.name().to_owned(), kept.binary_search(&c.index()).ok()?)));
        Ok(match place {
            Some((name, index)) => Transformed::yes(Arc::new(Column::new(&name, index)) as Arc<dyn PhysicalExpr>),
            None => Transformed::no(node),
        })
    });
    moved.ok().map(|moved| moved.data)
}

/// Joins small batches, so that what follows pays its costs per batch less often.
pub(crate) struct SmallBatches {
    coalescer: BatchCoalescer,
    target: usize,
}

impl SmallBatches {
    pub(crate) fn new(schema: &SchemaRef, target: usize) -> Self {
        let target = target.max(1);
        Self { coalescer: BatchCoalescer::new(Arc::clone(schema), target), target }
    }

    /// Takes a batch in; gives what is large enough by now. The order of rows is kept.
    pub(crate) fn push(&mut self, rows: RecordBatch) -> Result<Vec<RecordBatch>> {
        if self.coalescer.is_empty() && rows.num_rows() >= self.target / 2 {
            return Ok(vec![rows]);
        }
        self.coalescer.push_batch(rows).map_err(|e| computing("joining small batches", &e))?;
        Ok(self.completed())
    }

    /// Gives everything.
    pub(crate) fn flush(&mut self) -> Result<Vec<RecordBatch>> {
        self.coalescer.finish_buffered_batch().map_err(|e| computing("joining small batches", &e))?;
        Ok(self.completed())
    }

    fn completed(&mut self) -> Vec<RecordBatch> {
        std::iter::from_fn(|| self.coalescer.next_completed_batch()).collect()
    }
}

/// A batch of computed columns in a planned schema.
pub(crate) fn batch_of(schema: &Arc<Schema>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|e| broken(format!("computed columns differ from the planned ones: {e}")))
}
