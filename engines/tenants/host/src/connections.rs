//! All connections: by what their statements are ended from outside, and they themselves.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use savanna_tenants_sql::{
    backends::{Backend, Backends, Signal},
    interrupt::{Interrupts, Reason},
};
use savanna_tenants_values::error::SqlError;
use tokio::sync::{Notify, mpsc};

use crate::{process::Key, thread::Order};

/// Whether a connection is to end.
#[derive(Debug, Default)]
pub struct Termination {
    asked: AtomicBool,
    notify: Notify,
}

impl Termination {
    /// Whether it is.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits until it is to end.
    pub async fn asked(&self) {
        while !self.is_asked() {
            self.notify.notified().await;
        }
    }

    /// What the client is told.
    #[must_use]
    pub fn error() -> SqlError {
        SqlError::new("57P01", "terminating connection due to administrator command")
    }
}

/// A key for a connection that nobody can guess, and where its random numbers begin.
pub(crate) fn random_key() -> Result<(Key, u64), getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let [a, b, c, d, e, f, g, h, seed @ ..] = bytes;
    let [pid, secret] = [[a, b, c, d], [e, f, g, h]].map(i32::from_be_bytes);
    // A process's number is above 0.
    Ok((((pid & i32::MAX).max(1), secret), u64::from_be_bytes(seed)))
}

/// A connection, for others.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) termination: Arc<Termination>,
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
                connected.termination.asked.store(true, Ordering::Relaxed);
                connected.termination.notify.notify_one();
            }
            self.cancel(key);
        }
    }
}
