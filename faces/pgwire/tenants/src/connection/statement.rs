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

/// Bytes of lines that one COPY takes.
const COPY_BYTES_MAX: usize = 64 << 20;
/// So many of them are read before others have their turn.
const COPY_BYTES_AT_ONCE: usize = 256 << 10;

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
            if let Outcome::CopyIn { columns, format } = &outcome {
                outcome = match self.take_rows(columns, format).await? {
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

    /// Takes the rows of a COPY from the client.
    async fn take_rows(&mut self, columns: &[String], format: &CopyFormat) -> Served<Result<Outcome>> {
        use PgWireFrontendMessage as M;
        self.wire.output().copy_in(columns.len(), copy_code(format));
        self.send().await?;
        let mut text = Vec::new();
        let mut refused = None;
        // From here on it may be cancelled.
        if let Err(error) = self.session.copy_goes_on(&mut self.wire).await {
            refused = Some(error);
        }
        loop {
            let Some(message) = self.wire.wire.message().map_err(Self::fatal)? else {
                if self.wire.wire.hear().await? == 0 {
                    return Err(End::Client(io::ErrorKind::UnexpectedEof.into()));
                }
                continue;
            };
            match message {
                M::CopyData(data) if text.len() + data.data.len() <= COPY_BYTES_MAX => text.extend(&data.data[..]),
                // What follows is read and forgotten: only its end can be answered.
                M::CopyData(_) => {
                    text.clear();
                    let message = format!("a COPY takes at most {} MiB", COPY_BYTES_MAX >> 20);
                    let error = SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message);
                    refused.get_or_insert_with(|| error.hint("Copy in several parts."));
                }
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
        let rows = match refused {
            None => self.read_rows(&text, columns, format).await,
            Some(error) => Err(error),
        };
        drop(text);
        match rows {
            Ok(rows) => self.session.copy_in(&mut self.wire, rows).await,
            Err(error) => {
                self.session.copy_fail(&mut self.wire).await;
                Ok(Err(error))
            }
        }
    }

    /// Reads the rows of a COPY. It gives way to others every now and then, and may be cancelled there.
    async fn read_rows(&mut self, text: &[u8], columns: &[String], format: &CopyFormat) -> Result<Vec<Vec<CopyField>>> {
        let mut source = copy::Rows::new(text, columns, format)?;
        let mut rows = Vec::new();
        loop {
            self.session.copy_goes_on(&mut self.wire).await?;
            let more = self.session.paid(|| source.read(COPY_BYTES_AT_ONCE, &mut rows))?;
            if !more {
                return Ok(rows);
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
        if let Outcome::CopyIn { columns, format } = &outcome {
            outcome = match self.take_rows(columns, format).await? {
                Ok(outcome) => outcome,
                Err(error) => return Ok(Err(error)),
            };
        }
        self.tell(outcome, &columns, &formats).await
    }
}
