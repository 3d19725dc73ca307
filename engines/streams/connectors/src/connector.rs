//! What a connector is to the registry.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;
use savanna_streams_api::StreamError;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::Source;

use crate::options::OptionSpec;

/// What a connector promises on each side that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// Of its source, if it can be read: whether it can be read again.
    pub(crate) replayable: Option<bool>,
    /// Of its sink, if it can be written.
    pub(crate) delivery: Option<Delivery>,
}

/// A kind of source or sink or both.
pub(crate) trait Connector: Debug + Send + Sync {
    /// The name in `'connector' = '..'`.
    fn name(&self) -> &'static str;

    /// Its options, all of them.
    fn options(&self) -> &'static [OptionSpec];

    /// What it promises.
    fn promise(&self) -> Promise;

    /// What the sink of a table promises, by its options.
    fn delivery(&self, _table: &TableDef) -> Result<Delivery> {
        let promised = self.promise().delivery;
        promised.ok_or_else(|| StreamError::Internal(format!("connector {} has no sink", self.name())))
    }

    /// Checks a declaration; may fill in the columns of a table that has none.
    fn check(&self, table: &mut TableDef) -> Result<()>;

    /// The reading side.
    fn source(&self, _table: &TableDef) -> Result<Arc<dyn Source>> {
        Err(StreamError::Internal(format!("connector {} has no source", self.name())))
    }

    /// The writing side.
    fn sink(&self, _table: &TableDef, _schema: SchemaRef) -> Result<Box<dyn Sink>> {
        Err(StreamError::Internal(format!("connector {} has no sink", self.name())))
    }
}
