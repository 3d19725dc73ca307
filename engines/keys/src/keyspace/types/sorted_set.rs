//! A set of strings in the order of their scores.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use super::{Collection, Operation, collection_of};
use crate::delta::{Malformed, OpReader, OpWriter};
use crate::keyspace::Change;
use crate::keyspace::entry::Value;
use crate::short_bytes::ShortBytes;

/// A score: any number but `nan`, ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score(f64);

impl Score {
    /// A score, unless the number is `nan`.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        // -0 and 0 are one score; the sum makes them one number.
        (!number.is_nan()).then_some(Self(number + 0.0))
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A range of scores.
pub type ScoreRange = (Bound<Score>, Bound<Score>);

/// Members in the order of their scores, equal scores in the order of their bytes.
///
/// The order is kept in runs of up to [`RUN_MAX`] members: a place is found by binary search over runs and inside one, a
/// rank by adding up the lengths of the runs before, which at a million members are 4,000 numbers in a row.
#[derive(Clone, Debug, Default)]
pub struct SortedSet {
    scores: IndexMap<ShortBytes, Score, DefaultHashBuilder>,
    runs: Vec<Vec<Place>>,
    heap_bytes: usize,
}

type Place = (Score, ShortBytes);

/// A run longer than this is cut in two.
const RUN_MAX: usize = 512;

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// Of a member besides its bytes: twice string and score, and its share of the table.
const MEMBER_BYTES: usize = 96;

impl SortedSet {
    /// A member's score.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(member).copied()
    }

    /// A member and its score by its place in no order.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<(&[u8], Score)> {
        self.scores.get_index(index).map(|(member, score)| (&**member, *score))
    }

    /// How many members come before this one.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.count_before(|place| (place.0, &*place.1) < (score, member)))
    }

    /// Members and scores at a range of ranks, from the lowest up.
    pub fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = (&[u8], Score)> {
        let (mut skip, mut take) = (ranks.start, ranks.len());
        let parts: Vec<&[Place]> = self
            .runs
            .iter()
            .filter_map(|run| {
                let start = skip.min(run.len());
                skip -= start;
                let part = &run[start..run.len().min(start + take)];
                take -= part.len();
                (!part.is_empty()).then_some(part)
            })
            .collect();
        parts.into_iter().flatten().map(|(score, member)| (&**member, *score))
    }

    /// Members and scores, from the lowest up.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Score)> {
        self.runs.iter().flatten().map(|(score, member)| (&**member, *score))
    }

    /// Members and scores from one score up to another one, which is excluded.
    pub fn between(&self, low: Score, high: Score) -> impl Iterator<Item = (&[u8], Score)> {
        let run = self.runs.partition_point(|run| run.last().is_some_and(|(score, _)| *score < low));
        let (first, rest) = self.runs[run..].split_first().map_or((&[][..], &[][..]), |(first, rest)| (&**first, rest));
        let first = &first[first.partition_point(|(score, _)| *score < low)..];
        let places = first.iter().chain(rest.iter().flatten()).take_while(move |(score, _)| *score < high);
        places.map(|(score, member)| (&**member, *score))
    }

    /// The ranks of the scores in a range.
    #[must_use]
    pub fn ranks_by_score(&self, (low, high): ScoreRange) -> Range<usize> {
        let start = match low {
            Bound::Unbounded => 0,
            Bound::Included(low) => self.count_before(|(score, _)| *score < low),
            Bound::Excluded(low) => self.count_before(|(score, _)| *score <= low),
        };
        let end = match high {
            Bound::Unbounded => self.len(),
            Bound::Included(high) => self.count_before(|(score, _)| *score <= high),
            Bound::Excluded(high) => self.count_before(|(score, _)| *score < high),
        };
        start..end.max(start)
    }

    /// The ranks of the members in a range of bytes; meaningful if all scores are equal.
    #[must_use]
    pub fn ranks_by_bytes(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Range<usize> {
        let start = match low {
            Bound::Unbounded => 0,
            Bound::Included(low) => self.count_before(|(_, member)| **member < *low),
            Bound::Excluded(low) => self.count_before(|(_, member)| **member <= *low),
        };
        let end = match high {
            Bound::Unbounded => self.len(),
            Bound::Included(high) => self.count_before(|(_, member)| **member <= *high),
            Bound::Excluded(high) => self.count_before(|(_, member)| **member < *high),
        };
        start..end.max(start)
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        size_of::<Self>() + self.heap_bytes
    }

    /// How many places there are for which `before` holds; it must hold for a prefix.
    fn count_before(&self, before: impl Fn(&Place) -> bool) -> usize {
        let run = self.runs.partition_point(|run| run.last().is_some_and(&before));
        let full: usize = self.runs[..run].iter().map(Vec::len).sum();
        full + self.runs.get(run).map_or(0, |run| run.partition_point(before))
    }

    pub(in crate::keyspace) fn put(&mut self, member: &[u8], score: Score) -> bool {
        let new = match self.scores.get_mut(member) {
            Some(mine) if *mine == score => return false,
            Some(mine) => {
                let old = std::mem::replace(mine, score);
                self.unlink(member, old);
                false
            }
            None => {
                let member = ShortBytes::from(member);
                self.heap_bytes += MEMBER_BYTES + 2 * member.heap_bytes();
                self.scores.insert(member, score);
                true
            }
        };
        self.link(member, score);
        new
    }

    pub(in crate::keyspace) fn remove(&mut self, member: &[u8]) -> bool {
        let Some((member, score)) = self.scores.swap_remove_full(member).map(|(_, member, score)| (member, score))
        else {
            return false;
        };
        self.heap_bytes -= MEMBER_BYTES + 2 * member.heap_bytes();
        self.unlink(&member, score);
        true
    }

    /// The next operation of a delta.
    pub(in crate::keyspace) fn operation<'a>(
        operations: &mut OpReader<'a>,
    ) -> Result<Option<Operation<'a, Score>>, Malformed> {
        let Some(tag) = operations.tag() else { return Ok(None) };
        match tag {
            PUT => {
                let score = Score::new(f64::from_bits(operations.number()?));
                let score = score.ok_or_else(|| Malformed::operation("zset score", tag))?;
                Ok(Some(Operation::Put(operations.bytes()?, score)))
            }
            REMOVE => Ok(Some(Operation::Remove(operations.bytes()?))),
            other => Err(Malformed::operation("zset", other)),
        }
    }

    fn link(&mut self, member: &[u8], score: Score) {
        let place = (score, ShortBytes::from(member));
        // The run that ends at or after the place, or the last one.
        let at = self.runs.partition_point(|run| run.last().is_some_and(|last| *last < place));
        let at = at.min(self.runs.len().saturating_sub(1));
        if self.runs.is_empty() {
            self.runs.push(Vec::new());
        }
        let run = &mut self.runs[at];
        let index = run.partition_point(|other| *other < place);
        run.insert(index, place);
        if run.len() > RUN_MAX {
            let upper = run.split_off(RUN_MAX / 2);
            self.runs.insert(at + 1, upper);
        }
    }

    fn unlink(&mut self, member: &[u8], score: Score) {
        let before = |place: &Place| (place.0, &*place.1) < (score, member);
        let at = self.runs.partition_point(|run| run.last().is_some_and(before));
        let Some(run) = self.runs.get_mut(at) else { return };
        let index = run.partition_point(before);
        if run.get(index).is_some_and(|place| *place.1 == *member) {
            run.remove(index);
        }
        if run.is_empty() {
            self.runs.remove(at);
        }
    }
}

impl<'a> FromIterator<(&'a [u8], Score)> for SortedSet {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], Score)>>(members: I) -> Self {
        let mut set = Self::default();
        for (member, score) in members {
            set.put(member, score);
        }
        set
    }
}

impl Change<'_, SortedSet> {
    /// Writes a member's score. Says whether the member is new.
    pub fn put(&mut self, member: &[u8], score: Score) -> bool {
        if self.value.score(member) == Some(score) && !self.repeats {
            return false;
        }
        let new = self.value.put(member, score);
        self.log(|operations| {
            operations.tag(PUT);
            operations.number(score.get().to_bits());
            operations.bytes(member);
        });
        new
    }

    /// Removes a member. Says whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.value.remove(member);
        if removed {
            self.log(|operations| {
                operations.tag(REMOVE);
                operations.bytes(member);
            });
        }
        removed
    }
}

impl Collection for SortedSet {
    const TAG: u8 = 5;

    collection_of!(SortedSet);

    fn len(&self) -> usize {
        self.scores.len()
    }

    fn apply(&mut self, operations: &mut OpReader<'_>) -> Result<(), Malformed> {
        while let Some(operation) = Self::operation(operations)? {
            match operation {
                Operation::Put(member, score) => self.put(member, score),
                Operation::Remove(member) => self.remove(member),
            };
        }
        Ok(())
    }

    fn write_whole(&self, operations: &mut OpWriter<'_>) {
        for (member, score) in self.iter() {
            operations.tag(PUT);
            operations.number(score.get().to_bits());
            operations.bytes(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranks_and_ranges_are_those_of_a_sorted_list(
            steps in prop::collection::vec((0..400_u32, -20..20_i32, prop::bool::weighted(0.8)), 0..3000)
        ) {
            let mut set = SortedSet::default();
            let mut model = std::collections::BTreeMap::new();
            for (member, score, put) in steps {
                let name = member.to_string().into_bytes();
                let score = Score::new(f64::from(score)).expect("a number");
                if put {
                    prop_assert_eq!(set.put(&name, score), model.insert(name, score).is_none());
                } else {
                    prop_assert_eq!(set.remove(&name), model.remove(&name).is_some());
                }
            }
            let mut sorted: Vec<(Score, Vec<u8>)> = model.into_iter().map(|(name, score)| (score, name)).collect();
            sorted.sort();
            prop_assert_eq!(set.len(), sorted.len());
            prop_assert!(set.iter().map(|(name, score)| (score, name.to_vec())).eq(sorted.iter().cloned()));
            for (rank, (_, name)) in sorted.iter().enumerate() {
                prop_assert_eq!(set.rank(name), Some(rank));
            }
            let low = Score::new(-3.0).expect("a number");
            let high = Score::new(7.0).expect("a number");
            let expected = sorted.iter().filter(|(score, _)| *score > low && *score <= high).count();
            prop_assert_eq!(set.ranks_by_score((Bound::Excluded(low), Bound::Included(high))).len(), expected);
            let expected = sorted.iter().filter(|(score, _)| *score >= low && *score < high);
            prop_assert!(set.between(low, high).eq(expected.map(|(score, name)| (&**name, *score))));
            let part: Vec<_> = set.range(3..10).map(|(name, _)| name.to_vec()).collect();
            let expected: Vec<_> = sorted.iter().skip(3).take(7).map(|(_, name)| name.clone()).collect();
            prop_assert_eq!(part, expected);
        }
    }

    #[test]
    fn a_negative_zero_is_zero() {
        assert_eq!(Score::new(-0.0), Score::new(0.0));
        assert_eq!(Score::new(f64::NAN), None);
    }
}
