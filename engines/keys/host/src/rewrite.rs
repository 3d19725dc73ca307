//! When the log is rewritten, and when its beginning may go.
//!
//! The first thread decides. It notes the log's end and lets all threads append their keys once more. When they have, it lets
//! them append what they heard meanwhile, which may be in the older part alone. When that is durable, what was before
//! the noted position is dropped.

use savanna_journal::Lsn;

/// A log shorter than this is not worth a rewrite.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// How many times longer than the keys the log may become.
const LOG_GROWTH: u64 = 2;

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
