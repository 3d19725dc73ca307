//! A server of tenants alone, without the rest of Savanna.
//!
//! `cargo run -p savanna-pgwire-tenants --example tenants_server -- DATA_DIR [ADDRESS] [EPOCH] [CERTIFICATES KEY]
//! [idle=MILLISECONDS] [snapshot=MILLISECONDS] [log=BYTES]`, then
//! `psql -h 127.0.0.1 -p 5433 -U postgres`. It says on standard output where it listens.

use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use savanna_epoch::OwnerEpoch;
use savanna_pgwire_tenants::{Keeping, Server, ServerOptions, TlsFiles};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: tenants_server DATA_DIR [ADDRESS] [EPOCH] [CERTIFICATES KEY] [idle=MILLISECONDS] \
        [snapshot=MILLISECONDS] [log=BYTES]";
    let Some(data_dir) = arguments.next().map(PathBuf::from) else {
        eprintln!("{usage}");
        return ExitCode::from(2);
    };
    let listen: Result<SocketAddr, _> = arguments.next().unwrap_or_else(|| "127.0.0.1:5433".to_owned()).parse();
    let epoch: Result<u64, _> = arguments.next().unwrap_or_else(|| "1".to_owned()).parse();
    let (Ok(listen), Ok(epoch)) = (listen, epoch) else {
        eprintln!("{usage}");
        return ExitCode::from(2);
    };
    let mut keeping = Keeping::local(data_dir);
    let mut files = Vec::new();
    for argument in arguments {
        match argument.split_once('=').map(|(name, value)| (name, value.parse())) {
            Some(("idle", Ok(idle))) => keeping.idle = Duration::from_millis(idle),
            Some(("snapshot", Ok(age))) => keeping.snapshot_age = Duration::from_millis(age),
            Some(("log", Ok(bytes))) => keeping.log_distance = bytes,
            _ => files.push(PathBuf::from(argument)),
        }
    }
    let tls = match &files[..] {
        [] => None,
        [certificates, key] => Some(TlsFiles { certificates: certificates.clone(), key: key.clone() }),
        _ => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = ServerOptions { listen, keeping, epoch: OwnerEpoch(epoch), threads, lease: None, tls };
    let server = match Server::start(options) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("listening on {}", server.address());
    if let Err(error) = std::io::stdout().flush() {
        tracing::debug!(%error, "nobody reads where the server listens");
    }
    match server.wait() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
