//! When the log is rewritten, and when its beginning may go.
//!
//! The first thread decides. It notes the log's end and lets all threads append their keys once more. When they have, it lets
//! them append what they heard meanwhile, which may be in the older part alone. When that is durable, what was before
//! the noted position is dropped.

use std::time::Duration;

use savanna_journal::Lsn;

/// A log shorter than this is not worth a rewrite.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// How many times longer than the keys the log may become.
const LOG_GROWTH: u64 = 2;

/// How often keys are written again. The thread sleeps between: one that never does waits for its core when a request comes.
const PERIOD: Duration = Duration::from_millis(1);
/// How long that waits where there is no memory for the next key, or no space for the log.
const PAUSE: Duration = Duration::from_secs(1);
/// No key is written again while the disk is so many bytes behind: what clients change goes first.
const AHEAD: usize = 4 << 20;

/// When an actor writes some of its keys again.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    due: Duration,
}

impl Pace {
    /// When to come next.
    pub(crate) const fn due(&self) -> Duration {
        self.due
    }

    /// Whether keys are to be written now, to a log that has space, and is so far behind.
    pub(crate) fn may_write(&mut self, now: Duration, has_space: bool, backlog: impl FnOnce() -> usize) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + if has_space { PERIOD } else { PAUSE };
        has_space && backlog() < AHEAD
    }

    /// Notes whether there was memory and space to write anything.
    pub(crate) fn note_written(&mut self, now: Duration, has_written: bool) {
        self.due = now + if has_written { PERIOD } else { PAUSE };
    }
}

/// What the first thread knows of the log's length.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// Bytes that had been appended when the last rewrite ended.
    appended_before: u64,
    /// Bytes that the last rewrite appended: about the length of the keys.
    whole: u64,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    begin: Lsn,
    appended_before: u64,
    threads: usize,
    round: Round,
    missing: usize,
    end: Lsn,
}

/// What the threads are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// All keys.
    Write,
    /// What was heard meanwhile.
    Settle,
}

impl Rewrites {
    /// Whether the log has become long enough, with `appended` bytes since it was opened.
    pub(crate) fn is_due(&self, appended: u64) -> bool {
        self.under_way.is_none() && appended - self.appended_before > LOG_BYTES_MIN.max(LOG_GROWTH * self.whole)
    }

    /// Begins a rewrite by `threads` after the position `end`, unless one is under way.
    pub(crate) fn begin(&mut self, end: Lsn, appended: u64, threads: usize) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        let (begin, missing) = (end.next(), threads);
        self.under_way =
            Some(UnderWay { begin, appended_before: appended, threads, round: Round::Write, missing, end });
        true
    }

    /// Hears that a thread has done what it was asked for. Says whether all are to settle now.
    pub(crate) fn hear_done(&mut self, end: Lsn) -> bool {
        let Some(under_way) = &mut self.under_way else { return false };
        under_way.missing = under_way.missing.saturating_sub(1);
        under_way.end = under_way.end.max(end);
        let settles = under_way.missing == 0 && under_way.round == Round::Write;
        if settles {
            (under_way.round, under_way.missing) = (Round::Settle, under_way.threads);
        }
        settles
    }

    /// The position before which nothing is needed any more, once.
    pub(crate) fn finish(&mut self, durable: Lsn, appended: u64) -> Option<Lsn> {
        let is_done = |it: &mut UnderWay| it.round == Round::Settle && it.missing == 0 && it.end <= durable;
        let done = self.under_way.take_if(is_done)?;
        self.whole = appended - done.appended_before;
        self.appended_before = appended;
        Some(done.begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_a_few_at_a_time_and_changes_go_first() {
        let mut pace = Pace::default();
        assert!(pace.may_write(Duration::ZERO, true, || 0));
        pace.note_written(Duration::ZERO, true);
        assert!(!pace.may_write(PERIOD / 2, true, || 0), "too early");
        assert!(!pace.may_write(PERIOD, true, || AHEAD), "the disk is behind");
        assert!(pace.may_write(2 * PERIOD, true, || 0));
        assert!(!pace.may_write(3 * PERIOD, false, || 0), "no space");
        assert_eq!(pace.due(), 3 * PERIOD + PAUSE);
        pace.note_written(4 * PERIOD, false);
        assert_eq!(pace.due(), 4 * PERIOD + PAUSE, "no memory");
    }

    #[test]
    fn the_beginning_goes_when_all_threads_are_done_and_that_is_durable() {
        let mut rewrites = Rewrites::default();
        assert!(!rewrites.is_due(LOG_BYTES_MIN) && rewrites.is_due(LOG_BYTES_MIN + 1));
        assert!(rewrites.begin(Lsn(10), 1_000, 2));
        assert!(!rewrites.begin(Lsn(11), 1_000, 2), "one at a time");
        assert!(!rewrites.hear_done(Lsn(14)));
        assert_eq!(rewrites.finish(Lsn(99), 2_000), None, "one is missing");
        assert!(rewrites.hear_done(Lsn(15)), "all have written");
        assert_eq!(rewrites.finish(Lsn(99), 2_000), None, "what they heard is missing");
        assert!(!rewrites.hear_done(Lsn(20)) && !rewrites.hear_done(Lsn(15)));
        assert_eq!(rewrites.finish(Lsn(19), 2_000), None, "not durable");
        assert_eq!(rewrites.finish(Lsn(20), 2_000), Some(Lsn(11)));
        assert_eq!(rewrites.finish(Lsn(20), 2_000), None);
    }
}
