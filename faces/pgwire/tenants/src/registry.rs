//! Which tenants there are, and on which thread each lives.

use std::{collections::BTreeMap, sync::Arc};

use savanna_journal::Lsn;
use savanna_tenants::{
    SqlError,
    activity::{Activity, Counts},
    database::Database,
    error::state,
    owner::Owner,
    role::Acquaintance,
};
use tokio::sync::{mpsc, oneshot};

use crate::thread::Order;

/// The database that there always is. Its roles may come into every other one, and make and remove databases.
pub(crate) const ADMINISTRATION: &str = "postgres";

/// All tenants of the process.
pub(crate) struct Registry {
    owner: Owner,
    threads: Vec<mpsc::UnboundedSender<Order>>,
    places: BTreeMap<String, Place>,
    next: usize,
}

/// Where a tenant lives, and what goes on there.
struct Place {
    thread: usize,
    activity: Arc<Activity>,
}

/// The longest name, PostgreSQL's.
const NAME_BYTES_MAX: usize = 63;

impl Registry {
    /// Puts the tenants on threads; makes the one that there always is.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn new(
        owner: Owner,
        databases: Vec<(String, Database)>,
        threads: Vec<mpsc::UnboundedSender<Order>>,
    ) -> Result<Self, SqlError> {
        let mut registry = Self { owner, threads, places: BTreeMap::new(), next: 0 };
        for (name, database) in databases {
            registry.place(name, database);
        }
        if !registry.owner.has(ADMINISTRATION) {
            registry.create(ADMINISTRATION)?;
        }
        Ok(registry)
    }

    /// All tenants by name, with what goes on in them.
    pub(crate) fn list(&self) -> Vec<(String, Counts)> {
        self.places.iter().map(|(name, place)| (name.clone(), place.activity.counts())).collect()
    }

    /// Makes a tenant, on the thread that is next.
    pub(crate) fn create(&mut self, name: &str) -> Result<Lsn, SqlError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let message = format!("expected a name of 1 to {NAME_BYTES_MAX} bytes, came one of {}", name.len());
            return Err(SqlError::new("42602", message).hint("Control characters are no part of a name."));
        }
        let (database, lsn) = self.owner.create(name)?;
        self.place(name.to_owned(), database);
        Ok(lsn)
    }

    /// Asks a tenant's thread to let it go.
    pub(crate) fn retire(&self, name: &str) -> Result<oneshot::Receiver<bool>, SqlError> {
        if name == ADMINISTRATION {
            return Err(SqlError::new("55006", "cannot drop the database of the administrators"));
        }
        let (gone, answer) = oneshot::channel();
        self.tell(name, Order::Retire { name: name.to_owned(), gone })?;
        Ok(answer)
    }

    /// Removes a tenant that its thread has let go.
    pub(crate) fn remove(&mut self, name: &str) -> Result<Lsn, SqlError> {
        self.places.remove(name);
        self.owner.remove(name)
    }

    /// Asks a tenant what it knows of somebody.
    pub(crate) fn ask(
        &self,
        name: &str,
        user: &str,
    ) -> Result<oneshot::Receiver<Result<Acquaintance, SqlError>>, SqlError> {
        let (answer, known) = oneshot::channel();
        self.tell(name, Order::Ask { name: name.to_owned(), user: user.to_owned(), answer })?;
        Ok(known)
    }

    /// Tells the thread of a tenant something.
    pub(crate) fn tell(&self, name: &str, order: Order) -> Result<(), SqlError> {
        let Some(place) = self.places.get(name) else {
            let message = format!("database \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_CATALOG_NAME, message));
        };
        // A thread that has ended ends the server.
        drop(self.threads[place.thread].send(order));
        Ok(())
    }

    /// Tells all threads that somebody wants the statement of a connection to end.
    pub(crate) fn cancel(&self, key: (i32, i32)) {
        for thread in &self.threads {
            drop(thread.send(Order::Cancel(key)));
        }
    }

    fn place(&mut self, name: String, database: Database) {
        let thread = self.next % self.threads.len();
        self.next += 1;
        let activity = Arc::<Activity>::default();
        let order = Order::Adopt { name: name.clone(), database: Box::new(database), activity: Arc::clone(&activity) };
        drop(self.threads[thread].send(order));
        self.places.insert(name, Place { thread, activity });
    }
}
