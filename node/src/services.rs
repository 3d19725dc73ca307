//! The services of a node: each starts, fails and stops alone.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use savanna_epoch::ShardId;
use savanna_hadoop::ServerError as FilesServerError;
use savanna_http::{Credentials, Facts, HttpFace, HttpLimits};
use savanna_identity::{Tls, Token};
use savanna_keys_host::Spread;
use savanna_lambda::ServerError as FunctionsServerError;
use savanna_pgwire::{Acceptor, Admission, CLIENTS_MAX};
use savanna_pgwire_tenants::{Back, ServerError};
use savanna_resp::{Server as KeysServer, ServerError as KeysServerError};
use savanna_streams_api::handle::SharedStreamHandle;
use savanna_tenants_host::{HostError, error::state::DISK_FULL, shards};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::board::Board;
use crate::cluster::key_moves::KeyMoves;
use crate::cluster::moves::{self, Moves};
use crate::cluster::shares::OwnLog;
use crate::cluster::{Cancels, Joined, Offer, View, gone, routed};
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::figures::{self, Busiest};
use crate::files::{self, FilesError};
use crate::functions::{self, FunctionsError};
use crate::keys::{self, KeysError};
use crate::membership::Place;
use crate::own_database::OwnDatabase;
use crate::places::clients_max;
use crate::remote::{self, RemoteKeys};
use crate::roles::{Grant, Role};
use crate::supervisor::{GiveUp, NotStarted, Started, Supervisor};
use crate::tenants::{self, TenantsError};

const ENDED_BY_ITSELF: &str = "it ended by itself; restart the node and report it with the log";

/// The streams engine as a node runs it.
pub struct StreamsService {
    /// How faces reach it.
    pub handle: SharedStreamHandle,
    /// Cancels its queries and waits for them.
    pub stop: Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>,
}

impl fmt::Debug for StreamsService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsService").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// The services that run.
#[derive(Debug)]
pub(crate) struct Services {
    board: Arc<Board>,
    stopping: watch::Sender<bool>,
    faces: Vec<(&'static str, JoinHandle<()>)>,
    streams: Option<StreamsService>,
    /// Looks after the tenants of nodes that are gone, whether or not this node's run.
    controller: JoinSet<()>,
    /// What looks after services with threads of their own.
    supervisors: Vec<JoinHandle<Result<(), NodeError>>>,
    /// The way of files to the tenants of this process.
    own_database: OwnDatabase,
}

impl Services {
    /// Starts what the configuration names. What does not start is on the board.
    pub(crate) async fn start(
        config: &NodeConfig,
        board: Arc<Board>,
        streams: StreamsService,
        facts: Facts,
        cancels: Option<&Arc<Cancels>>,
    ) -> Self {
        let (stopping, _) = watch::channel(false);
        let (faces, supervisors) = (Vec::new(), Vec::new());
        let (controller, own_database) = (JoinSet::new(), OwnDatabase::default());
        let mut services = Self { board, stopping, faces, streams: None, controller, supervisors, own_database };
        services.board.running("streams", None);
        let handle = Arc::clone(&streams.handle);
        services.streams = Some(streams);
        if config.runs("pgwire") {
            services.start_pgwire(config, handle, cancels).await;
        }
        if config.runs("http") {
            services.start_http(config, facts).await;
        }
        services
    }

    /// Streams behind the PostgreSQL protocol.
    async fn start_pgwire(&mut self, config: &NodeConfig, handle: SharedStreamHandle, cancels: Option<&Arc<Cancels>>) {
        let acceptor = match pgwire_acceptor(config) {
            Ok(acceptor) => acceptor,
            Err(reason) => return self.board.failed("pgwire", &reason),
        };
        let acceptor = match cancels {
            Some(cancels) => acceptor.among(Arc::clone(cancels.own()), Arc::clone(cancels) as _),
            None => acceptor,
        };
        self.start_face("pgwire", config, config.pgwire_port, "pgwire.port", |listener, shutdown| {
            savanna_pgwire::serve(listener, handle, acceptor, shutdown)
        })
        .await;
    }

    /// Keys behind the Redis protocol: over the log that the data directory has, or those of the node that has it open.
    pub(crate) async fn start_keys(&mut self, config: NodeConfig, place: Place) {
        if let Some(joined) = place.joined() {
            self.controller.spawn(Arc::clone(joined).control_keys(config.keys_moves));
        }
        let (board, role, giver) = (Arc::clone(&self.board), place.role("keys"), place.clone());
        let cluster_port = Mutex::new(config.keys_cluster_port);
        let start = move |role: Role, before: Option<SocketAddr>| {
            let mut config = config.clone();
            config.keys_port = before.map_or(config.keys_port, |address| address.port());
            config.keys_cluster_port = *cluster_port.lock();
            match serve_keys(&config, &place, role) {
                Ok((server, among)) => {
                    *cluster_port.lock() = config.keys_cluster_port.kept_at(server.cluster_address());
                    let gauge = server.gauge();
                    board.shows("keys", move || figures::of_keys(&gauge));
                    let ends = Arc::clone(&board);
                    server.when_asked_to_end(move || ends.ask_to_end());
                    let (stopper, board) = (server.stopper(), Arc::clone(&board));
                    Ok(Started {
                        address: Some(server.address()),
                        stop: Box::new(move || {
                            drop(among);
                            board.hides("keys");
                            stopper.stop();
                        }),
                        wait: Box::new(move || Ok(server.wait()?)),
                    })
                }
                Err(KeysError::Server(KeysServerError::Listen { address, source })) => {
                    let setting = match address.port() {
                        port if port == config.keys_port => "keys.port",
                        port if port == config.keys.tls.port => "keys.tls_port",
                        _ => "keys.cluster_port",
                    };
                    Err(NotStarted { reason: cannot_listen(address, &source, setting), passes: false })
                }
                Err(error) => {
                    let passes = matches!(&error, KeysError::Server(KeysServerError::Host(error)) if error.is_full());
                    Err(NotStarted { reason: error.to_string(), passes })
                }
            }
        };
        self.start_server("keys", role, start, giving_up("keys", &giver)).await;
    }

    /// Tenants behind the PostgreSQL protocol: those of this node, and the way to those of others. Without a port if only files need them.
    pub(crate) async fn start_tenants(&mut self, config: NodeConfig, place: Place) {
        if let Some(joined) = place.joined() {
            self.controller.spawn(Arc::clone(joined).control());
        }
        let (board, role, giver) = (Arc::clone(&self.board), place.hosts(), place.clone());
        let own = self.own_database.clone();
        let start = move |role: Role, before: Option<SocketAddr>| {
            let mut config = config.clone();
            config.tenants_port = before.map_or(config.tenants_port, |address| address.port());
            debug_assert!(matches!(role, Role::Owner(_)), "each node has tenants of its own");
            serve_tenants(&config, &place, &board, &own).map_err(|error| match error {
                TenantsError::Server(ServerError::Listen { address, source }) => {
                    NotStarted { reason: cannot_listen(address, &source, "tenants.port"), passes: false }
                }
                error => {
                    let passes =
                        matches!(&error, TenantsError::Host(HostError::Recovery(error)) if error.state == DISK_FULL);
                    NotStarted { reason: error.to_string(), passes }
                }
            })
        };
        self.start_server("tenants", role, start, giving_tenants_up(&giver)).await;
    }

    /// Files behind Hadoop's protocols.
    pub(crate) async fn start_files(&mut self, config: NodeConfig, place: Place) {
        let Place::Alone(membership) = &place else {
            let reason =
                "a node of a cluster does not serve files yet; serve them by a node that is alone, with `savanna dev`";
            return self.board.failed("files", reason);
        };
        let (board, membership, own) = (Arc::clone(&self.board), membership.clone(), self.own_database.clone());
        let start = move |_: Role, before: Option<SocketAddr>| {
            let mut config = config.clone();
            config.files_port = before.map_or(config.files_port, |address| address.port());
            let server = files::start(&config, &membership, &own).map_err(|error| {
                let passes = error.passes();
                let reason = match error {
                    FilesError::Server(FilesServerError::Listen { address, source }) => {
                        let setting = match address.port() {
                            port if port == config.files_port => "files.port",
                            port if port == config.files_data_port => "files.data_port",
                            _ => "files.http_port",
                        };
                        cannot_listen(address, &source, setting)
                    }
                    error => error.to_string(),
                };
                NotStarted { reason, passes }
            })?;
            let (shown, audit) = (server.files().clone(), server.audit().cloned());
            board.shows("files", move || figures::of_files(&shown, audit.as_ref()));
            board.shows_other("files", "webhdfs", server.http_address());
            let (stopper, board) = (server.stopper(), Arc::clone(&board));
            Ok(Started {
                address: Some(server.address()),
                stop: Box::new(move || {
                    board.hides("files");
                    stopper.stop();
                }),
                wait: Box::new(move || Ok(server.wait()?)),
            })
        };
        self.start_server("files", place.role("files"), start, giving_up("files", &place)).await;
    }

    /// Functions behind Lambda's API.
    pub(crate) async fn start_functions(&mut self, config: NodeConfig, place: Place) {
        let Place::Alone(membership) = &place else {
            let reason = "a node of a cluster does not serve functions yet; serve them by a node that is alone, with `savanna dev`";
            return self.board.failed("functions", reason);
        };
        let (board, membership) = (Arc::clone(&self.board), membership.clone());
        let start = move |_: Role, before: Option<SocketAddr>| {
            let mut config = config.clone();
            config.functions_port = before.map_or(config.functions_port, |address| address.port());
            let server = functions::start(&config, &membership).map_err(|error| {
                let passes =
                    matches!(&error, FunctionsError::Server(FunctionsServerError::Host(error)) if error.is_full());
                let reason = match error {
                    FunctionsError::Server(FunctionsServerError::Listen { address, source }) => {
                        cannot_listen(address, &source, "functions.port")
                    }
                    error => error.to_string(),
                };
                NotStarted { reason, passes }
            })?;
            let shown = server.functions().clone();
            board.shows("functions", move || figures::of_functions(&shown));
            let (stopper, board) = (server.stopper(), Arc::clone(&board));
            Ok(Started {
                address: Some(server.address()),
                stop: Box::new(move || {
                    board.hides("functions");
                    stopper.stop();
                }),
                wait: Box::new(move || Ok(server.wait()?)),
            })
        };
        self.start_server("functions", place.role("functions"), start, giving_up("functions", &place)).await;
    }

    /// Starts a service with threads of its own, and looks after it.
    async fn start_server(
        &mut self,
        name: &'static str,
        role: watch::Receiver<Role>,
        start: impl Fn(Role, Option<SocketAddr>) -> Result<Started, NotStarted> + Send + Sync + 'static,
        give_up: Arc<GiveUp>,
    ) {
        let supervisor = Supervisor { name, board: Arc::clone(&self.board), role, start: Arc::new(start), give_up };
        if let Some(looks_after) = supervisor.begin(self.stopping.subscribe()).await {
            self.supervisors.push(tokio::spawn(looks_after));
        }
    }

    /// Control API, metrics and health.
    async fn start_http(&mut self, config: &NodeConfig, facts: Facts) {
        let limits = HttpLimits {
            max_body_bytes: config.http_max_body,
            request_timeout: config.http_request_timeout,
            max_requests: config.http_max_requests,
            max_connections: clients_max(config, "http", HttpLimits::default().max_connections),
            session_idle_timeout: config.http_session_idle,
            loopback_only: config.address.is_loopback(),
            ..HttpLimits::default()
        };
        let (credentials, tls) = match http_access(config) {
            Ok(access) => access,
            Err(reason) => return self.board.failed("http", &reason),
        };
        let face = HttpFace::guarded(facts, limits, credentials, tls);
        self.start_face("http", config, config.http_port, "http.port", |listener, shutdown| {
            face.serve(listener, shutdown)
        })
        .await;
    }

    /// Listens and serves in a task of its own.
    async fn start_face<F>(
        &mut self,
        name: &'static str,
        config: &NodeConfig,
        port: u16,
        setting: &str,
        serve: impl FnOnce(TcpListener, BoxFuture<'static, ()>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.board.starting(name);
        let address = SocketAddr::new(config.address, port);
        let listening = async {
            let listener = TcpListener::bind(address).await?;
            let bound = listener.local_addr()?;
            Ok::<_, std::io::Error>((listener, bound))
        };
        let (listener, bound) = match listening.await {
            Ok(listening) => listening,
            Err(error) => {
                return self.board.failed(name, &cannot_listen(address, &error, setting));
            }
        };
        let mut stopping = self.stopping.subscribe();
        let shutdown = Box::pin(async move {
            // A closed channel means that the node is gone.
            let _ = stopping.wait_for(|stop| *stop).await;
        });
        let serving = serve(listener, shutdown);
        self.board.running(name, Some(bound));
        let (board, stopping) = (Arc::clone(&self.board), self.stopping.subscribe());
        let task = tokio::spawn(async move {
            serving.await;
            if *stopping.borrow() {
                board.stopped(name);
            } else {
                board.failed(name, ENDED_BY_ITSELF);
            }
        });
        self.faces.push((name, task));
    }

    /// Stops all: no new connections, queries cancelled, connections answered; what is left after `timeout` is cut off.
    ///
    /// # Errors
    /// A service had ended before, or could not make its last changes durable.
    pub(crate) async fn stop(mut self, timeout: Duration) -> Result<(), NodeError> {
        self.stopping.send_replace(true);
        let supervisors = std::mem::take(&mut self.supervisors);
        let faces = std::mem::take(&mut self.faces);
        let streams = self.streams.take();
        let aborts: Vec<_> = faces.iter().map(|(name, task)| (*name, task.abort_handle())).collect();
        let stop = async {
            // Faces wait for results that end only when their queries do.
            if let Some(streams) = streams {
                (streams.stop)().await;
                self.board.stopped("streams");
            }
            for (name, task) in faces {
                if let Err(error) = task.await {
                    tracing::error!(service = name, %error, "the service ended unexpectedly");
                }
            }
            let mut outcome = Ok(());
            for supervisor in supervisors {
                let ended = supervisor.await.map_err(NodeError::Task).flatten();
                outcome = outcome.and(ended);
            }
            outcome
        };
        tokio::time::timeout(timeout, stop).await.unwrap_or_else(|_| {
            tracing::warn!(?timeout, "not everything had stopped in time; the rest is cut off");
            for (_, abort) in aborts {
                abort.abort();
            }
            Ok(())
        })
    }
}

/// How a node gives a service up that it was granted; one that is alone has nobody to give it to.
fn giving_up(service: &'static str, place: &Place) -> Arc<GiveUp> {
    let joined = place.joined().cloned();
    Arc::new(move |grant: Grant| -> BoxFuture<'static, ()> {
        let joined = joined.clone();
        Box::pin(async move {
            if let (Some(joined), Some(epoch)) = (joined, grant.epoch) {
                joined.give_up(service, epoch).await;
            }
        })
    })
}

/// How a node gives up to look after tenants, and those that it was granted: it cannot serve them.
fn giving_tenants_up(place: &Place) -> Arc<GiveUp> {
    let joined = place.joined().cloned();
    Arc::new(move |_| -> BoxFuture<'static, ()> {
        let joined = joined.clone();
        Box::pin(async move {
            if let Some(joined) = joined {
                joined.leave_control().await;
                joined.hand_back().await;
            }
        })
    })
}

/// What keys are among other nodes, as long as it is kept: who owns them answers others as long as it offers to.
type Among = (Option<Offer>, JoinSet<()>);

/// Runs the keys, a share of them, or a face for those of another node.
fn serve_keys(config: &NodeConfig, place: &Place, role: Role) -> Result<(KeysServer, Among), KeysError> {
    let grant = match (role, place) {
        (Role::Owner(grant), _) => grant,
        (Role::Front | Role::Member, Place::Alone(_)) => unreachable!("a node that is alone owns all"),
        (Role::Front, Place::Joined(joined)) => {
            let elsewhere = routed::keys(joined.view().clone(), joined.transport(), Handle::current());
            return Ok((keys::front(config, elsewhere)?, (None, JoinSet::new())));
        }
        (Role::Member, Place::Joined(joined)) => return serve_share(config, joined),
    };
    if config.keys_spread && place.joined().is_some() {
        tracing::warn!("keys.spread has no effect: the keys of this cluster have one owner, as it was made so");
    }
    let opened = keys::open(config, &place.shared(config), &place.membership(grant))?;
    place.take_history("keys", grant)?;
    let server = opened.serve()?;
    let offer = place.joined().map(|joined| {
        let keys = remote::serve_keys(server.handle(), keys::cluster_node(config, &server));
        joined.offered("keys").offer(keys, joined.guard())
    });
    Ok((server, (offer, JoinSet::new())))
}

/// Runs what this node has of keys that are spread.
fn serve_share(config: &NodeConfig, joined: &Arc<Joined>) -> Result<(KeysServer, Among), KeysError> {
    let OwnLog { log, options } = Handle::current().block_on(joined.own_keys_log())?;
    let others = RemoteKeys::new(joined.transport(), Handle::current());
    let (nodes, may_move) = (Arc::new(others.clone()), config.keys_moves);
    let spread = Spread { nodes, patience: routed::KEYS_PATIENCE, may_move, groups: config.keys_groups };
    let server = keys::share(config, options, joined.guard(), spread)?;
    let moves = KeyMoves::new(Arc::clone(joined), server.hearer(), log.clone(), config.keys_moves);
    let offered = remote::keys_methods(server.handle(), keys::cluster_node(config, &server));
    let offer = joined.offered("keys").offer(Arc::new(moves.methods(offered)), joined.guard());
    let tasks = joined.has_shares(&server.hearer(), log, others, &moves);
    Ok((server, (Some(offer), tasks)))
}

/// Runs the tenants of this node, for clients of this node and of others.
fn serve_tenants(
    config: &NodeConfig,
    place: &Place,
    board: &Arc<Board>,
    own: &OwnDatabase,
) -> Result<Started, TenantsError> {
    let (running, hosted) = match place {
        Place::Alone(membership) => tenants::start(config, membership)?,
        Place::Joined(joined) => tenants::start_among(config, joined)?,
    };
    if place.joined().is_none() {
        own.is_among(Some(&hosted));
    }
    let cluster = place.joined().map(|joined| {
        let back =
            Back::new(hosted.clone(), tenants::places(config), joined.transport(), Some(Arc::clone(joined.front())));
        let mut tasks = JoinSet::new();
        tasks.spawn(lose_fronts(joined.view().clone(), Arc::downgrade(&back)));
        tasks.spawn(Arc::clone(joined).take_in_tenants(hosted.clone()));
        tasks.spawn(Arc::clone(joined).tell_loads(hosted.clone()));
        let (has, guard) = (hosted.clone(), joined.guard());
        let has = move |shard: &ShardId| shards::tenant_of(shard).is_some_and(|tenant| has.has(tenant));
        let moves = Moves::new(Arc::clone(joined), hosted.clone(), Arc::clone(&back));
        if joined.balances() {
            tasks.spawn(Arc::clone(joined).balance(Arc::clone(&moves)));
        }
        let offers = [
            joined.offered("tenants").offer_of(back.service(), guard.clone(), has),
            joined.offered(moves::SERVICE).offer(moves.service(), guard),
        ];
        (offers, tasks, Arc::clone(joined.front()), moves)
    });
    let moves = cluster.as_ref().map(|(.., moves)| Arc::clone(moves));
    let moved = moves.clone();
    let control = tenants::Control { tenants: hosted.clone(), joined: place.joined().cloned(), moves };
    board.serves_tenants(Some(Arc::new(control)));
    let busiest = Mutex::<Busiest>::default();
    board.shows("tenants", move || {
        let moves = moved.iter().flat_map(|moves| figures::of_moves(&moves.totals()));
        figures::of_tenants(&hosted, &mut busiest.lock()).into_iter().chain(moves).collect()
    });
    let shown = TenantsShown { board: Arc::clone(board), own: own.clone() };
    let (stopper, runtime) = (running.stopper(), Handle::current());
    Ok(Started {
        address: running.address(),
        stop: Box::new(move || {
            if let Some((offers, tasks, front, _)) = cluster {
                drop((offers, tasks));
                runtime.spawn(async move { front.hang_up().await });
            }
            drop(shown);
            stopper.stop();
        }),
        wait: Box::new(move || Ok(running.wait()?)),
    })
}

/// What the board shows of the tenants of this node, until they have ended, also by themselves.
struct TenantsShown {
    board: Arc<Board>,
    own: OwnDatabase,
}

impl Drop for TenantsShown {
    fn drop(&mut self) {
        self.own.is_among(None);
        self.board.serves_tenants(None);
        self.board.hides("tenants");
    }
}

/// Ends the sessions of clients at nodes that are gone, as long as the sessions are here.
async fn lose_fronts(mut view: View, back: Weak<Back>) {
    let mut before = view.now();
    while view.changed().await {
        let (now, Some(back)) = (view.now(), back.upgrade()) else { return };
        gone(&before, &now).iter().for_each(|node| back.lose(node));
        before = now;
    }
}

/// What requests to the control API have to show. It reads and writes files, and drops databases: beyond the loopback,
/// nobody comes in without a token or a password, and nobody listens in.
fn http_access(config: &NodeConfig) -> Result<(Credentials, Option<Tls>), String> {
    if !config.address.is_loopback() {
        let missing = match (&config.auth_token, &config.auth_users, &config.http_tls) {
            (None, None, _) => {
                "auth.users, a file with a name and a password in each line, or auth.token, a file with a token that requests carry"
            }
            (_, _, None) if !config.http_plaintext => {
                "http.tls_cert and http.tls_key (or http.plaintext = true behind a proxy that encrypts)"
            }
            _ => "",
        };
        if !missing.is_empty() {
            return Err(format!("on {}, which is not the loopback, the control API needs {missing}", config.address));
        }
    }
    let token = config.auth_token.as_deref().map(Token::read).transpose();
    let token = token.map_err(|error| format!("auth.token: {error}"))?;
    let users = config.administrators().map_err(|error| format!("auth.users: {error}"))?;
    let tls = config.http_tls.as_ref().map(Tls::read).transpose();
    let tls = tls.map_err(|error| format!("http.tls_cert and http.tls_key: {error}"))?;
    Ok((Credentials { token, users }, tls))
}

/// What clients of streams have to show. They read and write files of the node's user: beyond the loopback, nobody comes in
/// without a password, and nobody listens in.
fn pgwire_acceptor(config: &NodeConfig) -> Result<Acceptor, String> {
    let is_exposed = !config.address.is_loopback();
    let missing = match (&config.auth_users, &config.pgwire_tls) {
        (None, _) => "auth.users, a file with a name and a password in each line",
        (_, None) => "pgwire.tls_cert and pgwire.tls_key",
        _ => "",
    };
    if is_exposed && !missing.is_empty() {
        let address = config.address;
        return Err(format!(
            "on {address}, which is not the loopback, the PostgreSQL protocol of streams needs {missing}"
        ));
    }
    let users = config.administrators().map_err(|error| format!("auth.users: {error}"))?;
    let requires_tls = is_exposed || config.pgwire_requires_tls;
    let tls = config.pgwire_tls.as_ref().map(Tls::read).transpose();
    let tls = tls.map_err(|error| format!("pgwire.tls_cert and pgwire.tls_key: {error}"))?;
    let clients_max = clients_max(config, "pgwire", CLIENTS_MAX);
    Acceptor::new(Admission { users, requires_tls, clients_max }, tls).map_err(|error| error.to_string())
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error, setting: &str) -> String {
    let flag = format!("--{}", setting.replace(['.', '_'], "-"));
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address} is taken by another process; stop that process, or choose another port with {flag}")
        }
        _ => format!("cannot listen on {address}: {error}; choose another address or port with {flag}"),
    }
}
