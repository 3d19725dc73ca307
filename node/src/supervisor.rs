//! A service with threads of its own, which is started again when it ends by itself: after a flush that failed nobody knows what
//! is on the disk, and only reading the log back tells. The node and its other services go on meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};

use crate::board::Board;
use crate::error::NodeError;
use crate::roles::{Grant, Role};

/// Between an end, or a start that failed, and the next start; doubled by each that fails.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// After so many starts that failed, one after the other, an owner gives its service to another node.
const FAILURES_MAX: u32 = 3;

/// A service that runs.
pub(crate) struct Started {
    /// Where it listens, if it does.
    pub(crate) address: Option<SocketAddr>,
    /// Tells it to stop.
    pub(crate) stop: Box<dyn FnOnce() + Send>,
    /// Waits for its end.
    pub(crate) wait: Box<dyn FnOnce() -> Result<(), NodeError> + Send>,
}

/// Why a service does not run.
#[derive(Debug)]
pub(crate) struct NotStarted {
    /// In words.
    pub(crate) reason: String,
    /// Whether that passes by itself.
    pub(crate) passes: bool,
}

/// Gives a service to another node, if there is one for it.
pub(crate) type GiveUp = dyn Fn(Grant) -> BoxFuture<'static, ()> + Send + Sync;

type Start = dyn Fn(Role, Option<SocketAddr>) -> Result<Started, NotStarted> + Send + Sync;

/// How a service is started in a role, where it was before if it was. In another role it is started anew.
#[derive(Clone)]
pub(crate) struct Supervisor {
    pub(crate) name: &'static str,
    pub(crate) board: Arc<Board>,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) start: Arc<Start>,
    pub(crate) give_up: Arc<GiveUp>,
}

impl Supervisor {
    /// Starts the service. What looks after it from then on ends when `stopping` says so, and then says how the service ended;
    /// nothing if the service is not to be started again.
    pub(crate) async fn begin(
        mut self,
        stopping: watch::Receiver<bool>,
    ) -> Option<impl Future<Output = Result<(), NodeError>> + Send + use<>> {
        self.board.starting(self.name);
        let (running, address) = match self.try_start(None).await {
            Ok(started) => {
                let address = started.address;
                (Some(started), address)
            }
            // What this node does not serve, nobody does as long as it is granted to it.
            Err(refused) if refused.passes || self.role.has_changed().is_ok() => (None, None),
            Err(_) => return None,
        };
        Some(self.look_after(running, address, stopping))
    }

    async fn try_start(&mut self, address: Option<SocketAddr>) -> Result<Started, NotStarted> {
        let start = Arc::clone(&self.start);
        let role = *self.role.borrow_and_update();
        let started = spawn_blocking(move || start(role, address)).await.unwrap_or_else(|error| {
            Err(NotStarted { reason: format!("it ended during its start: {error}"), passes: false })
        });
        match &started {
            Ok(started) => self.board.running(self.name, started.address),
            Err(refused) => self.board.failed(self.name, &refused.reason),
        }
        started
    }

    async fn look_after(
        mut self,
        mut running: Option<Started>,
        mut address: Option<SocketAddr>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), NodeError> {
        let mut pause = PAUSE_MIN;
        let mut failures = u32::from(running.is_none());
        loop {
            if let Some(started) = running.take() {
                let (cause, ended) = self.end_of(started, &mut stopping).await;
                let ended = ended.map_err(NodeError::Task).flatten();
                match (&ended, cause) {
                    (Ok(()), Cause::Stop) => self.board.stopped(self.name),
                    (Ok(()), Cause::Itself) => self.board.failed(self.name, "it ended by itself and is started again"),
                    (_, Cause::Role) => self.board.starting(self.name),
                    (Err(error), Cause::Stop) => self.board.failed(self.name, &error.to_string()),
                    (Err(error), Cause::Itself) => {
                        self.board.failed(self.name, &format!("{error}; it is started again"));
                    }
                }
                match cause {
                    Cause::Stop => return ended,
                    Cause::Role => pause = Duration::ZERO,
                    Cause::Itself => {}
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = changed(&mut self.role) => {}
                // A closed channel means that the node is gone.
                _ = stopping.wait_for(|stop| *stop) => return Ok(()),
            }
            match self.try_start(address).await {
                Ok(started) => {
                    tracing::info!(service = self.name, "the service runs again");
                    address = started.address;
                    running = Some(started);
                    (pause, failures) = (PAUSE_MIN, 0);
                }
                Err(_) => {
                    pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                    failures += 1;
                }
            }
            let role = *self.role.borrow();
            if let Role::Owner(grant) = role
                && failures >= FAILURES_MAX
            {
                (self.give_up)(grant).await;
                failures = 0;
            }
        }
    }

    /// Waits until a service ends, which is told to when the node stops or its role is another.
    async fn end_of(
        &mut self,
        started: Started,
        stopping: &mut watch::Receiver<bool>,
    ) -> (Cause, Result<Result<(), NodeError>, JoinError>) {
        let Started { stop, wait, .. } = started;
        let mut ended = spawn_blocking(wait);
        let mut by_itself = None;
        let cause = tokio::select! {
            outcome = &mut ended => {
                by_itself = Some(outcome);
                Cause::Itself
            }
            _ = stopping.wait_for(|stop| *stop) => Cause::Stop,
            () = changed(&mut self.role) => Cause::Role,
        };
        if let Some(outcome) = by_itself {
            return (if *stopping.borrow() { Cause::Stop } else { cause }, outcome);
        }
        stop();
        (cause, ended.await)
    }
}

/// Why a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Itself,
    Role,
    Stop,
}

/// Ready when there is another role; never if there is none any more.
async fn changed(role: &mut watch::Receiver<Role>) {
    if role.changed().await.is_err() {
        std::future::pending().await
    }
}
