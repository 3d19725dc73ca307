//! Reads the table of a look-up, to its end.

use std::sync::Arc;
use std::time::Duration;

use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::Lookup;
use savanna_streams_model::source::{Connectors, Read, ScanSpec};

use super::Versions;

/// Events asked of the table's source at once.
const READ_EVENTS: usize = 65_536;
const READ_WAIT: Duration = Duration::from_millis(20);

/// A table that is read, and what was read of it.
pub(crate) struct Loading {
    connectors: Arc<dyn Connectors>,
    scan: ScanSpec,
    /// It is read anew so often.
    pub(crate) refresh: Option<Duration>,
    pub(crate) versions: Arc<Versions>,
}

impl Loading {
    /// # Errors
    /// The table cannot be opened, or never ends.
    pub(crate) fn open(lookup: &Lookup, connectors: Arc<dyn Connectors>, versions: Versions) -> Result<Self> {
        let name = &lookup.table.table.name;
        if !connectors.source(&lookup.table.table)?.bounded() {
            return Err(StreamError::invalid(format!(
                "a look-up reads its table to the end, but table {name} never ends; use a bounded table"
            )));
        }
        Ok(Self { connectors, scan: lookup.table.clone(), refresh: lookup.refresh, versions: Arc::new(versions) })
    }

    /// The name of the table.
    pub(crate) fn name(&self) -> &str {
        &self.scan.table.name
    }

    /// Reads the table to its end: its newest version. `go_on` hears how many rows came and says whether to read further.
    ///
    /// # Errors
    /// The table cannot be read or kept, a value cannot be computed, or [`StreamError::Cancelled`].
    pub(crate) fn read(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<()> {
        // What the table consists of, such as files, may have changed since the last time.
        let source = self.connectors.source(&self.scan.table)?;
        let mut batches = Vec::new();
        let partitions = source.partitions(1)?.max(1);
        for partition in 0..partitions {
            let mut reader = source.open(&self.scan, partition, partitions, None)?;
            loop {
                let rows = match reader.read(READ_EVENTS, READ_WAIT)? {
                    Read::Rows(batch) => {
                        let rows = batch.rows.num_rows() as u64;
                        batches.push(batch.rows);
                        rows
                    }
                    Read::Pending | Read::Split(_) => 0,
                    Read::End => break,
                };
                if !go_on(rows) {
                    return Err(StreamError::Cancelled);
                }
            }
        }
        self.versions.add(batches)
    }
}
