//! After the faults, serving goes on.

use std::collections::{BTreeMap, BTreeSet};

use super::{Guarantee, Violation};
use crate::{
    history::{History, OpId, OpKind, Outcome, Told},
    scenario::Scenario,
};

/// Every shard has a write and a read that began after [`Scenario::SERVING_AGAIN`] and ended well.
pub(super) fn check(history: &History, shards: usize) -> Vec<Violation> {
    let mut begun: BTreeMap<OpId, (usize, bool)> = BTreeMap::new();
    let mut served: BTreeSet<(usize, bool)> = BTreeSet::new();
    for event in history {
        match &event.what {
            Told::Invoked {
                op, shard, kind, ..
            } if event.at >= Scenario::SERVING_AGAIN => {
                begun.insert(*op, (*shard, matches!(kind, OpKind::Write(_))));
            }
            Told::Returned {
                op,
                outcome: Outcome::Ok(_),
            } => served.extend(begun.get(op)),
            _ => {}
        }
    }
    (0..shards)
        .flat_map(|shard| [(shard, true), (shard, false)])
        .filter(|wanted| !served.contains(wanted))
        .map(|(shard, write)| Violation {
            guarantee: Guarantee::Progress,
            evidence: format!(
                "no {} of shard {shard} that began after {:?} was answered, although the faults ended at {:?}",
                if write { "write" } else { "read" },
                Scenario::SERVING_AGAIN,
                Scenario::HEALED
            ),
        })
        .collect()
}
