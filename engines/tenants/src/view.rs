//! Views: queries that have names.

use serde::{Deserialize, Serialize};

use crate::types::Type;

/// A query under a name. It means what it meant when the view was made: tables and columns that were renamed since are found, columns that
/// came since are not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Its number, for ever.
    pub(crate) id: u32,
    /// Its name.
    pub(crate) name: String,
    /// Its columns.
    pub(crate) columns: Vec<(String, Type)>,
    /// The query as SQL.
    pub(crate) query: String,
    /// What the query reads.
    pub(crate) reads: Vec<Read>,
}

/// A table or view that a view reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Read {
    /// Its number.
    pub(crate) id: u32,
    /// The name that the query has for it.
    pub(crate) name: String,
    /// The names that the query has for its columns, by their places; empty for those that had been dropped.
    pub(crate) columns: Vec<String>,
    /// The places of the columns that the query names.
    pub(crate) used: Vec<usize>,
}

impl View {
    /// Whether its query reads a relation, or names a column of it.
    pub(crate) fn reads(&self, id: u32, column: Option<usize>) -> bool {
        self.reads.iter().any(|read| read.id == id && column.is_none_or(|column| read.used.contains(&column)))
    }
}
