//! What large directories count for in quotas, while others change what is in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use savanna_files::Asking;
use savanna_files::change::Usage;
use savanna_files::request::Limit;

use super::*;
use crate::files::counting::{Count, CountUser};

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
    let (count, walk) = running.files.begin_count(id, user("root", true), false).unwrap();
    running.make("/d/a/before");
    assert_eq!(walk.as_ref().unwrap().go_on(), Ok(true));
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

/// Nobody asks or counts anything as long as these are kept, and whatever is asked meanwhile waits before what is held next.
pub(super) fn hold_threads(running: &Running) -> Vec<Sender<()>> {
    let hold = |_| {
        let (sender, receiver) = channel::<()>();
        running.files.0.questions.handle.spawn_blocking(move || receiver.recv());
        sender
    };
    (0..4).map(hold).collect()
}

/// A count is given up just behind the answer for which it was.
pub(super) fn until_none_is_followed(running: &Running) {
    let begun = Instant::now();
    while !running.files.0.questions.counts.are_over().is_empty() {
        assert!(begun.elapsed().as_secs() < 60, "none is followed any more");
        std::thread::yield_now();
    }
}

pub(super) fn rename2(from: &str, to: &str) -> Request {
    Request::Rename2 { from: from.to_owned(), to: to.to_owned(), overwrites: false }
}

pub(super) fn begin(running: &Running, request: &Request) -> Receiver<Answer> {
    let (sender, receiver) = sync_channel(1);
    let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
    running.files.call(&asker, request, move |answer| sender.send(answer).unwrap());
    receiver
}

fn large(running: &Running) {
    for number in 0..300 {
        running.make(&format!("/d/{number}"));
    }
    running.make("/q");
    running.limit("/q", Limit::Most(1 << 20));
}

#[test]
fn a_directory_is_counted_once_for_all_who_wait_for_it() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    large(&running);
    let held = hold_threads(&running);
    let answers: Vec<_> = (0..300).map(|number| begin(&running, &rename2("/d", &format!("/q/{number}")))).collect();
    assert_eq!(running.files.0.questions.counts.are_over(), [false]);
    // Others are counted beside it, but not all at once.
    for number in 0..20 {
        for name in 0..300 {
            running.make(&format!("/e/{number}/{name}"));
        }
    }
    let others: Vec<_> =
        (0..20).map(|number| begin(&running, &rename2(&format!("/e/{number}"), &format!("/q/e{number}")))).collect();
    assert_eq!(running.files.0.questions.counts.are_over(), [false; 16]);
    drop(held);
    let done = |answers: Vec<Receiver<Answer>>| {
        answers.into_iter().filter(|answer| answer.recv().unwrap() == Ok(Reply::Done)).count()
    };
    assert_eq!((done(answers), done(others)), (1, 15));
    assert_eq!(running.used("/q"), 1 + 301 + 15 * 301);
    until_none_is_followed(&running);
    running.stop();
}

/// What a user may take away is asked first, and still has to be so when the directory was counted.
#[test]
fn rights_that_change_while_a_directory_is_counted_are_asked_again() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.make("/q");
    running.limit("/q", Limit::Most(1 << 20));
    let owned = Request::SetOwner { path: "/q".into(), owner: Some("ann".into()), group: None };
    assert_eq!(running.call(&owned), Ok(Reply::Done));
    for (round, (others, may)) in [("/q/d/others", true), ("/q/d/others/in", false)].into_iter().enumerate() {
        for number in 0..300 {
            let request = Request::Mkdirs { path: format!("/q/d/{number}"), mode: 0o755.into(), with_parents: true };
            assert_eq!(running.call_as("ann", &request), Ok(Reply::Bool(true)));
        }
        let held = hold_threads(&running);
        let (sender, answer) = sync_channel(1);
        let asker = Asker { user: "ann", machine: "127.0.0.1", call: None };
        let request = Request::Delete { path: "/q/d".into(), is_recursive: true };
        running.files.call(&asker, &request, move |answer| sender.send(answer).unwrap());
        assert_eq!(running.files.0.questions.counts.are_over(), [false; 0], "rights first");
        let next = hold_threads(&running);
        drop(held);
        until(|| running.files.0.questions.counts.are_over() == [false]);
        // It is neither the first nor the last, and root's.
        running.make(others);
        drop(next);
        let answer = answer.recv().unwrap();
        if may {
            assert_eq!((answer, running.used("/q")), (Ok(Reply::Bool(true)), 1), "round {round}");
        } else {
            let Err(Unanswered::Refused(why)) = answer else { panic!("{answer:?}") };
            assert_eq!(why.class, Class::AccessControl, "{why}");
            assert_eq!(running.used("/q"), 1 + 1 + 300 + 2);
        }
    }
    running.stop();
}

pub(super) fn user(name: &str, may_all: bool) -> CountUser {
    CountUser { name: name.to_owned(), may_all }
}

#[test]
fn nobody_has_all_counts() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let begin = |number, user| running.files.begin_count(InodeId(number), user, false);
    let of = |name: &str, number: u64| -> Vec<_> {
        (0..20).filter_map(|at| begin(number + at, user(name, false))).collect()
    };
    let counts = [of("ann", 100), of("bob", 200), of("eve", 300), of("joe", 400)];
    assert_eq!(counts.each_ref().map(Vec::len), [4, 4, 4, 0]);
    let of_root: Vec<_> = (0..20).filter_map(|at| begin(500 + at, user("root", true))).collect();
    assert_eq!(of_root.len(), 4, "what is left for who may do everything");
    let shared: Vec<_> = (0..200).map_while(|_| begin(100, user("joe", false))).collect();
    assert_eq!(shared.len(), 128, "one that is there is shared");
    let of_all = |from: usize| -> Vec<_> {
        let names = (from..from + 20).flat_map(|at| std::iter::repeat_n(format!("user {at}"), 128));
        names.map_while(|name| begin(100, user(&name, false))).collect()
    };
    let of_others = of_all(0);
    assert_eq!(4 * 3 + 4 + shared.len() + of_others.len(), 1_024 - 128);
    let of_root = (of_root, begin(100, user("root", true)).unwrap());
    drop((of_others, shared, of_root));
    // Who waits for those of others has begun none.
    let [ann, bob, eve, _] = counts;
    drop(eve);
    let shared: Vec<_> =
        [100, 200].into_iter().flat_map(|id| (id..id + 4).map(|id| begin(id, user("joe", false)))).collect();
    let own: Vec<_> = (0..20).filter_map(|at| begin(400 + at, user("joe", false))).collect();
    assert_eq!((shared.iter().flatten().count(), own.len()), (8, 4));
    let again = running.files.begin_count(InodeId(450), user("joe", false), true);
    assert!(again.is_some(), "one that was over counts no more");
    drop((ann, bob, shared, own, again));
    assert_eq!(running.files.0.questions.counts.are_over(), [false; 0]);
    running.stop();
}

#[test]
fn what_is_never_the_same_is_not_counted_for_ever() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    large(&running);
    running.make("/other/in");
    let mut held = hold_threads(&running);
    let answer = begin(&running, &rename2("/d", "/q/d"));
    for number in 0..10 {
        // It comes, and goes.
        let (from, to) = if number % 2 == 0 { ("/other", "/d/other") } else { ("/d/other", "/other") };
        running.shift(from, to);
        assert_eq!(running.files.0.questions.counts.are_over(), [true], "it has to be counted again");
        let next = hold_threads(&running);
        drop(std::mem::replace(&mut held, next));
        until(|| matches!(running.files.0.questions.counts.are_over()[..], [false] | []));
    }
    drop(held);
    let Err(Unanswered::Refused(why)) = answer.recv().unwrap() else { panic!("it is done") };
    assert!(why.class == Class::Retriable && why.message.contains("come or go there"), "{why}");
    running.stop();
}

/// A request for which something was counted so often, and what it is answered.
fn counted(request: Request, times: usize, count: Option<Count>) -> (Waiting, Receiver<Answer>) {
    let (sender, receiver) = sync_channel(1);
    let waiting = Waiting {
        user: "root".into(),
        machine: "127.0.0.1".into(),
        call: None,
        groups: Arc::default(),
        request,
        missing: Missing(Vec::new()),
        asked: 0,
        counted: times,
        question: None,
        count,
        deadline: Instant::now(),
        answer: Box::new(move |answer| sender.send(answer).unwrap()),
    };
    (waiting, receiver)
}

#[test]
fn who_cannot_be_counted_is_told_why() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.make("/d/in");
    let (waiting, answer) = counted(rename2("/d", "/q"), 10, None);
    running.files.ask_first(waiting, Asking::Usage(running.id("/d")));
    let Err(Unanswered::Refused(why)) = answer.recv().unwrap() else { panic!("it is counted without end") };
    assert_eq!(why.class, Class::Retriable);
    assert!(why.message.contains("quotas") && why.message.contains("try again"), "{why}");
    running.stop();
}

/// What was counted once is true for each who waited for it, also behind what the first one did, and others.
#[test]
fn what_was_counted_once_is_used_by_all_who_waited() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    large(&running);
    let begin = || running.files.begin_count(running.id("/d"), user("root", true), false).unwrap();
    let ((first, walk), (second, another)) = (begin(), begin());
    assert!(another.is_none(), "one counts for all");
    let walk = walk.unwrap();
    while walk.go_on() == Ok(false) {}
    // Nothing is counted again.
    let held = hold_threads(&running);
    let limit = Request::SetQuota { path: "/q/d".into(), names: Limit::Most(1 << 20), space: Limit::Same };
    for (request, count) in [(rename2("/d", "/q/d"), first), (limit, second)] {
        let (waiting, answer) = counted(request, 1, Some(count));
        running.files.decide_asked(waiting);
        assert_eq!(answer.recv_timeout(Duration::from_secs(30)), Ok(Ok(Reply::Done)));
        running.make(&format!("/q/d/new{}", running.used("/q")));
    }
    assert_eq!((running.used("/q/d"), running.used("/q")), (1 + 300 + 2, 1 + 1 + 300 + 2));
    drop((held, walk));
    until_none_is_followed(&running);
    running.stop();
}

/// Whoever waited hears that nobody counts any more, and who comes then is counted for.
#[test]
fn a_count_that_is_given_up_is_given_up_for_all_who_wait() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    large(&running);
    let (count, walk) = running.files.begin_count(running.id("/d"), user("root", true), false).unwrap();
    let answers: Vec<_> = (0..3).map(|_| begin(&running, &rename2("/d", "/q/d"))).collect();
    assert_eq!(running.files.0.questions.counts.are_over(), [false], "they wait for the same");
    drop(walk);
    for answer in answers {
        let Err(Unanswered::Refused(why)) = answer.recv_timeout(Duration::from_secs(30)).unwrap() else {
            panic!("it is done")
        };
        assert_eq!(why.class, Class::Io, "{why}");
    }
    assert_eq!(begin(&running, &rename2("/d", "/q/d")).recv_timeout(Duration::from_secs(30)), Ok(Ok(Reply::Done)));
    assert_eq!(running.used("/q"), 1 + 1 + 300);
    drop(count);
    until_none_is_followed(&running);
    running.stop();
}
