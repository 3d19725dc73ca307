//! Reading a table: what its connector does for us, and what is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{
    Alignment, LateRows, Lateness, Output, PROCESSING_TIME, ProcessingTime, Scan, Waiting, Watermark,
};
use savanna_streams_model::source::{Connectors, EqualTo, FieldPath, Literal, ScanSpec, Source};
use savanna_streams_model::time::parse_duration;

use super::Catalog;
use super::chain::{BASE, Base, Chain, Window, broken};
use super::context::{Names, NoTables};
use super::expression::simplify;
use super::output::{Target, Work};
use super::physical::Steps;
use super::relation::Relation;
use crate::types::assignable;
use savanna_streams_api::type_name;

/// The option that keeps late rows.
const LATE_DATA: &str = "late-data";

/// The options that say how partitions wait for one another.
const IDLE_TIMEOUT: &str = "scan.watermark.idle-timeout";
const ALIGNMENT_GROUP: &str = "scan.watermark.alignment.group";
const MAX_DRIFT: &str = "scan.watermark.alignment.max-drift";

/// Plans scans of tables.
pub(super) struct Scans<'a> {
    pub(super) catalog: &'a dyn Catalog,
    pub(super) connectors: &'a dyn Connectors,
}

/// A table being read by one chain. All expressions are over the table's physical columns.
struct Reading {
    table: TableDef,
    schema: DFSchemaRef,
    source: Arc<dyn Source>,
    pushed: Vec<EqualTo>,
    /// For each pushed condition, the path that is now a constant.
    constants: Vec<(FieldPath, Expr)>,
    filters: Vec<Expr>,
    watermark: Option<Expr>,
    late: Option<(TableDef, Vec<Expr>)>,
}

/// What waits for the watermark of a scan further on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Nothing,
    /// Windows of event time.
    Windows,
    /// Windows of processing time.
    ClockWindows,
    /// A join of single rows.
    Rows,
}

impl Waits {
    /// What waits for a chain's rows, given what waits for those that leave it.
    pub(super) fn of(chain: &Chain, further: Self) -> Self {
        match &chain.window {
            Some(window) if chain.is_processing_time(&window.time) => Self::ClockWindows,
            Some(_) if further != Self::Rows => Self::Windows,
            _ => further,
        }
    }
}

impl Scans<'_> {
    /// The scan of a chain over a table, its output, and the columns that leave (before an aggregate).
    pub(super) fn plan(&self, chain: &Chain, target: &Target<'_>, further: Waits) -> Result<(Scan, Output, SchemaRef)> {
        let waits = Waits::of(chain, further);
        let mut reading = self.reading(chain, waits)?;
        let window = chain.window.as_ref();
        let settled = Chain {
            base: chain.base.clone(),
            window: window
                .map(|w| Ok::<_, StreamError>(Window { time: reading.settle(w.time.clone())?, ..w.clone() }))
                .transpose()?,
            columns: chain.columns.iter().map(|e| reading.settle(e.clone())).collect::<Result<_>>()?,
            filters: std::mem::take(&mut reading.filters),
        };
        let work = Work::of(settled, &reading.schema, target)?;
        let source = reading.spec(work.exprs())?;
        let mut by_clock = work.exprs().flat_map(Expr::column_refs).any(|column| column.name == PROCESSING_TIME);
        by_clock |= waits == Waits::ClockWindows;
        let processing_time = match waits {
            Waits::ClockWindows => Some(ProcessingTime::Watermark),
            _ => by_clock.then_some(ProcessingTime::Column),
        };
        let mut scan = Scan { source, watermark: None, processing_time };
        let (output, schema) = work.output(scan.schema())?;
        scan.watermark = reading.watermark(&scan.schema())?;
        Ok((scan, output, schema))
    }

    /// Whether a table ends.
    pub(super) fn ends(&self, table: &TableDef) -> Result<bool> {
        Ok(self.connectors.source(table)?.bounded())
    }

    fn reading(&self, chain: &Chain, waits: Waits) -> Result<Reading> {
        let Base::Table(table) = &chain.base else {
            return Err(StreamError::Internal("a scan of something that is no table".into()));
        };
        let schema = chain.schema()?;
        let mut reading = Reading {
            source: self.connectors.source(table)?,
            table: table.clone(),
            schema,
            pushed: Vec::new(),
            constants: Vec::new(),
            filters: Vec::new(),
            watermark: None,
            late: None,
        };
        let columns = self.columns(table)?;
        reading.push_down(&chain.filters)?;
        if waits == Waits::ClockWindows {
            return Ok(reading);
        }
        self.check_time(chain, table, &columns)?;
        if let Some(watermark) = &table.watermark {
            let at = table.columns.iter().position(|c| c.name == watermark.column);
            let time = at.map(|at| columns[at].clone()).ok_or_else(|| no_such_time(table, &watermark.column))?;
            reading.watermark = Some(reading.settle(time)?);
        }
        if waits != Waits::Nothing {
            reading.late = self.late_rows(&reading, &columns)?;
        }
        Ok(reading)
    }

    /// All columns of a table over its physical ones.
    fn columns(&self, table: &TableDef) -> Result<Vec<Expr>> {
        columns(self.catalog, table)
    }

    /// A window counts time by the column that has the watermark.
    fn check_time(&self, chain: &Chain, table: &TableDef, columns: &[Expr]) -> Result<()> {
        let Some(window) = &chain.window else {
            return Ok(());
        };
        let place = super::chain::first_column_position(std::slice::from_ref(&window.time));
        let Some(watermark) = &table.watermark else {
            return Err(StreamError::Invalid {
                message: format!(
                    "a window over table {} needs a watermark, without which it would never close; declare WATERMARK FOR <time column> AS <time column> - INTERVAL '4' SECOND in CREATE TABLE",
                    table.name
                ),
                position: place,
            });
        };
        let at = table.columns.iter().position(|c| c.name == watermark.column);
        if at.is_none_or(|at| columns[at] != window.time) {
            return Err(StreamError::Invalid {
                message: format!(
                    "a window over table {} must use its event-time column {}, which has the watermark",
                    table.name, watermark.column
                ),
                position: place,
            });
        }
        Ok(())
    }

    fn late_rows(&self, reading: &Reading, columns: &[Expr]) -> Result<Option<(TableDef, Vec<Expr>)>> {
        let Some(option) = reading.table.options.get(LATE_DATA) else {
            return Ok(None);
        };
        let wrong = |what: String| {
            StreamError::invalid(format!("'{LATE_DATA}' = '{option}' of table {}: {what}", reading.table.name))
        };
        if option == "drop" {
            return Ok(None);
        }
        let Some(name) = option.strip_prefix("side:") else {
            return Err(wrong("expected 'drop' or 'side:<table>'".into()));
        };
        let Some(side) = self.catalog.table(name) else {
            return Err(wrong(format!("table {name} does not exist; CREATE it with the columns to keep")));
        };
        let mut exprs = Vec::new();
        for column in side.columns.iter().filter(|c| c.computed.is_none()) {
            let from = reading.table.columns.iter().position(|c| c.name == column.name);
            let Some(from) = from else {
                return Err(wrong(format!(
                    "column {} of {name} is not a column of {}",
                    column.name, reading.table.name
                )));
            };
            let have = &reading.table.columns[from].data_type;
            if !assignable(have, &column.data_type) {
                return Err(wrong(format!(
                    "column {} is {} in {} but {} in {name}",
                    column.name,
                    type_name(have),
                    reading.table.name,
                    type_name(&column.data_type)
                )));
            }
            let expr = columns[from].clone().cast_to(&column.data_type, reading.schema.as_ref()).map_err(broken)?;
            exprs.push(reading.settle(expr)?);
        }
        Ok(Some((side, exprs)))
    }
}

impl Reading {
    /// Takes conditions that the source applies out of the filters, and makes their columns constants in the rest.
    fn push_down(&mut self, filters: &[Expr]) -> Result<()> {
        let mut rest = Vec::new();
        for filter in filters {
            rest.extend(split_conjunction_owned(simplify(filter.clone(), &self.schema)?));
        }
        let mut kept = Vec::new();
        for filter in rest {
            match self.comparison(&filter)? {
                Some((condition, constant))
                    if !self.pushed.iter().any(|p| p.path == condition.path) && self.source.pushes_down(&condition) =>
                {
                    self.constants.push((condition.path.clone(), constant));
                    self.pushed.push(condition);
                }
                _ => kept.push(filter),
            }
        }
        for filter in kept {
            let filters = split_conjunction_owned(self.settle(filter)?);
            self.filters.extend(filters.into_iter().filter(|f| *f != lit(true)));
        }
        Ok(())
    }

    /// `path = constant`, and the constant in the path's type.
    fn comparison(&self, filter: &Expr) -> Result<Option<(EqualTo, Expr)>> {
        let (path, value) = match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (left.as_ref(), right.as_ref()) {
                (path, Expr::Literal(value, _)) | (Expr::Literal(value, _), path) => (path.clone(), value.clone()),
                _ => return Ok(None),
            },
            Expr::Not(path) => (path.as_ref().clone(), ScalarValue::Boolean(Some(false))),
            Expr::Column(_) | Expr::ScalarFunction(_) => (filter.clone(), ScalarValue::Boolean(Some(true))),
            _ => return Ok(None),
        };
        let Some(fields) = field_path(&path) else {
            return Ok(None);
        };
        let path_type = path.get_type(self.schema.as_ref()).map_err(broken)?;
        let literal = match &value {
            ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) => {
                Literal::Text(text.clone())
            }
            ScalarValue::Boolean(Some(truth)) => Literal::Boolean(*truth),
            value if value.data_type().is_integer() => match value.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(Some(number))) => Literal::Integer(number),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Ok(constant) = value.cast_to(&path_type) else {
            return Ok(None);
        };
        Ok(Some((EqualTo { path: fields, value: literal }, lit(constant))))
    }

    /// Puts the pushed constants into an expression and simplifies it.
    fn settle(&self, expr: Expr) -> Result<Expr> {
        let replaced = expr.transform_down(|e| {
            let path = if self.constants.is_empty() { None } else { field_path(&e) };
            match path.and_then(|path| self.constants.iter().find(|(p, _)| *p == path)) {
                Some((_, constant)) => Ok(Transformed::new(constant.clone(), true, TreeNodeRecursion::Jump)),
                None => Ok(Transformed::no(e)),
            }
        });
        simplify(replaced.map_err(broken)?.data, &self.schema)
    }

    /// The scan that reads what these expressions, the watermark and late rows need.
    fn spec<'e>(&'e self, exprs: impl Iterator<Item = &'e Expr>) -> Result<ScanSpec> {
        let mut paths = BTreeSet::new();
        let late = self.late.iter().flat_map(|(_, exprs)| exprs);
        for expr in exprs.chain(&self.watermark).chain(late) {
            expr.apply(|e| {
                if let Some(path) = field_path(e) {
                    if path.0 != [PROCESSING_TIME] {
                        paths.insert(path);
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .map_err(broken)?;
        }
        let whole = |path: &FieldPath| (1..path.0.len()).any(|n| paths.contains(&FieldPath(path.0[..n].to_vec())));
        let mut columns: Vec<FieldPath> = paths.iter().filter(|p| !whole(p)).cloned().collect();
        let physical = self.table.physical_schema();
        if columns.is_empty() {
            // A batch without columns has no rows to count in some formats.
            columns.extend(physical.fields().first().map(|f| FieldPath(vec![f.name().clone()])));
        }
        columns.sort_by_key(|p| (physical.index_of(&p.0[0]).unwrap_or(usize::MAX), p.clone()));
        Ok(ScanSpec { table: self.table.clone(), columns, equal_to: self.pushed.clone() })
    }

    /// Where the watermark comes from, over the columns of the scan. Which rows are late shows when the output is complete.
    fn watermark(self, schema: &SchemaRef) -> Result<Option<Watermark>> {
        let (Some(time), Some(def)) = (&self.watermark, &self.table.watermark) else {
            return Ok(None);
        };
        let time = Steps::over(Arc::clone(schema)).project([(time, def.column.as_str())])?.encode()?;
        let late_rows = self
            .late
            .map(|(table, exprs)| {
                let fields = table.physical_schema();
                let names = fields.fields().iter().map(|f| f.name().as_str());
                let projection = Steps::over(Arc::clone(schema)).project(exprs.iter().zip(names))?.encode()?;
                Ok::<_, StreamError>(LateRows { table, projection })
            })
            .transpose()?;
        let (delay, waiting) = (def.delay, waiting(&self.table)?);
        Ok(Some(Watermark { time, delay, lateness: Lateness::Never, late_rows, waiting }))
    }
}

/// A length of time that an option of a table says.
pub(super) fn length(table: &TableDef, option: &str) -> Result<Option<Duration>> {
    let Some(text) = table.options.get(option) else { return Ok(None) };
    let length = parse_duration(text).filter(|length| i64::try_from(length.as_micros()).is_ok());
    length.map(Some).ok_or_else(|| {
        StreamError::invalid(format!(
            "'{option}' of table {}: expected a length of time such as '250ms', '10s' or '5min', got '{text}'",
            table.name
        ))
    })
}

/// How the partitions of a table wait for one another, by its options.
fn waiting(table: &TableDef) -> Result<Waiting> {
    let length = |option: &str| {
        Ok::<_, StreamError>(length(table, option)?.map(|length| i64::try_from(length.as_micros()).unwrap_or(i64::MAX)))
    };
    let alignment = match (table.options.get(ALIGNMENT_GROUP), length(MAX_DRIFT)?) {
        (group, Some(max_drift)) => Some(Alignment { group: group.unwrap_or(&table.name).clone(), max_drift }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(StreamError::invalid(format!(
                "table {} has '{ALIGNMENT_GROUP}', but not '{MAX_DRIFT}', which says how far partitions may be apart",
                table.name
            )));
        }
    };
    Ok(Waiting { idle_after: length(IDLE_TIMEOUT)?, alignment })
}

/// All columns of a table over its physical ones.
fn columns(catalog: &dyn Catalog, table: &TableDef) -> Result<Vec<Expr>> {
    let plan = Names::new(catalog).table(table).and_then(super::analyze);
    let plan = plan.map_err(|e| super::errors::map(&e, None, catalog))?;
    match Relation::of(&plan)?.chains()?.pop() {
        Some(chain) => Ok(chain.columns),
        None => Err(StreamError::Internal(format!("table {} is no chain", table.name))),
    }
}

/// The column of a table that has the watermark, over its physical columns.
pub(super) fn event_time(table: &TableDef) -> Result<Option<Expr>> {
    let Some(watermark) = &table.watermark else {
        return Ok(None);
    };
    let at = table.columns.iter().position(|c| c.name == watermark.column);
    let at = at.ok_or_else(|| no_such_time(table, &watermark.column))?;
    Ok(Some(columns(&NoTables, table)?.swap_remove(at)))
}

fn no_such_time(table: &TableDef, column: &str) -> StreamError {
    StreamError::invalid(format!("table {} has a watermark for {column}, which is not one of its columns", table.name))
}

/// The path that an expression is: a column, or fields of `ROW` columns.
pub(super) fn field_path(expr: &Expr) -> Option<FieldPath> {
    match expr {
        Expr::Column(column) if column.relation.as_ref().is_some_and(|r| r.table() == BASE) => {
            Some(FieldPath(vec![column.name.clone()]))
        }
        Expr::ScalarFunction(call) if call.func.name() == "get_field" => {
            let (of, names) = call.args.split_first()?;
            let mut path = field_path(of)?;
            for name in names {
                let Expr::Literal(name, _) = name else {
                    return None;
                };
                path.0.push(name.try_as_str()??.to_owned());
            }
            Some(path)
        }
        _ => None,
    }
}
