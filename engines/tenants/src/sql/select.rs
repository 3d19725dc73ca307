//! Plans of `SELECT`.

use std::sync::Arc;

use savanna_transaction::RowLock;
use sqlparser::ast::{
    self, Distinct, GroupByExpr, Join, JoinConstraint, JoinOperator, LimitClause, LockClause, LockType, NonBlock,
    OrderByKind, Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins,
};

use crate::{
    catalog::{Catalog, Table},
    error::{Result, SqlError, state},
    sql::{
        access::{self, Access},
        aggregate::Aggregate,
        bind::{Binder, Parameters, Scope, Typed, Visible, name_of, object_name},
        expression::{Expr, Facts},
        plan::{Grouping, Level, Locking, OutputColumn, Patience, Select, SortKey, Source},
    },
    types::Type,
    value::Value,
};

/// Tables that one statement joins.
const TABLES_MAX: usize = 32;

/// Plans the statements of one text.
pub(crate) struct Planner<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) parameters: Parameters,
}

/// A table that was named, before its rows' way is chosen.
struct Named {
    table: Arc<Table>,
    base: usize,
    /// For a left join: its conditions.
    optional: Option<Vec<Expr>>,
}

/// The tables of a statement.
#[derive(Default)]
pub(crate) struct From {
    pub(crate) scope: Scope,
    tables: Vec<Named>,
    /// Conditions of inner joins.
    conditions: Vec<Expr>,
}

impl From {
    /// The tables, with the places where their columns begin.
    pub(crate) fn named_tables(&self) -> Vec<(usize, Arc<Table>)> {
        self.tables.iter().map(|named| (named.base, Arc::clone(&named.table))).collect()
    }
}

impl Planner<'_> {
    /// A table by its name.
    pub(crate) fn table(&self, name: &ast::ObjectName) -> Result<Arc<Table>> {
        let name = object_name(name)?;
        let table = self.catalog.table(&name);
        table
            .map(Arc::clone)
            .ok_or_else(|| SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")))
    }

    /// Adds a table, all of whose columns can be named.
    pub(crate) fn add_table(&self, from: &mut From, table: Arc<Table>, alias: Option<&ast::TableAlias>) -> Result<()> {
        let name = alias.map_or_else(|| table.name.clone(), |alias| name_of(&alias.name));
        if alias.is_some_and(|alias| !alias.columns.is_empty()) {
            return Err(SqlError::unsupported("an alias of columns"));
        }
        if from.scope.columns.iter().any(|column| column.table == name) {
            let message = format!("table name \"{name}\" specified more than once");
            return Err(SqlError::new(state::DUPLICATE_ALIAS, message));
        }
        if from.tables.len() == TABLES_MAX {
            let message = format!("a statement joins at most {TABLES_MAX} tables");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let base = from.scope.columns.len();
        from.scope.columns.extend(table.columns.iter().map(|column| Visible {
            table: name.clone(),
            // A dropped column has a name that nobody can write.
            name: if column.dropped { String::new() } else { column.name.clone() },
            of: column.of,
            hidden: column.dropped,
        }));
        from.tables.push(Named { table, base, optional: None });
        Ok(())
    }

    /// Adds what stands in a FROM clause.
    pub(crate) fn add_from(&mut self, from: &mut From, items: &[TableWithJoins]) -> Result<()> {
        for item in items {
            self.add_factor(from, &item.relation)?;
            for join in &item.joins {
                self.add_join(from, join)?;
            }
        }
        Ok(())
    }

    fn add_factor(&self, from: &mut From, factor: &TableFactor) -> Result<()> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                version: None,
                with_ordinality: false,
                sample: None,
                json_path: None,
                ..
            } => {
                let table = self.table(name)?;
                self.add_table(from, table, alias.as_ref())
            }
            other => Err(SqlError::unsupported(format_args!("{other} in FROM"))),
        }
    }

    fn add_join(&mut self, from: &mut From, join: &Join) -> Result<()> {
        let left_end = from.scope.columns.len();
        self.add_factor(from, &join.relation)?;
        let (constraint, optional) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false),
            JoinOperator::CrossJoin(constraint) => (constraint, false),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true),
            _ => return Err(SqlError::unsupported(format_args!("{}", join.to_string().trim()))),
        };
        let mut conditions = Vec::new();
        match constraint {
            JoinConstraint::None => {}
            JoinConstraint::On(condition) => {
                let mut binder = Binder::plain(&from.scope, &mut self.parameters, "JOIN conditions");
                binder.condition(condition, "JOIN/ON")?.conjuncts(&mut conditions);
            }
            JoinConstraint::Using(names) => {
                for name in names {
                    let name = object_name(name)?;
                    conditions.push(using(from, left_end, &name)?);
                }
            }
            JoinConstraint::Natural => return Err(SqlError::unsupported("NATURAL JOIN")),
        }
        match from.tables.last_mut() {
            Some(named) if optional => named.optional = Some(conditions),
            _ => from.conditions.extend(conditions),
        }
        Ok(())
    }

    /// Chooses the ways to the rows of all tables. Returns them with what is no table's condition.
    pub(crate) fn levels(&self, from: From, filter: Option<Expr>) -> (Vec<Level>, usize, Option<Expr>) {
        let From { scope, tables, mut conditions } = from;
        let width = scope.columns.len();
        if let Some(filter) = filter {
            filter.conjuncts(&mut conditions);
        }
        let mut take = |end: usize| -> Vec<Expr> {
            conditions.extract_if(.., |condition| condition.columns_end() <= end).collect()
        };
        let none = Expr::all(take(0));
        let mut levels = Vec::new();
        for named in tables {
            let Named { table, base, optional } = named;
            let mine = take(base + table.columns.len());
            let is_optional = optional.is_some();
            let (mut while_joining, after) = match optional {
                Some(on) => (on, Expr::all(mine)),
                None => (mine, None),
            };
            let access = access::choose(&table, base, &mut while_joining);
            let filter = Expr::all(while_joining);
            levels.push(Level { table, base, access, wanted: Vec::new(), filter, optional: is_optional, after });
        }
        (levels, width, none)
    }

    /// A whole query.
    pub(crate) fn query(&mut self, query: &Query) -> Result<Select> {
        let unsupported = |what: &str| Err(SqlError::unsupported(what));
        if query.with.is_some() {
            return unsupported("WITH");
        }
        if query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties || fetch.percent) {
            return unsupported("FETCH .. WITH TIES");
        }
        if query.for_clause.is_some() || query.settings.is_some() || !query.pipe_operators.is_empty() {
            return unsupported("this clause of a query");
        }
        let mut select = match &*query.body {
            SetExpr::Select(select) => self.select(select, query)?,
            SetExpr::Values(values) => {
                let rows: Vec<&[ast::Expr]> = values.rows.iter().map(|row| row.content.as_slice()).collect();
                let select = self.values(&rows)?;
                if query.order_by.is_some() {
                    return unsupported("ORDER BY of VALUES");
                }
                select
            }
            SetExpr::Query(inner) if query.order_by.is_none() && query.limit_clause.is_none() => {
                return self.query(inner);
            }
            SetExpr::SetOperation { op, .. } => return Err(SqlError::unsupported(op)),
            _ => return unsupported("this kind of query"),
        };
        let (limit, offset) = match &query.limit_clause {
            None => (query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref()), None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let fetched = query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref());
                (limit.as_ref().or(fetched), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => return unsupported("this kind of LIMIT"),
        };
        let nothing = Scope::default();
        let mut count = |ast: Option<&ast::Expr>, place: &'static str| -> Result<Option<Expr>> {
            let Some(ast) = ast else { return Ok(None) };
            let mut binder = Binder::plain(&nothing, &mut self.parameters, place);
            let typed = binder.expr(ast)?;
            Ok(Some(binder.implicit(typed, Type::Int8)?))
        };
        select.limit = count(limit, "LIMIT")?;
        select.offset = count(offset, "OFFSET")?;
        select.locking = locking(&query.locks, &select)?;
        Ok(select)
    }

    /// Rows that are written down.
    pub(crate) fn values(&mut self, rows: &[&[ast::Expr]]) -> Result<Select> {
        let width = rows.first().map_or(0, |row| row.len());
        if rows.iter().any(|row| row.len() != width) {
            return Err(SqlError::new(state::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        let scope = Scope::default();
        let mut binder = Binder::plain(&scope, &mut self.parameters, "VALUES");
        let mut columns: Vec<Vec<Expr>> = Vec::new();
        let mut outputs = Vec::new();
        for column in 0..width {
            let typed = rows.iter().map(|row| binder.expr(&row[column])).collect::<Result<Vec<_>>>()?;
            let (exprs, of) = binder.common(typed, "VALUES")?;
            columns.push(exprs);
            outputs.push(OutputColumn { name: format!("column{}", column + 1), of, origin: (0, 0) });
        }
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let rows = (0..rows.len())
            .map(|_| columns.iter_mut().map(|column| column.next().unwrap_or(Expr::NULL)).collect())
            .collect();
        Ok(Select {
            source: Source::Values(rows),
            width,
            condition: None,
            grouping: None,
            outputs: (0..width).map(Expr::Column).collect(),
            columns: outputs,
            distinct: false,
            order: Vec::new(),
            backwards: false,
            limit: None,
            offset: None,
            locking: None,
        })
    }

    fn select(&mut self, ast: &ast::Select, query: &Query) -> Result<Select> {
        let unsupported = |what: &str| Err(SqlError::unsupported(what));
        let odd = ast.top.is_some()
            || ast.into.is_some()
            || !ast.lateral_views.is_empty()
            || ast.prewhere.is_some()
            || ast.qualify.is_some()
            || !ast.named_window.is_empty()
            || ast.value_table_mode.is_some()
            || !ast.connect_by.is_empty()
            || ast.exclude.is_some();
        if odd {
            return unsupported("this clause of SELECT");
        }
        let distinct = match &ast.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => return unsupported("DISTINCT ON"),
        };
        let mut from = From::default();
        self.add_from(&mut from, &ast.from)?;
        let mut binder = Binder::plain(&from.scope, &mut self.parameters, "WHERE");
        let filter = ast.selection.as_ref().map(|filter| binder.condition(filter, "WHERE")).transpose()?;

        let mut aggregates = Vec::new();
        let tables = from.named_tables();
        let mut items = Items { scope: &from.scope, tables: &tables, outputs: Vec::new(), columns: Vec::new() };
        let mut binder = Binder {
            scope: &from.scope,
            parameters: &mut self.parameters,
            aggregates: Ok(&mut aggregates),
            branches: 0,
        };
        items.add_all(&mut binder, &ast.projection)?;
        let Items { mut outputs, columns, .. } = items;
        let visible = outputs.len();

        let having = ast.having.as_ref().map(|having| binder.condition(having, "HAVING")).transpose()?;
        let keys = group_keys(&ast.group_by, &mut binder, &outputs, &columns)?;
        let order = match &query.order_by {
            None => Vec::new(),
            Some(order) => sort_keys(order, &mut binder, &mut outputs, &columns, distinct)?,
        };

        let grouping = if keys.is_some() || !aggregates.is_empty() || having.is_some() {
            let keys = keys.unwrap_or_default();
            for output in &mut outputs {
                regroup(output, &keys, &from.scope)?;
            }
            let mut having = having;
            if let Some(having) = &mut having {
                regroup(having, &keys, &from.scope)?;
            }
            Some(Grouping { keys, aggregates, having })
        } else {
            None
        };
        let (mut levels, width, condition) = self.levels(from, filter);
        let (order, backwards) = match &grouping {
            None if !distinct => in_order(&levels, &outputs, order),
            _ => (order, false),
        };
        want(&mut levels, outputs_of(&outputs, grouping.as_ref()), condition.as_ref());
        debug_assert_eq!(visible, columns.len(), "what is only sorted by comes last");
        Ok(Select {
            source: Source::Tables(levels),
            width,
            condition,
            grouping,
            outputs,
            columns,
            distinct,
            order,
            backwards,
            limit: None,
            offset: None,
            locking: None,
        })
    }

    /// A `RETURNING` clause over a table's columns.
    pub(crate) fn returning(
        &mut self,
        ast: &[SelectItem],
        scope: &Scope,
        tables: &[(usize, Arc<Table>)],
    ) -> Result<(Vec<Expr>, Vec<OutputColumn>)> {
        let mut items = Items { scope, tables, outputs: Vec::new(), columns: Vec::new() };
        let mut binder = Binder::plain(scope, &mut self.parameters, "RETURNING");
        items.add_all(&mut binder, ast)?;
        Ok((items.outputs, items.columns))
    }
}

/// `USING (name)`: the columns are equal, and the left one stands for both.
fn using(from: &mut From, left_end: usize, name: &str) -> Result<Expr> {
    let find = |range: std::ops::Range<usize>, side: &str| {
        let columns = &from.scope.columns[range.clone()];
        let found = columns.iter().position(|column| column.name == name && !column.hidden);
        found.map(|at| at + range.start).ok_or_else(|| {
            let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            SqlError::new(state::UNDEFINED_COLUMN, message)
        })
    };
    let (left, right) = (find(0..left_end, "left")?, find(left_end..from.scope.columns.len(), "right")?);
    let (a, b) = (from.scope.columns[left].of, from.scope.columns[right].of);
    let alike = a.unbounded() == b.unbounded() || (a.is_integer() && b.is_integer()) || (a.is_text() && b.is_text());
    if !alike {
        return Err(SqlError::unsupported(format_args!("USING ({name}) over different types")));
    }
    from.scope.columns[right].hidden = true;
    let equal = crate::sql::expression::Comparison::Equal;
    Ok(Expr::Compare(equal, Box::new(Expr::Column(left)), Box::new(Expr::Column(right))))
}

/// What is selected.
struct Items<'a> {
    scope: &'a Scope,
    tables: &'a [(usize, Arc<Table>)],
    outputs: Vec<Expr>,
    columns: Vec<OutputColumn>,
}

impl Items<'_> {
    fn add_all(&mut self, binder: &mut Binder<'_>, items: &[SelectItem]) -> Result<()> {
        for item in items {
            match item {
                SelectItem::UnnamedExpr(ast) => {
                    let typed = binder.settled(ast)?;
                    self.add(typed, default_name(ast));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let typed = binder.settled(expr)?;
                    self.add(typed, name_of(alias));
                }
                SelectItem::Wildcard(_) => {
                    if self.tables.is_empty() {
                        let message = "SELECT * with no tables specified is not valid";
                        return Err(SqlError::new(state::SYNTAX_ERROR, message));
                    }
                    self.add_columns(None);
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let name = object_name(name)?;
                    if !self.scope.columns.iter().any(|column| column.table == name) {
                        let message = format!("missing FROM-clause entry for table \"{name}\"");
                        return Err(SqlError::new(state::UNDEFINED_TABLE, message));
                    }
                    self.add_columns(Some(&name));
                }
                other => return Err(SqlError::unsupported(format_args!("{other} in a SELECT list"))),
            }
        }
        Ok(())
    }

    fn add_columns(&mut self, table: Option<&str>) {
        for (at, column) in self.scope.columns.iter().enumerate() {
            let shown = match table {
                Some(table) => column.table == table && !column.name.is_empty(),
                None => !column.hidden,
            };
            if shown {
                self.add(Typed::new(Expr::Column(at), column.of), column.name.clone());
            }
        }
    }

    fn add(&mut self, typed: Typed, name: String) {
        let origin = match typed.expr {
            Expr::Column(at) => {
                let table = self.tables.iter().rev().find(|(base, _)| *base <= at);
                table.map_or((0, 0), |(base, table)| (table.id, (at - base + 1) as i16))
            }
            _ => (0, 0),
        };
        self.columns.push(OutputColumn { name, of: typed.of, origin });
        self.outputs.push(typed.expr);
    }
}

/// The name that PostgreSQL gives to what has none.
fn default_name(ast: &ast::Expr) -> String {
    match ast {
        ast::Expr::Identifier(ident) => name_of(ident),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, name_of),
        ast::Expr::Nested(inner) => default_name(inner),
        ast::Expr::Function(function) => object_name(&function.name).unwrap_or_default(),
        ast::Expr::Cast { expr, data_type, .. } => match default_name(expr).as_str() {
            "?column?" => Type::of_ast(data_type).map_or_else(
                |_| "?column?".to_owned(),
                |of| match of {
                    Type::Bool => "bool".to_owned(),
                    Type::Int2 => "int2".to_owned(),
                    Type::Int4 => "int4".to_owned(),
                    Type::Int8 => "int8".to_owned(),
                    Type::Float4 => "float4".to_owned(),
                    Type::Float8 => "float8".to_owned(),
                    Type::Varchar(_) => "varchar".to_owned(),
                    Type::Char(_) => "bpchar".to_owned(),
                    Type::Timestamp => "timestamp".to_owned(),
                    Type::Timestamptz => "timestamptz".to_owned(),
                    Type::Time => "time".to_owned(),
                    other => other.base_name(),
                },
            ),
            name => name.to_owned(),
        },
        // As its last result, if that is a column or a call.
        ast::Expr::Case { else_result: Some(last), .. }
            if matches!(
                **last,
                ast::Expr::Identifier(_)
                    | ast::Expr::CompoundIdentifier(_)
                    | ast::Expr::Function(_)
                    | ast::Expr::Case { .. }
            ) =>
        {
            default_name(last)
        }
        ast::Expr::Case { .. } => "case".to_owned(),
        ast::Expr::Extract { .. } => "extract".to_owned(),
        ast::Expr::Substring { .. } => "substring".to_owned(),
        ast::Expr::Position { .. } => "position".to_owned(),
        ast::Expr::Trim { .. } => "btrim".to_owned(),
        ast::Expr::Ceil { .. } => "ceil".to_owned(),
        ast::Expr::Floor { .. } => "floor".to_owned(),
        ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => "bool".to_owned(),
        ast::Expr::Interval(_) => "interval".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// A place in the SELECT list, if that is what a number in GROUP BY or ORDER BY is.
fn ordinal(ast: &ast::Expr, visible: usize, clause: &str) -> Result<Option<usize>> {
    let ast::Expr::Value(value) = ast else { return Ok(None) };
    let ast::Value::Number(digits, _) = &value.value else { return Ok(None) };
    match digits.parse::<usize>() {
        Ok(place) if (1..=visible).contains(&place) => Ok(Some(place - 1)),
        _ => {
            let message = format!("{clause} position {digits} is not in select list");
            Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message))
        }
    }
}

fn group_keys(
    ast: &GroupByExpr,
    binder: &mut Binder<'_>,
    outputs: &[Expr],
    columns: &[OutputColumn],
) -> Result<Option<Vec<Expr>>> {
    let exprs = match ast {
        GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
        _ => return Err(SqlError::unsupported("this kind of GROUP BY")),
    };
    if exprs.is_empty() {
        return Ok(None);
    }
    let mut keys = Vec::new();
    for ast in exprs {
        if let Some(at) = ordinal(ast, columns.len(), "GROUP BY")? {
            keys.push(outputs[at].clone());
            continue;
        }
        // A column of the tables comes before a name in the SELECT list.
        let mut inner = Binder::plain(binder.scope, &mut *binder.parameters, "GROUP BY");
        match (inner.settled(ast), ast) {
            (Ok(typed), _) => keys.push(typed.expr),
            (Err(error), ast::Expr::Identifier(ident)) => {
                let name = name_of(ident);
                match columns.iter().position(|column| column.name == name) {
                    Some(at) if error.state == state::UNDEFINED_COLUMN => keys.push(outputs[at].clone()),
                    _ => return Err(error),
                }
            }
            (Err(error), _) => return Err(error),
        }
    }
    let mut aggregate = false;
    for key in &keys {
        contains_aggregate(key, &mut aggregate);
    }
    if aggregate {
        return Err(SqlError::new(state::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY"));
    }
    Ok(Some(keys))
}

fn contains_aggregate(expr: &Expr, found: &mut bool) {
    *found |= matches!(expr, Expr::Aggregate(_));
    expr.children(&mut |child| contains_aggregate(child, found));
}

fn sort_keys(
    order: &ast::OrderBy,
    binder: &mut Binder<'_>,
    outputs: &mut Vec<Expr>,
    columns: &[OutputColumn],
    distinct: bool,
) -> Result<Vec<SortKey>> {
    let OrderByKind::Expressions(exprs) = &order.kind else { return Err(SqlError::unsupported("ORDER BY ALL")) };
    let mut keys = Vec::new();
    for by in exprs {
        let named = match &by.expr {
            ast::Expr::Identifier(ident) => {
                let name = name_of(ident);
                let mut named = (0..columns.len()).filter(|at| columns[*at].name == name);
                let first = named.next();
                if let Some(first) = first
                    && named.any(|other| outputs[other] != outputs[first])
                {
                    let message = format!("ORDER BY \"{name}\" is ambiguous");
                    return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
                }
                first
            }
            ast => ordinal(ast, columns.len(), "ORDER BY")?,
        };
        let at = match named {
            Some(at) => at,
            None => {
                let expr = binder.settled(&by.expr)?.expr;
                match outputs.iter().position(|output| *output == expr) {
                    Some(at) => at,
                    None if distinct => {
                        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                        return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
                    }
                    None => {
                        outputs.push(expr);
                        outputs.len() - 1
                    }
                }
            }
        };
        let descending = by.options.asc == Some(false);
        keys.push(SortKey { at, descending, nulls_first: by.options.nulls_first.unwrap_or(descending) });
    }
    Ok(keys)
}

/// Turns an expression over rows into one over groups: keys, then aggregates.
fn regroup(expr: &mut Expr, keys: &[Expr], scope: &Scope) -> Result<()> {
    if let Some(at) = keys.iter().position(|key| key == expr) {
        *expr = Expr::Column(at);
        return Ok(());
    }
    match expr {
        Expr::Aggregate(at) => {
            *expr = Expr::Column(keys.len() + *at);
            Ok(())
        }
        Expr::Column(at) => {
            let column = &scope.columns[*at];
            let message = format!(
                "column \"{}.{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                column.table, column.name
            );
            Err(SqlError::new(state::GROUPING_ERROR, message))
        }
        other => other.children_mut(&mut |child| regroup(child, keys, scope)),
    }
}

/// Whether the first table's rows come in the order that is asked for, perhaps from the end: then nothing is sorted.
fn in_order(levels: &[Level], outputs: &[Expr], order: Vec<SortKey>) -> (Vec<SortKey>, bool) {
    let Some(level) = levels.first() else { return (order, false) };
    let (columns, fixed): (Vec<(usize, bool)>, usize) = match &level.access {
        Access::Key(_) | Access::Unique { .. } if levels.len() == 1 => return (Vec::new(), false),
        Access::Range { index: None, equal, .. } => match &level.table.primary {
            Some(primary) => (primary.columns.iter().map(|column| (*column, false)).collect(), equal.len()),
            None => return (order, false),
        },
        Access::Range { index: Some(index), equal, .. } => (level.table.indexes[*index].columns.clone(), equal.len()),
        _ => return (order, false),
    };
    let mut backwards = None;
    let mut next = columns.iter().skip(fixed);
    for key in &order {
        let Some((column, descending)) = next.next() else { return (order, false) };
        let same_column = outputs.get(key.at) == Some(&Expr::Column(level.base + *column));
        let turned = key.descending != *descending;
        // NULL is the largest in an index; a column without NULLs has no say.
        let nulls = level.table.columns[*column].not_null || key.nulls_first == key.descending;
        if !same_column || !nulls || *backwards.get_or_insert(turned) != turned {
            return (order, false);
        }
    }
    // Joined tables keep the order of the first, unless it is read backwards with others inside.
    (Vec::new(), backwards.unwrap_or(false))
}

fn outputs_of<'a>(outputs: &'a [Expr], grouping: Option<&'a Grouping>) -> Vec<&'a Expr> {
    match grouping {
        None => outputs.iter().collect(),
        Some(grouping) => {
            let of = |aggregate: &'a Aggregate| aggregate.argument.iter().chain(&aggregate.filter);
            grouping.keys.iter().chain(grouping.aggregates.iter().flat_map(of)).collect()
        }
    }
}

/// Notes which columns of each table are needed.
pub(crate) fn want(levels: &mut [Level], outputs: Vec<&Expr>, condition: Option<&Expr>) {
    let mut columns = std::collections::BTreeSet::new();
    let mut note = |column| {
        columns.insert(column);
    };
    for expr in outputs.into_iter().chain(condition) {
        expr.columns(&mut note);
    }
    for level in levels.iter() {
        for expr in level.filter.iter().chain(&level.after) {
            expr.columns(&mut note);
        }
        match &level.access {
            Access::Key(key) | Access::Unique { key, .. } => key.iter().for_each(|expr| expr.columns(&mut note)),
            Access::Range { equal, lower, upper, .. } => {
                let bounds = lower.iter().chain(upper).map(|(bound, _)| bound);
                equal.iter().chain(bounds).for_each(|expr| expr.columns(&mut note));
            }
        }
    }
    for level in levels {
        let end = level.base + level.table.columns.len();
        level.wanted = columns.range(level.base..end).map(|column| column - level.base).collect();
    }
}

fn locking(locks: &[LockClause], select: &Select) -> Result<Option<Locking>> {
    let Some(lock) = locks.first() else { return Ok(None) };
    if locks.len() > 1 || lock.of.is_some() {
        return Err(SqlError::unsupported("FOR UPDATE OF a table"));
    }
    if select.grouping.is_some() || select.distinct || matches!(select.source, Source::Values(_)) {
        return Err(SqlError::unsupported("FOR UPDATE with groups, DISTINCT or VALUES"));
    }
    let Source::Tables(levels) = &select.source else { return Ok(None) };
    if levels.iter().any(|level| level.optional) {
        let message = "FOR UPDATE cannot be applied to the nullable side of an outer join";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    let mode = match lock.lock_type {
        LockType::Share => RowLock::Share,
        LockType::Update => RowLock::Update,
    };
    let patience = match lock.nonblock {
        None => Patience::Wait,
        Some(NonBlock::Nowait) => Patience::Fail,
        Some(NonBlock::SkipLocked) => Patience::Skip,
    };
    Ok(Some(Locking { mode, patience }))
}

/// What `LIMIT` and `OFFSET` say, before the statement runs.
pub(crate) fn limit(
    expr: Option<&Expr>,
    parameters: &[Value],
    facts: &Facts,
    negative: (&'static str, &str),
) -> Result<Option<usize>> {
    let Some(expr) = expr else { return Ok(None) };
    let value = expr.owned(crate::sql::expression::Env { row: &[], parameters, facts })?;
    match crate::sql::function::count(&value) {
        None => Ok(None),
        Some(count) => match usize::try_from(count) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(SqlError::new(negative.0, format!("{} must not be negative", negative.1))),
        },
    }
}
