//! `ClientProtocol`: what clients ask a name node.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use savanna_files_host::blocks::{Holder, Place};
use savanna_files_host::change::{Attribute, AttributeSpace, CallId, Usage};
use savanna_files_host::ids::{InodeId, Millis};
use savanna_files_host::request::{self, AclEdit, Limit, LocatedBlock, Modes, Written};
use savanna_files_host::{Brought, Class, Errand, FilesError, Reply, Request, Summary};

use super::replies::{self, Encoder, NO_QUOTA};
use super::{Peer, Service, message, named, no_such_method, refuse, unanswered, unsupported};
use super::{lists, policies};
use crate::exception;
use crate::ipc::answer::Detail;
use crate::ipc::connection::Answerer;
use crate::wire;
use crate::wire::client::{
    AbandonBlock, AddBlock, Append, Concat, ContentSummaryResponse, Create, Delete, EnclosingRoot, Flag, FsStats,
    Fsync, GetAdditionalDatanode, GetAttributes, GetBlockLocations, GetListing, GetLocatedFileInfo, ListOpenFiles,
    Mkdirs, Nothing, One, PathAndNumber, RecoverLease, RemoveAttribute, Rename, Rename2, ReportBadBlocks,
    ServerDefaultsResponse, ServiceState, SetAttribute, SetOwner, SetPermission, SetQuota, SetSafeMode,
    SetStoragePolicy, SetTimes, StoragePolicies, Text, Truncate, UpdateBlockForPipeline, UpdatePipeline,
};
use crate::wire::hdfs::{ContentSummary, Permission, ServerDefaults};

pub(super) const NAME: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// Bits of the flags with which a file is made.
const CREATE: u32 = 1;
const OVERWRITE: u32 = 2;
/// And with which one is opened to be written on.
const NEW_BLOCK: u32 = 0x20;
/// An attribute takes the place of another.
const REPLACE: u32 = 2;

/// The state of a name node that serves.
const ACTIVE: i32 = 1;

/// What who wants a quota of a kind of storage is told.
pub(crate) const NO_STORAGE_QUOTA: &str =
    "Expected a quota of names or of bytes, came one of a kind of storage, which is not supported";

/// A quota that is to stay as it is.
const SAME_QUOTA: u64 = i64::MAX as u64;
/// A time that is to stay as it is.
const SAME_TIME: u64 = u64::MAX;

/// Bytes of a block.
pub(crate) const BLOCK_SIZE: u64 = 128 << 20;
const CRC32C: i32 = 2;

/// What clients choose if nobody says anything else.
pub(crate) fn defaults(service: &Service) -> ServerDefaults {
    ServerDefaults {
        block_size: BLOCK_SIZE,
        chunk: 512,
        packet: 64 << 10,
        replication: service.replication.into(),
        buffer: 4 << 10,
        encrypts: Some(false),
        trash_minutes: Some(service.files.trash_minutes().into()),
        checksum: Some(CRC32C),
    }
}

/// A call with who made it.
pub(super) struct Asked<'a> {
    pub(super) service: &'a Arc<Service>,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) body: Bytes,
    pub(super) answerer: Answerer,
}

/// Does a call.
pub(super) fn call(service: &Arc<Service>, peer: &Arc<Peer>, method: &str, body: Bytes, answerer: Answerer) {
    let asked = Asked { service, peer, body, answerer };
    match method {
        "getFileInfo" | "getFileLinkInfo" => asked.request(|Text { it: path }| Request::FileInfo { path }),
        "getLocatedFileInfo" => {
            asked.request(|GetLocatedFileInfo { path }| Request::LocatedInfo { path: path.unwrap_or_default() })
        }
        "listOpenFiles" => asked.request(|ListOpenFiles { after, path }| Request::OpenFiles {
            path: path.unwrap_or_default(),
            after: InodeId(after.max(0).cast_unsigned()),
        }),
        "getListing" => {
            asked.request(|GetListing { path, after, with_locations }| Request::Listing { path, after, with_locations })
        }
        "getBlockLocations" => {
            asked.request(|GetBlockLocations { path, offset, length }| Request::BlockLocations { path, offset, length })
        }
        "mkdirs" => asked.request(|Mkdirs { path, permission, with_parents, unmasked }| Request::Mkdirs {
            path,
            mode: modes(permission, unmasked),
            with_parents,
        }),
        "create" => asked.request(created),
        "append" => asked.request(|Append { path, client, flags }| Request::Append {
            path,
            client,
            is_in_new_block: flags.unwrap_or(0) & NEW_BLOCK != 0,
            // What was flushed is kept.
            is_all_or_nothing: false,
        }),
        "truncate" => asked.request(|Truncate { path, length, client }| Request::Truncate { path, length, client }),
        "concat" => asked.request(|Concat { path, sources }| Request::Concat { path, sources }),
        "addBlock" => asked.add_block(),
        "abandonBlock" => asked.request(|AbandonBlock { block, path, client, file }| Request::AbandonBlock {
            file: written(path, client, file),
            block: named(&block),
        }),
        "complete" => asked.complete(),
        "fsync" => asked.request(|Fsync { path, client, length, file }| Request::Fsync {
            file: written(path, client, file),
            length: length.and_then(|length| u64::try_from(length).ok()),
        }),
        "updateBlockForPipeline" => {
            asked.request(|UpdateBlockForPipeline { block, client }| Request::NewStamp { block: named(&block), client })
        }
        "updatePipeline" => asked.update_pipeline(),
        "rename" => asked.request(|Rename { from, to }| Request::Rename { from, to }),
        "rename2" => asked.request(|Rename2 { from, to, overwrites }| Request::Rename2 { from, to, overwrites }),
        "delete" => asked.request(|Delete { path, is_recursive }| Request::Delete { path, is_recursive }),
        "setPermission" => asked
            .request(|SetPermission { path, permission }| Request::SetPermission { path, mode: bits(permission.bits) }),
        "setOwner" => asked.request(|SetOwner { path, owner, group }| Request::SetOwner { path, owner, group }),
        "setTimes" => asked.request(|SetTimes { path, mtime, atime }| Request::SetTimes {
            path,
            mtime: time(mtime),
            atime: time(atime),
        }),
        "setReplication" => {
            asked.request(|PathAndNumber { path, number }| Request::SetReplication { path, replication: bits(number) })
        }
        "setQuota" => asked.set_quota(),
        "setXAttr" => asked.request(|SetAttribute { path, attribute, flags }| Request::SetAttribute {
            path,
            attribute: attribute_of(attribute.unwrap_or_default()),
            creates: flags.unwrap_or(0) & CREATE != 0,
            replaces: flags.unwrap_or(0) & REPLACE != 0,
        }),
        "removeXAttr" => asked.request(|RemoveAttribute { path, attribute }| {
            let Attribute { space, name, .. } = attribute_of(attribute.unwrap_or_default());
            Request::RemoveAttribute { path, space, name: name.into_string() }
        }),
        "getXAttrs" => asked.request(|GetAttributes { path, names }| Request::Attributes {
            path,
            names: names.into_iter().map(attribute_of).map(|it| (it.space, it.name.into_string())).collect(),
        }),
        "listXAttrs" => asked.request(|Text { it: path }| Request::AttributeNames { path }),
        "setAcl" => asked.request(lists::edit(AclEdit::Replace)),
        "modifyAclEntries" => asked.request(lists::edit(AclEdit::Modify)),
        "removeAclEntries" => asked.request(lists::edit(AclEdit::Remove)),
        "removeDefaultAcl" => asked.request(lists::edit(|_| AclEdit::RemoveDefault)),
        "removeAcl" => asked.request(lists::edit(|_| AclEdit::Clear)),
        "getAclStatus" => asked.request(|Text { it: path }| Request::Acl { path }),
        "setStoragePolicy" => asked.set_storage_policy(),
        "unsetStoragePolicy" => asked.request(|Text { it: path }| Request::SetPolicy { path, policy: None }),
        "isFileClosed" => asked.request(|Text { it: path }| Request::IsFileClosed { path }),
        "getPreferredBlockSize" => asked.request(|Text { it: path }| Request::PreferredBlockSize { path }),
        "checkAccess" => {
            asked.request(|PathAndNumber { path, number }| Request::CheckAccess { path, mode: bits(number) })
        }
        "getServerDefaults" => {
            asked.answerer.done(&ServerDefaultsResponse { it: Some(defaults(service)) });
        }
        "renewLease" => asked.renew_lease(),
        "recoverLease" => asked.recover_lease(),
        "getContentSummary" => asked.content_summary(),
        "getAdditionalDatanode" => asked.additional_node(),
        "reportBadBlocks" => asked.report_bad_blocks(),
        "getFsStats" => asked.stats(),
        "setSafeMode" => asked.safe_mode(),
        "getBatchedListing" => asked.batched_listing(),
        "getDatanodeReport" => asked.datanode_report(),
        "getSlowDatanodeReport" => asked.slow_datanode_report(),
        "getFsReplicatedBlockStats" => asked.replicated_block_stats(),
        "getFsECBlockGroupStats" => asked.group_stats(),
        "metaSave" => asked.metasave(),
        "getQuotaUsage" => asked.quota_usage(),
        "getStoragePolicies" => asked.answerer.done(&StoragePolicies { policies: policies::all() }),
        "getStoragePolicy" => asked.storage_policy(),
        "getEnclosingRoot" => asked.answerer.done(&EnclosingRoot { path: Some("/".to_owned()) }),
        "getHAServiceState" => asked.answerer.done(&ServiceState { state: ACTIVE }),
        // No path is in an encryption zone, and there is one state of all.
        "getEZForPath" | "msync" => asked.answerer.done(&Nothing {}),
        other if unsupported::CALLS.contains(&other) => {
            let words = format!("{other} is not supported by this name node");
            asked.answerer.refuse(exception::UNSUPPORTED, &words, Detail::Application);
        }
        other => no_such_method(other, NAME, asked.answerer),
    }
}

impl Asked<'_> {
    /// Does what a message asks for.
    fn request<M: Message + Default>(self, request: impl FnOnce(M) -> Request) {
        let Self { service, peer, body, answerer } = self;
        let Some((message, answerer)) = message(body, answerer) else { return };
        let request = request(message);
        let caller = answerer.caller();
        let client = <[u8; 16]>::try_from(caller.client.as_bytes()).ok();
        let call = client.filter(|_| request.is_done_once()).map(|client| CallId { client, call: caller.call });
        let (at, to) = (Arc::clone(service), Arc::clone(peer));
        service.ask(peer, call, &request, move |answer| match answer {
            Ok(reply) => replies::answer(&at, &to, reply, answerer),
            Err(why) => unanswered(&why, answerer),
        });
    }

    fn add_block(self) {
        let at = Arc::clone(self.service);
        self.request(move |AddBlock { path, client, previous, excluded, file }| Request::AddBlock {
            file: written(path, client, file),
            previous: previous.as_ref().map(named),
            excluded: holders(&at, &excluded),
        });
    }

    fn update_pipeline(self) {
        let at = Arc::clone(self.service);
        self.request(move |UpdatePipeline { client, old, new, nodes, storages }| {
            // Who says no storages means the first of each.
            let storages = storages.iter().map(|storage| &**storage).chain(std::iter::repeat(""));
            let names = nodes.iter().map(|node| &*node.uuid).zip(storages);
            let (places, are_all) = at.files.places_of(names, &at.node_uuid());
            Request::UpdatePipeline { client, old: named(&old), new: named(&new), places, are_all }
        });
    }

    /// There is one kind of storage.
    fn set_quota(self) {
        let Some((SetQuota { storage, .. }, answerer)) = message(self.body.clone(), self.answerer) else { return };
        if storage.is_some() {
            return refuse(&FilesError::new(Class::Unsupported, NO_STORAGE_QUOTA), answerer);
        }
        Asked { answerer, ..self }.request(|SetQuota { path, names, space, .. }| Request::SetQuota {
            path,
            names: limit(names),
            space: limit(space),
        });
    }

    fn renew_lease(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((Text { it: client }, answerer)) = message(body, answerer) else { return };
        service.run(peer, Errand::RenewLease { client }, move |told| match told {
            Ok(_) => answerer.done(&Nothing {}),
            Err(why) => unanswered(&why, answerer),
        });
    }

    fn recover_lease(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((RecoverLease { path, client }, answerer)) = message(body, answerer) else { return };
        let (at, to) = (Arc::clone(service), Arc::clone(peer));
        service.run(peer, Errand::RecoverLease { path: path.clone(), client }, move |told| {
            let outcome = told.and_then(Brought::bool);
            at.note(&to, "recoverLease", &path, &outcome);
            match outcome {
                Ok(it) => answerer.done(&Flag { it }),
                Err(why) => unanswered(&why, answerer),
            }
        });
    }

    fn content_summary(self) {
        self.summary("contentSummary", |summary, answerer| {
            let [quota, space_quota] = replies::limits(summary.quota);
            answerer.done(&ContentSummaryResponse {
                it: Some(ContentSummary {
                    length: summary.length,
                    files: summary.files,
                    directories: summary.directories,
                    quota,
                    space: summary.space,
                    space_quota,
                }),
            });
        });
    }

    /// What a directory with a quota has is known; that of another is counted.
    fn quota_usage(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((Text { it: path }, answerer)) = message(body.clone(), answerer) else { return };
        let (at, to) = (Arc::clone(service), Arc::clone(peer));
        let heard = move |answer| match answer {
            Ok(Reply::Quota(None)) => {
                let asked = Asked { service: &at, peer: &to, body, answerer };
                asked.summary("quotaUsage", |summary, answerer| {
                    let names = summary.files.saturating_add(summary.directories);
                    let used = Usage { names, space: summary.space };
                    answerer.done(&One { it: Some(replies::quota_usage(used, summary.quota)) });
                });
            }
            Ok(reply) => replies::answer(&at, &to, reply, answerer),
            Err(why) => unanswered(&why, answerer),
        };
        service.names.call(&peer.asker(None), &Request::Quota { path }, Box::new(heard));
    }

    fn set_storage_policy(self) {
        let Some((SetStoragePolicy { policy, .. }, answerer)) = message(self.body.clone(), self.answerer) else {
            return;
        };
        match policies::named(&policy) {
            Ok(policy) => Asked { answerer, ..self }
                .request(|SetStoragePolicy { path, .. }| Request::SetPolicy { path, policy: Some(policy) }),
            Err(error) => refuse(&error, answerer),
        }
    }

    fn storage_policy(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((Text { it: path }, answerer)) = message(body, answerer) else { return };
        let request = Request::FileInfo { path: path.clone() };
        let heard = move |answer| match answer {
            Ok(Reply::Status(None)) => refuse(&policies::nothing_at(&path), answerer),
            Ok(Reply::Status(Some(status))) => answerer.done(&One { it: Some(policies::of(status.policy)) }),
            // Nothing else is the answer to that.
            Ok(_) => drop(answerer),
            Err(why) => unanswered(&why, answerer),
        };
        service.names.call(&peer.asker(None), &request, Box::new(heard));
    }

    fn summary(self, command: &'static str, tell: impl FnOnce(Summary, Answerer) + Send + 'static) {
        let Self { service, peer, body, answerer } = self;
        let Some((Text { it: path }, answerer)) = message(body, answerer) else { return };
        service.summary(peer, command, path, move |summary| match summary {
            Ok(summary) => tell(summary, answerer),
            Err(why) => unanswered(&why, answerer),
        });
    }

    /// Data nodes that take the places of others in a pipeline, if there are any; it stays as it is if not.
    fn additional_node(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((wanted, answerer)) = message(body, answerer) else { return };
        let GetAdditionalDatanode { block, existing, excluded, count, storages, .. } = wanted;
        let name = named(&block);
        let mut without = holders(service, &existing);
        without.extend(holders(service, &excluded));
        let count = usize::try_from(count).unwrap_or(0);
        let places = service.files.choose_more(name.id, count, &without);
        let encoder = Encoder::new(service, peer);
        let located = LocatedBlock { block: name, offset: 0, is_corrupt: false, places: Vec::new() };
        let mut it = encoder.located_block(&located);
        (it.nodes, it.storages) = (existing, storages);
        it.storages.resize(it.nodes.len(), String::new());
        it.storage_types = vec![1; it.nodes.len()];
        for place in places {
            let Some((node, storage, kind)) = encoder.place(place) else { continue };
            // The one here sends nothing on, so it comes last.
            let at = if place == Place::HERE { it.nodes.len() } else { 0 };
            it.nodes.insert(at, node);
            it.storages.insert(at, storage);
            it.storage_types.insert(at, kind);
        }
        it.is_cached = vec![false; it.nodes.len()];
        answerer.done(&One { it: Some(it) });
    }

    fn report_bad_blocks(self) {
        let Self { service, body, answerer, .. } = self;
        let Some((ReportBadBlocks { blocks }, answerer)) = message(body, answerer) else { return };
        if let Err(why) = service.files.check_read() {
            return unanswered(&why, answerer);
        }
        service.found_corrupt(&blocks);
        answerer.done(&Nothing {});
    }

    fn stats(self) {
        let Self { service, peer, answerer, .. } = self;
        service.statistics(peer, move |told| {
            let stats = match told {
                Ok(told) => told.stats,
                Err(why) => return unanswered(&why, answerer),
            };
            let space = stats.all();
            answerer.done(&FsStats {
                capacity: space.capacity,
                used: space.used,
                remaining: space.remaining,
                under_replicated: stats.low,
                corrupt: stats.corrupt,
                missing: stats.missing,
            });
        });
    }

    fn safe_mode(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((SetSafeMode { action }, answerer)) = message(body, answerer) else { return };
        let wanted = match action {
            1 | 4 => Some(false),
            2 => Some(true),
            3 => None,
            other => {
                let words = format!("expected an action of safe mode from 1 to 4, came {other}");
                return refuse(&FilesError::new(Class::IllegalArgument, words), answerer);
            }
        };
        service.run(peer, Errand::SafeMode { wanted }, move |told| match told.and_then(Brought::bool) {
            Ok(it) => answerer.done(&Flag { it }),
            Err(why) => unanswered(&why, answerer),
        });
    }
}

/// Data nodes that a client names. Those that nobody knows are left out.
fn holders(service: &Service, nodes: &[wire::hdfs::Node]) -> Vec<Holder> {
    let own = service.node_uuid();
    nodes.iter().filter_map(|node| service.files.holder_of(&node.id.uuid, &own)).collect()
}

fn created(create: Create) -> Request {
    let Create { path, permission, client, flags, with_parents, replication, block_size, unmasked } = create;
    Request::Create(request::Create {
        path,
        mode: modes(permission, unmasked),
        client,
        overwrites: flags & OVERWRITE != 0,
        creates: flags & CREATE != 0,
        with_parents,
        replication: bits(replication),
        block_size,
        is_all_or_nothing: false,
    })
}

pub(super) fn written(path: String, client: String, file: Option<u64>) -> Written {
    // 0 is what clients say that do not know it.
    let id = file.filter(|id| *id != 0).map(InodeId);
    Written { path, id, client }
}

fn attribute_of(attribute: wire::client::Attribute) -> Attribute {
    let wire::client::Attribute { space, name, value } = attribute;
    let space = match space {
        0 => AttributeSpace::User,
        1 => AttributeSpace::Trusted,
        2 => AttributeSpace::Security,
        3 => AttributeSpace::System,
        _ => AttributeSpace::Raw,
    };
    Attribute { space, name: name.into(), value: value.unwrap_or_default().into() }
}

/// A quota as clients say it.
pub(crate) const fn limit(quota: u64) -> Limit {
    match quota {
        SAME_QUOTA => Limit::Same,
        NO_QUOTA => Limit::None,
        most => Limit::Most(most),
    }
}

/// The bits of something new.
fn modes(masked: Permission, unmasked: Option<Permission>) -> Modes {
    Modes { masked: bits(masked.bits), unmasked: unmasked.map(|permission| bits(permission.bits)) }
}

/// A small number, or one that is refused because it is too large.
fn bits(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn time(time: u64) -> Option<Millis> {
    (time != SAME_TIME).then_some(Millis(time))
}
