//! A server from its start to its end.

use std::{
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
};

use savanna_epoch::OwnerEpoch;
use savanna_pgwire_tenants::{Admission, Keeping, Server, ServerError, ServerOptions, TlsError, TlsFiles};

pub(crate) fn options(directory: &Path) -> ServerOptions {
    ServerOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        keeping: Keeping::local(directory.join("data")),
        epoch: OwnerEpoch(1),
        threads: 2,
        lease: None,
        tls: None,
        admission: Admission::default(),
    }
}

#[test]
fn a_server_that_is_stopped_closes_its_connections_and_gives_the_log_up() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let server = Server::start(options(directory.path())).unwrap();
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
    let started = Server::start(ServerOptions { listen, ..options(directory.path()) });
    assert!(matches!(started, Err(ServerError::Listen { address, .. }) if address == listen));
}

#[test]
fn certificates_that_are_not_there_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificates: directory.path().join("none.pem"), key: directory.path().join("none.key") };
    let started = Server::start(ServerOptions { tls: Some(files), ..options(directory.path()) });
    assert!(matches!(started, Err(ServerError::Tls(TlsError::File { path, .. })) if path.ends_with("none.pem")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_nobody_waits_for_is_made_or_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let server = tokio::task::block_in_place(|| Server::start(options(directory.path())).unwrap());
    let tenants = server.tenants();
    tenants.create("shop").await.unwrap();
    {
        let removal = tenants.remove("shop");
        tokio::pin!(removal);
        tokio::select! {
            biased;
            _ = &mut removal => {}
            () = std::future::ready(()) => {}
        }
    }
    match tenants.remove("shop").await {
        Ok(()) => {}
        Err(error) => assert_eq!(error.state, "3D000"),
    }
    tenants.create("shop").await.unwrap();
    server.stopper().stop();
    tokio::task::block_in_place(|| server.wait().unwrap());
}
