//! A connection that is made again when it has broken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, Config, NoTls, Statement};

use crate::DatabaseError;

/// A database that takes longer to accept a connection is not there.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection, and the statements that it knows.
pub(crate) struct Connected {
    pub(crate) client: Client,
    task: AbortHandle,
    statements: HashMap<&'static str, Statement>,
}

impl Connected {
    /// Ends the connection at once: what is under way on it may never end.
    pub(crate) fn end(&self) {
        self.task.abort();
    }

    pub(crate) fn statement(&self, text: &'static str) -> Result<&Statement, DatabaseError> {
        self.statements.get(text).ok_or(DatabaseError::Unprepared)
    }
}

pub(crate) struct Link {
    config: Config,
    /// The server ends what takes longer.
    limit: Duration,
    /// What each connection knows.
    statements: &'static [&'static str],
    connected: Mutex<Option<Arc<Connected>>>,
}

impl Link {
    pub(crate) fn new(config: Config, limit: Duration, statements: &'static [&'static str]) -> Self {
        Self { config, limit, statements, connected: Mutex::new(None) }
    }

    /// The connection.
    pub(crate) async fn get(&self) -> Result<Arc<Connected>, DatabaseError> {
        let mut place = self.connected.lock().await;
        if let Some(connected) = place.as_ref().filter(|connected| !connected.client.is_closed()) {
            return Ok(Arc::clone(connected));
        }
        *place = None;
        let made = tokio::time::timeout(CONNECT, self.connect()).await;
        let connected = Arc::new(made.map_err(|_| DatabaseError::Slow { seconds: CONNECT.as_secs() })??);
        *place = Some(Arc::clone(&connected));
        Ok(connected)
    }

    async fn connect(&self) -> Result<Connected, DatabaseError> {
        let (client, task) = connect(&self.config).await?;
        client.batch_execute(&format!("SET statement_timeout = {}", self.limit.as_millis())).await?;
        let mut statements = HashMap::new();
        for text in self.statements {
            statements.insert(*text, client.prepare(text).await?);
        }
        Ok(Connected { client, task, statements })
    }
}

/// A connection of its own, and what ends it.
pub(crate) async fn connect(config: &Config) -> Result<(Client, AbortHandle), DatabaseError> {
    let (client, connection) = config.connect(NoTls).await?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the database of files ended");
        }
    });
    Ok((client, task.abort_handle()))
}
