//! A table as statements use it.

use std::sync::OnceLock;

use savanna_tenants_encoding::{Layout, Width};

use super::{Column, Definition, Index, Part, index::Resolved, table_key};

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Clock, Type},
    value::Value,
};

use crate::{
    row::{self, Entry},
    sql::expression::{Env, Expr},
};

/// A table as statements use it.
#[derive(Debug)]
pub struct Table {
    /// What the catalog keeps.
    pub definition: Definition,
    /// Where columns are in rows, by schema version from 1.
    layouts: Vec<Layout>,
    /// What its indexes mean, by their places, once a planner has resolved their names.
    resolved: OnceLock<Vec<Resolved>>,
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
        Self { definition, layouts, resolved: OnceLock::new() }
    }

    /// Whether its indexes are yet to be resolved.
    pub(crate) fn wants_resolving(&self) -> bool {
        self.resolved.get().is_none() && self.indexes.iter().any(Index::wants_resolving)
    }

    /// Says what its indexes mean.
    pub(crate) fn set_resolved(&self, resolved: Vec<Resolved>) {
        _ = self.resolved.set(resolved);
    }

    fn resolved(&self, index: usize) -> Result<&Resolved> {
        let unresolved = || SqlError::internal("an index was not resolved");
        self.resolved.get().and_then(|all| all.get(index)).ok_or_else(unresolved)
    }

    /// The predicate of an index over a row of the table, if it has one.
    pub(crate) fn predicate(&self, index: usize) -> Option<&Expr> {
        self.resolved.get()?.get(index)?.predicate.as_ref()
    }

    /// What the parts of an index are over a row of the table, and whether they descend; none of one that was not resolved.
    pub(crate) fn parts(&self, index: usize) -> Vec<(Expr, bool)> {
        let expression = |at: usize| self.resolved(index).ok().map(|resolved| resolved.parts[at].0.clone());
        let parts = self.indexes[index].parts.iter().enumerate().map(|(at, (part, descending))| match part {
            Part::Column(column) => Some((Expr::Column(*column), *descending)),
            Part::Expression(_) => Some((expression(at)?, *descending)),
        });
        parts.collect::<Option<_>>().unwrap_or_default()
    }

    /// The type of a part of an index.
    pub(crate) fn part_type(&self, index: usize, at: usize) -> Type {
        match &self.indexes[index].parts[at].0 {
            Part::Column(column) => self.columns[*column].of,
            Part::Expression(_) => self.resolved(index).map_or(Type::Text, |resolved| resolved.parts[at].1),
        }
    }

    /// The values of a row's entry in an index.
    pub(crate) fn part_values(&self, index: usize, row: &[Value], env: Env<'_>) -> Result<Vec<Value>> {
        let parts = self.indexes[index].parts.iter().enumerate();
        parts
            .map(|(at, (part, _))| match part {
                Part::Column(column) => Ok(row[*column].clone()),
                Part::Expression(_) => self.resolved(index)?.parts[at].0.owned(env.with_row(row)),
            })
            .collect()
    }

    /// Whether a row has an entry in an index.
    fn is_indexed(&self, index: usize, row: &[Value], env: Env<'_>) -> Result<bool> {
        if self.indexes[index].predicate.is_none() {
            return Ok(true);
        }
        match &self.resolved(index)?.predicate {
            Some(predicate) => Ok(*predicate.value(env.with_row(row))? == Value::Bool(true)),
            None => Ok(true),
        }
    }

    /// The entry of a row in an index, if it has one. What follows the values tells rows apart that have the same.
    pub(crate) fn entry(&self, at: usize, row: &[Value], row_key: &[u8], env: Env<'_>) -> Result<Option<Entry>> {
        if !self.is_indexed(at, row, env)? {
            return Ok(None);
        }
        let index = &self.indexes[at];
        match index.expressions().next() {
            None => {
                let columns = index.parts.iter().filter_map(|(part, descending)| match part {
                    Part::Column(column) => Some((&row[*column], *descending)),
                    Part::Expression(_) => None,
                });
                row::entry(index, columns, row_key).map(Some)
            }
            Some(_) => {
                let values = self.part_values(at, row, env)?;
                let values = values.iter().zip(index.parts.iter().map(|(_, descending)| *descending));
                row::entry(index, values, row_key).map(Some)
            }
        }
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
        Type::Interval | Type::Rounded(Clock::Interval, _) | Type::Spanned(..) | Type::Uuid => Width::Fixed(16),
        Type::Int8
        | Type::Oid
        | Type::Float8
        | Type::Time
        | Type::Timestamp
        | Type::Timestamptz
        | Type::Rounded(..) => Width::Fixed(8),
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
