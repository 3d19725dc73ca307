//! What clients of WebHDFS are shown, as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use savanna_files_host::change::{Attribute, AttributeSpace, Quota, Usage};
use savanna_files_host::request::{AccessList, Located, LocatedBlock, Status};
use savanna_files_host::{Space, Summary};
use serde_json::{Map, Value, json};

use super::request::Encoding;
use crate::client::entry_text;
use crate::protocol::replies::{Encoder, limits};
use crate::protocol::{Peer, Service, client, lists, policies};
use crate::wire::client::{StoragePolicy, StorageTypes};
use crate::wire::hdfs::{Node, ServerDefaults};

/// A token of nobody, as a text.
const NO_TOKEN: &str = "AAAAAA";

/// A text under a name, or another value.
pub(super) fn under(name: &str, value: impl Into<Value>) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value.into())]))
}

/// A file or directory.
pub(super) fn status(status: &Status) -> Value {
    let mut shown = json!({
        "pathSuffix": String::from_utf8_lossy(&status.name),
        "type": if status.is_directory { "DIRECTORY" } else { "FILE" },
        "length": status.length,
        "owner": *status.owner,
        "group": *status.group,
        "permission": format!("{:o}", status.mode),
        "accessTime": status.atime.0,
        "modificationTime": status.mtime.0,
        "blockSize": status.block_size,
        "replication": status.replication,
        "fileId": status.id.0,
        "childrenNum": status.children,
        "storagePolicy": status.policy.unwrap_or(0),
    });
    if status.has_acl {
        shown["aclBit"] = json!(true);
    }
    shown
}

/// A part of what is in a directory.
pub(super) fn page(entries: &[Status], remaining: usize) -> Value {
    let entries: Vec<Value> = entries.iter().map(status).collect();
    json!({ "DirectoryListing": {
        "partialListing": { "FileStatuses": { "FileStatus": entries } },
        "remainingEntries": remaining,
    }})
}

/// A trash.
pub(super) fn trash(path: &str, status: &Status) -> Value {
    json!({
        "path": path,
        "length": status.length,
        "isdir": status.is_directory,
        "block_replication": status.replication,
        "blocksize": status.block_size,
        "modification_time": status.mtime.0,
        "access_time": status.atime.0,
        "permission": format!("{:o}", status.mode),
        "owner": *status.owner,
        "group": *status.group,
    })
}

/// What a subtree holds.
pub(super) fn summary(summary: &Summary) -> Value {
    let Summary { length, space, files, directories, quota } = *summary;
    let [quota, space_quota] = shown_limits(quota);
    json!({ "ContentSummary": {
        "length": length,
        "fileCount": files,
        "directoryCount": directories,
        "ecPolicy": "",
        "quota": quota,
        "spaceConsumed": space,
        "spaceQuota": space_quota,
        "typeQuota": {},
        "snapshotLength": 0,
        "snapshotFileCount": 0,
        "snapshotDirectoryCount": 0,
        "snapshotSpaceConsumed": 0,
    }})
}

/// What a directory has, and may have.
pub(super) fn quota_usage(used: Usage, quota: Option<Quota>) -> Value {
    let [names, space] = shown_limits(quota);
    json!({ "QuotaUsage": {
        "fileAndDirectoryCount": used.names,
        "quota": names,
        "spaceConsumed": used.space,
        "spaceQuota": space,
        "typeQuota": {},
    }})
}

/// How much there may be, -1 where that is not limited.
fn shown_limits(quota: Option<Quota>) -> [i64; 2] {
    limits(quota).map(u64::cast_signed)
}

/// The entries of an access control list.
pub(super) fn access_list(list: &AccessList) -> Value {
    let entries: Vec<String> = list.entries.iter().map(|entry| entry_text(&lists::message(entry))).collect();
    json!({ "AclStatus": {
        "owner": *list.owner,
        "group": *list.group,
        "stickyBit": list.mode & 0o1000 != 0,
        "entries": entries,
        "permission": format!("{:o}", list.mode),
    }})
}

/// Extended attributes with their values.
pub(super) fn attributes(attributes: &[Attribute], encoding: Encoding) -> Value {
    let shown = |attribute: &Attribute| json!({ "name": name(attribute), "value": value(&attribute.value, encoding) });
    under("XAttrs", attributes.iter().map(shown).collect::<Vec<_>>())
}

/// Their names: JSON in a text, as Hadoop has it.
pub(super) fn attribute_names(attributes: &[Attribute]) -> Value {
    let names: Vec<String> = attributes.iter().map(name).collect();
    under("XAttrNames", json!(names).to_string())
}

fn name(attribute: &Attribute) -> String {
    let space = match attribute.space {
        AttributeSpace::User => "user",
        AttributeSpace::Trusted => "trusted",
        AttributeSpace::Security => "security",
        AttributeSpace::System => "system",
        AttributeSpace::Raw => "raw",
    };
    format!("{space}.{}", attribute.name)
}

fn value(bytes: &[u8], encoding: Encoding) -> String {
    match encoding {
        Encoding::Text => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        Encoding::Hex => format!("0x{}", hex(bytes)),
        Encoding::Base64 => format!("0s{}", BASE64.encode(bytes)),
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All storage policies.
pub(super) fn policies() -> Value {
    let all: Vec<Value> = policies::all().iter().map(policy).collect();
    under("BlockStoragePolicies", under("BlockStoragePolicy", all))
}

/// What blocks of a path should be on.
pub(super) fn policy_of(number: Option<u8>) -> Value {
    under("BlockStoragePolicy", policy(&policies::of(number)))
}

fn policy(policy: &StoragePolicy) -> Value {
    let names = |types: Option<&StorageTypes>| -> Vec<&str> {
        types.iter().flat_map(|types| &types.kinds).map(|kind| policies::storage_name(*kind)).collect()
    };
    json!({
        "id": policy.id,
        "name": policy.name,
        "storageTypes": names(Some(&policy.creation)),
        "creationFallbacks": names(policy.creation_else.as_ref()),
        "replicationFallbacks": names(policy.replication_else.as_ref()),
        "copyOnCreateFile": false,
    })
}

/// What clients choose if nobody says anything.
pub(super) fn defaults(service: &Service) -> Value {
    let ServerDefaults { block_size, chunk, packet, replication, buffer, encrypts, trash_minutes, checksum } =
        client::defaults(service);
    json!({ "FsServerDefaults": {
        "blockSize": block_size,
        "bytesPerChecksum": chunk,
        "writePacketSize": packet,
        "replication": replication,
        "fileBufferSize": buffer,
        "encryptDataTransfer": encrypts,
        "trashInterval": trash_minutes,
        "checksumType": checksum,
        "keyProviderUri": "",
        "defaultStoragePolicyId": policies::of(None).id,
    }})
}

/// The space on the disk.
pub(super) fn space(space: Space) -> Value {
    json!({ "FsStatus": { "capacity": space.capacity, "used": space.used, "remaining": space.remaining } })
}

/// Blocks of a file and where they are.
pub(super) struct Places<'a> {
    service: &'a Service,
    encoder: Encoder<'a>,
}

impl<'a> Places<'a> {
    pub(super) const fn of(service: &'a Service, peer: &'a Peer) -> Self {
        Self { service, encoder: Encoder::new(service, peer) }
    }

    /// The data nodes of a block.
    fn nodes(&self, located: &LocatedBlock) -> Vec<Node> {
        located.places.iter().filter_map(|place| self.encoder.place(*place)).map(|(node, ..)| node).collect()
    }

    /// As `getBlockLocations` of Java's client takes them.
    pub(super) fn blocks(&self, located: &Located) -> Value {
        let blocks: Vec<Value> = located.blocks.iter().map(|block| self.block(block)).collect();
        json!({ "LocatedBlocks": {
            "fileLength": located.length,
            "isUnderConstruction": located.is_written,
            "locatedBlocks": blocks,
            "lastLocatedBlock": located.last.as_ref().map(|block| self.block(block)),
            "isLastBlockComplete": located.is_last_complete,
        }})
    }

    fn block(&self, located: &LocatedBlock) -> Value {
        let LocatedBlock { block, offset, is_corrupt, .. } = located;
        let places: Vec<Value> = self.nodes(located).iter().map(node).collect();
        let kinds = vec!["DISK"; places.len()];
        json!({
            "blockToken": { "urlString": NO_TOKEN },
            "isCorrupt": is_corrupt,
            "startOffset": offset,
            "block": {
                "blockPoolId": self.service.files.identity().pool,
                "blockId": block.id.0,
                "numBytes": block.length,
                "generationStamp": block.stamp.0,
            },
            "storageTypes": kinds,
            "locations": places,
            "cachedLocations": [],
        })
    }

    /// As `getFileBlockLocations` of programs shows them.
    pub(super) fn places(&self, located: &Located) -> Value {
        let shown = |located: &LocatedBlock| {
            let nodes = self.nodes(located);
            let names: Vec<String> =
                nodes.iter().map(|node| format!("{}:{}", node.id.address, node.id.transfer_port)).collect();
            let racks = nodes.iter().map(|node| node.location.as_deref().unwrap_or_default());
            json!({
                "length": located.block.length,
                "offset": located.offset,
                "corrupt": located.is_corrupt,
                "storageTypes": vec!["DISK"; nodes.len()],
                "cachedHosts": [],
                "hosts": nodes.iter().map(|node| &*node.id.host).collect::<Vec<_>>(),
                "topologyPaths": racks.zip(&names).map(|(rack, name)| format!("{rack}/{name}")).collect::<Vec<_>>(),
                "names": names,
            })
        };
        under("BlockLocations", under("BlockLocation", located.blocks.iter().map(shown).collect::<Vec<_>>()))
    }
}

/// A data node.
fn node(node: &Node) -> Value {
    let Node { id, capacity, used, remaining, location, .. } = node;
    json!({
        "ipAddr": id.address,
        "name": format!("{}:{}", id.address, id.transfer_port),
        "hostName": id.host,
        "storageID": id.uuid,
        "xferPort": id.transfer_port,
        "infoPort": id.info_port,
        "infoSecurePort": 0,
        "ipcPort": id.ipc_port,
        "capacity": capacity,
        "dfsUsed": used,
        "remaining": remaining,
        "blockPoolUsed": used,
        "cacheCapacity": 0,
        "cacheUsed": 0,
        "lastUpdate": 0,
        "lastUpdateMonotonic": 0,
        "xceiverCount": 0,
        "networkLocation": location,
        "adminState": "NORMAL",
        "lastBlockReportTime": 0,
        "lastBlockReportMonotonic": 0,
    })
}
