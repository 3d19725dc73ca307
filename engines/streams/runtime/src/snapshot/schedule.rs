//! Which epochs become snapshots, and what must be true before one counts.

use std::collections::BTreeSet;
use std::time::Duration;

use savanna_streams_api::ids::{Epoch, StageId};

/// Snapshots take at most one part in so many of the time.
const SHARE: u32 = 10;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// The snapshot of this epoch is complete: its manifest is to be switched.
    Switch(Epoch),
}

/// A member that hands out a state: its stage, and the part of the keys that it owns.
pub type MemberPart = (StageId, u16);

/// The state machine. One snapshot is made at a time.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    /// The members that hand out a state.
    parts: BTreeSet<MemberPart>,
    /// Not before.
    next: Duration,
    making: Option<Making>,
}

#[derive(Debug)]
struct Making {
    epoch: Epoch,
    began: Duration,
    written: BTreeSet<MemberPart>,
    held: bool,
}

impl Schedule {
    /// For a query of these members that hand out states. The first snapshot is due after one interval.
    pub fn new(interval: Duration, parts: impl IntoIterator<Item = MemberPart>) -> Self {
        Self { interval, parts: parts.into_iter().collect(), next: interval, making: None }
    }

    /// An epoch is cut. Tells whether all members are to hand out their state behind it.
    pub fn cut(&mut self, epoch: Epoch, now: Duration) -> bool {
        if self.making.is_some() || now < self.next {
            return false;
        }
        self.making = Some(Making { epoch, began: now, written: BTreeSet::new(), held: false });
        true
    }

    /// Whether a state of this epoch belongs to the snapshot that is being made. That of a member which was slow may be of one before,
    /// which was given up.
    pub fn takes(&self, epoch: Epoch) -> bool {
        self.making.as_ref().is_some_and(|making| making.epoch == epoch)
    }

    /// The state of a member behind an epoch is durable.
    pub fn written(&mut self, epoch: Epoch, part: MemberPart) -> Step {
        if !self.takes(epoch) {
            return Step::Wait;
        }
        self.change(|making| {
            making.written.insert(part);
        })
    }

    /// All sinks hold an epoch.
    pub fn held(&mut self, epoch: Epoch) -> Step {
        self.change(|making| making.held |= epoch >= making.epoch)
    }

    fn change(&mut self, change: impl FnOnce(&mut Making)) -> Step {
        let Some(making) = &mut self.making else { return Step::Wait };
        let was_complete = making.is_complete(&self.parts);
        change(making);
        if making.is_complete(&self.parts) && !was_complete { Step::Switch(making.epoch) } else { Step::Wait }
    }

    /// The snapshot counts, or was given up, and nothing is left to do for it.
    pub fn over(&mut self, now: Duration) {
        if let Some(making) = self.making.take() {
            let took = now.saturating_sub(making.began);
            self.next = now + self.interval.max(took.saturating_mul(SHARE - 1));
        }
    }
}

impl Making {
    /// Whether it may count: what the sinks lack could not be computed from it.
    fn is_complete(&self, parts: &BTreeSet<MemberPart>) -> bool {
        self.written == *parts && self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PARTS: [MemberPart; 2] = [(StageId(1), 0), (StageId(1), 1)];

    #[test]
    fn a_snapshot_counts_when_all_parts_are_durable_and_the_sinks_hold_its_epoch() {
        let mut schedule = Schedule::new(SECOND, PARTS);
        assert!(!schedule.cut(Epoch(1), SECOND / 2) && schedule.cut(Epoch(2), SECOND));
        assert!(!schedule.cut(Epoch(3), SECOND * 5), "one at a time");
        assert_eq!(
            (schedule.held(Epoch(1)), schedule.written(Epoch(2), PARTS[0]), schedule.written(Epoch(2), PARTS[1])),
            (Step::Wait, Step::Wait, Step::Wait)
        );
        assert_eq!(schedule.held(Epoch(2)), Step::Switch(Epoch(2)));
        assert_eq!(schedule.held(Epoch(3)), Step::Wait, "it was told");
        schedule.over(SECOND * 2);
        // The sinks may be quicker.
        assert!(schedule.cut(Epoch(9), SECOND * 60));
        assert_eq!((schedule.held(Epoch(9)), schedule.written(Epoch(9), PARTS[1])), (Step::Wait, Step::Wait));
        assert_eq!(schedule.written(Epoch(9), PARTS[0]), Step::Switch(Epoch(9)));
    }

    #[test]
    fn a_state_of_another_epoch_or_the_same_one_twice_completes_nothing() {
        let mut schedule = Schedule::new(SECOND, PARTS);
        assert!(!schedule.takes(Epoch(2)) && schedule.cut(Epoch(2), SECOND) && schedule.takes(Epoch(2)));
        schedule.over(SECOND);
        assert!(!schedule.takes(Epoch(2)) && schedule.cut(Epoch(4), SECOND * 2) && !schedule.takes(Epoch(2)));
        schedule.held(Epoch(4));
        assert_eq!(schedule.written(Epoch(2), PARTS[1]), Step::Wait, "of the one that was given up");
        assert_eq!(schedule.written(Epoch(4), PARTS[0]), Step::Wait);
        assert_eq!(schedule.written(Epoch(4), PARTS[0]), Step::Wait, "that is the same part");
        assert_eq!(schedule.written(Epoch(4), PARTS[1]), Step::Switch(Epoch(4)));
    }

    #[test]
    fn a_snapshot_that_was_given_up_is_followed_by_the_next_one() {
        let mut schedule = Schedule::new(SECOND, [PARTS[0]]);
        assert!(schedule.cut(Epoch(2), SECOND));
        schedule.over(SECOND);
        assert_eq!((schedule.held(Epoch(3)), schedule.written(Epoch(2), PARTS[0])), (Step::Wait, Step::Wait));
        assert!(!schedule.cut(Epoch(3), SECOND) && schedule.cut(Epoch(4), SECOND * 2));
    }

    #[test]
    fn snapshots_that_take_long_are_made_less_often() {
        let mut schedule = Schedule::new(SECOND, [PARTS[0]]);
        assert!(schedule.cut(Epoch(1), SECOND));
        schedule.over(SECOND * 11);
        assert!(!schedule.cut(Epoch(2), SECOND * 100) && schedule.cut(Epoch(3), SECOND * 101));
    }
}
