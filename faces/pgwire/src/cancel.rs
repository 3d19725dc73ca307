//! Cancel requests: they come on a connection of their own, at any node, and name another connection by process id and secret key.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_identity::cancel_key::{self, CancelKey};
use tokio::sync::watch;

/// All connections of a node that can be cancelled.
#[derive(Debug, Default)]
pub struct Cancellations {
    /// The node's number.
    node: u16,
    by_process: Mutex<HashMap<i32, (i32, watch::Sender<bool>)>>,
}

/// The faces of other nodes, which have clients of their own.
#[async_trait]
pub trait OtherFaces: Debug + Send + Sync {
    /// Ends the statement of the connection that has the key, if it is there.
    async fn cancel(&self, key: CancelKey);
}

impl Cancellations {
    /// Those of the node of this name: their keys say so.
    #[must_use]
    pub fn of_node(name: &str) -> Arc<Self> {
        Arc::new(Self { node: cancel_key::number_of(name), by_process: Mutex::default() })
    }

    /// Makes a connection reachable for cancel requests, by a key that nobody can guess, until the result is dropped.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub(crate) fn register(self: &Arc<Self>) -> io::Result<Cancellation> {
        let (cancel, _) = watch::channel(false);
        loop {
            let key @ (process, secret) = cancel_key::random(self.node)?;
            let mut by_process = self.by_process.lock();
            if by_process.contains_key(&process) {
                continue;
            }
            by_process.insert(process, (secret, cancel.clone()));
            return Ok(Cancellation { all: Arc::clone(self), key, cancel });
        }
    }

    /// Ends the statement of the connection that has the key. Whether it is here.
    pub fn cancel(&self, (process, secret): CancelKey) -> bool {
        let by_process = self.by_process.lock();
        let known = by_process.get(&process).filter(|(expected, _)| *expected == secret);
        if let Some((_, cancel)) = known {
            cancel.send_replace(true);
        }
        known.is_some()
    }
}

/// How one connection is cancelled.
#[derive(Debug)]
pub(crate) struct Cancellation {
    all: Arc<Cancellations>,
    /// What a request names it by: its process id and its secret.
    pub(crate) key: CancelKey,
    cancel: watch::Sender<bool>,
}

impl Cancellation {
    /// What was cancelled until now is over.
    pub(crate) fn reset(&self) {
        self.cancel.send_replace(false);
    }

    /// Comes back when the connection is cancelled, or was since the last reset.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + use<> {
        let mut cancelled = self.cancel.subscribe();
        async move {
            if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
                std::future::pending().await
            }
        }
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        self.all.by_process.lock().remove(&self.key.0);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_the_right_key_cancels() {
        let cancellations = Cancellations::of_node("n1");
        let registered = cancellations.register().unwrap();
        let (process, secret) = registered.key;
        assert_eq!(cancel_key::node_of(registered.key), cancel_key::number_of("n1"));
        assert!(!cancellations.cancel((process, secret ^ 1)));
        assert!(!cancellations.cancel((process ^ 1, secret)));
        assert_eq!(registered.asked().now_or_never(), None);
        assert!(cancellations.cancel((process, secret)));
        assert_eq!(registered.asked().now_or_never(), Some(()));
        registered.reset();
        assert_eq!(registered.asked().now_or_never(), None);
        drop(registered);
        assert!(cancellations.by_process.lock().is_empty());
    }
}
