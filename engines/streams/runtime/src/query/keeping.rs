//! Keeps what tables were asked and answered in an epoch, before the epoch is recorded.
//!
//! ```text
//!   all scans have sealed e --> members have looked up all of e --> answers of e are durable --> record of e --> the sink commits e
//! ```
//!
//! A thread of its own waits for members and for the disk; who drives queries does neither.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use savanna_streams_api::{Result, StreamError};

use super::Shared;
use super::drivers::panicked;
use super::turns::STACK_BYTES;
use crate::driver::EpochRecord;

/// The way to the thread.
#[derive(Default)]
pub(super) struct Keeping {
    records: Mutex<Option<Sender<EpochRecord>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeping {
    /// Begins, where there is something to keep.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(super) fn begin(shared: &Arc<Shared>) -> Result<()> {
        if !shared.keeps_answers() {
            return Ok(());
        }
        let (sender, records) = channel();
        let of_thread = Arc::clone(shared);
        let name = format!("{}-keep", shared.id);
        let thread =
            thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || keep(&of_thread, &records));
        *shared.keeping.thread.lock() =
            Some(thread.map_err(|e| StreamError::io("starting a thread for the query", &e))?);
        *shared.keeping.records.lock() = Some(sender);
        Ok(())
    }

    /// All partitions have sealed an epoch. Epochs come in order.
    pub(super) fn send(&self, record: EpochRecord) {
        if let Some(records) = &*self.records.lock() {
            // A thread that has ended has said why to whoever waits for the record.
            let _ = records.send(record);
        }
    }

    /// The query is over. What is not kept by now belongs to no epoch that counts.
    pub(super) fn end(&self) {
        self.records.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // Its panics were caught.
            let _ = thread.join();
        }
    }
}

fn keep(shared: &Shared, records: &Receiver<EpochRecord>) {
    for record in records {
        let epoch = record.epoch;
        let written = catch_unwind(AssertUnwindSafe(|| shared.write_down(record)))
            .unwrap_or_else(|panic| Err(panicked("the thread that keeps answers", panic.as_ref())));
        if let Err(error) = written {
            // None behind it is recorded: the next process could not go on from a gap.
            shared.not_written_down(epoch, error);
            return;
        }
    }
}
