//! Nobody hears of what the log does not have yet.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use savanna_epoch::NodeEpoch;
use savanna_journal::{Disk, DiskFile, Options, OsDisk};
use savanna_pgwire_tenants::{Listener, Server};
use savanna_tenants_host::{Host, HostOptions, Keeping};

use crate::server;

/// An answer that has not come by then waits.
const PATIENCE: Duration = Duration::from_millis(500);
/// An answer that comes at all has come by then.
const LONG: Duration = Duration::from_secs(60);

/// Whether what is written may become durable.
#[derive(Debug, Default)]
struct Valve {
    closed: Mutex<bool>,
    turned: Condvar,
}

impl Valve {
    fn turn(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.turned.notify_all();
    }

    fn pass(&self) {
        drop(self.turned.wait_while(self.closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

/// Opens the valve when a test fails, so that its server can end.
struct Opens(Arc<Valve>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.turn(false);
    }
}

/// A disk on which nothing becomes durable while the valve is closed.
#[derive(Debug)]
struct Held {
    disk: OsDisk,
    valve: Arc<Valve>,
}

#[derive(Debug)]
struct HeldFile {
    file: Box<dyn DiskFile>,
    valve: Arc<Valve>,
}

impl Disk for Held {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.disk.exists(name)
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        self.disk.read(name, limit)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(HeldFile { file: self.disk.create(name)?, valve: Arc::clone(&self.valve) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.valve.pass();
        self.disk.sync_dir()
    }

    fn describe(&self, name: &str) -> String {
        self.disk.describe(name)
    }
}

impl DiskFile for HeldFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.valve.pass();
        self.file.sync()
    }
}

fn start(directory: &Path, valve: &Arc<Valve>) -> Server {
    let data = directory.join("data");
    let held = |name| Arc::new(Held { disk: OsDisk::new(data.join(name)), valve: Arc::clone(valve) });
    let (log, coordinator) = (held("log"), Options::disk(held("coordinator")));
    let keeping = Keeping { log: Some(Options::disk(log)), ..Keeping::local(&data) };
    let listener = Listener::bind(server::options()).unwrap();
    let host = HostOptions::beside(coordinator, keeping, NodeEpoch(1), 2).unwrap();
    listener.serve(Host::start(host).unwrap()).unwrap()
}

/// A client that speaks the simple protocol.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut client = Self(TcpStream::connect(address).unwrap());
        let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        client.0.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
        client.0.write_all(body).unwrap();
        client.answer();
        client
    }

    pub(crate) fn send(&mut self, text: &str) {
        let mut message = vec![b'Q'];
        message.extend((text.len() as u32 + 5).to_be_bytes());
        message.extend(text.as_bytes());
        message.push(0);
        self.0.write_all(&message).unwrap();
    }

    /// Whether nothing comes of what was sent.
    fn waits(&self) -> bool {
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        self.0.peek(&mut [0]).is_err()
    }

    /// What comes before the server ends the connection.
    pub(crate) fn last_words(mut self) -> String {
        self.0.set_read_timeout(Some(LONG)).unwrap();
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The kinds of messages up to the one that says that the server is ready.
    pub(crate) fn answer(&mut self) -> String {
        self.0.set_read_timeout(Some(LONG)).unwrap();
        let mut kinds = String::new();
        while !kinds.ends_with('Z') {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).unwrap();
            kinds.push(char::from(head[0]));
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
            self.0.read_exact(&mut vec![0; length]).unwrap();
        }
        kinds
    }
}

#[test]
fn neither_who_writes_nor_who_reads_it_hears_of_what_is_not_durable() {
    let directory = tempfile::tempdir().unwrap();
    let valve = Arc::new(Valve::default());
    let server = start(directory.path(), &valve);
    let _opens = Opens(Arc::clone(&valve));
    let [mut writer, mut reader, mut other, mut maker] = [(); 4].map(|()| Client::new(server.address()));
    writer.send("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int)");
    assert_eq!(writer.answer(), "CCZ");

    valve.turn(true);
    writer.send("INSERT INTO t VALUES (1)");
    assert!(writer.waits());
    // The row is there for others, who must not tell it on.
    reader.send("SELECT id FROM t");
    maker.send("CREATE DATABASE shop");
    assert!(reader.waits());
    assert!(maker.waits());
    other.send("SELECT id FROM u");
    assert_eq!(other.answer(), "TCZ", "who reads nothing of it waits for nobody");

    valve.turn(false);
    assert_eq!(writer.answer(), "CZ");
    assert_eq!(reader.answer(), "TDCZ");
    assert_eq!(maker.answer(), "CZ");
    server.stopper().stop();
    server.wait().unwrap();
}
