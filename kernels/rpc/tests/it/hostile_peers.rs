//! Peers that do not keep to the protocol, or stop keeping to it, over connections that are encrypted and that are not: the node stays up and its bounds hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeId;
use savanna_rpc::{
    Addresses, Cluster, Delivery, Frame, Hello, Message, Request, RequestContext, RequestHead, RequestId, RpcError,
    Service, SessionLimits, TcpConfig, TcpServer, TcpTransport, Transport,
    frame::{decode, encode},
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::raw::{Over, Raw};

const LIMIT: usize = 64 * 1024;
const LONG: Duration = Duration::from_secs(20);

fn config() -> TcpConfig {
    let session = SessionLimits {
        ping_after: Duration::from_millis(100),
        dead_after: Duration::from_millis(300),
        ..SessionLimits::default()
    };
    TcpConfig {
        session,
        frame_bytes_max: LIMIT,
        output_bytes_max: 4 * LIMIT,
        write_stall_max: Duration::from_millis(300),
        connect_timeout: Duration::from_secs(2),
        ..TcpConfig::default()
    }
}

/// Answers with as many bytes as the request says; counts.
#[derive(Default)]
struct Pump {
    started: AtomicUsize,
}

#[async_trait]
impl Service for Pump {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        self.started.fetch_add(1, Ordering::SeqCst);
        if context.head.method == "hang" {
            tokio::time::sleep(LONG * 10).await;
        }
        let bytes = body.first_chunk().map_or(0, |size| u32::from_le_bytes(*size));
        Ok(Bytes::from(vec![7; bytes as usize]))
    }
}

fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

async fn server(over: Over, config: TcpConfig) -> (TcpServer, Arc<Pump>) {
    let pump = Arc::new(Pump::default());
    let bound = TcpServer::within(over.cluster(), "127.0.0.1:0", node("b"), Arc::clone(&pump) as _, config).await;
    (bound.expect("a free port"), pump)
}

fn client(over: Over, address: std::net::SocketAddr, config: TcpConfig) -> TcpTransport {
    let addresses = Arc::new(Addresses::default());
    addresses.set(node("b"), address.to_string());
    TcpTransport::within(over.cluster(), node("a"), addresses, config)
}

fn ask(method: &str, bytes: u32) -> Request {
    let head = RequestHead { method: method.into(), shard: None, idempotent: false };
    Request { head, body: Bytes::copy_from_slice(&bytes.to_le_bytes()), timeout: LONG }
}

fn request_frame(id: u64, bytes: u32) -> Frame {
    let Request { head, body, timeout } = ask("pump", bytes);
    Frame { request: RequestId(id), message: Message::Request { head, time_left: timeout, body } }
}

fn bytes_of(frames: &[Frame]) -> BytesMut {
    let mut out = BytesMut::new();
    for frame in frames {
        encode(frame, LIMIT, &mut out).expect("fits");
    }
    out
}

/// A connection after the hello.
async fn greeted(over: Over, server: &TcpServer) -> Raw {
    let mut stream = over.connect(server.local_address()).await;
    stream.write_all(&bytes_of(&[Frame::hello(Hello::new(node("raw"), node("b")))])).await.expect("taken");
    let mut input = BytesMut::new();
    while decode(&mut input, LIMIT).expect("a hello").is_none() {
        assert_ne!(stream.read_buf(&mut input).await.expect("a hello"), 0);
    }
    stream
}

/// Reads until the other side closes.
async fn closed(mut stream: Raw) {
    let mut sink = vec![0; 4096];
    // A reset is as good as an orderly end.
    while matches!(stream.read(&mut sink).await, Ok(read) if read > 0) {}
}

async fn assert_serves(over: Over, server: &TcpServer) {
    let reply = client(over, server.local_address(), config()).call(&node("b"), ask("pump", 3)).await;
    assert_eq!(reply, Ok(Bytes::from_static(&[7; 3])));
}

async fn what_goes_on_is_counted_on_both_sides(over: Over) {
    let (server, _pump) = server(over, config()).await;
    let counted = server.traffic();
    let client = client(over, server.local_address(), config());
    assert_eq!(client.call(&node("b"), ask("pump", 3)).await, Ok(Bytes::from_static(&[7; 3])));
    let (sent, taken) = (client.traffic(), counted());
    assert_eq!((sent.calls, sent.failures, sent.refused, sent.connections), (1, 0, 0, 1));
    assert_eq!((taken.calls, taken.refused, taken.connections), (1, 0, 1));
    assert!(
        sent.bytes_sent > 4 && sent.bytes_received > 3 && taken.bytes_received >= sent.bytes_sent,
        "{sent:?} {taken:?}"
    );
    let mut stranger = over.connect(server.local_address()).await;
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("taken");
    closed(stranger).await;
    server.shut_down().await;
    assert_eq!((counted().refused, counted().connections), (1, 0));
    client.call(&node("b"), ask("pump", 3)).await.expect_err("nobody is there");
    assert!(client.traffic().failures > 0);
}

async fn garbage_oversize_and_damaged_frames_close_their_connection_only(over: Over) {
    let (server, pump) = server(over, config()).await;
    let mut oversize = bytes_of(&[request_frame(1, 1)]);
    oversize[20..24].copy_from_slice(&(LIMIT as u32).to_le_bytes());
    let sum = crc32c_of(&oversize[..28]);
    oversize[28..32].copy_from_slice(&sum.to_le_bytes());
    let mut damaged = bytes_of(&[request_frame(1, 1)]);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let second_hello = bytes_of(&[Frame::hello(Hello::new(node("raw"), node("b")))]);
    for bytes in [BytesMut::from(&b"GET / HTTP/1.1\r\n\r\n"[..]), oversize, damaged, second_hello] {
        let mut stream = greeted(over, &server).await;
        stream.write_all(&bytes).await.expect("taken");
        closed(stream).await;
    }
    assert_eq!(pump.started.load(Ordering::SeqCst), 0);
    assert_serves(over, &server).await;
}

/// The sum that a frame's header would carry, by the slow definition, so that the test does not share the code.
fn crc32c_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1)))
    })
}

async fn a_connection_that_says_no_hello_or_ends_inside_a_frame_is_dropped(over: Over) {
    let (server, _) = server(over, TcpConfig { connect_timeout: Duration::from_millis(100), ..config() }).await;
    closed(over.connect(server.local_address()).await).await;
    let mut stream = over.connect(server.local_address()).await;
    stream.write_all(&bytes_of(&[request_frame(1, 1)])).await.expect("taken");
    closed(stream).await;
    let mut stream = greeted(over, &server).await;
    let whole = bytes_of(&[request_frame(1, 1)]);
    stream.write_all(&whole[..whole.len() - 1]).await.expect("taken");
    stream.shutdown().await.expect("closed");
    closed(stream).await;
    assert_serves(over, &server).await;
}

async fn random_frames_and_bytes_never_stop_the_server(over: Over) {
    let (server, _) = server(over, config()).await;
    for seed in 0..200_u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = bytes_of(&[
            request_frame(rng.random_range(0..4), rng.random_range(0..100)),
            Frame::answer(RequestId(rng.random_range(0..4)), Ok(Bytes::new())),
            Frame { request: RequestId(rng.random_range(0..4)), message: Message::Cancel },
            Frame::ping(),
        ]);
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        let mut tail = vec![0; rng.random_range(0..64)];
        rng.fill_bytes(&mut tail);
        bytes.extend_from_slice(&tail);
        let mut stream = greeted(over, &server).await;
        // The server may close before it has taken everything.
        let _maybe_closed = stream.write_all(&bytes).await;
        let _maybe_closed = stream.shutdown().await;
        closed(stream).await;
    }
    assert_serves(over, &server).await;
}

async fn a_reader_that_does_not_read_is_cut_off(over: Over) {
    let (server, _) = server(over, config()).await;
    let mut stream = greeted(over, &server).await;
    for id in 1..2000 {
        let frame = bytes_of(&[request_frame(id, 60_000)]);
        if stream.write_all(&frame).await.is_err() {
            // Closed by the server while this side was still asking and reading nothing.
            assert_serves(over, &server).await;
            return;
        }
    }
    closed(stream).await;
    assert_serves(over, &server).await;
}

/// Asks for more than the kernel's buffers hold, reads nothing, and keeps the only place for a connection until the
/// server drops it.
async fn slow_reader_is_dropped(over: Over, config: TcpConfig) {
    let forever = SessionLimits { ping_after: LONG * 1000, dead_after: LONG * 1000, ..config.session };
    let config = TcpConfig { session: forever, connections_max: 1, ..config };
    let (server, _) = server(over, config).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = over.of(socket.connect(server.local_address()).await.expect("it listens")).await;
    let mut asked = vec![Frame::hello(Hello::new(node("raw"), node("b")))];
    asked.extend((1..250).map(|id| request_frame(id, 60_000)));
    stream.write_all(&bytes_of(&asked)).await.expect("taken");
    let dropped = async {
        let other = client(over, server.local_address(), config);
        while other.call(&node("b"), ask("pump", 1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, dropped).await.expect("it keeps its place");
    drop(stream);
}

async fn a_reader_for_whom_too_much_waits_is_dropped(over: Over) {
    slow_reader_is_dropped(over, TcpConfig { write_stall_max: LONG * 1000, ..config() }).await;
}

async fn a_reader_that_makes_no_progress_is_dropped(over: Over) {
    slow_reader_is_dropped(over, TcpConfig { output_bytes_max: usize::MAX, ..config() }).await;
}

async fn what_comes_together_with_the_hello_is_answered(over: Over) {
    let (server, pump) = server(over, config()).await;
    let mut stream = over.connect(server.local_address()).await;
    let frames = [Frame::hello(Hello::new(node("raw"), node("b"))), request_frame(1, 1)];
    stream.write_all(&bytes_of(&frames)).await.expect("taken");
    closed(stream).await;
    assert_eq!(pump.started.load(Ordering::SeqCst), 1);
}

async fn a_request_meant_for_another_node_is_not_run(over: Over) {
    let (server, pump) = server(over, config()).await;
    let mut stream = over.connect(server.local_address()).await;
    // It does not wait for the server's hello, which would tell it.
    let frames = [Frame::hello(Hello::new(node("raw"), node("c"))), request_frame(1, 1)];
    stream.write_all(&bytes_of(&frames)).await.expect("taken");
    closed(stream).await;
    assert_eq!(pump.started.load(Ordering::SeqCst), 0);
    assert_serves(over, &server).await;
}

async fn a_duplicated_request_starts_once_and_a_silent_peer_is_dropped(over: Over) {
    let (server, pump) = server(over, config()).await;
    let mut stream = greeted(over, &server).await;
    let frames = [request_frame(1, 5), request_frame(1, 5), request_frame(1, 5)];
    stream.write_all(&bytes_of(&frames)).await.expect("taken");
    // It answers once, pings, hears nothing and closes.
    closed(stream).await;
    assert_eq!(pump.started.load(Ordering::SeqCst), 1);
}

async fn too_many_connections_are_told_so(over: Over) {
    let (server, _) = server(over, TcpConfig { connections_max: 1, ..config() }).await;
    let _first = greeted(over, &server).await;
    let error =
        client(over, server.local_address(), config()).call(&node("b"), ask("pump", 1)).await.expect_err("full");
    assert!(matches!(error, RpcError::Unreachable { delivery: Delivery::NotStarted, .. }), "{error}");
}

async fn a_reused_address_is_noticed(over: Over) {
    let (server, pump) = server(over, config()).await;
    let addresses = Arc::new(Addresses::default());
    addresses.set(node("c"), server.local_address().to_string());
    let transport = TcpTransport::within(over.cluster(), node("a"), addresses, config());
    let error = transport.call(&node("c"), ask("pump", 1)).await.expect_err("it is b");
    assert!(error.to_string().contains("node b"), "{error}");
    assert_eq!(pump.started.load(Ordering::SeqCst), 0);
}

async fn a_reply_above_the_frame_limit_is_an_error_of_its_own_call(over: Over) {
    let (server, _) = server(over, config()).await;
    let transport = client(over, server.local_address(), config());
    let error = transport.call(&node("b"), ask("pump", LIMIT as u32)).await.expect_err("too large");
    assert!(matches!(error, RpcError::Malformed { .. }), "{error}");
    assert_eq!(transport.call(&node("b"), ask("pump", 2)).await, Ok(Bytes::from_static(&[7; 2])));
}

/// Passes bytes to the server and back until told to kill the connection; then passes new ones.
async fn proxy(server: &TcpServer) -> (std::net::SocketAddr, tokio::sync::mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let target = server.local_address();
    let (kill, mut killed) = tokio::sync::mpsc::channel::<()>(1);
    tokio::spawn(async move {
        while let Ok((mut inside, _)) = listener.accept().await {
            let mut outside = TcpStream::connect(target).await.expect("it listens");
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut inside, &mut outside) => {}
                _ = killed.recv() => {}
            }
        }
    });
    (address, kill)
}

async fn a_connection_killed_in_the_middle_fails_its_calls_and_the_next_one_connects_again(over: Over) {
    let (server, pump) = server(over, config()).await;
    let (address, kill) = proxy(&server).await;
    let transport = client(over, address, config());
    let killing = async {
        while pump.started.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        kill.send(()).await.expect("the proxy runs");
    };
    let target = node("b");
    let (result, ()) = tokio::join!(transport.call(&target, ask("hang", 0)), killing);
    let error = result.expect_err("killed");
    assert!(matches!(error, RpcError::Unreachable { delivery: Delivery::Unknown, .. }), "{error}");
    loop {
        match transport.call(&node("b"), ask("pump", 1)).await {
            Ok(reply) => return assert_eq!(reply.len(), 1),
            // The pause after a lost connection.
            Err(RpcError::Unreachable { delivery: Delivery::NotStarted, .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_half_open_connection_is_found_by_its_silence() {
    // A peer that greets and then neither answers nor closes.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let transport = client(Over::Plain, listener.local_addr().expect("bound"), config());
    let peer = async {
        let mut stream = Raw::plain(listener.accept().await.expect("the client comes").0);
        stream.write_all(&bytes_of(&[Frame::hello(Hello::new(node("b"), node("a")))])).await.expect("taken");
        closed(stream).await;
    };
    let target = node("b");
    let (result, ()) = tokio::join!(transport.call(&target, ask("pump", 1)), peer);
    let error = result.expect_err("nobody answers");
    assert!(matches!(error, RpcError::Unreachable { delivery: Delivery::Unknown, .. }), "{error}");
}

async fn a_full_queue_refuses_at_once_while_the_window_stays_bounded(over: Over) {
    let session = SessionLimits { in_flight_max: 2, queued_max: 3, ..config().session };
    let config = TcpConfig { session, ..config() };
    let (server, pump) = server(over, config).await;
    let transport = client(over, server.local_address(), config);
    let target = node("b");
    let calls = (0..20).map(|_| {
        let mut request = ask("hang", 0);
        request.timeout = Duration::from_millis(400);
        transport.call(&target, request)
    });
    let results = futures::future::join_all(calls).await;
    let overloaded = results.iter().filter(|r| matches!(r, Err(RpcError::Overloaded { .. }))).count();
    assert!(overloaded >= 20 - 2 - 2 * 3, "the two queues hold 3 each: {results:?}");
    assert!(pump.started.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn a_server_with_a_secret_reads_no_request_of_who_does_not_prove_to_know_it() {
    let cluster = Cluster::new("c", b"0123456789abcdef").expect("long enough");
    let pump = Arc::new(Pump::default());
    let bound = TcpServer::within(cluster.clone(), "127.0.0.1:0", node("b"), Arc::clone(&pump) as _, config()).await;
    let server = bound.expect("a free port");
    let address = server.local_address();
    let ask_within = async |cluster: Cluster| {
        let addresses = Arc::new(Addresses::default());
        addresses.set(node("b"), address.to_string());
        TcpTransport::within(cluster, node("a"), addresses, config()).call(&node("b"), ask("pump", 3)).await
    };
    assert_eq!(ask_within(cluster).await, Ok(Bytes::from_static(&[7; 3])));
    let other = Cluster::new("c", b"another secret of the same id").expect("long enough");
    let stranger = ask_within(other).await.expect_err("another secret");
    assert!(stranger.to_string().contains("does not know this cluster's secret"), "{stranger}");
    assert!(ask_within(Cluster::default()).await.is_err(), "of no cluster");
    // Requests behind a hello without a proof, and behind one that was made up.
    let hello = Hello { cluster: "c".to_owned(), ..Hello::new(node("raw"), node("b")) };
    for proof in [None, Some(Frame::proof([7; 32]))] {
        let frames: Vec<Frame> =
            [Some(Frame::hello(hello.clone())), proof, Some(request_frame(1, 1))].into_iter().flatten().collect();
        let mut stream = Over::Plain.connect(address).await;
        stream.write_all(&bytes_of(&frames)).await.expect("taken");
        closed(stream).await;
    }
    assert_eq!(pump.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_has_proved_nothing_takes_no_nodes_place_and_little_memory_and_is_told_nothing() {
    let cluster = Cluster::new("c", b"0123456789abcdef").expect("long enough");
    let config = TcpConfig { connections_max: 1, ungreeted_max: 3, connect_timeout: LONG * 1000, ..config() };
    let pump: Arc<dyn Service> = Arc::new(Pump::default());
    let bound = TcpServer::within(cluster.clone(), "127.0.0.1:0", node("b"), pump, config).await;
    let server = bound.expect("a free port");
    let address = server.local_address();
    let connect = async || Over::Plain.connect(address).await;
    let _silent = (connect().await, connect().await);
    let addresses = Arc::new(Addresses::default());
    addresses.set(node("b"), address.to_string());
    let transport = TcpTransport::within(cluster, node("a"), addresses, config);
    assert_eq!(transport.call(&node("b"), ask("pump", 3)).await, Ok(Bytes::from_static(&[7; 3])));

    // The header of a frame above 4 KiB, without the rest.
    let mut large = bytes_of(&[request_frame(1, 1)]);
    large[20..24].copy_from_slice(&5000_u32.to_le_bytes());
    let sum = crc32c_of(&large[..28]);
    large[28..32].copy_from_slice(&sum.to_le_bytes());
    large.truncate(32);
    let elsewhere = bytes_of(&[Frame::hello(Hello::new(node("raw"), node("c")))]);
    for bytes in [large, elsewhere] {
        let told = async {
            let mut stream = connect().await;
            stream.write_all(&bytes).await.expect("taken");
            let mut told = Vec::new();
            // A reset is as good as an orderly end.
            let _reset = stream.read_to_end(&mut told).await;
            told
        };
        assert!(tokio::time::timeout(LONG, told).await.expect("closed at once").is_empty());
    }
    // One more than there may be.
    let _third = connect().await;
    tokio::time::timeout(LONG, closed(connect().await)).await.expect("closed at once");
}

#[tokio::test]
async fn a_server_without_a_secret_listens_on_the_loopback_only() {
    let pump: Arc<dyn Service> = Arc::new(Pump::default());
    let refused = TcpServer::bind("0.0.0.0:0", node("b"), Arc::clone(&pump), config()).await.err().expect("refused");
    assert!(refused.to_string().contains("need a cluster with a secret"), "{refused}");
    let cluster = Cluster::new("c", b"0123456789abcdef").expect("long enough");
    assert!(TcpServer::within(cluster, "0.0.0.0:0", node("b"), pump, config()).await.is_ok());
}

macro_rules! over_both {
    ($($case:ident),* $(,)?) => {
        mod plain { $(#[tokio::test] async fn $case() { super::$case(super::Over::Plain).await; })* }
        mod encrypted { $(#[tokio::test] async fn $case() { super::$case(super::Over::Encrypted).await; })* }
    };
}

over_both!(
    garbage_oversize_and_damaged_frames_close_their_connection_only,
    a_connection_that_says_no_hello_or_ends_inside_a_frame_is_dropped,
    random_frames_and_bytes_never_stop_the_server,
    a_reader_that_does_not_read_is_cut_off,
    a_reader_for_whom_too_much_waits_is_dropped,
    a_reader_that_makes_no_progress_is_dropped,
    what_comes_together_with_the_hello_is_answered,
    a_request_meant_for_another_node_is_not_run,
    a_duplicated_request_starts_once_and_a_silent_peer_is_dropped,
    too_many_connections_are_told_so,
    a_reply_above_the_frame_limit_is_an_error_of_its_own_call,
    a_connection_killed_in_the_middle_fails_its_calls_and_the_next_one_connects_again,
    a_full_queue_refuses_at_once_while_the_window_stays_bounded,
    what_goes_on_is_counted_on_both_sides,
    a_reused_address_is_noticed,
);
