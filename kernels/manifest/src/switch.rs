//! The switch to a new version, as a state machine: it names the next request to storage and judges the answer.
//!
//! ```text
//!            Created                    nothing above
//!  Create ------------> ListAbove ------------------------> Committed
//!    |  ^                   |  something above
//!    |  | gone again        v
//!    |  +---------+     ReadChild -- child continues us --> Superseded
//!    | Exists     |         +------- anything else -------> Overtaken
//!    v            |
//!  ReadOccupant --+-- ours (an answer was lost) --> ListAbove
//!                 +-- not ours -------------------> Lost
//! ```
//!
//! *Create if absent* alone does not make a switch safe, because the collector deletes old versions: a writer that
//! slept for an hour finds the place of its next version empty again. So the writer looks above what it created. If
//! its version is at the end of the history, nothing is above. If the place had been taken and collected, the newest
//! version, which is never deleted, is above.

use std::sync::Arc;

use savanna_epoch::OwnerEpoch;

use crate::format::{CommitId, Snapshot, Version};

/// How often a switch tries to create a version that is said to exist and is not found.
const CREATES_MAX: u32 = 4;

/// A request to storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Create the proposed version if it is absent.
    Create,
    /// Read what is at the proposed version.
    ReadOccupant,
    /// List the versions above the proposed one.
    ListAbove,
    /// Read the version after the proposed one.
    ReadChild,
}

/// What storage answered to a [`Request`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// The version was created by this request.
    Created,
    /// There is a version of this number.
    Exists,
    /// What was read; `None` if there is nothing.
    Read(Option<Arc<Snapshot>>),
    /// The versions above, in any order.
    Above(Vec<Version>),
}

/// How a switch ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The proposal is the newest version.
    Committed,
    /// The proposal is part of the history, and this version continues it.
    Superseded(Arc<Snapshot>),
    /// Another attempt wrote this version.
    Lost(Arc<Snapshot>),
    /// There are newer versions, and it cannot be told whether they continue the proposal.
    Overtaken,
    /// Storage contradicted itself too often: the version exists, and cannot be found.
    Unsettled,
}

/// What to do next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send the request and report its answer.
    Ask(Request),
    /// Nothing more to do.
    Done(Outcome),
}

/// One attempt to make a version current.
#[derive(Debug)]
pub struct Switch {
    version: Version,
    commit: CommitId,
    asked: Request,
    creates: u32,
}

impl Switch {
    /// An attempt to create a version.
    #[must_use]
    pub fn propose(proposal: &Snapshot) -> Self {
        Self { version: proposal.version, commit: proposal.commit, asked: Request::Create, creates: 1 }
    }

    /// The second half alone: whether a version that was found is the newest.
    #[must_use]
    pub fn verify(found: &Snapshot) -> Self {
        Self { version: found.version, commit: found.commit, asked: Request::ListAbove, creates: 0 }
    }

    /// The request to begin with.
    #[must_use]
    pub fn first(&self) -> Request {
        self.asked
    }

    /// Judges the answer to the request asked last. An answer of another kind asks again.
    pub fn step(&mut self, answer: Answer) -> Step {
        match (self.asked, answer) {
            (Request::Create, Answer::Created) => self.ask(Request::ListAbove),
            (Request::Create, Answer::Exists) => self.ask(Request::ReadOccupant),
            (Request::ReadOccupant, Answer::Read(Some(occupant))) if occupant.commit == self.commit => {
                self.ask(Request::ListAbove)
            }
            (Request::ReadOccupant, Answer::Read(Some(occupant))) => Step::Done(Outcome::Lost(occupant)),
            (Request::ReadOccupant, Answer::Read(None)) if self.creates < CREATES_MAX => {
                self.creates += 1;
                self.ask(Request::Create)
            }
            (Request::ReadOccupant, Answer::Read(None)) => Step::Done(Outcome::Unsettled),
            (Request::ListAbove, Answer::Above(above)) => {
                let above: Vec<_> = above.into_iter().filter(|version| *version > self.version).collect();
                match above.contains(&self.version.next()) {
                    _ if above.is_empty() => Step::Done(Outcome::Committed),
                    true => self.ask(Request::ReadChild),
                    false => Step::Done(Outcome::Overtaken),
                }
            }
            (Request::ReadChild, Answer::Read(child)) => match child {
                Some(child) if child.parent == Some(self.commit) => Step::Done(Outcome::Superseded(child)),
                _ => Step::Done(Outcome::Overtaken),
            },
            (asked, _) => Step::Ask(asked),
        }
    }

    fn ask(&mut self, request: Request) -> Step {
        self.asked = request;
        Step::Ask(request)
    }
}

/// What an owner that wants to open has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// There is no manifest: write the first version.
    Begin,
    /// Continue this version.
    Continue(Arc<Snapshot>),
    /// A newer owner is at work.
    Refused {
        /// Its epoch.
        theirs: OwnerEpoch,
    },
}

/// Judges the newest version for an owner that opens. An equal epoch takes over, so that the latest handle of an
/// epoch is the only one that commits.
#[must_use]
pub fn judge_takeover(newest: Option<Arc<Snapshot>>, ours: OwnerEpoch) -> Takeover {
    match newest {
        None => Takeover::Begin,
        Some(newest) if newest.epoch > ours => Takeover::Refused { theirs: newest.epoch },
        Some(newest) => Takeover::Continue(newest),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::format::{UnixMillis, WriterId};

    fn snapshot(version: u64, writer: u128, parent: Option<CommitId>) -> Snapshot {
        Snapshot {
            version: Version(version),
            epoch: OwnerEpoch(2),
            commit: CommitId { writer: WriterId(writer), attempt: version },
            parent,
            created: UnixMillis(0),
            entries: BTreeMap::new(),
        }
    }

    fn run(proposal: &Snapshot, answers: impl IntoIterator<Item = Answer>) -> Outcome {
        let mut switch = Switch::propose(proposal);
        for answer in answers {
            if let Step::Done(outcome) = switch.step(answer) {
                return outcome;
            }
        }
        panic!("not done, would ask {:?}", switch.asked)
    }

    #[test]
    fn a_created_version_with_nothing_above_is_committed() {
        assert!(matches!(run(&snapshot(5, 1, None), [Answer::Created, Answer::Above(vec![])]), Outcome::Committed));
    }

    #[test]
    fn a_put_whose_answer_was_lost_is_recognised_as_ours() {
        let ours = snapshot(5, 1, None);
        let answers = [Answer::Exists, Answer::Read(Some(Arc::new(ours.clone()))), Answer::Above(vec![])];
        assert!(matches!(run(&ours, answers), Outcome::Committed));
    }

    #[test]
    fn a_place_taken_by_another_is_lost() {
        let theirs = Arc::new(snapshot(5, 2, None));
        assert!(matches!(run(&snapshot(5, 1, None), [Answer::Exists, Answer::Read(Some(theirs))]), Outcome::Lost(_)));
    }

    #[test]
    fn a_version_created_in_the_place_of_a_collected_one_is_not_a_commit() {
        assert!(matches!(
            run(&snapshot(5, 1, None), [Answer::Created, Answer::Above(vec![Version(20)])]),
            Outcome::Overtaken
        ));
        let stranger = Arc::new(snapshot(6, 2, Some(CommitId { writer: WriterId(2), attempt: 5 })));
        let answers = [Answer::Created, Answer::Above(vec![Version(6)]), Answer::Read(Some(stranger))];
        assert!(matches!(run(&snapshot(5, 1, None), answers), Outcome::Overtaken));
    }

    #[test]
    fn a_version_that_the_next_owner_continues_is_committed() {
        let ours = snapshot(5, 1, None);
        let child = Arc::new(snapshot(6, 2, Some(ours.commit)));
        let answers = [Answer::Created, Answer::Above(vec![Version(6)]), Answer::Read(Some(child))];
        assert!(matches!(run(&ours, answers), Outcome::Superseded(_)));
    }

    #[test]
    fn a_version_that_exists_and_is_never_found_ends_unsettled() {
        let answers = std::iter::repeat_n([Answer::Exists, Answer::Read(None)], 4).flatten();
        assert!(matches!(run(&snapshot(5, 1, None), answers), Outcome::Unsettled));
    }

    #[test]
    fn an_older_epoch_may_not_open() {
        let newest = Arc::new(snapshot(5, 1, None));
        assert_eq!(
            judge_takeover(Some(Arc::clone(&newest)), OwnerEpoch(1)),
            Takeover::Refused { theirs: OwnerEpoch(2) }
        );
        assert_eq!(judge_takeover(Some(Arc::clone(&newest)), OwnerEpoch(2)), Takeover::Continue(Arc::clone(&newest)));
        assert_eq!(judge_takeover(Some(Arc::clone(&newest)), OwnerEpoch(3)), Takeover::Continue(newest));
        assert_eq!(judge_takeover(None, OwnerEpoch(1)), Takeover::Begin);
    }
}
