//! Domains: types of which some values are none.

use savanna_tenants_values::types::Type;
use serde::{Deserialize, Serialize};

use crate::Check;

/// A type that was made by `CREATE DOMAIN`. Its values are kept as those of the type that it is over; columns say that they are of the
/// domain, and expressions do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Its number, for ever.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number of its schema.
    pub schema: u32,
    /// The type that it is over.
    pub of: Type,
    /// Whether NULL is no value of it.
    pub not_null: bool,
    /// What a column of it has if neither a statement nor the column says, as SQL.
    pub default: Option<String>,
    /// What holds of its values, as SQL that calls them `VALUE`.
    pub checks: Vec<Check>,
    /// What is said about it.
    pub comment: Option<String>,
}
