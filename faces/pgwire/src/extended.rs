//! The extended protocol: parse, bind, describe, execute. Portals may be fetched in parts.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_pg::datatypes::into_pg_type;
use arrow_schema::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use futures::{Sink, SinkExt};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, send_describe_response, send_execution_response};
use pgwire::api::results::{DescribePortalResponse, FieldInfo, Response, Tag};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, PortalSuspended, Sync as PgSync,
    TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::{EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use savanna_streams_api::handle::{StreamReply, StreamRequest};

use crate::connection::{Connection, after, check_transaction, unexpected};
use crate::parameters::Declared;
use crate::rows::{Opened, fields, send};
use crate::simple::send_started;
use crate::{error, parameters};

/// A statement that was parsed: its text, its parameters, and the columns it returns, if any.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sql: String,
    schema: Option<SchemaRef>,
    parameters: Vec<Declared>,
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
        let statements = match self.0.ask(StreamRequest::Split { sql: sql.to_owned() }).await {
            Ok(StreamReply::Statements { statements }) => statements,
            Ok(other) => return Err(unexpected("Split", &other)),
            Err(failure) => return Err(error::from_engine(&failure, sql, 0)),
        };
        let [statement] = statements.as_slice() else {
            return match statements.len() {
                0 => Ok(None),
                n => Err(error::error("42601", format!("a prepared statement has one command, but got {n}"))),
            };
        };
        let offset = sql.find(statement.as_str()).unwrap_or(0);
        let declared = types.iter().enumerate().map(|(at, known)| parameters::data_type(at + 1, known.as_ref()));
        let declared = declared.collect::<PgWireResult<Vec<_>>>()?;
        let request =
            StreamRequest::Describe { session: self.0.session()?, sql: statement.clone(), parameters: declared };
        match self.0.ask(request).await {
            Ok(StreamReply::Described { schema, parameters }) => {
                let parameter = |(at, data_type): (usize, DataType)| {
                    let known = types.get(at).cloned().flatten().filter(|known| *known != Type::UNKNOWN);
                    let pg_type = known.map_or_else(|| into_pg_type(&data_type), Ok)?;
                    Ok(Declared { data_type, pg_type })
                };
                let parameters = parameters.into_iter().enumerate().map(parameter).collect::<PgWireResult<_>>()?;
                Ok(Some(Prepared { sql: statement.clone(), schema, parameters }))
            }
            Ok(other) => Err(unexpected("Describe", &other)),
            Err(failure) => Err(error::from_engine(&failure, sql, offset)),
        }
    }

    fn get_parameter_types(&self, prepared: &Prepared) -> PgWireResult<Vec<Type>> {
        Ok(prepared.parameters.iter().map(|parameter| parameter.pg_type.clone()).collect())
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
        match client.portal_store().get_statement(statement_name) {
            Some(Entry::Value(statement)) => {
                parameters::check_formats(&message)?;
                let portal = Portal::try_new(&message, statement)?;
                parameters::values(&portal.statement.statement.parameters, &portal)?;
                client.portal_store().put_portal(Arc::new(portal));
            }
            Some(Entry::Empty) if !message.parameters.is_empty() => {
                return Err(parameters::wrong_number(0, message.parameters.len()));
            }
            Some(Entry::Empty) => client.portal_store().put_empty_portal(portal_name),
            None => return Err(PgWireError::StatementNotFound(statement_name.to_owned())),
        }
        client.feed(PgWireBackendMessage::BindComplete(BindComplete::new())).await?;
        Ok(())
    }

    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // A cursor that SQL has declared is a portal too.
        if let Some(name) = message.name.as_deref().filter(|_| message.target_type == TARGET_TYPE_BYTE_PORTAL)
            && client.portal_store().get_portal(name).is_none()
            && let Some(schema) = self.0.cursor_columns(name).await?
        {
            let columns = fields(&schema, &Format::UnifiedText)?.as_ref().clone();
            return send_describe_response(client, &DescribePortalResponse::new(columns)).await;
        }
        self._on_describe(client, message).await
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
        let parser = self.query_parser();
        let columns = parser.get_result_schema(&statement.statement, None)?;
        let parameters = parser.get_parameter_types(&statement.statement)?;
        Ok(pgwire::api::results::DescribeStatementResponse::new(parameters, columns))
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
        let opened = match self.portal(name) {
            Some(opened) => opened,
            None => match self.start(client, portal).await? {
                Some(opened) => {
                    self.open_portal(name, opened.clone());
                    opened
                }
                None => return Ok(()),
            },
        };
        let format = if opened.gives_rows() { &portal.result_column_format } else { &Format::UnifiedText };
        let fields = fields(&opened.schema, format)?;
        if let Some(described) = prepared.schema.as_ref().filter(|_| opened.gives_rows()) {
            check_types(described, &opened.schema)?;
        }
        let pumped = send(self, client, &opened, &fields, max_rows).await?;
        if pumped.end {
            self.close_portal(name).await;
            send_execution_response(client, opened.tag(pumped.rows)).await
        } else {
            client.feed(PgWireBackendMessage::PortalSuspended(PortalSuspended::new())).await?;
            Ok(())
        }
    }

    /// Runs a statement. Sends the whole answer of one without rows; gives the result of one with.
    async fn start<C>(&self, client: &mut C, portal: &Portal<Prepared>) -> PgWireResult<Option<Opened>>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &portal.statement.statement;
        let (session, parameters) = (self.session()?, parameters::values(&prepared.parameters, portal)?);
        let request = StreamRequest::Execute { session, sql: prepared.sql.clone(), parameters };
        match self.ask(request).await {
            Ok(StreamReply::Rows { schema, cursor, purpose, .. }) => Ok(Some(Opened { cursor, schema, purpose })),
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

/// Rows are as their description said: a cursor or a table may have been made anew since.
fn check_types(described: &Schema, came: &Schema) -> PgWireResult<()> {
    let types = |schema: &Schema| -> PgWireResult<Vec<Type>> {
        Ok(fields(schema, &Format::UnifiedText)?.iter().map(|field| field.datatype().clone()).collect())
    };
    if types(described)? == types(came)? {
        return Ok(());
    }
    Err(error::error("0A000", "the columns of the prepared statement have changed; prepare it again"))
}
