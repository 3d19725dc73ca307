//! All connections: by what their statements are ended from outside, and they themselves.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use parking_lot::Mutex;
use savanna_epoch::NodeId;
use savanna_identity::cancel_key;
pub use savanna_identity::cancel_key::node_of;
use savanna_tenants_sql::{
    backends::{Backend, Backends, Signal},
    doing::Doing,
    interrupt::{Interrupts, Reason},
};
use savanna_tenants_values::error::SqlError;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
};

use crate::{others::Others, process::Key, thread::Order};

/// Whether a connection is to end, or to leave with its database.
#[derive(Debug, Default)]
pub struct Termination {
    /// What it is to do, later ones stronger: [`STAY`], [`LEAVE`], [`END_AS_MOVED`], [`END`].
    asked: AtomicU8,
    notify: Notify,
}

/// Nothing was asked.
const STAY: u8 = 0;
/// Its database moves to another node, and it is to go along when nothing keeps it.
const LEAVE: u8 = 1;
/// Its database moves, and does not wait for it any longer.
const END_AS_MOVED: u8 = 2;
/// Somebody wants it to end.
const END: u8 = 3;

impl Termination {
    /// Whether it is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) >= END_AS_MOVED
    }

    /// Whether it is to end because its database moves.
    #[must_use]
    pub fn is_for_a_move(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == END_AS_MOVED
    }

    /// Waits until it is to end.
    pub async fn asked(&self) {
        while !self.is_asked() {
            self.notify.notified().await;
        }
    }

    /// Waits until it is to end, or to leave.
    pub(crate) async fn called(&self) {
        while self.asked.load(Ordering::Relaxed) == STAY {
            self.notify.notified().await;
        }
    }

    fn ask(&self, what: u8) {
        self.asked.fetch_max(what, Ordering::Relaxed);
        self.notify.notify_one();
    }

    /// It is to leave with its database, when nothing keeps it.
    pub(crate) fn leave(&self) {
        self.ask(LEAVE);
    }

    /// Its database stays.
    pub(crate) fn stay(&self) {
        // What is stronger stays, too.
        let _ = self.asked.compare_exchange(LEAVE, STAY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Waits until something is asked once more.
    pub(crate) async fn asked_again(&self) {
        self.notify.notified().await;
    }

    /// What the client is told.
    #[must_use]
    pub fn error(&self) -> SqlError {
        if self.asked.load(Ordering::Relaxed) == END_AS_MOVED {
            let message = "terminating connection because the database moves to another node";
            let hint = "Connect again. A transaction that was open is rolled back; temporary tables, cursors WITH HOLD and advisory locks are gone.";
            return SqlError::new("57P01", message).hint(hint);
        }
        SqlError::new("57P01", "terminating connection due to administrator command")
    }
}

/// What the numbers of a node's connections say of it. Several nodes may have the same.
#[must_use]
pub fn number_of(node: &NodeId) -> u16 {
    cancel_key::number_of(&node.0)
}

/// A connection, for others.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) termination: Arc<Termination>,
    pub(crate) doing: Arc<Doing>,
    /// The thread that serves it.
    pub(crate) thread: usize,
}

/// A key that nobody else has as long as this is kept.
#[derive(Debug)]
pub(crate) struct OwnKey {
    key: Key,
    connections: Arc<Connections>,
}

impl OwnKey {
    pub(crate) const fn get(&self) -> Key {
        self.key
    }
}

impl Drop for OwnKey {
    fn drop(&mut self) {
        self.connections.all.lock().remove(&self.key);
        self.connections.given.lock().remove(&self.key.0);
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Connections {
    /// The node's number.
    node: u16,
    all: Mutex<HashMap<Key, Connected>>,
    /// The numbers that connections have.
    given: Mutex<HashSet<i32>>,
    threads: Vec<mpsc::UnboundedSender<Order>>,
    /// The other nodes, if there may be any, and where they are asked.
    others: Option<(Arc<dyn Others>, Handle)>,
}

impl Connections {
    /// None yet, of a node and its threads.
    pub(crate) fn new(
        node: &NodeId,
        threads: Vec<mpsc::UnboundedSender<Order>>,
        others: Option<(Arc<dyn Others>, Handle)>,
    ) -> Arc<Self> {
        let node = number_of(node);
        Arc::new(Self { node, all: Mutex::default(), given: Mutex::default(), threads, others })
    }

    /// A key for a connection that nobody can guess and whose number no other one has, and where its random numbers begin.
    pub(crate) fn key(self: &Arc<Self>) -> io::Result<(OwnKey, u64)> {
        loop {
            let key = cancel_key::random(self.node)?;
            let mut seed = [0; 8];
            getrandom::fill(&mut seed).map_err(io::Error::other)?;
            if self.given.lock().insert(key.0) {
                let key = OwnKey { key, connections: Arc::clone(self) };
                return Ok((key, u64::from_be_bytes(seed)));
            }
        }
    }

    /// The key that a connection had at another node, unless its number was given to another one.
    pub(crate) fn keep(self: &Arc<Self>, key: Key) -> Option<OwnKey> {
        self.given.lock().insert(key.0).then(|| OwnKey { key, connections: Arc::clone(self) })
    }

    pub(crate) fn arrive(&self, key: Key, connected: Connected) {
        self.all.lock().insert(key, connected);
    }

    /// The connections on other nodes, and the nodes that did not say in time which they have.
    pub(crate) async fn elsewhere(&self) -> (Vec<Backend>, Vec<NodeId>) {
        let Some((others, runtime)) = &self.others else { return Default::default() };
        let others = Arc::clone(others);
        // The runtime stops with the server.
        runtime.spawn(async move { others.backends().await }).await.unwrap_or_default()
    }

    /// Tells a connection something that another node has asked for, if its number is still that of the database and the user.
    pub(crate) fn tell_for(&self, asked: &Backend, signal: Signal) -> bool {
        let is_asked =
            |known: &Backend| (known.pid, &known.database, &known.user) == (asked.pid, &asked.database, &asked.user);
        let is_here = self.list().iter().any(is_asked);
        if is_here {
            self.tell(asked.pid, signal);
        }
        is_here
    }

    /// Ends the statement of the connection that has the key.
    pub(crate) fn cancel(&self, key: Key) {
        if let Some(connected) = self.all.lock().get(&key) {
            connected.interrupts.interrupt(Reason::Cancelled);
        }
        self.stop_waiting(key);
    }

    /// A connection is to go along with its database, when nothing keeps it.
    pub(crate) fn call_away(&self, key: Key) {
        if let Some(connected) = self.all.lock().get(&key) {
            connected.termination.leave();
        }
    }

    /// The database of a connection stays.
    pub(crate) fn let_stay(&self, key: Key) {
        if let Some(connected) = self.all.lock().get(&key) {
            connected.termination.stay();
        }
    }

    /// Ends a connection that keeps its database from moving.
    pub(crate) fn end_as_moved(&self, key: Key) {
        if let Some(connected) = self.all.lock().get(&key) {
            connected.termination.ask(END_AS_MOVED);
        }
        self.cancel(key);
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
            node: None,
            noted: connected.doing.noted(),
        };
        self.all.lock().iter().map(backend).collect()
    }

    fn tell(&self, pid: i32, signal: Signal) {
        let keys: Vec<Key> = self.all.lock().keys().filter(|key| key.0 == pid).copied().collect();
        for key in keys {
            if signal == Signal::Terminate
                && let Some(connected) = self.all.lock().get(&key)
            {
                connected.termination.ask(END);
            }
            self.cancel(key);
        }
    }

    fn has_others(&self) -> bool {
        self.others.is_some()
    }

    fn tell_there(&self, backend: &Backend, signal: Signal) {
        if let Some((others, runtime)) = &self.others {
            let (others, backend) = (Arc::clone(others), backend.clone());
            runtime.spawn(async move { others.signal(&backend, signal).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_tenants_sql::doing::Noted;

    use super::*;

    #[test]
    fn a_key_says_which_node_its_connection_is_on_and_no_other_has_its_number() {
        let node = NodeId::new("n1");
        let connections = Connections::new(&node, Vec::new(), None);
        let keys: Vec<_> = (0..2_000).map(|_| connections.key().expect("random bytes").0).collect();
        assert!(keys.iter().all(|key| node_of(key.get()) == number_of(&node)));
        let pids: HashSet<i32> = keys.iter().map(|key| key.get().0).collect();
        assert_eq!(pids.len(), keys.len(), "of so many, two would be alike");
        drop(keys);
        assert!(connections.given.lock().is_empty());
    }

    #[test]
    fn what_another_node_asks_for_reaches_whom_it_has_seen_and_nobody_who_has_the_number_by_now() {
        let connections = Connections::new(&NodeId::new("n1"), Vec::new(), None);
        let termination = Arc::<Termination>::default();
        let (database, user) = ("shop".to_owned(), "ann".to_owned());
        let connected = Connected {
            database: database.clone(),
            user: user.clone(),
            interrupts: Arc::default(),
            termination: Arc::clone(&termination),
            doing: Arc::default(),
            thread: 0,
        };
        connections.arrive((7, 1), connected);
        let seen = Backend { pid: 7, database, user, active: false, node: None, noted: Noted::default() };
        for other in [
            Backend { pid: 8, ..seen.clone() },
            Backend { database: "bank".to_owned(), ..seen.clone() },
            Backend { user: "bob".to_owned(), ..seen.clone() },
        ] {
            assert!(!connections.tell_for(&other, Signal::Terminate) && !termination.is_asked(), "{other:?}");
        }
        assert!(!connections.has_others());
    }
}
