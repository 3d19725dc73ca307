//! All threads of the service: what they share, from the beginning to the end.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;
use savanna_journal::{Journal, Options, Stats as LogStats};
use savanna_keys::access::Users;
use savanna_keys::actor::Actor;
use savanna_keys::config::Config;
use savanna_keys::figures::Figures;
use savanna_keys::log::recover;
use savanna_keys::placement::Placement;
use savanna_lattice::UnixMillis;
use savanna_ownership::guard::LeaseGuard;

use crate::error::HostError;
use crate::host::Host;
use crate::mailbox::{Bell, Mail, Slot, mailbox};
use crate::memory::Release;
use crate::worker::Worker;

/// What a service is to be.
#[derive(Debug)]
pub struct HostOptions {
    /// How many threads it has.
    pub threads: u16,
    /// What is set.
    pub config: Config,
    /// Where its log is, and under which epoch it is written; none to keep nothing.
    pub log: Option<(Options, OwnerEpoch)>,
    /// The lease under which it may tell anybody anything; none where nobody else could have its keys.
    pub lease: Option<LeaseGuard>,
    /// A seed for what is left to chance.
    pub seed: u64,
}

/// A service whose workers run somewhere.
#[derive(Debug)]
pub struct Service {
    slots: Arc<[Slot]>,
    figures: Arc<[Arc<Mutex<Figures>>]>,
    journal: Option<Arc<Journal>>,
}

impl Service {
    /// Reads the log. Gives the service and a worker for each of the threads, which `wakers` wake. Blocks while it reads.
    ///
    /// # Errors
    /// [`HostError::Users`], [`HostError::Log`].
    ///
    /// # Panics
    /// If there are not as many wakers as [`Placement::over`] gives actors to the threads.
    pub fn open(options: HostOptions, wakers: Vec<Waker>) -> Result<(Self, Vec<Worker>), HostError> {
        let HostOptions { threads, mut config, log, lease, seed } = options;
        let placement = Placement::over(threads);
        assert_eq!(wakers.len(), usize::from(placement.actors()), "each thread has a waker");
        config.is_logged = log.is_some();
        let users = Users::configured(&config).map_err(HostError::Users)?;
        let mut actors: Vec<Actor> =
            placement.all().map(|id| Actor::new(id, placement, config.clone(), seed)).collect();
        Actor::introduce(&mut actors);
        actors.iter_mut().for_each(|actor| actor.change_users(|all| *all = users.clone()));
        let journal = log.map(|(options, epoch)| recover(options, epoch, &mut actors)).transpose();
        let journal = journal.map_err(HostError::Log)?;
        let (slots, mailboxes): (Vec<_>, Vec<_>) = wakers.into_iter().map(mailbox).unzip();
        let figures = actors.iter().map(|actor| Arc::new(Mutex::new(actor.figures()))).collect();
        let service = Self { slots: slots.into(), figures, journal };
        let workers = actors.into_iter().zip(mailboxes).zip(service.figures.iter());
        let workers = workers.map(|((actor, mailbox), figures)| Worker {
            host: Host::new(actor, service.journal.clone()),
            slots: Arc::clone(&service.slots),
            mailbox,
            lease: lease.clone(),
            has_log_failed: Arc::new(AtomicBool::new(false)),
            figures: Arc::clone(figures),
            told_figures_at: UnixMillis(0),
            owes_figures: false,
            release: Release::new(),
            is_stopping: false,
        });
        let workers = workers.collect();
        Ok((service, workers))
    }

    /// Tells its figures while somebody else waits for its end.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        let journal = self.journal.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Gauge { threads: Arc::clone(&self.figures), journal }
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { slots: Arc::clone(&self.slots) }
    }

    /// What wakes its threads, by actor.
    pub fn bells(&self) -> impl Iterator<Item = &Bell> {
        self.slots.iter().map(Slot::bell)
    }

    /// Flushes what its workers have left. They have ended.
    ///
    /// # Errors
    /// [`HostError::LastFlush`].
    pub fn close(&mut self) -> Result<(), HostError> {
        self.journal.take().map_or(Ok(()), |journal| journal.close().map_err(HostError::LastFlush))
    }
}

/// Tells the figures of a service, which may be a second old. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gauge {
    threads: Arc<[Arc<Mutex<Figures>>]>,
    journal: Weak<Journal>,
}

impl Gauge {
    /// The figures of each thread.
    #[must_use]
    pub fn threads(&self) -> Vec<Figures> {
        self.threads.iter().map(|figures| *figures.lock()).collect()
    }

    /// What was written to the log since the service began, if it has one and goes on.
    #[must_use]
    pub fn log(&self) -> Option<LogStats> {
        Some(self.journal.upgrade()?.stats())
    }
}

/// Stops a service.
#[derive(Clone, Debug)]
pub struct Stopper {
    slots: Arc<[Slot]>,
}

impl Stopper {
    /// Tells all workers to stop. They end a little later.
    pub fn stop(&self) {
        self.slots.iter().for_each(|slot| slot.put(Mail::Stop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_one_thread_stops_all() {
        let options = HostOptions { threads: 2, config: Config::default(), log: None, lease: None, seed: 1 };
        let (_service, mut workers) = Service::open(options, vec![Waker::noop().clone(); 2]).expect("no log");
        let mut other = workers.pop().expect("two");
        let panicking = std::thread::spawn(move || {
            let _workers = workers;
            panic!("a bug");
        });
        assert!(panicking.join().is_err());
        other.begin_turn();
        assert!(other.is_stopping());
    }
}
