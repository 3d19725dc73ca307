//! Rows on their way from a cursor to the socket: as rows, as lines of `COPY`, or only counted.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use arrow_pg::datatypes::arrow_schema_to_pg_fields;
use arrow_pg::encode_recordbatch;
use arrow_schema::{Schema, SchemaRef};
use futures::{Sink, SinkExt};
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldInfo, Tag};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyOutResponse};
use pgwire::messages::startup::ParameterStatus;
use savanna_streams_api::handle::{CursorId, Purpose, StreamReply, StreamRequest};

use crate::connection::{Connection, unexpected};
use crate::{copy, error, nested, numeric};

/// Rows per fetch: enough to make one large write, few enough to stay responsive.
const ROWS_PER_FETCH: usize = 1_024;

/// How long one fetch waits for rows.
const WAIT: Duration = Duration::from_millis(500);

/// After so many fetches without a row, something is written to the socket, so that a client that is gone is noticed.
const QUIET_FETCHES: u32 = 20;

/// A result that a statement has opened.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) cursor: CursorId,
    pub(crate) schema: SchemaRef,
    pub(crate) purpose: Purpose,
}

impl Opened {
    /// The command tag of the whole answer.
    pub(crate) fn tag(&self, rows: usize) -> Tag {
        let word = match self.purpose {
            Purpose::Select => "SELECT",
            Purpose::Fetch => "FETCH",
            Purpose::Move => "MOVE",
            Purpose::Copy(_) => "COPY",
        };
        Tag::new(word).with_rows(rows)
    }

    /// Whether the rows travel as rows, of which a client may ask for some.
    pub(crate) fn gives_rows(&self) -> bool {
        matches!(self.purpose, Purpose::Select | Purpose::Fetch)
    }
}

/// What a pump of rows came to.
pub(crate) struct Pumped {
    /// Rows sent.
    pub(crate) rows: usize,
    /// Whether the result has ended.
    pub(crate) end: bool,
}

/// The columns of a result as PostgreSQL types, in the formats that the client asked for.
pub(crate) fn fields(schema: &Schema, format: &Format) -> PgWireResult<Arc<Vec<FieldInfo>>> {
    if let Format::Individual(codes) = format
        && codes.len() != schema.fields().len()
    {
        return Err(error::error(
            "08P01",
            format!(
                "the bind message has {} result formats, but the result has {} columns",
                codes.len(),
                schema.fields().len()
            ),
        ));
    }
    let mut fields = arrow_schema_to_pg_fields(&nested::with_texts(schema), format, None)?;
    for (at, column) in schema.fields().iter().enumerate().filter(|(_, column)| nested::is_json(column.data_type())) {
        fields[at] = FieldInfo::new(column.name().clone(), None, None, Type::JSON, format.format_for(at));
    }
    Ok(Arc::new(fields))
}

/// Sends the rows of a result as its statement wants them: to its end, or at most `max_rows` (0 for all).
pub(crate) async fn send<C>(
    connection: &Connection,
    client: &mut C,
    opened: &Opened,
    fields: &Arc<Vec<FieldInfo>>,
    max_rows: usize,
) -> PgWireResult<Pumped>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let max_rows = if opened.gives_rows() { max_rows } else { 0 };
    let Purpose::Copy(format) = &opened.purpose else {
        return pump(connection, client, opened, fields, max_rows).await;
    };
    let columns = i16::try_from(fields.len()).map_err(|_| error::error("54011", "COPY takes at most 32767 columns"))?;
    let begin = CopyOutResponse::new(0, columns, vec![0; fields.len()]);
    client.feed(PgWireBackendMessage::CopyOutResponse(begin)).await?;
    if format.header {
        let names = copy::header(format, fields.iter().map(FieldInfo::name));
        client.feed(PgWireBackendMessage::CopyData(CopyData::new(names.into()))).await?;
    }
    let pumped = pump(connection, client, opened, fields, max_rows).await?;
    client.feed(PgWireBackendMessage::CopyDone(CopyDone::new())).await?;
    Ok(pumped)
}

/// Sends rows as they come. What has come is written to the socket before more is waited for.
async fn pump<C>(
    connection: &Connection,
    client: &mut C,
    opened: &Opened,
    fields: &Arc<Vec<FieldInfo>>,
    max_rows: usize,
) -> PgWireResult<Pumped>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let session = connection.session()?;
    let cursor = opened.cursor;
    let encoded = numeric::as_encoded(fields);
    let mut sent = 0;
    let mut quiet = 0;
    loop {
        let room = if max_rows == 0 { ROWS_PER_FETCH } else { ROWS_PER_FETCH.min(max_rows - sent) };
        let request = StreamRequest::Fetch { session, cursor, max_rows: room, wait_ms: WAIT.as_millis() as u64 };
        let (rows, end) = match connection.ask(request).await {
            Ok(StreamReply::Fetched { rows, end }) => (rows, end),
            Ok(other) => return Err(unexpected("Fetch", &other)),
            Err(failure) => {
                connection.close_cursor(cursor).await;
                return Err(error::from_engine(&failure, "", 0));
            }
        };
        for batch in rows.batches {
            sent += batch.num_rows();
            quiet = 0;
            if opened.purpose == Purpose::Move {
                continue;
            }
            let rows = nested::as_texts(batch)
                .and_then(|rows| numeric::encoded(rows, fields))
                .map_err(|e| error::error("XX000", format!("a result cannot be sent: {e}")))?;
            for row in encode_recordbatch(Arc::clone(&encoded), rows) {
                let message = match &opened.purpose {
                    Purpose::Copy(format) => {
                        PgWireBackendMessage::CopyData(CopyData::new(copy::line(format, &row?).into()))
                    }
                    _ => PgWireBackendMessage::DataRow(row?),
                };
                client.feed(message).await?;
            }
        }
        if end || (max_rows > 0 && sent >= max_rows) {
            return Ok(Pumped { rows: sent, end });
        }
        quiet += 1;
        if quiet == QUIET_FETCHES {
            let still_here = ParameterStatus::new("is_superuser".to_owned(), "on".to_owned());
            client.feed(PgWireBackendMessage::ParameterStatus(still_here)).await?;
            quiet = 0;
        }
        client.flush().await?;
    }
}
