//! A plan from the bottom up, as what the stages of a query can be made of.
//!
//! ```text
//!   filter, project, UNION ALL         -> into the branches
//!   TUMBLE, HOP ..                     -> into the branches, which remember it
//!   aggregate of rows in windows       -> a branch over a windowed aggregate
//!   join, aggregate, ROW_NUMBER .. of windows   -> a region: a plan over each closed window
//!   join within bounds of time, look-up         -> a branch over pairs of rows
//! ```

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Aggregate, Distinct, Extension, Join, LogicalPlan};
use savanna_streams_api::{Result, StreamError};

use super::aggregate;
use super::chain::{Base, Chain, broken, first_column_position, is_window_column, unsupported};
use super::context::StreamTable;
use super::join::{IntervalJoin, Lookup};
use super::point_in_time::PointInTime;
use super::region::{self, Region, Scope};
use super::window::WindowNode;

/// The rows of a plan.
#[derive(Clone)]
pub(super) enum Relation {
    /// Those of all these chains together.
    Rows(Vec<Chain>),
    /// Those that a plan gives for each window.
    Windows(Box<Region>),
}

impl Relation {
    fn windows(region: Region) -> Self {
        Self::Windows(Box::new(region))
    }

    /// The relation that a plan is.
    ///
    /// # Errors
    /// The plan holds what streams do not do.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Self> {
        match plan {
            LogicalPlan::TableScan(scan) => match scan.source.downcast_ref::<StreamTable>() {
                Some(table) => {
                    let all = Chain::over(Base::Table(table.table.clone()));
                    let fields = scan.projected_schema.fields().iter();
                    let columns = fields.map(|f| super::chain::base_column(f.name())).collect();
                    Ok(Self::Rows(vec![Chain { columns, ..all }]))
                }
                None => Err(StreamError::Internal(format!("{} is no table of a stream", scan.table_name))),
            },
            LogicalPlan::SubqueryAlias(alias) => match Self::of(&alias.input)? {
                Self::Windows(region) => region.under(plan).map(Self::windows),
                rows => Ok(rows),
            },
            LogicalPlan::Projection(projection) => match Self::of(&projection.input)? {
                Self::Windows(region) => region.project(plan, projection).map(Self::windows),
                Self::Rows(chains) => {
                    let schema = projection.input.schema();
                    Self::each(chains, |chain| chain.project(&projection.expr, schema))
                }
            },
            LogicalPlan::Filter(filter) => match Self::of(&filter.input)? {
                Self::Windows(region) => region.under(plan).map(Self::windows),
                Self::Rows(chains) => {
                    let schema = filter.input.schema();
                    Self::each(chains, |chain| chain.filter(&filter.predicate, schema))
                }
            },
            LogicalPlan::Extension(extension) => match (window(extension), point_in_time(plan)) {
                (Some(node), _) => Self::each(Self::of(&node.input)?.chains()?, |chain| chain.put_in_windows(node)),
                (None, Some(point)) => Err(unsupported(
                    "FOR SYSTEM_TIME AS OF outside of a JOIN",
                    point.place(),
                    "write stream JOIN table FOR SYSTEM_TIME AS OF stream.p ON ..",
                )),
                (None, None) => Err(StreamError::Internal(format!("{} is no part of a stream", extension.node.name()))),
            },
            LogicalPlan::Union(union) => {
                let mut chains = Vec::new();
                for input in &union.inputs {
                    chains.extend(Self::of(input)?.chains()?);
                }
                Ok(Self::Rows(chains))
            }
            LogicalPlan::Aggregate(aggregate) => Self::aggregate(plan, aggregate),
            LogicalPlan::Join(join) => Self::join(join),
            LogicalPlan::Window(over) => {
                let input = Self::of(&over.input)?;
                if !input.in_windows() {
                    return Err(unsupported(
                        "OVER on a stream without windows",
                        first_column_position(&over.window_expr),
                        "put the rows in windows (TUMBLE, HOP) and add window_start and window_end to PARTITION BY",
                    ));
                }
                input.region(&over.input)?.over(plan, over).map(Self::windows)
            }
            LogicalPlan::Distinct(Distinct::All(_)) => {
                Err(StreamError::Internal("DISTINCT that is no aggregate".into()))
            }
            LogicalPlan::EmptyRelation(_) => Err(unsupported("SELECT without FROM", None, "select from a table")),
            LogicalPlan::Sort(_) => Err(unsupported("ORDER BY", None, "leave it out")),
            LogicalPlan::Limit(_) => Err(unsupported("LIMIT", None, "stop the query when there are enough rows")),
            LogicalPlan::Unnest(_) => Err(unsupported("UNNEST", None, "pick elements by index")),
            other => Err(unsupported(
                &format!("{} in a stream", other.display()),
                None,
                "use filters, projections, windowed aggregates and joins",
            )),
        }
    }

    /// The branches; a plan over windows becomes the base of one.
    pub(super) fn chains(self) -> Result<Vec<Chain>> {
        match self {
            Self::Rows(chains) => Ok(chains),
            Self::Windows(region) => Ok(vec![Chain::over(Base::Windows(region.sealed()?.into()))]),
        }
    }

    fn each(chains: Vec<Chain>, step: impl Fn(Chain) -> Result<Chain>) -> Result<Self> {
        chains.into_iter().map(step).collect::<Result<_>>().map(Self::Rows)
    }

    /// Whether all rows belong to windows, told by columns or not.
    fn in_windows(&self) -> bool {
        match self {
            Self::Rows(chains) => chains.iter().all(Chain::in_windows),
            Self::Windows(_) => true,
        }
    }

    /// What the columns say about the window that a row belongs to.
    fn scope(&self) -> Scope {
        match self {
            Self::Windows(region) => region.scope.clone(),
            Self::Rows(chains) => {
                let mut scopes = chains.iter().map(Chain::scope);
                let first = scopes.next().unwrap_or_else(|| Scope::none(0));
                scopes.fold(first, Scope::or)
            }
        }
    }

    /// A stream that is looked up in a table.
    fn look_up(join: &Join, point: &PointInTime) -> Result<Self> {
        let now = |node: LogicalPlan| match point_in_time(&node) {
            Some(point) if matches!(node, LogicalPlan::Extension(_)) => {
                let input = point.input.as_ref().clone();
                Ok(Transformed::new(input, true, TreeNodeRecursion::Jump))
            }
            _ => Ok(Transformed::no(node)),
        };
        let table = join.right.as_ref().clone().transform_down(now).map_err(broken)?.data;
        let mut table = Self::of(&table)?.chains()?;
        let (Some(table), true) = (table.pop(), table.is_empty()) else {
            return Err(no_table(point));
        };
        if !matches!(table.base, Base::Table(_)) || table.window.is_some() {
            return Err(no_table(point));
        }
        let schema = join.left.schema();
        let at = schema.index_of_column(&point.as_of).map_err(|_| StreamError::Unknown {
            kind: "column".into(),
            name: point.as_of.to_string(),
            position: point.place(),
            hint: "FOR SYSTEM_TIME AS OF names a column of the stream that is PROCTIME()".into(),
        })?;
        let streams = Self::of(&join.left)?.chains()?;
        if !streams.iter().all(|stream| stream.is_processing_time(&stream.columns[at])) {
            return Err(unsupported(
                "FOR SYSTEM_TIME AS OF another time than PROCTIME()",
                point.place(),
                "name a column of the stream that is PROCTIME(): SELECT *, PROCTIME() AS p FROM t",
            ));
        }
        Self::each(streams, |stream| Lookup::chain(stream, table.clone(), join))
    }

    /// The rows as the beginning of a plan over each window. `plan` is what they were.
    fn region(self, plan: &LogicalPlan) -> Result<Region> {
        match self {
            Self::Rows(chains) => Region::of(chains, plan),
            Self::Windows(region) => Ok(*region),
        }
    }

    fn aggregate(plan: &LogicalPlan, aggregate: &Aggregate) -> Result<Self> {
        let input = Self::of(&aggregate.input)?;
        let place = first_column_position(&aggregate.group_expr);
        if !input.in_windows() {
            let what = if aggregate.aggr_expr.is_empty() { "DISTINCT or GROUP BY" } else { "an aggregate" };
            return Err(unsupported(
                &format!("{what} over a stream without a window"),
                place,
                "group by window_start, window_end over TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' SECOND))",
            ));
        }
        if let Self::Rows(chains) = &input {
            if let Some(chain) = aggregate::by_panes(chains, aggregate)? {
                return Ok(Self::Rows(vec![chain]));
            }
            if chains.iter().all(|chain| chain.window.is_some()) && !groups_by_window(chains, aggregate)? {
                return Err(unsupported(
                    "an aggregate over a windowed stream that is not grouped by the window",
                    place,
                    "add window_start and window_end to GROUP BY",
                ));
            }
        }
        input.region(&aggregate.input)?.aggregate(plan, aggregate).map(Self::windows)
    }

    fn join(join: &Join) -> Result<Self> {
        if let Some(point) = point_in_time(&join.right) {
            return Self::look_up(join, point);
        }
        let (left, right) = (Self::of(&join.left)?, Self::of(&join.right)?);
        let in_windows = left.in_windows() && right.in_windows();
        if !in_windows || !region::equates_windows(&left.scope(), &right.scope(), join) {
            let joined = IntervalJoin::chain(left.clone().chains()?, right.clone().chains()?, join);
            // Of windows, rather what a join of windows lacks is told.
            if joined.is_ok() || !in_windows {
                return Ok(Self::Rows(vec![joined?]));
            }
        }
        let (left, right) = (left.region(&join.left)?, right.region(&join.right)?);
        Region::join(left, right, join).map(Self::windows)
    }
}

fn window(extension: &Extension) -> Option<&WindowNode> {
    extension.node.as_any().downcast_ref()
}

/// The table at a point in time that a plan reads.
fn point_in_time(plan: &LogicalPlan) -> Option<&PointInTime> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Projection(_) => {
            plan.inputs().first().and_then(|input| point_in_time(input))
        }
        _ => None,
    }
}

fn no_table(point: &PointInTime) -> StreamError {
    unsupported("FOR SYSTEM_TIME AS OF over something that is no table", point.place(), "name a table that ends")
}

fn groups_by_window(chains: &[Chain], aggregate: &Aggregate) -> Result<bool> {
    for expr in &aggregate.group_expr {
        for chain in chains {
            if !is_window_column(&chain.over_base(expr.clone(), aggregate.input.schema())?) {
                continue;
            }
            return Ok(true);
        }
    }
    Ok(false)
}
