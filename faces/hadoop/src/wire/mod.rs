//! Messages as they are on the wire, by the numbers of their fields. Names are ours; a field that nobody reads here is left out, since
//! who decodes skips what it does not know.

pub(crate) mod admin;
pub(crate) mod client;
pub(crate) mod datanode;
pub(crate) mod hdfs;
pub(crate) mod rpc;
pub(crate) mod transfer;
