//! The `redis` sink and look-up: rows become keys of Redis, or of a server that answers as it does, such as Savanna's keys, and keys are rows.
//!
//! They are read once, to the end, or asked for one by one. When they are written, an epoch is one transaction (`MULTI` .. `EXEC`): its rows, and its number in a key beside them, which therefore tells which epochs are there.

mod by_key;
mod rows;
mod settings;
mod sink;
mod source;
mod trying;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::Source;

use crate::connector::{Connector, Promise};
use crate::options::OptionSpec;
use settings::{NAME, OPTIONS, Settings};
use sink::RedisSink;
use source::RedisSource;

/// The connector.
#[derive(Debug)]
pub(crate) struct Redis;

impl Connector for Redis {
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
        Ok(Arc::new(RedisSource::new(Settings::new(table)?)?))
    }

    fn sink(&self, table: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        Ok(Box::new(RedisSink::new(Settings::new(table)?, &table.name)))
    }
}
