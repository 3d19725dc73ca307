//! A client of WebHDFS that asks for anything: names, bytes that come and go, beans.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use savanna_epoch::NodeEpoch;
use savanna_fuzz::talk;
use savanna_hadoop::{Files, HostOptions, Limits, Silence, serve_client};
use savanna_journal::Options;

/// One host for all inputs.
fn files() -> &'static Files {
    static HOST: OnceLock<(Files, tempfile::TempDir)> = OnceLock::new();
    let (files, _) = HOST.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let options = HostOptions {
            log: Options::dir(directory.path().join("log")),
            epoch: NodeEpoch(1),
            lease: None,
            directory: directory.path().join("files"),
            superuser: "root".into(),
            limits: Limits::default(),
            trash: 60,
            silence: Silence::default(),
            database: None,
        };
        // Its upkeep ends with the process.
        let (files, _) = Files::open(options).expect("an empty directory");
        (files, directory)
    });
    files
}

fuzz_target!(|bytes: &[u8]| talk(bytes, |stream| serve_client(files().clone(), stream)));
