//! Which columns expressions may name.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast;

use crate::{expression::Expr, parse::name::name_of};

/// A column that expressions may name.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    /// The table's alias.
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) of: Type,
    /// What it is, over the row. Usually a column of it.
    pub(crate) expr: Expr,
    /// The table and the column, from 1, that it shows; 0 if it is computed.
    pub(crate) origin: (u32, i16),
    /// Whether it is NULL where an outer join has no row.
    pub(crate) optional: bool,
    /// Whether it is only found by its table's name: USING shows one of two.
    pub(crate) hidden: bool,
}

/// The columns that expressions may name, and the row that they are computed over.
#[derive(Clone, Debug, Default)]
pub struct Scope<'s> {
    pub(crate) columns: Vec<Visible>,
    /// Values that functions in FROM return: the name of such a table is also that of its value.
    pub(crate) values: Vec<Visible>,
    /// Columns of the row so far, those around the query first.
    pub(crate) width: usize,
    /// What can be named around it.
    pub(crate) outer: Option<&'s Scope<'s>>,
}

impl<'s> Scope<'s> {
    /// The scope of a query inside of another one.
    pub(crate) fn inside(outer: &'s Self) -> Self {
        Self { columns: Vec::new(), values: Vec::new(), width: outer.width, outer: Some(outer) }
    }

    /// The column of a name.
    pub(crate) fn find(&self, table: Option<&str>, name: &str) -> Result<&Visible> {
        let shown = || table.map_or_else(|| format!("\"{name}\""), |table| format!("{table}.{name}"));
        let mut scope = Some(self);
        while let Some(here) = scope {
            let mut found = here
                .columns
                .iter()
                .filter(|column| column.name == name && table.map_or(!column.hidden, |table| column.table == table));
            match (found.next(), found.next()) {
                (Some(column), None) => return Ok(column),
                (Some(_), Some(_)) => {
                    let message = format!("column reference {} is ambiguous", shown());
                    return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
                }
                (None, _) if table.is_some_and(|table| here.has_table(table)) => break,
                (None, _) => match here.values.iter().find(|value| table.is_none() && value.name == name) {
                    Some(value) => return Ok(value),
                    None => scope = here.outer,
                },
            }
        }
        if let Some(table) = table
            && scope.is_none()
        {
            return Err(no_table(table));
        }
        Err(SqlError::new(state::UNDEFINED_COLUMN, format!("column {} does not exist", shown())))
    }

    /// The columns of a table that an expression names, and no column of that name.
    pub(crate) fn row(&self, ast: &ast::Expr) -> Option<Vec<Visible>> {
        let name = match ast {
            ast::Expr::Nested(inner) => return self.row(inner),
            ast::Expr::Identifier(ident) => name_of(ident),
            _ => return None,
        };
        if self.find(None, &name).is_ok() {
            return None;
        }
        let mut scope = Some(self);
        while let Some(here) = scope {
            if here.has_table(&name) {
                return Some(here.columns.iter().filter(|column| column.table == name).cloned().collect());
            }
            scope = here.outer;
        }
        None
    }

    /// Whether a table of this name is there.
    pub(crate) fn has_table(&self, table: &str) -> bool {
        self.columns.iter().any(|column| column.table == table)
    }

    /// The name of a column of the row, for messages.
    pub(crate) fn name_of(&self, column: usize) -> String {
        let found = self.columns.iter().find(|visible| visible.expr == Expr::Column(column));
        found.map_or_else(|| "?column?".to_owned(), |visible| format!("{}.{}", visible.table, visible.name))
    }
}

pub(crate) fn no_table(table: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{table}\""))
}
