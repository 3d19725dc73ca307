//! The `postgres` sink and look-up: a table of PostgreSQL, or of a database that speaks its protocol.
//!
//! It is read once, to its end, or asked for the rows of keys. When it is written, each epoch is one transaction: its rows, and its number in a table beside them. So the database itself tells which epochs it holds, and
//! which process may write the next one.

mod by_key;
mod changes;
mod client;
mod columns;
mod epochs;
mod names;
mod rows;
mod settings;
mod sink;
mod source;
mod text;
mod tls;
mod values;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::Source;

pub(crate) use changes::PostgresChanges;

use crate::connector::{Connector, Promise};
use crate::options::OptionSpec;
use settings::{NAME, OPTIONS, Settings};
use sink::PostgresSink;
use source::PostgresSource;

/// The connector.
#[derive(Debug)]
pub(crate) struct Postgres;

impl Connector for Postgres {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(false), delivery: Some(Delivery::ExactlyOnce) }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        Settings::new(table).map(drop)
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(PostgresSource::new(Settings::new(table)?)))
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        Ok(Box::new(PostgresSink::new(Settings::new(table)?, &table.name, schema)?))
    }
}
