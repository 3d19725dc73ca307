//! The FROM clause: which tables and queries are joined, how, and what can be named of them.

mod join;
mod record;
mod scalar;

use std::{ops::Range, sync::Arc};

use savanna_tenants_catalog::{Sequence, Table, view::Read};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, Join, JoinOperator, TableFactor, TableWithJoins};

use crate::{
    bind::{Binder, argument::in_order},
    expression::{
        Expr, aggregate,
        set_function::{self, ResolvedSet},
    },
    modify::columns_of,
    parse::{
        self,
        name::{name_of, object_name, relation_name},
    },
    plan::{
        OutputColumn,
        query::{Body, Query},
    },
    query::{
        index_order::Wanted,
        scope::{Scope, Visible},
        select::Planner,
        view::{Relation, keep_known},
    },
    system,
};

/// Tables that one statement joins.
const TABLES_MAX: usize = 32;

/// What is joined, before it is decided how.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Table { table: Arc<Table>, alias: String, base: usize },
    Rows { query: Arc<Query>, alias: String, base: usize },
    Inner(Inner),
    Outer(Box<Outer>),
}

/// All of these together, where the conditions hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    pub(crate) items: Vec<Item>,
    pub(crate) conditions: Vec<Expr>,
}

/// A left join, or a full one.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) left: Item,
    pub(crate) right: Item,
    pub(crate) on: Vec<Expr>,
    pub(crate) full: bool,
}

impl Item {
    /// Its columns of the joined row.
    pub(crate) fn part(&self) -> Range<usize> {
        match self {
            Self::Table { table, base, .. } => *base..base + table.columns.len(),
            Self::Rows { query, base, .. } => *base..base + query.columns.len(),
            Self::Inner(inner) => {
                let parts = || inner.items.iter().map(Self::part).filter(|part| !part.is_empty());
                parts().map(|part| part.start).min().unwrap_or(0)..parts().map(|part| part.end).max().unwrap_or(0)
            }
            Self::Outer(outer) => {
                let (left, right) = (outer.left.part(), outer.right.part());
                match (left.is_empty(), right.is_empty()) {
                    (true, _) => right,
                    (_, true) => left,
                    _ => left.start.min(right.start)..left.end.max(right.end),
                }
            }
        }
    }

    /// Whether there is a full join in it.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Table { .. } | Self::Rows { .. } => false,
            Self::Inner(inner) => inner.items.iter().any(Self::is_full),
            Self::Outer(outer) => outer.full || outer.left.is_full() || outer.right.is_full(),
        }
    }

    /// The name of the query of WITH RECURSIVE in it that is being planned.
    fn recursive(&self) -> Option<&str> {
        match self {
            Self::Rows { query, alias, .. } => matches!(query.body, Body::Working(_)).then_some(alias),
            Self::Table { .. } => None,
            Self::Inner(inner) => inner.items.iter().find_map(Self::recursive),
            Self::Outer(outer) => outer.left.recursive().or_else(|| outer.right.recursive()),
        }
    }

    /// Visits the tables in it.
    pub(crate) fn tables(&self, visit: &mut dyn FnMut(&Arc<Table>, &str, usize)) {
        match self {
            Self::Table { table, alias, base } => visit(table, alias, *base),
            Self::Rows { .. } => {}
            Self::Inner(inner) => inner.items.iter().for_each(|item| item.tables(visit)),
            Self::Outer(outer) => {
                outer.left.tables(visit);
                outer.right.tables(visit);
            }
        }
    }

    /// Visits the names of those parts whose rows may be missing.
    fn optional_tables(&self, optional: bool, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::Table { alias, .. } | Self::Rows { alias, .. } if optional => visit(alias),
            Self::Table { .. } | Self::Rows { .. } => {}
            Self::Inner(inner) => inner.items.iter().for_each(|item| item.optional_tables(optional, visit)),
            Self::Outer(outer) => {
                outer.left.optional_tables(optional || outer.full, visit);
                outer.right.optional_tables(true, visit);
            }
        }
    }
}

/// A query in FROM.
pub(crate) enum Derived {
    Query(Query),
    /// One that only joins and filters, so that it becomes a part of the query around it.
    Joined {
        columns: Vec<(Expr, OutputColumn)>,
        /// Columns of the row so far.
        width: usize,
        joined: Inner,
    },
}

impl Derived {
    /// Its columns.
    pub(crate) fn columns_mut(&mut self) -> Box<dyn Iterator<Item = &mut OutputColumn> + '_> {
        match self {
            Self::Query(query) => Box::new(query.columns.iter_mut()),
            Self::Joined { columns, .. } => Box::new(columns.iter_mut().map(|(_, column)| column)),
        }
    }
}

/// The FROM clause of a query.
#[derive(Debug, Default)]
pub(crate) struct From<'s> {
    pub(crate) scope: Scope<'s>,
    pub(crate) joined: Inner,
    count: usize,
}

impl<'s> From<'s> {
    pub(crate) fn new(scope: Scope<'s>) -> Self {
        Self { scope, joined: Inner::default(), count: 0 }
    }

    /// Visits the tables in it, with their names and the places where their columns begin.
    pub(crate) fn tables(&self, visit: &mut dyn FnMut(&Arc<Table>, &str, usize)) {
        self.joined.items.iter().for_each(|item| item.tables(visit));
    }

    /// The names of those whose rows may be missing.
    pub(crate) fn optional_tables(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.joined.items.iter().for_each(|item| item.optional_tables(false, &mut |name| names.push(name.to_owned())));
        names
    }

    /// Adds a table, all of whose columns can be named; in a view's query those that it knows.
    pub(crate) fn add_table(
        &mut self,
        table: Arc<Table>,
        known: Option<&Read>,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Item> {
        let own = known.map_or(table.name.as_str(), Read::alias);
        let name = alias.map_or_else(|| own.to_owned(), |alias| name_of(&alias.name));
        let base = self.scope.width;
        let mut columns = columns_of(&table, &name, base);
        if let Some(known) = known {
            keep_known(known, &mut columns);
        }
        self.scope.width += table.columns.len();
        self.name(columns, &name, alias)?;
        Ok(Item::Table { table, alias: name, base })
    }

    /// Adds a query, whose columns these are.
    fn add_query(&mut self, query: Query, name: &str, alias: Option<&ast::TableAlias>) -> Result<Item> {
        self.add_derived(Derived::Query(query), name, None, alias)
    }

    /// Adds a query in FROM; of one that stands for a view, the columns that the query around it knows.
    pub(crate) fn add_derived(
        &mut self,
        derived: Derived,
        name: &str,
        known: Option<&Read>,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Item> {
        let base = self.scope.width;
        let (mut columns, item): (Vec<Visible>, Item) = match derived {
            Derived::Query(query) => {
                let outputs = query.columns.iter().enumerate().map(|(at, column)| (Expr::Column(base + at), column));
                let columns = outputs.map(|(expr, column)| visible(name, expr, column)).collect();
                self.scope.width += query.columns.len();
                (columns, Item::Rows { query: Arc::new(query), alias: name.to_owned(), base })
            }
            Derived::Joined { columns, width, joined } => {
                self.scope.width = width;
                let columns = columns.into_iter().map(|(expr, column)| visible(name, expr, &column)).collect();
                (columns, Item::Inner(joined))
            }
        };
        if let Some(known) = known {
            keep_known(known, &mut columns);
        }
        self.name(columns, name, alias)?;
        Ok(item)
    }

    /// Makes columns visible under their table's name, with the names that its alias gives to them.
    fn name(&mut self, mut columns: Vec<Visible>, table: &str, alias: Option<&ast::TableAlias>) -> Result<()> {
        if self.scope.has_table(table) {
            let message = format!("table name \"{table}\" specified more than once");
            return Err(SqlError::new(state::DUPLICATE_ALIAS, message));
        }
        self.count += 1;
        if self.count > TABLES_MAX {
            let message = format!("a query joins at most {TABLES_MAX} tables");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let names = alias.map_or(&[][..], |alias| alias.columns.as_slice());
        if names.len() > columns.len() {
            let message = format!(
                "table \"{table}\" has {} columns available but {} columns specified",
                columns.len(),
                names.len()
            );
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
        }
        for (column, name) in columns.iter_mut().zip(names) {
            column.name = name_of(&name.name);
        }
        self.scope.columns.extend(columns);
        Ok(())
    }
}

fn visible(table: &str, expr: Expr, column: &OutputColumn) -> Visible {
    let OutputColumn { name, of, origin } = column.clone();
    Visible { table: table.to_owned(), name, of, expr, origin, optional: false, hidden: false }
}

impl Planner<'_> {
    /// Adds what stands in a FROM clause.
    pub(crate) fn add_from(&mut self, from: &mut From<'_>, items: &[TableWithJoins]) -> Result<()> {
        for item in items {
            let item = self.joined(from, item, true)?;
            from.joined.items.push(item);
        }
        Ok(())
    }

    /// Tables and what they are joined with; `computes` if what is computed of them needs no column.
    fn joined(&mut self, from: &mut From<'_>, ast: &TableWithJoins, computes: bool) -> Result<Item> {
        let begin = from.scope.columns.len();
        let inner = |join: &Join| {
            matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_))
        };
        // What is computed must become NULL in an outer join, so that it needs a column.
        let computed = computes && self.computes && ast.joins.iter().all(inner);
        let mut item = self.factor(from, &ast.relation, computed)?;
        for join in &ast.joins {
            let middle = from.scope.columns.len();
            let right = self.factor(from, &join.relation, computed)?;
            item = self.join_of(from, (begin, middle), (item, right), join)?;
        }
        Ok(item)
    }

    fn factor(&mut self, from: &mut From<'_>, factor: &TableFactor, computed: bool) -> Result<Item> {
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
                if let [ast::ObjectNamePart::Identifier(ident)] = name.0.as_slice() {
                    let ident = name_of(ident);
                    if let Some(derived) = self.inlined_query(&ident, &from.scope, computed)? {
                        let name = alias.as_ref().map_or(ident, |alias| name_of(&alias.name));
                        return from.add_derived(derived, &name, None, alias.as_ref());
                    }
                    if let Some(query) = self.named_query(&ident, &from.scope)? {
                        let name = alias.as_ref().map_or(ident, |alias| name_of(&alias.name));
                        return from.add_query(query, &name, alias.as_ref());
                    }
                }
                if let Some(system) = system::find(name) {
                    let name = alias.as_ref().map_or_else(|| last_name(name), |alias| name_of(&alias.name));
                    let query = self.system_query(&system, &from.scope)?;
                    return from.add_query(query, &name, alias.as_ref());
                }
                if let Some(query) = self.sequence_query(name, &from.scope)? {
                    let name = alias.as_ref().map_or_else(|| last_name(name), |alias| name_of(&alias.name));
                    return from.add_query(query, &name, alias.as_ref());
                }
                match self.relation(name)? {
                    (Relation::Table(table), known) => from.add_table(table, known.as_ref(), alias.as_ref()),
                    (Relation::View(view), known) => {
                        self.add_view(from, (&view, known.as_ref()), alias.as_ref(), computed)
                    }
                }
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(ast::TableFunctionArgs { args, settings: None }),
                with_ordinality,
                ..
            }
            | TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                let argument = |argument| match argument {
                    &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref argument)) => Ok(argument),
                    other => Err(SqlError::unsupported(format_args!("the argument {other}"))),
                };
                let function = object_name(name)?;
                let ordered = in_order(&function, args)?;
                let args = ordered.as_ref().unwrap_or(args);
                let args = args.iter().map(argument).collect::<Result<Vec<_>>>()?;
                if let Some((query, alias)) = record::query_of(&function, &args, alias.as_ref())? {
                    if *with_ordinality {
                        return Err(SqlError::unsupported(format_args!("WITH ORDINALITY of {function}")));
                    }
                    return self.derived(from, (&query, true), &alias, computed);
                }
                if !set_function::is_name(&function) {
                    if *with_ordinality {
                        return Err(SqlError::unsupported(format_args!("WITH ORDINALITY of {function}")));
                    }
                    self.check_arguments(&function, &args, &from.scope)?;
                    let (query, alias) = scalar::query_of(name, &function, &args, alias.as_ref())?;
                    return self.derived(from, (&query, true), &alias, computed);
                }
                let name = alias.as_ref().map_or_else(|| function.clone(), |alias| name_of(&alias.name));
                let query = self.table_function((&function, &args), *with_ordinality, &name, &from.scope)?;
                let single = if let [column] = query.columns.as_slice() { Some(column.clone()) } else { None };
                let base = from.scope.width;
                let item = from.add_query(query, &name, alias.as_ref())?;
                let value = single.map(|column| OutputColumn { name: name.clone(), ..column });
                from.scope.values.extend(value.map(|column| visible(&name, Expr::Column(base), &column)));
                Ok(item)
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                let name = alias.as_ref().map_or_else(|| "unnest".to_owned(), |alias| name_of(&alias.name));
                let args: Vec<&ast::Expr> = array_exprs.iter().collect();
                let query = self.table_function(("unnest", &args), *with_ordinality, &name, &from.scope)?;
                from.add_query(query, &name, alias.as_ref())
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let Some(alias) = alias else {
                    return Err(SqlError::new(state::SYNTAX_ERROR, "subquery in FROM must have an alias"));
                };
                self.derived(from, (subquery, *lateral), alias, computed)
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joined(from, table_with_joins, computed),
            TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } => {
                let begin = from.scope.columns.len();
                let item = self.joined(from, table_with_joins, computed)?;
                // From now on its columns are those of one table.
                let name = name_of(&alias.name);
                let joined = from.scope.columns.split_off(begin).into_iter().filter(|column| !column.hidden);
                let columns = joined.map(|column| Visible { table: name.clone(), ..column }).collect();
                from.name(columns, &name, Some(alias))?;
                Ok(item)
            }
            other => Err(SqlError::unsupported(format_args!("{other} in FROM"))),
        }
    }

    /// The row of a sequence, which can be read like a table. Where views are made they are not: nothing would keep the sequence.
    fn sequence_query(&mut self, name: &ast::ObjectName, scope: &Scope<'_>) -> Result<Option<Query>> {
        let Some(sequence) = self.catalog.sequence(&relation_name(name)?).map(Arc::clone) else { return Ok(None) };
        if self.views.are_involved() {
            return Ok(None);
        }
        let Sequence { id, first, increment, min, max, .. } = *sequence;
        let called = format!("n <> {first} AND n - {increment} BETWEEN {min} AND {max}");
        let text = format!(
            "SELECT (CASE WHEN {called} THEN n - {increment} ELSE n END)::bigint AS last_value, 0::bigint AS log_cnt, {called} AS is_called
             FROM (SELECT pg_catalog.pg_sequence_next({id}) AS n) AS s"
        );
        match parse::parse(&text)? {
            Some(ast::Statement::Query(query)) => self.query(&query, scope).map(Some),
            _ => Err(SqlError::internal("what is read of a sequence is no query")),
        }
    }

    /// Refuses aggregates, which have no rows here.
    fn check_arguments(&mut self, function: &str, arguments: &[&ast::Expr], scope: &Scope<'_>) -> Result<()> {
        if aggregate::is_name(function) {
            let message = "aggregate functions are not allowed in functions in FROM";
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        }
        let scope = Scope::inside(scope);
        let mut binder = Binder::plain(&scope, self, "functions in FROM");
        arguments.iter().try_for_each(|argument| binder.expr(argument).map(drop))
    }

    /// A function that returns rows, as a table of this name.
    fn table_function(
        &mut self,
        (name, arguments): (&str, &[&ast::Expr]),
        ordinality: bool,
        table: &str,
        scope: &Scope<'_>,
    ) -> Result<Query> {
        let scope = Scope::inside(scope);
        let mut binder = Binder::plain(&scope, self, "functions in FROM");
        let (ResolvedSet { function, columns, .. }, arguments) = binder.set_function(name, arguments)?;
        // Its one column has the name of the table.
        let column_name = |own: &str| match own {
            "" if columns.len() == 1 => table.to_owned(),
            "" => name.to_owned(),
            own => own.to_owned(),
        };
        let column = |(own, of): &(&str, Type)| OutputColumn { name: column_name(own), of: *of, origin: (0, 0) };
        let mut outputs: Vec<OutputColumn> = columns.iter().map(column).collect();
        if ordinality {
            outputs.push(OutputColumn { name: "ordinality".to_owned(), of: Type::Int8, origin: (0, 0) });
        }
        Ok(Query::new(scope.width, Body::Function { function, arguments, ordinality }, outputs))
    }

    /// A query in brackets in FROM.
    fn derived(
        &mut self,
        from: &mut From<'_>,
        (ast, lateral): (&ast::Query, bool),
        alias: &ast::TableAlias,
        computed: bool,
    ) -> Result<Item> {
        let name = name_of(&alias.name);
        let outer = if lateral { Some(&from.scope) } else { from.scope.outer };
        let scope = Scope { width: from.scope.width, outer, ..Scope::default() };
        let derived = self.derived_query(ast, &scope, computed)?;
        from.add_derived(derived, &name, None, Some(alias))
    }

    /// A query in FROM; one that becomes a part of the query around it may also compute if that has a place for it.
    pub(crate) fn derived_query(&mut self, ast: &ast::Query, scope: &Scope<'_>, computed: bool) -> Result<Derived> {
        let around = std::mem::replace(&mut self.is_in_from, true);
        let derived = self.derived_parts(ast, scope, computed);
        self.is_in_from = around;
        derived
    }

    fn derived_parts(&mut self, ast: &ast::Query, scope: &Scope<'_>, computed: bool) -> Result<Derived> {
        Ok(match self.plain_select(ast, scope)? {
            Some(bound) if bound.is_simple(computed, scope.width) => Derived::Joined {
                columns: bound.outputs.into_iter().zip(bound.columns).collect(),
                width: bound.from.scope.width,
                joined: bound.from.joined,
            },
            Some(bound) => Derived::Query(self.plan_select(bound, scope.width, Wanted::All)),
            None => match self.query_at(ast, scope)? {
                Query { body: Body::Values(rows), columns, .. } if computed && is_one_row(ast, &rows) => {
                    Derived::Joined {
                        columns: rows.into_iter().flatten().zip(columns).collect(),
                        width: scope.width,
                        joined: Inner::default(),
                    }
                }
                query => Derived::Query(query),
            },
        })
    }
}

/// Whether a query is one row that is written down, and nothing else, so that its values can stand wherever they are named.
fn is_one_row(ast: &ast::Query, rows: &[Vec<Expr>]) -> bool {
    let alone = ast.order_by.is_none() && ast.limit_clause.is_none() && ast.fetch.is_none() && ast.with.is_none();
    alone && matches!(rows, [row] if !row.iter().any(Expr::is_volatile))
}

/// A table's name without its schema.
fn last_name(name: &ast::ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(name_of).unwrap_or_default()
}
