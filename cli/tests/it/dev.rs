//! `savanna dev`: start, take-over, stop; with real processes and signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{Dev, run};

fn assert_lost_to(code: Option<i32>, stderr: &str, by: u32) {
    assert_eq!(code, Some(3), "{stderr}");
    let message = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(message.contains(&format!("process {by} took over the data directory")), "{message}");
    assert!(message.contains("give this one another directory with --data-dir"), "{message}");
}

fn assert_serves(node: &Dev) {
    let asked = run(&["status", "--url", &node.url(), "--output", "json"]);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    let status: Value = serde_json::from_str(&asked.stdout).unwrap();
    assert_eq!(status["pid"], node.process.pid());
    assert_eq!(status["lease"]["serving"], true);
}

#[test]
fn a_second_process_takes_over_and_the_first_leaves_saying_to_whom() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    let second = Dev::start(directory.path(), &[]);
    let (status, stderr) = first.process.end();
    assert_lost_to(status.code(), &stderr, second.process.pid());
    assert_serves(&second);
}

#[test]
fn a_process_that_was_killed_is_followed_after_its_lease() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    first.process.signal(Signal::SIGKILL);
    let second = Dev::start(directory.path(), &[]);
    assert!(second.epoch() > first.epoch());
    assert_serves(&second);
}

#[test]
fn a_process_that_was_paused_past_its_lease_leaves_when_it_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    first.process.signal(Signal::SIGSTOP);
    let second = Dev::start(directory.path(), &[]);
    assert!(second.epoch() > first.epoch());
    first.process.signal(Signal::SIGCONT);
    let (status, stderr) = first.process.end();
    assert_lost_to(status.code(), &stderr, second.process.pid());
    assert_serves(&second);
}

#[test]
fn a_process_that_is_stopped_in_order_leaves_the_directory_free_at_once() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let directory = tempfile::tempdir().unwrap();
        let first = Dev::start(directory.path(), &[]);
        let epoch = first.epoch();
        first.process.signal(signal);
        let (status, stderr) = first.process.end();
        assert_eq!(status.code(), Some(0), "{stderr}");
        let second = Dev::start(directory.path(), &[]);
        assert!(second.epoch() > epoch);
        second.process.signal(signal);
        let (_, stderr) = second.process.end();
        assert!(!stderr.contains("taking over within"), "{stderr}");
    }
}

/// A client of the keys service.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(node: &Dev) -> Self {
        let address = node.service("keys")["address"].as_str().unwrap();
        Self(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// A line of the reply, empty if the server has closed the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        // A connection that is reset is closed, too.
        let _ = self.0.read_line(&mut line);
        line.trim_end().to_owned()
    }

    fn call(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }
}

#[test]
fn keys_are_there_again_after_a_stop_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    assert_eq!(Client::of(&first).call("INCR visits"), ":1");
    first.process.signal(Signal::SIGINT);
    assert_eq!(first.process.end().0.code(), Some(0));
    assert_eq!(Client::of(&Dev::start(directory.path(), &[])).call("INCR visits"), ":2");
}

#[test]
fn a_process_that_was_paused_past_its_lease_tells_nobody_what_keys_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    let mut client = Client::of(&first);
    assert_eq!(client.call("CONFIG SET appendfsync always"), "+OK");
    assert_eq!(client.call("SET owner first"), "+OK");
    first.process.signal(Signal::SIGSTOP);
    let second = Dev::start(directory.path(), &[]);
    assert_eq!(Client::of(&second).call("SET owner second"), "+OK");
    client.send("GET owner");
    first.process.signal(Signal::SIGCONT);
    assert_eq!(client.line(), "");
    assert_eq!(Client::of(&second).call("STRLEN owner"), ":6");
}

/// A client of the tenants service: whole queries, and all that is said to them.
struct Tenant(TcpStream);

impl Tenant {
    fn of(node: &Dev) -> Self {
        let mut socket = TcpStream::connect(node.service("tenants")["address"].as_str().unwrap()).unwrap();
        let parameters = b"user\0postgres\0database\0postgres\0\0";
        let length = (parameters.len() as u32 + 8).to_be_bytes();
        socket.write_all(&[&length[..], &[0, 3, 0, 0], parameters].concat()).unwrap();
        let mut client = Self(socket);
        client.answer();
        client
    }

    fn send(&mut self, query: &str) {
        let length = (query.len() as u32 + 5).to_be_bytes();
        self.0.write_all(&[&b"Q"[..], &length, query.as_bytes(), b"\0"].concat()).unwrap();
    }

    /// What comes until the server is ready again, or closes the connection.
    fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        let mut head = [0; 5];
        // A connection that is reset is closed, too.
        while self.0.read_exact(&mut head).is_ok() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let mut body = vec![0; length - 4];
            self.0.read_exact(&mut body).unwrap();
            answer.extend(body);
            if head[0] == b'Z' {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn call(&mut self, query: &str) -> String {
        self.send(query);
        self.answer()
    }
}

#[test]
fn tenants_are_there_again_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    let made = Tenant::of(&first).call("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (42)");
    assert!(made.contains("INSERT 0 1"), "{made}");
    first.process.signal(Signal::SIGKILL);
    let answer = Tenant::of(&Dev::start(directory.path(), &[])).call("SELECT id FROM t");
    assert!(answer.contains("42") && answer.contains("SELECT 1"), "{answer}");
}

#[test]
fn tenants_are_made_listed_and_removed_from_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let node = Dev::start(directory.path(), &[]);
    let tenants = |words: &[&str]| {
        let ran = run(&[&["tenants"], words, &["--url", &node.url(), "--output", "json"]].concat());
        (ran.code, if ran.code == Some(0) { ran.stdout } else { ran.stderr })
    };
    assert_eq!(tenants(&["create", "a/shop"]).0, Some(0));
    let (code, again) = tenants(&["create", "a/shop"]);
    assert!(code != Some(0) && again.contains("database \"a/shop\" already exists"), "{again}");
    let listed: Value = serde_json::from_str(&tenants(&["list"]).1).unwrap();
    let names: Vec<_> = listed["tenants"].as_array().unwrap().iter().map(|tenant| tenant["name"].clone()).collect();
    assert_eq!(names, ["a/shop", "postgres"]);
    let mut client = Tenant::of(&node);
    client.call("CREATE TABLE t (id int)");
    let listed: Value = serde_json::from_str(&tenants(&["list"]).1).unwrap();
    assert_eq!((&listed["tenants"][1]["sessions"], &listed["tenants"][1]["commits"]), (&1.into(), &1.into()));
    assert_eq!(tenants(&["drop", "a/shop"]).0, Some(0));
    assert!(tenants(&["drop", "a/shop"]).1.contains("does not exist"));
    assert!(tenants(&["drop", "postgres"]).1.contains("cannot drop the database of the administrators"));
    assert!(tenants(&["top"]).1.contains("\"name\":\"postgres\""));
}

#[test]
fn a_process_that_was_paused_past_its_lease_tells_nobody_what_tenants_had() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dev::start(directory.path(), &[]);
    let mut client = Tenant::of(&first);
    client.call("CREATE TABLE t (owner text); INSERT INTO t VALUES ('first')");
    assert!(client.call("SELECT owner FROM t").contains("first"));
    first.process.signal(Signal::SIGSTOP);
    let second = Dev::start(directory.path(), &[]);
    assert!(Tenant::of(&second).call("UPDATE t SET owner = 'second'").contains("UPDATE 1"));
    client.send("SELECT owner FROM t");
    first.process.signal(Signal::SIGCONT);
    assert_eq!(client.answer(), "");
    assert!(Tenant::of(&second).call("SELECT owner FROM t").contains("second"));
}

#[test]
fn a_port_that_is_taken_stops_only_its_service() {
    for service in ["pgwire", "keys", "tenants"] {
        let directory = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let node = Dev::start(directory.path(), &[&format!("--{service}-port"), &port]);
        assert_eq!(node.service(service)["state"], "failed");
        let reason = node.service(service)["reason"].as_str().unwrap();
        assert!(reason.contains("is taken by another process"), "{reason}");
        assert_serves(&node);
    }
}

#[test]
fn a_node_that_does_not_answer_is_told_with_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let asked = run(&["status", "--url", &format!("http://{free}")]);
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(3), ""));
    let expected = format!("error: no node answers at http://{free}: ");
    assert!(asked.stderr.starts_with(&expected), "{}", asked.stderr);
    assert!(asked.stderr.contains("start one with `savanna dev`"), "{}", asked.stderr);
}
