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
/// The same if somebody else was sent away, who gives a descriptor back.
const SHORT_PAUSE: Duration = Duration::from_millis(2);

/// Accepts clients. Of those who have not said who they are yet there are so many at most: the newest displaces the oldest,
/// and the oldest goes when there are no descriptors left, so that who says nothing keeps nobody out.
#[derive(Debug)]
pub struct Entrance {
    listener: TcpListener,
    strangers: Arc<Mutex<Strangers<Arc<Notify>>>>,
    failures: Mutex<Throttle>,
}

impl Entrance {
    /// Nobody yet.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        // Several doors may be crowded at once.
        let strangers_max = (descriptors_max() / 8).clamp(4, STRANGERS_MAX);
        let strangers = Arc::new(Mutex::new(Strangers::new(strangers_max)));
        Self { listener, strangers, failures: Mutex::default() }
    }

    /// Waits for the next client. Who stops waiting loses none.
    pub async fn next(&self) -> (TcpStream, SocketAddr, Visit) {
        loop {
            match self.listener.accept().await {
                Ok((socket, address)) => return (socket, address, self.begin()),
                Err(error) => {
                    let oldest = self.strangers.lock().displace();
                    let pause = match oldest {
                        Some(oldest) => {
                            oldest.notify_one();
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
        let (number, oldest) = self.strangers.lock().arrive(Arc::clone(&displaced));
        if let Some(oldest) = oldest {
            oldest.notify_one();
        }
        Visit { strangers: Arc::clone(&self.strangers), number, displaced }
    }
}

/// A client that has not said who it is yet. Drop this when it has.
#[derive(Debug)]
pub struct Visit {
    strangers: Arc<Mutex<Strangers<Arc<Notify>>>>,
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
        self.strangers.lock().leave(self.number);
    }
}
