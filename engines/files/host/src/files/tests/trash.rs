//! What is in the trash goes when it is old, and nothing else does.

use savanna_files::request::Status;

use super::*;
use crate::trash::Emptier;

const MINUTE: u64 = 60_000;

impl Running {
    fn names(&self, path: &str) -> Vec<String> {
        let request = Request::Listing { path: path.to_owned(), after: Vec::new(), with_locations: false };
        let Ok(Reply::Listing(Some(listing))) = self.call(&request) else { panic!("{path}: no directory") };
        listing.entries.into_iter().map(|Status { name, .. }| String::from_utf8(name.into_vec()).unwrap()).collect()
    }

    /// Has all that is due at an instant be done.
    fn empty(&self, emptier: &mut Emptier, now: u64) {
        for _ in 0..100 {
            emptier.turn(&self.files, Millis(now)).unwrap();
        }
    }
}

#[test]
fn what_is_in_the_trash_for_long_goes() {
    let folder = tempfile::tempdir().unwrap();
    let running = opened(&SimDisk::new(1), folder.path(), 1);
    let begin = 60 * MINUTE * 500_000;
    let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
    for path in ["/user/ann/.Trash/Current/d", "/user/ann/.Trash/notes", "/user/bob/.Trash/Current", "/user/eve/d"] {
        running.mkdirs(path);
    }
    running.create("/user/file");
    running.create("/user/zoe/.Trash");
    running.empty(&mut emptier, begin + 59 * MINUTE);
    assert_eq!(running.names("/user/ann/.Trash"), ["Current", "notes"], "it is not due");
    running.empty(&mut emptier, begin + 60 * MINUTE);
    let names = running.names("/user/ann/.Trash");
    let [first, notes] = names.as_slice() else { panic!("{names:?}") };
    assert_eq!(*notes, "notes", "it is no checkpoint");
    assert_eq!(running.names(&format!("/user/ann/.Trash/{first}")), ["d"]);
    assert_eq!(running.names("/user/bob/.Trash"), [first.as_str()]);
    running.mkdirs("/user/ann/.Trash/Current/later");
    // What was made in the same second has the name already.
    running.empty(&mut emptier, begin + 120 * MINUTE);
    let names = running.names("/user/ann/.Trash");
    assert_eq!((names.len(), &names[0]), (3, first), "an hour is not over yet: {names:?}");
    running.empty(&mut emptier, begin + 180 * MINUTE);
    assert_eq!(running.names("/user/ann/.Trash"), names[1..], "the first went");
    running.empty(&mut emptier, begin + 240 * MINUTE);
    assert_eq!(running.names("/user/ann/.Trash"), ["notes"]);
    assert_eq!(running.names("/user/bob/.Trash"), [""; 0]);
    assert_eq!(running.names("/user/eve"), ["d"]);
    running.files.close().unwrap();
}

#[test]
fn a_name_that_is_taken_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let running = opened(&SimDisk::new(1), folder.path(), 1);
    let begin = 60 * MINUTE * 500_000;
    running.mkdirs("/user/ann/.Trash/Current/d");
    for round in 0..3 {
        let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
        running.empty(&mut emptier, begin + 60 * MINUTE);
        let names = running.names("/user/ann/.Trash");
        assert_eq!(names.len(), round + 1, "{names:?}");
        running.mkdirs("/user/ann/.Trash/Current/d");
    }
    let names = running.names("/user/ann/.Trash");
    assert!(names.contains(&format!("{}-2", names[0])), "{names:?}");
    running.files.close().unwrap();
}

#[test]
fn a_large_trash_is_emptied_a_bit_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let running = opened(&SimDisk::new(1), folder.path(), 1);
    let begin = 60 * MINUTE * 500_000;
    let trash = "/user/ann/.Trash";
    for number in 0..20 {
        running.mkdirs(&format!("{trash}/200101000000-{number}"));
    }
    running.mkdirs("/user/bob/.Trash/200101000000");
    let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
    emptier.limit = Duration::ZERO;
    let due = Millis(begin + 60 * MINUTE);
    let mut before = 20;
    for turn in 0..80 {
        emptier.turn(&running.files, due).unwrap();
        let left = running.names(trash).len();
        assert!(left == before || left + 1 == before, "turn {turn}: {before}, then {left}");
        before = left;
    }
    assert_eq!((before, running.names("/user/bob/.Trash").len()), (0, 0));
    // While nothing can be changed it keeps its place.
    running.mkdirs(&format!("{trash}/200101000000"));
    let asker = Asker { user: "root", machine: "", call: None };
    running.files.safe_mode(&asker, Some(true)).unwrap();
    let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
    running.empty(&mut emptier, due.0);
    running.files.safe_mode(&asker, Some(false)).unwrap();
    running.empty(&mut emptier, due.0);
    assert_eq!(running.names(trash).len(), 1, "it waits for a while");
    emptier.hurry();
    running.empty(&mut emptier, due.0);
    assert_eq!(running.names(trash).len(), 0);
    // There may be more than are listed at once.
    for number in 0..1_100 {
        running.mkdirs(&format!("{trash}/200101000000-{number}"));
    }
    running.mkdirs(&format!("{trash}/Current"));
    running.empty(&mut Emptier::new(60, Millis(begin)).unwrap(), due.0);
    let names = running.names(trash);
    assert!(names.len() == 1 && names[0] != "Current", "{names:?}");
    running.files.close().unwrap();
}

/// One that a quota needs counted, and one that not.
fn two_trashes(running: &Running) {
    for number in 0..300 {
        running.make(&format!("/user/ann/.Trash/200101000000/{number}"));
    }
    running.make("/user/bob/.Trash/200101000000");
    running.limit("/user/ann", savanna_files::request::Limit::Most(1_000));
}

/// What a quota needs counted is deleted while others are looked after.
#[test]
fn nobody_waits_for_a_trash_that_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let running = opened(&SimDisk::new(1), folder.path(), 1);
    let begin = 60 * MINUTE * 500_000;
    two_trashes(&running);
    let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
    let held = counting::hold_threads(&running);
    for _ in 0..10 {
        // It comes back, whatever is not counted yet.
        emptier.turn(&running.files, Millis(begin + 60 * MINUTE)).unwrap();
    }
    assert_eq!(running.names("/user/ann/.Trash").len(), 1);
    drop(held);
    running.empty(&mut emptier, begin + 60 * MINUTE);
    assert_eq!((running.names("/user/ann/.Trash").len(), running.names("/user/bob/.Trash").len()), (0, 0));
    assert_eq!(running.used("/user/ann"), 2);
    running.files.close().unwrap();
}

#[test]
fn a_trash_that_is_refused_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let running = opened(&SimDisk::new(1), folder.path(), 1);
    let begin = 60 * MINUTE * 500_000;
    two_trashes(&running);
    counting::until_none_is_followed(&running);
    let counts = (0..16).map(|at| running.files.begin_count(InodeId(at), counting::user("root", true), false).unwrap());
    let counts: Vec<_> = counts.collect();
    let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
    running.empty(&mut emptier, begin + 60 * MINUTE);
    assert_eq!((running.names("/user/ann/.Trash").len(), running.names("/user/bob/.Trash").len()), (1, 0));
    drop(counts);
    running.empty(&mut emptier, begin + 120 * MINUTE);
    assert_eq!(running.names("/user/ann/.Trash").len(), 0);
    running.files.close().unwrap();
}

#[test]
fn many_users_have_their_turns() {
    let folder = tempfile::tempdir().unwrap();
    let running = opened(&SimDisk::new(1), folder.path(), 1);
    let begin = 60 * MINUTE * 500_000;
    for user in 0..1_100 {
        running.mkdirs(&format!("/user/{user:04}/.Trash/Current"));
    }
    let mut emptier = Emptier::new(60, Millis(begin)).unwrap();
    running.empty(&mut emptier, begin + 60 * MINUTE);
    for user in [0, 999, 1_000, 1_099] {
        let names = running.names(&format!("/user/{user:04}/.Trash"));
        assert!(names.len() == 1 && names[0] != "Current", "{user}: {names:?}");
    }
    running.files.close().unwrap();
}
