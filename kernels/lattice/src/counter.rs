//! A counter that many writers count up and down.

use serde::{Deserialize, Serialize};

use crate::{Lattice, Map, Max, WriterId};

/// A counter that goes up and down. Each writer keeps two totals of its own, what it added and what it took; totals only
/// grow, so the larger one is the newer one.
///
/// It cannot be reset or bounded, because a writer does not know what the others are doing: a new value begins a new
/// [`Incarnation`](crate::Incarnation).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PnCounter {
    /// Added and taken, per writer.
    totals: Map<WriterId, (Max<u64>, Max<u64>)>,
}

/// A writer's total does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the total of writer {writer} to stay below 2^64, came {total} and {amount} more; write the value anew, which begins a new incarnation"
)]
pub struct CounterFull {
    /// Whose total.
    pub writer: WriterId,
    /// What it has added, or taken.
    pub total: u64,
    /// What it was to add, or take, now.
    pub amount: u64,
}

impl PnCounter {
    /// A counter at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self { totals: Map::new() }
    }

    /// The count.
    #[must_use]
    pub fn value(&self) -> i128 {
        self.totals.iter().map(|(_, (added, taken))| i128::from(added.0) - i128::from(taken.0)).sum()
    }

    /// Counts `amount` for `writer`, down if it is negative. Returns the delta for the other replicas: the writer's
    /// totals.
    ///
    /// # Errors
    /// [`CounterFull`] if the total does not fit; nothing changes then.
    pub fn add(&mut self, writer: WriterId, amount: i64) -> Result<Self, CounterFull> {
        let (Max(mut added), Max(mut taken)) = self.totals.get(&writer).copied().unwrap_or((Max(0), Max(0)));
        let total = if amount < 0 { &mut taken } else { &mut added };
        let amount = amount.unsigned_abs();
        *total = total.checked_add(amount).ok_or(CounterFull { writer, total: *total, amount })?;
        let totals = (Max(added), Max(taken));
        self.totals.merge_at(writer, totals);
        Ok(Self { totals: Map::from([(writer, totals)]) })
    }
}

impl Lattice for PnCounter {
    fn merge(&mut self, other: Self) -> bool {
        self.totals.merge(other.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: WriterId = WriterId(1);
    const Y: WriterId = WriterId(2);

    #[test]
    fn counts_of_all_writers_add_up_however_often_a_delta_comes() {
        let (mut here, mut there) = (PnCounter::new(), PnCounter::new());
        let up = here.add(X, 10).expect("fits");
        let down = there.add(Y, -3).expect("fits");
        for _ in 0..2 {
            here.merge(down.clone());
            there.merge(up.clone());
        }
        assert_eq!((here.value(), there.value()), (7, 7));
    }

    #[test]
    fn deltas_merged_before_they_are_sent_are_one_entry() {
        let mut counter = PnCounter::new();
        let mut changes = PnCounter::new();
        for _ in 0..100 {
            changes.merge(counter.add(X, 1).expect("fits"));
        }
        assert_eq!(changes, counter);
        assert_eq!(changes.totals.len(), 1);
    }

    #[test]
    fn a_total_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut counter = PnCounter::new();
        counter.add(X, i64::MIN).expect("2^63");
        counter.add(X, -i64::MAX).expect("2^64 - 1");
        let before = counter.clone();
        let refused = counter.add(X, -1).expect_err("2^64");
        assert_eq!(refused.total, u64::MAX);
        assert_eq!(counter, before);
    }
}
