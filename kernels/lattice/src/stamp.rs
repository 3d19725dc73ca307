//! Who wrote, and when: a total order over all writes, and the register that follows it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Hlc, Max, Pair};

/// A writer: an actor that holds replicas and changes them.
///
/// **A writer that forgot takes a new id.** An id stands for everything it ever wrote; after a crash that lost writes, or
/// after giving up a replica that others keep, the same id would number new changes like old ones, and replicas would
/// take them for known (Anna's hazard A-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriterId(pub u32);

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}", self.0)
    }
}

/// One write among all: by time, then by writer. Unique as long as a writer stamps with one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// When.
    pub hlc: Hlc,
    /// Who.
    pub writer: WriterId,
}

impl Stamp {
    /// A writer's stamp.
    #[must_use]
    pub const fn new(hlc: Hlc, writer: WriterId) -> Self {
        Self { hlc, writer }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.hlc, self.writer)
    }
}

/// The last writer wins: the value of the latest stamp. If a stamp was given out twice after all, the larger of its two
/// values wins, so that replicas still agree.
pub type Lww<T> = Pair<Stamp, Max<T>>;

impl<T> Lww<T> {
    /// A write.
    pub const fn write(stamp: Stamp, value: T) -> Self {
        Self::new(stamp, Max(value))
    }

    /// The value of the latest write.
    pub const fn get(&self) -> &T {
        &self.value.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lattice, UnixMillis};

    fn at(millis: u64, writer: u32) -> Stamp {
        Stamp::new(Hlc::new(UnixMillis(millis), 0), WriterId(writer))
    }

    #[test]
    fn the_latest_write_wins_and_the_writer_breaks_a_tie() {
        let mut register = Lww::write(at(5, 9), "nine");
        assert!(!register.merge(Lww::write(at(5, 1), "one")));
        assert!(register.merge(Lww::write(at(6, 1), "later")));
        assert_eq!(register.get(), &"later");
    }

    #[test]
    fn a_stamp_given_out_twice_does_not_divide_replicas() {
        let (left, right) = (Lww::write(at(5, 1), "left"), Lww::write(at(5, 1), "right"));
        let (mut one, mut other) = (left, right);
        one.merge(right);
        other.merge(left);
        assert_eq!(one, other);
    }
}
