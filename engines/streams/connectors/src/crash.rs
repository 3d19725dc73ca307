//! For tests of what a crash leaves: of sinks, and of what keeps queries.

use std::sync::atomic::{AtomicU64, Ordering};

/// Ends the process if this is the point that `STREAMS_CRASH_AT` names, `POINT:n` at its n-th time.
pub fn crash_at(point: &str) {
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let Ok(wanted) = std::env::var("STREAMS_CRASH_AT") else { return };
    let (name, times) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    if name == point && PASSED.fetch_add(1, Ordering::AcqRel) + 1 >= times.parse().unwrap_or(1) {
        std::process::abort();
    }
}
