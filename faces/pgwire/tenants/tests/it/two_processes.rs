//! A face in one process, the tenants in another, the rpc kernel between them.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use savanna_epoch::{NodeEpoch, NodeId, OwnerEpoch, ShardId};
use savanna_pgwire_tenants::{Back, Front, Listener, Names, Server};
use savanna_rpc::{
    Delivery, Directory, RequestContext, Route, Router, RouterLimits, RpcError, Service, Transport,
    tcp::{Addresses, TcpConfig, TcpServer, TcpTransport},
};
use savanna_tenants_host::{Host, HostOptions, Keeping, Place, RootExpectation, SqlError, TenantId};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::server::options;

const FRONT: &str = "SAVANNA_TEST_FRONT_ADDRESS";
const ANNOUNCES: &str = "tenants at ";

fn old() -> NodeId {
    NodeId::new("old")
}

/// A host that is alone calls itself so, and its connections' numbers say that.
fn new() -> NodeId {
    NodeId::new("alone")
}

/// A node from which every tenant has moved.
struct Moved;

#[async_trait]
impl Service for Moved {
    async fn handle(&self, _: RequestContext, _: Bytes) -> Result<Bytes, RpcError> {
        Err(RpcError::Moved { to: new(), epoch: OwnerEpoch(2) })
    }
}

/// A node whose every fifth request finds its tenant frozen, and of whose replies every third is lost.
struct Troubled {
    service: Arc<dyn Service>,
    requests: AtomicU64,
}

#[async_trait]
impl Service for Troubled {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(5) {
            return Err(RpcError::Frozen { retry_after: Duration::from_millis(5) });
        }
        let reply = self.service.handle(context, body).await?;
        if number.is_multiple_of(3) {
            let reason = "the reply was lost".to_owned();
            return Err(RpcError::Unreachable { node: new(), reason, delivery: Delivery::Unknown });
        }
        Ok(reply)
    }
}

/// Not a test by itself: what the process with the tenants runs, when a test below has started it.
#[test]
fn tenants_process() {
    let Some(front) = std::env::var_os(FRONT) else { return };
    let directory = tempfile::tempdir().unwrap();
    let keeping = Keeping::local(directory.path().join("data"));
    let host = Host::start(HostOptions::alone(keeping, NodeEpoch(1), 2, None).unwrap()).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(serve(&host, front.into_string().unwrap()));
}

async fn serve(host: &Host, front: String) {
    let addresses = Arc::new(Addresses::default());
    addresses.set(NodeId::new("front"), front);
    let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(new(), addresses, TcpConfig::default()));
    let back = Back::new(host.tenants(), 100, transport, None);
    let troubled = Arc::new(Troubled { service: back.service(), requests: AtomicU64::new(0) });
    let at_new = TcpServer::bind("127.0.0.1:0", new(), troubled, TcpConfig::default()).await.unwrap();
    let at_old = TcpServer::bind("127.0.0.1:0", old(), Arc::new(Moved), TcpConfig::default()).await.unwrap();
    println!("\n{ANNOUNCES}{} {}", at_old.local_address(), at_new.local_address());
    std::future::pending().await
}

struct TenantsProcess {
    child: Child,
    /// Kept open: the test harness in that process writes to it now and then.
    _stdout: Lines<BufReader<ChildStdout>>,
    /// Of the node that tenants have left, and of the one that they are at.
    addresses: [String; 2],
}

impl TenantsProcess {
    fn start(front: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["two_processes::tenants_process", "--exact", "--nocapture"])
            .env(FRONT, front)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| Some(line.unwrap().strip_prefix(ANNOUNCES)?.to_owned()));
        let line = line.expect("the tenants' process says where it is");
        let (old, new) = line.split_once(' ').expect("two addresses");
        Self { child, _stdout: lines, addresses: [old.to_owned(), new.to_owned()] }
    }
}

impl Drop for TenantsProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Knows at first where tenants were.
#[derive(Default)]
struct Stale(Mutex<BTreeSet<ShardId>>);

#[async_trait]
impl Directory for Stale {
    async fn locate(&self, shard: &ShardId) -> Result<Route, RpcError> {
        let is_news = self.0.lock().unwrap().insert(shard.clone());
        let (node, epoch) = if is_news { (old(), 1) } else { (new(), 2) };
        Ok(Route { node, epoch: OwnerEpoch(epoch) })
    }
}

/// There is the database of administrators, at another node.
struct Administration;

#[async_trait]
impl Names for Administration {
    async fn tenant(&self, name: &str) -> Result<Option<TenantId>, SqlError> {
        Ok((name == "postgres").then_some(1))
    }

    fn has_owner(&self, _: TenantId) -> bool {
        true
    }

    fn place_for_new(&self, _: &BTreeSet<NodeId>) -> Option<Place> {
        Some(Place::default())
    }

    fn place_here(&self) -> Option<Vec<RootExpectation>> {
        Some(Vec::new())
    }

    fn nodes(&self) -> Vec<NodeId> {
        vec![new()]
    }

    fn hosts(&self) -> Vec<NodeId> {
        vec![new()]
    }
}

/// A process with tenants, and a node without any, in this one.
struct Cluster {
    tenants: TenantsProcess,
    server: Server,
    _front: TcpServer,
    _directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let node = NodeId::new("front");
        let addresses = Arc::new(Addresses::default());
        let transport = Arc::new(TcpTransport::new(node.clone(), Arc::clone(&addresses), TcpConfig::default()));
        let router = Router::new(Arc::clone(&transport) as _, Arc::new(Stale::default()), RouterLimits::default());
        let front = Front::new(node.clone(), router, transport, Arc::new(Administration));
        let service = Arc::clone(&front).service();
        let server = TcpServer::bind("127.0.0.1:0", node, service, TcpConfig::default()).await.unwrap();
        let tenants = TenantsProcess::start(&server.local_address().to_string());
        for (node, address) in [old(), new()].into_iter().zip(&tenants.addresses) {
            addresses.set(node, address.as_str());
        }
        let directory = tempfile::tempdir().unwrap();
        let keeping = Keeping::local(directory.path().join("data"));
        let start = move || {
            let alone = HostOptions::alone(keeping, NodeEpoch(1), 1, None).unwrap();
            let host = Host::start(HostOptions { others: Some(Arc::clone(&front) as _), ..alone }).unwrap();
            Listener::bind(options()).unwrap().serve_among(host, front).unwrap()
        };
        let face = tokio::task::spawn_blocking(start).await.unwrap();
        Self { tenants, server: face, _front: server, _directory: directory }
    }

    async fn connect(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.server.address().port()).user("postgres").dbname(database);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_face_serves_tenants_of_another_process_whose_replies_get_lost() {
    let cluster = Cluster::start().await;
    let ann = cluster.connect("postgres").await.unwrap();
    ann.batch_execute("CREATE TABLE t (a bigint PRIMARY KEY, n bigint NOT NULL)").await.unwrap();
    ann.batch_execute("INSERT INTO t VALUES (1, 0)").await.unwrap();
    for _ in 0..40 {
        ann.execute("UPDATE t SET n = n + $1 WHERE a = 1", &[&1_i64]).await.unwrap();
    }
    assert_eq!(number(&ann, "SELECT n FROM t").await, 40, "each statement ran once");
    let wrong = ann.query("SELECT nothing FROM t", &[]).await.unwrap_err();
    assert_eq!(wrong.code().unwrap().code(), "42703");

    // More than fits into a request, both ways.
    let rows = ann.simple_query("SELECT repeat('x', 1000) || i FROM generate_series(1, 3000) AS s(i)").await.unwrap();
    let rows: Vec<&str> = rows
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    assert_eq!(rows.len(), 3000);
    assert!((1..).zip(&rows).all(|(i, row)| *row == format!("{}{i}", "x".repeat(1000))));
    ann.batch_execute("CREATE TABLE c (i bigint, x text)").await.unwrap();
    let sink = ann.copy_in("COPY c FROM STDIN").await.unwrap();
    futures::pin_mut!(sink);
    for i in 0..3000 {
        sink.send(Bytes::from(format!("{i}\t{}\n", "y".repeat(1000)))).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 3000);
    assert_eq!(number(&ann, "SELECT count(*) FROM c WHERE length(x) = 1000").await, 3000);
    let copied: Vec<Bytes> = ann.copy_out("COPY c TO STDOUT").await.unwrap().try_collect().await.unwrap();
    assert_eq!(copied.len(), 3000);

    // A statement that waits for another client is answered when that is done, and may be cancelled.
    let bob = cluster.connect("postgres").await.unwrap();
    bob.batch_execute("BEGIN; UPDATE t SET n = 0 WHERE a = 1").await.unwrap();
    let waits = ann.execute("UPDATE t SET n = n + 1 WHERE a = 1", &[]);
    let (waited, ()) = tokio::join!(waits, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bob.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!((waited.unwrap(), number(&bob, "SELECT n FROM t").await), (1, 1));
    let endless = ann.query("SELECT count(*) FROM generate_series(1, 1000000000000)", &[]);
    let token = ann.cancel_token();
    let (cancelled, ()) = tokio::join!(endless, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        token.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(cancelled.unwrap_err().code().unwrap().code(), "57014");

    // A client that goes away takes its transaction along.
    bob.batch_execute("BEGIN; UPDATE t SET n = 9 WHERE a = 1").await.unwrap();
    drop(bob);
    ann.execute("UPDATE t SET n = n + 1 WHERE a = 1", &[]).await.unwrap();
    assert_eq!(number(&ann, "SELECT n FROM t").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_told_why_it_is_not_served_by_another_process() {
    let cluster = Cluster::start().await;
    let nowhere = cluster.connect("nowhere").await.unwrap_err();
    assert_eq!(nowhere.code().unwrap().code(), "3D000");

    let ann = cluster.connect("postgres").await.unwrap();
    ann.batch_execute("CREATE TABLE t (a int)").await.unwrap();
    let mut others = Vec::new();
    for _ in 0..2 {
        let other = cluster.connect("postgres").await.unwrap();
        other.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
        others.push(other);
    }
    let mut others = others.into_iter();
    ann.batch_execute("CREATE USER ann PASSWORD 'secret'").await.unwrap();
    let unproved = cluster.connect("postgres").await.unwrap_err();
    assert!(unproved.code().is_none(), "the client is asked for a password and has none: {unproved}");

    let Cluster { tenants, server: _server, _front, _directory } = cluster;
    drop(tenants);
    let (bob, eve) = (others.next().unwrap(), others.next().unwrap());
    let gone = ann.batch_execute("SELECT a FROM t").await.unwrap_err();
    assert_eq!(gone.code().unwrap().code(), "57P01");
    let rolled_back = bob.batch_execute("INSERT INTO t VALUES (2)").await.unwrap_err();
    assert_eq!(rolled_back.code().unwrap().code(), "57P01");
    let in_doubt = eve.batch_execute("COMMIT").await.unwrap_err();
    assert_eq!(in_doubt.code().unwrap().code(), "08007");
}
