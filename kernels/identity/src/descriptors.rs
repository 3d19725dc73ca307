//! How many descriptors this process may have: each client takes one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// So many are assumed where the operating system does not say.
const UNKNOWN: u64 = 1024;

/// How many this process may have.
#[must_use]
pub fn descriptors_max() -> usize {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((UNKNOWN, UNKNOWN));
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// Asks for as many as this process may ask for.
pub fn raise_descriptors_max() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
