//! Clients that have to go because all together take too much memory (`maxmemory-clients`).
//!
//! Each thread keeps the weight of its clients and tells it to all others. Above the limit, the thread whose clients that may go weigh
//! most lets the heaviest of them go, until the sum is below. So no two threads do that for the same bytes, and none looks at
//! clients one by one as long as there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Thread;
use super::accept::Arrivals;
use crate::connection::Connection;

/// What the clients of a thread take, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    /// All.
    all: AtomicUsize,
    /// Those that may be sent away.
    evictable: AtomicUsize,
}

impl Weight {
    /// Puts a client with another weight in the place of what it was. Only the thread of the client does.
    pub(super) fn put(&self, connection: &mut Connection, weight: (usize, bool)) {
        let (before, was_evictable) = std::mem::replace(&mut connection.weight, weight);
        let (now, is_evictable) = weight;
        let part = |bytes: usize, counts: bool| if counts { bytes } else { 0 };
        self.all.store(self.all.load(Ordering::Relaxed) + now - before, Ordering::Relaxed);
        let evictable = self.evictable.load(Ordering::Relaxed) + part(now, is_evictable) - part(before, was_evictable);
        self.evictable.store(evictable, Ordering::Relaxed);
    }
}

/// The weights of all threads' clients.
#[derive(Debug)]
pub(crate) struct Scales {
    thread: usize,
    weights: Arc<[Weight]>,
    /// How other threads are woken.
    arrivals: Arc<[Arrivals]>,
    limit: Option<usize>,
}

impl Scales {
    /// Those of a thread.
    pub(crate) const fn new(thread: usize, weights: Arc<[Weight]>, arrivals: Arc<[Arrivals]>) -> Self {
        Self { thread, weights, arrivals, limit: None }
    }

    /// Whether there is a limit.
    pub(super) const fn are_wanted(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether all weigh too much.
    fn are_over(&self) -> bool {
        let all = || self.weights.iter().map(|weight| weight.all.load(Ordering::Relaxed)).sum::<usize>();
        self.limit.is_some_and(|limit| all() > limit)
    }

    /// The thread whose clients that may go weigh most, if there are any; of several the first.
    fn heaviest(&self) -> Option<usize> {
        let evictable = |thread: &usize| self.weights[*thread].evictable.load(Ordering::Relaxed);
        let heaviest = (0..self.weights.len()).rev().max_by_key(evictable)?;
        (evictable(&heaviest) > 0).then_some(heaviest)
    }
}

impl Thread {
    /// Notes what a client takes now, and what came from it and went to it.
    pub(super) fn weigh(&mut self, connection: &mut Connection) {
        if connection.traffic.reads + connection.traffic.writes > 0 {
            self.worker.note_traffic(std::mem::take(&mut connection.traffic));
        }
        let weight = self.worker.note_client_memory(connection.session, connection.memory());
        if weight != connection.weight {
            self.scales.weights[self.scales.thread].put(connection, weight);
        }
    }

    /// Sends the heaviest clients away while all together take too much.
    pub(super) fn evict_clients(&mut self) {
        self.scales.limit = self.worker.actor().clients_bytes_max();
        while self.scales.are_over() {
            match self.scales.heaviest() {
                Some(thread) if thread == self.scales.thread => {}
                Some(other) => return self.scales.arrivals[other].wake(),
                // Nobody may go.
                None => return,
            }
            let weights = self.state.connections.iter().enumerate().filter_map(|(place, connection)| {
                let (bytes, is_evictable) = connection.as_ref()?.weight;
                is_evictable.then_some((bytes, place))
            });
            let Some((_, place)) = weights.max() else { return };
            let Some(connection) = self.state.connections[place].take() else { return };
            tracing::info!(
                bytes = connection.weight.0,
                "a client of the keys service is disconnected: all together take more than maxmemory-clients"
            );
            self.worker.admission().note_evicted();
            self.settle(place, connection, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales(limit: usize, weights: &[(usize, usize)]) -> Scales {
        let weights = weights
            .iter()
            .map(|(all, evictable)| Weight { all: AtomicUsize::new(*all), evictable: AtomicUsize::new(*evictable) });
        Scales { thread: 0, weights: weights.collect(), arrivals: Arc::new([]), limit: Some(limit) }
    }

    #[test]
    fn above_the_limit_the_thread_with_most_that_may_go_lets_somebody_go() {
        assert!(!scales(100, &[(60, 60), (40, 40)]).are_over());
        let over = scales(99, &[(40, 40), (60, 60)]);
        assert_eq!((over.are_over(), over.heaviest()), (true, Some(1)));
        assert_eq!(scales(0, &[(60, 10), (40, 20)]).heaviest(), Some(1), "who is to stay does not count");
        assert_eq!(scales(0, &[(60, 60), (60, 60)]).heaviest(), Some(0), "one of equals");
        assert_eq!(scales(0, &[(60, 0), (40, 0)]).heaviest(), None);
    }
}
