//! `pg_catalog` and `information_schema`: what clients ask about tables, types and themselves. No row of these is kept anywhere: they are
//! made of the tenant's catalog when a statement asks for them.
//!
//! Names are `text` here, single characters, too, but for those that drivers read, vectors and arrays their texts. A table that is always empty
//! stands for something that there is not, such as policies: a query that joins it has no rows, whatever else it would compute.

mod definition;
mod depend;
mod description;
mod empty;
mod indexes;
pub(crate) mod qualify;
mod relations;
mod rewrite;
mod types;
mod views;

use std::sync::Arc;

use savanna_tenants_catalog::{Catalog, PUBLIC};
use savanna_tenants_values::{
    error::{Result, SqlError},
    types::{Element, Type},
    value::{Value, array::Array},
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

/// All of them.
fn tables() -> impl Iterator<Item = &'static SystemTable> {
    let own = relations::TABLES.iter().chain(types::TABLES).chain(depend::TABLES).chain(description::TABLES);
    own.chain(indexes::TABLES).chain(empty::TABLES)
}

/// The numbers of PostgreSQL's tables of the catalog.
const CLASSES: &[(u32, &str)] = &[
    (2600, "pg_aggregate"),
    (2601, "pg_am"),
    (2602, "pg_amop"),
    (2603, "pg_amproc"),
    (2604, "pg_attrdef"),
    (1249, "pg_attribute"),
    (1261, "pg_auth_members"),
    (1260, "pg_authid"),
    (2605, "pg_cast"),
    (1259, "pg_class"),
    (3456, "pg_collation"),
    (2606, "pg_constraint"),
    (2607, "pg_conversion"),
    (1262, "pg_database"),
    (826, "pg_default_acl"),
    (2608, "pg_depend"),
    (2609, "pg_description"),
    (3501, "pg_enum"),
    (3466, "pg_event_trigger"),
    (3079, "pg_extension"),
    (2328, "pg_foreign_data_wrapper"),
    (1417, "pg_foreign_server"),
    (3118, "pg_foreign_table"),
    (2610, "pg_index"),
    (2611, "pg_inherits"),
    (3394, "pg_init_privs"),
    (2612, "pg_language"),
    (2995, "pg_largeobject_metadata"),
    (2615, "pg_namespace"),
    (2616, "pg_opclass"),
    (2617, "pg_operator"),
    (2753, "pg_opfamily"),
    (3350, "pg_partitioned_table"),
    (3256, "pg_policy"),
    (1255, "pg_proc"),
    (6104, "pg_publication"),
    (6237, "pg_publication_namespace"),
    (6106, "pg_publication_rel"),
    (3541, "pg_range"),
    (2618, "pg_rewrite"),
    (3596, "pg_seclabel"),
    (2224, "pg_sequence"),
    (2396, "pg_shdescription"),
    (3381, "pg_statistic_ext"),
    (6100, "pg_subscription"),
    (6102, "pg_subscription_rel"),
    (1213, "pg_tablespace"),
    (3576, "pg_transform"),
    (2620, "pg_trigger"),
    (3602, "pg_ts_config"),
    (3603, "pg_ts_config_map"),
    (3600, "pg_ts_dict"),
    (3601, "pg_ts_parser"),
    (3764, "pg_ts_template"),
    (1247, "pg_type"),
    (1418, "pg_user_mapping"),
];

/// The number of one of them; 0 if it has none.
fn class_of(name: &str) -> u32 {
    CLASSES.iter().find(|(_, class)| *class == name).map_or(0, |(oid, _)| *oid)
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
            let mut tables = tables();
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
                let class = class_of(table.name);
                let column = |(at, (name, of)): (usize, &(&str, Type))| OutputColumn {
                    name: (*name).to_owned(),
                    of: *of,
                    origin: (class, at as i16 + 1),
                };
                let columns = table.columns.iter().enumerate().map(column).collect();
                Ok(Query::new(scope.width, Body::Values(rows), columns))
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

/// An array of numbers.
fn numbers(numbers: impl Iterator<Item = i64>) -> Value {
    Value::Array(Arc::new(numbers.map(Value::Int).collect::<Vec<_>>().into()))
}

/// A vector of numbers, which begins at 0.
fn vector(numbers: impl Iterator<Item = i64>) -> Value {
    Value::Array(Arc::new(Array::vector(numbers.map(Value::Int).collect())))
}

/// The number of the collation that values of a type have.
fn collation_of(of: Type) -> u32 {
    if of.is_text() { 100 } else { 0 }
}

/// Types of columns.
const N: Type = Type::Oid;
const I: Type = Type::Int4;
const S: Type = Type::Int2;
const T: Type = Type::Text;
const R: Type = Type::Float4;
const TEXTS: Type = Type::Array(Element::TEXT);
const OIDS: Type = Type::Array(Element::OID);
const NUMBERS: Type = Type::Array(Element::INT2);
const PLACES: Type = Type::Array(Element::INT2_OF_VECTOR);
const VECTOR: Type = Type::Array(Element::OID_OF_VECTOR);
const C: Type = Type::Byte;
const B: Type = Type::Bool;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_tables_columns() {
        let catalog = Catalog::default();
        for table in tables() {
            let rows = table.rows.map(|rows| rows(&catalog)).unwrap_or_default();
            assert!(rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
        }
    }
}
