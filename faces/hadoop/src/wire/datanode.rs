//! What data nodes say to the name node, and what they hear: `DatanodeProtocol` and `InterDatanodeProtocol`.

use prost::Message;

use super::client::StorageInfo;
use super::hdfs::{Block, LocatedBlock, Node, NodeId};

/// `BlockProto`: a block whose installation is known.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PlainBlock {
    #[prost(uint64, required, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) stamp: u64,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) length: Option<u64>,
}

/// `BlockKeyProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Key {
    #[prost(uint32, required, tag = "1")]
    pub(crate) id: u32,
    #[prost(uint64, required, tag = "2")]
    pub(crate) until: u64,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) bytes: Option<Vec<u8>>,
}

/// `ExportedBlockKeysProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Keys {
    #[prost(bool, required, tag = "1")]
    pub(crate) is_asked: bool,
    #[prost(uint64, required, tag = "2")]
    pub(crate) interval: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) life: u64,
    #[prost(message, required, tag = "4")]
    pub(crate) current: Key,
}

/// `DatanodeRegistrationProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Registration {
    #[prost(message, required, tag = "1")]
    pub(crate) id: NodeId,
    #[prost(message, required, tag = "2")]
    pub(crate) storage: StorageInfo,
    #[prost(message, required, tag = "3")]
    pub(crate) keys: Keys,
    #[prost(string, required, tag = "4")]
    pub(crate) software: String,
}

/// `RegisterDatanodeRequestProto`, `RegisterDatanodeResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Registered {
    #[prost(message, required, tag = "1")]
    pub(crate) registration: Registration,
}

/// `DatanodeStorageProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Storage {
    #[prost(string, required, tag = "1")]
    pub(crate) id: String,
    #[prost(int32, optional, tag = "3")]
    pub(crate) kind: Option<i32>,
}

/// `StorageReportProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageReport {
    #[prost(string, required, tag = "1")]
    pub(crate) id: String,
    #[prost(bool, optional, tag = "2")]
    pub(crate) has_failed: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) capacity: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) used: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) remaining: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) pool_used: Option<u64>,
    #[prost(message, optional, tag = "7")]
    pub(crate) storage: Option<Storage>,
}

/// `HeartbeatRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Heartbeat {
    #[prost(message, required, tag = "1")]
    pub(crate) registration: Registration,
    #[prost(message, repeated, tag = "2")]
    pub(crate) reports: Vec<StorageReport>,
    #[prost(uint32, optional, tag = "4")]
    pub(crate) connections: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    pub(crate) failed_disks: Option<u32>,
    #[prost(bool, optional, tag = "9")]
    pub(crate) wants_to_report: Option<bool>,
}

/// `NNHAStatusHeartbeatProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct State {
    #[prost(int32, required, tag = "1")]
    pub(crate) state: i32,
    #[prost(uint64, required, tag = "2")]
    pub(crate) txid: u64,
}

/// `HeartbeatResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeartbeatResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) commands: Vec<Command>,
    #[prost(message, required, tag = "2")]
    pub(crate) state: State,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) lease: Option<u64>,
}

/// `DatanodeCommandProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Command {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) blocks: Option<BlockCommand>,
    #[prost(message, optional, tag = "4")]
    pub(crate) recovery: Option<RecoveryCommand>,
    #[prost(message, optional, tag = "7")]
    pub(crate) register: Option<RegisterCommand>,
}

/// `RegisterCommandProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct RegisterCommand {}

/// `BlockCommandProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BlockCommand {
    #[prost(int32, required, tag = "1")]
    pub(crate) action: i32,
    #[prost(string, required, tag = "2")]
    pub(crate) pool: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) blocks: Vec<PlainBlock>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) targets: Vec<Nodes>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) storages: Vec<StorageNames>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) kinds: Vec<StorageKinds>,
}

/// `DatanodeInfosProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Nodes {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<Node>,
}

/// `StorageUuidsProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageNames {
    #[prost(string, repeated, tag = "1")]
    pub(crate) names: Vec<String>,
}

/// `StorageTypesProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageKinds {
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub(crate) kinds: Vec<i32>,
}

/// `BlockRecoveryCommandProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RecoveryCommand {
    #[prost(message, repeated, tag = "1")]
    pub(crate) blocks: Vec<RecoveringBlock>,
}

/// `RecoveringBlockProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RecoveringBlock {
    #[prost(uint64, required, tag = "1")]
    pub(crate) stamp: u64,
    #[prost(message, required, tag = "2")]
    pub(crate) block: LocatedBlock,
    #[prost(message, optional, tag = "3")]
    pub(crate) cut: Option<PlainBlock>,
}

/// `BlockReportRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BlockReport {
    #[prost(message, required, tag = "1")]
    pub(crate) registration: Registration,
    #[prost(string, required, tag = "2")]
    pub(crate) pool: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) reports: Vec<StorageBlocks>,
    #[prost(message, optional, tag = "4")]
    pub(crate) context: Option<ReportContext>,
}

/// `StorageBlockReportProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageBlocks {
    #[prost(message, required, tag = "1")]
    pub(crate) storage: Storage,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) blocks: Vec<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) count: Option<u64>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(crate) buffers: Vec<bytes::Bytes>,
}

/// `BlockReportContextProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReportContext {
    #[prost(int32, required, tag = "1")]
    pub(crate) calls: i32,
    #[prost(int32, required, tag = "2")]
    pub(crate) call: i32,
    #[prost(int64, required, tag = "3")]
    pub(crate) id: i64,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) lease: Option<u64>,
}

/// `BlockReportResponseProto`, `CacheReportResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) command: Option<Command>,
}

/// `ReceivedDeletedBlockInfoProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Told {
    #[prost(message, required, tag = "1")]
    pub(crate) block: PlainBlock,
    #[prost(int32, required, tag = "3")]
    pub(crate) status: i32,
}

/// `StorageReceivedDeletedBlocksProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageTold {
    #[prost(string, required, tag = "1")]
    pub(crate) id: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) blocks: Vec<Told>,
    #[prost(message, optional, tag = "3")]
    pub(crate) storage: Option<Storage>,
}

/// `BlockReceivedAndDeletedRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReceivedAndDeleted {
    #[prost(message, required, tag = "1")]
    pub(crate) registration: Registration,
    #[prost(string, required, tag = "2")]
    pub(crate) pool: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) blocks: Vec<StorageTold>,
}

/// `ErrorReportRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorReport {
    #[prost(message, required, tag = "1")]
    pub(crate) registration: Registration,
    #[prost(uint32, required, tag = "2")]
    pub(crate) code: u32,
    #[prost(string, required, tag = "3")]
    pub(crate) message: String,
}

/// `CommitBlockSynchronizationRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Synchronized {
    #[prost(message, required, tag = "1")]
    pub(crate) block: Block,
    #[prost(uint64, required, tag = "2")]
    pub(crate) stamp: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
    #[prost(bool, required, tag = "4")]
    pub(crate) closes: bool,
    #[prost(bool, required, tag = "5")]
    pub(crate) deletes: bool,
    #[prost(message, repeated, tag = "6")]
    pub(crate) nodes: Vec<NodeId>,
    #[prost(string, repeated, tag = "7")]
    pub(crate) storages: Vec<String>,
}

/// `InitReplicaRecoveryRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InitRecovery {
    #[prost(message, required, tag = "1")]
    pub(crate) block: RecoveringBlock,
}

/// `InitReplicaRecoveryResponseProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct InitRecoveryResponse {
    #[prost(bool, required, tag = "1")]
    pub(crate) is_there: bool,
    #[prost(int32, optional, tag = "2")]
    pub(crate) state: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) block: Option<PlainBlock>,
}

/// `UpdateReplicaUnderRecoveryRequestProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdateReplica {
    #[prost(message, required, tag = "1")]
    pub(crate) block: Block,
    #[prost(uint64, required, tag = "2")]
    pub(crate) stamp: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
}

/// `UpdateReplicaUnderRecoveryResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdateReplicaResponse {
    #[prost(string, optional, tag = "1")]
    pub(crate) storage: Option<String>,
}
