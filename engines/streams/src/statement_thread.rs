//! Threads with large stacks for statements.
//!
//! Parsers, planners and expressions go down into themselves once for each operator of a chain. A statement therefore gets a
//! thread of its own, whose stack holds the deepest that [`savanna_streams_sql::parse`] lets through many times over. The
//! stack is address space until it is used, and goes with the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use savanna_streams_api::{Result, StreamError};
use tokio::sync::{Semaphore, oneshot};

/// Bytes of the stack of a thread that plans.
const STACK_BYTES: usize = 512 << 20;
/// So many statements are worked on at once; more wait.
const THREADS_MAX: usize = 32;

/// Threads that work on statements, bounded in number.
#[derive(Debug)]
pub(crate) struct StatementThreads {
    free: Arc<Semaphore>,
}

/// Whoever waits for a statement. It may have gone: its client was cancelled, lost its patience or closed its socket.
pub(crate) struct Waiting<T>(oneshot::Sender<Result<Done<T>>>);

/// What a statement did, on its way to who waits for it. If nobody takes it, it is undone.
struct Done<T>(Option<(T, Undo<T>)>);

type Undo<T> = Box<dyn FnOnce(T) + Send>;

impl<T> Done<T> {
    fn take(mut self) -> Option<T> {
        self.0.take().map(|(done, _)| done)
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        if let Some((done, undo)) = self.0.take() {
            undo(done);
        }
    }
}

impl<T> Waiting<T> {
    /// Goes on only if somebody still waits: asked before anything is started that outlives the statement.
    ///
    /// # Errors
    /// [`StreamError::Cancelled`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.is_closed() { Err(StreamError::Cancelled) } else { Ok(()) }
    }
}

impl Default for StatementThreads {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(THREADS_MAX)) }
    }
}

impl StatementThreads {
    /// So many statements are worked on.
    #[cfg(test)]
    pub(crate) fn at_work(&self) -> usize {
        THREADS_MAX - self.free.available_permits()
    }

    /// Does what may block or go deep (parsing, planning, opening files) off the caller's executor. Who stops to wait gets
    /// nothing; the thread keeps its place until it has come to its end, and `undo` takes back what it did.
    ///
    /// # Errors
    /// Those of `work`, or the operating system gives no thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Waiting<T>) -> Result<T> + Send + 'static,
        undo: impl FnOnce(T) + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.free).acquire_owned().await;
        let (tell, told) = oneshot::channel();
        let thread = thread::Builder::new().name("statement".into()).stack_size(STACK_BYTES).spawn(move || {
            let _place = place;
            let waiting = Waiting(tell);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&waiting)));
            let outcome = outcome.unwrap_or_else(|_| Err(half_way("it panicked; the log says where")));
            // Dropped if nobody waits, at once or later.
            let _ = waiting.0.send(outcome.map(|done| Done(Some((done, Box::new(undo))))));
        });
        thread.map_err(|e| StreamError::io("starting a thread for a statement", &e))?;
        let done = told.await.map_err(|_| half_way("its thread ended"))??;
        done.take().ok_or_else(|| half_way("its result was taken twice"))
    }
}

/// Does what goes as deep as a statement on a thread for it, and does not wait for it.
///
/// # Errors
/// The operating system gives no thread.
pub(crate) fn deep_beside(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(work);
    thread.map(drop).map_err(|e| StreamError::io("starting a thread for queries that go on", &e))
}

/// Does what goes as deep as a statement on a thread for it, and waits for it.
///
/// # Errors
/// The operating system gives no thread, or it panics.
pub(crate) fn deep<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let thread = thread::Builder::new().name("statement".into()).stack_size(STACK_BYTES).spawn(work);
    let thread = thread.map_err(|e| StreamError::io("starting a thread for a statement", &e))?;
    thread.join().map_err(|_| half_way("it panicked; the log says where"))
}

fn half_way(why: &str) -> StreamError {
    StreamError::Internal(format!("a statement stopped half-way: {why}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn who_stops_to_wait_gets_nothing_and_leaves_nothing_behind() {
        let threads = StatementThreads::default();
        let (go_on, may_go_on) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let undone = tell.clone();
        let work = move |waiting: &Waiting<u32>| {
            let _ = may_go_on.recv();
            let _ = tell.send(waiting.check() == Err(StreamError::Cancelled));
            Ok(7)
        };
        let answer = threads.run(work, move |done| undone.send(done == 7).unwrap_or_default());
        assert!(tokio::time::timeout(Duration::from_millis(20), answer).await.is_err());
        assert_eq!(threads.free.available_permits(), THREADS_MAX - 1, "the thread is still at work");
        go_on.send(()).unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [true, true]);
        let _all = threads.free.acquire_many(THREADS_MAX as u32).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_has_come_and_is_not_taken_is_undone() {
        let threads = StatementThreads::default();
        let (go_on, may_go_on) = mpsc::channel();
        let (undone, was_undone) = mpsc::channel();
        let work = move |_: &Waiting<u32>| {
            let _ = may_go_on.recv();
            Ok(7)
        };
        let mut answer = Box::pin(threads.run(work, move |done| undone.send(done).unwrap_or_default()));
        let begun = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending()));
        assert!(begun.await);
        go_on.send(()).unwrap();
        let _all = threads.free.acquire_many(THREADS_MAX as u32).await.unwrap();
        drop(answer);
        assert_eq!(was_undone.iter().collect::<Vec<_>>(), [7]);
    }
}
