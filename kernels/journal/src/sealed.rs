//! Logs that have ended.

use std::{error::Error, sync::Arc};

use savanna_epoch::NodeEpoch;

use crate::{
    error::JournalError,
    journal::deliver,
    local, object,
    options::{Filter, Options, Place},
    record::{Lsn, Record},
};

/// A log to which nothing is ever added: it was [sealed](seal), which is the only way to come by one, so that a log that another began to seal
/// and left is ended before it is read. Any number of readers may read it at once, in any number of processes.
#[derive(Clone, Debug)]
pub struct SealedLog {
    place: Place,
    last: Lsn,
}

/// Ends a log for ever, if it has not ended yet: its owner acknowledges nothing more, and nobody opens it again. What the owner
/// has acknowledged is in it; a batch that was under way is in it as a whole or not at all. `epoch` has to be at least the one under which the
/// log was opened last.
///
/// Nothing is handed over, and no more than a segment of the log is in memory at any time. The call blocks while it reads. It may be
/// repeated after any error, by anybody: of a log that has ended it changes nothing and finds the same end, under any epoch.
///
/// # Errors
/// [`JournalError::NoLog`] if nobody ever opened a log there, [`JournalError::Fenced`] if a newer epoch owns the log, and whatever [`Journal::open`](crate::Journal::open) finds
/// wrong with it.
pub fn seal(options: &Options, epoch: NodeEpoch) -> Result<SealedLog, JournalError> {
    let last = match &options.place {
        Place::Disk(disk) => local::seal(disk, options.high_water.as_deref(), epoch)?,
        Place::Store { store, prefix } => object::seal(Arc::clone(store), prefix.clone(), epoch, options.put_time)?,
    };
    Ok(SealedLog { place: options.place.clone(), last })
}

impl SealedLog {
    /// The last record; [`Lsn::NONE`] if there never was one.
    #[must_use]
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// Removes the records of a log in an object store. What ends it stays, as an owner that wakes up after years has to meet it. Of a log in a
    /// directory everything stays: delete the directory. The call blocks.
    ///
    /// # Errors
    /// [`JournalError::Replaced`] if it does not end where it did when it was sealed, and the errors of the store.
    pub fn empty(&self) -> Result<(), JournalError> {
        match &self.place {
            Place::Disk(_) => Ok(()),
            Place::Store { store, prefix } => object::empty_sealed(Arc::clone(store), prefix.clone(), self.last),
        }
    }

    /// Hands every record that `filter` wants to `replay`, in the order of their LSNs, of complete append groups only. Changes nothing and
    /// fences nobody. The call blocks while it reads, with a segment of the log in memory, or some objects.
    ///
    /// # Errors
    /// [`JournalError::Replaced`] if it does not end where it did when it was sealed, [`JournalError::Corrupt`] and
    /// [`JournalError::Missing`] if it cannot be read back, the errors of the place,
    /// [`JournalError::Replay`] with the error of `replay`.
    pub fn read<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        filter: &Filter,
        replay: &mut dyn FnMut(Record) -> Result<(), E>,
    ) -> Result<(), JournalError> {
        let mut deliver = |record| deliver(filter, record, replay);
        match &self.place {
            Place::Disk(disk) => local::read_sealed(disk.as_ref(), self.last, &mut deliver),
            Place::Store { store, prefix } => {
                object::read_sealed(Arc::clone(store), prefix.clone(), self.last, &mut deliver)
            }
        }
    }
}
