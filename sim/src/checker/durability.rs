//! Nothing undurable is ever told to anybody.

use std::collections::{BTreeMap, BTreeSet};

use super::{Guarantee, Violation};
use crate::history::{History, Told};

/// At each recovery of a shard, and at the one after the end of the run, all values told before are in the log: those
/// acknowledged and those that a read returned.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut told: BTreeMap<usize, BTreeMap<u64, String>> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in history {
        match &event.what {
            Told::Acknowledged { shard, epoch, value } | Told::Answered { shard, epoch, value } if *value > 0 => {
                let how = if matches!(event.what, Told::Answered { .. }) { "read" } else { "acknowledged" };
                let who = || format!("{how} at {:?} by {} under epoch {epoch}", event.at, event.node);
                told.entry(*shard).or_default().entry(*value).or_insert_with(who);
            }
            Told::Recovered { shard, epoch, values } => {
                let log: BTreeSet<&u64> = values.iter().collect();
                let lost = told.get(shard).into_iter().flatten().find(|(value, _)| !log.contains(value));
                if let Some((value, how)) = lost {
                    violations.push(Violation {
                        guarantee: Guarantee::Durable,
                        evidence: format!(
                            "value {value:#x} of shard {shard} was {how}, but {} did not find it in the log at {:?} under epoch {epoch}",
                            event.node, event.at
                        ),
                    });
                }
            }
            Told::Unreadable { shard, reason } => violations.push(Violation {
                guarantee: Guarantee::Durable,
                evidence: format!(
                    "the log of shard {shard} cannot be read by {} at {:?}: {reason}",
                    event.node, event.at
                ),
            }),
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use savanna_epoch::{NodeId, OwnerEpoch};

    use super::*;
    use crate::history::Event;

    fn history(told: Vec<Told>) -> History {
        let event = |what| Event { at: Duration::ZERO, node: NodeId::new("a"), incarnation: 1, what };
        told.into_iter().map(event).collect()
    }

    fn recovered(values: Vec<u64>) -> Told {
        Told::Recovered { shard: 0, epoch: OwnerEpoch(2), values }
    }

    #[test]
    fn a_value_that_was_told_and_is_not_in_the_log_is_found() {
        let epoch = OwnerEpoch(1);
        let acknowledged = Told::Acknowledged { shard: 0, epoch, value: 7 };
        let answered = Told::Answered { shard: 0, epoch, value: 8 };
        let never_written = Told::Answered { shard: 0, epoch, value: 0 };
        let told = vec![acknowledged, answered, never_written];
        assert_eq!(check(&history([told.clone(), vec![recovered(vec![7, 8, 9])]].concat())), []);
        for log in [vec![7], vec![8]] {
            assert_eq!(check(&history([told.clone(), vec![recovered(log)]].concat())).len(), 1);
        }
    }
}
