//! Where the clients of a face come in, and wait until it is known who they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::strangers::Strangers;
use crate::{Throttle, descriptors_max};

/// Clients that have not said who they are yet, where there are descriptors enough.
const STRANGERS_MAX: usize = 256;
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
    strangers: Mutex<Strangers<Arc<Notify>>>,
    /// One of them is not waiting any more.
    left: Notify,
}

impl Entrance {
    /// Nobody yet.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        // Several doors may be crowded at once.
        let strangers_max = (descriptors_max() / 8).clamp(4, STRANGERS_MAX);
        let strangers = Mutex::new(Strangers::new(strangers_max));
        Self { listener, waiting: Arc::new(Waiting { strangers, left: Notify::new() }), failures: Mutex::default() }
    }

    /// Waits for the next client. Who stops waiting loses none.
    pub async fn next(&self) -> (TcpStream, SocketAddr, Visit) {
        loop {
            match self.listener.accept().await {
                Ok((socket, address)) => return (socket, address, self.begin()),
                Err(error) => {
                    let left = self.waiting.left.notified();
                    let oldest = self.waiting.strangers.lock().displace();
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

    fn begin(&self) -> Visit {
        let displaced = Arc::new(Notify::new());
        let (number, oldest) = self.waiting.strangers.lock().arrive(Arc::clone(&displaced));
        if let Some(oldest) = oldest {
            oldest.notify_one();
        }
        Visit { waiting: Arc::clone(&self.waiting), number, displaced }
    }
}

/// A client that has not said who it is yet. Drop this when it has.
#[derive(Debug)]
pub struct Visit {
    waiting: Arc<Waiting>,
    number: u64,
    displaced: Arc<Notify>,
}

impl Visit {
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

impl Drop for Visit {
    fn drop(&mut self) {
        self.waiting.strangers.lock().leave(self.number);
        self.waiting.left.notify_waiters();
    }
}
