//! `savanna dev`: start, take-over, stop; with real processes and signals.

use std::net::TcpListener;

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

#[test]
fn a_port_that_is_taken_stops_only_its_service() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let node = Dev::start(directory.path(), &["--pgwire-port", &port]);
    assert_eq!(node.service("pgwire")["state"], "failed");
    let reason = node.service("pgwire")["reason"].as_str().unwrap();
    assert!(reason.contains("is taken by another process"), "{reason}");
    assert_serves(&node);
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
