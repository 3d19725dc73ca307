//! Answers of the host as messages.

use std::cell::OnceCell;

use savanna_files_host::Reply;
use savanna_files_host::blocks::{Holder, NodeShown, Place, StorageFigures};
use savanna_files_host::change::{Attribute, AttributeSpace, Quota, Usage};
use savanna_files_host::request::{BlockName, Located, LocatedBlock, Status};

use super::{Peer, Service, lists};
use crate::ipc::connection::Answerer;
use crate::wire;
use crate::wire::client::{AppendResponse, Attributes, Flag, Nothing, Number, One, OpenFile, OpenFiles, QuotaUsage};
use crate::wire::hdfs::{self, Block, FileStatus, Listing, LocatedBlocks, Permission, Token};

const DIRECTORY: i32 = 1;
const FILE: i32 = 2;
/// The type of the only storage.
const DISK: i32 = 1;

/// The flag of what has an access control list.
const HAS_ACL: u32 = 1;

/// Where there is no quota.
pub(super) const NO_QUOTA: u64 = u64::MAX;

/// Which files of those that are being written are listed.
const ALL_OPEN_FILES: i32 = 1;

/// Makes messages for a client.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    service: &'a Service,
    peer: &'a Peer,
    /// The data node in the process and its storage; made for the first block that is there.
    here: OnceCell<(hdfs::Node, String)>,
    /// The others; asked for with the first block that is there.
    others: OnceCell<Vec<NodeShown>>,
}

impl<'a> Encoder<'a> {
    pub(crate) const fn new(service: &'a Service, peer: &'a Peer) -> Self {
        Self { service, peer, here: OnceCell::new(), others: OnceCell::new() }
    }

    pub(super) fn block(&self, name: BlockName) -> Block {
        let (id, stamp, length) = (name.id.0, name.stamp.0, Some(name.length));
        Block { pool: self.service.files.identity().pool.clone(), id, stamp, length }
    }

    /// A data node, its storage, and of which kind that is. None if it is not known any more.
    pub(crate) fn place(&self, place: Place) -> Option<(hdfs::Node, String, i32)> {
        if place.holder == Holder::HERE {
            let (node, storage) = self.here.get_or_init(|| (self.service.node(self.peer), self.service.storage()));
            return Some((node.clone(), storage.clone(), DISK));
        }
        let others = self.others.get_or_init(|| self.service.files.nodes());
        let shown = others.iter().find(|shown| shown.holder == place.holder)?;
        let storage = shown.storages.get(usize::from(place.storage))?;
        Some((node(shown), storage.id.clone(), storage.kind))
    }

    pub(super) fn located_block(&self, located: &LocatedBlock) -> hdfs::LocatedBlock {
        let LocatedBlock { block, offset, is_corrupt, places } = located;
        let (mut nodes, mut storages, mut storage_types) = (Vec::new(), Vec::new(), Vec::new());
        for (node, storage, kind) in places.iter().filter_map(|place| self.place(*place)) {
            nodes.push(node);
            storages.push(storage);
            storage_types.push(kind);
        }
        hdfs::LocatedBlock {
            block: self.block(*block),
            offset: *offset,
            is_corrupt: *is_corrupt,
            token: Token::default(),
            is_cached: vec![false; nodes.len()],
            nodes,
            storage_types,
            storages,
        }
    }

    fn located(&self, located: &Located) -> LocatedBlocks {
        LocatedBlocks {
            length: located.length,
            blocks: located.blocks.iter().map(|block| self.located_block(block)).collect(),
            is_written: located.is_written,
            last: located.last.as_ref().map(|block| self.located_block(block)),
            is_last_complete: located.is_last_complete,
        }
    }

    pub(super) fn status(&self, status: Status) -> FileStatus {
        FileStatus {
            kind: if status.is_directory { DIRECTORY } else { FILE },
            path: status.name.into_vec(),
            length: status.length,
            permission: Permission { bits: u32::from(status.mode) },
            owner: status.owner.to_string(),
            group: status.group.to_string(),
            mtime: status.mtime.0,
            atime: status.atime.0,
            replication: Some(u32::from(status.replication)),
            block_size: Some(status.block_size),
            blocks: status.blocks.map(|blocks| self.located(&blocks)),
            id: Some(status.id.0),
            children: Some(i32::try_from(status.children).unwrap_or(i32::MAX)),
            policy: Some(u32::from(status.policy.unwrap_or(0))),
            flags: Some(if status.has_acl { HAS_ACL } else { 0 }),
        }
    }
}

/// A data node of another process, for a client.
pub(crate) fn node(shown: &NodeShown) -> hdfs::Node {
    let of = &shown.registration;
    let id = hdfs::NodeId {
        address: of.address.clone(),
        host: of.host.clone(),
        uuid: of.uuid.clone(),
        transfer_port: of.transfer_port,
        info_port: of.info_port,
        ipc_port: of.ipc_port,
    };
    let sum = |what: fn(&StorageFigures) -> u64| Some(shown.storages.iter().map(what).fold(0, u64::saturating_add));
    hdfs::Node {
        id,
        capacity: sum(|storage| storage.capacity),
        used: sum(|storage| storage.used),
        remaining: sum(|storage| storage.remaining),
        pool_used: sum(|storage| storage.pool_used),
        location: Some("/default-rack".to_owned()),
        state: Some(0),
        blocks: u32::try_from(shown.blocks).ok(),
        software: Some(of.software.clone()),
        ..hdfs::Node::default()
    }
}

/// The number of who may see an attribute.
const fn attribute_space(space: AttributeSpace) -> i32 {
    match space {
        AttributeSpace::User => 0,
        AttributeSpace::Trusted => 1,
        AttributeSpace::Security => 2,
        AttributeSpace::System => 3,
        AttributeSpace::Raw => 4,
    }
}

/// What a directory has, and may have.
pub(crate) fn quota_usage(used: Usage, quota: Option<Quota>) -> QuotaUsage {
    let [names, space] = limits(quota);
    QuotaUsage { inodes: used.names, quota: names, space: used.space, space_quota: space }
}

/// How many names and bytes there may be, as clients hear of it.
pub(crate) fn limits(quota: Option<Quota>) -> [u64; 2] {
    let Quota { names, space, .. } = quota.unwrap_or_default();
    [names, space].map(|most| most.unwrap_or(NO_QUOTA))
}

/// Answers a call.
pub(super) fn answer(service: &Service, peer: &Peer, reply: Reply, answerer: Answerer) {
    let encoder = Encoder::new(service, peer);
    match reply {
        Reply::Status(status) => answerer.done(&One { it: status.map(|status| encoder.status(*status)) }),
        Reply::Listing(listing) => answerer.done(&One {
            it: listing.map(|listing| Listing {
                entries: listing.entries.into_iter().map(|entry| encoder.status(entry)).collect(),
                remaining: u32::try_from(listing.remaining).unwrap_or(u32::MAX),
            }),
        }),
        Reply::Blocks(located) => answerer.done(&One { it: Some(encoder.located(&located)) }),
        Reply::Block(located) => answerer.done(&One { it: Some(encoder.located_block(&located)) }),
        Reply::Appended(block, status) => answerer.done(&AppendResponse {
            block: block.map(|block| encoder.located_block(&block)),
            // Java's client looks for one more node before it goes on with a block that should have three replicas.
            status: Some(FileStatus { replication: Some(1), ..encoder.status(*status) }),
        }),
        Reply::OpenFiles(files, has_more) => {
            let entries = files.into_iter().map(|file| OpenFile {
                id: file.id.0.cast_signed(),
                path: file.path,
                client: file.writer.client.to_string(),
                machine: file.writer.machine.to_string(),
            });
            answerer.done(&OpenFiles { entries: entries.collect(), has_more, kinds: vec![ALL_OPEN_FILES] });
        }
        Reply::Done => answerer.done(&Nothing {}),
        Reply::Bool(it) => answerer.done(&Flag { it }),
        Reply::Quota(quota) => answerer.done(&One { it: quota.map(|quota| quota_usage(quota.used, Some(quota))) }),
        Reply::Attributes(attributes) => {
            let message = |Attribute { space, name, value }: Attribute| wire::client::Attribute {
                space: attribute_space(space),
                name: name.into_string(),
                value: Some(value.into_vec()),
            };
            answerer.done(&Attributes { attributes: attributes.into_iter().map(message).collect() });
        }
        Reply::Acl(list) => answerer.done(&One { it: Some(lists::status(&list)) }),
        Reply::Size(it) => answerer.done(&Number { it }),
    }
}
