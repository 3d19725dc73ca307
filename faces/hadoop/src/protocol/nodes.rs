//! `DatanodeProtocol`: what data nodes of Hadoop say to the name node, and what it has them do.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use savanna_files_host::blocks::{self, Copying, Heartbeat, Holder, Place, RecoveryOrder, Replica, StorageFigures};
use savanna_files_host::ids::{BlockId, Stamp};
use savanna_files_host::request::{BlockName, LocatedBlock};
use savanna_files_host::{Class, FilesError, Orders, Report, Told, Unanswered};

use super::replies::Encoder;
use super::reports::replicas;
use super::{Peer, Service, message, named, namenode, no_such_method, refuse, unanswered};
use crate::exception;
use crate::ipc::answer::Detail;
use crate::ipc::connection::Answerer;
use crate::wire::client::{Nothing, ReportBadBlocks};
use crate::wire::datanode::{
    BlockCommand, BlockReport, Command, ErrorReport, HeartbeatResponse, Nodes, PlainBlock, ReceivedAndDeleted,
    RecoveringBlock, RecoveryCommand, RegisterCommand, Registered, Registration, ReportResponse, State, StorageKinds,
    StorageNames, StorageReport, StorageTold, Synchronized,
};
use crate::wire::hdfs::NodeId;

pub(super) const NAME: &str = "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol";

/// Kinds of commands, by number.
const BLOCKS: i32 = 1;
const RECOVERY: i32 = 2;
const REGISTER: i32 = 5;
/// What is to be done with blocks.
const TRANSFER: i32 = 1;
const INVALIDATE: i32 = 2;
/// The state of a name node that serves.
const ACTIVE: i32 = 0;
/// What a data node says of a replica.
const RECEIVING: i32 = 1;
const RECEIVED: i32 = 2;
const DELETED: i32 = 3;
/// A disk, if nothing else is said.
const DISK: i32 = 1;

/// Does a call.
pub(super) fn call(service: &Arc<Service>, peer: &Arc<Peer>, method: &str, body: Bytes, answerer: Answerer) {
    if !service.admits(peer) {
        let words = format!(
            "Expected a data node on one of files.datanodes, came one from {}; 127.0.0.1 there admits those of this machine",
            peer.machine
        );
        return answerer.refuse(exception::DISALLOWED_NODE, &words, Detail::Application);
    }
    let asked = Asked { service, peer, body, answerer };
    match method {
        "versionRequest" => namenode::version(service, asked.answerer),
        "registerDatanode" => asked.register(),
        "sendHeartbeat" => asked.heartbeat(),
        "blockReport" => asked.block_report(),
        "blockReceivedAndDeleted" => asked.received_and_deleted(),
        // Nothing is kept in the memory of data nodes.
        "cacheReport" => asked.answerer.done(&ReportResponse { command: None }),
        "errorReport" => asked.error_report(),
        "reportBadBlocks" => asked.bad_blocks(),
        "commitBlockSynchronization" => asked.synchronized(),
        other => no_such_method(other, NAME, asked.answerer),
    }
}

/// A call of a data node.
struct Asked<'a> {
    service: &'a Arc<Service>,
    peer: &'a Arc<Peer>,
    body: Bytes,
    answerer: Answerer,
}

impl Asked<'_> {
    /// Is kept on the disk, so it is done elsewhere.
    fn register(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((Registered { mut registration }, answerer)) = message(body, answerer) else { return };
        let identity = service.files.identity();
        let Registration { id, storage, software, .. } = &mut registration;
        if storage.cluster != identity.cluster || storage.namespace != identity.namespace {
            let words = format!(
                "Expected a data node of the cluster {} and the namespace {}, came one of {} and {}; give it an empty directory, or the name node that it belongs to",
                identity.cluster, identity.namespace, storage.cluster, storage.namespace
            );
            return answerer.refuse(exception::INCORRECT_VERSION, &words, Detail::Application);
        }
        // Where it is shows its connection.
        id.address.clone_from(&peer.machine);
        let node = blocks::Registration {
            uuid: id.uuid.clone(),
            address: id.address.clone(),
            host: id.host.clone(),
            transfer_port: id.transfer_port,
            info_port: id.info_port,
            ipc_port: id.ipc_port,
            software: software.clone(),
            connection: peer.connection,
        };
        if node.uuid == service.node_uuid() {
            let words = format!("Expected another name of a data node than {}, which the one here has", node.uuid);
            return refuse(&FilesError::new(Class::IllegalArgument, words), answerer);
        }
        let at = Arc::clone(service);
        service.runtime.spawn_blocking(move || match at.files.register_node(node) {
            Ok(()) => answerer.done(&Registered { registration }),
            Err(why) => unanswered(&why, answerer),
        });
    }

    fn heartbeat(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((heartbeat, answerer)) = message::<crate::wire::datanode::Heartbeat>(body, answerer) else { return };
        let Some(answerer) = service.check_node(peer, &heartbeat.registration, answerer) else { return };
        let told = Heartbeat {
            storages: heartbeat.reports.into_iter().map(figures).collect(),
            failed_disks: heartbeat.failed_disks.unwrap_or(0),
            load: heartbeat.connections.unwrap_or(0),
            wants_to_report: heartbeat.wants_to_report.unwrap_or(false),
        };
        match service.files.node_heard(&heartbeat.registration.id.uuid, told) {
            Ok(orders) => answerer.done(&response(service, peer, orders)),
            Err(why) => unanswered(&why, answerer),
        }
    }

    /// May have many blocks, so it is taken elsewhere.
    fn block_report(self) {
        let Self { service, peer, body, answerer } = self;
        // Before it is decoded: it may be large.
        let Ok(place) = Arc::clone(&service.reports).try_acquire_owned() else {
            let words = "Too many data nodes report at the same time; it is tried again";
            return refuse(&FilesError::new(Class::ReportLease, words), answerer);
        };
        let Some((BlockReport { registration, pool, reports, context }, answerer)) = message(body, answerer) else {
            return;
        };
        let Some(answerer) = service.check_node(peer, &registration, answerer) else { return };
        if let Err(error) = check_pool(service, &pool) {
            return refuse(&error, answerer);
        }
        let (lease, is_last) = context
            .map_or((0, true), |context| (context.lease.unwrap_or(0), context.call.saturating_add(1) >= context.calls));
        let at = Arc::clone(service);
        service.runtime.spawn_blocking(move || {
            let read = reports.into_iter().map(|report| {
                let replicas = replicas(&report)?;
                let (storage, kind) = (report.storage.id, report.storage.kind.unwrap_or(DISK));
                Ok(Report { storage, kind, replicas })
            });
            let done = read
                .collect::<Result<Vec<Report>, FilesError>>()
                .map_err(Unanswered::from)
                .and_then(|reports| at.files.node_reports(&registration.id.uuid, lease, reports, is_last));
            match done {
                Ok(()) => answerer.done(&ReportResponse { command: None }),
                Err(why) => unanswered(&why, answerer),
            }
            drop(place);
        });
    }

    fn received_and_deleted(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((ReceivedAndDeleted { registration, pool, blocks }, answerer)) = message(body, answerer) else {
            return;
        };
        let Some(answerer) = service.check_node(peer, &registration, answerer) else { return };
        if let Err(error) = check_pool(service, &pool) {
            return refuse(&error, answerer);
        }
        for StorageTold { id, blocks, storage } in blocks {
            let kind = storage.as_ref().and_then(|storage| storage.kind).unwrap_or(DISK);
            let id = storage.map_or(id, |storage| storage.id);
            let told = blocks.into_iter().filter_map(|told| {
                let replica = replica(&told.block);
                match told.status {
                    RECEIVING => Some(Told::Begun(replica)),
                    RECEIVED => Some(Told::Whole(replica)),
                    DELETED => Some(Told::Gone(replica)),
                    _ => None,
                }
            });
            let told: Vec<Told> = told.collect();
            if let Err(why) = service.files.node_tells(&registration.id.uuid, &id, kind, &told) {
                return unanswered(&why, answerer);
            }
        }
        answerer.done(&Nothing {});
    }

    fn error_report(self) {
        let Self { body, answerer, .. } = self;
        let Some((ErrorReport { registration, code, message: words }, answerer)) = message(body, answerer) else {
            return;
        };
        tracing::warn!(node = ?registration.id.uuid, code, ?words, "a data node reports an error");
        answerer.done(&Nothing {});
    }

    fn bad_blocks(self) {
        let Self { service, body, answerer, .. } = self;
        let Some((ReportBadBlocks { blocks }, answerer)) = message(body, answerer) else { return };
        service.found_corrupt(&blocks);
        answerer.done(&Nothing {});
    }

    /// Waits for the log, so it is done elsewhere.
    fn synchronized(self) {
        let Self { service, body, answerer, .. } = self;
        let Some((Synchronized { block, stamp, length, deletes, nodes, storages, .. }, answerer)) =
            message(body, answerer)
        else {
            return;
        };
        if let Err(error) = check_pool(service, &block.pool) {
            return refuse(&error, answerer);
        }
        let at = Arc::clone(service);
        service.runtime.spawn_blocking(move || {
            let names = nodes.iter().map(|node| &*node.uuid).zip(storages.iter().map(|storage| &**storage));
            let (places, _) = at.files.places_of(names, &at.node_uuid());
            let length = (!deletes).then_some(length);
            match at.files.synchronized(BlockId(block.id), Stamp(stamp), length, &places) {
                Ok(()) => answerer.done(&Nothing {}),
                Err(why) => unanswered(&why, answerer),
            }
        });
    }
}

impl Service {
    /// Whether somebody may be a data node, by where it is.
    pub(crate) fn admits(&self, peer: &Peer) -> bool {
        admits(&self.datanodes, &peer.machine)
    }

    /// Whether a data node that says something is the one that registered under its name; it is refused if not.
    fn check_node(&self, peer: &Peer, registration: &Registration, answerer: Answerer) -> Option<Answerer> {
        let NodeId { uuid, transfer_port, ipc_port, .. } = &registration.id;
        match self.files.check_node(uuid, &peer.machine, [*transfer_port, *ipc_port], peer.connection) {
            Ok(()) => Some(answerer),
            Err(why) => {
                unanswered(&why, answerer);
                None
            }
        }
    }

    /// Somebody found replicas damaged.
    pub(super) fn found_corrupt(&self, blocks: &[crate::wire::hdfs::LocatedBlock]) {
        let own = self.node_uuid();
        for block in blocks {
            let id = named(&block.block).id;
            let holders = block.nodes.iter().filter_map(|node| self.files.holder_of(&node.id.uuid, &own));
            let holders: Vec<Holder> = holders.collect();
            // Who names nobody means the only one there is.
            let holders = if block.nodes.is_empty() { vec![Holder::HERE] } else { holders };
            holders.into_iter().for_each(|holder| self.files.found_corrupt(id, holder));
        }
    }
}

/// Whether a data node of a machine is admitted: somebody named it.
fn admits(datanodes: &[IpAddr], machine: &str) -> bool {
    let address = machine.parse::<IpAddr>().map(|address| address.to_canonical());
    address.is_ok_and(|address| datanodes.contains(&address))
}

fn check_pool(service: &Service, pool: &str) -> Result<(), FilesError> {
    let own = &service.files.identity().pool;
    if own == pool {
        return Ok(());
    }
    Err(FilesError::new(Class::Io, format!("Expected blocks of the pool {own}, came some of {pool}")))
}

fn replica(block: &PlainBlock) -> Replica {
    Replica { block: BlockId(block.id), stamp: Stamp(block.stamp), length: block.length.unwrap_or(0) }
}

fn figures(report: StorageReport) -> StorageFigures {
    let StorageReport { id, has_failed, capacity, used, remaining, pool_used, storage } = report;
    let kind = storage.as_ref().and_then(|storage| storage.kind).unwrap_or(DISK);
    StorageFigures {
        id: storage.map_or(id, |storage| storage.id),
        kind,
        has_failed: has_failed.unwrap_or(false),
        capacity: capacity.unwrap_or(0),
        used: used.unwrap_or(0),
        pool_used: pool_used.unwrap_or(0),
        remaining: remaining.unwrap_or(0),
    }
}

/// What a data node hears when it says that it is there.
fn response(service: &Service, peer: &Peer, orders: Option<Orders>) -> HeartbeatResponse {
    let Some(Orders { duties, lease, txid }) = orders else {
        let register = Some(RegisterCommand {});
        let commands = vec![Command { kind: REGISTER, register, ..Command::default() }];
        return HeartbeatResponse {
            commands,
            state: State { state: ACTIVE, txid: service.files.figures().changes },
            lease: None,
        };
    };
    let mut commands = Vec::new();
    let pool = || service.files.identity().pool.clone();
    let encoder = Encoder::new(service, peer);
    if !duties.removals.is_empty() {
        let block = |(id, stamp): &(BlockId, Stamp)| PlainBlock { id: id.0, stamp: stamp.0, length: Some(0) };
        let blocks = duties.removals.iter().map(block).collect();
        let blocks = Some(BlockCommand { action: INVALIDATE, pool: pool(), blocks, ..BlockCommand::default() });
        commands.push(Command { kind: BLOCKS, blocks, ..Command::default() });
    }
    if !duties.copies.is_empty() {
        let mut command = BlockCommand { action: TRANSFER, pool: pool(), ..BlockCommand::default() };
        for copy in &duties.copies {
            transfer(&encoder, copy, &mut command);
        }
        commands.push(Command { kind: BLOCKS, blocks: Some(command), ..Command::default() });
    }
    if !duties.recoveries.is_empty() {
        let blocks = duties.recoveries.iter().map(|order| recovering(&encoder, order)).collect();
        let recovery = Some(RecoveryCommand { blocks });
        commands.push(Command { kind: RECOVERY, recovery, ..Command::default() });
    }
    let lease = Some(lease).filter(|lease| *lease != 0);
    HeartbeatResponse { commands, state: State { state: ACTIVE, txid: txid.0 }, lease }
}

fn transfer(encoder: &Encoder<'_>, copy: &Copying, command: &mut BlockCommand) {
    let Some((node, storage, kind)) = encoder.place(copy.to) else { return };
    let BlockName { id, stamp, length } = copy.block;
    command.blocks.push(PlainBlock { id: id.0, stamp: stamp.0, length: Some(length) });
    command.targets.push(Nodes { nodes: vec![node] });
    command.storages.push(StorageNames { names: vec![storage] });
    command.kinds.push(StorageKinds { kinds: vec![kind] });
}

fn recovering(encoder: &Encoder<'_>, order: &RecoveryOrder) -> RecoveringBlock {
    let RecoveryOrder { block, stamp, cut, places } = order;
    let places: Vec<Place> = places.clone();
    let located = LocatedBlock { block: *block, offset: 0, is_corrupt: false, places };
    let cut = cut.map(|length| PlainBlock { id: block.id.0, stamp: stamp.0, length: Some(length) });
    RecoveringBlock { stamp: stamp.0, block: encoder.located_block(&located), cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_nodes_of_machines_that_nobody_named_are_not_admitted() {
        let admitted = |datanodes: &[&str]| {
            let datanodes: Vec<IpAddr> = datanodes.iter().map(|address| address.parse().unwrap()).collect();
            ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "::ffff:10.0.0.2", "", "localhost"]
                .map(|machine| admits(&datanodes, machine))
        };
        assert_eq!(admitted(&[]), [false; 7]);
        assert_eq!(admitted(&["127.0.0.1", "10.0.0.2"]), [true, false, true, false, true, false, false]);
    }
}
