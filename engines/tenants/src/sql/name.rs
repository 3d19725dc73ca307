//! Names as SQL writes them.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use crate::{
    catalog::{Name, no_schema},
    error::{Result, SqlError},
};

/// A name as SQL takes it: in lower case unless it is quoted.
pub(crate) fn name_of(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
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

/// The name of a type. All of them are in `public`.
pub(crate) fn type_name(name: &ObjectName) -> Result<String> {
    let Name { schema, name } = relation_name(name)?;
    match schema.as_deref() {
        None | Some("public" | "pg_catalog") => Ok(name),
        Some(schema) => Err(SqlError::unsupported(format_args!("a type in schema {schema}, which is not public"))),
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
