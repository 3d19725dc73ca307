//! Taking, keeping and releasing a directory's lease: the driver of [`Candidate`] and [`LeaseHolder`].

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use savanna_epoch::OwnerEpoch;
use tokio::sync::watch;

use super::file::LeasePath;
use super::{Candidate, CandidateAction, DataDirError, LeaseFile, Process, renewal};
use crate::guard::{LeaseGuard, LeaseStatus};
use crate::lease::{HolderAction, HolderInput, LeaseHolder, LeaseTerms};
use crate::record::Incarnation;
use crate::time::{Clock, MonoTime};

/// How to take a directory.
#[derive(Clone)]
pub struct DataDirOptions {
    /// The lease; all processes on one directory must agree on the ttl.
    pub terms: LeaseTerms,
    /// This process's life, drawn at random.
    pub incarnation: Incarnation,
    /// The newest epoch that storage in the directory is known to have seen, if any: guards against a lease file that was
    /// lost.
    pub epoch_floor: OwnerEpoch,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// Another process holds the directory; this one has claimed it and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The holder's process number.
    pub holder: u32,
    /// How long it will take at most.
    pub at_most: Duration,
}

/// A data directory that is held by this process.
///
/// The lease is kept by a thread of its own, so that a busy runtime does not lose it.
#[derive(Debug)]
pub struct DataDirLease {
    path: LeasePath,
    terms: LeaseTerms,
    me: Process,
    epoch: OwnerEpoch,
    guard: LeaseGuard,
    status: watch::Receiver<LeaseStatus>,
    stop: Option<mpsc::Sender<()>>,
    renewer: Option<JoinHandle<()>>,
}

impl DataDirLease {
    /// Takes the directory: at once if nobody holds it, else within about one ttl of the claim that this writes. `waiting`
    /// is called once if it must wait. Blocks the thread.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn acquire(
        directory: &Path,
        options: &DataDirOptions,
        mut waiting: impl FnMut(Waiting),
    ) -> Result<Self, DataDirError> {
        let path = LeasePath::new(directory);
        let me = Process { incarnation: options.incarnation, pid: std::process::id() };
        let ttl = options.terms.ttl();
        let mut candidate = Candidate::new(me, ttl, options.epoch_floor);
        loop {
            let locked = path.lock(ttl)?;
            let file = locked.read()?;
            let now = options.clock.now();
            match candidate.step(file.as_ref(), now) {
                CandidateAction::Take(taken) => {
                    locked.write(&taken)?;
                    drop(locked);
                    return Ok(Self::keep(path, options, me, &taken, now));
                }
                CandidateAction::Claim(claim) => {
                    locked.write(&claim)?;
                    candidate.claimed(claim.epoch, options.clock.now());
                    if let Some(holder) = claim.holder {
                        waiting(Waiting { holder: holder.pid, at_most: ttl });
                    }
                }
                CandidateAction::Wait(time) => {
                    drop(locked);
                    // In small steps: the holder may release the directory earlier.
                    thread::sleep(time.min(ttl / 20));
                }
                CandidateAction::GiveUp { by } => {
                    return Err(DataDirError::Superseded { by: by.pid });
                }
            }
        }
    }

    fn keep(path: LeasePath, options: &DataDirOptions, me: Process, taken: &LeaseFile, taken_at: MonoTime) -> Self {
        let holder = LeaseHolder::new(options.terms, taken_at);
        let guard = LeaseGuard::new(Arc::clone(&options.clock));
        guard.publish(&holder);
        let (status_sender, status) = watch::channel(LeaseStatus::Serving);
        let (stop, stopped) = mpsc::channel();
        let renewer = Renewer {
            path: path.clone(),
            me,
            epoch: taken.epoch,
            holder,
            guard: guard.clone(),
            status: status_sender,
            clock: Arc::clone(&options.clock),
        };
        let renewer = thread::spawn(move || renewer.run(&stopped));
        Self {
            path,
            terms: options.terms,
            me,
            epoch: taken.epoch,
            guard,
            status,
            stop: Some(stop),
            renewer: Some(renewer),
        }
    }

    /// The epoch under which the directory was taken: the fencing number for everything in it.
    #[must_use]
    pub const fn epoch(&self) -> OwnerEpoch {
        self.epoch
    }

    /// To ask before anything is told to anybody.
    #[must_use]
    pub fn guard(&self) -> LeaseGuard {
        self.guard.clone()
    }

    /// Follows how the lease stands; on `Lost`, print why and leave.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<LeaseStatus> {
        self.status.clone()
    }

    /// Gives the directory up, after everything in it is closed; the next process need not wait.
    ///
    /// # Errors
    /// [`DataDirError`]; the next process waits for a ttl then.
    pub fn release(mut self) -> Result<(), DataDirError> {
        self.stop_renewing();
        let locked = self.path.lock(self.terms.ttl())?;
        match locked.read()? {
            Some(file) if file.epoch == self.epoch && file.holder == Some(self.me) => {
                locked.write(&LeaseFile { holder: None, claim: None, ..file })
            }
            _ => Ok(()),
        }
    }

    fn stop_renewing(&mut self) {
        // The thread wakes when the channel closes.
        drop(self.stop.take());
        if let Some(renewer) = self.renewer.take() {
            // A renewer that panicked renews nothing either.
            let _ = renewer.join();
        }
        self.guard.revoke();
    }
}

impl Drop for DataDirLease {
    /// Stops renewing without saying so in the file, as a crash would.
    fn drop(&mut self) {
        self.stop_renewing();
    }
}

struct Renewer {
    path: LeasePath,
    me: Process,
    epoch: OwnerEpoch,
    holder: LeaseHolder,
    guard: LeaseGuard,
    status: watch::Sender<LeaseStatus>,
    clock: Arc<dyn Clock>,
}

impl Renewer {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        while let Some(wake_at) = self.holder.wake_at() {
            match stopped.recv_timeout(wake_at.since(self.clock.now())) {
                Err(RecvTimeoutError::Timeout) => self.step(HolderInput::Tick),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    return self.step(HolderInput::Release);
                }
            }
        }
    }

    fn step(&mut self, input: HolderInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for action in self.holder.step(input, self.clock.now()) {
                if let HolderAction::Renew(id) = action {
                    match self.path.read() {
                        Ok(file) => {
                            inputs.push(renewal(file.as_ref(), self.me, self.epoch, HolderInput::Renewed(id)));
                        }
                        // Not renewed this time; the next try is due before the lease runs out.
                        Err(error) => {
                            tracing::warn!(%error, "lease of the data directory not renewed")
                        }
                    }
                }
                if let Some(status) = LeaseStatus::after(action) {
                    tracing::info!(epoch = %self.epoch, ?status, "lease of the data directory");
                    self.status.send_replace(status);
                }
            }
            self.guard.publish(&self.holder);
        }
    }
}
