//! What clients of this node feel of databases that move: how long they wait for an answer while nobody is served, and whether they are hung up on. It is counted
//! while somebody watches a move.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use savanna_tenants_host::TenantId;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// So many answers are kept of a move that is watched, the last ones.
const ANSWERS_MAX: usize = 16 << 10;
/// So many moves are watched at once.
const WATCHED_MAX: usize = 64;
/// Whoever watches may have ended: nothing is watched for longer. A move takes less.
const WATCH_TIME: Duration = Duration::from_secs(180);
/// A wait that lasts longer behind the time in which nobody was served is for something else: it counts up to here.
pub(super) const BEHIND_MAX: Duration = Duration::from_millis(500);

/// What the clients of a node have felt of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Felt {
    /// How long each statement waited for its answer that was under way while nobody was served: since it was asked, or since nobody was served if that was later.
    pub waits: Vec<Duration>,
    /// Clients that were hung up on.
    pub failed: u64,
    /// Requests that were sent again.
    pub resent: u64,
}

#[derive(Debug)]
struct Watch {
    tenant: TenantId,
    since: Instant,
    /// When statements were asked, and when answered.
    answered: VecDeque<(Instant, Instant)>,
    failed: u64,
    /// Requests that had been sent again before.
    repeats: u64,
}

/// The moves that are watched, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Watches {
    watched: Mutex<HashMap<u64, Watch>>,
    /// How many there are: mostly none, and then nothing is locked.
    count: AtomicUsize,
}

impl Watches {
    /// Begins to watch a move of a database, to whose node so many requests were sent again so far.
    pub(super) fn begin(&self, id: u64, tenant: TenantId, repeats: u64, now: Instant) {
        let mut watched = self.watched.lock();
        watched.retain(|_, watch| now.duration_since(watch.since) < WATCH_TIME);
        if watched.len() < WATCHED_MAX {
            let begun = || Watch { tenant, since: now, answered: VecDeque::new(), failed: 0, repeats };
            watched.entry(id).or_insert_with(begun);
        }
        self.count.store(watched.len(), Ordering::Relaxed);
    }

    /// The database whose move is watched.
    pub(super) fn tenant(&self, id: u64) -> Option<TenantId> {
        self.watched.lock().get(&id).map(|watch| watch.tenant)
    }

    /// A statement was answered.
    pub(super) fn answered(&self, tenant: TenantId, asked: Instant, now: Instant) {
        self.note(tenant, |watch| {
            if watch.answered.len() == ANSWERS_MAX {
                watch.answered.pop_front();
            }
            watch.answered.push_back((asked, now));
        });
    }

    /// A client was hung up on.
    pub(super) fn failed(&self, tenant: TenantId) {
        self.note(tenant, |watch| watch.failed += 1);
    }

    fn note(&self, tenant: TenantId, what: impl Fn(&mut Watch)) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.watched.lock().values_mut().filter(|watch| watch.tenant == tenant).for_each(what);
        }
    }

    /// How long those waited who were under way while nobody was served, which is over; these statements, which were asked then, wait yet. The watch goes on.
    pub(super) fn waits(
        &self,
        id: u64,
        (began, ended): (Instant, Instant),
        waiting: impl IntoIterator<Item = Instant>,
        now: Instant,
    ) -> Vec<Duration> {
        let mut watched = self.watched.lock();
        let answered = watched.get_mut(&id).map(|watch| std::mem::take(&mut watch.answered)).unwrap_or_default();
        drop(watched);
        let all = answered.into_iter().chain(waiting.into_iter().map(|asked| (asked, now)));
        let of_the_move = all.filter(|(asked, answered)| *asked < ended && *answered > began);
        let until = |answered: Instant| answered.min(ended + BEHIND_MAX);
        of_the_move.map(|(asked, answered)| until(answered).duration_since(asked.max(began))).collect()
    }

    /// Ends a watch. So many requests were sent again so far.
    pub(super) fn end(&self, id: u64, repeats: u64) -> Felt {
        let mut watched = self.watched.lock();
        let watch = watched.remove(&id);
        self.count.store(watched.len(), Ordering::Relaxed);
        drop(watched);
        let of = |Watch { failed, repeats: before, .. }| Felt {
            waits: Vec::new(),
            failed,
            resent: repeats.saturating_sub(before),
        };
        watch.map(of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: TenantId = 7;
    /// Two moves of it.
    const MOVES: [u64; 2] = [71, 72];

    #[test]
    fn those_have_waited_who_were_not_answered_before_nobody_was_served_and_asked_before_somebody_was() {
        let (watches, zero) = (Watches::default(), Instant::now());
        let at = |millis| zero + Duration::from_millis(millis);
        watches.answered(SHOP, at(0), at(150));
        watches.failed(SHOP);
        watches.begin(MOVES[0], SHOP, 3, at(10));
        for (asked, answered) in [(20, 99), (50, 130), (110, 140), (119, 300), (120, 125), (90, 2_000)] {
            watches.answered(SHOP, at(asked), at(answered));
        }
        watches.answered(SHOP + 1, at(50), at(130));
        watches.failed(SHOP);
        let waits = watches.waits(MOVES[0], (at(100), at(120)), [at(60), at(121)], at(400));
        assert_eq!(waits, [30, 30, 181, 520, 300].map(Duration::from_millis), "half a second behind the end at most");
        watches.failed(SHOP);
        assert_eq!(watches.end(MOVES[0], 5), Felt { waits: Vec::new(), failed: 2, resent: 2 });
        assert_eq!(watches.end(MOVES[0], 5), Felt::default(), "nobody watches any more");
    }

    #[test]
    fn a_database_that_moves_on_at_once_is_watched_for_both_moves() {
        let (watches, zero) = (Watches::default(), Instant::now());
        let at = |millis| zero + Duration::from_millis(millis);
        watches.begin(MOVES[0], SHOP, 0, at(0));
        watches.answered(SHOP, at(10), at(30));
        watches.begin(MOVES[1], SHOP, 0, at(40));
        watches.answered(SHOP, at(20), at(60));
        assert_eq!(watches.waits(MOVES[0], (at(15), at(25)), [], at(70)), [15, 40].map(Duration::from_millis));
        watches.failed(SHOP);
        assert_eq!((watches.end(MOVES[0], 0).failed, watches.tenant(MOVES[1])), (1, Some(SHOP)));
        assert_eq!(watches.waits(MOVES[1], (at(50), at(55)), [], at(70)), [Duration::from_millis(10)]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_nothing_is_watched_for_ever() {
        let (watches, zero) = (Watches::default(), Instant::now());
        for number in 0..100 {
            watches.begin(number, number, 0, zero);
        }
        assert_eq!(watches.count.load(Ordering::Relaxed), WATCHED_MAX);
        (0..2 * ANSWERS_MAX).for_each(|_| watches.answered(1, zero, zero));
        assert_eq!(watches.watched.lock()[&1].answered.len(), ANSWERS_MAX);
        watches.begin(1_000, 1, 0, zero + WATCH_TIME);
        assert_eq!(watches.count.load(Ordering::Relaxed), 1);
    }
}
