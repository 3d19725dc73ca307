//! What the face knows of the node that it serves.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::Problem;
use crate::types::{ClusterNode, ClusterShard, NodeStatus, Setting, Tenant};

/// A node as the control API tells it. Every call answers from memory.
pub trait NodeView: Debug + Send + Sync {
    /// The node, its services and its lease.
    fn status(&self) -> NodeStatus;

    /// The configuration in force, by key.
    fn settings(&self) -> Vec<Setting>;

    /// The nodes of its cluster, by name.
    fn nodes(&self) -> Vec<ClusterNode>;

    /// What the nodes of its cluster own, by name.
    fn shards(&self) -> Vec<ClusterShard>;

    /// Its tenants, if their service runs.
    fn tenants(&self) -> Option<SharedTenants>;

    /// What its services and its process tell of themselves, for `/metrics`.
    fn figures(&self) -> Vec<Figure>;
}

/// A figure as `/metrics` shows it: one line of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The family's name, without the ending that its kind gives it.
    pub name: &'static str,
    /// What it tells, the same for all of its family.
    pub help: &'static str,
    /// Whether it only grows while the process lives.
    pub is_counter: bool,
    /// What tells it from others of its family.
    pub label: Option<(&'static str, String)>,
    /// Its value.
    pub value: f64,
}

/// Tenants, wherever they are.
pub type SharedTenants = Arc<dyn TenantsHandle>;

/// A tenant's backup.
pub struct Backup {
    /// Its length.
    pub bytes: u64,
    /// Its bytes.
    pub stream: BoxStream<'static, io::Result<Bytes>>,
}

/// What can be done with tenants as a whole. Names are those of their databases.
#[async_trait]
pub trait TenantsHandle: Debug + Send + Sync {
    /// All of them, by name.
    async fn list(&self) -> Vec<Tenant>;

    /// Makes one.
    async fn create(&self, name: String) -> Result<(), Problem>;

    /// Removes one.
    async fn remove(&self, name: String) -> Result<(), Problem>;

    /// One with all that is committed in it by now.
    async fn backup(&self, name: String) -> Result<Backup, Problem>;

    /// Makes one of a backup: all of it, or none.
    async fn restore(&self, name: String, backup: BoxStream<'static, io::Result<Bytes>>) -> Result<(), Problem>;
}
