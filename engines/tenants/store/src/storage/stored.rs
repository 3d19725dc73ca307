//! Up to which commit a tenant's segments have been there, noted where they are not: so that a tenant whose segments were deleted,
//! or replaced by older ones, is not taken for one that has little.
//!
//! ```text
//! PREFIX/stored/NUMBER    the last commit, in decimal digits
//! ```
//!
//! It is written after the manifest, and so never says more than that.

use std::collections::BTreeSet;

use object_store::{ObjectStoreExt, PutPayload, path::Path};
use savanna_tenants_segments::TenantId;
use savanna_transaction::Csn;

use super::{Storage, StorageError, number};

impl Storage {
    /// Up to which commit a tenant's segments were noted to be there.
    ///
    /// # Errors
    /// `Note` if it does not say; those of the store.
    pub(crate) async fn stored(&self, tenant: TenantId) -> Result<Csn, StorageError> {
        let path = self.stored_path(tenant);
        match self.store.get(&path).await {
            Ok(object) => {
                let bytes = object.bytes().await?;
                let number = str::from_utf8(&bytes).ok().and_then(|digits| digits.parse().ok());
                Ok(Csn(number.ok_or_else(|| StorageError::Note(self.place(&path)))?))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(Csn::NONE),
            Err(error) => Err(error.into()),
        }
    }

    /// The tenants whose segments were noted to be there.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn noted(&self) -> Result<BTreeSet<TenantId>, StorageError> {
        let listed = self.store.list_with_delimiter(Some(&self.notes_prefix())).await?;
        Ok(listed.objects.iter().filter_map(|object| number(&object.location)).collect())
    }

    /// Notes that a tenant's segments have everything up to a commit.
    pub(crate) async fn note_stored(&self, tenant: TenantId, upto: Csn) -> Result<(), StorageError> {
        self.store.put(&self.stored_path(tenant), PutPayload::from(upto.0.to_string())).await?;
        Ok(())
    }

    /// The tenant was removed.
    pub(super) async fn forget_stored(&self, tenant: TenantId) -> Result<(), StorageError> {
        match self.store.delete(&self.stored_path(tenant)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn stored_path(&self, tenant: TenantId) -> Path {
        self.notes_prefix().join(format!("{tenant:020}"))
    }

    fn notes_prefix(&self) -> Path {
        self.prefix.clone().join("stored")
    }
}
