//! The splits of a source partition. Each has a watermark of its own, by which its rows are late or not; the partition's is the
//! lowest of those that are waited for. So it does not matter how splits are dealt to partitions, nor which is read first.

use arrow::array::ArrayRef;
use savanna_streams_api::Result;
use savanna_streams_model::source::SplitChange;
use savanna_streams_model::time::EventTime;

use crate::driver::SourceMark;
use crate::lateness::{RunningWatermark, Sorted};
use crate::query::Standings;

/// All splits of a partition.
#[derive(Debug)]
pub struct Splits {
    /// A split that has given nothing yet.
    fresh: RunningWatermark,
    all: Vec<Split>,
    /// After so many microseconds without anything, nothing waits for a split.
    idle_after: Option<i64>,
    /// Since when there is nothing from any.
    waits_since: Option<EventTime>,
    idle: bool,
    /// The partition's watermark is at least this.
    floor: EventTime,
}

#[derive(Debug)]
struct Split {
    running: RunningWatermark,
    /// Since when it has nothing.
    waits_since: Option<EventTime>,
    idle: bool,
    ended: bool,
}

impl Splits {
    /// So many splits that have given nothing yet.
    pub fn new(count: usize, fresh: RunningWatermark, idle_after: Option<i64>) -> Self {
        let mut splits =
            Self { fresh, all: Vec::new(), idle_after, waits_since: None, idle: false, floor: EventTime::MIN };
        (0..count).for_each(|_| splits.begin());
        splits
    }

    /// The lowest watermark of the splits that are waited for; where there is none, the highest of all.
    pub fn watermark(&self) -> EventTime {
        let waited = self.all.iter().filter(|split| !split.idle && !split.ended);
        let lowest = waited.map(|split| split.running.watermark()).min();
        let highest = || self.all.iter().map(|split| split.running.watermark()).max();
        lowest.or_else(highest).map_or(self.floor, |watermark| watermark.max(self.floor))
    }

    /// At the beginning of a process: the partition stands where a record says.
    pub fn begin_at(&mut self, mark: &SourceMark) {
        self.go_on(mark.watermark);
        if mark.idle && !mark.ended {
            self.rest_at(mark.watermark);
        }
    }

    /// At the beginning of a partition that joins others: it stands where they do.
    pub fn join_at(&mut self, watermark: EventTime) {
        self.go_on(watermark);
    }

    /// At the end of an epoch: it stands where the record of the epoch says, if there is one, however far the others have come by now.
    /// Otherwise one that is idle stands where they are.
    pub fn settle(&mut self, before: Option<&SourceMark>, others: Option<&Standings>) {
        match before {
            Some(before) => {
                self.was_idle(before.idle);
                if before.idle && !before.ended {
                    self.rest_at(before.watermark);
                }
            }
            None if self.idle => self.raise(others.map_or(EventTime::MIN, Standings::watermark)),
            None => {}
        }
    }

    /// All splits were read up to this watermark before.
    fn go_on(&mut self, watermark: EventTime) {
        self.all.iter_mut().for_each(|split| split.running.raise(watermark));
    }

    /// The watermark of one split.
    pub(crate) fn watermark_of(&self, split: usize) -> EventTime {
        self.all[split].running.watermark()
    }

    /// The partition's watermark is at least this from now on.
    fn raise(&mut self, watermark: EventTime) {
        self.floor = self.floor.max(watermark);
    }

    /// Nothing waited for the partition, of one split, when it was at this watermark before.
    fn rest_at(&mut self, watermark: EventTime) {
        // It has waited for long enough.
        let since = Some(EventTime::MIN);
        for split in self.all.iter_mut().filter(|split| !split.ended) {
            (split.idle, split.waits_since) = (true, since);
        }
        (self.idle, self.waits_since) = (true, since);
        self.raise(watermark);
    }

    /// Whether anything waited for the partition at this place before. Splits that rest are woken by their rows.
    fn was_idle(&mut self, idle: bool) {
        self.idle = idle;
    }

    /// A split begins where the others are: its older rows are late.
    fn begin(&mut self) {
        let mut running = self.fresh.clone();
        running.raise(self.watermark());
        self.all.push(Split { running, waits_since: None, idle: false, ended: false });
        (self.waits_since, self.idle) = (None, false);
    }

    /// A split has something. One that was idle goes on where the others are.
    pub fn wake(&mut self, split: usize) {
        if self.all[split].idle {
            let watermark = self.watermark();
            self.all[split].running.raise(watermark);
        }
        let split = &mut self.all[split];
        (split.idle, split.waits_since) = (false, None);
        (self.waits_since, self.idle) = (None, false);
    }

    /// Takes the event times of rows of a split in, and sorts the rows.
    pub(crate) fn sort(&mut self, split: usize, times: &ArrayRef) -> Result<Sorted> {
        self.all[split].running.sort(times)
    }

    /// Rows of a split that the source left out.
    pub fn advance(&mut self, split: usize, time: EventTime) {
        self.all[split].running.advance(time);
    }

    pub(crate) fn change(&mut self, change: SplitChange, now: EventTime) {
        match change {
            SplitChange::Began => self.begin(),
            SplitChange::Waits(split) => drop(self.all[split].waits_since.get_or_insert(now)),
            SplitChange::Ended(split) => self.all[split].ended = true,
        }
    }

    /// None has anything.
    pub fn wait(&mut self, now: EventTime) {
        self.waits_since.get_or_insert(now);
        for split in self.all.iter_mut().filter(|split| !split.ended) {
            split.waits_since.get_or_insert(now);
        }
    }

    /// Whether a split, or the partition without any, is idle now and was not before.
    pub fn find_idle(&mut self, now: EventTime) -> bool {
        let Some(idle_after) = self.idle_after else { return false };
        let is_over = |since: Option<EventTime>| since.is_some_and(|since| now.0.saturating_sub(since.0) >= idle_after);
        let mut found = false;
        let mut all = true;
        for split in self.all.iter_mut().filter(|split| !split.ended) {
            if !split.idle && is_over(split.waits_since) {
                (split.idle, found) = (true, true);
            }
            all &= split.idle;
        }
        // A rest ends with what comes, not with the process in which it began.
        let idle = all && (self.idle || is_over(self.waits_since));
        found |= idle && !self.idle;
        self.idle = idle;
        found
    }

    /// Whether nothing waits for the partition.
    pub fn is_idle(&self) -> bool {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::TimestampMicrosecondArray;
    use savanna_streams_model::graph::Lateness;

    use super::*;

    fn splits(count: usize, idle_after: Option<i64>) -> Splits {
        Splits::new(count, RunningWatermark::new(0, Lateness::Time), idle_after)
    }

    /// Whether a row of a split at a time is on time.
    fn is_on_time(splits: &mut Splits, split: usize, time: i64) -> bool {
        splits.wake(split);
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![time]));
        splits.sort(split, &times).unwrap() == Sorted::AllOnTime
    }

    #[test]
    fn rows_are_late_by_their_own_split_and_the_slowest_holds_the_partition_back() {
        let mut splits = splits(2, None);
        assert!(is_on_time(&mut splits, 0, 100));
        assert_eq!(splits.watermark(), EventTime::MIN, "the other has not begun");
        assert!(is_on_time(&mut splits, 1, 10));
        assert!(!is_on_time(&mut splits, 1, 9));
        assert_eq!(splits.watermark(), EventTime(10));
        splits.change(SplitChange::Ended(1), EventTime(0));
        assert_eq!(splits.watermark(), EventTime(100));
    }

    #[test]
    fn a_partition_that_goes_on_has_the_watermark_that_it_had() {
        let mut before = Splits::new(1, RunningWatermark::new(5, Lateness::Time), None);
        assert!(is_on_time(&mut before, 0, 100));
        let mut after = Splits::new(1, RunningWatermark::new(5, Lateness::Time), None);
        after.go_on(before.watermark());
        assert_eq!(after.watermark(), EventTime(95));
        assert!(is_on_time(&mut after, 0, 95) && !is_on_time(&mut after, 0, 94));
        after.go_on(EventTime::MIN);
        assert_eq!(after.watermark(), EventTime(95));
    }

    #[test]
    fn a_partition_that_rested_rests_again_where_it_did() {
        let mut before = splits(1, Some(5));
        assert!(is_on_time(&mut before, 0, 10));
        before.wait(EventTime(0));
        assert!(before.find_idle(EventTime(5)));
        before.raise(EventTime(50));
        let mut after = splits(1, Some(5));
        assert!(is_on_time(&mut after, 0, 10));
        after.rest_at(before.watermark());
        after.wait(EventTime(6));
        assert!(!after.find_idle(EventTime(6)), "it is known");
        for splits in [&mut before, &mut after] {
            assert_eq!((splits.watermark(), splits.is_idle()), (EventTime(50), true));
            assert!(!is_on_time(splits, 0, 49) && !splits.is_idle());
            assert!(is_on_time(splits, 0, 50));
        }
    }

    #[test]
    fn a_rest_ends_with_what_comes_and_not_with_its_process() {
        let mut after = splits(1, Some(5));
        after.rest_at(EventTime(50));
        after.wait(EventTime(100));
        assert!(!after.find_idle(EventTime(100)) && after.is_idle(), "it is known already");
        // A record may say that something waited for it again.
        after.was_idle(false);
        assert_eq!((after.watermark(), after.is_idle()), (EventTime(50), false));
        assert!(after.find_idle(EventTime(101)) && after.is_idle(), "it has waited for longer than a process knows");
        assert!(is_on_time(&mut after, 0, 50) && !is_on_time(&mut after, 0, 49) && !after.is_idle());
    }

    #[test]
    fn a_new_split_begins_where_the_others_are() {
        let mut splits = splits(1, None);
        assert!(is_on_time(&mut splits, 0, 100));
        splits.change(SplitChange::Began, EventTime(0));
        assert_eq!(splits.watermark(), EventTime(100));
        assert!(!is_on_time(&mut splits, 1, 99) && is_on_time(&mut splits, 1, 100));
        splits.change(SplitChange::Ended(0), EventTime(0));
        splits.change(SplitChange::Ended(1), EventTime(0));
        assert_eq!(splits.watermark(), EventTime(100), "where all have ended, the highest stays");
    }

    #[test]
    fn a_split_that_has_nothing_for_long_holds_nothing_back_until_it_goes_on_where_the_others_are() {
        let mut splits = splits(2, Some(5));
        assert!(is_on_time(&mut splits, 0, 100) && is_on_time(&mut splits, 1, 10));
        splits.change(SplitChange::Waits(1), EventTime(0));
        assert!(!splits.find_idle(EventTime(4)));
        assert_eq!(splits.watermark(), EventTime(10));
        assert!(splits.find_idle(EventTime(5)) && !splits.find_idle(EventTime(6)));
        assert!(!splits.is_idle(), "the other is not");
        assert_eq!(splits.watermark(), EventTime(100));
        assert!(!is_on_time(&mut splits, 1, 99), "it begins at the watermark of the others");
        assert_eq!(splits.watermark(), EventTime(100));
    }

    #[test]
    fn a_partition_is_idle_when_all_its_splits_are_or_it_has_none() {
        let mut splits = splits(1, Some(5));
        splits.wait(EventTime(0));
        assert!(splits.find_idle(EventTime(5)) && splits.is_idle());
        splits.raise(EventTime(50));
        assert_eq!(splits.watermark(), EventTime(50));
        assert!(!is_on_time(&mut splits, 0, 49) && !splits.is_idle());
        splits.change(SplitChange::Ended(0), EventTime(6));
        splits.wait(EventTime(6));
        assert!(!splits.find_idle(EventTime(10)) && splits.find_idle(EventTime(11)) && splits.is_idle());
    }
}
