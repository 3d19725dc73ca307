//! Rows on their way from a cursor to the socket: as rows, as lines of `COPY`, or only counted.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_pg::datatypes::arrow_schema_to_pg_fields;
use arrow_pg::encode_recordbatch;
use arrow_schema::{Schema, SchemaRef};
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use savanna_pgwire_connection::{Connection as _, OUTPUT_BYTES, Report, format};
use savanna_streams_api::handle::{CursorId, Purpose, StreamReply, StreamRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Client;
use crate::error::{Outcome, from_engine, unexpected, unwritable};
use crate::{copy, nested, numeric};

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
    pub(crate) fn tag(&self, rows: usize) -> String {
        let word = match self.purpose {
            Purpose::Select => "SELECT",
            Purpose::Fetch => "FETCH",
            Purpose::Move => "MOVE",
            Purpose::Copy(_) => "COPY",
        };
        format!("{word} {rows}")
    }

    /// Whether the rows travel as rows, of which a client may ask for some.
    pub(crate) fn gives_rows(&self) -> bool {
        matches!(self.purpose, Purpose::Select | Purpose::Fetch)
    }
}

/// What was sent of a result.
pub(crate) struct Sent {
    /// Rows sent.
    pub(crate) rows: usize,
    /// Whether the result has ended.
    pub(crate) end: bool,
}

/// The columns of a result as PostgreSQL types, in the formats that the client asked for.
pub(crate) fn fields(schema: &Schema, formats: &[i16]) -> Result<Arc<Vec<FieldInfo>>, Report> {
    let columns = schema.fields();
    if formats.len() > 1 && formats.len() != columns.len() {
        return Err(Report::protocol(format!(
            "the bind message has {} result formats, but the result has {} columns",
            formats.len(),
            columns.len()
        )));
    }
    let codes = Format::Individual((0..columns.len()).map(|at| format(formats, at)).collect());
    let mut fields =
        arrow_schema_to_pg_fields(&nested::with_texts(schema), &codes, None).map_err(|error| unwritable(&error))?;
    for (at, column) in columns.iter().enumerate().filter(|(_, column)| nested::is_json(column.data_type())) {
        let format = FieldFormat::from(format(formats, at));
        fields[at] = FieldInfo::new(column.name().clone(), None, None, Type::JSON, format);
    }
    Ok(Arc::new(fields))
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Client<S> {
    /// Sends the rows of a result as its statement wants them: to its end, or at most `max_rows` (0 for all).
    pub(crate) async fn send_rows(
        &mut self,
        opened: &Opened,
        fields: &Arc<Vec<FieldInfo>>,
        max_rows: usize,
    ) -> Outcome<Sent> {
        let Purpose::Copy(format) = &opened.purpose else {
            let max_rows = if opened.gives_rows() { max_rows } else { 0 };
            return self.pump(opened, fields, max_rows).await;
        };
        if i16::try_from(fields.len()).is_err() {
            return Err(Report::new("54011", "COPY takes at most 32767 columns").into());
        }
        self.wire.output.copy_out(fields.len(), 0);
        if format.header {
            self.wire.output.copy_data(copy::header(format, fields.iter().map(FieldInfo::name)));
        }
        let sent = self.pump(opened, fields, 0).await?;
        self.wire.output.copy_done();
        Ok(sent)
    }

    /// Sends rows as they come. What has come is written to the socket before more is waited for.
    async fn pump(&mut self, opened: &Opened, fields: &Arc<Vec<FieldInfo>>, max_rows: usize) -> Outcome<Sent> {
        let (session, cursor, wait_ms) = (self.session, opened.cursor, WAIT.as_millis() as u64);
        let encoded = numeric::as_encoded(fields);
        let mut sent = 0;
        let mut quiet = 0;
        loop {
            let room = if max_rows == 0 { ROWS_PER_FETCH } else { ROWS_PER_FETCH.min(max_rows - sent) };
            let request = StreamRequest::Fetch { session, cursor, max_rows: room, wait_ms };
            let (rows, end) = match self.ask(request).await? {
                Ok(StreamReply::Fetched { rows, end }) => (rows, end),
                Ok(other) => return Err(unexpected("Fetch", &other).into()),
                Err(failure) => {
                    self.close_cursor(cursor).await;
                    return Err(from_engine(&failure, "", 0).into());
                }
            };
            for batch in rows.batches {
                sent += batch.num_rows();
                quiet = 0;
                self.put_rows(batch, &opened.purpose, fields, &encoded).await?;
            }
            if end || (max_rows > 0 && sent >= max_rows) {
                return Ok(Sent { rows: sent, end });
            }
            quiet += 1;
            if quiet == QUIET_FETCHES {
                self.wire.output.parameter("is_superuser", "on");
                quiet = 0;
            }
            self.send().await?;
        }
    }

    /// Adds rows to the output; what has grown long leaves.
    async fn put_rows(
        &mut self,
        batch: RecordBatch,
        purpose: &Purpose,
        fields: &[FieldInfo],
        encoded: &Arc<Vec<FieldInfo>>,
    ) -> Outcome<()> {
        if *purpose == Purpose::Move {
            return Ok(());
        }
        let rows = nested::as_texts(batch)
            .and_then(|rows| numeric::encoded(rows, fields))
            .map_err(|error| Report::new("XX000", format!("a result cannot be sent: {error}")))?;
        for row in encode_recordbatch(Arc::clone(encoded), rows) {
            let row = row.map_err(|error| unwritable(&error))?;
            match purpose {
                Purpose::Copy(format) => self.wire.output.copy_data(copy::line(format, &row)),
                _ => self.wire.output.put(&row),
            }
            if self.wire.output.bytes.len() >= OUTPUT_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }
}
