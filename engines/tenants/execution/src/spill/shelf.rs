//! Rows that leave the statement: they are given once, or kept to be given in parts. Those in a file are read when they are given, and not before.

use std::{ops::Range, sync::Arc};

use savanna_tenants_store::spills::Spills;
use savanna_tenants_values::{error::Result, memory::row_bytes, value::Value};

use super::{Spool, Tape, TapeRows};

/// Rows that are copied at once, and about how many bytes of them.
const ROWS_AT_ONCE: usize = 1_000;
const BYTES_AT_ONCE: usize = 256 << 10;

/// Rows that are kept, and given as often as somebody asks for them.
#[derive(Debug, Default)]
pub struct Shelf {
    rows: Arc<Vec<Vec<Value>>>,
    tape: Option<Tape>,
}

impl From<Spool> for Shelf {
    fn from(spool: Spool) -> Self {
        let (rows, tape) = spool.into_parts();
        Self { rows: Arc::new(rows), tape }
    }
}

impl Shelf {
    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tape.as_ref().map_or(self.rows.len(), Tape::len)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are in a file.
    #[must_use]
    pub fn is_filed(&self) -> bool {
        self.tape.is_some()
    }

    /// The rows that need no file.
    #[must_use]
    pub fn kept(&self) -> &[Vec<Value>] {
        &self.rows
    }

    /// Those of some numbers, perhaps the last one first. Nothing is read or copied yet.
    #[must_use]
    pub fn part(&self, numbers: Range<usize>, backwards: bool) -> SpoolRows {
        match &self.tape {
            Some(tape) => SpoolRows::of_tape(tape.clone().into_part(numbers, backwards)),
            None => SpoolRows::of(Source::Shared { rows: Arc::clone(&self.rows), left: numbers, backwards }),
        }
    }
}

/// Rows that are given, each once: as errors those that could not be read from the file.
#[derive(Debug, Default)]
pub struct SpoolRows {
    source: Source,
    is_owed: bool,
}

#[derive(Debug)]
enum Source {
    Own(std::vec::IntoIter<Vec<Value>>),
    Shared { rows: Arc<Vec<Vec<Value>>>, left: Range<usize>, backwards: bool },
    Tape(TapeRows),
}

impl Default for Source {
    fn default() -> Self {
        Self::Own(Vec::new().into_iter())
    }
}

impl From<Spool> for SpoolRows {
    fn from(spool: Spool) -> Self {
        spool.into_rows()
    }
}

impl From<Vec<Vec<Value>>> for SpoolRows {
    fn from(rows: Vec<Vec<Value>>) -> Self {
        Self::of(Source::Own(rows.into_iter()))
    }
}

impl Iterator for SpoolRows {
    type Item = Result<Vec<Value>>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Own(rows) => rows.next().map(Ok),
            Source::Shared { rows, left, backwards } => {
                let number = if *backwards { left.next_back() } else { left.next() };
                number.map(|number| Ok(rows[number].clone()))
            }
            Source::Tape(rows) => rows.next().transpose(),
        }
    }
}

impl SpoolRows {
    const fn of(source: Source) -> Self {
        Self { source, is_owed: false }
    }

    pub(super) const fn of_tape(rows: TapeRows) -> Self {
        Self::of(Source::Tape(rows))
    }

    /// The same, of a statement that has written: nobody stops them, since that would look as if it had not.
    #[must_use]
    pub fn owed(self) -> Self {
        Self { is_owed: true, ..self }
    }

    /// Whether their statement has written.
    #[must_use]
    pub const fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// How many rows are still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        match &self.source {
            Source::Own(rows) => rows.len(),
            Source::Shared { left, .. } => left.len(),
            Source::Tape(rows) => rows.left(),
        }
    }

    /// Whether they are read from a file.
    #[must_use]
    pub const fn is_filed(&self) -> bool {
        matches!(self.source, Source::Tape(_))
    }

    /// The rows in memory that are still to come, of which those of a shelf may be in another order.
    #[must_use]
    pub fn kept(&self) -> &[Vec<Value>] {
        match &self.source {
            Source::Own(rows) => rows.as_slice(),
            Source::Shared { rows, left, .. } => &rows[left.clone()],
            Source::Tape(_) => &[],
        }
    }

    /// Copies what is still to come of a shelf in memory, which may go then.
    pub fn own(&mut self) {
        if let Source::Shared { rows, left, backwards } = &self.source {
            let mut own = rows[left.clone()].to_vec();
            if *backwards {
                own.reverse();
            }
            self.source = Source::Own(own.into_iter());
        }
    }

    /// Some of the rows that are still to come, none at the end. A file is read for no more than these.
    ///
    /// # Errors
    /// 58030.
    pub fn some(&mut self) -> Result<Vec<Vec<Value>>> {
        match &mut self.source {
            Source::Own(rows) => Ok(std::mem::take(rows).collect()),
            Source::Tape(rows) => rows.extent(),
            Source::Shared { .. } => {
                let (mut some, mut bytes) = (Vec::new(), 0);
                while some.len() < ROWS_AT_ONCE && bytes < BYTES_AT_ONCE {
                    let Some(row) = self.next().transpose()? else { break };
                    bytes += row_bytes(&row);
                    some.push(row);
                }
                Ok(some)
            }
        }
    }

    /// The rows that come next, so many at most, for somebody else. A file is not read for that.
    #[must_use]
    pub fn split(&mut self, count: usize) -> Self {
        let source = match &mut self.source {
            Source::Own(rows) => Source::Own(rows.by_ref().take(count).collect::<Vec<_>>().into_iter()),
            Source::Tape(rows) => Source::Tape(rows.split(count)),
            Source::Shared { rows, left, backwards } => {
                let Range { start, end } = *left;
                let count = count.min(left.len());
                let part = if *backwards { end - count..end } else { start..start + count };
                *left = if *backwards { start..part.start } else { part.end..end };
                Source::Shared { rows: Arc::clone(rows), left: part, backwards: *backwards }
            }
        };
        if self.left() == 0 {
            // Nothing is kept alive of which nothing comes.
            self.source = Source::default();
        }
        Self { source, is_owed: self.is_owed }
    }

    /// Puts the rows that are still to come into a file, if they are not in one.
    ///
    /// # Errors
    /// 53100 if the disk is full, 53400, 58030; that of `goes_on`, which is asked with every row.
    pub fn put_away(&mut self, spills: &Arc<Spills>, goes_on: impl Fn() -> Result<()>) -> Result<()> {
        if !self.is_filed() {
            let mut tape = Tape::new(&Arc::new(spills.file()?));
            for row in self.by_ref() {
                goes_on()?;
                tape.push(&row?)?;
            }
            tape.end()?;
            self.source = Source::Tape(tape.into_rows());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: i64) -> Vec<Vec<Value>> {
        (0..count).map(|at| vec![Value::Int(at), Value::Text("x".repeat(100))]).collect()
    }

    fn numbers(rows: SpoolRows) -> Vec<i64> {
        let number = |row: Result<Vec<Value>>| match row.expect("what was written")[0] {
            Value::Int(number) => number,
            _ => -1,
        };
        rows.map(number).collect()
    }

    /// The same rows in memory and in a file.
    fn both(count: i64, work: impl Fn(&Shelf)) {
        let folder = tempfile::tempdir().expect("a folder");
        let spills = Arc::new(Spills::open(folder.path()).expect("a folder").reserving(0));
        work(&Shelf::from(Spool::from(rows(count))));
        let mut filed = Spool::from(rows(count));
        filed.put_away(&spills, || Ok(())).expect("a file");
        let shelf = Shelf::from(filed);
        assert!(shelf.is_filed() && shelf.kept().is_empty());
        work(&shelf);
        drop(shelf);
        assert_eq!(spills.bytes(), 0);
    }

    #[test]
    fn any_part_is_given_both_ways() {
        both(5_000, |shelf| {
            assert_eq!(shelf.len(), 5_000);
            for part in [0..5_000, 0..0, 5_000..5_000, 17..18, 600..3_111, 4_999..5_000, 0..1_234] {
                let expected: Vec<i64> = part.clone().map(|at| at as i64).collect();
                assert_eq!(numbers(shelf.part(part.clone(), false)), expected);
                assert_eq!(numbers(shelf.part(part.clone(), true)), expected.iter().rev().copied().collect::<Vec<_>>());
            }
        });
    }

    #[test]
    fn rows_are_split_off_in_their_order_whoever_reads_first() {
        both(3_000, |shelf| {
            for (backwards, count) in [(false, 1), (false, 7), (false, 700), (true, 7), (true, 700), (true, 9_999)] {
                let mut all = numbers(shelf.part(100..2_900, false));
                if backwards {
                    all.reverse();
                }
                let mut rows = shelf.part(100..2_900, backwards);
                let mut parts = Vec::new();
                while rows.left() > 0 {
                    // One of the rows that are left is read by themselves meanwhile.
                    parts.push(rows.split(count));
                    if let Some(row) = rows.next() {
                        parts.push(vec![row.expect("what was written")].into());
                    }
                }
                assert_eq!(parts.into_iter().flat_map(numbers).collect::<Vec<_>>(), all, "{count} back {backwards}");
            }
        });
    }

    #[test]
    fn what_is_kept_of_a_shelf_is_counted_and_outlives_it() {
        let shelf = Shelf::from(Spool::from(rows(100)));
        let mut part = shelf.part(10..60, true);
        assert_eq!(numbers(part.split(10)), (50..60).rev().collect::<Vec<_>>());
        assert_eq!(part.kept().len(), 40);
        part.own();
        assert_eq!((part.kept().len(), Arc::strong_count(&shelf.rows)), (40, 1));
        assert_eq!(numbers(part), (10..50).rev().collect::<Vec<_>>());
        let mut all = shelf.part(0..100, false);
        drop(all.split(100));
        assert_eq!((all.left(), Arc::strong_count(&shelf.rows)), (0, 1), "nothing comes of it any more");
    }

    #[test]
    fn they_come_some_at_a_time() {
        both(5_000, |shelf| {
            let (mut rows, mut count) = (shelf.part(10..5_000, false), 0);
            loop {
                let some = rows.some().expect("what was written");
                assert!(some.len() <= ROWS_AT_ONCE, "{} rows", some.len());
                count += some.len();
                if some.is_empty() {
                    break;
                }
            }
            assert_eq!(count, 4_990);
        });
    }
}
