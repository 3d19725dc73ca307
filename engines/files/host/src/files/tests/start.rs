//! The start of the data node in the process: names are served while it reads its replicas, which a pipe among them holds up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::handle::{Brought, Errand};

/// So long nothing happens.
const SILENCE: Duration = Duration::from_millis(200);

/// A replica that cannot be opened before somebody writes it.
fn hold(folder: &Path) -> PathBuf {
    let path = folder.join("blocks/00");
    std::fs::create_dir_all(&path).unwrap();
    let path = path.join("blk_512");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Whoever opens it goes on, as long as this is kept.
fn let_go(pipe: &Path) -> File {
    File::options().read(true).write(true).open(pipe).unwrap()
}

impl Running {
    fn run(&self, errand: Errand) -> Result<Brought, Unanswered> {
        let (sender, receiver) = sync_channel(1);
        let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
        self.files.run(&asker, errand, move |brought| sender.send(brought).unwrap());
        receiver.recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

fn mkdirs(path: &str) -> Request {
    Request::Mkdirs { path: path.to_owned(), mode: 0o755.into(), with_parents: true }
}

fn listing(with_locations: bool) -> Request {
    Request::Listing { path: "/d".into(), after: Vec::new(), with_locations }
}

fn class<T: fmt::Debug>(outcome: Result<T, Unanswered>) -> (Class, String) {
    match outcome {
        Err(Unanswered::Refused(error)) => (error.class, error.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_served_while_replicas_are_read() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let block = running.write("/d/f", b"some bytes");
    running.create("/open");
    running.stop();
    let pipe = hold(folder.path());
    let running = open_at_once(&disk, folder.path(), 2, None).unwrap();
    assert_eq!(running.length("/d/f"), Some(10));
    let Ok(Reply::Listing(Some(listed))) = running.call(&listing(false)) else { panic!("no listing") };
    assert_eq!(listed.entries.len(), 1);
    let root = Asker { user: "root", machine: "127.0.0.1", call: None };
    assert_eq!(running.files.safe_mode(&root, None), Ok(true));
    assert_eq!(class(running.files.safe_mode(&root, Some(false))).0, Class::Retriable, "it cannot be left");
    assert_eq!(running.files.stats().missing, 0, "nobody knows that yet");
    assert_eq!(running.files.0.begun.elapsed(), Duration::ZERO, "no data node is silent that was not heard");
    let (refused, words) = class(running.call(&mkdirs("/made")));
    assert!(refused == Class::SafeMode && words.contains("looks at the blocks"), "{words}");
    let blocks = Request::BlockLocations { path: "/d/f".into(), offset: 0, length: u64::MAX };
    let located = Request::LocatedInfo { path: "/d/f".into() };
    for request in [&blocks, &located, &listing(true)] {
        assert_eq!(class(running.call(request)).0, Class::Retriable, "{request:?}");
    }
    for errand in [
        Errand::RecoverLease { path: "/open".into(), client: "other".into() },
        Errand::Leave { file: running.id("/open"), client: "writer".into() },
    ] {
        assert_eq!(class(running.run(errand)).0, Class::Retriable);
    }
    assert!(running.run(Errand::Summary { path: "/".into() }).is_ok() && !running.files.has_read());
    let _writer = let_go(&pipe);
    assert!(running.files.wait_until_read(|| false));
    until(|| running.files.safe_mode(&root, None) == Ok(false));
    assert_eq!(running.length("/made"), None, "it was not done");
    assert_eq!(running.call(&mkdirs("/made")), Ok(Reply::Bool(true)));
    let Ok(Reply::Blocks(blocks)) = running.call(&blocks) else { panic!("no blocks") };
    assert!(blocks.blocks[0].is_there() && blocks.blocks[0].block == block, "{blocks:?}");
    assert_eq!(running.files.stats().missing, 0);
    until(|| running.files.replicas().blocks() == [block.id]);
    assert!(!pipe.exists(), "no file has it");
    running.stop();
}

#[test]
fn who_stops_before_replicas_were_read_removes_nothing() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let kept: Vec<BlockId> = (0..20).map(|number| running.write(&format!("/d/{number}"), b"some bytes").id).collect();
    running.stop();
    let pipe = hold(folder.path());
    let running = open_at_once(&disk, folder.path(), 2, None).unwrap();
    running.files.close().unwrap();
    let _writer = let_go(&pipe);
    running.upkeep.wait();
    let running = opened(&disk, folder.path(), 3);
    let mut blocks = running.files.replicas().blocks();
    blocks.sort();
    blocks.retain(|block| block.0 != 512);
    assert_eq!(blocks, kept);
    running.stop();
}

/// A directory with a file, and a replica with a number that was not given yet; begun with a lease, and held up while replicas are read.
fn begun_with_a_stray(folder: &Path) -> (Files, Upkeep, LeaseGuard, PathBuf) {
    let disk = SimDisk::new(3);
    let running = opened(&disk, folder, 1);
    let last = running.write("/f", b"some bytes");
    let stray = BlockId(last.id.0 + 1);
    let mut writer = running.files.replicas().begin(stray, last.stamp, 512).unwrap();
    writer.write(0, b"stray", &[]).unwrap();
    writer.finish().unwrap();
    running.stop();
    let pipe = hold(folder);
    let guard = lease();
    let options = HostOptions { lease: Some(guard.clone()), ..options(&disk, folder, 2, None) };
    let (files, upkeep) = Files::open(options).unwrap();
    (files, upkeep, guard, pipe)
}

/// Another process may have the directory by then, and give the numbers that were not given yet.
#[test]
fn without_a_lease_nothing_is_removed_at_a_start() {
    for is_read in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (files, upkeep, guard, pipe) = begun_with_a_stray(folder.path());
        // What was read is told to the names: the lease ends before that, or in the middle of it.
        let state = is_read.then(|| files.0.state.read());
        if !is_read {
            guard.revoke();
        }
        let writer = let_go(&pipe);
        if is_read {
            // Somebody waits to tell them.
            until(|| files.0.state.try_read().is_none());
        }
        guard.revoke();
        drop(state);
        std::thread::sleep(SILENCE);
        assert!(!files.has_read());
        files.close().unwrap();
        upkeep.wait();
        drop(writer);
        std::fs::remove_file(&pipe).unwrap();
        let (_, whole) = Replicas::open(folder.path().join("blocks")).unwrap();
        assert_eq!(whole.len(), 2, "{whole:?}");
    }
}

#[test]
fn what_cannot_be_read_of_replicas_ends_the_service_with_the_reason() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(folder.path().join("blocks/05/blk_5.copy")).unwrap();
    let running = open_at_once(&disk, folder.path(), 1, None).unwrap();
    until(|| running.call(&mkdirs("/made")) == Err(Unanswered::Gone));
    let error = running.files.close().unwrap_err().to_string();
    assert!(error.contains("blocks") && error.contains("check the permissions and the disk"), "{error}");
    running.upkeep.wait();
}
