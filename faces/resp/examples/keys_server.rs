//! A server of its own, for tests and measurements: `keys_server [--address IP] [--port N] [--cluster-port N] [--threads N] [--dir DIR] [--SETTING VALUE ..]`.
//! Settings are those of `CONFIG`, and `tls-port` and its companions.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use savanna_epoch::NodeEpoch;
use savanna_journal::Options;
use savanna_keys::config::Config;
use savanna_keys_host::HostOptions;
use savanna_resp::{ClusterPort, Server, ServerOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let (mut ip, mut port, mut threads) = (IpAddr::from(Ipv4Addr::LOCALHOST), 6380, 1);
    let mut cluster_port = ClusterPort::None;
    let (mut log, mut config) = (None, Config { may_be_shut_down: true, ..Config::default() });
    let mut words = std::env::args().skip(1);
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("expected a value behind {option}"))?;
        match option.as_str() {
            "--address" => ip = value.parse()?,
            "--port" => port = value.parse()?,
            "--cluster-port" => cluster_port = ClusterPort::At(value.parse()?),
            "--threads" => threads = value.parse()?,
            "--dir" => {
                config.dump_directory = Some(value.clone().into());
                log = Some((Options::dir(value), NodeEpoch(1)));
            }
            other => config.set_at_start(other.trim_start_matches('-').as_bytes(), value.as_bytes())?,
        }
    }
    let address = SocketAddr::new(ip, port);
    let seed = u64::from(std::process::id());
    let server = Server::start(ServerOptions {
        address,
        cluster_port,
        host: HostOptions { threads, config, log, lease: None, seed, elsewhere: None, spread: None },
    })?;
    let stopper = server.stopper();
    server.when_asked_to_end(move || stopper.stop());
    println!("listening on {}", server.address());
    if let Some(address) = server.cluster_address() {
        println!("clients of clusters on {address}");
    }
    Ok(server.wait()?)
}
