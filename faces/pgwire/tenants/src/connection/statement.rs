//! What the client's statements come to, and how it is told.

use std::{io, sync::Arc, time::Instant};

use pgwire::messages::{PgWireFrontendMessage, extendedquery::Bind};
use savanna_tenants::{
    Outcome, OutputColumn, SqlError, Status,
    backends::{self, Asker},
    copy::{CopyField, CopyFormat, CopyKind},
    error::{Result, state},
    role::Acquaintance,
    tenant::{Binding, Given, Notice},
    types::Type,
    value::Value,
};

use super::{Connection, End, OUTPUT_BYTES, Served, Whom, turn::is_long};
use crate::{copy, output, process::ADMINISTRATION, tenants};

/// Bytes of lines that one COPY takes.
const COPY_BYTES_MAX: usize = 64 << 20;
/// So many of them are read before others have their turn.
const COPY_BYTES_AT_ONCE: usize = 256 << 10;

impl Connection {
    /// A simple query: each statement in turn, all of them one transaction unless the text says otherwise.
    pub(super) async fn query(&mut self, text: String) -> Served<()> {
        let session = self.session;
        if self.room.is_aside() && self.status == Status::Idle && self.signals(&text) {
            return Ok(());
        }
        let outcome = match self.turn(Instant::now()).await? {
            Ok(()) => match self.tenant_reads(text, move |tenant, text| tenant.split(session, text)).await? {
                Ok(statements) => self.statements(statements).await?,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.output.error("ERROR", &error);
        }
        self.told().await;
        Ok(())
    }

    /// Tells the client that it may go on.
    async fn told(&mut self) {
        let session = self.session;
        self.status = match (std::mem::take(&mut self.failed_aside), self.status) {
            // The tenant hears of it when it is here again.
            (true, Status::Idle) => Status::Idle,
            (true, _) => Status::Failed,
            (false, _) => self.tenant(|tenant| tenant.told(session)).await,
        };
        self.output.ready(self.status);
        self.ready = true;
    }

    /// Sends the signal that a text asks for, if it asks for nothing else: the database itself may be busy with what is to end.
    fn signals(&mut self, text: &str) -> bool {
        let Some((name, signal, pid)) = backends::request(text) else { return false };
        let Whom { user, database, administrator } = &self.whom;
        let asker = Asker { user, database, administrator: *administrator };
        match asker.tell(&*self.here.process.connections, pid, signal) {
            Ok(told) => {
                let columns = [OutputColumn { name: name.to_owned(), of: Type::Bool, origin: (0, 0) }];
                self.output.columns(&columns, &[]);
                self.output.row(&[Value::Bool(told)], &columns, &[]);
                self.output.complete("SELECT 1");
            }
            Err(error) => self.output.error("ERROR", &error),
        }
        self.output.ready(self.status);
        self.ready = true;
        true
    }

    async fn statements(&mut self, statements: Vec<String>) -> Served<Result<()>> {
        if statements.is_empty() {
            self.output.empty();
        }
        let (session, last) = (self.session, statements.len());
        for (number, text) in (1..).zip(statements) {
            let ran = self.until_done_from(is_long(&text), move |tenant| tenant.run(session, &text)).await?;
            let (mut outcome, columns) = match ran {
                Ok(ran) => ran,
                Err(error) => return Ok(Err(error)),
            };
            if let Outcome::CopyIn { columns, format } = &outcome {
                outcome = match self.take_rows(columns, format).await? {
                    Ok(outcome) => outcome,
                    Err(error) => return Ok(Err(error)),
                };
            }
            if let (Outcome::Rows { .. }, Some(columns)) = (&outcome, &columns) {
                self.output.columns(columns, &[]);
            }
            // The last statement is told of when its transaction is over.
            if number == last {
                let finished = self.until_done(move |tenant| tenant.finish(session)).await?;
                if let Err(error) = finished {
                    return Ok(Err(error));
                }
            }
            if let Err(error) = self.tell(outcome, columns.as_deref().unwrap_or_default(), &[]).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Tells what came of a statement.
    async fn tell(&mut self, outcome: Outcome, columns: &[OutputColumn], formats: &[i16]) -> Served<Result<()>> {
        match outcome {
            Outcome::Empty => self.output.empty(),
            Outcome::Done { tag } => {
                if matches!(tag.as_ref(), "CREATE ROLE" | "ALTER ROLE") {
                    self.warn_of_open_administration().await;
                }
                self.output.complete(&tag);
            }
            Outcome::Rows { tag, rows, end } => {
                for row in rows {
                    self.output.row(&row, columns, formats);
                    if self.output.bytes.len() >= OUTPUT_BYTES {
                        self.send().await?;
                    }
                }
                if end {
                    self.output.complete(&tag);
                } else {
                    self.output.suspended();
                }
            }
            Outcome::CopyOut { columns, rows, format } => {
                self.output.copy_out(columns.len(), &format);
                let mut ahead = copy::begin(&columns, &format);
                // Clients expect a line of names by itself, but the head of binary rows with what comes first.
                if format.kind != CopyKind::Binary {
                    self.output.copy_data(std::mem::take(&mut ahead));
                }
                let count = rows.len();
                for row in rows {
                    self.output.copy_row(std::mem::take(&mut ahead), &row, &columns, &format);
                    if self.output.bytes.len() >= OUTPUT_BYTES {
                        self.send().await?;
                    }
                }
                ahead.extend(copy::end(&format));
                self.output.copy_data(ahead);
                self.output.copy_done();
                self.output.complete(&format!("COPY {count}"));
            }
            Outcome::CopyIn { .. } => return Ok(Err(SqlError::internal("lines are wanted twice"))),
            Outcome::CreateDatabase(name) => {
                let created = self.here.process.create(&name);
                match created {
                    Ok(lsn) => {
                        self.after = self.after.max(lsn);
                        self.output.complete("CREATE DATABASE");
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
            Outcome::DropDatabase { name, if_exists } => return Ok(self.drop_database(&name, if_exists).await),
        }
        Ok(Ok(()))
    }

    /// A password here keeps nobody of this machine from the database of administrators, if none of them has one.
    async fn warn_of_open_administration(&mut self) {
        let process = Arc::clone(&self.here.process);
        let Ok(administration) = process.tenant(ADMINISTRATION) else { return };
        if administration == self.room.id {
            return;
        }
        // Nobody is warned in vain if they cannot be asked.
        if let Ok(Acquaintance { guarded: false, .. }) = process.ask(administration, ADMINISTRATION).await {
            let message = "no administrator has a password: every client of this machine may remove this database; \
                           CREATE USER .. PASSWORD in database postgres";
            self.output.notice(&Notice::Warning(message.to_owned()));
        }
    }

    async fn drop_database(&mut self, name: &str, if_exists: bool) -> Result<()> {
        if self.here.process.tenant(name) == Ok(self.room.id) {
            return Err(SqlError::new("55006", "cannot drop the currently open database"));
        }
        let removed = tenants::remove(&self.here.process, name).await;
        let lsn = match removed {
            Ok(lsn) => lsn,
            Err(error) if if_exists && error.state == state::INVALID_CATALOG_NAME => {
                let message = format!("database \"{name}\" does not exist, skipping");
                self.output.notice(&Notice::Notice(message));
                self.output.complete("DROP DATABASE");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.after = self.after.max(lsn);
        self.output.complete("DROP DATABASE");
        Ok(())
    }

    /// Takes the rows of a COPY from the client.
    async fn take_rows(&mut self, columns: &[String], format: &CopyFormat) -> Served<Result<Outcome>> {
        use PgWireFrontendMessage as M;
        self.output.copy_in(columns.len(), format);
        self.send().await?;
        let mut text = Vec::new();
        let mut refused = None;
        // From here on it may be cancelled.
        let session = self.session;
        if let Err(error) = self.tenant(|tenant| tenant.copy_goes_on(session)).await {
            refused = Some(error);
        }
        loop {
            let Some(message) = self.decode()? else {
                if self.socket.read(&mut self.input).await? == 0 {
                    return Err(End::Socket(io::ErrorKind::UnexpectedEof.into()));
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
                    let message = "expected the rows of a COPY, came another message";
                    return Err(End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
                }
            }
        }
        let rows = match refused {
            None => self.read_rows(&text, columns, format).await,
            Some(error) => Err(error),
        };
        drop(text);
        let rows = match rows {
            Ok(rows) => Arc::new(rows),
            Err(error) => {
                self.tenant(|tenant| tenant.copy_fail(session)).await;
                return Ok(Err(error));
            }
        };
        self.until_done(move |tenant| tenant.copy_in(session, &rows)).await
    }

    /// Reads the rows of a COPY. It gives way to others every now and then, and may be cancelled there.
    async fn read_rows(&mut self, text: &[u8], columns: &[String], format: &CopyFormat) -> Result<Vec<Vec<CopyField>>> {
        let mut source = copy::Rows::new(text, columns, format)?;
        let mut rows = Vec::new();
        let session = self.session;
        loop {
            self.tenant(|tenant| tenant.copy_goes_on(session)).await?;
            let more = self.paid(|| source.read(COPY_BYTES_AT_ONCE, &mut rows))?;
            if !more {
                return Ok(rows);
            }
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn bind(&mut self, bind: Bind) -> Result<()> {
        let (portal, statement) = (bind.portal_name.unwrap_or_default(), bind.statement_name.unwrap_or_default());
        let codes = &bind.parameter_format_codes;
        let session = self.session;
        if let Some(other) = codes.iter().find(|code| !matches!(code, 0 | 1)) {
            self.tenant(|tenant| tenant.fail(session)).await;
            return Err(SqlError::new(state::PROTOCOL_VIOLATION, format!("unsupported format code: {other}")));
        }
        let mut given = Vec::with_capacity(bind.parameters.len());
        for (at, parameter) in bind.parameters.iter().enumerate() {
            given.push(match (parameter, output::format(codes, at)) {
                (None, _) => Given::Null,
                (Some(bytes), 0) => Given::Text(bytes),
                (Some(bytes), _) => Given::Binary(bytes),
            });
        }
        let formats = &bind.result_column_format_codes;
        let binding = Binding { portal: &portal, statement: &statement, given: &given, formats };
        self.tenant(|tenant| tenant.bind(session, &binding)).await?;
        self.output.bound();
        Ok(())
    }

    pub(super) fn describe(&mut self, columns: Option<&[OutputColumn]>, formats: &[i16]) {
        match columns {
            Some(columns) => self.output.columns(columns, formats),
            None => self.output.no_data(),
        }
    }

    pub(super) async fn execute(&mut self, name: &str, rows_max: usize) -> Served<Result<()>> {
        let session = self.session;
        let (columns, formats) = match self.tenant(|tenant| tenant.describe_portal(session, name)).await {
            Ok((columns, formats)) => (columns.unwrap_or_default(), formats),
            Err(error) => return Ok(Err(error)),
        };
        let portal = name.to_owned();
        let executed = self.until_done(move |tenant| tenant.execute(session, &portal, rows_max)).await?;
        let mut outcome = match executed {
            Ok(outcome) => outcome,
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

    /// The end of what belongs together in the extended protocol: a transaction that the client did not begin ends here.
    pub(super) async fn sync(&mut self) -> Served<()> {
        self.skipping = false;
        let session = self.session;
        // What failed before it got to the tenant is finished with that.
        if !self.failed_aside {
            let finished = self.until_done(move |tenant| tenant.finish(session)).await?;
            if let Err(error) = finished {
                self.output.error("ERROR", &error);
            }
        }
        self.told().await;
        Ok(())
    }
}
