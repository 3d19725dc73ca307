//! Plans of `INSERT`, `UPDATE`, `DELETE` and `COPY`.

pub(crate) mod conflict_target;
pub(crate) mod copy;
pub mod written;

use std::sync::Arc;

use savanna_tenants_catalog::{Column, Generated, Table};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sqlparser::ast::{
    self, AccessExpr, Assignment, AssignmentTarget, FromTable, OnInsert, SetExpr, TableFactor, TableObject,
    TableWithJoins, UpdateTableFromKind,
};

use crate::{
    bind::{Binder, Typed},
    define::domain::DomainRules,
    expression::Expr,
    modify::written::{Verb, Written},
    parse::{element::element, grammar::Grammar, name::name_of, words},
    plan::{
        Delete, Insert, OutputColumn, Returning, Target, Update,
        query::{Joined, Query},
    },
    query::{
        from::From,
        items::Items,
        scope::{Scope, Visible},
        select::Planner,
    },
};

/// A table's columns as expressions name them; they begin at `base` of the row.
pub(crate) fn columns_of(table: &Table, name: &str, base: usize) -> Vec<Visible> {
    let visible = |(at, column): (usize, &Column)| Visible {
        table: name.to_owned(),
        name: column.name.clone(),
        of: column.of.exact(),
        expr: Expr::Column(base + at),
        origin: (table.id, at as i16 + 1),
        optional: false,
        hidden: false,
    };
    table.live_columns().map(visible).collect()
}

/// A scope of one table's columns.
pub fn scope_of(table: &Table, name: &str) -> Scope<'static> {
    Scope { columns: columns_of(table, name, 0), width: table.columns.len(), ..Scope::default() }
}

/// An expression that the catalog keeps as SQL.
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    let damaged = |error| SqlError::internal(format_args!("the catalog's expression {text} cannot be read: {error}"));
    let grammar = Grammar::default();
    words::parser(&grammar, text).and_then(|mut parser| parser.parse_expr()).map_err(damaged)
}

/// What a column is set to.
enum Assigned<'a> {
    Value(&'a ast::Expr),
    Typed(Typed),
}
/// Conditions with their names, and columns with what they are computed by.
type Rules = (Vec<(String, Expr)>, Vec<(usize, Expr)>);

/// The columns that an INSERT or COPY gives values for.
pub(crate) fn target_columns(written: &Written, names: &[String]) -> Result<Vec<usize>> {
    if names.is_empty() {
        return Ok(written.columns());
    }
    let mut columns = Vec::new();
    for name in names {
        let column = written.column(name, Verb::Insert)?;
        if columns.contains(&column) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// Where a value of an INSERT goes: into a column, or into it at subscripts.
struct Receiver {
    column: usize,
    subscripts: Vec<AccessExpr>,
}

/// Where the values of an INSERT go.
fn receivers(written: &Written, names: &[ast::ObjectName]) -> Result<Vec<Receiver>> {
    let whole = |column| Receiver { column, subscripts: Vec::new() };
    if names.is_empty() {
        return Ok(written.columns().into_iter().map(whole).collect());
    }
    let mut receivers: Vec<Receiver> = Vec::new();
    for name in names {
        let (name, subscripts) = element(name)?;
        let column = written.column(&name, Verb::Insert)?;
        let before = receivers.iter().filter(|other| other.column == column);
        let (parts, wholes): (Vec<_>, Vec<_>) = before.partition(|other| !other.subscripts.is_empty());
        if !wholes.is_empty() || subscripts.is_empty() && !parts.is_empty() {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
        }
        check_parts(parts.len())?;
        receivers.push(Receiver { column, subscripts });
    }
    Ok(receivers)
}

/// Parts of one column that a statement writes: each makes its expression deeper.
const PARTS_MAX: usize = 100;

fn check_parts(count: usize) -> Result<()> {
    if count < PARTS_MAX {
        return Ok(());
    }
    let message = format!("a statement writes more than {PARTS_MAX} elements of a column");
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("Write the whole value."))
}

fn no_default() -> SqlError {
    SqlError::new(state::FEATURE_NOT_SUPPORTED, "cannot set an array element to DEFAULT")
}

impl Planner<'_> {
    /// The type of a value of an INSERT.
    fn received(&mut self, table: &Table, receiver: &Receiver) -> Result<Type> {
        let of = table.columns[receiver.column].of;
        if receiver.subscripts.is_empty() {
            return Ok(of);
        }
        let nothing = Scope::default();
        Binder::plain(&nothing, self, "INSERT").type_at(of, &receiver.subscripts)
    }

    /// Puts a value of an INSERT where it goes. The first that goes to subscripts finds nothing there.
    fn receive(
        &mut self,
        table: &Table,
        receivers: &[Receiver],
        at: usize,
        value: Expr,
        values: &mut [Expr],
    ) -> Result<()> {
        let Receiver { column, subscripts } = &receivers[at];
        let place = &mut values[*column];
        if subscripts.is_empty() {
            *place = value;
            return Ok(());
        }
        let goes_on = receivers[..at].iter().any(|other| other.column == *column);
        let old = if goes_on { std::mem::replace(place, Expr::NULL) } else { Expr::NULL };
        let nothing = Scope::default();
        let mut binder = Binder::plain(&nothing, self, "INSERT");
        *place = binder.put(old, table.columns[*column].of, subscripts, value)?;
        Ok(())
    }

    /// The value of a column that a statement leaves out.
    pub fn default_of(&mut self, table: &Table, column: usize) -> Result<Expr> {
        let (domain, column) = (table.domains.get(&column), &table.columns[column]);
        let Some(default) = column.default.as_ref().filter(|_| !column.dropped) else {
            return match domain.and_then(|domain| self.catalog.domain_by_id(*domain)) {
                Some(domain) if !column.dropped => self.domain_default(domain),
                _ => Ok(Expr::NULL),
            };
        };
        let nothing = Scope::default();
        let mut binder = Binder::closed(&nothing, self, "DEFAULT expressions");
        binder.assigned(&parse_expression(default)?, column.of, &column.name)
    }

    pub(crate) fn target(&mut self, table: Arc<Table>) -> Result<Target> {
        self.resolve_indexes(&table)?;
        let (checks, computed) = self.rules(&table)?;
        let [references, referenced_by] = self.references(&table)?;
        let domains = self.domains(&table)?;
        Ok(Target { table, checks, domains, computed, references, referenced_by })
    }

    /// The columns of a table that are of domains, with what holds of their values.
    pub fn domains(&mut self, table: &Table) -> Result<Vec<(usize, Arc<DomainRules>)>> {
        let of_column = |(at, domain): (usize, u32)| {
            let domain = self.catalog.domain_by_id(domain);
            let missing = || SqlError::internal("a column is of a domain that is not there");
            Ok((at, self.domain_rules(domain.ok_or_else(missing)?)?))
        };
        table.live_domains().map(of_column).collect()
    }

    /// What a table's rows must fulfil, and what is computed of them.
    pub fn rules(&mut self, table: &Table) -> Result<Rules> {
        let scope = scope_of(table, &table.name);
        let mut checks = Vec::new();
        for check in &table.checks {
            let mut binder = Binder::closed(&scope, self, "CHECK constraints");
            checks.push((check.name.clone(), binder.condition(&parse_expression(&check.condition)?, "CHECK")?));
        }
        let mut computed = Vec::new();
        for at in 0..table.columns.len() {
            computed.extend(self.computed(table, at)?.map(|expr| (at, expr)));
        }
        Ok((checks, computed))
    }

    pub(crate) fn insert(&mut self, ast: &ast::Insert) -> Result<(Insert, Option<Vec<OutputColumn>>)> {
        let odd = ast.or.is_some()
            || ast.ignore
            || ast.overwrite
            || ast.replace_into
            || ast.partitioned.is_some()
            || !ast.assignments.is_empty()
            || ast.output.is_some()
            || ast.insert_alias.is_some();
        if odd {
            return Err(SqlError::unsupported("this kind of INSERT"));
        }
        let TableObject::TableName(name) = &ast.table else {
            return Err(SqlError::unsupported("INSERT into something else than a table"));
        };
        let written = self.written(name, None, Verb::Insert)?.0;
        let table = Arc::clone(&written.table);
        let alias = ast.table_alias.as_ref().map_or_else(|| written.name().to_owned(), |alias| name_of(&alias.alias));
        let receivers = receivers(&written, &ast.columns)?;
        let named = !ast.columns.is_empty();
        let mut values = Vec::new();
        for at in 0..table.columns.len() {
            values.push(self.default_of(&table, at)?);
        }
        let source = match &ast.source {
            // DEFAULT VALUES
            None => Query::of_values(vec![Vec::new()], Vec::new(), 0),
            Some(query) => match &*query.body {
                SetExpr::Values(rows)
                    if query.order_by.is_none() && query.limit_clause.is_none() && query.with.is_none() =>
                {
                    let rows: Vec<&[ast::Expr]> = rows.rows.iter().map(|row| row.content.as_slice()).collect();
                    self.inserted_values(&table, &receivers, named, &rows, &mut values)?
                }
                _ => {
                    let nothing = Scope::default();
                    let query = self.query_of(query, &nothing, true)?;
                    self.inserted_query(&table, &receivers, named, query, &mut values)?
                }
            },
        };
        let conflict = match &ast.on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => Some(self.on_conflict(&written, &alias, conflict)?),
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
        };
        let scope = written.scope(&alias);
        let (returning, output) = self.maybe_returning(ast.returning.as_deref(), &scope)?;
        let checks = written.checks();
        let (target, reached) = self.targets(table)?;
        Ok((Insert { target, reached, source, values, conflict, checks, returning }, output))
    }

    /// `VALUES` as a table's columns: each value becomes its column's type.
    fn inserted_values(
        &mut self,
        table: &Table,
        receivers: &[Receiver],
        named: bool,
        rows: &[&[ast::Expr]],
        values: &mut [Expr],
    ) -> Result<Query> {
        let nothing = Scope::default();
        let width = rows.first().map_or(0, |row| row.len());
        // What is wrong with a value itself comes before what is wrong with it in its column.
        let mut typed = Vec::with_capacity(rows.len());
        for row in rows {
            if row.len() != width {
                return Err(SqlError::new(state::SYNTAX_ERROR, "VALUES lists must all be the same length"));
            }
            check_width(row.len(), receivers.len(), named)?;
            let mut binder = Binder::plain(&nothing, self, "VALUES");
            let value = |ast: &ast::Expr| if is_default(ast) { Ok(None) } else { binder.expr(ast).map(Some) };
            typed.push(row.iter().map(value).collect::<Result<Vec<_>>>()?);
        }
        let receivers = &receivers[..width.min(receivers.len())];
        let types = receivers.iter().map(|receiver| self.received(table, receiver)).collect::<Result<Vec<_>>>()?;
        let mut source = Vec::with_capacity(rows.len());
        for row in typed {
            let mut bound = Vec::with_capacity(width);
            for ((typed, receiver), wanted) in row.into_iter().zip(receivers).zip(&types) {
                let of = &table.columns[receiver.column];
                bound.push(match typed {
                    None if !receiver.subscripts.is_empty() => return Err(no_default()),
                    None => self.default_of(table, receiver.column)?,
                    Some(_) if !self.overriding.takes(of)? => self.default_of(table, receiver.column)?,
                    Some(typed) => {
                        let mut binder = Binder::plain(&nothing, self, "VALUES");
                        binder.assign(typed, *wanted, &of.name)?
                    }
                });
            }
            source.push(bound);
        }
        let mut shown = Vec::with_capacity(width);
        for (at, (receiver, of)) in receivers.iter().zip(types).enumerate() {
            self.receive(table, receivers, at, Expr::Column(at), values)?;
            let name = table.columns[receiver.column].name.clone();
            shown.push(OutputColumn { name, of, origin: (0, 0) });
        }
        Ok(Query::of_values(source, shown, 0))
    }

    /// A query's rows as a table's columns.
    fn inserted_query(
        &mut self,
        table: &Table,
        receivers: &[Receiver],
        named: bool,
        mut query: Query,
        values: &mut [Expr],
    ) -> Result<Query> {
        check_width(query.columns.len(), receivers.len(), named)?;
        let receivers = &receivers[..query.columns.len()];
        let types = receivers.iter().map(|receiver| self.received(table, receiver)).collect::<Result<Vec<_>>>()?;
        let known = query.columns.iter().zip(&types).map(|(output, wanted)| match output.of {
            Type::Unknown => wanted.unbounded(),
            of => of,
        });
        let known: Vec<Type> = known.collect();
        self.coerce(&mut query, &known)?;
        let nothing = Scope::default();
        for (at, ((receiver, wanted), output)) in receivers.iter().zip(types).zip(&query.columns).enumerate() {
            let of = &table.columns[receiver.column];
            if !self.overriding.takes(of)? {
                continue;
            }
            let mut binder = Binder::plain(&nothing, self, "INSERT");
            let value = binder.assign(Typed::new(Expr::Column(at), output.of), wanted, &of.name)?;
            self.receive(table, receivers, at, value, values)?;
        }
        Ok(query)
    }

    pub(crate) fn assignments(
        &mut self,
        written: &Written,
        scope: &Scope<'_>,
        ast: &[Assignment],
    ) -> Result<Vec<(usize, Expr)>> {
        let table = &*written.table;
        let mut assignments: Vec<(usize, Expr)> = Vec::new();
        // The columns of which parts are assigned, as often as one is.
        let mut parts = Vec::new();
        for assignment in ast {
            let values = match (&assignment.target, &assignment.value) {
                (AssignmentTarget::ColumnName(name), value) => vec![(name, Assigned::Value(value))],
                (AssignmentTarget::Tuple(names), ast::Expr::Tuple(values)) if names.len() == values.len() => {
                    names.iter().zip(values.iter().map(Assigned::Value)).collect()
                }
                (AssignmentTarget::Tuple(names), ast::Expr::Subquery(query)) => {
                    let values = Binder::plain(scope, self, "UPDATE").row(query)?;
                    if values.len() != names.len() {
                        let message = "number of columns does not match number of values";
                        return Err(SqlError::new(state::SYNTAX_ERROR, message));
                    }
                    names.iter().zip(values.into_iter().map(Assigned::Typed)).collect()
                }
                _ => return Err(SqlError::unsupported(format_args!("the assignment {assignment}"))),
            };
            for (name, value) in values {
                let (name, subscripts) = element(name)?;
                let column = written.column(&name, Verb::Update)?;
                let before = assignments.iter().position(|(other, _)| *other == column);
                if before.is_some() && (subscripts.is_empty() || !parts.contains(&column)) {
                    let message = format!("multiple assignments to same column \"{name}\"");
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
                let of = &table.columns[column];
                let computed = matches!(of.generated, Generated::Stored(_));
                let asks_default = matches!(value, Assigned::Value(value) if is_default(value));
                // A view's column has a default of its own, and here none.
                let (default, nothing) = (asks_default && !written.is_view(), asks_default && written.is_view());
                if default && computed {
                    continue;
                }
                if !default && (computed || of.generated == (Generated::Identity { always: true })) {
                    let message = format!("column \"{name}\" can only be updated to DEFAULT");
                    return Err(SqlError::new(state::GENERATED_ALWAYS, message).detail(always(of)));
                }
                if asks_default && !subscripts.is_empty() {
                    return Err(no_default());
                }
                let (whole, of) = match subscripts.is_empty() {
                    true => (of.of, of.of),
                    false => (of.of, Binder::plain(scope, self, "UPDATE").type_at(of.of, &subscripts)?),
                };
                let value = match value {
                    Assigned::Value(_) if default => self.default_of(table, column)?,
                    Assigned::Value(_) if nothing => Expr::NULL,
                    Assigned::Value(value) => Binder::plain(scope, self, "UPDATE").assigned(value, of, &name)?,
                    Assigned::Typed(typed) => Binder::plain(scope, self, "UPDATE").assign(typed, of, &name)?,
                };
                if subscripts.is_empty() {
                    assignments.push((column, value));
                    continue;
                }
                check_parts(parts.iter().filter(|other| **other == column).count())?;
                parts.push(column);
                let old = before.map_or(Expr::Column(column), |at| assignments.swap_remove(at).1);
                let value = Binder::plain(scope, self, "UPDATE").put(old, whole, &subscripts, value)?;
                assignments.push((column, value));
            }
        }
        Ok(assignments)
    }

    fn maybe_returning(
        &mut self,
        ast: Option<&[ast::SelectItem]>,
        scope: &Scope<'_>,
    ) -> Result<(Option<Returning>, Option<Vec<OutputColumn>>)> {
        let Some(ast) = ast else { return Ok((None, None)) };
        let mut items = Items::default();
        items.add_all(&mut Binder::plain(scope, self, "RETURNING"), ast, false)?;
        Ok((Some(Returning { outputs: items.outputs }), Some(items.columns)))
    }

    /// What is written, and what it is joined with.
    fn written_and_joined(
        &mut self,
        target: &TableWithJoins,
        others: &[TableWithJoins],
        verb: Verb,
    ) -> Result<(Written, From<'static>)> {
        let TableFactor::Table { name, alias, args: None, .. } = &target.relation else {
            return Err(SqlError::unsupported("a change of something else than a table"));
        };
        if !target.joins.is_empty() {
            return Err(SqlError::unsupported("a change of joined tables"));
        }
        let (written, mut from) = self.written(name, alias.as_ref(), verb)?;
        self.add_from(&mut from, others)?;
        Ok((written, from))
    }

    pub(crate) fn update(&mut self, ast: &ast::Update) -> Result<(Update, Option<Vec<OutputColumn>>)> {
        if ast.or.is_some() || ast.output.is_some() || !ast.order_by.is_empty() || ast.limit.is_some() {
            return Err(SqlError::unsupported("this clause of UPDATE"));
        }
        let others = match &ast.from {
            None => &[][..],
            Some(UpdateTableFromKind::AfterSet(tables)) => tables,
            Some(_) => return Err(SqlError::unsupported("FROM before SET")),
        };
        let (written, mut from) = self.written_and_joined(&ast.table, others, Verb::Update)?;
        let assignments = self.assignments(&written, &from.scope, &ast.assignments)?;
        if let Some(filter) = &ast.selection {
            let mut binder = Binder::plain(&from.scope, self, "WHERE");
            binder.condition(filter, "WHERE")?.conjuncts(&mut from.joined.conditions);
        }
        let (returning, output) = self.maybe_returning(ast.returning.as_deref(), &from.scope)?;
        let mut rows = self.join(from.joined, &from.scope, 0);
        let returned = returning.iter().flat_map(|returning| &returning.outputs);
        rows.want(assignments.iter().map(|(_, value)| value).chain(returned));
        whole(&mut rows);
        let checks = written.checks();
        let (target, reached) = self.targets(written.table)?;
        Ok((Update { target, reached, rows, assignments, checks, returning }, output))
    }

    pub(crate) fn delete(&mut self, ast: &ast::Delete) -> Result<(Delete, Option<Vec<OutputColumn>>)> {
        if !ast.tables.is_empty() || ast.output.is_some() || !ast.order_by.is_empty() || ast.limit.is_some() {
            return Err(SqlError::unsupported("this clause of DELETE"));
        }
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &ast.from;
        let [target] = tables.as_slice() else {
            return Err(SqlError::unsupported("DELETE from several tables"));
        };
        let others = ast.using.as_deref().unwrap_or_default();
        let (written, mut from) = self.written_and_joined(target, others, Verb::Delete)?;
        if let Some(filter) = &ast.selection {
            let mut binder = Binder::plain(&from.scope, self, "WHERE");
            binder.condition(filter, "WHERE")?.conjuncts(&mut from.joined.conditions);
        }
        let (returning, output) = self.maybe_returning(ast.returning.as_deref(), &from.scope)?;
        let mut rows = self.join(from.joined, &from.scope, 0);
        rows.want(returning.iter().flat_map(|returning| &returning.outputs));
        whole(&mut rows);
        let (target, reached) = self.targets(written.table)?;
        Ok((Delete { target, reached, rows, returning }, output))
    }
}

/// What an INSERT does about values for columns that are generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Overriding {
    #[default]
    Nothing,
    /// `OVERRIDING SYSTEM VALUE`: the given value counts.
    System,
    /// `OVERRIDING USER VALUE`: the generated value counts.
    User,
}

impl Overriding {
    /// Whether a value that is given for a column counts.
    fn takes(self, column: &Column) -> Result<bool> {
        let wrong = || {
            let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
            SqlError::new(state::GENERATED_ALWAYS, message).detail(always(column))
        };
        match (&column.generated, self) {
            (Generated::Stored(_), _) => Err(wrong()),
            (Generated::Identity { .. }, Self::User) => Ok(false),
            (Generated::Identity { always: true }, Self::Nothing) => {
                Err(wrong().hint("Use OVERRIDING SYSTEM VALUE to override."))
            }
            _ => Ok(true),
        }
    }
}

/// Why a column takes no value.
fn always(column: &Column) -> String {
    match column.generated {
        Generated::Stored(_) => format!("Column \"{}\" is a generated column.", column.name),
        _ => format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name),
    }
}

/// A row that is written is read as a whole, with its key.
fn whole(rows: &mut Joined) {
    rows.keys = 1;
    rows.node.scans(&mut |scan| {
        if scan.base == 0 {
            scan.wanted = scan.table.live_columns().map(|(at, _)| at).collect();
            scan.key = Some(0);
        }
    });
}

fn is_default(ast: &ast::Expr) -> bool {
    matches!(ast, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

fn check_width(given: usize, columns: usize, named: bool) -> Result<()> {
    if given > columns {
        return Err(SqlError::new(state::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
    }
    if named && given < columns {
        return Err(SqlError::new(state::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// A row as messages show it.
pub fn shown_row(table: &Table, values: &[Value]) -> String {
    let shown = table.live_columns().map(|(at, column)| match &values[at] {
        Value::Null => "null".to_owned(),
        value => savanna_tenants_values::value::text::shown(
            value,
            column.of,
            savanna_tenants_values::value::style::Style::PLAIN,
        ),
    });
    shown.collect::<Vec<_>>().join(", ")
}
