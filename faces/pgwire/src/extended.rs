//! The extended protocol: parse, bind, describe, execute. Portals may be fetched in parts.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures::{Sink, SinkExt};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, send_execution_response};
use pgwire::api::results::{FieldInfo, Response, Tag};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Execute, PortalSuspended, Sync as PgSync, TARGET_TYPE_BYTE_PORTAL,
    TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::{EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use savanna_streams_model::handle::{CursorId, StreamReply, StreamRequest};

use crate::connection::{Connection, after, check_transaction, unexpected};
use crate::error;
use crate::rows::{fields, pump};
use crate::simple::send_started;

/// A statement that was parsed: its text and the columns it returns, if any.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sql: String,
    schema: Option<SchemaRef>,
}

/// Parses by asking the engine.
pub(crate) struct Parser(Arc<Connection>);

#[async_trait]
impl QueryParser for Parser {
    type Statement = Prepared;

    async fn parse_sql<C>(&self, _: &C, sql: &str, types: &[Option<Type>]) -> PgWireResult<Option<Prepared>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        if !types.is_empty() {
            return Err(error::error(
                "0A000",
                "parameters ($1, ..) are not supported; write the values in the statement",
            ));
        }
        let statements = match self.0.call(StreamRequest::Split { sql: sql.to_owned() }).await {
            Ok(StreamReply::Statements { statements }) => statements,
            Ok(other) => return Err(unexpected("Split", &other)),
            Err(failure) => return Err(error::from_engine(&failure, sql, 0)),
        };
        let [statement] = statements.as_slice() else {
            return match statements.len() {
                0 => Ok(None),
                n => Err(error::error("42601", format!("a prepared statement holds one command, but {n} came"))),
            };
        };
        let offset = sql.find(statement.as_str()).unwrap_or(0);
        let request = StreamRequest::Describe { session: self.0.session()?, sql: statement.clone() };
        match self.0.call(request).await {
            Ok(StreamReply::Described { schema }) => Ok(Some(Prepared { sql: statement.clone(), schema })),
            Ok(other) => Err(unexpected("Describe", &other)),
            Err(failure) => Err(error::from_engine(&failure, sql, offset)),
        }
    }

    fn get_parameter_types(&self, _: &Prepared) -> PgWireResult<Vec<Type>> {
        Ok(Vec::new())
    }

    fn get_result_schema(&self, prepared: &Prepared, format: Option<&Format>) -> PgWireResult<Vec<FieldInfo>> {
        let Some(schema) = &prepared.schema else { return Ok(Vec::new()) };
        Ok(fields(schema, format.unwrap_or(&Format::UnifiedText))?.as_ref().clone())
    }
}

/// The extended protocol of a connection.
pub(crate) struct Extended(pub(crate) Arc<Connection>);

#[async_trait]
impl ExtendedQueryHandler for Extended {
    type Statement = Prepared;
    type QueryParser = Parser;

    fn query_parser(&self) -> Arc<Parser> {
        Arc::new(Parser(Arc::clone(&self.0)))
    }

    async fn on_bind<C>(&self, client: &mut C, message: Bind) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let portal_name = message.portal_name.as_deref().unwrap_or(DEFAULT_NAME);
        let statement_name = message.statement_name.as_deref().unwrap_or(DEFAULT_NAME);
        self.0.close_portal(portal_name).await;
        if !message.parameters.is_empty() {
            let came = message.parameters.len();
            return Err(error::error("08P01", format!("the statement takes no parameters, but {came} came")));
        }
        match client.portal_store().get_statement(statement_name) {
            Some(Entry::Value(statement)) => {
                let portal = Portal::try_new(&message, statement)?;
                client.portal_store().put_portal(Arc::new(portal));
            }
            Some(Entry::Empty) => client.portal_store().put_empty_portal(portal_name),
            None => return Err(PgWireError::StatementNotFound(statement_name.to_owned())),
        }
        client.feed(PgWireBackendMessage::BindComplete(BindComplete::new())).await?;
        Ok(())
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let portal = match client.portal_store().get_portal(name) {
            Some(Entry::Value(portal)) => portal,
            Some(Entry::Empty) => {
                client.feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await?;
                return Ok(());
            }
            None => return Err(PgWireError::PortalNotFound(name.to_owned())),
        };
        client.set_state(PgWireConnectionState::QueryInProgress);
        let max_rows = usize::try_from(message.max_rows).unwrap_or(0);
        self.0.execute(client, name, &portal, max_rows).await?;
        client.set_state(PgWireConnectionState::ReadyForQuery);
        Ok(())
    }

    async fn on_sync<C>(&self, client: &mut C, _: PgSync) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let status = client.transaction_status();
        if status == TransactionStatus::Idle {
            self.0.close_portals().await;
            client.portal_store().rm_portal(DEFAULT_NAME);
        }
        client.send(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status))).await?;
        Ok(())
    }

    async fn on_close<C>(&self, client: &mut C, message: Close) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => client.portal_store().rm_statement(name),
            TARGET_TYPE_BYTE_PORTAL => {
                self.0.close_portal(name).await;
                client.portal_store().rm_portal(name);
            }
            other => return Err(PgWireError::InvalidTargetType(other)),
        }
        client.feed(PgWireBackendMessage::CloseComplete(CloseComplete::new())).await?;
        Ok(())
    }

    async fn do_query<C>(&self, _: &mut C, _: &Portal<Prepared>, _: usize) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(error::error("XX000", "portals are answered as they run, never gathered; please report this"))
    }

    async fn do_describe_statement<C>(
        &self,
        _: &mut C,
        statement: &StoredStatement<Prepared>,
    ) -> PgWireResult<pgwire::api::results::DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let columns = self.query_parser().get_result_schema(&statement.statement, None)?;
        Ok(pgwire::api::results::DescribeStatementResponse::new(Vec::new(), columns))
    }
}

impl Connection {
    /// Runs a portal or goes on with it, and sends at most `max_rows` rows (0 for all).
    async fn execute<C>(
        &self,
        client: &mut C,
        name: &str,
        portal: &Portal<Prepared>,
        max_rows: usize,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &portal.statement.statement;
        check_transaction(client.transaction_status(), &prepared.sql)?;
        let cursor = match self.portal(name) {
            Some(cursor) => cursor,
            None => match self.start(client, prepared).await? {
                Some(cursor) => {
                    self.open_portal(name, cursor);
                    cursor
                }
                None => return Ok(()),
            },
        };
        let schema = prepared.schema.as_ref().ok_or_else(|| {
            error::error("XX000", "a statement without columns returned rows; please report it with the statement")
        })?;
        let fields = fields(schema, &portal.result_column_format)?;
        let pumped = pump(self, client, cursor, &fields, max_rows).await?;
        if pumped.end {
            self.close_portal(name).await;
            send_execution_response(client, Tag::new("SELECT").with_rows(pumped.rows)).await
        } else {
            client.feed(PgWireBackendMessage::PortalSuspended(PortalSuspended::new())).await?;
            Ok(())
        }
    }

    /// Runs a statement. Sends the whole answer of one without rows; gives the cursor of one with.
    async fn start<C>(&self, client: &mut C, prepared: &Prepared) -> PgWireResult<Option<CursorId>>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let request = StreamRequest::Execute { session: self.session()?, sql: prepared.sql.clone() };
        match self.call(request).await {
            Ok(StreamReply::Rows { cursor, .. }) => Ok(Some(cursor)),
            Ok(StreamReply::Done { tag }) => {
                let status = after(client.transaction_status(), &tag);
                client.set_transaction_status(status);
                send_execution_response(client, Tag::new(&tag)).await?;
                Ok(None)
            }
            Ok(StreamReply::Started { query }) => {
                send_started(client, &query.to_string()).await?;
                send_execution_response(client, Tag::new("INSERT 0").with_rows(0)).await?;
                Ok(None)
            }
            Ok(other) => Err(unexpected("Execute", &other)),
            Err(failure) => Err(error::from_engine(&failure, &prepared.sql, 0)),
        }
    }
}
