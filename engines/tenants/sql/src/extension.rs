//! PostgreSQL's extensions of which there are functions here. They are built in, and in every database.

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast;

use crate::{parse::name::name_of, plan::Plan};

/// Their names, and the versions of PostgreSQL 15.
pub(crate) const BUILT_IN: [(&str, &str); 2] = [("pgcrypto", "1.3"), ("uuid-ossp", "1.1")];

/// `CREATE EXTENSION`: nothing is left to do, if it is one of them.
pub(crate) fn create(create: &ast::CreateExtension) -> Result<Plan> {
    let name = name_of(&create.name);
    let Some((_, there)) = BUILT_IN.into_iter().find(|(known, _)| *known == name) else { return Err(unknown(&name)) };
    match create.version.as_ref().map(name_of) {
        Some(version) if version != there => {
            let message =
                format!("extension \"{name}\" has no installation script nor update path for version \"{version}\"");
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).hint(format!("Its version here is {there}.")))
        }
        _ => Ok(Plan::Nothing("CREATE EXTENSION")),
    }
}

/// `DROP EXTENSION`: its functions stay.
pub(crate) fn drop(drop: &ast::DropExtension) -> Result<Plan> {
    let known = |name: &String| BUILT_IN.iter().any(|(known, _)| known == name);
    match drop.names.iter().map(name_of).find(|name| !known(name)) {
        Some(name) if !drop.if_exists => {
            Err(SqlError::new(state::UNDEFINED_OBJECT, format!("extension \"{name}\" does not exist")))
        }
        _ => Ok(Plan::Nothing("DROP EXTENSION")),
    }
}

fn unknown(name: &str) -> SqlError {
    let there: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    SqlError::new(state::FEATURE_NOT_SUPPORTED, format!("extension \"{name}\" is not available"))
        .hint(format!("These are built in: {}.", there.join(", ")))
}
