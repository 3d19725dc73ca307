//! The `postgres-cdc` source: the changes of a table of PostgreSQL, in the order in which they were committed, as rows that say what happened.
//!
//! ```text
//!   slot is made --> its snapshot is copied beside the table --> rows of the copy --> changes from the slot's place on
//!                                                                  |                    |
//!                                                    Place { copied: n }    Place { commit, changes: n }
//! ```
//!
//! The server keeps its log from where the slot was confirmed. That is only what no process will ask for again
//! ([`Forget`](savanna_streams_model::source::Forget)), whatever the sink holds.
//!
//! [`pgoutput`] and [`decoder`] decide and do nothing else; [`session`] and [`copy`] talk to the server, on the thread of [`stream`].

mod copy;
mod decoder;
mod pgoutput;
mod place;
mod prepare;
mod publication;
mod reader;
mod rows;
mod session;
mod settings;
mod slot;
mod stream;
mod tunnel;

use std::sync::Arc;

use savanna_streams_api::Result;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::source::Source;

use crate::connector::{Connector, Promise};
use crate::options::OptionSpec;
use reader::ChangesSource;
use settings::{NAME, OPTIONS, Settings};

/// The connector.
#[derive(Debug)]
pub(crate) struct PostgresChanges;

impl Connector for PostgresChanges {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(true), delivery: None }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        Settings::new(table).map(drop)
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(ChangesSource::new(Settings::new(table)?)))
    }
}
