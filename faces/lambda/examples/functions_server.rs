//! Lambda's API alone, for tests while the rest is not built: `functions_server DIRECTORY PORT [SETTING=VALUE ..]`, with settings of a node.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use savanna_journal::{Options, newest_epoch};
use savanna_lambda::{Abilities, Bounds, HostOptions, Isolation, Key, Prices, Server, ServerOptions, launcher};

fn main() -> ExitCode {
    if let Some(exit) = launcher::run_if_asked() {
        return exit;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, port, settings @ ..] = words.as_slice() else {
        eprintln!("functions_server DIRECTORY PORT [SETTING=VALUE ..]");
        return ExitCode::from(2);
    };
    let setting = |name: &str| {
        settings.iter().find_map(|setting| setting.strip_prefix("functions.")?.strip_prefix(name)?.strip_prefix('='))
    };
    let time = |text: &str| match text.strip_suffix("ms") {
        Some(number) => Duration::from_millis(number.parse().expect("a number of milliseconds")),
        None => Duration::from_secs(text.trim_end_matches('s').parse().expect("a number of seconds")),
    };
    let directory = std::path::absolute(Path::new(directory)).expect("a path");
    let log = directory.join("log");
    std::fs::create_dir_all(&log).expect("a directory that can be made");
    let epoch = newest_epoch(&log).expect("a log that can be read").next();
    let host = HostOptions {
        log: Options::dir(log),
        epoch,
        lease: None,
        directory: directory.join("functions"),
        store: None,
        region: "us-east-1".to_owned(),
        launcher: PathBuf::from("/proc/self/exe"),
        isolation: match setting("isolation") {
            Some("none") => Isolation::None,
            Some("required") => Isolation::Required,
            _ => Isolation::Preferred,
        },
        abilities: Abilities::default(),
        bounds: Bounds::default(),
        ports: setting("connect_ports").iter().map(|port| port.parse().expect("a port")).collect(),
        concurrency: setting("concurrency").map_or(100, |count| count.parse().expect("a number")),
        idle: Duration::from_secs(300),
        retry_minute: setting("retry_minute").map_or(Duration::from_secs(60), time),
        keys_url: setting("keys_url").map(str::to_owned),
        prices: Prices::default(),
    };
    let options = ServerOptions {
        address: (Ipv4Addr::LOCALHOST, port.parse().expect("a port")).into(),
        threads: 2,
        clients_max: 1_000,
        key: setting("secret_file").map(|path| Key::read(Path::new(path)).expect("a key")),
        host,
    };
    match Server::start(options).and_then(Server::wait) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
