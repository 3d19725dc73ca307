//! The lease of a data directory: one process at a time, on one machine, without a coordinator.
//!
//! ```text
//! DIR/lease        who holds the directory, under which epoch, and who claims it; replaced whole (write, sync, rename)
//!   line 1         {"format":1,"epoch":7,"holder":{"incarnation":..,"pid":4711,"birth":{..}},"claim":null}
//!   line 2         CRC-32C of line 1 as 8 hexadecimal digits
//! DIR/lease.lock   held (flock) while the file is read and replaced; never by a holder that renews
//! ```
//!
//! A holder renews by *reading* the file: as long as nobody claims the directory, its lease lasts a ttl from before it
//! read. A claimant writes its claim durably and waits a whole ttl from after that; by then, whatever the holder read,
//! its lease is over by a margin, be it running, paused or dead. No clock is compared with another, and nothing is
//! written while nobody claims. A holder that was late, because it was stopped, asleep or short of something, and finds that
//! nobody has claimed the directory meanwhile, goes on under the same epoch. The next one need not wait for a holder that
//! left in order, and said so in the file, nor for one that is known to be dead: it ran on this boot of this machine, and its
//! number is nobody's or another's by now. A file that is damaged, or is not there though there are journals, is as good as
//! one of a holder of whom nothing is known.

mod file;
mod holder;
mod process;

use std::path::PathBuf;
use std::time::Duration;

use savanna_epoch::NodeEpoch;
use serde::{Deserialize, Serialize};

use crate::record::Incarnation;
use crate::time::MonoTime;

pub use holder::{DataDirLease, DataDirOptions, EpochFloor, LossCause, Waiting};
pub use process::{Birth, Process};

/// What the lease file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFile {
    /// Of the present holder, or of the last one.
    pub epoch: NodeEpoch,
    /// None once it has released the directory.
    pub holder: Option<Process>,
    /// Who waits for the holder's lease to run out.
    pub claim: Option<Process>,
}

/// Why a data directory could not be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The file system failed.
    #[error(
        "data directory {path}: {doing} failed: {source}; check that the directory exists, is writable and has space"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// What came.
        source: std::io::Error,
    },
    /// The lease file is damaged.
    #[error(
        "{path}: expected a lease of format 1 with its checksum, came {came}; a node that starts now waits until no other node can hold the directory, then writes the lease again"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What it holds.
        came: String,
    },
    /// A later release wrote the lease file.
    #[error("{path}: expected a lease of format 1, came format {came}; a later release wrote it: use that release")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        came: u32,
    },
    /// This process wants it no more.
    #[error("this process stops, and does not take the data directory")]
    Unwanted,
    /// A later claimant was faster.
    #[error("expected to take over the data directory, but process {by} claimed it later; stop one of the two")]
    Superseded {
        /// Its process number.
        by: u32,
    },
    /// Another process keeps the lock file.
    #[error(
        "{path}: expected the lock to be free within {waited:?}, but a process that starts or stops on this directory keeps it (is it paused?); resume or stop that process"
    )]
    LockBusy {
        /// The lock file.
        path: PathBuf,
        /// How long this process tried.
        waited: Duration,
    },
    /// The thread that renews the lease could not be started.
    #[error("could not start the thread that keeps the data directory's lease: {source}; check the limit of threads")]
    Thread {
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The margin leaves no time to serve.
    #[error(transparent)]
    Terms(#[from] crate::lease::LeaseTermsError),
}

/// What a candidate does next, while it holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateAction {
    /// Write this file durably; the directory is then held under its epoch.
    Take(LeaseFile),
    /// Write this file durably, then say so by [`Candidate::claimed`].
    Claim(LeaseFile),
    /// Look again after this time.
    Wait(Duration),
    /// Another process has claimed the directory since.
    GiveUp {
        /// The later claimant.
        by: Process,
    },
}

/// A process that wants a directory, as a state machine: what it read and the time in, what to do out.
#[derive(Clone, Debug)]
pub struct Candidate {
    me: Process,
    ttl: Duration,
    /// The newest epoch known from elsewhere (the journal).
    epoch_floor: NodeEpoch,
    /// The epoch of the holder whose lease must run out, and since when no renewal of it counts.
    claim: Option<(NodeEpoch, MonoTime)>,
}

impl Candidate {
    /// A candidate; its epoch will be above `epoch_floor` and above that of every holder before.
    #[must_use]
    pub const fn new(me: Process, ttl: Duration, epoch_floor: NodeEpoch) -> Self {
        Self { me, ttl, epoch_floor, claim: None }
    }

    /// A journal in the directory has seen this epoch.
    pub fn raise_floor(&mut self, epoch: NodeEpoch) {
        self.epoch_floor = self.epoch_floor.max(epoch);
    }

    /// What a file that cannot be read, or that is missing where there are journals, may have said: that somebody holds
    /// the directory, under the epoch after the newest that is known.
    #[must_use]
    pub fn stand_in(&self) -> LeaseFile {
        let unknown = Process { incarnation: Incarnation(0), pid: 0, birth: None };
        LeaseFile { epoch: self.epoch_floor.next(), holder: Some(unknown), claim: None }
    }

    /// Decides what to do about the file as it is (nothing if it does not exist), and what is known of its holder.
    #[must_use]
    pub fn step(&self, file: Option<&LeaseFile>, is_holder_dead: bool, now: MonoTime) -> CandidateAction {
        let Some(file) = file else {
            return self.take(NodeEpoch::NONE);
        };
        if file.holder.is_none() || is_holder_dead {
            return self.take(file.epoch);
        }
        match (self.claim, file.claim) {
            (Some((epoch, since)), Some(claim)) if claim == self.me && epoch == file.epoch => {
                let waited = now.since(since);
                if waited >= self.ttl { self.take(file.epoch) } else { CandidateAction::Wait(self.ttl - waited) }
            }
            (Some((epoch, _)), Some(by)) if epoch == file.epoch => CandidateAction::GiveUp { by },
            // Somebody else took the directory in between: it is the one to give way now.
            _ => CandidateAction::Claim(LeaseFile { claim: Some(self.me), ..*file }),
        }
    }

    /// The claim against the holder of `epoch` is durable; `now` was read after that.
    pub const fn claimed(&mut self, epoch: NodeEpoch, now: MonoTime) {
        self.claim = Some((epoch, now));
    }

    fn take(&self, last: NodeEpoch) -> CandidateAction {
        CandidateAction::Take(LeaseFile {
            epoch: last.max(self.epoch_floor).next(),
            holder: Some(self.me),
            claim: None,
        })
    }
}

/// What a holder learns from the file, as the answer to a renewal: nothing stands against it, or what does.
///
/// # Errors
/// Why the lease is not renewed any more.
pub fn renewal(file: Option<&LeaseFile>, me: Process, epoch: NodeEpoch) -> Result<(), LossCause> {
    match file {
        None => Err(LossCause::FileGone),
        Some(file) if file.epoch == epoch && file.holder == Some(me) => match file.claim {
            None => Ok(()),
            Some(by) => Err(LossCause::Claimed { by: by.pid }),
        },
        Some(file) => {
            let by = file.holder.or(file.claim).map(|process| process.pid);
            Err(LossCause::TakenOver { by, epoch: file.epoch })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_nanos(300);

    fn process(number: u32) -> Process {
        Process { incarnation: Incarnation(u64::from(number)), pid: number, birth: None }
    }

    fn candidate(number: u32) -> Candidate {
        Candidate::new(process(number), TTL, NodeEpoch::NONE)
    }

    fn held(epoch: u64, holder: u32, claim: Option<u32>) -> LeaseFile {
        LeaseFile { epoch: NodeEpoch(epoch), holder: Some(process(holder)), claim: claim.map(process) }
    }

    #[test]
    fn a_new_or_released_directory_is_taken_at_once() {
        assert_eq!(candidate(1).step(None, false, MonoTime(0)), CandidateAction::Take(held(1, 1, None)));
        let released = LeaseFile { holder: None, ..held(4, 9, None) };
        assert_eq!(candidate(1).step(Some(&released), false, MonoTime(0)), CandidateAction::Take(held(5, 1, None)));
    }

    #[test]
    fn the_epoch_is_above_what_the_journal_has_seen() {
        let candidate = Candidate::new(process(1), TTL, NodeEpoch(7));
        assert_eq!(candidate.step(None, false, MonoTime(0)), CandidateAction::Take(held(8, 1, None)));
    }

    #[test]
    fn a_held_directory_is_claimed_and_taken_a_whole_ttl_after_the_claim() {
        let mut second = candidate(2);
        let claim = held(1, 1, Some(2));
        assert_eq!(second.step(Some(&held(1, 1, None)), false, MonoTime(10)), CandidateAction::Claim(claim));
        second.claimed(NodeEpoch(1), MonoTime(50));
        let wait = CandidateAction::Wait(Duration::from_nanos(1));
        assert_eq!(second.step(Some(&claim), false, MonoTime(349)), wait);
        assert_eq!(second.step(Some(&claim), false, MonoTime(350)), CandidateAction::Take(held(2, 2, None)));
    }

    #[test]
    fn the_later_of_two_claimants_wins() {
        let mut second = candidate(2);
        second.claimed(NodeEpoch(1), MonoTime(0));
        let claimed_by_third = held(1, 1, Some(3));
        assert_eq!(
            second.step(Some(&claimed_by_third), false, MonoTime(900)),
            CandidateAction::GiveUp { by: process(3) }
        );
    }

    #[test]
    fn a_claim_left_by_a_dead_claimant_shortens_nothing() {
        let left = held(1, 1, Some(9));
        assert_eq!(candidate(2).step(Some(&left), false, MonoTime(0)), CandidateAction::Claim(held(1, 1, Some(2))));
    }

    #[test]
    fn a_claimant_that_slept_while_another_took_the_directory_claims_anew() {
        let mut second = candidate(2);
        second.claimed(NodeEpoch(1), MonoTime(0));
        let taken = held(2, 3, None);
        assert_eq!(second.step(Some(&taken), false, MonoTime(900)), CandidateAction::Claim(held(2, 3, Some(2))));
    }

    #[test]
    fn a_dead_holder_is_followed_at_once_whoever_else_has_claimed_the_directory() {
        for claim in [None, Some(3)] {
            let taken = candidate(2).step(Some(&held(4, 1, claim)), true, MonoTime(0));
            assert_eq!(taken, CandidateAction::Take(held(5, 2, None)));
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_stands_for_a_holder_of_whom_nothing_is_known() {
        let mut candidate = Candidate::new(process(2), TTL, NodeEpoch(7));
        let unknown = candidate.stand_in();
        let CandidateAction::Claim(claim) = candidate.step(Some(&unknown), false, MonoTime(10)) else { panic!() };
        candidate.claimed(claim.epoch, MonoTime(20));
        assert_eq!(candidate.step(Some(&claim), false, MonoTime(319)), CandidateAction::Wait(Duration::from_nanos(1)));
        assert_eq!(candidate.step(Some(&claim), false, MonoTime(320)), CandidateAction::Take(held(9, 2, None)));
    }

    #[test]
    fn a_holder_is_renewed_until_it_is_claimed_and_has_lost_when_the_epoch_moved() {
        let ask = |file: Option<LeaseFile>| renewal(file.as_ref(), process(1), NodeEpoch(1));
        assert_eq!(ask(Some(held(1, 1, None))), Ok(()));
        assert_eq!(ask(Some(held(1, 1, Some(2)))), Err(LossCause::Claimed { by: 2 }));
        assert_eq!(ask(Some(held(2, 2, None))), Err(LossCause::TakenOver { by: Some(2), epoch: NodeEpoch(2) }));
        assert_eq!(ask(None), Err(LossCause::FileGone));
    }
}
