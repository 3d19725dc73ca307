//! What a table's indexes mean once their SQL is resolved, and the entries that rows have in them.

use savanna_tenants_catalog::{
    Part, Table,
    row::{self, Entry},
};
use savanna_tenants_values::{
    error::{Result, SqlError},
    types::Type,
    value::Value,
};

use crate::expression::{Env, Expr};

/// What an index's SQL means over a row of its table.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Resolved {
    pub predicate: Option<Expr>,
    /// Its parts with their types.
    pub parts: Vec<(Expr, Type)>,
}

/// A table whose indexes a planner has resolved.
pub trait ResolvedIndexes {
    /// Keeps what its indexes mean, by their places.
    fn set_resolved(&self, resolved: Vec<Resolved>);

    /// The predicate of an index over a row of the table, if it has one.
    fn predicate(&self, index: usize) -> Option<&Expr>;

    /// What the parts of an index are over a row of the table, and whether they descend; none of one that was not resolved.
    fn parts(&self, index: usize) -> Vec<(Expr, bool)>;

    /// The type of a part of an index.
    fn part_type(&self, index: usize, at: usize) -> Type;

    /// The values of a row's entry in an index.
    fn part_values(&self, index: usize, row: &[Value], env: Env<'_>) -> Result<Vec<Value>>;

    /// The entry of a row in an index, if it has one. What follows the values tells rows apart that have the same.
    fn entry(&self, at: usize, row: &[Value], row_key: &[u8], env: Env<'_>) -> Result<Option<Entry>>;
}

impl ResolvedIndexes for Table {
    fn set_resolved(&self, resolved: Vec<Resolved>) {
        self.set_meaning(resolved);
    }

    fn predicate(&self, index: usize) -> Option<&Expr> {
        resolved(self, index).ok()?.predicate.as_ref()
    }

    fn parts(&self, index: usize) -> Vec<(Expr, bool)> {
        let expression = |at: usize| resolved(self, index).ok().map(|resolved| resolved.parts[at].0.clone());
        let parts = self.indexes[index].parts.iter().enumerate().map(|(at, (part, descending))| match part {
            Part::Column(column) => Some((Expr::Column(*column), *descending)),
            Part::Expression(_) => Some((expression(at)?, *descending)),
        });
        parts.collect::<Option<_>>().unwrap_or_default()
    }

    fn part_type(&self, index: usize, at: usize) -> Type {
        match &self.indexes[index].parts[at].0 {
            Part::Column(column) => self.columns[*column].of,
            Part::Expression(_) => resolved(self, index).map_or(Type::Text, |resolved| resolved.parts[at].1),
        }
    }

    fn part_values(&self, index: usize, row: &[Value], env: Env<'_>) -> Result<Vec<Value>> {
        let parts = self.indexes[index].parts.iter().enumerate();
        parts
            .map(|(at, (part, _))| match part {
                Part::Column(column) => Ok(row[*column].clone()),
                Part::Expression(_) => resolved(self, index)?.parts[at].0.owned(env.with_row(row)),
            })
            .collect()
    }

    fn entry(&self, at: usize, row: &[Value], row_key: &[u8], env: Env<'_>) -> Result<Option<Entry>> {
        if !is_indexed(self, at, row, env)? {
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
}

fn resolved(table: &Table, index: usize) -> Result<&Resolved> {
    let unresolved = || SqlError::internal("an index was not resolved");
    table.meaning::<Vec<Resolved>>().and_then(|all| all.get(index)).ok_or_else(unresolved)
}

/// Whether a row has an entry in an index.
fn is_indexed(table: &Table, index: usize, row: &[Value], env: Env<'_>) -> Result<bool> {
    if table.indexes[index].predicate.is_none() {
        return Ok(true);
    }
    match &resolved(table, index)?.predicate {
        Some(predicate) => Ok(*predicate.value(env.with_row(row))? == Value::Bool(true)),
        None => Ok(true),
    }
}
