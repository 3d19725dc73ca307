//! Cancel requests: they come on a connection of their own and name another by process id and secret key.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use pgwire::messages::cancel::CancelRequest;
use tokio::sync::watch;

/// All connections that can be cancelled.
#[derive(Debug, Default)]
pub(crate) struct Cancellations {
    by_process: Mutex<HashMap<i32, (i32, watch::Sender<bool>)>>,
}

impl Cancellations {
    /// Makes a connection reachable for cancel requests, by a key that nobody can guess, until the result is dropped.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub(crate) fn register(self: &Arc<Self>) -> io::Result<Cancellation> {
        let (cancel, _) = watch::channel(false);
        loop {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
            let [a, b, c, d, e, f, g, h] = bytes;
            let [process, secret] = [[a, b, c, d], [e, f, g, h]].map(i32::from_be_bytes);
            // A process's number is above 0.
            let process = (process & i32::MAX).max(1);
            let mut by_process = self.by_process.lock();
            if by_process.contains_key(&process) {
                continue;
            }
            by_process.insert(process, (secret, cancel.clone()));
            return Ok(Cancellation { all: Arc::clone(self), key: (process, secret), cancel });
        }
    }

    /// Ends the statement of the connection that a request names, if it has the key.
    pub(crate) fn cancel(&self, request: &CancelRequest) {
        if let Some((secret, cancel)) = self.by_process.lock().get(&request.pid)
            && request.secret_key.as_i32() == Some(*secret)
        {
            cancel.send_replace(true);
        }
    }
}

/// How one connection is cancelled.
#[derive(Debug)]
pub(crate) struct Cancellation {
    all: Arc<Cancellations>,
    /// What a request names it by: its process id and its secret.
    pub(crate) key: (i32, i32),
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
    use pgwire::messages::startup::SecretKey;

    use super::*;

    #[test]
    fn only_the_right_key_cancels() {
        let cancellations = Arc::new(Cancellations::default());
        let registered = cancellations.register().unwrap();
        let (process, secret) = registered.key;
        let cancel = |process, secret| cancellations.cancel(&CancelRequest::new(process, SecretKey::I32(secret)));
        cancel(process, secret ^ 1);
        cancel(process ^ 1, secret);
        assert_eq!(registered.asked().now_or_never(), None);
        cancel(process, secret);
        assert_eq!(registered.asked().now_or_never(), Some(()));
        registered.reset();
        assert_eq!(registered.asked().now_or_never(), None);
        drop(registered);
        assert!(cancellations.by_process.lock().is_empty());
    }
}
