//! A connection that is made again when it has broken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, Config, NoTls, Statement};

use crate::DatabaseError;

/// A database that takes longer to accept a connection is not there.
const CONNECT: Duration = Duration::from_secs(5);
/// After an attempt that failed, so long none is made: who waited for it need not wait for one after the other.
const PAUSE: Duration = Duration::from_millis(200);
/// What was sent is confirmed within this, or the connection is gone.
const SILENCE: Duration = Duration::from_secs(20);
/// Whether the server is there is asked after so long without a word, and again as often.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// So often.
const ASKED_MAX: u32 = 3;

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
    place: Mutex<Place>,
}

/// What the last attempt to connect came to.
enum Place {
    Nothing,
    Connected(Arc<Connected>),
    Failed(Instant),
}

impl Link {
    pub(crate) fn new(config: Config, limit: Duration, statements: &'static [&'static str]) -> Self {
        Self { config, limit, statements, place: Mutex::new(Place::Nothing) }
    }

    /// The connection. However many wait for it, it is tried once.
    pub(crate) async fn get(&self) -> Result<Arc<Connected>, DatabaseError> {
        let mut place = self.place.lock().await;
        match &*place {
            Place::Connected(connected) if !connected.client.is_closed() => return Ok(Arc::clone(connected)),
            Place::Failed(at) if at.elapsed() < PAUSE => return Err(DatabaseError::Away),
            _ => *place = Place::Nothing,
        }
        let made = timeout(CONNECT, self.connect()).await;
        let made = made.unwrap_or(Err(DatabaseError::Slow { seconds: CONNECT.as_secs() })).map(Arc::new);
        *place =
            made.as_ref().map_or_else(|_| Place::Failed(Instant::now()), |made| Place::Connected(Arc::clone(made)));
        made
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

/// How connections notice that nobody is there, also where a statement may take as long as it takes.
pub(crate) fn bound(config: &mut Config) {
    config.tcp_user_timeout(SILENCE).keepalives_idle(ASK_AFTER).keepalives_interval(ASK_AFTER);
    config.keepalives_retries(ASKED_MAX);
}

/// A connection of its own, and what ends it.
pub(crate) async fn connect(config: &Config) -> Result<(Client, AbortHandle), DatabaseError> {
    let made = timeout(CONNECT, config.connect(NoTls)).await;
    let (client, connection) = made.map_err(|_| DatabaseError::Slow { seconds: CONNECT.as_secs() })??;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the database of files ended");
        }
    });
    Ok((client, task.abort_handle()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that takes connections and says nothing.
    async fn silent() -> (tokio::net::TcpListener, Config) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new();
        config.host("127.0.0.1").port(listener.local_addr().unwrap().port()).user("u").dbname("d");
        bound(&mut config);
        (listener, config)
    }

    #[tokio::test]
    async fn however_many_wait_for_a_connection_it_is_tried_once() {
        let (_listener, config) = silent().await;
        let link = Arc::new(Link::new(config, CONNECT, &[]));
        let begun = Instant::now();
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let link = Arc::clone(&link);
                tokio::spawn(async move { link.get().await.map(drop).unwrap_err() })
            })
            .collect();
        for waits in waiting {
            assert!(matches!(waits.await.unwrap(), DatabaseError::Slow { .. } | DatabaseError::Away));
        }
        assert!(begun.elapsed() < CONNECT * 2, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_not_there() {
        let (_listener, config) = silent().await;
        let made = timeout(CONNECT * 4, connect(&config)).await.expect("it ends");
        assert!(matches!(made, Err(DatabaseError::Slow { .. })));
    }
}
