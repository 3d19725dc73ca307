//! Data nodes beside the one in the process: one that says what data nodes of Hadoop say.

use std::net::TcpListener;
use std::time::Instant;

use savanna_files_host::ids::{BlockId, Stamp};

use super::*;
use crate::wire::admin::{DatanodeReport, GetDatanodeReport};
use crate::wire::client::{RecoverLease, StorageInfo};
use crate::wire::datanode::{
    BlockReport, Heartbeat, HeartbeatResponse, InitRecovery, InitRecoveryResponse, PlainBlock, ReceivedAndDeleted,
    RecoveringBlock, Registered, Registration, ReportContext, ReportResponse, Storage, StorageBlocks, StorageReport,
    StorageTold, Synchronized, Told, UpdateReplica, UpdateReplicaResponse,
};
use crate::wire::hdfs::{Node, NodeId};

const NODES: &str = "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol";
const RECOVERY: &str = "org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol";

impl Client {
    fn call_of<M: Message + Default>(
        &mut self,
        protocol: &str,
        method: &str,
        message: &impl Message,
    ) -> Result<M, Refused> {
        let call = self.ask(protocol, method, message);
        let (answered, answer) = self.answer();
        assert_eq!(answered, call.cast_unsigned());
        answer.map(|bytes| M::decode_length_delimited(&bytes[..]).unwrap())
    }
}

/// A data node.
pub(super) struct Other {
    calls: Client,
    listener: TcpListener,
    registration: Registration,
    pool: String,
}

impl Other {
    fn of(server: &Server) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let identity = server.files().identity().clone();
        let id = NodeId {
            address: "10.0.0.9".to_owned(),
            host: "other".to_owned(),
            uuid: "other".to_owned(),
            transfer_port: u32::from(listener.local_addr().unwrap().port()),
            info_port: 1,
            ipc_port: 2,
        };
        let storage = StorageInfo { layout: 1, namespace: identity.namespace, cluster: identity.cluster, created: 0 };
        let registration = Registration { id, storage, software: "3.5.0".to_owned(), ..Registration::default() };
        Self { calls: Client::of(server, "hdfs"), listener, registration, pool: identity.pool }
    }

    /// One that has registered, and reported that it has nothing.
    pub(super) fn joined(server: &Server) -> Self {
        let mut other = Self::of(server);
        other.register().unwrap();
        let answer = other.beat();
        assert_eq!(answer.commands, []);
        other.report(answer.lease.unwrap()).unwrap();
        other
    }

    fn register(&mut self) -> Result<Registered, Refused> {
        let registration = self.registration.clone();
        self.calls.call_of(NODES, "registerDatanode", &Registered { registration })
    }

    pub(super) fn beat(&mut self) -> HeartbeatResponse {
        let report = StorageReport {
            id: "DS-other".to_owned(),
            capacity: Some(1 << 41),
            remaining: Some(1 << 40),
            storage: Some(Storage { id: "DS-other".to_owned(), kind: Some(1) }),
            ..StorageReport::default()
        };
        let registration = self.registration.clone();
        let wants_to_report = Some(true);
        let heartbeat = Heartbeat {
            registration,
            reports: vec![report],
            connections: Some(1),
            failed_disks: Some(2),
            wants_to_report,
        };
        self.calls.call_of(NODES, "sendHeartbeat", &heartbeat).unwrap()
    }

    /// Its next command, which may take a moment.
    fn command(&mut self) -> crate::wire::datanode::Command {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(command) = self.beat().commands.pop() {
                return command;
            }
            assert!(Instant::now() < deadline, "no command came");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn report(&mut self, lease: u64) -> Result<ReportResponse, Refused> {
        let storage = Storage { id: "DS-other".to_owned(), kind: Some(1) };
        let reports = vec![StorageBlocks { storage, blocks: vec![], count: Some(0), buffers: vec![] }];
        let context = Some(ReportContext { calls: 1, call: 0, id: 7, lease: Some(lease) });
        let registration = self.registration.clone();
        let report = BlockReport { registration, pool: self.pool.clone(), reports, context };
        self.calls.call_of(NODES, "blockReport", &report)
    }

    pub(super) fn tell(&mut self, status: i32, block: &Block, length: u64) -> Result<Nothing, Refused> {
        let block = PlainBlock { id: block.id, stamp: block.stamp, length: Some(length) };
        let storage = Some(Storage { id: "DS-other".to_owned(), kind: Some(1) });
        let told = StorageTold { id: "DS-other".to_owned(), blocks: vec![Told { block, status }], storage };
        let registration = self.registration.clone();
        let told = ReceivedAndDeleted { registration, pool: self.pool.clone(), blocks: vec![told] };
        self.calls.call_of(NODES, "blockReceivedAndDeleted", &told)
    }

    /// Takes a replica that the server sends.
    pub(super) fn taken(&self) -> (WriteBlock, Vec<u8>) {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut head = [0; 3];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head, [0, 28, 80]);
        let operation: WriteBlock = Transfer(stream.try_clone().unwrap()).message();
        let mut bytes = Vec::new();
        loop {
            let mut head = [0; 6];
            stream.read_exact(&mut head).unwrap();
            let payload = u32::from_be_bytes(*head.first_chunk().unwrap()) as usize;
            let mut rest = vec![0; payload - 4 + usize::from(u16::from_be_bytes([head[4], head[5]]))];
            stream.read_exact(&mut rest).unwrap();
            let (header, content) = rest.split_at(rest.len() - (payload - 4));
            let header = PacketHeader::decode(header).unwrap();
            bytes.extend(&content[content.len() - header.length as usize..]);
            if header.is_last {
                return (operation, bytes);
            }
        }
    }
}

const RECEIVING: i32 = 1;
pub(super) const RECEIVED: i32 = 2;

pub(super) fn served() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = started(&SimDisk::new(2), folder.path(), 1);
    (folder, server)
}

/// The same block, as far as the data node in the process has it.
fn here(located: &LocatedBlock) -> LocatedBlock {
    let nodes = located.nodes.iter().filter(|node| node.id.uuid != "other").cloned().collect();
    LocatedBlock { nodes, ..located.clone() }
}

#[test]
fn a_data_node_registers_and_gets_new_blocks() {
    let (_folder, server) = served();
    let mut other = Other::of(&server);
    let command = other.beat().commands.remove(0);
    assert!(command.kind == 5 && command.register.is_some(), "it has to say who it is first");
    assert!(other.tell(RECEIVED, &Block { id: 1, ..Block::default() }, 1).is_err());
    let cluster = std::mem::replace(&mut other.registration.storage.cluster, "CID-other".to_owned());
    assert!(other.register().unwrap_err().0.ends_with("IncorrectVersionException"));
    other.registration.storage.cluster = cluster;
    let registered = other.register().unwrap().registration;
    assert_eq!((&*registered.id.address, &*registered.id.uuid), ("127.0.0.1", "other"));
    let answer = other.beat();
    assert_eq!((answer.commands, answer.state.state), (vec![], 0));
    let lease = answer.lease.unwrap();
    assert!(other.report(lease + 1).unwrap_err().0.ends_with("InvalidBlockReportLeaseException"));
    other.report(lease).unwrap();
    // Another one with its name is not believed, and does not take its place.
    let port = std::mem::replace(&mut other.registration.id.transfer_port, 1);
    for refused in [other.tell(RECEIVED, &Block { id: 1, ..Block::default() }, 1).map(drop), other.register().map(drop)]
    {
        assert!(refused.unwrap_err().1.contains("came another one"));
    }
    other.registration.id.transfer_port = port;
    other.register().unwrap();
    let mut client = Client::of(&server, "root");
    client.create("/f").unwrap();
    let located = client.add_block("/f", None);
    let names: Vec<&str> = located.nodes.iter().map(|node| &*node.id.uuid).collect();
    assert_eq!((names.len(), names[0], &*located.storages[0]), (2, "other", "DS-other"));
    assert_eq!(located.nodes[0].id.address, "127.0.0.1");
    let kinds = [2, 3].map(|kind| {
        client.call::<DatanodeReport>("getDatanodeReport", &GetDatanodeReport { kind }).unwrap().nodes.len()
    });
    assert_eq!(kinds, [2, 0]);
    assert!(other.tell(RECEIVED, &Block { pool: String::new(), ..located.block.clone() }, 1).is_ok());
    other.pool = "BP-other".to_owned();
    assert!(other.tell(RECEIVED, &located.block, 1).unwrap_err().1.contains("BP-other"));
    // Its next process registers before all has come that it said.
    let mut next = Other::of(&server);
    next.registration.clone_from(&other.registration);
    next.register().unwrap();
    for refused in [other.tell(RECEIVED, &located.block, 1).map(drop), other.register().map(drop)] {
        assert!(refused.unwrap_err().1.contains("over an older connection"));
    }
    assert!(next.tell(RECEIVED, &located.block, 1).is_ok());
}

#[test]
fn what_has_too_few_replicas_is_sent_to_who_joins_and_what_is_deleted_goes_there() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let bytes = content(200_001);
    client.write("/f", &bytes);
    let mut other = Other::joined(&server);
    let (operation, came) = other.taken();
    assert_eq!((came, operation.stage, &*operation.header.client), (bytes.clone(), 6, ""));
    let block = operation.header.base.block;
    assert_eq!((block.pool.as_str(), block.length), (other.pool.as_str(), Some(200_001)));
    other.tell(RECEIVED, &block, 200_001).unwrap();
    assert_eq!(client.blocks("/f").blocks[0].nodes.len(), 2);
    assert_eq!(client.read("/f"), bytes, "here first");
    assert_eq!(client.call::<Flag>("delete", &Delete { path: "/f".into(), is_recursive: true }), Ok(Flag { it: true }));
    let command = other.command().blocks.unwrap();
    assert_eq!((command.action, command.blocks[0].id, command.blocks.len()), (2, block.id, 1));
}

#[test]
fn what_is_not_here_is_sent_here() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let mut other = Other::joined(&server);
    client.create("/f").unwrap();
    // The one here cannot be reached by the client.
    let excluded = not_here(&server);
    let add = AddBlock { path: "/f".into(), client: "writer".into(), previous: None, excluded, file: None };
    let located = client.call::<One<LocatedBlock>>("addBlock", &add).unwrap().it.unwrap();
    assert_eq!(located.nodes.len(), 1);
    other.tell(RECEIVED, &located.block, 1_000).unwrap();
    assert!(client.complete("/f", Some(Block { length: Some(1_000), ..located.block.clone() })));
    let command = other.command().blocks.unwrap();
    let target = command.targets[0].nodes[0].clone();
    assert_eq!((command.action, command.blocks[0].id, command.kinds[0].kinds.len()), (1, located.block.id, 1));
    assert_eq!(target.id.transfer_port, u32::from(server.transfer_address().port()));
    let bytes = content(1_000);
    // One that breaks off is begun again.
    for is_all in [false, true] {
        let said = sent(&server, &located.block, (6, ""), &bytes, is_all);
        assert!(said.is_empty(), "who sends a replica is told nothing");
    }
    assert_eq!(client.read("/f"), bytes);
}

/// Sends a replica here, or a part of it, and gives what is said to that when the connection ends.
fn sent(server: &Server, block: &Block, (stage, client): (i32, &str), bytes: &[u8], is_all: bool) -> Vec<u8> {
    let header = OperationHeader { base: BaseHeader { block: block.clone() }, client: client.to_owned() };
    let checksum = Checksum { kind: 2, chunk: 512 };
    let write = WriteBlock { header, stage, checksum, ..WriteBlock::default() };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.transfer_address().port())).unwrap();
    stream.write_all(&[&[0, 28, 80][..], &write.encode_length_delimited_to_vec()].concat()).unwrap();
    let packet = |offset: usize, bytes: &[u8], is_last| {
        let sums: Vec<u8> = bytes.chunks(512).flat_map(|chunk| crc32c::crc32c(chunk).to_be_bytes()).collect();
        let (offset, length) = (offset as i64, bytes.len() as i32);
        let header = PacketHeader { offset, number: 0, is_last, length, syncs: None };
        let (header, length) = (header.encode_to_vec(), (4 + bytes.len() + sums.len()) as u32);
        [&length.to_be_bytes()[..], &(header.len() as u16).to_be_bytes(), &header, &sums, bytes].concat()
    };
    stream.write_all(&packet(0, bytes, false)).unwrap();
    if is_all {
        stream.write_all(&packet(bytes.len(), &[], true)).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    said
}

/// Excludes the data node in the process.
fn not_here(server: &Server) -> Vec<Node> {
    let own = server.files().identity().cluster.trim_start_matches("CID-").to_owned();
    vec![Node { id: NodeId { uuid: own, ..NodeId::default() }, ..Node::default() }]
}

#[test]
fn a_copy_for_a_pipeline_takes_no_part_in_the_end_of_its_block_before_its_client_goes_on_with_it() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let mut other = Other::joined(&server);
    for (path, is_all, goes_on) in [("/half", false, false), ("/all", true, false), ("/on", true, true)] {
        client.create(path).unwrap();
        let excluded = not_here(&server);
        let add = AddBlock { path: path.into(), client: "writer".into(), previous: None, excluded, file: None };
        let located = client.call::<One<LocatedBlock>>("addBlock", &add).unwrap().it.unwrap();
        other.tell(RECEIVING, &located.block, 0).unwrap();
        // The client replaces a data node by the one here, and goes, perhaps after it went on.
        let said = sent(&server, &located.block, (7, "writer"), &content(400), is_all);
        assert_eq!(said.is_empty(), !is_all);
        if goes_on {
            let address = (Ipv4Addr::LOCALHOST, server.transfer_address().port());
            let mut transfer = Transfer(TcpStream::connect(address).unwrap());
            assert_eq!(transfer.begin_write(&located.block, 3, 400).status, 0);
            assert_eq!(transfer.packet(400, 0, b"more", false), [0]);
        }
        let recover = RecoverLease { path: path.to_owned(), client: "another".to_owned() };
        assert_eq!(client.call::<Flag>("recoverLease", &recover), Ok(Flag { it: false }));
        let RecoveringBlock { stamp, block, .. } = other.command().recovery.unwrap().blocks.remove(0);
        assert_eq!(block.nodes.len(), if goes_on { 2 } else { 1 }, "{path}");
        let init = InitRecovery { block: RecoveringBlock { stamp, block, cut: None } };
        let found: InitRecoveryResponse = other.calls.call_of(RECOVERY, "initReplicaRecovery", &init).unwrap();
        assert_eq!(found.block.map(|block| block.length), Some(Some(404)).filter(|_| goes_on), "{path}");
    }
}

#[test]
fn a_block_whose_writer_has_gone_is_ended_at_all_data_nodes() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let mut other = Other::joined(&server);
    client.create("/f").unwrap();
    let located = client.add_block("/f", None);
    let mut transfer = Transfer::to(&here(&located));
    transfer.begin_write(&located.block, 6, 0);
    assert_eq!(transfer.packet(0, 0, &content(700), false), [0]);
    other.tell(RECEIVING, &located.block, 0).unwrap();
    let fsync = Fsync { path: "/f".to_owned(), client: "writer".to_owned(), length: Some(600), file: None };
    client.call::<Nothing>("fsync", &fsync).unwrap();
    let recover = RecoverLease { path: "/f".to_owned(), client: "another".to_owned() };
    for _ in 0..2 {
        assert_eq!(client.call::<Flag>("recoverLease", &recover), Ok(Flag { it: false }), "not yet");
    }
    let RecoveringBlock { stamp, block, .. } = other.command().recovery.unwrap().blocks.remove(0);
    assert_eq!((block.block.stamp, block.nodes.len()), (located.block.stamp, 2));
    assert!(stamp > located.block.stamp);
    let init = InitRecovery { block: RecoveringBlock { stamp, block: block.clone(), cut: None } };
    let found: InitRecoveryResponse = other.calls.call_of(RECOVERY, "initReplicaRecovery", &init).unwrap();
    assert_eq!((found.is_there, found.state, found.block.unwrap().length), (true, Some(1), Some(700)));
    assert_eq!(transfer.packet(700, 1, &content(5), false), [1], "its writer was replaced");
    let unknown = RecoveringBlock {
        block: LocatedBlock { block: Block { id: 5, ..Block::default() }, ..block.clone() },
        ..init.block.clone()
    };
    let unknown = InitRecovery { block: unknown };
    let refused = other.calls.call_of::<InitRecoveryResponse>(RECOVERY, "initReplicaRecovery", &unknown);
    assert!(refused.unwrap_err().1.contains("block 5"), "nobody is to end that");
    let update = |stamp, length| UpdateReplica { block: block.block.clone(), stamp, length };
    let mut end = |stamp, length| {
        other.calls.call_of::<UpdateReplicaResponse>(RECOVERY, "updateReplicaUnderRecovery", &update(stamp, length))
    };
    assert!(end(stamp + 1, 600).is_err(), "nobody began that");
    assert!(end(stamp, 701).is_err(), "there is less");
    assert!(end(stamp, 599).unwrap_err().1.contains("nothing is cut here"), "more was acknowledged");
    assert_eq!(server.files().replicas().visible_length(BlockId(located.block.id), Stamp(0)).unwrap(), 700);
    assert!(end(stamp, 600).unwrap().storage.is_some());
    let synchronized = |stamp, length, count| Synchronized {
        block: block.block.clone(),
        stamp,
        length,
        closes: true,
        deletes: false,
        nodes: block.nodes.iter().take(count).map(|node| node.id.clone()).collect(),
        storages: block.storages.clone(),
    };
    let mut commit = |stamp, length, count| {
        other.calls.call_of::<Nothing>(NODES, "commitBlockSynchronization", &synchronized(stamp, length, count))
    };
    assert!(commit(stamp + 1, 600, 2).is_err());
    assert!(commit(stamp, 599, 2).is_err(), "more was acknowledged");
    assert!(commit(stamp, 600, 0).is_err(), "nobody has it");
    commit(stamp, 600, 2).unwrap();
    assert!(commit(stamp, 600, 2).is_err(), "it is done");
    assert_eq!(client.call::<Flag>("recoverLease", &recover), Ok(Flag { it: true }));
    assert_eq!(client.status("/f").unwrap().length, 600);
    let located = client.blocks("/f").blocks.remove(0);
    assert_eq!((located.nodes.len(), located.block.stamp), (2, stamp));
    assert_eq!(client.read("/f"), content(600));
}
