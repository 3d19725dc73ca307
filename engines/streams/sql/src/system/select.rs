//! Queries over system tables.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, JoinConstraint, JoinOperator, LimitClause,
    OrderBy, OrderByKind, Query, Select as SqlSelect, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    SetOperator, SetQuantifier, Spanned, TableAlias, TableFactor, TableWithJoins, Value as Literal, ValueWithSpan,
};
use savanna_streams_api::{Result, StreamError};

use super::expression::{Aggregate, Compiler, Frame, Named, Node, Scope, unsupported};
use super::value::{Type, Value, ident_name, split_name, type_name};
use super::{INFORMATION_SCHEMA, PG_CATALOG, World, functions, tables};
use crate::parse::position;
use savanna_streams_model::names::hint;

/// Rows that one question may look at.
const ROWS_MAX: usize = 20_000_000;
/// Values that it may put side by side: some 200 MB. A catalog of a thousand tables needs a tenth.
const VALUES_MAX: usize = 4_000_000;

type Row = Vec<Value>;
/// A row that is read; those of tables are shared.
type Input = Rc<[Value]>;

/// Common table expressions by name, innermost last.
pub(super) type Ctes = Vec<(String, Rc<Plan>)>;

/// A query whose names are found.
pub(super) struct Plan {
    columns: Vec<(String, Type)>,
    body: Body,
    order: Vec<Key>,
    limit: Option<Node>,
    offset: Option<Node>,
}

enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Node>>),
    Nested(Box<Plan>),
    Set { left: Box<Plan>, right: Box<Plan>, operator: SetOperator, all: bool },
}

/// A column to sort by, of those that are computed.
struct Key {
    column: usize,
    descending: bool,
    nulls_first: bool,
}

struct Select {
    from: From,
    condition: Vec<Node>,
    /// The columns of the answer, then those that it is only sorted by.
    projection: Vec<Node>,
    distinct: bool,
    grouping: Option<Grouping>,
}

struct Grouping {
    keys: Vec<Node>,
    aggregates: Vec<Aggregate>,
    having: Option<Node>,
    /// Columns of the input, for the row of a query that groups nothing.
    width: usize,
}

enum From {
    /// One row without columns.
    Nothing,
    Table(Vec<Input>),
    Query(Rc<Plan>),
    Unnest {
        arrays: Vec<Node>,
        ordinality: bool,
    },
    Series(Vec<Node>),
    Join(Box<Join>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

struct Join {
    left: From,
    right: From,
    kind: Kind,
    /// Pairs of equal columns, left and right.
    equal: Vec<(usize, usize)>,
    on: Vec<Node>,
    left_width: usize,
    right_width: usize,
    /// Whether the right side names columns of the left.
    lateral: bool,
}

impl Plan {
    pub(super) fn of(query: &Query, world: &World<'_>) -> Result<Self> {
        Self::within(query, world, &Ctes::new(), None)
    }

    /// A query inside of another, whose columns it may name.
    pub(super) fn within(query: &Query, world: &World<'_>, ctes: &Ctes, outer: Option<&Scope<'_>>) -> Result<Self> {
        let mut ctes = ctes.clone();
        if let Some(with) = &query.with {
            if with.recursive {
                return Err(unsupported("WITH RECURSIVE", with.with_token.0.span));
            }
            for cte in &with.cte_tables {
                let plan = Self::within(&cte.query, world, &ctes, None)?;
                ctes.push((ident_name(&cte.alias.name), Rc::new(plan)));
            }
        }
        let mut plan = match query.body.as_ref() {
            SetExpr::Select(select) => Self::select(select, query.order_by.as_ref(), world, &ctes, outer)?,
            body => {
                let mut plan = Self::body(body, world, &ctes, outer)?;
                plan.order = plan.order_of_columns(query.order_by.as_ref())?;
                plan
            }
        };
        let mut bounds = Compiler { world, ctes: &ctes, scope: Scope { columns: &[], outer }, aggregates: None };
        let mut bound = |expr: &Expr| Ok::<_, StreamError>(bounds.expr(expr)?.node);
        (plan.limit, plan.offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, .. }) => (
                limit.as_ref().map(&mut bound).transpose()?,
                offset.as_ref().map(|offset| bound(&offset.value)).transpose()?,
            ),
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(bound(limit)?), Some(bound(offset)?)),
        };
        if let Some(quantity) = query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref()) {
            plan.limit = Some(bound(quantity)?);
        }
        Ok(plan)
    }

    fn body(body: &SetExpr, world: &World<'_>, ctes: &Ctes, outer: Option<&Scope<'_>>) -> Result<Self> {
        match body {
            SetExpr::Select(select) => Self::select(select, None, world, ctes, outer),
            SetExpr::Query(query) => {
                let plan = Self::within(query, world, ctes, outer)?;
                Ok(Self::unsorted(plan.columns.clone(), Body::Nested(Box::new(plan))))
            }
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let (left, right) = (Self::body(left, world, ctes, outer)?, Self::body(right, world, ctes, outer)?);
                if left.width() != right.width() {
                    return Err(StreamError::Invalid {
                        message: format!("one side of {op} has {} columns, the other {}", left.width(), right.width()),
                        position: position(body.span().start),
                    });
                }
                let both = left.columns.iter().zip(&right.columns);
                let columns = both.map(|((name, one), (_, other))| (name.clone(), one.or(*other))).collect();
                let all = *set_quantifier == SetQuantifier::All;
                let set = Body::Set { left: Box::new(left), right: Box::new(right), operator: *op, all };
                Ok(Self::unsorted(columns, set))
            }
            SetExpr::Values(values) => {
                let mut compiler = Compiler { world, ctes, scope: Scope { columns: &[], outer }, aggregates: None };
                let mut types = Vec::new();
                let mut rows = Vec::new();
                for row in &values.rows {
                    let row = row.content.iter().map(|expr| compiler.expr(expr)).collect::<Result<Vec<_>>>()?;
                    types.resize(row.len(), Type::Unknown);
                    types.iter_mut().zip(&row).for_each(|(of, typed)| *of = of.or(typed.of));
                    rows.push(row.into_iter().map(|typed| typed.node).collect());
                }
                let columns = types.into_iter().enumerate().map(|(at, of)| (format!("column{}", at + 1), of)).collect();
                Ok(Self::unsorted(columns, Body::Values(rows)))
            }
            other => Err(unsupported("this form of a query", other.span())),
        }
    }

    fn unsorted(columns: Vec<(String, Type)>, body: Body) -> Self {
        Self { columns, body, order: Vec::new(), limit: None, offset: None }
    }

    fn select(
        select: &SqlSelect,
        order_by: Option<&OrderBy>,
        world: &World<'_>,
        ctes: &Ctes,
        outer: Option<&Scope<'_>>,
    ) -> Result<Self> {
        let place = select.select_token.0.span;
        let unanswered = select.into.is_some() || select.top.is_some() || select.qualify.is_some();
        if unanswered || !select.lateral_views.is_empty() || !select.named_window.is_empty() {
            return Err(unsupported("this form of SELECT", place));
        }
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => return Err(unsupported("DISTINCT ON", place)),
        };
        let (mut from, named) = Sources { world, ctes, outer }.all(&select.from)?;
        let scope = Scope { columns: &named, outer };
        let mut compiler = Compiler { world, ctes, scope, aggregates: None };
        let mut condition = Vec::new();
        if let Some(selection) = &select.selection {
            let mut conjuncts = Vec::new();
            compiler.expr(selection)?.node.conjuncts(&mut conjuncts);
            condition.extend(conjuncts.into_iter().filter_map(|conjunct| from.narrow(conjunct)));
        }
        compiler.aggregates = Some(Vec::new());
        let mut columns = Vec::new();
        let mut projection = Vec::new();
        for item in &select.projection {
            let (expr, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, shown_name(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, ident_name(alias)),
                SelectItem::Wildcard(_) => {
                    all_of(None, &named, &mut columns, &mut projection);
                    continue;
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), _) => {
                    all_of(Some(&split_name(table).1), &named, &mut columns, &mut projection);
                    continue;
                }
                other => return Err(unsupported(&format!("{other}"), other.span())),
            };
            let typed = compiler.expr(expr)?;
            columns.push((name, typed.of));
            projection.push(typed.node);
        }
        let having = select.having.as_ref().map(|having| Ok(compiler.expr(having)?.node)).transpose()?;
        let mut order = Vec::new();
        for (expr, descending, nulls_first) in order_exprs(order_by)? {
            let column = match output_column(expr, &columns)? {
                Some(column) => column,
                None => {
                    projection.push(compiler.expr(expr)?.node);
                    projection.len() - 1
                }
            };
            order.push(Key { column, descending, nulls_first });
        }
        let aggregates = compiler.aggregates.take().unwrap_or_default();
        let GroupByExpr::Expressions(groups, _) = &select.group_by else {
            return Err(unsupported("GROUP BY ALL", place));
        };
        let mut keys = Vec::new();
        for group in groups {
            let expr = match output_column(group, &columns)? {
                Some(column) => match select.projection.get(column) {
                    Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
                    _ => group,
                },
                None => group,
            };
            keys.push(compiler.expr(expr)?.node);
        }
        let groups = !keys.is_empty() || !aggregates.is_empty() || having.is_some();
        let grouping = groups.then(|| Grouping { keys, aggregates, having, width: named.len() });
        let body = Body::Select(Box::new(Select { from, condition, projection, distinct, grouping }));
        Ok(Self { columns, body, order, limit: None, offset: None })
    }

    fn order_of_columns(&self, order_by: Option<&OrderBy>) -> Result<Vec<Key>> {
        let key = |(expr, descending, nulls_first): (&Expr, bool, bool)| {
            let column = output_column(expr, &self.columns)?;
            let column = column.ok_or_else(|| unsupported("ORDER BY something else than a column", expr.span()))?;
            Ok(Key { column, descending, nulls_first })
        };
        order_exprs(order_by)?.into_iter().map(key).collect()
    }

    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn type_of(&self, column: usize) -> Type {
        self.columns[column].1
    }

    pub(super) fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|(name, of)| Field::new(name, of.arrow(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    pub(super) fn rows(&self, world: &World<'_>) -> Result<Vec<Row>> {
        self.rows_within(None, world)
    }

    pub(super) fn rows_within(&self, outer: Option<&Frame<'_>>, world: &World<'_>) -> Result<Vec<Row>> {
        let mut rows = match &self.body {
            Body::Select(select) => select.rows(self.width(), outer, world)?,
            Body::Nested(plan) => plan.rows_within(outer, world)?,
            Body::Values(values) => {
                let frame = Frame { row: &[], aggregates: &[], outer };
                let row = |row: &Vec<Node>| row.iter().map(|node| node.value(&frame, world)).collect();
                values.iter().map(row).collect::<Result<_>>()?
            }
            Body::Set { left, right, operator, all } => {
                let (left, right) = (left.rows_within(outer, world)?, right.rows_within(outer, world)?);
                combined(left, right, *operator, *all)
            }
        };
        if !self.order.is_empty() {
            rows.sort_by(|a, b| {
                let by = |key: &Key| {
                    let (a, b) = (&a[key.column], &b[key.column]);
                    let nulls = (*a == Value::Null).cmp(&(*b == Value::Null));
                    let nulls = if key.nulls_first { nulls.reverse() } else { nulls };
                    nulls.then_with(|| if key.descending { b.cmp(a) } else { a.cmp(b) })
                };
                self.order.iter().map(by).find(|ordering| ordering.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
            });
        }
        let frame = Frame { row: &[], aggregates: &[], outer };
        let bound = |node: &Option<Node>| -> Result<Option<usize>> {
            let value = node.as_ref().map(|node| node.value(&frame, world)?.integer()).transpose()?.flatten();
            Ok(value.and_then(|value| usize::try_from(value).ok()))
        };
        let (offset, limit) = (bound(&self.offset)?.unwrap_or(0), bound(&self.limit)?.unwrap_or(usize::MAX));
        rows.iter_mut().for_each(|row| row.truncate(self.width()));
        Ok(rows.into_iter().skip(offset).take(limit).collect())
    }
}

fn combined(mut left: Vec<Row>, right: Vec<Row>, operator: SetOperator, all: bool) -> Vec<Row> {
    match operator {
        SetOperator::Union => left.extend(right),
        SetOperator::Intersect => {
            let right: HashSet<Row> = right.into_iter().collect();
            left.retain(|row| right.contains(row));
        }
        SetOperator::Except | SetOperator::Minus => {
            let right: HashSet<Row> = right.into_iter().collect();
            left.retain(|row| !right.contains(row));
        }
    }
    if all { left } else { distinct(left, usize::MAX) }
}

/// Rows without those that are equal to an earlier one in so many columns.
fn distinct(mut rows: Vec<Row>, width: usize) -> Vec<Row> {
    let mut seen = HashSet::new();
    rows.retain(|row| seen.insert(row[..row.len().min(width)].to_vec()));
    rows
}

/// What is sorted by, whether downwards, and whether NULLs come first.
fn order_exprs(order_by: Option<&OrderBy>) -> Result<Vec<(&Expr, bool, bool)>> {
    let Some(order_by) = order_by else { return Ok(Vec::new()) };
    let OrderByKind::Expressions(exprs) = &order_by.kind else {
        return Err(unsupported("ORDER BY ALL", order_by.span()));
    };
    let key = |by: &'_ datafusion::sql::sqlparser::ast::OrderByExpr| {
        let descending = by.options.asc == Some(false);
        (descending, by.options.nulls_first.unwrap_or(descending))
    };
    Ok(exprs.iter().map(|by| (&by.expr, key(by).0, key(by).1)).collect())
}

/// The column of the answer that an expression means by its number or name.
fn output_column(expr: &Expr, columns: &[(String, Type)]) -> Result<Option<usize>> {
    match expr {
        Expr::Value(ValueWithSpan { value: Literal::Number(digits, _), span }) => {
            let number = digits.parse::<usize>().ok().filter(|number| (1..=columns.len()).contains(number));
            let wrong = || StreamError::Invalid {
                message: format!("column {digits} does not exist; the query has {} columns", columns.len()),
                position: position(span.start),
            };
            Ok(Some(number.ok_or_else(wrong)? - 1))
        }
        Expr::Identifier(name) => Ok(columns.iter().position(|(column, _)| *column == ident_name(name))),
        _ => Ok(None),
    }
}

/// The columns that `*` stands for.
fn all_of(table: Option<&str>, named: &[Named], columns: &mut Vec<(String, Type)>, projection: &mut Vec<Node>) {
    for (at, column) in named.iter().enumerate() {
        if !column.hidden && table.is_none_or(|table| column.table.as_deref() == Some(table)) {
            columns.push((column.name.clone(), column.of));
            projection.push(Node::Column { up: 0, at });
        }
    }
}

/// What PostgreSQL calls a column without a name.
fn shown_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => ident_name(name),
        Expr::CompoundIdentifier(parts) => parts.last().map(ident_name).unwrap_or_default(),
        Expr::Function(call) => split_name(&call.name).1,
        Expr::Cast { expr, data_type, .. } => match shown_name(expr) {
            name if name == "?column?" => type_name(data_type).1,
            name => name,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => shown_name(inner),
        Expr::Case { .. } => "case".into(),
        Expr::Exists { .. } => "exists".into(),
        Expr::Array(_) => "array".into(),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr)) => shown_name(expr),
                Some(SelectItem::ExprWithAlias { alias, .. }) => ident_name(alias),
                _ => "?column?".into(),
            },
            _ => "?column?".into(),
        },
        _ => "?column?".into(),
    }
}

impl Select {
    fn rows(&self, width: usize, outer: Option<&Frame<'_>>, world: &World<'_>) -> Result<Vec<Row>> {
        let mut input = self.from.rows(outer, world)?;
        if !self.condition.is_empty() {
            let mut kept = Vec::new();
            for row in input {
                world.look_at_row()?;
                if all_hold(&self.condition, &Frame { row: &row, aggregates: &[], outer }, world)? {
                    kept.push(row);
                }
            }
            input = kept;
        }
        let project = |row: &[Value], aggregates: &[Value]| {
            let frame = Frame { row, aggregates, outer };
            self.projection.iter().map(|node| node.value(&frame, world)).collect::<Result<Row>>()
        };
        let rows = match &self.grouping {
            None => input.iter().map(|row| project(row, &[])).collect::<Result<Vec<_>>>()?,
            Some(grouping) => {
                let mut rows = Vec::new();
                for (row, aggregates) in grouping.groups(input, outer, world)? {
                    let frame = Frame { row: &row, aggregates: &aggregates, outer };
                    if grouping.having.as_ref().map_or(Ok(true), |having| Ok(having.value(&frame, world)?.is_true()))? {
                        rows.push(project(&row, &aggregates)?);
                    }
                }
                rows
            }
        };
        Ok(if self.distinct { distinct(rows, width) } else { rows })
    }
}

fn all_hold(conditions: &[Node], frame: &Frame<'_>, world: &World<'_>) -> Result<bool> {
    for condition in conditions {
        if condition.value(frame, world)?.truth()? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Grouping {
    /// A row of each group with its aggregates.
    fn groups(
        &self,
        input: Vec<Input>,
        outer: Option<&Frame<'_>>,
        world: &World<'_>,
    ) -> Result<Vec<(Input, Vec<Value>)>> {
        let mut places: HashMap<Vec<Value>, usize> = HashMap::new();
        let mut groups: Vec<Vec<Input>> = Vec::new();
        for row in input {
            let frame = Frame { row: &row, aggregates: &[], outer };
            let key = self.keys.iter().map(|node| node.value(&frame, world)).collect::<Result<Vec<_>>>()?;
            let place = *places.entry(key).or_insert(groups.len());
            if place == groups.len() {
                groups.push(Vec::new());
            }
            groups[place].push(row);
        }
        if self.keys.is_empty() && groups.is_empty() {
            groups.push(Vec::new());
        }
        let group = |rows: Vec<Input>| {
            let aggregates = self.aggregates.iter().map(|aggregate| aggregate.over(&rows, outer, world));
            let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
            Ok((rows.into_iter().next().unwrap_or_else(|| vec![Value::Null; self.width].into()), aggregates))
        };
        groups.into_iter().map(group).collect()
    }
}

impl Aggregate {
    fn over(&self, rows: &[Input], outer: Option<&Frame<'_>>, world: &World<'_>) -> Result<Value> {
        let mut values = Vec::new();
        let mut separator = String::new();
        for row in rows {
            let frame = Frame { row, aggregates: &[], outer };
            if self.filter.as_ref().map_or(Ok(false), |filter| Ok(!filter.value(&frame, world)?.is_true()))? {
                continue;
            }
            values.push(match self.arguments.first() {
                Some(argument) => argument.value(&frame, world)?,
                None => true.into(),
            });
            if let Some(node) = self.arguments.get(1) {
                separator = node.value(&frame, world)?.text().unwrap_or_default();
            }
        }
        if self.name != "array_agg" {
            values.retain(|value| *value != Value::Null);
        }
        if self.distinct {
            values.sort();
            values.dedup();
        }
        let truths =
            |values: &[Value]| values.iter().map(|v| Ok(v.truth()?.unwrap_or_default())).collect::<Result<Vec<_>>>();
        Ok(match self.name {
            "count" => (values.len() as i64).into(),
            _ if values.is_empty() => Value::Null,
            "sum" => {
                let numbers =
                    values.iter().map(|v| Ok(v.integer()?.unwrap_or_default())).collect::<Result<Vec<_>>>()?;
                numbers.into_iter().fold(0, i64::saturating_add).into()
            }
            "min" => values.into_iter().min().into_iter().next().unwrap_or(Value::Null),
            "max" => values.into_iter().max().into_iter().next().unwrap_or(Value::Null),
            "string_agg" => functions::joined(&values.iter().filter_map(Value::text).collect::<Vec<_>>(), &separator)?,
            "bool_or" => truths(&values)?.contains(&true).into(),
            "bool_and" | "every" => (!truths(&values)?.contains(&false)).into(),
            _ => Value::List(values),
        })
    }
}

/// Finds the tables of `FROM`.
#[derive(Clone, Copy)]
struct Sources<'c> {
    world: &'c World<'c>,
    ctes: &'c Ctes,
    outer: Option<&'c Scope<'c>>,
}

impl Sources<'_> {
    fn all(self, from: &[TableWithJoins]) -> Result<(From, Vec<Named>)> {
        let mut all: Option<(From, Vec<Named>)> = None;
        for table in from {
            all = Some(match all {
                None => self.joined(table)?,
                Some(left) => {
                    let right = Sources { outer: Some(&Scope { columns: &left.1, outer: self.outer }), ..self };
                    let lateral = is_lateral(&table.relation);
                    let right = if lateral { right.joined(table)? } else { self.joined(table)? };
                    self.join(left, right, Kind::Inner, lateral, &JoinConstraint::None)?
                }
            });
        }
        Ok(all.unwrap_or((From::Nothing, Vec::new())))
    }

    fn joined(self, table: &TableWithJoins) -> Result<(From, Vec<Named>)> {
        let mut left = self.factor(&table.relation)?;
        for join in &table.joins {
            let (kind, constraint) = match &join.join_operator {
                JoinOperator::Join(on) | JoinOperator::Inner(on) | JoinOperator::CrossJoin(on) => (Kind::Inner, on),
                JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (Kind::Left, on),
                JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (Kind::Right, on),
                JoinOperator::FullOuter(on) => (Kind::Full, on),
                _ => return Err(unsupported("this kind of join", join.relation.span())),
            };
            let lateral = is_lateral(&join.relation);
            let right = if lateral {
                Sources { outer: Some(&Scope { columns: &left.1, outer: self.outer }), ..self }
                    .factor(&join.relation)?
            } else {
                self.factor(&join.relation)?
            };
            left = self.join(left, right, kind, lateral, constraint)?;
        }
        Ok(left)
    }

    fn join(
        self,
        (left, mut named): (From, Vec<Named>),
        (right, others): (From, Vec<Named>),
        kind: Kind,
        lateral: bool,
        constraint: &JoinConstraint,
    ) -> Result<(From, Vec<Named>)> {
        let (left_width, right_width) = (named.len(), others.len());
        let using = |name: &Ident, named: &[Named]| {
            let name = ident_name(name);
            named.iter().position(|column| column.name == name && !column.hidden)
        };
        let equal = match constraint {
            JoinConstraint::Using(names) => {
                let pair = |name: &datafusion::sql::sqlparser::ast::ObjectName| {
                    let ident = name.0.last().and_then(|part| part.as_ident());
                    let pair = ident.and_then(|ident| Some((using(ident, &named)?, using(ident, &others)?)));
                    pair.ok_or_else(|| {
                        unsupported(&format!("USING ({name}), which is not a column of both sides,"), name.span())
                    })
                };
                names.iter().map(pair).collect::<Result<Vec<_>>>()?
            }
            JoinConstraint::Natural => {
                return Err(unsupported("NATURAL JOIN", datafusion::sql::sqlparser::tokenizer::Span::empty()));
            }
            JoinConstraint::On(_) | JoinConstraint::None => Vec::new(),
        };
        named.extend(others);
        let mut join = Join { left, right, kind, equal, on: Vec::new(), left_width, right_width, lateral };
        if let JoinConstraint::On(on) = constraint {
            let scope = Scope { columns: &named, outer: self.outer };
            let mut compiler = Compiler { world: self.world, ctes: self.ctes, scope, aggregates: None };
            let mut conjuncts = Vec::new();
            compiler.expr(on)?.node.conjuncts(&mut conjuncts);
            conjuncts.into_iter().for_each(|conjunct| join.require(conjunct, &named));
        }
        Ok((From::Join(Box::new(join)), named))
    }

    fn factor(self, factor: &TableFactor) -> Result<(From, Vec<Named>)> {
        match factor {
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.function(&split_name(name).1, &args.args, *with_ordinality, alias.as_ref(), factor)
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.function(&split_name(name).1, args, *with_ordinality, alias.as_ref(), factor)
            }
            TableFactor::UNNEST { array_exprs, alias, with_ordinality, .. } => {
                let arrays =
                    array_exprs.iter().map(|array| Ok(self.compiler().expr(array)?.node)).collect::<Result<_>>()?;
                Ok(self.unnest(arrays, *with_ordinality, alias.as_ref()))
            }
            TableFactor::Table { name, alias, .. } => {
                let (schema, table) = split_name(name);
                let shown = alias.as_ref().map_or_else(|| table.clone(), |alias| ident_name(&alias.name));
                let cte = self.ctes.iter().rev().find(|(cte, _)| schema.is_none() && *cte == table);
                if let Some((_, plan)) = cte {
                    let named = renamed(plan.columns.clone(), &shown, alias.as_ref());
                    return Ok((From::Query(Rc::clone(plan)), named));
                }
                let Some(found) = tables::find(schema.as_deref(), &table) else {
                    return Err(unknown_table(schema.as_deref(), &table, factor));
                };
                let columns = found.columns.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
                let mut named = renamed(columns, &shown, alias.as_ref());
                named.push(Named { table: Some(shown), name: "tableoid".into(), of: Type::Integer, hidden: true });
                let with_oid = |mut row: Row| -> Input {
                    row.push(found.oid().into());
                    row.into()
                };
                Ok((From::Table(found.rows(self.world).into_iter().map(with_oid).collect()), named))
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let plan = Plan::within(subquery, self.world, self.ctes, self.outer)?;
                let shown = alias.as_ref().map_or_else(String::new, |alias| ident_name(&alias.name));
                let named = renamed(plan.columns.clone(), &shown, alias.as_ref());
                Ok((From::Query(Rc::new(plan)), named))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joined(table_with_joins),
            other => Err(unsupported("this form of FROM", other.span())),
        }
    }

    fn compiler(&self) -> Compiler<'_> {
        // What stands in FROM names columns of what is around it.
        let scope = self.outer.copied().unwrap_or(Scope { columns: &[], outer: None });
        Compiler { world: self.world, ctes: self.ctes, scope, aggregates: None }
    }

    fn function(
        self,
        name: &str,
        args: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        factor: &TableFactor,
    ) -> Result<(From, Vec<Named>)> {
        let mut nodes = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => nodes.push(self.compiler().expr(expr)?.node),
                _ => return Err(unsupported("this argument", factor.span())),
            }
        }
        match (name, nodes.len()) {
            ("unnest", 1..) => Ok(self.unnest(nodes, ordinality, alias)),
            ("generate_series", 2 | 3) => {
                let shown = alias.map_or_else(|| name.to_owned(), |alias| ident_name(&alias.name));
                let column = if alias.is_some() { shown.clone() } else { name.to_owned() };
                Ok((From::Series(nodes), renamed(vec![(column, Type::Integer)], &shown, alias)))
            }
            _ => Err(unsupported(&format!("the table function {name}"), factor.span())),
        }
    }

    fn unnest(self, arrays: Vec<Node>, ordinality: bool, alias: Option<&TableAlias>) -> (From, Vec<Named>) {
        let shown = alias.map_or_else(|| "unnest".to_owned(), |alias| ident_name(&alias.name));
        let mut columns = vec![(shown.clone(), Type::Text); arrays.len()];
        if ordinality {
            columns.push(("ordinality".into(), Type::Integer));
        }
        (From::Unnest { arrays, ordinality }, renamed(columns, &shown, alias))
    }
}

/// Whether a table of `FROM` may name columns of those before it.
fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } => *lateral,
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// Columns under the names that an alias gives them.
fn renamed(columns: Vec<(String, Type)>, table: &str, alias: Option<&TableAlias>) -> Vec<Named> {
    let names = alias.map(|alias| alias.columns.as_slice()).unwrap_or_default();
    let named = |(at, (name, of)): (usize, (String, Type))| {
        let name = names.get(at).map_or(name, |column| ident_name(&column.name));
        Named { table: Some(table.to_owned()), name, of, hidden: false }
    };
    columns.into_iter().enumerate().map(named).collect()
}

fn unknown_table(schema: Option<&str>, table: &str, factor: &TableFactor) -> StreamError {
    let of_system = schema.is_none_or(|schema| schema == PG_CATALOG || schema == INFORMATION_SCHEMA);
    if !of_system || schema.is_none() && !table.starts_with("pg_") {
        return unsupported(&format!("{table}, a table of streams, beside system tables,"), factor.span());
    }
    StreamError::Unknown {
        kind: "table".into(),
        name: schema.map_or_else(|| table.to_owned(), |schema| format!("{schema}.{table}")),
        position: position(factor.span().start),
        hint: hint(table, tables::names(schema.unwrap_or(PG_CATALOG)), "system tables"),
    }
}

impl Join {
    /// Adds a condition.
    fn require(&mut self, condition: Node, named: &[Named]) {
        if let Node::Compare(super::expression::Comparison::Equal, left, right) = &condition
            && let (Node::Column { up: 0, at: a }, Node::Column { up: 0, at: b }) = (left.as_ref(), right.as_ref())
            && named[*a].of == named[*b].of
        {
            let (a, b) = (*a.min(b), *a.max(b));
            if a < self.left_width && b >= self.left_width {
                self.equal.push((a, b - self.left_width));
                return;
            }
        }
        self.on.push(condition);
    }

    fn rows(&self, outer: Option<&Frame<'_>>, world: &World<'_>) -> Result<Vec<Input>> {
        let left = self.left.rows(outer, world)?;
        let right = if self.lateral { Vec::new() } else { self.right.rows(outer, world)? };
        let mut by_key: HashMap<Vec<&Value>, Vec<usize>> = HashMap::new();
        for (at, row) in right.iter().enumerate() {
            by_key.entry(self.equal.iter().map(|(_, column)| &row[*column]).collect()).or_default().push(at);
        }
        let mut met = vec![false; right.len()];
        let mut joined = Vec::new();
        for row in &left {
            let key: Vec<&Value> = self.equal.iter().map(|(column, _)| &row[*column]).collect();
            let lateral = match self.lateral {
                true => self.right.rows(Some(&Frame { row, aggregates: &[], outer }), world)?,
                false => Vec::new(),
            };
            let candidates: Vec<(usize, &Input)> = if self.lateral {
                lateral.iter().enumerate().collect()
            } else if key.contains(&&Value::Null) {
                Vec::new()
            } else {
                by_key.get(&key).into_iter().flatten().map(|at| (*at, &right[*at])).collect()
            };
            let mut alone = true;
            for (at, other) in candidates {
                world.look_at_row()?;
                let both: Input = row.iter().chain(other.iter()).cloned().collect();
                if all_hold(&self.on, &Frame { row: &both, aggregates: &[], outer }, world)? {
                    alone = false;
                    met.get_mut(at).into_iter().for_each(|met| *met = true);
                    world.keep_values(both.len())?;
                    joined.push(both);
                }
            }
            if alone && matches!(self.kind, Kind::Left | Kind::Full) {
                joined.push(row.iter().cloned().chain(vec![Value::Null; self.right_width]).collect());
            }
        }
        if matches!(self.kind, Kind::Right | Kind::Full) {
            let lost = right.iter().zip(met).filter(|(_, met)| !met).map(|(row, _)| row);
            joined.extend(lost.map(|row| {
                std::iter::repeat_n(Value::Null, self.left_width).chain(row.iter().cloned()).collect::<Input>()
            }));
        }
        Ok(joined)
    }
}

impl From {
    /// Puts a condition into the join below which its columns are known; gives it back if there is none.
    fn narrow(&mut self, condition: Node) -> Option<Node> {
        let Self::Join(join) = self else { return Some(condition) };
        let Some(reach) = condition.reach().filter(|_| join.kind == Kind::Inner) else { return Some(condition) };
        if reach <= join.left_width && matches!(join.left, Self::Join(_)) {
            return join.left.narrow(condition);
        }
        join.on.push(condition);
        None
    }

    fn rows(&self, outer: Option<&Frame<'_>>, world: &World<'_>) -> Result<Vec<Input>> {
        // What stands here names columns of what is around it only.
        const NO_ROW: Frame<'_> = Frame { row: &[], aggregates: &[], outer: None };
        let around = outer.unwrap_or(&NO_ROW);
        match self {
            Self::Nothing => Ok(vec![Rc::new([])]),
            Self::Table(rows) => Ok(rows.clone()),
            Self::Query(plan) => Ok(plan.rows_within(outer, world)?.into_iter().map(Into::into).collect()),
            Self::Join(join) => join.rows(outer, world),
            Self::Unnest { arrays, ordinality } => {
                let arrays = arrays
                    .iter()
                    .map(|node| Ok(node.value(around, world)?.elements()?.unwrap_or_default()))
                    .collect::<Result<Vec<_>>>()?;
                let length = arrays.iter().map(Vec::len).max().unwrap_or(0);
                let row = |at: usize| {
                    let mut row: Row =
                        arrays.iter().map(|array| array.get(at).cloned().unwrap_or(Value::Null)).collect();
                    if *ordinality {
                        row.push((at as i64 + 1).into());
                    }
                    row.into()
                };
                world.keep_values(length)?;
                Ok((0..length).map(row).collect())
            }
            Self::Series(bounds) => {
                let bounds =
                    bounds.iter().map(|node| node.value(around, world)?.integer()).collect::<Result<Vec<_>>>()?;
                let [Some(first), Some(last), step @ ..] = bounds.as_slice() else { return Ok(Vec::new()) };
                let step = step.first().copied().flatten().unwrap_or(1);
                let mut rows = Vec::new();
                let mut at = *first;
                while step != 0 && (step > 0 && at <= *last || step < 0 && at >= *last) {
                    world.keep_values(1)?;
                    rows.push(Rc::new([at.into()]) as Input);
                    at = at.saturating_add(step);
                }
                Ok(rows)
            }
        }
    }
}

impl World<'_> {
    fn look_at_row(&self) -> Result<()> {
        count(&self.rows, 1, ROWS_MAX, "looks at more than", "rows")
    }

    fn keep_values(&self, values: usize) -> Result<()> {
        count(&self.values, values, VALUES_MAX, "joins more than", "values")
    }
}

fn count(counter: &Cell<usize>, more: usize, most: usize, does: &str, what: &str) -> Result<()> {
    counter.set(counter.get() + more);
    if counter.get() <= most {
        return Ok(());
    }
    let message = format!("the query {does} {most} {what} of system tables; add conditions");
    Err(StreamError::TooComplex { message })
}
