//! Queries that go on with another text. The oracle of each is the former text and the new one, each undisturbed: what was written is
//! the former one's up to some instant, and the new one's from there on.

use super::*;

/// Text that is changed behind its last state: counts become negative.
const KEEPING: [[&str; 2]; 4] = [
    [
        "SELECT window_start, auction, count(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '0.1' SECOND, INTERVAL '0.2' SECOND)) \
         WHERE price > 1000 GROUP BY window_start, window_end, auction",
        "SELECT window_start, auction, 0 - count(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '0.1' SECOND, INTERVAL '0.2' SECOND)) \
         WHERE price > 1000 GROUP BY window_start, window_end, auction",
    ],
    [
        "SELECT window_start, auction, count(*) FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '0.05' SECOND)) \
         GROUP BY auction, window_start, window_end",
        "SELECT window_start, auction, 0 - count(*) FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '0.05' SECOND)) \
         GROUP BY auction, window_start, window_end",
    ],
    [
        "SELECT l.at, l.auction, r.price FROM bids l JOIN bids r ON l.auction = r.auction AND l.at BETWEEN r.at - INTERVAL '0.5' SECOND \
         AND r.at + INTERVAL '0.01' SECOND AND l.price > 10 * r.price WHERE l.auction % 20 = 7",
        "SELECT l.at, l.auction, 0 - r.price FROM bids l JOIN bids r ON l.auction = r.auction AND l.at BETWEEN r.at - INTERVAL '0.5' SECOND \
         AND r.at + INTERVAL '0.01' SECOND AND l.price > 10 * r.price WHERE l.auction % 20 = 7",
    ],
    [
        "SELECT l.window_start, l.auction, l.price FROM TABLE(TUMBLE((SELECT auction, price, at FROM bids WHERE auction % 5 = 2), DESCRIPTOR(at), INTERVAL '0.4' SECOND)) l \
         WHERE NOT EXISTS (SELECT 1 FROM TABLE(TUMBLE((SELECT price, channel, at, auction + 0 AS of FROM bids WHERE price > 1000000), DESCRIPTOR(at), \
         INTERVAL '0.4' SECOND)) r WHERE r.of = l.auction AND r.window_start = l.window_start AND r.window_end = l.window_end AND r.price > 2 * l.price)",
        "SELECT l.window_start, l.auction, 0 - l.price FROM TABLE(TUMBLE((SELECT auction, price, at FROM bids WHERE auction % 5 = 2), DESCRIPTOR(at), INTERVAL '0.4' SECOND)) l \
         WHERE NOT EXISTS (SELECT 1 FROM TABLE(TUMBLE((SELECT price, channel, at, auction + 0 AS of FROM bids WHERE price > 1000000), DESCRIPTOR(at), \
         INTERVAL '0.4' SECOND)) r WHERE r.of = l.auction AND r.window_start = l.window_start AND r.window_end = l.window_end AND r.price > 2 * l.price)",
    ],
];

/// How many events a text reads.
fn all_events(select: &str) -> u64 {
    EVENTS * select.matches("bids").count() as u64
}

/// What `EXPLAIN RESUME QUERY` says of a text.
async fn explained(process: &Process, with: &str, select: &str) -> String {
    let explain = format!("EXPLAIN RESUME QUERY 'q' {with} AS INSERT INTO out {select}");
    let StreamReply::Rows { cursor, .. } = process.run(&explain).await else { panic!("no rows") };
    let fetch = StreamRequest::Fetch { session: process.session, cursor, max_rows: 100, wait_ms: 1_000 };
    let Ok(StreamReply::Fetched { rows, .. }) = process.engine.call(fetch).await else { panic!("no rows") };
    let lines = rows.batches.iter().flat_map(|batch| {
        let texts = batch.column(0).as_string::<i32>();
        (0..texts.len()).map(|row| texts.value(row).to_owned()).collect::<Vec<_>>()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A query that has read half of its events, has a snapshot, has written something, and is stopped.
async fn stopped_half_way(directory: &Path, select: &str) -> (Process, QueryId) {
    let process = Process::start(directory, 1).await;
    tables(&process, &directory.join("out"), 40_000).await;
    for set in ["'snapshot-interval' = '20ms'", "'epoch-target' = '20ms'", "'group-size' = '2'", "'query.name' = 'q'"] {
        process.run(&format!("SET {set}")).await;
    }
    let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {select}")).await else { panic!() };
    let begun = Instant::now();
    let is_half_way = async || {
        process.snapshot().await.starts_with("epoch ")
            && process.events(&query) > all_events(select) / 2
            && lines(&directory.join("out")).len() > 20
    };
    while !is_half_way().await {
        assert!(begun.elapsed() < FOREVER && process.state(&query) == Some(QueryState::Running));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    process.run("STOP QUERY 'q'").await;
    (process, query)
}

/// Lets a query read for a while. Then the next process goes on with it to its end.
async fn after_a_while_in_the_next_process(process: Process, directory: &Path, query: &QueryId) -> Process {
    let (before, begun) = (process.events(query), Instant::now());
    while process.state(query) == Some(QueryState::Running) && process.events(query) < before + 15_000 {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    process.end().await;
    let process = Process::start(directory, 2).await;
    until_over(&process, query).await;
    process
}

async fn until_over(process: &Process, query: &QueryId) {
    let begun = Instant::now();
    while process.state(query) == Some(QueryState::Running) {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lines without the sign of their last column, and whether they had one.
fn signs(lines: &[String]) -> Vec<(String, bool)> {
    lines.iter().map(|line| (line.replace(",-", ","), line.contains(",-"))).collect()
}

#[tokio::test]
async fn a_query_whose_text_changes_behind_its_state_keeps_it_and_each_row_comes_out_once() {
    for (number, [former, new]) in KEEPING.iter().enumerate() {
        let expected = undisturbed(former).await;
        assert!(expected.len() > 20, "{number}: {} lines", expected.len());
        let directory = tempfile::tempdir().unwrap();
        let (process, query) = stopped_half_way(directory.path(), former).await;
        let plan = explained(&process, "", new).await;
        assert!(plan.contains("keeps its state") && !plan.contains("refused"), "{number}: {plan}");
        // Nothing has happened so far, and the former text goes on, too.
        process.run("RESUME QUERY 'q'").await;
        process.run("STOP QUERY 'q'").await;
        process.run(&format!("RESUME QUERY 'q' AS INSERT INTO out {new}")).await;
        assert_eq!(process.state(&query), Some(QueryState::Running));
        let process = after_a_while_in_the_next_process(process, directory.path(), &query).await;
        assert!(process.events(&query) < all_events(former), "{number}: it was read from the beginning");
        process.end().await;
        let written = lines(&directory.path().join("out"));
        let mut signed = signs(&written);
        signed.sort_unstable();
        let mut all: Vec<String> = signed.iter().map(|(line, _)| line.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, expected, "{number}");
        for is_new in [false, true] {
            let count = signed.iter().filter(|(_, sign)| *sign == is_new).count();
            assert!(count > 10, "{number}: {count} lines, new {is_new}");
        }
    }
}

#[tokio::test]
async fn a_text_whose_state_would_mean_something_else_is_refused_and_the_former_one_goes_on() {
    let former = KEEPING[0][0];
    let expected = undisturbed(former).await;
    let directory = tempfile::tempdir().unwrap();
    let (process, query) = stopped_half_way(directory.path(), former).await;
    for (from, to, named) in [
        ("price > 1000", "price > 2000", "now: filter: "),
        ("count(*)", "count(*) + max(price)", "now: aggregate: "),
        ("'0.2' SECOND", "'0.3' SECOND", "now: window: HOP 300 ms"),
        ("GROUP BY window_start, window_end, auction", "GROUP BY window_start, window_end, auction, channel", "now: "),
        ("TABLE bids", "(SELECT * FROM bids UNION ALL SELECT * FROM bids)", "places of its tables in their order"),
    ] {
        let new = former.replace(from, to);
        let plan = explained(&process, "", &new).await;
        assert!(plan.contains("refused: ") && plan.contains(named), "{new}: {plan}");
        let error = process.try_run(&format!("RESUME QUERY 'q' AS INSERT INTO out {new}")).await.unwrap_err();
        assert!(error.contains(named), "{new}: {error}");
    }
    // Another place for its rows, and other rows of its table.
    let refused = async |statement: &str| {
        let error = process.try_run(statement).await.unwrap_err();
        assert_ne!(process.state(&query), Some(QueryState::Running));
        error
    };
    let elsewhere = directory.path().join("elsewhere");
    process.run(&format!("CREATE TABLE elsewhere (at TIMESTAMP(3), auction BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv')", elsewhere.display())).await;
    let error = refused(&format!("RESUME QUERY 'q' AS INSERT INTO elsewhere {former}")).await;
    assert!(error.contains("table elsewhere holds epoch 0 of the query"), "{error}");
    // A copy of all that the place has holds the same epoch, and is another one.
    let copy = directory.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(directory.path().join("out")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    for (name, place, more, named) in [
        ("copy", "copy", "", "they are not one place"),
        ("open", "out", ", 'sink.rolling-policy.file-size' = '1MB'", "files of such a table stay open"),
    ] {
        let path = directory.path().join(place);
        process.run(&format!("CREATE TABLE {name} (at TIMESTAMP(3), auction BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv'{more})", path.display())).await;
        let error = refused(&format!("RESUME QUERY 'q' AS INSERT INTO {name} {former}")).await;
        assert!(error.contains(named), "{error}");
    }
    process.run("DROP TABLE events").await;
    process.run(&events(40_000).replace("'connector' = 'nexmark'", "'connector' = 'nexmark', 'seed' = '2'")).await;
    let error = refused(&format!("RESUME QUERY 'q' AS INSERT INTO out {former}")).await;
    assert!(error.contains("table events is another one than the query has read (option 'seed')"), "{error}");
    let error = refused(&format!("RESUME QUERY 'q' WITH ('stat' = 'x') AS INSERT INTO out {former}")).await;
    assert!(error.contains("expected the option 'state' = 'from replay' or 'from now', got 'stat' = 'x'"), "{error}");
    assert_ne!(process.state(&query), Some(QueryState::Running));
    process.run("RESUME QUERY 'q'").await;
    until_over(&process, &query).await;
    process.end().await;
    assert_eq!(lines(&directory.path().join("out")), expected);
}

const REPLAY: &str = "WITH ('state' = 'from replay')";

#[tokio::test]
async fn state_that_means_something_else_is_computed_anew_if_that_is_wished_and_each_window_is_of_one_text() {
    let former = KEEPING[0][0];
    let counts = KEEPING[0][1];
    let expected_before = undisturbed(former).await;
    for (from, to) in [
        // The state would have the same columns.
        ("price > 1000", "price > 2000 AND auction % 3 = 1"),
        ("count(*)", "count(*) - max(price)"),
        ("auction", "auction % 10"),
        ("'0.1' SECOND, INTERVAL '0.2' SECOND", "'0.2' SECOND, INTERVAL '0.4' SECOND"),
    ] {
        let new = counts.replace(from, to);
        let expected_now = undisturbed(&new).await;
        let directory = tempfile::tempdir().unwrap();
        let (process, query) = stopped_half_way(directory.path(), former).await;
        let plan = explained(&process, REPLAY, &new).await;
        assert!(
            plan.contains("its state is computed anew") && plan.contains("reads again what came behind epoch "),
            "{plan}"
        );
        process.run(&format!("RESUME QUERY 'q' {REPLAY} AS INSERT INTO out {new}")).await;
        let process = after_a_while_in_the_next_process(process, directory.path(), &query).await;
        process.end().await;
        let (now, before): (Vec<String>, Vec<String>) =
            lines(&directory.path().join("out")).into_iter().partition(|line| line.contains(",-"));
        let start = |line: &String| line.split(',').next().unwrap().to_owned();
        let (last, first) = (before.iter().map(start).max().unwrap(), now.iter().map(start).min().unwrap());
        let up_to = |line: &&String| start(line) <= last;
        assert_eq!(before, expected_before.iter().filter(up_to).cloned().collect::<Vec<_>>(), "{new}");
        let behind = |line: &&String| start(line) >= first;
        assert_eq!(now, expected_now.iter().filter(behind).cloned().collect::<Vec<_>>(), "{new}");
        let between = |line: &&String| start(line) > last && start(line) < first;
        if new.contains("'0.1' SECOND, INTERVAL '0.2' SECOND") {
            assert!(first > last && expected_now.iter().find(between).is_none(), "{new}: {last}, {first}");
        }
    }
}

#[tokio::test]
async fn state_that_cannot_be_computed_anew_from_the_records_is_not_and_the_former_text_goes_on() {
    let [former, new] = KEEPING[1];
    let expected = undisturbed(former).await;
    let directory = tempfile::tempdir().unwrap();
    let (process, query) = stopped_half_way(directory.path(), former).await;
    // Nobody knows how long a session is, and a savepoint has no records before its snapshot.
    let saved = directory.path().join("saved");
    process.run(&format!("STOP QUERY 'q' WITH SAVEPOINT '{}'", saved.display())).await;
    process.run("DROP QUERY 'q'").await;
    process.run(&format!("RESUME QUERY FROM SAVEPOINT '{}'", saved.display())).await;
    process.run("STOP QUERY 'q'").await;
    let new = new.replace("count(*)", "max(price)");
    let plan = explained(&process, REPLAY, &new).await;
    let is_told =
        |text: &str| text.contains("begin with epoch") || text.contains("went when the snapshot of it counted");
    assert!(is_told(&plan) && plan.contains("refused: "), "{plan}");
    let error = process.try_run(&format!("RESUME QUERY 'q' {REPLAY} AS INSERT INTO out {new}")).await.unwrap_err();
    assert!(is_told(&error), "{error}");
    process.run("RESUME QUERY 'q'").await;
    until_over(&process, &query).await;
    process.end().await;
    assert_eq!(lines(&directory.path().join("out")), expected);
}

const NOW: &str = "WITH ('state' = 'from now')";

/// A table over lines of a file.
async fn numbers(process: &Process, name: &str, path: &Path, more: &str) {
    process
        .run(&format!(
            "CREATE TABLE {name} (at TIMESTAMP(3), auction BIGINT, n BIGINT, WATERMARK FOR at AS at) WITH ('connector' = 'file', 'path' = '{}', \
             'format' = 'csv', 'csv.header' = 'false'{more})",
            path.display()
        ))
        .await;
}

fn append(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
}

/// Rows of one hour, from some second on.
fn hour(from: i64, count: i64) -> String {
    let row = |i: i64| format!("2026-01-01 01:{:02}:{:02},{},{}\n", i / 60, i % 60, i % 5, (i * 7) % 11 - 5);
    (from..from + count).map(row).collect()
}

/// A table of results with a column for any of them.
async fn table_of_texts(process: &Process, out: &Path) {
    process
        .run(&format!(
            "CREATE TABLE out (at TIMESTAMP(3), auction BIGINT, results VARCHAR) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv', \
             'csv.header' = 'false')",
            out.display()
        ))
        .await;
}

/// The windows of that hour that a text gives over two tables of bounded files, `a` and `b`.
async fn over_files(a: &str, b: &str, select: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (out, at) = (directory.path().join("out"), |name: &str| directory.path().join(name));
    let process = Process::start(directory.path(), 1).await;
    table_of_texts(&process, &out).await;
    for (name, rows) in [("a", a), ("b", b)] {
        append(&at(name), rows);
        numbers(&process, name, &at(name), "").await;
    }
    let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {select}")).await else { panic!() };
    until_over(&process, &query).await;
    process.end().await;
    lines(&out)
}

/// A text that follows another one: what is asked for its state, and what is told of that before.
struct Followed<'t> {
    with: &'t str,
    text: &'t str,
    told: &'t str,
}

/// What is written of a query over a file that grows, which goes on with other texts behind a snapshot of all of `first`. Then come `second`, and
/// in the next process `third`, up to as many lines as are expected.
async fn with_other_texts(
    former: &str,
    texts: &[Followed<'_>],
    [first, second, third]: [&str; 3],
    count: usize,
) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (followed, out) = (directory.path().join("followed"), directory.path().join("out"));
    append(&followed, first);
    let process = Process::start(directory.path(), 1).await;
    table_of_texts(&process, &out).await;
    numbers(&process, "followed", &followed, ", 'follow' = 'true'").await;
    for set in ["'snapshot-interval' = '20ms'", "'epoch-target' = '20ms'", "'group-size' = '2'", "'query.name' = 'q'"] {
        process.run(&format!("SET {set}")).await;
    }
    let StreamReply::Started { query } = process.run(&format!("INSERT INTO out {former}")).await else { panic!() };
    // A snapshot of all of it: rows that no text counts have epochs cut.
    let begun = Instant::now();
    while process.events(&query) < first.lines().count() as u64 {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = process.epoch(&query);
    let snapshot = async || process.snapshot().await.strip_prefix("epoch ").and_then(|epoch| epoch.parse::<u64>().ok());
    while snapshot().await.is_none_or(|epoch| epoch <= before) {
        assert!(begun.elapsed() < FOREVER);
        append(&followed, "2026-01-01 01:01:40,-1,0\n");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    process.run("STOP QUERY 'q'").await;
    let stopped = process.epoch(&query);
    for Followed { with, text, told } in texts {
        let resumed = format!("AS INSERT INTO out {text}");
        if !with.is_empty() {
            let error = process.try_run(&format!("RESUME QUERY 'q' {resumed}")).await.unwrap_err();
            assert!(error.contains("'from now' adds the rows of the new text"), "{error}");
        }
        let plan = explained(&process, with, text).await;
        assert!(plan.contains(told) && !plan.contains("refused"), "{plan}");
        process.run(&format!("RESUME QUERY 'q' {with} {resumed}")).await;
        // No rows come meanwhile, and so no snapshot is made.
        process.run("STOP QUERY 'q'").await;
    }
    process.run("RESUME QUERY 'q'").await;
    append(&followed, second);
    while process.epoch(&query) <= stopped {
        assert!(begun.elapsed() < FOREVER);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process.end().await;
    let process = Process::start(directory.path(), 2).await;
    append(&followed, third);
    append(&followed, "2026-01-01 02:00:00,9,9\n");
    while lines(&out).len() < count {
        assert!(begun.elapsed() < FOREVER, "{:?}", lines(&out));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process.end().await;
    lines(&out)
}

fn windows(of: &str, what: &str) -> String {
    format!(
        "SELECT window_start, auction, CAST({what} AS VARCHAR) FROM TABLE(TUMBLE(({of}), DESCRIPTOR(at), INTERVAL '1' HOUR)) \
         GROUP BY window_start, window_end, auction"
    )
}

fn rows(table: &str, filter: &str) -> String {
    format!("SELECT at, auction, n FROM {table} WHERE {filter}")
}

#[tokio::test]
async fn a_text_that_counts_from_now_on_adds_to_state_that_fits_and_begins_other_state_empty() {
    let (first, second, third) = (hour(0, 100), hour(100, 100), hour(200, 50));
    let former = windows(&rows("followed", "n > 0"), "count(*)");
    for (new, told, oracle) in [
        (
            windows(&rows("followed", "n < -1"), "count(*)"),
            "keeps the state that the former text has made",
            windows(&format!("{} UNION ALL {}", rows("a", "n > 0"), rows("b", "n < -1")), "count(*)"),
        ),
        (
            windows(&rows("followed", "n > 0"), "sum(n)"),
            "its state is dropped, and begins empty",
            windows(&rows("b", "n > 0"), "sum(n)"),
        ),
    ] {
        let expected = over_files(&first, &format!("{second}{third}"), &oracle).await;
        assert_eq!(expected.len(), 5, "{expected:?}");
        let texts = [Followed { with: NOW, text: &new, told }];
        let written = with_other_texts(&former, &texts, [&first, &second, &third], expected.len()).await;
        assert_eq!(written, expected, "{new}");
    }
}

/// Results of aggregates beside one another, as one text.
fn beside(aggregates: &[&str]) -> String {
    let text = |aggregate: &&str| format!("coalesce(CAST({aggregate} AS VARCHAR), '-')");
    aggregates.iter().map(text).collect::<Vec<_>>().join(" || '|' || ")
}

/// As [`windows`], of sessions by auction.
fn sessions(of: &str, what: &str) -> String {
    let table = format!("SESSION(({of}) PARTITION BY auction, DESCRIPTOR(at), INTERVAL '10' MINUTE)");
    format!(
        "SELECT window_start, auction, CAST({what} AS VARCHAR) FROM TABLE({table}) GROUP BY auction, window_start, window_end"
    )
}

/// Rows of both tables of files, which say whether they came behind the change.
fn of_both() -> String {
    let rows =
        |table: &str, is_new: bool| format!("SELECT at, auction, n, {is_new} AS is_new FROM {table} WHERE n <> 0");
    format!("{} UNION ALL {}", rows("a", false), rows("b", true))
}

#[tokio::test]
async fn aggregates_that_are_added_begin_empty_beside_those_that_are_kept() {
    // One key has no rows behind the change, and one none before it.
    let first = format!("2026-01-01 01:00:00,6,2\n{}", hour(0, 100));
    let (second, third) = (format!("{}2026-01-01 01:03:20,8,4\n", hour(100, 100)), hour(200, 50));
    let added = [
        "sum(n)",
        "sum(DISTINCT n)",
        "count(DISTINCT n)",
        "count(n) FILTER (WHERE n > 0)",
        "min(n)",
        "avg(n)",
        "round(stddev(CAST(n AS DOUBLE)), 6)",
        "round(var_pop(CAST(n AS DOUBLE)), 6)",
        "bool_and(n > -2)",
        "bool_or(n > 4)",
        "bit_xor(n)",
    ];
    let of_now = |aggregate: &str| match aggregate.split_once("FILTER (WHERE ") {
        Some((before, condition)) => format!("{before}FILTER (WHERE is_new AND {condition}"),
        // Rounding is outside of an aggregate.
        None => match aggregate.strip_suffix(", 6)") {
            Some(rounded) => format!("{rounded} FILTER (WHERE is_new), 6)"),
            None => format!("{aggregate} FILTER (WHERE is_new)"),
        },
    };
    let now: Vec<String> = added.iter().map(|aggregate| of_now(aggregate)).collect();
    let now: Vec<&str> = now.iter().map(String::as_str).collect();
    let source = rows("followed", "n <> 0");
    for of in [windows, sessions] {
        // Behind, before and between those that there were.
        let former = of(&source, &beside(&["count(*)", "max(n)"]));
        let new = of(&source, &beside(&[&["count(*)"], &added[..], &["max(n)"]].concat()));
        let oracle = of(&of_both(), &beside(&[&["count(*)"], &now[..], &["max(n)"]].concat()));
        let expected = over_files(&first, &format!("{second}{third}"), &oracle).await;
        assert!(expected.len() == 7 && expected.iter().any(|line| line.contains(",6,1|-|-|0|0|-|")), "{expected:?}");
        let told = "keeps the state of count(1), max(n); ";
        let texts = [Followed { with: NOW, text: &new, told }];
        let written = with_other_texts(&former, &texts, [&first, &second, &third], expected.len()).await;
        assert_eq!(written, expected, "{new}");
    }
}

#[tokio::test]
async fn aggregates_that_are_dropped_or_stand_in_another_order_leave_the_others_as_they_are() {
    let (first, second, third) = (hour(0, 100), hour(100, 100), hour(200, 50));
    let source = rows("followed", "n <> 0");
    for of in [windows, sessions] {
        let results = |aggregates: &[&str]| of(&source, &beside(aggregates));
        let expected = async |aggregates: &[&str]| {
            let oracle = of(&of_both(), &beside(aggregates));
            over_files(&first, &format!("{second}{third}"), &oracle).await
        };
        let former = results(&["count(*)", "sum(n)", "avg(n)", "max(n)"]);
        for (with, new, told) in [
            ("", vec!["max(n)", "avg(n)", "count(*)", "sum(n)"], "keeps its state"),
            (
                NOW,
                vec!["avg(n)", "max(n)"],
                "keeps the state of avg(n), max(n); the state of count(1), sum(n) is dropped",
            ),
        ] {
            let expected = expected(&new).await;
            assert_eq!(expected.len(), 5, "{expected:?}");
            let text = results(&new);
            let texts = [Followed { with, text: &text, told }];
            let written = with_other_texts(&former, &texts, [&first, &second, &third], expected.len()).await;
            assert_eq!(written, expected, "{text}");
        }
        // One change behind another, before there is a snapshot of the text between them.
        let expected =
            expected(&["max(n)", "sum(n) FILTER (WHERE is_new)", "count(*)", "min(n) FILTER (WHERE is_new)"]).await;
        let (before, between, now) = (
            results(&["count(*)", "max(n)"]),
            results(&["sum(n)", "max(n)", "count(*)"]),
            results(&["max(n)", "sum(n)", "count(*)", "min(n)"]),
        );
        let texts = [
            Followed { with: NOW, text: &between, told: "keeps the state of max(n), count(1); sum(n): begins empty" },
            Followed {
                with: NOW,
                text: &now,
                told: "keeps the state of max(n), sum(n), count(1); min(n): begins empty",
            },
        ];
        let written = with_other_texts(&before, &texts, [&first, &second, &third], expected.len()).await;
        assert_eq!(written, expected);
    }
}

#[tokio::test]
async fn aggregates_that_are_added_are_computed_anew_with_all_others_if_that_is_wished() {
    let former = KEEPING[0][0];
    let new = KEEPING[0][1].replace("0 - count(*)", "0 - count(*) - max(price)");
    let (expected_before, expected_now) = (undisturbed(former).await, undisturbed(&new).await);
    let directory = tempfile::tempdir().unwrap();
    let (process, query) = stopped_half_way(directory.path(), former).await;
    let plan = explained(&process, REPLAY, &new).await;
    assert!(plan.contains("its state is computed anew") && !plan.contains("begins empty"), "{plan}");
    process.run(&format!("RESUME QUERY 'q' {REPLAY} AS INSERT INTO out {new}")).await;
    let process = after_a_while_in_the_next_process(process, directory.path(), &query).await;
    process.end().await;
    let (now, before): (Vec<String>, Vec<String>) =
        lines(&directory.path().join("out")).into_iter().partition(|line| line.contains(",-"));
    assert!(!now.is_empty() && !before.is_empty());
    assert!(
        before.iter().all(|line| expected_before.contains(line)) && now.iter().all(|line| expected_now.contains(line))
    );
    assert_eq!(now.len() + before.len(), expected_now.len());
}
