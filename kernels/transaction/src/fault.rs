//! Rules that a test can switch off, one at a time. Without the feature `faults` there is nothing to switch, and the
//! questions below are constants.

/// A rule that does not hold.
#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read sees what was installed last, whatever its snapshot.
    ReadsIgnoreSnapshots,
    /// A transaction's writes are not compared with what was committed since its snapshot.
    WritesAreNotValidated,
    /// Nor are the rows it read by key.
    ReadsAreNotValidated,
    /// Nor the ranges it read.
    RangesAreNotValidated,
    /// Nor the rows that its constraints were checked against.
    ProbesAreNotValidated,
    /// A transaction counts as overtaken though it has written nothing that it could not take back.
    OvertakenWithoutWrites,
    /// Commits that are numbered and not yet installed are left out of validation.
    UndecidedAreNotValidated,
    /// What was committed is forgotten though older snapshots are still to be validated against it.
    HistoryForgetsTooEarly,
    /// A commit is published as soon as it is installed, though an earlier one is not.
    PublishedOutOfOrder,
    /// A commit is told as soon as it is published, durable or not.
    ToldBeforeDurable,
    /// Replies do not wait for what they read.
    ReadsAreNotGated,
    /// A commit's locks end when it is decided, before its writes can be seen.
    LocksEndBeforePublish,
    /// A validated transaction does not wait for the locks of others when it commits.
    CommitsIgnoreLocks,
    /// A request that conflicts with no holder is granted though others have waited longer.
    NewcomersOvertake,
    /// Nobody looks for circles of waiting transactions.
    DeadlocksAreNotFound,
    /// A view shows what its transaction wrote later.
    ViewsShowLaterWrites,
    /// A transaction waits for the locks of the holder that it runs for, and circles through these are not found.
    HoldersAreStrangers,
    /// Rolling back to a savepoint keeps what was written since.
    SavepointsKeepWrites,
    /// Rolling back to a savepoint keeps the locks taken since.
    SavepointsKeepLocks,
    /// Rolling back to a savepoint drops a lock altogether that was only strengthened since.
    SavepointsDropEarlierLocks,
    /// Versions are removed though a snapshot still needs them.
    GarbageIgnoresSnapshots,
    /// A version that was replayed before replaces a newer one.
    ReplayIgnoresNumbers,
}

/// The rules of one transaction manager.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "faults")]
    broken: Option<Fault>,
}

#[cfg(feature = "faults")]
impl Rules {
    pub(crate) fn without(fault: Fault) -> Self {
        Self { broken: Some(fault) }
    }

    pub(crate) fn broken(self, fault: Fault) -> bool {
        self.broken == Some(fault)
    }
}

/// Whether a rule is switched off: `false`, and nothing at run time, without the feature.
macro_rules! broken {
    ($rules:expr, $fault:ident) => {{
        #[cfg(feature = "faults")]
        {
            $rules.broken($crate::fault::Fault::$fault)
        }
        #[cfg(not(feature = "faults"))]
        {
            let _ = &$rules;
            false
        }
    }};
}

pub(crate) use broken;
