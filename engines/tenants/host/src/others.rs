//! What a host asks the other nodes of its cluster.

use std::collections::BTreeSet;

use async_trait::async_trait;
use savanna_epoch::NodeId;
use savanna_ownership::{RootExpectation, Tenure};
use savanna_tenants_segments::TenantId;
use savanna_tenants_sql::backends::{Backend, Signal};
use savanna_tenants_store::role::Acquaintance;
use savanna_tenants_values::error::Result;

/// Where a new tenant is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The tenure that is to have it; none if that is this node's.
    pub at: Option<Tenure>,
    /// What has to be so still when it is made there.
    pub expects: Vec<RootExpectation>,
}

/// The other nodes of a cluster. Each tenant has one owner; which that is, whoever implements this knows.
#[async_trait]
pub trait Others: std::fmt::Debug + Send + Sync {
    /// The tenant of a name, wherever it is.
    ///
    /// # Errors
    /// 58000 if that is not known.
    async fn tenant(&self, name: &str) -> Result<Option<TenantId>>;

    /// Whether somebody who lives has a tenant, as far as is known here.
    fn has_owner(&self, tenant: TenantId) -> bool;

    /// Where a new tenant is to be that some nodes did not take; none if no other node is left that gets anything new.
    fn place_for_new(&self, failed: &BTreeSet<NodeId>) -> Option<Place>;

    /// What has to be so still when a new tenant is made on this node; none if this node gets nothing new.
    fn place_here(&self) -> Option<Vec<RootExpectation>>;

    /// Whether the log of the node of a tenure has space for more.
    ///
    /// # Errors
    /// 53100 if it has none, 57P03 if it is not reached in time.
    async fn expect_space(&self, at: &Tenure) -> Result<()>;

    /// What a tenant elsewhere knows of somebody.
    ///
    /// # Errors
    /// 57P03 if its owner is not reached in time, and the owner's.
    async fn acquaintance(&self, tenant: TenantId, user: &str) -> Result<Acquaintance>;

    /// Sees to it that all that is committed by now of a tenant elsewhere is in the storage.
    ///
    /// # Errors
    /// 57P03 if its owner is not reached in time, and the owner's.
    async fn save(&self, tenant: TenantId) -> Result<()>;

    /// Removes a tenant elsewhere, as its owner does; the answer is durable.
    ///
    /// # Errors
    /// 57P03 if its owner is not reached in time, and the owner's.
    async fn remove(&self, tenant: TenantId, name: &str) -> Result<()>;

    /// The connections of the databases on other nodes, and the nodes that did not say in time which they have.
    async fn backends(&self) -> (Vec<Backend>, Vec<NodeId>);

    /// Tells a connection on another node something, as far as that is reached in time.
    async fn signal(&self, backend: &Backend, signal: Signal);
}
