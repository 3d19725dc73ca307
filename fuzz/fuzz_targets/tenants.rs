//! A client of the tenants service that sends anything: at the door (`<`), behind it (`>`), or a statement. A panic of the server ends the run.

#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use savanna_epoch::NodeEpoch;
use savanna_pgwire_tenants::{Admission, Listener, Server, ServerOptions};
use savanna_tenants_host::{Host, HostOptions, Keeping};

const STARTUP: &[u8] = b"\0\0\0\x22\0\x03\0\0user\0u\0database\0postgres\0\0";

/// One server for all inputs.
fn address() -> SocketAddr {
    static SERVER: OnceLock<(Server, tempfile::TempDir)> = OnceLock::new();
    let (server, _) = SERVER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let keeping = Keeping::local(directory.path());
        let listener = Listener::bind(ServerOptions { listen, tls: None, admission: Admission::default() }).expect("a port");
        let host = Host::start(HostOptions::alone(keeping, NodeEpoch(1), 1, None).expect("an empty directory")).expect("an empty log");
        (listener.serve(host).expect("a thread"), directory)
    });
    server.address()
}

fn query(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len() + 5).expect("a short text");
    [b"Q".as_slice(), &length.to_be_bytes(), text, b"\0"].concat()
}

fuzz_target!(|input: &[u8]| {
    let bytes = match input.split_first() {
        Some((b'<', bytes)) => bytes.to_vec(),
        Some((b'>', bytes)) => [STARTUP, bytes].concat(),
        _ => [STARTUP, &query(b"SET statement_timeout = 200"), &query(input)].concat(),
    };
    let mut client = TcpStream::connect(address()).expect("the server listens");
    // The server may hang up before it has read everything.
    let _ = client.write_all(&bytes);
    let _ = client.shutdown(Shutdown::Write);
    let _ = client.read_to_end(&mut Vec::new());
});
