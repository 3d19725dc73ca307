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
            Told::Invoked { op, shard, kind, .. } if event.at >= Scenario::SERVING_AGAIN => {
                begun.insert(*op, (*shard, matches!(kind, OpKind::Write(_))));
            }
            Told::Returned { op, outcome: Outcome::Ok(_) } => served.extend(begun.get(op)),
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

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeId;

    use super::*;
    use crate::history::Event;

    #[test]
    fn a_shard_that_is_only_read_again_or_refuses_is_found() {
        let event = |what| Event { at: Scenario::SERVING_AGAIN, node: NodeId::new("a"), incarnation: 1, what };
        let operation = |number, kind, outcome| {
            let op = OpId { client: 0, number };
            [event(Told::Invoked { op, shard: 0, key: 0, kind }), event(Told::Returned { op, outcome })]
        };
        let read = operation(1, OpKind::Read, Outcome::Ok(0));
        let refused = operation(2, OpKind::Write(5), Outcome::NotDone("no".to_owned()));
        let written = operation(3, OpKind::Write(6), Outcome::Ok(6));
        let history = |operations: &[[Event; 2]]| operations.concat();
        assert_eq!(check(&history(&[read.clone(), refused.clone()]), 1).len(), 1);
        assert_eq!(check(&history(&[read, refused, written]), 1), []);
    }
}
