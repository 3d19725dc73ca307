//! A commit on its way: a value that goes from hand to hand, so that no step can be left out or done twice.
//!
//! ```text
//!            prepare                check              decide               install
//!  running ─────────► Validation ─────────► Checked ─────────► Committed ─────────────► visible, in order
//!             locks, a number       anywhere   │                 │  the owner logs it
//!                                              └► aborted        └► withdraw: aborted
//! ```

use crate::{
    Conflict, Csn, Isolation, TxnId,
    fault::Rules,
    history::{Record, conflict},
    reads::ReadSet,
    writes::Write,
};

/// A numbered commit that is to be checked. It borrows nothing, so that several can be checked at once, on any thread.
#[derive(Debug)]
#[must_use = "a numbered commit holds up all later ones until it is decided"]
pub struct Validation<V> {
    pub(crate) txn: TxnId,
    pub(crate) isolation: Isolation,
    pub(crate) reads: ReadSet,
    pub(crate) writes: Vec<Write<V>>,
    pub(crate) record: Record,
    pub(crate) concurrent: Vec<Record>,
    pub(crate) rules: Rules,
}

impl<V> Validation<V> {
    /// The commit's number.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.record.csn
    }

    /// Compares what was read with what was committed since: time proportional to both together.
    pub fn check(self) -> Checked<V> {
        let conflict = conflict(self.isolation, &self.reads, &self.record.written, self.concurrent.iter(), self.rules);
        Checked { txn: self.txn, csn: self.record.csn, writes: self.writes, conflict }
    }
}

/// A commit that was checked.
#[derive(Debug)]
#[must_use = "a numbered commit holds up all later ones until it is decided"]
pub struct Checked<V> {
    pub(crate) txn: TxnId,
    pub(crate) csn: Csn,
    pub(crate) writes: Vec<Write<V>>,
    pub(crate) conflict: Option<Conflict>,
}

impl<V> Checked<V> {
    /// The commit's number.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }
}

/// A commit that is decided: its owner logs it, and gives it back to be installed.
#[derive(Debug)]
#[must_use = "a decided commit holds up all later ones until it is installed or withdrawn"]
pub struct Committed<V> {
    pub(crate) csn: Csn,
    pub(crate) writes: Vec<Write<V>>,
}

impl<V> Committed<V> {
    /// The commit's number.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// What to log: each key once, with its new value or `None` if it is deleted.
    pub fn writes(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&V>)> {
        self.writes.iter().map(|write| (&*write.key, write.value.as_ref()))
    }
}

/// What became of a commit that asked for its locks and a number.
#[derive(Debug)]
pub enum Prepared<V> {
    /// It waits for a lock; prepare again after [`Event::Granted`](crate::Event::Granted).
    Waiting,
    /// It had nothing to write and is over. Its replies wait for this commit to be told, which another one may be.
    ReadOnly(Csn),
    /// To be checked.
    Numbered(Validation<V>),
}

/// What became of a commit.
#[derive(Debug)]
pub enum Commit<V> {
    /// It waits for a lock; commit again after [`Event::Granted`](crate::Event::Granted).
    Waiting,
    /// It had nothing to write and is over. Its replies wait for this commit to be told.
    ReadOnly(Csn),
    /// To be logged and installed.
    Committed(Committed<V>),
}
