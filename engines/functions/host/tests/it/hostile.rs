//! What functions cannot do, tried from inside.

use savanna_functions_host::{Isolation, RefusalKind};
use serde_json::{Value, json};

use crate::support::{Host, wait, zip_of};

/// Runs what a test wants tried: `event` is Python.
const TRIES: &str = "
import os, socket, subprocess, signal, sys, json
def handler(event, context):
    try:
        return {'did': str(eval(event))}
    except BaseException as error:
        return {'failed': type(error).__name__ + ': ' + str(error)}
";

/// Whether this machine keeps functions apart; where it does not, the host says so and there is nothing to try.
fn is_kept(host: &Host) -> bool {
    let isolation = host.functions.isolation();
    let is_kept = isolation.starts_with("namespaces and Landlock");
    if !is_kept {
        eprintln!("nothing is tried: {isolation}");
    }
    is_kept
}

fn tried(host: &Host, name: &str, what: &str) -> Value {
    host.answer(name, &json!(what))
}

fn fails(host: &Host, name: &str, what: &str) {
    let answer = tried(host, name, what);
    assert!(answer["failed"].is_string(), "{what}: {answer}");
}

#[test]
fn a_function_sees_its_own_files_and_changes_none_but_those_in_its_tmp() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    if !is_kept(&host) {
        return;
    }
    host.python("tries", TRIES);
    host.python("other", TRIES);
    std::fs::write(directory.path().join("secret"), "s").unwrap();
    let path = directory.path().display();
    for what in [
        format!("open('{path}/secret').read()"),
        format!("os.listdir('{path}')"),
        "os.listdir('/root')".to_owned(),
        "os.listdir('/home')".to_owned(),
        "os.listdir('/sys')".to_owned(),
        "open('/etc/shadow').read()".to_owned(),
        "open('/var/task/main.py', 'a')".to_owned(),
        "open('/var/task/new', 'w')".to_owned(),
        "open('/usr/new', 'w')".to_owned(),
        "open('/new', 'w')".to_owned(),
        "os.setuid(0)".to_owned(),
        "os.chroot('/tmp')".to_owned(),
        "os.mknod('/tmp/x', 0o60600, 1)".to_owned(),
        "open('/dev/mem')".to_owned(),
        "subprocess.check_output(['mount', '-t', 'tmpfs', 'x', '/tmp'])".to_owned(),
    ] {
        fails(&host, "tries", &what);
    }
    assert_eq!(tried(&host, "tries", "open('/tmp/mine', 'w').write('m')")["did"], "1");
    assert_eq!(tried(&host, "tries", "open('/tmp/mine').read()")["did"], "m", "it is warm");
    fails(&host, "other", "open('/tmp/mine').read()");
    assert!(tried(&host, "tries", "os.getuid()")["did"] != "0");
    assert_eq!(tried(&host, "tries", "os.listdir('/var/task')")["did"], "['main.py']");
    host.close();
}

#[test]
fn a_function_reaches_no_process_and_no_port_but_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    if !is_kept(&host) {
        return;
    }
    host.python("tries", TRIES);
    let own = std::process::id();
    fails(&host, "tries", &format!("os.kill({own}, 0)"));
    fails(&host, "tries", &format!("os.listdir('/proc/{own}')"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    fails(&host, "tries", &format!("socket.create_connection(('127.0.0.1', {port}), 1)"));
    let own = "socket.create_connection(os.environ['AWS_LAMBDA_RUNTIME_API'].split(':'), 1)";
    assert!(tried(&host, "tries", own)["did"].is_string());
    let processes = tried(&host, "tries", "sorted(p for p in os.listdir('/proc') if p.isdigit())");
    assert_eq!(processes["did"], "['1']", "it is the first of its namespace");
    host.close();
}

#[test]
fn nothing_that_a_function_has_started_outlives_it() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    if !is_kept(&host) {
        return;
    }
    // A daemon of its own session, with a name that is found again.
    let mark = format!("{}", 7_000_000 + u64::from(std::process::id()));
    let leaves = format!(
        "import subprocess, time\ndef handler(event, context):\n    subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\n    time.sleep(event)\n"
    );
    host.python_with("leaves", &leaves, &json!({ "Timeout": 2 }));
    let is_alive = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(format!("sleep\0{mark}").as_bytes()))
        })
    };
    host.answer("leaves", &json!(0));
    assert!(is_alive(), "as long as the instance is warm, what it has started may be, too");
    let (succeeded, _) = host.call("leaves", &json!(60));
    assert!(!succeeded);
    wait("the daemon has ended", || !is_alive());
    host.answer("leaves", &json!(0));
    assert!(is_alive());
    host.close();
    wait("the daemon has ended with the host", || !is_alive());
}

#[test]
fn a_bomb_of_processes_hurts_itself_alone() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    // A limit of processes counts those of a user: there is a user for it only where the host is root.
    // SAFETY: it takes nothing and cannot fail.
    if !is_kept(&host) || unsafe { libc::geteuid() } != 0 {
        return;
    }
    let bomb = "
import os, time
def handler(event, context):
    made = 0
    try:
        for _ in range(5000):
            if os.fork() == 0:
                time.sleep(60)
            made += 1
    except OSError:
        return made
";
    host.python_with("bomb", bomb, &json!({ "MemorySize": 2048 }));
    host.python("echo", "def handler(event, context):\n    return event\n");
    let made = host.answer("bomb", &json!({})).as_u64().unwrap();
    assert!((10..=1024).contains(&made), "{made}");
    assert_eq!(host.answer("echo", &json!(1)), json!(1));
    host.close();
}

#[test]
fn zips_that_lead_out_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    for (zip, word) in [
        (zip_of(&[("../../x", 0o100_644, b"x")]), "leads out"),
        (zip_of(&[("/etc/x", 0o100_644, b"x")]), "leads out"),
        (zip_of(&[("x", 0o120_777, b"/etc/passwd")]), "neither a file nor a folder"),
        (b"hello".to_vec(), "expected a zip"),
        (zip_of(&[]), "an empty one"),
    ] {
        let refusal = host.try_make("f", "provided", zip, &json!({})).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::InvalidZip);
        assert!(refusal.message.contains(word) && refusal.message.starts_with("Could not unzip"), "{refusal}");
    }
    host.close();
}

#[test]
fn an_init_that_hangs_ends_after_ten_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("hangs", "import time\ntime.sleep(600)\n");
    let begun = std::time::Instant::now();
    let (succeeded, answer) = host.call("hangs", &json!({}));
    assert!(!succeeded && answer["errorType"] == "Sandbox.Timedout", "{answer}");
    assert!((9..20).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    host.close();
}

#[test]
fn a_runtime_that_says_nonsense_is_answered_and_the_host_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    let nonsense = "
import http.client, os
def handler(event, context):
    own = os.environ['AWS_LAMBDA_RUNTIME_API']
    statuses = []
    for method, path, body in [
        ('POST', '/2018-06-01/runtime/invocation/other/response', '1'),
        ('POST', '/2018-06-01/runtime/invocation/other/error', '1'),
        ('GET', '/2018-06-01/runtime/invocation/next', None),
        ('GET', '/', None),
        ('PUT', '/2018-06-01/runtime/invocation/next', 'x'),
    ]:
        connection = http.client.HTTPConnection(own)
        connection.request(method, path, body)
        statuses.append(connection.getresponse().status)
    return statuses
";
    host.python("nonsense", nonsense);
    assert_eq!(host.answer("nonsense", &json!({})), json!([400, 400, 403, 404, 404]));
    host.close();
}

#[test]
fn isolation_that_is_required_and_cannot_be_had_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open_with(directory.path(), 1, Isolation::None, 4);
    assert!(host.functions.isolation().starts_with("none"));
    host.python("echo", "def handler(event, context):\n    return event\n");
    assert_eq!(host.answer("echo", &json!(3)), json!(3));
    host.close();
}
