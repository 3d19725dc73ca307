//! A stub of an engine and a node, and a face before them on a port of its own.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use savanna_http::types::{
    ClusterNode, ClusterShard, Decision, Decisions, LeaseStatus, Move, MoveTechnique, NewMove, NewMovesAsleep,
    NodeStatus, ServiceState, ServiceStatus, Setting, Tenant,
};
use savanna_http::{
    Asker, Backup, Credentials, Fact, Facts, Figure, FigureValue, HttpFace, HttpLimits, NodeView, NodesHandle, Problem,
    SharedNodes, SharedTenants, TenantsHandle,
};
use savanna_identity::Tls;
use savanna_streams_api::handle::{
    CursorId, HandleError, Purpose, QueryState, QueryStatus, Rows, SessionId, StreamHandle, StreamReply, StreamRequest,
};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Position, StreamError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Answers a few statements, and remembers what it was told to stop.
#[derive(Debug, Default)]
pub(crate) struct StubEngine {
    next: AtomicU64,
    /// How many pages are left of each cursor; `u64::MAX` for one without end.
    cursors: Mutex<BTreeMap<u64, u64>>,
    pub(crate) cancelled: Mutex<Vec<QueryId>>,
    pub(crate) closed_cursors: Mutex<Vec<u64>>,
    pub(crate) closed_sessions: Mutex<Vec<u64>>,
}

pub(crate) fn query_id() -> QueryId {
    QueryId { code: "0123456789ab".into(), job: 1 }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, true), Field::new("number", DataType::Int64, false)]))
}

fn page(number: i64) -> Rows {
    let columns = vec![
        Arc::new(StringArray::from(vec![Some("a"), None])) as _,
        Arc::new(Int64Array::from(vec![number, number + 1])) as _,
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    Rows { schema: schema(), batches: vec![batch] }
}

fn status() -> QueryStatus {
    QueryStatus {
        query: query_id(),
        state: QueryState::Running,
        statement: "INSERT INTO t SELECT 1".into(),
        error: None,
        events: 100,
        result_rows: 7,
        late_rows: 3,
        skipped_rows: 2,
        epoch: 5,
        watermark: Some(1_500_000),
        windows: 4,
        state_bytes: 4096,
        seconds: 1.5,
        cpu_seconds: 0.5,
        generator_cpu_seconds: 0.25,
        invocations: 9,
        billed_ms: 90,
        more: [("snapshot_pauses".to_owned(), 40.0), ("snapshot_pause_max_seconds".to_owned(), 0.25)].into(),
    }
}

impl StubEngine {
    fn rows(&self, pages: u64) -> StreamReply {
        let cursor = self.next.fetch_add(1, Ordering::Relaxed);
        self.cursors.lock().insert(cursor, pages);
        StreamReply::Rows {
            schema: schema(),
            cursor: CursorId(cursor),
            query: Some(query_id()),
            purpose: Purpose::Select,
        }
    }

    fn execute(&self, sql: &str) -> Result<StreamReply, HandleError> {
        Ok(match sql {
            "CREATE" => StreamReply::Done { tag: "CREATE TABLE".into() },
            "INSERT" => StreamReply::Started { query: query_id() },
            "SHOW TABLES" | "DESCRIBE `t`" => self.rows(1),
            "THREE PAGES" => self.rows(3),
            "ENDLESS" => self.rows(u64::MAX),
            _ => {
                let position = Some(Position { line: 2, column: 5 });
                return Err(StreamError::Syntax { message: "expected FROM".into(), position }.into());
            }
        })
    }

    fn fetch(&self, cursor: u64) -> Result<StreamReply, HandleError> {
        let mut cursors = self.cursors.lock();
        let left = cursors.get_mut(&cursor).ok_or_else(|| StreamError::Unknown {
            kind: "cursor".into(),
            name: cursor.to_string(),
            position: None,
            hint: "it was closed".into(),
        })?;
        *left = left.saturating_sub(u64::from(*left != u64::MAX));
        Ok(StreamReply::Fetched { rows: page(i64::try_from(cursor).unwrap()), end: *left == 0 })
    }
}

#[async_trait]
impl StreamHandle for StubEngine {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        match request {
            StreamRequest::OpenSession { .. } => {
                let session = SessionId(self.next.fetch_add(1, Ordering::Relaxed));
                Ok(StreamReply::Session { session })
            }
            StreamRequest::CloseSession { session } => {
                self.closed_sessions.lock().push(session.0);
                Ok(StreamReply::Done { tag: "CLOSE".into() })
            }
            StreamRequest::Split { sql } => {
                Ok(StreamReply::Statements { statements: sql.split(';').map(|s| s.trim().to_owned()).collect() })
            }
            StreamRequest::Describe { .. } => Ok(StreamReply::Described { schema: Some(schema()), parameters: vec![] }),
            StreamRequest::Execute { sql, .. } if sql == "SLEEP" => std::future::pending().await,
            StreamRequest::Execute { sql, .. } => self.execute(&sql),
            StreamRequest::Fetch { cursor, .. } => self.fetch(cursor.0),
            StreamRequest::CloseCursor { cursor, .. } => {
                self.closed_cursors.lock().push(cursor.0);
                self.cursors.lock().remove(&cursor.0);
                Ok(StreamReply::Done { tag: "CLOSE".into() })
            }
            StreamRequest::CancelQuery { query } => {
                self.cancelled.lock().push(query);
                Ok(StreamReply::Done { tag: "CANCEL".into() })
            }
            StreamRequest::ListQueries => Ok(StreamReply::Queries { queries: vec![status()] }),
        }
    }
}

/// A node whose lease can be taken away.
#[derive(Debug)]
pub(crate) struct StubNode {
    pub(crate) serving: AtomicBool,
    pub(crate) tenants: Arc<StubTenants>,
}

/// Tenants that are names.
#[derive(Debug, Default)]
pub(crate) struct StubTenants(Mutex<Vec<String>>);

#[async_trait]
impl TenantsHandle for StubTenants {
    async fn list(&self) -> Vec<Tenant> {
        let tenant = |name: &String| Tenant { name: name.clone(), sessions: 1, commits: 2, rollbacks: 3 };
        self.0.lock().iter().map(tenant).collect()
    }

    async fn create(&self, name: String) -> Result<(), Problem> {
        self.0.lock().push(name);
        Ok(())
    }

    async fn remove(&self, name: String) -> Result<(), Problem> {
        let mut names = self.0.lock();
        let at = names.iter().position(|other| *other == name);
        names.remove(at.ok_or_else(|| Problem::not_found(format!("no tenant {name}")))?);
        Ok(())
    }

    async fn move_to(&self, NewMove { shard, to, technique }: NewMove) -> Result<Move, Problem> {
        Ok(Move {
            database: None,
            from: "n1".to_owned(),
            technique: technique.unwrap_or(MoveTechnique::Albatross),
            began_unix_ms: 1,
            took_ms: 2.5,
            window_ms: 0.5,
            rounds: 2,
            log_bytes: 3,
            open_bytes: 4,
            block_bytes: 5,
            waited: 6,
            wait_p50_ms: 0.7,
            wait_max_ms: 0.8,
            failed: 0,
            sent_again: 9,
            silent_nodes: 0,
            stayed: (shard == "held").then(|| "it is held".to_owned()),
            shard,
            to,
        })
    }

    async fn move_asleep(&self, NewMovesAsleep { shards, to }: NewMovesAsleep) -> Result<Vec<Move>, Problem> {
        let mut moved = Vec::new();
        for shard in shards.into_iter().filter(|shard| shard != "awake") {
            moved.push(self.move_to(NewMove { shard, to: to.clone(), technique: Some(MoveTechnique::Asleep) }).await?);
        }
        Ok(moved)
    }

    async fn moves(&self) -> Vec<Move> {
        Vec::new()
    }

    async fn decisions(&self) -> Decisions {
        let [from, to] = ["n1", "n2"].map(|node| Some(node.to_owned()));
        let (why, outcome) = ("n1 is busy".to_owned(), Some("moved".to_owned()));
        let shard = Some("tenants/7".to_owned());
        let moved = Decision { at_unix_ms: 1, by: "n3".to_owned(), shard, database: None, from, to, why, outcome };
        Decisions { is_on: true, decisions: vec![moved] }
    }

    /// Says that there is one byte more than it sends if the name ends with `!`.
    async fn backup(&self, name: String) -> Result<Backup, Problem> {
        let pieces = [Ok(Bytes::from_static(b"back")), Ok(Bytes::from_static(b"up"))];
        let bytes = if name.ends_with('!') { 7 } else { 6 };
        Ok(Backup { bytes, stream: futures::stream::iter(pieces).boxed() })
    }

    async fn restore(&self, name: String, backup: BoxStream<'static, io::Result<Bytes>>) -> Result<(), Problem> {
        let pieces: io::Result<Vec<Bytes>> = backup.try_collect().await;
        let length = pieces.map_err(|error| Problem::of_sqlstate("22P04", error.to_string()))?.concat().len();
        self.0.lock().push(format!("{name} of {length} bytes"));
        Ok(())
    }
}

/// Other nodes, of which one answers.
#[derive(Debug)]
struct StubNodes;

#[async_trait]
impl NodesHandle for StubNodes {
    async fn drain(&self, node: &str, is_drained: bool) -> Result<(), Problem> {
        match (node, is_drained) {
            ("other", true) | ("stub", false) => Ok(()),
            _ => Err(Problem::not_found(format!("no node {node}"))),
        }
    }

    async fn tell(&self, node: &str, fact: Fact, asker: Asker) -> Result<String, Problem> {
        match (node, asker) {
            ("other", _) | ("guarded", Asker::Known) => Ok(format!("{{\"told\":\"{}\"}}", fact.name())),
            _ => Err(Problem::not_found(format!("no node {node}"))),
        }
    }
}

impl NodeView for StubNode {
    fn others(&self) -> Option<SharedNodes> {
        Some(Arc::new(StubNodes))
    }

    fn nodes(&self) -> Vec<ClusterNode> {
        let node = |name: &str, is_this: bool| ClusterNode {
            name: name.into(),
            epoch: 7,
            address: Some("127.0.0.1:7400".into()),
            services: vec!["streams".into()],
            serves_databases: Some(!is_this),
            is_this,
            is_drained: !is_this,
            load: None,
        };
        vec![node("other", false), node("stub", true)]
    }

    fn shards(&self) -> Vec<ClusterShard> {
        let shard = |shard: &str| ClusterShard {
            shard: shard.into(),
            owner: Some("stub".into()),
            epoch: 2,
            state: "serving".into(),
            log: None,
            moving_to: None,
        };
        vec![shard("keys"), shard("streams")]
    }

    fn tenants(&self) -> Option<SharedTenants> {
        Some(Arc::<StubTenants>::clone(&self.tenants) as _)
    }

    fn status(&self) -> NodeStatus {
        NodeStatus {
            node: "stub".into(),
            version: "1.2.3".into(),
            pid: 42,
            uptime_seconds: 3.0,
            data_dir: Some("/data".into()),
            services: vec![ServiceStatus {
                service: "streams".into(),
                state: ServiceState::Running,
                address: None,
                reason: None,
            }],
            lease: Some(LeaseStatus {
                name: "stub".into(),
                epoch: 7,
                serving: self.serving.load(Ordering::Relaxed),
                ttl_ms: 3000,
            }),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |name, labels, value| Figure { name, help: "As told", labels, value };
        let thread = |number: u8| vec![("thread", number.to_string())];
        let flushes = FigureValue::Histogram { upto: vec![0.001, 0.01], counts: vec![3, 0, 1], sum: 0.5 };
        vec![
            figure("savanna_keys_commands", thread(0), FigureValue::Counter(5.0)),
            figure("savanna_tenants_awake", Vec::new(), FigureValue::Gauge(2.0)),
            figure("savanna_keys_commands", thread(1), FigureValue::Counter(6.0)),
            figure("savanna_keys_log_flush_seconds", Vec::new(), flushes),
        ]
    }

    fn settings(&self) -> Vec<Setting> {
        vec![Setting { key: "http.port".into(), value: "0".into(), source: "flag --http-port".into() }]
    }
}

/// A face that serves until it is dropped.
pub(crate) struct Served {
    pub(crate) engine: Arc<StubEngine>,
    pub(crate) node: Arc<StubNode>,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

pub(crate) async fn serve(limits: HttpLimits) -> Served {
    serve_guarded(limits, Credentials::default(), None).await
}

pub(crate) async fn serve_guarded(limits: HttpLimits, credentials: Credentials, tls: Option<Tls>) -> Served {
    let engine = Arc::new(StubEngine { next: AtomicU64::new(1), ..StubEngine::default() });
    let node = Arc::new(StubNode { serving: AtomicBool::new(true), tenants: Arc::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let facts = Facts::new(Arc::clone(&engine) as _, Arc::clone(&node) as _);
    let face = HttpFace::guarded(facts, limits, credentials, tls);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(face.serve(listener, async {
        let _ = stopped.await;
    }));
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
    Served { engine, node, url, http, stop: Some(stop), task }
}

impl Served {
    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: serde_json::Value) -> reqwest::Response {
        self.http.post(format!("{}{path}", self.url)).json(&body).send().await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) -> reqwest::Response {
        self.http.delete(format!("{}{path}", self.url)).send().await.unwrap()
    }

    /// Opens a session and runs a statement; the path of its cursor.
    pub(crate) async fn cursor(&self, sql: &str) -> (u64, String) {
        let session: serde_json::Value =
            self.post("/api/v1/sql/sessions", serde_json::json!({})).await.json().await.unwrap();
        let session = session["session"].as_u64().unwrap();
        let path = format!("/api/v1/sql/sessions/{session}");
        let body = serde_json::json!({ "sql": sql });
        let outcome: serde_json::Value = self.post(&format!("{path}/execute"), body).await.json().await.unwrap();
        (session, format!("{path}/cursors/{}", outcome["cursor"].as_u64().unwrap()))
    }

    /// Stops the face and waits until it has stopped.
    pub(crate) async fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap();
    }
}
