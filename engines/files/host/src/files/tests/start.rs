//! The start of the data node in the process: names are served while it reads its replicas, which a pipe among them holds up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use super::*;
use crate::handle::{Brought, Errand};

/// What is asked, and not answered.
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

fn asked(running: &Running, request: &Request) -> Receiver<Answer> {
    let (sender, receiver) = sync_channel(1);
    let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
    // Who asked may have gone.
    running.files.call(&asker, request, move |answer| drop(sender.send(answer)));
    receiver
}

fn mkdirs(path: &str) -> Request {
    Request::Mkdirs { path: path.to_owned(), mode: 0o755.into(), with_parents: true }
}

fn listing(with_locations: bool) -> Request {
    Request::Listing { path: "/d".into(), after: Vec::new(), with_locations }
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
    assert_eq!(running.files.stats().missing, 0, "nobody knows that yet");
    let blocks = Request::BlockLocations { path: "/d/f".into(), offset: 0, length: u64::MAX };
    let located = Request::LocatedInfo { path: "/d/f".into() };
    let asks = [mkdirs("/made"), blocks, located, listing(true)];
    let answers = asks.each_ref().map(|request| asked(&running, request));
    let (sender, recovered) = sync_channel(1);
    let errand = Errand::RecoverLease { path: "/open".into(), client: "other".into() };
    running.files.run(&root, errand, move |told| sender.send(told).unwrap());
    assert_eq!(recovered.recv_timeout(SILENCE), Err(RecvTimeoutError::Timeout));
    for (answer, request) in answers.iter().zip(&asks) {
        assert_eq!(answer.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty), "{request:?}");
    }
    assert!(running.length("/made").is_none() && !running.files.has_read());
    let _writer = let_go(&pipe);
    let [made, blocks, located, listed] = answers.map(|answer| answer.recv_timeout(Duration::from_secs(30)).unwrap());
    assert_eq!(made, Ok(Reply::Bool(true)));
    let Ok(Reply::Blocks(blocks)) = blocks else { panic!("{blocks:?}") };
    assert!(blocks.blocks[0].is_there() && blocks.blocks[0].block == block, "{blocks:?}");
    let Ok(Reply::Status(Some(located))) = located else { panic!("{located:?}") };
    assert!(located.blocks.unwrap().blocks[0].is_there());
    let Ok(Reply::Listing(Some(listed))) = listed else { panic!("{listed:?}") };
    assert!(listed.entries[0].blocks.as_ref().unwrap().blocks[0].is_there());
    assert!(matches!(recovered.recv_timeout(Duration::from_secs(30)).unwrap(), Ok(Brought::Bool(_))));
    assert_eq!((running.files.safe_mode(&root, None), running.files.stats().missing), (Ok(false), 0));
    until(|| running.files.replicas().blocks() == [block.id]);
    assert!(!pipe.exists(), "no file has it");
    running.stop();
}

#[test]
fn who_stops_before_replicas_were_read_answers_nobody_and_removes_nothing() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let kept: Vec<BlockId> = (0..20).map(|number| running.write(&format!("/d/{number}"), b"some bytes").id).collect();
    running.stop();
    let pipe = hold(folder.path());
    let running = open_at_once(&disk, folder.path(), 2, None).unwrap();
    let made = asked(&running, &mkdirs("/made"));
    running.files.close().unwrap();
    let _writer = let_go(&pipe);
    running.upkeep.wait();
    assert!(matches!(made.recv(), Err(_) | Ok(Err(Unanswered::Gone))));
    let running = opened(&disk, folder.path(), 3);
    assert_eq!(running.length("/made"), None);
    let mut blocks = running.files.replicas().blocks();
    blocks.sort();
    blocks.retain(|block| block.0 != 512);
    assert_eq!(blocks, kept);
    running.stop();
}

#[test]
fn what_cannot_be_read_of_replicas_ends_the_service_with_the_reason() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(folder.path().join("blocks/05/blk_5.copy")).unwrap();
    let running = open_at_once(&disk, folder.path(), 1, None).unwrap();
    let made = asked(&running, &mkdirs("/made"));
    running.upkeep.wait();
    assert!(matches!(made.recv(), Err(_) | Ok(Err(Unanswered::Gone))));
    let error = running.files.close().unwrap_err().to_string();
    assert!(error.contains("blocks") && error.contains("check the permissions and the disk"), "{error}");
}
