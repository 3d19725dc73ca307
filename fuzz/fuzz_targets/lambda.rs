//! A client of functions that asks for anything, with a key (`k` first) or without. What it creates cannot run: there is no program that begins instances.

#![no_main]

use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use savanna_epoch::NodeEpoch;
use savanna_fuzz::talk;
use savanna_journal::Options;
use savanna_lambda::{Abilities, Bounds, Functions, HostOptions, Isolation, Key, Prices, serve_client};
use tokio::runtime::Runtime;

/// One host for all inputs.
fn functions() -> &'static Functions {
    static HOST: OnceLock<(Functions, Runtime, tempfile::TempDir)> = OnceLock::new();
    let (functions, ..) = HOST.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
        let options = HostOptions {
            log: Options::dir(directory.path().join("log")),
            epoch: NodeEpoch(1),
            lease: None,
            directory: directory.path().join("functions"),
            store: None,
            region: "us-east-1".into(),
            launcher: "/bin/false".into(),
            isolation: Isolation::None,
            abilities: Abilities::default(),
            bounds: Bounds { events: 1 << 20, code: 1 << 20, unpacked: 1 << 20 },
            ports: Vec::new(),
            concurrency: 4,
            idle: Duration::from_secs(1),
            retry_minute: Duration::from_millis(10),
            prices: Prices::default(),
        };
        let functions = Functions::open(options, runtime.handle()).expect("an empty directory");
        (functions, runtime, directory)
    });
    functions
}

fuzz_target!(|input: &[u8]| {
    let (key, bytes) = match input.split_first() {
        Some((b'k', bytes)) => (Some(Key { id: "k".into(), secret: "0123456789abcdef".into() }), bytes),
        _ => (None, input),
    };
    talk(bytes, |stream| serve_client(functions().clone(), key, stream));
});
