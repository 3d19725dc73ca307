//! A service with threads of its own, which is started again when it ends by itself: after a flush that failed nobody knows what
//! is on the disk, and only reading the log back tells. The node and its other services go on meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};

use crate::board::Board;
use crate::error::NodeError;

/// Between an end, or a start that failed, and the next start; doubled by each that fails.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A service that runs.
pub(crate) struct Started {
    /// Where it listens.
    pub(crate) address: SocketAddr,
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

type Start = dyn Fn(Option<SocketAddr>) -> Result<Started, NotStarted> + Send + Sync;

/// How a service is started, where it was before if it was.
#[derive(Clone)]
pub(crate) struct Supervisor {
    pub(crate) name: &'static str,
    pub(crate) board: Arc<Board>,
    pub(crate) start: Arc<Start>,
}

impl Supervisor {
    /// Starts the service. What looks after it from then on ends when `stopping` says so, and then says how the service ended;
    /// nothing if the service is not to be started again.
    pub(crate) async fn begin(
        self,
        stopping: watch::Receiver<bool>,
    ) -> Option<impl Future<Output = Result<(), NodeError>> + Send + use<>> {
        self.board.starting(self.name);
        let (running, address) = match self.try_start(None).await {
            Ok(started) => {
                let address = started.address;
                (Some(started), Some(address))
            }
            Err(refused) if refused.passes => (None, None),
            Err(_) => return None,
        };
        Some(self.look_after(running, address, stopping))
    }

    async fn try_start(&self, address: Option<SocketAddr>) -> Result<Started, NotStarted> {
        let start = Arc::clone(&self.start);
        let started = spawn_blocking(move || start(address)).await.unwrap_or_else(|error| {
            Err(NotStarted { reason: format!("it ended during its start: {error}"), passes: false })
        });
        match &started {
            Ok(started) => self.board.running(self.name, Some(started.address)),
            Err(refused) => self.board.failed(self.name, &refused.reason),
        }
        started
    }

    async fn look_after(
        self,
        mut running: Option<Started>,
        mut address: Option<SocketAddr>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), NodeError> {
        let mut pause = PAUSE_MIN;
        loop {
            if let Some(started) = running.take() {
                let ended = end_of(started, &mut stopping).await.map_err(NodeError::Task).flatten();
                let is_stopping = *stopping.borrow();
                match &ended {
                    Ok(()) if is_stopping => self.board.stopped(self.name),
                    Ok(()) => self.board.failed(self.name, "it ended by itself and is started again"),
                    Err(error) if is_stopping => self.board.failed(self.name, &error.to_string()),
                    Err(error) => self.board.failed(self.name, &format!("{error}; it is started again")),
                }
                if is_stopping {
                    return ended;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // A closed channel means that the node is gone.
                _ = stopping.wait_for(|stop| *stop) => return Ok(()),
            }
            match self.try_start(address).await {
                Ok(started) => {
                    tracing::info!(service = self.name, "the service runs again");
                    address = Some(started.address);
                    running = Some(started);
                    pause = PAUSE_MIN;
                }
                Err(_) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
    }
}

/// Waits until a service ends, which is told to when the node stops.
async fn end_of(started: Started, stopping: &mut watch::Receiver<bool>) -> Result<Result<(), NodeError>, JoinError> {
    let Started { stop, wait, .. } = started;
    let mut ended = spawn_blocking(wait);
    tokio::select! {
        ended = &mut ended => return ended,
        _ = stopping.wait_for(|stop| *stop) => stop(),
    }
    ended.await
}
