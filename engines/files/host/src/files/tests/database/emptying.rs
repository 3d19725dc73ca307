//! Who deletes a large directory is asked what it may take away, wherever the names are.

use super::*;

const INODES: usize = 600;

/// A directory of `ann` with many in it; one of them is what the test makes of it.
fn made(running: &Running, path: &str) -> String {
    running.mkdirs(path);
    for number in 0..INODES / 2 {
        running.mkdirs(&format!("{path}/{number}/in"));
        own(running, &format!("{path}/{number}"), "ann", 0o755);
    }
    own(running, path, "ann", 0o755);
    format!("{path}/{}", INODES / 3)
}

fn own(running: &Running, path: &str, owner: &str, mode: u16) {
    let (path, owner) = (path.to_owned(), Some(owner.to_owned()));
    let owned = Request::SetOwner { path: path.clone(), owner, group: None };
    assert_eq!(running.call(&owned), Ok(Reply::Done));
    assert_eq!(running.call(&Request::SetPermission { path, mode }), Ok(Reply::Done));
}

fn delete(running: &Running, user: &str, path: &str) -> Result<bool, Class> {
    let request = Request::Delete { path: path.to_owned(), is_recursive: true };
    loop {
        match running.call_as(user, &request) {
            Ok(Reply::Bool(is_deleted)) => return Ok(is_deleted),
            // The machine has much to do.
            Err(Unanswered::Refused(error)) if error.class == Class::Retriable => {}
            Err(Unanswered::Refused(error)) => return Err(error.class),
            other => panic!("{other:?}"),
        }
    }
}

/// Four of them: one that may go, one with another's directory in it, one with another's list, one with the sticky bit.
fn all(running: &Running) {
    made(running, "/d/mine");
    let others = made(running, "/d/others");
    own(running, &others, "bob", 0o755);
    let listed = made(running, "/d/listed");
    own(running, &listed, "bob", 0o700);
    let ann = AclEntry { is_default: false, kind: AclKind::User, name: Some("ann".into()), bits: 7 };
    let edit = AclEdit::Modify(vec![ann]);
    assert_eq!(running.call(&Request::EditAcl { path: listed, edit }), Ok(Reply::Done));
    let sticky = made(running, "/d/sticky");
    own(running, &sticky, "bob", 0o1777);
    own(running, "/d", "ann", 0o755);
}

fn check(running: &Running) {
    assert_eq!(delete(running, "ann", "/d/others"), Err(Class::AccessControl));
    assert_eq!(delete(running, "ann", "/d/sticky"), Err(Class::AccessControl), "what is in it is root's");
    assert_eq!(delete(running, "eve", "/d/mine"), Err(Class::AccessControl));
    assert_eq!(delete(running, "ann", "/d/mine"), Ok(true));
    assert_eq!(delete(running, "ann", "/d/listed"), Ok(true));
    assert_eq!(delete(running, "ann", "/d"), Err(Class::AccessControl), "of the root that is");
    for (path, is_there) in [("/d/mine", false), ("/d/listed", false), ("/d/others", true), ("/d/sticky", true)] {
        assert_eq!(running.length(path).is_some(), is_there, "{path}");
    }
    assert_eq!(delete(running, "root", "/d"), Ok(true));
}

#[test]
fn rights_in_a_directory_are_asked_where_all_names_are_in_memory() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    all(&running);
    check(&running);
    running.stop();
}

#[test]
fn rights_in_a_directory_are_asked_where_none_are() {
    let place = Scene::new();
    let running = place.open(1, 20);
    all(&running);
    running.flushed();
    running.stop();
    let running = place.open(2, 20);
    let before = running.database();
    check(&running);
    assert!(running.database().reads > before.reads);
    running.stop();
}

/// What was changed since, and is not in the database yet, counts.
#[test]
fn rights_in_a_directory_are_those_of_now() {
    let place = Scene::new();
    let running = place.open(1, 1_000_000);
    let path = made(&running, "/d/mine");
    own(&running, "/d", "ann", 0o755);
    running.flushed();
    running.stop();
    let running = place.open(2, 1_000_000);
    own(&running, &path, "ann", 0o600);
    assert_eq!(delete(&running, "ann", "/d/mine"), Err(Class::AccessControl));
    own(&running, &path, "ann", 0o700);
    assert_eq!(delete(&running, "ann", "/d/mine"), Ok(true));
    running.stop();
}

fn id(running: &Running, path: &str) -> InodeId {
    match running.call(&Request::FileInfo { path: path.to_owned() }) {
        Ok(Reply::Status(Some(status))) => status.id,
        other => panic!("{other:?}"),
    }
}

fn rename(running: &Running, user: &str, from: &str, to: &str) -> bool {
    running.call_as(user, &Request::Rename { from: from.to_owned(), to: to.to_owned() }) == Ok(Reply::Bool(true))
}

#[test]
fn what_comes_into_a_directory_or_has_other_rights_there_is_asked_again() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.mkdirs("/d/mine/deep/er");
    running.mkdirs("/d/other/in");
    own(&running, "/d/mine", "ann", 0o755);
    let questions = &running.files.0.questions;
    let is_marked = |change: &dyn Fn()| {
        let number = questions.begin(id(&running, "/d/mine"), "ann");
        change();
        let is_marked = questions.unmarked(number).is_none();
        questions.end(number);
        is_marked
    };
    assert!(is_marked(&|| assert!(rename(&running, "root", "/d/other", "/d/mine/deep/er"))));
    assert!(is_marked(&|| own(&running, "/d/mine/deep/er", "root", 0o711)), "a mode");
    assert!(is_marked(&|| own(&running, "/d/mine", "ann", 0o700)), "its own");
    assert!(is_marked(&|| running.mkdirs("/d/mine/of/root")));
    let by_ann = mkdirs("/d/mine/of-ann/deep");
    assert!(!is_marked(&|| assert_eq!(running.call_as("ann", &by_ann), Ok(Reply::Bool(true)))), "what its user makes");
    assert!(!is_marked(&|| running.mkdirs("/d/elsewhere")));
    assert!(!is_marked(&|| running.delete("/d/mine/of")));
    let times = Request::SetTimes { path: "/d/mine/deep".into(), mtime: Some(Millis(5)), atime: None };
    assert!(!is_marked(&|| assert_eq!(running.call(&times), Ok(Reply::Done))));
    running.stop();
}

/// What is another's is moved there while the answer is on its way.
#[test]
fn nobody_deletes_what_is_others_by_moving_it_where_rights_were_asked() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.mkdirs("/shared/bob/in");
    own(&running, "/shared/bob", "bob", 0o700);
    own(&running, "/shared", "root", 0o777);
    for round in 0..5 {
        let big = format!("/ann/{round}");
        made(&running, &big);
        own(&running, "/ann", "ann", 0o755);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let done = || is_over.load(std::sync::atomic::Ordering::Relaxed);
        let into = format!("{big}/0/bob");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done() {
                    rename(&running, "ann", "/shared/bob", &into);
                    std::thread::sleep(Duration::from_micros(300));
                    rename(&running, "ann", &into, "/shared/bob");
                }
            });
            for _ in 0..20 {
                if delete(&running, "ann", &big) == Ok(true) {
                    break;
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let is_there = |path: &str| running.length(&format!("{path}/in")).is_some();
        assert!(is_there("/shared/bob") || is_there(&into), "round {round}");
        rename(&running, "root", &into, "/shared/bob");
    }
    running.stop();
}
