//! What happened before what, without a common clock.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::{Lattice, Map, Max, WriterId};

/// How two versions stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causality {
    /// The other one has seen this one, and more.
    Before,
    /// The same.
    Equal,
    /// This one has seen the other one, and more.
    After,
    /// Neither has seen the other.
    Concurrent,
}

/// Per writer, how many of its events were seen; merging takes the larger of each. An absent writer counts as 0.
///
/// Its size is the number of writers, and it does not shrink by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<WriterId, Max<u64>>")]
pub struct VectorClock {
    /// Without zeros, so that equal clocks are equal values.
    counts: Map<WriterId, Max<u64>>,
}

impl VectorClock {
    /// The clock that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: Map::new() }
    }

    /// How many events of `writer` were seen.
    #[must_use]
    pub fn get(&self, writer: WriterId) -> u64 {
        self.counts.get(&writer).map_or(0, |count| count.0)
    }

    /// Counts a new event of `writer` and returns its number.
    ///
    /// `issued` is the largest number that the writer gave out before: a clock read from a stale replica does not know,
    /// and would number two events alike (Anna's hazard A-2).
    pub fn advance(&mut self, writer: WriterId, issued: u64) -> u64 {
        let number = self.get(writer).max(issued).saturating_add(1);
        self.counts.merge_at(writer, Max(number));
        number
    }

    /// How this clock stands to `other`.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Causality {
        let has_seen = |one: &Self, two: &Self| two.counts.iter().all(|(writer, count)| count.0 <= one.get(*writer));
        match (has_seen(self, other), has_seen(other, self)) {
            (true, true) => Causality::Equal,
            (true, false) => Causality::After,
            (false, true) => Causality::Before,
            (false, false) => Causality::Concurrent,
        }
    }

    /// Writers and their counts, by writer.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (WriterId, u64)> {
        self.counts.iter().map(|(writer, count)| (*writer, count.0))
    }
}

impl Lattice for VectorClock {
    fn merge(&mut self, other: Self) -> bool {
        self.counts.merge(other.counts)
    }
}

/// Before is less; concurrent clocks do not compare.
impl PartialOrd for VectorClock {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.compare(other) {
            Causality::Before => Some(Ordering::Less),
            Causality::Equal => Some(Ordering::Equal),
            Causality::After => Some(Ordering::Greater),
            Causality::Concurrent => None,
        }
    }
}

/// A clock from counts; a zero is as good as absent.
impl FromIterator<(WriterId, u64)> for VectorClock {
    fn from_iter<I: IntoIterator<Item = (WriterId, u64)>>(counts: I) -> Self {
        Self { counts: counts.into_iter().filter(|(_, count)| *count > 0).map(|(w, count)| (w, Max(count))).collect() }
    }
}

impl TryFrom<Map<WriterId, Max<u64>>> for VectorClock {
    type Error = &'static str;

    fn try_from(counts: Map<WriterId, Max<u64>>) -> Result<Self, Self::Error> {
        if counts.iter().any(|(_, count)| count.0 == 0) {
            return Err("expected a clock without zeros, came one with a zero");
        }
        Ok(Self { counts })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const X: WriterId = WriterId(1);
    const Y: WriterId = WriterId(2);

    fn clock(counts: &[(WriterId, u64)]) -> VectorClock {
        counts.iter().copied().collect()
    }

    #[test]
    fn clocks_are_before_equal_after_or_concurrent() {
        let cases = [
            (clock(&[]), clock(&[(X, 1)]), Causality::Before),
            (clock(&[(X, 1)]), clock(&[(X, 1), (Y, 0)]), Causality::Equal),
            (clock(&[(X, 2), (Y, 1)]), clock(&[(X, 1), (Y, 1)]), Causality::After),
            (clock(&[(X, 1)]), clock(&[(Y, 1)]), Causality::Concurrent),
            (clock(&[(X, 2), (Y, 1)]), clock(&[(X, 1), (Y, 2)]), Causality::Concurrent),
        ];
        for (one, two, expected) in cases {
            assert_eq!(one.compare(&two), expected, "{one:?} to {two:?}");
        }
    }

    #[test]
    fn a_writer_that_reads_a_stale_replica_does_not_number_two_events_alike() {
        let stale = clock(&[(X, 3)]);
        let mut first = stale.clone();
        let issued = first.advance(X, 0);
        let mut second = stale;
        assert_eq!((issued, second.advance(X, issued)), (4, 5));
    }

    #[test]
    fn a_zero_is_refused_when_decoded() {
        let bytes = postcard::to_stdvec(&Map::from([(X, Max(0_u64))])).expect("encodes");
        postcard::from_bytes::<VectorClock>(&bytes).expect_err("a zero");
    }

    fn any_clock() -> impl Strategy<Value = VectorClock> {
        prop::collection::vec((0..4_u32, 0..4_u64), 0..4)
            .prop_map(|counts| counts.into_iter().map(|(writer, count)| (WriterId(writer), count)).collect())
    }

    proptest! {
        #[test]
        fn the_order_is_the_one_of_the_merge(one in any_clock(), two in any_clock()) {
            let mut merged = one.clone();
            merged.merge(two.clone());
            prop_assert_eq!(one <= two, merged == two);
            prop_assert_eq!(two <= one, merged == one);
            prop_assert_eq!(one.compare(&two) == Causality::Concurrent, merged != one && merged != two);
        }
    }
}
