//! What large directories count for in quotas, while others change what is in them.

use std::sync::atomic::{AtomicBool, Ordering};

use savanna_files::Asking;
use savanna_files::change::Usage;
use savanna_files::request::Limit;

use super::*;

const INODES: usize = 2_000;

impl Running {
    pub(super) fn make(&self, path: &str) {
        let request = Request::Mkdirs { path: path.to_owned(), mode: 0o755.into(), with_parents: true };
        assert_eq!(self.call(&request), Ok(Reply::Bool(true)));
    }

    pub(super) fn limit(&self, path: &str, names: Limit) {
        let request = Request::SetQuota { path: path.to_owned(), names, space: Limit::Same };
        assert_eq!(self.call(&request), Ok(Reply::Done));
    }

    /// Names in a directory with a quota.
    pub(super) fn used(&self, path: &str) -> u64 {
        match self.call(&Request::Quota { path: path.to_owned() }) {
            Ok(Reply::Quota(Some(quota))) => quota.used.names,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn id(&self, path: &str) -> InodeId {
        match self.call(&Request::FileInfo { path: path.to_owned() }) {
            Ok(Reply::Status(Some(status))) => status.id,
            other => panic!("{other:?}"),
        }
    }

    /// Moves, also if that is refused for the moment. How often it was.
    pub(super) fn shift(&self, from: &str, to: &str) -> usize {
        let request = Request::Rename2 { from: from.to_owned(), to: to.to_owned(), overwrites: false };
        for refused in 0..1_000 {
            match self.call(&request) {
                Ok(Reply::Done) => return refused,
                Err(Unanswered::Refused(error)) if error.class == Class::Retriable => {}
                other => panic!("{other:?}"),
            }
        }
        panic!("it is never done")
    }
}

#[test]
fn what_changes_while_it_is_counted_counts() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.make("/d/a/b");
    running.make("/e/in");
    let id = running.id("/d");
    let of = |names| Some((id, Usage { names, space: 0 }));
    let count = running.files.begin_count(id);
    running.make("/d/a/before");
    assert_eq!(count.go_on(), Ok(true));
    assert_eq!(count.usage(), of(4));
    running.make("/d/a/behind");
    running.make("/elsewhere");
    assert_eq!(count.usage(), of(5));
    running.delete("/d/a/b");
    assert_eq!(count.usage(), of(4));
    running.shift("/e", "/d/e");
    assert_eq!(count.usage(), None, "it has to be counted again");
    running.stop();
}

#[test]
fn a_directory_in_which_others_write_is_moved_between_quotas() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    for number in 0..INODES / 2 {
        running.make(&format!("/d/{number}/in"));
    }
    for quota in ["/q", "/r"] {
        running.make(quota);
        running.limit(quota, Limit::Most(1 << 20));
    }
    running.shift("/d", "/q/d");
    assert_eq!(running.used("/q"), 2 + INODES as u64);
    let id = running.id("/q/d");
    let is_over = AtomicBool::new(false);
    let made: usize = std::thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            let (running, is_over) = (&running, &is_over);
            scope.spawn(move || {
                let mut made = 0;
                while !is_over.load(Ordering::Relaxed) {
                    // Wherever it is by now.
                    let path = format!("/.reserved/.inodes/{id}/{}/{writer}-{made}", made * 7 % (INODES / 2));
                    running.make(&path);
                    made += 1;
                    if made % 3 == 0 {
                        running.delete(&path);
                        running.make(&path);
                    }
                }
                made
            })
        });
        for _ in 0..10 {
            running.shift("/q/d", "/r/d");
            running.shift("/r/d", "/q/d");
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert!(made > 0);
    assert_eq!((running.used("/q"), running.used("/r")), ((2 + INODES + made) as u64, 1));
    running.delete("/q/d");
    assert_eq!(running.used("/q"), 1, "at once");
    running.stop();
}

#[test]
fn who_cannot_be_counted_is_told_why() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.make("/d/in");
    let (sender, receiver) = sync_channel(1);
    let waiting = Waiting {
        user: "root".into(),
        machine: "127.0.0.1".into(),
        call: None,
        groups: Arc::default(),
        request: Request::Rename2 { from: "/d".into(), to: "/q".into(), overwrites: false },
        missing: Missing(Vec::new()),
        asked: 10,
        question: None,
        count: None,
        deadline: Instant::now(),
        answer: Box::new(move |answer| sender.send(answer).unwrap()),
    };
    running.files.ask_first(waiting, Asking::Usage(running.id("/d")));
    let Err(Unanswered::Refused(why)) = receiver.recv().unwrap() else { panic!("it is counted without end") };
    assert_eq!(why.class, Class::Retriable);
    assert!(why.message.contains("quotas") && why.message.contains("try again"), "{why}");
    running.stop();
}
