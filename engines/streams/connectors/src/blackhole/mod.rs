//! The `blackhole` sink: takes rows and forgets them.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};

use crate::connector::{Connector, Promise};
use crate::options::{OptionSpec, Options};

const NAME: &str = "blackhole";

/// The connector.
#[derive(Debug)]
pub(crate) struct Blackhole;

impl Connector for Blackhole {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn promise(&self) -> Promise {
        Promise { replayable: None, delivery: Some(Delivery::AtLeastOnce) }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        Options::check(NAME, &[], &table.options).map(|_| ())
    }

    fn sink(&self, table: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        Options::check(NAME, &[], &table.options)?;
        Ok(Box::new(Forget))
    }
}

/// Keeps nothing, not even the epoch: a query that starts again sends its rows again, and nobody can tell.
struct Forget;

impl Sink for Forget {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, _: &[RecordBatch]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}
