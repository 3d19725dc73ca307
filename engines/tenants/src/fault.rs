//! Rules that a test can switch off, to show that it notices. Without the feature `faults` all of them hold.

/// A rule that does not hold.
#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Who refers to a row neither locks nor probes its key.
    ParentsAreNotHeld,
    /// Who takes a key away does not probe the range of the rows that refer to it.
    ChildrenAreNotProbed,
    /// A range that was empty counts as empty when somebody has written there.
    GapsAreNotFilled,
}

/// The rules of one database.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "faults")]
    pub(crate) broken: Option<Fault>,
}

impl Rules {
    pub(crate) fn hold_parents(self) -> bool {
        #[cfg(feature = "faults")]
        return self.broken != Some(Fault::ParentsAreNotHeld);
        #[cfg(not(feature = "faults"))]
        true
    }

    pub(crate) fn probe_children(self) -> bool {
        #[cfg(feature = "faults")]
        return self.broken != Some(Fault::ChildrenAreNotProbed);
        #[cfg(not(feature = "faults"))]
        true
    }

    pub(crate) fn fill_gaps(self) -> bool {
        #[cfg(feature = "faults")]
        return self.broken != Some(Fault::GapsAreNotFilled);
        #[cfg(not(feature = "faults"))]
        true
    }
}
