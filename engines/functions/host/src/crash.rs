//! For tests of what a crash leaves.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The point that `FUNCTIONS_CRASH_AT` names, as `POINT:n`, and n.
static WANTED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
    let wanted = std::env::var("FUNCTIONS_CRASH_AT").ok()?;
    let (point, times) = wanted.split_once(':')?;
    Some((point.to_owned(), times.parse().ok()?))
});

/// The process ends here if this is the point that is wanted, at its n-th time.
pub(crate) fn crash_at(point: &str) {
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let Some((wanted, times)) = &*WANTED else { return };
    if wanted == point && PASSED.fetch_add(1, Ordering::AcqRel) + 1 == *times {
        std::process::abort();
    }
}
