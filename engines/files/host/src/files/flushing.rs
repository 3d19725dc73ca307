//! What goes to the database behind the log, and what may go then: a part of the log, of what is in memory, and of the replicas.

use savanna_files::flush::Batch;
use savanna_files::namespace::AT_ONCE;
use savanna_files_database::DatabaseError;

use super::Files;
use crate::behind::{self, Behind};

/// How often it is looked for inodes to be given up, each time that there are too many.
const TURNS: usize = 64;

/// The log is cut each time that the database has so many more changes.
const CUT_EVERY: u64 = 1 << 16;

impl Files {
    /// Brings all changes to the database that the log has, and makes the log short. Blocks.
    pub(crate) fn flush(&self) -> Result<(), DatabaseError> {
        let Some(behind) = &self.0.behind else { return Ok(()) };
        loop {
            let durable = self.0.journal.durable();
            let changes = self.0.state.read().unflushed.next(behind.batch_rows(), |lsn| lsn <= durable);
            let Some(batch) = Batch::of(&changes) else { return Ok(()) };
            // Without a lease another process may have the log already; it brings them.
            if !self.may_tell() {
                return Ok(());
            }
            let flushed = behind.write(&batch)?;
            let before = behind.flushed_up_to();
            let mut state = self.0.state.write();
            let cut = state.flushed(flushed);
            drop(state);
            // Freed beyond the lock.
            drop(changes);
            behind.flushed(flushed);
            self.give_up_some(behind);
            *self.0.needed.lock() = cut;
            if flushed.0 / CUT_EVERY != before.0 / CUT_EVERY {
                self.cut();
            }
        }
    }

    /// Drops what of the log the database has.
    pub(super) fn cut(&self) {
        if let Some(lsn) = self.0.needed.lock().take() {
            // A log that has ended is noticed elsewhere.
            let _ = self.0.journal.truncate_before(lsn);
        }
    }

    /// Removes replicas of which neither the log nor the database has a file, some at a time.
    pub(crate) fn remove_orphans(&self) -> Result<(), DatabaseError> {
        let Some(behind) = &self.0.behind else { return Ok(()) };
        let mut orphans = self.0.orphans.lock();
        let count = orphans.len();
        let some = orphans.split_off(count.saturating_sub(behind::BATCH));
        drop(orphans);
        if some.is_empty() {
            return Ok(());
        }
        match behind.without_file(&some) {
            Ok(mut unwanted) => {
                let mut state = self.0.state.write();
                // What has a file here may not have one in the database yet.
                unwanted.retain(|block| state.namespace.blocks.inode(*block).is_none());
                state.namespace.blocks.forget(&unwanted);
                drop(state);
                self.remove(unwanted);
                Ok(())
            }
            Err(error) => {
                self.0.orphans.lock().extend(some);
                Err(error)
            }
        }
    }

    /// Gives up what is in memory beyond what may be.
    pub(super) fn give_up_some(&self, behind: &Behind) {
        // The lock is let go in between. What is used, or not flushed, stays for now.
        for _ in 0..TURNS {
            if self.0.state.read().namespace.tree().len() <= behind.inodes_max {
                return;
            }
            self.0.state.write().namespace.give_up(behind.inodes_max, AT_ONCE);
        }
    }
}
