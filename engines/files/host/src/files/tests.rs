use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use savanna_epoch::NodeEpoch;
use savanna_files::Limits;
use savanna_files::ids::{InodeId, Txid};
use savanna_files::request::{BlockName, Create, Written};
use savanna_journal::Options;
use savanna_journal::sim::{Fault, SimDisk};
use savanna_ownership::{BootClock, Clock as _, LeaseHolder, LeaseTerms};

use super::*;
use crate::options::{DatabaseOptions, HostOptions};
use crate::upkeep::Upkeep;

mod block;
mod counting;
mod database;
mod nodes;
mod start;
mod trash;
mod turns;

struct Running {
    files: Files,
    upkeep: Upkeep,
}

fn opened(disk: &Arc<SimDisk>, folder: &std::path::Path, epoch: u64) -> Running {
    open(disk, folder, epoch, None).unwrap()
}

fn open(
    disk: &Arc<SimDisk>,
    folder: &std::path::Path,
    epoch: u64,
    database: Option<DatabaseOptions>,
) -> Result<Running, HostError> {
    let running = open_at_once(disk, folder, epoch, database)?;
    running.files.wait_until_read(|| false);
    Ok(running)
}

/// The same, before its replicas were read.
fn open_at_once(
    disk: &Arc<SimDisk>,
    folder: &std::path::Path,
    epoch: u64,
    database: Option<DatabaseOptions>,
) -> Result<Running, HostError> {
    let (files, upkeep) = Files::open(options(disk, folder, epoch, database))?;
    Ok(Running { files, upkeep })
}

fn options(
    disk: &Arc<SimDisk>,
    folder: &std::path::Path,
    epoch: u64,
    database: Option<DatabaseOptions>,
) -> HostOptions {
    HostOptions {
        log: Options::disk(Arc::clone(disk) as _),
        epoch: NodeEpoch(epoch),
        lease: None,
        directory: folder.to_owned(),
        superuser: "root".to_owned(),
        limits: Limits::default(),
        trash: 0,
        silence: savanna_files::blocks::Silence::default(),
        database,
    }
}

/// A lease that covers any instant, until it is revoked.
fn lease() -> LeaseGuard {
    let clock = Arc::new(BootClock);
    let guard = LeaseGuard::new(Arc::<BootClock>::clone(&clock));
    let terms = LeaseTerms::new(Duration::from_secs(3_600), Duration::from_secs(1)).unwrap();
    guard.publish(&LeaseHolder::new(terms, clock.now()));
    guard
}

impl Running {
    fn call(&self, request: &Request) -> Answer {
        self.call_as("root", request)
    }

    fn call_as(&self, user: &str, request: &Request) -> Answer {
        let (sender, receiver) = sync_channel(1);
        let asker = Asker { user, machine: "127.0.0.1", call: None };
        self.files.call(&asker, request, move |answer| sender.send(answer).unwrap());
        receiver.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    fn create(&self, path: &str) -> Written {
        let request = Request::Create(Create {
            path: path.to_owned(),
            mode: 0o644.into(),
            client: "writer".to_owned(),
            overwrites: false,
            creates: true,
            with_parents: true,
            replication: 1,
            block_size: 1 << 20,
            is_all_or_nothing: false,
        });
        let Ok(Reply::Status(Some(status))) = self.call(&request) else { panic!("no file") };
        Written { path: path.to_owned(), id: Some(status.id), client: "writer".to_owned() }
    }

    fn add_block(&self, file: &Written, previous: Option<BlockName>) -> BlockName {
        let request = Request::AddBlock { file: file.clone(), previous, excluded: Vec::new() };
        let Ok(Reply::Block(located)) = self.call(&request) else { panic!("no block") };
        located.block
    }

    fn write(&self, path: &str, content: &[u8]) -> BlockName {
        let file = self.create(path);
        let block = self.add_block(&file, None);
        let mut writer = self.files.replicas().begin(block.id, block.stamp, 512).unwrap();
        writer.write(0, content, &[]).unwrap();
        self.files.received(writer.finish().unwrap());
        let last = BlockName { length: content.len() as u64, ..block };
        assert_eq!(self.call(&Request::Complete { file, last: Some(last) }), Ok(Reply::Bool(true)));
        last
    }

    fn delete(&self, path: &str) {
        let request = Request::Delete { path: path.to_owned(), is_recursive: true };
        assert_eq!(self.call(&request), Ok(Reply::Bool(true)));
    }

    fn length(&self, path: &str) -> Option<u64> {
        let Ok(Reply::Status(status)) = self.call(&Request::FileInfo { path: path.to_owned() }) else { panic!("none") };
        status.map(|status| status.length)
    }

    fn stop(self) {
        self.files.close().unwrap();
        self.upkeep.wait();
    }
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_was_answered_is_there_after_a_crash() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.write("/d/f", b"some bytes");
    let identity = running.files.identity().clone();
    disk.crash();
    let again = opened(&disk, folder.path(), 2);
    assert_eq!((again.length("/d/f"), again.files.identity()), (Some(10), &identity));
    assert_eq!(again.files.stats().missing, 0);
    assert_eq!(
        running.call(&Request::Mkdirs { path: "/x".into(), mode: 0o755.into(), with_parents: true }),
        Err(Unanswered::Gone)
    );
    again.stop();
}

#[test]
fn a_flush_that_fails_is_told_to_nobody() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.write("/f", b"x");
    disk.fail(1, Fault::PowerCut);
    let request = Request::Mkdirs { path: "/x".into(), mode: 0o755.into(), with_parents: true };
    assert_eq!(running.call(&request), Err(Unanswered::Gone));
    assert_eq!(
        running.call(&Request::FileInfo { path: "/x".into() }),
        Err(Unanswered::Gone),
        "who reads it is not told"
    );
    running.upkeep.wait();
}

#[test]
fn replicas_of_deleted_files_go_also_those_that_a_crash_left() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let kept = running.write("/kept", b"kept");
    for number in 0..3 {
        running.write(&format!("/d/{number}"), b"gone");
    }
    running.delete("/d");
    until(|| running.files.replicas().blocks() == [kept.id]);
    // One that no file ever had.
    drop(running.files.replicas().begin(BlockId(99), savanna_files::ids::Stamp(1), 512).unwrap());
    running.stop();
    let running = opened(&disk, folder.path(), 2);
    until(|| running.files.replicas().blocks() == [kept.id]);
    assert_eq!(running.length("/kept"), Some(4));
    running.stop();
}

#[test]
fn a_file_of_a_writer_that_has_gone_is_closed_on_demand() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let file = running.create("/f");
    let block = running.add_block(&file, None);
    let mut writer = running.files.replicas().begin(block.id, block.stamp, 512).unwrap();
    writer.write(0, b"flushed", &[]).unwrap();
    let other = Asker { user: "root", machine: "127.0.0.2", call: None };
    // "Not yet, ask again" is an answer, too.
    until(|| running.files.recover_lease(&other, "/f", "other") == Ok(true));
    assert_eq!(running.length("/f"), Some(7));
    assert!(writer.write(7, b"late", &[]).is_err());
    assert_eq!(running.files.recover_lease(&other, "/f", "other"), Ok(true), "it is closed");
    running.stop();
    let running = opened(&disk, folder.path(), 2);
    assert_eq!((running.length("/f"), running.files.stats().missing), (Some(7), 0));
    running.stop();
}

#[test]
fn what_many_ask_for_is_done_once_each() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let running = &running;
            scope.spawn(move || {
                for number in 0..50 {
                    running.create(&format!("/{client}/{number}"));
                }
            });
        }
    });
    let (sender, receiver) = sync_channel(1);
    let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
    running.files.summary(&asker, "/", move |summary| sender.send(summary).unwrap());
    let summary = receiver.recv().unwrap().unwrap();
    assert_eq!((summary.files, summary.directories), (200, 5));
    running.stop();
}

#[test]
fn only_the_superuser_turns_safe_mode_on() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let ann = Asker { user: "ann", machine: "127.0.0.1", call: None };
    assert!(running.files.safe_mode(&ann, Some(true)).is_err());
    assert_eq!(running.files.safe_mode(&ann, None), Ok(false));
    let root = Asker { user: "root", ..ann };
    assert_eq!(running.files.safe_mode(&root, Some(true)), Ok(true));
    let request = Request::Mkdirs { path: "/x".into(), mode: 0o755.into(), with_parents: true };
    let Err(Unanswered::Refused(error)) = running.call(&request) else { panic!("it is done") };
    assert_eq!(error.class, Class::SafeMode);
    assert_eq!(running.files.safe_mode(&root, Some(false)), Ok(false));
    running.stop();
}

/// Many requests are under way when the power goes; what was answered is there when it comes back.
#[test]
fn a_power_cut_takes_nothing_that_was_answered() {
    for seed in 0..5 {
        let (disk, folder) = (SimDisk::new(seed), tempfile::tempdir().unwrap());
        let (mut there, mut gone): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for epoch in 1..5 {
            let running = opened(&disk, folder.path(), epoch);
            for path in &there {
                assert!(running.length(path).is_some(), "seed {seed}, epoch {epoch}: {path} was made");
            }
            for path in &gone {
                assert_eq!(running.length(path), None, "seed {seed}, epoch {epoch}: {path} was deleted");
            }
            disk.fail(5 + seed % 7 * epoch, Fault::PowerCut);
            let (sender, answers) = sync_channel(10_000);
            let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
            let ask = |path: String, is_made: bool| {
                let request = match is_made {
                    true => Request::Mkdirs { path: path.clone(), mode: 0o755.into(), with_parents: true },
                    false => Request::Delete { path: path.clone(), is_recursive: true },
                };
                let sender = sender.clone();
                running.files.call(&asker, &request, move |answer| {
                    if answer == Ok(Reply::Bool(true)) {
                        sender.send((path, is_made)).unwrap();
                    }
                });
            };
            let old: Vec<String> = there.iter().take(20).cloned().collect();
            for number in 0..200 {
                ask(format!("/{epoch}/{number}"), true);
                if let Some(path) = old.get(number / 10) {
                    ask(path.clone(), false);
                }
            }
            // Few flushes may do for all of it.
            while !running.files.has_ended() {
                let request =
                    Request::Mkdirs { path: format!("/{epoch}/more"), mode: 0o755.into(), with_parents: true };
                let _ = running.call(&request);
                let _ = running.call(&Request::Delete { path: format!("/{epoch}/more"), is_recursive: true });
            }
            running.upkeep.wait();
            // It may have been deleted without an answer.
            there.retain(|path| !old.contains(path));
            for (path, is_made) in answers.try_iter() {
                if is_made { &mut there } else { &mut gone }.push(path);
            }
            disk.crash();
        }
        assert!(!there.is_empty(), "seed {seed}: something was answered");
    }
}

/// Whoever asks, by whatever way: what it is told may not be so any more.
#[test]
fn without_a_lease_nobody_is_told_anything() {
    let (disk, folder, guard) = (SimDisk::new(3), tempfile::tempdir().unwrap(), lease());
    let options = HostOptions { lease: Some(guard.clone()), ..options(&disk, folder.path(), 1, None) };
    let (files, upkeep) = Files::open(options).unwrap();
    files.wait_until_read(|| false);
    let running = Running { files, upkeep };
    running.write("/d/f", b"some bytes");
    running.create("/d/open");
    let root = Asker { user: "root", machine: "127.0.0.1", call: None };
    let made = Request::Mkdirs { path: "/d/f/g".into(), mode: 0o755.into(), with_parents: true };
    let change = Request::Mkdirs { path: "/e".into(), mode: 0o755.into(), with_parents: true };
    let read = Request::FileInfo { path: "/d/f".into() };
    let summary = || {
        let (sender, receiver) = sync_channel(1);
        running.files.summary(&root, "/", move |summary| sender.send(summary).unwrap());
        receiver.recv().unwrap().map(drop)
    };
    let ask = || {
        let files = &running.files;
        [
            running.call(&read).map(drop),
            running.call(&change).map(drop),
            running.call(&made).map(drop),
            summary(),
            files.safe_mode(&root, None).map(drop),
            files.check_superuser(&root),
            files.probe(),
            files.recover_lease(&root, "/d/f", "other").map(drop),
            files.leave(InodeId(1), "nobody"),
        ]
    };
    let refused = |told: &Result<(), Unanswered>| matches!(told, Err(Unanswered::Refused(_)));
    let told = ask();
    assert!(told[..2].iter().chain(&told[3..]).all(Result::is_ok) && refused(&told[2]), "{told:?}");
    guard.revoke();
    assert_eq!(ask().map(|told| told.unwrap_err()), [const { Unanswered::Gone }; 9]);
    running.stop();
}
