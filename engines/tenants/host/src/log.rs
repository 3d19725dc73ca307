//! When the log is cut, and who is in the way.

use savanna_tenants_segments::TenantId;
use savanna_tenants_store::owner::Owner;
use savanna_tenants_values::error::Result;

/// What came of a look at the log.
#[derive(Debug)]
pub struct Truncated {
    /// Whether it was cut, if that was worth it.
    pub cut: Result<()>,
    /// Tenants that sleep and need it further back than its distance: they are to be woken, and flushed.
    pub in_the_way: Vec<TenantId>,
}

/// Cuts the log where nobody needs it. What its threads' tenants need they have [said](crate::slots::Slots::log_floor).
pub fn truncate(owner: &mut Owner) -> Truncated {
    owner.note_log();
    Truncated { cut: owner.cut(), in_the_way: owner.sleepers_in_the_way() }
}
