//! Bounds: bodies, time, requests, sessions, hosts.

use std::time::Duration;

use savanna_http::{HttpLimits, Problem};
use serde_json::json;

use crate::stub::serve;

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let face = serve(HttpLimits { max_body_bytes: 100, ..HttpLimits::default() }).await;
    let answer = face.post("/api/v1/sql/split", json!({ "sql": "x".repeat(200) })).await;
    assert_eq!(answer.status(), 413);
    let problem: Problem = answer.json().await.unwrap();
    assert!(problem.detail.ends_with("send less, or raise http.max_body"), "{}", problem.detail);
}

#[tokio::test]
async fn a_body_that_is_not_what_the_route_takes_is_refused_with_a_reason() {
    let face = serve(HttpLimits::default()).await;
    let wrong_field = face.post("/api/v1/sql/split", json!({ "query": "SELECT 1" })).await;
    assert_eq!(wrong_field.status(), 422);
    let problem: Problem = wrong_field.json().await.unwrap();
    assert!(problem.detail.contains("query"), "{}", problem.detail);
    let text = face.http.post(format!("{}/api/v1/sql/split", face.url)).body("{\"sql\":\"a\"}").send().await.unwrap();
    assert_eq!(text.status(), 415);
    assert_eq!(text.headers()["content-type"], "application/problem+json");
    let wrong_id = face.delete("/api/v1/sql/sessions/x").await;
    assert_eq!(
        (wrong_id.status().as_u16(), &wrong_id.headers()["content-type"] == "application/problem+json"),
        (400, true)
    );
}

#[tokio::test]
async fn fetch_limits_are_checked() {
    let face = serve(HttpLimits::default()).await;
    let (_, cursor) = face.cursor("THREE PAGES").await;
    for query in ["max_rows=0", "max_rows=100001", "wait_ms=10001", "max_rows=x", "rows=1"] {
        assert_eq!(face.get(&format!("{cursor}/rows?{query}")).await.status(), 400, "{query}");
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_in_time() {
    let face = serve(HttpLimits { request_timeout: Duration::from_millis(50), ..HttpLimits::default() }).await;
    let session: serde_json::Value = face.post("/api/v1/sql/sessions", json!({})).await.json().await.unwrap();
    let path = format!("/api/v1/sql/sessions/{}/execute", session["session"]);
    let answer = face.post(&path, json!({ "sql": "SLEEP" })).await;
    assert_eq!(answer.status(), 504);
}

#[tokio::test]
async fn a_request_beyond_the_limit_is_told_to_come_again() {
    let face = serve(HttpLimits { max_requests: 1, ..HttpLimits::default() }).await;
    let session: serde_json::Value = face.post("/api/v1/sql/sessions", json!({})).await.json().await.unwrap();
    let path = format!("{}/api/v1/sql/sessions/{}/execute", face.url, session["session"]);
    let sleeper = tokio::spawn(face.http.post(path).json(&json!({ "sql": "SLEEP" })).send());
    // Until the sleeper holds the only place.
    let refused = loop {
        let answer = face.get("/healthz").await;
        if answer.status() == 503 {
            break answer;
        }
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    sleeper.abort();
}

#[tokio::test]
async fn too_many_sessions_are_refused_and_idle_ones_closed() {
    let limits =
        HttpLimits { max_sessions: 1, session_idle_timeout: Duration::from_millis(40), ..HttpLimits::default() };
    let face = serve(limits).await;
    let open = || face.post("/api/v1/sql/sessions", json!({}));
    assert_eq!(open().await.status(), 201);
    assert_eq!(open().await.status(), 503);
    while face.engine.closed_sessions.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(open().await.status(), 201);
}

#[tokio::test]
async fn a_page_of_a_foreign_site_gets_nothing_from_a_node_on_the_loopback() {
    let face = serve(HttpLimits::default()).await;
    let request = face.http.get(format!("{}/api/v1/status", face.url)).header("host", "evil.example");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let open = serve(HttpLimits { loopback_only: false, ..HttpLimits::default() }).await;
    let request = open.http.get(format!("{}/api/v1/status", open.url)).header("host", "savanna.example");
    assert_eq!(request.send().await.unwrap().status(), 200);
}
