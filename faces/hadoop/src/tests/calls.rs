//! Each call of `ClientProtocol` that Hadoop 3.5 has, and what becomes of calls that are late, slow, or of a process that may tell nothing.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Instant;

use savanna_files_host::blocks::Replica;
use savanna_files_host::ids::{BlockId, Stamp};

use super::nodes::{Other, RECEIVED, served};
use super::*;
use crate::protocol::complete::PATIENCE;
use crate::wire::admin::{GetBatchedListing, GetDatanodeReport};
use crate::wire::client::{
    AbandonBlock, AclEntry, Append, AppendResponse, Attribute, Concat, EditAcl, FsStats, GetAdditionalDatanode,
    GetAttributes, PathAndNumber, RecoverLease, RemoveAttribute, ReportBadBlocks, SetAttribute, SetOwner,
    SetPermission, SetSafeMode, SetStoragePolicy, SetTimes, Truncate, UpdateBlockForPipeline, UpdatePipeline,
};
use crate::wire::hdfs::{Node, NodeId};

/// Those that are done.
const DONE: [&str; 61] = [
    "abandonBlock",
    "addBlock",
    "append",
    "checkAccess",
    "complete",
    "concat",
    "create",
    "delete",
    "fsync",
    "getAclStatus",
    "getAdditionalDatanode",
    "getBatchedListing",
    "getBlockLocations",
    "getContentSummary",
    "getDatanodeReport",
    "getEZForPath",
    "getEnclosingRoot",
    "getFileInfo",
    "getFileLinkInfo",
    "getFsECBlockGroupStats",
    "getFsReplicatedBlockStats",
    "getFsStats",
    "getHAServiceState",
    "getListing",
    "getLocatedFileInfo",
    "getPreferredBlockSize",
    "getQuotaUsage",
    "getServerDefaults",
    "getSlowDatanodeReport",
    "getStoragePolicies",
    "getStoragePolicy",
    "getXAttrs",
    "isFileClosed",
    "listOpenFiles",
    "listXAttrs",
    "metaSave",
    "mkdirs",
    "modifyAclEntries",
    "msync",
    "recoverLease",
    "removeAcl",
    "removeAclEntries",
    "removeDefaultAcl",
    "removeXAttr",
    "rename",
    "rename2",
    "renewLease",
    "reportBadBlocks",
    "setAcl",
    "setOwner",
    "setPermission",
    "setQuota",
    "setReplication",
    "setSafeMode",
    "setStoragePolicy",
    "setTimes",
    "setXAttr",
    "truncate",
    "unsetStoragePolicy",
    "updateBlockForPipeline",
    "updatePipeline",
];
/// Those that are known, and not done.
const NOT_DONE: [&str; 50] = [
    "addCacheDirective",
    "addCachePool",
    "addErasureCodingPolicies",
    "allowSnapshot",
    "cancelDelegationToken",
    "createEncryptionZone",
    "createSnapshot",
    "createSymlink",
    "deleteSnapshot",
    "disableErasureCodingPolicy",
    "disallowSnapshot",
    "enableErasureCodingPolicy",
    "finalizeUpgrade",
    "getCurrentEditLogTxid",
    "getDataEncryptionKey",
    "getDatanodeStorageReport",
    "getDelegationToken",
    "getECTopologyResultForPolicies",
    "getEditsFromTxid",
    "getErasureCodingCodecs",
    "getErasureCodingPolicies",
    "getErasureCodingPolicy",
    "getLinkTarget",
    "getSnapshotDiffReport",
    "getSnapshotDiffReportListing",
    "getSnapshotListing",
    "getSnapshottableDirListing",
    "listCacheDirectives",
    "listCachePools",
    "listCorruptFileBlocks",
    "listEncryptionZones",
    "listReencryptionStatus",
    "modifyCacheDirective",
    "modifyCachePool",
    "reencryptEncryptionZone",
    "refreshNodes",
    "removeCacheDirective",
    "removeCachePool",
    "removeErasureCodingPolicy",
    "renameSnapshot",
    "renewDelegationToken",
    "restoreFailedStorage",
    "rollEdits",
    "rollingUpgrade",
    "satisfyStoragePolicy",
    "saveNamespace",
    "setBalancerBandwidth",
    "setErasureCodingPolicy",
    "unsetErasureCodingPolicy",
    "upgradeStatus",
];

/// A client, and which calls it made that were done.
struct Caller {
    client: Client,
    done: BTreeSet<&'static str>,
}

impl Caller {
    fn does<M: Message + Default>(&mut self, method: &'static str, message: &impl Message) -> M {
        self.done.insert(method);
        self.client.call(method, message).unwrap_or_else(|refused| panic!("{method}: {refused:?}"))
    }

    fn simply(&mut self, method: &'static str, message: &impl Message) {
        self.does::<Nothing>(method, message);
    }

    fn on(&mut self, method: &'static str, path: &str) {
        self.simply(method, &Text { it: path.to_owned() });
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn each_call_of_hadoop_is_done_or_refused_by_its_name() {
    let (_folder, server) = served();
    let mut caller = Caller { client: Client::of(&server, "root"), done: BTreeSet::new() };
    let it = &mut caller;
    it.simply("mkdirs", &Mkdirs { path: text("/d"), permission: PERMISSION, with_parents: true, unmasked: None });
    for path in ["/d/a", "/d/b", "/d/c"] {
        it.client.write(path, &content(700));
    }
    it.done.extend(["create", "addBlock", "complete"]);
    writing_calls(it);
    let [path, client] = ["/d/a", "writer"].map(text);
    it.simply("truncate", &Truncate { path: text("/d/b"), length: 0, client });
    it.simply("concat", &Concat { path: text("/d/a"), sources: vec![text("/d/c")] });
    it.simply("getBlockLocations", &GetBlockLocations { path: path.clone(), offset: 0, length: 9 });
    it.simply("getLocatedFileInfo", &GetLocatedFileInfo { path: Some(path.clone()) });
    let status: One<FileStatus> = it.does("getFileInfo", &Text { it: path.clone() });
    assert_eq!(it.does::<One<FileStatus>>("getFileLinkInfo", &Text { it: path.clone() }), status);
    assert_eq!(it.does::<Number>("getPreferredBlockSize", &Text { it: path.clone() }).it, 1 << 20);
    it.simply("getListing", &GetListing { path: text("/d"), after: vec![], with_locations: true });
    let paths = vec![text("/d")];
    it.simply("getBatchedListing", &GetBatchedListing { paths, after: vec![], with_locations: false });
    it.simply("checkAccess", &PathAndNumber { path: path.clone(), number: 6 });
    let not = PathAndNumber { path: path.clone(), number: 2 };
    let refused = Client::of(&server, "ann").call::<Nothing>("checkAccess", &not).unwrap_err();
    assert!(refused.0.ends_with("AccessControlException"));
    attribute_calls(it, &path);
    for method in ["getContentSummary", "getQuotaUsage", "getEnclosingRoot", "getEZForPath"] {
        it.on(method, "/d");
    }
    it.on("metaSave", "seen");
    it.simply("listOpenFiles", &ListOpenFiles { after: 0, path: None });
    it.simply("setSafeMode", &SetSafeMode { action: 3 });
    it.simply("getDatanodeReport", &GetDatanodeReport { kind: 1 });
    for method in [
        "getFsStats",
        "getServerDefaults",
        "getHAServiceState",
        "msync",
        "getSlowDatanodeReport",
        "getFsReplicatedBlockStats",
        "getFsECBlockGroupStats",
        "getStoragePolicies",
    ] {
        it.simply(method, &Nothing {});
    }
    it.simply("rename", &Rename { from: path, to: text("/d/r") });
    it.simply("rename2", &Rename2 { from: text("/d/r"), to: text("/d/s"), overwrites: false });
    it.simply("delete", &Delete { path: text("/d/s"), is_recursive: true });
    assert_eq!(caller.done, BTreeSet::from(DONE));
    for method in NOT_DONE {
        let (class, words) = caller.client.call::<Nothing>(method, &Nothing {}).unwrap_err();
        assert_eq!(class, "java.lang.UnsupportedOperationException", "{method}");
        assert!(words.contains(method), "{words}");
    }
    let all: BTreeSet<&str> = DONE.into_iter().chain(NOT_DONE).collect();
    assert_eq!(all.len(), 111, "so many has Hadoop 3.5");
}

/// What writers say beside what each says.
fn writing_calls(it: &mut Caller) {
    it.client.create("/d/open").unwrap();
    let located = it.client.add_block("/d/open", None);
    let (existing, storages) = (located.nodes.clone(), located.storages.clone());
    let (path, client) = (text("/d/open"), text("writer"));
    let (block, excluded) = (located.block.clone(), Vec::new());
    let more = GetAdditionalDatanode { path: path.clone(), block, existing, excluded, count: 1, storages };
    let more: One<LocatedBlock> = it.does("getAdditionalDatanode", &more);
    assert_eq!(more.it.unwrap().nodes.len(), 1, "there is no other");
    let abandoned =
        AbandonBlock { block: located.block.clone(), path: path.clone(), client: client.clone(), file: None };
    it.simply("abandonBlock", &abandoned);
    assert_eq!(it.client.blocks("/d/open").blocks, []);
    let located = it.client.add_block("/d/open", None);
    assert_ne!(located.block.id, abandoned.block.id);
    it.on("renewLease", "writer");
    it.simply("fsync", &Fsync { path: path.clone(), client: client.clone(), length: Some(5), file: None });
    let last: AppendResponse = it.does("append", &Append { path: text("/d/a"), client: client.clone(), flags: None });
    let old = last.block.unwrap().block;
    let newer = UpdateBlockForPipeline { block: old.clone(), client: client.clone() };
    let new = it.does::<One<LocatedBlock>>("updateBlockForPipeline", &newer).it.unwrap().block;
    assert!(new.stamp > old.stamp);
    let (nodes, storages) = (located.nodes.iter().map(|node| node.id.clone()).collect(), located.storages);
    it.simply("updatePipeline", &UpdatePipeline { client, old, new, nodes, storages });
    for path in ["/d/a", "/d/open"] {
        let recover = RecoverLease { path: text(path), client: text("another") };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !it.does::<Flag>("recoverLease", &recover).it {
            assert!(Instant::now() < deadline, "{path} is not closed");
            sleep(Duration::from_millis(20));
        }
        assert!(it.does::<Flag>("isFileClosed", &Text { it: text(path) }).it);
    }
    assert_eq!(it.client.read("/d/a"), content(700));
    let located = it.client.blocks("/d/a").blocks;
    it.simply("reportBadBlocks", &ReportBadBlocks { blocks: located });
    assert_eq!(it.does::<FsStats>("getFsStats", &Nothing {}).corrupt, 1);
}

/// What every file and directory has.
fn attribute_calls(it: &mut Caller, file: &str) {
    let path = || text(file);
    it.simply("setPermission", &SetPermission { path: path(), permission: Permission { bits: 0o640 } });
    it.simply("setOwner", &SetOwner { path: path(), owner: Some(text("ann")), group: None });
    it.simply("setTimes", &SetTimes { path: path(), mtime: 5, atime: u64::MAX });
    it.simply("setReplication", &PathAndNumber { path: path(), number: 2 });
    it.simply("setQuota", &SetQuota { path: text("/d"), names: 100, space: i64::MAX as u64, storage: None });
    let attribute = || Attribute { space: 0, name: text("a"), value: Some(b"1".to_vec()) };
    it.simply("setXAttr", &SetAttribute { path: path(), attribute: Some(attribute()), flags: Some(1) });
    it.simply("getXAttrs", &GetAttributes { path: path(), names: vec![attribute()] });
    it.on("listXAttrs", file);
    it.simply("removeXAttr", &RemoveAttribute { path: path(), attribute: Some(attribute()) });
    let entry = |scope, name: Option<&str>, kind| AclEntry { kind, scope, bits: 4, name: name.map(text) };
    let whole = vec![entry(0, None, 0), entry(0, None, 1), entry(0, None, 3), entry(0, Some("ann"), 0)];
    it.simply("setAcl", &EditAcl { path: path(), entries: whole });
    let of_eve = || EditAcl { path: path(), entries: vec![entry(0, Some("eve"), 0)] };
    it.simply("modifyAclEntries", &of_eve());
    it.simply("removeAclEntries", &of_eve());
    for method in ["getAclStatus", "removeDefaultAcl", "removeAcl", "getStoragePolicy"] {
        it.on(method, file);
    }
    it.simply("setStoragePolicy", &SetStoragePolicy { path: path(), policy: text("COLD") });
    it.on("unsetStoragePolicy", file);
}

#[test]
fn a_report_that_comes_a_moment_after_the_call_ends_the_file() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let mut other = Other::joined(&server);
    let own = server.files().identity().cluster.trim_start_matches("CID-").to_owned();
    let excluded = vec![Node { id: NodeId { uuid: own, ..NodeId::default() }, ..Node::default() }];
    // Only the other one will have it.
    let begun = |path: &str, client: &mut Client| {
        client.create(path).unwrap();
        let (path, client_name, excluded) = (text(path), text("writer"), excluded.clone());
        let add = AddBlock { path: path.clone(), client: client_name.clone(), previous: None, excluded, file: None };
        let block = client.call::<One<LocatedBlock>>("addBlock", &add).unwrap().it.unwrap().block;
        let last = Some(Block { length: Some(1_000), ..block.clone() });
        (block, Complete { path, client: client_name, last, file: None })
    };
    let (block, complete) = begun("/f", &mut client);
    let asked = Instant::now();
    let call = client.ask(CLIENT, "complete", &complete);
    sleep(PATIENCE / 10);
    other.tell(RECEIVED, &block, 1_000).unwrap();
    let (answered, answer) = client.answer();
    assert!(asked.elapsed() < PATIENCE * 3 / 4, "the report was heard");
    assert_eq!(answered, call.cast_unsigned());
    assert_eq!(Flag::decode_length_delimited(&answer.unwrap()[..]), Ok(Flag { it: true }));
    // One of the data node in the process.
    client.create("/here").unwrap();
    let located = client.add_block("/here", None);
    let (path, name) = (text("/here"), text("writer"));
    let last = Some(Block { length: Some(700), ..located.block.clone() });
    let asked = Instant::now();
    client.ask(CLIENT, "complete", &Complete { path, client: name, last, file: None });
    sleep(PATIENCE / 10);
    let replica = Replica { block: BlockId(located.block.id), stamp: Stamp(located.block.stamp), length: 700 };
    server.files().received(replica);
    assert_eq!(Flag::decode_length_delimited(&client.answer().1.unwrap()[..]), Ok(Flag { it: true }));
    assert!(asked.elapsed() < PATIENCE * 3 / 4, "the report was heard");
    let (_, complete) = begun("/g", &mut client);
    let asked = Instant::now();
    assert_eq!(client.call::<Flag>("complete", &complete), Ok(Flag { it: false }));
    assert!(asked.elapsed() >= PATIENCE, "it was waited for");
}

#[test]
fn who_may_tell_nothing_answers_no_call() {
    let (folder, guard) = (tempfile::tempdir().unwrap(), lease());
    let server = leased(&SimDisk::new(2), folder.path(), 1, Some(guard.clone()));
    let mut client = Client::of(&server, "root");
    client.write("/f", &content(700));
    client.create("/open").unwrap();
    let located = client.add_block("/open", None);
    let (existing, storages) = (located.nodes, located.storages);
    let block = located.block.clone();
    let excluded = Vec::new();
    let more = GetAdditionalDatanode { path: text("/open"), block, existing, excluded, count: 1, storages };
    let report = GetDatanodeReport { kind: 1 };
    let visible = One { it: Some(client.blocks("/f").blocks.remove(0).block) };
    let unknown = One { it: Some(located.block) };
    let paths = Text { it: text("/f") };
    let bad = ReportBadBlocks { blocks: Vec::new() };
    let calls: Vec<(&str, &str, Vec<u8>)> = vec![
        (CLIENT, "getFsStats", vec![0]),
        (CLIENT, "getServerDefaults", vec![0]),
        (CLIENT, "getHAServiceState", vec![0]),
        (CLIENT, "msync", vec![0]),
        (CLIENT, "getStoragePolicies", vec![0]),
        (CLIENT, "getFsReplicatedBlockStats", vec![0]),
        (CLIENT, "getFsECBlockGroupStats", vec![0]),
        (CLIENT, "getSlowDatanodeReport", vec![0]),
        (CLIENT, "getFileInfo", paths.encode_length_delimited_to_vec()),
        (CLIENT, "getEnclosingRoot", paths.encode_length_delimited_to_vec()),
        (CLIENT, "getDatanodeReport", report.encode_length_delimited_to_vec()),
        (CLIENT, "reportBadBlocks", bad.encode_length_delimited_to_vec()),
        (CLIENT, "getAdditionalDatanode", more.encode_length_delimited_to_vec()),
        (DATANODE, "getReplicaVisibleLength", visible.encode_length_delimited_to_vec()),
        (DATANODE, "getReplicaVisibleLength", unknown.encode_length_delimited_to_vec()),
    ];
    let send = |client: &mut Client, (protocol, method, body): &(&str, &str, Vec<u8>)| {
        let header = MethodHeader { method: text(method), protocol: text(protocol), version: 1 };
        client.send(1, &[&header.encode_length_delimited_to_vec(), &body[..]].concat());
    };
    for call in &calls {
        send(&mut client, call);
        assert_eq!(client.answer().0, 1, "{call:?}");
    }
    let mut clients: Vec<Client> = calls.iter().map(|_| ()).take(8).map(|()| Client::of(&server, "root")).collect();
    guard.revoke();
    for (number, call) in calls.iter().enumerate() {
        if clients.is_empty() {
            clients = (0..8.min(calls.len() - number)).map(|_| Client::of(&server, "root")).collect();
        }
        let mut client = clients.pop().unwrap();
        send(&mut client, call);
        assert!(matches!(client.stream.read(&mut [0]), Ok(0)), "{call:?}");
    }
}

#[test]
fn a_frame_that_stops_in_the_middle_ends_its_connection() {
    let (_folder, server) = served();
    let (mut idle, mut slow) = (Client::of(&server, "root"), Client::of(&server, "root"));
    let mut stopped = Client::of(&server, "root");
    assert!(idle.status("/").is_some() && stopped.status("/").is_some());
    let begun = Instant::now();
    stopped.stream.write_all(&[0, 0, 0, 50, 1, 2]).unwrap();
    // Byte for byte it takes no longer.
    let dripping = std::thread::spawn(move || {
        slow.stream.write_all(&[0, 0, 1, 0]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline && slow.stream.write_all(&[1]).is_ok() {
            sleep(Duration::from_millis(300));
        }
        Instant::now() < deadline
    });
    assert!(matches!(stopped.stream.read(&mut [0]), Ok(0)));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it had some time");
    assert!(dripping.join().unwrap(), "it was let go");
    assert!(idle.status("/").is_some(), "between frames there is no hurry");
    // What comes in pieces, but comes, is a call.
    let (first, rest) = {
        let whole = frame_of_status(&mut idle);
        (whole[..9].to_vec(), whole[9..].to_vec())
    };
    idle.stream.write_all(&first).unwrap();
    sleep(Duration::from_millis(300));
    idle.stream.write_all(&rest).unwrap();
    assert_eq!(idle.answer().0, 9);
}

/// A call as it is sent.
fn frame_of_status(client: &mut Client) -> Vec<u8> {
    let (kind, operation) = (Some(2), Some(0));
    let header = RequestHeader { kind, operation, call: 9, client: client.id.clone().into(), retry: Some(0) };
    let method = MethodHeader { method: text("getFileInfo"), protocol: text(CLIENT), version: 1 };
    let parts = [
        header.encode_length_delimited_to_vec(),
        method.encode_length_delimited_to_vec(),
        Text { it: text("/") }.encode_length_delimited_to_vec(),
    ];
    let bytes = parts.concat();
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}
