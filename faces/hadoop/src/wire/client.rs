//! Requests and responses of `ClientProtocol`, `ClientDatanodeProtocol` and `NamenodeProtocol`. A response that has one field is a
//! [`One`], whatever it is called.

use prost::Message;

use super::hdfs::{Block, ContentSummary, FileStatus, LocatedBlock, Node, NodeId, Permission, ServerDefaults};

/// What has a message in its first field, or nothing.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct One<M: Message + Default + std::fmt::Debug> {
    #[prost(message, optional, tag = "1")]
    pub(crate) it: Option<M>,
}

/// A truth value.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Flag {
    #[prost(bool, required, tag = "1")]
    pub(crate) it: bool,
}

/// A number.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Number {
    #[prost(uint64, required, tag = "1")]
    pub(crate) it: u64,
}

/// A path, or another text.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Text {
    #[prost(string, required, tag = "1")]
    pub(crate) it: String,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Nothing {}

/// `GetListingRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetListing {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) after: Vec<u8>,
    #[prost(bool, required, tag = "3")]
    pub(crate) with_locations: bool,
}

/// `GetLocatedFileInfoRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetLocatedFileInfo {
    #[prost(string, optional, tag = "1")]
    pub(crate) path: Option<String>,
}

/// `ListOpenFilesRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListOpenFiles {
    #[prost(int64, required, tag = "1")]
    pub(crate) after: i64,
    #[prost(string, optional, tag = "3")]
    pub(crate) path: Option<String>,
}

/// `OpenFilesBatchResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OpenFile {
    #[prost(int64, required, tag = "1")]
    pub(crate) id: i64,
    #[prost(string, required, tag = "2")]
    pub(crate) path: String,
    #[prost(string, required, tag = "3")]
    pub(crate) client: String,
    #[prost(string, required, tag = "4")]
    pub(crate) machine: String,
}

/// `ListOpenFilesResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OpenFiles {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<OpenFile>,
    #[prost(bool, required, tag = "2")]
    pub(crate) has_more: bool,
    #[prost(int32, repeated, packed = "false", tag = "3")]
    pub(crate) kinds: Vec<i32>,
}

/// `QuotaUsageProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct QuotaUsage {
    #[prost(uint64, required, tag = "1")]
    pub(crate) inodes: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) quota: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) space: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) space_quota: u64,
}

/// `SetQuotaRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetQuota {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) names: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) space: u64,
    #[prost(int32, optional, tag = "4")]
    pub(crate) storage: Option<i32>,
}

/// `XAttrProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(int32, required, tag = "1")]
    pub(crate) space: i32,
    #[prost(string, required, tag = "2")]
    pub(crate) name: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) value: Option<Vec<u8>>,
}

/// `SetXAttrRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetAttribute {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) attribute: Option<Attribute>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) flags: Option<u32>,
}

/// `RemoveXAttrRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RemoveAttribute {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) attribute: Option<Attribute>,
}

/// `GetXAttrsRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetAttributes {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) names: Vec<Attribute>,
}

/// `GetXAttrsResponseProto`, `ListXAttrsResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attributes {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<Attribute>,
}

/// `AclEntryProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AclEntry {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
    #[prost(int32, required, tag = "2")]
    pub(crate) scope: i32,
    #[prost(int32, required, tag = "3")]
    pub(crate) bits: i32,
    #[prost(string, optional, tag = "4")]
    pub(crate) name: Option<String>,
}

/// `SetAclRequestProto`, `ModifyAclEntriesRequestProto`, `RemoveAclEntriesRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EditAcl {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) entries: Vec<AclEntry>,
}

/// `AclStatusProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AclStatus {
    #[prost(string, required, tag = "1")]
    pub(crate) owner: String,
    #[prost(string, required, tag = "2")]
    pub(crate) group: String,
    #[prost(bool, required, tag = "3")]
    pub(crate) is_sticky: bool,
    #[prost(message, repeated, tag = "4")]
    pub(crate) entries: Vec<AclEntry>,
    #[prost(message, optional, tag = "5")]
    pub(crate) permission: Option<Permission>,
}

/// `SetStoragePolicyRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetStoragePolicy {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, required, tag = "2")]
    pub(crate) policy: String,
}

/// `StorageTypesProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageTypes {
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub(crate) kinds: Vec<i32>,
}

/// `BlockStoragePolicyProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoragePolicy {
    #[prost(uint32, required, tag = "1")]
    pub(crate) id: u32,
    #[prost(string, required, tag = "2")]
    pub(crate) name: String,
    #[prost(message, required, tag = "3")]
    pub(crate) creation: StorageTypes,
    #[prost(message, optional, tag = "4")]
    pub(crate) creation_else: Option<StorageTypes>,
    #[prost(message, optional, tag = "5")]
    pub(crate) replication_else: Option<StorageTypes>,
}

/// `GetStoragePoliciesResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoragePolicies {
    #[prost(message, repeated, tag = "1")]
    pub(crate) policies: Vec<StoragePolicy>,
}

/// `GetEnclosingRootResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EnclosingRoot {
    #[prost(string, optional, tag = "1")]
    pub(crate) path: Option<String>,
}

/// `HAServiceStateResponseProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ServiceState {
    #[prost(int32, required, tag = "1")]
    pub(crate) state: i32,
}

/// `GetBlockLocationsRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetBlockLocations {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
}

/// `CreateRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Create {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, required, tag = "2")]
    pub(crate) permission: Permission,
    #[prost(string, required, tag = "3")]
    pub(crate) client: String,
    #[prost(uint32, required, tag = "4")]
    pub(crate) flags: u32,
    #[prost(bool, required, tag = "5")]
    pub(crate) with_parents: bool,
    #[prost(uint32, required, tag = "6")]
    pub(crate) replication: u32,
    #[prost(uint64, required, tag = "7")]
    pub(crate) block_size: u64,
    #[prost(message, optional, tag = "9")]
    pub(crate) unmasked: Option<Permission>,
}

/// `AppendRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Append {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) flags: Option<u32>,
}

/// `AppendResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppendResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<LocatedBlock>,
    #[prost(message, optional, tag = "2")]
    pub(crate) status: Option<FileStatus>,
}

/// `TruncateRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Truncate {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) length: u64,
    #[prost(string, required, tag = "3")]
    pub(crate) client: String,
}

/// `ConcatRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Concat {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) sources: Vec<String>,
}

/// `MkdirsRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mkdirs {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, required, tag = "2")]
    pub(crate) permission: Permission,
    #[prost(bool, required, tag = "3")]
    pub(crate) with_parents: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) unmasked: Option<Permission>,
}

/// `AddBlockRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AddBlock {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) previous: Option<Block>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) excluded: Vec<Node>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) file: Option<u64>,
}

/// `AbandonBlockRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AbandonBlock {
    #[prost(message, required, tag = "1")]
    pub(crate) block: Block,
    #[prost(string, required, tag = "2")]
    pub(crate) path: String,
    #[prost(string, required, tag = "3")]
    pub(crate) client: String,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) file: Option<u64>,
}

/// `CompleteRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Complete {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) last: Option<Block>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) file: Option<u64>,
}

/// `FsyncRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Fsync {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
    #[prost(sint64, optional, tag = "3")]
    pub(crate) length: Option<i64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) file: Option<u64>,
}

/// `GetAdditionalDatanodeRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetAdditionalDatanode {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, required, tag = "2")]
    pub(crate) block: Block,
    #[prost(message, repeated, tag = "3")]
    pub(crate) existing: Vec<Node>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) excluded: Vec<Node>,
    #[prost(uint32, required, tag = "5")]
    pub(crate) count: u32,
    #[prost(string, repeated, tag = "7")]
    pub(crate) storages: Vec<String>,
}

/// `UpdateBlockForPipelineRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdateBlockForPipeline {
    #[prost(message, required, tag = "1")]
    pub(crate) block: Block,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
}

/// `UpdatePipelineRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdatePipeline {
    #[prost(string, required, tag = "1")]
    pub(crate) client: String,
    #[prost(message, required, tag = "2")]
    pub(crate) old: Block,
    #[prost(message, required, tag = "3")]
    pub(crate) new: Block,
    #[prost(message, repeated, tag = "4")]
    pub(crate) nodes: Vec<NodeId>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) storages: Vec<String>,
}

/// `RenameRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rename {
    #[prost(string, required, tag = "1")]
    pub(crate) from: String,
    #[prost(string, required, tag = "2")]
    pub(crate) to: String,
}

/// `Rename2RequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rename2 {
    #[prost(string, required, tag = "1")]
    pub(crate) from: String,
    #[prost(string, required, tag = "2")]
    pub(crate) to: String,
    #[prost(bool, required, tag = "3")]
    pub(crate) overwrites: bool,
}

/// `DeleteRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Delete {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(bool, required, tag = "2")]
    pub(crate) is_recursive: bool,
}

/// `SetPermissionRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetPermission {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(message, required, tag = "2")]
    pub(crate) permission: Permission,
}

/// `SetOwnerRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetOwner {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) owner: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) group: Option<String>,
}

/// `SetTimesRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetTimes {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) mtime: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) atime: u64,
}

/// A path and a small number: `SetReplicationRequestProto`, `CheckAccessRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PathAndNumber {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(uint32, required, tag = "2")]
    pub(crate) number: u32,
}

/// `RecoverLeaseRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RecoverLease {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
}

/// `ReportBadBlocksRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReportBadBlocks {
    #[prost(message, repeated, tag = "1")]
    pub(crate) blocks: Vec<LocatedBlock>,
}

/// `GetFsStatsResponseProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct FsStats {
    #[prost(uint64, required, tag = "1")]
    pub(crate) capacity: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) used: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) remaining: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) under_replicated: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) corrupt: u64,
    #[prost(uint64, required, tag = "6")]
    pub(crate) missing: u64,
}

/// `SetSafeModeRequestProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SetSafeMode {
    #[prost(int32, required, tag = "1")]
    pub(crate) action: i32,
}

/// `GetServerDefaultsResponseProto`.
pub(crate) type ServerDefaultsResponse = One<ServerDefaults>;
/// `GetContentSummaryResponseProto`.
pub(crate) type ContentSummaryResponse = One<ContentSummary>;

/// `VersionResponseProto`.
pub(crate) type VersionResponse = One<NamespaceInfo>;

/// `NamespaceInfoProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NamespaceInfo {
    #[prost(string, required, tag = "1")]
    pub(crate) build: String,
    #[prost(uint32, required, tag = "2")]
    pub(crate) unused: u32,
    #[prost(string, required, tag = "3")]
    pub(crate) pool: String,
    #[prost(message, required, tag = "4")]
    pub(crate) storage: StorageInfo,
    #[prost(string, required, tag = "5")]
    pub(crate) software: String,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) capabilities: Option<u64>,
}

/// `StorageInfoProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageInfo {
    #[prost(uint32, required, tag = "1")]
    pub(crate) layout: u32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) namespace: u32,
    #[prost(string, required, tag = "3")]
    pub(crate) cluster: String,
    #[prost(uint64, required, tag = "4")]
    pub(crate) created: u64,
}
