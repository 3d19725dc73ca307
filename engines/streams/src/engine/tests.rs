//! What an engine keeps over the end of its process, and what it does not.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use arrow::array::ArrayRef;
use arrow::util::display::array_value_to_string;
use savanna_epoch::NodeEpoch;
use savanna_streams_api::handle::QueryState;
use savanna_streams_model::source::{ConnectorInfo, Source};

use super::*;
use crate::durable::{Entry, decode};

/// Far beyond what any of these tests needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(600);

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

    /// All rows of a statement, as text.
    async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let (mut rows, reply) = (Vec::new(), self.run(sql).await);
        let StreamReply::Rows { cursor, .. } = reply else { panic!("{sql}: {reply:?}") };
        loop {
            let request = StreamRequest::Fetch { session: self.session, cursor, max_rows: 1_000, wait_ms: 100 };
            let Ok(StreamReply::Fetched { rows: fetched, end }) = self.engine.call(request).await else {
                panic!("{sql}")
            };
            for batch in &fetched.batches {
                let text = |column: &ArrayRef, row| array_value_to_string(column, row).unwrap();
                rows.extend((0..batch.num_rows()).map(|row| batch.columns().iter().map(|c| text(c, row)).collect()));
            }
            if end {
                return rows;
            }
        }
    }

    /// Waits until a statement has these rows.
    async fn until(&self, sql: &str, expected: &[&[&str]]) {
        let begun = std::time::Instant::now();
        loop {
            let rows = self.rows(sql).await;
            if rows == expected {
                return;
            }
            assert!(begun.elapsed() < FOREVER, "{sql}: {rows:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
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
async fn a_query_goes_on_in_groups_of_the_size_that_its_session_sets_and_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("SET 'query.name' = 'q'").await;
    let query = process.insert("INSERT INTO out SELECT n FROM input").await;
    let size = |process: &Process| process.engine.inner.stored("q").unwrap().settings["group-size"].clone();
    assert_eq!(size(&process), "1");
    process.run("STOP QUERY 'q'").await;
    process.run("SET 'group-size' = '3'").await;
    // One that does not go on stays as it was.
    let (there, away) = (directory.path().join("input.csv"), directory.path().join("away.csv"));
    fs::rename(&there, &away).unwrap();
    process.try_run("RESUME QUERY 'q'").await.unwrap_err();
    assert_eq!(size(&process), "1");
    fs::rename(&away, &there).unwrap();
    process.run("RESUME QUERY 'q'").await;
    assert_eq!((process.state(&query), size(&process).as_str()), (Some(QueryState::Running), "3"));
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!((process.state(&query), size(&process).as_str()), (Some(QueryState::Running), "3"));
    process.end().await;
}

/// The rows that were written.
fn written(directory: &Path) -> Vec<i64> {
    let paths = fs::read_dir(directory.join("out")).unwrap().map(|entry| entry.unwrap().path());
    let parts = paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("part-"));
    let text: String = parts.map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut rows: Vec<i64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    rows.sort_unstable();
    rows
}

/// Appends a row to the table that is read, and waits until it has become these.
async fn append(directory: &Path, row: &str, expected: &[i64]) {
    let input = fs::OpenOptions::new().append(true).open(directory.join("input.csv"));
    writeln!(input.unwrap(), "{row}").unwrap();
    let begun = std::time::Instant::now();
    while written(directory) != expected {
        assert!(begun.elapsed() < FOREVER, "{:?}", written(directory));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_changed_text_that_does_not_go_on_leaves_the_former_one_and_one_that_is_stored_goes_on_in_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("SET 'query.name' = 'q'").await;
    let (former, new) = ("INSERT INTO out SELECT n FROM input", "INSERT INTO out SELECT n * 10 AS n FROM input");
    let query = process.insert(former).await;
    append(directory.path(), "3", &[1, 2, 3]).await;
    process.run("STOP QUERY 'q'").await;
    process.until_over(&query).await;
    // What is looked at before the text is stored is as it was; what is asked then does not answer.
    let (out, away) = (directory.path().join("out"), directory.path().join("away"));
    fs::rename(&out, &away).unwrap();
    fs::write(&out, "").unwrap();
    process.try_run(&format!("RESUME QUERY 'q' AS {new}")).await.unwrap_err();
    let stored = process.engine.inner.stored("q").unwrap();
    assert_eq!((stored.statement.as_str(), &stored.standing), (former, &Standing::Stopped));
    fs::remove_file(&out).unwrap();
    fs::rename(&away, &out).unwrap();
    process.run("RESUME QUERY 'q'").await;
    append(directory.path(), "4", &[1, 2, 3, 4]).await;
    process.run("STOP QUERY 'q'").await;
    process.end().await;
    // A process ends between the text and the query that runs with it.
    let store = Store::open(kept(directory.path(), 2)).unwrap();
    store.change(&StoredQuery { statement: new.into(), ..stored }).unwrap();
    drop(store);
    let process = Process::start(directory.path(), 3).await;
    assert_eq!(process.state(&query), Some(QueryState::Cancelled));
    process.run("RESUME QUERY 'q'").await;
    append(directory.path(), "5", &[1, 2, 3, 4, 50]).await;
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

/// Connectors that take any password, and note those of sources, which may be away.
#[derive(Debug, Default)]
struct Noting {
    connectors: BuiltinConnectors,
    passwords: Arc<Mutex<Vec<String>>>,
    are_away: Arc<AtomicBool>,
}

impl Connectors for Noting {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let mut table = table.clone();
        self.passwords.lock().extend(table.options.remove("password"));
        if self.are_away.load(Ordering::Acquire) {
            return Err(StreamError::io("reading", &"nobody answers"));
        }
        self.connectors.source(&table)
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        self.connectors.sink(table, schema)
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        let password = table.options.remove("password");
        self.connectors.check(table)?;
        table.options.extend(password.map(|password| ("password".to_owned(), password)));
        Ok(())
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        self.connectors.list()
    }
}

#[tokio::test]
async fn a_query_goes_on_with_the_new_password_of_its_table_and_with_nothing_else_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let connectors = Noting::default();
    let (passwords, are_away) = (Arc::clone(&connectors.passwords), Arc::clone(&connectors.are_away));
    let options = EngineOptions { connectors: Arc::new(connectors), ..EngineOptions::default() };
    let process = Process::start_with(directory.path(), 1, options).await;
    tables(&process, directory.path()).await;
    let create = async |file: &str, password: &str| {
        let path = directory.path().join(file);
        process.run("DROP TABLE input").await;
        process.run(&format!("CREATE TABLE input (n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv', 'follow' = 'true', 'password' = '{password}')", path.display())).await;
    };
    create("input.csv", "old").await;
    process.run("SET 'query.name' = 'q'").await;
    process.insert("INSERT INTO out SELECT n FROM input").await;
    for (file, password, used) in [("input.csv", "new", "new"), ("other.csv", "newest", "new")] {
        process.run("STOP QUERY 'q'").await;
        fs::write(directory.path().join("other.csv"), "n\n").unwrap();
        create(file, password).await;
        passwords.lock().clear();
        process.run("RESUME QUERY 'q'").await;
        let noted = passwords.lock().clone();
        assert!(!noted.is_empty() && noted.iter().all(|password| password == used), "{noted:?}");
    }
    // Where the own table does not answer, it is said why nothing is taken of the one that is there now.
    process.run("STOP QUERY 'q'").await;
    are_away.store(true, Ordering::Release);
    let error = process.try_run("RESUME QUERY 'q'").await.unwrap_err();
    assert!(error.contains("they differ in more: table input (option 'path')"), "{error}");
    process.end().await;
}

/// Adds lines to the file that is followed.
fn write_more(directory: &Path, lines: &str) {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new().append(true).open(directory.join("input.csv")).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

#[tokio::test]
async fn a_materialized_view_is_there_in_the_next_process_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE MATERIALIZED VIEW kept WITH ('key' = 'rest') AS SELECT n, mod(n, 10) AS rest FROM input").await;
    process.run("CREATE TEMPORARY MATERIALIZED VIEW passing AS SELECT n FROM input").await;
    process.until("SELECT n, rest FROM kept ORDER BY n", &[&["1", "1"], &["2", "2"]]).await;
    process.until("SELECT count(*) FROM passing", &[&["2"]]).await;
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!(process.rows("SELECT n FROM kept WHERE rest = 2").await, [["2"]]);
    assert!(process.try_run("SELECT n FROM passing").await.unwrap_err().contains("does not exist"));
    write_more(directory.path(), "12\n3\n22\n");
    process.until("SELECT n FROM kept WHERE rest = 2", &[&["22"]]).await;
    process.until("SELECT n FROM kept ORDER BY n", &[&["1"], &["3"], &["22"]]).await;
    process.end().await;
    let process = Process::start(directory.path(), 3).await;
    assert_eq!(process.rows("SELECT n FROM kept ORDER BY n").await, [["1"], ["3"], ["22"]]);
    process.end().await;
}

#[tokio::test]
async fn a_materialized_view_and_its_query_come_and_go_together() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    let create = "CREATE MATERIALIZED VIEW v WITH ('key' = 'n') AS SELECT n FROM input";
    process.run(create).await;
    process.run(&create.replace("VIEW", "VIEW IF NOT EXISTS")).await;
    let refused = async |sql: &str, expected: &str| {
        let error = process.try_run(sql).await.unwrap_err();
        assert!(error.contains(expected), "{sql}: {error}");
    };
    refused(create, "materialized view v exists already").await;
    refused("CREATE TABLE v (n BIGINT) WITH ('connector' = 'blackhole')", "materialized view v exists already").await;
    refused("DROP VIEW v", "materialized view v is not a view; write DROP MATERIALIZED VIEW v").await;
    refused("DROP QUERY v", "query v fills the materialized view v; DROP MATERIALIZED VIEW takes both away").await;
    refused("STOP QUERY v WITH SAVEPOINT '/tmp/none'", "its rows are in this node").await;
    refused("INSERT INTO v SELECT n FROM input", "materialized view v is not a table").await;
    refused("SELECT v.n FROM v JOIN input ON v.n = input.n", "materialized view v beside streams is not supported")
        .await;
    let runs_on = "a query that runs on over materialized views is not supported";
    refused("CREATE MATERIALIZED VIEW w AS SELECT n FROM v", runs_on).await;
    refused("INSERT INTO out SELECT n FROM v", runs_on).await;
    refused("DROP MATERIALIZED VIEW w", "materialized view w does not exist").await;
    process.run("DROP MATERIALIZED VIEW IF EXISTS w").await;
    process.until("SELECT n FROM v ORDER BY n", &[&["1"], &["2"]]).await;
    process.run("STOP QUERY v").await;
    write_more(directory.path(), "3\n");
    process.run("RESUME QUERY v").await;
    process.until("SELECT n FROM v ORDER BY n", &[&["1"], &["2"], &["3"]]).await;
    let shown = &process.rows("SHOW MATERIALIZED VIEWS").await[0];
    assert_eq!(
        (shown[0].as_str(), shown[1].as_str(), shown[2].as_str(), shown[7].as_str()),
        ("v", "running", "3", "n")
    );
    process.run("DROP MATERIALIZED VIEW v").await;
    assert!(process.engine.inner.store.as_ref().unwrap().queries().is_empty());
    assert_eq!(fs::read_dir(directory.path().join("streams/views")).unwrap().count(), 0);
    process.run(create).await;
    process.until("SELECT n FROM v ORDER BY n", &[&["1"], &["2"], &["3"]]).await;
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!(process.relations(), ["input", "nowhere", "out", "v", "whole"]);
    process.end().await;
}

#[tokio::test]
async fn clients_that_drop_and_create_a_materialized_view_at_once_leave_it_whole_or_gone() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    let (create, drop) = ("CREATE MATERIALIZED VIEW v AS SELECT n FROM input", "DROP MATERIALIZED VIEW IF EXISTS v");
    for round in 0..30 {
        process.run(&create.replace("VIEW", "VIEW IF NOT EXISTS")).await;
        let again = async {
            process.run(drop).await;
            process.try_run(create).await
        };
        let (_, again, _) = tokio::join!(process.run(drop), again, process.run(drop));
        if let Err(error) = again {
            assert!(error.contains("exists already"), "round {round}: {error}");
        }
        let views = process.engine.inner.catalog.views();
        let filled: Vec<_> = views.iter().map(|view| view.id().clone()).collect();
        let running = process.engine.queries().into_iter().filter(|status| status.state == QueryState::Running);
        assert_eq!(running.map(|status| status.query).collect::<Vec<_>>(), filled, "round {round}");
        let stored = process.engine.inner.store.as_ref().unwrap().queries();
        assert_eq!(stored.into_iter().map(|query| query.id).collect::<Vec<_>>(), filled, "round {round}");
        let kept = fs::read_dir(directory.path().join("streams/views")).unwrap().count();
        assert_eq!(kept, filled.len(), "round {round}");
    }
    process.end().await;
}

#[tokio::test]
async fn a_materialized_view_whose_query_has_finished_stays() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE MATERIALIZED VIEW v AS SELECT n FROM whole").await;
    process.until("SELECT n FROM v", &[&["1"], &["2"]]).await;
    let begun = std::time::Instant::now();
    while !process.engine.inner.store.as_ref().unwrap().queries().is_empty() {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!(process.rows("SELECT n FROM v").await, [["1"], ["2"]]);
    assert_eq!(process.rows("SHOW MATERIALIZED VIEWS").await[0][1], "finished");
    assert!(process.try_run("DROP QUERY v").await.unwrap_err().contains("fills the materialized view v"));
    process.run("DROP MATERIALIZED VIEW v").await;
    process.end().await;
}

#[tokio::test]
async fn a_full_materialized_view_fails_its_query_and_answers_still() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    let full =
        "CREATE MATERIALIZED VIEW v WITH ('max-bytes' = '64KiB') AS SELECT n, LPAD('x', 1000, 'y') AS t FROM input";
    process.run(full).await;
    process.until("SELECT count(*) FROM v", &[&["2"]]).await;
    write_more(directory.path(), &"3\n".repeat(1_000));
    process.until("SELECT 1 FROM v LIMIT 1", &[&["1"]]).await;
    let begun = std::time::Instant::now();
    let error = loop {
        let shown = process.rows("SHOW MATERIALIZED VIEWS").await.remove(0);
        if shown[1] == "failed" {
            break shown[8].clone();
        }
        assert!(begun.elapsed() < FOREVER, "{shown:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(error.contains("materialized view v would take") && error.contains("'max-bytes'"), "{error}");
    assert!(process.rows("SHOW QUERIES").await[0].last().unwrap().contains("materialized view v would take"));
    assert_eq!(process.rows("SELECT count(*) FROM v").await, [["2"]]);
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    assert_eq!(process.rows("SELECT n FROM v ORDER BY n").await, [["1"], ["2"]]);
    process.end().await;
}

#[tokio::test]
async fn a_damaged_materialized_view_says_so_and_the_others_answer() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE MATERIALIZED VIEW good AS SELECT n FROM whole").await;
    process.run("CREATE MATERIALIZED VIEW bad AS SELECT n FROM input").await;
    process.until("SELECT count(*) FROM good", &[&["2"]]).await;
    process.until("SELECT count(*) FROM bad", &[&["2"]]).await;
    let job = process.engine.inner.catalog.views()[0].id().job;
    process.end().await;
    let log = directory.path().join("streams/views").join(job.to_string());
    let files = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let segment = files.filter(|path| path.to_string_lossy().contains("segment")).min().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[200] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let process = Process::start(directory.path(), 2).await;
    let error = process.try_run("SELECT n FROM bad").await.unwrap_err();
    assert!(error.contains("segment") && error.contains("damaged"), "{error}");
    let shown = process.rows("SHOW MATERIALIZED VIEWS").await;
    assert_eq!((shown[0][0].as_str(), shown[0][1].as_str(), shown[1][0].as_str()), ("bad", "failed", "good"));
    assert!(shown[0][8].contains("damaged"), "{shown:?}");
    assert_eq!(process.rows("SELECT count(*) FROM good").await, [["2"]]);
    process.run("DROP MATERIALIZED VIEW bad").await;
    assert!(!log.exists());
    process.end().await;
}

#[tokio::test]
async fn a_materialized_view_that_has_lost_what_it_held_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE MATERIALIZED VIEW finished AS SELECT n FROM whole").await;
    process.until("SELECT count(*) FROM finished", &[&["2"]]).await;
    process.run("CREATE MATERIALIZED VIEW followed AS SELECT n FROM input").await;
    for (count, row) in [("2", ""), ("3", "3\n"), ("4", "4\n"), ("5", "5\n")] {
        write_more(directory.path(), row);
        process.until("SELECT count(*) FROM followed", &[&[count]]).await;
    }
    process.end().await;
    let (views, away) = (directory.path().join("streams/views"), directory.path().join("away"));
    fs::rename(&views, &away).unwrap();

    let process = Process::start(directory.path(), 2).await;
    for view in ["finished", "followed"] {
        let error = process.try_run(&format!("SELECT n FROM {view}")).await.unwrap_err();
        assert!(error.contains("it is not there; restore it, or DROP the view"), "{error}");
    }
    process.end().await;

    // The directories are back, but empty.
    for view in fs::read_dir(&away).unwrap() {
        fs::create_dir_all(views.join(view.unwrap().file_name())).unwrap();
    }
    let process = Process::start(directory.path(), 3).await;
    let error = process.try_run("SELECT n FROM followed").await.unwrap_err();
    assert!(error.contains("materialized view followed holds epoch 0 of the query, but has held epoch"), "{error}");
    process.end().await;

    fs::remove_dir_all(&views).unwrap();
    fs::rename(&away, &views).unwrap();
    let process = Process::start(directory.path(), 4).await;
    assert_eq!(process.rows("SELECT count(*) FROM finished").await, [["2"]]);
    assert_eq!(process.rows("SELECT count(*) FROM followed").await, [["5"]]);
    process.end().await;
}

#[tokio::test]
async fn what_cannot_be_a_materialized_view_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process
        .run("CREATE TABLE made (n BIGINT, d DOUBLE) WITH ('connector' = 'datagen', 'rows-per-second' = '10')")
        .await;
    let query = "AS SELECT n, d FROM made";
    for (view, expected) in [
        (format!("VIEW v {query}"), "materialized view v cannot outlive the process: table made"),
        (format!("VIEW `a b` {query}"), "expected a letter, then letters, digits, - and _"),
        (
            format!("VIEW v WITH ('keys' = 'n') {query}"),
            "option keys does not exist (line 1, column 34); did you mean key?",
        ),
        (format!("VIEW v WITH ('key' = 'm') {query}"), "column m does not exist"),
        (
            format!("VIEW v WITH ('key' = 'd') {query}"),
            "column d cannot be of the key of materialized view v, because it is DOUBLE",
        ),
        (format!("VIEW v WITH ('key' = 'n, n') {query}"), "column n is named twice"),
        (format!("VIEW v WITH ('max-rows' = '0') {query}"), "expected a number of rows, at least 1, got '0'"),
        (format!("VIEW v WITH ('retention' = '5ms') {query}"), "expected a length of time"),
        (format!("VIEW v WITH ('max-bytes' = 'much') {query}"), "expected a size, such as 512MiB, got 'much'"),
        ("VIEW v AS SELECT n, n AS n FROM made".into(), "n"),
        ("VIEW v AS SELECT n FROM made ORDER BY n".into(), "ORDER BY is not supported"),
        ("VIEW v AS SELECT nothing FROM made".into(), "column nothing does not exist"),
    ] {
        let error = process.try_run(&format!("CREATE MATERIALIZED {view}")).await.unwrap_err();
        assert!(error.contains(expected), "{view}: {error}");
    }
    assert!(process.engine.inner.catalog.views().is_empty());
    process.run(&format!("CREATE TEMPORARY MATERIALIZED VIEW v WITH ('max-rows' = '3') {query}")).await;
    process.until("SELECT count(*) FROM v", &[&["3"]]).await;
    process.run("STOP QUERY v").await;
    process.run("DROP MATERIALIZED VIEW v").await;
    process.end().await;
}

#[tokio::test]
async fn queries_over_materialized_views_are_all_of_sql() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE MATERIALIZED VIEW v WITH ('key' = 'n') AS SELECT n, CAST(n AS VARCHAR) AS t FROM input").await;
    process.run("CREATE MATERIALIZED VIEW w AS SELECT n * 10 AS m FROM input").await;
    process.run("CREATE VIEW both AS SELECT n, m FROM v JOIN w ON n * 10 = m").await;
    write_more(directory.path(), "3\n4\n");
    process.until("SELECT count(*) FROM v", &[&["4"]]).await;
    process.until("SELECT count(*) FROM w", &[&["4"]]).await;
    for (sql, expected) in [
        ("SELECT t FROM v WHERE n = 3", vec!["3"]),
        ("SELECT v.t FROM v WHERE 3 = v.n", vec!["3"]),
        ("SELECT a.t FROM v a WHERE (a.n = 3)", vec!["3"]),
        ("SELECT t FROM v WHERE n = 3 AND n = 4", vec![]),
        ("SELECT t FROM v WHERE n = 3.0", vec!["3"]),
        ("SELECT t FROM v WHERE n = 99", vec![]),
        ("SELECT t FROM v WHERE n = NULL", vec![]),
        ("SELECT t FROM v WHERE n > 1 ORDER BY n DESC LIMIT 2", vec!["4", "3"]),
        ("SELECT sum(m) FROM both", vec!["100"]),
        ("SELECT n FROM v WHERE n IN (SELECT m / 10 FROM w WHERE m > 20) ORDER BY n", vec!["3", "4"]),
        ("SELECT n FROM v WHERE n = (SELECT max(n) FROM v)", vec!["4"]),
        ("WITH input AS (SELECT n FROM v) SELECT count(*) FROM input", vec!["4"]),
        ("WITH v AS (SELECT * FROM v) SELECT count(*) FROM v", vec!["4"]),
        ("SELECT row_number() OVER (ORDER BY n DESC) FROM v WHERE n < 3 ORDER BY 1", vec!["1", "2"]),
        ("SELECT n FROM v UNION ALL SELECT m FROM w ORDER BY n DESC LIMIT 1", vec!["40"]),
        ("SELECT lag(n) OVER (ORDER BY n) FROM v ORDER BY n LIMIT 2", vec!["", "1"]),
        ("SELECT n FROM v WHERE EXISTS (SELECT 1 FROM w WHERE m = n * 10 AND m = 20)", vec!["2"]),
        ("SELECT string_agg(t, '+' ORDER BY n DESC) FROM v", vec!["4+3+2+1"]),
        ("SELECT count(*) FROM v GROUP BY ROLLUP (n) ORDER BY 1 DESC LIMIT 2", vec!["4", "1"]),
        ("SELECT DISTINCT ON (mod(n, 2)) n FROM v ORDER BY mod(n, 2), n", vec!["2", "1"]),
        ("SELECT n FROM v WHERE n = (SELECT max(c) FROM (VALUES (2), (3)) AS x (c))", vec!["3"]),
    ] {
        let rows: Vec<String> = process.rows(sql).await.into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(rows, expected, "{sql}");
    }
    assert_eq!(
        process.rows("EXPLAIN SELECT t FROM v WHERE n = 3").await,
        [["the row of a key of a materialized view, by its index"]]
    );
    for sql in [
        "SELECT t FROM v WHERE n = 3.0",
        "SELECT t FROM v WHERE n = 3 LIMIT 1",
        "SELECT DISTINCT t FROM v WHERE n = 3",
        "SELECT n + 1 FROM v WHERE n = 3",
    ] {
        assert_ne!(
            process.rows(&format!("EXPLAIN {sql}")).await[0][0],
            "the row of a key of a materialized view, by its index",
            "{sql}"
        );
    }
    let error = process.try_run("SELECT n FROM v WHERE n / 0 = 1").await.unwrap_err();
    assert!(error.contains("the divisor is 0"), "{error}");
    let hidden = "SELECT n FROM v, input WHERE EXISTS (WITH input AS (SELECT 1 AS one) SELECT one FROM input)";
    let error = process.try_run(hidden).await.unwrap_err();
    assert!(error.contains("materialized view v beside streams"), "{error}");
    let error = process.try_run("SELECT nothing FROM v").await.unwrap_err();
    assert!(error.starts_with("column nothing does not exist"), "{error}");
    process.run("SET 'memory-limit' = '1KiB'").await;
    let error = process.try_run("SELECT a.n FROM v a, v b, v c, w ORDER BY a.n").await.unwrap_err();
    assert!(error.contains("raise the limit with SET 'memory-limit'"), "{error}");
    process.run("RESET 'memory-limit'").await;
    process.run("SET statement_timeout = 300").await;
    let crossed = (0..14).map(|i| format!("v v{i}")).collect::<Vec<_>>().join(", ");
    let error = process.try_run(&format!("SELECT count(*) FROM {crossed}")).await.unwrap_err();
    assert!(error.contains("took longer than 300 ms"), "{error}");
    process.end().await;
}

#[tokio::test]
async fn what_no_query_may_have_is_refused_over_materialized_views_too() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, directory.path()).await;
    process.run("CREATE TEMPORARY MATERIALIZED VIEW v AS SELECT n FROM input").await;
    let columns = (0..1_665).map(|at| format!("n AS c{at}")).collect::<Vec<_>>().join(", ");
    for (sql, expected) in [
        ("SELECT * FROM v TABLESAMPLE BERNOULLI (1)", "TABLESAMPLE is not supported"),
        ("SELECT n FROM v FOR UPDATE", "FOR UPDATE is not supported"),
        (&format!("SELECT {columns} FROM v"), "1664 columns at most"),
        ("SELECT arrow_cast(n, 'Int8') FROM v", "ARROW_CAST is not supported"),
        ("SELECT not_null(n) FROM v", "NOT_NULL is not supported"),
        ("SELECT n FROM v WHERE n < 123456789012345678901234567890123456789", "a number of more than 38 digits"),
        ("SELECT n FROM v WHERE n > $1", "the parameter $1 without a value"),
        ("SELECT n FROM v WHERE n IN (SELECT n FROM v TABLESAMPLE BERNOULLI (1))", "TABLESAMPLE is not supported"),
        (
            "WITH RECURSIVE r AS (SELECT n FROM v UNION ALL SELECT n FROM r) SELECT n FROM r",
            "WITH RECURSIVE is not supported",
        ),
        ("SELECT nothing(n) FROM v", "function nothing does not exist"),
        ("SELECT lag(n) FROM v", "LAG (a function for OVER) is not supported"),
        ("SELECT count(*) FROM v GROUP BY TUMBLE(n, INTERVAL '1' HOUR)", "TUMBLE over materialized views"),
    ] {
        let error = process.try_run(sql).await.unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    process.end().await;
}

/// A view of so many rows: a number, and a text of 100 bytes.
async fn large_view(process: &Process, directory: &Path, rows: usize) {
    let lines = (0..rows).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    tables(process, directory).await;
    write_more(directory, &lines);
    process.run("CREATE TEMPORARY MATERIALIZED VIEW v AS SELECT n, LPAD('x', 100, 'y') AS t FROM whole").await;
    process.until("SELECT count(*) FROM v", &[&[&(rows + 2).to_string()]]).await;
}

#[tokio::test]
async fn a_query_over_materialized_views_ends_when_nobody_waits_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    large_view(&process, directory.path(), 50_000).await;
    process.run("SET statement_timeout = 300").await;
    for sql in [
        "SELECT count(*) FROM v a, v b, v c",
        "SELECT count(*) FROM v a JOIN v b ON mod(a.n, 2) = mod(b.n, 2) JOIN v c ON mod(b.n, 2) = mod(c.n, 2)",
    ] {
        let error = process.try_run(sql).await.unwrap_err();
        assert!(error.contains("took longer than 300 ms"), "{error}");
        let begun = std::time::Instant::now();
        while process.engine.threads.at_work() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "{sql}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    process.end().await;
}

#[tokio::test]
async fn the_rows_of_a_materialized_view_are_sorted_within_a_few_times_their_size() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    large_view(&process, directory.path(), 100_000).await;
    // They take some 12 MB.
    process.run("SET 'memory-limit' = '64MiB'").await;
    let rows = process.rows("SELECT n, t FROM v ORDER BY n").await;
    assert_eq!((rows.len(), rows[100_001][0].as_str()), (100_002, "99999"));
    process.end().await;
}
