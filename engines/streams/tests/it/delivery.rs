//! What is promised of each row, in words.

use savanna_streams::EngineOptions;

use crate::session::Session;

#[tokio::test]
async fn a_query_promises_the_least_of_what_its_sources_and_its_sink_do() {
    let session = Session::open(EngineOptions::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    session
        .run(&format!(
            "CREATE TABLE again (event_type INT) WITH ('connector' = 'nexmark', 'events.num' = '10');
             CREATE TABLE once (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
             CREATE TABLE file (n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv');
             CREATE TABLE hook (n BIGINT) WITH ('connector' = 'webhook', 'url' = 'http://127.0.0.1:1/');",
            out.display()
        ))
        .await
        .unwrap();
    for (into, select, expected) in [
        (
            "file",
            "SELECT event_type FROM again",
            "delivery: exactly-once; with a 'query.name' on a node it outlives its process",
        ),
        (
            "hook",
            "SELECT event_type FROM again",
            "delivery: at-least-once; it ends with its process: its sink does not store",
        ),
        ("file", "SELECT n FROM once", "delivery: at-most-once; it ends with its process: table once: "),
        ("hook", "SELECT n FROM once", "delivery: at-most-once; it ends with its process: "),
    ] {
        let plan = session.run(&format!("EXPLAIN INSERT INTO {into} {select}")).await.unwrap().remove(0);
        assert!(plan.contains(expected), "{into}, {select}: {plan}");
    }
    let shown = session.run("SHOW CONNECTORS").await.unwrap().remove(0);
    assert!(shown.contains("exactly-once") && shown.contains("at-least-once"), "{shown}");
    assert!(!out.exists(), "nothing was opened");
    session.close().await;
}
