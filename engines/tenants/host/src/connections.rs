//! All connections: by what their statements are ended from outside, and they themselves.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use savanna_tenants::{
    SqlError,
    backends::{Backend, Backends, Signal},
    interrupt::{Interrupts, Reason},
};
use tokio::sync::{Notify, mpsc};

use crate::{process::Key, thread::Order};

/// Whether a connection is to end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    asked: AtomicBool,
    notify: Notify,
}

impl Ending {
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits until it is to end.
    pub(crate) async fn asked(&self) {
        while !self.is_asked() {
            self.notify.notified().await;
        }
    }

    /// What the client is told.
    pub(crate) fn error() -> SqlError {
        SqlError::new("57P01", "terminating connection due to administrator command")
    }
}

/// A connection, for others.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) ending: Arc<Ending>,
    /// The thread that serves it.
    pub(crate) thread: usize,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Connections {
    all: Mutex<HashMap<Key, Connected>>,
    threads: Vec<mpsc::UnboundedSender<Order>>,
}

impl Connections {
    pub(crate) fn new(threads: Vec<mpsc::UnboundedSender<Order>>) -> Arc<Self> {
        Arc::new(Self { all: Mutex::default(), threads })
    }

    pub(crate) fn arrive(&self, key: Key, connected: Connected) {
        self.all.lock().insert(key, connected);
    }

    /// A connection is over.
    pub(crate) fn leave(&self, key: Key) {
        self.all.lock().remove(&key);
    }

    /// Ends the statement of the connection that has the key.
    pub(crate) fn cancel(&self, key: Key) {
        if let Some(connected) = self.all.lock().get(&key) {
            connected.interrupts.interrupt(Reason::Cancelled);
        }
        self.stop_waiting(key);
    }

    /// Ends the wait of a connection's statement, if that was interrupted while it waited.
    pub(crate) fn stop_waiting(&self, key: Key) {
        if let Some(connected) = self.all.lock().get(&key) {
            // A thread that has ended has nobody waiting.
            drop(self.threads[connected.thread].send(Order::StopWaiting(key)));
        }
    }
}

impl Backends for Connections {
    fn list(&self) -> Vec<Backend> {
        let backend = |(key, connected): (&Key, &Connected)| Backend {
            pid: key.0,
            database: connected.database.clone(),
            user: connected.user.clone(),
            active: connected.interrupts.is_running(),
        };
        self.all.lock().iter().map(backend).collect()
    }

    fn tell(&self, pid: i32, signal: Signal) {
        let keys: Vec<Key> = self.all.lock().keys().filter(|key| key.0 == pid).copied().collect();
        for key in keys {
            if signal == Signal::Terminate
                && let Some(connected) = self.all.lock().get(&key)
            {
                connected.ending.asked.store(true, Ordering::Relaxed);
                connected.ending.notify.notify_one();
            }
            self.cancel(key);
        }
    }
}
