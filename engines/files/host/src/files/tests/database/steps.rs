//! Ends at each step: of what is sent to the database, and of what is written to the log, while changes are flushed and a subtree is taken apart.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use parking_lot::Mutex;

use super::*;

/// Between the host and the database: it lets so many messages pass, and then nothing any more, and nobody.
struct Relay {
    folder: TempDir,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// Messages that may pass; any number, if nobody said how many.
    left: Mutex<Option<usize>>,
    /// What ends connections.
    ends: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Gate {
    fn is_shut(&self) -> bool {
        *self.left.lock() == Some(0)
    }

    /// A message has passed. Whether another one may.
    fn passed(&self) -> bool {
        let mut left = self.left.lock();
        if let Some(left) = &mut *left {
            *left = left.saturating_sub(1);
        }
        *left != Some(0)
    }

    fn end_all(&self) {
        self.ends.lock().drain(..).for_each(|end| end());
    }
}

impl Relay {
    fn to(server: &PostgreSql) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let (gate, socket) = (Arc::new(Gate::default()), server.folder.path().join(SOCKET));
        let (entrance, port) = (Arc::clone(&gate), server.tenants.as_ref().map(|(_, port)| *port));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { break };
                if entrance.is_shut() {
                    continue;
                }
                let gate = Arc::clone(&entrance);
                if let Some(port) = port {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                        carry(client, server, gate, TcpStream::try_clone, TcpStream::shutdown);
                    }
                } else if let Ok(server) = UnixStream::connect(&socket) {
                    carry(client, server, gate, UnixStream::try_clone, UnixStream::shutdown);
                }
            }
        });
        Self { folder, gate }
    }

    fn options(&self, database: &str, inodes_max: usize) -> DatabaseOptions {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        DatabaseOptions { place: Place::Address(format!("postgres://postgres@{folder}/{database}")), inodes_max }
    }
}

/// Carries what a client and the server say.
fn carry<S: Read + Write + Send + 'static>(
    client: UnixStream,
    server: S,
    gate: Arc<Gate>,
    again: fn(&S) -> io::Result<S>,
    shut: fn(&S, Shutdown) -> io::Result<()>,
) {
    let [mut to, client_ends] = [client.try_clone().unwrap(), client.try_clone().unwrap()];
    let [mut from, server_ends] = [again(&server).unwrap(), again(&server).unwrap()];
    gate.ends.lock().push(Box::new(move || {
        // They may have ended by themselves.
        let _ = client_ends.shutdown(Shutdown::Both);
        let _ = shut(&server_ends, Shutdown::Both);
    }));
    std::thread::spawn(move || io::copy(&mut from, &mut to));
    std::thread::spawn(move || {
        let _ = messages(client, server, &gate);
        gate.end_all();
    });
}

/// Takes messages to the server, as long as they may pass.
fn messages(mut from: impl Read, mut to: impl Write, gate: &Gate) -> io::Result<()> {
    let mut has_kind = false;
    loop {
        let mut message = vec![0; if has_kind { 5 } else { 4 }];
        from.read_exact(&mut message)?;
        let length = message.last_chunk().map_or(4, |length| u32::from_be_bytes(*length)) as usize;
        let begun = message.len();
        message.resize(begun + length - 4, 0);
        from.read_exact(&mut message[begun..])?;
        if gate.is_shut() {
            return Ok(());
        }
        to.write_all(&message)?;
        if !gate.passed() {
            return Ok(());
        }
        has_kind = true;
    }
}

const SOCKET: &str = ".s.PGSQL.5432";
/// So many files are in the directory that is deleted: more than one change takes.
const FILES: u64 = 300;

fn rename(from: &str, to: &str) -> Request {
    Request::Rename2 { from: from.to_owned(), to: to.to_owned(), overwrites: true }
}

/// What there is before.
fn prepare(running: &Running) {
    for number in 0..FILES {
        running.mkdirs(&format!("/large/{number}"));
    }
    for name in ["a", "b", "c"] {
        running.write(&format!("/d/{name}"), b"some bytes");
    }
}

/// A bit of everything, until nobody is told anything more. How much of it was told.
fn change(running: &Running, pause: Duration) -> usize {
    let delete = Request::Delete { path: "/large".to_owned(), is_recursive: true };
    let changes =
        [rename("/d/a", "/d/moved"), delete, mkdirs("/large/again"), rename("/d/b", "/d/c"), mkdirs("/d/last")];
    let told = |(number, change)| {
        let is_told = running.call(change).is_ok();
        if number == 1 {
            std::thread::sleep(pause);
        }
        is_told
    };
    changes.iter().enumerate().take_while(|it| told(*it)).count()
}

/// What was told is there, each once. What was not told may be or not. How many files and directories there are to be when all that was deleted is taken apart.
fn check(running: &Running, told: usize, what: &str) -> [u64; 2] {
    let there = |path: &str| running.length(path).is_some();
    let done = |number: usize, is_done: bool| {
        assert!(is_done || told <= number, "{what}: change {number} was told");
        u64::from(is_done)
    };
    let moved = done(0, there("/d/moved"));
    assert_eq!(there("/d/a"), moved == 0, "{what}");
    let deleted = done(1, !there("/large/7"));
    assert_eq!(there("/large/8"), deleted == 0, "{what}: all of it or nothing");
    let again = done(2, there("/large/again"));
    let replaced = done(3, !there("/d/b"));
    let last = done(4, there("/d/last"));
    assert!(there("/d/c"), "{what}");
    let files = 3 - replaced;
    assert_eq!(running.files_in("/"), files, "{what}");
    until(|| running.files.replicas().blocks().len() as u64 == files);
    let large = u64::from(there("/large")) + if deleted == 0 { FILES } else { 0 };
    [files, 1 + last + large + again]
}

/// Each message in the long tests, and some of them otherwise: FILES_STEPS says how many further the next end is.
#[test]
fn what_was_told_is_there_whichever_message_to_the_database_was_the_last() {
    let by = std::env::var("FILES_STEPS").map_or(5, |by| by.parse().expect("a number"));
    let place = Scene::new();
    let mut step = 0;
    loop {
        step += by;
        let what = format!("message {step}");
        let (disk, folder, relay) = (SimDisk::new(3), tempfile::tempdir().unwrap(), Relay::to(&place.server));
        let running = open(&disk, folder.path(), 1, Some(relay.options("postgres", 1_000))).unwrap();
        prepare(&running);
        running.flushed();
        *relay.gate.left.lock() = Some(step);
        // What was deleted is taken apart in another batch.
        let told = change(&running, Duration::from_millis(200));
        assert_eq!(told, 5, "{what}: the log is there");
        let is_flushed = || running.database().unflushed == 0 && running.files.figures().inodes < FILES;
        until(|| relay.gate.is_shut() || is_flushed());
        let is_whole = !relay.gate.is_shut();
        // The machine goes, with all that was not flushed to its disk.
        disk.crash();
        *relay.gate.left.lock() = Some(0);
        relay.gate.end_all();
        drop(running);
        let running = open(&disk, folder.path(), 2, Some(place.server.options(1_000))).unwrap();
        let [files, directories] = check(&running, told, &what);
        // With the root; of what was deleted nothing is left.
        let rows = "SELECT count(*) FILTER (WHERE NOT is_directory), count(*) FILTER (WHERE is_directory AND id > 1) FROM inode";
        until(|| place.server.query(rows) == format!("{files}|{}", directories + 1));
        running.stop();
        place.server.query("DROP TABLE marker, inode, block, retry_answer, files_version");
        if is_whole {
            break;
        }
    }
    assert!(step > 40, "{step} messages are two flushes");
}

#[test]
fn what_was_told_is_there_whichever_write_of_the_log_was_the_last() {
    let (mut step, mut all_told) = (0, 0);
    while all_told < 5 {
        step += 1;
        let (disk, folder) = (SimDisk::new(step), tempfile::tempdir().unwrap());
        let running = opened(&disk, folder.path(), 1);
        prepare(&running);
        disk.fail(step, Fault::PowerCut);
        let told = change(&running, Duration::ZERO);
        if told == 5 {
            all_told += 1;
            // What was deleted is taken apart meanwhile.
            until(|| running.files.has_ended() || running.files.figures().inodes < FILES);
        }
        disk.crash();
        drop(running);
        let running = opened(&disk, folder.path(), 2);
        let expected: u64 = check(&running, told, &format!("write {step}")).iter().sum();
        until(|| running.files.figures().inodes == expected);
        running.stop();
    }
    assert!(step > 8, "{step} writes");
}
