//! What an engine keeps over the end of its process, and what it does not.

use std::fs;
use std::path::Path;

use savanna_epoch::NodeEpoch;
use savanna_streams_api::handle::QueryState;
use savanna_streams_model::source::{ConnectorInfo, Source};

use super::*;
use crate::durable::{Entry, decode};

/// Far beyond what any of these tests needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(120);

/// An engine over a directory, with one session.
struct Process {
    engine: Arc<StreamEngine>,
    session: SessionId,
}

fn kept(directory: &Path, epoch: u64) -> StoreOptions {
    let directory = directory.join("streams");
    StoreOptions { directory, epoch: NodeEpoch(epoch), high_water: None, may_commit: None }
}

impl Process {
    async fn start(directory: &Path, epoch: u64) -> Self {
        Self::start_with(directory, epoch, EngineOptions { ended_queries: 1, ..EngineOptions::default() }).await
    }

    async fn start_with(directory: &Path, epoch: u64, options: EngineOptions) -> Self {
        let kept = kept(directory, epoch);
        let engine = tokio::task::spawn_blocking(move || StreamEngine::open(options, kept)).await.unwrap().unwrap();
        let opened = engine.call(StreamRequest::OpenSession { user: "test".into() }).await;
        let Ok(StreamReply::Session { session }) = opened else { panic!("{opened:?}") };
        Self { engine, session }
    }

    async fn try_run(&self, sql: &str) -> Result<StreamReply, String> {
        let request = StreamRequest::Execute { session: self.session, sql: sql.into(), parameters: Vec::new() };
        self.engine.call(request).await.map_err(|error| error.to_string())
    }

    async fn run(&self, sql: &str) -> StreamReply {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Starts a query.
    async fn insert(&self, sql: &str) -> QueryId {
        match self.run(sql).await {
            StreamReply::Started { query } => query,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self, query: &QueryId) -> Option<QueryState> {
        self.engine.queries().into_iter().find(|status| status.query == *query).map(|status| status.state)
    }

    async fn until_over(&self, query: &QueryId) {
        let begun = std::time::Instant::now();
        while self.state(query) == Some(QueryState::Running) {
            assert!(begun.elapsed() < FOREVER);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn relations(&self) -> Vec<String> {
        self.engine.inner.catalog.all().into_iter().map(|(name, _)| name).collect()
    }

    async fn end(self) {
        self.engine.shutdown().await;
    }
}

/// A table over a file that is followed, and one that is written.
async fn tables(process: &Process, directory: &Path) {
    let input = directory.join("input.csv");
    fs::write(&input, "n\n1\n2\n").unwrap();
    let (read, written) = (input.display(), directory.join("out"));
    let tables = [
        format!(
            "CREATE TABLE input (n BIGINT) WITH ('connector' = 'file', 'path' = '{read}', 'format' = 'csv', 'follow' = 'true')"
        ),
        format!("CREATE TABLE whole (n BIGINT) WITH ('connector' = 'file', 'path' = '{read}', 'format' = 'csv')"),
        format!(
            "CREATE TABLE out (n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv')",
            written.display()
        ),
        "CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole')".to_owned(),
    ];
    for table in &tables {
        process.run(table).await;
    }
}

#[tokio::test]
async fn what_is_temporary_ends_with_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE TEMPORARY VIEW passing AS SELECT n FROM input").await;
    process.run("CREATE VIEW lasting AS SELECT n FROM input").await;
    let error = process.try_run("CREATE OR REPLACE TEMPORARY VIEW lasting AS SELECT n FROM input").await.unwrap_err();
    assert!(error.contains("a temporary one cannot take its place"), "{error}");
    // A query has what it names, whatever became of that.
    process.run("SET 'query.name' = 'q'").await;
    let query = process.insert("INSERT INTO out SELECT n FROM passing").await;
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!(process.relations(), ["input", "lasting", "nowhere", "out", "whole"]);
    assert_eq!(process.state(&query), Some(QueryState::Running));
    process.end().await;
}

#[tokio::test]
async fn only_a_query_that_has_a_name_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    let without = process.insert("INSERT INTO out SELECT n FROM input").await;
    process.run("SET 'query.name' = 'q'").await;
    let with = process.insert("INSERT INTO out SELECT n FROM input").await;
    let error = process.try_run("INSERT INTO out SELECT n FROM input").await.unwrap_err();
    assert!(error.contains("query q exists already"), "{error}");
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!((process.state(&without), process.state(&with)), (None, Some(QueryState::Running)));
    process.end().await;
}

#[tokio::test]
async fn a_query_that_could_not_go_on_and_was_stopped_stays_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("SET 'query.name' = 'q'").await;
    let query = process.insert("INSERT INTO out SELECT n FROM input").await;
    process.end().await;
    // A file where its directory should be.
    let (out, away) = (directory.path().join("out"), directory.path().join("away"));
    fs::rename(&out, &away).unwrap();
    fs::write(&out, "").unwrap();
    let process = Process::start(directory.path(), 2).await;
    assert_eq!(process.state(&query), Some(QueryState::Failed));
    process.run("STOP QUERY 'q'").await;
    process.end().await;
    fs::remove_file(&out).unwrap();
    fs::rename(&away, &out).unwrap();
    let process = Process::start(directory.path(), 3).await;
    assert_eq!(process.state(&query), Some(QueryState::Cancelled));
    process.run("RESUME QUERY 'q'").await;
    assert_eq!(process.state(&query), Some(QueryState::Running));
    process.end().await;
}

#[tokio::test]
async fn a_stored_query_is_shown_and_dropped_however_many_have_ended_since() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("SET 'query.name' = 'q'").await;
    let query = process.insert("INSERT INTO out SELECT n FROM input").await;
    process.run("STOP QUERY 'q'").await;
    process.until_over(&query).await;
    process.run("RESET 'query.name'").await;
    for _ in 0..3 {
        let other = process.insert("INSERT INTO nowhere SELECT n FROM whole").await;
        process.until_over(&other).await;
    }
    assert_eq!(process.state(&query), Some(QueryState::Cancelled));
    process.run("STOP QUERY 'q'").await;
    process.run("DROP QUERY 'q'").await;
    assert_eq!(process.state(&query), None);
    assert!(process.try_run("DROP QUERY 'q'").await.unwrap_err().contains("does not exist"));
    process.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_dropped_and_the_others_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    process.run("CREATE VIEW good AS SELECT 1").await;
    process.end().await;
    let store = Store::open(kept(directory.path(), 2)).unwrap();
    let Entry::Relation(nonsense) =
        decode(b"\x01{\"relation\":{\"name\":\"bad\",\"statement\":\"CREATE NONSENSE\"}}").unwrap()
    else {
        unreachable!()
    };
    store.put_relation(nonsense).unwrap();
    drop(store);
    let process = Process::start(directory.path(), 3).await;
    assert_eq!(process.relations(), ["good"]);
    process.run("DROP VIEW bad").await;
    assert!(process.try_run("DROP VIEW bad").await.is_err());
    process.end().await;
}

#[tokio::test]
async fn a_query_of_a_release_that_emits_otherwise_does_not_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("SET 'query.name' = 'q'").await;
    let query = process.insert("INSERT INTO out SELECT n FROM input").await;
    process.end().await;
    let store = Store::open(kept(directory.path(), 2)).unwrap();
    let mut stored = store.query("q").unwrap();
    stored.emission = EMISSION + 1;
    store.forget(query.job).unwrap();
    store.add(stored).unwrap();
    drop(store);
    let process = Process::start(directory.path(), 3).await;
    assert_eq!(process.state(&query), Some(QueryState::Failed));
    let error = process.try_run("RESUME QUERY 'q'").await.unwrap_err();
    assert!(error.contains("emits results in other epochs"), "{error}");
    process.end().await;
}

#[tokio::test]
async fn a_query_that_is_resumed_and_dropped_at_once_does_not_run_without_being_stored() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    for _ in 0..10 {
        process.run("SET 'query.name' = 'q'").await;
        let query = process.insert("INSERT INTO out SELECT n FROM input").await;
        process.run("STOP QUERY 'q'").await;
        process.until_over(&query).await;
        let (_, dropped) = tokio::join!(process.try_run("RESUME QUERY 'q'"), process.try_run("DROP QUERY 'q'"));
        dropped.unwrap();
        assert_ne!(process.state(&query), Some(QueryState::Running));
        assert!(process.engine.inner.store.as_ref().unwrap().queries().is_empty());
        fs::remove_dir_all(directory.path().join("out")).unwrap();
    }
    process.end().await;
}

#[tokio::test]
async fn a_table_for_late_rows_is_another_than_the_one_that_is_written_and_knows_its_epochs_if_the_query_does() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process
        .run(
            "CREATE TABLE lax (n BIGINT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = '127.0.0.1:1', 'format' = 'json', \
             'sink.delivery-guarantee' = 'at-least-once')",
        )
        .await;
    process
        .run(&format!(
            "CREATE TABLE timed (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH ('connector' = 'file', 'path' = '{}', 'format' = \
             'csv', 'follow' = 'true', 'late-data' = 'side:lax')",
            directory.path().join("input.csv").display()
        ))
        .await;
    process.run("SET 'query.name' = 'q'").await;
    let counted = "SELECT count(*) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end";
    let error = process.try_run(&format!("INSERT INTO out {counted}")).await.unwrap_err();
    assert!(error.contains("table lax for late rows does not store which epochs it holds"), "{error}");
    process.run("RESET 'query.name'").await;
    let error = process.try_run(&format!("INSERT INTO lax {counted}")).await.unwrap_err();
    assert!(error.contains("table lax is written by the query, so that it cannot get late rows"), "{error}");
    process.end().await;
}

/// Connectors of whose tables `input` does not answer, or fails, while a gate is closed.
#[derive(Debug, Default)]
struct Gated {
    connectors: BuiltinConnectors,
    is_open: Arc<AtomicBool>,
    fails: bool,
}

impl Connectors for Gated {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        while table.name == "input" && !self.is_open.load(Ordering::Acquire) {
            if self.fails {
                return Err(StreamError::io("reading the test's table", &"nobody is there"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.connectors.source(table)
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        self.connectors.sink(table, schema)
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        self.connectors.check(table)
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        self.connectors.list()
    }
}

#[tokio::test]
async fn queries_whose_sources_do_not_answer_or_fail_go_on_later_and_hold_nobody_up() {
    for (fails, meanwhile) in [(false, QueryState::Loading), (true, QueryState::Failed)] {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(directory.path(), 1).await;
        tables(&process, directory.path()).await;
        process.run("SET 'query.name' = 'q'").await;
        let query = process.insert("INSERT INTO out SELECT n FROM input").await;
        process.end().await;
        let connectors = Gated { fails, ..Gated::default() };
        let is_open = Arc::clone(&connectors.is_open);
        let options = EngineOptions {
            connectors: Arc::new(connectors),
            patience: Duration::from_millis(20),
            retry_after: Duration::from_millis(5),
            ..EngineOptions::default()
        };
        let process = Process::start_with(directory.path(), 2, options).await;
        let until = async |state| {
            let begun = std::time::Instant::now();
            while process.state(&query) != Some(state) {
                assert!(begun.elapsed() < FOREVER, "{:?}", process.state(&query));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        until(meanwhile).await;
        process.run("SHOW TABLES").await;
        let nameless = process.insert("INSERT INTO nowhere SELECT n FROM whole").await;
        process.run(&format!("STOP QUERY '{nameless}'")).await;
        process.run(&format!("DROP QUERY '{nameless}'")).await;
        is_open.store(true, Ordering::Release);
        until(QueryState::Running).await;
        process.end().await;
    }
}
