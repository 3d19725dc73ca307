//! The Redis face in one process, the keys in another, the rpc kernel between them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use savanna_epoch::{NodeEpoch, NodeId, OwnerEpoch};
use savanna_journal::Options;
use savanna_keys::config::Config;
use savanna_keys::handle::{Answer, HandleError, KeysHandle, KeysRequest, Owner, SharedKeysHandle};
use savanna_keys_host::{Elsewhere, HostOptions};
use savanna_node::remote::{RemoteKeys, serve_keys};
use savanna_resp::{ClusterPort, Server, ServerOptions};
use savanna_rpc::tcp::{Addresses, TcpConfig, TcpServer, TcpTransport};
use tokio::runtime::Handle;

use crate::two_processes::{ANNOUNCES, CHILD, EngineProcess};

const PATIENCE: Duration = Duration::from_secs(2);

/// An owner of before: it answers once that the keys are being moved, then that they are elsewhere.
#[derive(Debug)]
struct Former(AtomicUsize);

impl KeysHandle for Former {
    fn call(&self, _: Arc<KeysRequest>, answer: Answer) {
        answer.give(Err(match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => HandleError::Frozen { retry_after_ms: 30 },
            _ => HandleError::Moved { to: NodeId::new("engine"), epoch: OwnerEpoch(2) },
        }));
    }
}

fn start(host: HostOptions) -> Server {
    Server::start(ServerOptions { address: (Ipv4Addr::LOCALHOST, 0).into(), cluster_port: ClusterPort::None, host })
        .unwrap()
}

async fn serve(node: &str, keys: SharedKeysHandle) -> TcpServer {
    TcpServer::bind("127.0.0.1:0", NodeId::new(node), serve_keys(keys, None), TcpConfig::default()).await.unwrap()
}

/// Not a test by itself: what the process with the keys runs, when a test below has started it.
#[tokio::test(flavor = "multi_thread")]
async fn engine_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = Some((Options::dir(directory.path()), NodeEpoch(2)));
    let keys = start(HostOptions {
        threads: 2,
        config: Config::default(),
        log,
        lease: None,
        seed: 1,
        elsewhere: None,
        spread: None,
    });
    let engine = serve("engine", keys.handle()).await;
    let former = serve("former", Arc::new(Former(AtomicUsize::new(0)))).await;
    println!("\n{ANNOUNCES}{} {} {}", engine.local_address(), former.local_address(), keys.address());
    std::future::pending().await
}

/// The process with the keys, and a face for them in this one.
struct Both {
    engine: Option<EngineProcess>,
    face: Server,
    /// Where clients reach the keys in their own process.
    direct: SocketAddr,
}

impl Both {
    /// The face believes that the keys are at the node `owner`.
    fn start(owner: &str) -> Self {
        let engine = EngineProcess::start("keys_elsewhere::engine_process");
        let announced: Vec<String> = engine.address.split(' ').map(str::to_owned).collect();
        let addresses = Arc::new(Addresses::default());
        addresses.set(NodeId::new("engine"), announced[0].as_str());
        addresses.set(NodeId::new("former"), announced[1].as_str());
        let transport = Arc::new(TcpTransport::new(NodeId::new("face"), addresses, TcpConfig::default()));
        let elsewhere = Elsewhere {
            owner: Owner { node: NodeId::new(owner), epoch: OwnerEpoch(1) },
            nodes: Arc::new(RemoteKeys::new(transport, Handle::current())),
            patience: PATIENCE,
        };
        let config = Config::default();
        let face = start(HostOptions {
            threads: 2,
            config,
            log: None,
            lease: None,
            seed: 1,
            elsewhere: Some(elsewhere),
            spread: None,
        });
        Self { engine: Some(engine), face, direct: announced[2].parse().unwrap() }
    }

    fn client(&self) -> Client {
        Client::connect(self.face.address())
    }
}

/// A client that sends lines and reads replies as one line each: `[a b]` for lists.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends all lines at once, and reads as many replies.
    fn all(&mut self, lines: &[&str]) -> Vec<String> {
        let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        lines.iter().map(|_| self.reply()).collect()
    }

    fn ask(&mut self, line: &str) -> String {
        self.all(&[line]).remove(0)
    }

    /// Sends a request whose words may be any bytes.
    fn ask_words(&mut self, words: &[&[u8]]) -> String {
        let socket = self.0.get_mut();
        socket.write_all(format!("*{}\r\n", words.len()).as_bytes()).unwrap();
        for word in words {
            socket.write_all(format!("${}\r\n", word.len()).as_bytes()).unwrap();
            socket.write_all(word).unwrap();
            socket.write_all(b"\r\n").unwrap();
        }
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("$" | "*", Ok(-1)) => "nil".to_owned(),
            ("$", Ok(length)) => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes).unwrap().trim_end().to_owned()
            }
            ("*", Ok(length)) => self.list("[", length, "]"),
            ("%", Ok(length)) => self.list("{", 2 * length, "}"),
            ("-", _) => format!("-{rest}"),
            _ => rest.to_owned(),
        }
    }

    fn list(&mut self, open: &str, length: i64, close: &str) -> String {
        let values: Vec<String> = (0..length).map(|_| self.reply()).collect();
        format!("{open}{}{close}", values.join(" "))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_redis_face_serves_keys_of_another_process() {
    let mut both = Both::start("engine");
    let (mut one, mut other) = (both.client(), both.client());
    assert_eq!(one.ask("SET a 1"), "OK");
    assert_eq!(other.ask("GET a"), "1");
    // Keys of both threads there.
    let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} {key}:value")).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    assert!(one.all(&sets).iter().all(|reply| reply == "OK"));
    let values: Vec<String> = keys.iter().map(|key| format!("{key}:value")).collect();
    assert_eq!(other.ask(&format!("MGET {} nothing", keys.join(" "))), format!("[{} nil]", values.join(" ")));
    assert_eq!(one.ask("DBSIZE"), "201");
    // What one client says in one go is done in that order.
    let counts = one.all(&["INCR n"; 300]);
    assert!(counts.iter().zip(1..).all(|(reply, count)| *reply == format!("{count}")));
    assert_eq!(one.all(&["SET w 1", "APPEND w 2", "GET w", "DEL w", "GET w"]), ["OK", "2", "12", "1", "nil"]);
    // Errors of commands, of the owner and of the face.
    assert!(one.ask("LPUSH a x").starts_with("-WRONGTYPE"));
    assert!(one.ask("GET").starts_with("-ERR wrong number"));
    assert!(one.ask("NOTHING k").starts_with("-ERR unknown command"));
    // What belongs to the session stays with it.
    assert_eq!(one.all(&["SELECT 3", "SET a three", "GET a"]), ["OK", "OK", "three"]);
    assert_eq!(other.ask("GET a"), "1");
    let hello = other.ask("HELLO 3");
    assert!(hello.starts_with('{') && hello.contains("proto 3"), "{hello}");
    assert_eq!(other.all(&["HSET h f v", "HGETALL h"]), ["1", "{f v}"]);
    // Keys of both threads as one.
    let queued = ["MULTI", "INCR key-a", "INCR key-b", "INCR key-c", "MGET key-a key-b key-c", "EXEC"];
    let replies = other.all(&queued);
    assert_eq!(replies[1..], ["QUEUED", "QUEUED", "QUEUED", "QUEUED", "[1 1 1 [1 1 1]]"]);
    assert_eq!(other.ask("EVAL \"return redis.call('INCR', KEYS[1]) + ARGV[1]\" 1 key-a 40"), "42");
    // A walk through all keys.
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    loop {
        let scanned = other.ask(&format!("SCAN {cursor} MATCH key? COUNT 100"));
        let (next, names) = scanned[1..].split_once(" [").unwrap();
        found += names.trim_end_matches(']').split_whitespace().count();
        cursor = next.to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 10);
    // What finds no room in a message between nodes says so, and nothing of it is done.
    assert_eq!(one.ask_words(&[b"SET", b"long", &vec![b'x'; 10 << 20]]), "OK");
    assert_eq!(one.ask("GET long").len(), 10 << 20);
    assert!(one.ask("MGET long long").starts_with("-ERR the reply is too long"));
    assert!(one.ask_words(&[b"SET", b"long", &vec![b'x'; 13 << 20]]).starts_with("-ERR the request is too long"));
    assert_eq!(one.all(&["STRLEN long", "DEL long"]), ["10485760", "1"]);
    // What cannot cross says so.
    for refused in ["BLPOP l 1", "SUBSCRIBE c", "PUBLISH c m", "WATCH a", "FLUSHALL", "SCRIPT LOAD x", "SWAPDB 0 1"] {
        let reply = one.ask(refused);
        assert!(reply.starts_with("-ELSEWHERE "), "{refused}: {reply}");
    }
    let refused = one.all(&["MULTI", "PING", "EXEC", "PING"]);
    assert!(refused[2].starts_with("-ELSEWHERE ") && refused[2].contains("PING"), "{refused:?}");
    assert_eq!(refused[3], "PONG");

    drop(both.engine.take());
    let begun = Instant::now();
    let gone = one.ask("SET a 2");
    assert!(gone.starts_with("-TRYAGAIN ") || gone.starts_with("-UNKNOWN "), "{gone}");
    assert!(one.ask("GET a").starts_with("-TRYAGAIN "));
    assert!(begun.elapsed() < 4 * PATIENCE);
    assert_eq!(one.ask("PING"), "PONG");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_face_waits_for_keys_that_are_moved_and_follows_them() {
    let both = Both::start("former");
    let mut client = both.client();
    assert_eq!(client.all(&["INCR n", "INCR n", "GET n"]), ["1", "2", "2"], "each is done once, and in order");
    assert_eq!(client.ask("INCR n"), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_the_owner_holds_clients_of_other_faces_too() {
    let both = Both::start("engine");
    let (mut client, mut direct) = (both.client(), Client::connect(both.direct));
    assert_eq!(client.ask("SET k 1"), "OK");
    assert_eq!(direct.ask("CLIENT PAUSE 400 WRITE"), "OK");
    let begun = Instant::now();
    assert_eq!(client.ask("GET k"), "1");
    assert!(begun.elapsed() < Duration::from_millis(300), "who reads is not held");
    assert_eq!(client.all(&["INCR k", "GET k"]), ["2", "2"]);
    assert!(begun.elapsed() >= Duration::from_millis(300), "who writes is");
}
