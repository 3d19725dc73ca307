//! Ranges of keys that are known to be empty.
//!
//! What was deleted stays for a while: in memory until it is flushed, in segments until they are merged. A scan that begins there passes
//! over it, and one for the first of a queue, whose rows go at that end, each time over all that went. What a scan found to be empty is
//! therefore remembered until somebody writes there.

use std::{
    collections::BTreeMap,
    ops::Bound::{self, Excluded, Included, Unbounded},
};

use savanna_transaction::{Csn, Direction, KeyRange};

/// Gaps that are remembered; if there are more, all are found again.
const GAPS_MAX: usize = 1_024;

/// Gaps that do not overlap, by where they begin.
#[derive(Debug, Default)]
pub(super) struct Gaps(BTreeMap<Vec<u8>, Gap>);

#[derive(Clone, Debug)]
struct Gap {
    /// The first key behind it.
    end: Vec<u8>,
    /// From this commit on nothing is seen there.
    since: Csn,
    /// Who is told that it is empty depends on commits up to this one.
    after: Csn,
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left of a range for a snapshot without the gap that a scan would begin in, and the commit that this depends on.
    pub(super) fn beyond(&self, range: &KeyRange, direction: Direction, snapshot: Csn) -> Option<(KeyRange, Csn)> {
        let (start, gap) = match (direction, &range.end) {
            (Direction::Ascending, _) => self.last(Included(&range.start))?,
            (Direction::Descending, Some(end)) => self.last(Excluded(end))?,
            (Direction::Descending, None) => return None,
        };
        if gap.since > snapshot {
            return None;
        }
        let rest = match direction {
            Direction::Ascending if gap.end > range.start => {
                KeyRange { start: gap.end.clone(), end: range.end.clone() }
            }
            Direction::Descending if Some(&gap.end) >= range.end.as_ref() => {
                KeyRange { start: range.start.clone(), end: Some(start.clone()) }
            }
            _ => return None,
        };
        Some((rest, gap.after))
    }

    /// The last gap that begins before a key.
    fn last(&self, key: Bound<&[u8]>) -> Option<(&Vec<u8>, &Gap)> {
        self.0.range::<[u8], _>((Unbounded, key)).next_back()
    }

    /// A range is empty from a commit on, which is the newest; answers that say so depend on commits up to `after`.
    pub(super) fn note(&mut self, (mut start, mut end): (Vec<u8>, Vec<u8>), since: Csn, mut after: Csn) {
        if start >= end {
            return;
        }
        if self.0.len() >= GAPS_MAX {
            self.0.clear();
        }
        // What it touches is one with it.
        while let Some((other, gap)) = self.last(Included(&end))
            && gap.end >= start
        {
            after = after.max(gap.after);
            end = end.max(gap.end.clone());
            let other = other.clone();
            self.0.remove(&other);
            start = start.min(other);
        }
        self.0.insert(start, Gap { end, since, after });
    }

    /// Somebody writes a key: only what is around it stays empty, or before it, if there are too many gaps already.
    pub(super) fn fill(&mut self, key: &[u8]) {
        let Some((start, gap)) = self.0.range_mut::<[u8], _>((Unbounded, Included(key))).next_back() else { return };
        if gap.end.as_slice() <= key {
            return;
        }
        let behind = Gap { end: std::mem::replace(&mut gap.end, key.to_vec()), ..gap.clone() };
        if start == key {
            self.0.remove(key);
        }
        let next = [key, &[0]].concat();
        if next < behind.end && self.0.len() < GAPS_MAX {
            self.0.insert(next, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What happens to a handful of keys.
    #[derive(Clone, Debug)]
    enum Event {
        Insert(u8),
        Delete(u8),
        Scan { start: u8, end: u8, direction: Direction },
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let direction = prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)];
        let event = prop_oneof![
            (0..40_u8).prop_map(Event::Insert),
            (0..40_u8).prop_map(Event::Delete),
            (0..40_u8, 0..40_u8, direction).prop_map(|(start, length, direction)| Event::Scan {
                start,
                end: start.saturating_add(length),
                direction
            }),
        ];
        prop::collection::vec(event, 0..200)
    }

    /// The first key of a range that a scan meets.
    fn first(keys: &BTreeSet<u8>, (start, end): (u8, u8), direction: Direction) -> Option<u8> {
        if start >= end {
            return None;
        }
        match direction {
            Direction::Ascending => keys.range(start..end).next().copied(),
            Direction::Descending => keys.range(start..end).next_back().copied(),
        }
    }

    proptest! {
        #[test]
        fn a_scan_without_its_gap_finds_what_it_would_find(events in events()) {
            let (mut gaps, mut keys, mut now) = (Gaps::default(), BTreeSet::new(), Csn(1));
            for event in events {
                now = now.next();
                match event {
                    Event::Insert(key) => {
                        keys.insert(key);
                        gaps.fill(&[key]);
                    }
                    Event::Delete(key) => _ = keys.remove(&key),
                    Event::Scan { start, end, direction } => {
                        let found = first(&keys, (start, end), direction);
                        let range = KeyRange::new([start], [end]);
                        if let Some((rest, _)) = gaps.beyond(&range, direction, now) {
                            // Bounds of gaps are keys, or end with a zero that makes them the next one.
                            let bound = |bytes: &[u8]| bytes[0] + bytes.len() as u8 - 1;
                            let rest = (bound(&rest.start), bound(rest.end.as_deref().unwrap()));
                            prop_assert_eq!(first(&keys, rest, direction), found);
                        }
                        let bounds = match (direction, found) {
                            (_, None) => (vec![start], vec![end]),
                            (Direction::Ascending, Some(key)) => (vec![start], vec![key]),
                            (Direction::Descending, Some(key)) => (vec![key, 0], vec![end]),
                        };
                        gaps.note(bounds, now, Csn::NONE);
                    }
                }
                let ends: Vec<_> = gaps.0.iter().map(|(start, gap)| (start.clone(), gap.end.clone())).collect();
                prop_assert!(ends.iter().all(|(start, end)| start < end), "{:?}", ends);
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:?}", ends);
            }
        }
    }

    #[test]
    fn a_snapshot_from_before_sees_what_was_there() {
        let mut gaps = Gaps::default();
        gaps.note((b"a".to_vec(), b"f".to_vec()), Csn(7), Csn(5));
        let range = KeyRange::new(*b"b", *b"z");
        assert_eq!(gaps.beyond(&range, Direction::Ascending, Csn(6)), None);
        assert_eq!(gaps.beyond(&range, Direction::Ascending, Csn(7)), Some((KeyRange::new(*b"f", *b"z"), Csn(5))));
    }

    #[test]
    fn a_gap_that_is_filled_here_and_there_does_not_become_any_number_of_gaps() {
        let mut gaps = Gaps::default();
        gaps.note((vec![0], vec![255]), Csn(1), Csn::NONE);
        for key in 0..10_000_u32 {
            gaps.fill(&[1, (key >> 8) as u8, key as u8]);
        }
        assert!(gaps.0.len() <= GAPS_MAX);
        let range = KeyRange::new([0_u8], [255_u8]);
        assert_eq!(
            gaps.beyond(&range, Direction::Ascending, Csn(1)),
            Some((KeyRange::new([1_u8, 0, 0], [255_u8]), Csn::NONE))
        );
    }
}
