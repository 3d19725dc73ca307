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
