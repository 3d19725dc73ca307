//! What a place to keep the log must do, one step at a time, for the core.

use std::sync::Arc;

use crate::{
    batch::Batch,
    core::{Action, Input},
    error::JournalError,
    record::Lsn,
};

/// Hears what became of the put whose last record this is.
pub(crate) type PutTold = Arc<dyn Fn(Lsn, Result<(), JournalError>) + Send + Sync>;

/// A log that is open for appending. Any error is final, the core dies of it and calls nothing again; but for
/// [`JournalError::Full`] of a write, a truncation or a reserve, after which the same is asked again later.
pub(crate) trait Backend: Send {
    /// Fails with [`JournalError::Fenced`] if a newer owner took over.
    fn check_fence(&mut self) -> Result<(), JournalError>;

    /// Writes a batch that follows `durable`; it need not be durable yet.
    fn write(&mut self, batch: &Batch, durable: Lsn) -> Result<(), JournalError>;

    /// Begins to write a batch that follows `durable` and those under way, which are `behind` many. What became of it is told through
    /// [`on_put`](Self::on_put). A disk has one batch under way, which is [written](Self::write).
    fn put(&mut self, _batch: &Batch, _durable: Lsn, _behind: usize) -> Result<(), JournalError> {
        Err(JournalError::Stopped { reason: "a disk takes one batch at a time".to_owned() })
    }

    /// Whom to tell what became of puts.
    fn on_put(&mut self, _told: PutTold) {}

    /// Why a batch that comes soon may find no space, if the last write met that.
    fn low(&self) -> Option<JournalError> {
        None
    }

    /// Makes sure of space for a batch that comes soon.
    fn reserve(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Makes durable what was written.
    fn flush(&mut self) -> Result<(), JournalError>;

    /// Notes durably that records before `oldest` are not needed, and removes segments that hold only such.
    fn truncate(&mut self, oldest: Lsn, durable: Lsn) -> Result<(), JournalError>;

    /// Everything up to here is durable now; the replies that wait for it leave next.
    fn note(&mut self, _durable: Lsn) {}

    /// The log is closed in order, with everything up to here durable: what can be done so that the next opening notices
    /// damage at its end.
    fn mark_end(&mut self, _durable: Lsn) {}
}

/// An action that is not input or output; it is for whoever drives the core.
#[derive(Debug)]
pub(crate) enum Outcome<R> {
    /// Feed this to the core.
    Answer(Input<R>),
    /// Not for the back end.
    Other(Action<R>),
}

/// Does one action of the core.
pub(crate) fn perform<R>(backend: &mut dyn Backend, action: Action<R>) -> Outcome<R> {
    let result = match action {
        Action::CheckFence => backend.check_fence().map(|()| Input::FenceClear),
        Action::Write { batch, durable } => match backend.write(&batch, durable) {
            Ok(()) => Ok(Input::WriteDone { batch, low: backend.low() }),
            Err(error @ JournalError::Full { .. }) => Ok(Input::Full { error, batch: Some(batch) }),
            Err(error) => Err(error),
        },
        Action::Put { batch, durable, behind } => {
            backend.put(&batch, durable, behind).map(|()| Input::PutBegun { batch })
        }
        Action::Reserve => or_full(backend.reserve().map(|()| Input::Reserved)),
        Action::Flush => backend.flush().map(|()| Input::FlushDone),
        Action::Truncate { oldest, durable } => {
            or_full(backend.truncate(oldest, durable).map(|()| Input::TruncateDone))
        }
        other @ (Action::Release { .. } | Action::WakeAt(_) | Action::Stop(_)) => {
            return Outcome::Other(other);
        }
    };
    Outcome::Answer(result.unwrap_or_else(failure))
}

/// What a failure is to the core.
pub(crate) fn failure<R>(error: JournalError) -> Input<R> {
    match error {
        JournalError::Fenced { theirs, .. } => Input::FenceSeen(theirs),
        error => Input::Failed(error),
    }
}

fn or_full<R>(result: Result<Input<R>, JournalError>) -> Result<Input<R>, JournalError> {
    match result {
        Err(error @ JournalError::Full { .. }) => Ok(Input::Full { error, batch: None }),
        other => other,
    }
}
