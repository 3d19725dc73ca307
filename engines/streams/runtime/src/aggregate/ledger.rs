//! Which deltas have been merged.

use std::collections::BTreeSet;

use savanna_streams_api::ids::Epoch;
use savanna_streams_model::state::DeltaId;

/// The ids of merged deltas.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// All deltas of these epochs.
    through: Epoch,
    beyond: BTreeSet<DeltaId>,
}

impl Ledger {
    /// Enters a delta; false if it was there.
    pub(super) fn enter(&mut self, id: DeltaId) -> bool {
        id.epoch > self.through && self.beyond.insert(id)
    }

    /// All deltas of these epochs are there: they need not be remembered one by one.
    pub(super) fn complete(&mut self, epoch: Epoch) {
        self.through = self.through.max(epoch);
        self.beyond.retain(|id| id.epoch > epoch);
    }
}
