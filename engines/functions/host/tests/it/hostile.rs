//! What functions cannot do, tried from inside.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use savanna_functions_host::{Abilities, HostError, Isolation, RefusalKind};
use serde_json::{Value, json};

use crate::support::{Host, Parts, wait};
use crate::zips::zip_of;

/// Runs what a test wants tried: `event` is Python.
const TRIES: &str = "
import ctypes, os, socket, subprocess, signal, sys, json
def system_call(*numbers):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*numbers) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return 'done'
def connects(kind, protocol, port):
    with socket.socket(socket.AF_INET, kind, protocol) as own:
        own.connect(('127.0.0.1', port))
        return 'connected'
def listens(family):
    with socket.socket(family) as own:
        own.listen(1)
        return own.getsockname()
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
    assert_eq!(processes["did"], "['1', '2']", "it is alone with what keeps it");
    fails(&host, "tries", "os.kill(1, 9) or os.kill(1, 0) or open('/proc/1/environ').read()");
    fails(&host, "tries", "open('/proc/1/root/tmp/x', 'w')");
    let line = tried(&host, "tries", "open('/proc/1/cmdline').read()");
    assert!(!line.to_string().contains(&directory.path().display().to_string()), "{line}");
    host.close();
}

#[test]
fn a_function_reaches_no_port_by_ways_that_landlock_does_not_see() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    if !is_kept(&host) {
        return;
    }
    host.python("tries", TRIES);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for what in [
        format!("connects(socket.SOCK_STREAM, 0, {port})"),
        // MPTCP, SMC and SCTP.
        format!("connects(socket.SOCK_STREAM, 262, {port})"),
        format!("connects(socket.SOCK_STREAM, 256, {port})"),
        format!("connects(socket.SOCK_STREAM, 132, {port})"),
        "socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET)".to_owned(),
        format!("socket.socket().sendto(b'x', socket.MSG_FASTOPEN, ('127.0.0.1', {port}))"),
        format!("socket.socket().sendmsg([b'x'], [], socket.MSG_FASTOPEN, ('127.0.0.1', {port}))"),
        "socket.socket(socket.AF_VSOCK)".to_owned(),
        "socket.socket(43)".to_owned(),
        "system_call(425, 8, 0)".to_owned(),
        "system_call(272, 0x10000000)".to_owned(),
        "system_call(56, 0x10000000, 0, 0, 0, 0)".to_owned(),
        "system_call(435, 0, 0)".to_owned(),
    ] {
        fails(&host, "tries", &what);
    }
    // The host's listener has met nobody.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    let local = "connects(socket.SOCK_STREAM, 6, int(os.environ['AWS_LAMBDA_RUNTIME_API'].split(':')[1]))";
    for what in [local, "socket.socketpair()", "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)"] {
        assert!(tried(&host, "tries", what)["did"].is_string(), "{what}");
    }
    host.close();
}

#[test]
fn a_function_takes_no_port_of_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    if !is_kept(&host) {
        return;
    }
    host.python("tries", TRIES);
    fails(&host, "tries", "socket.create_server(('127.0.0.1', 0))");
    fails(&host, "tries", "socket.create_server(('0.0.0.0', 45432))");
    // Without a name, the kernel would take any port that is free.
    for family in ["AF_INET", "AF_INET6"] {
        fails(&host, "tries", &format!("listens(socket.{family})"));
    }
    // Nor is a name taken by somebody who would not listen.
    fails(&host, "tries", "socket.socket().bind(('127.0.0.1', 0))");
    fails(&host, "tries", "(lambda own: (own.bind('/tmp/own'), own.listen(1)))(socket.socket(socket.AF_UNIX))");
    host.close();
}

#[test]
fn the_environment_of_a_function_is_not_that_of_what_begins_it() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    // Libraries that are none: whoever loads them does not start.
    let zip = zip_of(&[
        ("main.py", 0o100_644, TRIES.as_bytes()),
        ("libc.so.6", 0o100_755, b"x"),
        ("libgcc_s.so.1", 0o100_755, b"x"),
    ]);
    let code = host.runtime.block_on(host.functions.keep_code(zip.clone())).unwrap();
    let folder = directory.path().join("functions/tasks").join(&code.code().sha256);
    let settings = json!({ "Environment": { "Variables": { "LD_LIBRARY_PATH": folder, "WORD": "w=1" } } });
    host.try_make("tries", "python3.11", zip, &settings).unwrap();
    if is_kept(&host) {
        assert_eq!(
            tried(&host, "tries", "os.environ['WORD'] + os.environ['LD_LIBRARY_PATH']")["did"],
            format!("w=1{}", folder.display())
        );
    }
    host.close();
}

#[test]
fn nothing_that_the_host_has_open_is_open_in_a_function() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("tries", TRIES);
    // As libraries of C do it that do not think of programs which are started.
    // SAFETY: the string ends with a NUL; the descriptor is left open.
    let open = unsafe { libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY) };
    assert!(open > 2);
    fails(&host, "tries", &format!("os.fstat({open})"));
    // SAFETY: it was opened here, and nobody else knows of it.
    unsafe { libc::close(open) };
    host.close();
}

/// Undoes all that ties it to who has started it, as far as it can, and sleeps with a name that is found again.
const UNTIED: &str = "
import ctypes, os, signal, subprocess, time
def handler(event, context):
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signal_number, signal.SIG_IGN)
    subprocess.Popen(['sleep', event['mark']], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen(['sleep', event['mark']], start_new_session=True)
        os._exit(0)
    try:
        os.setsid()
    except OSError:
        pass
    time.sleep(event['seconds'])
";

/// How many processes sleep for so long.
fn asleep(mark: &str) -> usize {
    let is_it = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == format!("sleep\0{mark}\0").as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_it).count()
}

/// Nothing stays of a function that undoes its ties: not when its time is over, nor when the host closes.
fn ends_with_all_that_it_has_started(host: Host, mark: &str) {
    host.python_with("untied", UNTIED, &json!({ "Timeout": 2 }));
    let (succeeded, answer) = host.call("untied", &json!({ "mark": mark, "seconds": 60 }));
    assert!(!succeeded && answer["errorType"] == "Sandbox.Timedout", "{answer}");
    wait("all has ended with its time", || asleep(mark) == 0);
    host.answer("untied", &json!({ "mark": mark, "seconds": 0 }));
    wait("what it has started sleeps as long as it is warm", || asleep(mark) == 2);
    host.close();
    wait("all has ended with the host", || asleep(mark) == 0);
}

#[test]
fn what_undoes_its_ties_ends_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    if is_kept(&host) {
        ends_with_all_that_it_has_started(host, &format!("{}", 8_000_000 + u64::from(std::process::id())));
    }
}

/// A host on a machine that lacks something.
fn lacking(directory: &Path, namespaces: bool, landlock: bool) -> Host {
    // No control groups are seen in an empty folder.
    let groups = directory.join("groups");
    std::fs::create_dir(&groups).unwrap();
    let abilities = Abilities { namespaces, landlock, groups };
    Host::try_open(directory, 1, Isolation::Preferred, 8, Parts { abilities, ..Parts::default() }).unwrap()
}

#[test]
fn a_machine_without_namespaces_keeps_functions_from_files_and_ports_and_ends_all_that_they_start() {
    let directory = tempfile::tempdir().unwrap();
    let host = lacking(directory.path(), false, true);
    let isolation = host.functions.isolation();
    if isolation != "Landlock alone; memory: watched" {
        return eprintln!("nothing is tried: {isolation}");
    }
    host.python("tries", TRIES);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (own, path) = (std::process::id(), directory.path().display());
    let kept = directory.path().join("kept");
    std::fs::write(&kept, "kept").unwrap();
    let local = std::os::unix::net::UnixListener::bind(directory.path().join("local")).unwrap();
    for what in [
        // What Landlock is not asked about.
        format!("os.chmod('{path}/kept', 0)"),
        format!("system_call(268, -100, b'{path}/kept', 0)"),
        format!("system_call(452, -100, b'{path}/kept', 0, 0)"),
        format!("os.chown('{path}/kept', 1, 1)"),
        format!("os.utime('{path}/kept', (1, 1))"),
        format!("os.setxattr('{path}/kept', 'user.x', b'x')"),
        format!("os.truncate('{path}/kept', 0)"),
        format!("socket.socket(socket.AF_UNIX).connect('{path}/local')"),
        format!("__import__('resource').prlimit({own}, 7)"),
        format!("os.setpriority(os.PRIO_PROCESS, {own}, 5)"),
        format!("os.sched_setaffinity({own}, os.sched_getaffinity({own}))"),
        "system_call(29, 0, 4096, 0o1600)".to_owned(),
        format!("os.listdir('{path}')"),
        format!("os.kill({own}, 0)"),
        "os.kill(os.getppid(), 0)".to_owned(),
        format!("connects(socket.SOCK_STREAM, 0, {port})"),
        format!("connects(socket.SOCK_STREAM, 262, {port})"),
        "listens(socket.AF_INET)".to_owned(),
        "open('/etc/shadow').read()".to_owned(),
        "os.listdir('/proc')".to_owned(),
        "os.chroot(os.environ['TMPDIR'])".to_owned(),
        "os.setuid(12345)".to_owned(),
        "socket.sethostname('x')".to_owned(),
        "open(os.environ['LAMBDA_TASK_ROOT'] + '/main.py', 'a')".to_owned(),
    ] {
        fails(&host, "tries", &what);
    }
    let metadata = std::fs::metadata(&kept).unwrap();
    assert!(metadata.permissions().mode() & 0o777 != 0 && metadata.uid() != 1 && metadata.mtime() != 1);
    assert_eq!(std::fs::read(&kept).unwrap(), b"kept");
    local.set_nonblocking(true).unwrap();
    assert!(local.accept().is_err(), "nobody has come");
    for what in ["socket.socketpair()", "__import__('resource').getrlimit(7)"] {
        assert!(tried(&host, "tries", what)["did"].is_string(), "{what}");
    }
    assert_eq!(tried(&host, "tries", "open(os.environ['TMPDIR'] + '/mine', 'w').write('m')")["did"], "1");
    ends_with_all_that_it_has_started(host, &format!("{}", 8_200_000 + u64::from(std::process::id())));
}

#[test]
fn a_machine_without_landlock_says_so_and_keeps_functions_in_namespaces() {
    let directory = tempfile::tempdir().unwrap();
    let host = lacking(directory.path(), true, false);
    let isolation = host.functions.isolation();
    if isolation != "namespaces without Landlock's ports; memory: watched" {
        return eprintln!("nothing is tried: {isolation}");
    }
    host.python("tries", TRIES);
    fails(&host, "tries", &format!("os.listdir('{}')", directory.path().display()));
    ends_with_all_that_it_has_started(host, &format!("{}", 8_400_000 + u64::from(std::process::id())));
}

#[test]
fn a_machine_without_both_runs_functions_and_ends_all_that_they_start() {
    let directory = tempfile::tempdir().unwrap();
    let host = lacking(directory.path(), false, false);
    assert_eq!(host.functions.isolation(), "none; memory: watched");
    ends_with_all_that_it_has_started(host, &format!("{}", 8_600_000 + u64::from(std::process::id())));
}

#[test]
fn memory_that_is_watched_counts_whatever_a_function_has_started_and_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let host = lacking(directory.path(), true, true);
    if !is_kept(&host) {
        return;
    }
    let eats = "
import subprocess, sys, time
def handler(event, context):
    if event == 'files':
        with open('/tmp/x', 'wb') as file:
            for _ in range(400):
                file.write(b'x' * (1 << 20))
    else:
        subprocess.Popen([sys.executable, '-c', 'x = bytearray(b\"x\") * (400 << 20)\\nimport time\\ntime.sleep(60)'], start_new_session=True)
    time.sleep(30)
";
    host.python_with("eats", eats, &json!({ "MemorySize": 200 }));
    for event in ["files", "processes"] {
        let (succeeded, answer) = host.call("eats", &json!(event));
        assert!(!succeeded && answer["errorType"] == "Runtime.ExitError", "{event}: {answer}");
    }
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
    // On a machine that has much else to do a thousand forks take long.
    host.python_with("bomb", bomb, &json!({ "MemorySize": 2048, "Timeout": 300 }));
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
    for (namespaces, landlock) in [(true, false), (false, true), (false, false)] {
        let directory = tempfile::tempdir().unwrap();
        let abilities = Abilities { namespaces, landlock, ..Abilities::default() };
        let opened =
            Host::try_open(directory.path(), 1, Isolation::Required, 4, Parts { abilities, ..Parts::default() });
        assert!(matches!(opened, Err(HostError::Isolation(_))), "{namespaces} {landlock}");
    }
}

#[test]
fn isolation_that_is_not_wanted_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open_with(directory.path(), 1, Isolation::None, 4);
    assert!(host.functions.isolation().starts_with("none"));
    host.python("echo", "def handler(event, context):\n    return event\n");
    assert_eq!(host.answer("echo", &json!(3)), json!(3));
    host.close();
}
