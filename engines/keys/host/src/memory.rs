//! Memory that is free goes back to the operating system.
//!
//! The allocator gives back what was freed some time ago while its thread allocates. A thread that has little to do after
//! it had much would keep what that took: what replies of its clients, or keys that were deleted, have left.

use std::time::{Duration, Instant};

// What the project's binaries allocate with.
use mimalloc as _;

unsafe extern "C" {
    /// Gives back what is free in the pages of this thread, and in those that nobody has.
    safe fn mi_collect(force: bool);
}

/// How long a thread looks at how much it has to do.
const PERIOD: Duration = Duration::from_secs(1);
/// A thread that sleeps so much of the time has little to do.
const SLEPT: Duration = Duration::from_millis(700);
/// What giving back takes is no more than this part of a thread's time.
const SHARE: u32 = 100;

/// When a thread gives back what is free.
#[derive(Debug)]
pub(crate) struct Release {
    /// Since when it looks at how much there is to do; `None` if nothing was done since it gave back last.
    since: Option<Instant>,
    slept: Duration,
    not_before: Instant,
}

impl Release {
    pub(crate) fn new() -> Self {
        Self { since: None, slept: Duration::ZERO, not_before: Instant::now() }
    }

    /// When to come again.
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = self.since.map(|since| (since + PERIOD).max(self.not_before));
        due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Hears that the thread slept so long, and whether there is something to do now. Gives back what is free if it is time.
    pub(crate) fn wake(&mut self, slept: Duration, is_busy: bool) {
        let now = Instant::now();
        self.slept += slept;
        if let Some(since) = self.since
            && now >= (since + PERIOD).max(self.not_before)
        {
            let has_little_to_do = self.slept >= SLEPT;
            self.since = None;
            if has_little_to_do {
                mi_collect(true);
                self.not_before = now + now.elapsed() * SHARE;
            } else {
                self.begin(now);
            }
        }
        if is_busy && self.since.is_none() {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        (self.since, self.slept) = (Some(now), Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_much_to_do_goes_on_and_who_rests_gives_back_once() {
        let mut release = Release::new();
        assert_eq!(release.due(), None, "nothing was done");
        release.wake(Duration::ZERO, true);
        let long_ago = Instant::now() - PERIOD;
        for (slept, is_over) in [(SLEPT / 2, false), (SLEPT, true)] {
            release.begin(long_ago);
            release.wake(slept, false);
            assert_eq!(release.due().is_none(), is_over, "slept {slept:?}");
        }
        release.wake(PERIOD, false);
        assert_eq!(release.due(), None, "once");
    }
}
