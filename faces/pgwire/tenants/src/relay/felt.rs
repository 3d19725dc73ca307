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

/// So many answers are kept of a database that is watched, the last ones.
const ANSWERS_MAX: usize = 16 << 10;
/// So many databases are watched at once.
const WATCHED_MAX: usize = 64;
/// Whoever watches may have ended: nobody is watched for longer. A move takes less.
const WATCH_TIME: Duration = Duration::from_secs(180);

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
    since: Instant,
    /// When statements were asked, and when answered.
    answered: VecDeque<(Instant, Instant)>,
    failed: u64,
    /// Requests that had been sent again before.
    repeats: u64,
}

/// The databases that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    watched: Mutex<HashMap<TenantId, Watch>>,
    /// How many there are: mostly none, and then nothing is locked.
    count: AtomicUsize,
}

impl Watches {
    /// Begins to watch a database, to whose node so many requests were sent again so far.
    pub(super) fn begin(&self, tenant: TenantId, repeats: u64, now: Instant) {
        let mut watched = self.watched.lock();
        watched.retain(|_, watch| now.duration_since(watch.since) < WATCH_TIME);
        if watched.len() < WATCHED_MAX || watched.contains_key(&tenant) {
            watched.insert(tenant, Watch { since: now, answered: VecDeque::new(), failed: 0, repeats });
        }
        self.count.store(watched.len(), Ordering::Relaxed);
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

    fn note(&self, tenant: TenantId, what: impl FnOnce(&mut Watch)) {
        if self.count.load(Ordering::Relaxed) > 0
            && let Some(watch) = self.watched.lock().get_mut(&tenant)
        {
            what(watch);
        }
    }

    /// Ends a watch. Nobody was served from one moment to the other; these statements, which were asked then, wait yet, and so many requests were sent again so far.
    pub(super) fn end(
        &self,
        tenant: TenantId,
        (began, ended): (Instant, Instant),
        waiting: impl IntoIterator<Item = Instant>,
        (repeats, now): (u64, Instant),
    ) -> Felt {
        let mut watched = self.watched.lock();
        let watch = watched.remove(&tenant);
        self.count.store(watched.len(), Ordering::Relaxed);
        drop(watched);
        let Some(Watch { answered, failed, repeats: before, .. }) = watch else { return Felt::default() };
        let all = answered.into_iter().chain(waiting.into_iter().map(|asked| (asked, now)));
        let of_the_move = all.filter(|(asked, answered)| *asked < ended && *answered > began);
        let waits = of_the_move.map(|(asked, answered)| answered.duration_since(asked.max(began))).collect();
        Felt { waits, failed, resent: repeats.saturating_sub(before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: TenantId = 7;

    #[test]
    fn those_have_waited_who_were_not_answered_before_nobody_was_served_and_asked_before_somebody_was() {
        let (watches, zero) = (Watches::default(), Instant::now());
        let at = |millis| zero + Duration::from_millis(millis);
        watches.answered(SHOP, at(0), at(150));
        watches.failed(SHOP);
        watches.begin(SHOP, 3, at(10));
        for (asked, answered) in [(20, 99), (50, 130), (110, 140), (119, 300), (120, 125)] {
            watches.answered(SHOP, at(asked), at(answered));
        }
        watches.answered(SHOP + 1, at(50), at(130));
        watches.failed(SHOP);
        let felt = watches.end(SHOP, (at(100), at(120)), [at(60), at(121)], (5, at(400)));
        let waits = [30, 30, 181, 300].map(Duration::from_millis).to_vec();
        assert_eq!(felt, Felt { waits, failed: 1, resent: 2 });
        let again = watches.end(SHOP, (at(100), at(120)), [at(60)], (5, at(400)));
        assert_eq!(again, Felt::default(), "nobody watches any more");
    }

    #[test]
    fn what_is_kept_is_bounded_and_nobody_is_watched_for_ever() {
        let (watches, zero) = (Watches::default(), Instant::now());
        for tenant in 0..100 {
            watches.begin(tenant, 0, zero);
        }
        assert_eq!(watches.count.load(Ordering::Relaxed), WATCHED_MAX);
        (0..2 * ANSWERS_MAX).for_each(|_| watches.answered(1, zero, zero));
        assert_eq!(watches.watched.lock()[&1].answered.len(), ANSWERS_MAX);
        watches.begin(1_000, 0, zero + WATCH_TIME);
        assert_eq!(watches.count.load(Ordering::Relaxed), 1);
    }
}
