//! A server over a simulated disk, and a client of a few lines that says what clients say.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use savanna_epoch::NodeEpoch;
use savanna_files_host::blocks::Silence;
use savanna_files_host::{HostOptions, Limits};
use savanna_journal::Options;
use savanna_journal::sim::SimDisk;
use savanna_ownership::{BootClock, Clock as _, LeaseGuard, LeaseHolder, LeaseTerms};

use crate::wire::client::{
    AddBlock, Complete, ContentSummaryResponse, Create, Delete, EnclosingRoot, Flag, Fsync, GetBlockLocations,
    GetListing, GetLocatedFileInfo, ListOpenFiles, Mkdirs, Nothing, Number, One, OpenFiles, QuotaUsage, Rename,
    Rename2, ServiceState, SetQuota, StoragePolicies, StoragePolicy, Text,
};
use crate::wire::hdfs::{Block, FileStatus, Listing, LocatedBlock, LocatedBlocks, Permission};
use crate::wire::rpc::{ConnectionContext, MethodHeader, RequestHeader, ResponseHeader, UserInformation};
use crate::wire::transfer::{
    Ack, BaseHeader, BlockChecksum, Checksum, OperationHeader, OperationResponse, PacketHeader, ReadBlock, ReadStatus,
    WriteBlock,
};
use crate::{Server, ServerOptions};

mod admin;
mod calls;
mod elsewhere;
mod leased;
mod nodes;
mod remote;
mod web;

const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const DATANODE: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";
const PERMISSION: Permission = Permission { bits: 0o644 };

pub(crate) fn started(disk: &Arc<SimDisk>, folder: &std::path::Path, epoch: u64) -> Server {
    leased(disk, folder, epoch, None)
}

/// A lease that covers any instant, until it is revoked.
pub(crate) fn lease() -> LeaseGuard {
    let clock = Arc::new(BootClock);
    let guard = LeaseGuard::new(Arc::<BootClock>::clone(&clock));
    let terms = LeaseTerms::new(Duration::from_secs(3_600), Duration::from_secs(1)).unwrap();
    guard.publish(&LeaseHolder::new(terms, clock.now()));
    guard
}

pub(crate) fn leased(disk: &Arc<SimDisk>, folder: &std::path::Path, epoch: u64, lease: Option<LeaseGuard>) -> Server {
    let server = Server::start(options(disk, folder, epoch, lease)).unwrap();
    server.files().wait_until_read(|| false);
    server
}

fn options(disk: &Arc<SimDisk>, folder: &std::path::Path, epoch: u64, lease: Option<LeaseGuard>) -> ServerOptions {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    ServerOptions {
        address: any,
        transfer_address: any,
        http_address: any,
        threads: 2,
        clients_max: 10,
        hosts: vec!["node.example".to_owned()],
        audit: Some(folder.join("audit.log")),
        datanodes: vec![IpAddr::from([127, 0, 0, 1])],
        replication: 1,
        host: HostOptions {
            log: Options::disk(Arc::clone(disk) as _),
            epoch: NodeEpoch(epoch),
            lease,
            directory: folder.to_owned(),
            superuser: "root".to_owned(),
            limits: Limits::default(),
            trash: 60,
            silence: Silence::default(),
            database: None,
        },
    }
}

/// A connection of calls.
struct Client {
    stream: TcpStream,
    id: Vec<u8>,
    next: i32,
}

type Refused = (String, String);

impl Client {
    fn of(server: &Server, user: &str) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"hrpc\x09\0\0").unwrap();
        let mut client = Self { stream, id: vec![7; 16], next: 0 };
        let user = Some(UserInformation { effective: Some(user.to_owned()), real: None });
        let context = ConnectionContext { user, protocol: Some(CLIENT.to_owned()) };
        client.send(-3, &context.encode_length_delimited_to_vec());
        client
    }

    fn send(&mut self, call: i32, rest: &[u8]) {
        let (kind, operation) = (Some(2), Some(0));
        let header = RequestHeader { kind, operation, call, client: self.id.clone().into(), retry: Some(0) };
        let bytes = [header.encode_length_delimited_to_vec(), rest.to_vec()].concat();
        self.stream.write_all(&[&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()).unwrap();
    }

    /// Sends a call, and does not wait for its answer.
    fn ask(&mut self, protocol: &str, method: &str, message: &impl Message) -> i32 {
        let header = MethodHeader { method: method.to_owned(), protocol: protocol.to_owned(), version: 1 };
        let rest = [header.encode_length_delimited_to_vec(), message.encode_length_delimited_to_vec()].concat();
        self.next += 1;
        self.send(self.next - 1, &rest);
        self.next - 1
    }

    /// The next answer: of which call, and what.
    fn answer(&mut self) -> (u32, Result<Vec<u8>, Refused>) {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        let header = ResponseHeader::decode_length_delimited(&mut rest).unwrap();
        assert_eq!(header.version, Some(9));
        match header.status {
            0 => (header.call, Ok(rest.to_vec())),
            _ => (header.call, Err((header.class.unwrap(), header.message.unwrap()))),
        }
    }

    fn call<M: Message + Default>(&mut self, method: &str, message: &impl Message) -> Result<M, Refused> {
        let call = self.ask(CLIENT, method, message);
        let (answered, answer) = self.answer();
        assert_eq!(answered, call.cast_unsigned());
        answer.map(|bytes| M::decode_length_delimited(&bytes[..]).unwrap())
    }

    fn create(&mut self, path: &str) -> Result<FileStatus, Refused> {
        let create = Create {
            path: path.to_owned(),
            permission: PERMISSION,
            client: "writer".to_owned(),
            flags: 1,
            with_parents: true,
            replication: 3,
            block_size: 1 << 20,
            unmasked: None,
        };
        Ok(self.call::<One<FileStatus>>("create", &create)?.it.unwrap())
    }

    fn add_block(&mut self, path: &str, previous: Option<Block>) -> LocatedBlock {
        let (path, client) = (path.to_owned(), "writer".to_owned());
        let add = AddBlock { path, client, previous, excluded: Vec::new(), file: None };
        self.call::<One<LocatedBlock>>("addBlock", &add).unwrap().it.unwrap()
    }

    fn complete(&mut self, path: &str, last: Option<Block>) -> bool {
        let (path, client) = (path.to_owned(), "writer".to_owned());
        self.call::<Flag>("complete", &Complete { path, client, last, file: None }).unwrap().it
    }

    fn write(&mut self, path: &str, content: &[u8]) {
        self.create(path).unwrap();
        let located = self.add_block(path, None);
        let mut transfer = Transfer::to(&located);
        transfer.begin_write(&located.block, 6, 0);
        for (number, part) in content.chunks(100_000 / 512 * 512).enumerate() {
            transfer.packet(number as i64 * (100_000 / 512 * 512), number as i64, part, false);
        }
        let end = content.len() as i64;
        assert_eq!(transfer.packet(end, 1_000, &[], true), [0]);
        assert!(self.complete(path, Some(Block { length: Some(content.len() as u64), ..located.block })));
    }

    fn blocks(&mut self, path: &str) -> LocatedBlocks {
        let ask = GetBlockLocations { path: path.to_owned(), offset: 0, length: u64::MAX >> 1 };
        self.call::<One<LocatedBlocks>>("getBlockLocations", &ask).unwrap().it.unwrap()
    }

    fn read(&mut self, path: &str) -> Vec<u8> {
        let blocks = self.blocks(path);
        blocks.blocks.iter().flat_map(|block| Transfer::to(block).read(&block.block, 0, block.block.length())).collect()
    }

    fn status(&mut self, path: &str) -> Option<FileStatus> {
        self.call::<One<FileStatus>>("getFileInfo", &Text { it: path.to_owned() }).unwrap().it
    }
}

/// A connection to the data node.
struct Transfer(TcpStream);

impl Transfer {
    fn to(located: &LocatedBlock) -> Self {
        let node = &located.nodes[0].id;
        let stream = TcpStream::connect((node.address.as_str(), node.transfer_port as u16)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    fn operation(&mut self, operation: u8, message: &impl Message) -> OperationResponse {
        let bytes = [&[0, 28, operation][..], &message.encode_length_delimited_to_vec()].concat();
        self.0.write_all(&bytes).unwrap();
        self.message()
    }

    fn message<M: Message + Default>(&mut self) -> M {
        let mut length = [0];
        self.0.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; if length[0] < 0x80 { usize::from(length[0]) } else { 0 }];
        if length[0] >= 0x80 {
            let mut more = [0];
            self.0.read_exact(&mut more).unwrap();
            bytes = vec![0; usize::from(length[0] & 0x7f) | usize::from(more[0]) << 7];
        }
        self.0.read_exact(&mut bytes).unwrap();
        M::decode(&bytes[..]).unwrap()
    }

    fn begin_write(&mut self, block: &Block, stage: i32, least: u64) -> OperationResponse {
        let header = OperationHeader { base: BaseHeader { block: block.clone() }, client: "writer".to_owned() };
        let checksum = Checksum { kind: 2, chunk: 512 };
        let stamp = block.stamp;
        self.operation(80, &WriteBlock { header, stage, least, stamp, checksum, ..WriteBlock::default() })
    }

    /// Sends a packet, and waits until it is acknowledged.
    fn packet(&mut self, offset: i64, number: i64, bytes: &[u8], is_last: bool) -> Vec<i32> {
        let sums: Vec<u8> = bytes.chunks(512).flat_map(|chunk| crc32c::crc32c(chunk).to_be_bytes()).collect();
        self.packet_with(offset, number, bytes, &sums, is_last)
    }

    fn packet_with(&mut self, offset: i64, number: i64, bytes: &[u8], sums: &[u8], is_last: bool) -> Vec<i32> {
        let header = PacketHeader { offset, number, is_last, length: bytes.len() as i32, syncs: None }.encode_to_vec();
        let length = (4 + bytes.len() + sums.len()) as u32;
        let head = [&length.to_be_bytes()[..], &(header.len() as u16).to_be_bytes(), &header].concat();
        self.0.write_all(&[&head, sums, bytes].concat()).unwrap();
        let ack: Ack = self.message();
        assert_eq!(ack.number, number);
        ack.replies
    }

    fn read(&mut self, block: &Block, offset: u64, length: u64) -> Vec<u8> {
        let header = OperationHeader { base: BaseHeader { block: block.clone() }, client: "reader".to_owned() };
        let response = self.operation(81, &ReadBlock { header, offset, length, with_checksums: None });
        assert_eq!(response.status, 0, "{response:?}");
        let begin = response.read.unwrap().offset;
        let mut bytes = Vec::new();
        loop {
            let mut head = [0; 6];
            self.0.read_exact(&mut head).unwrap();
            let payload = u32::from_be_bytes(*head.first_chunk().unwrap()) as usize;
            let mut rest = vec![0; payload - 4 + usize::from(u16::from_be_bytes([head[4], head[5]]))];
            self.0.read_exact(&mut rest).unwrap();
            let (header, content) = rest.split_at(rest.len() - (payload - 4));
            let header = PacketHeader::decode(header).unwrap();
            assert_eq!(header.offset as u64, begin + bytes.len() as u64);
            let (sums, data) = content.split_at(content.len() - header.length as usize);
            let expected: Vec<u8> = data.chunks(512).flat_map(|chunk| crc32c::crc32c(chunk).to_be_bytes()).collect();
            assert_eq!(sums, expected);
            bytes.extend(data);
            if header.is_last {
                break;
            }
        }
        self.0.write_all(&ReadStatus { status: 6 }.encode_length_delimited_to_vec()).unwrap();
        let skip = (offset - begin) as usize;
        bytes[skip..skip + length as usize].to_vec()
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 253) as u8).collect()
}

#[test]
fn what_a_client_writes_it_reads_also_after_a_restart() {
    let (disk, folder) = (SimDisk::new(5), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut client = Client::of(&server, "root");
    let bytes = content(300_001);
    client.write("/d/f", &bytes);
    assert_eq!(client.read("/d/f"), bytes);
    let block = client.blocks("/d/f").blocks.remove(0);
    let mut transfer = Transfer::to(&block);
    for (offset, length) in [(0, 1), (511, 2), (100_000, 50_000), (300_000, 1)] {
        let (from, to) = (offset as usize, (offset + length) as usize);
        assert_eq!(transfer.read(&block.block, offset, length), bytes[from..to], "one after the other");
    }
    let header = BaseHeader { block: block.block.clone() };
    let sum = transfer.operation(85, &BlockChecksum { header, options: None }).checksum.unwrap();
    assert_eq!((sum.chunk, sum.chunks, sum.sum.len()), (512, 586, 16));
    let status = client.status("/d/f").unwrap();
    assert_eq!((status.kind, status.length, status.replication), (2, 300_001, Some(3)));
    server.stopper().stop();
    server.wait().unwrap();
    let server = started(&disk, folder.path(), 2);
    let mut client = Client::of(&server, "root");
    assert_eq!(client.read("/d/f"), bytes);
    assert_eq!(client.call::<Flag>("delete", &Delete { path: "/d".into(), is_recursive: true }), Ok(Flag { it: true }));
    assert_eq!(client.status("/d/f"), None);
}

#[test]
fn many_calls_are_under_way_and_refusals_have_their_names() {
    let (disk, folder) = (SimDisk::new(5), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut client = Client::of(&server, "root");
    let mut asked: Vec<u32> = (0..600)
        .map(|number| {
            let mkdirs =
                Mkdirs { path: format!("/d/{number}"), permission: PERMISSION, with_parents: true, unmasked: None };
            client.ask(CLIENT, "mkdirs", &mkdirs).cast_unsigned()
        })
        .collect();
    let mut answered: Vec<u32> = (0..600)
        .map(|_| {
            let (call, answer) = client.answer();
            answer.unwrap();
            call
        })
        .collect();
    asked.sort_unstable();
    answered.sort_unstable();
    assert_eq!(asked, answered);
    let listing = GetListing { path: "/d".into(), after: b"98".to_vec(), with_locations: true };
    let listing = client.call::<One<Listing>>("getListing", &listing).unwrap().it.unwrap();
    assert_eq!((listing.entries.len(), &listing.entries[0].path[..], listing.remaining), (1, &b"99"[..], 0));
    let class = |refused: Result<Nothing, Refused>| refused.unwrap_err();
    let path = |path: &str| Text { it: path.to_owned() };
    let (name, words) = class(client.call("isFileClosed", &path("/nothing")));
    assert_eq!((&*name, &*words), ("java.io.FileNotFoundException", "File does not exist: /nothing"));
    let (name, _) = class(client.call("delete", &Delete { path: "/d".into(), is_recursive: false }));
    assert_eq!(name, "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException");
    let (name, words) = class(client.call("getFileInfx", &path("/")));
    assert_eq!(name, "org.apache.hadoop.ipc.RpcNoSuchMethodException");
    assert_eq!(words, "Unknown method getFileInfx called on org.apache.hadoop.hdfs.protocol.ClientProtocol protocol.");
    let (name, words) = class(client.call("createSnapshot", &path("/")));
    assert!(name == "java.lang.UnsupportedOperationException" && words.contains("createSnapshot"));
    client.ask("org.example.Other", "x", &Nothing {});
    assert_eq!(client.answer().1.unwrap_err().0, "org.apache.hadoop.ipc.RpcNoSuchProtocolException");
    let mut ann = Client::of(&server, "ann");
    let (name, _) = ann.create("/f").unwrap_err();
    assert_eq!(name, "org.apache.hadoop.security.AccessControlException");
    let rename = Rename { from: "/nothing".into(), to: "/x".into() };
    assert_eq!(client.call::<Flag>("rename", &rename), Ok(Flag { it: false }));
    let rename = Rename2 { from: "/nothing".into(), to: "/x".into(), overwrites: false };
    let rename = client.call::<Nothing>("rename2", &rename).unwrap_err();
    assert_eq!(rename.0, "java.io.FileNotFoundException");
}

#[test]
fn what_is_flushed_is_read_before_the_file_is_closed() {
    let (disk, folder) = (SimDisk::new(5), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut client = Client::of(&server, "root");
    let bytes = content(2_000);
    client.create("/f").unwrap();
    let located = client.add_block("/f", None);
    let mut writer = Transfer::to(&located);
    writer.begin_write(&located.block, 6, 0);
    assert_eq!(writer.packet(0, -1, &[], false), [0], "the client is there");
    writer.packet(0, 0, &bytes[..700], false);
    let visible = |client: &mut Client, block: &Block| {
        client.ask(DATANODE, "getReplicaVisibleLength", &One { it: Some(block.clone()) });
        let bytes = client.answer().1.unwrap();
        Number::decode_length_delimited(&bytes[..]).unwrap().it
    };
    let blocks = client.blocks("/f");
    assert!(blocks.is_written && !blocks.is_last_complete);
    let last = blocks.last.unwrap();
    assert_eq!(visible(&mut client, &last.block), 700);
    assert_eq!(Transfer::to(&last).read(&last.block, 0, 700), bytes[..700]);
    let (path, name) = ("/f".to_owned(), "writer".to_owned());
    let fsync = Fsync { path, client: name, length: Some(700), file: None };
    client.call::<Nothing>("fsync", &fsync).unwrap();
    assert_eq!(client.status("/f").unwrap().length, 700);
    // The connection is lost: the client goes on under a new generation.
    drop(writer);
    let mut newer = located.block.clone();
    newer.stamp += 1;
    let mut writer = Transfer::to(&located);
    assert_eq!(writer.begin_write(&newer, 3, 700).status, 0);
    writer.packet(512, 1, &bytes[512..], false);
    writer.packet(2_000, 2, &[], true);
    assert_eq!(visible(&mut client, &last.block), 2_000);
}

#[test]
fn what_is_damaged_on_its_way_is_not_kept() {
    let (disk, folder) = (SimDisk::new(5), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut client = Client::of(&server, "root");
    client.create("/f").unwrap();
    let located = client.add_block("/f", None);
    let mut writer = Transfer::to(&located);
    writer.begin_write(&located.block, 6, 0);
    assert_eq!(writer.packet_with(0, 0, b"hello", &[1, 2, 3, 4], false), [2]);
    let mut other = Transfer::to(&located);
    let foreign = Block { pool: "BP-other".to_owned(), ..located.block.clone() };
    assert_eq!(other.begin_write(&foreign, 6, 0).status, 1);
    let mut other = Transfer::to(&located);
    assert_eq!(other.operation(84, &BaseHeader { block: located.block.clone() }).status, 7);
    assert!(!client.complete("/f", Some(Block { length: Some(5), ..located.block })));
}

#[test]
fn who_comes_when_all_places_are_taken_has_to_go() {
    let (disk, folder) = (SimDisk::new(5), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut clients: Vec<Client> = (0..10).map(|_| Client::of(&server, "root")).collect();
    for client in &mut clients {
        assert!(client.status("/").is_some());
    }
    let mut late = TcpStream::connect(server.address()).unwrap();
    late.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(late.read(&mut [0]), Ok(0) | Err(_)));
    clients.pop();
    loop {
        // Its place is free soon.
        let mut next = TcpStream::connect(server.address()).unwrap();
        next.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        if matches!(next.read(&mut [0; 4]), Ok(4)) {
            break;
        }
    }
}

#[test]
fn quotas_are_set_shown_and_kept_to() {
    let (disk, folder) = (SimDisk::new(1), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut client = Client::of(&server, "root");
    client.write("/d/f", &content(700));
    let (same, none) = (i64::MAX as u64, u64::MAX);
    let set = |names, space| SetQuota { path: "/d".into(), names, space, storage: None };
    client.call::<Nothing>("setQuota", &set(3, same)).unwrap();
    let path = || Text { it: "/d".to_owned() };
    let usage = client.call::<One<QuotaUsage>>("getQuotaUsage", &path()).unwrap().it.unwrap();
    assert_eq!((usage.inodes, usage.quota, usage.space, usage.space_quota), (2, 3, 2_100, none));
    client.create("/d/g").unwrap();
    let refused = client.create("/d/h").unwrap_err();
    assert_eq!(refused.0, "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException");
    client.call::<Nothing>("setQuota", &set(none, 5_000)).unwrap();
    let summary = client.call::<ContentSummaryResponse>("getContentSummary", &path()).unwrap().it.unwrap();
    assert_eq!((summary.quota, summary.space, summary.space_quota), (none, 2_100, 5_000));
    let add =
        AddBlock { path: "/d/g".into(), client: "writer".into(), previous: None, excluded: Vec::new(), file: None };
    let refused = client.call::<One<LocatedBlock>>("addBlock", &add).unwrap_err();
    assert_eq!(refused.0, "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException");
    let of_disks = SetQuota { storage: Some(1), ..set(same, 9) };
    assert!(client.call::<Nothing>("setQuota", &of_disks).unwrap_err().0.ends_with("UnsupportedOperationException"));
    let refused = Client::of(&server, "ann").call::<Nothing>("setQuota", &set(none, none)).unwrap_err();
    assert!(refused.0.ends_with("AccessControlException"));
}

#[test]
fn what_clients_ask_beside_names_and_blocks_is_answered() {
    let (disk, folder) = (SimDisk::new(1), tempfile::tempdir().unwrap());
    let server = started(&disk, folder.path(), 1);
    let mut client = Client::of(&server, "root");
    client.write("/d/f", &content(700));
    client.create("/d/open").unwrap();
    let path = || Text { it: "/d".to_owned() };
    let located = |path: &str| GetLocatedFileInfo { path: Some(path.to_owned()) };
    let status = client.call::<One<FileStatus>>("getLocatedFileInfo", &located("/d/f")).unwrap().it.unwrap();
    assert_eq!((status.length, status.blocks.unwrap().blocks.len()), (700, 1));
    assert_eq!(client.call::<One<FileStatus>>("getLocatedFileInfo", &located("/x")).unwrap().it, None);
    let usage = client.call::<One<QuotaUsage>>("getQuotaUsage", &path()).unwrap().it.unwrap();
    assert_eq!((usage.inodes, usage.quota, usage.space, usage.space_quota), (3, u64::MAX, 2_100, u64::MAX));
    let open = |after, path: &str| ListOpenFiles { after, path: Some(path.to_owned()) };
    let page: OpenFiles = client.call("listOpenFiles", &open(0, "/d")).unwrap();
    let named: Vec<_> = page.entries.iter().map(|file| (&*file.path, &*file.client)).collect();
    assert_eq!((named, page.has_more), (vec![("/d/open", "writer")], false));
    let (behind, elsewhere) = (open(page.entries[0].id, "/"), open(0, "/d/o"));
    for nothing in [behind, elsewhere] {
        assert_eq!(client.call::<OpenFiles>("listOpenFiles", &nothing).unwrap().entries, []);
    }
    let policies: StoragePolicies = client.call("getStoragePolicies", &Nothing {}).unwrap();
    let hot = client.call::<One<StoragePolicy>>("getStoragePolicy", &path()).unwrap().it.unwrap();
    assert!(hot.name == "HOT" && policies.policies.contains(&hot) && policies.policies.len() == 5);
    let missing = client.call::<One<StoragePolicy>>("getStoragePolicy", &Text { it: "/x".to_owned() }).unwrap_err();
    assert_eq!(missing.0, "java.io.FileNotFoundException");
    assert_eq!(client.call::<EnclosingRoot>("getEnclosingRoot", &path()).unwrap().path.as_deref(), Some("/"));
    assert_eq!(client.call::<ServiceState>("getHAServiceState", &Nothing {}).unwrap().state, 1);
    client.call::<Nothing>("getEZForPath", &path()).unwrap();
    let mut ann = Client::of(&server, "ann");
    assert!(ann.call::<OpenFiles>("listOpenFiles", &open(0, "/")).unwrap_err().0.ends_with("AccessControlException"));
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let noted = loop {
        let noted = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        if noted.contains("ugi=ann") {
            break noted;
        }
        assert!(std::time::Instant::now() < deadline, "{noted}");
        std::thread::sleep(Duration::from_millis(2));
    };
    let lines: Vec<_> = noted.lines().filter_map(|line| Some(line.split_once("audit: ")?.1)).collect();
    let line = |allowed, user, command, path, permissions| {
        format!(
            "allowed={allowed}\tugi={user} (auth:SIMPLE)\tip=/127.0.0.1\tcmd={command}\tsrc={path}\tdst=null\tperm={permissions}\tproto=rpc"
        )
    };
    assert_eq!(lines[0], line(true, "root", "create", "/d/f", "root:supergroup:rw-r--r--"));
    assert!(lines.contains(&&*line(true, "root", "quotaUsage", "/d", "null")), "{noted}");
    assert!(lines.contains(&&*line(false, "ann", "listOpenFiles", "null", "null")), "{noted}");
}
