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
        if let Some((key, cancel)) = self.0.by_process.lock().get(&request.pid)
            && *key == request.secret_key
        {
            cancel.send_modify(|count| *count += 1);
        }
    }
}
