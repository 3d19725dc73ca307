//! Clients that have to go because all together take too much memory (`maxmemory-clients`).
//!
//! Each thread keeps the weight of its clients and tells it to all others, and how many that may go weigh how much, by powers of two. Above
//! the limit, a thread that has one of the heaviest lets that go, until the sum is below. So no two threads do that for the same bytes, and
//! none looks at clients one by one as long as there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Thread;
use super::accept::Arrivals;
use crate::connection::Connection;

/// What the clients of a thread take.
#[derive(Debug)]
pub(crate) struct Weight {
    /// All, in bytes.
    all: AtomicUsize,
    /// How many may be sent away, by class of weight.
    evictable: [AtomicUsize; CLASSES],
}

/// Classes of weight: the bits of a number of bytes.
const CLASSES: usize = usize::BITS as usize + 1;

const fn class_of(bytes: usize) -> usize {
    (usize::BITS - bytes.leading_zeros()) as usize
}

impl Default for Weight {
    fn default() -> Self {
        Self { all: AtomicUsize::new(0), evictable: [const { AtomicUsize::new(0) }; CLASSES] }
    }
}

impl Weight {
    /// Puts a client with another weight in the place of what it was. Only the thread of the client does.
    pub(super) fn put(&self, connection: &mut Connection, weight: (usize, bool)) {
        let before = std::mem::replace(&mut connection.weight, weight);
        self.change(before, weight);
    }

    fn change(&self, (before, was_evictable): (usize, bool), (now, is_evictable): (usize, bool)) {
        self.all.store(self.all.load(Ordering::Relaxed) + now - before, Ordering::Relaxed);
        // A connection begins and ends with no weight at all, and is in no class.
        let count_in = |bytes: usize| &self.evictable[class_of(bytes)];
        if was_evictable && before > 0 {
            let count = count_in(before);
            count.store(count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        }
        if is_evictable && now > 0 {
            let count = count_in(now);
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The class of the heaviest that may be sent away, if there is one.
    fn heaviest(&self) -> Option<usize> {
        (0..CLASSES).rev().find(|class| self.evictable[*class].load(Ordering::Relaxed) > 0)
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

    /// The thread that has one of the heaviest clients that may go, if there are any; of several the first.
    fn heaviest(&self) -> Option<usize> {
        let heaviest = (0..self.weights.len()).rev().max_by_key(|thread| self.weights[*thread].heaviest())?;
        self.weights[heaviest].heaviest().map(|_| heaviest)
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

    /// Threads with clients of these weights, that may go or not.
    fn scales(limit: usize, threads: &[&[(usize, bool)]]) -> Scales {
        let weight_of = |clients: &&[(usize, bool)]| {
            let weight = Weight::default();
            for client in *clients {
                weight.change((0, false), *client);
            }
            weight
        };
        let weights = threads.iter().map(weight_of).collect();
        Scales { thread: 0, weights, arrivals: Arc::new([]), limit: Some(limit) }
    }

    #[test]
    fn above_the_limit_the_thread_with_the_heaviest_that_may_go_lets_it_go() {
        assert!(!scales(100, &[&[(60, true)], &[(40, true)]]).are_over());
        let over = scales(99, &[&[(30, true), (30, true), (30, true)], &[(70, true)]]);
        assert_eq!((over.are_over(), over.heaviest()), (true, Some(1)), "one that is heavy before many that are not");
        assert_eq!(
            scales(0, &[&[(60, false), (1, true)], &[(20, true)]]).heaviest(),
            Some(1),
            "who is to stay does not count"
        );
        assert_eq!(scales(0, &[&[(60, true)], &[(60, true)]]).heaviest(), Some(0), "one of equals");
        assert_eq!(scales(0, &[&[(60, false)], &[(40, false)]]).heaviest(), None);
    }

    #[test]
    fn a_client_is_in_the_class_of_its_present_weight() {
        let weight = Weight::default();
        weight.change((0, false), (100, true));
        weight.change((100, true), (9000, true));
        assert_eq!((weight.all.load(Ordering::Relaxed), weight.heaviest()), (9000, Some(class_of(9000))));
        weight.change((9000, true), (100, true));
        assert_eq!(weight.heaviest(), Some(class_of(100)));
        weight.change((100, true), (100, false));
        assert_eq!((weight.all.load(Ordering::Relaxed), weight.heaviest()), (100, None));
        weight.change((100, false), (0, false));
        assert_eq!(weight.all.load(Ordering::Relaxed), 0);
    }
}
