//! A sink on other machines commits on a thread of its own: whoever sends to it goes on meanwhile. Epochs wait for it in order, as many
//! as may be in flight.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{GiveUp, Remote};

use super::drivers::panicked;
use crate::arena::CollectedInput;
use crate::driver::Input;
use crate::member::{Outgoing, StageOperator};
use crate::sink_stage::SinkOperator;

/// The operator of the sink stage, which hands epochs to the thread.
pub(crate) struct SinkThread {
    /// None once the thread is to end.
    work: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// Memory of the epochs that wait.
    bytes: Arc<AtomicUsize>,
}

enum Work {
    Epoch(Epoch, Vec<CollectedInput>),
    Finish(SyncSender<Result<()>>),
}

impl SinkThread {
    /// Starts the thread of these sinks, for which at most so many epochs wait. With it comes what ends its waiting.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(crate) fn start(operator: SinkOperator, remotes: Vec<Remote>, waiting: usize) -> Result<(Self, GiveUp)> {
        let (work, comes) = sync_channel(waiting.max(1));
        let (bytes, stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let renew_after = remotes.iter().map(|remote| remote.renew_after).min().unwrap_or(Duration::MAX);
        let committing = Committing { operator, bytes: Arc::clone(&bytes), stopped: Arc::clone(&stopped) };
        let thread = thread::Builder::new()
            .name("query-sink".into())
            .spawn(move || committing.run(&comes, renew_after))
            .map_err(|e| StreamError::io("starting a thread for the sink", &e))?;
        let give_up = move || {
            stopped.store(true, Ordering::Release);
            remotes.iter().for_each(|remote| (remote.give_up)());
        };
        Ok((Self { work: Some(work), thread: Some(thread), bytes }, Arc::new(give_up)))
    }
}

impl StageOperator for SinkThread {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        self.bytes.fetch_add(bytes_of(&inputs), Ordering::AcqRel);
        // A thread that has ended has told the driver why.
        if let Some(work) = &self.work {
            let _ = work.send(Work::Epoch(epoch, inputs));
        }
        Ok(Vec::new())
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    fn finish(&mut self) -> Result<()> {
        let (answer, answered) = sync_channel(1);
        let Some(work) = &self.work else { return Ok(()) };
        if work.send(Work::Finish(answer)).is_err() {
            return Ok(());
        }
        // One that ends before it comes to this has told the driver why.
        answered.recv().unwrap_or(Ok(()))
    }
}

impl Drop for SinkThread {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // Its panics were caught.
            let _ = thread.join();
        }
    }
}

fn bytes_of(inputs: &[CollectedInput]) -> usize {
    inputs.iter().flat_map(|input| &input.bodies).map(|(_, body)| body.bytes()).sum()
}

/// What the thread does.
struct Committing {
    operator: SinkOperator,
    bytes: Arc<AtomicUsize>,
    /// The query needs nothing of it any more but its end.
    stopped: Arc<AtomicBool>,
}

impl Committing {
    fn run(mut self, work: &Receiver<Work>, renew_after: Duration) {
        loop {
            let done = match work.recv_timeout(renew_after) {
                Ok(Work::Epoch(epoch, inputs)) => self.epoch(epoch, inputs),
                Ok(Work::Finish(answer)) => {
                    // Nobody waits for it if this fails.
                    let _ = answer.send(guarded(|| self.operator.finish()));
                    Ok(())
                }
                Err(RecvTimeoutError::Timeout) => guarded(|| self.operator.renew()),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = done {
                return self.operator.driver.send(Input::Failed(error));
            }
        }
    }

    fn epoch(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(StreamError::Cancelled);
        }
        let bytes = bytes_of(&inputs);
        let done = guarded(|| self.operator.commit(epoch, inputs));
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        done
    }
}

fn guarded(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked("the sink", panic.as_ref())))
}
