//! Indexes.

use serde::{Deserialize, Serialize};

/// An index, or the constraint that it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// The number that its keys begin with.
    pub relation: u32,
    /// What its keys are made of, and whether that descends.
    pub parts: Vec<(Part, bool)>,
    /// Whether no two rows may have the same values, none of them NULL.
    pub unique: bool,
    /// Whether it was made for a constraint.
    pub constraint: bool,
    /// Columns that were named behind `INCLUDE`; its entries do not have them.
    pub include: Vec<usize>,
    /// What rows must fulfil to have an entry, as SQL.
    pub predicate: Option<String>,
    /// Operator classes that were named, by the places of their parts. The order is that of bytes in all of them.
    pub classes: Vec<(usize, String)>,
}

/// What a key has a value of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// A column, by its place.
    Column(usize),
    /// An expression over the row, as SQL.
    Expression(String),
}

impl Index {
    /// An index of all rows that has no number yet.
    pub fn new(name: String, parts: Vec<(Part, bool)>, unique: bool, constraint: bool) -> Self {
        Self { name, relation: 0, parts, unique, constraint, include: Vec::new(), predicate: None, classes: Vec::new() }
    }

    /// An index of a unique constraint that has no number yet.
    pub fn of_constraint(name: String, columns: Vec<usize>) -> Self {
        let parts = columns.into_iter().map(|column| (Part::Column(column), false)).collect();
        Self::new(name, parts, true, true)
    }

    /// Its columns, unless it has expressions, too.
    pub(crate) fn columns(&self) -> Option<Vec<(usize, bool)>> {
        let column = |(part, descending): &(Part, bool)| match part {
            Part::Column(column) => Some((*column, *descending)),
            Part::Expression(_) => None,
        };
        self.parts.iter().map(column).collect()
    }

    /// The columns among its parts.
    pub fn plain_columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().filter_map(|(part, _)| match part {
            Part::Column(column) => Some(*column),
            Part::Expression(_) => None,
        })
    }

    /// Its expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|(part, _)| match part {
            Part::Column(_) => None,
            Part::Expression(text) => Some(text.as_str()),
        })
    }

    /// Whether it has a predicate or an expression, which are SQL.
    pub(super) fn has_sql(&self) -> bool {
        self.predicate.is_some() || self.expressions().next().is_some()
    }

    /// Whether the entry of a row stays when only these columns change.
    pub fn is_apart_from(&self, columns: &[usize]) -> bool {
        !self.has_sql() && !self.plain_columns().any(|column| columns.contains(&column))
    }
}
