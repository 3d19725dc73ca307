//! `InterDatanodeProtocol`: another data node ends a block that this one has, too.

use std::sync::Arc;

use bytes::Bytes;
use savanna_files_host::ids::{BlockId, Stamp};
use savanna_files_host::{Class, Found, Recovered};

use super::{Peer, Service, message, named, no_such_method};
use crate::exception;
use crate::ipc::answer::Detail;
use crate::ipc::connection::Answerer;
use crate::wire::datanode::{InitRecovery, InitRecoveryResponse, PlainBlock, UpdateReplica, UpdateReplicaResponse};

pub(super) const NAME: &str = "org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol";

/// Does a call. It waits for the disk, so it is done elsewhere.
pub(super) fn call(service: &Arc<Service>, peer: &Arc<Peer>, method: &str, body: Bytes, answerer: Answerer) {
    if !service.admits(peer) {
        let words = format!(
            "Expected a data node on one of files.datanodes, came one from {}; 127.0.0.1 there admits those of this machine",
            peer.machine
        );
        return answerer.refuse(exception::DISALLOWED_NODE, &words, Detail::Application);
    }
    let at = Arc::clone(service);
    match method {
        "initReplicaRecovery" => {
            let Some((InitRecovery { block }, answerer)) = message(body, answerer) else { return };
            service
                .runtime
                .spawn_blocking(move || begin(&at, named(&block.block.block).id, Stamp(block.stamp), answerer));
        }
        "updateReplicaUnderRecovery" => {
            let Some((UpdateReplica { block, stamp, length }, answerer)) = message(body, answerer) else { return };
            service.runtime.spawn_blocking(move || end(&at, BlockId(block.id), Stamp(stamp), length, answerer));
        }
        other => no_such_method(other, NAME, answerer),
    }
}

fn refuse(block: BlockId, stamp: Stamp, answerer: Answerer) {
    let words = format!(
        "Expected a block that the name node has had a data node end, came block {block} under {stamp}; that was begun anew, or is done"
    );
    // Who began it stops then, and does not go on without this one.
    answerer.refuse(exception::class(Class::RecoveryInProgress), &words, Detail::Application);
}

fn begin(service: &Service, block: BlockId, stamp: Stamp, answerer: Answerer) {
    // The name node is the same process: it knows what it has told data nodes to do.
    let Some(order) = service.files.to_be_ended(block, stamp) else { return refuse(block, stamp, answerer) };
    let begun = service.files.replicas().begin_recovery(block, stamp);
    // Others would be cut to what is here.
    match begun.map(|found| found.filter(|found| found.length >= order.block.length)) {
        Ok(None) => answerer.done(&InitRecoveryResponse { is_there: false, state: None, block: None }),
        Ok(Some(Found { stamp, length, state })) => {
            let state = match state {
                Recovered::Whole => 0,
                Recovered::Begun => 1,
                Recovered::Left => 2,
            };
            let block = Some(PlainBlock { id: block.0, stamp: stamp.0, length: Some(length) });
            answerer.done(&InitRecoveryResponse { is_there: true, state: Some(state), block });
        }
        Err(error) => answerer.refuse(exception::IO, &error.to_string(), Detail::Application),
    }
}

fn end(service: &Service, block: BlockId, stamp: Stamp, length: u64, answerer: Answerer) {
    let Some(order) = service.files.to_be_ended(block, stamp) else { return refuse(block, stamp, answerer) };
    // Before anything is cut: what was acknowledged may be nowhere else.
    if !order.fits(length) {
        let words = format!(
            "Expected the end of block {block} with {} bytes, which were acknowledged, or more, came one with {length}; nothing is cut here",
            order.block.length
        );
        return answerer.refuse(exception::IO, &words, Detail::Application);
    }
    match service.files.replicas().end_recovery(block, stamp, length) {
        Ok(replica) => {
            service.files.received(replica);
            answerer.done(&UpdateReplicaResponse { storage: Some(service.storage()) });
        }
        Err(error) => answerer.refuse(exception::IO, &error.to_string(), Detail::Application),
    }
}
