//! Extended attributes and storage policies.

use savanna_files::change::{Attribute, AttributeSpace, CallId};
use savanna_files::{Class, Reply, Request};

use crate::world::{World, create, mkdirs};

fn set(path: &str, space: AttributeSpace, name: &str, value: &[u8], (creates, replaces): (bool, bool)) -> Request {
    let attribute = Attribute { space, name: name.into(), value: value.into() };
    Request::SetAttribute { path: path.to_owned(), attribute, creates, replaces }
}

fn user(path: &str, name: &str, value: &[u8]) -> Request {
    set(path, AttributeSpace::User, name, value, (true, true))
}

fn all(world: &mut World, who: &str, path: &str) -> Vec<(String, Vec<u8>)> {
    let request = Request::Attributes { path: path.to_owned(), names: Vec::new() };
    match world.call(who, &request, None).unwrap() {
        Reply::Attributes(all) => all.into_iter().map(|it| (it.name.into_string(), it.value.into_vec())).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn attributes_are_made_replaced_and_removed_as_the_client_allows() {
    let mut world = World::new();
    world.root(&mkdirs("/d")).unwrap();
    let of = |name: &str, flags| set("/d", AttributeSpace::User, name, b"1", flags);
    assert_eq!(world.refused("root", &of("a", (false, false))), Class::IllegalArgument);
    assert_eq!(world.refused("root", &of("a", (false, true))), Class::Io, "there is none to replace");
    world.root(&of("b", (true, false))).unwrap();
    assert_eq!(world.refused("root", &of("b", (true, false))), Class::Io, "there is one");
    world.root(&user("/d", "b", b"2")).unwrap();
    world.root(&user("/d", "a", b"")).unwrap();
    assert_eq!(world.refused("root", &user("/d", "", b"")), Class::IllegalArgument);
    assert_eq!(world.refused("root", &user("/d", "c", &[0; 16_384])), Class::IllegalArgument);
    world.restart();
    assert_eq!(all(&mut world, "root", "/d"), [("a".to_owned(), vec![]), ("b".to_owned(), b"2".to_vec())]);
    let remove = Request::RemoveAttribute { path: "/d".into(), space: AttributeSpace::User, name: "a".to_owned() };
    let call = Some(CallId { client: [7; 16], call: 1 });
    assert_eq!(world.call("root", &remove, call), Ok(Reply::Done));
    assert_eq!(world.call("root", &remove, call), Ok(Reply::Done), "the answer was lost");
    assert_eq!(world.refused("root", &remove), Class::Io);
    let named =
        |name: &str| Request::Attributes { path: "/d".into(), names: vec![(AttributeSpace::User, name.to_owned())] };
    assert_eq!(world.refused("root", &named("a")), Class::Io);
    world.root(&named("b")).unwrap();
    for number in 0..31 {
        world.root(&user("/d", &format!("n{number}"), b"")).unwrap();
    }
    assert_eq!(world.refused("root", &user("/d", "one too many", b"")), Class::Io);
}

#[test]
fn attributes_are_seen_and_set_by_who_may() {
    let mut world = World::new();
    world.root(&create("/f", false)).unwrap();
    world.root(&mkdirs("/tmp")).unwrap();
    world.root(&Request::SetPermission { path: "/tmp".into(), mode: 0o1777 }).unwrap();
    assert_eq!(world.refused("ann", &user("/f", "a", b"")), Class::AccessControl);
    assert_eq!(world.refused("ann", &user("/tmp", "a", b"")), Class::AccessControl, "the sticky bit");
    world.root(&user("/f", "a", b"")).unwrap();
    let trusted = set("/f", AttributeSpace::Trusted, "t", b"", (true, true));
    world.root(&trusted).unwrap();
    assert_eq!(world.refused("ann", &trusted), Class::AccessControl);
    assert_eq!(all(&mut world, "ann", "/f").len(), 1);
    assert_eq!(all(&mut world, "root", "/f").len(), 2);
    for space in [AttributeSpace::System, AttributeSpace::Security, AttributeSpace::Raw] {
        assert_eq!(world.refused("root", &set("/f", space, "x", b"", (true, true))), Class::AccessControl);
    }
    world.root(&Request::SetPermission { path: "/f".into(), mode: 0o600 }).unwrap();
    let read = Request::Attributes { path: "/f".into(), names: Vec::new() };
    assert_eq!(world.refused("ann", &read), Class::AccessControl);
}

#[test]
fn the_policy_of_a_directory_is_that_of_what_is_in_it() {
    let mut world = World::with_database();
    world.root(&mkdirs("/d/deep")).unwrap();
    world.root(&create("/d/deep/f", false)).unwrap();
    let policy = |policy| Request::SetPolicy { path: "/d".into(), policy };
    let has = |world: &mut World, path: &str| world.status(path).expect("an inode").policy;
    assert_eq!(has(&mut world, "/d/deep/f"), None);
    world.root(&policy(Some(2))).unwrap();
    world.root(&Request::SetPolicy { path: "/d/deep/f".into(), policy: Some(12) }).unwrap();
    assert_eq!(world.refused("ann", &policy(None)), Class::AccessControl);
    world.flush(100);
    world.restart();
    assert_eq!(
        (has(&mut world, "/d/deep"), has(&mut world, "/d/deep/f"), has(&mut world, "/")),
        (Some(2), Some(12), None)
    );
    world.root(&policy(None)).unwrap();
    assert_eq!((has(&mut world, "/d/deep"), has(&mut world, "/d/deep/f")), (None, Some(12)));
}
