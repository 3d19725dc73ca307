//! The cache of a tenant goes along with it: the node that has it says what is in there, the node that gets it reads that before it has it.

use std::sync::Arc;

use savanna_tenants_segments::TenantId;
use savanna_tenants_store::storage::{Cached, Since, WarmBlocks, Warmed};
use savanna_tenants_values::error::{Result, SqlError};
use tokio::sync::oneshot;

use crate::{
    tenants::Tenants,
    thread::{Order, ThreadContext},
};

impl Tenants {
    /// What a tenant of this node has in the cache, and of what came into its storage since somebody looked. One that sleeps has nothing.
    ///
    /// # Errors
    /// 57P01 if the host stops.
    pub async fn cached(&self, tenant: TenantId, since: Since) -> Result<Cached> {
        self.ask(tenant, |listed| Order::ListBlocks { tenant, since, listed }).await
    }

    /// Reads blocks of a tenant that is about to come here, as far as there is room for them.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn warm(&self, tenant: TenantId, wanted: Vec<WarmBlocks>) -> Result<Warmed> {
        if self.has(tenant) {
            // It has come meanwhile, and reads what it needs.
            return Ok(Warmed { bytes: 0, has_room: false });
        }
        let storage = Arc::clone(&self.process().storage);
        let warming = async move { storage.warm(tenant, &wanted).await };
        let warmed = self.process().background.spawn(warming).await.map_err(SqlError::internal)?;
        warmed.map_err(SqlError::from)
    }

    /// A tenant does not come here after all.
    pub fn forget_warm(&self, tenant: TenantId) {
        if !self.has(tenant) {
            self.process().storage.forget_warm(tenant);
        }
    }
}

impl ThreadContext {
    pub(crate) fn list_blocks(&self, tenant: TenantId, since: Since, listed: oneshot::Sender<Result<Cached>>) {
        let slot = self.awake(tenant);
        tokio::task::spawn_local(async move {
            let listing = match slot {
                Some(slot) => {
                    slot.store(move |home| async move { Ok(home.cached(since)) }).await.map_err(SqlError::from)
                }
                None => Ok(Cached::default()),
            };
            // Whoever asked may have gone.
            _ = listed.send(listing);
        });
    }
}
