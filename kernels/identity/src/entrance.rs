//! Where the clients of a face come in, and wait until it is known who they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::pending::PendingClients;
use crate::{Throttle, descriptors_max};

/// Clients that have not said who they are yet, where there are descriptors enough.
const PENDING_MAX: usize = 256;
/// How long to wait after somebody could not come in, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long somebody else who was sent away may take to give a descriptor back, once it is known that it goes.
const SHORT_PAUSE: Duration = Duration::from_millis(2);

/// Accepts clients. Of those who have not said who they are yet there are so many at most: the newest displaces the oldest,
/// and the oldest goes when there are no descriptors left, so that who says nothing keeps nobody out.
#[derive(Debug)]
pub struct Entrance {
    listener: TcpListener,
    waiting: Arc<Waiting>,
    failures: Mutex<Throttle>,
}

/// Those who have not said who they are.
#[derive(Debug)]
struct Waiting {
    pending: Mutex<PendingClients<Arc<Notify>>>,
    /// One of them is not waiting any more.
    left: Notify,
}

impl Entrance {
    /// Nobody yet.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        // Several doors may be crowded at once.
        let pending_max = (descriptors_max() / 8).clamp(4, PENDING_MAX);
        let pending = Mutex::new(PendingClients::new(pending_max));
        Self { listener, waiting: Arc::new(Waiting { pending, left: Notify::new() }), failures: Mutex::default() }
    }

    /// Waits for the next client. Who stops waiting loses none.
    pub async fn next(&self) -> (TcpStream, SocketAddr, PendingClient) {
        loop {
            match self.listener.accept().await {
                Ok((socket, address)) => return (socket, address, self.begin()),
                Err(error) => {
                    let left = self.waiting.left.notified();
                    let oldest = self.waiting.pending.lock().displace();
                    let pause = match oldest {
                        Some(oldest) => {
                            oldest.notify_one();
                            // One goes for one who comes: the next is not sent away before this one had the time to go.
                            let _late = tokio::time::timeout(PAUSE, left).await;
                            SHORT_PAUSE
                        }
                        None => {
                            if let Some(times) = self.failures.lock().happens(Instant::now()) {
                                tracing::warn!(%error, times, "a client could not be accepted, and no other can be disconnected for it");
                            }
                            PAUSE
                        }
                    };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    fn begin(&self) -> PendingClient {
        let displaced = Arc::new(Notify::new());
        let (number, oldest) = self.waiting.pending.lock().arrive(Arc::clone(&displaced));
        if let Some(oldest) = oldest {
            oldest.notify_one();
        }
        PendingClient { waiting: Arc::clone(&self.waiting), number, displaced }
    }
}

/// A client that has not said who it is yet. Drop this when it has.
#[derive(Debug)]
pub struct PendingClient {
    waiting: Arc<Waiting>,
    number: u64,
    displaced: Arc<Notify>,
}

impl PendingClient {
    /// What is told when the client has to go for another one.
    #[must_use]
    pub fn displaced(&self) -> Arc<Notify> {
        Arc::clone(&self.displaced)
    }

    /// Waits for what makes a client known, or `None`: it took too long, or had to go for another one.
    pub async fn within<T>(self, time: Duration, known: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            known = tokio::time::timeout(time, known) => known.ok(),
            () = self.displaced.notified() => None,
        }
    }
}

impl Drop for PendingClient {
    fn drop(&mut self) {
        self.waiting.pending.lock().leave(self.number);
        self.waiting.left.notify_waiters();
    }
}
