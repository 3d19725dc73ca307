//! From a query to its stages.
//!
//! ```text
//!   syntax tree --refuse--> names and types (DataFusion) --> one plan --relation-->
//!      chains: filters and projections over tables, windowed aggregates, regions
//!      regions: what runs over each closed window
//!   --graph--> stages: scans (scan), plans over windows (window_plan), and what each does to its rows (output)
//! ```

mod aggregate;
mod bounds;
mod chain;
mod context;
mod decimals;
mod dialect;
mod errors;
pub(crate) mod expression;
mod fields;
mod first_rows;
mod graph;
mod group_windows;
mod insert;
mod join;
mod key_columns;
mod keywords;
mod names;
mod nans;
mod one_window;
mod output;
mod parameters;
mod physical;
mod point_in_time;
mod refuse;
mod region;
mod relation;
mod scan;
pub(crate) mod size;
pub(crate) mod walk;
mod window;
mod window_plan;

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerContext, OptimizerRule};
use savanna_streams_model::catalog::{TableDef, ViewDef};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::source::Connectors;
use savanna_streams_model::{Result, StreamError};

use self::context::Names;
use self::graph::GraphBuilder;
use self::physical::Steps;
use self::scan::Scans;
use crate::statement::{Query, Statement};
use savanna_streams_functions::session;

pub(crate) use parameters::bind;
pub use refuse::function_names;

/// The tables and views that a query may name. Names are case-sensitive.
pub trait Catalog: Send + Sync {
    /// A table.
    fn table(&self, name: &str) -> Option<TableDef>;
    /// A view.
    fn view(&self, name: &str) -> Option<ViewDef>;
    /// All names, for hints in errors.
    fn names(&self) -> Vec<String>;
}

/// Checks queries against a catalog and cuts them in stages.
#[derive(Clone)]
pub struct Planner {
    catalog: Arc<dyn Catalog>,
    connectors: Arc<dyn Connectors>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("names", &self.catalog.names()).finish_non_exhaustive()
    }
}

impl Planner {
    /// A planner over a catalog. Connectors are asked what they push down.
    pub fn new(catalog: Arc<dyn Catalog>, connectors: Arc<dyn Connectors>) -> Self {
        Self { catalog, connectors }
    }

    /// The stages of a query. Rows go to `sink` (column by column, cast where nothing is lost silently), or without one to
    /// whoever asked.
    ///
    /// # Errors
    /// The query names what does not exist, does what streams do not do, or does not fit the sink.
    pub fn plan(&self, query: &Query, sink: Option<&TableDef>) -> Result<StageGraph> {
        self.plan_columns(query, sink, &[])
    }

    /// The stages of `INSERT INTO sink (columns) query`. No columns mean all.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub fn plan_insert(&self, query: &Query, sink: &TableDef, columns: &[String]) -> Result<StageGraph> {
        self.plan_columns(query, Some(sink), columns)
    }

    /// The columns of a query's result.
    ///
    /// # Errors
    /// The query names what does not exist or does what streams do not do.
    pub fn output_schema(&self, query: &Query) -> Result<SchemaRef> {
        Ok(Arc::new(self.analyzed(query)?.schema().as_arrow().clone()))
    }

    /// The types of `$1`, `$2`, ..: as declared, else as the query casts them or compares them, else text.
    ///
    /// # Errors
    /// A parameter has a number that makes no sense.
    pub fn parameter_types(&self, statement: &Statement, declared: &[Option<DataType>]) -> Result<Vec<DataType>> {
        statement
            .query()
            .map_or_else(|| Ok(Vec::new()), |query| parameters::types(query, declared, self.catalog.as_ref()))
    }

    /// The result of a query that reads no table, such as the `SELECT 1` with which clients look whether somebody is
    /// there; none if it reads one.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub fn constant(&self, query: &Query) -> Result<Option<RecordBatch>> {
        let plan = self.analyzed(query)?;
        let LogicalPlan::Projection(projection) = &plan else {
            return Ok(None);
        };
        if !matches!(projection.input.as_ref(), LogicalPlan::EmptyRelation(_)) {
            return Ok(None);
        }
        let empty = Arc::new(arrow::datatypes::Schema::empty());
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let one_row = RecordBatch::try_new_with_options(Arc::clone(&empty), vec![], &options)
            .map_err(|e| StreamError::Internal(e.to_string()))?;
        let names: Vec<String> = plan.schema().fields().iter().map(|f| f.name().clone()).collect();
        let simple = |expr: &Expr| expression::simplify(expr.clone(), projection.input.schema());
        let columns = projection.expr.iter().map(simple).collect::<Result<Vec<_>>>()?;
        let steps = Steps::over(empty).project(columns.iter().zip(names.iter().map(String::as_str)))?;
        steps.run(&one_row).map(Some)
    }

    fn plan_columns(&self, query: &Query, sink: Option<&TableDef>, columns: &[String]) -> Result<StageGraph> {
        let mut plan = self.analyzed(query)?;
        if let Some(sink) = sink {
            plan = insert::coerce(plan, sink, columns)?;
        }
        let scans = Scans { catalog: self.catalog.as_ref(), connectors: self.connectors.as_ref() };
        let plan = conditions_in_joins(plan).map_err(|e| errors::map(&e, Some(query), self.catalog.as_ref()))?;
        GraphBuilder::new(scans, query).build(&plan, sink)
    }

    /// The typed plan of a query.
    fn analyzed(&self, query: &Query) -> Result<LogicalPlan> {
        let catalog = self.catalog.as_ref();
        let plan = Names::new(catalog).plan(query).and_then(size::check).and_then(analyze);
        let plan = plan.map_err(|e| errors::map(&e, Some(query), catalog))?;
        let plan = without_subqueries(plan).map_err(|e| errors::map(&e, Some(query), catalog))?;
        distinct_as_aggregate(plan).map_err(|e| errors::map(&e, Some(query), catalog))
    }
}

/// Gives every expression its types.
fn analyze(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let plan = nans::of_one_sign(decimals::beside_doubles(plan)?)?;
    Analyzer::new().execute_and_check(plan, session().config_options(), |_, _| {})
}

/// `IN (SELECT ..)` and `EXISTS` as semi and anti joins.
fn without_subqueries(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    if !graph::has_subquery(&plan).map_err(context::external)? {
        return Ok(plan);
    }
    let rules = Optimizer::with_rules(vec![Arc::new(DecorrelatePredicateSubquery::new())]);
    let config = OptimizerContext::new_with_config_options(Arc::clone(session().config_options()));
    rules.optimize(plan, &config, |_, _| {})
}

/// Moves the conditions of `WHERE` that belong to joins into them, so that each join shows by what it joins.
fn conditions_in_joins(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    if !plan.exists(|node| Ok(matches!(node, LogicalPlan::Join(_))))? {
        return Ok(plan);
    }
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
    ];
    let config = OptimizerContext::new_with_config_options(Arc::clone(session().config_options())).with_max_passes(1);
    Optimizer::with_rules(rules).optimize(plan, &config, |_, _| {})
}

/// `DISTINCT` is an aggregate by all columns.
fn distinct_as_aggregate(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let plan = plan.transform_up(|node| match node {
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(input, columns, Vec::new())?)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}
