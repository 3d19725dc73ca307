//! A face in one process, the streams engine in another, the rpc kernel between them.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use savanna_epoch::NodeId;
use savanna_http::types::Outcome;
use savanna_http::{HttpFace, HttpLimits, Problem};
use savanna_node::remote::{RemoteStreams, serve_streams};
use savanna_node::{Node, streams};
use savanna_rpc::tcp::{Addresses, TcpConfig, TcpServer, TcpTransport};
use serde_json::{Value, json};

use crate::{config, stub};

pub(crate) const CHILD: &str = "SAVANNA_TEST_ENGINE_PROCESS";
pub(crate) const ANNOUNCES: &str = "engine at ";

/// Not a test by itself: what the process with the engine runs, when the test below has started it.
#[tokio::test(flavor = "multi_thread")]
async fn engine_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let engine = streams::open(config(directory.path(), &[]).node()).unwrap();
    let server =
        TcpServer::bind("127.0.0.1:0", NodeId::new("engine"), serve_streams(engine.handle), TcpConfig::default())
            .await
            .unwrap();
    println!("\n{ANNOUNCES}{}", server.local_address());
    std::future::pending().await
}

pub(crate) struct EngineProcess {
    child: Child,
    /// Kept open: the test harness in that process writes to it now and then.
    _stdout: Lines<BufReader<ChildStdout>>,
    /// What it announces.
    pub(crate) address: String,
}

impl EngineProcess {
    /// A process that runs what stands as the test `name`.
    pub(crate) fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().strip_prefix(ANNOUNCES)?.to_owned()));
        let address = address.expect("the engine's process says where it is");
        Self { child, _stdout: lines, address }
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The engine as a face of this process reaches it.
fn remote(engine: &EngineProcess) -> RemoteStreams {
    let addresses = Arc::new(Addresses::default());
    addresses.set(NodeId::new("engine"), engine.address.as_str());
    let transport = TcpTransport::new(NodeId::new("face"), addresses, TcpConfig::default());
    RemoteStreams::new(Arc::new(transport), NodeId::new("engine"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_postgresql_face_serves_an_engine_of_another_process() {
    let engine = EngineProcess::start("two_processes::engine_process");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!(
        "host=127.0.0.1 port={} user=postgres dbname={}",
        listener.local_addr().unwrap().port(),
        savanna_pgwire::DATABASE
    );
    let acceptor = savanna_pgwire::Acceptor::new(savanna_pgwire::Admission::default(), None).unwrap();
    let serving =
        tokio::spawn(savanna_pgwire::serve(listener, Arc::new(remote(&engine)), acceptor, std::future::pending()));

    let (client, connection) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let source = "CREATE TABLE events (event_type INT) WITH ('connector' = 'nexmark', 'events.num' = '5000')";
    client.batch_execute(source).await.unwrap();
    let rows = client.query("SELECT event_type FROM events", &[]).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.get::<_, i32>(0) == 0).count(), 100);
    assert_eq!(rows.len(), 5000);
    let wrong = client.query("SELECT nothing FROM events", &[]).await.unwrap_err();
    assert_eq!(wrong.code().unwrap().code(), "42703");

    drop(engine);
    let gone = client.batch_execute("SHOW TABLES").await.unwrap_err();
    assert_eq!(gone.code().unwrap().code(), "57P03");
    connection.abort();
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_face_serves_an_engine_of_another_process() {
    let engine = EngineProcess::start("two_processes::engine_process");
    let remote = remote(&engine);

    let directory = tempfile::tempdir().unwrap();
    let node = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let face = HttpFace::new(Arc::new(remote), node.view(), HttpLimits::default());
    let serving = tokio::spawn(face.serve(listener, std::future::pending()));

    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |path: String, body: Value| http.post(format!("{url}/api/v1/sql/{path}")).json(&body).send();
    let opened: Value = post("sessions".into(), json!({})).await.unwrap().json().await.unwrap();
    let session = format!("sessions/{}", opened["session"]);
    let source = "CREATE TABLE events (event_type INT) WITH ('connector' = 'nexmark', 'events.num' = '5000')";
    let created: Outcome =
        post(format!("{session}/execute"), json!({ "sql": source })).await.unwrap().json().await.unwrap();
    assert_eq!(created, Outcome::Done { tag: "CREATE TABLE".into() });
    let selected: Value = post(format!("{session}/execute"), json!({ "sql": "SELECT event_type FROM events" }))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let stream = format!("{url}/api/v1/sql/{session}/cursors/{}/stream", selected["cursor"]);
    let rows = http.get(stream).send().await.unwrap().text().await.unwrap();
    assert_eq!(rows.lines().filter(|row| row.starts_with("{\"op\":\"+I\",\"event_type\":")).count(), 5000);

    let wrong = post(format!("{session}/execute"), json!({ "sql": "SELECT nothing FROM events" })).await.unwrap();
    let problem: Problem = wrong.json().await.unwrap();
    assert_eq!(problem.sqlstate.as_deref(), Some("42703"));

    drop(engine);
    let gone = http.get(format!("{url}/api/v1/queries")).send().await.unwrap();
    assert_eq!(gone.status(), 503);
    serving.abort();
    node.shutdown().await.unwrap();
}
