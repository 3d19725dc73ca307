//! What is refused before anything of a query is opened or made.

use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Operator, Scan};

use super::starting::Starting;
use crate::options::Mode;

impl Starting {
    /// # Errors
    /// A table for late rows is the one that the query writes: two sinks would be at it, each of which would undo what the other did.
    pub(super) fn check_late_tables(&self) -> Result<()> {
        let written = self.table();
        for stage in &self.graph.stages {
            let Operator::Scan(Scan { source, watermark: Some(watermark), .. }) = &stage.operator else { continue };
            let late = watermark.late_rows.as_ref().map(|late| &late.table.name);
            if let Some(late) = late.filter(|late| written.as_ref() == Some(*late)) {
                return Err(StreamError::invalid(format!(
                    "table {late} is written by the query, so that it cannot get late rows of table {} as well; name another one in 'late-data'",
                    source.table.name
                )));
            }
        }
        Ok(())
    }

    /// # Errors
    /// The query cannot run on functions, where it is to.
    pub(super) fn check_cloud(&self) -> Result<()> {
        if self.options.cloud.is_none() {
            return Ok(());
        }
        let refused = match (&self.survival, self.options.mode) {
            (Some(_), _) => "a query with a name",
            (None, Mode::Provisioned) => "the mode provisioned",
            (None, Mode::Serverless) => return Ok(()),
        };
        Err(StreamError::Unsupported {
            what: format!("{refused} on functions"),
            position: None,
            instead: "RESET 'query.name' and 'mode', or run it in this process or on a node".into(),
        })
    }
}
