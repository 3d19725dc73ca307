//! `CREATE TABLE .. WITH (..)`: how a table is placed.

use savanna_tenants_catalog::{Catalog, Definition, Name, Placement, TEMPORARY};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{self, Expr, SqlOption, Value};

use crate::parse::name::{name_of, relation_name};

/// How a new table is to be placed.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NewPlacement {
    #[default]
    Plain,
    Root,
    Descendant {
        root: Name,
        key: Vec<String>,
    },
    Global,
}

/// What the options of a table say.
pub(crate) fn placement_of(options: &[SqlOption]) -> Result<NewPlacement> {
    let (mut root, mut key, mut global, mut fill) = (None, None, false, false);
    for option in options {
        let SqlOption::KeyValue { key: name, value } = option else { return Err(unknown(&option.to_string())) };
        let (name, value) = (name_of(name), Some(value).filter(|value| !is_true(value)));
        let first = match (name.as_str(), value) {
            // How full pages are is nothing that there is here.
            ("fillfactor", Some(_)) => !std::mem::replace(&mut fill, true),
            ("root", value) => root.replace(value).is_none(),
            ("key", Some(value)) => key.replace(columns(value)?).is_none(),
            ("global", None) => !std::mem::replace(&mut global, true),
            _ => return Err(unknown(&option.to_string())),
        };
        if !first {
            return Err(wrong(format!("parameter \"{name}\" specified more than once")));
        }
    }
    match (root, key, global) {
        (None, None, false) => Ok(NewPlacement::Plain),
        (None, None, true) => Ok(NewPlacement::Global),
        (Some(None), None, false) => Ok(NewPlacement::Root),
        (Some(Some(root)), Some(key), false) => Ok(NewPlacement::Descendant { root: table(root)?, key }),
        _ => {
            let message = "a table is WITH (root), WITH (root = table, key = column) or WITH (global)";
            Err(wrong(message.to_owned()))
        }
    }
}

fn is_true(value: &Expr) -> bool {
    matches!(value, Expr::Value(value) if value.value == Value::Boolean(true))
}

fn unknown(option: &str) -> SqlError {
    SqlError::unsupported(format_args!("the table option {option}"))
        .hint("Options are root, root = table, key = column, key = (columns), global, fillfactor = number.")
}

fn wrong(message: String) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

fn table(value: &Expr) -> Result<Name> {
    let parts = match value {
        Expr::Identifier(name) => vec![name.clone()],
        Expr::CompoundIdentifier(parts) => parts.clone(),
        other => return Err(wrong(format!("root = {other}: expected the name of a table"))),
    };
    relation_name(&ast::ObjectName::from(parts))
}

fn columns(value: &Expr) -> Result<Vec<String>> {
    let column = |value: &Expr| match value {
        Expr::Identifier(name) => Ok(name_of(name)),
        other => Err(wrong(format!("key = {other}: expected the name of a column, or several in parentheses"))),
    };
    match value {
        Expr::Tuple(values) => values.iter().map(column).collect(),
        Expr::Nested(value) => Ok(vec![column(value)?]),
        value => Ok(vec![column(value)?]),
    }
}

impl NewPlacement {
    /// The placement of a table that has its foreign keys.
    pub fn of(&self, table: &Definition, catalog: &Catalog) -> Result<Placement> {
        let invalid = |message: String| SqlError::new(state::INVALID_TABLE_DEFINITION, message);
        if *self != Self::Plain && table.schema == TEMPORARY {
            return Err(invalid("temporary tables are in no partition, so they cannot be placed".to_owned()));
        }
        match self {
            Self::Plain => Ok(Placement::Plain),
            Self::Global => Ok(Placement::Global),
            Self::Root => match catalog.tables().find(|other| other.placement == Placement::Root) {
                None => Ok(Placement::Root),
                Some(other) => Err(invalid(format!("a database has one root table, which is \"{}\"", other.name))),
            },
            Self::Descendant { root, key } => {
                let missing = || SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{root}\" does not exist"));
                let root = catalog.table(root).ok_or_else(missing)?;
                if root.placement != Placement::Root {
                    return Err(SqlError::new(
                        state::WRONG_OBJECT_TYPE,
                        format!("\"{}\" is not a root table", root.name),
                    )
                    .hint("Create the root table WITH (root)."));
                }
                let reference = table.foreign_keys.iter().find(|reference| {
                    let columns = reference.columns.iter().map(|at| &table.columns[*at].name);
                    reference.parent == root.id && columns.eq(key)
                });
                let reference = reference.ok_or_else(|| {
                    let key = key.join(", ");
                    let wanted = format!("FOREIGN KEY ({key}) REFERENCES {}", root.name);
                    invalid(format!("table \"{}\" needs {wanted} to be its descendant", table.name))
                })?;
                Ok(Placement::Descendant { foreign_key: reference.id })
            }
        }
    }
}
