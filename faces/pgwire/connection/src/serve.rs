//! The loop: messages are read, done by the face, and answered.

use std::{io, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use pgwire::messages::{
    PgWireFrontendMessage,
    extendedquery::{Bind, Close, Describe, Execute, Parse},
};
use savanna_pgwire_login::Socket;
use tokio::time::Instant;

use crate::{OUTPUT_BYTES, Report, Status, Wire};

/// Why a connection ends, beside the client's wish.
#[derive(Debug)]
pub enum End {
    /// The client went away, or its connection broke.
    Client(io::Error),
    /// The client is told why, and sent away.
    Fatal(Report),
    /// The client is served elsewhere from now on, where the message is obeyed that is the next one again; what was answered before is told here.
    Leaves,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Client(error)
    }
}

impl From<Report> for End {
    fn from(report: Report) -> Self {
        Self::Fatal(report)
    }
}

/// Why somebody else ends a connection, or what is to become of it.
#[derive(Debug)]
pub enum Dismissal {
    /// The client is told why, and sent away.
    Fatal(Report),
    /// The client hears nothing, and is served elsewhere from now on.
    Leaves,
}

/// What came of a message, unless the connection ends.
pub type Done<C> = Result<Result<(), Report>, <C as Connection>::End>;

/// A client and the session of an engine that does what it asks.
///
/// Whatever writes an answer puts it into the wire's output; long ones are sent on the way with [`Connection::send`].
pub trait Connection: Sized {
    /// What connects the client.
    type Socket: Socket;
    /// Why the connection ends.
    type End: From<io::Error>;

    /// The client's wire.
    fn wire(&mut self) -> &mut Wire<Self::Socket>;

    /// The end of the connection for a reason that the client is told.
    fn fatal(report: Report) -> Self::End;

    /// An end, as it is told.
    fn ended(end: Self::End) -> End;

    /// The client, which was told that it may, asks for something.
    fn begin_turn(&mut self) {}

    /// A text of statements (`is_simple`), or a step of one statement, is about to be done.
    fn begin(&mut self, is_simple: bool) -> impl Future<Output = ()>;

    /// Does a text of statements and answers them, errors included, up to what the client is told that it is in.
    fn query(&mut self, text: String) -> impl Future<Output = Result<Status, Self::End>>;

    /// Prepares a statement.
    fn parse(&mut self, parse: Parse) -> impl Future<Output = Done<Self>>;

    /// Makes a portal of a prepared statement and values.
    fn bind(&mut self, bind: Bind) -> impl Future<Output = Done<Self>>;

    /// Describes a statement or a portal.
    fn describe(&mut self, describe: Describe) -> impl Future<Output = Done<Self>>;

    /// Runs a portal, or goes on with it.
    fn execute(&mut self, execute: Execute) -> impl Future<Output = Done<Self>>;

    /// Forgets a statement or a portal.
    fn close(&mut self, close: Close) -> impl Future<Output = Done<Self>>;

    /// A step of the extended protocol went wrong: nothing is done up to Sync.
    fn failed(&mut self) {}

    /// The end of what belongs together in the extended protocol, and what the client is in then.
    fn sync(&mut self) -> impl Future<Output = Result<Status, Self::End>>;

    /// Waits until what is in the output may be told.
    fn gate(&mut self) -> impl Future<Output = Result<(), Self::End>> {
        std::future::ready(Ok(()))
    }

    /// The connection has nothing to do until the client says more.
    fn rest(&mut self) {}

    /// How long the client may be silent now, and what it is told then.
    fn patience(&self) -> Option<(Duration, Report)> {
        None
    }

    /// Waits until somebody else ends the connection, and says why.
    fn terminated(&self) -> impl Future<Output = Report> + use<Self> {
        std::future::pending()
    }

    /// Waits until somebody else ends the connection, while it has nothing to do, or takes it elsewhere. That is possible only while the client `may_leave`: it
    /// has been told that it may go on, and has begun nothing.
    fn dismissed(&self, may_leave: bool) -> impl Future<Output = Dismissal> + use<Self> {
        let _ = may_leave;
        let terminated = self.terminated();
        async { Dismissal::Fatal(terminated.await) }
    }

    /// The client is served elsewhere from now on.
    fn leaves(&mut self) {}

    /// Waits until the client, which has nothing to do, is to hear something for which it did not ask.
    fn heard(&self) -> impl Future<Output = ()> + use<Self> {
        std::future::pending()
    }

    /// Writes what that is, if there is anything.
    fn tell(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Sends what has been collected, once it may be told.
    fn send(&mut self) -> impl Future<Output = Result<(), Self::End>> {
        send(self)
    }
}

/// Serves a client until it goes away.
pub async fn serve<C: Connection>(mut connection: C) -> C {
    let mut conversation = Conversation { connection: &mut connection, skipping: false, ready: true, owes: true };
    let ended =
        AssertUnwindSafe(conversation.talk()).catch_unwind().await.unwrap_or_else(|_| {
            // What was written last may be half a message.
            connection.wire().output.bytes.clear();
            let report = Report::new("XX000", "a panic, of which the server's log says more");
            Err(C::fatal(report.with_hint(
                "This connection ends and its transaction is rolled back. Other connections are not affected.",
            )))
        });
    match ended.map_err(C::ended) {
        Ok(()) => {}
        Err(End::Client(error)) => tracing::debug!(%error, "a client went away"),
        Err(End::Leaves) => match connection.send().await.map_err(C::ended) {
            Ok(()) => connection.leaves(),
            Err(end) => tracing::debug!(?end, "a client went away"),
        },
        Err(End::Fatal(report)) => {
            connection.wire().output.fatal(&report);
            if let Err(end) = connection.send().await {
                let error = match C::ended(end) {
                    End::Client(error) => error.to_string(),
                    End::Fatal(report) => report.message,
                    End::Leaves => "it left".to_owned(),
                };
                tracing::debug!(error, "a client went away before it was told why it is sent away");
            }
        }
    }
    connection
}

async fn send<C: Connection>(connection: &mut C) -> Result<(), C::End> {
    if connection.wire().output.bytes.is_empty() {
        return Ok(());
    }
    if let Err(end) = connection.gate().await {
        // What was collected may not be true: nobody hears of it.
        connection.wire().output.bytes.clear();
        return Err(end);
    }
    let terminated = connection.terminated();
    let Wire { socket, output, .. } = connection.wire();
    let bytes = std::mem::take(&mut output.bytes);
    tokio::select! {
        biased;
        written = socket.write_all(&bytes) => written?,
        // It reads nothing, and cannot be told.
        _ = terminated => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
    }
    // The memory is used again, unless it was much.
    if bytes.capacity() <= 2 * OUTPUT_BYTES {
        output.bytes = bytes;
        output.bytes.clear();
    }
    Ok(())
}

/// Where a client is in the protocol.
struct Conversation<'a, C> {
    connection: &'a mut C,
    /// After an error of the extended protocol: nothing is done up to Sync.
    skipping: bool,
    /// Whether the client was told that it may go on, and has not.
    ready: bool,
    /// Whether there is something in the output that the client waits for: it may go on, or something failed.
    owes: bool,
}

impl<C: Connection> Conversation<'_, C> {
    async fn talk(&mut self) -> Result<(), C::End> {
        loop {
            while let Some(message) = self.connection.wire().message().map_err(C::fatal)? {
                if matches!(message, PgWireFrontendMessage::Terminate(_)) {
                    return self.connection.send().await;
                }
                self.obey(message).await?;
                if self.connection.wire().output.bytes.len() >= OUTPUT_BYTES {
                    self.connection.send().await?;
                }
            }
            // As in PostgreSQL, answers leave when the client may go on, when it asks for them, or when something failed.
            if self.owes {
                self.connection.send().await?;
                self.owes = false;
            }
            if !self.rest().await? {
                return Ok(());
            }
        }
    }

    /// Waits until the client says more, and tells it meanwhile what it is to hear. Whether it is there and served here.
    async fn rest(&mut self) -> Result<bool, C::End> {
        let patience = self.connection.patience().filter(|_| self.ready);
        let patience = patience.map(|(patience, report)| (Instant::now() + patience, report));
        loop {
            self.connection.rest();
            let is_light = self.connection.wire().is_light();
            let dismissed = self.connection.dismissed(self.ready && is_light);
            let (ready, heard) = (self.ready, self.connection.heard());
            tokio::select! {
                biased;
                dismissal = dismissed => match dismissal {
                    Dismissal::Fatal(report) => return Err(C::fatal(report)),
                    Dismissal::Leaves => {
                        self.connection.leaves();
                        return Ok(false);
                    }
                },
                bytes = self.hear(&patience) => return Ok(bytes? > 0),
                () = heard, if ready => {}
            }
            self.connection.tell().await;
            self.connection.send().await?;
        }
    }

    /// Hears more of the client, unless it pauses for too long.
    async fn hear(&mut self, patience: &Option<(Instant, Report)>) -> Result<usize, C::End> {
        let heard = self.connection.wire().hear();
        let Some((until, report)) = patience else { return Ok(heard.await?) };
        match tokio::time::timeout_at(*until, heard).await {
            Ok(heard) => Ok(heard?),
            Err(_) => Err(C::fatal(report.clone())),
        }
    }

    async fn obey(&mut self, message: PgWireFrontendMessage) -> Result<(), C::End> {
        use PgWireFrontendMessage as M;
        if self.skipping && !matches!(message, M::Sync(_)) {
            return Ok(());
        }
        if std::mem::take(&mut self.ready) {
            self.connection.begin_turn();
        }
        if matches!(message, M::Query(_) | M::Parse(_) | M::Bind(_) | M::Describe(_) | M::Execute(_)) {
            self.connection.begin(matches!(message, M::Query(_))).await;
        }
        let done = match message {
            M::Query(query) => {
                let status = self.connection.query(query.query).await?;
                self.may_go_on(status);
                return Ok(());
            }
            M::Sync(_) => {
                self.skipping = false;
                let status = self.connection.sync().await?;
                self.may_go_on(status);
                return Ok(());
            }
            M::Flush(_) => return self.connection.send().await,
            M::Parse(parse) => self.connection.parse(parse).await?.map(|()| self.connection.wire().output.parsed()),
            M::Bind(bind) => self.connection.bind(bind).await?.map(|()| self.connection.wire().output.bound()),
            M::Describe(describe) => self.connection.describe(describe).await?,
            M::Execute(execute) => self.connection.execute(execute).await?,
            M::Close(close) => self.connection.close(close).await?.map(|()| self.connection.wire().output.closed()),
            // What is left of a COPY that failed.
            M::CopyData(_) | M::CopyDone(_) | M::CopyFail(_) => Ok(()),
            _ => return Err(C::fatal(Report::protocol("the client sent a message that has no place here"))),
        };
        if let Err(report) = done {
            self.connection.wire().output.error(&report);
            self.connection.failed();
            self.skipping = true;
            self.owes = true;
        }
        Ok(())
    }

    /// Tells the client that it may go on.
    fn may_go_on(&mut self, status: Status) {
        self.connection.wire().output.ready(status);
        self.ready = true;
        self.owes = true;
    }
}

#[cfg(test)]
mod tests;
