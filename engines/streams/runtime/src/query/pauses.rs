//! For how long snapshots hold up those who compute.
//!
//! ```text
//!   partition:  .. reads | puts together what it sends of s: flush | ..
//!   member:     .. | rows of s | hands its state out: pause | ..
//!                  |<------------- epoch ----------------->|
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;

use crate::snapshot::MemberPart;

/// The times of a query's snapshots, written by its threads and read by whoever asks.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<Kinds>);

#[derive(Debug, Default)]
struct Kinds {
    /// Members compute and hand out their states.
    states: Times,
    /// They do that, and before it what they do with the rows of the epoch.
    epochs: Times,
    /// Partitions put together what they send of such an epoch.
    flushes: Times,
    /// When members have begun with the epoch.
    began: BTreeMap<MemberPart, (Epoch, Duration)>,
}

/// Times of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    /// The last epoch of which there are any, and the longest of them.
    epoch: Epoch,
    last: Duration,
    longest: Duration,
    sum: Duration,
    count: u64,
}

impl Times {
    fn note(&mut self, epoch: Epoch, took: Duration) {
        if epoch > self.epoch {
            (self.epoch, self.last) = (epoch, Duration::ZERO);
        }
        if epoch == self.epoch {
            self.last = self.last.max(took);
        }
        self.longest = self.longest.max(took);
        self.sum += took;
        self.count += 1;
    }
}

impl Pauses {
    /// A member begins with an epoch.
    pub(super) fn begins(&self, epoch: Epoch, member: MemberPart, now: Duration) {
        self.0.lock().began.insert(member, (epoch, now));
    }

    /// A member was asked for its state behind an epoch, and has handed it out.
    pub(super) fn handed_over(&self, epoch: Epoch, member: MemberPart, asked: Duration, now: Duration) {
        let mut kinds = self.0.lock();
        kinds.states.note(epoch, now.saturating_sub(asked));
        if let Some((_, began)) = kinds.began.remove(&member).filter(|(of, _)| *of == epoch) {
            kinds.epochs.note(epoch, now.saturating_sub(began));
        }
    }

    /// A source partition has put together what it sends of an epoch.
    pub(super) fn flushed(&self, epoch: Epoch, took: Duration) {
        self.0.lock().flushes.note(epoch, took);
    }

    /// All figures: of the last snapshot the longest, and of all since the query began in this process the longest; of pauses their sum and
    /// number, too. In seconds.
    pub(super) fn figures(&self) -> [(&'static str, f64); 8] {
        let kinds = self.0.lock();
        let Kinds { states, epochs, flushes, .. } = &*kinds;
        [
            ("snapshot_pause_seconds", states.last.as_secs_f64()),
            ("snapshot_pause_max_seconds", states.longest.as_secs_f64()),
            ("snapshot_paused_seconds", states.sum.as_secs_f64()),
            ("snapshot_pauses", states.count as f64),
            ("snapshot_epoch_seconds", epochs.last.as_secs_f64()),
            ("snapshot_epoch_max_seconds", epochs.longest.as_secs_f64()),
            ("snapshot_flush_seconds", flushes.last.as_secs_f64()),
            ("snapshot_flush_max_seconds", flushes.longest.as_secs_f64()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_api::ids::StageId;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_longest_of_the_last_snapshot_and_of_all_are_told() {
        let mut times = Times::default();
        for (epoch, took) in [(3, 5), (3, 9), (3, 2), (7, 1), (7, 4)] {
            times.note(Epoch(epoch), MS * took);
        }
        assert_eq!(times, Times { epoch: Epoch(7), last: MS * 4, longest: MS * 9, sum: MS * 21, count: 5 });
        // A member that was slow, of one that was given up.
        times.note(Epoch(3), MS * 30);
        assert_eq!((times.last, times.longest, times.count), (MS * 4, MS * 30, 6));
    }

    #[test]
    fn an_epoch_takes_as_long_as_its_rows_and_the_state_behind_them() {
        let (pauses, member) = (Pauses::default(), (StageId(1), 0));
        let figure = |name: &str| pauses.figures().into_iter().find(|(of, _)| *of == name).unwrap().1;
        pauses.begins(Epoch(2), member, MS * 10);
        pauses.handed_over(Epoch(2), member, MS * 50, MS * 60);
        assert_eq!((figure("snapshot_pause_seconds"), figure("snapshot_epoch_seconds")), (0.01, 0.05));
        // One that began with an epoch whose snapshot was given up has not begun with the next one then.
        pauses.begins(Epoch(4), member, MS * 100);
        pauses.handed_over(Epoch(5), member, MS * 900, MS * 901);
        assert_eq!((figure("snapshot_pause_seconds"), figure("snapshot_epoch_max_seconds")), (0.001, 0.05));
    }
}
