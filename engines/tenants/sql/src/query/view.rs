//! Plans of views: what they read when they are made, and their queries in the place of their names.

use std::sync::Arc;

use savanna_tenants_catalog::{
    Comments, Table,
    view::{CheckOption, Read, View},
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::style::Style,
};
use sqlparser::ast;

use crate::{
    define::table_as::refuse_rows,
    modify::written::{name_columns, query_of},
    parse::{
        name::{name_of, relation_name},
        print,
    },
    plan::Define,
    query::{
        from::{From, Item},
        scope::{Scope, Visible},
        select::Planner,
    },
};

/// Views that stand on each other.
const NESTED_MAX: usize = 100;

impl Views {
    /// Whether a view is made, or one's query is planned.
    pub(crate) fn are_involved(&self) -> bool {
        self.made.is_some() || !self.inside.is_empty()
    }
}

/// What stands under a name in FROM.
pub(crate) enum Relation {
    Table(Arc<Table>),
    View(Arc<View>),
}

/// What views have to do with a statement that is being planned.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// The views whose queries are being planned, the innermost last.
    inside: Vec<Arc<View>>,
    /// What the query of a new view reads, if it is one that is being planned.
    made: Option<Vec<Read>>,
}

impl Relation {
    fn id(&self) -> u32 {
        match self {
            Self::Table(table) => table.id,
            Self::View(view) => view.id,
        }
    }

    /// The names of its columns by their places, empty for dropped ones.
    fn columns(&self) -> Vec<String> {
        match self {
            Self::Table(table) => {
                let name = |column: &savanna_tenants_catalog::Column| {
                    if column.dropped { "" } else { &column.name }.to_owned()
                };
                table.columns.iter().map(name).collect()
            }
            Self::View(view) => view.columns.iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// Leaves those columns that the query of a view knows, under the names that it has for them.
pub(crate) fn keep_known(read: &Read, columns: &mut Vec<Visible>) {
    columns.retain_mut(|column| match read.columns.get((column.origin.1 as usize).wrapping_sub(1)) {
        Some(name) if !name.is_empty() => {
            column.name.clone_from(name);
            true
        }
        _ => false,
    });
}

impl Planner<'_> {
    /// What a name in FROM means, and how the view knows it in whose query it stands.
    pub(crate) fn relation(&mut self, name: &ast::ObjectName) -> Result<(Relation, Option<Read>)> {
        if let Some(view) = self.views.inside.last() {
            let name = relation_name(name)?;
            let key = Read::key(&name);
            // Older views left out that a name is in `public`.
            let older = |read: &&Read| name.schema.as_deref() == Some("public") && read.name == name.name;
            let read =
                view.reads.iter().find(|read| read.name == key).or_else(|| view.reads.iter().find(older)).cloned();
            let by_id = |id: u32| {
                let table = self.catalog.by_id(id).map(|table| Relation::Table(Arc::clone(table)));
                table.or_else(|| self.catalog.view_by_id(id).map(|view| Relation::View(Arc::clone(view))))
            };
            return match read.as_ref().and_then(|read| by_id(read.id)) {
                Some(relation) => {
                    if let Relation::Table(table) = &relation {
                        self.resolve_indexes(table)?;
                    }
                    Ok((relation, read))
                }
                None => Err(SqlError::internal(format_args!("view \"{}\" has lost {name}", view.name))),
            };
        }
        let view = self.catalog.view(&relation_name(name)?).map(Arc::clone);
        let relation = match view {
            Some(view) => Relation::View(view),
            None => Relation::Table(self.table(name)?),
        };
        if let Relation::Table(table) = &relation {
            self.resolve_indexes(table)?;
        }
        if let Some(made) = &mut self.views.made {
            let (id, name, columns) = (relation.id(), Read::key(&relation_name(name)?), relation.columns());
            if !made.iter().any(|read| read.id == id && read.name == name) {
                made.push(Read { id, name, columns, used: Vec::new() });
            }
        }
        Ok((relation, None))
    }

    /// Whether a view is being made, whose query is kept.
    pub(crate) const fn makes_view(&self) -> bool {
        self.views.made.is_some()
    }

    /// Whether what is planned now is written down by the statement, and not what was before.
    pub(crate) fn is_definition(&self) -> bool {
        self.defines && self.views.inside.is_empty()
    }

    /// How texts of dates and intervals are read where the statement is now: in what is kept as everybody reads it.
    pub(crate) fn literal_style(&self) -> Style {
        if self.makes_view() || !self.views.inside.is_empty() { self.style.of_definitions() } else { self.style }
    }

    /// Notes that a column was named, by its relation and its number from 1.
    pub(crate) fn names_column(&mut self, (relation, number): (u32, i16)) {
        if self.views.inside.is_empty()
            && let Some(made) = &mut self.views.made
            && let Some(column) = (number as usize).checked_sub(1)
        {
            for read in made.iter_mut().filter(|read| read.id == relation && !read.used.contains(&column)) {
                read.used.push(column);
            }
        }
    }

    /// Adds what a view's query reads to a FROM clause. Its names are not those of the statement.
    pub(crate) fn add_view(
        &mut self,
        from: &mut From<'_>,
        (view, known): (&Arc<View>, Option<&Read>),
        alias: Option<&ast::TableAlias>,
        computed: bool,
    ) -> Result<Item> {
        let query = query_of(view)?;
        let scope = Scope { width: from.scope.width, ..Scope::default() };
        let mut derived = self.within(view, |planner| planner.derived_query(&query, &scope, computed))?;
        name_columns(&mut derived, view);
        let name = alias
            .map_or_else(|| known.map_or(view.name.as_str(), Read::alias).to_owned(), |alias| name_of(&alias.name));
        from.add_derived(derived, &name, known, alias)
    }

    /// Plans something of a view's query, in which names mean what the view knows.
    pub(crate) fn within<T>(&mut self, view: &Arc<View>, plan: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.views.inside.iter().any(|other| other.id == view.id) {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", view.name);
            return Err(SqlError::new(state::INVALID_OBJECT_DEFINITION, message));
        }
        if self.views.inside.len() == NESTED_MAX {
            let message = format!("views are nested more than {NESTED_MAX} deep");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let with = std::mem::take(&mut self.with);
        self.views.inside.push(Arc::clone(view));
        let planned = plan(self);
        self.views.inside.pop();
        self.with = with;
        planned
    }

    pub(crate) fn create_view(&mut self, ast: &ast::CreateView) -> Result<Define> {
        let odd = ast.or_alter
            || ast.materialized
            || ast.secure
            || ast.if_not_exists
            || ast.with_no_schema_binding
            || ast.copy_grants
            || ast.comment.is_some()
            || ast.to.is_some()
            || ast.params.is_some()
            || !ast.cluster_by.is_empty()
            || ast.columns.iter().any(|column| column.data_type.is_some() || column.options.is_some())
            || !ast.query.locks.is_empty();
        if odd {
            return Err(SqlError::unsupported("this kind of CREATE VIEW"));
        }
        let check = check_option(&ast.options)?;
        let before = self.parameters.types.len();
        self.views.made = Some(Vec::new());
        let query = self.query_at(&ast.query, &Scope::default());
        let reads = self.views.made.take().unwrap_or_default();
        let query = query?;
        self.no_parameters(before)?;
        refuse_rows(&query.columns)?;
        let mut columns: Vec<_> = query.columns.into_iter().map(|column| (column.name, column.of)).collect();
        if ast.columns.len() > columns.len() {
            let message = "CREATE VIEW specifies more column names than columns";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        for ((name, _), given) in columns.iter_mut().zip(&ast.columns) {
            *name = name_of(&given.name);
        }
        for (at, (name, _)) in columns.iter().enumerate() {
            if columns[..at].iter().any(|(other, _)| other == name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
            }
        }
        let name = relation_name(&ast.name)?;
        let schema = self.catalog.schema_of_new(&name, ast.temporary)?;
        let view = View {
            id: 0,
            name: name.name,
            columns,
            query: print::query(&ast.query)?,
            reads,
            schema,
            check,
            comments: Comments::new(),
        };
        if check != CheckOption::No {
            self.check_updatable(&Arc::new(view.clone())).map_err(not_checkable)?;
        }
        Ok(Define::CreateView { view, or_replace: ast.or_replace })
    }
}

/// What `WITH (check_option = ..)` says.
fn check_option(options: &ast::CreateTableOptions) -> Result<CheckOption> {
    let mut check = CheckOption::No;
    let options = match options {
        ast::CreateTableOptions::None => &[][..],
        ast::CreateTableOptions::With(options) => options,
        _ => return Err(SqlError::unsupported("this kind of CREATE VIEW")),
    };
    for option in options {
        check = match option {
            ast::SqlOption::KeyValue { key, value } if name_of(key) == "check_option" => {
                match value.to_string().trim_matches('\'').to_ascii_lowercase().as_str() {
                    "local" => CheckOption::Local,
                    "cascaded" => CheckOption::Cascaded,
                    other => {
                        let message = format!("invalid value for enum option \"check_option\": {other}");
                        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                            .detail("Valid values are \"local\" and \"cascaded\"."));
                    }
                }
            }
            other => return Err(SqlError::unsupported(format_args!("the option {other} of a view"))),
        };
    }
    Ok(check)
}

/// The error of a check option on what cannot be written through.
fn not_checkable(error: SqlError) -> SqlError {
    if error.state != state::OBJECT_NOT_IN_PREREQUISITE_STATE {
        return error;
    }
    let message = "WITH CHECK OPTION is supported only on automatically updatable views";
    let refused = SqlError::new(state::FEATURE_NOT_SUPPORTED, message);
    match error.detail {
        Some(detail) => refused.hint(detail),
        None => refused,
    }
}
