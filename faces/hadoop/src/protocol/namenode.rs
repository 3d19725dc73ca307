//! `NamenodeProtocol`: what the installation is.

use std::sync::Arc;

use super::{Service, no_such_method};
use crate::ipc::connection::Answerer;
use crate::wire::client::{NamespaceInfo, StorageInfo, VersionResponse};

pub(super) const NAME: &str = "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol";

/// The release of Hadoop whose protocols are spoken.
pub(crate) const SOFTWARE: &str = "3.5.0";
/// What this program is called.
pub(crate) const BUILD: &str = concat!("savanna-", env!("CARGO_PKG_VERSION"));
/// The layout of its name nodes, which is a negative number.
const LAYOUT: i32 = -67;

/// Data nodes may report their replicas in the shorter form.
const REPORTS_AS_BYTES: u64 = 1;

/// Does a call.
pub(super) fn call(service: &Arc<Service>, method: &str, answerer: Answerer) {
    match method {
        "versionRequest" => version(service, answerer),
        other => no_such_method(other, NAME, answerer),
    }
}

/// What the installation is.
pub(super) fn version(service: &Service, answerer: Answerer) {
    let identity = service.files.identity();
    let storage = StorageInfo {
        layout: LAYOUT.cast_unsigned(),
        namespace: identity.namespace,
        cluster: identity.cluster.clone(),
        created: 0,
    };
    let it = Some(NamespaceInfo {
        build: BUILD.to_owned(),
        unused: 0,
        pool: identity.pool.clone(),
        storage,
        software: SOFTWARE.to_owned(),
        capabilities: Some(REPORTS_AS_BYTES),
    });
    answerer.done(&VersionResponse { it });
}
