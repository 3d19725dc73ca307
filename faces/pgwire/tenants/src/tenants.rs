//! All tenants of a server, for whoever administrates them from outside of SQL.

use std::sync::Arc;

use savanna_journal::Lsn;
use savanna_tenants::{SqlError, activity::Counts};
use tokio::sync::oneshot;

use crate::{
    process::{ADMINISTRATION, Process},
    thread::Order,
};

/// The tenants of a server. Cheap to clone.
#[derive(Clone)]
pub struct Tenants {
    process: Arc<Process>,
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").finish_non_exhaustive()
    }
}

impl Tenants {
    pub(crate) const fn new(process: Arc<Process>) -> Self {
        Self { process }
    }

    /// All of them by name, with what goes on in them.
    #[must_use]
    pub fn list(&self) -> Vec<(String, Counts)> {
        self.process.list()
    }

    /// Makes one; the answer is durable.
    ///
    /// # Errors
    /// 42P04 if there is one, 42602 if it cannot be called so; those of the log.
    pub async fn create(&self, name: &str) -> Result<(), SqlError> {
        let lsn = self.process.create(name)?;
        self.durable(lsn).await
    }

    /// Removes one; the answer is durable.
    ///
    /// # Errors
    /// 3D000 if there is none, 55006 if somebody is there; those of the log.
    pub async fn remove(&self, name: &str) -> Result<(), SqlError> {
        let lsn = remove(&self.process, name).await?;
        self.durable(lsn).await
    }

    async fn durable(&self, lsn: Lsn) -> Result<(), SqlError> {
        Ok(self.process.journal.wait_durable(lsn).await?)
    }
}

/// Removes a tenant in which nobody is. It may be told of when the log is durable up to the answer.
pub(crate) async fn remove(process: &Process, name: &str) -> Result<Lsn, SqlError> {
    if name == ADMINISTRATION {
        return Err(SqlError::new("55006", "cannot drop the database of the administrators"));
    }
    let tenant = process.tenant(name)?;
    let (gone, answer) = oneshot::channel();
    process.tell(tenant, Order::Retire { tenant, gone });
    if !answer.await.unwrap_or(false) {
        let message = format!("database \"{name}\" is being accessed by other users");
        return Err(SqlError::new("55006", message));
    }
    process.owner.lock().remove(name)
}
