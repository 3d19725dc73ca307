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
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::WINDOW_COLUMNS;
use savanna_streams_model::time::{WindowSpec, Windows};

use super::chain::{
    BASE, Chain, UniqueNames, base_column, broken, first_column_position, is_window_column, of_a_result, unsupported,
};
use super::one_window;
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

/// The functions that give the first of their arguments that is not NULL.
const CHOICES: [&str; 3] = ["coalesce", "nvl", "ifnull"];

/// What the columns of rows say about the window that each row belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scope {
    /// What each column carries.
    pub(super) columns: Vec<Option<Carries>>,
    /// The windows that rows may belong to.
    pub(super) windows: Vec<Windows>,
    /// By column, as far as there are any: what it carries where it is not NULL.
    padded: Vec<Option<Padded>>,
}

/// A column of one side of an outer join, which is NULL in rows that have no partner on that side.
#[derive(Clone, Debug, PartialEq)]
struct Padded {
    carries: Carries,
    /// The sides that must be there, the one of the last join last.
    sides: Vec<(JoinNumber, Side)>,
}

/// A join, by how many joins are below it.
type JoinNumber = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Whether one of some columns is not NULL in every row; each is told by the sides that it needs.
fn cover(columns: &[&[(JoinNumber, Side)]]) -> bool {
    let needing = |join: JoinNumber, side: Side| -> Vec<_> {
        let of = columns.iter().filter_map(|sides| sides.split_last().filter(|(last, _)| **last == (join, side)));
        of.map(|(_, rest)| rest).collect()
    };
    columns.iter().any(|sides| match sides.last() {
        None => true,
        Some((join, _)) => cover(&needing(*join, Side::Left)) && cover(&needing(*join, Side::Right)),
    })
}

impl Scope {
    /// Nothing.
    pub(super) fn none(columns: usize) -> Self {
        Self::new(vec![None; columns], Vec::new())
    }

    pub(super) fn new(columns: Vec<Option<Carries>>, windows: Vec<Windows>) -> Self {
        Self { columns, windows, padded: Vec::new() }
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

    /// Whether all rows of a window agree in columns which carry this: those of a plan over one window have one end.
    fn are_constant(&self, columns: &[Option<Carries>]) -> bool {
        columns.iter().all(|carried| carried.is_some_and(|carried| self.tells(carried)))
    }

    /// What an expression over these columns carries.
    fn carried(&self, expr: &Expr, schema: &DFSchema) -> Option<Carries> {
        match expr {
            Expr::Column(column) => {
                schema.maybe_index_of_column(column).and_then(|i| self.columns.get(i).copied().flatten())
            }
            Expr::Alias(alias) => self.carried(&alias.expr, schema),
            Expr::ScalarFunction(call) if CHOICES.contains(&call.name()) => self.chosen(&call.args, schema),
            _ => None,
        }
    }

    /// What the first of some values carries that is not NULL, if there always is one.
    fn chosen(&self, values: &[Expr], schema: &DFSchema) -> Option<Carries> {
        let kinds = values.iter().map(|value| match self.carried(value, schema) {
            Some(carries) => Some(Padded { carries, sides: Vec::new() }),
            None => self.padding(value, schema).cloned(),
        });
        let kinds = kinds.collect::<Option<Vec<_>>>()?;
        let sides: Vec<_> = kinds.iter().map(|kind| kind.sides.as_slice()).collect();
        let first = kinds.first()?.carries;
        (kinds.iter().all(|kind| kind.carries == first) && cover(&sides)).then_some(first)
    }

    fn padding(&self, expr: &Expr, schema: &DFSchema) -> Option<&Padded> {
        match expr {
            Expr::Column(column) => self.padded.get(schema.maybe_index_of_column(column)?)?.as_ref(),
            Expr::Alias(alias) => self.padding(&alias.expr, schema),
            _ => None,
        }
    }

    /// How the columns look behind an outer join that keeps rows without this side.
    fn lost(&self, join: JoinNumber, side: Side) -> Self {
        let padded = |(at, carried): (usize, &Option<Carries>)| {
            let known = self.padded.get(at).cloned().flatten();
            let mut padded = carried.map(|carries| Padded { carries, sides: Vec::new() }).or(known)?;
            padded.sides.push((join, side));
            Some(padded)
        };
        Self {
            columns: vec![None; self.columns.len()],
            windows: self.windows.clone(),
            padded: self.columns.iter().enumerate().map(padded).collect(),
        }
    }

    /// The columns of one and then those of the other.
    fn beside(mut self, other: Self) -> Self {
        self.padded.resize(self.columns.len(), None);
        self.padded.extend(other.padded);
        self.columns.extend(other.columns);
        self
    }

    /// A number for a join of rows of both.
    fn join_number(&self, other: &Self) -> JoinNumber {
        let known = self.padded.iter().chain(&other.padded).flatten().flat_map(|padded| &padded.sides);
        known.map(|(join, _)| join + 1).max().unwrap_or(0)
    }

    /// What rows of either have in common.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.columns.iter_mut().zip(&other.columns).for_each(|(a, b)| *a = a.filter(|a| Some(*a) == *b));
        self.padded.clear();
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
        let padded = projection.expr.iter().map(|e| self.scope.padding(e, schema).cloned()).collect();
        let scope = Scope { columns, windows: self.scope.windows, padded };
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
        let one_group = self.scope.are_constant(&columns);
        columns.resize(aggregate.schema.fields().len(), None);
        let scope = Scope::new(columns, self.scope.windows);
        let plan = match on_top(step, self.plan)? {
            LogicalPlan::Aggregate(aggregate) if one_group => one_window::ungrouped(&aggregate).map_err(broken)?,
            plan => plan,
        };
        Ok(Self { plan, scope })
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
        if join.null_aware || join.join_type == JoinType::Inner {
            // That the windows are equal holds for all rows that the plan sees at a time.
            let same = SameWindow::of(&left.scope, &right.scope, join);
            joined.on.retain(|(l, r)| !same.told_by(l, r));
            let conditions = join.filter.iter().flat_map(split_conjunction).cloned();
            joined.filter = conjunction(conditions.filter(|condition| !same.told(condition)));
        }
        if join.null_aware && joined.on.len() != 1 {
            // NOT IN compares one column.
            return Err(unsupported("NOT IN with further equal columns", None, "write NOT EXISTS"));
        }
        let windows = left.scope.clone().and(right.scope.clone()).windows;
        joined.left = Arc::new(left.plan);
        joined.right = Arc::new(right.plan);
        let (left, right) = (left.scope, right.scope);
        let number = left.join_number(&right);
        let (left_lost, right_lost) = (|| left.lost(number, Side::Left), || right.lost(number, Side::Right));
        let mark = Scope::none(1);
        let scope = match join.join_type {
            JoinType::Inner => left.beside(right),
            JoinType::Left => left.clone().beside(right_lost()),
            JoinType::Right => left_lost().beside(right),
            JoinType::Full => left_lost().beside(right_lost()),
            JoinType::LeftSemi | JoinType::LeftAnti => left,
            JoinType::RightSemi | JoinType::RightAnti => right,
            JoinType::LeftMark => left.beside(mark),
            JoinType::RightMark => right.beside(mark),
        };
        let plan = one_window::one_row_first(joined).map_err(broken)?;
        Ok(Self { plan, scope: Scope { windows, ..scope } })
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

#[cfg(test)]
mod tests {
    use super::Side::{Left, Right};
    use super::*;

    #[test]
    fn columns_cover_all_rows_if_each_way_to_lose_one_leaves_another() {
        let (left, right) = (&[(0, Left)][..], &[(0, Right)][..]);
        assert!(cover(&[left, right]));
        assert!(cover(&[left, &[]]));
        assert!(!cover(&[left]));
        assert!(!cover(&[left, left]));
        assert!(!cover(&[]));
        // (a FULL JOIN b) FULL JOIN c
        let (a, b, c) = (&[(0, Left), (1, Left)][..], &[(0, Right), (1, Left)][..], &[(1, Right)][..]);
        assert!(cover(&[a, b, c]));
        assert!(!cover(&[a, c]));
        assert!(!cover(&[a, b]));
    }
}
