//! The controller is whoever owns the shard [`MASTER`]. Without one everything goes on, but nothing is taken over from nodes that are gone.

use savanna_epoch::{OwnerEpoch, ShardId};
use savanna_ownership::{ClusterView, Revision, ShardRecord, Tenure, Transition};

/// The shard whose owner is the controller. It has no content, so nothing of it is ever in a log.
pub const MASTER: &str = "control/master";

/// Whether a tenure is the controller, as far as the view knows.
#[must_use]
pub fn is_master(view: &ClusterView, me: &Tenure) -> bool {
    view.shard(&ShardId::new(MASTER)).is_some_and(|record| record.value.owner() == Some(me))
}

/// What `me` proposes to become the controller; none while one lives. Of several who propose it, one wins.
#[must_use]
pub fn stand(view: &ClusterView, me: &Tenure) -> Option<Transition> {
    let shard = ShardId::new(MASTER);
    let known = view.shard(&shard);
    if known.and_then(|record| record.value.owner()).is_some_and(|owner| view.lives(owner)) {
        return None;
    }
    let epoch = known.map_or(OwnerEpoch::NONE, |record| record.value.epoch).next();
    Some(Transition {
        shard,
        expected: known.map_or(Revision::NONE, |record| record.version),
        record: ShardRecord::serving(me.clone(), epoch),
        by: Some(me.clone()),
    })
}
