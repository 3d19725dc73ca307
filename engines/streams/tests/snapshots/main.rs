//! Queries that go on from snapshots of their state: an engine over a directory, ended at any moment.

mod changed;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray};
use savanna_epoch::NodeEpoch;
use savanna_streams::connectors::Roots;
use savanna_streams::{EngineOptions, StoreOptions, StreamEngine};
use savanna_streams_api::handle::{QueryState, SessionId, StreamHandle, StreamReply, StreamRequest};
use savanna_streams_api::ids::QueryId;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Far beyond what any of these tests needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(600);
const EVENTS: u64 = 120_000;

/// An engine over a directory, with one session.
struct Process {
    engine: Arc<StreamEngine>,
    session: SessionId,
}

impl Process {
    async fn start(directory: &Path, epoch: u64) -> Self {
        Self::start_with(EngineOptions::default(), directory, epoch).await
    }

    async fn start_with(options: EngineOptions, directory: &Path, epoch: u64) -> Self {
        let directory = directory.join("streams");
        let kept = StoreOptions { directory, epoch: NodeEpoch(epoch), high_water: None, may_commit: None };
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

    /// What `SHOW QUERIES` says of the snapshots of the newest query.
    async fn snapshot(&self) -> String {
        let StreamReply::Rows { cursor, .. } = self.run("SHOW QUERIES").await else { panic!("no rows") };
        let fetch = StreamRequest::Fetch { session: self.session, cursor, max_rows: 10, wait_ms: 1_000 };
        let Ok(StreamReply::Fetched { rows, .. }) = self.engine.call(fetch).await else { panic!("no rows") };
        let column = rows.batches[0].column_by_name("snapshot").unwrap();
        let texts = column.as_string::<i32>();
        if texts.is_empty() { String::new() } else { texts.value(0).to_owned() }
    }

    fn state(&self, query: &QueryId) -> Option<QueryState> {
        self.engine.queries().into_iter().find(|status| status.query == *query).map(|status| status.state)
    }

    fn events(&self, query: &QueryId) -> u64 {
        self.engine.queries().into_iter().find(|status| status.query == *query).map_or(0, |status| status.events)
    }

    fn epoch(&self, query: &QueryId) -> u64 {
        self.engine.queries().into_iter().find(|status| status.query == *query).map_or(0, |status| status.epoch)
    }

    async fn end(self) {
        self.engine.shutdown().await;
    }
}

/// A table of events.
fn events(rate: u64) -> String {
    format!(
        "CREATE TABLE events (event_type INT, bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, dateTime TIMESTAMP(3), \
         extra VARCHAR>, at AS bid.dateTime, WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ('connector' = 'nexmark', 'events.num' = '{EVENTS}', \
         'rate-limited' = '{}', 'first-event.rate' = '{rate}', 'base-time' = '2026-01-01 00:00:00')",
        rate > 0
    )
    .replace("'first-event.rate' = '0'", "'first-event.rate' = '40000'")
}

/// Tables of events and of results, and a view of bids.
async fn tables(process: &Process, out: &Path, rate: u64) {
    for statement in [
        events(rate),
        "CREATE VIEW bids AS SELECT bid.auction AS auction, bid.price AS price, bid.channel AS channel, at FROM events WHERE event_type = 2".to_owned(),
        format!(
            "CREATE TABLE out (at TIMESTAMP(3), auction BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv', 'csv.header' = 'false')",
            out.display()
        ),
    ] {
        process.run(&statement).await;
    }
}

/// The lines of all parts, each as often as it is there.
fn lines(out: &Path) -> Vec<String> {
    let parts = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let visible = parts.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("part-"));
    let mut lines: Vec<String> = visible
        .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.sort_unstable();
    lines
}

/// Whether the snapshot that counts of the only query in a directory has changes behind a whole state.
fn has_changes(directory: &Path) -> bool {
    let queries = fs::read_dir(directory.join("streams/snapshots")).into_iter().flatten().flatten();
    let files = queries.flat_map(|query| fs::read_dir(query.path()).into_iter().flatten().flatten());
    let place = |name: &str| -> Option<(u64, u64)> {
        let (owner, epoch) = name.strip_prefix("manifest-")?.split_once('-')?;
        Some((owner.parse().ok()?, epoch.parse().ok()?))
    };
    let manifests = files.filter_map(|file| Some((place(&file.file_name().to_string_lossy())?, file.path())));
    // Behind the checksum is the version of its form.
    manifests.max().is_some_and(|(_, path)| fs::read(path).unwrap()[4] == 2)
}

/// What a query gives that is never disturbed.
async fn undisturbed(select: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, &directory.path().join("out"), 0).await;
    let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {select}")).await else { panic!() };
    let begun = Instant::now();
    while process.state(&query) == Some(QueryState::Running) {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process.end().await;
    lines(&directory.path().join("out"))
}

const SHAPES: [&str; 8] = [
    "SELECT window_start, auction, count(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '5' MINUTE, INTERVAL '1' HOUR)) \
     GROUP BY window_start, window_end, auction",
    "SELECT window_start, auction, count(*) FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '0.05' SECOND)) \
     GROUP BY auction, window_start, window_end",
    // The sides have their keys in different columns.
    "SELECT l.at, l.auction, r.price FROM bids l LEFT JOIN (SELECT price, at, auction + 0 AS auction FROM bids) r ON l.auction = r.auction \
     AND l.at BETWEEN r.at - INTERVAL '0.5' SECOND AND r.at + INTERVAL '0.01' SECOND AND l.price > 10 * r.price WHERE l.auction % 20 = 7",
    "SELECT window_start, auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, channel) AS place \
     FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND))) WHERE place <= 50",
    "SELECT window_start, auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, auction ORDER BY price DESC) AS place \
     FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND))) WHERE place <= 2 AND auction % 5 = 2",
    // Two inputs of windows with their keys in different columns.
    "SELECT l.window_start, l.auction, l.price FROM TABLE(TUMBLE((SELECT auction, price, at FROM bids WHERE auction % 5 = 2), DESCRIPTOR(at), INTERVAL '2' SECOND)) l \
     WHERE NOT EXISTS (SELECT 1 FROM TABLE(TUMBLE((SELECT price, channel, at, auction + 0 AS of FROM bids WHERE price > 1000000), DESCRIPTOR(at), \
     INTERVAL '2' SECOND)) r WHERE r.of = l.auction AND r.window_start = l.window_start AND r.window_end = l.window_end AND r.price > 2 * l.price)",
    // A union with keys of text, and two keyed stages one behind the other.
    "SELECT window_start, CAST(length(channel) AS BIGINT), max(n) FROM TABLE(TUMBLE((SELECT channel, window_time AS at, count(*) AS n FROM TABLE(HOP((SELECT channel, at \
     FROM bids UNION ALL SELECT extra, at FROM (SELECT CONCAT(channel, '!') AS extra, at FROM bids WHERE price > 1000)), DESCRIPTOR(at), INTERVAL '0.5' SECOND, \
     INTERVAL '1' SECOND)) GROUP BY channel, window_start, window_end, window_time), DESCRIPTOR(at), INTERVAL '0.5' SECOND)) GROUP BY window_start, window_end, channel",
    "SELECT l.at, l.auction, r.price FROM (SELECT at, auction, price FROM bids WHERE price % 2 = 0 UNION ALL SELECT at, auction, price + 1 FROM bids WHERE price % 2 = 1) l \
     JOIN (SELECT price, at, auction + 0 AS auction FROM bids) r ON l.auction = r.auction AND l.at BETWEEN r.at - INTERVAL '0.5' SECOND \
     AND r.at + INTERVAL '0.01' SECOND AND l.price > 10 * r.price WHERE l.auction % 20 = 7",
];

#[tokio::test]
async fn queries_of_many_shapes_go_on_from_their_snapshots_and_write_each_row_once() {
    let mut behind_changes = 0;
    for (number, select) in SHAPES.iter().enumerate() {
        let expected = undisturbed(select).await;
        assert!(expected.len() > 20, "shape {number}: {} lines", expected.len());
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let mut process = Process::start(directory.path(), 1).await;
        tables(&process, &out, 40_000).await;
        let mode = if number % 2 == 0 { "provisioned" } else { "serverless" };
        for set in [format!("SET 'mode' = '{mode}'"), "SET 'group-size' = '2'".into(), "SET 'parallelism' = '2'".into()]
        {
            process.run(&set).await;
        }
        process.run("SET 'snapshot-interval' = '20ms'").await;
        process.run("SET 'epoch-target' = '20ms'").await;
        process.run("SET 'query.name' = 'q'").await;
        let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {select}")).await else { panic!() };
        let mut seen = BTreeSet::new();
        let begun = Instant::now();
        for epoch in 2.. {
            let before = process.events(&query);
            while process.state(&query) == Some(QueryState::Running) && process.events(&query) < before + 25_000 {
                assert!(begun.elapsed() < FOREVER);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if process.state(&query) != Some(QueryState::Running) {
                break;
            }
            seen.insert(process.snapshot().await);
            process.end().await;
            behind_changes += u32::from(has_changes(directory.path()));
            process = Process::start(directory.path(), epoch).await;
            // It may have come to its end just before its process did; what it wrote tells.
            if process.state(&query).is_none() {
                break;
            }
            if epoch < 4 {
                // Groups of another size have its state, too.
                process.run("STOP QUERY 'q'").await;
                process.run(&format!("SET 'group-size' = '{}'", if epoch == 2 { 3 } else { 1 })).await;
                process.run("RESUME QUERY 'q'").await;
            }
        }
        assert!(seen.iter().filter(|seen| seen.starts_with("epoch ")).count() > 1, "shape {number}: {seen:?}");
        assert!(
            process.events(&query) < EVENTS / 2,
            "shape {number}: {} events were read in the end",
            process.events(&query)
        );
        process.end().await;
        assert_eq!(lines(&out), expected, "shape {number}");
        let left = directory.path().join("streams/snapshots");
        assert_eq!(fs::read_dir(left).unwrap().count(), 0, "the snapshots of a query go with it");
    }
    assert!(behind_changes > SHAPES.len() as u32, "{behind_changes} processes began behind changes");
}

#[tokio::test]
async fn a_query_that_was_saved_goes_on_in_another_node_and_writes_each_row_once() {
    let select = SHAPES[1];
    let expected = undisturbed(select).await;
    let directory = tempfile::tempdir().unwrap();
    let (out, saved) = (directory.path().join("out"), directory.path().join("saved"));
    let (here, there) = (directory.path().join("here"), directory.path().join("there"));
    let stop = format!("STOP QUERY 'q' WITH SAVEPOINT '{}'", saved.display());
    let resume = format!("RESUME QUERY FROM SAVEPOINT '{}'", saved.display());
    fs::create_dir_all(&here).unwrap();
    fs::create_dir_all(&there).unwrap();
    let process = Process::start(&here, 1).await;
    tables(&process, &out, 40_000).await;
    assert!(process.try_run(&stop).await.unwrap_err().contains("does not exist"));
    process.run("SET 'snapshot-interval' = '20ms'").await;
    process.run("SET 'query.name' = 'q'").await;
    let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {select}")).await else { panic!() };
    let begun = Instant::now();
    while !process.snapshot().await.starts_with("epoch ") || process.events(&query) < EVENTS / 3 {
        assert!(begun.elapsed() < FOREVER && process.state(&query) == Some(QueryState::Running));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Where there is something already, nothing is written, and the query runs on.
    fs::create_dir(&saved).unwrap();
    fs::write(saved.join("other"), "").unwrap();
    let error = process.try_run(&stop).await.unwrap_err();
    assert!(error.contains("there is something in it"), "{error}");
    assert_eq!(process.state(&query), Some(QueryState::Running));
    fs::remove_dir_all(&saved).unwrap();
    process.run(&stop).await;
    assert_eq!(process.state(&query), Some(QueryState::Cancelled));
    let error = process.try_run(&resume).await.unwrap_err();
    assert!(error.contains("query q exists already"), "{error}");
    let error = process.try_run(&stop).await.unwrap_err();
    assert!(error.contains("there is something in it"), "{error}");
    // Damage is told of, and nothing is left behind by the attempt.
    let other = Process::start(&there, 1).await;
    let whole = fs::read(saved.join("savepoint")).unwrap();
    fs::write(saved.join("savepoint"), &whole[..whole.len() - 1]).unwrap();
    let error = other.try_run(&resume).await.unwrap_err();
    assert!(error.contains("it is damaged") && error.contains("saved"), "{error}");
    fs::write(saved.join("savepoint"), whole).unwrap();
    other.run("SET 'group-size' = '3'").await;
    other.run(&resume).await;
    let first = other.events(&query);
    while other.state(&query) == Some(QueryState::Running) {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(other.state(&query), Some(QueryState::Finished));
    assert!(first < EVENTS / 3 && other.events(&query) < EVENTS, "it did not begin anew");
    assert_eq!(lines(&out), expected);
    // Where it was, its records end before what the sink holds.
    let error = process.try_run("RESUME QUERY 'q'").await.unwrap_err();
    assert!(error.contains("records were lost"), "{error}");
    process.end().await;
    other.end().await;
    assert_eq!(lines(&out), expected);
}

#[tokio::test]
async fn savepoints_are_kept_to_the_folders_that_tables_may_use() {
    let directory = tempfile::tempdir().unwrap();
    let (files, elsewhere) = (directory.path().join("files"), directory.path().join("elsewhere"));
    fs::create_dir(&files).unwrap();
    let roots = Roots::below(vec![files.clone()], Vec::new(), "start it with --files DIR");
    let process = Process::start_with(EngineOptions { roots, ..EngineOptions::default() }, directory.path(), 1).await;
    tables(&process, &files.join("out"), 1_000).await;
    process.run("SET 'query.name' = 'q'").await;
    let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {}", SHAPES[0])).await else { panic!() };
    for statement in ["STOP QUERY 'q' WITH SAVEPOINT", "RESUME QUERY FROM SAVEPOINT"] {
        let error = process.try_run(&format!("{statement} '{}'", elsewhere.display())).await.unwrap_err();
        assert!(error.contains("lies outside of the folders"), "{statement}: {error}");
    }
    assert_eq!(process.state(&query), Some(QueryState::Running));
    assert!(!elsewhere.exists());
    process.run(&format!("STOP QUERY 'q' WITH SAVEPOINT '{}'", files.join("saved").display())).await;
    assert!(files.join("saved/savepoint").exists());
    process.end().await;
}

#[tokio::test]
async fn show_queries_says_why_there_are_no_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, &directory.path().join("out"), 1_000).await;
    process.run("SET 'snapshot-interval' = '60s'").await;
    process.run("SET 'query.name' = 'q'").await;
    process.run("INSERT INTO out SELECT at, auction, price FROM bids").await;
    assert_eq!(process.snapshot().await, "none: it keeps nothing over the end of an epoch");
    process.run("RESET 'snapshot-interval'").await;
    process.run("SET 'query.name' = 'r'").await;
    process.run(&format!("INSERT INTO out {}", SHAPES[0])).await;
    assert_eq!(process.snapshot().await, "none: 'snapshot-interval' is none");
    process.run("SET 'snapshot-interval' = '60s'").await;
    process.run("SET 'query.name' = 's'").await;
    process.run(&format!("INSERT INTO out {}", SHAPES[0])).await;
    assert_eq!(process.snapshot().await, "none yet");
    let error = process.try_run("SET 'snapshot-interval' = '1ms'").await.unwrap_err();
    assert!(error.contains("10ms at least"), "{error}");
    process.end().await;
}

/// Queries that go on with another parallelism: each table is read in the parts in which it was read first.
#[tokio::test]
async fn a_query_goes_on_with_another_parallelism_and_reads_each_row_once() {
    for select in [SHAPES[1], "SELECT at, auction, price FROM bids"] {
        let expected = undisturbed(select).await;
        let directory = tempfile::tempdir().unwrap();
        let mut process = Process::start(directory.path(), 1).await;
        tables(&process, &directory.path().join("out"), 40_000).await;
        for set in
            ["'snapshot-interval' = '20ms'", "'epoch-target' = '20ms'", "'parallelism' = '3'", "'query.name' = 'q'"]
        {
            process.run(&format!("SET {set}")).await;
        }
        let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {select}")).await else { panic!() };
        let begun = Instant::now();
        for (epoch, parallelism) in [(2, 2), (3, 5), (4, 1)] {
            let before = process.events(&query);
            while process.state(&query) == Some(QueryState::Running) && process.events(&query) < before + 15_000 {
                assert!(begun.elapsed() < FOREVER);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            process.run("STOP QUERY 'q'").await;
            process.run(&format!("SET 'parallelism' = '{parallelism}'")).await;
            let StreamReply::Rows { cursor, .. } =
                process.run(&format!("EXPLAIN RESUME QUERY 'q' AS INSERT INTO out {select}")).await
            else {
                panic!()
            };
            let fetch = StreamRequest::Fetch { session: process.session, cursor, max_rows: 100, wait_ms: 1_000 };
            let Ok(StreamReply::Fetched { rows, .. }) = process.engine.call(fetch).await else { panic!("no rows") };
            assert!(format!("{rows:?}").contains("its tables are read in as many parts as before"), "{rows:?}");
            process.run("RESUME QUERY 'q'").await;
            process.end().await;
            process = Process::start(directory.path(), epoch).await;
        }
        while process.state(&query) == Some(QueryState::Running) {
            assert!(begun.elapsed() < FOREVER);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.end().await;
        assert_eq!(lines(&directory.path().join("out")), expected);
    }
}

#[tokio::test]
async fn files_are_read_in_the_parts_that_the_records_know_and_others_are_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let (files, out) = (directory.path().join("files"), directory.path().join("out"));
    fs::create_dir(&files).unwrap();
    let rows = |file: i64| {
        (0..20_000).map(|row| format!("2026-01-01 00:00:{:02},{file},{row}\n", row % 60)).collect::<String>()
    };
    let add =
        |file: i64| fs::write(files.join(format!("{file}.csv")), format!("at,auction,n\n{}", rows(file))).unwrap();
    (0..5).for_each(add);
    let process = Process::start(directory.path(), 1).await;
    tables(&process, &out, 1_000).await;
    process
        .run(&format!(
            "CREATE TABLE rows (at TIMESTAMP(3), auction BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv')",
            files.display()
        ))
        .await;
    // Epochs of few rows, so that it is not over before it is stopped.
    for set in ["'epoch-events' = '200'", "'batch-rows' = '100'", "'parallelism' = '3'", "'query.name' = 'q'"] {
        process.run(&format!("SET {set}")).await;
    }
    let StreamReply::Started { query } = process.run("INSERT INTO out SELECT * FROM rows").await else { panic!() };
    let begun = Instant::now();
    let until_more = async |count: usize| {
        while process.state(&query) == Some(QueryState::Running) && lines(&out).len() < count {
            assert!(begun.elapsed() < FOREVER);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    until_more(1_000).await;
    process.run("STOP QUERY 'q'").await;
    let written = lines(&out).len();
    assert!(written < 100_000, "it was over");
    process.run("SET 'parallelism' = '4'").await;
    // A file more, and one less than there are parts.
    add(5);
    process.run("RESUME QUERY 'q'").await;
    while process.state(&query) == Some(QueryState::Running) {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!((process.state(&query), lines(&out).len()), (Some(QueryState::Failed), written));
    (2..6).for_each(|file| fs::remove_file(files.join(format!("{file}.csv"))).unwrap());
    let error = process.try_run("RESUME QUERY 'q'").await.unwrap_err();
    assert!(error.contains("read 3 source partitions before and would read 2 now"), "{error}");
    (2..5).for_each(add);
    process.run("RESUME QUERY 'q'").await;
    while process.state(&query) == Some(QueryState::Running) {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    process.end().await;
    let mut expected: Vec<String> =
        (0..5).flat_map(|file| rows(file).lines().map(|line| line.replacen(' ', "T", 1)).collect::<Vec<_>>()).collect();
    expected.sort_unstable();
    assert_eq!(lines(&out), expected);
}

#[tokio::test]
async fn a_query_over_a_file_that_grows_goes_on_with_another_parallelism() {
    let directory = tempfile::tempdir().unwrap();
    let (rows, out) = (directory.path().join("rows.csv"), directory.path().join("out"));
    let seconds =
        |from: i64, to: i64| (from..to).map(|second| format!("2026-01-01 00:00:{second:02},7\n")).collect::<String>();
    fs::write(&rows, format!("at,auction\n{}", seconds(0, 10))).unwrap();
    let process = Process::start(directory.path(), 1).await;
    tables(&process, &out, 1_000).await;
    process
        .run(&format!(
            "CREATE TABLE followed (at TIMESTAMP(3), auction BIGINT, WATERMARK FOR at AS at) WITH ('connector' = 'file', 'path' = '{}', \
             'format' = 'csv', 'follow' = 'true')",
            rows.display()
        ))
        .await;
    let windows = |table: &str| {
        format!(
            "INSERT INTO out SELECT window_start, auction, count(*) FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(at), INTERVAL '1' SECOND)) \
             GROUP BY window_start, window_end, auction"
        )
    };
    let until = async |count: usize| {
        let begun = Instant::now();
        while lines(&out).len() < count {
            assert!(begun.elapsed() < FOREVER);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    process.run("SET 'query.name' = 'followed'").await;
    process.run(&windows("followed")).await;
    until(9).await;
    process.run("STOP QUERY 'followed'").await;
    process.run("SET 'parallelism' = '3'").await;
    process.run("RESUME QUERY 'followed'").await;
    let mut file = fs::OpenOptions::new().append(true).open(&rows).unwrap();
    std::io::Write::write_all(&mut file, seconds(10, 20).as_bytes()).unwrap();
    until(19).await;
    process.run("STOP QUERY 'followed'").await;
    let expected: Vec<_> = (0..19).map(|second| format!("2026-01-01T00:00:{second:02},7,1")).collect();
    assert_eq!(lines(&out), expected);
    process.end().await;
}
