//! Bytes that are no key.

/// Why a key cannot be read. Its index is damaged, or it is read as something else than it was written as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The bytes end inside of something.
    #[error("expected {expected} at byte {at} of a key, came its end; the index is damaged or the type another")]
    Short {
        /// What was being read.
        expected: &'static str,
        /// Where.
        at: usize,
    },
    /// A byte that stands for nothing.
    #[error("expected {expected} at byte {at} of a key, came {came:#04x}; the index is damaged or the type another")]
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
        "expected text at byte {at} of a key, came bytes that are no UTF-8; the index is damaged or the type another"
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
