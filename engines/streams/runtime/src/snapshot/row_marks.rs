//! Marks of rows, eight to a byte: a snapshot copies all of them at once, and rows are marked further meanwhile.

use std::ops::Range;

use arrow::buffer::{BooleanBuffer, Buffer};

/// Which rows, by number, are marked. A mark stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowMarks {
    bytes: Vec<u8>,
    rows: usize,
}

impl RowMarks {
    /// None of so many rows is.
    pub(crate) fn none(rows: usize) -> Self {
        Self { bytes: vec![0; rows.div_ceil(8)], rows }
    }

    /// Of rows behind these, whether each is.
    pub(crate) fn extend(&mut self, marks: impl IntoIterator<Item = bool>) {
        for is_marked in marks {
            if self.rows.is_multiple_of(8) {
                self.bytes.push(0);
            }
            self.rows += 1;
            if is_marked {
                self.mark(self.rows - 1);
            }
        }
    }

    pub(crate) fn is_marked(&self, row: usize) -> bool {
        self.bytes[row / 8] >> (row % 8) & 1 == 1
    }

    /// Marks a row; tells whether it was not.
    pub(crate) fn mark(&mut self, row: usize) -> bool {
        let was_marked = self.is_marked(row);
        self.bytes[row / 8] |= 1 << (row % 8);
        !was_marked
    }

    /// Those of some rows.
    pub(crate) fn of(&self, rows: Range<usize>) -> impl Iterator<Item = bool> {
        rows.map(|row| self.is_marked(row))
    }

    /// All of them as they are now.
    pub(crate) fn copied(&self) -> BooleanBuffer {
        BooleanBuffer::new(Buffer::from(self.bytes.as_slice()), 0, self.rows)
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_their_rows_and_what_was_copied_stays() {
        let mut marks = RowMarks::none(3);
        marks.extend([true, false, true, false, false, true, false]);
        marks.extend([]);
        marks.extend([true]);
        let set = |marks: &RowMarks| {
            marks.of(0..11).enumerate().filter(|(_, is_marked)| *is_marked).map(|(row, _)| row).collect::<Vec<_>>()
        };
        assert_eq!(set(&marks), [3, 5, 8, 10]);
        let copied = marks.copied();
        assert!(marks.mark(0) && !marks.mark(0) && marks.mark(9) && !marks.mark(10));
        assert_eq!(set(&marks), [0, 3, 5, 8, 9, 10]);
        assert_eq!(copied.set_indices().collect::<Vec<_>>(), [3, 5, 8, 10]);
        assert_eq!(copied.slice(4, 5).set_indices().collect::<Vec<_>>(), [1, 4]);
    }
}
