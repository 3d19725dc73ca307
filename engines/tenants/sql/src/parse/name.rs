//! Names as SQL writes them.

use savanna_tenants_catalog::{Name, name::folded, no_schema};
use savanna_tenants_values::error::{Result, SqlError};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

/// A name as SQL takes it.
pub fn name_of(ident: &Ident) -> String {
    folded(&ident.value, ident.quote_style)
}

/// The name of a table, index, sequence, view or type.
pub(crate) fn relation_name(name: &ObjectName) -> Result<Name> {
    let parts: Vec<&Ident> = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(ident),
            ObjectNamePart::Function(_) => Err(SqlError::unsupported(format_args!("the name {name}"))),
        })
        .collect::<Result<_>>()?;
    match parts.as_slice() {
        [one] => Ok(Name { schema: None, name: name_of(one) }),
        [schema, one] => Ok(Name { schema: Some(name_of(schema)), name: name_of(one) }),
        _ => Err(SqlError::unsupported(format_args!("the name {name}"))),
    }
}

/// The name of a function, column, constraint, role or setting: no schema has any of its own.
pub(crate) fn object_name(name: &ObjectName) -> Result<String> {
    let Name { schema, name } = relation_name(name)?;
    match schema.as_deref() {
        None | Some("public" | "pg_catalog") => Ok(name),
        Some(schema) => Err(no_schema(schema)),
    }
}
