//! The largest and the smallest of what was merged.

use serde::{Deserialize, Serialize};

use crate::Lattice;

/// The largest value seen: version numbers, timestamps, high-water marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Max<T>(pub T);

impl<T: Ord> Lattice for Max<T> {
    fn merge(&mut self, other: Self) -> bool {
        let grows = other > *self;
        if grows {
            *self = other;
        }
        grows
    }
}

/// The smallest value seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Min<T>(pub T);

impl<T: Ord> Lattice for Min<T> {
    fn merge(&mut self, other: Self) -> bool {
        let falls = other < *self;
        if falls {
            *self = other;
        }
        falls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extreme_stays() {
        let mut high = Max(3_i64);
        assert!(high.merge(Max(7)));
        assert!(!high.merge(Max(-1)));
        assert_eq!(high, Max(7));

        let mut low = Min(3_i64);
        assert!(low.merge(Min(-1)));
        assert!(!low.merge(Min(7)));
        assert_eq!(low, Min(-1));
    }
}
