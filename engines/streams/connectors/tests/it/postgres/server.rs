//! A PostgreSQL of its own, and a road to it on which answers get lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

pub(super) const PASSWORD: &str = "open sesame";

/// A server that can be stopped and started again.
pub(super) struct Server {
    folder: TempDir,
    process: Option<Child>,
    pub(super) port: u16,
    /// Beside those that all have.
    settings: &'static [&'static str],
}

impl Server {
    pub(super) fn start() -> Self {
        Self::start_with(&["max_wal_senders=0"])
    }

    /// One whose changes can be read.
    pub(super) fn of_changes() -> Self {
        Self::start_with(&["wal_level=logical", "max_wal_senders=4"])
    }

    fn start_with(settings: &'static [&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let password = folder.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        if let Some((uid, gid)) = account() {
            [folder.path(), &password].into_iter().for_each(|path| chown(path, Some(uid), Some(gid)).unwrap());
        }
        let data = folder.path().join("data");
        let made = program("initdb", folder.path())
            .args(["-U", "postgres", "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .arg("--pwfile")
            .arg(&password)
            .status();
        assert!(made.unwrap().success(), "initdb");
        let mut server = Self { folder, process: None, port: free_port(), settings };
        server.go_on();
        server
    }

    /// Starts it where it was.
    pub(super) fn go_on(&mut self) {
        let settings =
            [format!("port={}", self.port), format!("unix_socket_directories={}", self.folder.path().display())];
        let fixed = ["listen_addresses=127.0.0.1", "fsync=off", "log_min_messages=fatal"];
        let all = settings.iter().map(String::as_str).chain(fixed).chain(self.settings.iter().copied());
        let flags = all.flat_map(|setting| ["-c", setting]);
        let mut command = program("postgres", self.folder.path());
        self.process = Some(command.arg("-D").arg(self.folder.path().join("data")).args(flags).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.try_ask("SELECT 1").is_err() {
            assert!(Instant::now() < deadline, "it does not start");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it at once, as a crash would.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Its children end with it then.
            let _ = Command::new("kill").args(["-QUIT", &process.id().to_string()]).status();
            process.wait().unwrap();
        }
    }

    /// Rows of a statement, their values as texts; NULL is `-`.
    pub(super) fn ask(&self, sql: &str) -> Vec<String> {
        self.try_ask(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"))
    }

    /// A connection that stays.
    pub(super) fn session(&self) -> Session {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.place(), NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Session { runtime, client }
    }

    fn place(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres password='{PASSWORD}' dbname=postgres", self.port)
    }

    fn try_ask(&self, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let place = self.place();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&place, NoTls).await?;
            let connection = tokio::spawn(connection);
            let told = client.simple_query(sql).await?;
            drop(client);
            let _ = connection.await;
            let row = |message: &SimpleQueryMessage| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|at| row.get(at).unwrap_or("-")).collect::<Vec<_>>().join("|"))
                }
                _ => None,
            };
            Ok(told.iter().filter_map(row).collect())
        })
    }
}

/// A connection in which a transaction may go on.
pub(super) struct Session {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    pub(super) fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program of PostgreSQL, as a user that it accepts.
fn program(name: &str, folder: &Path) -> Command {
    let programs =
        std::env::var_os("PG_PROGRAMS").map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin"), PathBuf::from);
    let mut command = Command::new(programs.join(name));
    command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some((uid, gid)) = account() {
        command.uid(uid).gid(gid);
    }
    command
}

/// The account of PostgreSQL, if this process is root's: nothing of it runs as root.
fn account() -> Option<(u32, u32)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    if uid.split_whitespace().nth(1) != Some("0") {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let account =
        accounts.lines().find(|line| line.starts_with("postgres:")).expect("there is an account of PostgreSQL");
    let mut fields = account.split(':').skip(2).map(|field| field.parse().unwrap());
    Some((fields.next().unwrap(), fields.next().unwrap()))
}

/// A port below those that the system gives to whoever asks for any: nobody else has it while the server is away.
fn free_port() -> u16 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(37).wrapping_add(ASKED.fetch_add(1, Ordering::AcqRel));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// What happens to a `COMMIT` on the road.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Lost {
    Nothing,
    /// It does not arrive.
    Request,
    /// It arrives and is done, and nobody hears of it.
    Answer,
}

/// A road to a server.
pub(super) struct Road {
    pub(super) port: u16,
    /// What is lost next, once.
    lost: Arc<AtomicU8>,
    /// How many connections it had.
    pub(super) connections: Arc<AtomicU16>,
}

impl Road {
    pub(super) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let road =
            Self { port: listener.local_addr().unwrap().port(), lost: Arc::default(), connections: Arc::default() };
        let (lost, connections) = (Arc::clone(&road.lost), Arc::clone(&road.connections));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                connections.fetch_add(1, Ordering::AcqRel);
                carry(client, server, Arc::clone(&lost));
            }
        });
        road
    }

    pub(super) fn lose(&self, what: Lost) {
        self.lost.store(what as u8, Ordering::Release);
    }
}

fn carry(client: TcpStream, server: TcpStream, lost: Arc<AtomicU8>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let (answers_from, answers_to, cut) =
        (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&is_cut));
    thread::spawn(move || pass(answers_from, answers_to, |_| cut.load(Ordering::Acquire)));
    thread::spawn(move || {
        pass(client, server, |bytes| {
            if !bytes.windows(7).any(|part| part == b"COMMIT\0") {
                return false;
            }
            let what = lost.swap(Lost::Nothing as u8, Ordering::AcqRel);
            is_cut.store(what == Lost::Answer as u8, Ordering::Release);
            what == Lost::Request as u8
        });
    });
}

/// Passes bytes on until either end is closed, or it is to be cut.
fn pass(mut from: TcpStream, mut to: TcpStream, mut is_cut: impl FnMut(&[u8]) -> bool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || is_cut(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
