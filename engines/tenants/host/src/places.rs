//! Places for statements that take long, each on a thread of its own: whoever has had one for long gives it up if others wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of a process.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// For so long a statement has its place for certain.
    patience: Duration,
}

/// A statement's place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    since: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(crate) fn new(count: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(count)), waiting: AtomicUsize::new(0), patience })
    }

    /// Waits for a place.
    pub(crate) async fn take(self: &Arc<Self>) -> Place {
        let waiting = Waiting::new(&self.waiting);
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        drop(waiting);
        Place { places: Arc::clone(self), since: Instant::now(), _permit: permit }
    }
}

impl Place {
    /// Whether it is to be given up.
    pub(crate) fn is_wanted(&self) -> bool {
        is_wanted(self.places.waiting.load(Ordering::Relaxed), self.since.elapsed(), self.places.patience)
    }
}

/// Whether a statement gives its place up: others wait for one, and it has had its own for long.
fn is_wanted(waiting: usize, held: Duration, patience: Duration) -> bool {
    waiting > 0 && held >= patience
}

/// Counts somebody who waits, also one that gives up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_its_place_for_certain_as_long_as_it_may_expect() {
        let patience = Duration::from_secs(60);
        assert!(!is_wanted(0, patience * 2, patience), "nobody waits");
        assert!(!is_wanted(3, patience / 2, patience));
        assert!(is_wanted(1, patience, patience));
    }

    #[tokio::test]
    async fn a_place_is_given_up_if_somebody_waits_who_has_not_gone() {
        let places = Places::new(1, Duration::ZERO);
        let place = places.take().await;
        assert!(!place.is_wanted(), "nobody waits");
        let mut waiting = Box::pin(places.take());
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(place.is_wanted());
        drop(waiting);
        assert!(!place.is_wanted(), "whoever waited has gone");
        drop(place);
        places.take().await;

        let patient = Places::new(1, Duration::from_secs(3_600));
        let place = patient.take().await;
        let mut waiting = Box::pin(patient.take());
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(!place.is_wanted(), "it has not had it for long");
    }
}
