//! What DataFusion's planner asks for: tables, views, functions, and our hooks into it.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, DFSchema, DataFusionError, Result, TableReference};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::sql::planner::{NullOrdering, ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast;
use savanna_streams_api::StreamError;
use savanna_streams_model::catalog::{TableDef, ViewDef};

use super::conditions::Operands;
use super::fields::RowFields;
use super::keywords::{Joined, Keywords};
use super::point_in_time::PointsInTime;
use super::size::Mentions;
use super::views::Versions;
use super::window::WindowFunctions;
use super::{Catalog, dialect, group_windows, names, refuse};
use crate::statement::Query;
use savanna_streams_functions::{functions, session, with_bounds};

/// Views may use views, up to this depth.
const VIEW_DEPTH_MAX: usize = 32;

static EXPR_PLANNERS: LazyLock<Vec<Arc<dyn ExprPlanner>>> = LazyLock::new(|| {
    let mut planners: Vec<Arc<dyn ExprPlanner>> =
        vec![Arc::new(RowFields), Arc::new(Keywords), Arc::new(Joined), Arc::new(Operands)];
    planners.extend(SessionState::expr_planners(session()).iter().map(Arc::clone));
    planners
});
static RELATION_PLANNERS: LazyLock<[Arc<dyn RelationPlanner>; 2]> =
    LazyLock::new(|| [Arc::new(PointsInTime), Arc::new(WindowFunctions)]);

/// The names that a query may use.
pub(super) struct Names<'a> {
    catalog: &'a dyn Catalog,
    functions: Arc<TaskContext>,
    /// The views being expanded, outermost first.
    views: Vec<String>,
    mentions: Mentions,
    /// Whether parameters have no values yet.
    open: bool,
    /// The rows of the materialized views that are read, if no streams are.
    versions: Option<&'a Versions>,
}

impl<'a> Names<'a> {
    pub(super) fn new(catalog: &'a dyn Catalog) -> Self {
        Self {
            catalog,
            functions: functions(),
            views: Vec::new(),
            mentions: Mentions::default(),
            open: false,
            versions: None,
        }
    }

    /// The same, for a query over materialized views.
    pub(super) fn over(self, versions: &'a Versions) -> Self {
        Self { versions: Some(versions), ..self }
    }

    /// The same, for a query whose parameters have no values yet.
    pub(super) fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// The logical plan of a query, as written.
    pub(super) fn plan(&self, query: &Query) -> Result<LogicalPlan> {
        let mut sql = query.ast.clone();
        names::give(&mut sql, self.views.is_empty()).map_err(external)?;
        let ends = self.versions.is_some();
        if !ends {
            group_windows::rewrite(&mut sql).map_err(external)?;
        }
        refuse::check(&sql, refuse::About { open: self.open, ends })?;
        dialect::rewrite(&mut sql).map_err(external)?;
        let statement = ast::Statement::Query(sql);
        let plan = SqlToRel::new_with_options(self, options(self.views.is_empty())).sql_statement_to_plan(statement)?;
        bounded(plan)
    }

    /// The logical plan of a query whose constructs are not looked at.
    pub(super) fn unchecked(&self, mut sql: ast::Query) -> Result<LogicalPlan> {
        names::give(&mut sql, false).map_err(external)?;
        dialect::rewrite(&mut sql).map_err(external)?;
        let statement = ast::Statement::Query(Box::new(sql));
        SqlToRel::new_with_options(self, options(false)).sql_statement_to_plan(statement)
    }

    /// An expression over some columns.
    pub(super) fn expression(&self, mut sql: ast::Expr, schema: &DFSchema) -> Result<Expr> {
        dialect::rewrite(&mut sql).map_err(external)?;
        let expr =
            SqlToRel::new_with_options(self, options(false)).sql_to_expr(sql, schema, &mut PlannerContext::new())?;
        with_bounds(expr).map(|expr| expr.data)
    }

    /// The rows of a table, computed columns included.
    pub(super) fn table(&self, table: &TableDef) -> Result<LogicalPlan> {
        let source = Arc::new(StreamTable { table: table.clone(), schema: table.physical_schema() });
        let scan = LogicalPlanBuilder::scan(TableReference::bare(table.name.as_str()), source, None)?;
        if table.columns.iter().all(|c| c.computed.is_none()) {
            return scan.build();
        }
        let columns: Vec<Expr> = table
            .columns
            .iter()
            .map(|column| match &column.computed {
                None => Ok(Expr::Column(Column::new(Some(table.name.as_str()), &column.name))),
                Some(text) => {
                    let sql = crate::parse::parse_expression(text).map_err(external)?;
                    Ok(self.expression(sql, scan.schema())?.alias(&column.name))
                }
            })
            .collect::<Result<_>>()?;
        scan.project(columns)?.build()
    }

    fn view(&self, view: &ViewDef) -> Result<LogicalPlan> {
        if self.views.contains(&view.name) || self.views.len() >= VIEW_DEPTH_MAX {
            return Err(external(StreamError::invalid(format!(
                "view {} uses itself, by way of {}; drop one of them",
                view.name,
                self.views.join(", ")
            ))));
        }
        let mut views = self.views.clone();
        views.push(view.name.clone());
        let (functions, mentions) = (Arc::clone(&self.functions), self.mentions.clone());
        let (catalog, versions) = (self.catalog, self.versions);
        let inner = Names { catalog, functions, views, mentions, open: false, versions };
        let plan = crate::parse::parse_query(&view.query)
            .map_err(external)
            .and_then(|query| {
                inner.plan(&query).map_err(|e| external(super::errors::map(&e, Some(&query), self.catalog)))
            })
            .map_err(|e| external(super::errors::in_view(super::errors::map(&e, None, self.catalog), &view.name)))?;
        if view.columns.is_empty() {
            return Ok(plan);
        }
        if view.columns.len() != plan.schema().fields().len() {
            return Err(external(StreamError::invalid(format!(
                "the view {} names {} of its columns, but its query has {}; name all or none",
                view.name,
                view.columns.len(),
                plan.schema().fields().len()
            ))));
        }
        let columns: Vec<Expr> = plan
            .schema()
            .columns()
            .into_iter()
            .zip(&view.columns)
            .map(|(column, name)| Expr::Column(column).alias(name))
            .collect();
        LogicalPlanBuilder::from(plan).project(columns)?.build()
    }
}

/// Calls that the planner made itself ask for room as well.
fn bounded(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| node.map_expressions(with_bounds))?;
    Ok(plan.data)
}

fn options(spans: bool) -> ParserOptions {
    ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_default_null_ordering(NullOrdering::NullsLast)
        .with_enable_ident_normalization(false)
        .with_collect_spans(spans)
}

/// Carries an error of ours through DataFusion.
pub(super) fn external(error: StreamError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The refusal of a materialized view in a query over streams.
fn beside_streams(view: &str) -> StreamError {
    StreamError::Unsupported {
        what: format!("materialized view {view} beside streams"),
        position: None,
        instead: "select from materialized views alone, or have a query write the rows to a table and read that".into(),
    }
}

/// A table that is read from its connector.
#[derive(Debug)]
pub(super) struct StreamTable {
    pub(super) table: TableDef,
    schema: SchemaRef,
}

impl TableSource for StreamTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A view, or a table with computed columns: a plan by name.
struct Inlined {
    plan: LogicalPlan,
    schema: SchemaRef,
}

impl TableSource for Inlined {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        self.mentions.one_more()?;
        if let TableReference::Bare { table } = &name
            && let Some(view) = self.catalog.materialized(table)
        {
            return match self.versions {
                Some(versions) => versions.of(table, view.as_ref()),
                None => Err(external(beside_streams(table))),
            };
        }
        let plan = match &name {
            TableReference::Bare { table } => match (self.catalog.view(table), self.catalog.table(table)) {
                (Some(view), _) => self.view(&view)?,
                (None, Some(table)) => self.table(&table)?,
                (None, None) => {
                    return Err(external(super::errors::unknown_table(table, None, self.catalog)));
                }
            },
            qualified => {
                return Err(external(super::errors::unknown_table(&qualified.to_string(), None, self.catalog)));
            }
        };
        if let LogicalPlan::TableScan(scan) = &plan {
            return Ok(Arc::clone(&scan.source));
        }
        let schema = Arc::new(plan.schema().as_arrow().clone());
        Ok(Arc::new(Inlined { plan, schema }))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &EXPR_PLANNERS
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        RELATION_PLANNERS.as_slice()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(SqlTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.functions.scalar_functions().get(name).map(Arc::clone)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.functions.higher_order_functions().get(name).map(Arc::clone)
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.functions.aggregate_functions().get(name).map(Arc::clone)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        let is_known = self.versions.is_some() || refuse::RANKING.contains(&name);
        let known = is_known.then(|| self.functions.window_functions().get(name));
        known.flatten().map(Arc::clone)
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        session().config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.functions.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.functions.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.functions.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Casts use the same types as declarations.
#[derive(Debug)]
struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<arrow::datatypes::FieldRef>> {
        match crate::types::data_type(sql_type) {
            Ok(data_type) => Ok(Some(Arc::new(arrow::datatypes::Field::new("", data_type, true)))),
            // An interval or time is no column type, but fine inside an expression.
            Err(_) if matches!(sql_type, ast::DataType::Interval { .. } | ast::DataType::Time(..)) => Ok(None),
            Err(error) => Err(external(error)),
        }
    }
}

/// A catalog with nothing in it.
pub(super) struct NoTables;

impl Catalog for NoTables {
    fn table(&self, _: &str) -> Option<TableDef> {
        None
    }

    fn view(&self, _: &str) -> Option<ViewDef> {
        None
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}
