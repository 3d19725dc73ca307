//! A branch of a query as one step: filters and projections, all written over the columns of what is below them.
//!
//! Views, subqueries and CTEs pile projections on projections. Here they are substituted into each other, until every
//! output column and every condition is one expression over the base: a table as its connector reads it, or what another
//! stage gives. What is pushed down, computed before a window or after it is then a matter of sorting expressions.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, ScalarValue, TableReference};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use savanna_streams_api::{Position, Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::foreign::{in_sql, is_foreign};
use savanna_streams_model::graph::{PROCESSING_TIME, WINDOW_COLUMNS, with_processing_time};
use savanna_streams_model::time::{WindowSpec, Windows};

use super::aggregate::WindowedAggregate;
use super::context::external;
use super::errors::column_position;
use super::join::{IntervalJoin, Lookup};
use super::region::{Carries, Region, Scope};
use super::window::WindowNode;
use savanna_streams_functions::proctime;

/// The qualifier of a base's columns.
pub(super) const BASE: &str = "@base";
/// The qualifier of the window's columns before the window is there.
pub(super) const WINDOW: &str = "@window";
/// Views that use each other's columns twice can double an expression at every level.
const EXPRESSION_NODES_MAX: usize = 100_000;
/// `window_time` is so far before a window's end (microseconds): windows of whole units keep inside each other.
const WINDOW_TIME_UNIT: i64 = 1_000;

/// Filters and projections over one base.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chain {
    pub(super) base: Base,
    /// The window that a table function put over the base.
    pub(super) window: Option<Window>,
    /// The output columns.
    pub(super) columns: Vec<Expr>,
    /// The conditions, all of which must hold.
    pub(super) filters: Vec<Expr>,
}

/// What a chain reads.
#[derive(Clone, Debug)]
pub(super) enum Base {
    /// A table, by the columns that its connector reads.
    Table(TableDef),
    /// A windowed aggregate, by its keys, aggregates and window columns.
    Aggregate(Arc<WindowedAggregate>),
    /// A plan over each closed window, by its columns.
    Windows(Arc<Region>),
    /// A join of two streams, by the columns of both sides.
    Join(Arc<IntervalJoin>),
    /// A stream whose rows are looked up in a table, by the columns of both.
    Lookup(Arc<Lookup>),
}

impl PartialEq for Base {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Table(a), Self::Table(b)) => a == b,
            (Self::Aggregate(a), Self::Aggregate(b)) => a == b,
            (Self::Windows(a), Self::Windows(b)) => Arc::ptr_eq(a, b),
            (Self::Join(a), Self::Join(b)) => a == b,
            (Self::Lookup(a), Self::Lookup(b)) => a == b,
            _ => false,
        }
    }
}

impl Base {
    /// The columns.
    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            Self::Table(table) => with_processing_time(&table.physical_schema()),
            Self::Aggregate(aggregate) => Arc::clone(&aggregate.schema),
            Self::Windows(region) => region.schema(),
            Self::Join(join) => Arc::clone(&join.pairing.schema),
            Self::Lookup(lookup) => Arc::clone(&lookup.pairing.schema),
        }
    }

    /// What the columns say about the window that a row belongs to.
    fn scope(&self) -> Scope {
        match self {
            Self::Table(_) | Self::Join(_) | Self::Lookup(_) => Scope::none(self.schema().fields().len()),
            Self::Aggregate(aggregate) => aggregate.scope(),
            Self::Windows(region) => region.scope.clone(),
        }
    }
}

/// A window over a chain.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// What the event time is called.
    pub(super) name: String,
    /// The event time over the base's columns.
    pub(super) time: Expr,
    /// The windows.
    pub(super) windows: Windows,
    /// The columns of the base whose values have sessions of their own.
    pub(super) partition: Vec<Expr>,
    /// How many of the chain's filters came before the window: those behind it do not shape sessions.
    pub(super) filters_before: usize,
    /// Where it is in the user's text.
    pub(super) place: Option<Position>,
}

/// Where a window stands in the text makes no difference.
impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        let what = |w: &Self| (w.windows, w.filters_before);
        what(self) == what(other) && self.time == other.time && self.partition == other.partition
    }
}

impl Chain {
    /// All columns of a base.
    pub(super) fn over(base: Base) -> Self {
        let columns = base.schema().fields().iter().map(|f| base_column(f.name())).collect();
        Self { base, window: None, columns, filters: Vec::new() }
    }

    /// Computes columns from the chain's, which are called as in `schema`.
    pub(super) fn project(mut self, exprs: &[Expr], schema: &DFSchema) -> Result<Self> {
        self.columns = exprs.iter().map(|e| self.over_base(e.clone(), schema)).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Keeps the rows for which a condition over the chain's columns holds.
    pub(super) fn filter(mut self, condition: &Expr, schema: &DFSchema) -> Result<Self> {
        let condition = self.over_base(condition.clone(), schema)?;
        self.filters.extend(split_conjunction_owned(condition));
        Ok(self)
    }

    /// Whether all rows belong to windows, told by columns or not.
    pub(super) fn in_windows(&self) -> bool {
        self.window.is_some() || matches!(self.base, Base::Aggregate(_) | Base::Windows(_))
    }

    /// Puts a window over the rows.
    ///
    /// # Errors
    /// The rows are in windows already, or the time is not the event time of a windowed result. (For a table, that is
    /// checked when its scan is planned.)
    pub(super) fn put_in_windows(mut self, node: &WindowNode) -> Result<Self> {
        let place = first_column_position(std::slice::from_ref(&node.time));
        if self.window.is_some() {
            return Err(unsupported(
                "a window over rows that are in windows already",
                place,
                "aggregate the inner windows first, with window_time in GROUP BY and SELECT, and put the outer window over it",
            ));
        }
        let time = self.over_base(node.time.clone(), node.input.schema())?;
        if !matches!(self.base, Base::Table(_)) {
            self.check_time(&time, node, place)?;
        }
        let name = match (super::scan::field_path(&time), &node.time) {
            (Some(mut path), _) => path.0.pop().unwrap_or_default(),
            (None, Expr::Column(column)) => column.name.clone(),
            _ => "time".to_owned(),
        };
        let partition = node.partition.iter().map(|e| self.over_base(e.clone(), node.input.schema()));
        let partition = partition.collect::<Result<_>>()?;
        let filters_before = self.filters.len();
        self.window = Some(Window { name, time, windows: node.windows, partition, filters_before, place });
        self.columns.extend(WINDOW_COLUMNS.map(window_column));
        Ok(self)
    }

    /// The event time of rows that windows gave is the time of those windows.
    fn check_time(&self, time: &Expr, node: &WindowNode, place: Option<Position>) -> Result<()> {
        if matches!(self.base, Base::Join(_) | Base::Lookup(_)) {
            return self.check_joined_time(time, place);
        }
        let scope = self.base.scope();
        let schema = self.base.schema();
        let at = match time {
            Expr::Column(column) => schema.index_of(&column.name).ok(),
            _ => None,
        };
        let carried = at.and_then(|at| scope.columns.get(at).copied().flatten());
        if !matches!(carried, Some(Carries::Time | Carries::End)) {
            return Err(StreamError::Invalid {
                message: "a window over the result of windows must use their window_time as its time column; add window_time to the inner GROUP BY and SELECT".into(),
                position: place,
            });
        }
        let in_units = at.is_some_and(|at| {
            matches!(schema.field(at).data_type(), DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, _))
        });
        let whole = |windows: &Windows| match windows {
            Windows::Fixed(spec) => spec.pane() % WINDOW_TIME_UNIT == 0 && spec.offset() % WINDOW_TIME_UNIT == 0,
            Windows::Session { gap } => gap % WINDOW_TIME_UNIT == 0 && in_units,
        };
        if !scope.windows.iter().chain([&node.windows]).all(whole) {
            return Err(unsupported(
                "a window over windows of parts of milliseconds",
                place,
                "use whole milliseconds and TIMESTAMP(3)",
            ));
        }
        Ok(())
    }

    /// The event time of joined rows is that of a side.
    fn check_joined_time(&self, time: &Expr, place: Option<Position>) -> Result<()> {
        let is_time = |clock: &Clock| clock.of_rows && clock.lag(time) == Some(0);
        if self.is_processing_time(time) || self.clocks()?.iter().any(is_time) {
            return Ok(());
        }
        Err(StreamError::Invalid {
            message: "a window over a join must use an event time of one of its sides, the one that bounds the join where two streams are joined".into(),
            position: place,
        })
    }

    /// The ways to tell the event time of the rows.
    pub(super) fn clocks(&self) -> Result<Vec<Clock>> {
        let of_rows = |time: Expr| Clock { columns: vec![(time, 0)], of_rows: true };
        let mut clocks = match &self.base {
            Base::Table(table) => super::scan::event_time(table)?.map(of_rows).into_iter().collect(),
            Base::Join(join) => join.times().map(|name| of_rows(base_column(name))).collect(),
            Base::Lookup(lookup) => lookup.clocks()?,
            Base::Aggregate(_) | Base::Windows(_) => Vec::new(),
        };
        let (columns, windows) = match &self.window {
            Some(window) => {
                let columns = WINDOW_COLUMNS.map(|name| (window_column(name), Carries::of(name)));
                (columns.to_vec(), vec![window.windows])
            }
            None => {
                let (scope, schema) = (self.base.scope(), self.base.schema());
                let columns = schema.fields().iter().map(|field| base_column(field.name())).zip(scope.columns);
                (columns.collect(), scope.windows)
            }
        };
        let lag = |carried| match carried {
            Carries::End => Some(0),
            Carries::Time => Some(WINDOW_TIME_UNIT),
            Carries::Start => {
                let mut sizes = windows.iter().map(|w| w.fixed().filter(|s| s.has_one_size()).map(WindowSpec::size));
                let first = sizes.next()??;
                sizes.all(|size| size == Some(first)).then_some(first)
            }
        };
        let columns: Vec<(Expr, i64)> =
            columns.into_iter().filter_map(|(expr, carried)| Some((expr, lag(carried?)?))).collect();
        if !columns.is_empty() {
            clocks.push(Clock { columns, of_rows: false });
        }
        Ok(clocks)
    }

    /// Whether an expression over the base is `PROCTIME()`.
    pub(super) fn is_processing_time(&self, expr: &Expr) -> bool {
        match (&self.base, expr) {
            (Base::Table(_), expr) => *expr == base_column(PROCESSING_TIME),
            (Base::Lookup(lookup), Expr::Column(column)) => lookup.is_processing_time(&column.name),
            _ => false,
        }
    }

    /// The columns of the base that the chain reads.
    pub(super) fn reads(&self) -> BTreeSet<String> {
        let window = self.window.iter().flat_map(|window| window.partition.iter().chain([&window.time]));
        let exprs = self.columns.iter().chain(&self.filters).chain(window);
        exprs.flat_map(Expr::column_refs).map(|column| column.name.clone()).collect()
    }

    /// What the chain's columns say about the window that a row belongs to.
    pub(super) fn scope(&self) -> Scope {
        let (below, windows) = match &self.window {
            Some(window) => (Scope::none(0), vec![window.windows]),
            None => {
                let below = self.base.scope();
                let windows = below.windows.clone();
                (below, windows)
            }
        };
        let schema = self.base.schema();
        let carried = |expr: &Expr| match expr {
            Expr::Column(c) if is_window_column(expr) => Carries::of(&c.name),
            Expr::Column(c) => schema.index_of(&c.name).ok().and_then(|at| below.columns.get(at).copied().flatten()),
            _ => None,
        };
        Scope::new(self.columns.iter().map(carried).collect(), windows)
    }

    /// The columns of the base, and those of the window that is put over it.
    pub(super) fn schema(&self) -> Result<DFSchemaRef> {
        let base = self.base.schema();
        let qualified =
            |qualifier: &str, field: &Arc<Field>| (Some(TableReference::bare(qualifier)), Arc::clone(field));
        let mut fields: Vec<_> = base.fields().iter().map(|field| qualified(BASE, field)).collect();
        if let Some(window) = &self.window {
            let time_type = window.time.get_type(super::physical::base_schema(&base)?.as_ref()).map_err(broken)?;
            fields.extend(
                WINDOW_COLUMNS.map(|name| qualified(WINDOW, &Arc::new(Field::new(name, time_type.clone(), false)))),
            );
        }
        DFSchema::new_with_metadata(fields, Default::default()).map(Arc::new).map_err(broken)
    }

    /// An expression over the plan's columns as one over the base's.
    pub(super) fn over_base(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        let substituted = expr.transform_up(|e| match &e {
            Expr::Column(column) => {
                let index = schema.index_of_column(column)?;
                Ok(Transformed::yes(self.columns[index].clone()))
            }
            call if proctime::is_call(call) => match self.base {
                Base::Table(_) => Ok(Transformed::yes(base_column(PROCESSING_TIME))),
                _ => Err(external(of_a_result())),
            },
            _ => Ok(Transformed::no(e)),
        });
        let expr = substituted.map_err(broken)?.data.unalias_nested().data.unalias();
        let mut nodes = 0_usize;
        expr.apply(|_| {
            nodes += 1;
            Ok(if nodes > EXPRESSION_NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
        .map_err(broken)?;
        if nodes > EXPRESSION_NODES_MAX {
            return Err(StreamError::Limit {
                message: format!(
                    "an expression grows beyond {EXPRESSION_NODES_MAX} parts when views are expanded; simplify the views"
                ),
            });
        }
        Ok(expr)
    }
}

/// A way to tell the event time of rows: columns that say it, and how much later than each it is, in microseconds. No row to
/// come has an earlier time than the watermark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clock {
    columns: Vec<(Expr, i64)>,
    /// Whether it is each row's own time, not that of its window.
    pub(super) of_rows: bool,
}

impl Clock {
    pub(super) fn new(columns: Vec<(Expr, i64)>, of_rows: bool) -> Self {
        Self { columns, of_rows }
    }

    /// What the time is later than an expression, if the expression says it.
    pub(super) fn lag(&self, expr: &Expr) -> Option<i64> {
        self.columns.iter().find(|(column, _)| column == expr).map(|(_, lag)| *lag)
    }

    /// The time itself.
    pub(super) fn time(&self) -> Option<Expr> {
        let (column, lag) = self.columns.iter().min_by_key(|(_, lag)| *lag)?;
        let length = lit(ScalarValue::new_interval_mdn(0, 0, lag.saturating_mul(1_000)));
        Some(if *lag == 0 { column.clone() } else { column.clone() + length })
    }
}

/// `PROCTIME()` where no table is read.
pub(super) fn of_a_result() -> StreamError {
    unsupported("PROCTIME() of a result", None, "take it where a table is read: SELECT *, PROCTIME() AS p FROM t")
}

/// A column of the base.
pub(super) fn base_column(name: &str) -> Expr {
    Expr::Column(Column::new(Some(BASE), name))
}

/// Which kinds of columns an expression reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touches {
    pub(super) base: bool,
    pub(super) window: bool,
}

/// Which kinds of columns an expression reads.
pub(super) fn touches(expr: &Expr) -> Touches {
    let mut found = Touches::default();
    for column in expr.column_refs() {
        match column.relation.as_ref().map(TableReference::table) {
            Some(WINDOW) => found.window = true,
            _ => found.base = true,
        }
    }
    found
}

/// A column of the window before the window is there.
pub(super) fn window_column(name: &str) -> Expr {
    Expr::Column(Column::new(Some(WINDOW), name))
}

pub(super) fn is_window_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(c) if c.relation.as_ref().is_some_and(|r| r.table() == WINDOW))
}

/// Window columns before the window are base columns after it.
pub(super) fn requalify(expr: Expr) -> Result<Expr> {
    let renamed = expr.transform_up(|e| match e {
        Expr::Column(c) if c.relation.as_ref().is_some_and(|r| r.table() == WINDOW) => {
            Ok(Transformed::yes(base_column(&c.name)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(renamed.map_err(broken)?.data)
}

/// The first place in the user's text that some expressions know of.
pub(super) fn first_column_position(exprs: &[Expr]) -> Option<Position> {
    let mut places: Vec<Position> = exprs
        .iter()
        .flat_map(|e| e.column_refs().into_iter().filter_map(column_position).collect::<Vec<_>>())
        .collect();
    places.sort_by_key(|p| (p.line, p.column));
    places.first().copied()
}

pub(super) fn unsupported(what: &str, position: Option<Position>, instead: &str) -> StreamError {
    StreamError::Unsupported { what: what.into(), position, instead: instead.into() }
}

/// A plan that DataFusion made does not hold together: a bug, not the user's mistake, unless DataFusion says that it cannot
/// do something.
#[expect(clippy::needless_pass_by_value, reason = "used as a function in map_err")]
pub(super) fn broken(error: DataFusionError) -> StreamError {
    match error.find_root() {
        DataFusionError::NotImplemented(text) => {
            let text = in_sql(text);
            if text.starts_with("there is no ") {
                return StreamError::invalid(text);
            }
            let what = text.strip_prefix("Unsupported ").unwrap_or(&text);
            let what = if is_foreign(what) { "this expression" } else { what };
            StreamError::invalid(format!("{what} is not supported; write the expression in another way"))
        }
        DataFusionError::External(inner) if inner.is::<StreamError>() => {
            inner.downcast_ref::<StreamError>().cloned().unwrap_or(StreamError::Cancelled)
        }
        _ => StreamError::Internal(error.strip_backtrace()),
    }
}

/// A short name for a key or aggregate between two stages.
pub(super) fn step_name(expr: &Expr) -> String {
    match expr {
        Expr::Column(column) => column.name.clone(),
        Expr::Alias(alias) => step_name(&alias.expr),
        Expr::AggregateFunction(call) => {
            let args: Vec<String> = call.params.args.iter().map(step_name).collect();
            let distinct = if call.params.distinct { "distinct " } else { "" };
            let args = if args.is_empty() || args == ["constant"] { "*".to_owned() } else { args.join(", ") };
            format!("{}({distinct}{args})", call.func.name())
        }
        Expr::Cast(cast) => step_name(&cast.expr),
        Expr::Literal(..) => "constant".into(),
        _ => "expression".into(),
    }
}

/// Hands out names once.
#[derive(Default)]
pub(super) struct UniqueNames(std::collections::HashSet<String>);

impl UniqueNames {
    /// The name itself, or with a number behind it.
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut number = 1;
        while !self.0.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        name
    }
}
