//! The seam through which rows go out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId};

/// What a sink promises about rows of an epoch that is committed again after a failure, and what a query promises by that. The least comes
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Rows that were under way are lost with a failure: their source does not give them again. No sink promises so little.
    AtMostOnce,
    /// Rows of the last epoch may appear again after a crash.
    AtLeastOnce,
    /// The sink stores query and epoch in the same atomic unit as the rows.
    ExactlyOnce,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMostOnce => "at-most-once",
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        })
    }
}

/// Whether a sink takes an epoch's rows at once. Asked by any thread, before the epoch is sealed.
pub type Room = Arc<dyn Fn() -> bool + Send + Sync>;

/// Has a commit that waits for other machines, and each that follows, end soon with an error. Called by any thread, when nobody needs
/// the sink any more.
pub type GiveUp = Arc<dyn Fn() + Send + Sync>;

/// A sink on other machines: its commits take long, so they have a thread of their own.
#[derive(Clone)]
pub struct Remote {
    /// [`Sink::renew`] is wanted when nothing was committed for so long.
    pub renew_after: Duration,
    /// Ends the waiting.
    pub give_up: GiveUp,
}

/// The judge of exactly once: an epoch counts when its sink has it.
pub trait Sink: Send {
    /// The last epoch of `query` that this sink holds, asked before a query starts or starts again.
    ///
    /// # Errors
    /// The sink cannot be read.
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>>;

    /// Stores the rows of an epoch and the epoch itself. Epochs come in order; an epoch that is already there changes
    /// nothing. Returns when the rows are as safe as [`Sink::delivery`] says.
    ///
    /// # Errors
    /// The sink failed; nothing of the epoch counts.
    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()>;

    /// The query has ended and every epoch is committed: close files, flush.
    ///
    /// # Errors
    /// The sink failed.
    fn finish(&mut self) -> Result<()>;

    /// What this sink promises.
    fn delivery(&self) -> Delivery;

    /// What is to be known of a sink on other machines; none if commits are quick.
    fn remote(&self) -> Option<Remote> {
        None
    }

    /// Sees to it that [`Sink::last_committed`] is not forgotten where nothing was committed for long.
    ///
    /// # Errors
    /// The sink failed.
    fn renew(&mut self, query: &QueryId) -> Result<()> {
        let _ = query;
        Ok(())
    }

    /// What tells whether there is room, if its reader may be behind: the query waits then, and no thread does.
    fn room(&self) -> Option<Room> {
        None
    }
}
