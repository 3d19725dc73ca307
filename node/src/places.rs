//! How many clients each service may have, so that a crowd at one leaves descriptors for the others, and for files.

use savanna_identity::descriptors_max;

use crate::config::NodeConfig;

/// Who takes clients, and what weight its clients have.
const WEIGHTS: [(&str, usize); 6] =
    [("tenants", 4), ("keys", 4), ("files", 1), ("functions", 1), ("pgwire", 1), ("http", 1)];

/// How many clients a service may have, of so many as it would take.
pub(crate) fn clients_max(config: &NodeConfig, service: &str, wanted: usize) -> usize {
    let descriptors = descriptors_max();
    let share = share(descriptors, service, |name| config.runs(name));
    if share < wanted {
        tracing::info!(
            service,
            "{share} clients instead of {wanted}, because of the limit of {descriptors} open files (ulimit -n)"
        );
    }
    share.min(wanted)
}

/// How many files for rows of statements there may be: half of the descriptors that are not for clients.
pub(crate) fn spill_files() -> usize {
    descriptors_max() / 8
}

/// The share of a service among those that run. A quarter of the descriptors is for files, and for clients that have not said
/// who they are.
fn share(descriptors: usize, service: &str, runs: impl Fn(&str) -> bool) -> usize {
    let weight =
        |name: &str| WEIGHTS.iter().filter(|(other, _)| *other == name).map(|(_, weight)| weight).sum::<usize>();
    let all: usize = WEIGHTS.iter().filter(|(name, _)| runs(name)).map(|(_, weight)| weight).sum();
    (descriptors.saturating_mul(weight(service)) / all.max(1) / 4).saturating_mul(3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_that_run_share_three_quarters() {
        let shares = |runs: &[&str]| {
            ["tenants", "keys", "pgwire", "http"].map(|name| share(1000, name, |other| runs.contains(&other)))
        };
        assert_eq!(shares(&["tenants", "keys", "pgwire", "http"]), [300, 300, 75, 75]);
        assert_eq!(shares(&["keys", "http"])[1], 600);
        assert!(share(usize::MAX, "http", |_| true) > 10_000);
        assert_eq!(share(0, "http", |_| true), 1);
    }
}
