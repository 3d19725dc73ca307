//! Schemas, and names as statements have them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of the schema that is always there, and has no row.
pub const PUBLIC: u32 = 0;
/// The number of a session's own schema of temporary objects, which has no row. Numbers of such objects have this bit, too, and so have
/// the first four bytes of their keys.
pub const TEMPORARY: u32 = 1 << 31;
/// Its name, and what every session may call its own.
pub(crate) const TEMPORARY_NAMES: [&str; 2] = ["pg_temp_1", "pg_temp"];
/// The name of the schema that is always there.
pub(crate) const PUBLIC_NAME: &str = "public";

/// A schema: a space of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Its number, for ever.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What is said about it.
    pub comment: Option<String>,
}

/// The name of an object as a statement has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The schema, if it is said. Without it the search path says where to look.
    pub schema: Option<String>,
    /// The name itself.
    pub name: String,
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self { schema: None, name: name.to_owned() }
    }
}

/// As messages show it.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
