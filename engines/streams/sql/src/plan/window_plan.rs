//! A region as a stage: optimised, its leaves cut to the columns that are read, its keys found, its plan encoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource, Window as Over};
use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_filter::EliminateFilter;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::Exchange;
use savanna_streams_model::plan::PlanBytes;

use super::chain::{Chain, broken};
use super::first_rows::FirstRows;
use super::key_columns;
use super::region::{Leaf, Region};
use savanna_streams_functions::session;

/// A region whose leaves are known.
pub(super) struct WindowPlanning {
    plan: LogicalPlan,
    pub(super) inputs: Vec<Input>,
}

/// What a leaf of the plan reads.
pub(super) struct Input {
    leaf: Arc<dyn TableSource>,
    /// The leaf's columns that are read, `window_end` among them.
    kept: Vec<usize>,
    pub(super) chain: Chain,
    /// What the chain's columns are called.
    pub(super) names: Vec<String>,
    /// Which of them is `window_end`.
    pub(super) window_end: usize,
    /// How the rows come: by columns that the plan keeps apart, if there are such.
    pub(super) exchange: Exchange,
    first_rows: Option<FirstRows>,
}

impl WindowPlanning {
    pub(super) fn of(region: &Region) -> Result<Self> {
        let plan = optimize(region.plan.clone())?;
        let plan = plan.transform_up(settle_order).map_err(broken)?.data;
        let mut leaves: Vec<(Arc<dyn TableSource>, BTreeSet<usize>)> = Vec::new();
        let mut times_read: Vec<usize> = Vec::new();
        plan.apply(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                let read =
                    scan.projection.clone().unwrap_or_else(|| (0..scan.source.schema().fields().len()).collect());
                match leaves.iter().position(|(source, _)| same(source, &scan.source)) {
                    Some(at) => {
                        leaves[at].1.extend(read);
                        times_read[at] += 1;
                    }
                    None => {
                        leaves.push((Arc::clone(&scan.source), read.into_iter().collect()));
                        times_read.push(1);
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .map_err(broken)?;
        let sources: Vec<_> = leaves.iter().map(|(source, _)| Arc::clone(source)).collect();
        let keys = key_columns::of(&plan, &|scan| sources.iter().position(|source| same(source, &scan.source)));
        let mut inputs = Vec::new();
        for (at, (source, mut read)) in leaves.into_iter().enumerate() {
            let leaf = leaf_of(&source)?;
            read.insert(leaf.window_end);
            let kept: Vec<usize> = read.into_iter().collect();
            let place = |column: usize| kept.binary_search(&column).unwrap_or_default();
            let exchange = match keys.get(at) {
                Some(columns) => Exchange::KeyGroup { columns: columns.iter().map(|c| place(*c)).collect() },
                None => Exchange::Single,
            };
            let mut chain = leaf.chain.clone();
            chain.columns = kept.iter().map(|column| leaf.chain.columns[*column].clone()).collect();
            let names = kept.iter().map(|column| leaf.names[*column].clone()).collect();
            let window_end = place(leaf.window_end);
            let first_rows = match times_read[at] {
                1 => FirstRows::of(&plan, &|scan| same(&source, &scan.source)),
                _ => None,
            };
            inputs.push(Input { leaf: source, kept, chain, names, window_end, exchange, first_rows });
        }
        Ok(Self { plan, inputs })
    }

    /// The plan over inputs that have these columns, and its own columns.
    pub(super) fn encode(self, schemas: &[SchemaRef]) -> Result<(PlanBytes, SchemaRef)> {
        let place = |node: LogicalPlan| {
            let LogicalPlan::TableScan(mut scan) = node else {
                return Ok(Transformed::no(node));
            };
            let found = self.inputs.iter().position(|input| same(&input.leaf, &scan.source));
            let Some(index) = found else {
                return datafusion::common::internal_err!("a leaf that no input feeds");
            };
            let input = &self.inputs[index];
            let read = scan.projection.clone().unwrap_or_else(|| (0..scan.source.schema().fields().len()).collect());
            let moved = read.iter().map(|column| input.kept.binary_search(column).unwrap_or_default()).collect();
            let schema = Arc::clone(&schemas[index]);
            scan.source = provider_as_source(Arc::new(PlacedLeaf { index, schema }));
            scan.projection = Some(moved);
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        };
        let plan = self.plan.clone().transform_up(place).map_err(broken)?.data;
        let physical = physical(&plan)?;
        Ok((PlanBytes::encode(&physical)?, physical.schema()))
    }
}

impl Input {
    /// The plan that keeps, of rows of these columns, those that are needed; none if all may be.
    pub(super) fn first_rows(&self, schema: &SchemaRef) -> Result<Option<PlanBytes>> {
        let Some(first) = &self.first_rows else {
            return Ok(None);
        };
        let rows = PlacedLeaf { index: 0, schema: Arc::clone(schema) };
        PlanBytes::encode(&physical(&first.plan(Arc::new(rows))?)?).map(Some)
    }
}

fn physical(plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = DefaultPhysicalPlanner::default();
    futures::executor::block_on(planner.create_physical_plan(plan, session())).map_err(broken)
}

fn leaf_of(source: &Arc<dyn TableSource>) -> Result<&Leaf> {
    source
        .downcast_ref::<Leaf>()
        .ok_or_else(|| StreamError::Internal("a plan over windows reads something else".into()))
}

/// Whether two leaves are the same rows.
fn same(a: &Arc<dyn TableSource>, b: &Arc<dyn TableSource>) -> bool {
    match (a.downcast_ref::<Leaf>(), b.downcast_ref::<Leaf>()) {
        (Some(a), Some(b)) => a.chain == b.chain,
        _ => false,
    }
}

/// The rules that suit a plan which is small, runs often, and must keep its window columns visible.
fn optimize(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    let context = OptimizerContext::new_with_config_options(Arc::clone(session().config_options())).with_max_passes(3);
    Optimizer::with_rules(rules).optimize(plan, &context, |_, _| {}).map_err(broken)
}

/// Lets `ROW_NUMBER` order rows that the user's ORDER BY leaves equal by all other columns: rows come in any order, and
/// the result must not depend on it.
fn settle_order(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Window(over) = node else {
        return Ok(Transformed::no(node));
    };
    let columns: Vec<Expr> = over.input.schema().columns().into_iter().map(Expr::Column).collect();
    let settle = |expr: &Expr| {
        let Expr::WindowFunction(mut function) = expr.clone().unalias() else {
            return expr.clone();
        };
        if function.fun.name() != "row_number" {
            return expr.clone();
        }
        let params = &mut function.params;
        let given: Vec<&Expr> = params.partition_by.iter().chain(params.order_by.iter().map(|s| &s.expr)).collect();
        let rest: Vec<Sort> = (columns.iter())
            .filter(|column| !given.contains(column))
            .map(|column| Sort { expr: column.clone(), asc: true, nulls_first: false })
            .collect();
        params.order_by.extend(rest);
        Expr::WindowFunction(function).alias(expr.schema_name().to_string())
    };
    let exprs = over.window_expr.iter().map(settle).collect();
    Ok(Transformed::yes(LogicalPlan::Window(Over::try_new(exprs, over.input)?)))
}

/// Leaf number `index` as a table for DataFusion's planner.
#[derive(Debug)]
struct PlacedLeaf {
    index: usize,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for PlacedLeaf {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let leaf: Arc<dyn ExecutionPlan> =
            Arc::new(savanna_streams_model::plan::Leaf::new(self.index, Arc::clone(&self.schema)));
        let Some(projection) = projection.filter(|p| !p.iter().copied().eq(0..self.schema.fields().len())) else {
            return Ok(leaf);
        };
        let columns = projection.iter().map(|i| {
            let name = self.schema.field(*i).name();
            let column: Arc<dyn datafusion::physical_expr::PhysicalExpr> =
                Arc::new(datafusion::physical_expr::expressions::Column::new(name, *i));
            (column, name.clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns, leaf)?))
    }
}
