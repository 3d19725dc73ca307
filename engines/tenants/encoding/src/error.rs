//! Bytes that are no key or no row.

/// Why a key cannot be read. Its index is damaged, or it is read as something else than it was written as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The bytes end inside of something.
    #[error(
        "expected {expected} at byte {at} of a key, but the key ends there; the index is damaged or has another \
         type"
    )]
    Short {
        /// What was being read.
        expected: &'static str,
        /// Where.
        at: usize,
    },
    /// A byte that stands for nothing.
    #[error("expected {expected} at byte {at} of a key, came {came:#04x}; the index is damaged or has another type")]
    Unknown {
        /// What was being read.
        expected: &'static str,
        /// Where.
        at: usize,
        /// The byte.
        came: u8,
    },
    /// A text that is no UTF-8.
    #[error(
        "expected text at byte {at} of a key, came bytes that are not UTF-8; the index is damaged or has another type"
    )]
    NoText {
        /// Where.
        at: usize,
    },
    /// A number with more digits than a key can hold.
    #[error(
        "expected at most {max} digits before or behind the point, came {came}; round the value or do not index it"
    )]
    TooManyDigits {
        /// Digits that are possible.
        max: usize,
        /// Digits of the value.
        came: usize,
    },
}

/// Why a row cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Fewer bytes than every row of its layout has.
    #[error("expected a row of at least {expected} bytes, came {came}; the row is damaged")]
    Short {
        /// The least there must be.
        expected: usize,
        /// What there was.
        came: usize,
    },
    /// The row is of another schema version.
    #[error("expected a row of schema version {expected}, came {came}; read it by the layout of its own version")]
    Version {
        /// The layout's.
        expected: u16,
        /// The row's.
        came: u16,
    },
    /// Columns too many or too few.
    #[error("expected {expected} columns, came {came}; use the layout of the row's own table")]
    Columns {
        /// Columns of the layout.
        expected: usize,
        /// Columns of the caller.
        came: usize,
    },
    /// A value whose length is not its column's.
    #[error("expected {expected} bytes for column {column}, came {came}; encode the value in its column's type")]
    Width {
        /// The column, from 0.
        column: usize,
        /// Its width.
        expected: usize,
        /// The value's.
        came: usize,
    },
    /// Values of more bytes than can be counted.
    #[error("expected a row of less than 4 GiB, came {came} bytes; split the value")]
    TooLong {
        /// Bytes of its values.
        came: usize,
    },
    /// A value whose end is before its start or behind the row.
    #[error("column {column} lies from byte {start} to {end} of {length}; the row is damaged")]
    End {
        /// The column, from 0.
        column: usize,
        /// Where it should begin.
        start: usize,
        /// Where it should end.
        end: usize,
        /// Bytes that there are.
        length: usize,
    },
}
