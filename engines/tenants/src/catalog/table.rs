//! A table as statements use it.

use std::sync::OnceLock;

use savanna_tenants_encoding::{Layout, Width};

use super::{Column, Definition, table_key};
use crate::{
    error::{Result, SqlError, state},
    sql::expression::{Env, Expr},
    types::Type,
    value::Value,
};

/// A table as statements use it.
#[derive(Debug)]
pub struct Table {
    /// What the catalog keeps.
    pub definition: Definition,
    /// Where columns are in rows, by schema version from 1.
    layouts: Vec<Layout>,
    /// The predicates of its indexes, by their places, once a planner has resolved their names.
    predicates: OnceLock<Vec<Option<Expr>>>,
}

impl std::ops::Deref for Table {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        &self.definition
    }
}

impl Table {
    pub(crate) fn new(definition: Definition) -> Self {
        let layout = |version: u16| {
            let columns = definition.columns.iter().take_while(|column| column.since <= version);
            Layout::new(version, &columns.map(|column| width(column.of)).collect::<Vec<_>>())
        };
        let layouts = (1..=definition.version).map(layout).collect();
        Self { definition, layouts, predicates: OnceLock::new() }
    }

    /// Whether predicates of its indexes are yet to be resolved.
    pub(crate) fn wants_predicates(&self) -> bool {
        self.predicates.get().is_none() && self.indexes.iter().any(|index| index.predicate.is_some())
    }

    /// Says what the predicates of its indexes are.
    pub(crate) fn set_predicates(&self, predicates: Vec<Option<Expr>>) {
        _ = self.predicates.set(predicates);
    }

    /// The predicate of an index over a row of the table, if it has one.
    pub(crate) fn predicate(&self, index: usize) -> Option<&Expr> {
        self.predicates.get()?.get(index)?.as_ref()
    }

    /// Whether a row has an entry in an index.
    pub(crate) fn is_indexed(&self, index: usize, row: &[Value], env: Env<'_>) -> Result<bool> {
        if self.indexes[index].predicate.is_none() {
            return Ok(true);
        }
        let unresolved = || SqlError::internal("the predicate of an index was not resolved");
        let predicate = self.predicate(index).ok_or_else(unresolved)?;
        Ok(*predicate.value(env.with_row(row))? == Value::Bool(true))
    }

    /// Where the columns of a row of some schema version are.
    pub(crate) fn layout(&self, version: u16) -> Result<&Layout> {
        let layout = usize::from(version).checked_sub(1).and_then(|at| self.layouts.get(at));
        layout.ok_or_else(|| {
            let message = format!(
                "a row of table \"{}\" has schema version {version}, the newest is {}",
                self.name, self.definition.version
            );
            SqlError::new(state::DATA_CORRUPTED, message)
        })
    }

    /// The columns that there are, with their places.
    pub fn live_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.definition.columns.iter().enumerate().filter(|(_, column)| !column.dropped)
    }

    /// The column of a name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.live_columns().find(|(_, column)| column.name == name).map(|(at, _)| at)
    }

    /// The key of the table's own row in the catalog.
    #[must_use]
    pub(crate) fn lock_key(&self) -> Vec<u8> {
        table_key(self.id)
    }
}

/// How long the values of a type are in a row.
fn width(of: Type) -> Width {
    match of {
        Type::Bool => Width::Fixed(1),
        Type::Int2 => Width::Fixed(2),
        Type::Int4 | Type::Float4 | Type::Date => Width::Fixed(4),
        Type::Int8 | Type::Oid | Type::Float8 | Type::Time | Type::Timestamp | Type::Timestamptz => Width::Fixed(8),
        Type::Interval | Type::Uuid => Width::Fixed(16),
        Type::Numeric(_)
        | Type::Text
        | Type::Byte
        | Type::Varchar(_)
        | Type::Char(_)
        | Type::Bytea
        | Type::Unknown
        | Type::Json
        | Type::Jsonb
        | Type::Enum(_)
        | Type::Array(_) => Width::Variable,
    }
}
