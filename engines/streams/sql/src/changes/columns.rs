//! What the columns mean that reach a stage, whatever their places and names are: by which columns of which tables they are computed, and how.
//!
//! Two plans are looked at with one [`Meanings`], so that what means the same has one number in both. Nothing is said of what cannot be compared,
//! such as a step that is neither a filter nor a projection.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{Column as ColumnExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::plan::{Leaf, PlanBytes};
use savanna_streams_model::time::Windows;

/// The number of a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Meaning(usize);

/// What a column means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Means {
    /// A column or field of a table.
    Read(Read),
    /// An expression over columns, encoded.
    Computed { expression: Vec<u8>, of: Vec<Meaning> },
    /// What an aggregate makes of columns, encoded, without what comes to it.
    Aggregated { function: Vec<u8>, of: Vec<Meaning> },
    /// A column of a look-up's table beside a row that is looked up by these.
    LookedUp { column: Meaning, by: Vec<Meaning> },
    /// A column that leaves a stage with such windows, which is made of these, one for each stage that sends to it.
    OfWindows { stage: StageId, windows: Windows, of: Vec<Meaning> },
    /// One of the columns of a window.
    Window { stage: StageId, windows: Windows, column: usize },
    /// A column of a stage that is the same in both plans, with everything on the way to it.
    Leaves { stage: StageId, column: usize },
}

/// A column or field of a table that a stage reads, or of the table of one of its look-ups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    pub(super) stage: StageId,
    pub(super) lookup: Option<usize>,
    pub(super) path: Vec<String>,
    /// Of a `ROW`, fields that nobody reads are left out.
    pub(super) data_type: DataType,
}

/// A column of some rows.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) meaning: Meaning,
    pub(super) field: FieldRef,
    /// Where it is read, if it is.
    read: Option<Read>,
}

/// The numbers of all meanings.
#[derive(Debug)]
pub(super) struct Meanings<'f> {
    functions: &'f TaskContext,
    numbers: HashMap<Means, Meaning>,
}

impl<'f> Meanings<'f> {
    pub(super) fn new(functions: &'f TaskContext) -> Self {
        Self { functions, numbers: HashMap::new() }
    }

    pub(super) fn decode(&self, plan: &PlanBytes) -> Option<Arc<dyn ExecutionPlan>> {
        plan.decode(self.functions).ok()
    }

    pub(super) fn number(&mut self, means: Means) -> Meaning {
        let next = Meaning(self.numbers.len());
        *self.numbers.entry(means).or_insert(next)
    }

    /// A column of a table.
    pub(super) fn read(&mut self, stage: StageId, lookup: Option<usize>, field: &FieldRef) -> Column {
        let (path, data_type) = (vec![field.name().clone()], field.data_type().clone());
        self.reading(Read { stage, lookup, path, data_type }, field)
    }

    fn reading(&mut self, read: Read, field: &FieldRef) -> Column {
        Column { meaning: self.number(Means::Read(read.clone())), field: Arc::clone(field), read: Some(read) }
    }

    /// A column that something else than an expression gives.
    pub(super) fn given(&mut self, means: Means, field: &FieldRef) -> Column {
        Column { meaning: self.number(means), field: Arc::clone(field), read: None }
    }

    /// The columns that filters and projections give, and the conditions of the filters, in the order of the data.
    pub(super) fn chain(&mut self, chain: &PlanBytes, over: Vec<Column>) -> Option<(Vec<Column>, Vec<Meaning>)> {
        let plan = self.decode(chain)?;
        let (mut steps, mut at) = (Vec::new(), Some(&plan));
        while let Some(step) = at {
            steps.push(step);
            at = step.children().first().copied();
        }
        let (mut columns, mut filters) = (over, Vec::new());
        for step in steps.into_iter().rev() {
            if let Some(projection) = step.downcast_ref::<ProjectionExec>() {
                let computed = projection.expr().iter().map(|column| self.computed(&column.expr, &columns));
                columns = computed.collect::<Option<_>>()?;
            } else if let Some(filter) = step.downcast_ref::<FilterExec>()
                && filter.projection().is_none()
            {
                filters.push(self.computed(filter.predicate(), &columns)?.meaning);
            } else if !step.is::<Leaf>() {
                return None;
            }
        }
        Some((columns, filters))
    }

    /// What an expression over columns gives.
    pub(super) fn computed(&mut self, expr: &Arc<dyn PhysicalExpr>, columns: &[Column]) -> Option<Column> {
        let mut used = Vec::new();
        let expr = self.over_used(expr, columns, &mut used)?;
        if expr.is::<ColumnExpr>() {
            return used.pop();
        }
        let schema = schema_of(&used);
        let (data_type, nullable) = (expr.data_type(&schema).ok()?, expr.nullable(&schema).ok()?);
        let leaf = Arc::new(Leaf::new(0, schema));
        let projection = ProjectionExec::try_new(vec![(expr, VALUE.to_owned())], leaf).ok()?;
        let plan: Arc<dyn ExecutionPlan> = Arc::new(projection);
        let (expression, of) = (PlanBytes::encode(&plan).ok()?.0, meanings(&used));
        let field = Arc::new(Field::new(VALUE, data_type, nullable));
        Some(self.given(Means::Computed { expression, of }, &field))
    }

    /// What an aggregate makes of columns.
    pub(super) fn aggregated(
        &mut self,
        function: &AggregateFunctionExpr,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        columns: &[Column],
    ) -> Option<Meaning> {
        let mut used = Vec::new();
        let arguments = function.expressions();
        let arguments = arguments.iter().map(|argument| self.over_used(argument, columns, &mut used));
        let arguments = arguments.collect::<Option<Vec<_>>>()?;
        let order = function.order_bys().iter().map(|by| {
            Some(PhysicalSortExpr { expr: self.over_used(&by.expr, columns, &mut used)?, options: by.options })
        });
        let order = order.collect::<Option<Vec<_>>>()?;
        let filter = match filter {
            Some(filter) => Some(self.over_used(filter, columns, &mut used)?),
            None => None,
        };
        let schema = schema_of(&used);
        let function = AggregateExprBuilder::new(Arc::new(function.fun().clone()), arguments)
            .order_by(order)
            .schema(Arc::clone(&schema))
            .alias(VALUE)
            .with_ignore_nulls(function.ignore_nulls())
            .with_distinct(function.is_distinct())
            .with_reversed(function.is_reversed())
            .build();
        let (functions, keys) = (vec![Arc::new(function.ok()?)], PhysicalGroupBy::new_single(Vec::new()));
        let leaf = Arc::new(Leaf::new(0, Arc::clone(&schema)));
        let exec = AggregateExec::try_new(AggregateMode::Single, keys, functions, vec![filter], leaf, schema).ok()?;
        let plan: Arc<dyn ExecutionPlan> = Arc::new(exec);
        let (function, of) = (PlanBytes::encode(&plan).ok()?.0, meanings(&used));
        Some(self.number(Means::Aggregated { function, of }))
    }

    /// An expression over columns as one over those that it uses, in the order in which it does.
    fn over_used(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        columns: &[Column],
        used: &mut Vec<Column>,
    ) -> Option<Arc<dyn PhysicalExpr>> {
        let mut is_known = true;
        let over_used = Arc::clone(expr).transform_down(|expr| {
            let column = match expr.downcast_ref::<ColumnExpr>() {
                Some(column) => {
                    is_known &= column.index() < columns.len();
                    columns.get(column.index()).cloned()
                }
                None => self.field(&expr, columns),
            };
            let Some(column) = column else { return Ok(Transformed::no(expr)) };
            let place = used.iter().position(|known| known.meaning == column.meaning).unwrap_or_else(|| {
                used.push(column);
                used.len() - 1
            });
            let column: Arc<dyn PhysicalExpr> = Arc::new(ColumnExpr::new(&name_of(place), place));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        });
        over_used.ok().filter(|_| is_known).map(|expr| expr.data)
    }

    /// A field of a column that is read, which is one however many other fields are read beside it.
    fn field(&mut self, expr: &Arc<dyn PhysicalExpr>, columns: &[Column]) -> Option<Column> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.name() == "get_field")?;
        let (of, names) = call.args().split_first()?;
        let of = match of.downcast_ref::<ColumnExpr>() {
            Some(column) => columns.get(column.index())?.clone(),
            None => self.field(of, columns)?,
        };
        let (mut read, mut field) = (of.read?, of.field);
        for name in names {
            let name = name.downcast_ref::<Literal>()?.value().try_as_str()??.to_owned();
            let DataType::Struct(fields) = field.data_type() else { return None };
            let (_, inner) = fields.find(&name)?;
            let nullable = field.is_nullable() || inner.is_nullable();
            field = Arc::new(inner.as_ref().clone().with_nullable(nullable));
            read.path.push(name);
        }
        read.data_type = field.data_type().clone();
        Some(self.reading(read, &field))
    }
}

/// The name of what is computed, whatever it is called in a plan.
const VALUE: &str = "value";

fn name_of(place: usize) -> String {
    format!("c{place}")
}

fn schema_of(used: &[Column]) -> Arc<Schema> {
    let field = |(place, column): (usize, &Column)| column.field.as_ref().clone().with_name(name_of(place));
    Arc::new(Schema::new(used.iter().enumerate().map(field).collect::<Vec<_>>()))
}

fn meanings(columns: &[Column]) -> Vec<Meaning> {
    columns.iter().map(|column| column.meaning).collect()
}
