//! What `dfsadmin` asks, and listings of several directories at once.

use prost::Message;

use super::hdfs::{FileStatus, Node};

/// `GetDatanodeReportRequestProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct GetDatanodeReport {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
}

/// `GetDatanodeReportResponseProto`, `GetSlowDatanodeReportResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DatanodeReport {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<Node>,
}

/// `GetFsReplicatedBlockStatsResponseProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReplicatedBlockStats {
    #[prost(uint64, required, tag = "1")]
    pub(crate) low: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) corrupt: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) missing: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) missing_of_one: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) in_future: u64,
    #[prost(uint64, required, tag = "6")]
    pub(crate) to_delete: u64,
}

/// `GetFsECBlockGroupStatsResponseProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct GroupStats {
    #[prost(uint64, required, tag = "1")]
    pub(crate) low: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) corrupt: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) missing: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) in_future: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) to_delete: u64,
}

/// `GetBatchedListingRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetBatchedListing {
    #[prost(string, repeated, tag = "1")]
    pub(crate) paths: Vec<String>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) after: Vec<u8>,
    #[prost(bool, required, tag = "3")]
    pub(crate) with_locations: bool,
}

/// `GetBatchedListingResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchedListing {
    #[prost(message, repeated, tag = "1")]
    pub(crate) parts: Vec<BatchedPart>,
    #[prost(bool, required, tag = "2")]
    pub(crate) has_more: bool,
    #[prost(bytes = "vec", required, tag = "3")]
    pub(crate) after: Vec<u8>,
}

/// `BatchedDirectoryListingProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchedPart {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<FileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub(crate) path: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) refusal: Option<RemoteException>,
}

/// `RemoteExceptionProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RemoteException {
    #[prost(string, required, tag = "1")]
    pub(crate) class: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) message: Option<String>,
}

/// `BatchedListingKeyProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchedKey {
    #[prost(bytes = "vec", required, tag = "1")]
    pub(crate) sum: Vec<u8>,
    #[prost(uint32, required, tag = "2")]
    pub(crate) path: u32,
    #[prost(bytes = "vec", required, tag = "3")]
    pub(crate) after: Vec<u8>,
}
