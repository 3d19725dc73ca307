//! Rules that a test can switch off, to show that it notices. Without the feature `faults` all of them hold.

/// A rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Who refers to a row neither locks nor probes its key.
    ParentsAreNotHeld,
    /// Who takes a key away does not probe the range of the rows that refer to it.
    ChildrenAreNotProbed,
    /// A range that was empty counts as empty when somebody has written there.
    GapsAreNotFilled,
    /// What a statement has scanned does not count as read.
    RangesAreNotReported,
    /// Of a scan that ends early, as under LIMIT, only the last key counts as read, and not what it passed.
    PassedKeysAreNotReported,
    /// What waited begins again at its first row, which may have been sent.
    RetriesBeginAgain,
    /// Who does not want to wait for a row waits.
    EverybodyWaits,
    /// `LOCK TABLE` locks nothing.
    TablesAreNotLocked,
    /// Rows that are written through a view need not be rows of it.
    ViewsCheckNothing,
    /// What a statement reads by pages is what is there when it asks for them, and not what its snapshot sees.
    PagesAreOfNow,
}

/// The rules of one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "faults")]
    pub(crate) broken: Option<Fault>,
}

impl Rules {
    /// Whether the rule holds whose breach this is.
    #[cfg(feature = "faults")]
    pub fn exclude(self, fault: Fault) -> bool {
        self.broken != Some(fault)
    }

    /// Whether the rule holds whose breach this is.
    #[cfg(not(feature = "faults"))]
    pub const fn exclude(self, _: Fault) -> bool {
        true
    }
}
