//! `savanna sql`, in this process and on a running node.

use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::process::{Dev, Running, ran, run, savanna};

/// Ten seconds of events, paced by nothing.
const SOURCE: &str = "CREATE TABLE datagen (
    event_type INT,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, dateTime TIMESTAMP(3), extra VARCHAR>,
    dateTime AS bid.dateTime,
    WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events.num' = '1000', 'first-event.rate' = '100', 'person.proportion' = '0', 'auction.proportion' = '0');";

const WINDOWS: &str = "SELECT window_start, COUNT(*) AS bids FROM TABLE(TUMBLE(TABLE datagen, DESCRIPTOR(dateTime), \
    INTERVAL '1' SECOND)) GROUP BY window_start, window_end";

#[test]
fn rows_are_json_alone_on_stdout_and_the_summary_ends_stderr() {
    let ran = run(&["sql", "--output", "json", "-c", SOURCE, "-c", WINDOWS]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = ran.json_lines();
    assert_eq!(rows.len(), 10, "{}", ran.stdout);
    for row in &rows {
        assert_eq!(row["op"], "+I");
        assert_eq!(row["bids"], 100, "{row}");
    }
    let summary = ran.summary();
    assert_eq!((&summary["outcome"], &summary["rows"]), (&"finished".into(), &10.into()));
    assert_eq!((&summary["events"], &summary["statements"]), (&1000.into(), &2.into()));
    assert_eq!(summary["queries"][0]["windows"], 10);
}

#[test]
fn the_same_statements_give_the_same_rows_on_a_running_node() {
    let directory = tempfile::tempdir().unwrap();
    let node = Dev::start(directory.path(), &[]);
    let here = run(&["sql", "--output", "json", "-c", SOURCE, "-c", WINDOWS]);
    let there = run(&["sql", "--url", &node.url(), "--output", "json", "-c", SOURCE, "-c", WINDOWS]);
    assert_eq!(there.code, Some(0), "{}", there.stderr);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&here.stdout), sorted(&there.stdout));
    assert_eq!(there.summary()["events"], 1000);
}

#[test]
fn an_error_points_at_its_place_and_the_rest_is_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("job.sql");
    std::fs::write(&script, "SHOW TABLES;\n\n  SELECT *\n  FORM t;\nSHOW CONNECTORS;\n").unwrap();
    let ran = run(&["sql", "-f", script.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("error 42601: "), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("at {}:4:3\n", script.display())), "{}", ran.stderr);
    assert!(ran.stderr.contains("\n    FORM t\n    ^\n"), "{}", ran.stderr);
    assert!(!ran.stdout.contains("nexmark"), "{}", ran.stdout);
}

#[test]
fn an_error_of_json_output_is_in_the_summary() {
    let ran = run(&["sql", "--output", "json", "-c", "SELECT * FROM nowhere"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let summary = ran.summary();
    assert_eq!((&summary["outcome"], &summary["error"]["sqlstate"]), (&"failed".into(), &"42P01".into()));
}

#[test]
fn a_script_comes_from_stdin_too() {
    let mut child =
        savanna(&["sql"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SHOW CONNECTORS;").unwrap();
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("nexmark") && ran.stdout.contains("rows)"), "{}", ran.stdout);
}

#[test]
fn an_insert_in_this_process_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let table = format!(
        "CREATE TABLE out (auction BIGINT) WITH ('connector' = 'file', 'format' = 'ndjson', 'path' = '{}')",
        out.display()
    );
    let ran = run(&["sql", "-c", SOURCE, "-c", &table, "-c", "INSERT INTO out SELECT bid.auction FROM datagen"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let files = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let parts = files.filter(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
    let rows: usize = parts.map(|path| std::fs::read_to_string(path).unwrap().lines().count()).sum();
    assert_eq!(rows, 1000);
    assert!(ran.stderr.contains("finished: 1000 events, 1000 rows"), "{}", ran.stderr);
}

#[test]
fn ctrl_c_ends_a_stream_with_its_summary() {
    let endless = SOURCE.replace("'events.num' = '1000', ", "");
    let arguments = ["sql", "--output", "json", "-c", &endless, "-c", "SELECT bid.auction AS auction FROM datagen"];
    let mut process = Running::start(savanna(&arguments));
    let row = process.line().expect("a row");
    assert!(row.starts_with("{\"op\":\"+I\",\"auction\":"), "{row}");
    process.signal(Signal::SIGINT);
    while process.line().is_some() {}
    let (status, stderr) = process.end();
    assert_eq!(status.code(), Some(130), "{stderr}");
    let summary: serde_json::Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["outcome"], &summary["queries"][0]["state"]), (&"cancelled".into(), &"cancelled".into()));
}

#[test]
fn queries_of_a_node_are_listed_shown_and_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let node = Dev::start(directory.path(), &[]);
    let url = node.url();
    let endless = SOURCE.replace("'events.num' = '1000', ", "");
    let started = run(&[
        "sql",
        "--url",
        &url,
        "-c",
        &endless,
        "-c",
        "CREATE TABLE hole (a BIGINT) WITH ('connector' = 'blackhole')",
        "-c",
        "INSERT INTO hole SELECT bid.auction FROM datagen",
    ]);
    assert_eq!(started.code, Some(0), "{}", started.stderr);
    let listed = run(&["queries", "list", "--url", &url, "--output", "json"]);
    let queries = listed.json_lines().remove(0);
    let id = queries["queries"][0]["query"].as_str().unwrap().to_owned();
    assert_eq!(queries["queries"][0]["state"], "running");
    assert_eq!(run(&["queries", "stop", &id, "--url", &url]).code, Some(0));
    let shown = || run(&["queries", "show", &id, "--url", &url, "--output", "json"]).json_lines().remove(0);
    while shown()["state"] == "running" {}
    assert_eq!(shown()["state"], "cancelled");
    let unknown = run(&["queries", "show", "0-0", "--url", &url]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("no query 0-0 runs"), "{}", unknown.stderr);
}
