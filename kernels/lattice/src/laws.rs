//! Checks of the laws, for the types of this crate and for yours.
//!
//! A lattice of your own is a type with [`Lattice`] on it. Whether its merge keeps the laws, the compiler cannot know;
//! give these functions some values, best random ones, and they say which law fails for which of them.
//!
//! ```
//! use savanna_lattice::{Lattice, laws};
//!
//! /// The longest name seen.
//! #[derive(Clone, Debug, PartialEq)]
//! struct Longest(&'static str);
//!
//! impl Lattice for Longest {
//!     fn merge(&mut self, other: Self) -> bool {
//!         let longer = other.0.len() > self.0.len();
//!         if longer {
//!             *self = other;
//!         }
//!         longer
//!     }
//! }
//!
//! let violation = laws::check_lattice(&[Longest("lion"), Longest("gnu"), Longest("kudu")]).unwrap_err();
//! assert_eq!(violation.law, laws::Law::Commutative); // of two names of one length, which one stays?
//! ```

use std::fmt::{self, Debug};

use crate::Lattice;

/// A law that merges keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// `a + a = a`
    Idempotent,
    /// `a + b = b + a`
    Commutative,
    /// `(a + b) + c = a + (b + c)`
    Associative,
    /// `merge` returns whether it changed the value.
    TellsChange,
    /// `a + default = a`
    Bottom,
    /// What changed at one replica is all in the delta: `before + delta = after`.
    DeltaIsTheChange,
    /// Deltas may be merged before they are sent, come in any order, and come twice.
    DeltasAreChanges,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idempotent => "a + a = a",
            Self::Commutative => "a + b = b + a",
            Self::Associative => "(a + b) + c = a + (b + c)",
            Self::TellsChange => "that `a.merge(b)` returns whether it changed a",
            Self::Bottom => "a + default = a",
            Self::DeltaIsTheChange => "before + delta = after",
            Self::DeltasAreChanges => "the same from deltas in every order, merged before or one by one, once or twice",
        })
    }
}

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {law}, came {left} and {right} for {of}; mend the merge, or replicas that merge in different ways will differ for ever"
)]
pub struct Violation {
    /// Which law.
    pub law: Law,
    /// What its left side came to.
    pub left: String,
    /// What its right side came to.
    pub right: String,
    /// The values that show it.
    pub of: String,
}

/// Checks that the merge is idempotent, commutative and associative and tells changes, for every one, two and three of
/// the samples: n^3 merges.
///
/// # Errors
/// [`Violation`]: the first law that does not hold.
pub fn check_lattice<L: Lattice + Clone + PartialEq + Debug>(samples: &[L]) -> Result<(), Violation> {
    for a in samples {
        expect(Law::Idempotent, &merged(a, a), a, &[a])?;
        for b in samples {
            let ab = merged(a, b);
            expect(Law::Commutative, &ab, &merged(b, a), &[a, b])?;
            expect(Law::TellsChange, &a.clone().merge(b.clone()), &(ab != *a), &[a, b])?;
            for c in samples {
                expect(Law::Associative, &merged(&ab, c), &merged(a, &merged(b, c)), &[a, b, c])?;
            }
        }
    }
    Ok(())
}

/// Checks that the default value is a bottom, so that a replica can begin with it.
///
/// # Errors
/// [`Violation`] of [`Law::Bottom`].
pub fn check_bottom<L: Lattice + Default + Clone + PartialEq + Debug>(samples: &[L]) -> Result<(), Violation> {
    for a in samples {
        expect(Law::Bottom, &merged(a, &L::default()), a, &[a])?;
        expect(Law::Bottom, &merged(&L::default(), a), a, &[a])?;
    }
    Ok(())
}

/// Checks one change: its delta does to the value before what the change did, and nothing to the value after.
///
/// # Errors
/// [`Violation`] of [`Law::DeltaIsTheChange`].
pub fn check_delta<L: Lattice + Clone + PartialEq + Debug>(before: &L, delta: &L, after: &L) -> Result<(), Violation> {
    expect(Law::DeltaIsTheChange, &merged(before, delta), after, &[before, delta, after])?;
    expect(Law::DeltaIsTheChange, &merged(after, delta), after, &[before, delta, after])
}

/// Checks many changes: a base comes to the same value by deltas one by one, backwards, twice, and merged among
/// themselves first.
///
/// # Errors
/// [`Violation`] of [`Law::DeltasAreChanges`].
pub fn check_deltas<L: Lattice + Clone + PartialEq + Debug>(base: &L, deltas: &[L]) -> Result<(), Violation> {
    let one_by_one = deltas.iter().fold(base.clone(), |value, delta| merged(&value, delta));
    let backwards = deltas.iter().rev().fold(base.clone(), |value, delta| merged(&value, delta));
    let twice = deltas.iter().fold(one_by_one.clone(), |value, delta| merged(&value, delta));
    let mut first_among_themselves = None;
    for delta in deltas {
        first_among_themselves.merge(Some(delta.clone()));
    }
    let first_among_themselves = first_among_themselves.map_or_else(|| base.clone(), |delta| merged(base, &delta));
    let of: Vec<&L> = [base].into_iter().chain(deltas).collect();
    for other in [backwards, twice, first_among_themselves] {
        expect(Law::DeltasAreChanges, &one_by_one, &other, &of)?;
    }
    Ok(())
}

fn merged<L: Lattice + Clone>(a: &L, b: &L) -> L {
    let mut merged = a.clone();
    merged.merge(b.clone());
    merged
}

fn expect<T: PartialEq + Debug, L: Debug>(law: Law, left: &T, right: &T, of: &[&L]) -> Result<(), Violation> {
    if left == right {
        return Ok(());
    }
    Err(Violation { law, left: format!("{left:?}"), right: format!("{right:?}"), of: format!("{of:?}") })
}
