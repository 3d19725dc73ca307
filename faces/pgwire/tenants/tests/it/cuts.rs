//! A client may go away at every byte of every handshake; nothing is left of it.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, Stream,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use savanna_pgwire_tenants::{ServerOptions, TlsFiles};
use savanna_tenants_host::Keeping;

use crate::server;

/// A server that has not let go of a connection by then keeps it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate that is used for nothing but tests.
fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../../kernels/identity/fixtures", name].iter().collect()
}

fn trusting() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// A socket that sends so many bytes, and then nothing more.
struct Cut {
    tcp: TcpStream,
    left: usize,
}

impl Cut {
    fn connect(address: SocketAddr, left: usize) -> Self {
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut cut = Self { tcp, left };
        cut.end_if_used_up();
        cut
    }

    fn end_if_used_up(&mut self) {
        if self.left == 0 {
            // The server may have hung up already.
            drop(self.tcp.shutdown(Shutdown::Write));
        }
    }
}

impl Read for Cut {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.tcp.read(into)
    }
}

impl Write for Cut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = self.tcp.write(&bytes[..bytes.len().min(self.left)])?;
        self.left -= count;
        self.end_if_used_up();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(socket: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 5];
    socket.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
    socket.read_exact(&mut body)?;
    Ok(body)
}

fn say(socket: &mut impl Write, head: &[u8], body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    socket.write_all(&[head, &length, body].concat())
}

/// Up to a proof that proves nothing.
fn log_in(socket: &mut (impl Read + Write)) -> io::Result<()> {
    say(socket, b"", b"\0\x03\0\0user\0ann\0database\0postgres\0\0")?;
    answer(socket)?;
    let first = b"n,,n=,r=abc";
    say(socket, b"p", &[&b"SCRAM-SHA-256\0"[..], &(first.len() as u32).to_be_bytes(), first].concat())?;
    let challenge = String::from_utf8(answer(socket)?[4..].to_vec()).unwrap();
    let nonce = challenge.split(',').next().unwrap();
    say(socket, b"p", format!("c=biws,{nonce},p={}=", "A".repeat(43)).as_bytes())?;
    answer(socket)?;
    Ok(())
}

/// Whether it came to the end. Whatever came of it, the server lets go of the connection.
fn come_in(address: SocketAddr, left: usize, tls: Option<&Arc<ClientConfig>>) -> bool {
    let mut cut = Cut::connect(address, left);
    let outcome = match tls {
        None => log_in(&mut cut),
        Some(configuration) => say(&mut cut, b"", &80_877_103_u32.to_be_bytes()).and_then(|()| {
            cut.read_exact(&mut [0])?;
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = ClientConnection::new(Arc::clone(configuration), name).unwrap();
            log_in(&mut Stream::new(&mut tls, &mut cut))
        }),
    };
    match cut.tcp.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server keeps a connection that ended after {left} bytes: {error}"),
    }
    outcome.is_ok()
}

#[test]
fn a_connection_that_ends_anywhere_in_a_handshake_is_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificates: fixture("cert.pem"), key: fixture("key.pem") };
    let options = ServerOptions { tls: Some(files), ..server::options() };
    let server = server::start(options, Keeping::local(directory.path()), 1).unwrap();
    let mut administrator = TcpStream::connect(server.address()).unwrap();
    say(&mut administrator, b"", b"\0\x03\0\0user\0postgres\0database\0postgres\0\0").unwrap();
    say(&mut administrator, b"Q", b"CREATE USER ann PASSWORD 'secret'\0").unwrap();
    say(&mut administrator, b"X", b"").unwrap();
    administrator.read_to_end(&mut Vec::new()).unwrap();

    let encrypted = trusting();
    for tls in [None, Some(&encrypted)] {
        let whole = (0..10_000).find(|left| come_in(server.address(), *left, tls));
        assert!(whole.is_some_and(|bytes| bytes > 100), "{whole:?}");
    }
}
