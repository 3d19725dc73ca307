//! `TUMBLE`, `HOP`, `CUMULATE` and `SESSION`: table functions that append the window's columns.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, DFSchemaRef, DataFusionError, Result, TableReference};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, ExprSchemable, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Spanned, TableFactor,
};
use savanna_streams_api::StreamError;
use savanna_streams_model::graph::WINDOW_COLUMNS;
use savanna_streams_model::time::{WindowSpec, Windows};

use super::context::external;
use super::expression::interval_micros;
use crate::parse::{PARTITION_BY, position};
use savanna_streams_api::type_name;

/// The window functions by name, whether there are such or not.
pub(super) const WINDOW_FUNCTIONS: [&str; 4] = ["TUMBLE", "HOP", "CUMULATE", "SESSION"];

/// Rows with the columns of their windows at the end. A row of a hopping window comes out once per window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WindowNode {
    pub(super) input: Arc<LogicalPlan>,
    /// The event time.
    pub(super) time: Expr,
    pub(super) windows: Windows,
    /// The columns whose values have sessions of their own; none for other windows.
    pub(super) partition: Vec<Expr>,
    schema: DFSchemaRef,
}

impl WindowNode {
    fn try_new(input: LogicalPlan, time: Expr, windows: Windows, partition: Vec<Expr>) -> Result<Self> {
        let time_type = time.get_type(input.schema())?;
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> =
            input.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
        let qualifier = fields.first().and_then(|(q, _)| q.clone());
        for name in WINDOW_COLUMNS {
            fields.push((qualifier.clone(), Arc::new(Field::new(name, time_type.clone(), false))));
        }
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(Self { input: Arc::new(input), time, windows, partition, schema })
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, _: &Self) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &'static str {
        "Window"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        std::iter::once(&self.time).chain(&self.partition).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window: {:?}", self.windows)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let partition = exprs.split_off(exprs.len().min(1));
        match (exprs.pop(), inputs.pop()) {
            (Some(time), Some(input)) => Self::try_new(input, time, self.windows, partition),
            _ => datafusion::common::internal_err!("a window takes its event time and one input"),
        }
    }
}

/// Plans `TABLE(TUMBLE(..))` and `TUMBLE(..)` in `FROM`.
#[derive(Debug)]
pub(super) struct WindowFunctions;

impl RelationPlanner for WindowFunctions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (name, args, alias) = match &relation {
            TableFactor::TableFunction { expr: ast::Expr::Function(function), alias } => match &function.args {
                FunctionArguments::List(list) => (&function.name, &list.args, alias),
                _ => return Ok(RelationPlanning::Original(Box::new(relation))),
            },
            TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        let call = Call::new(name, args)?;
        let input = context.plan(call.data()?)?;
        let windows = call.windows()?;
        let time = call.time()?;
        let place = position(time.span().start);
        let time_name = time.to_string();
        for taken in WINDOW_COLUMNS {
            if input.schema().has_column_with_unqualified_name(taken) {
                return Err(external(StreamError::Unsupported {
                    what: "a window over rows that already have window columns".into(),
                    position: call.place,
                    instead: format!("apply {} to the table itself, or rename {taken}", call.name),
                }));
            }
        }
        let time = context.sql_to_expr(time, input.schema())?;
        let time_type = time.get_type(input.schema()).map_err(|e| match e {
            e @ DataFusionError::SchemaError(..) => e,
            other => other.context("time column of a window"),
        })?;
        if !matches!(time_type, DataType::Timestamp(..)) {
            return Err(external(StreamError::Invalid {
                message: format!(
                    "the time column of a window must be of type TIMESTAMP, but {time_name} is {}",
                    type_name(&time_type)
                ),
                position: place,
            }));
        }
        let time = time.unalias_nested().data;
        let partition = call.partition()?.into_iter().map(|column| context.sql_to_expr(column, input.schema()));
        let partition = partition.map(|e| Ok(e?.unalias_nested().data)).collect::<Result<_>>()?;
        let node = WindowNode::try_new(input, time, windows, partition)?;
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

fn is_partition_by(arg: &FunctionArg) -> bool {
    matches!(arg, FunctionArg::Named { name, .. } if name.value == PARTITION_BY)
}

/// A table, view or CTE by name.
pub(super) fn table_factor(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// A call of a window function, its arguments in their places.
struct Call {
    name: String,
    place: Option<savanna_streams_api::Position>,
    parameters: &'static [&'static str],
    arguments: Vec<Option<ast::Expr>>,
}

impl Call {
    fn new(name: &ObjectName, args: &[FunctionArg]) -> Result<Self> {
        let place = position(name.span().start);
        let name = name.to_string().to_ascii_uppercase();
        let parameters: &[&str] = match name.as_str() {
            "TUMBLE" => &["DATA", "TIMECOL", "SIZE", "OFFSET"],
            "HOP" => &["DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"],
            "CUMULATE" => &["DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"],
            "SESSION" => &["DATA", "TIMECOL", "GAP", PARTITION_BY],
            _ => {
                return Err(external(StreamError::Unknown {
                    kind: "table function".into(),
                    name,
                    position: place,
                    hint: "the table functions are TUMBLE, HOP, CUMULATE and SESSION".into(),
                }));
            }
        };
        let mut call = Self { name, place, parameters, arguments: vec![None; parameters.len()] };
        // PARTITION BY belongs to the first argument and does not count.
        let mut i = 0;
        for arg in args {
            call.take(i, arg)?;
            i += usize::from(!is_partition_by(arg));
        }
        Ok(call)
    }

    fn take(&mut self, i: usize, arg: &FunctionArg) -> Result<()> {
        let (slot, value) = match arg {
            FunctionArg::Unnamed(value) => {
                let most = self.parameters.iter().filter(|p| **p != PARTITION_BY).count();
                if i >= most {
                    return Err(self.wrong(&format!("takes at most {most} arguments")));
                }
                (i, value)
            }
            FunctionArg::Named { name, arg, .. } => {
                let slot = self.parameters.iter().position(|p| name.value.eq_ignore_ascii_case(p));
                let slot = slot.ok_or_else(|| {
                    self.wrong(&format!(
                        "has no parameter {}; the parameters are {}",
                        name.value,
                        self.parameters.join(", ")
                    ))
                })?;
                (slot, arg)
            }
            FunctionArg::ExprNamed { .. } => {
                return Err(self.wrong("has an argument that cannot be read"));
            }
        };
        let FunctionArgExpr::Expr(value) = value else {
            return Err(self.wrong("takes no *"));
        };
        if self.arguments[slot].replace(value.clone()).is_some() {
            return Err(self.wrong(&format!("is given {} twice", self.parameters[slot])));
        }
        Ok(())
    }

    fn argument(&self, parameter: &str) -> Option<&ast::Expr> {
        let slot = self.parameters.iter().position(|p| *p == parameter)?;
        self.arguments[slot].as_ref()
    }

    fn required(&self, parameter: &str) -> Result<&ast::Expr> {
        self.argument(parameter).ok_or_else(|| self.wrong(&format!("lacks {parameter}")))
    }

    fn wrong(&self, what: &str) -> DataFusionError {
        let form = match self.name.as_str() {
            "TUMBLE" => "TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' SECOND)",
            "SESSION" => "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(c), INTERVAL '10' MINUTE)",
            "CUMULATE" => "CUMULATE(TABLE t, DESCRIPTOR(c), INTERVAL '1' HOUR, INTERVAL '1' DAY), step before size",
            _ => "HOP(TABLE t, DESCRIPTOR(c), INTERVAL '2' SECOND, INTERVAL '10' SECOND), slide before size",
        };
        external(StreamError::Invalid { message: format!("{} {what}; write {form}", self.name), position: self.place })
    }

    /// The rows: a table, view or CTE by name, or a query in parentheses.
    fn data(&self) -> Result<TableFactor> {
        let parts = match self.required("DATA")? {
            ast::Expr::Identifier(ident) => vec![ident.clone()],
            ast::Expr::CompoundIdentifier(parts) => parts.clone(),
            ast::Expr::Subquery(query) => {
                return Ok(TableFactor::Derived { lateral: false, subquery: query.clone(), alias: None, sample: None });
            }
            _ => return Err(self.wrong("takes a table first")),
        };
        Ok(table_factor(ObjectName::from(parts)))
    }

    /// `DESCRIPTOR(c)`, or `c` alone.
    fn time(&self) -> Result<ast::Expr> {
        let time = self.required("TIMECOL")?;
        let column = match time {
            ast::Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("DESCRIPTOR") => match &f.args {
                FunctionArguments::List(list) => match list.args.as_slice() {
                    [FunctionArg::Unnamed(FunctionArgExpr::Expr(column))] => column,
                    _ => return Err(self.wrong("takes one column in DESCRIPTOR(..)")),
                },
                _ => return Err(self.wrong("takes one column in DESCRIPTOR(..)")),
            },
            column => column,
        };
        match column {
            ast::Expr::Identifier(Ident { .. }) | ast::Expr::CompoundIdentifier(_) => Ok(column.clone()),
            _ => Err(self.wrong("takes a column as its second argument")),
        }
    }

    /// The columns of `PARTITION BY k` or `PARTITION BY (k, l)`.
    fn partition(&self) -> Result<Vec<ast::Expr>> {
        let columns = match self.argument(PARTITION_BY) {
            None => Vec::new(),
            Some(ast::Expr::Tuple(columns)) => columns.clone(),
            Some(ast::Expr::Nested(column)) => vec![column.as_ref().clone()],
            Some(column) => vec![column.clone()],
        };
        if columns.iter().all(|c| matches!(c, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_))) {
            return Ok(columns);
        }
        Err(self.wrong("takes columns in PARTITION BY"))
    }

    fn windows(&self) -> Result<Windows> {
        let length = |parameter: &str| -> Result<i64> {
            let sql = self.required(parameter)?;
            interval_micros(sql, &format!("{} of {}", parameter, self.name)).map_err(|error| {
                external(match error {
                    StreamError::Invalid { message, .. } => {
                        StreamError::Invalid { message, position: position(sql.span().start).or(self.place) }
                    }
                    other => other,
                })
            })
        };
        if self.name == "SESSION" {
            let gap = length("GAP")?;
            if gap <= 0 {
                return Err(self.wrong("needs a gap longer than zero"));
            }
            return Ok(Windows::Session { gap });
        }
        let size = length("SIZE")?;
        let window = match self.name.as_str() {
            "TUMBLE" => WindowSpec::tumble(size),
            "HOP" => WindowSpec::hop(length("SLIDE")?, size),
            _ => WindowSpec::cumulate(length("STEP")?, size),
        };
        if size <= 0 || window.slide() <= 0 || window.step() <= 0 {
            return Err(self.wrong("needs intervals longer than zero"));
        }
        if window.slide() > size {
            return Err(self.wrong("has a slide longer than its size, so that some rows are in no window"));
        }
        if size % window.step() != 0 {
            return Err(self.wrong("needs a size that is a multiple of its step"));
        }
        let offset = if self.argument("OFFSET").is_some() { length("OFFSET")? } else { 0 };
        Ok(Windows::Fixed(window.shifted(offset.rem_euclid(window.slide()))))
    }
}
