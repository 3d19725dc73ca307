//! With a PostgreSQL behind the log.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use savanna_files::ids::Txid;
use savanna_files_database::Database;
use tempfile::TempDir;

use super::*;
use crate::behind::BehindError;

/// A server of its own, in a folder of its own.
struct PostgreSql {
    folder: TempDir,
    process: Option<Child>,
}

impl PostgreSql {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some(user) = user() {
            chown(folder.path(), Some(user), Some(user)).unwrap();
        }
        let flags = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"];
        let made = program("initdb").arg("-D").arg(folder.path().join("data")).args(flags).status().unwrap();
        assert!(made.success());
        let mut server = Self { folder, process: None };
        server.run();
        server
    }

    fn run(&mut self) {
        let mut program = program("postgres");
        let sockets = format!("unix_socket_directories={}", self.folder.path().display());
        program.arg("-D").arg(self.folder.path().join("data")).args(["-c", "listen_addresses=", "-c", &sockets]);
        self.process = Some(program.spawn().unwrap());
    }

    /// All of it, at once.
    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn options(&self, inodes_max: usize) -> DatabaseOptions {
        let address = format!("host={} user=postgres dbname=postgres", self.folder.path().display());
        DatabaseOptions { address, inodes_max }
    }
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn program(name: &str) -> Command {
    let programs = std::env::var_os("PG_PROGRAMS");
    let programs = programs.map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin"), PathBuf::from);
    let mut command = Command::new(programs.join(name));
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = user() {
        command.uid(user).gid(user);
    }
    command
}

/// Whom it runs as: it refuses to be root.
fn user() -> Option<u32> {
    let id = |arguments: &[&str]| -> u32 {
        let output = Command::new("id").args(arguments).output().unwrap().stdout;
        String::from_utf8(output).unwrap().trim().parse().unwrap()
    };
    (id(&["-u"]) == 0).then(|| id(&["-u", "postgres"]))
}

impl Running {
    fn database(&self) -> DatabaseFigures {
        self.files.figures().database.unwrap()
    }

    fn flushed(&self) {
        until(|| self.database().unflushed == 0);
    }

    fn mkdirs(&self, path: &str) {
        let request = Request::Mkdirs { path: path.to_owned(), mode: 0o755, with_parents: true };
        assert_eq!(self.call(&request), Ok(Reply::Bool(true)));
    }

    fn files_in(&self, path: &str) -> u64 {
        let (sender, receiver) = sync_channel(1);
        let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
        self.files.summary(&asker, path, move |summary| sender.send(summary).unwrap());
        receiver.recv_timeout(Duration::from_secs(30)).unwrap().unwrap().files
    }
}

struct Place {
    server: PostgreSql,
    disk: Arc<SimDisk>,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { server: PostgreSql::start(), disk: SimDisk::new(3), folder: tempfile::tempdir().unwrap() }
    }

    fn open(&self, epoch: u64, inodes_max: usize) -> Running {
        open(&self.disk, self.path(), epoch, Some(self.server.options(inodes_max))).unwrap()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

#[test]
fn names_may_be_more_than_what_is_in_memory() {
    let place = Place::new();
    let running = place.open(1, 20);
    for number in 0..40 {
        running.write(&format!("/d{}/{number}", number % 8), b"some bytes");
    }
    running.delete("/d0/0");
    running.flushed();
    until(|| running.database().cached <= 22);
    let check = |running: &Running| {
        for number in 1..40 {
            assert_eq!(running.length(&format!("/d{}/{number}", number % 8)), Some(10), "{number}");
        }
        assert_eq!((running.length("/d0/0"), running.length("/d9"), running.length("/d1/x")), (None, None, None));
        assert_eq!((running.files_in("/"), running.files_in("/d0")), (39, 4));
    };
    check(&running);
    assert!(running.database().misses > 0);
    running.stop();
    let running = place.open(2, 20);
    assert!(running.database().cached < 5, "it began without reading all");
    check(&running);
    running.delete("/d1");
    until(|| running.files.replicas().blocks().len() == 34);
    running.stop();
    let running = place.open(3, 1_000);
    assert_eq!((running.files_in("/"), running.files.replicas().blocks().len()), (34, 34));
    running.stop();
}

#[test]
fn what_is_in_memory_needs_no_database() {
    let mut place = Place::new();
    let running = place.open(1, 1_000);
    running.mkdirs("/a/b");
    running.write("/a/f", b"x");
    running.flushed();
    let before = running.database();
    place.server.kill();
    for number in 0..100 {
        running.mkdirs(&format!("/a/{number}"));
        assert_eq!((running.length("/a/f"), running.length("/a/none")), (Some(1), None));
    }
    assert_eq!((running.database().reads, running.database().misses), (before.reads, before.misses));
    until(|| running.database().errors > 0);
    assert!(running.database().unflushed > 0);
    place.server.run();
    running.flushed();
    running.stop();
    let running = place.open(2, 1_000);
    assert_eq!(running.length("/a/99"), Some(0));
    running.stop();
}

#[test]
fn what_needs_the_database_waits_and_is_refused() {
    let mut place = Place::new();
    let running = place.open(1, 1_000);
    running.mkdirs("/a/b");
    running.flushed();
    running.stop();
    let running = place.open(2, 1_000);
    place.server.kill();
    let request = Request::FileInfo { path: "/a/b".into() };
    let Err(Unanswered::Refused(error)) = running.call(&request) else { panic!("it is told") };
    assert_eq!(error.class, Class::Retriable);
    place.server.run();
    until(|| running.call(&request).is_ok());
    assert_eq!(running.length("/a/b"), Some(0));
    running.stop();
}

#[test]
fn what_was_answered_is_there_after_crashes_of_both() {
    let mut place = Place::new();
    let mut count = 0;
    for epoch in 1..5 {
        let running = place.open(epoch, 10);
        for number in 0..count {
            assert_eq!(running.length(&format!("/d/{number}")), Some(1), "epoch {epoch}");
        }
        for _ in 0..15 {
            running.write(&format!("/d/{count}"), b"x");
            count += 1;
        }
        if epoch % 2 == 0 {
            place.server.kill();
            place.disk.crash();
            place.server.run();
        } else {
            place.disk.crash();
        }
    }
    let running = place.open(9, 10);
    assert_eq!(running.files_in("/"), count);
    running.stop();
}

#[test]
fn names_in_memory_go_to_a_database_when_there_is_one() {
    let place = Place::new();
    let running = opened(&place.disk, place.path(), 1);
    running.write("/d/f", b"some bytes");
    let open_file = running.create("/d/open");
    running.stop();
    let running = place.open(2, 1);
    until(|| running.database().cached < 6);
    assert_eq!(running.length("/d/f"), Some(10));
    running.add_block(&open_file, None);
    running.stop();
    let running = place.open(3, 100);
    assert_eq!((running.length("/d/f"), running.files.figures().leases), (Some(10), 1));
    running.stop();
}

#[test]
fn a_database_has_one_owner_of_one_installation() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = Database::new(&place.server.options(1).address).unwrap();
    runtime.block_on(async {
        until_there(&database).await;
        let mut namespace = Namespace::new("root", Limits::default());
        namespace.is_kept();
        let (_, mut batch) = namespace.batches(10);
        batch.txid = Txid(5);
        database.write(NodeEpoch(1), &batch).await.unwrap();
        assert_eq!(database.claim("mine", NodeEpoch(2)).await.unwrap().txid, Txid(5));
        batch.txid = Txid(6);
        assert!(matches!(database.write(NodeEpoch(1), &batch).await, Err(DatabaseError::Replaced)));
        assert!(matches!(database.claim("mine", NodeEpoch(1)).await, Err(DatabaseError::Replaced)));
        assert_eq!(database.claim("mine", NodeEpoch(3)).await.unwrap().txid, Txid(5), "nothing of it is there");
        database.write(NodeEpoch(3), &batch).await.unwrap();
        database.write(NodeEpoch(3), &batch).await.unwrap();
    });
    let refused = open(&place.disk, place.path(), 4, Some(place.server.options(9))).map(|_| ()).unwrap_err();
    assert!(matches!(refused, HostError::Behind(BehindError::Database(DatabaseError::Pool { .. }))), "{refused}");
}

async fn until_there(database: &Database) {
    for _ in 0..300 {
        match database.claim("mine", NodeEpoch(1)).await {
            Ok(_) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("PostgreSQL does not start");
}
