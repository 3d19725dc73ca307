//! Views: queries that have names.

use savanna_tenants_values::types::Type;
use serde::{Deserialize, Serialize};

use crate::{Comments, Name};

/// A query under a name. It means what it meant when the view was made: tables and columns that were renamed since are found, columns that
/// came since are not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its number, for ever.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<(String, Type)>,
    /// The query as SQL.
    pub query: String,
    /// What the query reads.
    pub reads: Vec<Read>,
    /// The number of the schema that its name is in.
    pub schema: u32,
    /// Whether rows that are written through it have to be seen through it.
    pub check: CheckOption,
    /// What is said about it.
    pub comments: Comments,
}

/// `WITH CHECK OPTION`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckOption {
    /// Rows need not be seen.
    #[default]
    No,
    /// Its own conditions hold, and those of the views below that say so themselves.
    Local,
    /// All conditions hold, those of the views below, too.
    Cascaded,
}

impl CheckOption {
    /// As an option of a view has it.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Local => Some("local"),
            Self::Cascaded => Some("cascaded"),
        }
    }
}

/// A table or view that a view reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Its number.
    pub id: u32,
    /// The name that the query has for it, behind the schema's and a zero if it says that.
    pub name: String,
    /// The names that the query has for its columns, by their places; empty for those that had been dropped.
    pub columns: Vec<String>,
    /// The places of the columns that the query names.
    pub used: Vec<usize>,
}

impl Read {
    /// The name under which the query has its columns.
    pub fn alias(&self) -> &str {
        self.name.rsplit('\0').next().unwrap_or_default()
    }

    /// How a name is kept.
    pub fn key(name: &Name) -> String {
        match &name.schema {
            Some(schema) => format!("{schema}\0{}", name.name),
            None => name.name.clone(),
        }
    }
}

impl View {
    /// Whether its query reads a relation, or names a column of it.
    pub fn reads(&self, id: u32, column: Option<usize>) -> bool {
        self.reads.iter().any(|read| read.id == id && column.is_none_or(|column| read.used.contains(&column)))
    }
}
