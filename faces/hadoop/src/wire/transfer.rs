//! Messages of the transfer of blocks.

use prost::Message;

use super::hdfs::{Block, Node};

/// `BaseHeaderProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BaseHeader {
    #[prost(message, required, tag = "1")]
    pub(crate) block: Block,
}

/// `ClientOperationHeaderProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationHeader {
    #[prost(message, required, tag = "1")]
    pub(crate) base: BaseHeader,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
}

/// `OpReadBlockProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadBlock {
    #[prost(message, required, tag = "1")]
    pub(crate) header: OperationHeader,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
    #[prost(bool, optional, tag = "4")]
    pub(crate) with_checksums: Option<bool>,
}

/// `OpWriteBlockProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteBlock {
    #[prost(message, required, tag = "1")]
    pub(crate) header: OperationHeader,
    #[prost(message, repeated, tag = "2")]
    pub(crate) targets: Vec<Node>,
    #[prost(message, optional, tag = "3")]
    pub(crate) source: Option<Node>,
    #[prost(int32, required, tag = "4")]
    pub(crate) stage: i32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) nodes: u32,
    #[prost(uint64, required, tag = "6")]
    pub(crate) least: u64,
    #[prost(uint64, required, tag = "7")]
    pub(crate) most: u64,
    #[prost(uint64, required, tag = "8")]
    pub(crate) stamp: u64,
    #[prost(message, required, tag = "9")]
    pub(crate) checksum: Checksum,
}

/// `OpTransferBlockProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TransferBlock {
    #[prost(message, required, tag = "1")]
    pub(crate) header: OperationHeader,
    #[prost(message, repeated, tag = "2")]
    pub(crate) targets: Vec<Node>,
}

/// `ChecksumProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Checksum {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) chunk: u32,
}

/// `OpBlockChecksumProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BlockChecksum {
    #[prost(message, required, tag = "1")]
    pub(crate) header: BaseHeader,
    #[prost(message, optional, tag = "2")]
    pub(crate) options: Option<ChecksumOptions>,
}

/// `BlockChecksumOptionsProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ChecksumOptions {
    #[prost(int32, optional, tag = "1")]
    pub(crate) kind: Option<i32>,
}

/// `BlockOpResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationResponse {
    #[prost(int32, required, tag = "1")]
    pub(crate) status: i32,
    #[prost(string, optional, tag = "2")]
    pub(crate) first_bad: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) checksum: Option<ChecksumResponse>,
    #[prost(message, optional, tag = "4")]
    pub(crate) read: Option<ReadInfo>,
    #[prost(string, optional, tag = "5")]
    pub(crate) message: Option<String>,
}

/// `OpBlockChecksumResponseProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChecksumResponse {
    #[prost(uint32, required, tag = "1")]
    pub(crate) chunk: u32,
    #[prost(uint64, required, tag = "2")]
    pub(crate) chunks: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    pub(crate) sum: Vec<u8>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) kind: Option<i32>,
}

/// `ReadOpChecksumInfoProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReadInfo {
    #[prost(message, required, tag = "1")]
    pub(crate) checksum: Checksum,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
}

/// `PacketHeaderProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PacketHeader {
    #[prost(sfixed64, required, tag = "1")]
    pub(crate) offset: i64,
    #[prost(sfixed64, required, tag = "2")]
    pub(crate) number: i64,
    #[prost(bool, required, tag = "3")]
    pub(crate) is_last: bool,
    #[prost(sfixed32, required, tag = "4")]
    pub(crate) length: i32,
    #[prost(bool, optional, tag = "5")]
    pub(crate) syncs: Option<bool>,
}

/// `PipelineAckProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ack {
    #[prost(sint64, required, tag = "1")]
    pub(crate) number: i64,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub(crate) replies: Vec<i32>,
}

/// `ClientReadStatusProto`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReadStatus {
    #[prost(int32, required, tag = "1")]
    pub(crate) status: i32,
}
