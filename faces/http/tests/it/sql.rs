//! Sessions, statements and rows.

use arrow::ipc::reader::StreamReader;
use savanna_http::types::{Description, Outcome, Session, Statements};
use savanna_http::{HttpLimits, Problem};
use serde_json::json;

use crate::stub::{Served, serve};

async fn session(face: &Served) -> Session {
    let answer = face.post("/api/v1/sql/sessions", json!({ "user": "me" })).await;
    assert_eq!(answer.status(), 201);
    answer.json().await.unwrap()
}

#[tokio::test]
async fn each_kind_of_statement_has_its_outcome() {
    let face = serve(HttpLimits::default()).await;
    let path = format!("/api/v1/sql/sessions/{}/execute", session(&face).await.session);
    let run = |sql: &str| face.post(&path, json!({ "sql": sql }));
    let outcome: Outcome = run("CREATE").await.json().await.unwrap();
    assert_eq!(outcome, Outcome::Done { tag: "CREATE TABLE".into() });
    let outcome: Outcome = run("INSERT").await.json().await.unwrap();
    assert_eq!(outcome, Outcome::Started { query: "0123456789ab-1".into() });
    let Outcome::Rows { columns, query, .. } = run("ENDLESS").await.json().await.unwrap() else {
        panic!("expected rows");
    };
    assert_eq!((columns[1].name.as_str(), columns[1].data_type.as_str()), ("number", "BIGINT"));
    assert_eq!(query.as_deref(), Some("0123456789ab-1"));
}

#[tokio::test]
async fn a_wrong_statement_is_a_problem_with_sqlstate_and_position() {
    let face = serve(HttpLimits::default()).await;
    let path = format!("/api/v1/sql/sessions/{}/execute", session(&face).await.session);
    let answer = face.post(&path, json!({ "sql": "SELECT" })).await;
    assert_eq!(answer.status(), 400);
    let problem: Problem = answer.json().await.unwrap();
    assert_eq!(&*problem.kind, "urn:savanna:problem:syntax");
    assert_eq!(problem.sqlstate.as_deref(), Some("42601"));
    let position = problem.position.unwrap();
    assert_eq!((position.line, position.column), (2, 5));
}

#[tokio::test]
async fn rows_come_as_json_lines_or_as_arrow_a_page_at_a_time() {
    let face = serve(HttpLimits::default()).await;
    let (_, cursor) = face.cursor("THREE PAGES").await;
    let first = face.get(&format!("{cursor}/rows?max_rows=10&wait_ms=0")).await;
    assert_eq!(first.headers()["savanna-result-end"], "false");
    let lines = first.text().await.unwrap();
    let number = cursor.rsplit('/').next().unwrap();
    assert_eq!(lines.lines().next().unwrap(), format!("{{\"op\":\"+I\",\"name\":\"a\",\"number\":{number}}}"));
    assert_eq!(lines.lines().count(), 2);

    let request = face.http.get(format!("{}{cursor}/rows", face.url));
    let second = request.header("accept", "application/vnd.apache.arrow.stream").send().await.unwrap();
    let bytes = second.bytes().await.unwrap();
    let reader = StreamReader::try_new(bytes.as_ref(), None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 2);

    let last = face.get(&format!("{cursor}/rows")).await;
    assert_eq!(last.headers()["savanna-result-end"], "true");
}

#[tokio::test]
async fn a_stream_sends_every_row_and_ends_with_the_result() {
    let face = serve(HttpLimits::default()).await;
    let (_, cursor) = face.cursor("THREE PAGES").await;
    let text = face.get(&format!("{cursor}/stream")).await.text().await.unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"op\":\"+I\"")).count(), 6);
    assert!(face.engine.closed_cursors.lock().is_empty());
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_cancels_it() {
    let face = serve(HttpLimits::default()).await;
    let (_, cursor) = face.cursor("ENDLESS").await;
    let mut answer = face.get(&format!("{cursor}/stream")).await;
    answer.chunk().await.unwrap().unwrap();
    drop(answer);
    while face.engine.closed_cursors.lock().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stream_that_fails_on_the_way_says_so_in_its_last_line() {
    let face = serve(HttpLimits::default()).await;
    let (_, cursor) = face.cursor("ENDLESS").await;
    let mut answer = face.get(&format!("{cursor}/stream")).await;
    answer.chunk().await.unwrap().unwrap();
    assert_eq!(face.delete(&cursor).await.status(), 204);
    let mut text = String::new();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["op"], "error");
    assert!(last["problem"]["detail"].as_str().unwrap().contains("does not exist"));
}

#[tokio::test]
async fn a_session_ends_with_delete_and_all_with_the_face() {
    let mut face = serve(HttpLimits::default()).await;
    let (first, second) = (session(&face).await.session, session(&face).await.session);
    let path = format!("/api/v1/sql/sessions/{first}");
    assert_eq!(face.delete(&path).await.status(), 204);
    assert_eq!(face.delete(&path).await.status(), 404);
    face.http = reqwest::Client::new();
    face.stop().await;
    assert_eq!(*face.engine.closed_sessions.lock(), [first, second]);
}

#[tokio::test]
async fn a_session_of_another_face_cannot_be_reached() {
    let face = serve(HttpLimits::default()).await;
    let answer = face.post("/api/v1/sql/sessions/999/execute", json!({ "sql": "CREATE" })).await;
    assert_eq!(answer.status(), 404);
    let problem: Problem = answer.json().await.unwrap();
    assert!(problem.detail.starts_with("session 999 is not open"), "{}", problem.detail);
}

#[tokio::test]
async fn texts_are_split_and_statements_described() {
    let face = serve(HttpLimits::default()).await;
    let split: Statements = face.post("/api/v1/sql/split", json!({ "sql": "A; B" })).await.json().await.unwrap();
    assert_eq!(split.statements, ["A", "B"]);
    let path = format!("/api/v1/sql/sessions/{}/describe", session(&face).await.session);
    let described: Description = face.post(&path, json!({ "sql": "SELECT 1" })).await.json().await.unwrap();
    assert_eq!(described.columns.unwrap().len(), 2);
}
