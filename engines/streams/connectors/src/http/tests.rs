//! The sinks beside a server that answers what it is told to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::Sink;
use serde_json::Value;

use super::{Function, Webhook};
use crate::connector::Connector;

/// A request as it came.
struct Came {
    head: String,
    body: Value,
}

impl Came {
    fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name));
        self.head.lines().find(|line| of(line)).and_then(|line| Some(line.split_once(':')?.1.trim()))
    }
}

/// A server that gives these answers, one after the other and then the last again, and what has come to it.
fn server(answers: &'static [&'static str]) -> (String, Receiver<Came>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (comes, came) = channel();
    thread::spawn(move || {
        let mut answers = answers.iter().chain(std::iter::repeat(answers.last().unwrap()));
        for client in listener.incoming() {
            let mut client = BufReader::new(client.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if client.read_line(&mut line).unwrap() <= 2 {
                    break;
                }
                if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = told.trim().parse().unwrap();
                }
                head += &line;
            }
            let mut body = vec![0; length];
            client.read_exact(&mut body).unwrap();
            if comes.send(Came { head, body: serde_json::from_slice(&body).unwrap() }).is_err() {
                return;
            }
            let answer = answers.next().unwrap();
            client.get_mut().write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
        }
    });
    (address, came)
}

const TAKEN: &str = "200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const BUSY: &str = "503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
const LIMITED: &str = "429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const ENDLESS: &str =
    "429 Too Many Requests\r\nRetry-After: 18446744073709551615\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const ELSEWHERE: &str = "302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const WRONG: &str = "400 Bad Request\r\nContent-Length: 11\r\nConnection: close\r\n\r\nno such\r\ntx";
const FAILED: &str = "200 OK\r\nX-Amz-Function-Error: Unhandled\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

fn table(connector: &str, options: &[(&str, &str)]) -> TableDef {
    let connector = [("connector", connector)];
    let options = options.iter().chain(&connector);
    TableDef {
        name: "out".into(),
        columns: Vec::new(),
        watermark: None,
        primary_key: Vec::new(),
        partitioned_by: Vec::new(),
        options: options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        statement: String::new(),
    }
}

fn sink(connector: &dyn Connector, options: &[(&str, &str)]) -> Box<dyn Sink> {
    let mut table = table(connector.name(), options);
    connector.check(&mut table).unwrap();
    connector.sink(&table, rows(&[]).schema()).unwrap()
}

fn rows(numbers: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

fn query() -> QueryId {
    QueryId { code: "c".into(), job: 7 }
}

fn commit(sink: &mut dyn Sink, epoch: u64, numbers: &[i64]) -> Result<()> {
    sink.commit(&query(), Epoch(epoch), &[rows(numbers)])
}

#[test]
fn rows_are_posted_with_a_key_that_is_the_same_when_they_come_again() {
    let (url, came) = server(&[BUSY, TAKEN]);
    let options = [("url", url.as_str()), ("batch.rows", "2"), ("headers", "Authorization: Bearer x; X-A: b:c")];
    let mut sink = sink(&Webhook, &options);
    commit(sink.as_mut(), 3, &[1, 2, 3]).unwrap();
    let came: Vec<_> = came.try_iter().collect();
    let bodies: Vec<_> = came.iter().map(|came| came.body.to_string()).collect();
    assert_eq!(bodies, [r#"[{"n":1},{"n":2}]"#, r#"[{"n":1},{"n":2}]"#, r#"[{"n":3}]"#]);
    let keys: Vec<_> = came.iter().map(|came| came.header("idempotency-key").unwrap()).collect();
    let [first, second] = [0, 1].map(|number| format!("{}-out-3-{number}", query()));
    assert_eq!(keys, [&first, &first, &second]);
    assert_eq!((came[0].header("authorization"), came[0].header("x-a")), (Some("Bearer x"), Some("b:c")));
    commit(sink.as_mut(), 4, &[]).unwrap();
}

#[test]
fn what_is_refused_fails_at_once_and_says_why() {
    for (answer, told) in [(&[WRONG] as &[_], "400 Bad Request: no such tx"), (&[ELSEWHERE], "302 Found")] {
        let (url, came) = server(answer);
        let url = format!("{url}/in?token=secret");
        let error = commit(sink(&Webhook, &[("url", &url)]).as_mut(), 1, &[1]).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains(" refuses rows"), "{error}");
        assert!(!error.contains("secret") && !error.contains("/in"), "{error}");
        assert_eq!(came.try_iter().count(), 1);
    }
}

#[test]
fn a_server_that_does_not_take_rows_in_time_fails_the_query() {
    let (url, _came) = server(&[BUSY]);
    for url in [url.as_str(), "http://127.0.0.1:1"] {
        let mut sink = sink(&Webhook, &[("url", url), ("retry.timeout", "400ms")]);
        let error = commit(sink.as_mut(), 1, &[1]).unwrap_err();
        assert!(matches!(error, StreamError::Io { .. }) && error.to_string().contains("'retry.timeout'"), "{error}");
    }
}

#[test]
fn a_server_that_asks_for_a_pause_without_end_fails_the_query() {
    let (url, _came) = server(&[ENDLESS]);
    let mut sink = sink(&Webhook, &[("url", &url), ("retry.timeout", "400ms")]);
    assert!(matches!(commit(sink.as_mut(), 1, &[1]), Err(StreamError::Io { .. })));
}

#[test]
fn a_query_that_ends_does_not_wait_for_a_server() {
    let mut sink = sink(&Webhook, &[("url", "http://127.0.0.1:1")]);
    let give_up = sink.remote().unwrap().give_up;
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        give_up();
    });
    assert_eq!(commit(sink.as_mut(), 1, &[1]).unwrap_err(), StreamError::Cancelled);
    ends.join().unwrap();
    assert_eq!(commit(sink.as_mut(), 2, &[1]).unwrap_err(), StreamError::Cancelled);
}

#[test]
fn a_function_gets_rows_with_what_they_are_of_and_runs_again_if_it_fails() {
    let (url, came) = server(&[LIMITED, FAILED, TAKEN]);
    let options = [("endpoint", url.as_str()), ("function", "f:live"), ("invocation", "wait")];
    commit(sink(&Function, &options).as_mut(), 5, &[1, 2]).unwrap();
    let came: Vec<_> = came.try_iter().collect();
    assert_eq!(came.len(), 3);
    assert!(came[0].head.starts_with("POST /2015-03-31/functions/f%3Alive/invocations HTTP/1.1"), "{}", came[0].head);
    assert_eq!(came[0].header("x-amz-invocation-type"), Some("RequestResponse"));
    let query = query().to_string();
    let expected = serde_json::json!({
        "query": query, "table": "out", "epoch": 5, "batch": 0, "key": format!("{query}-out-5-0"), "rows": [{ "n": 1 }, { "n": 2 }],
    });
    assert!(came.iter().all(|came| came.body == expected), "{}", came[0].body);
}

#[test]
fn what_no_request_can_be_made_of_is_refused_when_it_is_declared() {
    for (connector, options, told) in [
        (&Webhook as &dyn Connector, &[("url", "ftp://h")] as &[_], "expected an address"),
        (&Webhook, &[("url", "nothing")], "expected an address"),
        (&Webhook, &[("url", "http://h"), ("headers", "no colon")], "'Name: value'"),
        (&Webhook, &[("url", "http://h"), ("batch.bytes", "0")], "1 to"),
        (&Webhook, &[("url", "http://h"), ("request.timeout", "2h")], "at most"),
        (&Function, &[("function", "a/b")], "the name or the ARN"),
        (&Function, &[("function", "f"), ("endpoint", "http://h/path")], "'http://host:port'"),
        (&Function, &[("function", "f"), ("endpoint", "http://a:b@h")], "'http://host:port'"),
        (&Function, &[("function", "f"), ("endpoint", "http://h?a=b")], "'http://host:port'"),
        (&Function, &[("function", "f"), ("batch.bytes", "2MiB")], "1 to"),
    ] {
        let error = connector.check(&mut table(connector.name(), options)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
