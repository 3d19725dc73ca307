//! Tables and views as the user declared them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::secrets;

/// The Arrow type of `VARCHAR` and `STRING`, the same everywhere: sources make it, casts and literals yield it. Views,
/// because sources can hand out slices of one buffer without copying, and short strings compare inline.
pub const fn varchar() -> DataType {
    DataType::Utf8View
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// The name as written; case matters.
    pub name: String,
    /// The type. `ROW<..>` is a struct.
    pub data_type: DataType,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// For `name AS expression`: the expression's text. Such a column is not read from the source.
    pub computed: Option<String>,
}

/// `WATERMARK FOR column AS expression`: no row of the same source partition that comes later will have an event time
/// below the expression's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatermarkDef {
    /// The event-time column; may be a computed one.
    pub column: String,
    /// How far the watermark stays behind the largest event time seen, in microseconds.
    pub delay: i64,
}

/// A table: the declaration of a source, a sink, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDef {
    /// The name as written; case matters.
    pub name: String,
    /// All columns in order, computed ones included.
    pub columns: Vec<ColumnDef>,
    /// The watermark, where declared. Windows need one.
    pub watermark: Option<WatermarkDef>,
    /// The columns of `PARTITIONED BY`: rows are written to a folder for each of their values.
    pub partitioned_by: Vec<String>,
    /// The columns of `PRIMARY KEY (..) NOT ENFORCED`: what the connector makes of them is its own business.
    pub primary_key: Vec<String>,
    /// The options of `WITH (..)`. `connector` is always there.
    pub options: BTreeMap<String, String>,
    /// The statement that made the table, for `SHOW CREATE TABLE`, without its [`secrets`](crate::secrets).
    pub statement: String,
}

impl TableDef {
    /// The connector's name.
    pub fn connector(&self) -> &str {
        self.options.get("connector").map_or("", String::as_str)
    }

    /// Puts what is shown in the place of [`secrets`](crate::secrets) in its options.
    pub(crate) fn hide_secrets(&mut self) {
        for (option, value) in &mut self.options {
            if let Some(shown) = secrets::hidden(option, value) {
                *value = shown;
            }
        }
    }

    /// In what another table differs beside [`secrets`](crate::secrets), and the text that made it. It differs where it is not clear in a
    /// URL what is secret.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let parts = [
            ("name", self.name == other.name),
            ("columns", self.columns == other.columns),
            ("watermark", self.watermark == other.watermark),
            ("PARTITIONED BY", self.partitioned_by == other.partitioned_by),
            ("PRIMARY KEY", self.primary_key == other.primary_key),
        ];
        let parts = parts.into_iter().filter(|(_, is_same)| !is_same).map(|(part, _)| part.to_owned());
        let options: BTreeSet<&String> = self.options.keys().chain(other.options.keys()).collect();
        let differs = |option: &&String| match (self.options.get(*option), other.options.get(*option)) {
            (Some(value), Some(of_other)) => !secrets::are_same_but_for_secrets(option, value, of_other),
            _ => true,
        };
        parts.chain(options.into_iter().filter(differs).map(|option| format!("option '{option}'"))).collect()
    }

    /// The columns that the connector reads or writes, in order.
    pub fn physical_schema(&self) -> SchemaRef {
        let fields = self.columns.iter().filter(|c| c.computed.is_none());
        Arc::new(Schema::new(fields.map(ColumnDef::field).collect::<Vec<_>>()))
    }

    /// All columns as queries see them, in order.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(ColumnDef::field).collect::<Vec<_>>()))
    }
}

impl ColumnDef {
    fn field(&self) -> Field {
        Field::new(&self.name, self.data_type.clone(), self.nullable)
    }
}

/// A view: a name for a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewDef {
    /// The name as written; case matters.
    pub name: String,
    /// The names given to its columns, or none to keep the query's.
    pub columns: Vec<String>,
    /// The text of its query.
    pub query: String,
    /// The statement that made the view, for `SHOW CREATE VIEW`.
    pub statement: String,
}
