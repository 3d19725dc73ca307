//! What a host keeps at most, and what it tells before it is durable: nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use savanna_functions_host::catalog::Change;
use savanna_functions_host::{Bounds, Isolation, Refusal, RefusalKind};
use serde_json::json;

use crate::support::{Host, Parts, invoking, wait};
use crate::zips::zip_of;

const ECHO: &str = "def handler(event, context):\n    print('ran', event)\n    return event\n";

fn bounded(directory: &Path, epoch: u64, bounds: Bounds) -> Host {
    Host::try_open(directory, epoch, Isolation::Preferred, 8, Parts { bounds, ..Parts::default() }).unwrap()
}

fn update(host: &Host, name: &str, source: &str) -> Result<(), Refusal> {
    let zip = zip_of(&[("main.py", 0o100_644, source.as_bytes())]);
    host.runtime.block_on(async {
        let code = host.functions.keep_code(zip).await?;
        let changed = host.functions.change(|catalog, context| {
            let function = catalog.function(name, context.region)?.clone();
            let function = function.with_code(&Default::default(), code.code().clone(), context)?;
            Ok((Some(Change::Put(Box::new(function))), ()))
        });
        changed.await
    })
}

fn remove(host: &Host, name: &str) {
    let removed = host.functions.change(|_, _| Ok((Some(Change::Remove(name.to_owned())), ())));
    host.runtime.block_on(removed).unwrap();
}

/// How many there are in a folder of the host's.
fn count(directory: &Path, folder: &str) -> usize {
    std::fs::read_dir(directory.join("functions").join(folder)).unwrap().count()
}

#[test]
fn what_is_refused_is_told_when_that_for_which_it_is_refused_is_durable() {
    const LINGER: Duration = Duration::from_secs(1);
    let directory = tempfile::tempdir().unwrap();
    let parts = Parts { linger: LINGER, ..Parts::default() };
    let host = Host::try_open(directory.path(), 1, Isolation::Preferred, 8, parts).unwrap();
    let begins = |change: fn(&Host)| {
        std::thread::scope(|scope| {
            let begun = Instant::now();
            scope.spawn(|| change(&host));
            std::thread::sleep(LINGER / 4);
            let refusals = [
                host.try_make("f", "python3.11", zip_of(&[("main.py", 0o100_644, ECHO.as_bytes())]), &json!({})).err(),
                host.runtime.block_on(host.functions.send(invoking("f", &json!(1)))).err(),
                host.runtime.block_on(host.functions.try_invoke(&invoking("f", &json!(1)))).err(),
                host.try_call("f", &json!(1)).err(),
                host.runtime.block_on(host.functions.log("f")).err(),
            ];
            // Who was refused first was told when the change was durable; no refusal adds to the log.
            assert!(begun.elapsed() >= LINGER, "{:?}", begun.elapsed());
            refusals.map(|refusal| refusal.map(|refusal| refusal.kind.status()))
        })
    };
    let refused = begins(|host| host.python("f", ECHO));
    assert_eq!(refused, [Some(409), None, None, None, None]);
    remove(&host, "f");
    host.python("f", ECHO);
    let mut begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| remove(&host, "f"));
        std::thread::sleep(LINGER / 4);
        for _ in 0..3 {
            let refused = host.runtime.block_on(host.functions.send(invoking("f", &json!(1)))).unwrap_err();
            assert_eq!(refused.kind, RefusalKind::ResourceNotFound);
            assert!(begun.elapsed() >= LINGER / 2, "told before it was durable: {:?}", begun.elapsed());
            begun -= LINGER;
        }
    });
    host.close();
}

#[test]
fn events_that_wait_have_so_many_bytes_at_most_and_those_that_end_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = Bounds { events: 50_000, ..Bounds::default() };
    let host = bounded(directory.path(), 1, bounds);
    host.python("f", ECHO);
    host.reserve("f", 0);
    let long = json!("x".repeat(20_000));
    let send = |host: &Host| host.runtime.block_on(host.functions.send(invoking("f", &long)));
    assert!(send(&host).is_ok() && send(&host).is_ok());
    let refused = send(&host).unwrap_err();
    assert_eq!((refused.kind.status(), refused.kind.reason()), (429, Some("CallerRateLimitExceeded")));
    host.close();
    let host = bounded(directory.path(), 2, bounds);
    assert_eq!(send(&host).unwrap_err().kind, RefusalKind::Busy, "what waits counts after a start, too");
    host.reserve("f", 1);
    host.wait_for_print("f", "ran xx", 2);
    wait("nothing waits", || send(&host).is_ok());
    host.close();
}

#[test]
fn code_that_no_function_has_any_more_goes_while_the_host_runs() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("f", ECHO);
    host.python("same", ECHO);
    for number in 0..5 {
        update(&host, "f", &format!("def handler(event, context):\n    return {number}\n")).unwrap();
    }
    assert_eq!(host.answer("f", &json!(0)), json!(4));
    wait("what was replaced is removed", || {
        (count(directory.path(), "code"), count(directory.path(), "tasks")) == (2, 2)
    });
    assert_eq!(host.answer("same", &json!(7)), json!(7));
    // Code of somebody who is refused then, or who goes.
    let kept = host.runtime.block_on(host.functions.keep_code(zip_of(&[("x", 0o100_644, b"x")]))).unwrap();
    assert_eq!(count(directory.path(), "code"), 3);
    drop(kept);
    wait("what nobody took is removed", || {
        (count(directory.path(), "code"), count(directory.path(), "tasks")) == (2, 2)
    });
    remove(&host, "f");
    remove(&host, "same");
    wait("nothing is left", || (count(directory.path(), "code"), count(directory.path(), "tasks")) == (0, 0));
    host.close();
}

#[test]
fn code_that_a_function_has_is_found_by_its_hash_and_stays_for_whoever_has_found_it() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("f", ECHO);
    let zip = zip_of(&[("main.py", 0o100_644, ECHO.as_bytes())]);
    let sha256 = host.runtime.block_on(host.functions.keep_code(zip)).unwrap().code().sha256.clone();
    let find = || host.runtime.block_on(host.functions.known_code(&sha256));
    let found = find().unwrap();
    remove(&host, "f");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(count(directory.path(), "code"), 1, "who has found it may make a function of it");
    drop(found);
    wait("nobody wants it any more", || count(directory.path(), "code") == 0);
    let refused = find().unwrap_err();
    assert_eq!((refused.kind, refused.kind.status()), (RefusalKind::InvalidParameterValue, 400));
    host.python("f", ECHO);
    let path = directory.path().join("functions/code").join(format!("{sha256}.zip"));
    std::fs::write(&path, b"damaged").unwrap();
    assert!(find().is_err(), "it is sent again, and thus mended");
    host.close();
}

#[test]
fn code_that_was_damaged_on_the_disk_is_there_again_when_it_is_uploaded_again() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    host.python("f", ECHO);
    let zips =
        || std::fs::read_dir(directory.path().join("functions/code")).unwrap().map(|entry| entry.unwrap().path());
    let path = zips().next().unwrap();
    let zip = std::fs::read(&path).unwrap();
    std::fs::write(&path, &zip[1..]).unwrap();
    update(&host, "f", ECHO).unwrap();
    assert_eq!((std::fs::read(&path).unwrap() == zip, zips().count()), (true, 1));
    host.close();
}

#[test]
fn code_that_runs_stays_until_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    let late = "import time\ndef handler(event, context):\n    print('begun')\n    time.sleep(2)\n    import late\n    return late.WORD\n";
    let files: [(&str, u32, &[u8]); 2] =
        [("main.py", 0o100_644, late.as_bytes()), ("late.py", 0o100_644, b"WORD = 'w'")];
    host.make("f", "python3.11", &files, &json!({}));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| host.answer("f", &json!({})));
        host.wait_for_print("f", "begun", 1);
        update(&host, "f", ECHO).unwrap();
        assert_eq!(call.join().unwrap(), json!("w"));
    });
    wait("it is removed afterwards", || count(directory.path(), "code") == 1 && count(directory.path(), "tasks") == 1);
    host.close();
}

#[test]
fn there_is_so_much_code_at_most_and_so_much_of_it_unpacked() {
    let directory = tempfile::tempdir().unwrap();
    let host = bounded(directory.path(), 1, Bounds { code: 5_000, unpacked: 1_500, ..Bounds::default() });
    let source = |number: usize| format!("def handler(event, context):\n    return {number}\n#{}\n", "x".repeat(1_000));
    for number in 0..4 {
        host.python(&format!("f{number}"), &source(number));
    }
    assert_eq!((count(directory.path(), "code"), count(directory.path(), "tasks")), (4, 1));
    let zip = zip_of(&[("main.py", 0o100_644, source(4).as_bytes())]);
    let refused = host.try_make("f4", "python3.11", zip, &json!({})).unwrap_err();
    assert_eq!(refused.kind.code(), "CodeStorageExceededException");
    for number in 0..4 {
        assert_eq!(host.answer(&format!("f{number}"), &json!({})), json!(number), "it is unpacked again");
    }
    assert_eq!(count(directory.path(), "tasks"), 4, "what runs is not removed");
    host.close();
}
