//! Which epochs become snapshots, and what must be true before one counts.

use std::time::Duration;

use savanna_streams_api::ids::Epoch;

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

/// The state machine. One snapshot is made at a time.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    /// How many members hand out a state.
    parts: usize,
    /// Not before.
    next: Duration,
    making: Option<Making>,
}

#[derive(Debug)]
struct Making {
    epoch: Epoch,
    began: Duration,
    written: usize,
    held: bool,
}

impl Schedule {
    /// For a query of so many members that hand out states. The first snapshot is due after one interval.
    pub fn new(interval: Duration, parts: usize) -> Self {
        Self { interval, parts, next: interval, making: None }
    }

    /// An epoch is cut. Tells whether all members are to hand out their state behind it.
    pub fn cut(&mut self, epoch: Epoch, now: Duration) -> bool {
        if self.making.is_some() || now < self.next {
            return false;
        }
        self.making = Some(Making { epoch, began: now, written: 0, held: false });
        true
    }

    /// One part of the snapshot that is being made is durable.
    pub fn written(&mut self) -> Step {
        self.change(|making| making.written += 1)
    }

    /// All sinks hold an epoch.
    pub fn held(&mut self, epoch: Epoch) -> Step {
        self.change(|making| making.held |= epoch >= making.epoch)
    }

    fn change(&mut self, change: impl FnOnce(&mut Making)) -> Step {
        let Some(making) = &mut self.making else { return Step::Wait };
        let was_complete = making.is_complete(self.parts);
        change(making);
        if making.is_complete(self.parts) && !was_complete { Step::Switch(making.epoch) } else { Step::Wait }
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
    fn is_complete(&self, parts: usize) -> bool {
        self.written == parts && self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_snapshot_counts_when_all_parts_are_durable_and_the_sinks_hold_its_epoch() {
        let mut schedule = Schedule::new(SECOND, 2);
        assert!(!schedule.cut(Epoch(1), SECOND / 2) && schedule.cut(Epoch(2), SECOND));
        assert!(!schedule.cut(Epoch(3), SECOND * 5), "one at a time");
        assert_eq!(
            (schedule.held(Epoch(1)), schedule.written(), schedule.written()),
            (Step::Wait, Step::Wait, Step::Wait)
        );
        assert_eq!(schedule.held(Epoch(2)), Step::Switch(Epoch(2)));
        assert_eq!(schedule.held(Epoch(3)), Step::Wait, "it was told");
        schedule.over(SECOND * 2);
        // The sinks may be quicker.
        assert!(schedule.cut(Epoch(9), SECOND * 60));
        assert_eq!((schedule.held(Epoch(9)), schedule.written()), (Step::Wait, Step::Wait));
        assert_eq!(schedule.written(), Step::Switch(Epoch(9)));
    }

    #[test]
    fn a_snapshot_that_was_given_up_is_followed_by_the_next_one() {
        let mut schedule = Schedule::new(SECOND, 1);
        assert!(schedule.cut(Epoch(2), SECOND));
        schedule.over(SECOND);
        assert_eq!((schedule.held(Epoch(3)), schedule.written()), (Step::Wait, Step::Wait));
        assert!(!schedule.cut(Epoch(3), SECOND) && schedule.cut(Epoch(4), SECOND * 2));
    }

    #[test]
    fn snapshots_that_take_long_are_made_less_often() {
        let mut schedule = Schedule::new(SECOND, 1);
        assert!(schedule.cut(Epoch(1), SECOND));
        schedule.over(SECOND * 11);
        assert!(!schedule.cut(Epoch(2), SECOND * 100) && schedule.cut(Epoch(3), SECOND * 101));
    }
}
