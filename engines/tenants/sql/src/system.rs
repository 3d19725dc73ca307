//! `pg_catalog` and `information_schema`: what clients ask about tables, types and themselves. No row of these is kept anywhere: they are
//! made of the tenant's catalog when a statement asks for them.
//!
//! Names are `text` here, single characters, too, but for those that drivers read, vectors and arrays their texts. A table that is always empty
//! stands for something that there is not, such as policies: a query that joins it has no rows, whatever else it would compute.

mod definition;
mod empty;
mod indexes;
mod relations;
mod rewrite;
mod types;
mod views;

use savanna_tenants_catalog::{Catalog, PUBLIC};
use savanna_tenants_values::{
    error::{Result, SqlError},
    types::{Element, Type},
    value::Value,
};
use sqlparser::ast::{ObjectName, ObjectNamePart, Statement};

use crate::{
    expression::Expr,
    parse,
    parse::name::name_of,
    plan::{
        OutputColumn,
        query::{Body, Query},
    },
    query::{scope::Scope, select::Planner},
};
pub(crate) use empty::without_rows;
pub(crate) use rewrite::{pattern_of, rewrite};
pub(crate) use types::format_type;

/// The schema of what is built in.
const PG_CATALOG: &str = "pg_catalog";
/// The standard's schema of views on that.
const INFORMATION_SCHEMA: &str = "information_schema";

/// Numbers of what there always is, as in PostgreSQL.
const NAMESPACE_CATALOG: u32 = 11;
const NAMESPACE_PUBLIC: u32 = 2_200;
const NAMESPACE_INFORMATION: u32 = 13_000;
const OWNER: u32 = 10;

/// The number of a schema in `pg_namespace`.
fn namespace_oid(schema: u32) -> u32 {
    if schema == PUBLIC { NAMESPACE_PUBLIC } else { schema }
}

/// Makes the rows of a table.
type Rows = fn(&Catalog) -> Vec<Vec<Value>>;

/// A table of `pg_catalog`.
#[derive(Debug)]
pub(crate) struct SystemTable {
    name: &'static str,
    columns: &'static [(&'static str, Type)],
    /// `None` if it is always empty.
    rows: Option<Rows>,
}

/// What a name in one of the two schemas is.
#[derive(Debug)]
pub(crate) enum System {
    Table(&'static SystemTable),
    /// A query, as SQL.
    View(&'static str),
}

/// What a table's name means; without a schema it is one of `pg_catalog`.
pub(crate) fn find(name: &ObjectName) -> Option<System> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(name_of(ident)),
        ObjectNamePart::Function(_) => None,
    };
    let (schema, name) = match name.0.as_slice() {
        [name] => (None, part(name)?),
        [schema, name] => (Some(part(schema)?), part(name)?),
        _ => return None,
    };
    let name = name.as_str();
    match schema.as_deref() {
        None | Some(PG_CATALOG) => {
            let mut tables = relations::TABLES.iter().chain(types::TABLES).chain(empty::TABLES);
            let table = tables.find(|table| table.name == name).map(System::Table);
            table.or_else(|| views::of_catalog(name).map(System::View))
        }
        Some(INFORMATION_SCHEMA) => views::of_information_schema(name).map(System::View),
        Some(_) => None,
    }
}

impl Planner<'_> {
    /// The rows of what a name in one of the two schemas is.
    pub(crate) fn system_query(&mut self, system: &System, scope: &Scope<'_>) -> Result<Query> {
        match system {
            System::Table(table) => {
                let rows = table.rows.map(|rows| rows(self.catalog)).unwrap_or_default();
                let rows = rows.into_iter().map(|row| row.into_iter().map(Expr::Constant).collect()).collect();
                let column =
                    |(name, of): &(&str, Type)| OutputColumn { name: (*name).to_owned(), of: *of, origin: (0, 0) };
                Ok(Query::new(scope.width, Body::Values(rows), table.columns.iter().map(column).collect()))
            }
            System::View(text) => match parse::parse(text)? {
                Some(Statement::Query(query)) => self.query(&query, scope),
                _ => Err(SqlError::internal("a view is no query")),
            },
        }
    }
}

/// A field of a row.
trait Field {
    fn value(self) -> Value;
}

impl Field for Value {
    fn value(self) -> Value {
        self
    }
}

impl Field for u32 {
    fn value(self) -> Value {
        Value::Int(self.into())
    }
}

impl Field for i64 {
    fn value(self) -> Value {
        Value::Int(self)
    }
}

impl Field for usize {
    fn value(self) -> Value {
        Value::Int(self as i64)
    }
}

impl Field for bool {
    fn value(self) -> Value {
        Value::Bool(self)
    }
}

impl Field for &str {
    fn value(self) -> Value {
        Value::Text(self.to_owned())
    }
}

impl Field for String {
    fn value(self) -> Value {
        Value::Text(self)
    }
}

impl<T: Field> Field for Option<T> {
    fn value(self) -> Value {
        self.map_or(Value::Null, Field::value)
    }
}

/// A row of fields.
macro_rules! row {
    ($($field:expr),* $(,)?) => { vec![$($crate::system::Field::value($field)),*] };
}
use row;

/// Numbers as PostgreSQL writes a vector of them: `1 2`.
fn vector(numbers: impl Iterator<Item = i64>) -> String {
    let texts: Vec<String> = numbers.map(|number| number.to_string()).collect();
    texts.join(" ")
}

/// Numbers as PostgreSQL writes an array of them: `{1,2}`.
fn array(numbers: impl Iterator<Item = i64>) -> String {
    let texts: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("{{{}}}", texts.join(","))
}

/// Types of columns.
const N: Type = Type::Oid;
const I: Type = Type::Int4;
const S: Type = Type::Int2;
const T: Type = Type::Text;
const TEXTS: Type = Type::Array(Element::TEXT);
const C: Type = Type::Byte;
const B: Type = Type::Bool;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_tables_columns() {
        let catalog = Catalog::default();
        for table in relations::TABLES.iter().chain(types::TABLES).chain(empty::TABLES) {
            let rows = table.rows.map(|rows| rows(&catalog)).unwrap_or_default();
            assert!(rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
        }
    }
}
