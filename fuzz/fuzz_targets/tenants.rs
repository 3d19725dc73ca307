//! A client of the tenants service that sends anything, at the door or behind it. A panic of the server ends the run.

#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use savanna_epoch::OwnerEpoch;
use savanna_pgwire_tenants::{Server, ServerOptions};

const STARTUP: &[u8] = b"\0\0\0\x22\0\x03\0\0user\0u\0database\0postgres\0\0";

/// One server for all inputs.
fn address() -> SocketAddr {
    static SERVER: OnceLock<(Server, tempfile::TempDir)> = OnceLock::new();
    let (server, _) = SERVER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let data_dir = directory.path().to_owned();
        let options = ServerOptions { listen, data_dir, epoch: OwnerEpoch(1), threads: 1, lease: None, tls: None };
        (Server::start(options).expect("an empty log"), directory)
    });
    server.address()
}

fuzz_target!(|input: (bool, &[u8])| {
    let (started, bytes) = input;
    let mut client = TcpStream::connect(address()).expect("the server listens");
    // The server may hang up before it has read everything.
    let _ = client.write_all(if started { STARTUP } else { &[] });
    let _ = client.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    let _ = client.read_to_end(&mut Vec::new());
});
