//! Moves inside of the transaction that needs the rows, for migrations that ask for it: no other process takes part, and what the
//! transaction undoes is not moved. Who needs the same rows meanwhile waits for its end.
//!
//! Such a move is as serializable as its transaction, and would hide conflicts of others from the server (see [`crate::mover`]): so
//! serializable statements note that they read the whole table, where it is allowed.

use std::borrow::Cow;

use bullfrog_model::granule::Granule;

use crate::claims::{Claims, is_of_mover};
use crate::flaws::{self, Flaw};
use crate::moving::{self, Care};
use crate::rights::with_all_rights;
use crate::shared::wait_for_transaction;
use crate::source::Source;
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
    let mut left = Cow::Borrowed(granules);
    loop {
        let claims = Claims::of(source, &left);
        let Some((granule, moved)) = move_claimed(source, &claims) else {
            return Moved::None;
        };
        metering::count(source, granule, moved);
        let owner = claims.busy.iter().map(|(_, owner)| *owner).find(|owner| !skips || is_of_mover(*owner));
        let Some(owner) = owner else {
            return if claims.busy.is_empty() { Moved::All } else { Moved::Some };
        };
        wait_for_transaction(owner);
        // What was won is done: to mark it once more would be to write a row and take it back.
        if !flaws::is_set(Flaw::MarksAgain) {
            left = claims.busy.into_iter().map(|(granule, _)| granule).collect();
        }
    }
}

/// Moves what was claimed of a source. None if the transaction does not see that.
fn move_claimed(source: i32, claims: &Claims) -> Option<(Granule, moving::Moved)> {
    let moved = |moving: &Source| (moving.granule, moving.move_granules(&claims.won, Care::Together, claims.are_kept));
    let registry = registry::current();
    match registry.known_source(source).filter(|moving| moving.is_plain()) {
        // Nothing is evaluated.
        Some(moving) => Some(moved(&moving)),
        // What belongs to bullfrog only is written here, under the rights that its movers have.
        None => with_all_rights(|| registry.source(source).map(|moving| moved(&moving))),
    }
}
