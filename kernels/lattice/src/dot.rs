//! Names of single changes, and sets of such names.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Lattice, WriterId};

/// The name of one change to one value: the writer's first, second, third change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Dot {
    /// Who made the change.
    pub writer: WriterId,
    /// Which of the writer's changes of this value, from 1.
    pub sequence: u64,
}

impl fmt::Display for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.writer, self.sequence)
    }
}

/// A set of dots; merging is union. As the *context* of a value it says which changes the value has seen, those that
/// were overwritten or removed included.
///
/// Kept as runs of successive dots: a value that has seen all of a writer's changes has one run for it, and a change
/// that arrives before an earlier one begins a second run until the gap is filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dots {
    /// By writer and first sequence; no two overlap or touch.
    runs: Vec<Run>,
}

/// The dots `first..=last` of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    writer: WriterId,
    first: u64,
    last: u64,
}

/// A decoded sequence above this is refused, so that counting on from it cannot overflow.
const SEQUENCE_MAX: u64 = u64::MAX / 2;

impl Dots {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Whether the dot is in the set.
    #[must_use]
    pub fn contains(&self, dot: Dot) -> bool {
        let after = self.runs.partition_point(|run| (run.writer, run.first) <= (dot.writer, dot.sequence));
        after > 0 && {
            let run = self.runs[after - 1];
            run.writer == dot.writer && dot.sequence <= run.last
        }
    }

    /// Adds a dot. Says whether it is new.
    pub fn insert(&mut self, dot: Dot) -> bool {
        self.insert_run(Run { writer: dot.writer, first: dot.sequence, last: dot.sequence })
    }

    /// The largest sequence of a writer, 0 if there is none.
    #[must_use]
    pub fn last(&self, writer: WriterId) -> u64 {
        let after = self.runs.partition_point(|run| run.writer <= writer);
        self.runs[..after].last().filter(|run| run.writer == writer).map_or(0, |run| run.last)
    }

    /// The dot that comes after all of a writer's.
    #[must_use]
    pub fn next(&self, writer: WriterId) -> Dot {
        Dot { writer, sequence: self.last(writer) + 1 }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds a run; merges it with those that it overlaps or touches.
    fn insert_run(&mut self, run: Run) -> bool {
        let begin = self.runs.partition_point(|r| (r.writer, r.last.saturating_add(1)) < (run.writer, run.first));
        let met =
            self.runs[begin..].partition_point(|r| (r.writer, r.first) <= (run.writer, run.last.saturating_add(1)));
        if met == 0 {
            self.runs.insert(begin, run);
            return true;
        }
        let (left, right) = (self.runs[begin], self.runs[begin + met - 1]);
        if left.first <= run.first && run.last <= left.last {
            return false;
        }
        self.runs[begin].first = left.first.min(run.first);
        self.runs[begin].last = right.last.max(run.last);
        self.runs.drain(begin + 1..begin + met);
        true
    }
}

impl Lattice for Dots {
    fn merge(&mut self, other: Self) -> bool {
        if self.is_empty() {
            *self = other;
            return !self.is_empty();
        }
        let mut changed = false;
        for run in other.runs {
            changed |= self.insert_run(run);
        }
        changed
    }
}

impl From<Dot> for Dots {
    fn from(dot: Dot) -> Self {
        Self { runs: vec![Run { writer: dot.writer, first: dot.sequence, last: dot.sequence }] }
    }
}

impl FromIterator<Dot> for Dots {
    fn from_iter<I: IntoIterator<Item = Dot>>(dots: I) -> Self {
        let mut set = Self::new();
        for dot in dots {
            set.insert(dot);
        }
        set
    }
}

/// As (writer, first, how many follow) per run.
impl Serialize for Dots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.runs.iter().map(|run| (run.writer, run.first, run.last - run.first)))
    }
}

impl<'de> Deserialize<'de> for Dots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let runs = Vec::<(WriterId, u64, u64)>::deserialize(deserializer)?;
        let mut dots = Self { runs: Vec::with_capacity(runs.len()) };
        for (writer, first, following) in runs {
            let last = first.checked_add(following).filter(|last| first > 0 && *last <= SEQUENCE_MAX);
            let last = last.ok_or_else(|| {
                D::Error::custom(format_args!(
                    "expected dots from 1 to {SEQUENCE_MAX}, came {first} and {following} more of {writer}"
                ))
            })?;
            let ascends = dots.runs.last().is_none_or(|r| (r.writer, r.last + 1) < (writer, first));
            if !ascends {
                return Err(D::Error::custom(format_args!(
                    "expected runs of dots that ascend with gaps between, came {writer}:{first} out of place"
                )));
            }
            dots.runs.push(Run { writer, first, last });
        }
        Ok(dots)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn dot(writer: u32, sequence: u64) -> Dot {
        Dot { writer: WriterId(writer), sequence }
    }

    #[test]
    fn a_gap_begins_a_run_and_filling_it_joins_two() {
        let mut dots: Dots = [dot(1, 1), dot(1, 2), dot(1, 4)].into_iter().collect();
        assert_eq!(dots.runs.len(), 2);
        assert!(dots.insert(dot(1, 3)));
        assert!(!dots.insert(dot(1, 2)));
        assert_eq!(dots.runs.len(), 1);
        assert_eq!(dots.next(WriterId(1)), dot(1, 5));
        assert_eq!(dots.next(WriterId(2)), dot(2, 1));
    }

    #[test]
    fn runs_that_are_no_runs_are_refused_when_decoded() {
        let cases: [&[(u32, u64, u64)]; 5] =
            [&[(1, 0, 3)], &[(1, 5, u64::MAX)], &[(1, u64::MAX, 0)], &[(1, 1, 1), (1, 3, 0)], &[(2, 1, 0), (1, 1, 0)]];
        for runs in cases {
            let bytes = postcard::to_stdvec(runs).expect("encodes");
            postcard::from_bytes::<Dots>(&bytes).expect_err("malformed");
        }
    }

    fn any_dots() -> impl Strategy<Value = Vec<Dot>> {
        prop::collection::vec((0..3_u32, 1..20_u64).prop_map(|(writer, sequence)| dot(writer, sequence)), 0..30)
    }

    proptest! {
        #[test]
        fn it_does_what_a_set_does(one in any_dots(), two in any_dots()) {
            let mut dots = Dots::new();
            let mut model = BTreeSet::new();
            for each in &one {
                prop_assert_eq!(dots.insert(*each), model.insert(*each));
            }
            let before = dots.clone();
            let changed = dots.merge(two.iter().copied().collect());
            model.extend(&two);
            prop_assert_eq!(changed, dots != before);
            for writer in 0..4 {
                for sequence in 1..21 {
                    prop_assert_eq!(dots.contains(dot(writer, sequence)), model.contains(&dot(writer, sequence)));
                }
                let last = model.iter().filter(|d| d.writer == WriterId(writer)).map(|d| d.sequence).max();
                prop_assert_eq!(dots.last(WriterId(writer)), last.unwrap_or(0));
            }
            for pair in dots.runs.windows(2) {
                prop_assert!((pair[0].writer, pair[0].last + 1) < (pair[1].writer, pair[1].first), "runs neither overlap nor touch");
            }
            let bytes = postcard::to_stdvec(&dots).expect("encodes");
            prop_assert_eq!(postcard::from_bytes::<Dots>(&bytes).expect("decodes"), dots);
        }
    }
}
