//! Nothing is told before what it depends on is in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use savanna_journal::Lsn;

/// A position that everything said from now on depends on. Of one thread; its clones are for what runs in the midst of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Depends(Arc<AtomicU64>);

impl Depends {
    pub(crate) fn get(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Relaxed))
    }

    /// Nobody else writes it.
    fn note(&self, depends: Lsn) {
        if depends > self.get() {
            self.0.store(depends.0, Ordering::Relaxed);
        }
    }
}

/// Knows what replies depend on, and when to ask the log to wake who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    depends: Depends,
    /// The position for which the log was asked to wake this thread.
    asked: Lsn,
    /// Up to where the log was durable when replies were last released.
    seen: Lsn,
}

/// What may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clearance {
    /// What is said now waits until the log is durable up to here; `None` if it need not wait.
    pub held: Option<Lsn>,
    /// What waited for positions up to here may leave.
    pub durable: Lsn,
    /// The log is to wake the thread when it is durable up to here.
    pub wake_at: Option<Lsn>,
}

impl Gate {
    /// What everything said from now on depends on.
    pub(crate) const fn depends(&self) -> &Depends {
        &self.depends
    }

    /// Notes that what is said from now on depends on this position, too: a change, or something heard.
    pub(crate) fn note(&mut self, depends: Lsn) {
        self.depends.note(depends);
    }

    /// Judges what may be told, if the log is durable up to `durable`, and `is_kept` says whether what replies depend on is as safe
    /// as it has to be.
    pub(crate) fn clear(&mut self, durable: Lsn, is_kept: bool) -> Clearance {
        self.seen = durable;
        let held = (!is_kept).then(|| self.depends.get());
        let wake_at = held.filter(|held| self.asked < *held);
        self.asked = self.asked.max(wake_at.unwrap_or_default());
        Clearance { held, durable, wake_at }
    }

    /// Whether a log that is durable up to here lets more be told than when that was judged last.
    pub(crate) fn has_news(&self, durable: Lsn) -> bool {
        durable > self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_counts_like_what_was_changed() {
        let mut gate = Gate::default();
        gate.note(Lsn(7));
        gate.note(Lsn(5));
        assert_eq!(gate.depends().get(), Lsn(7), "nothing heard later takes it back");
        assert_eq!(gate.clear(Lsn(6), false).held, Some(Lsn(7)));
        assert_eq!(gate.clear(Lsn(7), true).held, None);
    }

    #[test]
    fn the_log_is_asked_once_for_each_position() {
        let mut gate = Gate::default();
        gate.note(Lsn(3));
        assert_eq!(gate.clear(Lsn(1), false).wake_at, Some(Lsn(3)));
        assert_eq!(gate.clear(Lsn(2), false).wake_at, None, "it was asked");
        gate.note(Lsn(4));
        assert_eq!(gate.clear(Lsn(2), false).wake_at, Some(Lsn(4)));
        assert_eq!(gate.clear(Lsn(4), true).wake_at, None);
    }

    #[test]
    fn a_log_that_goes_on_is_news_until_it_was_looked_at() {
        let mut gate = Gate::default();
        assert!(gate.has_news(Lsn(2)));
        gate.clear(Lsn(2), true);
        assert!(!gate.has_news(Lsn(2)) && gate.has_news(Lsn(3)));
    }
}
