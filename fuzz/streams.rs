//! Bodies of the targets of streams, which its tests run as well: SQL text, and rows in each format.

use std::fs;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use savanna_streams::api::StreamError;
use savanna_streams::api::handle::{HandleError, SessionId, StreamHandle, StreamReply, StreamRequest};
use savanna_streams::connectors::BuiltinConnectors;
use savanna_streams::{EngineOptions, StreamEngine};
use tokio::runtime::{Builder, Runtime};

const TABLES: [&str; 3] = [
    "CREATE TABLE t (a BIGINT, s STRING, x DOUBLE, d DECIMAL(10, 2), at TIMESTAMP(3), r ROW<a INT, b STRING>, WATERMARK FOR at AS \
     at - INTERVAL '1' SECOND) WITH ('connector' = 'datagen', 'number-of-rows' = '10')",
    "CREATE TABLE out (a BIGINT, s STRING) WITH ('connector' = 'blackhole')",
    "CREATE VIEW v AS SELECT a, s || s AS ss FROM t WHERE a > 0",
];

struct Prepared {
    runtime: Runtime,
    engine: Arc<StreamEngine>,
    session: SessionId,
}

async fn call(engine: &StreamEngine, request: StreamRequest) -> Result<StreamReply, HandleError> {
    let answer = engine.call(request).await;
    if let Err(HandleError::Stream(StreamError::Internal(message))) = &answer {
        panic!("{message}");
    }
    answer
}

async fn prepared(options: EngineOptions, tables: &[&str]) -> (Arc<StreamEngine>, SessionId) {
    let engine = StreamEngine::new(options);
    let opened = call(&engine, StreamRequest::OpenSession { user: "fuzz".into() }).await;
    let Ok(StreamReply::Session { session }) = opened else { panic!("no session: {opened:?}") };
    for table in tables {
        let sql = (*table).to_owned();
        call(&engine, StreamRequest::Execute { session, sql, parameters: vec![] }).await.expect("a table");
    }
    (engine, session)
}

/// Any text as SQL: split, typed and planned, or refused. Nothing is run.
pub fn sql(bytes: &[u8]) {
    static PREPARED: OnceLock<Prepared> = OnceLock::new();
    let Prepared { runtime, engine, session } = PREPARED.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (engine, session) = runtime.block_on(prepared(EngineOptions::default(), &TABLES));
        Prepared { runtime, engine, session }
    });
    let sql = String::from_utf8_lossy(bytes).into_owned();
    runtime.block_on(async {
        let split = call(engine, StreamRequest::Split { sql: sql.clone() }).await;
        let statements = match split {
            Ok(StreamReply::Statements { statements }) => statements,
            _ => vec![sql],
        };
        for sql in statements {
            // What is wrong is refused.
            let _ =
                call(engine, StreamRequest::Describe { session: *session, sql: sql.clone(), parameters: vec![] }).await;
            let sql = format!("EXPLAIN {sql}");
            let _ = call(engine, StreamRequest::Execute { session: *session, sql, parameters: vec![] }).await;
        }
    });
}

/// Any bytes as rows: the first byte says in which format, and whether rows that cannot be read are skipped.
pub fn rows(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let on_error = if first & 1 == 0 { "fail" } else { "skip" };
    let columns = "(a BIGINT, s STRING, x DOUBLE, d DECIMAL(10, 2), at TIMESTAMP(3), ok BOOLEAN";
    let row = ", r ROW<a INT, b ARRAY<STRING>>, m MAP<STRING, INT>";
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("rows");
    let (table, bare) = match *first >> 1 & 3 {
        0 => (format!("{columns}) WITH ('connector' = 'stdin', 'format' = 'csv'"), "csv"),
        1 => (format!("{columns}) WITH ('connector' = 'stdin', 'format' = 'csv', 'csv.delimiter' = ';'"), "csv"),
        2 => (format!("{columns}{row}) WITH ('connector' = 'stdin', 'format' = 'ndjson'"), "ndjson"),
        _ => (String::new(), "parquet"),
    };
    let input = Box::new(Cursor::new(bytes.to_vec()));
    let output = Arc::new(parking_lot::Mutex::new(std::io::sink()));
    let connectors = Arc::new(BuiltinConnectors::with_streams(input, output));
    let options = EngineOptions { connectors, ..EngineOptions::default() };
    runtime.block_on(async {
        let (engine, session) = prepared(options, &[]).await;
        let run = async |sql: String| call(&engine, StreamRequest::Execute { session, sql, parameters: vec![] }).await;
        let mut tables = Vec::new();
        if !table.is_empty() && run(format!("CREATE TABLE t {table}, 'on-error' = '{on_error}')")).await.is_ok() {
            tables.push("t");
        }
        // Columns are found in the file.
        fs::write(&path, bytes).expect("a file");
        let file = format!("'connector' = 'file', 'path' = '{}', 'format' = '{bare}'", path.display());
        if run(format!("CREATE TABLE f WITH ({file}, 'on-error' = '{on_error}')")).await.is_ok() {
            tables.push("f");
        }
        for table in tables {
            let started = run(format!("SELECT * FROM {table}")).await;
            let Ok(StreamReply::Rows { cursor, .. }) = started else { continue };
            let fetch = || StreamRequest::Fetch { session, cursor, max_rows: 1_000, wait_ms: 60_000 };
            while let Ok(StreamReply::Fetched { end: false, .. }) = call(&engine, fetch()).await {}
        }
        let stopped = tokio::time::timeout(Duration::from_secs(60), engine.shutdown()).await;
        stopped.expect("queries end");
    });
}
