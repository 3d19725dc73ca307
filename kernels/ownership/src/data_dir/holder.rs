//! Taking, keeping and releasing a directory's lease: the driver of [`Candidate`] and [`LeaseHolder`].

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use savanna_epoch::NodeEpoch;
use tokio::sync::watch;

use super::file::{LeasePath, Locked, OpenLease};
use super::{Candidate, CandidateAction, DataDirError, LeaseFile, Process, renewal};
use crate::guard::{LeaseGuard, LeaseStatus};
use crate::lease::{HolderAction, HolderInput, LeaseHolder, LeaseTerms, RenewalId};
use crate::record::Incarnation;
use crate::time::{Clock, MonoTime};

/// Reads the newest epoch that is known beside the lease file.
pub type EpochFloor = Arc<dyn Fn() -> io::Result<NodeEpoch> + Send + Sync>;

/// How to take a directory.
#[derive(Clone)]
pub struct DataDirOptions {
    /// The lease; all processes on one directory must agree on the ttl.
    pub terms: LeaseTerms,
    /// This process's life, drawn at random.
    pub incarnation: Incarnation,
    /// Reads the newest epoch that journals in the directory have seen: guards against a lease file that was lost or damaged.
    pub epoch_floor: EpochFloor,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// Another process holds the directory, or may hold it; this one has claimed it and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The holder's process number; none if the lease file is damaged or was deleted.
    pub holder: Option<u32>,
    /// How long it will take at most.
    pub at_most: Duration,
}

/// Why a lease of a directory is not renewed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// A process waits for it to run out.
    Claimed {
        /// Its process number.
        by: u32,
    },
    /// A process has the directory by now.
    TakenOver {
        /// Its process number, unless it has left again.
        by: Option<u32>,
        /// Under which epoch.
        epoch: NodeEpoch,
    },
    /// The lease file is not there any more.
    FileGone,
    /// The lease file cannot be read as one, and the lease has run out meanwhile.
    FileDamaged,
}

impl LossCause {
    const fn input(self) -> HolderInput {
        match self {
            Self::Claimed { .. } => HolderInput::Claimed,
            Self::TakenOver { .. } | Self::FileGone | Self::FileDamaged => HolderInput::Ended,
        }
    }
}

/// A data directory that is held by this process.
///
/// The lease is kept by a thread of its own, so that a busy runtime does not lose it.
#[derive(Debug)]
pub struct DataDirLease {
    path: LeasePath,
    terms: LeaseTerms,
    me: Process,
    epoch: NodeEpoch,
    guard: LeaseGuard,
    status: watch::Receiver<LeaseStatus>,
    cause: Arc<OnceLock<LossCause>>,
    stop: Option<mpsc::Sender<()>>,
    renewer: Option<JoinHandle<()>>,
}

impl DataDirLease {
    /// Takes the directory: at once if nobody holds it or its holder is known to be dead, else within about one ttl of the
    /// claim that this writes. `waiting` is called once if it must wait. Blocks the thread.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn acquire(
        directory: &Path,
        options: &DataDirOptions,
        waiting: impl FnMut(Waiting),
    ) -> Result<Self, DataDirError> {
        Self::acquire_while(directory, options, waiting, || true)
    }

    /// As [`DataDirLease::acquire`], for as long as it is wanted.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn acquire_while(
        directory: &Path,
        options: &DataDirOptions,
        mut waiting: impl FnMut(Waiting),
        is_wanted: impl Fn() -> bool,
    ) -> Result<Self, DataDirError> {
        let path = LeasePath::new(directory);
        let me = Process::own(options.incarnation);
        let ttl = options.terms.ttl();
        let mut candidate = Candidate::new(me, ttl, NodeEpoch::NONE);
        loop {
            if !is_wanted() {
                return Err(DataDirError::Unwanted);
            }
            let locked = path.lock(ttl)?;
            let file = look(&locked, options, &mut candidate)?;
            let is_holder_dead = file.and_then(|file| file.holder).is_some_and(|holder| holder.is_known_dead());
            let now = options.clock.now();
            match candidate.step(file.as_ref(), is_holder_dead, now) {
                CandidateAction::Take(taken) => {
                    locked.write(&taken)?;
                    drop(locked);
                    return Self::keep(path, options, me, &taken, now);
                }
                CandidateAction::Claim(claim) => {
                    locked.write(&claim)?;
                    candidate.claimed(claim.epoch, options.clock.now());
                    if let Some(holder) = claim.holder {
                        waiting(Waiting { holder: Some(holder.pid).filter(|pid| *pid != 0), at_most: ttl });
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

    /// Takes the directory if nobody holds it or its holder is known to be dead, and claims nothing of a holder that may live: then
    /// the file says who that is. Blocks the thread.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn take_if_free(directory: &Path, options: &DataDirOptions) -> Result<Result<Self, LeaseFile>, DataDirError> {
        let path = LeasePath::new(directory);
        let me = Process::own(options.incarnation);
        let mut candidate = Candidate::new(me, options.terms.ttl(), NodeEpoch::NONE);
        let locked = path.lock(options.terms.ttl())?;
        let file = look(&locked, options, &mut candidate)?;
        let is_holder_dead = file.and_then(|file| file.holder).is_some_and(|holder| holder.is_known_dead());
        let now = options.clock.now();
        match candidate.step(file.as_ref(), is_holder_dead, now) {
            CandidateAction::Take(taken) => {
                locked.write(&taken)?;
                drop(locked);
                Self::keep(path, options, me, &taken, now).map(Ok)
            }
            _ => Ok(Err(file.unwrap_or_else(|| candidate.stand_in()))),
        }
    }

    fn keep(
        path: LeasePath,
        options: &DataDirOptions,
        me: Process,
        taken: &LeaseFile,
        taken_at: MonoTime,
    ) -> Result<Self, DataDirError> {
        let holder = LeaseHolder::new(options.terms, taken_at);
        let guard = LeaseGuard::new(Arc::clone(&options.clock));
        guard.publish(&holder);
        let (status_sender, status) = watch::channel(LeaseStatus::Serving);
        let (stop, stopped) = mpsc::channel();
        let cause = Arc::new(OnceLock::new());
        let renewer = Renewer {
            file: OpenLease::new(path.clone()),
            me,
            epoch: taken.epoch,
            ttl: options.terms.ttl(),
            holder,
            guard: guard.clone(),
            status: status_sender,
            cause: Arc::clone(&cause),
            failure: None,
            suspended_at: None,
            clock: Arc::clone(&options.clock),
        };
        let thread = thread::Builder::new().name("lease".to_owned());
        let renewer = thread.spawn(move || renewer.run(&stopped)).map_err(|source| DataDirError::Thread { source })?;
        Ok(Self {
            path,
            terms: options.terms,
            me,
            epoch: taken.epoch,
            guard,
            status,
            cause,
            stop: Some(stop),
            renewer: Some(renewer),
        })
    }

    /// The epoch under which the directory was taken: the fencing number for everything in it.
    #[must_use]
    pub const fn epoch(&self) -> NodeEpoch {
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

    /// Why it is not renewed any more, once that is so; said before the status is.
    #[must_use]
    pub fn cause(&self) -> Arc<OnceLock<LossCause>> {
        Arc::clone(&self.cause)
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

/// Reads the lease, and what stands in for one that cannot be read. Each time the journals are asked, too: others may have come and
/// gone.
fn look(
    locked: &Locked<'_>,
    options: &DataDirOptions,
    candidate: &mut Candidate,
) -> Result<Option<LeaseFile>, DataDirError> {
    let floor = (options.epoch_floor)().map_err(|source| locked.unread_journals(source))?;
    candidate.raise_floor(floor);
    match locked.read() {
        Err(error @ DataDirError::Corrupt { .. }) => {
            tracing::warn!(%error, "the lease file is damaged");
            Ok(Some(candidate.stand_in()))
        }
        Ok(None) if floor > NodeEpoch::NONE => {
            tracing::warn!("the data directory has journals, but no lease file");
            Ok(Some(candidate.stand_in()))
        }
        read => read,
    }
}

struct Renewer {
    file: OpenLease,
    me: Process,
    epoch: NodeEpoch,
    ttl: Duration,
    holder: LeaseHolder,
    guard: LeaseGuard,
    status: watch::Sender<LeaseStatus>,
    cause: Arc<OnceLock<LossCause>>,
    /// Why the last renewal failed, if it did.
    failure: Option<String>,
    suspended_at: Option<MonoTime>,
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
            let now = self.clock.now();
            let actions = self.holder.step(input, now);
            // Before anybody hears of it: who is told that the lease is over finds that it is.
            self.guard.publish(&self.holder);
            for action in actions {
                if let HolderAction::Renew(id) = action {
                    inputs.extend(self.renew(id));
                }
                self.say(action, now);
                if let Some(status) = LeaseStatus::after(action) {
                    self.status.send_replace(status);
                }
            }
        }
    }

    /// Looks whether anything stands against a renewal. If that cannot be seen, the next try is due soon.
    fn renew(&mut self, id: RenewalId) -> Option<HolderInput> {
        let file = match self.file.read() {
            Ok(file) => file,
            // Whoever starts next writes it anew.
            Err(DataDirError::Corrupt { .. }) if !self.holder.serving(self.clock.now()) => {
                return Some(self.end(LossCause::FileDamaged));
            }
            Err(error) => {
                tracing::warn!(%error, "lease of the data directory not renewed");
                self.failure = Some(error.to_string());
                return None;
            }
        };
        self.failure = None;
        match renewal(file.as_ref(), self.me, self.epoch) {
            Ok(()) => Some(HolderInput::Renewed(id, self.ttl)),
            Err(cause) => Some(self.end(cause)),
        }
    }

    fn end(&self, cause: LossCause) -> HolderInput {
        // The first cause led to the others.
        let _ = self.cause.set(cause);
        cause.input()
    }

    fn say(&mut self, action: HolderAction, now: MonoTime) {
        let epoch = self.epoch.0;
        match action {
            HolderAction::Renew(_) => {}
            HolderAction::Suspend => {
                let late = now.since(self.holder.serve_until());
                self.suspended_at = Some(self.holder.serve_until());
                match &self.failure {
                    Some(why) => tracing::warn!(
                        epoch,
                        why,
                        "the lease of the data directory could not be renewed in time; until it is, nobody is told anything"
                    ),
                    None => tracing::warn!(
                        epoch,
                        ?late,
                        "this process came too late to renew the lease of the data directory: it was stopped, asleep or short of processor time; until it is renewed, nobody is told anything"
                    ),
                }
            }
            HolderAction::Resume => {
                let after = self.suspended_at.take().map(|at| now.since(at));
                tracing::warn!(
                    epoch,
                    ?after,
                    "the lease of the data directory is renewed, as nobody claimed it meanwhile; service goes on"
                );
            }
            HolderAction::Drain { .. } | HolderAction::Stop(_) => {
                let cause = self.cause.get();
                tracing::info!(epoch, ?action, ?cause, "the lease of the data directory is not renewed any more");
            }
        }
    }
}
