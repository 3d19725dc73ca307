//! What runs over each closed window: joins and aggregates of windowed aggregates, as one DataFusion plan over leaves.
//!
//! Such a plan gives the right answer only if no row of one window ever meets a row of another. [`Scope`] proves that from
//! the columns that carry the window: an aggregate must group by one of them, a join must equate one of each side.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{JoinType, Result as DfResult};
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Join, LogicalPlan, Operator, TableSource};
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
use savanna_streams_model::graph::WINDOW_COLUMNS;
use savanna_streams_model::ids::StageId;
use savanna_streams_model::plan::{Leaf, PlanBytes};
use savanna_streams_model::time::Windows;
use savanna_streams_model::{Result, StreamError};

use super::chain::{broken, first_column_position, unsupported};
use super::refuse;
use crate::functions::session;
use crate::statement::Query;

/// A windowed aggregate that a plan reads.
pub(super) struct Input {
    pub(super) stage: StageId,
    pub(super) schema: SchemaRef,
    pub(super) windows: Windows,
}

/// Leaf number `index` as a table.
pub(super) fn leaf_source(index: usize, schema: SchemaRef) -> Arc<dyn TableSource> {
    provider_as_source(Arc::new(LeafTable { index, schema }))
}

/// Optimises, checks and encodes a plan over leaves. Returns it with its columns.
pub(super) fn encode(plan: LogicalPlan, windows: &[Windows], query: &Query) -> Result<(PlanBytes, SchemaRef)> {
    let plan = optimize(plan)?;
    Checker { windows, query }.scope(&plan)?;
    let planner = DefaultPhysicalPlanner::default();
    let physical = futures::executor::block_on(planner.create_physical_plan(&plan, session())).map_err(broken)?;
    Ok((PlanBytes::encode(&physical)?, physical.schema()))
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

/// A column that carries the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carries {
    Start,
    End,
    Time,
}

impl Carries {
    fn of(name: &str) -> Option<Self> {
        [Self::Start, Self::End, Self::Time].into_iter().zip(WINDOW_COLUMNS).find(|(_, n)| *n == name).map(|(c, _)| c)
    }
}

/// The rows of a sub-plan: each belongs to one window.
struct Scope {
    /// What each output column carries.
    columns: Vec<Option<Carries>>,
    /// The sizes of the windows that its rows may belong to: one, or the least and the largest.
    sizes: BTreeSet<i64>,
}

struct Checker<'a> {
    windows: &'a [Windows],
    query: &'a Query,
}

impl Checker<'_> {
    fn scope(&self, plan: &LogicalPlan) -> Result<Scope> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let columns = scan.projected_schema.fields().iter().map(|f| Carries::of(f.name())).collect();
                let leaf = datafusion::datasource::source_as_provider(&scan.source).map_err(broken)?;
                let Some(leaf) = (leaf.as_ref() as &dyn std::any::Any).downcast_ref::<LeafTable>() else {
                    return Err(StreamError::Internal("a plan over windows reads something else".into()));
                };
                let sizes = match &self.windows[leaf.index] {
                    Windows::Fixed(spec) => [spec.step(), spec.size()].into(),
                    Windows::Session { gap } => [*gap, i64::MAX].into(),
                };
                Ok(Scope { columns, sizes })
            }
            LogicalPlan::SubqueryAlias(alias) => self.scope(&alias.input),
            LogicalPlan::Filter(filter) => self.scope(&filter.input),
            LogicalPlan::Projection(projection) => {
                let below = self.scope(&projection.input)?;
                let columns = projection.expr.iter().map(|e| below.carried(e, &projection.input)).collect();
                Ok(Scope { columns, ..below })
            }
            LogicalPlan::Distinct(distinct) => {
                let below = self.scope(distinct.input())?;
                self.needs_window(&below.columns, &below.sizes, "DISTINCT over several windows", None)?;
                Ok(below)
            }
            LogicalPlan::Aggregate(aggregate) => {
                let below = self.scope(&aggregate.input)?;
                let mut columns: Vec<_> =
                    aggregate.group_expr.iter().map(|e| below.carried(e, &aggregate.input)).collect();
                let place =
                    first_column_position(&aggregate.group_expr).or_else(|| refuse::first_aggregate(self.query));
                self.needs_window(&columns, &below.sizes, "an aggregate over several windows", place)?;
                columns.resize(aggregate.schema.fields().len(), None);
                Ok(Scope { columns, ..below })
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => {
                let mut inputs = union.inputs.iter().map(|i| self.scope(i));
                let Some(mut scope) = inputs.next().transpose()? else {
                    return Err(StreamError::Internal("a union of nothing".into()));
                };
                for other in inputs {
                    let other = other?;
                    scope.columns.iter_mut().zip(other.columns).for_each(|(a, b)| *a = a.filter(|a| Some(*a) == b));
                    scope.sizes.extend(other.sizes);
                }
                Ok(scope)
            }
            LogicalPlan::EmptyRelation(_) => {
                let columns = vec![None; plan.schema().fields().len()];
                Ok(Scope { columns, sizes: BTreeSet::new() })
            }
            other => Err(unsupported(
                &format!("{} over windows", other.display()),
                refuse::first_select(self.query),
                "use joins, aggregates, filters and projections of windowed aggregates",
            )),
        }
    }

    fn needs_window(
        &self,
        columns: &[Option<Carries>],
        sizes: &BTreeSet<i64>,
        what: &str,
        place: Option<savanna_streams_model::Position>,
    ) -> Result<()> {
        // Windows of several sizes may share a start, but not an end: rows are gathered by it.
        if columns.iter().flatten().any(|carries| *carries != Carries::Start || sizes.len() <= 1) {
            return Ok(());
        }
        let place = place.or_else(|| refuse::first_select(self.query));
        Err(unsupported(
            what,
            place,
            "add the inner query's window_start and window_end to GROUP BY or SELECT DISTINCT",
        ))
    }

    fn join(&self, join: &Join) -> Result<Scope> {
        let left = self.scope(&join.left)?;
        let right = self.scope(&join.right)?;
        let mut pairs: Vec<(&Expr, &Expr)> = join.on.iter().map(|(l, r)| (l, r)).collect();
        if let Some(filter) = &join.filter {
            for condition in split_conjunction(filter) {
                if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition {
                    pairs.extend([(left.as_ref(), right.as_ref()), (right.as_ref(), left.as_ref())]);
                }
            }
        }
        let one_size = left.sizes.len() <= 1 && right.sizes.len() <= 1 && left.sizes == right.sizes;
        let same_window = pairs.iter().any(|(l, r)| {
            let carried = left.carried(l, &join.left);
            carried.is_some()
                && carried == right.carried(r, &join.right)
                && (one_size || carried != Some(Carries::Start))
        });
        if !same_window {
            let exprs: Vec<Expr> = pairs.iter().flat_map(|(l, r)| [(*l).clone(), (*r).clone()]).collect();
            let place = refuse::first_join(self.query).or_else(|| first_column_position(&exprs));
            return Err(unsupported(
                "JOIN across windows",
                place,
                "add to ON that window_start and window_end of both sides are equal (for windows of different sizes, window_end)",
            ));
        }
        let lost = |columns: Vec<Option<Carries>>| vec![None; columns.len()];
        let mut sizes = left.sizes;
        sizes.extend(right.sizes);
        let mark = [None];
        let columns = match join.join_type {
            JoinType::Inner => [left.columns, right.columns].concat(),
            JoinType::Left => [left.columns, lost(right.columns)].concat(),
            JoinType::Right => [lost(left.columns), right.columns].concat(),
            JoinType::Full => [lost(left.columns), lost(right.columns)].concat(),
            JoinType::LeftSemi | JoinType::LeftAnti => left.columns,
            JoinType::RightSemi | JoinType::RightAnti => right.columns,
            JoinType::LeftMark => [left.columns, mark.to_vec()].concat(),
            JoinType::RightMark => [right.columns, mark.to_vec()].concat(),
        };
        Ok(Scope { columns, sizes })
    }
}

impl Scope {
    /// What an expression over this scope's columns carries.
    fn carried(&self, expr: &Expr, input: &LogicalPlan) -> Option<Carries> {
        match expr {
            Expr::Column(column) => {
                input.schema().maybe_index_of_column(column).and_then(|i| self.columns.get(i).copied().flatten())
            }
            Expr::Alias(alias) => self.carried(&alias.expr, input),
            _ => None,
        }
    }
}

/// A leaf as a table for DataFusion's planner.
#[derive(Debug)]
struct LeafTable {
    index: usize,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for LeafTable {
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
        let leaf: Arc<dyn ExecutionPlan> = Arc::new(Leaf::new(self.index, Arc::clone(&self.schema)));
        let Some(projection) = projection else {
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
