//! What clients say, as in Hadoop's definitions (`ClientNamenodeProtocol.proto`, `RpcHeader.proto`).

use prost::Message;

/// Who writes, for all files.
const WRITER: &str = "bench";

/// The name of the protocol that all calls are of.
pub(crate) const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub(crate) kind: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) operation: Option<i32>,
    #[prost(sint32, required, tag = "3")]
    pub(crate) call: i32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub(crate) client: Vec<u8>,
    #[prost(sint32, optional, tag = "5")]
    pub(crate) retry: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MethodHeader {
    #[prost(string, required, tag = "1")]
    pub(crate) method: String,
    #[prost(string, required, tag = "2")]
    pub(crate) protocol: String,
    #[prost(uint64, required, tag = "3")]
    pub(crate) version: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint32, required, tag = "1")]
    pub(crate) call: u32,
    #[prost(int32, required, tag = "2")]
    pub(crate) status: i32,
    #[prost(string, optional, tag = "4")]
    pub(crate) class: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) message: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConnectionContext {
    #[prost(message, optional, tag = "2")]
    pub(crate) user: Option<Text>,
    #[prost(string, optional, tag = "3")]
    pub(crate) protocol: Option<String>,
}

/// A text in the first field: a user, a path.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Text {
    #[prost(string, required, tag = "1")]
    pub(crate) it: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Permission {
    #[prost(uint32, required, tag = "1")]
    bits: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Create {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(message, required, tag = "2")]
    permission: Permission,
    #[prost(string, required, tag = "3")]
    client: String,
    #[prost(uint32, required, tag = "4")]
    flags: u32,
    #[prost(bool, required, tag = "5")]
    with_parents: bool,
    #[prost(uint32, required, tag = "6")]
    replication: u32,
    #[prost(uint64, required, tag = "7")]
    block_size: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Complete {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(string, required, tag = "2")]
    client: String,
}

#[derive(Clone, PartialEq, Message)]
struct Mkdirs {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(message, required, tag = "2")]
    permission: Permission,
    #[prost(bool, required, tag = "3")]
    with_parents: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Locations {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(uint64, required, tag = "2")]
    offset: u64,
    #[prost(uint64, required, tag = "3")]
    length: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Rename {
    #[prost(string, required, tag = "1")]
    from: String,
    #[prost(string, required, tag = "2")]
    to: String,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(bool, required, tag = "2")]
    is_recursive: bool,
}

pub(crate) fn create(path: String) -> Vec<u8> {
    let permission = Permission { bits: 0o644 };
    let client = WRITER.to_owned();
    Create { path, permission, client, flags: 1, with_parents: true, replication: 1, block_size: 128 << 20 }
        .encode_length_delimited_to_vec()
}

pub(crate) fn complete(path: String) -> Vec<u8> {
    Complete { path, client: WRITER.to_owned() }.encode_length_delimited_to_vec()
}

pub(crate) fn mkdirs(path: String) -> Vec<u8> {
    Mkdirs { path, permission: Permission { bits: 0o755 }, with_parents: true }.encode_length_delimited_to_vec()
}

pub(crate) fn locations(path: String) -> Vec<u8> {
    Locations { path, offset: 0, length: 16 }.encode_length_delimited_to_vec()
}

pub(crate) fn status(path: String) -> Vec<u8> {
    Text { it: path }.encode_length_delimited_to_vec()
}

pub(crate) fn rename(from: String, to: String) -> Vec<u8> {
    Rename { from, to }.encode_length_delimited_to_vec()
}

pub(crate) fn delete(path: String, is_recursive: bool) -> Vec<u8> {
    Delete { path, is_recursive }.encode_length_delimited_to_vec()
}
