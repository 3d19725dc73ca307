//! One client: its messages are read, done by its tenant, and answered.

mod opening;
mod statement;
mod turn;

use std::{
    io,
    panic::AssertUnwindSafe,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures::FutureExt;
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};
use savanna_journal::Lsn;
use savanna_pgwire_frames::Body;
use savanna_tenants::{
    SessionId, SqlError, Status,
    error::state,
    interrupt::{Interrupts, Reason},
    settings::Timeouts,
    tenant::{Login, Tenant},
};
use tokio::sync::Notify;

pub(crate) use self::opening::refuse;
use self::{
    opening::{open, turn_away, until_free},
    turn::Spent,
};
use crate::{
    connections::{Connected, Ending},
    output::Output,
    process::Key,
    room::{Room, Visit},
    socket::Socket,
    thread::{Client, Here, Known},
};

/// A message that is longer is not read.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Answers of more bytes leave before all is done.
const OUTPUT_BYTES: usize = 256 << 10;

/// How long answers wait before the lease is looked at again.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// Why a connection ends.
enum End {
    /// The client went away, or can no longer be understood.
    Socket(io::Error),
    /// It is told why, and sent away.
    Fatal(SqlError),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

type Served<T> = Result<T, End>;

/// Serves a client until it goes away.
pub(crate) async fn serve(here: Rc<Here>, visit: Visit, client: Client) {
    let room = Rc::clone(visit.room());
    let Client { socket, mut input, user, database, settings, administrator, place: _place, key, seed } = client;
    let mut socket = match socket.resume() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "a client's socket could not be taken over");
            return;
        }
    };
    let mut output = Output::default();
    output.let_in();
    match until_free(&room, (&mut socket, &mut input), &mut output, here.process.keeping.patience).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return turn_away(socket, &error).await,
        Err(error) => {
            tracing::debug!(%error, "a client went away while its database was busy");
            return;
        }
    }
    let login = Login { user: &user, database: &database, administrator, seed };
    let opened = room.with(|tenant| open(tenant, login, &settings)).await;
    let (session, told) = match opened {
        Ok(opened) => opened,
        Err(error) => return turn_away(socket, &error).await,
    };
    let told: Vec<(&str, String)> = told.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    output.welcome(&told, key);
    output.ready(Status::Idle);
    let woken = room.waits(session);
    let (interrupts, timeouts) = room.with(|tenant| (tenant.interrupts(session), tenant.timeouts(session))).await;
    here.connections.borrow_mut().insert(key, Known { room: Rc::clone(&room), session });
    let ending = Arc::<Ending>::default();
    let connected = Connected {
        database: database.clone(),
        user: user.clone(),
        interrupts: Arc::clone(&interrupts),
        ending: Arc::clone(&ending),
        thread: here.number,
    };
    here.process.connections.arrive(key, connected);
    let backends = Arc::clone(&here.process.connections);
    room.with(|tenant| tenant.connect(session, key.0, backends)).await;
    // Whatever ends the connection, also a panic, ends the session.
    let (leaving_room, statement) = (Rc::clone(&room), Arc::clone(&interrupts));
    let _leaving = Leaving { here: Rc::clone(&here), room: leaving_room, session, key, interrupts: statement };
    let mut connection = Connection {
        here,
        room,
        spent: Spent::default(),
        session,
        key,
        interrupts,
        timeouts,
        woken,
        socket,
        input,
        output,
        after: Lsn::NONE,
        context: running(),
        skipping: false,
        failed_aside: false,
        ready: true,
        status: Status::Idle,
        ending,
        whom: Whom { user, database, administrator },
    };
    let talked = AssertUnwindSafe(connection.talk()).catch_unwind().await.unwrap_or_else(|_| {
        // What was written last may be half a message.
        connection.output.bytes.clear();
        let error = SqlError::internal("a panic, of which the server's log says more");
        Err(End::Fatal(error.hint("The connection ends, and its transaction is rolled back; others go on.")))
    });
    match talked {
        Ok(()) => {}
        Err(End::Socket(error)) => tracing::debug!(%error, "a client went away"),
        Err(End::Fatal(error)) => {
            connection.output.error("FATAL", &error);
            if let Err(error) = connection.send().await {
                let error = match error {
                    End::Socket(error) => error.to_string(),
                    End::Fatal(error) => error.to_string(),
                };
                tracing::debug!(error, "a client went away before it was told why it is sent away");
            }
        }
    }
    connection.socket.close();
}

fn running() -> DecodeContext {
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    context
}

/// Ends a session when its connection does.
struct Leaving {
    here: Rc<Here>,
    room: Rc<Room>,
    session: SessionId,
    key: Key,
    interrupts: Arc<Interrupts>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.here.connections.borrow_mut().remove(&self.key);
        self.here.process.connections.leave(self.key);
        // If its statement still runs, nobody wants to know what comes of it.
        self.interrupts.interrupt(Reason::Cancelled);
        self.room.leave(self.session);
    }
}

struct Connection {
    here: Rc<Here>,
    room: Rc<Room>,
    /// What it has not paid for.
    spent: Spent,
    session: SessionId,
    key: Key,
    interrupts: Arc<Interrupts>,
    timeouts: Timeouts,
    woken: Rc<Notify>,
    socket: Socket,
    input: BytesMut,
    output: Output,
    /// The log must be durable up to here before the output may leave.
    after: Lsn,
    context: DecodeContext,
    /// After an error of the extended protocol: nothing is done up to Sync.
    skipping: bool,
    /// Whether a statement has failed before it got to the tenant.
    failed_aside: bool,
    /// Whether the client was told that it may go on, and has not.
    ready: bool,
    /// What it was told then.
    status: Status,
    /// Whether somebody ends it.
    ending: Arc<Ending>,
    whom: Whom,
}

/// Whom a connection serves.
struct Whom {
    user: String,
    database: String,
    administrator: bool,
}

impl Connection {
    async fn talk(&mut self) -> Served<()> {
        loop {
            while let Some(message) = self.decode()? {
                if matches!(message, PgWireFrontendMessage::Terminate(_)) {
                    return Ok(());
                }
                self.obey(message).await?;
                if self.output.bytes.len() >= OUTPUT_BYTES {
                    self.send().await?;
                }
            }
            // As in PostgreSQL, what a pipeline came to leaves at its end, when the client asks for it, or when something failed.
            if self.ready || self.skipping {
                self.send().await?;
            }
            self.pay();
            let ending = Arc::clone(&self.ending);
            tokio::select! {
                biased;
                () = ending.asked() => return Err(End::Fatal(Ending::error())),
                heard = self.hear() => if heard? == 0 {
                    return Ok(());
                },
            }
        }
    }

    /// Hears more of the client, unless it pauses for too long.
    async fn hear(&mut self) -> Served<usize> {
        let Timeouts { idle_in_transaction, idle, .. } = self.timeouts;
        if !self.ready || (idle_in_transaction, idle) == (0, 0) {
            return Ok(self.socket.read(&mut self.input).await?);
        }
        let (millis, state, what) = match self.status {
            Status::Idle => (idle, "57P05", "idle-session"),
            Status::Transaction | Status::Failed => (idle_in_transaction, "25P03", "idle-in-transaction"),
        };
        let read = self.socket.read(&mut self.input);
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
        let Some(head) = self.input.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            let message = format!("expected a message of 4 to {MESSAGE_BYTES_MAX} bytes, came a length of {length}");
            return Err(End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
        }
        if self.input.len() <= length {
            return Ok(None);
        }
        // The decoder sees this message only, whatever counts it has inside.
        let mut message = self.input.split_to(length + 1);
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
            self.pay();
            self.wait_for_budget().await;
            self.owe_for(&message);
        }
        let session = self.session;
        self.ready = false;
        if matches!(message, M::Parse(_) | M::Bind(_) | M::Describe(_) | M::Execute(_) | M::Close(_))
            && let Err(error) = self.turn(Instant::now()).await?
        {
            self.output.error("ERROR", &error);
            self.skipping = true;
            return Ok(());
        }
        let outcome = match message {
            M::Query(query) => {
                self.query(query.query).await?;
                return Ok(());
            }
            M::Sync(_) => return self.sync().await,
            M::Flush(_) => return self.send().await,
            M::Parse(parse) => {
                let name = parse.name.unwrap_or_default();
                let types = parse.type_oids;
                let work = move |tenant: &mut Tenant, text: &str| tenant.parse(session, &name, text, &types);
                let parsed = self.tenant_reads(parse.query, work).await?;
                parsed.map(|()| self.output.parsed())
            }
            M::Bind(bind) => self.bind(bind).await,
            M::Describe(describe) => {
                let name = describe.name.unwrap_or_default();
                match describe.target_type {
                    b'S' => {
                        let described = self.tenant(|tenant| tenant.describe_statement(session, &name)).await;
                        described.map(|(types, columns)| {
                            self.output.parameters(&types);
                            self.describe(columns.as_deref(), &[]);
                        })
                    }
                    _ => {
                        let described = self.tenant(|tenant| tenant.describe_portal(session, &name)).await;
                        described.map(|(columns, formats)| self.describe(columns.as_deref(), &formats))
                    }
                }
            }
            M::Execute(execute) => {
                let name = execute.name.unwrap_or_default();
                self.execute(&name, usize::try_from(execute.max_rows).unwrap_or(0)).await?
            }
            M::Close(close) => {
                let name = close.name.unwrap_or_default();
                if close.target_type == b'S' {
                    self.tenant(|tenant| tenant.close_statement(session, &name)).await;
                } else {
                    self.tenant(|tenant| tenant.close_portal(session, &name)).await;
                }
                self.output.closed();
                Ok(())
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
            self.output.error("ERROR", &error);
            self.skipping = true;
        }
        Ok(())
    }

    /// Sends what has been collected, once it may be told.
    async fn send(&mut self) -> Served<()> {
        if self.output.bytes.is_empty() {
            return Ok(());
        }
        self.gate().await?;
        let bytes = std::mem::take(&mut self.output.bytes);
        tokio::select! {
            biased;
            written = self.socket.write_all(&bytes) => written?,
            // It reads nothing, and cannot be told.
            () = self.ending.asked() => return Err(End::Socket(io::ErrorKind::ConnectionAborted.into())),
        }
        // The memory is used again, unless it was much.
        if bytes.capacity() <= 2 * OUTPUT_BYTES {
            self.output.bytes = bytes;
            self.output.bytes.clear();
        }
        Ok(())
    }

    /// Waits until the log is durable up to what the answers depend on, and this process may speak for its tenants.
    async fn gate(&mut self) -> Served<()> {
        let after = std::mem::take(&mut self.after);
        if after > self.here.process.journal.durable()
            && let Err(error) = self.here.process.journal.wait_durable(after).await
        {
            // What was collected may not be true: nobody hears of it.
            self.output.bytes.clear();
            tracing::error!(%error, "the tenants' log failed");
            return Err(End::Fatal(error.into()));
        }
        // One that is renewed late serves again; one that is lost ends the server, and nobody hears of this.
        while self.here.lease.as_ref().is_some_and(|lease| !lease.serving()) {
            tokio::time::sleep(LEASE_LOOK).await;
        }
        Ok(())
    }
}
