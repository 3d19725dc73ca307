//! Cancel requests: they come on a connection of their own and name another by process id and secret key.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pgwire::api::cancel::CancelHandler;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::SecretKey;
use tokio::sync::watch;

/// All connections that can be cancelled.
#[derive(Default)]
pub(crate) struct Cancellations {
    by_process: Mutex<HashMap<i32, (SecretKey, watch::Sender<u64>)>>,
}

impl Cancellations {
    /// Makes a connection reachable for cancel requests.
    pub(crate) fn register(&self, process: i32, key: SecretKey, cancel: watch::Sender<u64>) {
        self.by_process.lock().insert(process, (key, cancel));
    }

    pub(crate) fn forget(&self, process: i32) {
        self.by_process.lock().remove(&process);
    }
}

/// Receives the requests.
pub(crate) struct Canceller(pub(crate) Arc<Cancellations>);

#[async_trait]
impl CancelHandler for Canceller {
    async fn on_cancel_request(&self, request: CancelRequest) {
        // The request's connection does not know the protocol version, so a short key may come as bytes.
        if let Some((key, cancel)) = self.0.by_process.lock().get(&request.pid)
            && key.to_bytes() == request.secret_key.to_bytes()
        {
            cancel.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_key_cancels() {
        let cancellations = Arc::new(Cancellations::default());
        let (cancel, mut cancelled) = watch::channel(0);
        cancellations.register(7, SecretKey::I32(0x0102_0304), cancel);
        let canceller = Canceller(cancellations);
        canceller.on_cancel_request(CancelRequest::new(7, SecretKey::I32(5))).await;
        canceller.on_cancel_request(CancelRequest::new(8, SecretKey::I32(0x0102_0304))).await;
        assert!(!cancelled.has_changed().unwrap());
        canceller.on_cancel_request(CancelRequest::new(7, SecretKey::Bytes(vec![1, 2, 3, 4].into()))).await;
        assert!(cancelled.changed().await.is_ok());
    }
}
