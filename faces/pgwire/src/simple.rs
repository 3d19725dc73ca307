//! The simple protocol: a text of statements, each answered in turn.

use std::fmt::Debug;

use async_trait::async_trait;
use futures::{Sink, SinkExt};
use pgwire::api::portal::Format;
use pgwire::api::query::{SimpleQueryHandler, send_execution_response, send_ready_for_query};
use pgwire::api::results::{Response, Tag};
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::RowDescription;
use pgwire::messages::response::{EmptyQueryResponse, NoticeResponse};
use pgwire::messages::simplequery::Query;
use savanna_streams_api::handle::{StreamReply, StreamRequest};

use crate::connection::{Connection, after, check_transaction, unexpected};
use crate::error;
use crate::rows::{Opened, fields, send};

#[async_trait]
impl SimpleQueryHandler for Connection {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        let text = query.query;
        let statements = match self.ask(StreamRequest::Split { sql: text.clone() }).await {
            Ok(StreamReply::Statements { statements }) => statements,
            Ok(other) => return Err(unexpected("Split", &other)),
            Err(failure) => return Err(error::from_engine(&failure, &text, 0)),
        };
        if statements.is_empty() {
            client.feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await?;
        }
        let mut searched = 0;
        for statement in statements {
            let offset = text[searched..].find(&statement).map_or(searched, |found| searched + found);
            searched = (offset + statement.len()).min(text.len());
            self.run(client, &statement, &text, offset).await?;
        }
        let status = client.transaction_status();
        client.set_state(PgWireConnectionState::ReadyForQuery);
        send_ready_for_query(client, status).await
    }

    async fn do_query<C>(&self, _: &mut C, _: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(error::error("XX000", "statements are answered as they run, never gathered; please report this"))
    }
}

impl Connection {
    /// Runs one statement and sends its whole answer, but for the final `ReadyForQuery`.
    async fn run<C>(&self, client: &mut C, statement: &str, text: &str, offset: usize) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        check_transaction(client.transaction_status(), statement)?;
        let request =
            StreamRequest::Execute { session: self.session()?, sql: statement.to_owned(), parameters: vec![] };
        match self.ask(request).await {
            Ok(StreamReply::Done { tag }) => {
                let status = after(client.transaction_status(), &tag);
                client.set_transaction_status(status);
                send_execution_response(client, Tag::new(&tag)).await
            }
            Ok(StreamReply::Started { query }) => {
                send_started(client, &query.to_string()).await?;
                send_execution_response(client, Tag::new("INSERT 0").with_rows(0)).await
            }
            Ok(StreamReply::Rows { schema, cursor, purpose, .. }) => {
                let opened = Opened { cursor, schema, purpose };
                let fields = fields(&opened.schema, &Format::UnifiedText)?;
                if opened.gives_rows() {
                    let description = RowDescription::new(fields.iter().map(Into::into).collect());
                    client.feed(PgWireBackendMessage::RowDescription(description)).await?;
                }
                let pumped = send(self, client, &opened, &fields, 0).await?;
                send_execution_response(client, opened.tag(pumped.rows)).await
            }
            Ok(other) => Err(unexpected("Execute", &other)),
            Err(failure) => Err(error::from_engine(&failure, text, offset)),
        }
    }
}

/// Tells that an `INSERT INTO` now runs on its own.
pub(crate) async fn send_started<C>(client: &mut C, query: &str) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let message = format!("query {query} is running; SHOW QUERIES shows its progress, STOP QUERY '{query}' ends it");
    let notice = ErrorInfo::new("NOTICE".to_owned(), "00000".to_owned(), message);
    client.feed(PgWireBackendMessage::NoticeResponse(NoticeResponse::from(notice))).await?;
    Ok(())
}
