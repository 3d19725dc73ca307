//! A client that has come in: the engine's session, what it has prepared, and where it is in its transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use savanna_pgwire_connection::{Connection, Done, End, Report, Status, Wire, serve};
use savanna_pgwire_login::{Introduction, Socket};
use savanna_streams_api::StreamError;
use savanna_streams_api::handle::{CursorId, HandleError, SessionId, SharedStreamHandle, StreamReply, StreamRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::acceptor::Admitted;
use crate::cancel::{Cancellation, Cancellations};
use crate::error::{told, unexpected};
use crate::extended::{Portal, Prepared};
use crate::line::Line;
use crate::{DATABASE, MESSAGE_BYTES_MAX};

/// A client that closes its side while it waits so long for an answer is gone; one that gets it sooner may send its last
/// message and close.
const PATIENCE: Duration = Duration::from_millis(500);

/// So many bytes are read ahead while a client waits. The end of one that has sent more is noticed when it is answered.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// The version of PostgreSQL whose clients are served.
const SERVER_VERSION: &str = concat!("15.0 (Savanna ", env!("CARGO_PKG_VERSION"), ")");

/// One client.
pub(crate) struct Client<S> {
    pub(crate) wire: Wire<Line<S>>,
    pub(crate) session: SessionId,
    pub(crate) status: Status,
    pub(crate) statements: HashMap<String, Option<Arc<Prepared>>>,
    pub(crate) portals: HashMap<String, Portal>,
    engine: SharedStreamHandle,
    cancellation: Cancellation,
    /// When it asked for what is being done.
    asked_at: Instant,
}

/// Talks to a client until it goes away.
pub(crate) async fn talk<S>(admitted: Admitted<S>, engine: SharedStreamHandle, cancellations: &Arc<Cancellations>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Admitted { line, input, introduction, place: _place } = admitted;
    let mut wire = Wire::new(line, input, MESSAGE_BYTES_MAX);
    wire.output.let_in();
    let line = match open(&engine, cancellations, &introduction).await {
        Ok((session, cancellation)) => {
            welcome(&mut wire, &introduction, &cancellation);
            let (status, asked_at) = (Status::Idle, Instant::now());
            let (statements, portals) = (HashMap::new(), HashMap::new());
            let client = Client { wire, session, status, statements, portals, engine, cancellation, asked_at };
            let client = serve(client).await;
            client.end_session().await;
            client.wire.socket
        }
        Err(report) => {
            wire.output.fatal(&report);
            if let Err(error) = Socket::write_all(&mut wire.socket, &wire.output.bytes).await {
                tracing::debug!(%error, "a client went away before it was told why it is sent away");
            }
            wire.socket
        }
    };
    line.close().await;
}

/// Opens a session for who has come in.
async fn open(
    engine: &SharedStreamHandle,
    cancellations: &Arc<Cancellations>,
    Introduction { user, database, .. }: &Introduction,
) -> Result<(SessionId, Cancellation), Report> {
    if database != DATABASE {
        let message = format!("database \"{database}\" does not exist; streams are in database {DATABASE}");
        return Err(Report::new("3D000", message));
    }
    let cancellation = cancellations.register().map_err(|error| {
        Report::new("53000", format!("the operating system has no randomness for a cancel key: {error}; try again"))
    })?;
    match engine.call(StreamRequest::OpenSession { user: user.clone() }).await {
        Ok(StreamReply::Session { session }) => Ok((session, cancellation)),
        Ok(other) => Err(unexpected("OpenSession", &other)),
        Err(failure) => Err(Report::new("53300", failure.to_string())),
    }
}

/// Tells a client what it is told of the server.
fn welcome<S: Socket>(wire: &mut Wire<S>, introduction: &Introduction, key: &Cancellation) {
    let name = introduction.settings.iter().rfind(|(setting, _)| setting == "application_name");
    let told = [
        ("server_version", SERVER_VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("application_name", name.map_or("", |(_, name)| name)),
        ("is_superuser", "on"),
        ("session_authorization", &introduction.user),
        ("DateStyle", "ISO, YMD"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "Etc/UTC"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
    ];
    wire.output.welcome(&told, key.key);
    wire.output.ready(Status::Idle);
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Client<S> {
    /// Asks the engine for what may take long. A cancel request that has come since the turn began, or comes, ends the wait, and
    /// so does a client that has gone.
    pub(crate) async fn ask(&mut self, request: StreamRequest) -> Result<Result<StreamReply, HandleError>, End> {
        let asked_at = self.asked_at;
        let gone = async {
            tokio::time::sleep_until(asked_at + PATIENCE).await;
            self.wire.gone_beyond(AHEAD_BYTES_MAX).await
        };
        tokio::select! {
            biased;
            () = self.cancellation.asked() => Ok(Err(StreamError::Cancelled.into())),
            reply = self.engine.call(request) => Ok(reply),
            error = gone => Err(End::Client(error)),
        }
    }

    /// Asks the engine for what takes no time.
    pub(crate) async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        self.engine.call(request).await
    }

    pub(crate) async fn close_cursor(&self, cursor: CursorId) {
        if let Err(error) = self.call(StreamRequest::CloseCursor { session: self.session, cursor }).await {
            tracing::debug!(%error, "a result could not be closed");
        }
    }

    /// Refuses a statement in a transaction that has failed, as clients expect.
    pub(crate) fn check_transaction(&self, sql: &str) -> Result<(), Report> {
        match self.status == Status::Failed && !ends_transaction(sql) {
            true => Err(Report::new(
                "25P02",
                "the transaction has failed and ignores statements until its end; send ROLLBACK",
            )),
            false => Ok(()),
        }
    }

    /// A statement with this command tag is done.
    pub(crate) fn done(&mut self, tag: &str) {
        self.status = match tag {
            "BEGIN" => Status::Transaction,
            "COMMIT" | "ROLLBACK" => Status::Idle,
            _ => self.status,
        };
        self.wire.output.complete(tag);
    }

    fn fail_transaction(&mut self) {
        if self.status == Status::Transaction {
            self.status = Status::Failed;
        }
    }

    /// The client is gone: its session ends, and with it the queries that fed it.
    async fn end_session(&self) {
        if let Err(error) = self.call(StreamRequest::CloseSession { session: self.session }).await {
            tracing::debug!(%error, "a session could not be closed");
        }
    }
}

/// Whether a statement ends a transaction.
fn ends_transaction(sql: &str) -> bool {
    let word = sql.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    ["ROLLBACK", "COMMIT", "ABORT", "END"].iter().any(|end| word.eq_ignore_ascii_case(end))
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for Client<S> {
    type Socket = Line<S>;
    type End = End;

    fn wire(&mut self) -> &mut Wire<Line<S>> {
        &mut self.wire
    }

    fn fatal(report: Report) -> End {
        End::Fatal(report)
    }

    fn ended(end: End) -> End {
        end
    }

    /// What was cancelled until now was before that.
    fn begin_turn(&mut self) {
        self.cancellation.reset();
    }

    async fn begin(&mut self, _: bool) {
        self.asked_at = Instant::now();
    }

    async fn query(&mut self, text: String) -> Result<Status, End> {
        if let Err(report) = told(self.statements(&text).await)? {
            self.fail_transaction();
            self.wire.output.error(&report);
        }
        Ok(self.status)
    }

    async fn parse(&mut self, parse: Parse) -> Done<Self> {
        told(self.prepare(parse).await)
    }

    async fn bind(&mut self, bind: Bind) -> Done<Self> {
        Ok(self.open_portal(bind).await)
    }

    async fn describe(&mut self, describe: Describe) -> Done<Self> {
        Ok(self.describe_one(&describe).await)
    }

    async fn execute(&mut self, execute: Execute) -> Done<Self> {
        let max_rows = usize::try_from(execute.max_rows).unwrap_or(0);
        told(self.run_portal(&execute.name.unwrap_or_default(), max_rows).await)
    }

    async fn close(&mut self, close: Close) -> Done<Self> {
        Ok(self.forget(close).await)
    }

    fn failed(&mut self) {
        self.fail_transaction();
    }

    /// Portals live as long as their transaction.
    async fn sync(&mut self) -> Result<Status, End> {
        if self.status == Status::Idle {
            self.close_portals().await;
        }
        Ok(self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_transaction_takes_only_its_end() {
        assert!(!ends_transaction("SELECT 1"));
        assert!(ends_transaction("rollback;") && ends_transaction("COMMIT"));
    }
}
