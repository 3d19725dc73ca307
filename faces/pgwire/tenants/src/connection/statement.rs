//! What the client's statements come to, and how it is told.

use std::io;

use pgwire::messages::{PgWireFrontendMessage, extendedquery::Bind};
use savanna_pgwire_connection::{Connection as _, OUTPUT_BYTES, Wire, format};
use savanna_pgwire_login::Socket;
use savanna_tenants_host::{
    Binding, End, Given, Outcome, OutputColumn, Served, SqlError, Status, Waiting,
    copy::{CopyField, CopyFormat, CopyKind},
    error::{Result, state},
    types::Type,
    value::Value,
};

use super::Connection;
use crate::{
    copy,
    rows::{self, copy_code},
    wire::{ClientWire, report},
};

/// Bytes that a row of a COPY has at most, or all rows, if they may refer to each other.
const COPY_BYTES_MAX: usize = 64 << 20;
/// Rows of so many bytes are written before the rest of a COPY has come, or about so many rows.
const COPY_PIECE: usize = 4 << 20;
const COPY_ROWS: usize = 32 << 10;
/// So many bytes of them are read before others have their turn.
const COPY_BYTES_AT_ONCE: usize = 64 << 10;

impl<S: Socket> Connection<S> {
    /// Sends the signal that a text asks for, if it asks for nothing else while the database itself is busy. Says what the client is in.
    pub(super) async fn signals(&mut self, text: &str) -> Option<Status> {
        let (name, told) = self.session.signal(text).await?;
        let ClientWire { wire: Wire { output, .. }, rows } = &mut self.wire;
        match told {
            Ok(told) => {
                let columns = [OutputColumn { name: name.to_owned(), of: Type::Bool, origin: (0, 0) }];
                output.columns(Some(rows::columns(&columns, &[])));
                match rows.row(output, &[Value::Bool(told)], &columns, &[]) {
                    Ok(()) => output.complete("SELECT 1"),
                    Err(error) => output.error(&report(error)),
                }
            }
            Err(error) => output.error(&report(error)),
        }
        Some(self.session.status())
    }

    /// Each statement of a text in turn, all of them one transaction unless the text says otherwise.
    pub(super) async fn statements(&mut self, statements: Vec<String>, may_be_taken_back: bool) -> Served<Result<()>> {
        let waits = |may: bool, as_what| if may && may_be_taken_back { as_what } else { Waiting::Stays };
        if statements.is_empty() {
            self.wire.output().empty();
        }
        let last = statements.len();
        for (number, text) in (1..).zip(statements) {
            self.session.waits_as(waits(number == 1, Waiting::IsTakenBack));
            let ran = self.session.run(&mut self.wire, text).await;
            self.session.waits_as(Waiting::Stays);
            let (mut outcome, columns) = match ran? {
                Ok(ran) => ran,
                Err(error) => return Ok(Err(error)),
            };
            let takes_rows = matches!(outcome, Outcome::CopyIn { .. });
            if let Outcome::CopyIn { columns, format, in_pieces } = &outcome {
                outcome = match self.take_rows(columns, format, *in_pieces).await? {
                    Ok(outcome) => outcome,
                    Err(error) => return Ok(Err(error)),
                };
            }
            if let (Outcome::Rows { .. }, Some(columns)) = (&outcome, &columns) {
                self.wire.output().columns(Some(rows::columns(columns, &[])));
            }
            // The last statement is told of when its transaction is over.
            if number == last {
                self.session.waits_as(waits(number == 1 && !takes_rows, Waiting::IsTakenBackWhole));
                let finished = self.session.finish(&mut self.wire).await;
                self.session.waits_as(Waiting::Stays);
                if let Err(error) = finished? {
                    return Ok(Err(error));
                }
            }
            if let Err(error) = self.tell(outcome, columns.as_deref().unwrap_or_default(), &[]).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// A row cannot be told: as if its statement had failed.
    async fn failed(&mut self, error: SqlError) -> Served<Result<()>> {
        Ok(self.session.fail(&mut self.wire).await?.and(Err(error)))
    }

    /// Tells what came of a statement.
    async fn tell(&mut self, outcome: Outcome, columns: &[OutputColumn], formats: &[i16]) -> Served<Result<()>> {
        let outcome = match self.session.carry_out(&mut self.wire, outcome).await {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error)),
        };
        match outcome {
            Outcome::Empty => self.wire.output().empty(),
            Outcome::Done { tag } => self.wire.output().complete(&tag),
            Outcome::Rows { tag, mut rows, end } => {
                loop {
                    let some = match self.session.some_rows(&mut rows).await {
                        Ok(some) if some.is_empty() => break,
                        Ok(some) => some,
                        Err(error) => return self.failed(error).await,
                    };
                    for row in some {
                        let ClientWire { wire, rows } = &mut self.wire;
                        if let Err(error) = rows.row(&mut wire.output, &row, columns, formats) {
                            return self.failed(error).await;
                        }
                        if wire.output.bytes.len() >= OUTPUT_BYTES {
                            self.send().await?;
                        }
                    }
                }
                if end {
                    self.wire.output().complete(&tag);
                } else {
                    self.wire.output().suspended();
                }
            }
            Outcome::CopyOut { columns, mut rows, format } => {
                self.wire.output().copy_out(columns.len(), copy_code(&format));
                let mut ahead = copy::begin(&columns, &format);
                // Clients expect a line of names by itself, but the head of binary rows with what comes first.
                if format.kind != CopyKind::Binary {
                    self.wire.output().copy_data(std::mem::take(&mut ahead));
                }
                let count = rows.left();
                loop {
                    let some = match self.session.some_rows(&mut rows).await {
                        Ok(some) if some.is_empty() => break,
                        Ok(some) => some,
                        Err(error) => return self.failed(error).await,
                    };
                    for row in some {
                        let ClientWire { wire, rows } = &mut self.wire;
                        let ahead = std::mem::take(&mut ahead);
                        if let Err(error) = rows.copy_row(&mut wire.output, ahead, &row, &columns, &format) {
                            return self.failed(error).await;
                        }
                        if wire.output.bytes.len() >= OUTPUT_BYTES {
                            self.send().await?;
                        }
                    }
                }
                ahead.extend(copy::end(&format));
                self.wire.output().copy_data(ahead);
                self.wire.output().copy_done();
                self.wire.output().complete(&format!("COPY {count}"));
            }
            Outcome::CopyIn { .. } => return Ok(Err(SqlError::internal("lines are wanted twice"))),
            Outcome::CreateDatabase(_) | Outcome::DropDatabase { .. } => {
                return Ok(Err(SqlError::internal("what a statement asks of the process was not done")));
            }
        }
        Ok(Ok(()))
    }

    /// Takes the rows of a COPY from the client, and writes them: in pieces, if no row may refer to one that comes later.
    async fn take_rows(&mut self, columns: &[String], format: &CopyFormat, in_pieces: bool) -> Served<Result<Outcome>> {
        use PgWireFrontendMessage as M;
        self.wire.output().copy_in(columns.len(), copy_code(format));
        self.send().await?;
        let mut coming = Coming { text: Vec::new(), read: 0, place: copy::Place::begin(format), columns, format };
        let mut refused = None;
        // From here on it may be cancelled.
        if let Err(error) = self.session.copy_goes_on(&mut self.wire).await {
            refused = Some(error);
        }
        let mut enough = COPY_PIECE;
        loop {
            let Some(message) = self.wire.wire.message().map_err(Self::fatal)? else {
                if self.wire.wire.hear().await? == 0 {
                    return Err(End::Client(io::ErrorKind::UnexpectedEof.into()));
                }
                continue;
            };
            match message {
                M::CopyData(data) if refused.is_none() => {
                    coming.text.extend(&data.data[..]);
                    let mut wrong = None;
                    if in_pieces && coming.text.len() >= enough {
                        match self.take_piece(&mut coming).await? {
                            Ok(why) => wrong = why,
                            Err(error) => refused = Some(error),
                        }
                        enough = coming.text.len() + COPY_PIECE;
                    }
                    if coming.text.len() > COPY_BYTES_MAX {
                        refused.get_or_insert_with(|| wrong.unwrap_or_else(|| too_long(in_pieces)));
                    }
                }
                // What follows is read and forgotten: only its end can be answered.
                M::CopyData(_) => coming.text = Vec::new(),
                M::CopyDone(_) => break,
                M::CopyFail(fail) => {
                    let message = format!("COPY from stdin failed: {}", fail.message);
                    refused = Some(SqlError::new(state::QUERY_CANCELED, message));
                    break;
                }
                M::Flush(_) | M::Sync(_) => {}
                _ => {
                    let message = "expected the rows of a COPY, but got another message";
                    return Err(End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
                }
            }
        }
        let error = match refused {
            Some(error) => error,
            None => loop {
                match self.read_rows(&mut coming, (false, in_pieces)).await {
                    Err(error) => break error,
                    Ok((rows, false, _)) => {
                        drop(coming);
                        return self.session.copy_in(&mut self.wire, rows, true).await;
                    }
                    Ok((rows, true, _)) => {
                        if let Err(error) = self.session.copy_in(&mut self.wire, rows, false).await? {
                            break error;
                        }
                    }
                }
            },
        };
        self.session.copy_fail(&mut self.wire).await;
        Ok(Err(error))
    }

    /// Writes the rows that have come whole. Why the next one cannot be read, if that is not because it has not come.
    async fn take_piece(&mut self, coming: &mut Coming<'_>) -> Served<Result<Option<SqlError>>> {
        let wrong = loop {
            let (rows, more, wrong) = match self.read_rows(coming, (true, true)).await {
                Ok(read) => read,
                Err(error) => return Ok(Err(error)),
            };
            if !rows.is_empty()
                && let Err(error) = self.session.copy_in(&mut self.wire, rows, false).await?
            {
                return Ok(Err(error));
            }
            if !more {
                break wrong;
            }
        };
        coming.text.drain(..std::mem::take(&mut coming.read));
        // It may be cancelled while it waits for the others.
        Ok(self.session.copy_goes_on(&mut self.wire).await.map(|()| wrong))
    }

    /// Reads the rows of a COPY that have come: all, or those that are whole if more come; not too many at once, if they are taken in pieces. Whether there are others. It gives way to
    /// others every now and then, and may be cancelled there.
    async fn read_rows(
        &mut self,
        coming: &mut Coming<'_>,
        (go_on, in_pieces): (bool, bool),
    ) -> Result<(Vec<Vec<CopyField>>, bool, Option<SqlError>)> {
        let Coming { text, read, place, columns, format } = coming;
        let mut source = copy::Rows::new(&text[*read..], columns, format, (*place, go_on))?;
        let mut rows = Vec::new();
        loop {
            self.session.copy_goes_on(&mut self.wire).await?;
            let more = self.session.paid(|| source.read(COPY_BYTES_AT_ONCE, &mut rows))?;
            if !more || in_pieces && rows.len() >= COPY_ROWS {
                let (behind, rest, wrong) = source.into_place();
                (*place, *read) = (behind, text.len() - rest);
                return Ok((rows, more, wrong));
            }
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn bind(&mut self, bind: Bind) -> Served<Result<()>> {
        let (portal, statement) = (bind.portal_name.unwrap_or_default(), bind.statement_name.unwrap_or_default());
        let codes = &bind.parameter_format_codes;
        if let Some(other) = codes.iter().find(|code| !matches!(code, 0 | 1)) {
            let failed = self.session.fail(&mut self.wire).await?;
            let error = SqlError::new(state::PROTOCOL_VIOLATION, format!("unsupported format code: {other}"));
            return Ok(failed.and(Err(error)));
        }
        let mut given = Vec::with_capacity(bind.parameters.len());
        for (at, parameter) in bind.parameters.iter().enumerate() {
            given.push(match (parameter, format(codes, at)) {
                (None, _) => Given::Null,
                (Some(bytes), 0) => Given::Text(bytes),
                (Some(bytes), _) => Given::Binary(bytes),
            });
        }
        let formats = &bind.result_column_format_codes;
        let binding = Binding { portal: &portal, statement: &statement, given: &given, formats };
        self.session.bind(&mut self.wire, &binding).await
    }

    /// Describes a statement (`S`) or a portal.
    pub(super) async fn describe(&mut self, target: u8, name: &str) -> Served<Result<()>> {
        if target == b'S' {
            let described = self.session.describe_statement(&mut self.wire, name).await?;
            return Ok(described.map(|(types, columns)| {
                self.wire.output().parameters(types.iter().map(|of| of.oid()));
                self.columns(columns.as_deref(), &[]);
            }));
        }
        let described = self.session.describe_portal(&mut self.wire, name).await?;
        Ok(described.map(|(columns, formats)| self.columns(columns.as_deref(), &formats)))
    }

    fn columns(&mut self, columns: Option<&[OutputColumn]>, formats: &[i16]) {
        self.wire.output().columns(columns.map(|columns| rows::columns(columns, formats)));
    }

    pub(super) async fn execute(&mut self, name: &str, rows_max: usize) -> Served<Result<()>> {
        if self.may_move {
            self.session.waits_as(Waiting::IsTakenBack);
        }
        let executed = self.session.execute(&mut self.wire, name, rows_max).await;
        self.session.waits_as(Waiting::Stays);
        let (mut outcome, columns, formats) = match executed? {
            Ok(executed) => executed,
            Err(error) => return Ok(Err(error)),
        };
        if let Outcome::CopyIn { columns, format, in_pieces } = &outcome {
            outcome = match self.take_rows(columns, format, *in_pieces).await? {
                Ok(outcome) => outcome,
                Err(error) => return Ok(Err(error)),
            };
        }
        self.tell(outcome, &columns, &formats).await
    }
}

/// What has come of the rows of a COPY and is not written yet.
struct Coming<'c> {
    text: Vec<u8>,
    /// So many bytes of it were read.
    read: usize,
    place: copy::Place,
    columns: &'c [String],
    format: &'c CopyFormat,
}

/// The error of a COPY that is not taken in pieces, or of a row.
fn too_long(in_pieces: bool) -> SqlError {
    let limit = COPY_BYTES_MAX >> 20;
    let (message, hint) = match in_pieces {
        true => {
            (format!("a row of a COPY has at most {limit} MiB"), "Look whether a quote or an end of a line is missing.")
        }
        false => (
            format!("a COPY into a table whose rows refer to each other takes at most {limit} MiB"),
            "Copy in several parts, or without the foreign key.",
        ),
    };
    SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint(hint)
}
