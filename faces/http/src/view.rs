//! What the face knows of the node that it serves.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::Problem;
use crate::facts::SharedNodes;
use crate::types::{ClusterNode, ClusterShard, Decisions, Move, NewMove, NewMovesAsleep, NodeStatus, Setting, Tenant};

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

    /// The other nodes of its cluster; none if it is alone.
    fn others(&self) -> Option<SharedNodes>;

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
    /// What tells it from others of its family, which have labels of the same names.
    pub labels: Vec<(&'static str, String)>,
    /// Its value, of the same kind for all of its family.
    pub value: FigureValue,
}

/// The value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureValue {
    /// One that only grows while the process lives.
    Counter(f64),
    /// One that goes up and down.
    Gauge(f64),
    /// How often something came to how much.
    Histogram {
        /// The upper ends of what is counted together, ascending.
        upto: Vec<f64>,
        /// How often it came to that: one for each end, and one for what was above all of them.
        counts: Vec<u64>,
        /// What all of it came to.
        sum: f64,
    },
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

    /// Moves one to another node; the answer comes when that has ended.
    async fn move_to(&self, asked: NewMove) -> Result<Move, Problem>;

    /// Moves those of some to another node that sleep, at once; what is awake stays, and is not told of.
    async fn move_asleep(&self, asked: NewMovesAsleep) -> Result<Vec<Move>, Problem>;

    /// The last moves.
    async fn moves(&self) -> Vec<Move>;

    /// Why databases have moved by themselves, or stayed.
    async fn decisions(&self) -> Decisions;

    /// One with all that is committed in it by now.
    async fn backup(&self, name: String) -> Result<Backup, Problem>;

    /// Makes one of a backup: all of it, or none.
    async fn restore(&self, name: String, backup: BoxStream<'static, io::Result<Bytes>>) -> Result<(), Problem>;
}
