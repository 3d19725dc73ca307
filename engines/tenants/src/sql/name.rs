//! Names as SQL writes them.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use crate::error::{Result, SqlError, state};

/// A name as SQL takes it: in lower case unless it is quoted.
pub(crate) fn name_of(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The name of a table, index or function. The one schema is `public`; what is built in is in `pg_catalog`.
pub(crate) fn object_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<&Ident> = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(ident),
            ObjectNamePart::Function(_) => Err(SqlError::unsupported(format_args!("the name {name}"))),
        })
        .collect::<Result<_>>()?;
    match parts.as_slice() {
        [one] => Ok(name_of(one)),
        [schema, one] if matches!(name_of(schema).as_str(), "public" | "pg_catalog") => Ok(name_of(one)),
        [schema, _] => {
            Err(SqlError::new(state::INVALID_SCHEMA_NAME, format!("schema \"{}\" does not exist", name_of(schema))))
        }
        _ => Err(SqlError::unsupported(format_args!("the name {name}"))),
    }
}
