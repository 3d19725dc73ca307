//! What leaves on a connection: answers are put there by who has them, and a task writes all that there is at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use savanna_files_host::{after_replies, replies_are_leaving};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// A buffer that grew beyond this is not kept.
const KEPT: usize = 64 << 10;

/// What there is to send.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Calls whose answers are in it.
    answered: usize,
    /// Nobody may be told anything more: the connection ends behind what there is.
    is_gone: bool,
    wake: Wake,
}

/// Whether the task that writes is woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wake {
    #[default]
    No,
    /// When all have left that leave together with who put something there.
    Soon,
    Done,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    woken: Notify,
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
    let (woken, senders) = (Notify::new(), AtomicUsize::new(1));
    let shared = Arc::new(Shared { waiting: Mutex::default(), woken, senders, calls: Semaphore::new(calls_max) });
    (Outbox(Arc::clone(&shared)), Writing(shared))
}

impl Outbox {
    /// Takes a place for a call, when there is one; it is free again when the call's answer is written. False if nothing more is written.
    pub(super) async fn begin_call(&self) -> bool {
        self.0.calls.acquire().await.map(SemaphorePermit::forget).is_ok()
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
        let are_leaving = replies_are_leaving();
        let before = waiting.wake;
        match (before, are_leaving) {
            (Wake::Done, _) | (Wake::Soon, true) => return,
            (Wake::No, true) => waiting.wake = Wake::Soon,
            // It does not wait for those that others let go.
            (_, false) => waiting.wake = Wake::Done,
        }
        drop(waiting);
        if are_leaving {
            let shared = Arc::clone(&self.0);
            // Of answers that leave together, all are written at once.
            after_replies(move || shared.wake_if_wanted());
        } else {
            self.0.woken.notify_one();
        }
    }
}

impl Shared {
    /// Wakes the task, if nobody has meanwhile.
    fn wake_if_wanted(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.wake == Wake::Soon {
            waiting.wake = Wake::Done;
            drop(waiting);
            self.woken.notify_one();
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
            self.0.woken.notify_one();
        }
    }
}

impl Writing {
    /// Takes all that is there, in exchange for an empty buffer. How many calls it answers, and whether it is the last.
    fn take(&self, bytes: &mut Vec<u8>) -> (usize, bool) {
        let mut waiting = self.0.waiting.lock();
        std::mem::swap(&mut waiting.bytes, bytes);
        waiting.wake = Wake::No;
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
                self.0.woken.notified().await;
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
        let mut waiting = self.0.waiting.lock();
        (waiting.is_gone, waiting.bytes) = (true, Vec::new());
        drop(waiting);
        self.0.calls.close();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use savanna_epoch::NodeEpoch;
    use savanna_journal::sim::SimDisk;
    use savanna_journal::{Draft, Journal, JournalError, Options};

    use super::*;

    /// What is written, a call each; or an error.
    #[derive(Clone, Default)]
    struct Written {
        writes: Arc<Mutex<Vec<String>>>,
        is_broken: bool,
    }

    impl AsyncWrite for Written {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.is_broken {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            self.writes.lock().push(String::from_utf8_lossy(bytes).into_owned());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.writes.lock().push("end".to_owned());
            Poll::Ready(Ok(()))
        }
    }

    fn say(words: &'static str) -> impl FnOnce(&mut Vec<u8>) {
        move |bytes| bytes.extend(words.as_bytes())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn answers_that_leave_together_are_written_at_once_and_nobody_waits_for_them() {
        let replay = &mut |_| Ok::<_, JournalError>(());
        let journal = Journal::open(Options::disk(SimDisk::new(1)), NodeEpoch(1), replay).unwrap();
        let written = Written::default();
        let (box_of_one, writes) = outbox(8);
        let mut writing = Box::pin(writes.run(written.clone()));
        // It has looked once before anything is there: what comes has to wake it.
        assert!(poll_fn(|context| Poll::Ready(writing.as_mut().poll(context).is_pending())).await);
        let task = tokio::spawn(writing);
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let lsn = journal.append(&[Draft { shard: 0, kind: 0, payload: b"x" }]).unwrap();
        let (gate, leaving) = (journal.gate(), box_of_one.clone());
        // What leaves at one moment, on the log's thread or on this one, and takes its time.
        let replies = std::thread::spawn(move || {
            gate.hold(lsn, move |_| {
                leaving.answer(say("zero "));
                let _ = wait.recv();
                for word in ["one ", "two ", "three"] {
                    leaving.answer(say(word));
                }
            });
        });
        while box_of_one.0.waiting.lock().answered == 0 {
            tokio::task::yield_now().await;
        }
        box_of_one.send(say("at once"));
        let is_written = async {
            while written.writes.lock().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), is_written)
            .await
            .expect("it waits for those that leave together");
        go_on.send(()).unwrap();
        replies.join().unwrap();
        journal.close().unwrap();
        drop(box_of_one);
        task.await.unwrap().unwrap();
        assert_eq!(*written.writes.lock(), ["zero at once", "one two three", "end"]);
    }

    #[tokio::test]
    async fn a_place_is_free_when_its_answer_is_written_and_nothing_comes_behind_the_end() {
        let written = Written::default();
        let (outbox, writes) = outbox(1);
        assert!(outbox.begin_call().await);
        assert_eq!(outbox.0.calls.available_permits(), 0);
        let task = tokio::spawn(writes.run(written.clone()));
        outbox.answer(say("first"));
        assert!(outbox.begin_call().await, "it is written");
        outbox.answer(say("second"));
        outbox.end();
        outbox.answer(say("third"));
        task.await.unwrap().unwrap();
        assert_eq!(*written.writes.lock(), ["first", "second", "end"]);
        assert!(!outbox.begin_call().await, "nobody is waited for any more");
    }

    #[tokio::test]
    async fn behind_a_broken_connection_nothing_is_kept_and_no_call_begins() {
        let (outbox, writes) = outbox(2);
        let task = tokio::spawn(writes.run(Written { is_broken: true, ..Written::default() }));
        outbox.send(say("lost"));
        assert!(task.await.unwrap().is_err());
        outbox.answer(say("more"));
        assert!(outbox.0.waiting.lock().bytes.is_empty());
        assert!(!outbox.begin_call().await);
    }
}
