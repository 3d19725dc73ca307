//! With a database behind the log: a PostgreSQL, or tenants, if FILES_TEST_TENANTS says which program has them. A few tests need what only PostgreSQL has: other
//! encodings, a transaction that sleeps with its locks, and the last statement of each session. With tenants they do nothing.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use savanna_files::change::{AclEntry, AclKind, Kind, Quota, Retry, RetryAnswer, Row, Unfinished, Usage};
use savanna_files::flush::Batch;
use savanna_files::request::{AclEdit, Limit};
use savanna_files::{Key, Namespace, Stored};
use savanna_files_database::{Database, Owner, Place};
use tempfile::TempDir;

use super::*;
use crate::DatabaseFigures;
use crate::behind::BehindError;

mod away;
mod counting;
mod deep;
mod emptying;
mod steps;

/// A server of its own, in a folder of its own.
struct PostgreSql {
    folder: TempDir,
    process: Option<Child>,
    /// The program with tenants, and their port; nothing with PostgreSQL, which has a socket in its folder.
    tenants: Option<(PathBuf, u16)>,
}

/// Whether the tests have tenants, and no PostgreSQL.
fn have_tenants() -> bool {
    std::env::var_os("FILES_TEST_TENANTS").is_some()
}

impl PostgreSql {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some(program) = std::env::var_os("FILES_TEST_TENANTS") {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut server = Self { folder, process: None, tenants: Some((program.into(), port)) };
            server.run();
            return server;
        }
        if let Some(user) = user() {
            chown(folder.path(), Some(user), Some(user)).unwrap();
        }
        let flags = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"];
        let made = program("initdb").arg("-D").arg(folder.path().join("data")).args(flags).status().unwrap();
        assert!(made.success());
        let mut server = Self { folder, process: None, tenants: None };
        server.run();
        server
    }

    fn run(&mut self) {
        if let Some((program, port)) = &self.tenants {
            let mut command = Command::new(program);
            command.args(["dev", "--only", "tenants", "--set", &format!("tenants.port={port}"), "--data-dir"]);
            command
                .arg(self.folder.path().join("data"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            self.process = Some(command.spawn().unwrap());
            return;
        }
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
        DatabaseOptions { place: self.place("postgres"), inodes_max }
    }

    fn address(&self, database: &str) -> String {
        if let Some((_, port)) = &self.tenants {
            return format!("postgres://postgres@127.0.0.1:{port}/{database}");
        }
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}/{database}")
    }

    fn place(&self, database: &str) -> Place {
        Place::Address(self.address(database))
    }

    /// The database, for somebody else.
    fn database(&self, epoch: u64, process: u64) -> Database {
        Database::new(&self.place("postgres"), Owner { epoch: NodeEpoch(epoch), process }).unwrap()
    }

    fn query(&self, text: &str) -> String {
        let output =
            program("psql").args(["-At", &self.address("postgres"), "-c", text]).stdout(Stdio::piped()).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
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

    pub(super) fn mkdirs(&self, path: &str) {
        assert_eq!(self.call(&mkdirs(path)), Ok(Reply::Bool(true)));
    }

    fn files_in(&self, path: &str) -> u64 {
        self.counted("root", path).unwrap()
    }

    fn counted(&self, user: &str, path: &str) -> Result<u64, Unanswered> {
        let (sender, receiver) = sync_channel(1);
        let asker = Asker { user, machine: "127.0.0.1", call: None };
        self.files.summary(&asker, path, move |summary| sender.send(summary).unwrap());
        receiver.recv_timeout(Duration::from_secs(30)).unwrap().map(|summary| summary.files)
    }
}

fn mkdirs(path: &str) -> Request {
    Request::Mkdirs { path: path.to_owned(), mode: 0o755.into(), with_parents: true }
}

struct Scene {
    server: PostgreSql,
    disk: Arc<SimDisk>,
    folder: TempDir,
}

impl Scene {
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
    let place = Scene::new();
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
fn what_few_inodes_have_is_in_the_database() {
    let place = Scene::new();
    let running = place.open(1, 20);
    running.write("/q/f", b"some bytes");
    running.stop();
    // As the version before had it.
    place.server.query("ALTER TABLE inode DROP COLUMN more; UPDATE files_version SET version = 2");
    let running = place.open(2, 20);
    let (names, space) = (Limit::Most(9), Limit::Same);
    assert_eq!(running.call(&Request::SetQuota { path: "/q".to_owned(), names, space }), Ok(Reply::Done));
    running.write("/q/g", b"more");
    running.flushed();
    running.stop();
    let running = place.open(3, 20);
    let quota = running.call(&Request::Quota { path: "/q".to_owned() });
    let used = Usage { names: 3, space: 14 };
    assert_eq!(quota, Ok(Reply::Quota(Some(Quota { names: Some(9), space: None, used }))));
    running.stop();
}

#[test]
fn what_becomes_of_a_file_without_its_writer_is_in_the_database() {
    let place = Scene::new();
    let running = place.open(1, 20);
    let create = |path: &str| {
        Request::Create(Create {
            path: path.to_owned(),
            mode: 0o644.into(),
            client: path.to_owned(),
            overwrites: false,
            creates: true,
            with_parents: true,
            replication: 1,
            block_size: 1 << 20,
            is_all_or_nothing: true,
        })
    };
    let append = |path: &str, is_all_or_nothing| Request::Append {
        path: path.to_owned(),
        client: path.to_owned(),
        is_in_new_block: false,
        is_all_or_nothing,
    };
    assert!(running.call(&create("/goes")).is_ok() && running.call(&create("/stays")).is_ok());
    running.write("/cut", b"some bytes");
    running.flushed();
    assert!(running.call(&append("/cut", true)).is_ok());
    // What its first writer said counts no more when it has ended it.
    let file = Written { path: "/stays".to_owned(), id: None, client: "/stays".to_owned() };
    assert_eq!(running.call(&Request::Complete { file, last: None }), Ok(Reply::Bool(true)));
    running.flushed();
    assert!(running.call(&append("/stays", false)).is_ok());
    running.flushed();
    running.stop();
    let running = place.open(2, 20);
    let written: Vec<(String, InodeId, Unfinished)> = {
        let state = running.files.0.state.read();
        let namespace = &state.namespace;
        let mut written: Vec<_> = namespace
            .leases
            .all_files()
            .map(|id| {
                let writer = namespace.tree().get(id).and_then(|inode| inode.file()?.writer.clone()).unwrap();
                (namespace.path(id).unwrap(), id, writer.unfinished)
            })
            .collect();
        written.sort_by(|one, other| one.0.cmp(&other.0));
        written
    };
    let said: Vec<_> = written.iter().map(|(path, _, unfinished)| (path.as_str(), *unfinished)).collect();
    assert_eq!(said, [("/cut", Unfinished::CutTo(10)), ("/goes", Unfinished::Goes), ("/stays", Unfinished::Stays)]);
    for (path, id, _) in &written {
        running.files.leave(*id, path).unwrap();
    }
    let lengths = ["/cut", "/goes", "/stays"].map(|path| running.length(path));
    assert_eq!(lengths, [Some(10), None, Some(0)]);
    running.stop();
}

#[test]
fn the_generation_of_a_writer_is_in_the_database_while_its_file_is_closed() {
    let place = Scene::new();
    // Somebody may have more of it.
    std::fs::write(place.path().join("nodes"), "node 1\n").unwrap();
    let running = place.open(1, 20);
    let file = running.create("/f");
    let block = running.add_block(&file, None);
    running.flushed();
    let written = |running: &Running| {
        let state = running.files.0.state.read();
        let inode = state.namespace.tree().get(file.id.unwrap()).unwrap();
        let file = inode.file().unwrap();
        (file.writer.as_ref().unwrap().written, file.blocks[0].stamp)
    };
    assert_eq!(written(&running), (None, block.stamp));
    running.files.leave(file.id.unwrap(), "writer").unwrap();
    running.flushed();
    running.stop();
    for epoch in 2..4 {
        let running = place.open(epoch, 20);
        let (written, stamp) = written(&running);
        assert!(written == Some(block.stamp) && stamp > block.stamp, "{written:?} {stamp}");
        running.flushed();
        running.stop();
    }
}

#[test]
fn a_database_that_took_a_batch_late_is_gone_on_with() {
    let place = Scene::new();
    let owned = |process| {
        let behind = Behind::new(&place.server.place("postgres"), NodeEpoch(process), 9).unwrap();
        let found = behind.look("mine").unwrap();
        behind.flushed(behind.claim(found, Txid(100)).unwrap().txid);
        behind
    };
    let behind = owned(1);
    assert_eq!(behind.write(&batch(3)).unwrap(), Txid(3));
    behind.flushed(Txid(3));
    behind.write_late(&batch(9));
    let rows = behind.batch_rows();
    assert_eq!(behind.write(&batch(5)).unwrap(), Txid(9), "it has all of it");
    assert_eq!(behind.batch_rows(), rows);
    behind.flushed(Txid(9));
    // What nobody sent from here is somebody else's.
    place.server.query("UPDATE marker SET txid = 20");
    let refused = behind.write(&batch(12)).unwrap_err();
    assert!(matches!(refused, DatabaseError::WentBack { came: Txid(20), .. }), "{refused}");
}

#[test]
fn a_database_counts_what_a_list_lets_somebody_read() {
    let place = Scene::new();
    let running = place.open(1, 20);
    for number in 0..40 {
        running.write(&format!("/d/deep/{number}"), b"some bytes");
    }
    let path = || "/d/deep".to_owned();
    assert_eq!(running.call(&Request::SetPermission { path: path(), mode: 0o700 }), Ok(Reply::Done));
    let ann = AclEntry { is_default: false, kind: AclKind::User, name: Some("ann".into()), bits: 5 };
    let edit = AclEdit::Modify(vec![ann]);
    assert_eq!(running.call(&Request::EditAcl { path: path(), edit }), Ok(Reply::Done));
    running.flushed();
    running.stop();
    let running = place.open(2, 20);
    let before = running.database().reads;
    assert_eq!(running.counted("ann", "/d"), Ok(40));
    assert!(
        matches!(running.counted("eve", "/d"), Err(Unanswered::Refused(error)) if error.class == Class::AccessControl)
    );
    assert!(running.database().reads > before + 1, "it was the database that counted");
    running.stop();
}

#[test]
fn what_is_in_memory_needs_no_database() {
    let mut place = Scene::new();
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
    for number in 0..30 {
        let (from, to) = (format!("/a/b/{number}"), format!("/a/{number}/moved"));
        running.write(&from, b"made, written and closed");
        let rename = Request::Rename2 { from, to: to.clone(), overwrites: false };
        assert_eq!(running.call(&rename), Ok(Reply::Done));
        running.delete(&to);
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
    let mut place = Scene::new();
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

/// The database is slow, not away: somebody has a lock on the marker, which batches need and reads do not.
#[test]
fn reads_of_the_database_go_on_while_changes_wait_for_room() {
    if have_tenants() {
        return;
    }
    let place = Scene::new();
    let running = place.open(1, 1_000_000);
    running.mkdirs("/cold/b");
    running.flushed();
    running.stop();
    let running = place.open(2, 1_000_000);
    // It is made here, so nothing of it is elsewhere.
    running.mkdirs("/hot");
    let lock = "BEGIN; SELECT 1 FROM marker FOR UPDATE; SELECT pg_sleep(6)";
    let mut locking = program("psql").args([&place.server.address("postgres"), "-c", lock]).spawn().unwrap();
    let held = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FOR UPDATE%' AND wait_event = 'PgSleep'";
    until(|| place.server.query(held) == "1");
    let begun = Instant::now();
    let (sender, answers) = std::sync::mpsc::channel();
    let count = behind::UNFLUSHED_MAX / 2 + 100;
    for number in 0..count {
        let (request, sender) = (mkdirs(&format!("/hot/{number}")), sender.clone());
        let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
        running.files.call(&asker, &request, move |answer| sender.send(answer).unwrap());
    }
    assert!(running.database().unflushed as usize >= behind::UNFLUSHED_MAX);
    assert_eq!(running.length("/cold/b"), Some(0));
    assert!(running.database().unflushed as usize >= behind::UNFLUSHED_MAX, "the changes wait");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for _ in 0..count {
        assert_eq!(answers.recv_timeout(Duration::from_secs(30)).unwrap(), Ok(Reply::Bool(true)));
    }
    locking.wait().unwrap();
    running.stop();
}

#[test]
fn a_log_is_cut_behind_what_a_new_database_has() {
    let place = Scene::new();
    let running = opened(&place.disk, place.path(), 1);
    running.write("/d/f", b"some bytes");
    running.stop();
    let running = place.open(2, 1_000);
    running.mkdirs("/a");
    running.flushed();
    running.stop();
    let without = open(&place.disk, place.path(), 3, None).map(|_| ());
    assert!(matches!(without, Err(HostError::Gap { .. })), "{without:?}");
    let running = place.open(4, 1_000);
    assert_eq!((running.length("/d/f"), running.length("/a")), (Some(10), Some(0)));
    running.stop();
}

#[test]
fn what_was_answered_is_there_after_crashes_of_both() {
    let mut place = Scene::new();
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
    let place = Scene::new();
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

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_database_has_one_owner_of_one_installation() {
    let place = Scene::new();
    let [first, second, copy, third] =
        [(1, 1), (2, 2), (2, 3), (3, 4)].map(|(epoch, process)| place.server.database(epoch, process));
    runtime().block_on(async {
        let found = until_there(&first, "mine").await;
        first.claim(found, Txid(0)).await.unwrap();
        let mut batch = batch(5);
        first.write(Txid(0), &batch).await.unwrap();
        let found = second.look("mine").await.unwrap();
        first.write(Txid(5), &batch).await.unwrap();
        assert_eq!(second.claim(found, Txid(5)).await.unwrap().txid, Txid(5));
        batch.txid = Txid(6);
        assert!(matches!(first.write(Txid(5), &batch).await, Err(DatabaseError::Replaced)));
        assert!(matches!(first.fetch(&[Key::Id(InodeId::ROOT)]).await, Err(DatabaseError::Replaced)));
        assert!(matches!(first.without_file(Txid(0), &[]).await, Err(DatabaseError::Replaced)));
        assert!(matches!(first.look("mine").await, Err(DatabaseError::Replaced)));
        assert!(matches!(first.claim(found, Txid(9)).await, Err(DatabaseError::Replaced)));
        assert!(matches!(copy.look("mine").await, Err(DatabaseError::Replaced)), "of the same epoch");
        assert!(matches!(copy.claim(found, Txid(9)).await, Err(DatabaseError::Replaced)), "of the same epoch");
        let found = third.look("mine").await.unwrap();
        assert_eq!(found.txid, Txid(5), "nothing of it is there");
        assert!(matches!(third.claim(found, Txid(4)).await, Err(DatabaseError::WentBack { .. })), "beyond the log");
        third.claim(found, Txid(5)).await.unwrap();
        third.claim(found, Txid(5)).await.unwrap();
        third.write(Txid(5), &batch).await.unwrap();
        third.write(Txid(5), &batch).await.unwrap();
        assert_eq!(third.without_file(Txid(6), &[BlockId(1)]).await.unwrap(), [BlockId(1)]);
        let back = third.without_file(Txid(7), &[BlockId(1)]).await;
        assert!(matches!(back, Err(DatabaseError::WentBack { .. })), "what it lacks may have files: {back:?}");
    });
    let refused = open(&place.disk, place.path(), 4, Some(place.server.options(9))).map(|_| ()).unwrap_err();
    assert!(matches!(refused, HostError::Behind(BehindError::Database(DatabaseError::Pool { .. }))), "{refused}");
}

#[test]
fn a_batch_that_comes_late_does_nothing_and_a_database_that_went_back_is_noticed() {
    let place = Scene::new();
    let database = place.server.database(1, 1);
    runtime().block_on(async {
        let found = until_there(&database, "mine").await;
        database.claim(found, Txid(0)).await.unwrap();
        database.write(Txid(0), &batch(6)).await.unwrap();
        let late = database.write(Txid(0), &batch(5)).await;
        assert!(matches!(late, Err(DatabaseError::WentBack { came: Txid(6), .. })), "{late:?}");
        assert_eq!(place.server.query("SELECT txid FROM marker"), "6");
        place.server.query("UPDATE marker SET txid = 4");
        let back = database.write(Txid(6), &batch(7)).await;
        assert!(matches!(back, Err(DatabaseError::WentBack { expected: Txid(6), came: Txid(4) })), "{back:?}");
        assert_eq!(place.server.query("SELECT txid FROM marker"), "4");
    });
}

#[test]
fn tables_of_the_version_before_are_brought_up_unless_they_are_of_another_installation() {
    let place = Scene::new();
    let database = place.server.database(1, 1);
    runtime().block_on(until_there(&database, "mine"));
    place.server.query(
        "ALTER TABLE marker DROP COLUMN owner; ALTER TABLE inode DROP COLUMN more, DROP COLUMN unfinished, DROP COLUMN written; DROP TABLE answers; UPDATE files_version SET version = 1; UPDATE marker SET txid = 7; \
         INSERT INTO retry_answer SELECT decode(repeat('07', 16), 'hex'), n, n * 600000, n, 3, 9 FROM generate_series(1, 3) n",
    );
    runtime().block_on(async {
        let refused = database.look("yours").await;
        assert!(matches!(refused, Err(DatabaseError::Pool { .. })), "{refused:?}");
        assert_eq!(place.server.query("SELECT version FROM files_version"), "1");
        assert_eq!(
            place
                .server
                .query("SELECT count(*) FROM pg_attribute WHERE attrelid = 'marker'::regclass AND attname = 'owner'"),
            "0"
        );
        let found = database.look("mine").await.unwrap();
        assert_eq!(found.txid, Txid(7));
        assert_eq!(place.server.query("SELECT version FROM files_version"), "7");
        let found = database.claim(found, Txid(7)).await.unwrap();
        assert_eq!(found.txid, Txid(7));
        // Answers are kept for ten minutes.
        let retry = |n| {
            let answer = RetryAnswer::Created(InodeId(9));
            (Millis(n * 600_000), Txid(n), Retry { call: CallId { client: [7; 16], call: n as i32 }, answer })
        };
        let begun = database.beginning(found, Millis(3 * 600_000)).await.unwrap();
        assert_eq!(begun.retries, [retry(2), retry(3)]);
        let later = Batch { retries: vec![retry(4), retry(5)], at: Millis(5 * 600_000), ..batch(8) };
        database.write(Txid(7), &later).await.unwrap();
        assert_eq!(place.server.query("SELECT count(*) FROM answers"), "1");
        let begun = database.beginning(found, Millis(4 * 600_000)).await.unwrap();
        assert_eq!(begun.retries, [retry(3), retry(4), retry(5)], "of both tables, in their order");
        let last = Batch { at: Millis(6 * 600_000 + 1), ..batch(9) };
        database.write(Txid(8), &last).await.unwrap();
        assert_eq!(place.server.query("SELECT count(*) FROM answers"), "0", "they are old");
        // Version 6 did not know under which generation a file was written.
        place.server.query("ALTER TABLE inode DROP COLUMN written; UPDATE files_version SET version = 6");
        database.look("mine").await.unwrap();
        assert_eq!(place.server.query("SELECT version FROM files_version"), "7");
        let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'inode'::regclass AND attname = 'written'";
        assert_eq!(place.server.query(columns), "1");
    });
}

/// Nothing but a marker.
fn batch(txid: u64) -> Batch {
    let mut namespace = Namespace::new("root", Limits::default());
    namespace.is_kept();
    let (_, batch) = namespace.batches(10);
    Batch { txid: Txid(txid), ..batch }
}

#[test]
fn who_was_replaced_tells_nobody_anything() {
    let place = Scene::new();
    let running = place.open(1, 1_000);
    running.mkdirs("/a");
    running.flushed();
    let other = place.server.database(2, 2);
    runtime().block_on(async {
        let found = other.look(&running.files.identity().pool).await.unwrap();
        other.claim(found, found.txid).await.unwrap();
    });
    let request = Request::FileInfo { path: "/a".into() };
    // A change goes to the database, and that says so.
    let change = Request::Mkdirs { path: "/b".into(), mode: 0o755.into(), with_parents: true };
    let _ = running.call(&change);
    until(|| running.call(&request) == Err(Unanswered::Gone));
    assert_eq!(running.call(&change), Err(Unanswered::Gone));
    let closed = running.files.close();
    assert!(matches!(closed, Err(HostError::Lost(_))), "{closed:?}");
    running.upkeep.wait();
}

#[test]
fn a_process_that_ends_while_it_writes_all_names_leaves_a_database_that_has_nothing() {
    let place = Scene::new();
    let running = open(&place.disk, place.path(), 1, None).unwrap();
    for number in 0..5 {
        running.write(&format!("/d/{number}"), b"some bytes");
    }
    let pool = running.files.identity().pool.clone();
    running.stop();
    let other = place.server.database(2, 7);
    let left = async move {
        let found = until_there(&other, &pool).await;
        other.claim(found, Txid(99)).await.unwrap();
        let row = Row {
            id: InodeId(20_000),
            parent: InodeId::ROOT,
            name: b"left".as_slice().into(),
            owner: "root".into(),
            group: "root".into(),
            mode: 0o755,
            mtime: Millis(0),
            atime: Millis(0),
            kind: Kind::Directory,
            more: None,
        };
        let part = Batch { rows: vec![Stored { row, children: 0, txid: Txid(3) }], ..Batch::default() };
        let parts = std::iter::once(part).chain(std::iter::from_fn(|| panic!("it ends here")));
        other.replace(Txid(0), parts, &Batch { txid: Txid(9), ..Batch::default() }).await
    };
    let left = runtime().block_on(async { tokio::spawn(left).await }).map(drop).unwrap_err();
    assert!(left.is_panic());
    assert_eq!(place.server.query("SELECT txid, (SELECT count(*) FROM inode) FROM marker"), "0|1");
    let running = place.open(3, 1_000);
    assert_eq!((running.files_in("/"), running.length("/left")), (5, None));
    assert_eq!(place.server.query("SELECT count(*), count(*) FILTER (WHERE name = 'left') FROM inode"), "7|0");
    running.stop();
}

#[test]
fn a_start_that_is_refused_replaces_nobody() {
    let place = Scene::new();
    let running = place.open(1, 1_000);
    running.mkdirs("/a");
    running.flushed();
    let other = SimDisk::new(4);
    let refused = open(&other, place.path(), 2, Some(place.server.options(9))).map(|_| ()).unwrap_err();
    assert!(matches!(refused, HostError::Behindhand { log: 0, .. }), "{refused}");
    running.mkdirs("/b");
    running.flushed();
    assert_eq!(running.length("/b"), Some(0));
    running.stop();
}

#[test]
fn no_name_of_a_client_makes_the_database_refuse() {
    let place = Scene::new();
    let running = place.open(1, 1_000);
    running.mkdirs("/a");
    let owned = |owner: &str| Request::SetOwner { path: "/a".into(), owner: Some(owner.to_owned()), group: None };
    let Err(Unanswered::Refused(error)) = running.call(&owned("a\0b")) else { panic!("it is done") };
    assert_eq!(error.class, Class::IllegalArgument);
    assert_eq!(running.call(&owned("Зоя")), Ok(Reply::Done));
    let created = |client: String| {
        Request::Create(Create {
            path: "/f".to_owned(),
            mode: 0o644.into(),
            client,
            overwrites: false,
            creates: true,
            with_parents: true,
            replication: 1,
            block_size: 1 << 20,
            is_all_or_nothing: false,
        })
    };
    let Err(Unanswered::Refused(error)) = running.call(&created("a\0b".into())) else { panic!("it is done") };
    assert_eq!(error.class, Class::IllegalArgument);
    // Long, and it cannot be made short.
    let long: String = (0..10_000_u64).map(|at| (at * at * 7_919 % 100_003).to_string()).collect();
    assert!(running.call(&created(long)).is_ok());
    running.flushed();
    assert_eq!(place.server.query("SELECT owner FROM inode WHERE name = 'a'"), "Зоя");
    running.stop();
}

#[test]
fn a_database_that_cannot_have_all_texts_is_refused() {
    if have_tenants() {
        return;
    }
    let place = Scene::new();
    drop(place.open(1, 9));
    place.server.query("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let options = DatabaseOptions { place: place.server.place("latin"), inodes_max: 9 };
    let refused = open(&SimDisk::new(5), place.path(), 1, Some(options)).map(|_| ()).unwrap_err();
    assert!(matches!(refused, HostError::Behind(BehindError::Database(DatabaseError::Encoding { .. }))), "{refused}");
}

#[test]
fn an_address_that_cannot_be_read_is_not_shown() {
    for address in ["postgress://u:secret=x@h/d", "host=secret", "postgres://u:secret@h:port/d"] {
        let owner = Owner { epoch: NodeEpoch(1), process: 1 };
        let refused = Database::new(&Place::Address(address.to_owned()), owner).map(|_| ()).unwrap_err().to_string();
        assert!(!refused.contains("secret"), "{refused}");
    }
}

#[test]
fn a_sum_that_is_too_large_is_the_largest() {
    let place = Scene::new();
    let running = place.open(1, 1_000);
    running.write("/a/f", b"x");
    running.flushed();
    place.server.query("UPDATE inode SET length = 4611686018427387904, replication = 512 WHERE name = 'f'");
    let root = runtime().block_on(async {
        let other = place.server.database(2, 2);
        let found = other.look(&running.files.identity().pool).await.unwrap();
        other.claim(found, found.txid).await.unwrap();
        other.subtree(InodeId::ROOT).await.unwrap().0
    });
    assert_eq!((root.length, root.space), (1 << 62, i64::MAX.cast_unsigned()));
    drop(running);
}

/// Subtrees are counted on a connection of their own, which has more time than those that operations wait for.
#[test]
fn a_summary_holds_nobody_up() {
    if have_tenants() {
        return;
    }
    let place = Scene::new();
    let running = place.open(1, 3);
    for number in 0..20 {
        running.mkdirs(&format!("/a/{number}/b"));
    }
    running.flushed();
    until(|| running.database().cached <= 5);
    assert_eq!(running.files_in("/a"), 0);
    assert_eq!(running.length("/a/7/b"), Some(0));
    let sessions = |like: &str| {
        let from = "FROM pg_stat_activity WHERE application_name = 'savanna files'";
        place.server.query(&format!("SELECT string_agg(pid::text, ',' ORDER BY pid) {from} AND query LIKE '{like}'"))
    };
    let (counts, reads) = (sessions("%all_of_it%"), sessions("%WITH RECURSIVE way%"));
    assert!(!counts.is_empty() && !reads.is_empty() && counts != reads, "{counts} and {reads}");
    running.stop();
}

#[test]
fn a_replica_of_a_number_that_nobody_gave_is_not_taken_for_a_block() {
    let place = Scene::new();
    let running = place.open(1, 1_000);
    let last = running.write("/f", b"some bytes");
    let stray = BlockId(last.id.0 + 1);
    let mut writer = running.files.replicas().begin(stray, last.stamp, 512).unwrap();
    writer.write(0, b"stray", &[]).unwrap();
    writer.finish().unwrap();
    running.stop();
    let running = place.open(2, 1_000);
    assert_eq!(running.files.replicas().blocks(), [last.id], "it went before anybody was served");
    assert_eq!(running.write("/g", b"other").id, stray);
    // One that got a file after it was asked for.
    place.server.query(&format!("DELETE FROM block WHERE id = {}", stray.0));
    running.files.0.orphans.lock().push(stray);
    running.files.remove_orphans().unwrap();
    assert_eq!(running.files.stats().missing, 0);
    assert_eq!((running.length("/g"), running.files.replicas().blocks().len()), (Some(5), 2));
    running.stop();
    let running = place.open(3, 1_000);
    running.stop();
}

async fn until_there(database: &Database, pool: &str) -> savanna_files_database::Found {
    for _ in 0..300 {
        match database.look(pool).await {
            Ok(found) => return found,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("PostgreSQL does not start");
}
