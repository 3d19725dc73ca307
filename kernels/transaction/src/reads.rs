//! What a transaction saw and must not have changed when it commits: rows by their hash, and ranges of keys.

use serde::{Deserialize, Serialize};

use crate::{KeyRange, row::Row};

/// Rows that one transaction remembers, one by one, before it remembers *everything* instead: 8 MiB.
const ROWS_MAX: usize = 1 << 20;

/// The same for ranges.
const RANGES_MAX: usize = 1 << 12;

/// A read set. Remembering a row is a push of 8 bytes; doubles are removed when the set has doubled. What is read from
/// savepoints that were rolled back stays: the client has seen it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReadSet {
    /// Rows whose content was read.
    pub(crate) rows: Rows,
    /// Rows whose presence or absence a constraint was checked against.
    pub(crate) probes: Rows,
    /// Ranges that were read.
    pub(crate) ranges: Ranges,
    /// Ranges that a constraint was checked against: only what comes or goes matters.
    pub(crate) probed_ranges: Ranges,
}

impl ReadSet {
    pub(crate) fn row(&mut self, row: Row) {
        if !self.rows.push(row) {
            self.range(KeyRange::ALL);
        }
    }

    pub(crate) fn probe(&mut self, row: Row) {
        if !self.probes.push(row) {
            self.probed_range(KeyRange::ALL);
        }
    }

    pub(crate) fn range(&mut self, range: KeyRange) {
        self.ranges.add(range);
    }

    pub(crate) fn probed_range(&mut self, range: KeyRange) {
        self.probed_ranges.add(range);
    }

    /// How many rows it remembers, some of them twice.
    pub(crate) fn len(&self) -> usize {
        self.rows.rows.len() + self.probes.rows.len()
    }

    pub(crate) fn clear(&mut self) {
        self.rows.rows.clear();
        self.probes.rows.clear();
        self.ranges.merged.clear();
        self.probed_ranges.merged.clear();
    }
}

/// Hashes of rows, with doubles among the newest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Row>", into = "Vec<Row>")]
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// How many there were after doubles were removed last.
    distinct: usize,
}

impl Rows {
    /// Whether there was place.
    fn push(&mut self, row: Row) -> bool {
        if self.rows.len() == self.rows.capacity() && self.rows.len() >= 2 * self.distinct.max(512) {
            self.rows.sort_unstable();
            self.rows.dedup();
            self.distinct = self.rows.len();
        }
        if self.rows.len() >= ROWS_MAX {
            return false;
        }
        self.rows.push(row);
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().copied()
    }
}

impl From<Vec<Row>> for Rows {
    fn from(rows: Vec<Row>) -> Self {
        Self { rows, distinct: 0 }
    }
}

impl From<Rows> for Vec<Row> {
    fn from(rows: Rows) -> Self {
        rows.rows
    }
}

/// Ranges in order, none touching the next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<KeyRange>", into = "Vec<KeyRange>")]
pub(crate) struct Ranges {
    merged: Vec<KeyRange>,
}

impl From<Vec<KeyRange>> for Ranges {
    /// Adds them one by one, so that any list becomes one in order.
    fn from(ranges: Vec<KeyRange>) -> Self {
        let mut merged = Self::default();
        for range in ranges {
            merged.add(range);
        }
        merged
    }
}

impl From<Ranges> for Vec<KeyRange> {
    fn from(ranges: Ranges) -> Self {
        ranges.merged
    }
}

impl Ranges {
    fn add(&mut self, mut range: KeyRange) {
        if range.is_empty() {
            return;
        }
        // Those that touch the new one: from the first that does not end before it to the last that begins within.
        let first = self.merged.partition_point(|old| old.end.as_ref().is_some_and(|end| *end < range.start));
        let behind = match &range.end {
            Some(end) => self.merged.partition_point(|old| old.start <= *end),
            None => self.merged.len(),
        };
        if first < behind {
            let last = &self.merged[behind - 1];
            if last.end.is_none() || range.end.as_ref().is_some_and(|end| last.end.as_ref() > Some(end)) {
                range.end.clone_from(&last.end);
            }
            if self.merged[first].start < range.start {
                range.start.clone_from(&self.merged[first].start);
            }
        }
        self.merged.splice(first..behind, [range]);
        if self.merged.len() > RANGES_MAX {
            let end = self.merged.pop().and_then(|last| last.end);
            self.merged.truncate(1);
            self.merged[0].end = end;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.merged.is_empty()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let behind = self.merged.partition_point(|range| range.start.as_slice() <= key);
        behind > 0 && self.merged[behind - 1].contains(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn merged_ranges_contain_what_any_of_them_does(
            ranges in prop::collection::vec((0_u8..40, prop::option::of(0_u8..40)), 0..20),
        ) {
            let ranges: Vec<KeyRange> = ranges
                .into_iter()
                .map(|(start, end)| KeyRange { start: vec![start], end: end.map(|end| vec![end]) })
                .collect();
            let mut merged = Ranges::default();
            for range in &ranges {
                merged.add(range.clone());
            }
            for key in 0..42 {
                let expected = ranges.iter().any(|range| range.contains(&[key]));
                prop_assert_eq!(merged.contains(&[key]), expected, "{} in {:?}", key, merged);
            }
            for pair in merged.merged.windows(2) {
                prop_assert!(pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start), "{:?}", pair);
            }
        }
    }

    #[test]
    fn reading_the_same_rows_again_and_again_takes_no_more_memory() {
        let mut reads = ReadSet::default();
        for round in 0..1_000_000_u64 {
            reads.row(Row(round % 700));
        }
        assert!(reads.rows.rows.capacity() <= 4096, "{}", reads.rows.rows.capacity());
    }

    #[test]
    fn who_reads_too_many_rows_has_read_everything() {
        let mut reads = ReadSet::default();
        for row in 0..=ROWS_MAX as u64 {
            reads.row(Row(row));
        }
        assert!(reads.ranges.contains(b"anything"));
    }

    #[test]
    fn who_probes_too_many_rows_has_probed_everything() {
        let mut reads = ReadSet::default();
        for row in 0..=ROWS_MAX as u64 {
            reads.probe(Row(row));
        }
        assert!(reads.probed_ranges.contains(b"anything"));
    }

    #[test]
    fn too_many_ranges_become_the_range_around_them() {
        let mut ranges = Ranges::default();
        for at in 0..=RANGES_MAX as u32 {
            let start = (2 * at).to_be_bytes();
            ranges.add(KeyRange::new(start, (2 * at + 1).to_be_bytes()));
        }
        assert!(ranges.merged.len() < 3, "{}", ranges.merged.len());
        assert!(ranges.contains(&5_u32.to_be_bytes()));
    }
}
