//! Clients of this node whose databases are on others.

use std::{collections::HashMap, io, marker::PhantomData, pin::Pin, sync::Arc, time::Duration};

use bytes::BytesMut;
use futures::future::OptionFuture;
use parking_lot::Mutex;
use savanna_epoch::{NodeId, ShardId};
use savanna_pgwire_connection::{Output, Report};
use savanna_pgwire_login::Socket;
use savanna_rpc::{Method, MethodTable, Request, Router, RpcError, Service, decode_value};
use savanna_tenants_host::{Access, Identity, Key, TenantId};
use tokio::time::sleep;

use super::{
    calls::{
        Cancel, Login, LoginReply, LoginRequest, Open, OpenRequest, Refused, SayToBack, SayToFront, SessionName, names,
        shard,
    },
    line::{Line, SILENCE, WAITING_BYTES_MAX},
    stream::{Part, Which},
};

/// How long a node has for one request, over all attempts.
const BACK_TIME: Duration = Duration::from_secs(15);

/// Asks the nodes that have the databases, and relays clients to them.
pub struct Front {
    node: NodeId,
    router: Router,
    lines: Mutex<HashMap<u64, (TenantId, Arc<Line>)>>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("node", &self.node)
            .field("clients", &self.lines.lock().len())
            .finish_non_exhaustive()
    }
}

/// How a client may come in, and where it goes then.
pub(crate) struct Entry {
    pub(crate) access: Access,
    /// Told once it has come in.
    pub(crate) tenant: Result<TenantId, Output>,
}

impl Front {
    /// Of this node, which finds the others by the router.
    #[must_use]
    pub fn new(node: NodeId, router: Router) -> Arc<Self> {
        Arc::new(Self { node, router, lines: Mutex::default() })
    }

    /// What backs ask: `front/..`.
    #[must_use]
    pub fn service(self: Arc<Self>) -> Arc<dyn Service> {
        Arc::new(MethodTable::new().method(PhantomData::<SayToFront>, move |_, (number, part)| {
            let line = self.lines.lock().get(&number).map(|(_, line)| Arc::clone(line));
            async move { heard(line, part).await }
        }))
    }

    /// Asks how a client may come in.
    pub(crate) async fn login(&self, user: &str, database: &str, is_local: bool) -> Result<Entry, Output> {
        let request = LoginRequest { user: user.to_owned(), database: database.to_owned(), is_local };
        let reply = self.ask::<Login>(&names(), &request).await.map_err(|error| unreached(database, &error))?;
        let LoginReply { tenant, access } = reply.map_err(output)?;
        Ok(Entry { access: access.into(), tenant: tenant.map_err(output) })
    }

    /// Ends the statement of the connection that has the key, wherever clients of this node have theirs.
    pub(crate) async fn cancel(&self, key: Key) {
        let mut tenants: Vec<TenantId> = self.lines.lock().values().map(|(tenant, _)| *tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            if let Err(error) = self.ask::<Cancel>(&shard(tenant), &key).await {
                tracing::warn!(%error, tenant, "a cancel request did not reach the node that has the database");
            }
        }
    }

    /// Relays a client that has come in, until it or its session ends.
    pub(crate) async fn relay<S: Socket>(
        &self,
        mut socket: S,
        input: &BytesMut,
        tenant: TenantId,
        identity: Identity,
        settings: Vec<(String, String)>,
    ) -> io::Result<()> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        let session = SessionName { front: self.node.clone(), number: u64::from_ne_bytes(number) };
        let line = Arc::new(Line::default());
        line.change(|ends| ends.side.say(input));
        self.lines.lock().insert(session.number, (tenant, Arc::clone(&line)));
        let _forgotten = Forgotten { front: self, number: session.number };

        let shard = shard(tenant);
        let Identity { user, database, administrator } = identity;
        let request =
            OpenRequest { session: session.clone(), tenant, user, database: database.clone(), administrator, settings };
        let mut relayed = match self.ask::<Open>(&shard, &request).await {
            Ok(()) => Relay { front: self, shard, session, line, socket: &mut socket }.run().await,
            Err(error) => Err(Ended::Unreached(error)),
        };
        if let Err(Ended::Unreached(error)) = &relayed {
            let told = unreached(&database, error);
            relayed = socket.write_all(&told.bytes).await.map_err(Ended::Client);
        }
        socket.close().await;
        match relayed {
            Err(Ended::Client(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn ask<M: Method>(&self, shard: &ShardId, request: &M::Request) -> Result<M::Reply, RpcError> {
        let reply = self.router.call(shard, Request::of::<M>(request, BACK_TIME)?).await?;
        decode_value(M::NAME, &reply)
    }
}

/// Forgets a session when its client is not relayed any more.
struct Forgotten<'a> {
    front: &'a Front,
    number: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.front.lines.lock().remove(&self.number);
    }
}

/// Why a client is not relayed any more, when it was not its session that ended.
enum Ended {
    Client(io::Error),
    Unreached(RpcError),
}

/// A client on its way.
struct Relay<'a, S> {
    front: &'a Front,
    shard: ShardId,
    session: SessionName,
    line: Arc<Line>,
    socket: &'a mut S,
}

type Said<'a> = Pin<Box<dyn Future<Output = Result<Part, RpcError>> + Send + 'a>>;

impl<'a, S: Socket> Relay<'a, S> {
    /// Carries bytes both ways until one side has ended.
    async fn run(&mut self) -> Result<(), Ended> {
        let mut saying: Option<Said<'a>> = None;
        let mut input = BytesMut::new();
        let mut client_has_ended = false;
        loop {
            let answer = self.line.change(|ends| ends.heard.split());
            if !answer.is_empty() {
                self.socket.write_all(&answer).await.map_err(Ended::Client)?;
                continue;
            }
            if self.line.change(|ends| ends.is_over() || ends.side.is_heard_out()) {
                // The other side is told that it was heard; if that is lost, it finds out.
                let _ = self.say(Which::Unheard).await;
                return Ok(());
            }
            if saying.is_none() && self.line.change(|ends| ends.side.has_news()) {
                saying = Some(self.say(Which::News));
            }
            let room = self.line.change(|ends| ends.side.waiting()) < WAITING_BYTES_MAX;
            tokio::select! {
                biased;
                Some(said) = OptionFuture::from(saying.as_mut()) => {
                    saying = None;
                    let heard = self.line.hear(said.map_err(Ended::Unreached)?).await;
                    heard.map_err(|error| Ended::Unreached(RpcError::Malformed { reason: error.to_string() }))?;
                    // What was not taken for want of room is said again.
                    self.line.change(|ends| ends.side.doubt());
                }
                () = self.line.until(|ends| (!ends.heard.is_empty() || ends.is_over()).then_some(())) => {}
                read = self.socket.read(&mut input), if room && !client_has_ended => {
                    client_has_ended = read.map_err(Ended::Client)? == 0;
                    let said = input.split();
                    self.line.change(|ends| {
                        ends.side.say(&said);
                        if client_has_ended {
                            ends.side.end();
                        }
                    });
                }
                // Whether the session is still there shows when it is asked.
                () = sleep(SILENCE), if saying.is_none() => saying = Some(self.say(Which::Unheard)),
            }
        }
    }

    fn say(&self, which: Which) -> Said<'a> {
        let (front, shard) = (self.front, self.shard.clone());
        let request = (self.session.clone(), self.line.part(which));
        Box::pin(async move { front.ask::<SayToBack>(&shard, &request).await })
    }
}

async fn heard(line: Option<Arc<Line>>, part: Part) -> Result<Part, RpcError> {
    let Some(line) = line else {
        return Err(RpcError::Refused { reason: "the client has gone".to_owned() });
    };
    line.hear(part).await.map_err(|error| RpcError::Malformed { reason: error.to_string() })?;
    Ok(line.acknowledgement())
}

/// What a client is told whose database is not reached.
fn unreached(database: &str, error: &RpcError) -> Output {
    let message = format!("the node that has database \"{database}\" is not reached: {error}");
    let report = Report::new("57P01", message);
    let mut output = Output::default();
    output.fatal(&report.with_hint("Connect again. What was not answered may have been done."));
    output
}

fn output(Refused(bytes): Refused) -> Output {
    Output { bytes: bytes.into() }
}
