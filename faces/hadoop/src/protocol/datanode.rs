//! `ClientDatanodeProtocol`: how much there is of a block that is being written.

use std::sync::Arc;

use bytes::Bytes;

use super::{Service, message, named, no_such_method};
use crate::ipc::answer::Detail;
use crate::ipc::connection::Answerer;
use crate::wire::client::{Number, One};
use crate::wire::hdfs::Block;

pub(super) const NAME: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// Does a call.
pub(super) fn call(service: &Arc<Service>, method: &str, body: Bytes, answerer: Answerer) {
    if method != "getReplicaVisibleLength" {
        return no_such_method(method, NAME, answerer);
    }
    let Some((One::<Block> { it: block }, answerer)) = message(body, answerer) else { return };
    let block = named(&block.unwrap_or_default());
    match service.files.replicas().visible_length(block.id, block.stamp) {
        Ok(it) => answerer.done(&Number { it }),
        Err(error) => answerer.refuse(REPLICA_NOT_FOUND, &error.to_string(), Detail::Application),
    }
}

const REPLICA_NOT_FOUND: &str = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException";
