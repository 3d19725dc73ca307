//! A branch of a query as one step: filters and projections, all written over the columns of what is below them.
//!
//! Views, subqueries and CTEs pile projections on projections. Here they are substituted into each other, until every
//! output column and every condition is one expression over the base: a table as its connector reads it, or the output
//! of a windowed aggregate. What is pushed down, computed before a window or after it is then a matter of sorting
//! expressions.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, TableReference};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::WINDOW_COLUMNS;
use savanna_streams_model::time::Windows;
use savanna_streams_model::{Position, Result, StreamError};

use super::context::StreamTable;
use super::errors::column_position;
use super::window::WindowNode;

/// The qualifier of a base's columns.
pub(super) const BASE: &str = "@base";
/// The qualifier of the window's columns before the window is there.
pub(super) const WINDOW: &str = "@window";
/// Views that use each other's columns twice can double an expression at every level.
const EXPRESSION_NODES_MAX: usize = 100_000;

/// Filters and projections over one base.
#[derive(Clone, Debug)]
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
    Aggregate(Box<WindowedAggregate>),
}

/// A window over a chain.
#[derive(Clone, Debug)]
pub(super) struct Window {
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

/// `GROUP BY window_start, window_end, keys` over a windowed chain.
#[derive(Clone, Debug)]
pub(super) struct WindowedAggregate {
    /// Its filters are those that do not touch the window; its columns do not matter any more.
    pub(super) input: Chain,
    /// The keys: name, expression over the table's columns.
    pub(super) keys: Vec<(String, Expr)>,
    /// The aggregates: name, expression over the table's columns.
    pub(super) aggregates: Vec<(String, Expr)>,
}

impl Chain {
    /// The chain that a plan is, or none if it joins, unites or aggregates more than once.
    ///
    /// # Errors
    /// The plan holds what streams do not do.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let Some(table) = scan.source.downcast_ref::<StreamTable>() else {
                    return Ok(None);
                };
                let columns = scan.projected_schema.fields().iter().map(|f| base_column(f.name())).collect();
                let base = Base::Table(table.table.clone());
                Ok(Some(Self { base, window: None, columns, filters: Vec::new() }))
            }
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input),
            LogicalPlan::Projection(projection) => {
                let Some(mut chain) = Self::of(&projection.input)? else {
                    return Ok(None);
                };
                let schema = projection.input.schema();
                chain.columns =
                    projection.expr.iter().map(|e| chain.over_base(e.clone(), schema)).collect::<Result<_>>()?;
                Ok(Some(chain))
            }
            LogicalPlan::Filter(filter) => {
                let Some(mut chain) = Self::of(&filter.input)? else {
                    return Ok(None);
                };
                let condition = chain.over_base(filter.predicate.clone(), filter.input.schema())?;
                chain.filters.extend(split_conjunction_owned(condition));
                Ok(Some(chain))
            }
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<WindowNode>() {
                Some(node) => Self::windowed(node),
                None => Ok(None),
            },
            LogicalPlan::Aggregate(aggregate) => Self::aggregated(aggregate),
            LogicalPlan::Join(_) | LogicalPlan::Union(_) | LogicalPlan::Distinct(Distinct::All(_)) => Ok(None),
            LogicalPlan::EmptyRelation(_) => Err(unsupported("SELECT without FROM", None, "select from a table")),
            LogicalPlan::Sort(_) => Err(unsupported("ORDER BY", None, "leave it out")),
            LogicalPlan::Limit(_) => Err(unsupported("LIMIT", None, "stop the query when there are enough rows")),
            LogicalPlan::Unnest(_) => Err(unsupported("UNNEST", None, "pick elements by index")),
            LogicalPlan::Window(_) => Err(unsupported("OVER", None, "use a windowed aggregate over TUMBLE or HOP")),
            other => Err(unsupported(
                &format!("{} in a stream", other.display()),
                None,
                "use filters, projections and windowed aggregates",
            )),
        }
    }

    /// An expression over the plan's columns as one over the base's.
    fn over_base(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        let substituted = expr.transform_up(|e| match &e {
            Expr::Column(column) => {
                let index = schema.index_of_column(column)?;
                Ok(Transformed::yes(self.columns[index].clone()))
            }
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

    fn windowed(node: &WindowNode) -> Result<Option<Self>> {
        let place = first_column_position(std::slice::from_ref(&node.time));
        let Some(mut chain) = Self::of(&node.input)? else {
            return Err(unsupported("a window over a join or union", place, "apply TUMBLE or HOP to a table or view"));
        };
        if chain.window.is_some() || matches!(chain.base, Base::Aggregate(_)) {
            return Err(unsupported(
                "a window over the result of a window",
                place,
                "use one window of the larger size over the table",
            ));
        }
        let over_base = |e: &Expr| chain.over_base(e.clone(), node.input.schema());
        let time = over_base(&node.time)?;
        let partition = node.partition.iter().map(over_base).collect::<Result<_>>()?;
        let filters_before = chain.filters.len();
        chain.window = Some(Window { time, windows: node.windows, partition, filters_before, place });
        chain.columns.extend(WINDOW_COLUMNS.map(|name| Expr::Column(Column::new(Some(WINDOW), name))));
        Ok(Some(chain))
    }

    fn aggregated(aggregate: &Aggregate) -> Result<Option<Self>> {
        let Some(chain) = Self::of(&aggregate.input)? else {
            return Ok(None);
        };
        if matches!(chain.base, Base::Aggregate(_)) {
            return Ok(None);
        }
        let place = first_column_position(&aggregate.group_expr);
        if chain.window.is_none() {
            let what = if aggregate.aggr_expr.is_empty() { "DISTINCT or GROUP BY" } else { "an aggregate" };
            return Err(unsupported(
                &format!("{what} over a stream without a window"),
                place,
                "group by window_start, window_end over TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' SECOND))",
            ));
        }
        let schema = aggregate.input.schema();
        let over_base = |e: &Expr| chain.over_base(e.clone(), schema);
        let group: Vec<Expr> = aggregate.group_expr.iter().map(over_base).collect::<Result<_>>()?;
        if !group.iter().any(is_window_column) {
            return Err(unsupported(
                "an aggregate over a windowed stream that is not grouped by the window",
                place,
                "add window_start and window_end to GROUP BY",
            ));
        }
        let mut names = UniqueNames::default();
        WINDOW_COLUMNS.iter().for_each(|n| drop(names.take(n)));
        let mut keys = Vec::new();
        let mut columns = Vec::new();
        for (expr, original) in group.into_iter().zip(&aggregate.group_expr) {
            match touches(&expr) {
                Touches { base: false, window: false } => columns.push(expr),
                Touches { base: false, window: true } => columns.push(requalify(expr)?),
                Touches { base: true, window: false } => {
                    let name = names.take(&step_name(original));
                    columns.push(base_column(&name));
                    keys.push((name, expr));
                }
                Touches { base: true, window: true } => {
                    return Err(unsupported(
                        "a grouping expression that mixes window columns with others",
                        first_column_position(std::slice::from_ref(original)),
                        "group by the columns themselves and compute above the aggregate",
                    ));
                }
            }
        }
        let mut aggregates = Vec::new();
        for original in &aggregate.aggr_expr {
            let expr = over_base(original)?;
            if touches(&expr).window {
                return Err(unsupported(
                    "an aggregate of window columns",
                    first_column_position(std::slice::from_ref(original)),
                    "window columns are the same in all rows of a window; use them beside the aggregate",
                ));
            }
            let name = names.take(&step_name(original));
            columns.push(base_column(&name));
            aggregates.push((name, expr));
        }
        chain.check_session(&keys, place)?;
        let (input, filters) = chain.split_filters()?;
        let base = Base::Aggregate(Box::new(WindowedAggregate { input, keys, aggregates }));
        Ok(Some(Self { base, window: None, columns, filters }))
    }

    /// A session is found by the rows and keys that its aggregate sees, so both must be the same.
    fn check_session(&self, keys: &[(String, Expr)], place: Option<Position>) -> Result<()> {
        let Some(Window { windows: Windows::Session { .. }, partition, filters_before, .. }) = &self.window else {
            return Ok(());
        };
        let same = partition.iter().all(|column| keys.iter().any(|(_, key)| key == column))
            && keys.iter().all(|(_, key)| partition.contains(key));
        if !same {
            return Err(unsupported(
                "an aggregate of sessions by other columns than those of PARTITION BY",
                place,
                "write SESSION(TABLE t PARTITION BY (a, b), ..) and GROUP BY window_start, window_end, a, b",
            ));
        }
        if self.filters[*filters_before..].iter().any(|filter| touches(filter).base) {
            return Err(unsupported(
                "a condition on the rows of sessions",
                place,
                "put it before SESSION, which then forgets those rows: SESSION((SELECT .. WHERE ..) ..) or a view; or behind \
                 each aggregate, which then leaves sessions as they are: FILTER (WHERE ..)",
            ));
        }
        Ok(())
    }

    /// Conditions on window columns go above the aggregate: they decide on whole groups.
    fn split_filters(mut self) -> Result<(Self, Vec<Expr>)> {
        let (above, below): (Vec<Expr>, Vec<Expr>) =
            std::mem::take(&mut self.filters).into_iter().partition(|f| touches(f).window);
        if let Some(mixed) = above.iter().find(|f| touches(f).base) {
            return Err(unsupported(
                "a condition that compares window columns with others below an aggregate",
                first_column_position(std::slice::from_ref(mixed)),
                "move it to FILTER (WHERE ..) without window columns, or above the aggregate",
            ));
        }
        self.filters = below;
        let above = above.into_iter().map(requalify).collect::<Result<_>>()?;
        Ok((self, above))
    }
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

fn is_window_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(c) if c.relation.as_ref().is_some_and(|r| r.table() == WINDOW))
}

/// Window columns before the window are base columns after it.
fn requalify(expr: Expr) -> Result<Expr> {
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

/// A plan that DataFusion made does not hold together: a bug, not the user's mistake.
#[expect(clippy::needless_pass_by_value, reason = "used as a function in map_err")]
pub(super) fn broken(error: DataFusionError) -> StreamError {
    match &error {
        DataFusionError::External(inner) if inner.is::<StreamError>() => {
            inner.downcast_ref::<StreamError>().cloned().unwrap_or(StreamError::Cancelled)
        }
        other => StreamError::Internal(other.strip_backtrace()),
    }
}

/// A short name for a key or aggregate between two stages.
fn step_name(expr: &Expr) -> String {
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
