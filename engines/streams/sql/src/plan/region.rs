//! A region: operators that look at each closed window alone, as one DataFusion plan over leaves.
//!
//! Such a plan gives the right answer only if no row of one window ever meets a row of another. That is proved from the
//! columns that carry the window: an aggregate must group by one of them, a join must equate one of each side, `OVER` must
//! partition by one.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    TableSource, Union, Window as Over,
};
use savanna_streams_model::graph::WINDOW_COLUMNS;
use savanna_streams_model::time::{WindowSpec, Windows};
use savanna_streams_model::{Result, StreamError};

use super::chain::{
    BASE, Chain, UniqueNames, base_column, broken, first_column_position, is_window_column, of_a_result, unsupported,
};
use super::scan::field_path;
use savanna_streams_functions::proctime;

/// A column that carries the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Carries {
    Start,
    End,
    Time,
}

impl Carries {
    /// What a window column carries.
    pub(super) fn of(name: &str) -> Option<Self> {
        [Self::Start, Self::End, Self::Time].into_iter().zip(WINDOW_COLUMNS).find(|(_, n)| *n == name).map(|(c, _)| c)
    }
}

/// What the columns of rows say about the window that each row belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scope {
    /// What each column carries.
    pub(super) columns: Vec<Option<Carries>>,
    /// The windows that rows may belong to.
    pub(super) windows: Vec<Windows>,
}

impl Scope {
    /// Nothing.
    pub(super) fn none(columns: usize) -> Self {
        Self { columns: vec![None; columns], windows: Vec::new() }
    }

    /// Whether rows that agree in a column which carries this belong to one window.
    fn tells(&self, carried: Carries) -> bool {
        let one_size = |windows: &Windows| windows.fixed().filter(|spec| spec.has_one_size()).map(WindowSpec::size);
        let mut sizes = self.windows.iter().map(one_size);
        carried != Carries::Start || sizes.next().is_none_or(|first| first.is_some() && sizes.all(|size| size == first))
    }

    fn keeps_apart(&self, columns: &[Option<Carries>]) -> bool {
        columns.iter().flatten().any(|carried| self.tells(*carried))
    }

    /// What an expression over these columns carries.
    fn carried(&self, expr: &Expr, schema: &DFSchema) -> Option<Carries> {
        match expr {
            Expr::Column(column) => {
                schema.maybe_index_of_column(column).and_then(|i| self.columns.get(i).copied().flatten())
            }
            Expr::Alias(alias) => self.carried(&alias.expr, schema),
            _ => None,
        }
    }

    /// What rows of either have in common.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.columns.iter_mut().zip(&other.columns).for_each(|(a, b)| *a = a.filter(|a| Some(*a) == *b));
        self.and(other)
    }

    fn and(mut self, other: Self) -> Self {
        for window in other.windows {
            if !self.windows.contains(&window) {
                self.windows.push(window);
            }
        }
        self
    }
}

/// A plan over each closed window.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// Its leaves are [`Leaf`]s.
    pub(super) plan: LogicalPlan,
    pub(super) scope: Scope,
}

impl Region {
    /// The rows of chains, under the names that `plan` gives them.
    pub(super) fn of(chains: Vec<Chain>, plan: &LogicalPlan) -> Result<Self> {
        let mut parts = chains.into_iter().map(Leaf::region).collect::<Result<Vec<_>>>()?;
        let Some(mut region) = parts.pop() else {
            return Err(StreamError::Internal("a union of nothing".into()));
        };
        if !parts.is_empty() {
            parts.push(region);
            region = Self::union(parts)?;
        }
        let named = region.plan.schema().columns().into_iter().zip(plan.schema().iter());
        let named = named.map(|(column, (q, field))| Expr::Column(column).alias_qualified(q.cloned(), field.name()));
        let named: Vec<Expr> = named.collect();
        let plan = LogicalPlanBuilder::from(region.plan).project(named).and_then(LogicalPlanBuilder::build);
        Ok(Self { plan: plan.map_err(broken)?, scope: region.scope })
    }

    fn union(parts: Vec<Self>) -> Result<Self> {
        let mut plans = Vec::new();
        let mut scope: Option<Scope> = None;
        for part in parts {
            plans.push(Arc::new(part.plan));
            scope = Some(match scope {
                None => part.scope,
                Some(all) => all.or(part.scope),
            });
        }
        let plan = Union::try_new_with_loose_types(plans).map(LogicalPlan::Union).map_err(broken)?;
        Ok(Self { plan, scope: scope.unwrap_or_else(|| Scope::none(0)) })
    }

    /// Puts a step that changes no columns on top.
    pub(super) fn under(self, step: &LogicalPlan) -> Result<Self> {
        Ok(Self { plan: on_top(step, self.plan)?, scope: self.scope })
    }

    pub(super) fn project(self, step: &LogicalPlan, projection: &Projection) -> Result<Self> {
        let schema = projection.input.schema();
        let columns = projection.expr.iter().map(|e| self.scope.carried(e, schema)).collect();
        let scope = Scope { columns, windows: self.scope.windows };
        Ok(Self { plan: on_top(step, self.plan)?, scope })
    }

    /// # Errors
    /// The aggregate does not group by the window.
    pub(super) fn aggregate(self, step: &LogicalPlan, aggregate: &Aggregate) -> Result<Self> {
        let schema = aggregate.input.schema();
        let mut columns: Vec<_> = aggregate.group_expr.iter().map(|e| self.scope.carried(e, schema)).collect();
        if !self.scope.keeps_apart(&columns) {
            return Err(unsupported(
                "an aggregate over several windows",
                first_column_position(&aggregate.group_expr),
                "add the inner query's window_start and window_end to GROUP BY or SELECT DISTINCT",
            ));
        }
        columns.resize(aggregate.schema.fields().len(), None);
        let scope = Scope { columns, windows: self.scope.windows };
        Ok(Self { plan: on_top(step, self.plan)?, scope })
    }

    /// # Errors
    /// A function does not partition by the window.
    pub(super) fn over(self, step: &LogicalPlan, over: &Over) -> Result<Self> {
        let schema = over.input.schema();
        for expr in &over.window_expr {
            let Expr::WindowFunction(function) = expr.clone().unalias() else {
                return Err(StreamError::Internal("OVER without a function".into()));
            };
            let partition = &function.params.partition_by;
            let carried: Vec<_> = partition.iter().map(|e| self.scope.carried(e, schema)).collect();
            if !self.scope.keeps_apart(&carried) {
                return Err(unsupported(
                    &format!("{}(..) OVER across windows", function.fun.name().to_uppercase()),
                    None,
                    "add window_start and window_end to PARTITION BY",
                ));
            }
        }
        let mut scope = self.scope;
        scope.columns.resize(over.schema.fields().len(), None);
        Ok(Self { plan: on_top(step, self.plan)?, scope })
    }

    /// # Errors
    /// Rows of different windows would meet.
    pub(super) fn join(left: Self, right: Self, join: &Join) -> Result<Self> {
        if !equates_windows(&left.scope, &right.scope, join) {
            return Err(unsupported(
                "JOIN across windows",
                None,
                "add to ON that window_start and window_end of both sides are equal (for windows of different sizes, window_end)",
            ));
        }
        let mut joined = join.clone();
        if join.null_aware {
            // NOT IN compares one column. That the windows are equal holds for all rows that the plan sees at a time.
            let same = SameWindow::of(&left.scope, &right.scope, join);
            joined.on.retain(|(l, r)| !same.told_by(l, r));
            let conditions = join.filter.iter().flat_map(split_conjunction).cloned();
            joined.filter = conjunction(conditions.filter(|condition| !same.told(condition)));
            if joined.on.len() != 1 {
                return Err(unsupported("NOT IN with further equal columns", None, "write NOT EXISTS"));
            }
        }
        let windows = left.scope.clone().and(right.scope.clone()).windows;
        joined.left = Arc::new(left.plan);
        joined.right = Arc::new(right.plan);
        let lost = |scope: Scope| vec![None; scope.columns.len()];
        let (left, right) = (left.scope, right.scope);
        let mark = [None];
        let columns = match join.join_type {
            JoinType::Inner => [left.columns, right.columns].concat(),
            JoinType::Left => [left.columns, lost(right)].concat(),
            JoinType::Right => [lost(left), right.columns].concat(),
            JoinType::Full => [lost(left), lost(right)].concat(),
            JoinType::LeftSemi | JoinType::LeftAnti => left.columns,
            JoinType::RightSemi | JoinType::RightAnti => right.columns,
            JoinType::LeftMark => [left.columns, mark.to_vec()].concat(),
            JoinType::RightMark => [right.columns, mark.to_vec()].concat(),
        };
        Ok(Self { plan: LogicalPlan::Join(joined), scope: Scope { columns, windows } })
    }

    /// The region as it is when something else stands on it: with column names that are unique.
    pub(super) fn sealed(self) -> Result<Self> {
        let mut names = UniqueNames::default();
        let columns: Vec<Expr> = (self.plan.schema().iter())
            .map(|(q, field)| Expr::Column(Column::new(q.cloned(), field.name())).alias(names.take(field.name())))
            .collect();
        let plan = LogicalPlanBuilder::from(self.plan).project(columns).and_then(LogicalPlanBuilder::build);
        Ok(Self { plan: plan.map_err(broken)?, scope: self.scope })
    }

    /// The columns, where their names are unique.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(self.plan.schema().inner())
    }
}

/// Whether a join pairs only rows of one window.
pub(super) fn equates_windows(left: &Scope, right: &Scope, join: &Join) -> bool {
    let same = SameWindow::of(left, right, join);
    let mut conditions = join.filter.iter().flat_map(split_conjunction);
    join.on.iter().any(|(l, r)| same.told_by(l, r)) || conditions.any(|condition| same.told(condition))
}

/// How the conditions of a join tell that two rows belong to one window.
struct SameWindow<'a> {
    left: &'a Scope,
    right: &'a Scope,
    both: Scope,
    join: &'a Join,
}

impl<'a> SameWindow<'a> {
    fn of(left: &'a Scope, right: &'a Scope, join: &'a Join) -> Self {
        Self { left, right, both: left.clone().and(right.clone()), join }
    }

    /// By equal values of a left and a right expression.
    fn told_by(&self, left: &Expr, right: &Expr) -> bool {
        let carried = self.left.carried(left, self.join.left.schema());
        carried.is_some_and(|c| self.both.tells(c)) && carried == self.right.carried(right, self.join.right.schema())
    }

    fn told(&self, condition: &Expr) -> bool {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                self.told_by(left, right) || self.told_by(right, left)
            }
            _ => false,
        }
    }
}

fn on_top(step: &LogicalPlan, input: LogicalPlan) -> Result<LogicalPlan> {
    if step.expressions().iter().any(|e| e.exists(|e| Ok(proctime::is_call(e))).unwrap_or(false)) {
        return Err(of_a_result());
    }
    step.with_new_exprs(step.expressions(), vec![input]).map_err(broken)
}

/// Rows in windows as a table that a region reads.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Where they come from.
    pub(super) chain: Chain,
    /// What the chain's columns are called, each by another name.
    pub(super) names: Vec<String>,
    /// Which of them is `window_end`.
    pub(super) window_end: usize,
    schema: SchemaRef,
}

impl TableSource for Leaf {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Leaf {
    /// A chain's rows as a region. Equal chains give equal leaves: what is different in name only is computed above.
    fn region(chain: Chain) -> Result<Region> {
        let scope = chain.scope();
        let (leaf, columns) = if chain.window.is_some() { Self::rows(chain)? } else { Self::results(chain)? };
        let scan = LogicalPlanBuilder::scan(BASE, Arc::new(leaf), None);
        let plan = scan.and_then(|s| s.project(columns)?.build()).map_err(broken)?;
        Ok(Region { plan, scope })
    }

    /// Rows that a table function put in windows: the columns that the chain computes, and those of the window.
    fn rows(mut chain: Chain) -> Result<(Self, Vec<Expr>)> {
        let mut taken = UniqueNames::default();
        WINDOW_COLUMNS.iter().for_each(|name| drop(taken.take(name)));
        let mut known: Vec<(Expr, String)> = Vec::new();
        let mut columns = Vec::new();
        for expr in std::mem::take(&mut chain.columns) {
            let name = match (&expr, known.iter().find(|(e, _)| *e == expr)) {
                (Expr::Column(column), _) if is_window_column(&expr) => column.name.clone(),
                (_, Some((_, name))) => name.clone(),
                _ => {
                    let name = field_path(&expr).and_then(|mut path| path.0.pop());
                    let name = taken.take(&name.unwrap_or_else(|| format!("value{}", known.len())));
                    known.push((expr, name.clone()));
                    name
                }
            };
            columns.push(base_column(&name).alias(format!("column{}", columns.len())));
        }
        let window = WINDOW_COLUMNS.map(|name| (super::chain::window_column(name), name.to_owned()));
        let (exprs, names) = known.into_iter().chain(window).unzip();
        chain.columns = exprs;
        Ok((Self::new(chain, names)?, columns))
    }

    /// Results of windows: all columns of the base.
    fn results(chain: Chain) -> Result<(Self, Vec<Expr>)> {
        let all = Chain::over(chain.base.clone());
        let names = all.base.schema().fields().iter().map(|field| field.name().clone()).collect();
        let columns = chain.columns.into_iter().enumerate().map(|(i, e)| e.alias(format!("column{i}"))).collect();
        Ok((Self::new(Chain { filters: chain.filters, ..all }, names)?, columns))
    }

    fn new(chain: Chain, names: Vec<String>) -> Result<Self> {
        let Some(window_end) = chain.scope().columns.iter().position(|c| *c == Some(Carries::End)) else {
            return Err(unsupported(
                "a query over windowed results without window_end",
                None,
                "add window_start and window_end to the inner query's SELECT",
            ));
        };
        let schema = chain.schema()?;
        let field = |(expr, name): (&Expr, &String)| {
            let data_type = expr.get_type(schema.as_ref())?;
            Ok(Field::new(name, data_type, expr.nullable(schema.as_ref())?))
        };
        let fields = chain.columns.iter().zip(&names).map(field).collect::<Result<Vec<_>, _>>().map_err(broken)?;
        Ok(Self { chain, names, window_end, schema: Arc::new(Schema::new(fields)) })
    }
}
