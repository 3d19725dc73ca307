//! What was committed lately, and whether a transaction can still be put behind it.
//!
//! Backward validation (Kung and Robinson 1981, section 5; ElasTraS 4.2.2), for versions: a transaction read the state
//! after commit `S`, its snapshot, and wants number `N`. If nothing that it read was written by `S + 1 .. N - 1`, it
//! would have read the same at `N`, so that the order of numbers is a serial order. What differs from the published
//! algorithm, and why:
//!
//! | there | here |
//! |---|---|
//! | reads see whatever was written last; a doomed transaction may compute nonsense before it is aborted | reads see one snapshot |
//! | a transaction is numbered when it has written, after others have seen what it wrote | numbered once, before it is validated; what it reads, logs and shows goes by this number |
//! | checked against those with numbers since its start, and against those that are still validating | the same set, in one piece: every number between snapshot and its own that was not given up |
//! | also `their writes ∩ my writes`, because writing takes time and may interleave | not needed to serialize: versions are ordered by number, and locks keep writers of a row apart. `SNAPSHOT` asks for it: the first committer wins |
//! | read-only transactions validate | they do not: they stand at their snapshot |
//! | reads are records | rows, ranges (no phantoms), and probes of constraints |
//!
//! As there, a transaction that meets one that is still being decided is aborted, though the other may yet be given up.
//! The first of those that validate at once never is, so somebody always gets through.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    Change, Conflict, ConflictKind, Csn, Isolation,
    fault::{Rules, broken},
    reads::ReadSet,
    row::{Key, NumberMap, Row},
};

/// What a commit writes.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) row: Row,
    pub(crate) key: Key,
    pub(crate) change: Change,
}

/// A commit, from its number on. What it writes is shared with those who are validated against it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) csn: Csn,
    pub(crate) written: Arc<[Written]>,
}

/// The commits that a transaction may still have to be validated against, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct History {
    recent: VecDeque<Record>,
}

impl History {
    pub(crate) fn push(&mut self, record: Record) {
        debug_assert!(self.recent.back().is_none_or(|last| last.csn < record.csn), "records come in order");
        self.recent.push_back(record);
    }

    /// The commits behind `snapshot` and before `csn`.
    pub(crate) fn between(&self, snapshot: Csn, csn: Csn) -> impl Iterator<Item = &Record> + Clone {
        let first = self.recent.partition_point(|record| record.csn <= snapshot);
        self.recent.range(first..).take_while(move |record| record.csn < csn)
    }

    /// The last of the commits behind `snapshot` up to `upto`, at most so many.
    pub(crate) fn newest(&self, snapshot: Csn, upto: Csn, count_max: usize) -> impl Iterator<Item = &Record> + Clone {
        let place = |csn: Csn| self.recent.partition_point(|record| record.csn <= csn);
        let behind = place(upto);
        self.recent.range(place(snapshot).max(behind.saturating_sub(count_max))..behind)
    }

    /// Takes a commit out that was given up.
    pub(crate) fn withdraw(&mut self, csn: Csn) {
        if let Ok(place) = self.recent.binary_search_by_key(&csn, |record| record.csn) {
            self.recent.remove(place);
        }
    }

    /// Forgets the commits up to `horizon`: every snapshot that is to be validated is at least there.
    pub(crate) fn forget(&mut self, horizon: Csn) {
        while self.recent.front().is_some_and(|record| record.csn <= horizon) {
            self.recent.pop_front();
        }
    }

    /// All that is kept, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.recent.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.recent.len()
    }
}

/// The first conflict of a transaction with the commits since its snapshot: in time proportional to what it read and
/// what they wrote.
pub(crate) fn conflict<'a>(
    isolation: Isolation,
    reads: &ReadSet,
    writes: &[Written],
    concurrent: impl Iterator<Item = &'a Record> + Clone,
    rules: Rules,
) -> Option<Conflict> {
    if isolation == Isolation::ReadCommitted {
        return None;
    }
    let count = concurrent.clone().map(|record| record.written.len()).sum();
    if count == 0 {
        return None;
    }
    let mut changed: NumberMap<Row, (Change, Csn)> = NumberMap::with_capacity_and_hasher(count, Default::default());
    for record in concurrent.clone() {
        for written in &*record.written {
            let entry = changed.entry(written.row).or_insert((written.change, record.csn));
            entry.0 = entry.0.max(written.change);
        }
    }
    let met = |row: &Row, kind| changed.get(row).map(|(_, with)| Conflict { kind, with: *with });
    if isolation == Isolation::Snapshot && !broken!(rules, WritesAreNotValidated) {
        let won = writes.iter().find_map(|written| met(&written.row, ConflictKind::Write));
        if won.is_some() {
            return won;
        }
    }
    if !broken!(rules, ReadsAreNotValidated)
        && let Some(conflict) = reads.rows.iter().find_map(|row| met(&row, ConflictKind::Read))
    {
        return Some(conflict);
    }
    if !broken!(rules, ProbesAreNotValidated) {
        let came_or_went = |row: Row| changed.get(&row).filter(|(change, _)| *change == Change::Existence);
        if let Some((_, with)) = reads.probes.iter().find_map(came_or_went) {
            return Some(Conflict { kind: ConflictKind::Probe, with: *with });
        }
    }
    in_ranges(reads, concurrent, rules)
}

fn in_ranges<'a>(reads: &ReadSet, concurrent: impl Iterator<Item = &'a Record>, rules: Rules) -> Option<Conflict> {
    let ranges = !reads.ranges.is_empty() && !broken!(rules, RangesAreNotValidated);
    let probes = !reads.probed_ranges.is_empty() && !broken!(rules, ProbesAreNotValidated);
    if !ranges && !probes {
        return None;
    }
    for record in concurrent {
        for written in &*record.written {
            if ranges && reads.ranges.contains(&written.key) {
                return Some(Conflict { kind: ConflictKind::Range, with: record.csn });
            }
            if probes && written.change == Change::Existence && reads.probed_ranges.contains(&written.key) {
                return Some(Conflict { kind: ConflictKind::Probe, with: record.csn });
            }
        }
    }
    None
}
