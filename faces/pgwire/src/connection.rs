//! What the face keeps of a client: the engine's session, open portals, and the way to cancel.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures::Sink;
use parking_lot::Mutex;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::{ClientInfo, METADATA_DATABASE, METADATA_USER};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use savanna_streams_api::StreamError;
use savanna_streams_api::handle::{CursorId, HandleError, SessionId, SharedStreamHandle, StreamReply, StreamRequest};
use tokio::sync::watch;

use crate::DATABASE;
use crate::cancel::Cancellations;
use crate::error;
use crate::rows::Opened;

/// One client.
pub(crate) struct Connection {
    engine: SharedStreamHandle,
    cancellations: Arc<Cancellations>,
    /// Whether what the client asks for now is cancelled.
    cancel: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<SessionId>,
    process: Option<i32>,
    /// Results of portals that have begun to return rows, by the portal's name.
    portals: HashMap<String, Opened>,
}

impl Connection {
    pub(crate) fn new(engine: SharedStreamHandle, cancellations: Arc<Cancellations>) -> Arc<Self> {
        let (cancel, _) = watch::channel(false);
        Arc::new(Self { engine, cancellations, cancel, state: Mutex::default() })
    }

    /// Asks the engine.
    pub(crate) async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        self.engine.call(request).await
    }

    /// The client, which was told that it may, asks for something. What was cancelled until now was before that.
    pub(crate) fn begin_turn(&self) {
        self.cancel.send_replace(false);
    }

    /// Asks the engine for what may take long. A cancel request that has come since the turn began, or comes, ends the wait.
    pub(crate) async fn ask(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let mut cancel = self.cancel.subscribe();
        tokio::select! {
            biased;
            _ = cancel.wait_for(|cancelled| *cancelled) => Err(StreamError::Cancelled.into()),
            reply = self.call(request) => reply,
        }
    }

    /// The engine's session for this client.
    pub(crate) fn session(&self) -> PgWireResult<SessionId> {
        self.state.lock().session.ok_or_else(|| error::fatal("08P01", "a query came before the connection was set up"))
    }

    pub(crate) fn portal(&self, name: &str) -> Option<Opened> {
        self.state.lock().portals.get(name).cloned()
    }

    pub(crate) fn open_portal(&self, name: &str, opened: Opened) {
        self.state.lock().portals.insert(name.to_owned(), opened);
    }

    /// The columns of a cursor that SQL has declared, if there is one of the name.
    pub(crate) async fn cursor_columns(&self, name: &str) -> PgWireResult<Option<SchemaRef>> {
        let sql = format!("FETCH FROM \"{}\"", name.replace('"', "\"\""));
        let request = StreamRequest::Describe { session: self.session()?, sql, parameters: vec![] };
        match self.call(request).await {
            Ok(StreamReply::Described { schema, .. }) => Ok(schema),
            _ => Ok(None),
        }
    }

    /// Closes the rows of a portal, if it has begun to return any.
    pub(crate) async fn close_portal(&self, name: &str) {
        let opened = self.state.lock().portals.remove(name);
        if let Some(opened) = opened {
            self.close_cursor(opened.cursor).await;
        }
    }

    /// Closes all portals: the transaction they belong to has ended.
    pub(crate) async fn close_portals(&self) {
        let cursors: Vec<CursorId> = self.state.lock().portals.drain().map(|(_, opened)| opened.cursor).collect();
        for cursor in cursors {
            self.close_cursor(cursor).await;
        }
    }

    pub(crate) async fn close_cursor(&self, cursor: CursorId) {
        let Ok(session) = self.session() else { return };
        if let Err(error) = self.call(StreamRequest::CloseCursor { session, cursor }).await {
            tracing::debug!(%error, "a result could not be closed");
        }
    }

    /// The client is gone: its session ends, and with it the queries that fed it.
    pub(crate) async fn close(&self) {
        let State { session, process, .. } = std::mem::take(&mut *self.state.lock());
        if let Some(process) = process {
            self.cancellations.forget(process);
        }
        if let Some(session) = session
            && let Err(error) = self.call(StreamRequest::CloseSession { session }).await
        {
            tracing::debug!(%error, "a session could not be closed");
        }
    }
}

/// Refuses a statement in a transaction that has failed, as clients expect.
pub(crate) fn check_transaction(status: TransactionStatus, sql: &str) -> PgWireResult<()> {
    let word = sql.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_ascii_uppercase();
    if status == TransactionStatus::Error && !["ROLLBACK", "COMMIT", "ABORT", "END"].contains(&word.as_str()) {
        return Err(error::error(
            "25P02",
            "the transaction has failed and ignores statements until its end; send ROLLBACK",
        ));
    }
    Ok(())
}

/// The transaction's status after a statement with this command tag.
pub(crate) fn after(status: TransactionStatus, tag: &str) -> TransactionStatus {
    match tag {
        "BEGIN" => TransactionStatus::Transaction,
        "COMMIT" | "ROLLBACK" => TransactionStatus::Idle,
        _ => status,
    }
}

/// Opens a session for who has come in by the door.
#[async_trait]
impl NoopStartupHandler for Connection {
    async fn post_startup<C>(&self, client: &mut C, _: PgWireFrontendMessage) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let user = client.metadata().get(METADATA_USER).cloned().unwrap_or_default();
        let database = client.metadata().get(METADATA_DATABASE).unwrap_or(&user);
        if database != DATABASE {
            let message = format!("database \"{database}\" does not exist; streams are in database {DATABASE}");
            return Err(error::fatal("3D000", message));
        }
        let session = match self.call(StreamRequest::OpenSession { user }).await {
            Ok(StreamReply::Session { session }) => session,
            Ok(other) => return Err(unexpected("OpenSession", &other)),
            Err(failure) => return Err(error::fatal("53300", failure.to_string())),
        };
        let (process, key) = client.pid_and_secret_key();
        self.cancellations.register(process, key, self.cancel.clone());
        let mut state = self.state.lock();
        state.session = Some(session);
        state.process = Some(process);
        Ok(())
    }
}

/// The engine broke its protocol.
pub(crate) fn unexpected(request: &str, reply: &StreamReply) -> PgWireError {
    error::error("XX000", format!("the engine answered {request} with {reply:?}; please report this"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_transaction_takes_only_its_end() {
        assert!(check_transaction(TransactionStatus::Error, "SELECT 1").is_err());
        assert!(check_transaction(TransactionStatus::Error, "rollback;").is_ok());
        assert!(check_transaction(TransactionStatus::Idle, "SELECT 1").is_ok());
    }
}
