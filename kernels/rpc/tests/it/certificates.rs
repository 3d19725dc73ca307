//! Certificates that are used for nothing but tests; `fixtures/make.sh` makes them.

use savanna_rpc::MutualTls;

/// PEM of the authority of a cluster.
pub(crate) const AUTHORITY: &[u8] = include_bytes!("../../fixtures/authority.pem");
/// PEM of the certificate of a node of that cluster, and its key.
pub(crate) const NODE: [&[u8]; 2] =
    [include_bytes!("../../fixtures/node.pem"), include_bytes!("../../fixtures/node.key")];
/// PEM of what the same authority has signed for somebody else, and its key.
pub(crate) const OTHER: [&[u8]; 2] =
    [include_bytes!("../../fixtures/other.pem"), include_bytes!("../../fixtures/other.key")];
/// PEM of the authority of another cluster.
pub(crate) const FOREIGN: &[u8] = include_bytes!("../../fixtures/foreign.pem");
/// PEM of the certificate of a node of that other cluster, and its key.
pub(crate) const FOREIGN_NODE: [&[u8]; 2] =
    [include_bytes!("../../fixtures/foreign-node.pem"), include_bytes!("../../fixtures/foreign-node.key")];

/// Encrypts as the nodes of the cluster do.
pub(crate) fn node() -> MutualTls {
    MutualTls::of_pem(NODE[0], NODE[1], AUTHORITY).expect("they fit")
}

/// Encrypts as the nodes of the other cluster do.
pub(crate) fn foreign_node() -> MutualTls {
    MutualTls::of_pem(FOREIGN_NODE[0], FOREIGN_NODE[1], FOREIGN).expect("they fit")
}
