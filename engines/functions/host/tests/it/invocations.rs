//! What functions can do.

use std::time::{Duration, Instant};

use savanna_functions_host::{Isolation, RefusalKind};
use serde_json::json;

use crate::support::{Host, Parts, wait};
use crate::zips::zip_of;

const ECHO: &str = "
def handler(event, context):
    print('got', event)
    return {'event': event, 'name': context.function_name, 'left': context.get_remaining_time_in_millis()}
";

#[test]
fn a_handler_of_python_gets_what_its_client_sends_and_answers() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("echo", ECHO);
    let answer = host.answer("echo", &json!({ "a": [1, "ä"] }));
    assert_eq!((&answer["event"], &answer["name"]), (&json!({ "a": [1, "ä"] }), &json!("echo")));
    assert!((1..=20_000).contains(&answer["left"].as_u64().unwrap()), "{answer}");
    let again = host.try_call("echo", &json!(1)).unwrap();
    assert_eq!(again.usage.init, 0, "the instance is warm");
    let tail = String::from_utf8(again.tail).unwrap();
    for part in ["START RequestId: ", "got 1\n", "END RequestId: ", "Billed Duration: ", "Memory Size: 256 MB"] {
        assert!(tail.contains(part), "{tail}");
    }
    assert_eq!(host.functions.usage("echo").1.cold_starts, 1);
    host.close();
}

#[test]
fn what_goes_wrong_has_lambdas_name() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("raises", "def handler(event, context):\n    raise KeyError('k')\n");
    host.python("exits", "import os\ndef handler(event, context):\n    os._exit(3)\n");
    host.python("imports", "import nothing_of_that_name\n");
    host.python("lacks", "x = 1\n");
    host.python_with(
        "sleeps",
        "import time\ndef handler(event, context):\n    time.sleep(60)\n",
        &json!({ "Timeout": 1 }),
    );
    host.python_with(
        "eats",
        "def handler(event, context):\n    return len(bytearray(1 << 30))\n",
        &json!({ "MemorySize": 128 }),
    );
    host.make("none", "provided.al2023", &[("readme", 0o100_644, b"x")], &json!({}));
    host.make("idle", "provided.al2023", &[("bootstrap", 0o100_755, b"#!/bin/sh\nexit 7\n")], &json!({}));
    for (name, kind) in [
        ("raises", "KeyError"),
        ("exits", "Runtime.ExitError"),
        ("imports", "Runtime.ImportModuleError"),
        ("lacks", "Runtime.HandlerNotFound"),
        ("sleeps", "Sandbox.Timedout"),
        ("eats", "Runtime.ExitError"),
        ("none", "Runtime.InvalidEntrypoint"),
        ("idle", "Runtime.ExitError"),
    ] {
        let (succeeded, answer) = host.call(name, &json!({}));
        assert!(!succeeded && answer["errorType"] == kind, "{name}: {answer:#}");
    }
    let message = |name: &str| host.call(name, &json!({})).1["errorMessage"].as_str().unwrap().to_owned();
    assert!(message("exits").ends_with("Error: Runtime exited with error: exit status 3"));
    assert!(message("sleeps").ends_with("Error: Task timed out after 1.00 seconds"));
    assert!(message("eats").ends_with("Runtime exited with error: signal: killed"), "{}", message("eats"));
    host.close();
}

/// As it is for a moment when a process was forked while the zip was unpacked.
#[test]
fn a_program_that_is_open_for_writing_runs_as_soon_as_it_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.make("f", "provided.al2023", &[("bootstrap", 0o100_755, b"#!/bin/sh\nexit 7\n")], &json!({}));
    let tasks = std::fs::read_dir(directory.path().join("functions/tasks")).unwrap();
    let programs: Vec<_> =
        tasks.map(|task| task.unwrap().path().join("bootstrap")).filter(|file| file.exists()).collect();
    let [program] = programs.as_slice() else { panic!("{programs:?}") };
    let open = || std::fs::OpenOptions::new().append(true).open(program).unwrap();

    let written = open();
    let (_, answer) = std::thread::scope(|scope| {
        let call = scope.spawn(|| host.call("f", &json!({})));
        std::thread::sleep(Duration::from_millis(500));
        drop(written);
        call.join().unwrap()
    });
    assert!(answer["errorMessage"].as_str().unwrap().ends_with("exit status 7"), "{answer:#} {}", host.log("f"));

    // It is not waited for as long as an init may take.
    let written = open();
    let begun = Instant::now();
    let (_, answer) = host.call("f", &json!({}));
    assert!(answer["errorMessage"].as_str().unwrap().contains("Text file busy"), "{answer:#}");
    assert!(begun.elapsed() < Duration::from_secs(9), "it was given up by its init");
    drop(written);
    host.close();
}

#[test]
fn no_more_run_at_once_than_are_reserved() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("slow", "import time\ndef handler(event, context):\n    time.sleep(1.5)\n");
    host.reserve("slow", 1);
    let refusals = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| host.try_call("slow", &json!({})))).collect();
        calls.into_iter().filter_map(|call| call.join().unwrap().err()).collect::<Vec<_>>()
    });
    assert_eq!(refusals.len(), 2);
    assert!(refusals.iter().all(|refusal| refusal.kind == RefusalKind::ReservedConcurrency));
    host.reserve("slow", 0);
    assert_eq!(host.try_call("slow", &json!({})).unwrap_err().kind.status(), 429);
    host.close();
}

#[test]
fn an_event_runs_again_and_its_destination_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("fails", "def handler(event, context):\n    print('tried')\n    raise ValueError('no')\n");
    host.python("told", "import json\ndef handler(event, context):\n    print('told', json.dumps(event))\n");
    let told = "arn:aws:lambda:us-east-1:000000000000:function:told";
    host.events("fails", &json!({ "DestinationConfig": { "OnFailure": { "Destination": told } } }));
    host.send("fails", &json!({ "n": 5 }));
    host.wait_for_print("told", "RetriesExhausted", 1);
    let log = host.log("told");
    let line = log.lines().find_map(|line| line.strip_prefix("told ")).unwrap();
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(event["requestPayload"], json!({ "n": 5 }));
    assert_eq!(
        (&event["requestContext"]["approximateInvokeCount"], &event["responsePayload"]["errorType"]),
        (&json!(3), &json!("ValueError"))
    );
    wait("nothing waits", || host.functions.totals().counts.queued == 0);
    let tried = host.log("fails");
    assert_eq!(tried.matches("tried\n").count(), 3);
    host.close();
}

#[test]
fn an_event_that_has_run_as_often_as_it_may_goes_to_the_dead_letter() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("letters", "import json\ndef handler(event, context):\n    print('letter', json.dumps(event))\n");
    let letters = "arn:aws:lambda:us-east-1:000000000000:function:letters";
    host.python_with(
        "fails",
        "def handler(event, context):\n    print('tried')\n    raise ValueError('no')\n",
        &json!({ "DeadLetterConfig": { "TargetArn": letters } }),
    );
    host.send("fails", &json!({ "n": 5 }));
    host.wait_for_print("letters", "RetriesExhausted", 1);
    let log = host.log("letters");
    let line = log.lines().find_map(|line| line.strip_prefix("letter ")).unwrap();
    let letter: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(letter["requestPayload"], json!({ "n": 5 }));
    assert_eq!(letter["requestContext"]["approximateInvokeCount"], json!(3));
    wait("nothing waits", || host.functions.totals().counts.queued == 0);
    assert_eq!((host.log("fails").matches("tried\n").count(), host.functions.usage("fails").1.dropped_events), (3, 0));
    host.close();
}

#[test]
fn an_instance_that_has_had_nothing_to_do_ends_and_the_next_call_begins_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let parts = Parts { idle: Some(Duration::from_millis(200)), ..Parts::default() };
    let host = Host::try_open(directory.path(), 1, Isolation::Preferred, 8, parts).unwrap();
    host.python("f", "import os\ndef handler(event, context):\n    return os.environ['SAVANNA_EXECUTOR_ID']\n");
    let first = host.answer("f", &json!({}));
    assert_eq!(host.functions.usage("f").0.instances, 1);
    wait("it has ended", || host.functions.usage("f").0.instances == 0);
    assert_eq!(host.answer("f", &json!({})), first, "it has the place of the one before");
    assert_eq!(host.functions.usage("f").1.cold_starts, 2);
    host.close();
}

#[test]
fn instances_that_are_there_at_once_have_names_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 7);
    host.python(
        "f",
        "import os, time\ndef handler(event, context):\n    time.sleep(event)\n    return [os.environ['SAVANNA_EXECUTOR_ID'], os.environ['SAVANNA_CACHE']]\n",
    );
    let mut names = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| host.answer("f", &json!(2)))).collect();
        calls.into_iter().map(|call| call.join().unwrap().to_string()).collect::<Vec<_>>()
    });
    names.sort();
    assert_eq!(names, [r#"["f/7.0",""]"#, r#"["f/7.1",""]"#, r#"["f/7.2",""]"#]);
    host.close();
}

/// A library of the system, under another name: no compiler is needed to have one.
fn library() -> Vec<u8> {
    let machine = format!("/lib/{}-linux-gnu/libm.so.6", std::env::consts::ARCH);
    std::fs::read(&machine).or_else(|_| std::fs::read("/lib64/libm.so.6")).unwrap()
}

#[test]
fn libraries_of_a_zip_are_found_where_lambda_finds_them_and_behind_those_of_the_system() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    let source = "import ctypes, math, os\ndef handler(event, context):\n    found = [bool(ctypes.CDLL(name).cos) for name in ('libin_lib.so', 'libbeside.so')]\n    return [found, os.environ['LD_LIBRARY_PATH']]\n";
    let library = library();
    let files: [(&str, u32, &[u8]); 5] = [
        ("main.py", 0o100_644, source.as_bytes()),
        ("lib/libin_lib.so", 0o100_755, &library),
        ("libbeside.so", 0o100_755, &library),
        // Libraries that are none: whoever loads them does not start.
        ("lib/libm.so.6", 0o100_755, b"x"),
        ("libc.so.6", 0o100_755, b"x"),
    ];
    host.make("f", "python3.11", &files, &json!({}));
    let answer = host.answer("f", &json!({}));
    assert_eq!(answer[0], json!([true, true]));
    if host.functions.isolation().starts_with("namespaces") {
        let path = answer[1].as_str().unwrap();
        assert!(path.ends_with(":/var/runtime:/var/runtime/lib:/var/task:/var/task/lib"), "{path}");
    }
    let says = b"#!/bin/sh\necho \"looks in $LD_LIBRARY_PATH\"\nexit 7\n";
    host.make("provided", "provided.al2023", &[("bootstrap", 0o100_755, says)], &json!({}));
    host.call("provided", &json!({}));
    let log = host.log("provided");
    let path = log.lines().find_map(|line| line.strip_prefix("looks in ")).unwrap();
    let (system, task) = (path.find("/usr/lib").unwrap(), path.rfind("/lib").unwrap());
    assert!(path.starts_with("/usr/local/lib/") && system < task && !path.contains("::"), "{path}");
    let own = json!({ "Environment": { "Variables": { "LD_LIBRARY_PATH": "/of/my/own" } } });
    let source = b"import os\ndef handler(event, context):\n    return os.environ['LD_LIBRARY_PATH']\n";
    host.make("own", "python3.11", &[("main.py", 0o100_644, source)], &own);
    assert_eq!(host.answer("own", &json!({})), json!("/of/my/own"));
    host.close();
}

#[test]
fn a_destination_is_told_after_the_death_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("works", "def handler(event, context):\n    return 1\n");
    host.python("told", "def handler(event, context):\n    print('told of', event['requestPayload'])\n");
    let told = "arn:aws:lambda:us-east-1:000000000000:function:told";
    host.events("works", &json!({ "DestinationConfig": { "OnSuccess": { "Destination": told } } }));
    host.reserve("told", 0);
    host.send("works", &json!(7));
    wait("the destination's event waits", || host.functions.usage("told").0.queued == 1);
    host.close();
    let host = Host::open(directory.path(), 2);
    host.reserve("told", 1);
    host.wait_for_print("told", "told of 7", 1);
    host.close();
}

#[test]
fn what_was_accepted_outlives_the_host_and_what_had_ended_does_not_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("prints", "def handler(event, context):\n    print('ran', event['n'])\n");
    host.send("prints", &json!({ "n": 1 }));
    host.wait_for_print("prints", "ran 1", 1);
    wait("its end is recorded", || host.functions.totals().counts.busy == 0);
    host.reserve("prints", 0);
    host.send("prints", &json!({ "n": 2 }));
    host.close();
    let host = Host::open(directory.path(), 2);
    assert_eq!(host.functions.totals().counts.queued, 1);
    host.reserve("prints", 1);
    host.wait_for_print("prints", "ran 2", 1);
    let log = host.log("prints");
    assert!(!log.contains("ran 1"), "{log}");
    host.close();
}

#[test]
fn an_instance_is_warm_for_the_next_and_gone_for_other_code() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("counts", "n = 0\ndef handler(event, context):\n    global n\n    n += 1\n    return n\n");
    assert_eq!((host.answer("counts", &json!({})), host.answer("counts", &json!({}))), (json!(1), json!(2)));
    let zip = zip_of(&[("main.py", 0o100_644, b"def handler(event, context):\n    return 'other'\n")]);
    let changed = host.runtime.block_on(async {
        let code = host.functions.keep_code(zip).await.unwrap();
        let changed = host.functions.change(|catalog, context| {
            let function = catalog.function("counts", context.region)?.clone();
            let function = function.with_code(&Default::default(), code.code().clone(), context)?;
            Ok((Some(savanna_functions_host::catalog::Change::Put(Box::new(function))), ()))
        });
        changed.await
    });
    changed.unwrap();
    assert_eq!(host.answer("counts", &json!({})), json!("other"));
    host.close();
}

#[test]
fn a_warm_call_does_not_wait_for_its_own_segments() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("quick", "def handler(event, context):\n    return 1\n");
    host.answer("quick", &json!({}));
    let quickest = (0..50).map(|_| {
        let begun = Instant::now();
        host.answer("quick", &json!({}));
        begun.elapsed()
    });
    // Head and body in two segments would be 40 ms, each time.
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_millis(25), "{quickest:?}");
    host.close();
}

#[test]
fn a_payload_of_megabytes_comes_back_and_one_byte_too_much_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("long", "def handler(event, context):\n    return 'x' * event\n");
    let most = savanna_functions_host::ANSWER_MAX - 2;
    assert_eq!(host.answer("long", &json!(most)).as_str().unwrap().len(), most);
    let (succeeded, answer) = host.call("long", &json!(most + 1));
    assert!(!succeeded && answer["errorType"] == "Function.ResponseSizeTooLarge", "{answer}");
    host.close();
}

#[test]
fn an_address_that_no_keys_server_can_have_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let parts = Parts { keys_url: Some("redis://:secret@127.0.0.1:99999".to_owned()), ..Parts::default() };
    let refused = Host::try_open(directory.path(), 1, Isolation::None, 8, parts).err().unwrap().to_string();
    assert!(
        refused.contains("functions.keys_url: expected redis://HOST:PORT") && !refused.contains("secret"),
        "{refused}"
    );
}

#[test]
fn what_a_stream_is_to_be_told_waits_for_its_server_also_where_the_host_begins_anew() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let open = |epoch| {
        let parts = Parts { keys_url: Some(format!("redis://{nobody}")), ..Parts::default() };
        Host::try_open(directory.path(), epoch, Isolation::None, 8, parts).unwrap()
    };
    let waiting = |host: &Host| {
        let counts = host.functions.usage("stream:done").0;
        counts.queued + counts.busy
    };
    let host = open(1);
    host.python("f", "def handler(event, context):\n    return event\n");
    let place = "arn:savanna:keys:us-east-1:000000000000:stream:done";
    host.events("f", &json!({ "DestinationConfig": { "OnSuccess": { "Destination": place } } }));
    host.send("f", &json!(1));
    wait("the stream is to be told", || waiting(&host) == 1);
    // More often than a function is tried.
    wait("it is tried again and again", || host.functions.usage("stream:done").1.requests > 4);
    host.close();
    let host = open(2);
    wait("it is tried again", || host.functions.usage("stream:done").1.requests > 0);
    assert_eq!((waiting(&host), host.functions.usage("stream:done").1.dropped_events), (1, 0));
    host.close();
}
