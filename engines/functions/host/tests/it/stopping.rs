//! What is stopped in order is not over: events run again, and nobody is told of an end.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use savanna_functions_host::{Isolation, RefusalKind};
use serde_json::json;

use crate::support::{Host, invoking, wait};

/// Sleeps, with a process of a name that is found again.
const SLEEPS: &str = "
import subprocess, time
def handler(event, context):
    subprocess.Popen(['sleep', event['mark']])
    print('has begun')
    time.sleep(60)
";

/// Each process with its parent.
fn parents() -> BTreeMap<u32, u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |number: u32| {
        let status = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // What is in parentheses may have spaces.
        status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    numbers.filter_map(|number| Some((number, parent(number)?))).collect()
}

/// The processes of an instance, from that which sleeps for so long up to the one that the host has started.
fn processes_of(mark: &str) -> Vec<u32> {
    let parents = parents();
    let sleeps = |number: &u32| {
        fs::read(format!("/proc/{number}/cmdline")).is_ok_and(|line| line == format!("sleep\0{mark}\0").as_bytes())
    };
    let Some(sleeper) = parents.keys().copied().find(sleeps) else { return Vec::new() };
    let up = std::iter::successors(Some(sleeper), |number| parents.get(number).copied());
    up.take_while(|number| *number > 1 && *number != std::process::id()).collect()
}

fn an_event_that_runs_when_all_is_stopped_runs_again(isolation: Isolation, mark: u32) {
    let directory = tempfile::tempdir().unwrap();
    let (host, mark) = (Host::open_with(directory.path(), 1, isolation, 4), format!("{}", mark + std::process::id()));
    host.python_with("sleeps", SLEEPS, &json!({ "Timeout": 100 }));
    host.events("sleeps", &json!({ "MaximumRetryAttempts": 0 }));
    host.send("sleeps", &json!({ "mark": mark }));
    host.wait_for_print("sleeps", "has begun", 1);
    // As services are stopped: all processes are told at once, and the host closes when it gets to it.
    let processes = processes_of(&mark);
    assert!(processes.len() > 1, "{processes:?}");
    for process in &processes {
        // SAFETY: it takes numbers. They are those of an instance that was seen to run.
        unsafe { libc::kill(i32::try_from(*process).unwrap(), libc::SIGTERM) };
    }
    wait("all has ended", || processes_of(&mark).is_empty());
    std::thread::sleep(Duration::from_millis(700));
    host.close();
    let host = Host::open_with(directory.path(), 2, isolation, 4);
    host.wait_for_print("sleeps", "has begun", 1);
    host.close();
}

#[test]
fn an_event_of_a_function_that_is_kept_apart_runs_again_when_all_was_stopped() {
    an_event_that_runs_when_all_is_stopped_runs_again(Isolation::Preferred, 9_000_000);
}

#[test]
fn an_event_of_a_function_that_is_not_kept_apart_runs_again_when_all_was_stopped() {
    an_event_that_runs_when_all_is_stopped_runs_again(Isolation::None, 9_200_000);
}

#[test]
fn a_host_that_is_closed_begins_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("echo", "def handler(event, context):\n    return event\n");
    assert_eq!(host.answer("echo", &json!(1)), json!(1));
    host.functions.close().unwrap();
    let invoked = host.functions.invoke(invoking("echo", &json!(1)));
    let refused = host.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), invoked).await });
    assert_eq!(refused.expect("it is answered").unwrap_err().kind, RefusalKind::Service);
}
