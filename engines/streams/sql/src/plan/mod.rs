//! From a query to its stages.
//!
//! ```text
//!   syntax tree --refuse--> names and types (DataFusion) --> one plan --relation-->
//!      chains: filters and projections over tables, windowed aggregates, regions
//!      regions: what runs over each closed window
//!   --graph--> stages: scans (scan), plans over windows (window_plan), and what each does to its rows (output)
//! ```

mod aggregate;
mod arithmetic;
mod bounds;
mod casts;
mod chain;
mod conditions;
mod context;
mod culprit;
mod days;
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
mod lookup_options;
mod names;
mod one_window;
mod output;
mod parameters;
mod physical;
mod point_in_time;
mod refuse;
mod region;
mod relation;
mod rewrite;
mod scan;
pub(crate) mod size;
mod views;
pub(crate) mod walk;
mod window;
mod window_plan;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, Projection};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerContext, OptimizerRule};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::sql::sqlparser::ast;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::{TableDef, ViewDef};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::source::Connectors;

use self::context::Names;
use self::graph::GraphBuilder;
use self::physical::Steps;
use self::scan::Scans;
use self::views::Versions;
use crate::materialized::MaterializedView;
use crate::statement::{Query, Statement};
use crate::system::{self, Asker};
use savanna_streams_functions::session;

pub(crate) use parameters::bind;
pub(crate) use refuse::function_forms;
pub use refuse::function_names;

/// The tables and views that a query may name. Names are case-sensitive.
pub trait Catalog: Send + Sync {
    /// A table.
    fn table(&self, name: &str) -> Option<TableDef>;
    /// A view.
    fn view(&self, name: &str) -> Option<ViewDef>;
    /// A materialized view.
    fn materialized(&self, _name: &str) -> Option<Arc<dyn MaterializedView>> {
        None
    }
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
        let plan = self.analyzed(query).map_err(|e| self.placed(e, query))?;
        Ok(Arc::new(plan.schema().as_arrow().clone()))
    }

    /// The columns of a view, under its own names for them.
    ///
    /// # Errors
    /// As [`Planner::output_schema`], or the view names another number of columns.
    pub fn view_schema(&self, view: &ViewDef) -> Result<SchemaRef> {
        self.view_columns(view, &crate::parse::parse_query(&view.query)?)
    }

    /// As [`Planner::view_schema`], of a view whose query is known.
    ///
    /// # Errors
    /// As [`Planner::view_schema`].
    pub fn view_columns(&self, view: &ViewDef, query: &Query) -> Result<SchemaRef> {
        let schema = match self.reads_views(query) {
            true => self.over_views_schema(query)?,
            false => self.output_schema(query)?,
        };
        let columns = schema.fields();
        if view.columns.is_empty() {
            let mut names = HashSet::new();
            return match columns.iter().find(|column| !names.insert(column.name())) {
                Some(twice) => Err(StreamError::invalid(format!(
                    "view {} has two columns {}; give one of them another name with AS",
                    view.name,
                    twice.name()
                ))),
                None => Ok(schema),
            };
        }
        if view.columns.len() != columns.len() {
            return Err(StreamError::invalid(format!(
                "the view {} names {} of its columns, but its query has {}; name all or none",
                view.name,
                view.columns.len(),
                columns.len()
            )));
        }
        let renamed = columns.iter().zip(&view.columns).map(|(f, name)| f.as_ref().clone().with_name(name));
        Ok(Arc::new(Schema::new(renamed.collect::<Vec<_>>())))
    }

    /// Whether a query reads materialized views and nothing else, so that it has an answer at once.
    pub fn reads_views(&self, query: &Query) -> bool {
        views::reads_them_alone(&query.ast, self.catalog.as_ref())
    }

    /// The answer to a query for the row of a key of a materialized view; none if it asks for something else.
    ///
    /// # Errors
    /// The view cannot be read.
    pub fn look_up(&self, query: &Query) -> Result<Option<RecordBatch>> {
        views::look_up(&query.ast, self.catalog.as_ref())
    }

    /// The plan of a query over materialized views, as their rows are now.
    ///
    /// # Errors
    /// The query names what does not exist or is none of DataFusion's, or a view cannot be read.
    pub fn over_views(&self, query: &Query) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.typed_over_views(query)?;
        let plan = futures::executor::block_on(session().create_physical_plan(&plan));
        let plan = plan.and_then(views::may_be_interrupted);
        plan.map_err(|e| errors::map(&e, Some(query), self.catalog.as_ref()))
    }

    /// The columns of the answer to a query over materialized views.
    ///
    /// # Errors
    /// As [`Planner::over_views`].
    pub fn over_views_schema(&self, query: &Query) -> Result<SchemaRef> {
        Ok(Arc::new(self.typed_over_views(query)?.schema().as_arrow().clone()))
    }

    /// How a query over materialized views is answered.
    ///
    /// # Errors
    /// As [`Planner::over_views`].
    pub fn explain_over_views(&self, query: &Query) -> Result<String> {
        if self.look_up(query)?.is_some() {
            return Ok("the row of a key of a materialized view, by its index\n".into());
        }
        Ok(displayable(self.over_views(query)?.as_ref()).indent(false).to_string())
    }

    fn typed_over_views(&self, query: &Query) -> Result<LogicalPlan> {
        let (catalog, versions) = (self.catalog.as_ref(), Versions::default());
        let plan = Names::new(catalog).over(&versions).plan(query).and_then(size::check).and_then(analyze);
        plan.map_err(|e| errors::map(&e, Some(query), catalog))
    }

    /// The columns of the answer to a question about the system tables; none if a query asks about streams.
    ///
    /// # Errors
    /// The question names what does not exist, or has a form that is not answered.
    pub fn system_schema(&self, query: &Query, asker: &Asker) -> Result<Option<SchemaRef>> {
        if !system::is_asked(query, self.catalog.as_ref()) {
            return Ok(None);
        }
        system::columns(query, &self.world(asker)).map(Some)
    }

    /// The answer to a question about the system tables (`pg_catalog`, `information_schema`); none if a query asks about
    /// streams.
    ///
    /// # Errors
    /// As [`Planner::system_schema`].
    pub fn system(&self, query: &Query, asker: &Asker) -> Result<Option<RecordBatch>> {
        if !system::is_asked(query, self.catalog.as_ref()) {
            return Ok(None);
        }
        system::answer(query, &self.world(asker)).map(Some)
    }

    fn world<'a>(&self, asker: &'a Asker) -> system::World<'a> {
        let relation = |name: String| {
            if let Some(table) = self.catalog.table(&name) {
                return Some(system::Relation::table(table));
            }
            if let Some(view) = self.catalog.materialized(&name) {
                return Some(system::Relation::materialized(name, view.query().to_owned(), &view.schema()));
            }
            let view = self.catalog.view(&name)?;
            // One whose tables are gone has no columns that are known.
            let schema = self.view_schema(&view).unwrap_or_else(|_| Arc::new(Schema::empty()));
            Some(system::Relation::view(name, view.query, &schema))
        };
        let relations = self.catalog.names().into_iter().filter_map(relation).collect();
        system::World::new(relations, asker)
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
        self.computed(query).map_err(|e| self.placed(e, query))
    }

    fn computed(&self, query: &Query) -> Result<Option<RecordBatch>> {
        match &self.analyzed(query)? {
            LogicalPlan::Projection(projection) if is_nothing(&projection.input) => computed(projection).map(Some),
            _ => Ok(None),
        }
    }

    fn plan_columns(&self, query: &Query, sink: Option<&TableDef>, columns: &[String]) -> Result<StageGraph> {
        if sink.is_some() && self.reads_views(query) {
            return Err(StreamError::Unsupported {
                what: "a query that runs on over materialized views".into(),
                position: None,
                instead: "read what their queries read, or have a query write the rows to a table and read that".into(),
            });
        }
        self.stages(query, sink, columns).map_err(|e| self.placed(e, query))
    }

    fn stages(&self, query: &Query, sink: Option<&TableDef>, columns: &[String]) -> Result<StageGraph> {
        let mut plan = self.analyzed(query)?;
        if let Some(sink) = sink {
            plan = insert::coerce(plan, sink, columns, &|at| refuse::item(query, at))?;
        }
        let scans = Scans { catalog: self.catalog.as_ref(), connectors: self.connectors.as_ref() };
        let plan = conditions_in_joins(plan).map_err(|e| errors::map(&e, Some(query), self.catalog.as_ref()))?;
        GraphBuilder::new(scans, query).build(&plan, sink)
    }

    /// Gives an error its place in the query, if it has none and comes from one expression.
    fn placed(&self, error: StreamError, query: &Query) -> StreamError {
        let of_one_expression = matches!(
            error,
            StreamError::Invalid { position: None, .. }
                | StreamError::Unsupported { position: None, .. }
                | StreamError::Unknown { position: None, .. }
        );
        if !of_one_expression {
            return error;
        }
        let fails = |sql: &ast::Query| self.type_check(sql).err().map(|failure| failure.at(None));
        let place = culprit::find(&query.ast, &error, &fails);
        error.at(place)
    }

    /// Plans a query as far as its expressions have types and its constants values.
    fn type_check(&self, sql: &ast::Query) -> Result<()> {
        let catalog = self.catalog.as_ref();
        let plan = Names::new(catalog).unchecked(sql.clone()).and_then(size::check).and_then(analyze);
        let plan = plan.map_err(|e| errors::map(&e, None, catalog))?;
        let LogicalPlan::Projection(projection) = plan else { return Ok(()) };
        if is_nothing(&projection.input) {
            return computed(&projection).map(drop);
        }
        let schema = projection.input.schema();
        let check = |expr: &Expr| physical::check(&expression::simplify(expr.clone(), schema)?, schema);
        projection.expr.iter().try_for_each(check)
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

/// Whether a plan reads no table.
fn is_nothing(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::EmptyRelation(_))
}

/// The row that a projection over nothing computes.
fn computed(projection: &Projection) -> Result<RecordBatch> {
    let empty = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let one_row = RecordBatch::try_new_with_options(Arc::clone(&empty), vec![], &options)
        .map_err(|e| StreamError::Internal(e.to_string()))?;
    let names: Vec<String> = projection.schema.fields().iter().map(|f| f.name().clone()).collect();
    let simple = |expr: &Expr| expression::simplify(expr.clone(), projection.input.schema());
    let columns = projection.expr.iter().map(simple).collect::<Result<Vec<_>>>()?;
    let steps = Steps::over(empty).project(columns.iter().zip(names.iter().map(String::as_str)))?;
    steps.run(&one_row)
}

/// Gives every expression its types.
fn analyze(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    conditions::check(&plan)?;
    let plan = arithmetic::checked(decimals::beside_doubles(plan)?)?;
    let typed = Analyzer::new().execute_and_check(plan.clone(), session().config_options(), |_, _| {})?;
    casts::bounded(days::checked(&plan, typed)?)
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
