//! Whether the nodes of a cluster encrypt what they say to each other: all do, or none.
//!
//! A node that does otherwise than those that live is refused before it is one of them, for it would be granted shards at which nobody reaches it. On one machine it looks at
//! the pulses of the others (`reach`), over several at their records, which have a label. Both are signs for a plain word; what keeps such nodes apart is the handshake.

use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::NodeId;
use savanna_ownership::{Coordinator, CoordinatorError, NodeRecord};
use savanna_rpc::MutualTls;
use tokio::time::Instant;

use super::JoinError;
use super::joining::JOIN_TIME;
use crate::config::NodeConfig;

/// The label of a node that encrypts.
pub(super) const LABEL: &str = "encryption";
/// How it does.
pub(super) const MUTUAL_TLS: &str = "mutual-tls";

/// Before the records of nodes are looked at again.
const PAUSE: Duration = Duration::from_millis(200);

/// What connections to other nodes are encrypted with; none if they are not.
///
/// # Errors
/// [`JoinError::Tls`].
pub(super) fn read(config: &NodeConfig) -> Result<Option<MutualTls>, JoinError> {
    let files = config.cluster_tls.as_ref();
    let read = files.map(|files| {
        MutualTls::read(files).map_err(|source| JoinError::Tls { files: Box::new(files.clone()), source })
    });
    read.transpose()
}

/// Waits until no other node lives that does otherwise than this one: those from before a restart with other settings live for a moment.
///
/// # Errors
/// [`JoinError::Encryption`].
pub(super) async fn agree(
    coordinator: &Arc<dyn Coordinator>,
    own: &NodeId,
    is_encrypted: bool,
) -> Result<(), JoinError> {
    let deadline = Instant::now() + JOIN_TIME;
    loop {
        match coordinator.snapshot().await {
            Ok(snapshot) if !does_one_otherwise(&snapshot.nodes, own, is_encrypted) => return Ok(()),
            Ok(_) if Instant::now() >= deadline => return Err(JoinError::Encryption { is_encrypted }),
            // It is asked again for the registration, which says how that ends.
            Err(CoordinatorError::Unavailable { .. }) if Instant::now() >= deadline => return Ok(()),
            Ok(_) | Err(CoordinatorError::Unavailable { .. }) => tokio::time::sleep(PAUSE).await,
            Err(_) => return Ok(()),
        }
    }
}

/// Whether one of the other nodes encrypts and this one does not, or the other way round.
fn does_one_otherwise(nodes: &[NodeRecord], own: &NodeId, is_encrypted: bool) -> bool {
    let encrypts = |node: &NodeRecord| node.labels.get(LABEL).is_some_and(|how| how == MUTUAL_TLS);
    nodes.iter().any(|node| node.tenure.node != *own && encrypts(node) != is_encrypted)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use savanna_epoch::NodeEpoch;
    use savanna_ownership::{Incarnation, NodeSpec};

    use super::*;

    #[test]
    fn nodes_all_encrypt_or_none_does() {
        let node = |name: &str, encrypts: bool| {
            let labels = encrypts.then(|| (LABEL.to_owned(), MUTUAL_TLS.to_owned()));
            let (name, labels) = (NodeId::new(name), BTreeMap::from_iter(labels));
            let spec = NodeSpec { name, incarnation: Incarnation(1), address: String::new(), labels };
            NodeRecord::granted(&spec, NodeEpoch(1))
        };
        let own = NodeId::new("n1");
        for is_encrypted in [true, false] {
            assert!(!does_one_otherwise(&[], &own, is_encrypted));
            assert!(!does_one_otherwise(&[node("n2", is_encrypted)], &own, is_encrypted));
            assert!(does_one_otherwise(&[node("n2", is_encrypted), node("n3", !is_encrypted)], &own, is_encrypted));
            assert!(!does_one_otherwise(&[node("n1", !is_encrypted)], &own, is_encrypted), "its own, of before");
        }
    }
}
