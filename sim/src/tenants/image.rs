//! What is open in a tenant that moves, as nodes of a simulation write it down for each other.

use std::collections::BTreeMap;

use savanna_tenants_store::database::DatabaseImage;
use savanna_transaction::TxnId;
use serde::{Deserialize, Serialize};

use super::awake::{Awake, Ticket};

#[derive(Serialize, Deserialize)]
pub(super) struct Image {
    pub(super) database: DatabaseImage,
    /// What sessions have left.
    pub(super) left: BTreeMap<Ticket, TxnId>,
}

impl Image {
    /// What is open in a tenant; nothing if nothing is.
    ///
    /// # Errors
    /// The product's.
    pub(super) fn of(awake: &mut Awake) -> savanna_tenants_values::error::Result<Option<Vec<u8>>> {
        if awake.left.is_empty() {
            return Ok(None);
        }
        let image = Self { database: awake.database.image()?, left: awake.left.clone() };
        Ok(Some(postcard::to_stdvec(&image).expect("numbers and bytes")))
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).expect("what a node has written")
    }
}
