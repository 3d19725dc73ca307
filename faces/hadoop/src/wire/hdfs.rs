//! What names blocks, nodes and files in all protocols.

use prost::Message;

/// `ExtendedBlockProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Block {
    #[prost(string, required, tag = "1")]
    pub(crate) pool: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) id: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) stamp: u64,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) length: Option<u64>,
}

/// `DatanodeIDProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeId {
    #[prost(string, required, tag = "1")]
    pub(crate) address: String,
    #[prost(string, required, tag = "2")]
    pub(crate) host: String,
    #[prost(string, required, tag = "3")]
    pub(crate) uuid: String,
    #[prost(uint32, required, tag = "4")]
    pub(crate) transfer_port: u32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) info_port: u32,
    #[prost(uint32, required, tag = "6")]
    pub(crate) ipc_port: u32,
}

/// `DatanodeInfoProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    #[prost(message, required, tag = "1")]
    pub(crate) id: NodeId,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) capacity: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) used: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) remaining: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) pool_used: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) updated: Option<u64>,
    #[prost(string, optional, tag = "8")]
    pub(crate) location: Option<String>,
    #[prost(uint64, optional, tag = "9")]
    pub(crate) other_used: Option<u64>,
    #[prost(int32, optional, tag = "10")]
    pub(crate) state: Option<i32>,
    #[prost(uint32, optional, tag = "17")]
    pub(crate) blocks: Option<u32>,
    #[prost(string, optional, tag = "18")]
    pub(crate) software: Option<String>,
}

/// `hadoop.common.TokenProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Token {
    #[prost(bytes = "vec", required, tag = "1")]
    pub(crate) identifier: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) password: Vec<u8>,
    #[prost(string, required, tag = "3")]
    pub(crate) kind: String,
    #[prost(string, required, tag = "4")]
    pub(crate) service: String,
}

/// `LocatedBlockProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocatedBlock {
    #[prost(message, required, tag = "1")]
    pub(crate) block: Block,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) nodes: Vec<Node>,
    #[prost(bool, required, tag = "4")]
    pub(crate) is_corrupt: bool,
    #[prost(message, required, tag = "5")]
    pub(crate) token: Token,
    #[prost(bool, repeated, tag = "6")]
    pub(crate) is_cached: Vec<bool>,
    #[prost(int32, repeated, packed = "false", tag = "7")]
    pub(crate) storage_types: Vec<i32>,
    #[prost(string, repeated, tag = "8")]
    pub(crate) storages: Vec<String>,
}

/// `LocatedBlocksProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocatedBlocks {
    #[prost(uint64, required, tag = "1")]
    pub(crate) length: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) blocks: Vec<LocatedBlock>,
    #[prost(bool, required, tag = "3")]
    pub(crate) is_written: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) last: Option<LocatedBlock>,
    #[prost(bool, required, tag = "5")]
    pub(crate) is_last_complete: bool,
}

/// `FsPermissionProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Permission {
    #[prost(uint32, required, tag = "1")]
    pub(crate) bits: u32,
}

/// `HdfsFileStatusProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FileStatus {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) path: Vec<u8>,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
    #[prost(message, required, tag = "4")]
    pub(crate) permission: Permission,
    #[prost(string, required, tag = "5")]
    pub(crate) owner: String,
    #[prost(string, required, tag = "6")]
    pub(crate) group: String,
    #[prost(uint64, required, tag = "7")]
    pub(crate) mtime: u64,
    #[prost(uint64, required, tag = "8")]
    pub(crate) atime: u64,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) replication: Option<u32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) block_size: Option<u64>,
    #[prost(message, optional, tag = "12")]
    pub(crate) blocks: Option<LocatedBlocks>,
    #[prost(uint64, optional, tag = "13")]
    pub(crate) id: Option<u64>,
    #[prost(int32, optional, tag = "14")]
    pub(crate) children: Option<i32>,
    #[prost(uint32, optional, tag = "16")]
    pub(crate) policy: Option<u32>,
    #[prost(uint32, optional, tag = "18")]
    pub(crate) flags: Option<u32>,
}

/// `DirectoryListingProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Listing {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<FileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub(crate) remaining: u32,
}

/// `FsServerDefaultsProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerDefaults {
    #[prost(uint64, required, tag = "1")]
    pub(crate) block_size: u64,
    #[prost(uint32, required, tag = "2")]
    pub(crate) chunk: u32,
    #[prost(uint32, required, tag = "3")]
    pub(crate) packet: u32,
    #[prost(uint32, required, tag = "4")]
    pub(crate) replication: u32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) buffer: u32,
    #[prost(bool, optional, tag = "6")]
    pub(crate) encrypts: Option<bool>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) trash_minutes: Option<u64>,
    #[prost(int32, optional, tag = "8")]
    pub(crate) checksum: Option<i32>,
}

/// `ContentSummaryProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContentSummary {
    #[prost(uint64, required, tag = "1")]
    pub(crate) length: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) files: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) directories: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) quota: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) space: u64,
    #[prost(uint64, required, tag = "6")]
    pub(crate) space_quota: u64,
}
