//! Expressions and chains as physical plans over leaves.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::foreign::{about_a_value, ours};
use savanna_streams_model::plan::{Leaf, PlanBytes, leaves};

use super::chain::{BASE, broken, of_a_result};
use savanna_streams_functions::proctime;

/// A schema whose columns are the base's.
pub(super) fn base_schema(schema: &Schema) -> Result<DFSchemaRef> {
    DFSchema::try_from_qualified_schema(BASE, schema).map(Arc::new).map_err(broken)
}

/// Filters and a projection over leaf 0.
pub(super) struct Steps {
    plan: Arc<dyn ExecutionPlan>,
}

impl Steps {
    /// Starts with rows of a schema.
    pub(super) fn over(schema: SchemaRef) -> Self {
        Self { plan: Arc::new(Leaf::new(0, schema)) }
    }

    /// Keeps the rows for which all conditions hold.
    pub(super) fn filter(self, conditions: &[Expr]) -> Result<Self> {
        let Some(condition) = conjunction(conditions.iter().cloned()) else {
            return Ok(self);
        };
        let condition = physical(&condition, &self.plan.schema())?;
        let filter = FilterExec::try_new(condition, self.plan).map_err(broken)?;
        Ok(Self { plan: Arc::new(filter) })
    }

    /// Computes columns. A projection that changes nothing is left out.
    pub(super) fn project<'e>(self, columns: impl IntoIterator<Item = (&'e Expr, &'e str)>) -> Result<Self> {
        let schema = self.plan.schema();
        let columns: Vec<(Arc<dyn PhysicalExpr>, String)> = columns
            .into_iter()
            .map(|(expr, name)| Ok((physical(expr, &schema)?, name.to_owned())))
            .collect::<Result<_>>()?;
        let same = columns.len() == schema.fields().len()
            && columns.iter().enumerate().all(|(i, (expr, name))| {
                name == schema.field(i).name()
                    && expr
                        .downcast_ref::<datafusion::physical_expr::expressions::Column>()
                        .is_some_and(|c| c.index() == i)
            });
        if same {
            return Ok(self);
        }
        let projection = ProjectionExec::try_new(columns, self.plan).map_err(broken)?;
        Ok(Self { plan: Arc::new(projection) })
    }

    /// Runs the steps over one batch.
    pub(super) fn run(self, rows: &RecordBatch) -> Result<RecordBatch> {
        for leaf in leaves(&self.plan) {
            if let Some(leaf) = leaf.downcast_ref::<Leaf>() {
                leaf.fill(vec![rows.clone()]);
            }
        }
        let schema = self.schema();
        let collected = futures::executor::block_on(collect(self.plan, savanna_streams_functions::functions()));
        let batches = collected
            .map_err(|e| ours(&e).unwrap_or_else(|| StreamError::invalid(about_a_value(&e.strip_backtrace()))))?;
        arrow::compute::concat_batches(&schema, &batches).map_err(|e| StreamError::Internal(e.to_string()))
    }

    pub(super) fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    pub(super) fn encode(&self) -> Result<PlanBytes> {
        PlanBytes::encode(&self.plan)
    }
}

/// Whether an expression can be computed.
pub(super) fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let context = PhysicalPlanningContext::default();
    create_physical_expr(expr, schema, &ExecutionProps::new(), &context).map(drop).map_err(broken)
}

/// An expression over a schema of base columns.
fn physical(expr: &Expr, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    if expr.exists(|e| Ok(proctime::is_call(e))).map_err(broken)? {
        return Err(of_a_result());
    }
    let schema = base_schema(schema)?;
    create_physical_expr(expr, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default()).map_err(broken)
}

/// A single-mode aggregate over leaf 0: keys and aggregates by name. Returns it with its output schema.
pub(super) fn aggregate(
    input: &SchemaRef,
    keys: &[(String, Expr)],
    aggregates: &[(String, Expr)],
) -> Result<(PlanBytes, SchemaRef)> {
    let logical = base_schema(input)?;
    let keys =
        keys.iter().map(|(name, expr)| Ok((physical(expr, input)?, name.clone()))).collect::<Result<Vec<_>>>()?;
    let mut functions: Vec<Arc<AggregateFunctionExpr>> = Vec::new();
    let mut filters = Vec::new();
    for (name, expr) in aggregates {
        let props = ExecutionProps::new();
        let context = PhysicalPlanningContext::default();
        let lowered = LoweredAggregateBuilder::new(expr, &logical, input, &props, &context)
            .with_name(name)
            .with_human_display(name)
            .build()
            .map_err(broken)?;
        functions.push(lowered.aggregate);
        filters.push(lowered.filter);
    }
    let leaf = Arc::new(Leaf::new(0, Arc::clone(input)));
    let exec = AggregateExec::try_new(
        AggregateMode::Single,
        PhysicalGroupBy::new_single(keys),
        functions,
        filters,
        leaf,
        Arc::clone(input),
    )
    .map_err(broken)?;
    let schema = exec.schema();
    let plan: Arc<dyn ExecutionPlan> = Arc::new(exec);
    Ok((PlanBytes::encode(&plan)?, schema))
}
