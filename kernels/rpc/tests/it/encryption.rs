//! Encrypted connections: who is let in, who is refused with which word, and that nobody between two nodes reads what they say.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use savanna_epoch::NodeId;
use savanna_rpc::{
    Addresses, Cluster, Frame, Hello, Message, MutualTls, Request, RequestContext, RequestHead, RequestId, RpcError,
    Service, TcpConfig, TcpServer, TcpTransport, Transport, frame::encode,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use crate::{certificates, raw::Raw};

const LONG: Duration = Duration::from_secs(20);
const WORD: &[u8] = b"a word that nobody else may read";

/// Answers what it was asked, and counts.
#[derive(Default)]
struct Echo {
    asked: AtomicUsize,
}

#[async_trait]
impl Service for Echo {
    async fn handle(&self, _: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(body)
    }
}

fn b() -> NodeId {
    NodeId::new("b")
}

fn within(tls: Option<&MutualTls>) -> Cluster {
    Cluster::default().encrypted_by(tls)
}

fn config() -> TcpConfig {
    TcpConfig { connect_timeout: LONG, ..TcpConfig::default() }
}

async fn serve(cluster: Cluster) -> (TcpServer, Arc<Echo>) {
    let echo = Arc::new(Echo::default());
    let server = TcpServer::within(cluster, "127.0.0.1:0", b(), Arc::clone(&echo) as _, config()).await;
    (server.expect("a free port"), echo)
}

fn request(body: impl Into<Bytes>) -> Request {
    let head = RequestHead { method: "echo".into(), shard: None, idempotent: false };
    Request { head, body: body.into(), timeout: LONG }
}

async fn ask(cluster: Cluster, address: SocketAddr, body: impl Into<Bytes>) -> Result<Bytes, RpcError> {
    let addresses = Arc::new(Addresses::default());
    addresses.set(b(), address.to_string());
    TcpTransport::within(cluster, NodeId::new("a"), addresses, config()).call(&b(), request(body)).await
}

async fn refused(cluster: Cluster, address: SocketAddr) -> String {
    ask(cluster, address, WORD).await.expect_err("refused").to_string()
}

/// A hello and a request that does not wait for the answer.
fn hello_and_request() -> BytesMut {
    let Request { head, body, timeout } = request(WORD);
    let request = Frame { request: RequestId(1), message: Message::Request { head, time_left: timeout, body } };
    let mut bytes = BytesMut::new();
    for frame in [Frame::hello(Hello::new(NodeId::new("raw"), b())), request] {
        encode(&frame, 64 * 1024, &mut bytes).expect("fits");
    }
    bytes
}

/// Reads until the other side closes.
async fn closed(mut stream: Raw) {
    let mut sink = vec![0; 4096];
    // A reset, or a word about certificates, is as good as an orderly end.
    while matches!(stream.read(&mut sink).await, Ok(read) if read > 0) {}
}

#[tokio::test]
async fn nodes_with_and_without_encryption_refuse_each_other_and_both_say_why() {
    let tls = certificates::node();
    let (server, echo) = serve(within(Some(&tls))).await;
    let error = refused(within(None), server.local_address()).await;
    assert!(error.contains("expected an encrypted connection (TLS 1.3), came one that is not"), "{error}");
    assert!(error.contains("give all nodes of the cluster certificates (cluster.tls_cert"), "{error}");
    assert_eq!(echo.asked.load(Ordering::SeqCst), 0);
    assert_eq!(ask(within(Some(&tls)), server.local_address(), WORD).await, Ok(WORD.into()));

    let (server, echo) = serve(within(None)).await;
    let error = refused(within(Some(&tls)), server.local_address()).await;
    assert!(error.contains("one side may encrypt and the other not: give all nodes"), "{error}");
    assert_eq!(echo.asked.load(Ordering::SeqCst), 0);
    assert_eq!(ask(within(None), server.local_address(), WORD).await, Ok(WORD.into()));
}

#[tokio::test]
async fn a_server_that_answers_something_else_is_told_from_one_that_encrypts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let answering = async {
        let (mut stream, _) = listener.accept().await.expect("the client comes");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("taken");
        stream.read_to_end(&mut Vec::new()).await
    };
    let (error, _) = tokio::join!(refused(within(Some(&certificates::node())), address), answering);
    assert!(error.contains("expected an encrypted connection (TLS 1.3), came something else"), "{error}");
}

#[tokio::test]
async fn nodes_of_another_authority_are_refused_by_both_sides() {
    let (ours, foreign) = (certificates::node(), certificates::foreign_node());
    for (server, client) in [(&ours, &foreign), (&foreign, &ours)] {
        let (server, echo) = serve(within(Some(server))).await;
        let error = refused(within(Some(client)), server.local_address()).await;
        assert!(error.contains("an authority in cluster.tls_ca of this node has signed, came another one"), "{error}");
        assert_eq!(echo.asked.load(Ordering::SeqCst), 0);
    }
    // It knows the authority of the server, and not the other way round: the server's word comes behind the handshake.
    let [certificate, key] = certificates::FOREIGN_NODE;
    let both = [certificates::AUTHORITY, certificates::FOREIGN].concat();
    let known_to_one = MutualTls::of_pem(certificate, key, &both).expect("they fit");
    let (server, echo) = serve(within(Some(&ours))).await;
    let error = refused(within(Some(&known_to_one)), server.local_address()).await;
    assert!(error.contains("the other side has ended the encrypted connection"), "{error}");
    assert!(error.contains("an authority in cluster.tls_ca of that node has signed"), "{error}");
    assert_eq!(echo.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn only_the_certificate_of_a_node_opens_a_server() {
    let (server, echo) = serve(within(Some(&certificates::node()))).await;
    let shown = [None, Some(certificates::OTHER), Some(certificates::FOREIGN_NODE), Some(certificates::NODE)];
    for (case, shown) in shown.into_iter().enumerate() {
        let stream = TcpStream::connect(server.local_address()).await.expect("it listens");
        // The client's side of the handshake is over before the server has looked at its certificate.
        if let Ok(mut stream) = Raw::encrypted(stream, shown, &TLS13).await {
            let _maybe_closed = stream.write_all(&hello_and_request()).await;
            if case == 3 {
                while echo.asked.load(Ordering::SeqCst) == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            } else {
                closed(stream).await;
            }
        }
        assert_eq!(echo.asked.load(Ordering::SeqCst), usize::from(case == 3), "case {case}");
    }
}

#[tokio::test]
async fn no_older_tls_is_spoken() {
    let (server, _) = serve(within(Some(&certificates::node()))).await;
    let stream = TcpStream::connect(server.local_address()).await.expect("it listens");
    let refused = Raw::encrypted(stream, Some(certificates::NODE), &TLS12).await.err().expect("refused");
    assert!(refused.to_string().contains("ProtocolVersion"), "{refused}");
}

/// Listens as somebody who shows a certificate to the first who comes.
async fn listen_with([certificate, key]: [&[u8]; 2]) -> (SocketAddr, tokio::task::JoinHandle<io::Result<()>>) {
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("known").with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate], key).expect("they fit");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let accepting = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        TlsAcceptor::from(Arc::new(config)).accept(stream).await.map(drop)
    });
    (address, accepting)
}

#[tokio::test]
async fn a_client_says_nothing_to_who_shows_no_certificate_of_a_node() {
    for shown in [certificates::OTHER, certificates::FOREIGN_NODE] {
        let (address, accepting) = listen_with(shown).await;
        let error = refused(within(Some(&certificates::node())), address).await;
        assert!(error.contains("expected a certificate for savanna-node that is valid"), "{error}");
        assert!(accepting.await.expect("no panic").is_err(), "the client ends the handshake");
    }
}

#[tokio::test]
async fn the_greeting_goes_on_inside() {
    let tls = certificates::node();
    let cluster = |secret: &[u8]| Cluster::new("c", secret).expect("long enough").encrypted_by(Some(&tls));
    let (server, echo) = serve(cluster(b"0123456789abcdef")).await;
    let error = refused(cluster(b"0123456789abcdeF"), server.local_address()).await;
    assert!(error.contains("does not know this cluster's secret"), "{error}");
    assert_eq!(echo.asked.load(Ordering::SeqCst), 0);
    assert_eq!(ask(cluster(b"0123456789abcdef"), server.local_address(), WORD).await, Ok(WORD.into()));
}

/// Passes bytes to a server and back, and keeps them.
async fn listen_in(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&heard);
    tokio::spawn(async move {
        let (inside, _) = listener.accept().await.expect("the client comes");
        let outside = TcpStream::connect(server).await.expect("it listens");
        let (inside, outside) = (inside.into_split(), outside.into_split());
        let pass = async |mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf| {
            let mut bytes = vec![0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes).await {
                keep.lock().extend_from_slice(&bytes[..read]);
                if to.write_all(&bytes[..read]).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(pass(inside.0, outside.1), pass(outside.0, inside.1));
    });
    (address, heard)
}

#[tokio::test]
async fn nobody_between_two_nodes_reads_what_they_say() {
    for tls in [None, Some(certificates::node())] {
        let (server, _) = serve(within(tls.as_ref())).await;
        let (address, heard) = listen_in(server.local_address()).await;
        assert_eq!(ask(within(tls.as_ref()), address, WORD).await, Ok(WORD.into()));
        let is_heard = heard.lock().windows(WORD.len()).any(|part| part == WORD);
        assert_eq!(is_heard, tls.is_none());
    }
}

#[tokio::test]
async fn what_is_large_comes_through_in_whole() {
    let tls = certificates::node();
    let (server, _) = serve(within(Some(&tls))).await;
    let body: Bytes = (0..12_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
    assert!(ask(within(Some(&tls)), server.local_address(), body.clone()).await == Ok(body));
}

#[tokio::test]
async fn a_handshake_is_bounded_in_time_and_in_bytes() {
    let tls = certificates::node();
    let echo: Arc<dyn Service> = Arc::new(Echo::default());
    let bind = |connect_timeout, ungreeted_max| {
        let config = TcpConfig { connect_timeout, ungreeted_max, ..config() };
        TcpServer::within(within(Some(&tls)), "127.0.0.1:0", b(), Arc::clone(&echo), config)
    };
    // The header of a record, and nothing behind it; nothing at all.
    let hasty = bind(Duration::from_millis(100), 128).await.expect("a free port");
    for begun in [&[0x16, 3, 1, 1, 0][..], &[]] {
        let mut stream = Raw::plain(TcpStream::connect(hasty.local_address()).await.expect("it listens"));
        stream.write_all(begun).await.expect("taken");
        tokio::time::timeout(LONG, closed(stream)).await.expect("closed after its time");
    }
    // A message of 16 MiB, the first part of it in records of 16 KiB.
    let patient = bind(LONG * 1000, 1).await.expect("a free port");
    let mut stream = Raw::plain(TcpStream::connect(patient.local_address()).await.expect("it listens"));
    let record = [&[0x16, 3, 1, 0x40, 0][..], &[1, 0xff, 0xff, 0xff], &[0; 0x4000 - 4]].concat();
    for _ in 0..64 {
        if stream.write_all(&record).await.is_err() {
            break;
        }
    }
    tokio::time::timeout(LONG, closed(stream)).await.expect("closed at once");
    assert_eq!(ask(within(Some(&tls)), patient.local_address(), WORD).await, Ok(WORD.into()));
}

#[tokio::test]
async fn a_server_with_certificates_may_listen_beyond_the_loopback() {
    let echo: Arc<dyn Service> = Arc::new(Echo::default());
    let bound = TcpServer::within(within(Some(&certificates::node())), "0.0.0.0:0", b(), echo, config()).await;
    assert!(bound.is_ok());
}
