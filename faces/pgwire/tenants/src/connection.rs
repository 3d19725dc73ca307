//! One client: its messages are done by its tenant, and answered.

mod opening;
mod statement;

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use futures::future::LocalBoxFuture;
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use savanna_pgwire_connection as protocol;
use savanna_pgwire_connection::{Dismissal, Report, Wire};
use savanna_pgwire_login::Socket;
use savanna_tenants_host::{
    ConnectionGuard, Departed, End, Identity, Served, Session, SqlError, Status, TenantId, Timeouts, Waiting,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use self::opening::{open, send_away};
use crate::{
    relay::Front,
    rows::RowWriter,
    socket::Arriving,
    wire::{ClientWire, MESSAGE_BYTES_MAX, report},
};

/// A client that may come in, on its way to its tenant's thread.
pub(crate) struct Client<A> {
    pub(crate) socket: A,
    /// What was read of it already.
    pub(crate) input: BytesMut,
    pub(crate) identity: Identity,
    pub(crate) begins: Beginning,
    /// Its place among those who may be here at once.
    pub(crate) place: OwnedSemaphorePermit,
    /// The way to other nodes, if there may be any.
    pub(crate) front: Option<Arc<Front>>,
    /// When it left its session, if it is on its way with its database.
    pub(crate) since: Option<Instant>,
}

/// How a session begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Beginning {
    /// With the settings of the startup message; the client is told of it.
    New(Vec<(String, String)>),
    /// As it was elsewhere; the client notices nothing.
    Departed(Departed),
}

impl<A: Arriving> savanna_tenants_host::Connection for Client<A> {
    fn serve(self: Box<Self>, guard: ConnectionGuard) -> LocalBoxFuture<'static, ()> {
        Box::pin(serve(*self, guard))
    }

    fn refuse(self: Box<Self>, error: SqlError) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            match self.socket.arrive() {
                Ok(socket) => send_away(socket, error).await,
                Err(error) => tracing::warn!(%error, "a client's socket could not be taken over"),
            }
        })
    }

    fn follow(self: Box<Self>, tenant: TenantId) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            // Without other nodes no tenant goes to one.
            let Some(front) = self.front.clone() else { return };
            let runtime = front.runtime().clone();
            runtime.spawn(async move {
                if let Err(error) = A::follow(*self, front, tenant).await {
                    tracing::debug!(%error, "a client went away");
                }
            });
        })
    }
}

/// Serves a client until it goes away.
async fn serve<A: Arriving>(client: Client<A>, guard: ConnectionGuard) {
    let Client { socket, input, identity, begins, place, front, .. } = client;
    let socket = match socket.arrive() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "a client's socket could not be taken over");
            return;
        }
    };
    let mut wire = ClientWire { wire: Wire::new(socket, input, MESSAGE_BYTES_MAX), rows: RowWriter::default() };
    let is_new = matches!(begins, Beginning::New(_));
    let tenant = guard.tenant();
    // What a client of another node feels is noted there.
    let hung_up = |front: Option<Arc<Front>>| {
        if let Some(front) = front.filter(|_| A::IS_OF_THIS_NODE) {
            front.has_hung_up(tenant);
        }
    };
    if is_new {
        wire.output().let_in();
    }
    let session = match open(guard, &mut wire, identity, begins).await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => {
            if !is_new {
                hung_up(front);
            }
            return send_away(wire.wire.socket, error).await;
        }
        Err(error) => {
            tracing::debug!(%error, "a client went away while its database was busy");
            return;
        }
    };
    if is_new {
        wire.output().ready(status(Status::Idle));
    }
    let Connection { session, wire, leaves, .. } =
        protocol::serve(Connection { session, wire, leaves: false, may_move: front.is_some() }).await;
    let (socket, input) = wire.wire.into_parts();
    if !leaves {
        if session.termination().is_for_a_move() {
            hung_up(front);
        }
        return socket.close().await;
    }
    // Between two nodes nobody finds it.
    if session.termination().is_asked() {
        if session.termination().is_for_a_move() {
            hung_up(front);
        }
        return send_away(socket, session.termination().error()).await;
    }
    let since = Some(Instant::now());
    match (session.depart().await, A::park(socket)) {
        (Ok((identity, departed, back)), Ok(socket)) => {
            let begins = Beginning::Departed(departed);
            back.connect(Box::new(Client { socket, input, identity, begins, place, front, since }));
        }
        (Err(error), _) => {
            tracing::warn!(%error, "a client is hung up on: its session cannot leave with its database");
            hung_up(front);
        }
        (_, Err(error)) => {
            tracing::warn!(%error, "a client's socket could not be taken over");
            hung_up(front);
        }
    }
}

/// Where a client is in its transaction, in the protocol's words.
fn status(status: Status) -> protocol::Status {
    match status {
        Status::Idle => protocol::Status::Idle,
        Status::Transaction => protocol::Status::Transaction,
        Status::Failed => protocol::Status::Failed,
    }
}

/// Longer texts are not kept until their first statement is over, so that it cannot be taken back.
const AGAIN_BYTES_MAX: usize = 64 << 10;

struct Connection<S> {
    session: Session,
    wire: ClientWire<S>,
    /// Whether it goes on elsewhere.
    leaves: bool,
    /// Whether there may be an elsewhere.
    may_move: bool,
}

impl<S: Socket> Connection<S> {
    /// A text whose first statement was taken back is the next message again, and nothing was said of it.
    fn put_back_query(&mut self, text: Option<String>, before: usize) -> End {
        self.wire.output().bytes.truncate(before);
        let body = [text.unwrap_or_default().as_bytes(), &[0]].concat();
        self.wire.wire.put_back(b'Q', &body);
        End::TakenBack
    }
}

impl<S: Socket> protocol::Connection for Connection<S> {
    type Socket = S;
    type End = End;

    fn wire(&mut self) -> &mut Wire<S> {
        &mut self.wire.wire
    }

    fn fatal(Report { state, message, hint, .. }: Report) -> End {
        let error = SqlError::new(state, message);
        End::Fatal(match hint {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }

    fn ended(end: End) -> protocol::End {
        match end {
            End::Client(error) => protocol::End::Client(error),
            End::Fatal(error) => protocol::End::Fatal(report(error)),
            End::TakenBack => protocol::End::Leaves,
        }
    }

    async fn begin(&mut self, is_simple: bool) {
        // A simple query is answered with what Bind and Execute are.
        self.session.begin(if is_simple { 2 } else { 1 }).await;
    }

    async fn query(&mut self, text: String) -> Served<protocol::Status> {
        if let Some(told) = self.signals(&text).await {
            return Ok(status(told));
        }
        let again = (self.may_move && text.len() <= AGAIN_BYTES_MAX).then(|| text.clone());
        let before = self.wire.output().bytes.len();
        let outcome = match self.session.split(&mut self.wire, text).await? {
            Ok(statements) => match self.statements(statements, again.is_some()).await {
                Err(End::TakenBack) => return Err(self.put_back_query(again, before)),
                done => done?,
            },
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.wire.output().error(&report(error));
        }
        Ok(status(self.session.told(&mut self.wire).await))
    }

    async fn parse(&mut self, parse: Parse) -> Served<Result<(), Report>> {
        let name = parse.name.unwrap_or_default();
        let parsed = self.session.parse(&mut self.wire, name, parse.query, parse.type_oids).await?;
        Ok(parsed.map_err(report))
    }

    async fn bind(&mut self, bind: Bind) -> Served<Result<(), Report>> {
        Ok(self.bind(bind).await?.map_err(report))
    }

    async fn describe(&mut self, describe: Describe) -> Served<Result<(), Report>> {
        let name = describe.name.unwrap_or_default();
        Ok(self.describe(describe.target_type, &name).await?.map_err(report))
    }

    async fn execute(&mut self, execute: Execute) -> Served<Result<(), Report>> {
        let (name, rows_max) = (execute.name.unwrap_or_default(), usize::try_from(execute.max_rows).unwrap_or(0));
        match self.execute(&name, rows_max).await {
            Err(End::TakenBack) => {
                let body = [name.as_bytes(), &[0], &execute.max_rows.to_be_bytes()].concat();
                self.wire.wire.put_back(b'E', &body);
                Err(End::TakenBack)
            }
            done => Ok(done?.map_err(report)),
        }
    }

    async fn close(&mut self, close: Close) -> Served<Result<(), Report>> {
        let name = close.name.unwrap_or_default();
        let closed = match close.target_type {
            b'S' => self.session.close_statement(&mut self.wire, &name).await?,
            _ => self.session.close_portal(&mut self.wire, &name).await?,
        };
        Ok(closed.map_err(report))
    }

    /// A transaction that the client did not begin ends here.
    async fn sync(&mut self) -> Served<protocol::Status> {
        if self.may_move {
            self.session.waits_as(Waiting::IsTakenBack);
        }
        let finished = self.session.finish(&mut self.wire).await;
        self.session.waits_as(Waiting::Stays);
        if let Err(End::TakenBack) = finished {
            self.wire.wire.put_back(b'S', &[]);
        }
        if let Err(error) = finished? {
            self.wire.output().error(&report(error));
        }
        Ok(status(self.session.told(&mut self.wire).await))
    }

    async fn gate(&mut self) -> Served<()> {
        self.session.gate().await
    }

    fn rest(&mut self) {
        self.session.pay();
    }

    fn patience(&self) -> Option<(Duration, Report)> {
        let Timeouts { idle_in_transaction, idle, .. } = self.session.timeouts();
        let (millis, state, what) = match self.session.status() {
            Status::Idle => (idle, "57P05", "idle-session"),
            Status::Transaction | Status::Failed => (idle_in_transaction, "25P03", "idle-in-transaction"),
        };
        let report = || Report::new(state, format!("terminating connection due to {what} timeout"));
        (millis > 0).then(|| (Duration::from_millis(millis.into()), report()))
    }

    fn terminated(&self) -> impl Future<Output = Report> + use<S> {
        let termination = Arc::clone(self.session.termination());
        async move {
            termination.asked().await;
            report(termination.error())
        }
    }

    fn dismissed(&self, may_leave: bool) -> impl Future<Output = Dismissal> + use<S> {
        let (termination, dismissed) = (Arc::clone(self.session.termination()), self.session.dismissed(may_leave));
        async move {
            match dismissed.await {
                true => Dismissal::Fatal(report(termination.error())),
                false => Dismissal::Leaves,
            }
        }
    }

    fn leaves(&mut self) {
        self.leaves = true;
    }

    fn heard(&self) -> impl Future<Output = ()> + use<S> {
        self.session.heard()
    }

    async fn tell(&mut self) {
        self.session.told(&mut self.wire).await;
    }
}
