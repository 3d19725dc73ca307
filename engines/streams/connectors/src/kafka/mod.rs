//! The `kafka` source and sink: a topic, of which each message is a row.
//!
//! The source reads what was committed, from places that the query keeps; it is a member of no group. The sink writes each epoch in one
//! transaction, with the epoch in it as the offset of a group that nobody joins. So the topic itself tells which epochs it holds.

mod client;
mod place;
mod reader;
mod schemas;
mod settings;
mod sink;
mod source;
mod topics;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::Source;

use crate::connector::{Connector, Promise};
use crate::options::OptionSpec;
use settings::{NAME, OPTIONS, Settings};
use sink::KafkaSink;
use source::KafkaSource;
use topics::Topics;

/// The connector.
#[derive(Debug, Default)]
pub(crate) struct Kafka {
    topics: Arc<Topics>,
}

impl Connector for Kafka {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(true), delivery: Some(Delivery::ExactlyOnce) }
    }

    fn delivery(&self, table: &TableDef) -> Result<Delivery> {
        Ok(Settings::new(table)?.delivery)
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        Settings::new(table)?.check(table)
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let settings = Settings::new(table)?;
        settings.check(table)?;
        Ok(Arc::new(KafkaSource::new(settings, Arc::clone(&self.topics))))
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        let settings = Settings::new(table)?;
        settings.check(table)?;
        settings.check_written(&table.name)?;
        Ok(Box::new(KafkaSink::new(settings, &table.name, &schema)?))
    }
}
