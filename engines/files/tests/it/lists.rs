//! Access control lists: whom they let in, and what is made below them.

use savanna_files::change::{AclEntry, AclKind};
use savanna_files::request::{AclEdit, Modes};
use savanna_files::{Class, Reply, Request};

use crate::world::{MEMBER, World, create, mkdirs};

fn entry(is_default: bool, kind: AclKind, name: &str, bits: u8) -> AclEntry {
    AclEntry { is_default, kind, name: Some(name).filter(|name| !name.is_empty()).map(Into::into), bits }
}

fn user(name: &str, bits: u8) -> AclEntry {
    entry(false, AclKind::User, name, bits)
}

fn group(name: &str, bits: u8) -> AclEntry {
    entry(false, AclKind::Group, name, bits)
}

fn modify(path: &str, entries: Vec<AclEntry>) -> Request {
    Request::EditAcl { path: path.to_owned(), edit: AclEdit::Modify(entries) }
}

fn chmod(path: &str, mode: u16) -> Request {
    Request::SetPermission { path: path.to_owned(), mode }
}

fn kept(world: &mut World, path: &str) -> (u16, Vec<AclEntry>) {
    match world.root(&Request::Acl { path: path.to_owned() }).unwrap() {
        Reply::Acl(list) => (list.mode, list.entries),
        other => panic!("{other:?}"),
    }
}

fn may(world: &mut World, who: &str, path: &str, mode: u16) -> bool {
    world.call(who, &Request::CheckAccess { path: path.to_owned(), mode }, None).is_ok()
}

#[test]
fn a_named_user_may_what_entry_and_mask_allow() {
    let mut world = World::new();
    world.root(&create("/f", false)).unwrap();
    world.root(&chmod("/f", 0o600)).unwrap();
    assert!(!may(&mut world, "ann", "/f", 4));
    world.root(&modify("/f", vec![user("ann", 6)])).unwrap();
    world.restart();
    assert!(may(&mut world, "ann", "/f", 6));
    assert!(!may(&mut world, "eve", "/f", 4), "one of the others");
    assert!(world.status("/f").unwrap().has_acl);
    // The bits of the group are the mask.
    world.root(&chmod("/f", 0o647)).unwrap();
    assert!(may(&mut world, "ann", "/f", 4) && !may(&mut world, "ann", "/f", 2));
    assert!(may(&mut world, "eve", "/f", 7));
    assert!(!may(&mut world, "ann", "/f", 1), "who is named is not one of the others");
    world.root(&Request::EditAcl { path: "/f".into(), edit: AclEdit::Clear }).unwrap();
    assert!(may(&mut world, "ann", "/f", 7));
    assert_eq!((world.status("/f").unwrap().has_acl, kept(&mut world, "/f")), (false, (0o607, Vec::new())));
}

#[test]
fn of_the_groups_of_a_user_one_has_to_allow_it() {
    let mut world = World::new();
    world.root(&create("/f", false)).unwrap();
    world.root(&Request::SetOwner { path: "/f".into(), owner: None, group: Some("staff".into()) }).unwrap();
    world.root(&chmod("/f", 0o607)).unwrap();
    world.root(&modify("/f", vec![group("guests", 4)])).unwrap();
    // A member of both: the group of the inode may nothing, the other one may read.
    assert!(may(&mut world, MEMBER, "/f", 4));
    assert!(!may(&mut world, MEMBER, "/f", 2), "and others may");
    world.root(&modify("/f", vec![user(MEMBER, 0)])).unwrap();
    assert!(!may(&mut world, MEMBER, "/f", 4), "its own entry comes first");
}

#[test]
fn the_owner_is_asked_by_the_mode_alone() {
    let mut world = World::new();
    world.root(&create("/f", false)).unwrap();
    world.root(&Request::SetOwner { path: "/f".into(), owner: Some("ann".into()), group: None }).unwrap();
    world.root(&chmod("/f", 0o400)).unwrap();
    world.root(&modify("/f", vec![user("ann", 7)])).unwrap();
    assert!(may(&mut world, "ann", "/f", 4) && !may(&mut world, "ann", "/f", 2));
    // And is who may change the list, beside the superuser.
    assert_eq!(world.refused("eve", &modify("/f", vec![user("eve", 7)])), Class::AccessControl);
    world.call("ann", &modify("/f", vec![user("eve", 4)]), None).unwrap();
    assert!(may(&mut world, "eve", "/f", 4));
}

#[test]
fn default_entries_let_nobody_into_their_directory() {
    let mut world = World::new();
    world.root(&mkdirs("/d")).unwrap();
    world.root(&chmod("/d", 0o770)).unwrap();
    world.root(&modify("/d", vec![entry(true, AclKind::User, "ann", 7)])).unwrap();
    assert!(!may(&mut world, "ann", "/d", 4));
    world.root(&modify("/d", vec![user("eve", 4)])).unwrap();
    assert!(may(&mut world, "eve", "/d", 4) && !may(&mut world, "ann", "/d", 4));
}

#[test]
fn what_is_made_in_a_directory_has_its_default_entries() {
    for mut world in [World::new(), World::with_database()] {
        world.root(&mkdirs("/d")).unwrap();
        world.root(&modify("/d", vec![entry(true, AclKind::User, "ann", 7)])).unwrap();
        world.root(&create("/d/f", false)).unwrap();
        let made = Request::Mkdirs {
            path: "/d/deep/er".to_owned(),
            mode: Modes { masked: 0o700, unmasked: Some(0o777) },
            with_parents: true,
        };
        world.root(&made).unwrap();
        world.flush(100);
        world.restart();
        let (mode, entries) = kept(&mut world, "/d/f");
        assert_eq!((mode & 0o070, entries), (0o040, vec![user("ann", 7), group("", 5)]), "a file is made with 644");
        let (_, of_parent) = kept(&mut world, "/d");
        for path in ["/d/deep", "/d/deep/er"] {
            let (mode, entries) = kept(&mut world, path);
            assert_eq!(mode, 0o775, "the mask of the client's process does not count");
            assert_eq!(entries[..2], [user("ann", 7), group("", 5)]);
            assert_eq!(entries[2..], of_parent);
        }
        assert!(may(&mut world, "ann", "/d/deep/er", 7));
    }
}

#[test]
fn only_directories_have_default_entries_and_what_is_no_list_is_refused() {
    let mut world = World::new();
    world.root(&create("/f", false)).unwrap();
    assert_eq!(world.refused("root", &modify("/f", vec![entry(true, AclKind::User, "ann", 7)])), Class::Acl);
    assert_eq!(world.refused("root", &modify("/f", vec![user("ann", 7), user("ann", 6)])), Class::Acl);
    assert_eq!(world.refused("root", &modify("/nothing", vec![user("ann", 7)])), Class::FileNotFound);
    assert_eq!(kept(&mut world, "/f"), (0o644, Vec::new()));
}
