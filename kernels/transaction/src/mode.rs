//! The four strengths of a hold on a row, and which of them exclude each other.
//!
//! One table serves both ways of keeping transactions apart. A lock conflicts with a lock by it; and a commit conflicts
//! with a read that happened before by it, where a write counts as the lock that it needs and a read as the lock that
//! would have protected it.
//!
//! | holds \ asks | key share | share | no key update | update |
//! |---|---|---|---|---|
//! | key share | | | | conflict |
//! | share | | | conflict | conflict |
//! | no key update | | conflict | conflict | conflict |
//! | update | conflict | conflict | conflict | conflict |

use serde::{Deserialize, Serialize};

/// How strongly a row is held, weakest first. Names and conflicts are PostgreSQL's (`SELECT .. FOR KEY SHARE` and so on);
/// what conflicts with a mode conflicts with every stronger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RowLock {
    /// The row stays, under its key: what a foreign key needs of the row that it refers to.
    KeyShare,
    /// The row stays as it is.
    Share,
    /// The row's content is about to change, its key stays.
    NoKeyUpdate,
    /// The row is about to come, to go or to change its key.
    Update,
}

impl RowLock {
    /// Whether two transactions may not hold these at once.
    #[must_use]
    pub fn conflicts(self, other: Self) -> bool {
        match self.min(other) {
            Self::KeyShare => self.max(other) == Self::Update,
            Self::Share => self.max(other) >= Self::NoKeyUpdate,
            Self::NoKeyUpdate | Self::Update => true,
        }
    }
}

/// What a write does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Change {
    /// The row was there and stays there, under the same keys of every unique index.
    Content,
    /// The row comes, goes, or changes one of these keys.
    Existence,
}

impl Change {
    /// The lock that the write needs.
    #[must_use]
    pub fn lock(self) -> RowLock {
        match self {
            Self::Content => RowLock::NoKeyUpdate,
            Self::Existence => RowLock::Update,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_conflict_as_in_postgresql_and_both_ways() {
        use RowLock::{KeyShare, NoKeyUpdate, Share, Update};
        let table = [
            (KeyShare, [false, false, false, true]),
            (Share, [false, false, true, true]),
            (NoKeyUpdate, [false, true, true, true]),
            (Update, [true, true, true, true]),
        ];
        for (holds, row) in table {
            for (asks, conflict) in [KeyShare, Share, NoKeyUpdate, Update].into_iter().zip(row) {
                assert_eq!(holds.conflicts(asks), conflict, "{holds:?} and {asks:?}");
                assert_eq!(asks.conflicts(holds), conflict, "{asks:?} and {holds:?}");
            }
        }
    }
}
