//! A server of tenants alone, without the rest of Savanna.
//!
//! `cargo run -p savanna-pgwire-tenants --example tenants_server -- DATA_DIR [ADDRESS] [EPOCH] [CERTIFICATES KEY]
//! [idle=MILLISECONDS] [snapshot=MILLISECONDS] [log=BYTES] [rows=BYTES] [delay=MILLISECONDS] [blocks=BYTES] [log_rate=BYTES]
//! [store_rate=REQUESTS] [tls=1] [clients=COUNT] [patience=MILLISECONDS]`, then `psql -h 127.0.0.1 -p 5433 -U postgres`. The rates are what the tenants of a thread share a second. It
//! says on standard output where it listens and, for each line on standard input, how often the log was flushed
//! and how many tenants are awake; at the line `stop` it stops. With `delay` the storage is in memory, and each request to it takes so long.

use std::{
    io::{BufRead, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use object_store::{
    memory::InMemory,
    throttle::{ThrottleConfig, ThrottledStore},
};

use savanna_epoch::NodeEpoch;
use savanna_pgwire_tenants::{Admission, Listener, Server, ServerError, ServerOptions, TlsFiles};
use savanna_tenants_host::{
    Host, HostOptions, Keeping, Tenants,
    budget::{
        Amounts,
        Resource::{Cpu, Log, Store},
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: tenants_server DATA_DIR [ADDRESS] [EPOCH] [CERTIFICATES KEY] [idle=MILLISECONDS] \
        [snapshot=MILLISECONDS] [log=BYTES] [rows=BYTES] [delay=MILLISECONDS] [blocks=BYTES] [log_rate=BYTES] [store_rate=REQUESTS] [tls=1] [clients=COUNT] \
        [patience=MILLISECONDS]";
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
    let high_water = data_dir.join("high-water");
    let mut keeping = Keeping::local(data_dir);
    let mut rates = keeping.per_second;
    let mut files = Vec::new();
    let Admission { mut requires_tls, mut clients_max, .. } = Admission::default();
    for argument in arguments {
        match argument.split_once('=').map(|(name, value)| (name, value.parse())) {
            Some(("idle", Ok(idle))) => keeping.idle = Duration::from_millis(idle),
            Some(("patience", Ok(patience))) => keeping.patience = Duration::from_millis(patience),
            Some(("snapshot", Ok(age))) => keeping.snapshot_age = Duration::from_millis(age),
            Some(("delay", Ok(delay))) => {
                let store = slow_store(Duration::from_millis(delay));
                keeping.store = Some((Arc::new(store), object_store::path::Path::default()));
            }
            Some(("tls", Ok(required))) => requires_tls = required == 1,
            Some(("clients", Ok(count))) => clients_max = count as usize,
            Some(("log", Ok(bytes))) => keeping.log_distance = bytes,
            Some(("rows", Ok(bytes))) => keeping.rows_bytes = bytes,
            Some(("blocks", Ok(bytes))) => keeping.blocks_bytes = bytes as usize,
            Some(("log_rate", Ok(bytes))) => rates = Amounts::new(rates[Cpu], bytes, rates[Store]),
            Some(("store_rate", Ok(requests))) => rates = Amounts::new(rates[Cpu], rates[Log], requests),
            _ => files.push(PathBuf::from(argument)),
        }
    }
    keeping.per_second = rates;
    let tls = match &files[..] {
        [] => None,
        [certificates, key] => Some(TlsFiles { certificates: certificates.clone(), key: key.clone() }),
        _ => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let admission = Admission { requires_tls, clients_max, ..Admission::default() };
    let options = ServerOptions { listen, tls, admission };
    let host = HostOptions::alone(keeping, NodeEpoch(epoch), threads, Some(&high_water));
    let (server, tenants) = match host.map_err(ServerError::from).and_then(|host| start(options, host)) {
        Ok(started) => started,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("listening on {}", server.address());
    let stopper = server.stopper();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "stop" {
                stopper.stop();
            }
            println!("flushes {} awake {}", tenants.log().flushes, tenants.awake());
        }
    });
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

fn start(options: ServerOptions, host: HostOptions) -> Result<(Server, Tenants), ServerError> {
    let listener = Listener::bind(options)?;
    let host = Host::start(host)?;
    let tenants = host.tenants();
    Ok((listener.serve(host)?, tenants))
}

/// A storage in memory, each request to which takes so long.
fn slow_store(delay: Duration) -> ThrottledStore<InMemory> {
    let config = ThrottleConfig {
        wait_delete_per_call: delay,
        wait_get_per_call: delay,
        wait_list_per_call: delay,
        wait_list_with_delimiter_per_call: delay,
        wait_put_per_call: delay,
        ..ThrottleConfig::default()
    };
    ThrottledStore::new(InMemory::new(), config)
}
