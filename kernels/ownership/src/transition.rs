//! Which changes of a shard's record are allowed. Pure: the embedded and the etcd coordinator ask the same function.
//!
//! | from | to | epoch | needs |
//! |---|---|---|---|
//! | nothing | `Serving{x}` | any but 0 | x lives |
//! | `Replicated`, `Retired` | `Serving{x}` | next | x lives |
//! | `Serving{a}` | `Moving{a, b}` | same | b lives |
//! | `Moving{a, b}` | `Serving{a}` (given up) | same | |
//! | `Serving{a}`, `Moving{a, ..}` | `Serving{x}` | next | a yields, x lives |
//! | `Moving{a, b}` | `Dual{a, b}` | next | proposed by a, b lives |
//! | `Dual{a, b}` | `Serving{b}` (finished) | same | a yields |
//! | `Dual{a, b}` | `Serving{x}` | next | a and b yield, except x; x lives |
//! | any exclusive | `Replicated`, `Retired` | same | every server yields |
//! | nothing, `Replicated`, `Retired` | `Replicated`, `Retired` | same | ring version does not decrease |
//!
//! | any exclusive | the same, with another history | same | proposed by the owner |
//!
//! A shard that is new in the records may have been written elsewhere before, so that its first epoch has to be above those that its storage
//! has seen.
//!
//! The *history* of a shard says which log has commits of it that are not flushed. A grant never changes it, so that they cannot be lost:
//!
//! | who | may set it to | when |
//! |---|---|---|
//! | the owner | its own log, under the record's epoch | while it owns the shard |
//! | the source of a planned move | the target's log, under the epoch of that grant | with `Moving{a, b}` to `Serving{b}` |
//! | an owner that lives and hands the shard over | the same | if the history is in its own log: nobody reads that while it is open |
//! | the owner whose log it is | nothing | when it makes the shard `Retired` or `Replicated`, which have none |
//! | nobody else, and otherwise it stays | | |
//!
//! A record names one log, and in `Dual` two servers write one each: a shard with a history is never `Dual`, and a `Dual` one gets none.
//!
//! A log is somebody's while the coordinator's record of it ([`logs`](crate::logs)) says that it is open and held by this tenure. So a shard
//! without an owner goes to somebody who takes over what its log has before anybody drops it.
//!
//! A server *yields* when it proposes the change itself, having stopped serving, or when its tenure is over: its lease
//! has run out, and it stopped serving a margin before.

use std::borrow::Cow;

use savanna_epoch::{LogId, OwnerEpoch};
use serde::{Deserialize, Serialize};

use crate::record::{Exclusive, History, Ownership, RingVersion, ShardRecord, Tenure};

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
    /// The commits in a log would be lost, or looked for where they are not.
    #[error(
        "expected the history {expected}, came {came}; a grant leaves it as it is, and a new owner sets it to its own log"
    )]
    History {
        /// What the record may say.
        expected: String,
        /// What was proposed.
        came: String,
    },
    /// Somebody else than the owner says where a shard's commits are, or that no log has any.
    #[error("expected {owner} to propose this itself; only the owner knows which log has commits of the shard")]
    NotOwner {
        /// The owner.
        owner: Tenure,
    },
    /// A ring older than the one in the record.
    #[error("expected ring version {current} or later, came {came}; read the ring again")]
    OldRing {
        /// The record's.
        current: RingVersion,
        /// The one proposed.
        came: RingVersion,
    },
    /// The log of a history is not one that this tenure appends to.
    #[error(
        "expected log {log} to be open and held by {tenure} before, and not to change together with the shard; begin the log \
         or take it over first"
    )]
    LogNotHeld {
        /// The log.
        log: LogId,
        /// Who has to hold it.
        tenure: Tenure,
    },
    /// Who hands a shard over would leave its commits in a log to which it goes on appending.
    #[error(
        "expected {former} to hand the shard over together with its history, which is in log {log} and cannot be read while that is open; \
         move the shard, and end the move with the target's log as the place of the history"
    )]
    LeftBehind {
        /// The log.
        log: LogId,
        /// Who hands the shard over and holds the log.
        former: Tenure,
    },
    /// Two servers would write one history.
    #[error(
        "expected no history of a shard with two servers, came {came}; each of them writes its own log, and a record names one: move the \
         shard from `Moving` to `Serving`"
    )]
    DualHistory {
        /// The history.
        came: String,
    },
}

/// Checks a change from `old` (nothing for a shard that never existed) to `new`, proposed by `by`. `lives` says whether
/// a tenure holds its lease at this instant, `holds` whether a log is open and a tenure's.
///
/// # Errors
/// [`TransitionError`] says which rule the change breaks.
pub fn check_transition(
    old: Option<&ShardRecord>,
    new: &ShardRecord,
    by: Option<&Tenure>,
    lives: impl Fn(&Tenure) -> bool,
    holds: impl Fn(&Tenure, &LogId) -> bool,
) -> Result<(), TransitionError> {
    if let Some(proposer) = by
        && !lives(proposer)
    {
        return Err(TransitionError::NotLiving { tenure: proposer.clone() });
    }
    let epoch = old.map_or(OwnerEpoch::NONE, |record| record.epoch);
    let ownership = old.map_or(&Ownership::Retired, |record| &record.ownership);
    let (from, is_first) = (old.map_or("nothing", state_name), old.is_none());
    let arrow = Arrow { from, is_first, to: state_name(new), by, lives: &lives, holds: &holds };

    if let (Some(old), Ownership::Exclusive(state)) = (old, &new.ownership)
        && old.ownership == new.ownership
        && old.history != new.history
    {
        arrow.epoch(epoch, new.epoch)?;
        return arrow.own_history(state.owner(), new);
    }
    arrow.ownership(epoch, ownership, new)?;
    arrow.history(old, ownership, new)
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

/// The log whose record decides whether a change is allowed, if one does; the same for every coordinator.
pub fn log_of<'r>(old: Option<&'r ShardRecord>, new: &'r ShardRecord, by: Option<&Tenure>) -> Option<&'r LogId> {
    let before = old.and_then(|record| record.history.as_ref());
    let is_handed_over = by.is_some() && old.and_then(ShardRecord::owner) == by && new.owner() != by;
    let is_asked_for = is_handed_over || before != new.history.as_ref();
    let history = is_asked_for.then(|| new.history.as_ref().or(before));
    history.flatten().map(|history| &history.log)
}

struct Arrow<'a> {
    from: &'static str,
    is_first: bool,
    to: &'static str,
    by: Option<&'a Tenure>,
    lives: &'a dyn Fn(&Tenure) -> bool,
    holds: &'a dyn Fn(&Tenure, &LogId) -> bool,
}

impl Arrow<'_> {
    /// Checks all but the history.
    fn ownership(&self, epoch: OwnerEpoch, old: &Ownership, new: &ShardRecord) -> Result<(), TransitionError> {
        match (old, &new.ownership) {
            (Ownership::Exclusive(state), Ownership::Exclusive(Exclusive::Serving { owner })) => {
                if matches!(state, Exclusive::Serving { owner: held } if held == owner) {
                    return self.not_allowed();
                }
                let granted = state.owner() != owner;
                self.epoch(if granted { epoch.next() } else { epoch }, new.epoch)?;
                self.yield_all(state.servers().into_iter().filter(|server| *server != owner))?;
                if granted { self.living(owner) } else { Ok(()) }
            }
            (
                Ownership::Exclusive(Exclusive::Serving { owner }),
                Ownership::Exclusive(Exclusive::Moving { from, to }),
            ) => {
                if owner != from || from == to {
                    return self.not_allowed();
                }
                self.epoch(epoch, new.epoch)?;
                self.living(to)
            }
            (
                Ownership::Exclusive(Exclusive::Moving { from, to }),
                Ownership::Exclusive(Exclusive::Dual { from: new_from, to: new_to }),
            ) => {
                if (from, to) != (new_from, new_to) {
                    return self.not_allowed();
                }
                self.epoch(epoch.next(), new.epoch)?;
                if self.by != Some(from) {
                    return Err(TransitionError::StillServing { server: from.clone() });
                }
                self.living(to)
            }
            (Ownership::Exclusive(_), Ownership::Exclusive(_)) => self.not_allowed(),
            (Ownership::Exclusive(state), Ownership::Replicated { .. } | Ownership::Retired) => {
                self.epoch(epoch, new.epoch)?;
                self.yield_all(state.servers().into_iter())
            }
            (_, Ownership::Exclusive(Exclusive::Serving { owner })) => {
                if !self.is_first || new.epoch == OwnerEpoch::NONE {
                    self.epoch(epoch.next(), new.epoch)?;
                }
                self.living(owner)
            }
            (_, Ownership::Exclusive(_)) => self.not_allowed(),
            (Ownership::Replicated { ring_version: current, .. }, Ownership::Replicated { ring_version: came, .. })
                if came < current =>
            {
                Err(TransitionError::OldRing { current: *current, came: *came })
            }
            (_, Ownership::Replicated { .. } | Ownership::Retired) => self.epoch(epoch, new.epoch),
        }
    }

    /// Checks the history of a change of the ownership.
    fn history(&self, old: Option<&ShardRecord>, from: &Ownership, new: &ShardRecord) -> Result<(), TransitionError> {
        let before = old.and_then(|record| record.history.as_ref());
        match (from, &new.ownership) {
            (_, Ownership::Exclusive(Exclusive::Dual { .. })) => {
                no_history_of_two(new)?;
                same_history(before, new)
            }
            (Ownership::Exclusive(state), Ownership::Replicated { .. } | Ownership::Retired) => {
                same_history(None, new)?;
                before.map_or(Ok(()), |history| self.end_of_history(state.owner(), history))
            }
            (_, Ownership::Replicated { .. } | Ownership::Retired) => same_history(None, new),
            (
                Ownership::Exclusive(Exclusive::Moving { from, to }),
                Ownership::Exclusive(Exclusive::Serving { owner }),
            ) if owner == to && self.by == Some(from) && new.history.as_ref() != before => self.history_at(to, new),
            (Ownership::Exclusive(state), Ownership::Exclusive(_)) => {
                same_history(before, new)?;
                before.map_or(Ok(()), |history| self.not_left_behind(state.owner(), new, history))
            }
            _ => same_history(before, new),
        }
    }

    /// Checks that an owner that lives does not give the shard away and keep its commits.
    fn not_left_behind(&self, owner: &Tenure, new: &ShardRecord, history: &History) -> Result<(), TransitionError> {
        if self.by == Some(owner) && new.owner() != Some(owner) && (self.holds)(owner, &history.log) {
            Err(TransitionError::LeftBehind { log: history.log.clone(), former: owner.clone() })
        } else {
            Ok(())
        }
    }

    /// Checks the history that an owner sets.
    fn own_history(&self, owner: &Tenure, new: &ShardRecord) -> Result<(), TransitionError> {
        self.by_owner(owner)?;
        if matches!(new.ownership, Ownership::Exclusive(Exclusive::Dual { .. })) {
            no_history_of_two(new)?;
        }
        self.history_at(owner, new)
    }

    /// Checks that who drops a history has taken over what it was.
    fn end_of_history(&self, owner: &Tenure, history: &History) -> Result<(), TransitionError> {
        self.by_owner(owner)?;
        self.held(owner, &history.log)
    }

    /// Checks that the history begins with this grant, in a log that the owner holds.
    fn history_at(&self, owner: &Tenure, new: &ShardRecord) -> Result<(), TransitionError> {
        match &new.history {
            Some(history) if history.log.node == owner.node && history.epoch == new.epoch => {
                self.held(owner, &history.log)
            }
            _ => Err(wrong_history(format!("in a log of {} from epoch {} on", owner.node, new.epoch), new)),
        }
    }

    fn by_owner(&self, owner: &Tenure) -> Result<(), TransitionError> {
        if self.by == Some(owner) { Ok(()) } else { Err(TransitionError::NotOwner { owner: owner.clone() }) }
    }

    fn held(&self, owner: &Tenure, log: &LogId) -> Result<(), TransitionError> {
        if (self.holds)(owner, log) {
            Ok(())
        } else {
            Err(TransitionError::LogNotHeld { log: log.clone(), tenure: owner.clone() })
        }
    }

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

fn same_history(before: Option<&History>, new: &ShardRecord) -> Result<(), TransitionError> {
    if new.history.as_ref() == before { Ok(()) } else { Err(wrong_history(shown(before), new)) }
}

fn no_history_of_two(new: &ShardRecord) -> Result<(), TransitionError> {
    match &new.history {
        Some(history) => Err(TransitionError::DualHistory { came: history.to_string() }),
        None => Ok(()),
    }
}

fn wrong_history(expected: String, new: &ShardRecord) -> TransitionError {
    TransitionError::History { expected, came: shown(new.history.as_ref()) }
}

fn shown(history: Option<&History>) -> String {
    history.map_or_else(|| "none".to_owned(), History::to_string)
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
    use savanna_epoch::{NodeEpoch, NodeId};

    use super::*;
    use crate::record::ReplicationVector;

    fn tenure(name: &str) -> Tenure {
        Tenure { node: NodeId::new(name), epoch: NodeEpoch(1) }
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
        ShardRecord { epoch: OwnerEpoch(epoch), ownership, history: None }
    }

    fn retired(epoch: u64) -> ShardRecord {
        ShardRecord::retired(OwnerEpoch(epoch))
    }

    /// Checks a move with the named tenures dead and everybody else alive.
    fn check(
        old: Option<&ShardRecord>,
        new: &ShardRecord,
        by: Option<&str>,
        dead: &[&str],
    ) -> Result<(), TransitionError> {
        let lives = |asked: &Tenure| !dead.contains(&asked.node.0.as_str());
        check_transition(old, new, by.map(tenure).as_ref(), lives, |asked, log| *log == log_of_node(&asked.node.0, 1))
    }

    /// The first log of a node is open and its own.
    fn log_of_node(node: &str, number: u64) -> LogId {
        LogId::new(NodeId::new(node), number, "tenants").unwrap()
    }

    /// The old record, the new one, who proposes it, and whose tenures are over.
    type Move = (Option<ShardRecord>, ShardRecord, Option<&'static str>, &'static [&'static str]);

    #[test]
    fn allowed_moves() {
        let moves: [Move; 16] = [
            (None, serving("a", 1), None, &[]),
            (None, serving("a", 42), None, &[]),
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

    fn in_log(owner: &str, epoch: u64) -> Option<History> {
        Some(History { log: log_of_node(owner, 1), epoch: OwnerEpoch(epoch) })
    }

    #[test]
    fn a_grant_never_changes_the_history() {
        let at_a = in_log("a", 1);
        for (old, new, by, dead) in [
            (serving("a", 1), serving("b", 2), None, &["a"][..]),
            (serving("a", 1), serving("b", 2), Some("b"), &["a"]),
            (moving(1), serving("b", 2), Some("b"), &["a"]),
            (moving(1), serving("c", 2), None, &["a", "b"]),
            (serving("a", 1), moving(1), Some("a"), &[]),
            (moving(1), serving("a", 1), Some("a"), &[]),
        ] {
            let old = old.with_history(at_a.clone());
            let context = format!("{old:?} -> {new:?} by {by:?}");
            let epoch = new.epoch.0;
            assert_eq!(check(Some(&old), &new.clone().with_history(at_a.clone()), by, dead), Ok(()), "{context}");
            for other in [None, in_log("b", epoch), in_log("c", epoch), in_log("a", 7)] {
                let refused = check(Some(&old), &new.clone().with_history(other.clone()), by, dead);
                assert!(matches!(refused, Err(TransitionError::History { .. })), "{context} in {other:?}: {refused:?}");
            }
        }
        let first = check(None, &serving("a", 1).with_history(at_a), Some("a"), &[]);
        assert!(matches!(first, Err(TransitionError::History { .. })), "a shard begins without one");
    }

    #[test]
    fn the_owner_sets_the_history_to_its_own_log_and_nobody_else_does() {
        for (record, owner, other) in [(serving("a", 3), "a", "b"), (moving(3), "a", "b")] {
            let old = record.clone().with_history(in_log("x", 1));
            let own = record.clone().with_history(in_log(owner, 3));
            assert_eq!(check(Some(&old), &own, Some(owner), &[]), Ok(()));
            for by in [None, Some(other)] {
                assert_eq!(check(Some(&old), &own, by, &[]), Err(TransitionError::NotOwner { owner: tenure(owner) }));
            }
            for wrong in [None, in_log(other, 3), in_log(owner, 2), in_log(owner, 4)] {
                let refused = check(Some(&old), &record.clone().with_history(wrong), Some(owner), &[]);
                assert!(matches!(refused, Err(TransitionError::History { .. })), "{refused:?}");
            }
            let later = ShardRecord { epoch: OwnerEpoch(4), ..own };
            assert!(matches!(check(Some(&old), &later, Some(owner), &[]), Err(TransitionError::WrongEpoch { .. })));
        }
    }

    #[test]
    fn the_former_a_planned_move_ends_it_with_the_target_as_the_place_of_the_history() {
        let old = moving(4).with_history(in_log("a", 2));
        let end = |history| serving("b", 5).with_history(history);
        assert_eq!(check(Some(&old), &end(in_log("b", 5)), Some("a"), &[]), Ok(()));
        for wrong in [None, in_log("a", 5), in_log("c", 5), in_log("b", 4)] {
            let refused = check(Some(&old), &end(wrong), Some("a"), &[]);
            assert!(matches!(refused, Err(TransitionError::History { .. })), "{refused:?}");
        }
        let elsewhere = serving("c", 5).with_history(in_log("c", 5));
        assert!(matches!(check(Some(&old), &elsewhere, Some("a"), &[]), Err(TransitionError::History { .. })));
    }

    #[test]
    fn an_owner_that_lives_does_not_leave_the_history_in_its_own_log() {
        for (old, new) in
            [(serving("a", 4), serving("c", 5)), (moving(4), serving("b", 5)), (moving(4), serving("c", 5))]
        {
            let kept = |history: Option<History>| {
                check(
                    Some(&old.clone().with_history(history.clone())),
                    &new.clone().with_history(history),
                    Some("a"),
                    &[],
                )
            };
            let refused = TransitionError::LeftBehind { log: log_of_node("a", 1), former: tenure("a") };
            assert_eq!(kept(in_log("a", 4)), Err(refused), "{old:?} -> {new:?}");
            // What it has not adopted is where it was; and there may be nothing.
            assert_eq!(kept(in_log("x", 2)), Ok(()));
            assert_eq!(kept(None), Ok(()));
            // The coordinators ask for the log that this is about.
            let old = old.clone().with_history(in_log("a", 4));
            let new = new.with_history(in_log("a", 4));
            assert_eq!(log_of(Some(&old), &new, Some(&tenure("a"))), Some(&log_of_node("a", 1)));
            assert_eq!(log_of(Some(&old), &new, None), None);
        }
    }

    #[test]
    fn a_shard_with_two_servers_has_no_history() {
        let two = |result| assert!(matches!(result, Err(TransitionError::DualHistory { .. })), "{result:?}");
        let at = |record: ShardRecord, history| record.with_history(history);
        two(check(Some(&at(moving(1), in_log("a", 1))), &at(dual(2), in_log("a", 1)), Some("a"), &[]));
        two(check(Some(&moving(1)), &at(dual(2), in_log("b", 2)), Some("a"), &[]));
        two(check(Some(&dual(2)), &at(dual(2), in_log("b", 2)), Some("b"), &[]));
        // Nor is it dropped to get there.
        let lost = check(Some(&at(moving(1), in_log("a", 1))), &dual(2), Some("a"), &[]);
        assert!(matches!(lost, Err(TransitionError::History { .. })), "{lost:?}");
    }

    #[test]
    fn the_log_of_a_new_history_is_open_and_held_by_the_owner() {
        let other = |node: &str, epoch| Some(History { log: log_of_node(node, 2), epoch: OwnerEpoch(epoch) });
        let refused = |node: &str| Err(TransitionError::LogNotHeld { log: log_of_node(node, 2), tenure: tenure(node) });
        let own = serving("a", 3).with_history(other("a", 3));
        assert_eq!(check(Some(&serving("a", 3)), &own, Some("a"), &[]), refused("a"));
        let end = serving("b", 5).with_history(other("b", 5));
        assert_eq!(check(Some(&moving(4)), &end, Some("a"), &[]), refused("b"));
        // What stays as it is, is not asked for: the log of a dead owner is nobody's.
        let granted = serving("b", 4).with_history(other("a", 3));
        assert_eq!(check(Some(&own), &granted, None, &["a"]), Ok(()));
    }

    #[test]
    fn who_makes_a_shard_nobodys_has_taken_over_its_commits() {
        let old = serving("a", 1).with_history(in_log("a", 1));
        for new in [retired(1), replicated(1, 1)] {
            assert_eq!(check(Some(&old), &new, Some("a"), &[]), Ok(()));
            let kept = new.clone().with_history(in_log("a", 1));
            let refused = check(Some(&old), &kept, Some("a"), &[]);
            assert!(matches!(refused, Err(TransitionError::History { .. })), "{refused:?}");
            for by in [None, Some("b")] {
                let lost = check(Some(&old), &new, by, &["a"]);
                assert_eq!(lost, Err(TransitionError::NotOwner { owner: tenure("a") }));
            }
            // Nor in two steps: the next owner has not read what is in the log of the one before.
            let granted = serving("b", 2).with_history(in_log("a", 1));
            let new = ShardRecord { epoch: OwnerEpoch(2), ..new };
            let lost = check(Some(&granted), &new, Some("b"), &["a"]);
            assert_eq!(lost, Err(TransitionError::LogNotHeld { log: log_of_node("a", 1), tenure: tenure("b") }));
            let adopted = serving("b", 2).with_history(in_log("b", 2));
            assert_eq!(check(Some(&adopted), &new, Some("b"), &["a"]), Ok(()));
            // Without commits in a log nothing can be lost.
            assert_eq!(check(Some(&serving("b", 2)), &new, None, &["b"]), Ok(()));
        }
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
