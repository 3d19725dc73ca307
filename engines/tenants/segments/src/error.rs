//! What can be wrong with a segment, and what a reader may have to wait for.

use crate::PageId;

/// Bytes that are no segment, or no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Not what was written.
    #[error("expected {expected}, came {found}; restore the object from a backup")]
    Corrupt {
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// Written by a later release.
    #[error("expected a segment of format 1, came format {0}; use the release that wrote it, or a later one")]
    Format(char),
}

impl SegmentError {
    pub(crate) fn corrupt(expected: &'static str, found: impl Into<String>) -> Self {
        Self::Corrupt { expected, found: found.into() }
    }
}

/// A block is wanted that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing(pub PageId);

/// Why a key cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Fetch this block and ask again.
    Missing(Missing),
    /// It will not be better then.
    Segment(SegmentError),
}

impl From<Missing> for ReadError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl From<SegmentError> for ReadError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(error)
    }
}
