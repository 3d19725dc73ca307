//! Moves inside of the transaction that needs the rows, for migrations that ask for it: no other process takes part, and what the
//! transaction undoes is not moved. Who needs the same rows meanwhile waits for its end.
//!
//! Such a move is as serializable as its transaction, and would hide conflicts of others from the server (see [`crate::mover`]): so
//! serializable statements note that they read the whole table, where it is allowed.

use bullfrog_model::board::Xid;
use pgrx::pg_sys::{self, Oid};

use crate::claims::{Claims, is_of_mover};
use crate::moving::Care;
use crate::rights::with_rights_of;
use crate::shared::wait_for_transaction;
use crate::{metering, registry};

/// What became of granules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// They were moved.
    All,
    /// Others have some of them in progress, which were left.
    Some,
    /// None: the snapshot is older than the migration.
    None,
}

/// Moves granules of a source in the transaction under way. `skips`: those that other clients have in progress are left.
pub(crate) fn move_here(source: i32, granules: &[i64], skips: bool) -> Moved {
    // What belongs to bullfrog only is written here, under the rights that its movers have.
    with_rights_of(Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID), || {
        let mut wait_for: Option<Xid> = None;
        loop {
            if let Some(owner) = wait_for {
                wait_for_transaction(owner);
            }
            let claims = Claims::of(source, granules);
            let Some(moving) = registry::current().source(source) else {
                return Moved::None;
            };
            metering::count(source, moving.granule, moving.move_granules(&claims.won, Care::Together));
            wait_for = claims.busy.iter().map(|(_, owner)| *owner).find(|owner| !skips || is_of_mover(*owner));
            if wait_for.is_none() {
                return if claims.busy.is_empty() { Moved::All } else { Moved::Some };
            }
        }
    })
}
