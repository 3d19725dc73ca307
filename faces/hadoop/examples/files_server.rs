//! A name node with its data node, alone: `files_server DIRECTORY [PORT [PORT OF BLOCKS [PORT OF HTTP [DATABASE [CACHE]]]]]`. `FILES_AUDIT` names the file of an audit log, `FILES_TRASH` says for how many minutes the trash is kept, `FILES_DEAD_AFTER` after how many seconds a data node is dead, `FILES_REPLICATION` how many replicas a file has whose client does not say.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use savanna_files_host::blocks::Silence;
use savanna_files_host::{DatabaseOptions, HostOptions, Limits, Place, who_runs_this};
use savanna_hadoop::{Server, ServerOptions};
use savanna_journal::{Options, newest_epoch};

// As the program that ships it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut words = std::env::args().skip(1);
    let directory = PathBuf::from(words.next().ok_or("expected a directory")?);
    let mut port =
        || -> Result<u16, Box<dyn std::error::Error>> { Ok(words.next().map_or(Ok(0), |word| word.parse())?) };
    let [address, transfer_address, http_address] =
        [port()?, port()?, port()?].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let inodes_max = |word: Option<String>| word.map_or(Ok(1_000_000), |word| word.parse());
    let database = match words.next() {
        Some(address) => {
            Some(DatabaseOptions { place: Place::Address(address), inodes_max: inodes_max(words.next())? })
        }
        None => None,
    };
    let log = directory.join("log");
    std::fs::create_dir_all(&log)?;
    let epoch = newest_epoch(&log)?.next();
    let superuser = who_runs_this();
    let trash = std::env::var("FILES_TRASH").ok();
    let dead = std::env::var("FILES_DEAD_AFTER").ok();
    let replication = std::env::var("FILES_REPLICATION").ok();
    let host = HostOptions {
        log: Options::dir(log),
        epoch,
        lease: None,
        directory,
        superuser,
        limits: Limits::default(),
        trash: trash.map_or(Ok(0), |minutes| minutes.parse())?,
        silence: Silence {
            dead: dead.map_or(Ok(Silence::default().dead), |seconds| seconds.parse().map(|it: u64| it * 1_000))?,
            ..Silence::default()
        },
        database,
    };
    let audit = std::env::var_os("FILES_AUDIT").map(PathBuf::from);
    let server = Server::start(ServerOptions {
        address,
        transfer_address,
        http_address,
        threads: std::thread::available_parallelism().map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX)),
        clients_max: 1_000,
        hosts: Vec::new(),
        audit,
        datanodes: vec![std::net::IpAddr::from([127, 0, 0, 1])],
        replication: replication.map_or(Ok(1), |count| count.parse())?,
        host,
    })?;
    println!("files: {} {} {}", server.address(), server.transfer_address(), server.http_address());
    Ok(server.wait()?)
}
