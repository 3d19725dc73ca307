//! Headers of calls and answers, and what a connection begins with.

use bytes::Bytes;
use prost::Message;

/// `RpcRequestHeaderProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub(crate) kind: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) operation: Option<i32>,
    #[prost(sint32, required, tag = "3")]
    pub(crate) call: i32,
    #[prost(bytes = "bytes", required, tag = "4")]
    pub(crate) client: Bytes,
    #[prost(sint32, optional, tag = "5")]
    pub(crate) retry: Option<i32>,
}

/// `RequestHeaderProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MethodHeader {
    #[prost(string, required, tag = "1")]
    pub(crate) method: String,
    #[prost(string, required, tag = "2")]
    pub(crate) protocol: String,
    #[prost(uint64, required, tag = "3")]
    pub(crate) version: u64,
}

/// `RpcResponseHeaderProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint32, required, tag = "1")]
    pub(crate) call: u32,
    #[prost(int32, required, tag = "2")]
    pub(crate) status: i32,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) version: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pub(crate) class: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) message: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) detail: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) client: Option<Vec<u8>>,
    #[prost(sint32, optional, tag = "8")]
    pub(crate) retry: Option<i32>,
}

/// `IpcConnectionContextProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConnectionContext {
    #[prost(message, optional, tag = "2")]
    pub(crate) user: Option<UserInformation>,
    #[prost(string, optional, tag = "3")]
    pub(crate) protocol: Option<String>,
}

/// `UserInformationProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UserInformation {
    #[prost(string, optional, tag = "1")]
    pub(crate) effective: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) real: Option<String>,
}

/// `RpcSaslProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sasl {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) version: Option<u32>,
    #[prost(int32, required, tag = "2")]
    pub(crate) state: i32,
    #[prost(message, repeated, tag = "4")]
    pub(crate) auths: Vec<SaslAuth>,
}

/// `RpcSaslProto.SaslAuth`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SaslAuth {
    #[prost(string, required, tag = "1")]
    pub(crate) method: String,
    #[prost(string, required, tag = "2")]
    pub(crate) mechanism: String,
}
