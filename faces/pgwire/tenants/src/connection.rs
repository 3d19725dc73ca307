//! One client: its messages are read, done by its tenant, and answered.

mod opening;
mod statement;

use std::{io, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::BytesMut;
use futures::{FutureExt, future::LocalBoxFuture};
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};
use savanna_pgwire_frames::Body;
use savanna_tenants_host::{
    ConnectionGuard, End, Identity, Served, Session, SqlError, Status, Termination, Timeouts, error::state,
};
use tokio::sync::OwnedSemaphorePermit;

use self::opening::{open, send_away};
use crate::{
    output::Output,
    socket::Parked,
    wire::{MESSAGE_BYTES_MAX, Wire},
};

/// Answers of more bytes leave before all is done.
const OUTPUT_BYTES: usize = 256 << 10;

/// A client that may come in, on its way to its tenant's thread.
pub(crate) struct Client {
    pub(crate) socket: Parked,
    /// What was read of it already.
    pub(crate) input: BytesMut,
    pub(crate) identity: Identity,
    pub(crate) settings: Vec<(String, String)>,
    /// Its place among those who may be here at once.
    pub(crate) place: OwnedSemaphorePermit,
}

impl savanna_tenants_host::Connection for Client {
    fn serve(self: Box<Self>, guard: ConnectionGuard) -> LocalBoxFuture<'static, ()> {
        Box::pin(serve(*self, guard))
    }

    fn refuse(self: Box<Self>, error: SqlError) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            match self.socket.resume() {
                Ok(socket) => send_away(socket, &error).await,
                Err(error) => tracing::warn!(%error, "a client's socket could not be taken over"),
            }
        })
    }
}

/// Serves a client until it goes away.
async fn serve(client: Client, guard: ConnectionGuard) {
    let Client { socket, input, identity, settings, place: _place } = client;
    let socket = match socket.resume() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "a client's socket could not be taken over");
            return;
        }
    };
    let mut wire = Wire { socket, input, output: Output::default() };
    wire.output.let_in();
    let session = match open(guard, &mut wire, identity, settings).await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return send_away(wire.socket, &error).await,
        Err(error) => {
            tracing::debug!(%error, "a client went away while its database was busy");
            return;
        }
    };
    wire.output.ready(Status::Idle);
    let context = running();
    let mut connection = Connection { session, wire, context, skipping: false, ready: true };
    let talked = AssertUnwindSafe(connection.talk()).catch_unwind().await.unwrap_or_else(|_| {
        // What was written last may be half a message.
        connection.wire.output.bytes.clear();
        let error = SqlError::internal("a panic, of which the server's log says more");
        Err(End::Fatal(
            error.hint("This connection ends and its transaction is rolled back. Other connections are not affected."),
        ))
    });
    match talked {
        Ok(()) => {}
        Err(End::Client(error)) => tracing::debug!(%error, "a client went away"),
        Err(End::Fatal(error)) => {
            connection.wire.output.error("FATAL", &error);
            if let Err(error) = connection.send().await {
                let error = match error {
                    End::Client(error) => error.to_string(),
                    End::Fatal(error) => error.to_string(),
                };
                tracing::debug!(error, "a client went away before it was told why it is sent away");
            }
        }
    }
    connection.wire.socket.close();
}

fn running() -> DecodeContext {
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    context
}

struct Connection {
    session: Session,
    wire: Wire,
    context: DecodeContext,
    /// After an error of the extended protocol: nothing is done up to Sync.
    skipping: bool,
    /// Whether the client was told that it may go on, and has not.
    ready: bool,
}

impl Connection {
    async fn talk(&mut self) -> Served<()> {
        loop {
            while let Some(message) = self.decode()? {
                if matches!(message, PgWireFrontendMessage::Terminate(_)) {
                    return Ok(());
                }
                self.obey(message).await?;
                if self.wire.output.bytes.len() >= OUTPUT_BYTES {
                    self.send().await?;
                }
            }
            // As in PostgreSQL, what a pipeline came to leaves at its end, when the client asks for it, or when something failed.
            if self.ready || self.skipping {
                self.send().await?;
            }
            self.session.pay();
            let termination = Arc::clone(self.session.termination());
            tokio::select! {
                biased;
                () = termination.asked() => return Err(End::Fatal(Termination::error())),
                heard = self.hear() => if heard? == 0 {
                    return Ok(());
                },
            }
        }
    }

    /// Hears more of the client, unless it pauses for too long.
    async fn hear(&mut self) -> Served<usize> {
        let Timeouts { idle_in_transaction, idle, .. } = self.session.timeouts();
        if !self.ready || (idle_in_transaction, idle) == (0, 0) {
            return Ok(self.wire.socket.read(&mut self.wire.input).await?);
        }
        let (millis, state, what) = match self.session.status() {
            Status::Idle => (idle, "57P05", "idle-session"),
            Status::Transaction | Status::Failed => (idle_in_transaction, "25P03", "idle-in-transaction"),
        };
        let read = self.wire.socket.read(&mut self.wire.input);
        match millis {
            0 => Ok(read.await?),
            millis => match tokio::time::timeout(Duration::from_millis(millis.into()), read).await {
                Ok(read) => Ok(read?),
                Err(_) => {
                    Err(End::Fatal(SqlError::new(state, format!("terminating connection due to {what} timeout"))))
                }
            },
        }
    }

    /// The next message, if it has come as a whole.
    fn decode(&mut self) -> Served<Option<PgWireFrontendMessage>> {
        let Some(head) = self.wire.input.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            let message = format!("expected a message of 4 to {MESSAGE_BYTES_MAX} bytes, came a length of {length}");
            return Err(End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
        }
        if self.wire.input.len() <= length {
            return Ok(None);
        }
        // The decoder sees this message only, whatever counts it has inside.
        let mut message = self.wire.input.split_to(length + 1);
        let broken = |what: String| End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, what));
        let mut body = Body::new(message[0]);
        body.advance(&message[5..]).and_then(|()| body.end()).map_err(|malformed| broken(malformed.to_string()))?;
        match PgWireFrontendMessage::decode(&mut message, &self.context) {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => Err(broken("the client sent half a message".to_owned())),
            Err(error) => Err(broken(format!("the client sent what is no message of the protocol: {error}"))),
        }
    }

    async fn obey(&mut self, message: PgWireFrontendMessage) -> Served<()> {
        use PgWireFrontendMessage as M;
        if self.skipping && !matches!(message, M::Sync(_)) {
            return Ok(());
        }
        if matches!(message, M::Query(_) | M::Parse(_) | M::Bind(_) | M::Describe(_) | M::Execute(_)) {
            // A simple query is answered with what Bind and Execute are.
            self.session.begin(if matches!(message, M::Query(_)) { 2 } else { 1 }).await;
        }
        self.ready = false;
        let outcome = match message {
            M::Query(query) => return self.query(query.query).await,
            M::Sync(_) => return self.sync().await,
            M::Flush(_) => return self.send().await,
            M::Parse(parse) => {
                let name = parse.name.unwrap_or_default();
                let parsed = self.session.parse(&mut self.wire, name, parse.query, parse.type_oids).await?;
                parsed.map(|()| self.wire.output.parsed())
            }
            M::Bind(bind) => self.bind(bind).await?,
            M::Describe(describe) => {
                let name = describe.name.unwrap_or_default();
                self.describe(describe.target_type, &name).await?
            }
            M::Execute(execute) => {
                let name = execute.name.unwrap_or_default();
                self.execute(&name, usize::try_from(execute.max_rows).unwrap_or(0)).await?
            }
            M::Close(close) => {
                let name = close.name.unwrap_or_default();
                let closed = match close.target_type {
                    b'S' => self.session.close_statement(&mut self.wire, &name).await?,
                    _ => self.session.close_portal(&mut self.wire, &name).await?,
                };
                closed.map(|()| self.wire.output.closed())
            }
            // What is left of a COPY that failed.
            M::CopyData(_) | M::CopyDone(_) | M::CopyFail(_) => Ok(()),
            _ => {
                let error =
                    SqlError::new(state::PROTOCOL_VIOLATION, "the client sent a message that has no place here");
                return Err(End::Fatal(error));
            }
        };
        if let Err(error) = outcome {
            self.wire.output.error("ERROR", &error);
            self.skipping = true;
        }
        Ok(())
    }

    /// Sends what has been collected, once it may be told.
    async fn send(&mut self) -> Served<()> {
        if self.wire.output.bytes.is_empty() {
            return Ok(());
        }
        if let Err(end) = self.session.gate().await {
            // What was collected may not be true: nobody hears of it.
            self.wire.output.bytes.clear();
            return Err(end);
        }
        let bytes = std::mem::take(&mut self.wire.output.bytes);
        tokio::select! {
            biased;
            written = self.wire.socket.write_all(&bytes) => written?,
            // It reads nothing, and cannot be told.
            () = self.session.termination().asked() => return Err(End::Client(io::ErrorKind::ConnectionAborted.into())),
        }
        // The memory is used again, unless it was much.
        if bytes.capacity() <= 2 * OUTPUT_BYTES {
            self.wire.output.bytes = bytes;
            self.wire.output.bytes.clear();
        }
        Ok(())
    }
}
