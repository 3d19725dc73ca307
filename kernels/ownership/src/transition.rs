//! Which changes of a shard's record are allowed. Pure: the embedded and the etcd coordinator ask the same function.
//!
//! | from | to | epoch | needs |
//! |---|---|---|---|
//! | nothing, `Replicated`, `Retired` | `Serving{x}` | next | x lives |
//! | `Serving{a}` | `Moving{a, b}` | same | b lives |
//! | `Moving{a, b}` | `Serving{a}` (given up) | same | |
//! | `Serving{a}`, `Moving{a, ..}` | `Serving{x}` | next | a yields, x lives |
//! | `Moving{a, b}` | `Dual{a, b}` | next | proposed by a, b lives |
//! | `Dual{a, b}` | `Serving{b}` (finished) | same | a yields |
//! | `Dual{a, b}` | `Serving{x}` | next | a and b yield, except x; x lives |
//! | any exclusive | `Replicated`, `Retired` | same | every server yields |
//! | nothing, `Replicated`, `Retired` | `Replicated`, `Retired` | same | ring version does not decrease |
//!
//! A server *yields* when it proposes the change itself, having stopped serving, or when its tenure is over: its lease
//! has run out, and it stopped serving a margin before.

use std::borrow::Cow;

use savanna_epoch::OwnerEpoch;
use serde::{Deserialize, Serialize};

use crate::record::{Exclusive, Ownership, RingVersion, ShardRecord, Tenure};

/// Why a change of a shard's record is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum TransitionError {
    /// No such arrow in the table.
    #[error(
        "expected an allowed move of ownership, came {from} -> {to}; read the record again and take the steps between"
    )]
    NotAllowed {
        /// State of the record.
        from: Cow<'static, str>,
        /// State proposed.
        to: Cow<'static, str>,
    },
    /// The epoch must stay or grow by one, as the move demands.
    #[error(
        "expected epoch {expected} for the move {from} -> {to}, came {came}; an epoch grows by one with each grant of \
         ownership, and never otherwise"
    )]
    WrongEpoch {
        /// State of the record.
        from: Cow<'static, str>,
        /// State proposed.
        to: Cow<'static, str>,
        /// The epoch that the move demands.
        expected: OwnerEpoch,
        /// The epoch proposed.
        came: OwnerEpoch,
    },
    /// A server would lose the shard while it may be serving.
    #[error(
        "expected {server} to give the shard up itself or to have lost its lease, but it is running and did not ask; \
         let it propose the change, or wait for its lease to run out"
    )]
    StillServing {
        /// Who may be serving.
        server: Tenure,
    },
    /// The shard would be granted to nobody alive.
    #[error("expected a node with a lease, came {tenure}, whose tenure is over; choose a running node")]
    NotLiving {
        /// To whom it would be granted, or who proposes.
        tenure: Tenure,
    },
    /// A ring older than the one in the record.
    #[error("expected ring version {current} or later, came {came}; read the ring again")]
    OldRing {
        /// The record's.
        current: RingVersion,
        /// The one proposed.
        came: RingVersion,
    },
}

/// Checks a change from `old` (nothing for a shard that never existed) to `new`, proposed by `by`. `lives` says whether
/// a tenure holds its lease at this instant.
///
/// # Errors
/// [`TransitionError`] says which rule the change breaks.
pub fn check_transition(
    old: Option<&ShardRecord>,
    new: &ShardRecord,
    by: Option<&Tenure>,
    lives: impl Fn(&Tenure) -> bool,
) -> Result<(), TransitionError> {
    if let Some(proposer) = by
        && !lives(proposer)
    {
        return Err(TransitionError::NotLiving { tenure: proposer.clone() });
    }
    let epoch = old.map_or(OwnerEpoch::NONE, |record| record.epoch);
    let ownership = old.map_or(&Ownership::Retired, |record| &record.ownership);
    let arrow = Arrow { from: old.map_or("nothing", state_name), to: state_name(new), by, lives: &lives };

    match (ownership, &new.ownership) {
        (Ownership::Exclusive(state), Ownership::Exclusive(Exclusive::Serving { owner })) => {
            if matches!(state, Exclusive::Serving { owner: held } if held == owner) {
                return arrow.not_allowed();
            }
            let granted = state.owner() != owner;
            arrow.epoch(if granted { epoch.next() } else { epoch }, new.epoch)?;
            arrow.yield_all(state.servers().into_iter().filter(|server| *server != owner))?;
            if granted { arrow.living(owner) } else { Ok(()) }
        }
        (Ownership::Exclusive(Exclusive::Serving { owner }), Ownership::Exclusive(Exclusive::Moving { from, to })) => {
            if owner != from || from == to {
                return arrow.not_allowed();
            }
            arrow.epoch(epoch, new.epoch)?;
            arrow.living(to)
        }
        (
            Ownership::Exclusive(Exclusive::Moving { from, to }),
            Ownership::Exclusive(Exclusive::Dual { from: new_from, to: new_to }),
        ) => {
            if (from, to) != (new_from, new_to) {
                return arrow.not_allowed();
            }
            arrow.epoch(epoch.next(), new.epoch)?;
            if by != Some(from) {
                return Err(TransitionError::StillServing { server: from.clone() });
            }
            arrow.living(to)
        }
        (Ownership::Exclusive(_), Ownership::Exclusive(_)) => arrow.not_allowed(),
        (Ownership::Exclusive(state), Ownership::Replicated { .. } | Ownership::Retired) => {
            arrow.epoch(epoch, new.epoch)?;
            arrow.yield_all(state.servers().into_iter())
        }
        (_, Ownership::Exclusive(Exclusive::Serving { owner })) => {
            arrow.epoch(epoch.next(), new.epoch)?;
            arrow.living(owner)
        }
        (_, Ownership::Exclusive(_)) => arrow.not_allowed(),
        (Ownership::Replicated { ring_version: current, .. }, Ownership::Replicated { ring_version: came, .. })
            if came < current =>
        {
            Err(TransitionError::OldRing { current: *current, came: *came })
        }
        (_, Ownership::Replicated { .. } | Ownership::Retired) => arrow.epoch(epoch, new.epoch),
    }
}

/// The tenures whose life decides whether a change is allowed; the same for every coordinator.
pub fn tenures_of<'r>(
    old: Option<&'r ShardRecord>,
    new: &'r ShardRecord,
    by: Option<&'r Tenure>,
) -> impl Iterator<Item = &'r Tenure> {
    old.into_iter()
        .chain(std::iter::once(new))
        .filter_map(|record| match &record.ownership {
            Ownership::Exclusive(Exclusive::Serving { owner }) => Some([Some(owner), None]),
            Ownership::Exclusive(Exclusive::Moving { from, to } | Exclusive::Dual { from, to }) => {
                Some([Some(from), Some(to)])
            }
            Ownership::Replicated { .. } | Ownership::Retired => None,
        })
        .flatten()
        .flatten()
        .chain(by)
}

struct Arrow<'a> {
    from: &'static str,
    to: &'static str,
    by: Option<&'a Tenure>,
    lives: &'a dyn Fn(&Tenure) -> bool,
}

impl Arrow<'_> {
    fn not_allowed(&self) -> Result<(), TransitionError> {
        Err(TransitionError::NotAllowed { from: self.from.into(), to: self.to.into() })
    }

    fn epoch(&self, expected: OwnerEpoch, came: OwnerEpoch) -> Result<(), TransitionError> {
        if expected == came {
            Ok(())
        } else {
            Err(TransitionError::WrongEpoch { from: self.from.into(), to: self.to.into(), expected, came })
        }
    }

    fn yield_all<'t>(&self, mut servers: impl Iterator<Item = &'t Tenure>) -> Result<(), TransitionError> {
        match servers.find(|server| self.by != Some(server) && (self.lives)(server)) {
            Some(server) => Err(TransitionError::StillServing { server: server.clone() }),
            None => Ok(()),
        }
    }

    fn living(&self, tenure: &Tenure) -> Result<(), TransitionError> {
        if (self.lives)(tenure) { Ok(()) } else { Err(TransitionError::NotLiving { tenure: tenure.clone() }) }
    }
}

fn state_name(record: &ShardRecord) -> &'static str {
    match &record.ownership {
        Ownership::Exclusive(Exclusive::Serving { .. }) => "Serving",
        Ownership::Exclusive(Exclusive::Moving { .. }) => "Moving",
        Ownership::Exclusive(Exclusive::Dual { .. }) => "Dual",
        Ownership::Replicated { .. } => "Replicated",
        Ownership::Retired => "Retired",
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeId;

    use super::*;
    use crate::record::ReplicationVector;

    fn tenure(name: &str) -> Tenure {
        Tenure { node: NodeId::new(name), epoch: OwnerEpoch(1) }
    }

    fn serving(owner: &str, epoch: u64) -> ShardRecord {
        ShardRecord::serving(tenure(owner), OwnerEpoch(epoch))
    }

    fn moving(epoch: u64) -> ShardRecord {
        ShardRecord::exclusive(OwnerEpoch(epoch), Exclusive::Moving { from: tenure("a"), to: tenure("b") })
    }

    fn dual(epoch: u64) -> ShardRecord {
        ShardRecord::exclusive(OwnerEpoch(epoch), Exclusive::Dual { from: tenure("a"), to: tenure("b") })
    }

    fn replicated(epoch: u64, ring: u64) -> ShardRecord {
        let ownership =
            Ownership::Replicated { ring_version: RingVersion(ring), vector: ReplicationVector(Vec::new()) };
        ShardRecord { epoch: OwnerEpoch(epoch), ownership }
    }

    fn retired(epoch: u64) -> ShardRecord {
        ShardRecord { epoch: OwnerEpoch(epoch), ownership: Ownership::Retired }
    }

    /// Checks a move with the named tenures dead and everybody else alive.
    fn check(
        old: Option<&ShardRecord>,
        new: &ShardRecord,
        by: Option<&str>,
        dead: &[&str],
    ) -> Result<(), TransitionError> {
        check_transition(old, new, by.map(tenure).as_ref(), |asked| !dead.contains(&asked.node.0.as_str()))
    }

    /// The old record, the new one, who proposes it, and whose tenures are over.
    type Move = (Option<ShardRecord>, ShardRecord, Option<&'static str>, &'static [&'static str]);

    #[test]
    fn allowed_moves() {
        let moves: [Move; 15] = [
            (None, serving("a", 1), None, &[]),
            (Some(retired(4)), serving("a", 5), None, &[]),
            (Some(replicated(0, 2)), serving("a", 1), None, &[]),
            (Some(serving("a", 1)), moving(1), None, &[]),
            (Some(moving(1)), serving("a", 1), None, &[]),
            (Some(moving(1)), serving("b", 2), Some("a"), &[]),
            (Some(moving(1)), serving("c", 2), None, &["a", "b"]),
            (Some(serving("a", 1)), serving("b", 2), Some("a"), &[]),
            (Some(serving("a", 1)), serving("b", 2), Some("b"), &["a"]),
            (Some(moving(1)), dual(2), Some("a"), &[]),
            (Some(dual(2)), serving("b", 2), Some("a"), &[]),
            (Some(dual(2)), serving("a", 3), None, &["b"]),
            (Some(dual(2)), serving("c", 3), Some("c"), &["a", "b"]),
            (Some(serving("a", 1)), retired(1), Some("a"), &[]),
            (Some(replicated(3, 7)), replicated(3, 8), None, &[]),
        ];
        for (old, new, by, dead) in moves {
            assert_eq!(check(old.as_ref(), &new, by, dead), Ok(()), "{old:?} -> {new:?} by {by:?}, dead {dead:?}");
        }
    }

    #[test]
    fn a_server_that_lives_and_did_not_ask_keeps_its_shard() {
        let refused = Err(TransitionError::StillServing { server: tenure("a") });
        assert_eq!(check(Some(&serving("a", 1)), &serving("b", 2), Some("b"), &[]), refused);
        assert_eq!(check(Some(&moving(1)), &serving("b", 2), Some("b"), &[]), refused);
        assert_eq!(check(Some(&moving(1)), &dual(2), Some("b"), &[]), refused);
        assert_eq!(check(Some(&dual(2)), &serving("b", 2), Some("b"), &[]), refused);
        assert_eq!(check(Some(&dual(2)), &serving("c", 3), None, &["b"]), refused);
        assert_eq!(check(Some(&serving("a", 1)), &retired(1), None, &[]), refused);
        assert_eq!(check(Some(&serving("a", 1)), &replicated(1, 1), None, &[]), refused);
    }

    #[test]
    fn an_epoch_grows_by_one_with_a_grant_and_only_then() {
        let came = |result| match result {
            Err(TransitionError::WrongEpoch { expected, .. }) => expected.0,
            other => panic!("expected a wrong epoch, came {other:?}"),
        };
        assert_eq!(came(check(None, &serving("a", 0), None, &[])), 1);
        assert_eq!(came(check(Some(&serving("a", 1)), &serving("b", 1), Some("a"), &[])), 2);
        assert_eq!(came(check(Some(&serving("a", 1)), &serving("b", 3), Some("a"), &[])), 2);
        assert_eq!(came(check(Some(&serving("a", 5)), &moving(6), None, &[])), 5);
        assert_eq!(came(check(Some(&moving(5)), &dual(5), Some("a"), &[])), 6);
        assert_eq!(came(check(Some(&dual(5)), &serving("b", 6), Some("a"), &[])), 5);
        assert_eq!(came(check(Some(&serving("a", 5)), &retired(0), Some("a"), &[])), 5);
        assert_eq!(came(check(Some(&retired(5)), &replicated(0, 1), None, &[])), 5);
    }

    #[test]
    fn nothing_is_granted_to_or_by_a_tenure_that_is_over() {
        let refused = Err(TransitionError::NotLiving { tenure: tenure("b") });
        assert_eq!(check(None, &serving("b", 1), None, &["b"]), refused);
        assert_eq!(check(Some(&serving("a", 1)), &serving("b", 2), Some("a"), &["b"]), refused);
        assert_eq!(check(Some(&moving(1)), &dual(2), Some("a"), &["b"]), refused);
        assert_eq!(check(None, &serving("a", 1), Some("b"), &["b"]), refused);
    }

    #[test]
    fn moves_that_skip_a_step_or_change_nothing_are_refused() {
        for (old, new, by) in [
            (None, moving(0), None),
            (None, dual(1), None),
            (Some(serving("a", 1)), serving("a", 1), Some("a")),
            (Some(serving("a", 1)), dual(2), Some("a")),
            (Some(serving("c", 1)), moving(1), None),
            (Some(moving(1)), moving(1), None),
            (Some(dual(2)), moving(2), Some("a")),
            (Some(replicated(1, 1)), dual(2), None),
        ] {
            assert!(
                matches!(check(old.as_ref(), &new, by, &[]), Err(TransitionError::NotAllowed { .. })),
                "{old:?} -> {new:?}"
            );
        }
        assert!(matches!(
            check(Some(&replicated(0, 3)), &replicated(0, 2), None, &[]),
            Err(TransitionError::OldRing { .. })
        ));
    }
}
