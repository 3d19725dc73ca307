//! What a run says of itself.

use std::time::Duration;

use serde::Serialize;

use crate::application::{Application, Done};
use crate::processor::Spent;
use crate::transactions::Kind;

/// Latencies in milliseconds.
#[derive(Serialize)]
pub(crate) struct Latency {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latency {
    /// Zeros if there are none.
    pub(crate) fn of(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            let latency = latencies.get(index.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default();
            (latency.as_secs_f64() * 1e6).round() / 1000.0
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// Of each second, those before the switch first.
#[derive(Default, Serialize)]
struct Seconds {
    first: i64,
    completed: Vec<usize>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    max: Vec<f64>,
}

/// A run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// When what happened, in seconds since the switch was due.
    events: Vec<(String, f64)>,
    /// Transactions done in the window, and per second of it.
    completed: usize,
    throughput: f64,
    /// Transactions that had arrived in time and were not begun at the end of the window.
    waiting: u64,
    retries: u64,
    /// Of what was done in the window.
    latency: Latency,
    new_order: Latency,
    /// Of the window.
    processor: Spent,
    /// The server's processor time per transaction that was done in the window, in microseconds.
    server_micros: f64,
    seconds: Seconds,
}

impl Report {
    /// Sums up a run whose window was of so many seconds.
    pub(crate) fn of(application: &Application, window: Duration, processor: Spent) -> Self {
        let done = application.done();
        let within: Vec<&Done> = done.iter().filter(|done| (0.0..window.as_secs_f64()).contains(&done.at)).collect();
        let latencies = |kind: Option<Kind>| {
            let chosen = within.iter().filter(|done| kind.is_none_or(|kind| done.kind == kind));
            Latency::of(chosen.map(|done| done.latency).collect())
        };
        Self {
            events: application.events(),
            completed: within.len(),
            throughput: within.len() as f64 / window.as_secs_f64(),
            waiting: application.waiting(),
            retries: application.retries(),
            latency: latencies(None),
            new_order: latencies(Some(Kind::NewOrder)),
            server_micros: processor.server_seconds * 1e6 / within.len().max(1) as f64,
            processor,
            seconds: by_second(&done, window.as_secs() as i64),
        }
    }
}

fn by_second(done: &[Done], window: i64) -> Seconds {
    let first = done.iter().map(|done| done.at.floor() as i64).min().unwrap_or(0);
    let mut of_seconds: Vec<Vec<Duration>> = Vec::new();
    of_seconds.resize_with((window - first).max(0) as usize, Vec::new);
    for done in done {
        if let Some(of_second) = of_seconds.get_mut((done.at.floor() as i64 - first) as usize) {
            of_second.push(done.latency);
        }
    }
    let mut seconds = Seconds { first, ..Seconds::default() };
    for of_second in of_seconds {
        seconds.completed.push(of_second.len());
        let latency = Latency::of(of_second);
        seconds.p50.push(latency.p50);
        seconds.p99.push(latency.p99);
        seconds.max.push(latency.max);
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_latency_that_was_seen() {
        let latency = Latency::of((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!((latency.p50, latency.p99, latency.max), (51.0, 100.0, 100.0));
        assert_eq!(Latency::of(Vec::new()).max, 0.0);
    }

    #[test]
    fn seconds_before_the_switch_have_negative_numbers() {
        let done =
            [-1.5, -0.5, 0.5, 0.7, 9.0].map(|at| Done { at, latency: Duration::from_millis(1), kind: Kind::Payment });
        let seconds = by_second(&done, 3);
        assert_eq!((seconds.first, seconds.completed), (-2, vec![1, 1, 2, 0, 0]));
    }
}
