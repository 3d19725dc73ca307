//! Threads with large stacks for statements.
//!
//! Parsers, planners and expressions go down into themselves once for each operator of a chain. A statement therefore gets a
//! thread of its own, whose stack holds the deepest that [`savanna_streams_sql::parse`] lets through many times over. The
//! stack is address space until it is used, and goes with the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use savanna_streams_model::{Result, StreamError};
use tokio::sync::{Semaphore, oneshot};

/// Bytes of the stack of a thread that plans.
const STACK_BYTES: usize = 512 << 20;
/// So many statements are worked on at once; more wait.
const THREADS_MAX: usize = 32;

/// Threads that work on statements, bounded in number.
#[derive(Debug)]
pub(crate) struct StatementThreads {
    free: Semaphore,
}

impl Default for StatementThreads {
    fn default() -> Self {
        Self { free: Semaphore::new(THREADS_MAX) }
    }
}

impl StatementThreads {
    /// Does what may block or go deep (parsing, planning, opening files) off the caller's executor.
    ///
    /// # Errors
    /// Those of `work`, or the operating system gives no thread.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let _place = self.free.acquire().await;
        let (tell, told) = oneshot::channel();
        let thread = thread::Builder::new().name("statement".into()).stack_size(STACK_BYTES).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // Whoever asked may be gone.
            let _ = tell.send(outcome.unwrap_or_else(|_| Err(half_way("it panicked; the log says where"))));
        });
        thread.map_err(|e| StreamError::io("starting a thread for a statement", &e))?;
        told.await.unwrap_or_else(|_| Err(half_way("its thread ended")))
    }
}

fn half_way(why: &str) -> StreamError {
    StreamError::Internal(format!("a statement stopped half-way: {why}"))
}
