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

    /// Blocks of a tenant are about to be read here by an attempt to bring it. They are kept until it is here, or until that is
    /// [given up](Self::give_up_warm), or the records say that it was. Whether it is not here.
    #[must_use]
    pub fn expect_warm(&self, tenant: TenantId, attempt: u64) -> bool {
        // It arrives under this lock.
        let owner = self.process().owner.lock();
        let comes = !owner.has(tenant);
        if comes {
            self.process().storage.expect_warm(tenant, attempt);
        }
        comes
    }

    /// Reads blocks of a tenant that is [expected](Self::expect_warm), as far as there is room for them.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn warm(&self, tenant: TenantId, wanted: Vec<WarmBlocks>) -> Result<Warmed> {
        let storage = Arc::clone(&self.process().storage);
        let warming = async move { storage.warm(tenant, &wanted).await };
        let warmed = self.process().background.spawn(warming).await.map_err(SqlError::internal)?;
        warmed.map_err(SqlError::from)
    }

    /// A tenant does not come here by this attempt after all, nor by an earlier one.
    pub fn give_up_warm(&self, tenant: TenantId, attempt: u64) {
        self.process().storage.give_up_warm(tenant, attempt);
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
