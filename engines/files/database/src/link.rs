//! A connection that is made again when it has broken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, Statement};

use crate::DatabaseError;
use crate::place::{CONNECT, Way};

/// After an attempt that failed, so long none is made: who waited for it need not wait for one after the other.
const PAUSE: Duration = Duration::from_millis(200);
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
    way: Way,
    /// The server ends what takes longer.
    limit: Duration,
    /// What each connection knows.
    statements: &'static [&'static str],
    state: Mutex<State>,
}

/// What the last attempt to connect came to.
enum State {
    Nothing,
    Connected(Arc<Connected>),
    Failed(Instant),
}

impl Link {
    pub(crate) fn new(way: Way, limit: Duration, statements: &'static [&'static str]) -> Self {
        Self { way, limit, statements, state: Mutex::new(State::Nothing) }
    }

    /// The connection. However many wait for it, it is tried once.
    pub(crate) async fn get(&self) -> Result<Arc<Connected>, DatabaseError> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Connected(connected) if !connected.client.is_closed() => return Ok(Arc::clone(connected)),
            State::Failed(at) if at.elapsed() < PAUSE => return Err(DatabaseError::Away),
            _ => *state = State::Nothing,
        }
        let made = timeout(CONNECT, self.connect()).await;
        let made = made.unwrap_or(Err(DatabaseError::Slow { seconds: CONNECT.as_secs() })).map(Arc::new);
        *state =
            made.as_ref().map_or_else(|_| State::Failed(Instant::now()), |made| State::Connected(Arc::clone(made)));
        made
    }

    async fn connect(&self) -> Result<Connected, DatabaseError> {
        let (client, task) = self.way.connect().await?;
        // A plan is kept, and may be made while there are few rows: then all would be read for ever, for each statement. The one row of the
        // marker is read so all the same, at a cost for which PostgreSQL would compile each statement.
        let settings =
            format!("SET statement_timeout = {}; SET enable_seqscan = off; SET jit = off", self.limit.as_millis());
        client.batch_execute(&settings).await?;
        let mut statements = HashMap::new();
        for text in self.statements {
            statements.insert(*text, client.prepare(text).await?);
        }
        Ok(Connected { client, task, statements })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// One that takes connections and says nothing.
    async fn silent() -> (tokio::net::TcpListener, Way) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, Way::to(&Place::Address(format!("postgres://u@127.0.0.1:{port}/d"))).unwrap())
    }

    #[tokio::test]
    async fn however_many_wait_for_a_connection_it_is_tried_once() {
        let (_listener, way) = silent().await;
        let link = Arc::new(Link::new(way, CONNECT, &[]));
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
        let (_listener, way) = silent().await;
        let made = timeout(CONNECT * 4, way.connect()).await.expect("it ends");
        assert!(matches!(made, Err(DatabaseError::Slow { .. })));
    }
}
