//! Status, configuration, queries, tables, metrics, health.

use std::sync::atomic::Ordering;
use std::time::Duration;

use savanna_http::types::{Decisions, MoveTechnique, Moves, NodeStatus, Nodes, Queries, Settings, Shards};
use savanna_http::{HttpLimits, NodeView as _, Problem};
use serde_json::{Value, json};

use crate::stub::{query_id, serve};

#[tokio::test]
async fn status_and_configuration_are_the_nodes() {
    let face = serve(HttpLimits::default()).await;
    let status: NodeStatus = face.get("/api/v1/status").await.json().await.unwrap();
    assert_eq!((status.node.as_str(), status.lease.unwrap().epoch), ("stub", 7));
    let settings: Settings = face.get("/api/v1/config").await.json().await.unwrap();
    assert_eq!(settings.settings[0].source, "flag --http-port");
}

#[tokio::test]
async fn a_node_without_its_lease_is_alive_but_not_ready() {
    let face = serve(HttpLimits::default()).await;
    assert_eq!(face.get("/readyz").await.status(), 200);
    face.node.serving.store(false, Ordering::Relaxed);
    assert_eq!(face.get("/healthz").await.status(), 200);
    let answer = face.get("/readyz").await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let problem: Problem = answer.json().await.unwrap();
    assert_eq!(problem.detail, "its lease has run out");
}

#[tokio::test]
async fn queries_are_listed_shown_and_stopped() {
    let face = serve(HttpLimits::default()).await;
    let listed: Queries = face.get("/api/v1/queries").await.json().await.unwrap();
    assert_eq!(listed.queries[0].late_rows, 3);
    let one: Value = face.get("/api/v1/queries/0123456789ab-1").await.json().await.unwrap();
    assert_eq!((&one["state"], &one["state_bytes"]), (&Value::from("running"), &Value::from(4096)));
    assert_eq!(face.get("/api/v1/queries/0123456789ab-2").await.status(), 404);
    assert_eq!(face.delete("/api/v1/queries/nonsense").await.status(), 404);
    assert_eq!(face.delete("/api/v1/queries/0123456789ab-1").await.status(), 204);
    assert_eq!(*face.engine.cancelled.lock(), [query_id()]);
}

#[tokio::test]
async fn tenants_are_made_listed_and_removed() {
    let face = serve(HttpLimits::default()).await;
    assert_eq!(face.post("/api/v1/tenants", json!({ "name": "a shop" })).await.status(), 201);
    let listed: Value = face.get("/api/v1/tenants").await.json().await.unwrap();
    assert_eq!(listed, json!({ "tenants": [{ "name": "a shop", "sessions": 1, "commits": 2, "rollbacks": 3 }] }));
    assert_eq!(face.delete("/api/v1/tenants/a%20shop").await.status(), 204);
    assert_eq!(face.delete("/api/v1/tenants/a%20shop").await.status(), 404);
}

#[tokio::test]
async fn backups_go_out_and_come_in_whatever_their_length() {
    let face = serve(HttpLimits { max_body_bytes: 10, ..HttpLimits::default() }).await;
    let backup = face.get("/api/v1/tenants/shop/backup").await;
    assert_eq!(backup.content_length(), Some(6));
    assert_eq!(backup.bytes().await.unwrap(), "backup");
    let cut = match face.http.get(format!("{}/api/v1/tenants/shop!/backup", face.url)).send().await {
        Ok(answer) => answer.bytes().await,
        Err(error) => Err(error),
    };
    assert!(cut.is_err(), "what is shorter than it says is no answer");
    let url = format!("{}/api/v1/tenants/shop/restore", face.url);
    let sent = face.http.post(&url).body(vec![7; 3 << 20]).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    let listed: Value = face.get("/api/v1/tenants").await.json().await.unwrap();
    assert_eq!(listed["tenants"][0]["name"], "shop of 3145728 bytes");
}

#[tokio::test]
async fn a_restore_takes_its_time_as_long_as_something_comes() {
    let face = serve(HttpLimits { request_timeout: Duration::from_millis(200), ..HttpLimits::default() }).await;
    let url = format!("{}/api/v1/tenants/shop/restore", face.url);
    let slow = futures::stream::unfold(0, |at| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        (at < 8).then(|| (Ok::<_, std::io::Error>("piece"), at + 1))
    });
    let sent = face.http.post(&url).body(reqwest::Body::wrap_stream(slow)).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    let stuck = futures::stream::pending::<Result<&str, std::io::Error>>();
    let refused = face.http.post(&url).body(reqwest::Body::wrap_stream(stuck)).send().await.unwrap();
    assert_eq!(refused.status(), 400);
}

#[tokio::test]
async fn tables_are_what_sql_shows_and_leave_no_session_behind() {
    let face = serve(HttpLimits::default()).await;
    let tables: Value = face.get("/api/v1/tables").await.json().await.unwrap();
    assert_eq!(tables["tables"][0]["name"], "a");
    assert_eq!(tables["tables"][1]["name"], Value::Null);
    let table: Value = face.get("/api/v1/tables/t").await.json().await.unwrap();
    assert_eq!(table["table"], "t");
    assert_eq!(face.engine.closed_sessions.lock().len(), 2);
}

#[tokio::test]
async fn metrics_tell_requests_services_their_figures_and_each_query() {
    let face = serve(HttpLimits::default()).await;
    face.get("/api/v1/status").await;
    face.get("/api/v1/queries/0123456789ab-9").await;
    let answer = face.get("/metrics").await;
    let media = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(media.starts_with("application/openmetrics-text"), "{media}");
    let text = answer.text().await.unwrap();
    for line in [
        "savanna_http_requests_total{method=\"GET\",route=\"/api/v1/status\",status=\"200\"} 1",
        "savanna_http_requests_total{method=\"GET\",route=\"/api/v1/queries/{query}\",status=\"404\"} 1",
        "savanna_node_service_up{service=\"streams\"} 1",
        "savanna_node_lease_serving 1",
        "savanna_keys_commands_total{thread=\"0\"} 5.0",
        "savanna_keys_commands_total{thread=\"1\"} 6.0",
        "savanna_tenants_awake 2.0",
        "# TYPE savanna_keys_log_flush_seconds histogram",
        "savanna_keys_log_flush_seconds_sum 0.5",
        "savanna_keys_log_flush_seconds_count 4",
        "savanna_keys_log_flush_seconds_bucket{le=\"0.001\"} 3",
        "savanna_keys_log_flush_seconds_bucket{le=\"0.01\"} 3",
        "savanna_keys_log_flush_seconds_bucket{le=\"+Inf\"} 4",
        "savanna_streams_queries_running 1",
        "savanna_streams_query_events_total{query=\"0123456789ab-1\"} 100",
        "savanna_streams_query_result_rows_total{query=\"0123456789ab-1\"} 7",
        "savanna_streams_query_late_rows_total{query=\"0123456789ab-1\"} 3",
        "savanna_streams_query_skipped_rows_total{query=\"0123456789ab-1\"} 2",
        "savanna_streams_query_state_bytes{query=\"0123456789ab-1\"} 4096.0",
        "savanna_streams_query_watermark_seconds{query=\"0123456789ab-1\"} 1.5",
        "savanna_streams_query_snapshot_pauses_total{query=\"0123456789ab-1\"} 40.0",
        "savanna_streams_query_snapshot_pause_max_seconds{query=\"0123456789ab-1\"} 0.25",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("query_snapshot_epoch"), "one without snapshots tells of none");
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1);
}

#[tokio::test]
async fn the_openapi_document_is_served() {
    let face = serve(HttpLimits::default()).await;
    let document: Value = face.get("/api/v1/openapi.json").await.json().await.unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    assert!(document["components"]["schemas"]["Problem"].is_object());
}

#[tokio::test]
async fn what_does_not_exist_is_a_problem_and_says_where_to_look() {
    let face = serve(HttpLimits::default()).await;
    let problem: Problem = face.get("/api/v2/status").await.json().await.unwrap();
    assert_eq!(problem.status, 404);
    assert_eq!(problem.detail, "there is no path /api/v2/status; GET /api/v1/openapi.json lists the paths");
    let answer = face.delete("/api/v1/status").await;
    assert_eq!(answer.status(), 405);
    let problem: Problem = answer.json().await.unwrap();
    assert_eq!(problem.detail, "/api/v1/status takes GET, but DELETE came");
}

#[tokio::test]
async fn the_nodes_of_the_cluster_and_what_they_own_are_told() {
    let face = serve(HttpLimits::default()).await;
    let nodes: Nodes = face.get("/api/v1/nodes").await.json().await.unwrap();
    assert_eq!(nodes.nodes, face.node.nodes());
    let shards: Shards = face.get("/api/v1/shards").await.json().await.unwrap();
    assert_eq!(shards.shards, face.node.shards());
    let some: Shards = face.get("/api/v1/shards?prefix=k").await.json().await.unwrap();
    assert_eq!(some.shards.iter().map(|shard| shard.shard.as_str()).collect::<Vec<_>>(), ["keys"]);
    assert_eq!(face.get("/api/v1/shards?prefx=k").await.status(), 400);
}

#[tokio::test]
async fn what_a_node_tells_of_itself_is_to_be_had_through_another() {
    let face = serve(HttpLimits::default()).await;
    let own: NodeStatus = face.get("/api/v1/nodes/stub/status").await.json().await.unwrap();
    assert_eq!(own.pid, 42);
    let settings: Settings = face.get("/api/v1/nodes/stub/config").await.json().await.unwrap();
    assert_eq!(settings.settings[0].key, "http.port");
    let metrics = face.get("/api/v1/nodes/stub/metrics").await;
    assert!(metrics.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert!(metrics.text().await.unwrap().contains("savanna_tenants_awake 2"));
    for (path, told) in [("status", "status"), ("config", "settings"), ("metrics", "metrics")] {
        let answer = face.get(&format!("/api/v1/nodes/other/{path}")).await;
        assert_eq!(answer.text().await.unwrap(), format!("{{\"told\":\"{told}\"}}"));
    }
    let none = face.get("/api/v1/nodes/n9/status").await;
    assert_eq!(
        (none.status().as_u16(), &none.headers()["content-type"]),
        (404, &"application/problem+json".parse().unwrap())
    );
}

#[tokio::test]
async fn a_node_is_drained_and_filled_through_another() {
    let face = serve(HttpLimits::default()).await;
    let nodes: Nodes = face.get("/api/v1/nodes").await.json().await.unwrap();
    assert_eq!(nodes.nodes.iter().map(|node| node.is_drained).collect::<Vec<_>>(), [true, false]);
    let put = |node: &str| face.http.put(format!("{}/api/v1/nodes/{node}/drain", face.url)).send();
    assert_eq!(put("other").await.unwrap().status(), 204);
    assert_eq!(put("n9").await.unwrap().status(), 404);
    assert_eq!(face.delete("/api/v1/nodes/stub/drain").await.status(), 204);
}

#[tokio::test]
async fn those_of_several_databases_move_that_sleep() {
    let face = serve(HttpLimits::default()).await;
    let url = format!("{}/api/v1/moves/asleep", face.url);
    let asked = serde_json::json!({ "shards": ["tenants/1", "awake", "tenants/2"], "to": "n2" });
    let told: Moves = face.http.post(url).json(&asked).send().await.unwrap().json().await.unwrap();
    let moved: Vec<_> = told.moves.iter().map(|moved| (moved.shard.as_str(), moved.technique)).collect();
    assert_eq!(moved, [("tenants/1", MoveTechnique::Asleep), ("tenants/2", MoveTechnique::Asleep)]);
}

#[tokio::test]
async fn why_databases_have_moved_is_told() {
    let face = serve(HttpLimits::default()).await;
    let told: Decisions = face.get("/api/v1/moves/decisions").await.json().await.unwrap();
    assert!(told.is_on && told.decisions[0].why == "n1 is busy");
}
