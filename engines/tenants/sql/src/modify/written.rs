//! What a statement writes under a name: a table, or a view through which it writes one.

use std::sync::Arc;

use savanna_tenants_catalog::{
    Table,
    view::{CheckOption, View},
};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{self, Statement, TableFactor};

use crate::{
    expression::Expr,
    modify::{columns_of, scope_of},
    parse,
    parse::name::name_of,
    plan::implication::shift,
    query::{
        from::{Derived, From, Inner, Item},
        scope::{Scope, Visible},
        select::{Bound, Planner},
        view::Relation,
    },
    system,
};

/// What a statement does to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Insert,
    Update,
    Delete,
}

impl Verb {
    /// As a message says it of a view: to do it, and doing it.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Insert => ("insert into", "inserting into", "INSERT"),
            Self::Update => ("update", "updating", "UPDATE"),
            Self::Delete => ("delete from", "deleting from", "DELETE"),
        }
    }
}

/// What is written.
pub(crate) struct Written {
    pub(crate) table: Arc<Table>,
    through: Option<Through>,
}

/// A view through which a table is written.
struct Through {
    view: Arc<View>,
    /// Its columns, over the table's row.
    columns: Vec<Visible>,
    /// Which rows it shows, the innermost view's condition first.
    shows: Vec<ViewCheck>,
}

/// The condition of a view through which rows are written.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct ViewCheck {
    /// The view's name.
    pub view: String,
    pub condition: Expr,
    /// Whether a check option wants it of all rows that are written.
    checked: bool,
}

/// A view over one table, with the views that it stands on: the query of the first, and the conditions that each has of its own.
struct Updatable {
    bound: Bound<'static>,
    table: Arc<Table>,
    levels: Vec<(Arc<View>, Vec<Expr>)>,
}

impl Written {
    /// The name under which it can be named.
    pub(crate) fn name(&self) -> &str {
        self.through.as_ref().map_or(&self.table.name, |through| &through.view.name)
    }

    /// Whether a view is named, and not the table.
    pub(crate) const fn is_view(&self) -> bool {
        self.through.is_some()
    }

    /// The place of a column in the table.
    ///
    /// # Errors
    /// 42703; 0A000 if it is computed by a view.
    pub(crate) fn column(&self, name: &str, verb: Verb) -> Result<usize> {
        let unknown = || {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", self.name());
            SqlError::new(state::UNDEFINED_COLUMN, message)
        };
        let Some(Through { view, columns, .. }) = &self.through else {
            return self.table.column(name).ok_or_else(unknown);
        };
        match &columns.iter().find(|column| column.name == name).ok_or_else(unknown)?.expr {
            Expr::Column(at) => Ok(*at),
            _ => {
                let message = format!("cannot {} column \"{name}\" of view \"{}\"", verb.words().0, view.name);
                Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                    .detail("View columns that are not columns of their base relation are not updatable."))
            }
        }
    }

    /// The places of the columns that values are for where no columns are named. Those that a view computes end them.
    pub(crate) fn columns(&self) -> Vec<usize> {
        match &self.through {
            None => self.table.live_columns().map(|(at, _)| at).collect(),
            Some(through) => {
                let places = through.columns.iter().map(|column| match &column.expr {
                    Expr::Column(at) => Some(*at),
                    _ => None,
                });
                places.map_while(|place| place).collect()
            }
        }
    }

    /// Its columns as expressions name them; the table's begin at `base` of the row.
    pub(crate) fn visible(&self, name: &str, base: usize) -> Vec<Visible> {
        let Some(through) = &self.through else { return columns_of(&self.table, name, base) };
        let column = |column: &Visible| {
            let mut column = Visible { table: name.to_owned(), ..column.clone() };
            shift(&mut column.expr, base);
            column
        };
        through.columns.iter().map(column).collect()
    }

    /// A scope of its columns alone.
    pub(crate) fn scope(&self, name: &str) -> Scope<'static> {
        Scope { columns: self.visible(name, 0), ..scope_of(&self.table, name) }
    }

    /// What its rows have to fulfil besides the table's own conditions, the innermost view's first.
    pub(crate) fn checks(&self) -> Vec<ViewCheck> {
        self.shows().into_iter().filter(|check| check.checked).collect()
    }

    /// What its rows fulfil besides the table's own conditions, the innermost view's first.
    pub(crate) fn shows(&self) -> Vec<ViewCheck> {
        self.through.as_ref().map_or_else(Vec::new, |through| through.shows.clone())
    }
}

impl Planner<'_> {
    /// What a statement writes under a name, and a FROM clause of it alone.
    ///
    /// # Errors
    /// 42P01; 55000 if it is a view that cannot be written through.
    pub(crate) fn written(
        &mut self,
        name: &ast::ObjectName,
        alias: Option<&ast::TableAlias>,
        verb: Verb,
    ) -> Result<(Written, From<'static>)> {
        let mut from = From::default();
        let view = match self.relation(name)?.0 {
            Relation::Table(table) => {
                let item = from.add_table(Arc::clone(&table), None, alias)?;
                from.joined.items.push(item);
                return Ok((Written { table, through: None }, from));
            }
            Relation::View(view) => view,
        };
        let Updatable { bound, table, levels } = self.updatable(&view, verb)?;
        let (mut shows, mut cascades) = (Vec::new(), false);
        for (view, conditions) in levels {
            if let Some(condition) = Expr::all(conditions) {
                let checked = cascades || view.check != CheckOption::No;
                shows.insert(0, ViewCheck { view: view.name.clone(), condition, checked });
            }
            cascades |= view.check == CheckOption::Cascaded;
        }
        let mut derived = Derived::Joined {
            columns: bound.outputs.into_iter().zip(bound.columns).collect(),
            width: bound.from.scope.width,
            joined: bound.from.joined,
        };
        name_columns(&mut derived, &view);
        let shown = alias.map_or_else(|| view.name.clone(), |alias| name_of(&alias.name));
        let item = from.add_derived(derived, &shown, None, None)?;
        from.joined.items.push(item);
        let columns = from.scope.columns.clone();
        Ok((Written { table, through: Some(Through { view, columns, shows }) }, from))
    }

    /// The query of a view that rows can be written through as far as that alone is concerned, and what it reads.
    fn updatable_query(&mut self, view: &Arc<View>, verb: Verb) -> Result<(Bound<'static>, Relation)> {
        let refused = |reason: &str| {
            let (to, doing, verb) = verb.words();
            let hint = format!(
                "To enable {doing} the view, provide an INSTEAD OF {verb} trigger or an unconditional ON {verb} DO INSTEAD rule."
            );
            let message = format!("cannot {to} view \"{}\"", view.name);
            SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .detail(format!("{reason} are not automatically updatable."))
                .hint(hint)
        };
        let query = ast::Query { order_by: None, ..*query_of(view)? };
        if let Some(reason) = refused_clause(&query) {
            return Err(refused(reason));
        }
        let name = only_relation(&query).ok_or_else(|| refused(SEVERAL))?;
        let (bound, relation) = self.within(view, |planner| {
            let bound = planner.plain_select(&query, &Scope::default())?;
            Ok((bound, if system::find(name).is_some() { None } else { Some(planner.relation(name)?.0) }))
        })?;
        let (Some(bound), Some(relation)) = (bound, relation) else { return Err(refused(SEVERAL)) };
        if let Some(reason) = bound.computes_rows() {
            return Err(refused(reason));
        }
        if verb != Verb::Delete && !bound.outputs.iter().any(|output| matches!(output, Expr::Column(_))) {
            return Err(refused("Views that have no updatable columns"));
        }
        Ok((bound, relation))
    }

    /// A view that rows can be written through.
    fn updatable(&mut self, view: &Arc<View>, verb: Verb) -> Result<Updatable> {
        let (bound, relation) = self.updatable_query(view, verb)?;
        let own = (Arc::clone(view), bound.from.joined.conditions.clone());
        match relation {
            Relation::Table(table) => Ok(Updatable { bound, table, levels: vec![own] }),
            Relation::View(below) => {
                let below = self.updatable(&below, verb)?;
                if !is_of_table(&bound.from.joined) {
                    return Err(SqlError::unsupported(
                        "writing through a view over one that is sorted or has volatile columns",
                    ));
                }
                let levels = std::iter::once(own).chain(below.levels).collect();
                Ok(Updatable { bound, table: below.table, levels })
            }
        }
    }

    /// Whether rows can be written through a view.
    pub(crate) fn is_updatable(&mut self, view: &Arc<View>) -> bool {
        self.updatable(view, Verb::Update).is_ok()
    }

    /// Refuses a view through whose own query nothing can be written.
    ///
    /// # Errors
    /// 55000.
    pub(crate) fn check_updatable(&mut self, view: &Arc<View>) -> Result<()> {
        self.updatable_query(view, Verb::Update).map(drop)
    }
}

/// Whether the rows that are joined are those of one table, perhaps filtered.
fn is_of_table(joined: &Inner) -> bool {
    match joined.items.as_slice() {
        [Item::Table { .. }] => true,
        [Item::Inner(inner)] => is_of_table(inner),
        _ => false,
    }
}

const SEVERAL: &str = "Views that do not select from a single table or view";

/// A view's query.
pub(crate) fn query_of(view: &View) -> Result<Box<ast::Query>> {
    match parse::parse(&view.query)? {
        Some(Statement::Query(query)) => Ok(query),
        _ => Err(SqlError::internal("a view is no query")),
    }
}

/// The clause of a view's query because of which its rows are not those of its table.
fn refused_clause(query: &ast::Query) -> Option<&'static str> {
    let ast::SetExpr::Select(select) = &*query.body else {
        return Some(match &*query.body {
            ast::SetExpr::SetOperation { .. } => "Views containing UNION, INTERSECT, or EXCEPT",
            _ => SEVERAL,
        });
    };
    let grouped = !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let reasons = [
        (select.distinct.is_some(), "Views containing DISTINCT"),
        (grouped, "Views containing GROUP BY"),
        (select.having.is_some(), "Views containing HAVING"),
        (query.with.is_some(), "Views containing WITH"),
        (query.limit_clause.is_some() || query.fetch.is_some(), "Views containing LIMIT or OFFSET"),
    ];
    reasons.into_iter().find(|(is_there, _)| *is_there).map(|(_, reason)| reason)
}

/// The name in FROM, if it is all that stands there.
fn only_relation(query: &ast::Query) -> Option<&ast::ObjectName> {
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    match select.from.as_slice() {
        [ast::TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }] if joins.is_empty() => {
            Some(name)
        }
        _ => None,
    }
}

/// Gives what a view's query selects the names of the view's columns.
pub(crate) fn name_columns(derived: &mut Derived, view: &View) {
    for (at, (column, (name, _))) in derived.columns_mut().zip(&view.columns).enumerate() {
        column.name.clone_from(name);
        column.origin = (view.id, at as i16 + 1);
    }
}
