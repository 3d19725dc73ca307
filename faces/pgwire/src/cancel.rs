//! Cancel requests: they come on a connection of their own and name another by process id and secret key.

use std::collections::HashMap;

use parking_lot::Mutex;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::SecretKey;
use tokio::sync::watch;

/// All connections that can be cancelled.
#[derive(Debug, Default)]
pub(crate) struct Cancellations {
    by_process: Mutex<HashMap<i32, (SecretKey, watch::Sender<bool>)>>,
}

impl Cancellations {
    /// Makes a connection reachable for cancel requests.
    pub(crate) fn register(&self, process: i32, key: SecretKey, cancel: watch::Sender<bool>) {
        self.by_process.lock().insert(process, (key, cancel));
    }

    pub(crate) fn forget(&self, process: i32) {
        self.by_process.lock().remove(&process);
    }

    /// Ends the statement of the connection that a request names, if it has the key.
    pub(crate) fn cancel(&self, request: &CancelRequest) {
        if let Some((key, cancel)) = self.by_process.lock().get(&request.pid)
            && *key == request.secret_key
        {
            cancel.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_cancels() {
        let cancellations = Cancellations::default();
        let (cancel, cancelled) = watch::channel(false);
        cancellations.register(7, SecretKey::I32(0x0102_0304), cancel);
        cancellations.cancel(&CancelRequest::new(7, SecretKey::I32(5)));
        cancellations.cancel(&CancelRequest::new(8, SecretKey::I32(0x0102_0304)));
        assert!(!*cancelled.borrow());
        cancellations.cancel(&CancelRequest::new(7, SecretKey::I32(0x0102_0304)));
        assert!(*cancelled.borrow());
    }
}
