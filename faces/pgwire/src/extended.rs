//! The extended protocol: parse, bind, describe, execute. Portals may be fetched in parts.

use std::sync::Arc;

use arrow_pg::datatypes::into_pg_type;
use arrow_schema::{DataType, Schema, SchemaRef};
use pgwire::api::Type;
use pgwire::messages::extendedquery::{
    Bind, Close, Describe, Parse, TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use savanna_pgwire_connection::Report;
use savanna_streams_api::handle::{Parameter, StreamReply, StreamRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Client;
use crate::error::{Outcome, from_engine, unexpected, unwritable};
use crate::parameters::{self, Declared};
use crate::rows::{Opened, fields};

/// A statement that was parsed: its text, its parameters, and the columns it returns, if any.
#[derive(Debug)]
pub(crate) struct Prepared {
    sql: String,
    schema: Option<SchemaRef>,
    parameters: Vec<Declared>,
}

/// A statement with values for its parameters.
#[derive(Debug)]
pub(crate) struct Portal {
    /// None if it is empty.
    statement: Option<Arc<Prepared>>,
    values: Vec<Parameter>,
    /// The formats of its rows.
    formats: Vec<i16>,
    /// Its result, once it has begun to return rows.
    opened: Option<Opened>,
    /// What it is completed with again, once it has returned all of them.
    finished: Option<String>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Client<S> {
    /// Parses by asking the engine.
    pub(crate) async fn prepare(&mut self, Parse { name, query, type_oids, .. }: Parse) -> Outcome<()> {
        let split = self.ask(StreamRequest::Split { sql: query.clone() }).await?;
        let mut statements = match split.map_err(|failure| from_engine(&failure, &query, 0))? {
            StreamReply::Statements { statements } => statements,
            other => return Err(unexpected("Split", &other).into()),
        };
        if statements.len() > 1 {
            let message = format!("a prepared statement has one command, but got {}", statements.len());
            return Err(Report::new("42601", message).into());
        }
        let prepared = match statements.pop() {
            Some(statement) => Some(Arc::new(self.describe_text(statement, &query, &type_oids).await?)),
            None => None,
        };
        self.statements.insert(name.unwrap_or_default(), prepared);
        Ok(())
    }

    /// What the engine says of one statement of a text.
    async fn describe_text(&mut self, sql: String, text: &str, type_oids: &[u32]) -> Outcome<Prepared> {
        let types: Vec<Option<Type>> = type_oids.iter().map(|oid| Type::from_oid(*oid)).collect();
        let declared = types.iter().enumerate().map(|(at, known)| parameters::data_type(at + 1, known.as_ref()));
        let parameters = declared.collect::<Result<Vec<_>, _>>()?;
        let request = StreamRequest::Describe { session: self.session, sql: sql.clone(), parameters };
        let offset = text.find(sql.as_str()).unwrap_or(0);
        let (schema, parameters) =
            match self.ask(request).await?.map_err(|failure| from_engine(&failure, text, offset))? {
                StreamReply::Described { schema, parameters } => (schema, parameters),
                other => return Err(unexpected("Describe", &other).into()),
            };
        let parameter = |(at, data_type): (usize, DataType)| {
            let known = types.get(at).cloned().flatten().filter(|known| *known != Type::UNKNOWN);
            let pg_type = known.map_or_else(|| into_pg_type(&data_type), Ok).map_err(|error| unwritable(&error))?;
            Ok(Declared { data_type, pg_type })
        };
        let parameters = parameters.into_iter().enumerate().map(parameter).collect::<Result<_, Report>>()?;
        Ok(Prepared { sql, schema, parameters })
    }

    fn statement(&self, name: &str) -> Result<Option<Arc<Prepared>>, Report> {
        let missing =
            || Report::new("26000", format!("prepared statement \"{name}\" does not exist; send Parse first"));
        self.statements.get(name).cloned().ok_or_else(missing)
    }

    /// Binds values to a statement.
    pub(crate) async fn open_portal(&mut self, bind: Bind) -> Result<(), Report> {
        let name = bind.portal_name.clone().unwrap_or_default();
        self.close_portal(&name).await;
        let statement = self.statement(bind.statement_name.as_deref().unwrap_or_default())?;
        let values = match &statement {
            Some(statement) => parameters::values(&statement.parameters, &bind)?,
            None => parameters::values(&[], &bind)?,
        };
        let portal =
            Portal { statement, values, formats: bind.result_column_format_codes, opened: None, finished: None };
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Describes a statement, a portal, or a cursor that SQL has declared, which is a portal too.
    pub(crate) async fn describe_one(&mut self, describe: &Describe) -> Result<(), Report> {
        let name = describe.name.as_deref().unwrap_or_default();
        let (schema, formats) = match describe.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                let statement = self.statement(name)?;
                let parameters = statement.iter().flat_map(|statement| &statement.parameters);
                self.wire.output.parameters(parameters.map(|parameter| parameter.pg_type.oid()));
                (statement.and_then(|statement| statement.schema.clone()), vec![])
            }
            TARGET_TYPE_BYTE_PORTAL => match self.portals.get(name) {
                Some(Portal { statement, formats, .. }) => {
                    (statement.as_ref().and_then(|statement| statement.schema.clone()), formats.clone())
                }
                None => (Some(self.cursor_columns(name).await?), vec![]),
            },
            other => {
                let message = format!("expected to describe a statement (S) or a portal (P), came {other}");
                return Err(Report::protocol(message));
            }
        };
        let columns = match schema {
            Some(schema) => Some(fields(&schema, &formats)?.iter().map(Into::into).collect()),
            None => None,
        };
        self.wire.output.columns(columns);
        Ok(())
    }

    /// The columns of a cursor that SQL has declared.
    async fn cursor_columns(&self, name: &str) -> Result<SchemaRef, Report> {
        let sql = format!("FETCH FROM \"{}\"", name.replace('"', "\"\""));
        match self.call(StreamRequest::Describe { session: self.session, sql, parameters: vec![] }).await {
            Ok(StreamReply::Described { schema: Some(schema), .. }) => Ok(schema),
            _ => Err(no_portal(name)),
        }
    }

    /// Runs a portal or goes on with it, and sends at most `max_rows` rows (0 for all).
    pub(crate) async fn run_portal(&mut self, name: &str, max_rows: usize) -> Outcome<()> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        let Some(statement) = portal.statement.clone() else {
            self.wire.output.empty();
            return Ok(());
        };
        self.check_transaction(&statement.sql)?;
        if let Some(tag) = &portal.finished {
            self.wire.output.complete(tag);
            return Ok(());
        }
        let opened = match portal.opened.clone() {
            Some(opened) => opened,
            None => {
                let (sql, parameters) = (statement.sql.clone(), portal.values.clone());
                let request = StreamRequest::Execute { session: self.session, sql, parameters };
                let reply = self.ask(request).await?;
                let reply = reply.map_err(|failure| from_engine(&failure, &statement.sql, 0))?;
                let Some(opened) = self.begun(reply)? else { return Ok(()) };
                if let Some(portal) = self.portals.get_mut(name) {
                    portal.opened = Some(opened.clone());
                }
                opened
            }
        };
        let formats = self.portals.get(name).filter(|_| opened.gives_rows()).map(|portal| portal.formats.clone());
        let fields = fields(&opened.schema, &formats.unwrap_or_default())?;
        if let Some(described) = statement.schema.as_ref().filter(|_| opened.gives_rows()) {
            check_types(described, &opened.schema)?;
        }
        let sent = self.send_rows(&opened, &fields, max_rows).await?;
        if sent.end {
            if let Some(portal) = self.portals.get_mut(name) {
                portal.opened = None;
                portal.finished = Some(opened.tag(0));
            }
            self.close_cursor(opened.cursor).await;
            self.wire.output.complete(&opened.tag(sent.rows));
        } else {
            self.wire.output.suspended();
        }
        Ok(())
    }

    /// Forgets a statement or a portal, if there is one.
    pub(crate) async fn forget(&mut self, Close { target_type, name, .. }: Close) -> Result<(), Report> {
        let name = name.unwrap_or_default();
        match target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                self.statements.remove(&name);
            }
            TARGET_TYPE_BYTE_PORTAL => self.close_portal(&name).await,
            other => {
                let message = format!("expected to close a statement (S) or a portal (P), came {other}");
                return Err(Report::protocol(message));
            }
        }
        Ok(())
    }

    /// Closes a portal and its rows.
    async fn close_portal(&mut self, name: &str) {
        if let Some(opened) = self.portals.remove(name).and_then(|portal| portal.opened) {
            self.close_cursor(opened.cursor).await;
        }
    }

    /// Closes all portals: the transaction they belong to has ended.
    pub(crate) async fn close_portals(&mut self) {
        for portal in std::mem::take(&mut self.portals).into_values() {
            if let Some(opened) = portal.opened {
                self.close_cursor(opened.cursor).await;
            }
        }
    }
}

fn no_portal(name: &str) -> Report {
    Report::new("34000", format!("portal \"{name}\" does not exist; send Bind first"))
}

/// Rows are as their description said: a cursor or a table may have been made anew since.
fn check_types(described: &Schema, came: &Schema) -> Result<(), Report> {
    let types = |schema: &Schema| -> Result<Vec<Type>, Report> {
        Ok(fields(schema, &[])?.iter().map(|field| field.datatype().clone()).collect())
    };
    if types(described)? == types(came)? {
        return Ok(());
    }
    Err(Report::new("0A000", "the columns of the prepared statement have changed; prepare it again"))
}
