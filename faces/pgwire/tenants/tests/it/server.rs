//! A server from its start to its end.

use std::{
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
};

use savanna_epoch::NodeEpoch;
use savanna_pgwire_tenants::{Admission, Listener, Server, ServerError, ServerOptions, TlsError, TlsFiles};
use savanna_tenants_host::{Host, HostOptions, Keeping};

/// Any port of this machine, for clients of this machine.
pub(crate) fn options() -> ServerOptions {
    ServerOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), tls: None, admission: Admission::default() }
}

/// A server on so many threads.
pub(crate) fn start(options: ServerOptions, keeping: Keeping, threads: usize) -> Result<Server, ServerError> {
    let listener = Listener::bind(options)?;
    listener.serve(Host::start(HostOptions::alone(keeping, NodeEpoch(1), threads, None)?)?)
}

fn local(directory: &Path) -> Keeping {
    Keeping::local(directory.join("data"))
}

#[test]
fn a_server_that_is_stopped_closes_its_connections_and_gives_the_log_up() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let server = start(options(), local(directory.path()), 2).unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        server.stopper().stop();
        server.wait().unwrap();
        let mut heard = Vec::new();
        // A connection that is reset is closed, too.
        let _ = client.read_to_end(&mut heard);
        assert!(heard.is_empty());
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let started = start(ServerOptions { listen, ..options() }, local(directory.path()), 2);
    assert!(matches!(started, Err(ServerError::Listen { address, .. }) if address == listen));
}

#[test]
fn certificates_that_are_not_there_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificates: directory.path().join("none.pem"), key: directory.path().join("none.key") };
    let started = start(ServerOptions { tls: Some(files), ..options() }, local(directory.path()), 2);
    assert!(matches!(started, Err(ServerError::Tls(TlsError::File { path, .. })) if path.ends_with("none.pem")));
}
