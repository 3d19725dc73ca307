//! What leaves on a connection: answers are put there by who has them, and a task writes all that there is at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use savanna_files_host::after_replies;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, Semaphore};

/// A buffer that grew beyond this is not kept.
const KEPT: usize = 1 << 20;

/// What there is to send.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Calls whose answers are in it.
    answered: usize,
    /// Nobody may be told anything more: the connection ends behind what there is.
    is_gone: bool,
    /// The task that writes is woken, or will be.
    is_woken: bool,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Notify,
    senders: AtomicUsize,
    /// Places for calls. Whoever takes one does not give it back: that is done when the answer is written.
    calls: Semaphore,
}

/// Who puts something there. When the last of them has gone, the connection ends.
#[derive(Debug)]
pub(super) struct Outbox(Arc<Shared>);

/// Who writes what is there.
#[derive(Debug)]
pub(super) struct Writing(Arc<Shared>);

/// An outbox for so many calls that are under way, and who writes what is in it.
pub(super) fn outbox(calls_max: usize) -> (Outbox, Writing) {
    let (wake, senders) = (Notify::new(), AtomicUsize::new(1));
    let shared = Arc::new(Shared { waiting: Mutex::default(), wake, senders, calls: Semaphore::new(calls_max) });
    (Outbox(Arc::clone(&shared)), Writing(shared))
}

impl Outbox {
    /// Takes a place for a call, when there is one. It is free again when the call's answer is written.
    pub(super) async fn begin_call(&self) {
        // It is closed when nothing more is written.
        if let Ok(place) = self.0.calls.acquire().await {
            place.forget();
        }
    }

    /// Puts something there: what a closure adds to the bytes that are to be sent.
    pub(super) fn send(&self, add: impl FnOnce(&mut Vec<u8>)) {
        self.put(|waiting| add(&mut waiting.bytes));
    }

    /// Puts the answer to a call there.
    pub(super) fn answer(&self, add: impl FnOnce(&mut Vec<u8>)) {
        self.put(|waiting| {
            add(&mut waiting.bytes);
            waiting.answered += 1;
        });
    }

    /// Ends the connection behind what there is.
    pub(super) fn end(&self) {
        self.put(|waiting| waiting.is_gone = true);
    }

    fn put(&self, put: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.0.waiting.lock();
        if waiting.is_gone {
            return;
        }
        put(&mut waiting);
        let was_woken = std::mem::replace(&mut waiting.is_woken, true);
        drop(waiting);
        if !was_woken {
            let shared = Arc::clone(&self.0);
            // Of answers that leave together, all are written at once.
            after_replies(move || shared.wake.notify_one());
        }
    }
}

impl Clone for Outbox {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake.notify_one();
        }
    }
}

impl Writing {
    /// Takes all that is there, in exchange for an empty buffer. How many calls it answers, and whether it is the last.
    fn take(&self, bytes: &mut Vec<u8>) -> (usize, bool) {
        let mut waiting = self.0.waiting.lock();
        std::mem::swap(&mut waiting.bytes, bytes);
        waiting.is_woken = false;
        (std::mem::take(&mut waiting.answered), waiting.is_gone)
    }

    /// Writes what is put there, until there will be nothing more.
    pub(super) async fn run(self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            // Looked at first: what the last of them put there is seen below.
            let is_last = self.0.senders.load(Ordering::Acquire) == 0;
            let (answered, is_gone) = self.take(&mut bytes);
            if !bytes.is_empty() {
                writer.write_all(&bytes).await?;
                bytes.clear();
                bytes.shrink_to(KEPT);
                self.0.calls.add_permits(answered);
            } else if !is_gone && !is_last {
                self.0.wake.notified().await;
            }
            if is_gone || is_last {
                return writer.shutdown().await;
            }
        }
    }
}

impl Drop for Writing {
    /// Nothing more is written: nobody waits for a place, and nothing is kept.
    fn drop(&mut self) {
        self.0.waiting.lock().is_gone = true;
        self.0.calls.close();
    }
}
