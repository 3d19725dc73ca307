//! One owner at a time.

use std::{collections::BTreeMap, time::Duration};

use savanna_epoch::{NodeId, OwnerEpoch};

use super::{Guarantee, Violation};
use crate::history::{History, Told};

/// Acknowledgements of one shard have epochs that never decrease, and one process per epoch.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut newest: BTreeMap<usize, (OwnerEpoch, NodeId, u64, Duration)> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in history {
        let Told::Acknowledged { shard, epoch, .. } = event.what else {
            continue;
        };
        if let Some((seen, node, incarnation, at)) = newest.get(&shard)
            && (epoch < *seen || (epoch == *seen && (&event.node, event.incarnation) != (node, *incarnation)))
        {
            violations.push(Violation {
                guarantee: Guarantee::OneOwner,
                evidence: format!(
                    "shard {shard}: {} acknowledged a write under epoch {epoch} at {:?}, after {node} had done so under epoch {seen} at {at:?}",
                    event.node, event.at
                ),
            });
            continue;
        }
        newest.insert(shard, (epoch, event.node.clone(), event.incarnation, event.at));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Event;

    fn acknowledged(ms: u64, node: &str, epoch: u64) -> Event {
        let what = Told::Acknowledged { shard: 0, epoch: OwnerEpoch(epoch), value: ms };
        Event { at: Duration::from_millis(ms), node: NodeId::new(node), incarnation: 1, what }
    }

    #[test]
    fn an_older_epoch_or_a_second_process_of_one_epoch_is_found() {
        let good = vec![acknowledged(1, "a", 1), acknowledged(2, "a", 1), acknowledged(3, "b", 2)];
        assert_eq!(check(&good), []);
        let overlapping = vec![acknowledged(1, "b", 2), acknowledged(2, "a", 1)];
        assert_eq!(check(&overlapping).len(), 1);
        let two_of_one = vec![acknowledged(1, "a", 1), acknowledged(2, "b", 1)];
        assert_eq!(check(&two_of_one).len(), 1);
    }
}
