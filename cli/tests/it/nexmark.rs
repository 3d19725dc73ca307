//! `savanna nexmark`.

use crate::process::run;

/// Of 50 events in a row, 46 are bids.
const EVENTS: u64 = 5_000;
const BIDS: u64 = EVENTS / 50 * 46;

#[test]
fn a_run_reports_what_it_took_in_one_object() {
    let whole = ["q0", "q1", "q10", "q13", "q22"].map(|query| (query, Some(BIDS)));
    let part = ["q2", "q5", "q7", "q8", "q11", "q12", "q14", "q21"].map(|query| (query, None));
    for (query, rows) in whole.into_iter().chain(part) {
        let events = EVENTS.to_string();
        let ran = run(&["nexmark", "run", "--query", query, "--events", &events, "--output", "json"]);
        assert_eq!(ran.code, Some(0), "{query}: {}", ran.stderr);
        let [report] = <[_; 1]>::try_from(ran.json_lines()).unwrap();
        assert_eq!((&report["query"], &report["mode"]), (&query.into(), &"serverless".into()));
        assert_eq!(report["events"].as_u64().unwrap() % EVENTS, 0, "each scan counts what it reads");
        if let Some(rows) = rows {
            assert_eq!(report["result_rows"], rows, "{query}");
        }
        for figure in [
            "seconds",
            "cpu_seconds",
            "generator_cpu_seconds",
            "events_per_second",
            "events_per_cpu_second",
            "peak_rss_bytes",
            "billed_ms",
            "cost_usd",
        ] {
            assert!(report[figure].as_f64().is_some_and(|number| number >= 0.0), "{query} {figure}: {report}");
        }
        assert!(report["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    }
}

#[test]
fn results_do_not_depend_on_parallelism_group_size_and_mode() {
    let rows = |more: &[&str]| {
        let mut arguments = vec!["nexmark", "run", "--query", "q5", "--events", "50000", "--output", "json"];
        arguments.extend(more);
        let ran = run(&arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.json_lines()[0]["result_rows"].as_u64().unwrap()
    };
    let alone = rows(&[]);
    assert!(alone > 0);
    assert_eq!(rows(&["--parallelism", "3", "--group-size", "4"]), alone);
    assert_eq!(rows(&["--parallelism", "2", "--mode", "provisioned"]), alone);
}

#[test]
fn generated_files_hold_the_events_that_a_run_sees() {
    let directory = tempfile::tempdir().unwrap();
    for (format, extension) in [("ndjson", "ndjson"), ("parquet", "parquet")] {
        let out = directory.path().join(format);
        let arguments = ["nexmark", "generate", "--events", "500", "--seed", "7", "--format", format, "--out"];
        let ran = run(&[&arguments[..], &[out.to_str().unwrap(), "--output", "json"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.json_lines()[0]["events"], 500);
        let read = format!(
            "CREATE TABLE events (event_type INT, bid ROW<auction BIGINT, price BIGINT>) \
             WITH ('connector' = 'file', 'format' = '{format}', 'path' = '{}/*.{extension}')",
            out.display()
        );
        let generated = "CREATE TABLE datagen (event_type INT, bid ROW<auction BIGINT, price BIGINT>) \
             WITH ('connector' = 'nexmark', 'events.num' = '500', 'seed' = '7')";
        let rows = |table: &str, from: &str| {
            let select = format!("SELECT event_type, bid.auction AS auction, bid.price AS price FROM {from}");
            let ran = run(&["sql", "--set", "streams.parallelism=1", "--output", "json", "-c", table, "-c", &select]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            ran.stdout
        };
        assert_eq!(rows(&read, "events"), rows(generated, "datagen"), "{format}");
    }
}

#[test]
fn the_demo_prints_windows_and_what_it_would_have_cost() {
    let ran = run(&["nexmark", "demo", "--seconds", "3", "--rate", "1000"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.lines().count() >= 5, "{}", ran.stdout);
    assert!(ran.stderr.contains("GB-s = $"), "{}", ran.stderr);
}
