//! What `dfsadmin` asks, and listings of several directories.

use std::time::Instant;

use savanna_files_host::ids::BlockId;

use super::nodes::{Other, RECEIVED};
use super::*;
use crate::wire::admin::{BatchedListing, DatanodeReport, GetBatchedListing, GetDatanodeReport, ReplicatedBlockStats};
use crate::wire::client::PathAndNumber;

fn served() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = started(&SimDisk::new(2), folder.path(), 1);
    (folder, server)
}

#[test]
fn administrators_are_told_and_nobody_else() {
    let (folder, server) = served();
    let mut root = Client::of(&server, "root");
    root.write("/f", b"abc");
    let of_kind = |kind| GetDatanodeReport { kind };
    let nodes =
        |client: &mut Client, kind| client.call::<DatanodeReport>("getDatanodeReport", &of_kind(kind)).unwrap().nodes;
    for (kind, count) in [(1, 1), (2, 1), (3, 0), (4, 0), (6, 0)] {
        assert_eq!(nodes(&mut root, kind).len(), count, "{kind}");
    }
    let node = nodes(&mut root, 1).remove(0);
    assert_eq!((node.blocks, node.software.as_deref()), (Some(1), Some("3.5.0")));
    assert!(root.call::<DatanodeReport>("getDatanodeReport", &of_kind(7)).unwrap_err().1.contains("from 1 to 6"));
    assert_eq!(root.call::<ReplicatedBlockStats>("getFsReplicatedBlockStats", &Nothing {}).unwrap().missing, 0);
    let name = |name: &str| Text { it: name.to_owned() };
    root.call::<Nothing>("metaSave", &name("seen.txt")).unwrap();
    root.call::<Nothing>("metaSave", &name("seen.txt")).unwrap();
    let seen = std::fs::read_to_string(folder.path().join("metasave/seen.txt")).unwrap();
    assert!(seen.starts_with("1 files and directories, 1 blocks = 2 total filesystem objects\n"), "{seen}");
    for odd in ["", ".", "..", "../identity", "a/b", ".hidden", "a\0b", &"x".repeat(201)] {
        let refused = root.call::<Nothing>("metaSave", &name(odd)).unwrap_err();
        assert!(refused.0.ends_with("HadoopIllegalArgumentException"), "{odd:?}: {refused:?}");
    }
    let mut ann = Client::of(&server, "ann");
    for refused in [
        ann.call::<DatanodeReport>("getDatanodeReport", &of_kind(1)).map(drop),
        ann.call::<DatanodeReport>("getSlowDatanodeReport", &Nothing {}).map(drop),
        ann.call::<Nothing>("metaSave", &name("of-ann")).map(drop),
    ] {
        assert!(refused.unwrap_err().0.ends_with("AccessControlException"));
    }
    assert!(!folder.path().join("metasave/of-ann").exists());
}

#[test]
fn figures_are_those_of_all_data_nodes() {
    let (folder, server) = served();
    let mut client = Client::of(&server, "root");
    client.write("/f", b"abc");
    client.write("/lost", b"xyz");
    let of = |path: &str, number| PathAndNumber { path: path.to_owned(), number };
    client.call::<Flag>("setReplication", &of("/lost", 1)).unwrap();
    let bean = |name: &str| {
        let beans =
            web::ask(&server, "GET", &format!("/jmx?get=Hadoop:service=NameNode,name=FSNamesystem::{name}"), b"");
        beans.json()["beans"][0][name].as_u64().unwrap()
    };
    let until = |name: &str, wanted: u64| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while bean(name) != wanted {
            assert!(Instant::now() < deadline, "{name} is {}", bean(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let check = || String::from_utf8(web::ask(&server, "GET", "/fsck?ugi=root&path=/", b"").body).unwrap();
    let shows = |lines: &[&str]| {
        let shown = check();
        for line in lines {
            assert!(shown.contains(line), "{line} is not in {shown}");
        }
    };
    shows(&[
        "Number of data-nodes:\t1\n",
        "Minimally replicated blocks:\t2 (100 %)",
        "Under-replicated blocks:\t1 (50 %)",
    ]);
    // Another one comes, and is sent what has too few replicas.
    let mut other = Other::joined(&server);
    // The one here waits for its answer meanwhile.
    until("PendingReplicationBlocks", 1);
    assert_eq!(["PendingReplicationBlocks", "ScheduledReplicationBlocks", "ExcessBlocks"].map(bean), [1, 0, 0]);
    client.call::<Nothing>("metaSave", &Text { it: "sending".to_owned() }).unwrap();
    let saved = std::fs::read_to_string(folder.path().join("metasave/sending")).unwrap();
    assert!(saved.contains("Blocks being reconstructed: 1\n"), "{saved}");
    let block = other.taken().0.header.base.block;
    other.tell(RECEIVED, &block, 3).unwrap();
    until("PendingReplicationBlocks", 0);
    shows(&[
        "Number of data-nodes:\t2\n",
        "Minimally replicated blocks:\t2 (100 %)",
        "Average block replication:\t1.5\n",
    ]);
    // It says how many of its disks have failed.
    let state = web::ask(&server, "GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState", b"").json();
    assert_eq!(state["beans"][0]["VolumeFailuresTotal"], 2);
    // One is too many.
    client.call::<Flag>("setReplication", &of("/f", 1)).unwrap();
    until("ExcessBlocks", 1);
    assert_eq!(bean("PendingDeletionBlocks"), 1);
    while other.beat().commands.is_empty() {}
    assert_eq!((bean("ExcessBlocks"), bean("PendingDeletionBlocks")), (0, 0));
    // A block is lost of a file that should have one replica, and then several.
    let lost = BlockId(client.blocks("/lost").blocks[0].block.id);
    server.files().replicas().remove(lost).unwrap();
    server.files().is_lost_here(lost);
    assert_eq!(["MissingBlocks", "MissingReplOneBlocks"].map(bean), [1, 1]);
    let told: ReplicatedBlockStats = client.call("getFsReplicatedBlockStats", &Nothing {}).unwrap();
    assert_eq!((told.missing, told.missing_of_one), (1, 1));
    client.call::<Flag>("setReplication", &of("/lost", 2)).unwrap();
    assert_eq!(["MissingBlocks", "MissingReplOneBlocks"].map(bean), [1, 0]);
    shows(&["Minimally replicated blocks:\t1 (50 %)", "Missing blocks:\t\t1\n"]);
}

#[test]
fn several_directories_are_listed_a_page_at_a_time() {
    let (_folder, server) = served();
    let mut root = Client::of(&server, "root");
    for number in 0..1_500 {
        root.create(&format!("/a/{number:04}")).unwrap();
    }
    root.create("/b/f").unwrap();
    let paths = ["/b", "/a", "/nothing", "/b/f", "/b"].map(str::to_owned).to_vec();
    let asking = |after| GetBatchedListing { paths: paths.clone(), after, with_locations: false };
    let (mut after, mut seen, mut pages) = (Vec::new(), vec![Vec::new(); paths.len()], 0);
    loop {
        let page: BatchedListing = root.call("getBatchedListing", &asking(after)).unwrap();
        for part in page.parts {
            let names = part.entries.into_iter().map(|entry| String::from_utf8(entry.path).unwrap());
            seen[part.path as usize].extend(names);
            seen[part.path as usize].extend(part.refusal.map(|refusal| refusal.class));
        }
        pages += 1;
        if !page.has_more {
            break;
        }
        after = page.after;
    }
    let all: Vec<String> = (0..1_500).map(|number| format!("{number:04}")).collect();
    assert_eq!((&seen[0], &seen[1], &seen[4]), (&vec!["f".to_owned()], &all, &vec!["f".to_owned()]));
    assert_eq!(
        (&*seen[2], &*seen[3], pages),
        (&["java.io.FileNotFoundException".to_owned()][..], &[String::new()][..], 2)
    );
    for after in [b"x".to_vec(), vec![0xff; 9]] {
        let refused = root.call::<BatchedListing>("getBatchedListing", &asking(after)).unwrap_err();
        assert!(refused.0.ends_with("HadoopIllegalArgumentException"), "{refused:?}");
    }
    let many = GetBatchedListing { paths: vec!["/".to_owned(); 101], after: Vec::new(), with_locations: false };
    assert!(root.call::<BatchedListing>("getBatchedListing", &many).unwrap_err().1.contains("Too many source paths"));
}
