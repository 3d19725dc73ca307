//! Numbers that name things, and instants.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// The one after it.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A file or directory, for as long as it exists, wherever it is moved.
    InodeId
}
number! {
    /// A block of a file.
    BlockId
}
number! {
    /// The generation of a block: who has an older one missed a recovery of its pipeline.
    Stamp
}
number! {
    /// The number of a change of the namespace.
    Txid
}
number! {
    /// Milliseconds since 1970.
    Millis
}

impl InodeId {
    /// What the root is in. Nothing else is there but [`InodeId::DOOMED`].
    pub const NOWHERE: Self = Self(0);
    /// The directory of subtrees that were deleted and are being taken apart.
    pub const DOOMED: Self = Self(1);
    /// The directory `/`, by the number that HDFS gives it.
    pub const ROOT: Self = Self(16_385);
}

impl Millis {
    /// The latest instant that a file has: in the year 10889.
    pub const LATEST: Self = Self((1 << 48) - 1);

    /// Milliseconds from an earlier instant to this one; 0 if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
