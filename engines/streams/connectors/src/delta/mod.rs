//! The `delta` sink: a table of Delta Lake, in a directory or in a bucket.
//!
//! ```text
//!   out/
//!     part-<query>-<epoch>-<owner>.parquet    rows of an epoch
//!     _delta_log/<version, 20 digits>.json    what is added: the part, and the epoch as the table's transaction of this query
//! ```
//!
//! The log is Delta's own, by the versions of its protocol that the first readers know (reader 1, writer 2). A version is created and never
//! written over, so that an epoch and its rows count at once, or not. Whoever begins to write a query creates a version, too: the one who
//! has written it before finds that when it wants the next number.

mod columns;
mod log;
mod place;
mod sink;

use std::path::Path;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::time::parse_duration;

use crate::connector::{Connector, Promise};
use crate::options::{Kind, OptionSpec, Options, Presence};
use crate::roots::{Roots, as_path, is_url};
use place::{LOG, Place};
use sink::DeltaSink;

const NAME: &str = "delta";
const PATH: &str = "path";
const RETRY_TIMEOUT: &str = "retry.timeout";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: PATH,
        kind: Kind::Text,
        presence: Presence::Required,
        help: "The table: a directory (also as 'file:///FOLDER'), or 's3://BUCKET/FOLDER'. It is made if it is not there.",
    },
    OptionSpec {
        name: RETRY_TIMEOUT,
        kind: Kind::Duration,
        presence: Presence::Default("5min"),
        help: "For so long a bucket may be away when an epoch is written; then the query fails.",
    },
];

/// The connector.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) roots: Roots,
}

impl Delta {
    fn settings(&self, table: &TableDef) -> Result<(String, Duration)> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let path = options.get(PATH, |path| (!path.is_empty()).then(|| as_path(path).to_owned()))?;
        self.roots.check(Path::new(&path))?;
        if !is_url(&path) {
            // It may be a link.
            self.roots.check(&Path::new(&path).join(LOG))?;
        }
        Ok((path, options.get(RETRY_TIMEOUT, parse_duration)?))
    }
}

impl Connector for Delta {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: None, delivery: Some(Delivery::ExactlyOnce) }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        self.settings(table)?;
        columns::of(&table.physical_schema()).map(drop)
    }

    /// By what the table declares: what a query gives may be narrower.
    fn sink(&self, table: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        let (path, retry) = self.settings(table)?;
        let columns = columns::of(&table.physical_schema())?;
        Ok(Box::new(DeltaSink::new(Place::new(&path, retry)?, &table.name, columns)))
    }
}
