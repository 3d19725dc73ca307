//! The engine that a command talks to, and how it is asked.

use std::sync::Arc;
use std::time::Duration;

use savanna_node::streams::LambdaOptions;
use savanna_node::{Config, StreamsService, streams};
use savanna_streams_api::handle::{
    CursorId, HandleError, QueryStatus, Rows, SessionId, SharedStreamHandle, StreamReply, StreamRequest,
};
use savanna_streams_api::ids::QueryId;

use crate::client::Client;
use crate::error::CliError;
use crate::remote::RemoteHandle;

/// A session with an engine: one in this process, which ends with it, or one on a running node.
#[derive(Debug)]
pub(crate) struct Engine {
    handle: SharedStreamHandle,
    session: SessionId,
    embedded: Option<StreamsService>,
}

/// What a statement led to.
#[derive(Debug)]
pub(crate) enum Executed {
    Done(String),
    Rows { rows: Rows, cursor: CursorId, query: Option<QueryId> },
    Started(QueryId),
}

impl Engine {
    /// An engine in this process.
    pub(crate) async fn embedded(config: &Config) -> Result<Self, CliError> {
        Self::of(streams::open(config.node()).map_err(HandleError::from)?).await
    }

    /// An engine in this process that runs the stages of queries as functions.
    pub(crate) async fn on_functions(config: &Config, functions: LambdaOptions) -> Result<Self, CliError> {
        Self::of(streams::open_on_functions(config.node(), functions).map_err(HandleError::from)?).await
    }

    async fn of(service: StreamsService) -> Result<Self, CliError> {
        let handle = Arc::clone(&service.handle);
        let session = open_session(&handle).await?;
        Ok(Self { handle, session, embedded: Some(service) })
    }

    /// The engine of a running node.
    pub(crate) async fn remote(client: Client) -> Result<Self, CliError> {
        let url = client.url().to_owned();
        let handle: SharedStreamHandle = Arc::new(RemoteHandle(client));
        match open_session(&handle).await {
            Ok(session) => Ok(Self { handle, session, embedded: None }),
            Err(HandleError::Unavailable(reason)) => Err(CliError::NoNode { url, reason }),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether queries end with this process.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Sets a setting of the session.
    pub(crate) async fn set(&self, name: &str, value: &str) -> Result<(), HandleError> {
        self.execute(&format!("SET '{name}' = '{}'", value.replace('\'', "''"))).await.map(drop)
    }

    pub(crate) async fn split(&self, sql: &str) -> Result<Vec<String>, HandleError> {
        match self.handle.call(StreamRequest::Split { sql: sql.to_owned() }).await? {
            StreamReply::Statements { statements } => Ok(statements),
            _ => Err(unexpected("Split")),
        }
    }

    pub(crate) async fn execute(&self, sql: &str) -> Result<Executed, HandleError> {
        let request = StreamRequest::Execute { session: self.session, sql: sql.to_owned(), parameters: vec![] };
        match self.handle.call(request).await? {
            StreamReply::Done { tag } => Ok(Executed::Done(tag)),
            StreamReply::Started { query } => Ok(Executed::Started(query)),
            StreamReply::Rows { schema, cursor, query, .. } => {
                Ok(Executed::Rows { rows: Rows::none(schema), cursor, query })
            }
            _ => Err(unexpected("Execute")),
        }
    }

    /// The next rows, and whether they are the last.
    pub(crate) async fn fetch(&self, cursor: CursorId, wait: Duration) -> Result<(Rows, bool), HandleError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let fetch = StreamRequest::Fetch { session: self.session, cursor, max_rows: 8_192, wait_ms };
        match self.handle.call(fetch).await? {
            StreamReply::Fetched { rows, end } => Ok((rows, end)),
            _ => Err(unexpected("Fetch")),
        }
    }

    pub(crate) async fn close_cursor(&self, cursor: CursorId) -> Result<(), HandleError> {
        self.handle.call(StreamRequest::CloseCursor { session: self.session, cursor }).await.map(drop)
    }

    pub(crate) async fn cancel(&self, query: &QueryId) -> Result<(), HandleError> {
        self.handle.call(StreamRequest::CancelQuery { query: query.clone() }).await.map(drop)
    }

    pub(crate) async fn status(&self, query: &QueryId) -> Result<Option<QueryStatus>, HandleError> {
        match self.handle.call(StreamRequest::ListQueries).await? {
            StreamReply::Queries { queries } => Ok(queries.into_iter().find(|status| status.query == *query)),
            _ => Err(unexpected("ListQueries")),
        }
    }

    /// A query's status once it does not run any more; it may take a moment after its last row.
    pub(crate) async fn final_status(&self, query: &QueryId) -> Result<Option<QueryStatus>, HandleError> {
        for _ in 0..100 {
            match self.status(query).await? {
                Some(status) if !status.state.is_over() => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                status => return Ok(status),
            }
        }
        self.status(query).await
    }

    /// All rows of a short result, such as that of `SHOW TABLES`.
    pub(crate) async fn rows(&self, sql: &str) -> Result<Rows, HandleError> {
        let Executed::Rows { mut rows, cursor, .. } = self.execute(sql).await? else {
            return Err(unexpected("Execute"));
        };
        loop {
            let (more, end) = self.fetch(cursor, Duration::from_secs(1)).await?;
            rows.batches.extend(more.batches);
            if end {
                return Ok(rows);
            }
        }
    }

    /// Ends the session; with an engine of this process, its queries too.
    pub(crate) async fn close(self) {
        let closed = self.handle.call(StreamRequest::CloseSession { session: self.session }).await;
        if let Err(error) = closed {
            tracing::debug!(%error, "the session was not closed");
        }
        let Some(service) = self.embedded else { return };
        (service.stop)().await;
        // The engine's threads are joined where they may be waited for.
        let (engine, handle) = (service.handle, self.handle);
        let dropped = tokio::task::spawn_blocking(move || drop((engine, handle))).await;
        if let Err(error) = dropped {
            tracing::warn!(%error, "the engine did not stop cleanly");
        }
    }
}

async fn open_session(handle: &SharedStreamHandle) -> Result<SessionId, HandleError> {
    let user = std::env::var("USER").unwrap_or_else(|_| "cli".to_owned());
    match handle.call(StreamRequest::OpenSession { user }).await? {
        StreamReply::Session { session } => Ok(session),
        _ => Err(unexpected("OpenSession")),
    }
}

fn unexpected(request: &str) -> HandleError {
    HandleError::Unavailable(format!("its reply does not fit {request}; do both sides run the same version?"))
}
