//! Bounds: bodies, time, requests, sessions, hosts.

use std::time::Duration;

use savanna_http::{HttpLimits, Problem};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stub::{Served, serve};

/// A connection on which this was sent.
async fn sent(face: &Served, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(face.url.trim_start_matches("http://")).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

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
        let answer = face.get("/api/v1/status").await;
        if answer.status() == 503 {
            break answer;
        }
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(face.get("/healthz").await.status(), 200, "health is told however busy the node is");
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
async fn bodies_that_do_not_come_keep_nobody_from_work() {
    let face = serve(HttpLimits { max_requests: 2, ..HttpLimits::default() }).await;
    let head = b"POST /api/v1/sql/split HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n";
    let slow = [sent(&face, head).await, sent(&face, head).await];
    // Until both hold all places of bodies.
    while face.post("/api/v1/sql/split", json!({ "sql": "a" })).await.status() != 503 {}
    assert_eq!(face.get("/api/v1/status").await.status(), 200);
    assert_eq!(face.get("/healthz").await.status(), 200);
    drop(slow);
    while face.post("/api/v1/sql/split", json!({ "sql": "a" })).await.status() == 503 {}
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_answered() {
    let face = serve(HttpLimits { request_timeout: Duration::from_millis(50), ..HttpLimits::default() }).await;
    let head = b"POST /api/v1/sql/split HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nconnection: close\r\n\r\n{";
    let mut answer = String::new();
    sent(&face, head).await.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[tokio::test]
async fn half_requests_keep_nobody_out() {
    let face = serve(HttpLimits::default()).await;
    let mut half = Vec::new();
    for number in 0..300 {
        half.push(sent(&face, if number % 2 == 0 { b"GET /healthz HTTP/1.1\r\nhost:" } else { b"" }).await);
    }
    assert_eq!(face.get("/healthz").await.status(), 200);
    for oldest in &mut half[..40] {
        let ended = oldest.read(&mut [0]).await;
        assert!(!ended.is_ok_and(|count| count > 0), "the oldest are sent away");
    }
}

#[tokio::test]
async fn a_client_that_is_one_too_many_hears_so() {
    let face = serve(HttpLimits { max_connections: 1, ..HttpLimits::default() }).await;
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
    let mut first = sent(&face, &ask("/api/v1/status")).await;
    first.read_exact(&mut [0; 12]).await.unwrap();
    for (path, status) in [("/api/v1/status", "503"), ("/nowhere", "503"), ("/healthz", "200")] {
        let (mut second, mut answer) = (sent(&face, &ask(path)).await, String::new());
        second.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "the connection ends after {answer}");
    }
    drop(first);
    // Its place is free when it was seen that it went.
    while face.get("/api/v1/status").await.status() == 503 {}
}
