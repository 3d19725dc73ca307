//! Paths that begin with the number of an inode, and files that their writers take away.

use savanna_files::ids::InodeId;
use savanna_files::operation::Walk;
use savanna_files::request::Written;
use savanna_files::{Class, Reply, Request};

use crate::world::{World, concat, create, delete, mkdirs, rename2, written};

fn by_number(id: InodeId) -> String {
    format!("/.reserved/.inodes/{id}")
}

fn info(path: &str) -> Request {
    Request::FileInfo { path: path.to_owned() }
}

#[test]
fn a_number_names_the_same_whatever_it_is_called() {
    for mut world in [World::new(), World::with_database()] {
        world.root(&mkdirs("/a/b")).unwrap();
        let [a, b] = ["/a", "/a/b"].map(|path| world.status(path).unwrap().id);
        assert_eq!(world.status(&by_number(b)).unwrap().id, b);
        world.root(&rename2("/a/b", "/c", false)).unwrap();
        // All that was flushed may be given up.
        if world.database.is_some() {
            while world.namespace.txid() > world.database.as_ref().unwrap().txid {
                world.flush(100);
            }
            while world.namespace.give_up(2, 100) > 0 {}
        }
        assert_eq!(world.status(&by_number(b)).unwrap().id, b);
        assert_eq!(world.status(&format!("{}/b", by_number(a))), None, "it is elsewhere");
        assert_eq!(world.status(&format!("{}/..", by_number(b))).unwrap().id, InodeId::ROOT);
        assert_eq!(world.status(&format!("{}/..", by_number(InodeId::ROOT))).unwrap().id, InodeId::ROOT);
        world.root(&mkdirs(&format!("{}/d/e", by_number(b)))).unwrap();
        assert!(world.status("/c/d/e").is_some());
        world.root(&rename2(&format!("{}/d", by_number(b)), &format!("{}/d", by_number(a)), false)).unwrap();
        assert!(world.status("/a/d/e").is_some());
        assert!(world.status(&format!("{}/c", by_number(InodeId::ROOT))).is_some());
        let context = world.context("root", None);
        let walk = world.with_all(|namespace, known| Walk::begin(namespace, &context, &by_number(a), known));
        assert!(walk.is_ok());
        assert_eq!(world.root(&delete(&by_number(b))), Ok(Reply::Bool(true)));
        assert!(world.status("/c").is_none());
        assert_eq!(world.refused("root", &info(&by_number(b))), Class::FileNotFound, "it went");
        for wrong in ["x", "", "-1", "16384", "1"] {
            let path = format!("/.reserved/.inodes/{wrong}");
            assert_eq!(world.refused("root", &info(&path)), Class::FileNotFound, "{path}");
        }
    }
}

#[test]
fn a_number_opens_no_door() {
    let mut world = World::new();
    world.root(&mkdirs("/private/deep")).unwrap();
    let deep = world.status("/private/deep").unwrap().id;
    world.root(&Request::SetPermission { path: "/private".into(), mode: 0o700 }).unwrap();
    assert_eq!(world.refused("ann", &info(&by_number(deep))), Class::AccessControl);
    assert_eq!(world.refused("ann", &delete(&by_number(deep))), Class::AccessControl);
    let id = world.write("/private/f", &[64]).unwrap();
    world.write("/private/g", &[64]).unwrap();
    assert_eq!(world.refused("ann", &concat("/private/g", &[&by_number(id)])), Class::AccessControl);
    world.root(&concat("/private/g", &[&by_number(id)])).unwrap();
    assert!(world.status("/private/f").is_none());
    // What was deleted as a whole is not found by the numbers that are left of it.
    for number in 0..300 {
        world.root(&mkdirs(&format!("/large/{number}"))).unwrap();
    }
    let left = world.status("/large/7").unwrap().id;
    world.root(&delete("/large")).unwrap();
    assert_eq!(world.refused("root", &info(&by_number(left))), Class::FileNotFound);
}

#[test]
fn who_writes_a_file_takes_it_away_and_nobody_else() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/f", false)) else { panic!("no file") };
    let file = written("/f", status.id);
    let other = Written { client: "other".into(), ..file.clone() };
    assert_eq!(world.refused("root", &Request::GiveUp { file: other }), Class::LeaseExpired);
    // Whatever it is called now, and whatever is there.
    world.root(&rename2("/f", "/g", false)).unwrap();
    world.write("/f", &[1]).unwrap();
    assert_eq!(world.root(&Request::GiveUp { file: file.clone() }), Ok(Reply::Bool(true)));
    assert!(world.status("/g").is_none() && world.status("/f").is_some());
    assert_eq!(world.refused("root", &Request::GiveUp { file }), Class::FileNotFound);
    // Also where its user may not write any more.
    world.root(&mkdirs("/open")).unwrap();
    world.root(&Request::SetPermission { path: "/open".into(), mode: 0o777 }).unwrap();
    let Ok(Reply::Status(Some(status))) = world.call("ann", &create("/open/f", false), None) else { panic!("no file") };
    world.root(&Request::SetPermission { path: "/open".into(), mode: 0o700 }).unwrap();
    let file = written("/open/f", status.id);
    assert_eq!(world.call("ann", &Request::GiveUp { file }, None), Ok(Reply::Bool(true)));
    assert!(world.status("/open/f").is_none());
    let id = world.write("/closed", &[1]).unwrap();
    assert_eq!(world.refused("root", &Request::GiveUp { file: written("/closed", id) }), Class::LeaseExpired);
}
