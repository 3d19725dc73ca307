//! Which tenants there are, and on which thread each lives.

use std::collections::HashMap;

use savanna_journal::Lsn;
use savanna_tenants::{SqlError, database::Database, error::state, owner::Owner, role::Acquaintance};
use tokio::sync::{mpsc, oneshot};

use crate::thread::Order;

/// The database that there always is. Its roles may come into every other one, and make and remove databases.
pub(crate) const ADMINISTRATION: &str = "postgres";

/// All tenants of the process.
pub(crate) struct Registry {
    owner: Owner,
    threads: Vec<mpsc::UnboundedSender<Order>>,
    places: HashMap<String, usize>,
    next: usize,
}

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
        let mut registry = Self { owner, threads, places: HashMap::new(), next: 0 };
        for (name, database) in databases {
            registry.place(name, database);
        }
        if !registry.owner.has(ADMINISTRATION) {
            registry.create(ADMINISTRATION)?;
        }
        Ok(registry)
    }

    /// Makes a tenant, on the thread that is next.
    pub(crate) fn create(&mut self, name: &str) -> Result<Lsn, SqlError> {
        let (database, lsn) = self.owner.create(name)?;
        self.place(name.to_owned(), database);
        Ok(lsn)
    }

    /// Asks a tenant's thread to let it go.
    pub(crate) fn retire(&self, name: &str) -> Result<oneshot::Receiver<bool>, SqlError> {
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
        drop(self.threads[*place].send(order));
        Ok(())
    }

    /// Tells all threads that somebody wants the statement of a connection to end.
    pub(crate) fn cancel(&self, key: (i32, i32)) {
        for thread in &self.threads {
            drop(thread.send(Order::Cancel(key)));
        }
    }

    fn place(&mut self, name: String, database: Database) {
        let place = self.next % self.threads.len();
        self.next += 1;
        drop(self.threads[place].send(Order::Adopt { name: name.clone(), database: Box::new(database) }));
        self.places.insert(name, place);
    }
}
