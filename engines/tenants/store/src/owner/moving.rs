//! Tenants that change their node while both live: what the node writes first that one comes to, and what that forgets which one leaves.

use std::sync::Arc;

use parking_lot::Mutex;
use savanna_epoch::{LogId, OwnerEpoch};
use savanna_journal::Draft;
use savanna_ownership::Revision;
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::{Result, SqlError};

use super::Owner;
use crate::log::{OWNED, append};

/// Writes into the log that a tenant begins there under an epoch, if its record comes to say so; until then that is inert. Durable when this returns.
/// The tenant's storage has all of its commits, so that nothing else of it is needed. Returns the log.
///
/// What is in the log before does not count then: a tenant that is here, or arrives, is refused, as this may have come late.
///
/// # Errors
/// 55006 if the tenant is here or arrives; those of the log, which is not waited for.
pub async fn expect(owner: &Mutex<Owner>, tenant: TenantId, epoch: OwnerEpoch) -> Result<LogId> {
    let (journal, log, lsn) = {
        let owner = owner.lock();
        owner.expect_space()?;
        if owner.has(tenant) || owner.arriving.contains(&tenant) {
            return Err(SqlError::new("55006", "the database is here already"));
        }
        let payload = epoch.0.to_le_bytes();
        let lsn = append(&owner.journal, &[Draft { shard: tenant, kind: OWNED, payload: &payload }])?;
        (Arc::clone(&owner.journal), owner.member.log.clone(), lsn)
    };
    journal.wait_durable(lsn).await?;
    Ok(log)
}

impl Owner {
    /// Makes sure that a tenant of this process has nothing in the log that was not done again.
    ///
    /// # Errors
    /// 3D000 if there is none, 55006 if it has.
    pub fn expect_no_tail(&self, tenant: TenantId) -> Result<()> {
        let name = self.name(tenant).ok_or_else(|| SqlError::new("3D000", "the database is not here"))?;
        if self.tails.contains_key(&tenant) {
            return Err(SqlError::new("55006", format!("database \"{name}\" has commits that its storage has not")));
        }
        Ok(())
    }

    /// A tenant is another node's from now on: its record says so.
    pub fn leave(&mut self, tenant: TenantId) {
        if let Some(held) = self.tenants.remove(&tenant) {
            self.names.remove(&held.name);
            self.left.insert(tenant, held.epoch);
        }
        self.tails.remove(&tenant);
    }

    /// Whether a tenant went to another node from here, and is not here again.
    #[must_use]
    pub fn has_left(&self, tenant: TenantId) -> bool {
        self.left.contains_key(&tenant) && !self.has(tenant)
    }

    /// The log.
    #[must_use]
    pub const fn log_id(&self) -> &LogId {
        &self.member.log
    }

    /// The record of a tenant of this process has another version by now.
    pub fn stay(&mut self, tenant: TenantId, version: Revision) {
        if let Some(held) = self.tenants.get_mut(&tenant) {
            held.shard = version;
        }
    }
}
