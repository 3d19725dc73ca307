//! Moves inside of the transaction that needs the rows, for migrations that ask for it: no other process takes part, and what the
//! transaction undoes is not moved. Who needs the same rows meanwhile waits for its end.
//!
//! Such a move is as serializable as its transaction, and would hide conflicts of others from the server (see [`crate::mover`]): so
//! serializable statements note that they read the whole table, where it is allowed.

use bullfrog_model::board::Xid;
use pgrx::pg_sys::{self, Oid};

use crate::claims::Claims;
use crate::moving::Care;
use crate::rights::with_rights_of;
use crate::shared::wait_for_transaction;
use crate::{metering, registry};

/// Moves granules of a source in the transaction under way. False if its snapshot is older than the migration.
pub(crate) fn move_here(source: i32, granules: &[i64]) -> bool {
    // What belongs to bullfrog only is written here, under the rights that its movers have.
    with_rights_of(Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID), || {
        let mut wait_for: Option<Xid> = None;
        loop {
            if let Some(owner) = wait_for {
                wait_for_transaction(owner);
            }
            let claims = Claims::of(source, granules);
            let Some(moving) = registry::current().source(source) else {
                return false;
            };
            let _quiet = Quiet::begin();
            metering::count(source, moving.granule, moving.move_granules(&claims.won, Care::Together));
            wait_for = claims.busy.first().map(|(_, owner)| *owner);
            if wait_for.is_none() {
                return true;
            }
        }
    })
}

/// Rows that move are no news to triggers of the new tables.
struct Quiet(i32);

impl Quiet {
    fn begin() -> Self {
        // The setting itself is left alone: to change it would make the server forget all plans of the session.
        // SAFETY: a variable of this process, put back when this is dropped, also by an error.
        unsafe {
            let before = pg_sys::SessionReplicationRole;
            pg_sys::SessionReplicationRole = pg_sys::SESSION_REPLICATION_ROLE_REPLICA as i32;
            Self(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::SessionReplicationRole = self.0 };
    }
}
