//! Clients of this node whose databases are on others.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::connection::Beginning;
use async_trait::async_trait;
use bytes::BytesMut;
use futures::future::{OptionFuture, join_all};
use parking_lot::Mutex;
use savanna_epoch::{NodeId, ShardId};
use savanna_pgwire_connection::{Output, Report};
use savanna_pgwire_login::Socket;
use savanna_rpc::{Method, MethodTable, Request, Route, Router, RpcError, Service, Transport, call, decode_value};
use savanna_tenants_host::{
    Acquaintance, Backend, Identity, Key, Others, Place, RootExpectation, Signal, SqlError, TenantId, Tenure,
    error::state, node_of, number_of, shards::shard,
};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use super::{
    calls::{
        Adopt, Cancel, Know, ListBackends, Open, OpenRequest, Opening, Refused, Remove, Save, SayToBack, SayToFront,
        SessionName, SignalBackend, Space, backend, sent,
    },
    felt::{BEHIND_MAX, Felt, Watches},
    line::{Ends, Line, LineImage, ORPHANED, PART_BYTES, Pause, SILENCE, WAITING_BYTES_MAX},
    stream::{Part, Which},
    unanswered::Unanswered,
};

/// A client's bytes are read so many at once, and more when so many come: half a message has the other node wait for an answer to it.
const READ_BYTES_MIN: usize = 4 << 10;
/// How long a node has for one request, over all attempts.
const BACK_TIME: Duration = Duration::from_secs(15);
/// How long clients are hung up when their front stops.
const HANG_UP_TIME: Duration = Duration::from_millis(300);
/// How long a node has until all that is committed is in the storage: longer than that takes it at most.
const SAVE_TIME: Duration = Duration::from_secs(30);
/// How long a cancel request is tried, how many are at once, and how many nodes are asked, the one first that the key names.
const CANCEL_TIME: Duration = Duration::from_secs(2);
const CANCELS_MAX: usize = 64;
const NODES_MAX: usize = 16;
/// Between two attempts to ask a node.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// How long another node is asked for its connections.
const BACKENDS_TIME: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody waits yet because of a move, when it is asked what was felt of it.
const FELT_ROUND: Duration = Duration::from_millis(5);
/// What a client that comes along with its database has said within this time, it has said before.
const SAID_BEFORE: Duration = Duration::from_millis(1);
/// How long another node is asked whether it has space.
const SPACE_TIME: Duration = Duration::from_secs(2);

/// Which databases there are, wherever they are, and where new ones are to be.
#[async_trait]
pub trait Names: Send + Sync {
    /// The database of a name, if there is one.
    ///
    /// # Errors
    /// 58000 if that is not known.
    async fn tenant(&self, name: &str) -> Result<Option<TenantId>, SqlError>;

    /// Whether somebody who lives has a database, as far as this node knows.
    fn has_owner(&self, tenant: TenantId) -> bool;

    /// Where a new database is to be that some nodes did not take; none if no other node is left that gets anything new.
    fn place_for_new(&self, failed: &BTreeSet<NodeId>) -> Option<Place>;

    /// What has to be so still when a new database is made on this node; none if this node gets nothing new.
    fn place_here(&self) -> Option<Vec<RootExpectation>>;

    /// The nodes that live, as far as this node knows.
    fn nodes(&self) -> Vec<NodeId>;

    /// Those of them that may have databases.
    fn hosts(&self) -> Vec<NodeId>;
}

/// What ends the reason of who is asked for a database that was dropped.
const IS_NO_MORE: &str = " is no more";

/// The answer to who asks for the shard of a database that was dropped.
#[must_use]
pub fn retired(shard: &ShardId) -> RpcError {
    RpcError::Refused { reason: format!("{shard}{IS_NO_MORE}") }
}

fn is_no_more(error: &RpcError) -> bool {
    matches!(error, RpcError::Refused { reason } if reason.ends_with(IS_NO_MORE))
}

/// Asks the nodes that have the databases, and relays clients to them.
pub struct Front {
    node: NodeId,
    router: Router,
    transport: Arc<dyn Transport>,
    names: Arc<dyn Names>,
    /// One for each cancel request at once.
    cancels: Semaphore,
    /// Where clients are relayed.
    runtime: Handle,
    clients: Mutex<HashMap<u64, Arc<Relayed>>>,
    watches: Watches,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("node", &self.node)
            .field("clients", &self.clients.lock().len())
            .finish_non_exhaustive()
    }
}

/// A client that is relayed.
struct Relayed {
    tenant: TenantId,
    line: Line,
    /// Since when it waits for an answer, if it does.
    asked: Mutex<Option<Instant>>,
    /// What the front listens to, once it knows.
    opening: OnceLock<Opening>,
}

impl Front {
    /// Of this node, which asks the others over the transport and finds those that have databases by the router. Clients are relayed on the
    /// runtime that this is called on.
    #[must_use]
    pub fn new(node: NodeId, router: Router, transport: Arc<dyn Transport>, names: Arc<dyn Names>) -> Arc<Self> {
        let (cancels, runtime, clients) = (Semaphore::new(CANCELS_MAX), Handle::current(), Mutex::default());
        let watches = Watches::default();
        Arc::new(Self { node, router, transport, names, cancels, runtime, clients, watches })
    }

    /// Begins to note what clients feel of a move, which has a number, of a database.
    pub fn watch(&self, id: u64, tenant: TenantId) {
        self.watches.begin(id, tenant, self.router.repeats_of(&shard(tenant)), Instant::now());
    }

    /// What clients have felt of a move that is [watched](Self::watch): how long they waited, if it is asked for the time in which nobody was served, between so long
    /// ago and so long ago; those who wait because of that are waited for. Otherwise what else they have felt, and the watch ends.
    pub async fn felt(&self, id: u64, window: Option<(Duration, Duration)>) -> Felt {
        let Some(tenant) = self.watches.tenant(id) else { return Felt::default() };
        let Some((began, ended)) = window else {
            return self.watches.end(id, self.router.repeats_of(&shard(tenant)));
        };
        let now = Instant::now();
        let ago = |age| now.checked_sub(age).unwrap_or(now);
        let (began, ended) = (ago(began), ago(ended));
        let waiting = || {
            let clients = self.clients.lock();
            let asked =
                clients.values().filter(|client| client.tenant == tenant).filter_map(|client| *client.asked.lock());
            asked.filter(|asked| *asked < ended).collect::<Vec<_>>()
        };
        while Instant::now() < ended + BEHIND_MAX && !waiting().is_empty() {
            sleep(FELT_ROUND).await;
        }
        Felt { waits: self.watches.waits(id, (began, ended), waiting(), Instant::now()), ..Felt::default() }
    }

    /// A client of this node that was not relayed is hung up on because its database moves, or has not found its session again.
    pub(crate) fn has_hung_up(&self, tenant: TenantId) {
        self.watches.failed(tenant);
    }

    /// Where clients are relayed.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Tells where databases are by now, of those that it has asked for.
    pub fn learn(&self, route_of: impl Fn(&ShardId) -> Option<Route>) {
        self.router.learn(route_of);
    }

    /// How often a request was sent again.
    pub fn repeats(&self) -> u64 {
        self.router.repeats()
    }

    /// Lets all clients go, and tells the nodes that have their sessions, as far as they hear it soon; the others find out.
    pub async fn hang_up(&self) {
        let clients: Vec<_> = self.clients.lock().values().cloned().collect();
        clients.iter().for_each(|client| client.line.lose("this node relays clients no more"));
        let all_gone = async {
            while !self.clients.lock().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // The others are cut off.
        let _ = timeout(HANG_UP_TIME, all_gone).await;
    }

    /// What backs ask: `front/..`.
    #[must_use]
    pub fn service(self: Arc<Self>) -> Arc<dyn Service> {
        Arc::new(MethodTable::new().method(PhantomData::<SayToFront>, move |_, (number, opening, part)| {
            let client = self.clients.lock().get(&number).cloned();
            let heard = heard(client.as_deref(), opening, part);
            async move { heard }
        }))
    }

    /// Ends the statement of the connection that has the key, on the node that the key names. Of too many requests at once, those that come
    /// last are left out: nobody has shown yet who it is.
    pub(crate) async fn cancel(&self, key: Key) {
        let Ok(_place) = self.cancels.try_acquire() else {
            tracing::debug!("a cancel request is left out: too many came at once");
            return;
        };
        // A session that has moved is on another node than its key says.
        let mut nodes: Vec<_> = self.names.nodes().into_iter().filter(|node| *node != self.node).collect();
        nodes.sort_by_key(|node| number_of(node) != node_of(key));
        let cancel = |node| async move {
            if let Err(error) = self.ask_node::<Cancel>(&node, &key, CANCEL_TIME).await {
                tracing::debug!(%node, %error, "a cancel request did not reach the node that has the session");
            }
        };
        join_all(nodes.into_iter().take(NODES_MAX).map(cancel)).await;
    }

    /// Relays a client that has come in, until it or its session ends. One whose database has moved had left with it `since` then.
    pub(crate) async fn relay<S: Socket>(
        &self,
        mut socket: S,
        input: &BytesMut,
        tenant: TenantId,
        identity: Identity,
        (begins, since): (Beginning, Option<Instant>),
    ) -> io::Result<()> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        let session = SessionName { front: self.node.clone(), number: u64::from_ne_bytes(number) };
        let (line, asked, opening) = (Line::default(), Mutex::default(), OnceLock::new());
        let client = Arc::new(Relayed { tenant, line, asked, opening });
        client.line.change(|ends| ends.side.say(input));
        self.clients.lock().insert(session.number, Arc::clone(&client));
        let _forgotten = Forgotten { front: self, number: session.number };

        let shard = shard(tenant);
        let Identity { user, database, administrator, .. } = identity;
        let mut unanswered = match &begins {
            Beginning::New(_) => Unanswered::default(),
            Beginning::Departed(departed) => Unanswered::of_departed(departed.transaction()),
        };
        unanswered.ask(input);
        if unanswered.is_waiting() {
            *client.asked.lock() = Some(since.unwrap_or_else(Instant::now));
        }
        let request =
            OpenRequest { session: session.clone(), tenant, user, database: database.clone(), administrator, begins };
        let opening = match self.ask::<Open>(&shard, &request).await {
            Ok(Ok(opening)) => opening,
            Ok(Err(Refused(told))) => {
                self.watches.failed(tenant);
                return send_away(socket, &told).await;
            }
            Err(error) => {
                self.watches.failed(tenant);
                return send_away(socket, &unreached(&database, &error).bytes).await;
            }
        };
        client.opening.get_or_init(|| opening);
        let relay = Relay { front: self, shard, session, opening, client: &client, line: &client.line };
        let outcome = relay.run(&mut socket, &mut unanswered, since).await;
        if !unanswered.has_left() && !matches!(outcome, Err(Ended::Client(_))) {
            self.watches.failed(tenant);
        }
        match outcome {
            Ok(()) => socket.close().await,
            // In the middle of a message, more bytes would be taken for the rest of it.
            Err(Ended::Unreached(error)) if unanswered.are_answers_whole() => {
                let told = match unanswered.may_have_committed() {
                    true => in_doubt(&database, &error),
                    false => unreached(&database, &error),
                };
                return send_away(socket, &told.bytes).await;
            }
            Err(Ended::Unreached(error)) => {
                tracing::warn!(%error, database, "a client is left in the middle of an answer: its database is not reached");
                return Ok(());
            }
            Err(Ended::Client(error)) => {
                relay.hang_up().await;
                return Err(error);
            }
        }
        relay.hang_up().await;
        Ok(())
    }

    /// Hands a session over to the node that its database has gone to. If that fails, its front finds that it is gone.
    pub(super) async fn hand_over(
        &self,
        tenant: TenantId,
        (session, opening): (SessionName, Opening),
        (identity, begins): (Identity, Beginning),
        line: LineImage,
    ) -> io::Result<()> {
        let Identity { user, database, administrator, .. } = identity;
        let request = OpenRequest { session, tenant, user, database, administrator, begins };
        match self.ask::<Adopt>(&shard(tenant), &(request, opening, line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Refused(_))) => {
                Err(io::Error::other("the node that has the database by now has no place for its session"))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    async fn ask<M: Method>(&self, shard: &ShardId, request: &M::Request) -> Result<M::Reply, RpcError> {
        self.ask_within::<M>(shard, request, BACK_TIME).await
    }

    async fn ask_within<M: Method>(
        &self,
        shard: &ShardId,
        request: &M::Request,
        time: Duration,
    ) -> Result<M::Reply, RpcError> {
        let reply = self.router.call(shard, Request::of::<M>(request, time)?).await?;
        decode_value(M::NAME, &reply)
    }

    /// Asks a node for something that is no database's, again until the time is over.
    async fn ask_node<M: Method>(
        &self,
        node: &NodeId,
        request: &M::Request,
        time: Duration,
    ) -> Result<M::Reply, RpcError> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match call::<M>(&*self.transport, node, request, left).await {
                Err(error) if error.may_repeat(M::IDEMPOTENT) && Instant::now() + ASK_PAUSE < until => {
                    sleep(ASK_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }
}

#[async_trait]
impl Others for Front {
    async fn tenant(&self, name: &str) -> Result<Option<TenantId>, SqlError> {
        self.names.tenant(name).await
    }

    fn has_owner(&self, tenant: TenantId) -> bool {
        self.names.has_owner(tenant)
    }

    fn place_for_new(&self, failed: &BTreeSet<NodeId>) -> Option<Place> {
        self.names.place_for_new(failed)
    }

    fn place_here(&self) -> Option<Vec<RootExpectation>> {
        self.names.place_here()
    }

    async fn expect_space(&self, at: &Tenure) -> Result<(), SqlError> {
        let expected = self.ask_node::<Space>(&at.node, &(), SPACE_TIME).await;
        expected.map_err(|error| not_asked(&error, "whether there is space"))?.map_err(Into::into)
    }

    async fn acquaintance(&self, tenant: TenantId, user: &str) -> Result<Acquaintance, SqlError> {
        let request = (tenant, user.to_owned());
        let known =
            self.ask::<Know>(&shard(tenant), &request).await.map_err(|error| not_asked(&error, "who may come in"));
        known?.map(Into::into).map_err(Into::into)
    }

    async fn save(&self, tenant: TenantId) -> Result<(), SqlError> {
        let saved = self.ask_within::<Save>(&shard(tenant), &tenant, SAVE_TIME).await;
        saved.map_err(|error| not_asked(&error, "what is committed"))?.map_err(Into::into)
    }

    async fn remove(&self, tenant: TenantId, name: &str) -> Result<(), SqlError> {
        let request = (tenant, name.to_owned());
        let removed = self.ask::<Remove>(&shard(tenant), &request).await;
        removed.map_err(|error| not_asked(&error, "whether the database was dropped"))?.map_err(Into::into)
    }

    async fn backends(&self) -> (Vec<Backend>, Vec<NodeId>) {
        let others = self.names.hosts().into_iter().filter(|node| *node != self.node);
        let asking = others.map(|node| async move {
            let listed = self.ask_node::<ListBackends>(&node, &(), BACKENDS_TIME).await;
            (node, listed)
        });
        let (mut known, mut silent) = (Vec::new(), Vec::new());
        for (node, listed) in join_all(asking).await {
            match listed {
                Ok(listed) => known.extend(listed.into_iter().map(|sent| backend(sent, Some(&node)))),
                Err(error) => {
                    tracing::debug!(%error, %node, "a node did not say which connections it has");
                    silent.push(node);
                }
            }
        }
        (known, silent)
    }

    async fn signal(&self, backend: &Backend, signal: Signal) {
        let Some(node) = backend.node.as_deref().map(NodeId::new) else { return };
        let request = (sent(backend.clone()), signal == Signal::Terminate);
        if let Err(error) = self.ask_node::<SignalBackend>(&node, &request, CANCEL_TIME).await {
            tracing::warn!(%error, %node, pid = backend.pid, "a connection on another node was perhaps not told to end");
        }
    }
}

/// What is said when the node of a database was not asked.
fn not_asked(error: &RpcError, unknown: &str) -> SqlError {
    if is_no_more(error) {
        return SqlError::new(state::INVALID_CATALOG_NAME, "the database was dropped");
    }
    SqlError::new("57P03", format!("{unknown} is not known while its node is not reached: {error}"))
        .hint("Try again later.")
}

/// Forgets a session when its client is not relayed any more.
struct Forgotten<'a> {
    front: &'a Front,
    number: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.front.clients.lock().remove(&self.number);
    }
}

/// Why a client is not relayed any more, when it was not its session that ended.
enum Ended {
    Client(io::Error),
    Unreached(RpcError),
}

/// A client on its way.
struct Relay<'a> {
    front: &'a Front,
    shard: ShardId,
    session: SessionName,
    opening: Opening,
    client: &'a Relayed,
    line: &'a Line,
}

type Said<'a> = Pin<Box<dyn Future<Output = Result<Part, RpcError>> + Send + 'a>>;

impl<'a> Relay<'a> {
    /// Carries bytes both ways until one side has ended. What the client said while it was on its way here, it has said `since` it left at the latest.
    async fn run(
        &self,
        socket: &mut impl Socket,
        unanswered: &mut Unanswered,
        mut since: Option<Instant>,
    ) -> Result<(), Ended> {
        let began = Instant::now();
        let mut saying: Option<Said<'a>> = None;
        let mut pause = Pause::new();
        let mut input = BytesMut::new();
        let mut client_has_ended = false;
        loop {
            let answer = self.line.change(|ends| ends.heard.split());
            if !answer.is_empty() {
                self.write(socket, &answer).await.map_err(Ended::Client)?;
                if unanswered.answer(&answer) {
                    self.has_answered(unanswered.is_waiting());
                }
                continue;
            }
            if self.line.look(Ends::is_over) {
                return Ok(());
            }
            if saying.is_none() && self.line.look(|ends| ends.side.has_news()) {
                saying = Some(self.say(Which::News));
            }
            let room = self.line.look(|ends| ends.side.waiting()) < WAITING_BYTES_MAX;
            make_room(&mut input);
            tokio::select! {
                biased;
                Some(said) = OptionFuture::from(saying.as_mut()) => {
                    saying = None;
                    let heard = self.line.hear(said.map_err(Ended::Unreached)?);
                    heard.map_err(|error| Ended::Unreached(RpcError::Malformed { reason: error.to_string() }))?;
                    if self.line.look(|ends| ends.side.is_doubtful()) {
                        // There was no room for it.
                        self.line.change(|ends| ends.side.doubt());
                        let (say, mut longer) = (self.say(Which::News), pause);
                        pause = pause.longer();
                        saying = Some(Box::pin(async move {
                            longer.wait().await;
                            say.await
                        }));
                    } else {
                        pause = Pause::new();
                    }
                }
                () = self.line.until(|ends| (!ends.heard.is_empty() || ends.is_over()).then_some(())) => {}
                read = socket.read(&mut input), if room && !client_has_ended => {
                    client_has_ended = read.map_err(Ended::Client)? == 0;
                    unanswered.ask(&input);
                    if client_has_ended {
                        unanswered.leave();
                    }
                    let asked = since.take().filter(|_| began.elapsed() < SAID_BEFORE);
                    if unanswered.is_waiting() {
                        self.client.asked.lock().get_or_insert_with(|| asked.unwrap_or_else(Instant::now));
                    }
                    self.line.change(|ends| {
                        ends.side.say(&input);
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

    /// The client has its answer to what it asked first, and waits for the next one or does not.
    fn has_answered(&self, is_waiting: bool) {
        let now = Instant::now();
        let asked = std::mem::replace(&mut *self.client.asked.lock(), is_waiting.then_some(now));
        if let Some(asked) = asked {
            self.front.watches.answered(self.client.tenant, asked, now);
        }
    }

    /// Writes to the client. One that does not read is waited for as long as there is a session.
    async fn write(&self, socket: &mut impl Socket, bytes: &[u8]) -> io::Result<()> {
        let ended = async {
            self.line.until(|ends| (ends.side.other_has_ended() || ends.lost.is_some()).then_some(())).await;
            sleep(ORPHANED).await;
        };
        tokio::select! {
            biased;
            written = socket.write_all(bytes) => written,
            () = ended => Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not take the end of its session")),
        }
    }

    /// Tells the other side that its end was heard, and that the client says nothing more. If that is lost, it finds out.
    async fn hang_up(&self) {
        self.line.change(|ends| ends.side.end());
        if let Err(error) = self.say(Which::Unheard).await {
            tracing::debug!(%error, "a session was not told that its client has gone");
        }
    }

    fn say(&self, which: Which) -> Said<'a> {
        let (front, shard) = (self.front, self.shard.clone());
        let request = (self.session.clone(), self.opening, self.line.part(which));
        Box::pin(async move { front.ask::<SayToBack>(&shard, &request).await })
    }
}

/// Empties what was read, for the next reading.
fn make_room(input: &mut BytesMut) {
    let was_full = input.len() == input.capacity();
    input.clear();
    if was_full {
        input.reserve((2 * input.capacity()).clamp(READ_BYTES_MIN, PART_BYTES));
    }
}

fn heard(client: Option<&Relayed>, opening: Opening, part: Part) -> Result<Part, RpcError> {
    let gone = || RpcError::Refused { reason: "the client has gone".to_owned() };
    let client = client.ok_or_else(gone)?;
    match client.opening.get() {
        Some(known) if *known == opening => {}
        Some(_) => return Err(gone()),
        // The reply that says what to listen to is on its way.
        None => return Err(RpcError::Frozen { retry_after: Duration::from_millis(1) }),
    }
    client.line.hear(part).map_err(|error| RpcError::Malformed { reason: error.to_string() })?;
    Ok(client.line.acknowledgement())
}

async fn send_away(mut socket: impl Socket, told: &[u8]) -> io::Result<()> {
    socket.write_all(told).await?;
    socket.close().await;
    Ok(())
}

/// What a client is told whose database is not reached, or was dropped after it had come in.
fn unreached(database: &str, error: &RpcError) -> Output {
    if is_no_more(error) {
        return fatal(&Report::new(state::INVALID_CATALOG_NAME, format!("database \"{database}\" does not exist")));
    }
    let message = format!("the node that has database \"{database}\" is not reached: {error}");
    fatal(&Report::new("57P01", message).with_hint("Connect again. A transaction that was open is rolled back."))
}

/// What a client is told of whose last statement nobody knows whether it was committed.
fn in_doubt(database: &str, error: &RpcError) -> Output {
    let message = format!(
        "the node that has database \"{database}\" is not reached, and whether the transaction was committed is not known: {error}"
    );
    let hint = "Connect again, and look whether it was before you do it again.";
    fatal(&Report::new("08007", message).with_hint(hint))
}

fn fatal(report: &Report) -> Output {
    let mut output = Output::default();
    output.fatal(report);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_whole_however_many_came_before() {
        let mut input = BytesMut::new();
        for _ in 0..1000 {
            make_room(&mut input);
            assert!(input.is_empty() && input.capacity() >= READ_BYTES_MIN);
            input.extend_from_slice(&[0; 36]);
        }
        for _ in 0..20 {
            make_room(&mut input);
            input.resize(input.capacity(), 0);
        }
        assert_eq!(input.capacity(), PART_BYTES);
    }

    #[test]
    fn that_a_database_was_dropped_is_told_apart_from_a_node_that_is_not_reached() {
        let told = |error: &RpcError| String::from_utf8_lossy(&unreached("shop", error).bytes).into_owned();
        let dropped = told(&retired(&shard(7)));
        assert!(dropped.contains("C3D000\0Mdatabase \"shop\" does not exist\0"), "{dropped}");
        let away = told(&RpcError::Refused { reason: "it is busy".to_owned() });
        assert!(away.contains("C57P01\0") && away.contains("it is busy"), "{away}");
    }
}
