//! A shard moves: what the node that it leaves proposes to the coordinator, and what it makes of answers and records. [`savanna_handover`] decides, by these words.

use savanna_epoch::{LogId, NodeId, ShardId};
use savanna_handover::{Answer, Change, Record};
use savanna_ownership::{
    Batch, CoordinatorError, Exclusive, History, Ownership, Revision, RootExpectation, ShardRecord, Tenure, Transition,
};

/// What one move proposes.
#[derive(Clone, Debug)]
pub struct Proposals {
    /// The shard.
    pub shard: ShardId,
    /// The node that has the shard, and the one that is to have it.
    pub tenures: (Tenure, Tenure),
    /// The record before.
    pub before: ShardRecord,
    /// What has to be so still when the move is announced: by what its target was chosen.
    pub expects: RootExpectation,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposed {
    /// This.
    Answered(Answer),
    /// It may be done or not, or never will be, for this reason.
    Refused(String),
    /// The move was not announced, as its target is not what it was when it was chosen.
    TargetChanged,
    /// The move was not announced, and never will be, for this reason.
    NeverAnnounced(String),
}

impl Proposals {
    /// The record after a change.
    #[must_use]
    pub fn record(&self, change: &Change) -> ShardRecord {
        let ((from, to), history) = (self.tenures.clone(), self.before.history.clone());
        match change {
            Change::Announce => {
                ShardRecord::exclusive(self.before.epoch, Exclusive::Moving { from, to }).with_history(history)
            }
            Change::GiveUp => self.before.clone(),
            Change::Commit(log) => {
                let epoch = self.before.epoch.next();
                ShardRecord::serving(to, epoch).with_history(Some(History { log: log.clone(), epoch }))
            }
        }
    }

    /// The change of the record, if it has this version.
    #[must_use]
    pub fn transition(&self, version: u64, change: &Change) -> Transition {
        Transition {
            shard: self.shard.clone(),
            expected: Revision(version),
            record: self.record(change),
            by: Some(self.tenures.0.clone()),
        }
    }

    /// What to propose for a change of a record of this version.
    #[must_use]
    pub fn batch(&self, version: u64, change: &Change) -> Batch {
        self.together(vec![self.transition(version, change)], change)
    }

    /// What to propose for changes of one kind of several shards that go to the same node. The announcement depends on what their target was chosen by; what comes behind it is never refused for that.
    #[must_use]
    pub fn together(&self, transitions: Vec<Transition>, change: &Change) -> Batch {
        let expects = if *change == Change::Announce { vec![self.expects.clone()] } else { Vec::new() };
        Batch { transitions, expects, ..Batch::default() }
    }

    /// What became of a proposal.
    #[must_use]
    pub fn proposed(&self, change: &Change, answer: &Result<Revision, CoordinatorError>) -> Proposed {
        match answer {
            Ok(version) => Proposed::Answered(Answer::Won(version.0)),
            // The shard's own version counts before, so that it was not announced.
            Err(CoordinatorError::Conflict { record, .. }) if *record == self.expects.key => Proposed::TargetChanged,
            Err(CoordinatorError::Conflict { .. }) => Proposed::Answered(Answer::Lost),
            Err(CoordinatorError::Unavailable { .. }) => Proposed::Answered(Answer::Unknown),
            // Nothing was changed, and never will be: as the move has not begun, there is none.
            Err(error) if *change == Change::Announce => Proposed::NeverAnnounced(error.to_string()),
            // The other node is gone.
            Err(error) => Proposed::Refused(error.to_string()),
        }
    }
}

/// A record, as far as a move asks.
#[must_use]
pub fn seen(record: &ShardRecord) -> Record {
    let log = record.history.as_ref().map(|history| history.log.clone());
    match (&record.ownership, log) {
        (Ownership::Exclusive(Exclusive::Serving { owner }), Some(log)) => {
            Record::Serving { owner: owner.node.clone(), epoch: record.epoch, log }
        }
        (Ownership::Exclusive(Exclusive::Moving { from, to }), _) => {
            Record::Moving { from: from.node.clone(), to: to.node.clone(), epoch: record.epoch }
        }
        // Nothing that a node knows of: it is nobody's that a move speaks of.
        (_, log) => Record::Serving {
            owner: NodeId::new(""),
            epoch: record.epoch,
            log: log.unwrap_or_else(|| LogId { node: NodeId::new(""), number: 0, service: String::new() }),
        },
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::{NodeEpoch, OwnerEpoch};
    use savanna_ownership::Expected;

    use super::*;

    fn tenure(node: &str) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(1) }
    }

    fn log(node: &str) -> LogId {
        LogId::new(NodeId::new(node), 1, "tenants").expect("a log")
    }

    fn proposals() -> Proposals {
        let history = Some(History { log: log("n1"), epoch: OwnerEpoch(4) });
        Proposals {
            shard: ShardId::new("tenants/7"),
            tenures: (tenure("n1"), tenure("n2")),
            before: ShardRecord::serving(tenure("n1"), OwnerEpoch(4)).with_history(history),
            expects: RootExpectation { key: "drained/n2".to_owned(), expected: Expected::Version(Revision::NONE) },
        }
    }

    #[test]
    fn a_move_is_announced_only_while_its_target_is_not_drained_and_ends_whatever_becomes_of_that() {
        let proposals = proposals();
        let expected = |change: &Change| proposals.batch(1, change).expects;
        assert_eq!(expected(&Change::Announce), std::slice::from_ref(&proposals.expects));
        assert!(expected(&Change::GiveUp).is_empty() && expected(&Change::Commit(log("n2"))).is_empty());
    }

    #[test]
    fn what_is_proposed_is_what_a_move_asks_for_of_the_record() {
        let proposals = proposals();
        let handover = savanna_handover::Handover {
            id: savanna_handover::MoveId(1),
            from: NodeId::new("n1"),
            to: NodeId::new("n2"),
            epoch: OwnerEpoch(4),
            log: log("n1"),
        };
        for change in [Change::Announce, Change::Commit(log("n2")), Change::GiveUp] {
            assert_eq!(seen(&proposals.record(&change)), handover.record(&change), "{change:?}");
        }
        let retired = seen(&ShardRecord::retired(OwnerEpoch(4)));
        assert!(matches!(retired, Record::Serving { owner, .. } if owner == NodeId::new("")));
    }

    #[test]
    fn what_was_not_answered_may_have_been_done_and_what_cannot_be_begun_never_is() {
        let proposals = proposals();
        let conflict = |record: &str| CoordinatorError::Conflict {
            record: record.to_owned(),
            expected: Revision(1),
            current: Revision(2),
        };
        let came = |change: &Change, answer| proposals.proposed(change, &answer);
        let (begins, commits) = (Change::Announce, Change::Commit(log("n2")));
        assert_eq!(came(&begins, Ok(Revision(3))), Proposed::Answered(Answer::Won(3)));
        assert_eq!(came(&begins, Err(conflict("tenants/7"))), Proposed::Answered(Answer::Lost));
        assert_eq!(came(&begins, Err(conflict("drained/n2"))), Proposed::TargetChanged);
        for change in [&begins, &commits] {
            let unanswered = CoordinatorError::Unavailable { reason: "cut off".to_owned() };
            assert_eq!(came(change, Err(unanswered)), Proposed::Answered(Answer::Unknown));
        }
        let over = || CoordinatorError::TenureOver { tenure: tenure("n2") };
        assert!(matches!(came(&begins, Err(over())), Proposed::NeverAnnounced(_)));
        assert!(matches!(came(&commits, Err(over())), Proposed::Refused(_)), "it is not known whether it was done");
    }
}
